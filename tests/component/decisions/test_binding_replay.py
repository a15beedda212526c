"""What /bind and /preempt answered, recorded by the verbs themselves, stored, and decided again."""

import json
from pathlib import Path
from typing import Any

import pytest

from policies import publishing
from policies.engine.decision import CompiledRevision
from policies.engine.failures import Conditions
from scheduler.cluster import handover
from scheduler.cluster.bind import Outcome, Target
from scheduler.decisions.rebuilding import ReplayError
from scheduler.decisions.record import read_body
from scheduler.decisions.replay import replay
from scheduler.extender.verbs import bind as bind_module
from scheduler.extender.verbs.bind import NO_LONGER, RELABELLED, Binder
from scheduler.models import Decision
from tests.builders import make_assignment, make_node, make_pod, make_rule_set
from tests.component.pages import publish_all
from tests.recording import History
from tests.unit.extender.verbs.test_handlers import AWAY, Holder, Setting, StillCluster

pytestmark = pytest.mark.django_db

FEW = {"name": "few", "expression": "node.count({'app': 'x'}) < 2", "reason": "two are enough"}
STAYS = {"name": "stays", "expression": "victim.metadata.name != 'dear'", "reason": "it stays"}
NOT_N3 = {"name": "not-n3", "expression": "node.metadata.name != 'n3'", "reason": "not here"}


class Lock:
    """A lock that is always free."""

    def hold(self, _: float) -> Any:
        from contextlib import nullcontext

        return nullcontext(type("Held", (), {"note": ""})())

    def is_valid(self, _: object) -> bool:
        return True


