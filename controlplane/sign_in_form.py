"""The forms that compare a password, to sign in and to change one's own, with limits for all and for each address."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from unfold.forms import AdminOwnPasswordChangeForm, AdminPasswordChangeForm, AuthenticationForm

from controlplane.accounts import counted_address

# Comparing a password takes a third of a second of processor time, whether or not the account exists, and one of the admin's eight
# threads: half of them are kept for other requests. The limit per minute is for the wrong passwords of one address (IPv6: a /64).
AT_ONCE, OF_ADDRESS = 4, 30
# The same message for a wrong name, a wrong password and an inactive account, so that nobody learns which accounts exist.
_WRONG = "No account has this name and password; both are case-sensitive. An administrator can set a new password."
_TOO_MANY = "Too many sign-in attempts. Try again in a few seconds, or in a minute after many attempts."


class Turns:
    """Limits how many passwords are compared, for all threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Forget all counts."""
        self._minute, self._comparing, self._wrong = 0, 0, Counter[str]()

    @contextmanager
    def comparing(self, address: str, minute: int) -> Iterator[None]:
        """Enclose the comparison of a password. It counts as wrong if the block ends with an exception.

        Raises:
            ValidationError: too many comparisons are running, or this address had too many wrong passwords.
        """
        with self._lock:
            if minute != self._minute:
                self._minute = minute
                self._wrong.clear()
            if self._comparing >= AT_ONCE or self._wrong[address] >= OF_ADDRESS:
                raise ValidationError(_TOO_MANY, code="too_many")
            self._comparing += 1
            self._wrong[address] += 1
        is_right = False
        try:
            yield
            is_right = True
        finally:
            with self._lock:
                self._comparing -= 1
                if is_right and self._wrong[address]:
                    self._wrong[address] -= 1


TURNS = Turns()


class SignInForm(AuthenticationForm):  # type: ignore[misc] # Unfold has no types
    """Unfold's form, with limits, and with messages that say what to do."""

    error_messages = {**AuthenticationForm.error_messages, "invalid_login": _WRONG}

    def clean(self) -> Any:
        """Compare the password, within the limits."""
        with TURNS.comparing(counted_address(self.request), int(time.monotonic() // 60)):
            return super().clean()


class _PasswordAlone:
    """Saves the password alone: hashing takes long, and an administrator may deactivate the account meanwhile."""

    def set_password_and_save(self, user: User, *given: Any, commit: bool = True, **more: Any) -> User:
        """Set the password, and save nothing else."""
        super().set_password_and_save(user, *given, commit=False, **more)  # type: ignore[misc] # Django's mixin
        if commit:
            user.save(update_fields=["password"])
        return user


class PasswordForm(_PasswordAlone, AdminPasswordChangeForm):  # type: ignore[misc] # as above
    """Unfold's form, with which an administrator sets somebody's password."""


class OwnPasswordForm(_PasswordAlone, AdminOwnPasswordChangeForm):  # type: ignore[misc] # as above
    """Unfold's form, with the same limits: a session of somebody else's doesn't help to guess the password faster."""

    def __init__(self, request: HttpRequest, user: User, *arguments: Any, **options: Any) -> None:
        super().__init__(user, *arguments, **options)
        self._request = request

    def clean_old_password(self) -> str:
        """Compare the password as sign-in does, which counts, logs and records wrong ones."""
        given: str = self.cleaned_data["old_password"]
        with TURNS.comparing(counted_address(self._request), int(time.monotonic() // 60)):
            if authenticate(self._request, username=self.user.get_username(), password=given) != self.user:
                raise ValidationError(self.error_messages["password_incorrect"], code="password_incorrect")
        return given
