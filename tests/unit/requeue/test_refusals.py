"""What becomes of a refusal: by another Revision, by time, or nothing."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from policies.engine.decision import Answer, CompiledRevision, decide, stop_before
from policies.engine.errors import DeadlineError
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import Pause, Revision, RuleSet
from scheduler.decisions.columns import read_answer
from scheduler.decisions.record import Body, NodesEntry
from scheduler.requeue.refusals import (
    Judge,
    Judgement,
    Refusal,
    goes_by_namespaces,
    reads_pods,
    recorded_refusal,
    repeated_refusal,
    timed_rule_sets,
    waiting_pods,
)
from tests.builders import make_assignment, make_node, make_pause, make_pod, make_rule_set

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
EARLIER = NOON - timedelta(minutes=10)
NEVER = "false"
HALF_PAST = "now >= timestamp('2026-05-01T12:30:00Z')"


def versioned(version: int, *expressions: str, name: str = "web", **spec: Any) -> RuleSet:
    filters = [
        {"name": f"r{place}", "expression": expression, "reason": f"reason {place}"}
        for place, expression in enumerate(expressions)
    ]
    return msgspec.structs.replace(make_rule_set(name, filters=filters, **spec), version=version)


def revision(number: int, *rule_sets: RuleSet, **match: Any) -> CompiledRevision:
    assignments = [make_assignment(f"a-{found.name}", found.name, match=match) for found in rule_sets]
    return CompiledRevision(Revision(number=number, rule_sets=list(rule_sets), assignments=assignments))


def with_a_shadow(version: int, expression: str) -> RuleSet:
    """A rule set with a filter that counts behind one in mode shadow that counts Pods."""
    filters = [
        {"name": "s", "expression": "node.count({}) == 7", "mode": "shadow"},
        {"name": "f", "expression": expression},
    ]
    return msgspec.structs.replace(make_rule_set("web", filters=filters), version=version)


def shadow_calls(revision: CompiledRevision, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Note each call of the filters in mode shadow."""
    asked: list[object] = []
    for rule, made in revision.rule_sets["web"].filters:
        if rule.mode == "shadow":
            monkeypatch.setattr(made, "filter", _noting(made.filter, asked))
    return asked


def _noting(ask: Callable[..., Any], asked: list[object]) -> Callable[..., Any]:
    def noting(*arguments: Any) -> Any:
        asked.append(arguments)
        return ask(*arguments)

    return noting


def snapshot(*names: str) -> Snapshot:
    return Snapshot.of(Node.from_json(make_node(name, labels={"name": name})) for name in names or ("n1", "n2"))


def recorded(revision: CompiledRevision, *, at: datetime = EARLIER, seen: Snapshot | None = None) -> Refusal:
    """The refusal as the extender would have recorded it."""
    pod, seen = Pod.from_json(make_pod()), seen or snapshot()
    rule_set = next(iter(revision.rule_sets.values()))
    cycle = Cycle(pod=pod, snapshot=seen, now=at, params=rule_set.params)
    answer = decide(rule_set, cycle, seen.table.all_rows(), scoring=False)
    entry = NodesEntry(
        verb="filter", pod=pod, now=at, revision=revision, snapshot=seen, names=answer.names, answer=answer
    )
    stored = msgspec.msgpack.decode(entry.encode().body, type=Body).answer
    assert stored is not None
    about: dict[str, Any] = {"revision": revision.number, "rule_set": rule_set.name, "version": rule_set.version}
    return recorded_refusal(read_answer(stored, list(answer.names)), at=at, params={}, **about)


def outcome(
    refusal: Refusal, revision: CompiledRevision, *, now: datetime = NOON, seen: Snapshot | None = None, **pod: Any
) -> Judgement:
    return Judge(revision, seen or snapshot(), now).outcome(Pod.from_json(make_pod(**pod)), refusal)


