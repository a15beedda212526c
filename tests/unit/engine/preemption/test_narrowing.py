"""What a rule set leaves of kube-scheduler's candidates, the same whenever it is asked."""

from datetime import UTC, datetime
from typing import Any

import pytest

from policies.engine.decision import CompiledRuleSet
from policies.engine.errors import DeadlineError
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.narrowing import NOT_IN_TIME, STILL_REFUSED, UNKNOWN_NODE, Dropped, Narrowing, narrowing
from policies.engine.preemption.vetoes import Candidate
from policies.engine.victims import Victim
from tests.builders import make_node, make_pod, make_rule_set

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
STAYS = {"name": "stays", "expression": "victim.metadata.name != 'dear'", "reason": "it stays"}
FULL = {"name": "few", "expression": "node.count({'app': 'x'}) < 1", "reason": "full"}
PODS = {
    name: Pod.from_json(make_pod(name, labels={"app": "x"}, nodeName=node))
    for name, node in (("dear", "n1"), ("cheap", "n2"), ("other", "n2"))
}
SNAPSHOT = Snapshot.of(map(Node.from_json, (make_node("n1"), make_node("n2"))), PODS.values())


def candidate(node: str, *names: str) -> Candidate:
    return Candidate(node, [Victim(f"uid-{name}", PODS.get(name)) for name in names])


def narrowed(*candidates: Candidate, timed_out: tuple[str, ...] = (), late: bool = False, **spec: Any) -> Narrowing:
    def end_in_time() -> None:
        if late:
            raise DeadlineError

    rule_set = CompiledRuleSet(make_rule_set(**spec))
    pod = Pod.from_json(make_pod("urgent"))
    return narrowing(rule_set, pod, SNAPSHOT, candidates, NOW, end_in_time=end_in_time, timed_out=timed_out)


def test_without_rules_every_candidate_stays() -> None:
    found = narrowed(candidate("n2", "cheap"), candidate("n1", "dear"))
    assert found == Narrowing(["n2", "n1"])
    assert (found.top_reason, found.met_too_large) == ("", False)


def test_a_protected_victim_ends_its_candidate_and_says_why_first() -> None:
    found = narrowed(candidate("n9"), candidate("n1", "dear"), victims=[STAYS], filters=[FULL])
    assert found.kept == []
    assert [veto.node for veto in found.vetoes] == ["n1"]
    assert found.dropped == [Dropped("n9", UNKNOWN_NODE)]
    assert found.top_reason == "it stays"


def test_a_node_that_the_rules_refuse_without_the_victims_too_goes() -> None:
    found = narrowed(candidate("n2", "cheap"), candidate("n2", "cheap", "other"), filters=[FULL])
    assert (found.kept, found.dropped) == (["n2"], [Dropped("n2", STILL_REFUSED)])
    assert found.top_reason == STILL_REFUSED


@pytest.mark.parametrize(("choice", "kept"), [("pass", ["n1"]), ("refuse", [])])
@pytest.mark.parametrize("again", [False, True], ids=["late", "late when it was decided first"])
def test_what_there_is_no_time_for_stays_or_goes_as_the_rule_set_chose(
    choice: str, kept: list[str], again: bool
) -> None:
    late = {"timed_out": ("n1",)} if again else {"late": True}
    found = narrowed(candidate("n1", "dear"), victims=[STAYS], failures={"deadline": choice}, **late)
    assert (found.kept, found.vetoes, found.timed_out) == (kept, [], ["n1"])
    assert found.dropped == ([] if kept else [Dropped("n1", NOT_IN_TIME)])


def test_filters_have_to_be_asked_in_time_too() -> None:
    found = narrowed(candidate("n1", "dear"), filters=[FULL], failures={"deadline": "refuse"}, late=True)
    assert (found.kept, found.timed_out) == ([], ["n1"])
