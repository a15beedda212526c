"""Lets PostgreSQL notice that a client is gone or stands still: else the client's locks would stay, and all other processes wait for them."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

# How long a session may do nothing inside a transaction; the longest pause of Berth's own is for checking a large import.
IDLE_SECONDS = 300
_IDLE = "idle_in_transaction_session_timeout"
# libpq's options for a server that is gone, and PostgreSQL's settings for a client that is gone; without them its kernel waits for hours.
_SETTING_OF_OPTION = {
    "keepalives_idle": "tcp_keepalives_idle",
    "keepalives_interval": "tcp_keepalives_interval",
    "keepalives_count": "tcp_keepalives_count",
    "tcp_user_timeout": "tcp_user_timeout",
}


def network_limits(options: Mapping[str, Any]) -> dict[str, str]:
    """Return PostgreSQL's settings with which it waits for a client as long as the client waits for it; libpq takes negative numbers as 0."""
    found = {setting: options[option] for option, setting in _SETTING_OF_OPTION.items() if option in options}
    return {setting: str(max(0, int(value))) for setting, value in found.items()}


def bound_session(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Limit how long PostgreSQL waits for the client of a new connection. An administrator's own limit on idle transactions stays."""
    if connection.vendor != "postgresql":
        return
    limits = network_limits(connection.settings_dict["OPTIONS"])
    calls = ["set_config(%s, coalesce(nullif(current_setting(%s), '0'), %s), false)"]
    calls += ["set_config(%s, %s, false)"] * len(limits)
    values = [_IDLE, _IDLE, str(IDLE_SECONDS * 1000), *chain.from_iterable(limits.items())]
    with connection.cursor() as cursor:
        # Not by `options` of the connection, which PgBouncer refuses.
        cursor.execute(f"SELECT {', '.join(calls)}", values)


def watch_sessions() -> None:
    """Limit each connection that this process makes."""
    connection_created.connect(bound_session, dispatch_uid="lost_clients")
