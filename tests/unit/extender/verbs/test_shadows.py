"""Rule sets in mode shadow beside an answer: heard later, on what the answer was made on, and without a word in it."""

import json
import time
from typing import Any

import pytest
from prometheus_client import REGISTRY

from policies.engine.decision import CompiledRevision, CompiledRuleSet
from policies.engine.failures import Conditions
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import Revision
from scheduler.decisions.record import AS_COLUMNS, Body, Head, make_compressor, read_body
from scheduler.extender.verbs.context import NO_SNAPSHOT, NotReadyError
from scheduler.serving.shadows import MOST_WAITING
from tests.builders import make_assignment, make_node, make_pod, make_rule_set
from tests.unit.extender.verbs.test_handlers import ALL_WELL, AWAY, Setting, StillCluster, _args

NAMES = ["n1", "n2", "n3"]
NEVER = {"filters": [{"name": "never", "expression": "pod.metadata.name == ''", "reason": "never"}]}
NOT_N3 = {"filters": [{"name": "not-n3", "expression": "node.metadata.name != 'n3'", "reason": "not here"}]}
COUNTS = {"filters": [{"name": "one", "expression": "node.count({'app': 'x'}) < 1", "reason": "one is there"}]}


def setting(
    *shadows: dict[str, Any], enforced: dict[str, Any] | None = NOT_N3, conditions: Conditions = ALL_WELL, **more: Any
) -> Setting:
    """Handlers with these rule sets in mode shadow before the enforced one."""
    made = Setting(conditions=conditions, **more)
    specs = {f"s{number}": spec for number, spec in enumerate(shadows)}
    assignments = [make_assignment(name, name, order=1, mode="shadow") for name in specs]
    if enforced is not None:
        specs["real"] = enforced
        assignments.append(make_assignment("real", "real", order=2))
    rule_sets = [make_rule_set(name, **spec) for name, spec in specs.items()]
    revision = CompiledRevision(Revision(number=7, rule_sets=rule_sets, assignments=assignments))
    made.questions._revisions.current = revision
    return made


def a_pod(name: str = "p", **more: Any) -> dict[str, Any]:
    pod = make_pod(name=name, uid=f"uid-{name}", **more)
    pod["metadata"]["resourceVersion"] = "5"
    return pod


def counted(rule_set: str, result: str) -> float:
    labels = {"rule_set": rule_set, "result": result}
    return REGISTRY.get_sample_value("berth_shadow_decisions_total", labels) or 0.0


