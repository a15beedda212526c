"""REST asked with what its schema allows, and with what it doesn't, by a token of each scope: nothing breaks, nothing is undeclared.

schemathesis makes the requests, single ones and one after the other along the schema's links; REST_EXAMPLES says how many
for each operation and token, and how many such walks (`make long` asks more).
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
from schemathesis.core.result import Ok

from policies.models import Change
from tests.component.rest.world import BODIES, World, schema
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
STEPS, WALKS = 20, 5


def _headers(scope: str, name: str = "owner") -> dict[str, str]:
    owner, _ = User.objects.get_or_create(username=name, is_staff=True)
    owner.groups.set(Group.objects.filter(name__in=["Auditor", "Operator", "Approver", "Emergency"]))
    return bearer(secret_of(owner, SCOPES if scope == ALL else ["read", *{scope} - {"read"}]))


@pytest.mark.parametrize("scope", [*SCOPES, ALL] if EXAMPLES else [ALL])
def test_whatever_is_asked_the_answer_is_declared(scope: str, application: Any) -> None:
    world, headers = World(), _headers(scope)
    loaded, checks = _loaded(application), _checks()
    found = []
    for result in loaded.get_all_operations():
        operation = result.ok()
        count = EXAMPLES or (1 if operation.path.endswith(_SLOW) else 2)
        try:
            _explore(operation, world, headers, checks, count)
        except (AssertionError, BaseExceptionGroup) as error:
            found.append(f"{operation.label}: {error}")
    assert not found, "\n\n".join(found)


def test_whatever_follows_on_an_answer_is_declared(application: Any) -> None:
    world, checks = World(), _checks()
    # A walk goes on with somebody else's token, and with tokens that may do less.
    everything, colleague = _headers(ALL), _headers(ALL, "colleague")
    tokens = [everything, colleague, everything, *(_headers(scope) for scope in SCOPES)]
    answered = set()

    class Walk(_loaded(application).as_state_machine()):  # type: ignore[misc]
        def setup(self) -> None:
            self.asked = 0
            self.whole = transaction.atomic()
            self.whole.__enter__()

        def teardown(self) -> None:
            transaction.set_rollback(True)
            self.whole.__exit__(None, None, None)

        def step(self, input: Any) -> Any:  # noqa: A002
            self.headers = {"Accept-Encoding": "identity"} | tokens[self.asked % len(tokens)]
            # What is drawn is hardly ever right, and what follows on it is all that a walk is for.
            if self.asked % 5 < 4:
                self.headers |= _put_right(input.case, input.transition, world)
            self.asked += 1
            return super().step(input)

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"headers": self.headers}

        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            answered.add((case.operation.label, response.status_code))
            # 503 is declared: the cluster is away here.
            assert response.status_code != 500, response.content
            case.validate_response(response, checks=checks)

    Walk.run(
        settings=hypothesis_settings(
            max_examples=EXAMPLES or WALKS,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            derandomize=not EXAMPLES,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
    )
    # Else nothing followed on anything.
    assert any("{number}" in operation and code < 300 for operation, code in answered)


def _put_right(case: Any, transition: Any, world: World) -> dict[str, str]:
    """Fill a request with what the link names, what there is and what can be read; return the ETag of what it is about."""
    path = case.operation.path
    linked = transition.parameters.get("path_parameters", {}) if transition else {}
    keys = {name: each.value.ok() for name, each in linked.items() if isinstance(each.value, Ok)}
    there = {name: str(key) for name, key in world.keys[path.split("/")[3]].items()}
    case.path_parameters = {name: keys.get(name) or there.get(name) for name in case.path_parameters or {}}
    case.query = {}
    body = BODIES.get((path, case.method.lower()))
    if body is not None:
        case.body, case.media_type = body, "application/json"
    change = Change.objects.filter(pk=case.path_parameters.get("number", 0)).first()
    return {"If-Match": f'"{change.digest}"'} if change and "/changes/" in path else world.headers(path)


def _loaded(application: Any) -> Any:
    loaded = schemathesis.openapi.from_dict(schema())
    loaded.app = application
    # What is linked is what the schema says; what schemathesis guesses beside it, mostly isn't there.
    loaded.config.phases.stateful.inference.algorithms = []
    return loaded


def _checks() -> list[Any]:
    load_all_checks()
    return [CHECKS.get_one(name) for name in _CHECKED]


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
