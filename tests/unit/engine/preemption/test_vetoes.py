"""Preemption: candidates with a protected victim are dropped, the others stay as they are, and each veto is explained."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.decision import CompiledRuleSet
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod, PodObject
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.vetoes import Candidate, Narrowed, narrow
from policies.engine.victims import UNKNOWN_NODE, UNKNOWN_VICTIM, Victim
from tests.builders import make_node, make_pod, make_rule_set

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
STAYS = {
    "name": "production-stays",
    "expression": "victim.metadata.?labels.env.orValue('') != 'prod'",
    "reason": "production Pods are not preempted",
}
SNAPSHOT = Snapshot.of(Node.from_json(make_node(f"n{i}", labels={"team": f"t{i}"})) for i in range(4))


def running(name: str, *, env: str = "", **spec: Any) -> Victim:
    """Make a Pod on a node as the watch keeps it: the typed part alone."""
    json = make_pod(name, labels={"env": env} if env else {}, **spec)
    pod = Pod(msgspec.convert(json, PodObject))
    assert pod.requests is not None  # counting lets go of what only counting needs
    return Victim(pod.uid, pod)


def narrowed(rules: list[dict[str, Any]], *candidates: Candidate, **spec: Any) -> Narrowed:
    compiled = CompiledRuleSet(make_rule_set(victims=rules, **spec))
    pod = Pod.from_json(make_pod("urgent", labels={"team": "t1"}, priority=1000))
    return narrow(compiled, pod, SNAPSHOT, candidates, NOW)


def test_one_protected_victim_drops_the_node_and_the_others_stay_in_order() -> None:
    plain = Candidate("n2", [running("a"), running("b")], 1)
    mixed = Candidate("n0", [running("c"), running("d", env="prod"), running("e", env="prod")])
    other = Candidate("n1", [running("f", env="dev")])
    found = narrowed([STAYS], plain, mixed, other)
    assert found.kept == [plain, other]
    assert found.kept[0] is plain
    (veto,) = found.vetoes
    assert (veto.node, veto.rule, veto.victim, veto.victim_uid) == ("n0", "production-stays", "default/d", "uid-d")
    assert (veto.code, veto.reason) == ("UnschedulableAndUnresolvable", "production Pods are not preempted")


def test_a_veto_says_what_was_seen() -> None:
    (veto,) = narrowed([STAYS], Candidate("n0", [running("d", env="prod")])).vetoes
    assert veto.seen == {"victim.metadata.labels.env": "prod"}
    assert veto.sentence == (
        'victims rule production-stays protects default/d on n0: "production Pods are not preempted". It read '
        "victim.metadata.labels.env = \"prod\"; it has to be true: victim.metadata.?labels.env.orValue('') != 'prod'."
    )


def test_a_rule_without_a_reason_gets_one_and_one_that_reads_nothing_says_so() -> None:
    (veto,) = narrowed([{"name": "never", "expression": "false"}], Candidate("n0", [running("a")])).vetoes
    assert veto.reason == "protected by rule never"
    assert veto.sentence.endswith("It reads nothing; it has to be true: false.")


def test_the_version_stands_in_the_sentence() -> None:
    compiled = CompiledRuleSet(msgspec.structs.replace(make_rule_set(victims=[STAYS]), version=3))
    pod = Pod.from_json(make_pod("urgent"))
    (veto,) = narrow(compiled, pod, SNAPSHOT, [Candidate("n0", [running("d", env="prod")])], NOW).vetoes
    assert veto.sentence.startswith("victims rule production-stays (version 3) protects")
    assert veto.version == 3


def test_a_rule_set_without_victims_rules_changes_nothing() -> None:
    candidates = [Candidate("n0", [running("a", env="prod")]), Candidate("gone", [Victim("nobody", None)])]
    compiled = CompiledRuleSet(make_rule_set())
    assert narrow(compiled, Pod.from_json(make_pod()), SNAPSHOT, candidates, NOW) == (candidates, [])


def test_a_candidate_without_victims_is_kept() -> None:
    empty = Candidate("n0", [])
    assert narrowed([{"name": "never", "expression": "false"}], empty) == ([empty], [])


def test_a_pattern_is_matched() -> None:
    rule = {"name": "web-stays", "expression": "!victim.metadata.name.matches('^web-[0-9]+$')"}
    found = narrowed([rule], Candidate("n0", [running("web-1")]), Candidate("n1", [running("web-x")]))
    assert [candidate.node for candidate in found.kept] == ["n1"]


def test_no_candidates_leave_none() -> None:
    assert narrowed([STAYS]) == ([], [])


def test_a_rule_compares_victim_pod_node_params_and_time() -> None:
    rule = {
        "name": "mine",
        "expression": "node.metadata.labels.team == pod.metadata.labels.team && victim.spec.?priority.orValue(0)"
        " < params.limit && now.getHours() == 12",
    }
    found = narrowed(
        [rule],
        Candidate("n1", [running("low", priority=5)]),
        Candidate("n1", [running("high", priority=10)]),
        Candidate("n2", [running("low", priority=5)]),
        params={"limit": 10},
    )
    assert [candidate.node for candidate in found.kept] == ["n1"]
    assert found.vetoes[0].seen == {
        "victim.spec.priority": 10,
        "pod.metadata.labels.team": "t1",
        "node.metadata.labels.team": "t1",
        "params.limit": 10,
        "now": "2026-01-01T12:00:00+00:00",
    }


def test_enforced_rules_are_asked_in_order_until_one_drops_the_node() -> None:
    rules = [{"name": "first", "expression": "victim.metadata.name != 'a'"}, {"name": "second", "expression": "false"}]
    found = narrowed(rules, Candidate("n0", [running("b"), running("a")]), Candidate("n1", [running("b")]))
    assert [(veto.node, veto.rule, veto.victim) for veto in found.vetoes] == [
        ("n0", "first", "default/a"),
        ("n1", "second", "default/b"),
    ]


def test_a_rule_in_mode_shadow_is_recorded_and_doesnt_count() -> None:
    candidate = Candidate("n0", [running("d", env="prod")])
    found = narrowed([STAYS | {"mode": "shadow"}, {"name": "off", "expression": "false", "mode": "off"}], candidate)
    assert found.kept == [candidate]
    (veto,) = found.vetoes
    assert veto.mode == "shadow"
    assert "(mode shadow, so that it doesn't count) would protect default/d" in veto.sentence


@pytest.mark.parametrize(("on_error", "kept"), [("reject", 0), ("pass", 1)])
def test_a_rule_that_cant_be_evaluated_protects_or_not_as_was_chosen(on_error: str, kept: int) -> None:
    rule = {"name": "careless", "expression": "victim.metadata.labels.env == 'dev'", "onError": on_error}
    found = narrowed([rule], Candidate("n0", [running("a")]))
    assert len(found.kept) == kept
    for veto in found.vetoes:
        assert (veto.code, veto.reason) == ("Error", "rule careless could not be evaluated")
        assert "Evaluating it ended with: " in veto.sentence


@pytest.mark.parametrize(
    ("expression", "node", "victim", "fault"),
    [
        ("victim.metadata.name == 'x'", "n0", None, UNKNOWN_VICTIM),
        ("node.metadata.name == 'x'", "gone", "a", UNKNOWN_NODE),
    ],
)
def test_what_isnt_known_can_only_be_asked_by_rules_that_dont_read_it(
    expression: str, node: str, victim: str | None, fault: str
) -> None:
    candidate = Candidate(node, [running(victim) if victim else Victim("uid-unknown", None)])
    (veto,) = narrowed([{"name": "reads", "expression": expression}], candidate).vetoes
    assert veto.fault == fault
    assert veto.victim == (f"default/{victim}" if victim else "uid-unknown")
    assert narrowed([{"name": "reads-none", "expression": "pod.spec.priority > 1"}], candidate).kept == [candidate]


def test_a_value_of_another_type_is_an_error_of_evaluation() -> None:
    rule = {"name": "typed", "expression": "dyn(victim.metadata.name)"}
    assert "gave str" in narrowed([rule], Candidate("n0", [running("a")])).vetoes[0].fault


@given(st.lists(st.lists(st.booleans(), max_size=4), max_size=5))
def test_what_is_kept_is_what_was_sent_without_the_nodes_of_protected_pods(nodes: list[list[bool]]) -> None:
    candidates = [
        Candidate(
            f"n{index % 4}", [running(f"p{index}-{i}", env="prod" if prod else "") for i, prod in enumerate(pods)]
        )
        for index, pods in enumerate(nodes)
    ]
    found = narrowed([STAYS], *candidates)
    assert found.kept == [candidate for candidate, pods in zip(candidates, nodes, strict=True) if not any(pods)]
    assert len(found.vetoes) == sum(map(any, nodes))