class TestTheAnswer:
    def test_a_shadow_is_decided_after_the_answer_and_recorded_behind_it(self) -> None:
        found = setting(NEVER)
        answer = found.filter(a_pod())
        assert [(entry.mode, entry.rule_set.name) for entry in found.recorder.records] == [("enforce", "real")]
        assert answer["NodeNames"] == ["n1", "n2"]

        found.decide_shadows()

        enforced, shadow = [entry.encode().head for entry in found.recorder.records]
        assert (shadow.mode, shadow.rule_set, shadow.feasible, shadow.nodes) == ("shadow", "s0", 0, 3)
        assert (shadow.verb, shadow.revision, shadow.at) == ("filter", 7, enforced.at)

    def test_slow_shadows_spend_nothing_of_the_calls_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Four of them took the whole of it: every node was refused, because rules couldn't be evaluated in time."""
        strict = {**NOT_N3, "failures": {"deadline": "refuse"}}
        plain = setting(enforced=strict, deadline_seconds=0.2)
        beside = setting(NEVER, NEVER, NEVER, NEVER, enforced=strict, deadline_seconds=0.2)
        for name, rule_set in beside.questions._revisions.current.rule_sets.items():
            if name != "real":
                monkeypatch.setattr(rule_set.filters[0][1], "filter", lambda *_: time.sleep(0.1))
        for call in ("filter", "prioritize"):
            assert getattr(beside, call)(a_pod()) == getattr(plain, call)(a_pod())
        assert beside.filter(a_pod("other"))["NodeNames"] == ["n1", "n2"]

    def test_a_shadow_that_counts_makes_no_call_wait_for_pods_in_flight(self) -> None:
        found = setting(COUNTS, settle_seconds=60.0)
        found.filter(a_pod("a", labels={"app": "x"}))
        started = time.perf_counter()
        found.filter(a_pod("b", labels={"app": "x"}))
        assert time.perf_counter() - started < 30

    def test_an_enforced_rule_set_that_counts_still_waits(self) -> None:
        found = setting(NEVER, enforced=COUNTS, settle_seconds=0.3)
        started = time.perf_counter()  # before the first Pod passes, which is what the second one waits for
        found.filter(a_pod("a", labels={"app": "x"}))
        found.filter(a_pod("b", labels={"app": "x"}))
        assert time.perf_counter() - started >= 0.3

    def test_a_shadow_makes_no_call_wait_for_nodes_that_arent_known(self) -> None:
        found = setting(NEVER, enforced=None)
        waited: list[list[str]] = []
        found.cluster.wait_for_nodes = lambda names, _: waited.append(names) or True  # type: ignore[method-assign,func-returns-value]
        assert found.filter(a_pod(), ["n1", "new"])["NodeNames"] == ["n1", "new"]
        assert waited == []

    @pytest.mark.parametrize("verb", ["filter", "prioritize"])
    def test_a_fault_in_a_shadow_isnt_the_answers(self, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
        found, plain = setting(NEVER), setting()
        before = counted("s0", "failed")

        def fails(*_: Any) -> None:
            raise ZeroDivisionError

        shadow = found.questions._revisions.current.rule_sets["s0"]
        monkeypatch.setattr(shadow.filters[0][1], "filter", fails)
        assert getattr(found, verb)(a_pod()) == getattr(plain, verb)(a_pod())
        found.decide_shadows()
        assert counted("s0", "failed") == before + (verb == "filter")

    def test_more_shadows_than_find_room_are_dropped_and_the_answers_stay(self) -> None:
        found = setting(NEVER, NEVER)
        before = counted("s0", "dropped") + counted("s1", "dropped")
        for number in range(MOST_WAITING):
            assert found.filter(a_pod(f"p{number}"))["NodeNames"] == ["n1", "n2"]
        found.decide_shadows()
        assert counted("s0", "dropped") + counted("s1", "dropped") == before + MOST_WAITING
        assert [entry.mode for entry in found.recorder.records].count("shadow") == MOST_WAITING

    def test_a_shadow_promises_no_node(self) -> None:
        only_n1 = {"filters": [{"name": "n1", "expression": "node.metadata.name == 'n1'", "reason": "no"}]}
        found = setting(only_n1, enforced=None)
        found.filter(a_pod())
        found.decide_shadows()
        assert found.in_flight.placements("other") == []


DRY = {
    "filters": [
        {"name": "dry", "expression": "node.metadata.name == 'n1'", "mode": "shadow", "reason": "dry"},
        *NOT_N3["filters"],
    ],
    "scores": [
        {"name": "two", "expression": "node.metadata.name == 'n2' ? 9 : 0", "bounds": [0, 9]},
        {"name": "one", "expression": "node.metadata.name == 'n1' ? 9 : 0", "bounds": [0, 9], "mode": "shadow"},
    ],
}
PLAIN = {"filters": NOT_N3["filters"], "scores": DRY["scores"][:1]}


class TestRulesInModeShadowOfAnEnforcedRuleSet:
    @pytest.mark.parametrize("verb", ["filter", "prioritize"])
    def test_the_answer_is_the_one_without_them_and_asks_none(self, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
        found, plain = setting(enforced=DRY), setting(enforced=PLAIN)

        def fails(*_: Any) -> None:
            raise ZeroDivisionError

        rule_set = found.questions._revisions.current.rule_sets["real"]
        monkeypatch.setattr(rule_set.filters[0][1], "filter", fails)
        monkeypatch.setattr(rule_set.scores[1][1], "score_with_faults", fails)
        assert getattr(found, verb)(a_pod()) == getattr(plain, verb)(a_pod())
        ours, theirs = found.recorder.records[0].encode(), plain.recorder.records[0].encode()
        assert (ours.head.feasible, ours.head.best) == (theirs.head.feasible, theirs.head.best)

    def test_what_they_say_is_recorded_behind_the_answer(self) -> None:
        found = setting(enforced=DRY)
        before = verdicts("dry")
        assert found.filter(a_pod())["NodeNames"] == ["n1", "n2"]
        assert verdicts("dry") == before
        counted_once = verdicts("not-n3")

        found.decide_shadows()

        enforced, shadow = found.recorder.records
        assert [column.rule.key for column in enforced.answer.filters] == ["not-n3"]
        assert [column.rule.key for column in shadow.answer.filters] == ["dry", "not-n3"]
        assert shadow.answer.filters[0].codes.tolist() == [-1, 0, 0]
        head = shadow.encode().head
        assert (head.mode, head.assignment, head.rule_set, head.feasible) == ("shadow", "real", "real", 2)
        assert verdicts("dry") == (before[0] + 1, before[1] + 2)
        assert verdicts("not-n3") == counted_once

    def test_scores_are_asked_with_prioritize_and_add_nothing(self) -> None:
        found = setting(enforced=DRY)
        assert found.prioritize(a_pod(), ["n1", "n2"]) == {"n1": 0, "n2": 10}
        found.decide_shadows()
        enforced, shadow = found.recorder.records
        assert [column.rule.key for column in enforced.answer.scores] == ["two"]
        assert {column.rule.key: column.raw.tolist() for column in shadow.answer.scores} == {
            "two": [0, 100],
            "one": [100, 0],
        }
        assert shadow.answer.points.tolist() == enforced.answer.points.tolist()

    def test_a_verb_that_has_none_offers_none(self) -> None:
        found = setting(enforced={**PLAIN, "filters": DRY["filters"]})
        found.prioritize(a_pod())
        assert not found.shadows._waiting

    def test_they_take_nothing_of_the_calls_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        strict = {**DRY, "failures": {"deadline": "refuse"}}
        found = setting(enforced=strict, deadline_seconds=0.2)
        rule_set = found.questions._revisions.current.rule_sets["real"]
        slept: list[float] = []
        monkeypatch.setattr(rule_set.filters[0][1], "filter", lambda *_: slept.append(1.0))
        assert found.filter(a_pod())["NodeNames"] == ["n1", "n2"]
        assert slept == []

    def test_one_that_counts_makes_no_call_wait_for_pods_in_flight(self) -> None:
        shadow = {"filters": [{**COUNTS["filters"][0], "mode": "shadow"}]}
        found = setting(enforced=shadow)
        waited: list[str] = []
        found.in_flight.settle = lambda uid, _: waited.append(uid) or True  # type: ignore[method-assign,func-returns-value]
        found.filter(a_pod("a", labels={"app": "x"}))
        assert waited == []
        counting = setting(enforced=COUNTS)
        counting.in_flight.settle = found.in_flight.settle  # type: ignore[method-assign]
        counting.filter(a_pod("b", labels={"app": "x"}))
        assert waited == ["uid-b"]

    def test_binding_isnt_counted_again_for_one(self) -> None:
        shadow = CompiledRuleSet(make_rule_set("r", filters=[{**COUNTS["filters"][0], "mode": "shadow"}]))
        assert (shadow.counts_pods, shadow.enforced.counts_pods) == (True, False)
        assert shadow.only_counting().filters == []


def verdicts(rule: str) -> tuple[float, float]:
    """Return how many nodes a rule of the enforced rule set let pass and refused."""
    passed, refused = (
        REGISTRY.get_sample_value("berth_verdicts_total", {"rule_set": "real", "rule": rule, "verdict": verdict}) or 0.0
        for verdict in ("pass", "refuse")
    )
    return passed, refused


class TestWhenTheClusterWasNotSeen:
    def unseen(self, *shadows: dict[str, Any], **more: Any) -> Setting:
        return setting(*shadows, cluster=StillCluster(synced=False), **more)

    def test_a_pod_that_nothing_enforces_passes_as_without_the_shadow(self) -> None:
        before = counted("s0", "dropped")
        beside, plain = self.unseen(NEVER, enforced=None), self.unseen(enforced=None)
        assert beside.filter(a_pod()) == plain.filter(a_pod())
        assert beside.filter(a_pod())["NodeNames"] == NAMES
        assert beside.prioritize(a_pod()) == {}
        beside.decide_shadows()
        assert counted("s0", "dropped") == before + 3
        assert {entry.mode for entry in beside.recorder.records} == {"enforce"}

    def test_so_does_one_that_is_asked_about_with_whole_nodes(self) -> None:
        nodes = {"items": [make_node(name) for name in NAMES]}
        body = json.dumps({"Pod": a_pod(), "Nodes": nodes}).encode()
        found = json.loads(b"".join(self.unseen(NEVER, enforced=None).answers.filter(body).body))
        assert [node["metadata"]["name"] for node in found["Nodes"]["items"]] == NAMES
        assert found["Error"] == ""

    def test_a_pod_that_a_rule_set_enforces_on_isnt_answered(self) -> None:
        with pytest.raises(NotReadyError, match=NO_SNAPSHOT):
            self.unseen(NEVER).filter(a_pod())


class TestWhatAShadowSees:
    def decided(self, found: Setting) -> tuple[Head, Snapshot | None, Body]:
        """Decide the one that waits, and return what is recorded of it."""
        found.decide_shadows()
        encoded = found.recorder.records[-1].encode()
        assert encoded.head.mode == "shadow"
        assert encoded.best_nodes is None
        return encoded.head, encoded.snapshot, read_body(AS_COLUMNS + make_compressor().compress(encoded.body))

    def test_the_snapshot_of_the_answer_though_the_cluster_has_moved_on(self) -> None:
        found = setting(NOT_N3, enforced=None)
        seen = found.cluster.snapshot()
        found.filter(a_pod())
        found.cluster._snapshot = Snapshot.of([Node.from_json(make_node("n9"))], [])

        head, snapshot, _ = self.decided(found)

        assert snapshot is seen
        assert (head.nodes, head.feasible) == (3, 2)

    def test_the_revision_of_the_answer_though_another_is_published(self) -> None:
        found = setting(NEVER)
        found.filter(a_pod())
        found.questions._revisions.current = CompiledRevision(Revision(number=8))

        head, _, _ = self.decided(found)

        assert (head.revision, head.rule_set, head.feasible) == (7, "s0", 0)

    def test_the_pods_that_were_promised_a_node_at_the_answer_though_they_settle(self) -> None:
        found = setting(COUNTS, cluster=StillCluster(*map(make_node, NAMES)), enforced=None, settle_seconds=0.0)
        found.in_flight.binding(Pod.from_json(a_pod("first", labels={"app": "x"})), "n1")
        found.filter(a_pod("second", labels={"app": "x"}))
        found.in_flight.refused("uid-first")

        head, _, body = self.decided(found)

        assert head.feasible == 2
        assert [node for _, node in body.assumed] == ["n1"]

    def test_the_same_promised_pods_as_the_enforced_rules_saw(self) -> None:
        found = setting(COUNTS, enforced=COUNTS, settle_seconds=0.0)
        found.in_flight.binding(Pod.from_json(a_pod("first", labels={"app": "x"})), "n2")
        answer = found.filter(a_pod("second", labels={"app": "x"}))
        head, _, _ = self.decided(found)
        assert answer["NodeNames"] == ["n1", "n3"]
        assert (head.feasible, head.top_reason) == (2, "one is there")

    def test_the_pod_as_it_was_sent_to_the_byte(self) -> None:
        found = setting(NEVER)
        body = _args(a_pod(), None)
        found.answers.filter(body)
        _, _, stored = self.decided(found)
        assert stored.pod in body
        assert json.loads(stored.pod) == a_pod()

    def test_the_names_that_were_asked_about_those_that_arent_known_too(self) -> None:
        found = setting(NOT_N3, enforced=None)
        found.filter(a_pod(), ["n3", "nobody", "n1"])
        head, _, body = self.decided(found)
        assert (head.nodes, head.feasible, body.order.unknown) == (3, 1, ["nobody"])

    def test_the_nodes_that_were_sent_whole(self) -> None:
        found = setting(NOT_N3)
        items = [make_node("n1"), make_node("elsewhere", labels={"a": "b"}), make_node("n3")]
        body = json.dumps({"Pod": a_pod(), "Nodes": {"items": items}}).encode()
        answered = json.loads(b"".join(found.answers.filter(body).body))
        head, snapshot, _ = self.decided(found)
        assert snapshot is not None
        assert [node["metadata"]["name"] for node in answered["Nodes"]["items"]] == ["n1", "elsewhere"]
        assert (head.nodes, head.feasible, snapshot.table.row_of.keys()) == (
            3,
            2,
            {"n1", "n2", "n3", "elsewhere"},
        )

    def test_no_body_is_kept_until_it_is_decided(self) -> None:
        found = setting(NEVER)
        body = json.dumps({"Pod": a_pod(), "Nodes": {"items": [make_node(name) for name in NAMES]}}).encode()
        found.answers.filter(body)
        [task] = found.shadows._waiting
        context = task.decide.args[0].context  # type: ignore[attr-defined]
        assert (context.args.nodes, context.args.node_names, context.sent_names) == (None, None, None)

    def test_scores_are_given_for_all_that_prioritize_asks_about(self) -> None:
        two = {"scores": [{"name": "two", "expression": "node.metadata.name == 'n2' ? 10 : 0", "bounds": [0, 10]}]}
        found = setting(two | NEVER, enforced=None)
        assert found.prioritize(a_pod()) == {}
        head, _, _ = self.decided(found)
        assert (head.verb, head.best, head.feasible) == ("prioritize", "n2", 3)


@pytest.mark.parametrize("cause", AWAY)
def test_where_the_rule_set_chose_not_to_decide_its_shadows_are_skipped_and_counted(cause: str) -> None:
    found = setting(NEVER, enforced={**NOT_N3, "failures": {cause: "pass"}}, conditions=AWAY[cause])
    before = counted("s0", "dropped")
    assert found.filter(a_pod())["NodeNames"] == NAMES
    found.decide_shadows()
    assert [entry.mode for entry in found.recorder.records] == ["enforce"]
    assert counted("s0", "dropped") == before + 1