def waiting(name: str, *, conditions: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    pod = make_pod(name)
    pod["metadata"] |= {"creationTimestamp": "2026-05-01T11:00:00Z", "resourceVersion": "7", **metadata}
    refused = {"type": "PodScheduled", "status": "False", "message": "no", "lastTransitionTime": "2026-05-01T11:01:00Z"}
    pod["status"] = status if status is not None else {"conditions": [refused] if conditions is None else conditions}
    return pod


class TestWaitingPods:
    def test_a_pod_that_was_tried_and_not_placed_waits(self) -> None:
        json = waiting("a")
        (found,) = waiting_pods([json])
        assert (found.uid, found.namespace, found.name, found.resource_version) == ("uid-a", "default", "a", "7")
        assert found.message == "no"
        assert found.created_at == datetime(2026, 5, 1, 11, tzinfo=UTC)
        assert found.refused_at == datetime(2026, 5, 1, 11, 1, tzinfo=UTC)
        assert found.json is json

    @pytest.mark.parametrize(
        "pod",
        [
            pytest.param(waiting("a", conditions=[]), id="not tried yet"),
            pytest.param(waiting("a", conditions=[{"type": "PodScheduled", "status": "True"}]), id="on a node"),
            pytest.param(waiting("a", conditions=[{"type": "Ready", "status": "False"}]), id="another condition"),
            pytest.param(waiting("a", conditions=[{}]), id="an empty condition"),
            pytest.param(waiting("a", status={"conditions": None}), id="no conditions"),
            pytest.param(waiting("a", status={}), id="an empty status"),
            pytest.param(waiting("a", deletionTimestamp="2026-05-01T11:02:00Z"), id="being deleted"),
        ],
    )
    def test_other_pods_do_not_wait(self, pod: dict[str, Any]) -> None:
        assert waiting_pods([pod]) == []

    def test_a_condition_without_a_time_counts_from_the_pods_creation(self) -> None:
        (found,) = waiting_pods([waiting("a", conditions=[{"type": "PodScheduled", "status": "False"}])])
        assert found.refused_at == found.created_at

    @pytest.mark.parametrize(
        "at", ["10000-01-01T11:59:59Z", "-0001-12-31T12:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:01Z"]
    )
    def test_a_time_that_none_here_can_be_keeps_no_other_pod_from_being_tried_again(self, at: str) -> None:
        odd = {"type": "PodScheduled", "status": "False", "message": "no", "lastTransitionTime": at}
        found, other = waiting_pods([waiting("a", conditions=[odd]), waiting("b")])
        assert found.refused_at == found.created_at
        assert other.name == "b"


class TestRecordedRefusal:
    def test_each_node_stands_under_the_first_filter_that_refused_it(self) -> None:
        rules = versioned(1, "node.metadata.name != 'n1'", "node.metadata.name == 'n3'")
        refusal = recorded(revision(4, rules), seen=snapshot("n1", "n2", "n3"))
        assert refusal.nodes_by_rule == {"r0": ["n1"], "r1": ["n2"]}
        assert refusal.nodes == ["n1", "n2"]
        assert refusal.reasons == {"reason 0", "reason 1"}
        assert (refusal.at, refusal.revision, refusal.rule_set, refusal.version) == (EARLIER, 4, "web", 1)

    def test_rules_in_shadow_refuse_nothing(self) -> None:
        filters = [{"name": "s", "expression": "false", "reason": "no", "mode": "shadow"}]
        assert recorded(revision(1, make_rule_set(filters=filters))).nodes_by_rule == {}

    def test_a_decision_without_rules_refuses_nothing(self) -> None:
        refusal = recorded_refusal(Answer([]), at=NOON, revision=1, rule_set="", version=0, params={})
        assert refusal.nodes == []
        assert not refusal.is_told_in("0/3 nodes are available")

    def test_a_refusal_is_told_in_a_message_that_gives_one_of_its_reasons(self) -> None:
        refusal = recorded(revision(1, versioned(1, NEVER)))
        assert refusal.is_told_in("0/3 nodes are available: 1 Insufficient cpu, 2 reason 0.")
        assert not refusal.is_told_in("0/3 nodes are available: 3 Insufficient cpu.")


class TestRepeatedRefusal:
    def test_what_is_not_recorded_is_decided_again_as_of_then(self) -> None:
        rules = revision(3, versioned(2, HALF_PAST))
        pod = Pod.from_json(make_pod())
        refusal = repeated_refusal(pod, rules, snapshot(), EARLIER)
        assert refusal == recorded(rules)
        later = repeated_refusal(pod, rules, snapshot(), NOON + timedelta(hours=1))
        assert later is not None
        assert later.nodes == []

    def test_a_pod_that_no_assignment_took_was_refused_by_others(self) -> None:
        rules = revision(3, versioned(2, NEVER), namespaces=["other"])
        assert repeated_refusal(Pod.from_json(make_pod()), rules, snapshot(), NOON) is None

    def test_rules_in_shadow_are_not_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rules = revision(3, with_a_shadow(2, NEVER))
        asked = shadow_calls(rules, monkeypatch)
        refusal = repeated_refusal(Pod.from_json(make_pod()), rules, snapshot(), EARLIER)
        assert refusal is not None
        assert refusal.nodes_by_rule == {"f": ["n1", "n2"]}
        assert asked == []


class TestByAnotherRevision:
    def test_a_pod_is_requeued_when_a_node_that_was_refused_passes_now(self) -> None:
        refusal = recorded(revision(1, versioned(1, NEVER)))
        assert outcome(refusal, revision(2, versioned(2, "node.metadata.name == 'n2'"))) == Judgement("revision")

    def test_a_pod_that_cannot_be_judged_in_time_is_tried_again(self) -> None:
        def give_way() -> None:
            raise DeadlineError

        before, now = revision(1, versioned(1, NEVER)), revision(2, versioned(2, NEVER))
        refused = recorded(before)
        judge = Judge(now, snapshot(), NOON, lambda: give_way)
        assert judge.outcome(Pod.from_json(make_pod()), refused).cause == "revision"
        assert outcome(refused, now).cause == ""

    def test_a_change_that_helps_no_refused_node_wakes_nobody(self) -> None:
        refusal = recorded(revision(1, versioned(1, "node.metadata.name == 'n2'")))
        assert refusal.nodes == ["n1"]
        same = revision(2, versioned(2, "node.metadata.name in ['n2', 'n3']"))
        assert outcome(refusal, same, seen=snapshot("n1", "n2", "n3")) == Judgement()

    def test_the_same_version_wakes_nobody_whatever_became_of_the_cluster(self) -> None:
        rules = versioned(1, "node.metadata.name == 'n3'")
        refusal = msgspec.structs.replace(recorded(revision(1, rules)), nodes_by_rule={"r0": ["n3"]})
        assert outcome(refusal, revision(2, rules), seen=snapshot("n3")) == Judgement()

    def test_a_pod_that_is_not_berths_any_more_is_requeued(self) -> None:
        refusal = recorded(revision(1, versioned(1, NEVER)))
        assert outcome(refusal, revision(2)) == Judgement("revision")
        assert outcome(refusal, revision(2, versioned(1, NEVER), namespaces=["other"])) == Judgement("revision")

    def test_another_rule_set_of_the_same_version_counts_as_a_change(self) -> None:
        refusal = recorded(revision(1, versioned(1, NEVER)))
        assert outcome(refusal, revision(2, versioned(1, "true", name="other"))) == Judgement("revision")

    def test_a_pod_that_others_refuse_is_left_alone(self) -> None:
        refusal = recorded(revision(1, versioned(1, "true")))
        assert outcome(refusal, revision(2, versioned(2, "true"))) == Judgement()
        assert outcome(refusal, revision(2)) == Judgement()

    def test_a_change_of_the_pod_itself_is_left_to_kube_scheduler(self) -> None:
        refusal = recorded(revision(2, versioned(1, NEVER)))
        assert outcome(refusal, revision(2, versioned(1, "true", name="other"))) == Judgement()
        assert outcome(refusal, revision(2, versioned(1, NEVER), namespaces=["other"])) == Judgement()

    def test_nodes_that_are_gone_do_not_count(self) -> None:
        refusal = recorded(revision(1, versioned(1, NEVER)))
        assert outcome(refusal, revision(2, versioned(2, "true")), seen=snapshot("n3")) == Judgement()

    def test_new_rules_that_refuse_until_a_time_are_looked_at_then(self) -> None:
        refusal = recorded(revision(1, versioned(1, NEVER)))
        assert outcome(refusal, revision(2, versioned(2, HALF_PAST))) == Judgement(next_at=NOON + timedelta(minutes=30))

    def test_pods_that_look_alike_have_the_same_moment(self) -> None:
        refusal = recorded(revision(1, versioned(1, NEVER)))
        filters = [{"name": "s", "expression": "pod.metadata.name == 'a'", "mode": "shadow"}]
        filters += [{"name": "f", "expression": HALF_PAST}]
        judge = Judge(revision(2, msgspec.structs.replace(make_rule_set(filters=filters), version=2)), snapshot(), NOON)
        pods = [Pod.from_json(make_pod(name)) for name in "ab"]
        assert {judge.outcome(pod, refusal).next_at for pod in pods} == {NOON + timedelta(minutes=30)}

    def test_pods_whose_looks_only_the_rules_know_have_a_moment_each(self) -> None:
        refusal = recorded(revision(1, versioned(1, NEVER)))
        filters = [{"builtin": "PodFitsResources"}]
        filters += [{"name": "f", "expression": "now >= timestamp(pod.metadata.labels.from)"}]
        judge = Judge(revision(2, msgspec.structs.replace(make_rule_set(filters=filters), version=2)), snapshot(), NOON)
        moments = [NOON + timedelta(minutes=minutes) for minutes in (30, 60)]
        pods = [Pod.from_json(make_pod(labels={"from": f"{moment:%Y-%m-%dT%H:%M:%SZ}"})) for moment in moments]
        assert [judge.outcome(pod, refusal).next_at for pod in pods] == moments

    def test_pods_that_look_alike_to_the_rules_are_decided_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []

        def counting(*arguments: Any, **options: Any) -> Any:
            asked.append(arguments)
            return decide(*arguments, **options)

        monkeypatch.setattr("scheduler.requeue.refusals.decide", counting)
        refusal = recorded(revision(1, versioned(1, NEVER)))
        expression = "pod.metadata.?labels.team.orValue('') == 'web'"

        def decided(rule_set: RuleSet, pods: Sequence[dict[str, Any]]) -> tuple[list[str], int]:
            asked.clear()
            judge = Judge(revision(2, rule_set), snapshot(), NOON)
            return [judge.outcome(Pod.from_json(pod), refusal).cause for pod in pods], len(asked)

        pods = [make_pod(f"p{place}", labels={"team": team}) for place, team in enumerate(["web", "web", "data"])]
        assert decided(versioned(2, expression), pods) == (["revision", "revision", ""], 2)
        sized = [make_pod(name, requests={"cpu": cpu}) for name, cpu in ("a1", "b1", "c2")]
        assert decided(versioned(2, "requests.cpu < 2000"), sized) == (["revision", "revision", ""], 2)
        apart = [make_pod(f"p{place}", namespace=name) for place, name in enumerate(["shop", "shop", "default"])]
        assert decided(versioned(2, "namespaceObject.metadata.name == 'shop'"), apart) == (
            ["revision", "revision", ""],
            2,
        )
        assert decided(versioned(2, f"{expression} && node.count({{}}) == 0"), pods) == (
            ["revision", "revision", ""],
            3,
        )
        builtin = {"filters": [{"builtin": "PodFitsResources"}, {"name": "s", "expression": "false", "mode": "shadow"}]}
        by_builtin = msgspec.structs.replace(make_rule_set(**builtin), version=2)
        assert decided(by_builtin, pods) == (["revision"] * 3, 3)

    def test_rules_in_shadow_are_not_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        refusal = recorded(revision(1, versioned(1, NEVER)))
        rules = revision(2, with_a_shadow(2, "true"))
        asked = shadow_calls(rules, monkeypatch)
        assert outcome(refusal, rules) == Judgement("revision")
        assert asked == []


class TestByTime:
    def test_a_refusal_is_looked_at_when_its_rule_can_change(self) -> None:
        rules = revision(1, versioned(1, HALF_PAST))
        assert outcome(recorded(rules), rules) == Judgement(next_at=NOON + timedelta(minutes=30))

    def test_a_pod_is_requeued_when_time_has_opened_a_node_since(self) -> None:
        rules = revision(1, versioned(1, HALF_PAST))
        assert outcome(recorded(rules), rules, now=NOON + timedelta(minutes=30)) == Judgement("time")
        assert outcome(
            recorded(rules), revision(2, versioned(1, HALF_PAST)), now=NOON + timedelta(hours=1)
        ) == Judgement("time")

    def test_time_rules_that_did_not_refuse_are_not_waited_for(self) -> None:
        rules = revision(1, versioned(1, NEVER, HALF_PAST))
        assert outcome(recorded(rules), rules, now=NOON + timedelta(hours=1)) == Judgement()

    def test_a_rule_behind_the_one_that_opened_is_waited_for_next(self) -> None:
        rules = revision(1, versioned(1, HALF_PAST, "now >= timestamp('2026-05-01T13:00:00Z')"))
        half_past = NOON + timedelta(minutes=30)
        assert outcome(recorded(rules), rules, now=half_past) == Judgement(next_at=NOON + timedelta(hours=1))

    def test_what_others_opened_wakes_nobody_before_the_time(self) -> None:
        """A refusal that only looks outdated, for counts or claims are seen differently, must not requeue in a circle."""
        rules = revision(1, versioned(1, "node.metadata.name == 'n3' || now.getHours() == 3"))
        refusal = msgspec.structs.replace(recorded(rules), nodes_by_rule={"r0": ["n3"]}, at=NOON)
        seen = snapshot("n3")
        late = NOON + timedelta(minutes=59)
        assert outcome(refusal, rules, seen=seen, now=late) == Judgement(next_at=NOON + timedelta(hours=1))

    def test_each_node_has_its_own_time(self) -> None:
        expression = (
            "now >= timestamp(node.metadata.labels.name == 'n1' ? '2026-05-01T12:30:00Z' : '2026-05-01T12:10:00Z')"
        )
        rules = revision(1, versioned(1, expression))
        assert outcome(recorded(rules), rules) == Judgement(next_at=NOON + timedelta(minutes=10))
        only = recorded(rules, seen=snapshot("n1"))
        assert outcome(only, rules) == Judgement(next_at=NOON + timedelta(minutes=30))


class TestByLabelsOfANamespace:
    READS = "namespaceObject.metadata.labels.?team.orValue('') == 'web'"

    def outcome(self, refusal: Refusal, revision: CompiledRevision, *, until: datetime = NOON, **labels: str) -> str:
        """Judge with the labels that `default` has now; refusals up to a time may have been by others."""
        seen = Snapshot.of([Node.from_json(make_node("n1"))], (), {"default": labels})
        return (
            Judge(revision, seen, NOON, relabelled={"default": until}).outcome(Pod.from_json(make_pod()), refusal).cause
        )

    def test_a_pod_is_requeued_that_a_rule_over_them_lets_pass_now(self) -> None:
        rules = revision(2, versioned(1, self.READS))
        refusal = recorded(rules)
        assert self.outcome(refusal, rules, team="web") == "namespace"
        assert self.outcome(refusal, rules, team="data") == ""

    def test_a_pod_that_another_rule_refused_is_left_alone(self) -> None:
        rules = revision(2, versioned(1, "node.metadata.name == 'n9'", self.READS))
        assert self.outcome(recorded(rules), rules, team="web") == ""

    def test_refusals_by_the_new_ones_are_left_alone(self) -> None:
        rules = revision(2, versioned(1, self.READS))
        refusal = recorded(rules, at=EARLIER)
        assert self.outcome(refusal, rules, until=EARLIER, team="web") == "namespace"
        assert self.outcome(refusal, rules, until=EARLIER - timedelta(microseconds=1), team="web") == ""

    def test_a_pod_of_another_namespace_is_left_alone(self) -> None:
        rules = revision(2, versioned(1, self.READS))
        seen = Snapshot.of([Node.from_json(make_node("n1"))], (), {"default": {"team": "web"}})
        judge = Judge(rules, seen, NOON, relabelled={"other": NOON})
        assert judge.outcome(Pod.from_json(make_pod()), recorded(rules)) == Judgement()

    def test_a_pod_that_no_assignment_takes_any_more_is_requeued(self) -> None:
        rules = revision(2, versioned(1, NEVER), namespaceSelector={"matchLabels": {"rules": "strict"}})
        assert self.outcome(recorded(rules), rules) == "namespace"
        assert self.outcome(recorded(rules), rules, rules="strict") == ""

    def test_they_are_the_cause_also_where_the_refusal_is_older_than_the_revision(self) -> None:
        rules = versioned(1, self.READS)
        assert self.outcome(recorded(revision(1, rules)), revision(2, rules), team="web") == "namespace"

    def test_a_rule_over_time_beside_them_is_still_looked_at_at_its_time(self) -> None:
        rules = revision(2, versioned(1, f"{self.READS} && {HALF_PAST}"))
        seen = Snapshot.of([Node.from_json(make_node("n1"))], (), {"default": {"team": "web"}})
        judge = Judge(rules, seen, NOON, relabelled={"default": NOON})
        found = judge.outcome(Pod.from_json(make_pod()), recorded(rules))
        assert found == Judgement(next_at=NOON.replace(minute=30))

    @pytest.mark.parametrize(
        ("expression", "match", "goes"),
        [
            (NEVER, {}, False),
            (NEVER, {"namespaces": ["default"]}, False),
            (NEVER, {"namespaceSelector": {"matchLabels": {"a": "b"}}}, True),
            (NEVER, {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}, True),
            (READS, {}, True),
        ],
    )
    def test_it_is_known_whether_a_revision_goes_by_them(
        self, expression: str, match: dict[str, Any], goes: bool
    ) -> None:
        assert goes_by_namespaces(revision(1, versioned(1, expression), **match)) is goes


class TestOfARevision:
    @pytest.mark.parametrize(
        ("filters", "reads"),
        [
            ([{"builtin": "PodFitsResources"}], True),
            ([{"name": "f", "expression": "node.count({}) < 3"}], True),
            ([{"name": "f", "expression": "usage.free.cpu > 3"}], True),
            ([{"name": "f", "expression": "node.metadata.name == 'n1'"}], False),
            ([{"name": "f", "expression": "usage.free.cpu > 3", "mode": "shadow"}], False),
        ],
    )
    def test_it_is_known_whether_pods_on_nodes_matter(self, filters: list[dict[str, Any]], reads: bool) -> None:
        assert reads_pods(revision(1, make_rule_set(filters=filters))) is reads

    def test_rule_sets_that_time_can_change_are_named(self) -> None:
        found = timed_rule_sets(revision(1, versioned(1, NEVER, name="a"), versioned(1, HALF_PAST, name="b")), NOON)
        assert found == ["b"]


class TestSuspensions:
    """A Pause that begins or ends is another answer, like another rule set."""

    def paused(self, number: int, *pauses: Pause, rule_set: RuleSet) -> CompiledRevision:
        assignments = [make_assignment("a-web", "web")]
        made = Revision(number=number, rule_sets=[rule_set], assignments=assignments, pauses=list(pauses))
        return CompiledRevision(made)

    def test_a_pod_refused_by_a_rule_that_is_paused_since_is_requeued(self) -> None:
        refusal = recorded(revision(1, versioned(1, NEVER)))
        again = self.paused(2, make_pause(target="RuleSet/web/r0"), rule_set=versioned(1, NEVER))
        assert outcome(refusal, again) == Judgement("revision")

    def test_one_refused_by_another_rule_is_not(self) -> None:
        refusal = recorded(revision(1, versioned(1, NEVER, "true")))
        again = self.paused(2, make_pause(target="RuleSet/web/r1"), rule_set=versioned(1, NEVER, "true"))
        assert outcome(refusal, again) == Judgement()

    def test_everything_paused_lets_it_pass(self) -> None:
        refusal = recorded(revision(1, versioned(1, NEVER)))
        assert outcome(refusal, self.paused(2, make_pause(target="everything"), rule_set=versioned(1, NEVER))).cause

    def test_every_rule_set_is_timed_until_a_paused_assignment_is_back(self) -> None:
        end = NOON + timedelta(minutes=5)
        for target, listed in (("Assignment/a-web", ["web"]), ("RuleSet/web", [])):
            made = self.paused(1, make_pause(target=target, until=end.isoformat()), rule_set=versioned(1, NEVER))
            assert timed_rule_sets(made, end) == listed
            assert timed_rule_sets(made, end + timedelta(minutes=1)) == []

    def test_it_is_looked_at_again_when_a_pause_ends_and_then_decided_anew(self) -> None:
        end = NOON + timedelta(minutes=5)
        pause = make_pause(target="Assignment/first", until=end.isoformat())
        rule_sets = [versioned(1, "true", name="open"), versioned(1, NEVER)]
        assignments = [make_assignment("first", "open", order=1), make_assignment("second", "web", order=2)]
        made = CompiledRevision(Revision(number=1, rule_sets=rule_sets, assignments=assignments, pauses=[pause]))
        refusal = recorded(revision(1, versioned(1, NEVER)))
        assert outcome(refusal, made) == Judgement(next_at=end)
        assert outcome(refusal, made, now=end) == Judgement("time")


class TestParams:
    """By other params of its Assignment a Pod is decided again, as by another version of its rule set."""

    def revision(self, number: int, **params: Any) -> CompiledRevision:
        filters = [{"name": "one", "expression": "node.metadata.name == params.node", "reason": "another one"}]
        rules = make_rule_set("web", filters=filters, params={"node": "n0"})
        assignment = make_assignment("all", "web", params=params)
        return CompiledRevision(Revision(number=number, rule_sets=[rules], assignments=[assignment]))

    def test_that_changed_may_let_it_pass(self) -> None:
        pod = Pod.from_json(make_pod())
        refusal = repeated_refusal(pod, self.revision(1, node="nowhere"), snapshot(), EARLIER)
        assert refusal is not None
        assert (refusal.params, refusal.nodes) == ({"node": "nowhere"}, ["n1", "n2"])
        assert outcome(refusal, self.revision(2, node="nowhere")) == Judgement()
        assert outcome(refusal, self.revision(2, node="n1")) == Judgement("revision")
        assert outcome(refusal, self.revision(2)) == Judgement()

    def test_of_others_are_not_taken_for_ones_own(self) -> None:
        assignments = [
            make_assignment(name, "web", params={"node": name}, match={"namespaces": [name]}) for name in ("n1", "n9")
        ]
        found = self.revision(1).revision
        both = CompiledRevision(Revision(number=2, rule_sets=found.rule_sets, assignments=assignments))
        judge = Judge(both, snapshot(), NOON)
        pods = {name: Pod.from_json(make_pod(namespace=name)) for name in ("n1", "n9")}
        refusal = repeated_refusal(pods["n1"], self.revision(1, node="nowhere"), snapshot(), EARLIER)
        assert refusal is not None
        assert judge.outcome(pods["n9"], refusal) == Judgement()
        assert judge.outcome(pods["n1"], refusal) == Judgement("revision")


def test_a_pod_whose_rules_were_not_evaluated_in_time_is_requeued_by_a_revision_that_lets_it_pass() -> None:
    slow = versioned(1, "true")
    snapshot, pod = Snapshot.of([Node.from_json(make_node("n1"))], []), Pod.from_json(make_pod())
    cycle = Cycle(pod=pod, snapshot=snapshot, now=EARLIER)
    rule_set = revision(1, slow).rule_sets["web"]
    answer = decide(rule_set, cycle, snapshot.table.all_rows(), scoring=False, deadline=stop_before(0))
    refusal = recorded_refusal(answer, at=EARLIER, revision=1, rule_set="web", version=1, params={})

    assert refusal.is_told_in("0/1 nodes are available: 1 rules could not be evaluated in time.")
    assert Judge(revision(1, slow), snapshot, NOON).outcome(pod, refusal) == Judgement()
    assert Judge(revision(2, versioned(2, "true")), snapshot, NOON).outcome(pod, refusal) == Judgement("revision")
    assert Judge(revision(2, versioned(2, NEVER)), snapshot, NOON).outcome(pod, refusal) == Judgement()
