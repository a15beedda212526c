"""What lists are narrowed by, taken from bodies."""

from datetime import UTC, datetime
from typing import Any

import pytest

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from scheduler.decisions.facts import Facts, facts_in
from scheduler.decisions.record import Entry, NodesEntry
from tests.builders import TEAM_FILTER, make_node, make_pod, make_rule_set

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SHADOW = {"name": "dry", "expression": "false", "reason": "dry run", "mode": "shadow"}
NOBODY = {"name": "nobody", "expression": "true"}


def owned(kind: str, name: str, **labels: str) -> Pod:
    pod = make_pod("web-1", labels={"team": "web", **labels})
    pod["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "uid": "u", "controller": True}]
    return Pod.from_json(pod)


def decided(pod: Pod, *filters: dict[str, Any]) -> bytes:
    snapshot = Snapshot.of(
        Node.from_json(make_node(name, labels={"team": team})) for name, team in [("a", "x"), ("b", "web")]
    )
    rule_set = CompiledRuleSet(make_rule_set(filters=list(filters)))
    answer = decide(rule_set, Cycle(pod=pod, snapshot=snapshot, now=NOW), snapshot.table.all_rows(), scoring=False)
    entry = NodesEntry(verb="filter", pod=pod, now=NOW, snapshot=snapshot, names=["a", "b"], answer=answer)
    return entry.encode().body


@pytest.mark.parametrize(
    ("pod", "owner"),
    [
        (owned("ReplicaSet", "web-5d4f", **{"pod-template-hash": "5d4f"}), ("Deployment", "web")),
        (owned("ReplicaSet", "alone"), ("ReplicaSet", "alone")),
        (owned("Job", "night-1"), ("Job", "night-1")),
        (owned("Job", "n\0" + "x" * 5_000), ("Job", "n" + "x" * 252)),
        (Pod.from_json(make_pod("web-1")), ("", "")),
    ],
)
def test_the_owner_is_the_deployment_behind_a_replica_set_else_what_controls_the_pod(
    pod: Pod, owner: tuple[str, str]
) -> None:
    found = facts_in(Entry(verb="bind", pod=pod, now=NOW).encode().body)
    assert (found.owner_kind, found.owner_name) == owner
    assert found.refused_by == ""


def test_the_enforced_rules_that_refused_a_node_are_named() -> None:
    found = facts_in(decided(owned("Job", "j"), NOBODY, TEAM_FILTER, SHADOW))
    assert found.refused_by == f"\n{TEAM_FILTER['name']}\n"


def test_what_refused_nobody_names_no_rule() -> None:
    assert facts_in(decided(owned("Job", "j"), NOBODY, SHADOW)).refused_by == ""


@pytest.mark.parametrize("body", [b"", b"damaged", b'{"pod": {}}', b"\x90", b"\x96\xc4\x01{" + b"\xc0" * 5])
def test_a_body_that_cant_be_read_says_nothing(body: bytes) -> None:
    assert facts_in(body) == Facts()
