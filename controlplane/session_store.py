"""The session store: Django's rows in the database, with their accounts (`SESSION_ENGINE`)."""

from datetime import datetime
from typing import Any, Final, cast

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends import db

from controlplane.models import Session

# Where a session's data holds when, from where and with which browser it began.
BEGAN: Final = "berth_began"


class SessionStore(db.SessionStore):
    """Django's store, with rows that name the account."""

    def __init__(self, session_key: str | None = None) -> None:
        """Begin with the session of this key, or without one: Django unquotes a cookie, and PostgreSQL takes no NUL."""
        super().__init__(None if "\0" in (session_key or "") else session_key)

    @classmethod
    def get_model_class(cls) -> type[Session]:
        """Return the model."""
        return Session

    def get_expiry_date(self, **known: Any) -> datetime:
        """Return when the session ends. Its hours count from the sign-in: Django counts them anew whenever its data change."""
        if began := self.get(BEGAN):
            known.setdefault("modification", datetime.fromisoformat(began["at"]))
        return super().get_expiry_date(**known)

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        """Return the row for the data of a session."""
        row = cast("Session", super().create_model_instance(data))
        row.user_id = data.get(SESSION_KEY)
        return row
