"""Who knocks: nobody, somebody with an account and no role, each role, and who may do everything."""

import os

from django.contrib.auth.models import Group, User

from tests.conftest import HTTPSClient

# The whole form, of `make long`, asks everybody everything.
WHOLE = os.environ.get("SECURITY") == "whole"

ROLES = ("Auditor", "Operator", "Approver")
PEOPLE = ("nobody", "customer", "no role", *ROLES, "superuser")


def knocking(who: str, **options: bool) -> HTTPSClient:
    """Return the client of one of PEOPLE. It gives a fault's 500 as an answer, as a server does."""
    client = HTTPSClient(raise_request_exception=False, **options)
    if who != "nobody":
        is_superuser = who == "superuser"
        name = who.lower().replace(" ", "-")
        user, made = User.objects.get_or_create(
            username=name, defaults={"is_staff": who != "customer", "is_superuser": is_superuser}
        )
        if made and who in ROLES:
            user.groups.add(Group.objects.get(name=who))
        client.force_login(user)
    return client