class Bench:
    """The verbs on a cluster that stands still, with a history, by rules that are published."""

    def __init__(self, folder: Path, *pods: dict[str, Any], **setting: Any) -> None:
        self.history = History(folder / "spool")
        self.cluster = StillCluster(*(make_node(name) for name in ("n1", "n2", "n3")), pods=pods)
        self._setting = Setting(cluster=self.cluster, **setting)
        self._setting.questions._revisions = Holder(CompiledRevision(publishing.current_revision()))  # type: ignore[assignment]
        self.answers, self.in_flight = self._setting.answers, self._setting.in_flight
        self.answers._recorder = self.history.recorder

        def get(_: object, *, path: str, **__: object) -> bytes:
            return json.dumps(make_pod(path.rpartition("/")[2], labels={"app": "x"})).encode()

        client: Any = type("Client", (), {"get": get})()
        self.answers._client = client
        parts: dict[str, Any] = {"live": self.cluster, "lock": Lock(), "contexts": self._setting.questions}
        self.answers._binder = Binder(client=client, in_flight=self.in_flight, **parts)

    def bind(self, node: str, name: str = "p") -> str:
        args = {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-{name}", "Node": node}
        return str(json.loads(b"".join([bytes(self.answers.bind(json.dumps(args).encode()).body)]))["Error"])

    def preempt(self, sent: dict[str, Any], pod: dict[str, Any] | None = None) -> list[str]:
        body = {"Pod": pod or make_pod("p", labels={"app": "x"})} | sent
        answer = json.loads(bytes(self.answers.preempt(json.dumps(body).encode()).body))
        return list(answer["NodeNameToMetaVictims"])

    def decisions(self) -> list[Decision]:
        self.history.settle()
        return list(Decision.objects.order_by("sequence"))


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> list[Target]:
    """The API server's answers: what was sent, and that all is well."""
    sent: list[Target] = []

    def bind(_client: object, target: Target, **_: object) -> Outcome:
        sent.append(target)
        return outcome.get(target.name, Outcome.BOUND)

    outcome = {"late": Outcome.GONE}
    monkeypatch.setattr(bind_module, "bind", bind)
    monkeypatch.setattr(handover, "bound_version", lambda *_, **__: "1")
    return sent


def publish(**spec: Any) -> None:
    publish_all(make_rule_set("rules", **spec), make_assignment("all", "rules"))


def same(decision: Decision) -> bool:
    found = replay(decision)
    assert found.differences == []
    return found.ok


class TestBind:
    @pytest.mark.parametrize("spec", [{"filters": [NOT_N3]}, {"filters": [FEW, NOT_N3]}], ids=["plain", "counting"])
    def test_a_binding_is_decided_again(self, tmp_path: Path, bound: list[Target], spec: dict[str, Any]) -> None:
        publish(**spec)
        bench = Bench(tmp_path, make_pod("one", labels={"app": "x"}, nodeName="n1"))
        assert bench.bind("n1") == ""
        (decision,) = bench.decisions()
        assert (decision.verb, decision.best, decision.nodes, decision.feasible) == ("bind", "n1", 1, 1)
        assert [target.decision for target in bound] == [str(decision.pk)]
        assert same(decision)

    @pytest.mark.parametrize("spec", [{"filters": [NOT_N3]}, {"filters": [FEW, NOT_N3]}], ids=["plain", "counting"])
    def test_a_namespace_that_is_relabelled_meanwhile_is_asked_about_again(
        self, tmp_path: Path, bound: list[Target], spec: dict[str, Any]
    ) -> None:
        """By its new labels other rules apply: bound by the former ones, a replay would find others."""
        publish_all(
            make_rule_set("rules", **spec),
            make_rule_set("lax", filters=[{"builtin": "PodFitsHost"}]),
            make_assignment("shop", "rules", match={"namespaceSelector": {"matchLabels": {"team": "shop"}}}),
            make_assignment("rest", "lax", order=9000),
        )
        bench = Bench(tmp_path, make_pod("one", labels={"app": "x"}, nodeName="n1"))
        cluster, wait = bench.cluster, bench.cluster.wait_for_nodes
        cluster._snapshot = cluster.snapshot().changed({}, {"default": {"team": "shop"}})

        def relabel(names: list[str], timeout_seconds: float) -> bool:
            cluster._snapshot = cluster.snapshot().changed({}, {"default": {"team": "web"}})
            return wait(names, timeout_seconds)

        cluster.wait_for_nodes = relabel  # type: ignore[method-assign]
        assert bench.bind("n1") == RELABELLED
        assert bound == []

        assert bench.bind("n1") == ""
        refused, decision = bench.decisions()
        assert (refused.error, refused.best) == (RELABELLED, "")
        assert (decision.rule_set, decision.best) == ("lax", "n1")
        assert same(decision)

    def test_it_counts_the_pods_in_flight_that_were_counted_then(self, tmp_path: Path, bound: list[Target]) -> None:
        from policies.engine.objects.pod import Pod

        publish(filters=[FEW])
        bench = Bench(tmp_path, make_pod("one", labels={"app": "x"}, nodeName="n1"))
        bench.in_flight.binding(Pod.from_json(make_pod("two", labels={"app": "x"})), "n1")
        assert bench.bind("n1") == NO_LONGER
        (decision,) = bench.decisions()
        assert (decision.error, decision.top_reason, decision.feasible) == (NO_LONGER, "two are enough", 0)
        assert len(read_body(bytes(decision.body)).assumed) == 1
        assert bound == []
        assert same(decision)

    def test_one_of_a_pod_that_no_assignment_takes_is_decided_again(self, tmp_path: Path, bound: list[Target]) -> None:
        publish_all(make_rule_set("rules", filters=[FEW]))
        bench = Bench(tmp_path)
        assert bench.bind("n2") == ""
        (decision,) = bench.decisions()
        assert len(bound) == 1
        assert same(decision)

    def test_what_the_api_server_said_stands_in_a_decision_of_its_own(self, tmp_path: Path) -> None:
        publish(filters=[FEW])
        bench = Bench(tmp_path)
        assert bench.bind("n1", "late") == "the Pod is gone"
        sent, became = bench.decisions()
        assert (sent.error, became.error) == ("", "the Pod is gone")
        assert same(sent)
        with pytest.raises(ReplayError, match=f"it is what became of the binding.*is Decision {sent.pk}"):
            replay(became)

    def test_rules_that_were_not_asked_for_something_was_away_are_not_asked_again(self, tmp_path: Path) -> None:
        publish(filters=[FEW], failures={"staleSnapshot": "pass"})
        bench = Bench(tmp_path, conditions=AWAY["staleSnapshot"])
        assert bench.bind("n1") == ""
        (decision,) = bench.decisions()
        with pytest.raises(ReplayError, match="the rule set chose to pass"):
            replay(decision)

    def test_a_binding_says_nothing_of_which_node_was_best(self, tmp_path: Path) -> None:
        publish(filters=[FEW])
        bench = Bench(tmp_path)
        bench.bind("n1")
        assert not bench.history.recorder.awaits("uid-p")


def meta(**victims: list[str]) -> dict[str, Any]:
    return {"NodeNameToMetaVictims": {node: {"Pods": [{"UID": uid} for uid in uids]} for node, uids in victims.items()}}


class TestPreempt:
    def test_candidates_are_judged_again_by_the_same_victims(self, tmp_path: Path) -> None:
        publish(victims=[STAYS], filters=[NOT_N3])
        pods = [make_pod(name, nodeName=node) for name, node in (("dear", "n1"), ("cheap", "n2"), ("other", "n3"))]
        bench = Bench(tmp_path, *pods)
        assert bench.preempt(meta(n1=["uid-dear"], n2=["uid-cheap"], n3=["uid-other"])) == ["n2"]
        (decision,) = bench.decisions()
        assert (decision.nodes, decision.feasible, decision.top_reason) == (3, 1, "it stays")
        assert same(decision)

    def test_whole_pods_and_those_that_nobody_knows_are_judged_again(self, tmp_path: Path) -> None:
        publish(victims=[STAYS])
        bench = Bench(tmp_path)
        sent = {"NodeNameToVictims": {"n1": {"Pods": [make_pod("dear")]}, "n2": {"Pods": [make_pod("cheap")]}}}
        assert bench.preempt(sent) == ["n2"]
        assert bench.preempt(meta(n1=["nobody"])) == []
        for decision in bench.decisions():
            assert same(decision)

    def test_what_there_was_no_time_for_is_not_judged_now(self, tmp_path: Path) -> None:
        publish(victims=[STAYS], failures={"deadline": "pass"})
        bench = Bench(tmp_path, make_pod("dear", nodeName="n1"), deadline_seconds=1e-9)
        assert bench.preempt(meta(n1=["uid-dear"])) == ["n1"]
        (decision,) = bench.decisions()
        assert read_body(bytes(decision.body)).notes["timedOut"] == ["n1"]
        assert same(decision)

    def test_one_of_a_pod_that_no_assignment_takes_is_judged_again(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        assert bench.preempt(meta(n1=["a"], n2=[])) == ["n1", "n2"]
        assert same(bench.decisions()[0])

    def test_candidates_that_other_rules_would_judge_otherwise_differ(self, tmp_path: Path) -> None:
        publish(victims=[STAYS])
        bench = Bench(tmp_path, make_pod("dear", nodeName="n1"), make_pod("cheap", nodeName="n2"))
        bench.preempt(meta(n1=["uid-dear"], n2=["uid-cheap"]))
        (decision,) = bench.decisions()
        Decision.objects.filter(pk=decision.pk).update(feasible=2)
        decision.refresh_from_db()
        assert replay(decision).differences == ["what lists show differs"]
        Decision.objects.filter(pk=decision.pk).update(assignment="another")
        decision.refresh_from_db()
        assert replay(decision).differences == ["Assignment all takes the Pod; recorded is another"]

    def test_rules_that_were_not_asked_for_something_was_away_are_not_asked_again(self, tmp_path: Path) -> None:
        publish(victims=[STAYS], failures={"apiServer": "refuse"})
        away: Conditions = AWAY["apiServer"]
        bench = Bench(tmp_path, conditions=away)
        assert bench.preempt(meta(n1=["x"])) == []
        with pytest.raises(ReplayError, match="the rule set chose to refuse"):
            replay(bench.decisions()[0])
