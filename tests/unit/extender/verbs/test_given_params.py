"""What the extender answers where Assignments give one rule set params of their own, and where canaries stand before them."""

from typing import Any

import pytest

from policies.engine.decision import CompiledRevision
from policies.engine.objects.owners import draw
from policies.engine.objects.pod import Pod
from policies.engine.ruleset import Revision
from tests.builders import make_assignment, make_node, make_pod, make_rule_set
from tests.unit.extender.verbs.test_handlers import Holder, Setting, StillCluster

TEAMS = make_rule_set(
    "teams",
    filters=[{"name": "team", "expression": "node.metadata.labels.team == params.team", "reason": "another team's"}],
    scores=[{"name": "size", "expression": "int(node.metadata.labels.size) * params.factor", "bounds": [0, 20]}],
    params={"team": "nobody", "factor": 1},
)
ANY = make_rule_set("any", filters=[{"name": "any", "expression": "true"}])
NODES = {"n1": ("shop", 5), "n2": ("shop", 10), "n3": ("bank", 10)}


def setting(*assignments: Any) -> Setting:
    """Make handlers that answer by these Assignments."""
    nodes = [make_node(name, labels={"team": team, "size": str(size)}) for name, (team, size) in NODES.items()]
    made = Setting(cluster=StillCluster(*nodes))
    revision = Revision(number=1, rule_sets=[TEAMS, ANY], assignments=list(assignments))
    made.questions._revisions = Holder(CompiledRevision(revision))  # type: ignore[assignment]
    return made


def of_team(team: str, **params: Any) -> Any:
    return make_assignment(team, "teams", match={"namespaces": [team]}, params={"team": team, **params})


def test_two_assignments_of_one_rule_set_answer_by_their_own_params() -> None:
    made = setting(of_team("shop"), of_team("bank", factor=2))
    for _ in range(2):
        assert made.filter(make_pod("a", namespace="shop"))["NodeNames"] == ["n1", "n2"]
        assert made.prioritize(make_pod("a", namespace="shop"), ["n1", "n2"]) == {"n1": 3, "n2": 5}
        assert made.filter(make_pod("b", namespace="bank"))["NodeNames"] == ["n3"]
        assert made.prioritize(make_pod("b", namespace="bank"), ["n3"]) == {"n3": 10}
    noted = [entry._of_assignments() for entry in made.recorder.records]
    shop, bank = {"params": {"team": "shop"}}, {"params": {"team": "bank", "factor": 2}}
    assert noted == [shop, shop, bank, bank] * 2


def test_a_canary_answers_for_some_workloads_and_what_was_drawn_is_recorded() -> None:
    canary = make_assignment("canary", "teams", order=1, mode="canary", percent=40, params={"team": "bank"})
    made = setting(canary, make_assignment("rest", "any", order=2))
    for number in range(20):
        pod = make_pod(f"p{number}", namespace="shop")
        drawn = draw("canary", Pod.from_json(pod))
        names = made.filter(pod)["NodeNames"]
        assert names == (["n3"] if drawn < 40 else ["n1", "n2", "n3"])
        made.prioritize(pod, names)
        noted = [entry._of_assignments() for entry in made.recorder.records[-2:]]
        expected = {"canaries": {"canary": {"drawn": drawn, "percent": 40}}}
        assert noted == [expected | ({"params": {"team": "bank"}} if drawn < 40 else {})] * 2


def test_where_only_a_canary_stands_others_pass_with_what_was_drawn() -> None:
    made = setting(make_assignment("canary", "teams", mode="canary", percent=1))
    pod = make_pod("p", namespace="shop")
    assert draw("canary", Pod.from_json(pod)) >= 1
    assert made.filter(pod)["NodeNames"] == ["n1", "n2", "n3"]
    assert made.recorder.records[-1]._of_assignments()["canaries"]["canary"]["percent"] == 1


@pytest.mark.parametrize("others", [[make_assignment("rest", "any", order=2)], []], ids=["answered", "passed"])
def test_a_shadow_decides_by_its_own_params_and_names_the_decision_that_it_is_beside(others: list[Any]) -> None:
    tried = make_assignment("tried", "teams", order=1, mode="shadow", params={"team": "bank"})
    made = setting(tried, *others)
    assert made.filter(make_pod("p", namespace="shop"))["NodeNames"] == ["n1", "n2", "n3"]
    made.decide_shadows()
    answered, shadow = made.recorder.records
    assert shadow.encode().head.feasible == 1
    assert shadow.notes == {"answered": answered.id, "inside": False}
