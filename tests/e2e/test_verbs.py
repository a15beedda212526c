"""Berth binds and narrows preemption for a real kube-scheduler."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.stack import BASE_DIR, Stack, eventually, make_node

pytestmark = pytest.mark.e2e

PROTECTED = [
    {
        "apiVersion": "berth/v1",
        "kind": "RuleSet",
        "metadata": {"name": "protected"},
        "spec": {
            "filters": [
                {"name": "team", "expression": "node.metadata.labels.team != 'data'", "reason": "another team's node"}
            ],
            "victims": [
                {
                    "name": "production-stays",
                    "expression": "victim.metadata.?labels[?'env'].orValue('') != 'prod'",
                    "reason": "production Pods are not preempted",
                }
            ],
        },
    },
    {
        "apiVersion": "berth/v1",
        "kind": "Assignment",
        "metadata": {"name": "protected"},
        "spec": {"ruleSet": "protected", "match": {"podSelector": {"matchLabels": {"policy": "protected"}}}},
    },
]
NODES = [make_node(name, place=name, team=team) for name, team in (("n1", "web"), ("n2", "web"), ("n3", "data"))]
ALL = [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "8"}}}]


@pytest.fixture(scope="module", params=[True, False], ids=["names", "full nodes"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(
        tmp_path_factory.mktemp("verbs"),
        nodes=NODES,
        node_cache_capable=request.param,
        bindVerb="bind",
        preemptVerb="preempt",
    ) as stack:
        priority = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "important"},
            "value": 1000,
        }
        stack.client.post(path="/apis/scheduling.k8s.io/v1/priorityclasses", body=json.dumps(priority).encode())
        stack.publish_all(PROTECTED)
        yield stack


@pytest.fixture
def stack(shared: Stack) -> Iterator[Stack]:
    shared.delete_all_pods()
    yield shared
    shared.delete_all_pods()


def decision_of(stack: Stack, uid: str, verb: str) -> tuple[Any, ...]:
    """The newest Decision of a verb about a Pod: feasible, best, top_reason, error."""
    query = (
        f"SELECT feasible, best, top_reason, error FROM scheduler_decision WHERE pod_uid = '{uid}' AND verb = '{verb}'"
    )
    return eventually(lambda: next(iter(stack.sql(f"{query} ORDER BY at DESC")), ()), what=f"Decision {verb}")


def test_berth_binds_pods_whether_a_rule_set_takes_them_or_not(stack: Stack) -> None:
    plain = stack.create_pod("plain")
    taken = stack.create_pod("taken", labels={"policy": "protected"})

    assert stack.wait_for_node("plain")
    assert stack.wait_for_node("taken") in {"n1", "n2"}
    for uid, name in ((plain, "plain"), (taken, "taken")):
        assert decision_of(stack, uid, "bind") == (1, stack.node_of(name), "", "")
        decision = stack.pods()[name]["metadata"]["annotations"]["berth/decision"]
        assert stack.sql(
            f"SELECT verb FROM scheduler_decision WHERE pod_uid = '{uid}' AND id = {as_id(stack, decision)}"
        )
        assert "the same answer" in stack.manage("replay", decision)
        assert outcome_of(stack, uid, "bound") == (stack.node_of(name), "default-scheduler", "")


def as_id(stack: Stack, decision: str) -> str:
    """An id as a query has it: SQLite keeps it without hyphens."""
    return f"'{decision}'" if stack.database_url else f"'{decision.replace('-', '')}'"


def outcome_of(stack: Stack, uid: str, kind: str) -> tuple[str, str, str]:
    """What became of a Pod, as who knows most recorded it: of a preemption, its preemptor is known to one of them."""
    columns = 'node_name, "by", preemptor_uid'
    query = f"SELECT {columns} FROM scheduler_outcome WHERE pod_uid = '{uid}' AND kind = '{kind}' ORDER BY preemptor_uid DESC"

    def found() -> tuple[str, str, str] | None:
        rows = stack.sql(query)
        return rows[0] if rows and (rows[0][2] or kind != "preempted") else None

    return eventually(found, what=f"{uid} {kind}")


def test_a_bind_can_be_repeated_and_never_moves_a_pod(stack: Stack) -> None:
    uid = stack.create_pod("once")
    node = stack.wait_for_node("once")
    other = next(name for name in ("n1", "n2") if name != node)

    def bind(to: str) -> tuple[int, Any]:
        args = {"PodName": "once", "PodNamespace": "default", "PodUID": uid, "Node": to}
        return stack.call("bind", json.dumps(args).encode())

    assert bind(node) == (200, {"Error": ""})
    assert bind(other) == (200, {"Error": "the Pod is on another node already"})
    assert stack.node_of("once") == node


def test_a_pod_that_is_gone_or_another_one_is_not_bound(stack: Stack) -> None:
    args = {"PodName": "nobody", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}
    assert stack.call("bind", json.dumps(args).encode()) == (200, {"Error": "the Pod is gone"})
    stack.create_pod("somebody", nodeSelector={"place": "nowhere"})
    assert stack.call("bind", json.dumps(args | {"PodName": "somebody"}).encode())[1] != {"Error": ""}
    assert stack.node_of("somebody") == ""


def test_a_less_important_pod_makes_room(stack: Stack) -> None:
    victim = stack.create_pod("victim", containers=ALL, nodeSelector={"place": "n1"})
    stack.wait_for_node("victim")

    uid = stack.create_pod("urgent", labels={"policy": "protected"}, containers=ALL, **_important("n1"))

    assert stack.wait_for_node("urgent") == "n1"
    assert "victim" not in stack.pods()
    assert outcome_of(stack, victim, "preempted") == ("n1", "", uid)
    query = f"SELECT id FROM scheduler_decision WHERE pod_uid = '{uid}' AND verb = 'preempt' AND feasible = 1"
    assert "the same answer" in stack.manage("replay", str(stack.sql(query)[0][0]))


def test_a_protected_pod_stays_and_the_important_one_waits_with_the_reason(stack: Stack) -> None:
    stack.create_pod("victim", labels={"env": "prod"}, containers=ALL, nodeSelector={"place": "n1"})
    stack.wait_for_node("victim")

    uid = stack.create_pod("urgent", labels={"policy": "protected"}, containers=ALL, **_important("n1"))

    assert decision_of(stack, uid, "preempt") == (0, "", "production Pods are not preempted", "")
    assert stack.node_of("victim") == "n1"
    assert stack.node_of("urgent") == ""


def test_nobody_is_preempted_on_a_node_that_the_rules_refuse_anyway(stack: Stack) -> None:
    stack.create_pod("victim", containers=ALL, nodeSelector={"place": "n3"})
    stack.wait_for_node("victim")

    uid = stack.create_pod("urgent", labels={"policy": "protected"}, containers=ALL, **_important("n3"))

    assert decision_of(stack, uid, "preempt")[:3] == (0, "", "the rules refuse the node even without the victims")
    assert stack.node_of("victim") == "n3"


def test_a_pod_that_no_rule_set_takes_preempts_as_without_berth(stack: Stack) -> None:
    stack.create_pod("victim", labels={"env": "prod"}, containers=ALL, nodeSelector={"place": "n3"})
    stack.wait_for_node("victim")

    stack.create_pod("urgent", containers=ALL, **_important("n3"))

    assert stack.wait_for_node("urgent") == "n3"


@pytest.mark.parametrize(
    "body",
    [
        {"NodeNameToMetaVictims": {"n1": {"Pods": [], "NumPDBViolations": 0}}},
        {"NodeNameToMetaVictims": {"n1": {"Pods": None}, "n2": None}},
        {"NodeNameToVictims": {"n1": {"Pods": [], "NumPDBViolations": 2}}, "NodeNameToMetaVictims": None},
        {"nodenametometavictims": {}},
        {},
    ],
)
def test_empty_lists_of_victims_are_kept_and_no_null_ever_goes_out(stack: Stack, body: dict[str, Any]) -> None:
    code, answer = stack.call("preempt", json.dumps({"Pod": {"metadata": {"name": "p", "uid": "u"}}, **body}).encode())

    assert code == 200
    sent = next((value for value in body.values() if value), {})
    assert answer == {
        "NodeNameToMetaVictims": {
            node: {"Pods": [], "NumPDBViolations": (victims or {}).get("NumPDBViolations", 0)}
            for node, victims in sent.items()
        }
    }


def _important(node: str) -> dict[str, Any]:
    return {"priorityClassName": "important", "nodeSelector": {"place": node}}


def test_the_configuration_that_is_shipped_names_all_verbs() -> None:
    text = (BASE_DIR / "deploy" / "kube-scheduler" / "config.yaml").read_text()
    assert all(verb in text for verb in ("filterVerb", "prioritizeVerb", "bindVerb", "preemptVerb"))
