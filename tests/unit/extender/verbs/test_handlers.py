"""The verbs on a cluster that stands still: what is promised, what a rule set answers when Berth can't know."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from policies.engine.decision import CompiledRevision
from policies.engine.documents import read_assignment
from policies.engine.failures import Conditions
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import Assignment, Revision
from policies.engine.validation import read_rule_set
from scheduler.cluster.bind import Target
from scheduler.cluster.live import PodEvent
from scheduler.extender.request.wire import WireError
from scheduler.extender.verbs.bind import NOT_NOW, Binder, Bound, Checked
from scheduler.extender.verbs.context import NO_REVISION, NO_SNAPSHOT, NotReadyError, RequestContexts
from scheduler.extender.verbs.handlers import VerbHandlers
from scheduler.extender.verbs.in_flight import InFlight
from scheduler.metrics import DEADLINE_MISSES, TOO_LARGE
from scheduler.serving.shadows import Shadows
from tests.builders import make_assignment, make_node, make_pod, make_rule_set

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ALL_WELL = Conditions(snapshot_age_seconds=1.0)
AWAY = {
    "staleSnapshot": Conditions(snapshot_age_seconds=1e9),
    "apiServer": Conditions(snapshot_age_seconds=1.0, api_server_reachable=False),
    "database": Conditions(snapshot_age_seconds=1.0, database_reachable=False),
    "redis": Conditions(snapshot_age_seconds=1.0, redis_reachable=False),
}


class StillCluster:
    """A live Snapshot on which nothing happens."""

    def __init__(self, *nodes: dict[str, Any], pods: tuple[dict[str, Any], ...] = (), synced: bool = True) -> None:
        self._snapshot = Snapshot.of(map(Node.from_json, nodes), [Pod.from_json(pod) for pod in pods])
        self.synced = synced
        self.tell: Callable[[PodEvent], None] = lambda _: None

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def wait_for_nodes(self, names: list[str], timeout_seconds: float) -> bool:
        del names, timeout_seconds
        return True

    def subscribe(self, callback: Callable[[PodEvent], None]) -> None:
        self.tell = callback


class Kept:
    """Keeps what is recorded."""

    redis_reachable = True

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.preemptors: dict[str, str] = {}

    def record(self, entry: Any) -> None:
        self.records.append(entry)

    def expect_preemption(self, victim_uids: list[str], preemptor: Any) -> None:
        self.preemptors |= dict.fromkeys(victim_uids, preemptor.name)


class Holder:
    def __init__(self, revision: CompiledRevision | None) -> None:
        self.current = revision


class NoBinding(Binder):
    """Binds nothing, and says that all is well."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self.bound: list[tuple[str, str]] = []
        self.snapshot = snapshot

    def bind(self, pod: Pod, target: Any, rule_set: Any, *, seen: Snapshot, now: datetime, record: Any) -> Bound:
        del rule_set, seen, now
        self.bound.append((pod.name, target.node_name))
        checked = Checked(self.snapshot())
        return Bound("", checked, record(checked))


def joined(body: bytes | list[bytes]) -> bytes:
    return body if isinstance(body, bytes) else b"".join(body)


