"""Tokens over REST: every door that reads asks for the scope read, and none that writes goes out of reach."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from policies import publishing
from policies.models import AuditEvent, Change
from tests.builders import (
    TEAM_FILTER,
    assignment_document,
    exemption_document,
    make_assignment,
    make_rule_set,
    priority_class_document,
    rule_set_document,
)
from tests.component.pages import opened, publish_all
from tests.component.rest.asking import API, ask, begun, told
from tests.conftest import HTTPSClient
from tests.security.crawl import places
from tests.tokens import bearer, secret_of

pytestmark = pytest.mark.django_db

# What says nothing of anybody but who asks.
_OPEN = {f"{API}/whoami"}
SPEC = {"filters": [TEAM_FILTER]}


class Program(HTTPSClient):
    """A client that shows a token."""

    def __init__(self, secret: str) -> None:
        super().__init__(headers=bearer(secret), enforce_csrf_checks=True)


@pytest.fixture
def ann() -> User:
    user = User.objects.create_user("ann")
    user.groups.add(Group.objects.get(name="Operator"))
    return user


@pytest.fixture
def team_a(ann: User) -> Program:
    """A team's pipeline, beside another team's things."""
    publish_all(
        make_rule_set("team-a-web", **SPEC),
        make_rule_set("team-b-x", **SPEC),
        make_assignment("team-b-live", "team-b-x", match={"namespaces": ["team-b"]}),
    )
    opened(make_rule_set("team-b-x", filters=[TEAM_FILTER | {"reason": "theirs"}]), title="theirs")
    return Program(secret_of(ann, rule_sets=["team-a-*"], namespaces=["team-a"]))


def test_no_door_is_read_without_the_scope(ann: User) -> None:
    program = Program(secret_of(ann, ["edit", "review", "publish"]))
    paths = [place.path("1") for place in places() if place.path("1").startswith(f"{API}/")]
    read = [path for path in paths if program.get(path).status_code not in {401, 403, 404, 405}]
    assert set(read) <= _OPEN
    assert len(paths) > 20


def test_a_token_opens_edits_and_publishes_for_its_owner(ann: User) -> None:
    program = Program(secret_of(ann))
    path, tag = begun(program, ("rule-sets/web", rule_set_document("web", **SPEC)))
    assert told(ask(program, "post", f"{path}/publish", {"reason": "now"}, match=tag))["state"] == "published"
    events = AuditEvent.objects.filter(kind__startswith="change.")
    assert {event.by for event in events} == {"ann"}
    assert {event.via[:11] for event in events} == {"token token"}


def test_a_token_does_no_more_than_its_scopes(ann: User) -> None:
    path, tag = begun(Program(secret_of(ann, ["read", "edit"])), ("rule-sets/web", rule_set_document("web", **SPEC)))
    reader, editor = Program(secret_of(ann, ["read"])), Program(secret_of(ann, ["read", "edit"]))
    refused = told(ask(editor, "post", f"{path}/publish", {"reason": "now"}, match=tag), 403)
    assert "it doesn't have the scope publish" in refused["detail"]
    assert "it doesn't have the scope edit" in told(ask(reader, "post", f"{path}/submit", {}, match=tag), 403)["detail"]


THEIRS = rule_set_document("team-b-x", filters=[TEAM_FILTER | {"reason": "moved"}])
MINE = rule_set_document("team-a-web", filters=[TEAM_FILTER | {"reason": "moved"}])
WIDE = assignment_document("team-a-all", "team-a-web")
TAKEN = assignment_document("team-b-live", "team-a-web", match={"namespaces": ["team-a"]})


def applied(*documents: Any, **more: Any) -> dict[str, Any]:
    return {"documents": list(documents), "title": "t", **more}


def test_each_thing_out_of_reach_has_a_line_of_its_own(team_a: Program) -> None:
    others = applied(rule_set_document("team-b-y", **SPEC), rule_set_document("team-b-z", **SPEC))
    lines = told(ask(team_a, "post", "/changes/apply", others), 403)["detail"].splitlines()
    assert [line.split(": ")[1] for line in lines] == ["RuleSet team-b-y", "RuleSet team-b-z"]


def exempted(target: str, namespace: str) -> Any:
    pods = [{"namespace": namespace, "name": "cart"}]
    return exemption_document("freed", target, pods=pods, until="2126-01-01T00:00:00Z")


def on_their_change(by: Program, method: str, act: str, body: dict[str, Any]) -> Any:
    path = f"/changes/{Change.objects.get(title='theirs').pk}"
    return ask(by, method, path + act, body, match=etag(by, path))


def etag(program: Program, path: str) -> str:
    return str(ask(program, "get", path).headers.get("ETag", '"none"'))


WAYS: dict[str, Callable[[Program], Any]] = {
    "a document": lambda by: ask(by, "put", "/rule-sets/team-b-x", THEIRS, match=etag(by, "/rule-sets/team-b-x")),
    "a document that it hasn't looked at": lambda by: ask(by, "put", "/rule-sets/team-b-x", THEIRS),
    "removing it": lambda by: ask(
        by, "delete", "/assignments/team-b-live", {}, match=etag(by, "/assignments/team-b-live")
    ),
    "an Assignment for everybody": lambda by: ask(by, "put", "/assignments/team-a-all", WIDE),
    "taking an Assignment over": lambda by: ask(
        by, "put", "/assignments/team-b-live", TAKEN, match=etag(by, "/assignments/team-b-live")
    ),
    "several documents": lambda by: ask(by, "post", "/changes/apply", applied(MINE, THEIRS)),
    "pruning": lambda by: ask(by, "post", "/changes/apply", applied(MINE, prune=["Assignment/team-b-*"])),
    "a plan of several documents": lambda by: ask(by, "post", "/changes/plan", {"documents": [MINE, THEIRS]}),
    "a plan that prunes": lambda by: ask(
        by, "post", "/changes/plan", {"documents": [MINE], "prune": ["Assignment/team-b-*"]}
    ),
    "renaming their Change": lambda by: on_their_change(by, "patch", "", {"title": "ours"}),
    "withdrawing their Change": lambda by: on_their_change(by, "post", "/withdraw", {}),
    "publishing their Change": lambda by: on_their_change(by, "post", "/publish", {"reason": "now"}),
    "an Exemption from their rule": lambda by: ask(
        by, "post", "/exemptions", exempted("RuleSet/team-b-x/team", "team-a")
    ),
    "an Exemption in their namespace": lambda by: ask(
        by, "post", "/exemptions", exempted("RuleSet/team-a-web/team", "team-b")
    ),
    "a PriorityClass": lambda by: ask(by, "put", "/priority-classes/team-a", priority_class_document("team-a")),
    "a Pause": lambda by: ask(by, "post", "/pauses", {"target": "RuleSet/team-b-x", "reason": "x"}),
    "a Pause of everything": lambda by: ask(by, "post", "/pauses", {"target": "everything", "reason": "x"}),
    "a canary in their namespace": lambda by: ask(by, "post", "/canary-pods", {"namespace": "team-b"}),
}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_teams_token_touches_nothing_of_another_team(team_a: Program, way: str) -> None:
    live, changes = publishing.current_revision().number, Change.objects.count()
    assert "Out of reach of token" in told(WAYS[way](team_a), 403)["detail"]
    assert (publishing.current_revision().number, Change.objects.count()) == (live, changes)


def test_its_own_things_go_live(team_a: Program) -> None:
    answer = told(ask(team_a, "post", "/changes/apply", applied(MINE, publish=True)), 201)
    assert publishing.current_revision().number == answer["revision"]
