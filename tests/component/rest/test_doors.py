"""Each operation of REST as each who may ask: the answer of a table that people review. A new operation without a row fails.

`WRITE=yes` writes the table anew.
"""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.db import transaction
from django.test import Client

from policies.models import AuditEvent
from scheduler.api import canaries
from tests.component.rest.world import BODIES, QUERIES, World, operations, people, schema
from tests.security.crawl import places

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unhurried")]
TABLE = Path(__file__).with_name("doors.txt")


def asked(client: Client, world: World, path: str, method: str) -> int:
    """Return the status of an answer; nothing that it did stays."""
    with transaction.atomic():
        status = ask(client, world, path, method)
        transaction.set_rollback(True)
    return status


def ask(client: Client, world: World, path: str, method: str) -> int:
    """Return the status of an answer."""
    body = BODIES.get((path, method))
    options: dict[str, Any] = {} if body is None else {"data": body, "content_type": "application/json"}
    if method not in {"get", "head"}:
        options["headers"] = world.headers(path)
    query = QUERIES.get((path, method), "")
    status: int = getattr(client, method)(f"{world.path(path)}?{query}".rstrip("?"), **options).status_code
    return status


def test_every_operation_gives_the_answers_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    world, who = World(), people()
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True))
    lines = [f"{'':62}{''.join(f'{name:>14}' for name in who)}"]
    for path, method in operations():
        statuses = [asked(client, world, path, method) for client in who.values()]
        lines.append(
            f"{method.upper():<7}{path.removeprefix('/api/v1'):<55}{''.join(f'{each:>14}' for each in statuses)}"
        )
    if os.environ.get("WRITE"):
        TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines == TABLE.read_text(encoding="utf-8").splitlines()


def test_options_says_what_an_act_is_for_and_nothing_of_a_row_that_it_does_not_take(operator: Client) -> None:
    world = World()
    found = operator.options(world.path("/api/v1/changes/{number}/approve"))
    assert found.headers["Allow"] == "POST, OPTIONS"
    assert found.json() == {
        "name": "Approve",
        "description": "Approve the state of the Change that If-Match names.",
        "renders": ["application/json"],
        "parses": ["application/json"],
    }


def test_what_a_token_does_is_said_to_be_done_through_it_by_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    world, who = World(), people()
    monkeypatch.setattr(canaries.run_canary, "apply_async", lambda **_: None)
    kinds = set()
    for path, method in operations():
        for scope in ("edit", "review", "publish"):
            with transaction.atomic():
                before = AuditEvent.objects.first()
                ask(who[f"token {scope}"], world, path, method)
                made = AuditEvent.objects.filter(pk__gt=before.pk if before else None)
                said = {(event.kind, event.door, event.by, event.via[:12], bool(event.request_id)) for event in made}
                transaction.set_rollback(True)
            kinds |= {kind for kind, *_ in said}
            assert {tuple(of) for _kind, *of in said} <= {("rest", "owner", "token token ", True)}, (path, method)
    assert {"canary.ask", "change.approve", "change.open", "change.publish", "export", "pause", "roll-back"} <= kinds


@pytest.mark.parametrize(
    ("sent", "headers"), [("application/json", {"If-Match": '"another"'}), ("application/x-www-form-urlencoded", {})]
)
def test_a_write_after_another_look_or_with_a_form_is_answered_as_the_schema_says(
    sent: str, headers: dict[str, str]
) -> None:
    world, who = World(), people()
    undeclared, answered = set(), set()
    for path, method in operations():
        if method == "get":
            continue
        body = json.dumps(BODIES.get((path, method)) or {}) if sent == "application/json" else "a=1"
        with transaction.atomic():
            looked = world.headers(path) | headers
            answer = who["Operator"].generic(method.upper(), world.path(path), body, sent, headers=looked)
            transaction.set_rollback(True)
        answered.add(answer.status_code)
        if str(answer.status_code) not in schema()["paths"][path][method]["responses"]:
            undeclared.add((path, method, answer.status_code))
    assert not undeclared
    assert answered & {412, 415}


def test_every_write_has_what_it_is_asked_with() -> None:
    writes = {(path, method) for path, method in operations() if method in {"post", "put", "patch"}}
    assert writes == BODIES.keys(), "tests/component/rest/world.py says what each is asked with"


def test_bodies_take_no_other_members_and_the_schema_says_so() -> None:
    world, operator = World(), people()["Operator"]
    schemas, whole = schema()["components"]["schemas"], {"type": "object", "additionalProperties": {}}
    for (path, method), body in BODIES.items():
        described = schema()["paths"][path][method].get("requestBody")
        if described is None or (shape := described["content"]["application/json"]["schema"]) == whole:
            continue  # Documents: the engine says what they may hold.
        assert schemas[shape["$ref"].rpartition("/")[2]]["additionalProperties"] is False, path
        options = {"content_type": "application/json", "headers": world.headers(path)}
        answer = getattr(operator, method)(world.path(path), {**body, "slip": 1}, **options)
        assert [each["path"] for each in answer.json()["faults"]] == ["slip"], path


def test_the_schema_describes_one_object_as_one_and_each_parameter_of_a_query() -> None:
    paths = schema()["paths"]
    reads = {path: of["get"]["description"] for path, of in paths.items() if "get" in of}
    alike = [path for path, text in reads.items() if text == reads.get(path.rpartition("/{")[0])]
    silent = [
        (path, each["name"])
        for path, method in operations()
        for each in paths[path][method].get("parameters", ())
        if each["in"] == "query" and not each.get("description")
    ]

    assert {"/api/v1/decisions", "/api/v1/decisions/{id}"} <= reads.keys()
    assert (alike, silent) == ([], [])


def test_members_in_the_schema_are_described_by_what_they_hold() -> None:
    said = {
        (name, member): described["description"]
        for name, shape in schema()["components"]["schemas"].items()
        for member, described in shape.get("properties", {}).items()
        if "description" in described
    }

    # What a docstring says is about the method.
    assert {which: text for which, text in said.items() if text.startswith("Return ") or "Raises:" in text} == {}


def test_every_url_is_in_the_schema() -> None:
    described = {"*".join(_parts(path)) for path, _ in operations()}
    urls = {"*".join(place.parts) for place in places() if place.parts[0].startswith("/api/v1/")}
    assert urls == described


def _parts(path: str) -> list[str]:
    return [part.rpartition("}")[2] for part in path.split("{")]