class Setting:
    """Handlers with everything around them."""

    def __init__(
        self,
        *rule_sets: dict[str, Any],
        cluster: StillCluster | None = None,
        conditions: Conditions = ALL_WELL,
        revision: bool = True,
        deadline_seconds: float = 60.0,
        pass_without_revision: bool = False,
        settle_seconds: float = 0.05,
    ) -> None:
        self.cluster = cluster or StillCluster(*(make_node(name) for name in ("n1", "n2", "n3")))
        self.in_flight = InFlight(settle_seconds=settle_seconds)
        self.recorder = Kept()
        self.binder = NoBinding(self.cluster.snapshot)
        # Without its thread: `decide_shadows` does what it would do.
        self.shadows = Shadows(self.recorder.record)
        self.questions = RequestContexts(
            revisions=Holder(revision_of(*rule_sets) if revision else None),  # type: ignore[arg-type]
            live=self.cluster,  # type: ignore[arg-type]
            in_flight=self.in_flight,
            conditions=lambda: conditions,
            deadline_seconds=deadline_seconds,
            pass_without_revision=pass_without_revision,
            clock=lambda: NOW,
        )
        self.answers = VerbHandlers(
            contexts=self.questions,
            live=self.cluster,  # type: ignore[arg-type]
            in_flight=self.in_flight,
            binder=self.binder,
            client=None,  # type: ignore[arg-type]
            recorder=self.recorder,  # type: ignore[arg-type]
            shadows=self.shadows,
        )

    def decide_shadows(self) -> None:
        while self.shadows._waiting:
            self.shadows._decide(self.shadows._waiting.popleft())
        self.shadows.count_passed_over()

    def filter(self, pod: dict[str, Any], names: list[str] | None = None) -> dict[str, Any]:
        return dict(json.loads(b"".join(self.answers.filter(_args(pod, names)).body)))

    def prioritize(self, pod: dict[str, Any], names: list[str] | None = None) -> dict[str, int]:
        return {
            found["Host"]: found["Score"]
            for found in json.loads(joined(self.answers.prioritize(_args(pod, names)).body))
        }

    def preempt(self, pod: dict[str, Any], **victims: list[str]) -> list[str]:
        meta = {node: {"Pods": [{"UID": uid} for uid in uids]} for node, uids in victims.items()}
        body = json.dumps({"Pod": pod, "NodeNameToMetaVictims": meta}).encode()
        return list(json.loads(self.answers.preempt(body).body)["NodeNameToMetaVictims"])


def _args(pod: dict[str, Any], names: list[str] | None) -> bytes:
    return json.dumps({"Pod": pod, "NodeNames": ["n1", "n2", "n3"] if names is None else names}).encode()


def revision_of(*specs: dict[str, Any]) -> CompiledRevision:
    """One rule set for each spec, chosen by the label `policy` = its position."""
    rule_sets, assignments = [], []
    for place, spec in enumerate(specs):
        name = f"r{place}"
        envelope = {"apiVersion": "berth/v1", "metadata": {"name": name}}
        rule_sets.append(read_rule_set({**envelope, "kind": "RuleSet", "spec": spec}))
        match = {"podSelector": {"matchLabels": {"policy": str(place)}}}
        assignments.append(
            read_assignment({**envelope, "kind": "Assignment", "spec": {"ruleSet": name, "match": match}})
        )
    return CompiledRevision(Revision(number=7, rule_sets=rule_sets, assignments=assignments))


def a_pod(name: str = "p", policy: str = "0", **more: Any) -> dict[str, Any]:
    pod = make_pod(name=name, uid=f"uid-{name}", **more)
    pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), "policy": policy}
    pod["metadata"]["resourceVersion"] = "5"
    return pod


NOT_N3 = {"filters": [{"name": "not-n3", "expression": "node.metadata.name != 'n3'", "reason": "not here"}]}
ROOM = {"filters": [{"builtin": "PodFitsResources"}]}


