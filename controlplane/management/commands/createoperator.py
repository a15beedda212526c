"""`manage.py createoperator NAME`: make an account that may use the admin."""

import secrets
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.db import transaction

from controlplane.roles import ROLES
from policies.management.command import BerthCommand


class Command(BerthCommand):
    """Creates an account with a role. Does nothing if the account exists, so each start can run it."""

    help = (
        "Create an admin account with a generated password, which is printed once. Does nothing if the account exists."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("username", nargs="?", default="operator", help="the username")
        parser.add_argument("--role", choices=[*ROLES, "superuser"], help="the account's role (Operator)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the account, or print that it exists."""
        name = _checked(options["username"])
        role = options["role"] or "Operator"
        password = secrets.token_urlsafe(15)
        with transaction.atomic():
            user, created = User.objects.get_or_create(username=name, defaults={"is_staff": True})
            if not created:
                self.stdout.write(
                    f"The account {name} exists already; its password is unchanged.{_lacks(user, options['role'])}"
                )
                return
            user.set_password(password)
            user.is_superuser = role == "superuser"
            user.save()
            if not user.is_superuser:
                user.groups.add(Group.objects.get(name=role))
            # The first line, and before the account exists: if the password can't be printed, no account is made.
            self.stdout.write(f"password: {password}")
            self.stdout.flush()
        self.stdout.write(f"The account {name} was made, role {role}.")


def _lacks(user: User, role: str | None) -> str:
    """Return a sentence about a role that somebody asked for and an existing account hasn't; else nothing."""
    held = ["superuser"] if user.is_superuser else sorted(group.name for group in user.groups.all())
    if role is None or role in held:
        return ""
    has = f"the role {' and '.join(held)}" if held else "no role"
    return f" It has {has}, and didn't get {role}: a superuser gives roles in the admin."


def _checked(name: str) -> str:
    """Return a username normalized as on the sign-in page, and validated as in the admin's form.

    Raises:
        CommandError: it isn't a valid username.
    """
    name = User.normalize_username(name)
    try:
        User._meta.get_field("username").clean(name, None)  # noqa: SLF001 - documented
    except ValidationError as error:
        message = f"username: {' '.join(error.messages)}"
        raise CommandError(message, returncode=1) from error
    return name
