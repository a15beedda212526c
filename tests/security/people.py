"""Who knocks: nobody, somebody with an account and no role, each role, and who may do everything."""

import os
from collections import Counter
from typing import Any

from django.contrib.auth.models import Group, User

from tests.conftest import HTTPSClient

# The whole form, of `make long`, asks everybody everything.
WHOLE = os.environ.get("SECURITY") == "whole"

ROLES = ("Auditor", "Operator", "Approver", "Emergency")
PEOPLE = ("nobody", "customer", "no role", *ROLES, "superuser")
# Requests made, by test; the whole form prints them.
ASKED: Counter[str] = Counter()


class _Knocking(HTTPSClient):
    def request(self, **request: Any) -> Any:
        ASKED[os.environ.get("PYTEST_CURRENT_TEST", "").partition("[")[0].partition(" ")[0]] += 1
        return super().request(**request)


def knocking(who: str, **options: bool) -> HTTPSClient:
    """Return the client of one of PEOPLE. It gives a fault's 500 as an answer, as a server does."""
    client = _Knocking(raise_request_exception=False, **options)
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
