"""Recorded Decisions, replayed: the Snapshot put together again, and the same answer.

REPLAY_CASES says how many mixed ones there are (300), REPLAY_SEED chooses them; `make long` makes 5,000 new ones.
"""

import io
import json
import os
import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.core.management import CommandError, call_command

from policies import publishing
from policies.engine import scheduling
from policies.engine.decision import CompiledRevision, CompiledRuleSet, decide
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.namespace import Namespace
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod, PodObject
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.scheduling import default_profile, judge, with_default_filters
from scheduler.cluster.building import SnapshotBuilder
from scheduler.cluster.reflection import Change
from scheduler.decisions import journal
from scheduler.decisions.reading import body_of
from scheduler.decisions.rebuilding import ReplayError, Snapshots
from scheduler.decisions.record import (
    AS_COLUMNS,
    Entry,
    NodesEntry,
    make_compressor,
    notes_of_suspensions,
    read_body,
    store_json,
)
from scheduler.decisions.replay import Replays, replay
from scheduler.extender.request.full_nodes import FullNodes
from scheduler.extender.request.wire import decode_args, receive
from scheduler.models import Decision, NodeNames, SnapshotPart
from tests.builders import make_assignment, make_exemption, make_node, make_pause, make_pod, make_rule_set
from tests.component.pages import publish_all
from tests.recording import History

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 1, tzinfo=UTC)
CASES = int(os.environ.get("REPLAY_CASES", "300"))
SEED = int(os.environ.get("REPLAY_SEED", "7"))

RULE_SETS: dict[str, dict[str, Any]] = {
    "team": {
        "filters": [
            {"name": "team", "expression": "node.metadata.?labels.team.orValue('') == pod.metadata.labels.team"},
            {"builtin": "PodFitsResources"},
        ],
        "scores": [{"builtin": "LeastRequestedPriority"}, {"builtin": "BalancedResourceAllocation", "weight": 2}],
    },
    "broken": {
        "filters": [
            {"name": "number", "expression": "int(node.metadata.labels.rank) > 3", "onError": "pass"},
            {"name": "other", "expression": "int(node.metadata.labels.rank) < 8"},
            {"name": "dry", "expression": "false", "mode": "shadow"},
        ],
        "scores": [{"name": "rank", "expression": "int(node.metadata.labels.rank)", "bounds": [0, 9]}],
    },
    "hours": {
        "filters": [{"name": "hours", "expression": "now.getMinutes() % 2 == 0 || node.metadata.name < 'n3'"}],
        "scores": [{"name": "minute", "expression": "now.getSeconds() - size(node.metadata.name)"}],
    },
    "counting": {
        "filters": [
            {"name": "few", "expression": "node.count({'app': pod.metadata.labels.app}) < params.most"},
            {
                "name": "x",
                "expression": "namespaceObject.metadata.labels.?team.orValue('') != 'x' || node.metadata.name < 'n4'",
            },
            {"builtin": "MatchInterPodAffinity"},
            {"builtin": "EvenPodsSpread"},
        ],
        "scores": [{"builtin": "SelectorSpreadPriority"}, {"builtin": "InterPodAffinityPriority"}],
        "params": {"most": 3},
    },
}


@pytest.fixture
def revision() -> CompiledRevision:
    """Every rule set, chosen by a label; one more that only watches, a canary, one with params of its own; some out of force."""
    for order, (name, spec) in enumerate(RULE_SETS.items()):
        match = {"podSelector": {"matchLabels": {"policy": name}}}
        assignment = make_assignment(f"by-{name}", name, order=order + 10, match=match)
        publish_all(make_rule_set(name, **spec), assignment)
    shadow = make_assignment("shadow", "team", order=1, mode="shadow", match={"namespaces": ["shop"]})
    policy = {"podSelector": {"matchLabels": {"policy": "hours"}}}
    canary = make_assignment("canary", "team", order=2, mode="canary", percent=50, match=policy)
    policy = {"podSelector": {"matchLabels": {"policy": "counting"}}, "namespaces": ["shop"]}
    fewer = make_assignment("fewer", "counting", order=3, params={"most": 1}, match=policy)
    publish_all(shadow, canary, fewer)
    return CompiledRevision(publishing.current_revision())


