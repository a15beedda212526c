"""REST asked with what its schema allows, and with what it doesn't, by a token of each scope: nothing breaks, nothing is undeclared.

schemathesis makes the requests; REST_EXAMPLES says how many for each operation and token (`make long` asks more).
"""

import os
from typing import Any

import pytest
import schemathesis
from django.contrib.auth.models import Group, User
from django.db import transaction
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from tests.component.rest.world import World, schema
from tests.tokens import bearer, secret_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unhurried")]

EXAMPLES = int(os.environ.get("REST_EXAMPLES", "0"))
SCOPES = ("read", "edit", "review", "publish")
ALL = "every scope"
_CHECKED = (
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)
# What a document is checked by takes a process of its own: a few of these say as much as many.
_SLOW = ("/which", "/apply", "/plan", "/validate")


def _headers(scope: str) -> dict[str, str]:
    owner = User.objects.create(username="owner", is_staff=True)
    owner.groups.set(Group.objects.filter(name__in=["Auditor", "Operator", "Approver", "Emergency"]))
    return bearer(secret_of(owner, SCOPES if scope == ALL else ["read", *{scope} - {"read"}]))


@pytest.mark.parametrize("scope", [*SCOPES, ALL] if EXAMPLES else [ALL])
def test_whatever_is_asked_the_answer_is_declared(scope: str, application: Any) -> None:
    world, headers = World(), _headers(scope)
    load_all_checks()
    checks = [CHECKS.get_one(name) for name in _CHECKED]
    loaded = schemathesis.openapi.from_dict(schema())
    loaded.app = application
    found = []
    for result in loaded.get_all_operations():
        operation = result.ok()
        count = EXAMPLES or (1 if operation.path.endswith(_SLOW) else 3)
        try:
            _explore(operation, world, headers, checks, count)
        except (AssertionError, BaseExceptionGroup) as error:
            found.append(f"{operation.label}: {error}")
    assert not found, "\n\n".join(found)


def _explore(operation: Any, world: World, headers: dict[str, str], checks: list[Any], count: int) -> None:
    path: str = operation.path
    cases = st.one_of(
        operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
        operation.as_strategy(generation_mode=GenerationMode.NEGATIVE),
    )

    @hypothesis_settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=not EXAMPLES,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, is_there=st.booleans())
    def ask(case: Any, is_there: bool) -> None:
        sent = headers | {"Accept-Encoding": "identity"}
        if is_there and path.startswith("/api/v1/"):
            keys = world.keys.get(path.split("/")[3], {})
            case.path_parameters = {name: key if isinstance(key, int) else str(key) for name, key in keys.items()}
            sent |= world.headers(path)
        with transaction.atomic():
            response = case.call(headers=sent)
            transaction.set_rollback(True)
        # 503 is declared: the cluster is away here.
        assert response.status_code != 500, response.content
        # Several documents of YAML in one answer are more than it reads.
        case.validate_response(response, checks=checks[:2] if path.endswith("/export") else checks)

    ask()
