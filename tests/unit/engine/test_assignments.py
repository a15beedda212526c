"""The index of Assignments leaves out nobody that the plain loop finds, and asks few others."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.assignments import MatchIndex, unmet
from policies.engine.decision import EPOCH, CompiledMatch, CompiledRevision
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import Assignment, FilterRule, LabelMatch, Match, Revision, RuleSet, RuleSetSpec
from tests.builders import make_node, make_pod

KEYS, VALUES = ["app", "team", "pod-template-hash"], ["a", "b", ""]
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
expressions = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from(KEYS),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(VALUES), min_size=1, unique=True),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from(KEYS),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
selectors = st.builds(LabelMatch, match_labels=labels, match_expressions=st.lists(expressions, max_size=2))
matches = st.builds(
    Match,
    scheduler_names=st.lists(st.sampled_from(["default-scheduler", "berth"]), unique=True),
    namespaces=st.lists(st.sampled_from(["shop", "bank"]), unique=True),
    namespace_selector=selectors,
    pod_selector=selectors,
    priority_class_names=st.lists(st.sampled_from(["high", "low"]), unique=True),
    owner_kinds=st.lists(st.sampled_from(["Deployment", "ReplicaSet", "Job", "none"]), unique=True),
)
REPLICA_SET = {"kind": "ReplicaSet", "name": "web-a", "controller": True}
pods = st.builds(
    lambda namespace, labels, scheduler, priority_class, owners: Pod.from_json(
        {
            "metadata": {"name": "p", "namespace": namespace, "labels": labels, "ownerReferences": owners},
            "spec": {"schedulerName": scheduler, "priorityClassName": priority_class},
        }
    ),
    st.sampled_from(["shop", "bank", "zoo"]),
    labels,
    st.sampled_from(["", "default-scheduler", "berth"]),
    st.sampled_from(["", "high", "low"]),
    st.sampled_from([[], [REPLICA_SET], [{"kind": "Job", "name": "j", "controller": True}], [{"kind": "Job"}]]),
)


@given(st.lists(matches, max_size=12), pods, labels)
def test_every_match_that_takes_a_pod_is_a_candidate_once_and_in_order(
    found: list[Match], pod: Pod, namespace_labels: dict[str, str]
) -> None:
    candidates = MatchIndex(found).candidates(pod, namespace_labels)
    assert candidates == sorted(set(candidates))
    taking = [position for position, match in enumerate(found) if CompiledMatch(match).takes(pod, namespace_labels)]
    assert set(taking) <= set(candidates)


def test_a_match_by_both_kinds_of_a_deployments_owners_takes_its_pods_once() -> None:
    owned = {"name": "web-a-1", "labels": {"pod-template-hash": "a"}, "ownerReferences": [REPLICA_SET]}
    index = MatchIndex([Match(), Match(owner_kinds=["Deployment", "ReplicaSet"])] * 2)
    assert index.candidates(Pod.from_json({"metadata": owned}), {}) == [0, 1, 2, 3]


@given(matches, pods, labels)
def test_what_is_unmet_is_said_of_each_match_that_does_not_take_the_pod_and_of_no_other(
    match: Match, pod: Pod, namespace_labels: dict[str, str]
) -> None:
    assert (not unmet(match, pod, namespace_labels)) == CompiledMatch(match).takes(pod, namespace_labels)


@pytest.mark.parametrize(
    ("match", "said"),
    [
        (Match(scheduler_names=["berth"]), "schedulerName is default-scheduler, not berth"),
        (Match(namespaces=["bank", "zoo"]), "the namespace is shop, not bank or zoo"),
        (Match(priority_class_names=["high"]), "the PriorityClass is none, not high"),
        (Match(owner_kinds=["Job", "DaemonSet"]), "the kind of its owner is none, not Job or DaemonSet"),
        (Match(pod_selector=LabelMatch(match_labels={"app": "b"})), "label app is a, not b"),
        (
            Match(pod_selector=LabelMatch(match_expressions=[{"key": "app", "operator": "In", "values": ["b", "c"]}])),
            "label app is a, not b or c",
        ),
        (Match(pod_selector=LabelMatch(match_labels={"team": "b"})), "it has no label team, which must be b"),
        (Match(pod_selector=LabelMatch(match_labels={"team": ""})), "it has no label team, which must be empty"),
        (
            Match(namespace_selector=LabelMatch(match_expressions=[{"key": "team", "operator": "Exists"}])),
            "it has no namespace label team",
        ),
        (
            Match(pod_selector=LabelMatch(match_expressions=[{"key": "app", "operator": "DoesNotExist"}])),
            "label app is a, which it must not have",
        ),
        (
            Match(pod_selector=LabelMatch(match_expressions=[{"key": "app", "operator": "NotIn", "values": ["a"]}])),
            "label app is a, which must not be a",
        ),
    ],
)
def test_what_is_unmet_is_said_in_words(match: Match, said: str) -> None:
    pod = Pod.from_json({"metadata": {"name": "p", "namespace": "shop", "labels": {"app": "a"}}})
    assert unmet(match, pod, {}) == [said]


@pytest.mark.parametrize(
    "match",
    [
        Match(scheduler_names=["another", "berth"]),
        Match(namespaces=["bank", "shop"]),
        Match(priority_class_names=["high"]),
        Match(owner_kinds=["Job"]),
        Match(pod_selector=LabelMatch(match_labels={"app": "a"})),
        Match(namespace_selector=LabelMatch(match_labels={"team": "b"})),
    ],
)
def test_what_a_pod_has_is_not_said_to_be_unmet(match: Match) -> None:
    owners = [{"kind": "Job", "name": "j", "controller": True}]
    metadata = {"name": "p", "namespace": "shop", "labels": {"app": "a"}, "ownerReferences": owners}
    pod = Pod.from_json({"metadata": metadata, "spec": {"schedulerName": "berth", "priorityClassName": "high"}})
    assert CompiledMatch(match).takes(pod, {"team": "b"})
    assert unmet(match, pod, {"team": "b"}) == []


@given(
    st.lists(st.tuples(matches, st.integers(0, 3), st.sampled_from(["enforce", "shadow"])), max_size=12), pods, labels
)
def test_a_revision_chooses_as_the_plain_loop_does(
    found: list[tuple[Match, int, Any]], pod: Pod, namespace_labels: dict[str, str]
) -> None:
    assignments = [
        Assignment(name=f"a{index:02}", rule_set="web", order=order, match=match, mode=mode)
        for index, (match, order, mode) in enumerate(found)
    ]
    revision = CompiledRevision(Revision(number=1, rule_sets=[RuleSet(name="web")], assignments=assignments))
    snapshot = Snapshot.of([Node.from_json(make_node())], [], namespaces={pod.namespace: namespace_labels})
    choice = revision.choose(pod, snapshot, EPOCH)

    shadows, enforced = [], None
    for assignment in sorted(assignments, key=lambda each: (each.order, each.name)):
        if not CompiledMatch(assignment.match).takes(pod, namespace_labels):
            continue
        if assignment.mode == "enforce":
            enforced = assignment
            break
        shadows.append(assignment)
    assert (choice.enforced[0] if choice.enforced else None) == enforced
    assert [assignment for assignment, _ in choice.shadows] == shadows


@pytest.mark.parametrize(
    "match_of",
    [
        lambda number: Match(namespaces=[f"ns-{number}"]),
        lambda number: Match(pod_selector=LabelMatch(match_labels={"all": "same", "team": f"t-{number}"})),
        lambda number: Match(
            namespaces=["shop"],
            pod_selector=LabelMatch(match_expressions=[{"key": "team", "operator": "In", "values": [f"t-{number}"]}]),
        ),
        lambda number: Match(
            pod_selector=LabelMatch(match_expressions=[{"key": f"team-{number}", "operator": "Exists"}])
        ),
        lambda number: Match(scheduler_names=["default-scheduler"], priority_class_names=[f"class-{number}"]),
        lambda number: Match(namespace_selector=LabelMatch(match_labels={"env": f"e-{number}"})),
        lambda number: Match(owner_kinds=["none" if number == 7 else f"Kind{number}"]),
    ],
)
def test_of_many_assignments_few_are_asked(match_of: Any) -> None:
    index = MatchIndex([match_of(number) for number in range(500)])
    pod = Pod.from_json(
        make_pod(namespace="ns-7", labels={"all": "same", "team": "t-7", "team-7": ""})
        | {"spec": {"priorityClassName": "class-7"}}
    )
    shop = Pod.from_json(make_pod(namespace="shop", labels={"team": "t-7"}))
    assert 7 in [*index.candidates(pod, {"env": "e-7"}), *index.candidates(shop, {})]
    assert len(index.candidates(pod, {"env": "e-7"})) <= 1


def test_what_requires_nothing_is_always_asked() -> None:
    unbound = LabelMatch(match_expressions=[{"key": "team", "operator": "DoesNotExist"}])
    index = MatchIndex([Match(), Match(namespaces=["bank"]), Match(pod_selector=unbound)])
    assert index.candidates(Pod.from_json(make_pod()), {}) == [0, 2]


class TestARevisionAfterAnother:
    def _rule_set(self, name: str, expression: str = "true") -> RuleSet:
        spec = RuleSetSpec(filters=[FilterRule(name="f", expression=expression)])
        return RuleSet(name=name, version=1, spec=spec)

    def test_takes_over_what_was_compiled_and_is_the_same(self) -> None:
        first = CompiledRevision(Revision(number=1, rule_sets=[self._rule_set("a"), self._rule_set("b")]))
        changed = [self._rule_set("a"), self._rule_set("b", "false"), self._rule_set("c")]
        second = CompiledRevision(Revision(number=2, rule_sets=changed), former=first)
        assert second.rule_sets["a"] is first.rule_sets["a"]
        assert second.rule_sets["b"] is not first.rule_sets["b"]
        assert [each.name for each in second.to_warm] == ["b", "c"]
        assert [each.name for each in first.to_warm] == ["a", "b"]

    def test_does_not_hold_what_was_withdrawn(self) -> None:
        first = CompiledRevision(Revision(number=1, rule_sets=[self._rule_set("a"), self._rule_set("b")]))
        second = CompiledRevision(Revision(number=2, rule_sets=[self._rule_set("b")]), former=first)
        assert list(second.rule_sets) == ["b"]
        assert [each.name for each in second.to_warm] == []

    def test_rests_after_each_rule_set_that_it_compiles(self) -> None:
        rests: list[int] = []
        first = CompiledRevision(Revision(number=1, rule_sets=[self._rule_set("a")]), pause=lambda: rests.append(1))
        assert rests == [1]
        CompiledRevision(
            Revision(number=2, rule_sets=[self._rule_set("a"), self._rule_set("b"), self._rule_set("c")]),
            former=first,
            pause=lambda: rests.append(2),
        )
        assert rests == [1, 2, 2]


class TestTheNextRevision:
    """What a publish doesn't change is neither compiled nor filed again."""

    RULES = FilterRule(name="f", expression="true", reason="no")

    def revision(self, number: int, rules: list[FilterRule], order: int = 1, count: int = 3) -> Revision:
        assignments = [
            Assignment(name=f"a{each}", rule_set="set", order=order + each, match=Match(namespaces=[f"shop-{each}"]))
            for each in range(count)
        ]
        return Revision(
            number=number,
            rule_sets=[RuleSet(name="set", spec=RuleSetSpec(filters=rules))],
            assignments=assignments,
        )

    def chosen(self, revision: CompiledRevision, namespace: str) -> Any:
        return revision.choose(Pod.from_json(make_pod(namespace=namespace)), Snapshot.of([], []), EPOCH).enforced

    def test_assignments_that_stay_are_filed_once_and_give_the_new_rule_set(self) -> None:
        before = CompiledRevision(self.revision(1, [self.RULES]))
        after = CompiledRevision(self.revision(2, []), former=before)
        assert after.filed is before.filed
        for revision in (before, after):
            assignment, rule_set = self.chosen(revision, "shop-1")
            assert (assignment.name, rule_set) == ("a1", revision.rule_sets["set"])
        assert after.rule_sets["set"] is not before.rule_sets["set"]

    def test_an_assignment_that_changes_counts(self) -> None:
        before = CompiledRevision(self.revision(1, [], count=3))
        after = CompiledRevision(self.revision(2, [], count=2), former=before)
        assert self.chosen(before, "shop-2") is not None
        assert self.chosen(after, "shop-2") is None

    def test_many_assignments_are_filed_with_pauses(self) -> None:
        pauses: list[None] = []
        CompiledRevision(self.revision(1, [], count=500), pause=lambda: pauses.append(None))
        assert len(pauses) > 20

    def test_an_assignment_without_its_rule_set_is_refused(self) -> None:
        without = Revision(number=1, assignments=[Assignment(name="a", rule_set="gone")])
        with pytest.raises(KeyError):
            CompiledRevision(without)