class TestPromises:
    def test_a_pod_promised_the_only_node_left_takes_its_room_there(self) -> None:
        setting = Setting(ROOM, cluster=StillCluster(make_node("n1", cpu="1")))
        assert setting.filter(a_pod("a", requests={"cpu": "800m"}), ["n1"])["NodeNames"] == ["n1"]

        refused = setting.filter(a_pod("b", requests={"cpu": "800m"}), ["n1"])

        assert (refused["NodeNames"], refused["FailedNodes"]) == ([], {"n1": "Insufficient cpu"})

    def test_a_pod_promised_its_best_node_takes_its_room_there(self) -> None:
        scores = [{"name": "two", "expression": "node.metadata.name == 'n2' ? 10 : 0", "bounds": [0, 10]}]
        nodes = [make_node(name, cpu="1") for name in ("n1", "n2", "n3")]
        setting = Setting({**ROOM, "scores": scores}, cluster=StillCluster(*nodes))
        setting.filter(a_pod("a", requests={"cpu": "800m"}))
        assert setting.prioritize(a_pod("a", requests={"cpu": "800m"})) == {"n1": 0, "n2": 10, "n3": 0}

        assert setting.filter(a_pod("b", requests={"cpu": "800m"}))["NodeNames"] == ["n1", "n3"]

    @pytest.mark.parametrize(
        "event",
        [
            PodEvent("modified", "uid-a", "default", "a", "n9", "9"),
            PodEvent("deleted", "uid-a", "default", "a", "", "9"),
            PodEvent("modified", "uid-a", "default", "a", "", "9"),
        ],
        ids=["on another node", "deleted", "not bound"],
    )
    def test_the_promise_ends_when_the_watch_tells_the_pods_outcome(self, event: PodEvent) -> None:
        setting = Setting(ROOM, cluster=StillCluster(make_node("n1", cpu="1")))
        setting.filter(a_pod("a", requests={"cpu": "800m"}), ["n1"])

        setting.cluster.tell(event)

        assert setting.filter(a_pod("b", requests={"cpu": "800m"}), ["n1"])["NodeNames"] == ["n1"]

    def test_counts_see_promised_pods(self) -> None:
        one = {"filters": [{"name": "one", "expression": "node.count({'app': 'x'}) < 1", "reason": "one is there"}]}
        setting = Setting(one)
        setting.filter(a_pod("a", labels={"app": "x"}), ["n1"])

        refused = setting.filter(a_pod("b", labels={"app": "x"}), ["n1"])

        assert refused["FailedAndUnresolvableNodes"] == {"n1": "one is there"}

    def test_affinity_sees_promised_pods(self) -> None:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        nodes = [make_node(name, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2")]
        setting = Setting({"filters": [{"builtin": "MatchInterPodAffinity"}]}, cluster=StillCluster(*nodes))
        setting.filter(a_pod("a", labels={"app": "x"}), ["n1"])

        passed = setting.filter(a_pod("b", labels={"app": "x"}, affinity=affinity), ["n1", "n2"])

        assert passed["NodeNames"] == ["n2"]

    def test_a_pod_refused_everywhere_is_promised_nothing(self) -> None:
        setting = Setting(NOT_N3)
        setting.filter(a_pod("a"), ["n1"])
        setting.filter(a_pod("a"), ["n3"])
        assert setting.in_flight.placements("other") == []

    def test_several_equally_good_nodes_are_no_promise(self) -> None:
        setting = Setting(NOT_N3)
        setting.filter(a_pod("a"))
        setting.prioritize(a_pod("a"), ["n1", "n2"])
        assert setting.in_flight.placements("other") == []


CHOICES = [
    (cause, choice)
    for cause in AWAY
    for choice in ("lastKnown", "pass", "refuse")
]  # fmt: skip


@pytest.mark.parametrize(("cause", "choice"), CHOICES, ids=[f"{cause}: {choice}" for cause, choice in CHOICES])
class TestWhenBerthCannotKnow:
    """The table in docs/operations.md, cell by cell."""

    def test_filter_answers_as_the_rule_set_chose(self, cause: str, choice: str) -> None:
        setting = Setting({**NOT_N3, "failures": {cause: choice}}, conditions=AWAY[cause])
        found = setting.filter(a_pod())
        refused = found["FailedAndUnresolvableNodes"]
        if choice == "lastKnown":
            assert (found["NodeNames"], refused) == (["n1", "n2"], {"n3": "not here"})
        elif choice == "pass":
            assert (found["NodeNames"], refused) == (["n1", "n2", "n3"], {})
        else:
            assert (found["NodeNames"], sorted(refused)) == ([], ["n1", "n2", "n3"])
            assert len(set(refused.values())) == 1
        assert found["Error"] == ""
        assert bool(setting.recorder.records[-1].error) == (choice != "lastKnown")

    def test_prioritize_scores_only_by_what_was_known_last(self, cause: str, choice: str) -> None:
        scores = [{"name": "two", "expression": "node.metadata.name == 'n2' ? 10 : 0", "bounds": [0, 10]}]
        setting = Setting({"scores": scores, "failures": {cause: choice}}, conditions=AWAY[cause])
        best = 10 if choice == "lastKnown" else 0
        assert setting.prioritize(a_pod()) == {"n1": 0, "n2": best, "n3": 0}

    def test_prioritize_of_a_single_node(self, cause: str, choice: str) -> None:
        setting = Setting(
            {"scores": [{"builtin": "EqualPriority"}], "failures": {cause: choice}}, conditions=AWAY[cause]
        )
        assert list(setting.prioritize(a_pod(), ["n1"])) == ["n1"]

    def test_preempt_names_nodes_only_where_the_rule_set_lets_pods_pass(self, cause: str, choice: str) -> None:
        victims = [{"name": "none", "expression": "victim.metadata.name != 'v'", "reason": "stays"}]
        setting = Setting(
            {"victims": victims, "failures": {cause: choice}},
            conditions=AWAY[cause],
            cluster=StillCluster(make_node("n1"), pods=(make_pod("v", uid="v", nodeName="n1"),)),
        )
        assert setting.preempt(a_pod(), n1=["v"]) == (["n1"] if choice == "pass" else [])

    def test_bind_of_a_pod_whose_rules_count(self, cause: str, choice: str) -> None:
        counting = {"filters": [{"name": "one", "expression": "node.count({'app': 'x'}) < 1", "reason": "full"}]}
        setting = Setting({**counting, "failures": {cause: choice}}, conditions=AWAY[cause])
        binder = BinderWithoutCluster(setting)
        rule_set = revision_of({**counting, "failures": {cause: choice}}).rule_sets["r0"]
        pod, target, seen = Pod.from_json(a_pod()), Target("default", "p", "u", "n1"), setting.cluster.snapshot()
        error = binder.bind(pod, target, rule_set, seen=seen, now=NOW, record=lambda _: "").error
        assert error == {"lastKnown": "counted again", "pass": "", "refuse": NOT_NOW}[choice]


class BinderWithoutCluster(Binder):
    """Tells which way a binding went."""

    def __init__(self, setting: Setting) -> None:
        self._contexts, self._in_flight = setting.questions, setting.in_flight
        self._live = setting.cluster  # type: ignore[assignment]

    def _bind(self, *_: Any) -> Bound:
        return Bound("")

    class _Lock:
        def hold(self, _: float) -> Any:
            from contextlib import nullcontext

            return nullcontext(None)

    _lock = _Lock()  # type: ignore[assignment]

    def _bind_held(self, *_: Any) -> Bound:
        return Bound("counted again")


class TestWithoutRevisionOrSnapshot:
    def test_without_a_revision_the_call_fails_with_a_constant_text_that_is_recorded(self) -> None:
        setting = Setting(revision=False)
        with pytest.raises(NotReadyError, match=NO_REVISION) as caught:
            setting.filter(a_pod())
        assert setting.recorder.records[-1].error == NO_REVISION
        assert caught.value.decision == setting.recorder.records[-1].id

    def test_without_a_revision_every_pod_passes_where_the_setting_says_so(self) -> None:
        setting = Setting(revision=False, pass_without_revision=True)
        assert setting.filter(a_pod())["NodeNames"] == ["n1", "n2", "n3"]
        assert setting.prioritize(a_pod()) == {}

    @pytest.mark.parametrize("choice", ["lastKnown", "pass", "refuse"])
    def test_a_cluster_that_was_never_seen_is_a_stale_snapshot(self, choice: str) -> None:
        spec = {**NOT_N3, "failures": {"staleSnapshot": choice}}
        never = Conditions(snapshot_age_seconds=float("inf"))
        setting = Setting(spec, cluster=StillCluster(synced=False), conditions=never)
        if choice == "lastKnown":
            with pytest.raises(NotReadyError, match=NO_SNAPSHOT):
                setting.filter(a_pod())
        else:
            passing = ["n1", "n2", "n3"] if choice == "pass" else []
            assert setting.filter(a_pod())["NodeNames"] == passing

    def test_a_pod_that_no_rule_set_takes_passes_whatever_is_away(self) -> None:
        setting = Setting(NOT_N3, cluster=StillCluster(synced=False), conditions=AWAY["staleSnapshot"])
        assert setting.filter(a_pod(policy="none"))["NodeNames"] == ["n1", "n2", "n3"]


COUNTS = {"name": "one", "expression": "node.count({'app': 'web'}) < 1", "reason": "one on each node"}


class TestWithoutTheLabelsOfNamespaces:
    """Before Namespaces were listed: an Assignment may take the Pods of one by its labels, which nobody knows yet."""

    NEVER = Conditions(snapshot_age_seconds=float("inf"))

    def unseen(self, strict: str, *more: Assignment, lax: str = "lastKnown", **spec: Any) -> Setting:
        """A rule set for the Namespaces of a team, which chose an answer for this outage, and one that others may name."""
        choices = {"strict": strict, "lax": lax}
        rule_sets = [
            make_rule_set(name, **(NOT_N3 | spec), failures={"staleSnapshot": choice})
            for name, choice in choices.items()
        ]
        by_labels = make_assignment("shop", "strict", match={"namespaceSelector": {"matchLabels": {"team": "shop"}}})
        setting = Setting(cluster=StillCluster(synced=False), conditions=self.NEVER)
        setting.questions._revisions.current = CompiledRevision(
            Revision(number=8, rule_sets=rule_sets, assignments=[by_labels, *more])
        )
        return setting

    @pytest.mark.parametrize("choice", ["lastKnown", "refuse"])
    def test_no_verb_answers_as_if_no_rules_applied(self, choice: str) -> None:
        setting = self.unseen(choice)
        asks: dict[str, Callable[[], Any]] = {
            "filter": lambda: setting.filter(a_pod()),
            "prioritize": lambda: setting.prioritize(a_pod()),
            "preempt": lambda: setting.preempt(a_pod(), n1=["v"]),
        }
        for verb, ask in asks.items():
            with pytest.raises(NotReadyError, match=NO_SNAPSHOT):
                ask()
            assert (setting.recorder.records[-1].verb, setting.recorder.records[-1].error) == (verb, NO_SNAPSHOT)

    def bind(self, setting: Setting) -> list[tuple[str, str]]:
        """Bind a Pod that was filtered before; returns the bindings that were sent."""
        setting.in_flight.passed(Pod.from_json(a_pod()), "", msgspec.Raw(json.dumps(a_pod()).encode()))
        binding = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "n1"}
        setting.answers.bind(json.dumps(binding).encode())
        return setting.binder.bound

    def test_no_pod_is_bound_whose_rules_may_count_others(self) -> None:
        setting = self.unseen("lastKnown", filters=[COUNTS])
        with pytest.raises(NotReadyError, match=NO_SNAPSHOT):
            self.bind(setting)
        assert setting.binder.bound == []

    def test_a_pod_is_bound_whose_rules_may_not(self) -> None:
        assert self.bind(self.unseen("lastKnown")) == [("p", "n1")]

    def test_a_pod_passes_where_every_rule_set_that_may_apply_chose_that(self) -> None:
        assert self.unseen("pass").filter(a_pod())["NodeNames"] == ["n1", "n2", "n3"]

    @pytest.mark.parametrize(("strict", "lax"), [("lastKnown", "pass"), ("pass", "refuse"), ("refuse", "pass")])
    def test_the_choice_of_the_next_assignment_doesnt_hold_for_the_pods_of_the_first(
        self, strict: str, lax: str
    ) -> None:
        setting = self.unseen(strict, make_assignment("rest", "lax", order=9000), lax=lax)
        with pytest.raises(NotReadyError, match=NO_SNAPSHOT):
            setting.filter(a_pod())

    def test_what_all_rule_sets_chose_is_answered(self) -> None:
        setting = self.unseen("refuse", make_assignment("rest", "lax", order=9000), lax="refuse")
        assert setting.filter(a_pod())["NodeNames"] == []

    def test_an_assignment_before_it_that_takes_the_pod_whatever_the_labels_are_answers(self) -> None:
        setting = self.unseen("lastKnown", make_assignment("first", "lax", order=1), lax="pass")
        assert setting.filter(a_pod())["NodeNames"] == ["n1", "n2", "n3"]

    def test_so_does_it_once_they_are_known(self) -> None:
        setting = self.unseen("lastKnown")
        setting.cluster.synced = True
        assert setting.filter(a_pod())["NodeNames"] == ["n1", "n2", "n3"]


class Relabelling(StillCluster):
    """A cluster whose Namespace has other labels once a call has waited for a node."""

    def __init__(self, before: dict[str, str], after: dict[str, str]) -> None:
        super().__init__(*(make_node(name) for name in ("n1", "n3")))
        self._snapshot = self._snapshot.changed({}, {"default": before})
        self._after = self._snapshot.changed({}, {"default": after})

    def wait_for_nodes(self, names: list[str], timeout_seconds: float) -> bool:
        self._snapshot = self._after
        return super().wait_for_nodes(names, timeout_seconds)


@pytest.mark.parametrize(("before", "after", "passing"), [("", "shop", ["n1"]), ("shop", "", ["n1", "n3"])])
def test_the_rules_are_those_of_the_namespace_in_the_snapshot_that_is_decided_on(
    before: str, after: str, passing: list[str]
) -> None:
    setting = Setting(cluster=Relabelling({"team": before}, {"team": after}))
    selected = {"namespaceSelector": {"matchLabels": {"team": "shop"}}}
    revision = CompiledRevision(
        Revision(
            number=8,
            rule_sets=[make_rule_set("strict", **NOT_N3), make_rule_set("lax", filters=[])],
            assignments=[make_assignment("shop", "strict", match=selected), make_assignment("rest", "lax", order=9000)],
        )
    )
    setting.questions._revisions.current = revision

    assert setting.filter(a_pod(), ["n1", "n3", "n9"])["NodeNames"] == passing

    (entry,) = setting.recorder.records
    chosen = revision.choose(entry.pod, entry.snapshot, NOW).enforced
    assert chosen is not None
    assert entry.assignment is chosen[0]


class TestDeadline:
    @pytest.mark.parametrize(("choice", "passing"), [("pass", ["n1", "n2", "n3"]), ("refuse", [])])
    def test_nodes_that_are_not_decided_in_time_are_answered_as_the_rule_set_chose(
        self, choice: str, passing: list[str]
    ) -> None:
        setting = Setting({**NOT_N3, "failures": {"deadline": choice}}, deadline_seconds=1e-9)
        found = setting.filter(a_pod())
        assert found["NodeNames"] == passing
        assert len(set(found["FailedAndUnresolvableNodes"].values())) == (0 if passing else 1)

    def test_candidates_that_are_not_looked_at_in_time_are_vetoed_or_kept(self) -> None:
        for choice, kept in (("pass", ["n1"]), ("refuse", [])):
            setting = Setting({**NOT_N3, "failures": {"deadline": choice}}, deadline_seconds=1e-9)
            assert setting.preempt(a_pod(), n1=[]) == kept

    @pytest.mark.parametrize(("choice", "kept"), [("pass", ["n1", "n2"]), ("refuse", [])])
    def test_victims_that_are_not_asked_about_in_time_may_go_or_stay(self, choice: str, kept: list[str]) -> None:
        victims = [{"name": "none", "expression": "victim.metadata.name != 'v'", "reason": "stays"}]
        setting = Setting({"victims": victims, "failures": {"deadline": choice}}, deadline_seconds=1e-9)
        before = DEADLINE_MISSES.labels("r0")._value.get()
        assert setting.preempt(a_pod(), n1=["v"], n2=["w"]) == kept
        assert DEADLINE_MISSES.labels("r0")._value.get() == before + 1
        assert setting.recorder.records[-1].notes["vetoes"] == []

    @pytest.mark.parametrize(("choice", "kept"), [("pass", ["n1"]), ("refuse", [])])
    def test_a_pod_too_large_for_a_rule_about_victims_is_decided_as_chosen_and_counted(
        self, choice: str, kept: list[str]
    ) -> None:
        rule = "!pod.metadata.annotations.notes.contains(victim.metadata.name)"
        victims = [{"name": "none", "expression": rule, "reason": "stays"}]
        there = make_pod("v", uid="v", nodeName="n1")
        cluster = StillCluster(make_node("n1"), pods=(there,))
        setting = Setting({"victims": victims, "failures": {"deadline": choice}}, cluster=cluster)
        pod = a_pod()
        pod["metadata"]["annotations"] = {"notes": "x" * 262_144}
        before = TOO_LARGE.labels("r0")._value.get()
        assert setting.preempt(pod, n1=["v"]) == kept
        assert TOO_LARGE.labels("r0")._value.get() == before + 1
        assert "the Pod is larger" in setting.recorder.records[-1].notes["vetoes"][0]["sentence"]


class TestPreempt:
    def test_a_candidate_that_the_rules_refuse_even_without_its_victims_is_dropped(self) -> None:
        pods = tuple(make_pod(f"v{name}", uid=f"v-{name}", nodeName=name) for name in ("n1", "n3"))
        setting = Setting(NOT_N3, cluster=StillCluster(make_node("n1"), make_node("n3"), pods=pods))
        assert setting.preempt(a_pod(), n1=["v-n1"], n3=["v-n3"]) == ["n1"]
        assert setting.recorder.preemptors == {"v-n1": "p"}

    def test_a_rule_that_counts_sees_the_node_without_the_victims(self) -> None:
        one = {"filters": [{"name": "one", "expression": "node.count({'app': 'x'}) < 1", "reason": "full"}]}
        there = make_pod("v", uid="v", labels={"app": "x"}, nodeName="n1")
        other = make_pod("w", uid="w", labels={"app": "x"}, nodeName="n2")
        setting = Setting(one, cluster=StillCluster(make_node("n1"), make_node("n2"), pods=(there, other)))
        assert setting.preempt(a_pod(), n1=["v"], n2=["somebody else"]) == ["n1"]

    def test_a_node_that_is_not_known_is_dropped(self) -> None:
        assert Setting(NOT_N3).preempt(a_pod(), n9=[]) == []

    def test_order_and_violations_are_given_back_as_they_came(self) -> None:
        body = {
            "Pod": a_pod(policy="none"),
            "NodeNameToMetaVictims": {
                "b": {"Pods": [{"UID": "2"}, {"UID": "1"}], "NumPDBViolations": 3},
                "a": {"Pods": [], "NumPDBViolations": 0},
            },
        }
        reply = json.loads(Setting(NOT_N3).answers.preempt(json.dumps(body).encode()).body)
        assert list(reply["NodeNameToMetaVictims"].items()) == list(body["NodeNameToMetaVictims"].items())  # type: ignore[attr-defined]


def test_every_answer_names_its_decision() -> None:
    setting = Setting(NOT_N3)
    replies = [
        setting.answers.filter(_args(a_pod(), None)),
        setting.answers.prioritize(_args(a_pod(), None)),
        setting.answers.preempt(json.dumps({"Pod": a_pod()}).encode()),
        setting.answers.bind(
            json.dumps({"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "n1"}).encode()
        ),
    ]
    assert [reply.decision for reply in replies] == [record.id for record in setting.recorder.records]
    assert [record.verb for record in setting.recorder.records] == ["filter", "prioritize", "preempt", "bind"]
    assert setting.binder.bound == [("p", "n1")]


@pytest.mark.parametrize("wrong", [{"PodName": "../p"}, {"Node": "N1"}, {"PodNamespace": "a b", "Node": "n/1"}])
def test_a_binding_with_invalid_names_is_refused_with_the_members_that_have_them(wrong: dict[str, str]) -> None:
    setting = Setting(NOT_N3)
    body = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "n1", **wrong}

    with pytest.raises(WireError, match=f"^{', '.join(wrong)} of ExtenderBindingArgs: must be a valid Kubernetes name"):
        setting.answers.bind(json.dumps(body).encode())
    assert setting.binder.bound == []


def test_the_revision_that_filtered_a_pod_goes_on_with_it() -> None:
    setting = Setting(NOT_N3)
    setting.filter(a_pod())
    setting.questions._revisions.current = revision_of({"filters": []})  # type: ignore[misc]
    setting.prioritize(a_pod())
    assert [record.rule_set.name for record in setting.recorder.records] == ["r0", "r0"]


def test_a_call_that_waits_for_pods_in_flight_keeps_half_of_its_time() -> None:
    counting = {"filters": [{"name": "one", "expression": "cluster.count({'app': 'x'}) < 9", "reason": "full"}]}
    setting = Setting(counting, deadline_seconds=2.0, settle_seconds=60.0)
    setting.filter(a_pod("a"))
    assert setting.filter(a_pod("b"))["NodeNames"] == ["n1", "n2", "n3"]


def test_a_pod_that_was_replaced_under_its_name_is_gone_for_its_binding() -> None:
    """Another process filtered the former Pod, so this one reads the Pod by its name, and finds the new one."""
    setting = Setting(NOT_N3)
    new = json.dumps(a_pod()).encode()
    setting.answers._client = SimpleNamespace(get=lambda path, timeout_seconds: new)  # type: ignore[assignment]
    body = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-of-the-former", "Node": "n1"}

    with pytest.raises(NotReadyError, match="the Pod is gone"):
        setting.answers.bind(json.dumps(body).encode())
    assert (setting.binder.bound, setting.recorder.records) == ([], [])