@pytest.fixture
def suspended(revision: CompiledRevision) -> CompiledRevision:
    """The Revision with some of it out of force: for half of the time, and for some Pods."""
    half = (AT + timedelta(seconds=CASES // 2)).isoformat()
    targets = {"team": "RuleSet/team/team", "number": "RuleSet/broken/number", "fewer": "Assignment/fewer"}
    pauses = [make_pause(name, target, until=half) for name, target in targets.items()]
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b", "web"]}]}
    pods = [{"namespace": name, "selector": selector} for name in ("shop", "default")]
    until = (AT + timedelta(days=1)).isoformat()
    publish_all(*pauses, make_exemption("some", "RuleSet/hours", pods=pods, until=until))
    return CompiledRevision(publishing.current_revision())


class Cluster:
    """A cluster that changes by chance, as watches show it, and what an extender would be asked."""

    def __init__(self, seed: int, nodes: int = 6) -> None:
        self.random = random.Random(seed)
        self.builder = SnapshotBuilder()
        self.full_nodes = FullNodes()
        self.objects = ClusterObjects()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self._made = 0
        for number in range(nodes):
            self.put_node(f"n{number}")
        self.put_namespace("shop", team="web")

    def put_node(self, name: str) -> None:
        labels = {"team": self.random.choice(["web", "data"]), "rank": self.random.choice(["1", "5", "9", "x"])}
        labels["topology.kubernetes.io/zone"] = self.random.choice("ab")
        before = self.nodes.get(name)
        node = self.nodes[name] = Node.from_json(make_node(name, labels=labels, cpu=str(self.random.randint(1, 8))))
        self.builder.on_nodes([Change("modified" if before else "added", name, node, before, "1")])

    def drop_node(self, name: str) -> None:
        node = self.nodes.pop(name)
        self.builder.on_nodes([Change("deleted", name, node, node, "1")])

    def put_namespace(self, name: str, **labels: str) -> None:
        namespace = msgspec.convert({"metadata": {"name": name, "labels": labels}}, Namespace)
        self.builder.on_namespaces([Change("added", name, namespace, None, "1")])

    def put_pod(self) -> None:
        self._made += 1
        name = f"p{self._made}"
        json = self.new_pod(name, nodeName=self.random.choice(list(self.nodes)))
        if self.random.random() < 0.2:
            # In the middle of being resized: what it counts for doesn't follow from its spec alone.
            json["status"] = {
                "phase": "Running",
                "containerStatuses": [
                    {"name": "main", "allocatedResources": {"cpu": "900m"}, "resources": {"requests": {"cpu": "900m"}}}
                ],
            }
        pod = Pod(msgspec.convert(json, PodObject))
        _ = pod.requests
        self.pods[pod.uid] = pod
        self.builder.on_pods([Change("added", pod.uid, pod, None, "1")])

    def drop_pod(self) -> None:
        uid = self.random.choice(list(self.pods))
        pod = self.pods.pop(uid)
        self.builder.on_pods([Change("deleted", uid, pod, pod, "2")])

    def new_pod(self, name: str, policy: str = "", **spec: Any) -> dict[str, Any]:
        labels = {"app": self.random.choice("abc"), "team": "web", **({"policy": policy} if policy else {})}
        term = {"labelSelector": {"matchLabels": {"app": labels["app"]}}, "topologyKey": "kubernetes.io/hostname"}
        if self.random.random() < 0.3:
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        if self.random.random() < 0.3:
            spec["topologySpreadConstraints"] = [
                {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                 "labelSelector": {"matchLabels": {"app": labels["app"]}}}
            ]  # fmt: skip
        requests = {"cpu": f"{self.random.randint(1, 9)}00m", "memory": "64Mi"}
        return make_pod(
            name, labels=labels, requests=requests, namespace=self.random.choice(["default", "shop"]), **spec
        )

    def change(self) -> None:
        """Something happens."""
        match self.random.randrange(10):
            case 0:
                self.put_node(f"n{self.random.randrange(12)}")
            case 1 if len(self.nodes) > 3:
                self.drop_node(self.random.choice(list(self.nodes)))
            case 2 if self.pods:
                self.drop_pod()
            case 3:
                self.put_namespace(self.random.choice(["shop", "other"]), team=self.random.choice("xy"))
            case 4:
                owner = {"metadata": {"name": "s"}, "spec": {"selector": {"app": self.random.choice("abc")}}}
                self.objects = ClusterObjects(services=[owner])
            case _:
                self.put_pod()

    def live(self) -> Snapshot:
        return self.builder.build().changed({}, objects=self.objects)

    def snapshot(self) -> Snapshot:
        """The live one, or one with nodes of a full request body in it."""
        live = self.live()
        if self.random.random() < 0.7:
            return live
        chosen = self.random.sample(list(self.nodes), 2)
        items = [{**self.nodes[name].json, "fresh": 1} for name in chosen]
        sent = decode_args(receive(msgspec.json.encode({"Pod": {}, "Nodes": {"items": items}}))).nodes
        assert sent is not None
        return self.full_nodes.on(live, sent)[0]


def ask(history: History, cluster: Cluster, revision: CompiledRevision, number: int) -> None:
    """Answer and record as the extender does: shadow Assignments, then the one that counts, with its shadow rules later.

    Version 0.1.0 asked shadow rules before the answer; its Decisions replay too.
    """
    draw = cluster.random
    pod = Pod.from_json(cluster.new_pod(f"asked-{number}", policy=draw.choice(["", *RULE_SETS])))
    snapshot = cluster.snapshot()
    names = [*draw.sample(list(snapshot.nodes), draw.randint(1, len(snapshot.nodes)))]
    if draw.random() < 0.2:
        names.insert(draw.randint(0, len(names)), "nobody-knows-me")
    if draw.random() < 0.3:
        names = list(snapshot.nodes)
    now = AT + timedelta(seconds=number, microseconds=number)
    assumed = []
    if draw.random() < 0.3:
        assumed = [(Pod.from_json(cluster.new_pod(f"promised-{number}")), draw.choice(list(snapshot.nodes)))]
    seen = snapshot
    for other, node in assumed:
        seen = seen.assume(other, node)
    verb = draw.choice(["filter", "prioritize"])
    choice = revision.choose(pod, snapshot, now)
    common: dict[str, Any] = {
        "verb": verb, "pod": pod, "now": now, "revision": revision, "snapshot": snapshot, "names": names,
        "assumed": assumed, "duration_microseconds": 5, "draws": choice.draws,
        "notes": notes_of_suspensions(choice.suspended_by),
    }  # fmt: skip
    applying = [("shadow", found) for found in choice.shadows]
    if choice.enforced:
        assignment, rule_set = choice.enforced
        as_before = draw.random() < 0.3
        applying.append(("enforce", (assignment, rule_set if as_before else rule_set.enforced)))
        if rule_set.has_shadows(scoring=verb == "prioritize"):
            applying.append(("shadow", choice.enforced))
    for mode, (assignment, rule_set) in applying:
        rows = seen.table.rows(names)
        cycle = Cycle(pod=pod, snapshot=seen, now=now, params=rule_set.params)
        scoring = verb == "prioritize"
        answer = decide(rule_set, cycle, rows[rows >= 0], scoring=scoring, filtering=not scoring)
        entry = NodesEntry(**common, mode=mode, assignment=assignment, rule_set=rule_set, rows=rows, answer=answer)
        history.recorder.record(entry)
        assert (entry.best, entry.feasible) == (answer.best, answer.feasible_count)
    if choice.enforced is None:
        history.recorder.record(NodesEntry(**common))


def test_mixed_decisions_replay_to_the_same_answers(
    history: History, suspended: CompiledRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SHORTEST_CHAIN_BYTES", 20_000)  # so that new bases come too
    cluster = Cluster(SEED)
    for number in range(CASES):
        for _ in range(cluster.random.randrange(3)):
            cluster.change()
        ask(history, cluster, suspended, number)
        if number % 50 == 0:
            history.settle()
    history.settle()

    replays = Replays()
    rows = Decision.objects.order_by("sequence")
    assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
    different = {row.sequence: found for row in rows if (found := replays.replay(row).differences)}
    assert different == {}, f"REPLAY_SEED={SEED}"
    assert len({row.chain for row in rows}) > 3
    assert {row.mode for row in rows} == {"enforce", "shadow"}
    assert {row.verb for row in rows} == {"filter", "prioritize"}
    notes = [body_of(row).get("notes", {}) for row in rows]
    sides = {said["canaries"]["canary"]["drawn"] < 50 for said in notes if "canaries" in said}
    assert sides == {True, False}
    assert {"most": 1} in [said.get("params") for said in notes]
    targets = {each["target"] for said in notes for each in said.get("suspendedBy", ())}
    assert targets == {"RuleSet/team/team", "RuleSet/broken/number", "Assignment/fewer", "RuleSet/hours"}
    for row in random.Random(1).sample(list(rows), 10):  # in any order, and one by one
        assert replay(row).ok


@pytest.fixture
def one(history: History, revision: CompiledRevision) -> Decision:
    """A Decision of rule set team, made on the second change of a chain."""
    cluster = Cluster(seed=1)
    for number in range(3):
        cluster.put_pod()
        cluster.put_node("n1")
        snapshot = cluster.live()
        pod = Pod.from_json(make_pod("asked", labels={"policy": "team", "team": "web"}))
        choice = revision.choose(pod, snapshot, AT)
        assert choice.enforced is not None
        assignment, rule_set = choice.enforced
        cycle = Cycle(pod=pod, snapshot=snapshot, now=AT, params=rule_set.params)
        answer = decide(rule_set, cycle, snapshot.table.all_rows(), scoring=False)
        history.recorder.record(
            NodesEntry(
                verb="filter", pod=pod, now=AT, revision=revision, assignment=assignment, rule_set=rule_set,
                snapshot=snapshot, names=list(snapshot.nodes), answer=answer,
            )
        )  # fmt: skip
        del number
    history.settle()
    return Decision.objects.get(sequence=3)


def call_replay(*arguments: str) -> str:
    out = io.StringIO()
    call_command("replay", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_says_that_the_answer_is_the_same(one: Decision) -> None:
    assert call_replay(str(one.pk)).startswith(f"filter of default/asked, Revision {one.revision}: the same answer")
    assert json.loads(call_replay(str(one.pk), "--output", "json")) == {
        "ok": True, "id": str(one.pk), "differences": []
    }  # fmt: skip


def test_the_command_says_where_an_answer_differs(one: Decision) -> None:
    part = SnapshotPart.objects.filter(position=0).order_by("-part").first()
    assert part is not None
    from scheduler.decisions.record import decompress, make_compressor

    data = decompress(bytes(part.data)).replace(b'"team":"web"', b'"team":"wep"')
    SnapshotPart.objects.filter(pk=part.pk).update(data=make_compressor().compress(data))
    out = io.StringIO()
    with pytest.raises(CommandError, match="the answer differs"):
        call_command("replay", str(one.pk), "--output", "json", stdout=out)
    report = json.loads(out.getvalue())
    assert report["ok"] is False
    assert "filter team differs" in report["differences"]
    assert "the answer as a whole differs" in report["differences"]


@pytest.mark.parametrize("name", ["not-an-id", "00000000-0000-0000-0000-000000000000"])
def test_the_command_says_that_there_is_no_such_decision(name: str) -> None:
    with pytest.raises(CommandError, match="no Decision"):
        call_replay(name)


def lose_base() -> None:
    SnapshotPart.objects.filter(position=0).delete()


def lose_change() -> None:
    SnapshotPart.objects.filter(position=1).delete()


def lose_revision() -> None:
    Decision.objects.update(revision=99)


def lose_chain() -> None:
    Decision.objects.update(chain=0)


def break_body() -> None:
    Decision.objects.update(body=AS_COLUMNS + b"nonsense")


def break_part() -> None:
    SnapshotPart.objects.filter(position=1).update(data=b"nonsense")


def other_revision() -> None:
    Decision.objects.update(revision=1)


def other_assignment() -> None:
    Decision.objects.update(assignment="by-nobody")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lose_base, "the Snapshot that the Decision was made on is not there"),
        (lose_change, "change 1 of Snapshot chain 1 is missing"),
        (lose_revision, "Revision 99 is not there"),
        (lose_chain, "the Decision refers to no Snapshot"),
        (break_body, "can't be decompressed"),
        (break_part, "the Snapshot can't be read"),
        (other_revision, "Revision 1 is another one now"),
        (other_assignment, "Assignment by-nobody doesn't take the Pod"),
    ],
)
def test_what_a_replay_lacks_is_said(one: Decision, spoil: Any, words: str) -> None:
    spoil()
    with pytest.raises(ReplayError, match=words):
        replay(Decision.objects.get(pk=one.pk))
    with pytest.raises(CommandError, match=words):
        call_replay(str(one.pk))


def decided(history: History, revision: CompiledRevision, kind: str) -> Decision:
    """A Decision of a kind, as the extender and the binder record it."""
    labels = {"policy": "nobody"} if kind in {"passed", "default set"} else {"policy": "team", "team": "web"}
    cluster = Cluster(seed=3)
    snapshot = cluster.live()
    pod = Pod.from_json(make_pod("asked", namespace="shop", labels=labels))
    choice = revision.choose(pod, snapshot, AT)
    found = choice.shadows[0] if kind == "shadow" else choice.enforced
    common: dict[str, Any] = {"verb": kind, "pod": pod, "now": AT, "revision": revision}
    about: dict[str, Any] = {"snapshot": snapshot, "names": list(snapshot.nodes)}
    if kind in {"schedule", "default set"}:
        common["notes"] = {"node": "n0"}
    if kind == "passed":
        entry: Entry = NodesEntry(**common | {"verb": "filter"}, **about)
    elif kind == "default set":
        answer = judge(default_profile(), Cycle(pod=pod, snapshot=snapshot, now=AT), snapshot.table.all_rows())
        entry = NodesEntry(**common | {"verb": "schedule", "rule_set": default_profile()}, **about, answer=answer)
    else:
        assert found is not None
        assignment, rule_set = found
        common |= {"assignment": assignment, "rule_set": rule_set}
        cause, chosen = "Berth can't reach Redis", {"fallback": "pass", "cause": "Berth can't reach Redis"}
        if kind in {"filter", "prioritize", "schedule", "shadow"}:
            verb = "filter" if kind == "shadow" else kind
            cycle = Cycle(pod=pod, snapshot=snapshot, now=AT, params=rule_set.params)
            rows = snapshot.table.all_rows()
            if kind == "schedule":
                common["rule_set"] = with_default_filters(rule_set)
                answer = judge(common["rule_set"], cycle, rows)
            else:
                answer = decide(rule_set, cycle, rows, scoring=verb == "prioritize", filtering=verb == "filter")
            mode = "shadow" if kind == "shadow" else "enforce"
            entry = NodesEntry(**common | {"verb": verb}, **about, answer=answer, mode=mode)
        else:
            entry = {
                "bind": lambda: Entry(**common, nodes=1, feasible=1, best="n1", notes={"node": "n1", "counted": False}),
                "bind, refused": lambda: Entry(**common | {"verb": "bind"}, nodes=1, error="the Pod is gone"),
                "bind, follows": lambda: Entry(
                    **common | {"verb": "bind"}, nodes=1, error="the Pod is gone", notes={"follows": "6f0b"}
                ),
                "preempt": lambda: Entry(**common, nodes=2, feasible=1, notes={"kept": ["n1"]}),
                "preempt, not ready": lambda: Entry(verb="preempt", pod=pod, now=AT, error="not yet"),
                "filter, not ready": lambda: Entry(verb="filter", pod=pod, now=AT, error="not yet"),
                "prioritize, not ready": lambda: Entry(verb="prioritize", pod=pod, now=AT, error="not yet"),
                "filter, fallback": lambda: Entry(**common | {"verb": "filter"}, nodes=2, error=cause, notes=chosen),
                "prioritize, fallback": lambda: Entry(
                    **common | {"verb": "prioritize"}, nodes=2, error=cause, notes=chosen
                ),
                "schedule, refused": lambda: Entry(**common | {"verb": "schedule"}, error=cause),
                "schedule, without a word": lambda: Entry(**common | {"verb": "schedule"}),
            }[kind]()
    history.recorder.record(entry)
    history.settle()
    return Decision.objects.get(pk=entry.id)


REPLAYABLE = ("filter", "prioritize", "schedule", "shadow", "passed", "default set")
NOT_REPLAYABLE = {
    "bind": "no rule was asked before this binding, or what they saw is not recorded",
    "bind, refused": "no rule was asked: the Pod is gone",
    "bind, follows": "it is what became of the binding .the Pod is gone.; what the rules said is Decision 6f0b",
    "preempt": "the candidates that kube-scheduler sent are not recorded",
    "preempt, not ready": "no rule was asked: not yet",
    "filter, not ready": "no rule was asked: not yet",
    "prioritize, not ready": "no rule was asked: not yet",
    "filter, fallback": "the rule set chose to pass .Berth can't reach Redis., and what was away then is not recorded",
    "prioritize, fallback": "the rule set chose to pass",
    "schedule, refused": "no rule was asked: Berth can't reach Redis",
    "schedule, without a word": "no answer is recorded",
}


def reported(decision: Decision) -> tuple[bool, str]:
    """What `replay --output json` says, and that its exit code says the same."""
    out = io.StringIO()
    try:
        call_command("replay", str(decision.pk), "--output", "json", stdout=out)
        code = 0
    except CommandError as error:
        code = error.returncode
    report = json.loads(out.getvalue())
    assert code == (0 if report["ok"] else 1)
    return report["ok"], report.get("error", "")


@pytest.mark.parametrize("kind", REPLAYABLE)
def test_a_decision_that_rules_made_is_decided_again(history: History, revision: CompiledRevision, kind: str) -> None:
    assert reported(decided(history, revision, kind)) == (True, "")


@pytest.mark.parametrize("kind", ["schedule", "default set"])
def test_a_decision_of_a_version_that_did_not_always_ask_a_filter_is_replayed_without_it(
    history: History, revision: CompiledRevision, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with monkeypatch.context() as former:
        former.setattr(scheduling, "_ASKED_LAST", ())
        default_profile.cache_clear()
        decision = decided(history, revision, kind)
    default_profile.cache_clear()
    assert reported(decision) == (True, "")


@pytest.mark.parametrize("kind", ["schedule", "default set"])
def test_a_decision_of_a_version_that_asked_filters_in_another_order_is_replayed_in_that_order(
    history: History, revision: CompiledRevision, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with monkeypatch.context() as former:
        former.setattr(scheduling, "_ASKED_FIRST", ())
        former.setattr(scheduling, "_ASKED_LAST", scheduling.ALWAYS_ASKED)
        default_profile.cache_clear()
        decision = decided(history, revision, kind)
    default_profile.cache_clear()
    assert reported(decision) == (True, "")


@pytest.mark.parametrize("kind", REPLAYABLE)
@pytest.mark.parametrize(
    "said",
    [{"rule_set": "x"}, {"rule_set_version": 7}, {"assignment": "x"}, {"nodes": 77}, {"feasible": 77}, {"best": "x"}, {"top_reason": "x"},
     {"pod_namespace": "x"}, {"pod_name": "x"}, {"pod_uid": "x"}, {"mode": "enforce", "divergence": "same"}],
    ids=str,
)  # fmt: skip
def test_what_lists_show_of_a_decision_is_replayed_with_it(
    history: History, revision: CompiledRevision, kind: str, said: dict[str, Any]
) -> None:
    decision = decided(history, revision, kind)
    Decision.objects.filter(pk=decision.pk).update(**said)
    decision.refresh_from_db()
    assert reported(decision)[0] is False


@pytest.mark.parametrize("kind", ["filter", "prioritize", "schedule"])
def test_an_answer_that_is_said_to_be_a_shadow_is_not_called_the_same(
    history: History, revision: CompiledRevision, kind: str
) -> None:
    decision = decided(history, revision, kind)
    Decision.objects.filter(pk=decision.pk).update(mode="shadow", divergence="agreed")
    decision.refresh_from_db()
    assert reported(decision) == (False, "not replayable: Assignment by-team asks nothing about the Pod in mode shadow")


def test_a_shadow_of_rules_inside_that_is_said_to_be_an_answer_differs(
    history: History, revision: CompiledRevision
) -> None:
    pod, snapshot = Pod.from_json(make_pod("asked", labels={"policy": "broken"})), Cluster(seed=3).live()
    choice = revision.choose(pod, snapshot, AT)
    assert choice.enforced is not None
    assignment, rule_set = choice.enforced
    answer = decide(rule_set, Cycle(pod=pod, snapshot=snapshot, now=AT), snapshot.table.all_rows(), scoring=False)
    about: dict[str, Any] = {"verb": "filter", "pod": pod, "now": AT, "names": list(snapshot.nodes), "answer": answer}
    by: dict[str, Any] = {
        "revision": revision,
        "snapshot": snapshot,
        "assignment": assignment,
        "rule_set": rule_set,
    }
    notes = {"answered": "6f0b", "inside": True}
    history.recorder.record(NodesEntry(**about, **by, mode="shadow", notes=notes))
    history.settle()
    assert reported(Decision.objects.get())[0] is True
    Decision.objects.update(mode="enforce")
    assert replay(Decision.objects.get()).differences == ["it is said to be an answer; recorded is a shadow"]


@pytest.mark.parametrize(("kind", "why"), NOT_REPLAYABLE.items())
def test_what_can_not_be_decided_again_is_never_called_the_same(
    history: History, revision: CompiledRevision, kind: str, why: str
) -> None:
    decision = decided(history, revision, kind)
    ok, fault = reported(decision)
    assert not ok
    assert re.match(f"not replayable: {why}", fault), fault
    with pytest.raises(CommandError, match=f"not replayable: {why}"):
        call_replay(str(decision.pk))


@pytest.mark.parametrize("kind", [*REPLAYABLE, *NOT_REPLAYABLE])
def test_nothing_that_took_a_snapshot_is_called_the_same_without_it(
    history: History, revision: CompiledRevision, kind: str
) -> None:
    decision = decided(history, revision, kind)
    SnapshotPart.objects.all().delete()
    # That no Assignment takes a Pod follows from the Revision and the labels of its namespace, which the Decision has.
    assert reported(decision)[0] is (kind == "passed")


@pytest.mark.parametrize("kind", REPLAYABLE)
@pytest.mark.parametrize(("spoil", "why"), [("delete", "are missing"), ("break", "can't be read")])
def test_without_the_names_of_nodes_no_answer_is_called_the_same_or_different(
    history: History, revision: CompiledRevision, kind: str, spoil: str, why: str
) -> None:
    decision = decided(history, revision, kind)
    names = NodeNames.objects.all()
    _ = names.delete() if spoil == "delete" else names.update(data=b"nonsense")
    ok, fault = reported(decision)
    assert not ok
    assert re.match(f"not replayable: the names of nodes, number 1, {why}", fault), fault


@pytest.mark.parametrize("by_rules", [False, True])
def test_what_was_said_before_any_node_was_seen_is_replayed(
    history: History, revision: CompiledRevision, *, by_rules: bool
) -> None:
    snapshot = Snapshot.of([])
    pod = Pod.from_json(make_pod("asked", labels={"policy": "team", "team": "web"} if by_rules else {}))
    about: dict[str, Any] = {"verb": "filter", "pod": pod, "now": AT, "revision": revision, "snapshot": snapshot}
    if by_rules:
        (assignment, rule_set) = revision.choose(pod, snapshot, AT).enforced or (None, None)
        assert rule_set is not None
        answer = decide(rule_set, Cycle(pod=pod, snapshot=snapshot, now=AT), snapshot.table.all_rows(), scoring=False)
        about |= {"assignment": assignment, "rule_set": rule_set, "answer": answer}
    history.recorder.record(NodesEntry(**about, names=["n1", "n2"]))
    history.settle()
    assert reported(Decision.objects.get()) == (True, "")


def test_a_passed_pod_that_an_assignment_takes_differs(history: History, revision: CompiledRevision) -> None:
    decision = decided(history, revision, "passed")
    body = read_body(bytes(decision.body))
    taken = msgspec.structs.replace(body, pod=body.pod.replace(b'"nobody"', b'"team"'))
    stored = AS_COLUMNS + make_compressor().compress(msgspec.msgpack.encode(taken))
    Decision.objects.update(body=stored)
    assert reported(decision) == (False, "the answer differs: Assignment by-team takes the Pod; none was recorded")


def test_a_decision_of_version_0_1_0_is_not_replayable(one: Decision) -> None:
    Decision.objects.update(body=store_json({"pod": {}, "nodes": []}))
    assert reported(one) == (False, "not replayable: the Decision holds no columns")


def test_the_snapshot_of_a_decision_is_as_it_was(one: Decision) -> None:
    snapshot = Snapshots().of(one)
    assert list(snapshot.nodes) == body_of(one)["nodes"] == [f"n{number}" for number in range(6)]
    assert snapshot.namespace_labels("shop") == {"team": "web"}
    assert sum(len(info.pods) for info in snapshot.nodes.values()) == 3


def test_names_that_are_gone_show_as_positions(one: Decision) -> None:
    NodeNames.objects.all().delete()
    assert body_of(one)["nodes"] == [f"?{number}" for number in range(6)]


def test_explain_says_what_rules_read_of_nodes(one: Decision) -> None:
    out = io.StringIO()
    call_command("explain", "asked", stdout=out)
    said = out.getvalue()
    assert "(not recorded)" not in said
    assert "node.metadata.labels.team = " in said
    out = io.StringIO()
    call_command("explain", "asked", "--node", "n1", "--output", "json", stdout=out)
    (decision,) = json.loads(out.getvalue())["decisions"]
    assert decision["node"]["node"] == "n1"
    seen = decision["node"]["rules"][0]["seen"]
    assert seen["node.metadata.labels.team"] in {"web", "data"}


def test_explain_says_a_refusal_of_one_node_once_with_what_would_change_it(one: Decision) -> None:
    out = io.StringIO()
    call_command("explain", "asked", "--output", "json", stdout=out)
    (decision,) = json.loads(out.getvalue())["decisions"]
    refused = next(row["nodes"][0] for row in decision["matrix"]["rows"] if not row["feasible"])
    out = io.StringIO()
    call_command("explain", "asked", "--node", refused, stdout=out)
    (refusal,) = [line for line in out.getvalue().splitlines() if f"refused {refused}:" in line]
    assert "It is true on" in refusal


def test_explain_says_a_score_of_one_node_once_unless_another_was_recorded(history: History) -> None:
    publish_all(make_rule_set(scores=[{"name": "long", "expression": "size(node.metadata.name)"}]), make_assignment())
    revision = CompiledRevision(publishing.current_revision())
    (rule_set,) = revision.rule_sets.values()
    other = CompiledRuleSet(make_rule_set(scores=[{"name": "long", "expression": "-size(node.metadata.name)"}]))
    snapshot = Snapshot.of([Node.from_json(make_node(name)) for name in ("n1", "n22")])
    for name, made in (("same", rule_set), ("other", other)):
        pod = Pod.from_json(make_pod(name))
        answer = decide(made, Cycle(pod=pod, snapshot=snapshot, now=AT), snapshot.table.all_rows(), filtering=False)
        about: dict[str, Any] = {"verb": "prioritize", "pod": pod, "now": AT, "names": ["n1", "n22"], "answer": answer}
        by: dict[str, Any] = {"revision": revision, "snapshot": snapshot, "rule_set": rule_set}
        history.recorder.record(NodesEntry(**about, **by, assignment=make_assignment()))
    history.settle()
    assert [again for _, again in scores_of_n1("same")] == [True]
    assert scores_of_n1("other") == [(100, False), (0, True)]


def scores_of_n1(pod: str) -> list[tuple[int, bool]]:
    """Return the scores that `explain` says, and whether it says what the expression gave."""
    out = io.StringIO()
    call_command("explain", pod, "--node", "n1", stdout=out)
    found = re.findall(r"- score long.* gives n1 (\d+) of 100(.*)", out.getvalue())
    return [(int(score), "The expression gave" in rest) for score, rest in found]


def test_explain_goes_on_without_a_snapshot_that_was_pruned(one: Decision) -> None:
    lose_base()
    out = io.StringIO()
    call_command("explain", "asked", "--node", "n1", stdout=out)
    assert 'node.metadata.labels.team = "(not recorded)"' in out.getvalue() or "lets n1 pass" in out.getvalue()


def test_a_canary_that_drew_otherwise_is_a_difference(history: History, revision: CompiledRevision) -> None:
    cluster = Cluster(seed=3)
    pod = Pod.from_json(make_pod("asked", labels={"policy": "hours"}))
    snapshot = cluster.live()
    choice = revision.choose(pod, snapshot, AT)
    assert choice.enforced is not None
    assignment, rule_set = choice.enforced
    cycle = Cycle(pod=pod, snapshot=snapshot, now=AT, params=rule_set.params)
    answer = decide(rule_set, cycle, snapshot.table.all_rows(), scoring=False)
    names = list(snapshot.nodes)
    common: dict[str, Any] = {"verb": "filter", "pod": pod, "now": AT, "revision": revision, "snapshot": snapshot}
    common |= {"names": names, "assignment": assignment, "rule_set": rule_set, "answer": answer}
    for draws in (choice.draws, [(choice.draws[0][0], choice.draws[0][1] + 1)]):
        history.recorder.record(NodesEntry(**common, draws=draws))
    passed = {**common, "pod": Pod.from_json(make_pod("nobodys")), "draws": choice.draws}
    passed |= {"assignment": None, "rule_set": None, "answer": None}
    history.recorder.record(NodesEntry(**passed))
    history.settle()
    found = [replay(row).differences for row in Decision.objects.order_by("sequence")]
    assert found == [[], ["the canaries drew otherwise"], ["the canaries drew otherwise"]]


def test_a_best_node_that_scores_named_which_dont_count_is_no_difference(history: History) -> None:
    scores = [{"name": "tried", "expression": "1", "mode": "shadow"}]
    publish_all(make_rule_set(scores=scores), make_assignment())
    revision = CompiledRevision(publishing.current_revision())
    (rule_set,) = revision.rule_sets.values()
    snapshot, pod = Snapshot.of([Node.from_json(make_node("n1"))]), Pod.from_json(make_pod("asked"))
    answer = decide(rule_set, Cycle(pod=pod, snapshot=snapshot, now=AT), snapshot.table.all_rows())
    about: dict[str, Any] = {"verb": "prioritize", "pod": pod, "now": AT, "names": ["n1"], "answer": answer}
    by: dict[str, Any] = {
        "revision": revision,
        "snapshot": snapshot,
        "assignment": make_assignment(),
        "rule_set": rule_set,
    }
    history.recorder.record(NodesEntry(**about, **by))
    history.settle()
    Decision.objects.update(best="n1")  # as former versions wrote it
    assert replay(Decision.objects.get()).ok
