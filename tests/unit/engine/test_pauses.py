"""What a Pause or an Exemption has out of force, for whom, until when; and that the rest decides as if it weren't there."""

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.decision import _MOST_VARIANTS, EPOCH, Choice, CompiledRevision, CompiledRuleSet, decide
from policies.engine.documents import document_of, read_exemption, read_pause
from policies.engine.errors import RuleSetError
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.pauses import Target, in_force, is_owned_by, without_rules
from policies.engine.rule import Cycle
from policies.engine.ruleset import Exemption, Pause, Revision, RuleSet, decode_revision, encode
from policies.engine.validation import read_document
from tests.builders import (
    exemption_document,
    make_assignment,
    make_exemption,
    make_node,
    make_pause,
    make_pod,
    make_rule_set,
    pause_document,
)

FILTERS = [
    {"name": "team", "expression": "node.metadata.name != 'n1'", "reason": "another team's"},
    {"name": "zone", "expression": "node.metadata.name != 'n2'", "reason": "another zone"},
]
SCORES = [{"name": "short", "expression": "10", "bounds": [0, 10]}, {"builtin": "LeastRequestedPriority"}]
VICTIMS = [{"name": "keep", "expression": "false", "reason": "stays"}]
SNAPSHOT = Snapshot.of([Node.from_json(make_node(name)) for name in ("n1", "n2", "n3")], [])
POD = Pod.from_json(make_pod("cart"))


def rules(name: str = "web") -> RuleSet:
    return make_rule_set(name, filters=FILTERS, scores=SCORES, victims=VICTIMS)


def revision(*suspensions: Pause | Exemption, assignments: list[Any] | None = None) -> CompiledRevision:
    made = assignments if assignments is not None else [make_assignment("all")]
    return CompiledRevision(
        Revision(
            number=1,
            rule_sets=[rules("web"), rules("other")],
            assignments=made,
            pauses=[each for each in suspensions if isinstance(each, Pause)],
            exemptions=[each for each in suspensions if isinstance(each, Exemption)],
        )
    )


def choose(*suspensions: Pause | Exemption, pod: Pod = POD, now: datetime = EPOCH, **more: Any) -> Choice:
    return revision(*suspensions, **more).choose(pod, SNAPSHOT, now)


def feasible(choice: Choice, pod: Pod = POD) -> list[str]:
    assert choice.enforced is not None
    rule_set = choice.enforced[1]
    cycle = Cycle(pod=pod, snapshot=SNAPSHOT, now=EPOCH, params=rule_set.params)
    return decide(rule_set, cycle, SNAPSHOT.table.all_rows()).feasible


def suspended(choice: Choice) -> list[str]:
    return [f"{each.kind} {each.name}: {each.target}" for each in choice.suspended_by]


class TestPause:
    def test_of_a_rule_lets_it_pass_over_all_pods_and_the_others_stay(self) -> None:
        choice = choose(make_pause(target="RuleSet/web/team"))
        assert feasible(choice) == ["n1", "n3"]
        assert suspended(choice) == ["Pause web-paused: RuleSet/web/team"]
        assert feasible(choose()) == ["n3"]

    def test_of_a_rule_is_of_filters_scores_and_victims_rules_of_that_name(self) -> None:
        choice = choose(make_pause("a", "RuleSet/web/short"), make_pause("b", "RuleSet/web/keep"))
        assert choice.enforced is not None
        left = choice.enforced[1]
        assert [rule.key for rule, _ in left.scores] == ["LeastRequestedPriority"]
        assert [rule.key for rule, _ in left.filters] == ["team", "zone"]
        assert left.victims == []

    def test_of_a_rule_that_is_not_there_or_of_another_rule_set_changes_nothing(self) -> None:
        choice = choose(make_pause("a", "RuleSet/web/gone"), make_pause("b", "RuleSet/other/team"))
        assert choice.enforced is not None
        assert choice.suspended_by == []
        assert feasible(choice) == ["n3"]

    def test_of_a_rule_set_ends_the_search_and_nothing_decides(self) -> None:
        behind = [make_assignment("first", order=1), make_assignment("second", "other", order=2)]
        choice = choose(make_pause(), assignments=behind)
        assert (choice.enforced, choice.shadows) == (None, [])
        assert suspended(choice) == ["Pause web-paused: RuleSet/web"]

    def test_of_a_rule_set_in_shadow_leaves_the_shadow_out(self) -> None:
        behind = [make_assignment("dry", order=1, mode="shadow"), make_assignment("second", "other", order=2)]
        choice = choose(make_pause(), assignments=behind)
        assert choice.enforced is not None
        assert (choice.enforced[0].name, choice.shadows) == ("second", [])

    def test_of_an_assignment_passes_over_it_so_that_the_next_takes_the_pod(self) -> None:
        behind = [make_assignment("first", order=1), make_assignment("second", "other", order=2)]
        choice = choose(make_pause("a", "Assignment/first"), assignments=behind)
        assert choice.enforced is not None
        assert choice.enforced[0].name == "second"
        assert suspended(choice) == ["Pause a: Assignment/first"]

    def test_of_everything_leaves_nothing_in_force(self) -> None:
        behind = [make_assignment("dry", order=1, mode="shadow"), make_assignment("second", "other", order=2)]
        choice = choose(make_pause("all", "everything"), make_pause(), assignments=behind)
        assert (choice.enforced, choice.shadows) == (None, [])
        assert suspended(choice) == ["Pause all: everything"]

    def test_ends_at_its_moment_and_not_before(self) -> None:
        pause = make_pause(until="2026-01-01T12:00:00+02:00")
        assert pause.until == "2026-01-01T10:00:00Z"
        end = datetime(2026, 1, 1, 10, tzinfo=UTC)
        assert choose(pause, now=end - timedelta(microseconds=1)).enforced is None
        assert choose(pause, now=end).enforced is not None

    def test_of_another_pod_costs_no_choice(self) -> None:
        ended = make_pause(until="2026-01-01T00:00:00Z")
        choice = choose(ended, now=EPOCH)
        assert (choice.suspended_by, feasible(choice)) == ([], ["n3"])


class TestExemption:
    @pytest.mark.parametrize(
        ("entry", "is_exempt"),
        [
            ({"name": "cart"}, True),
            ({"name": "other"}, False),
            ({"namespace": "shop", "name": "cart"}, False),
            ({"selector": {"matchLabels": {"app": "cart"}}}, True),
            ({"selector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["cart"]}]}}, False),
            ({"owner": {"kind": "ReplicaSet", "name": "cart-7d9f8"}}, True),
            ({"owner": {"kind": "Deployment", "name": "cart"}}, True),
            ({"owner": {"kind": "Deployment", "name": "cart"}, "name": "other"}, False),
            ({"owner": {"kind": "StatefulSet", "name": "cart"}}, False),
        ],
    )
    def test_is_of_the_pods_of_its_entries(self, entry: dict[str, Any], is_exempt: bool) -> None:
        exemption = make_exemption(target="RuleSet/web/team", pods=[{"namespace": "default", **entry}])
        json = make_pod("cart", labels={"app": "cart", "pod-template-hash": "7d9f8"})
        json["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "cart-7d9f8", "controller": True}]
        pod = Pod.from_json(json)
        choice = choose(exemption, pod=pod)
        assert feasible(choice, pod) == (["n1", "n3"] if is_exempt else ["n3"])
        assert suspended(choice) == (["Exemption cart: RuleSet/web/team"] if is_exempt else [])

    def test_of_a_rule_set_is_of_all_its_rules(self) -> None:
        assert choose(make_exemption()).enforced is None

    def test_one_that_has_ended_suspends_no_rule(self) -> None:
        assert choose(make_exemption(), now=datetime(2026, 2, 1, tzinfo=UTC)).enforced is not None

    def test_of_several_entries_takes_what_any_of_them_takes(self) -> None:
        entries = [{"namespace": "default", "name": "a"}, {"namespace": "default", "name": "cart"}]
        entries.append({"namespace": "shop", "name": "b"})
        assert choose(make_exemption(pods=entries)).enforced is None


class TestOwner:
    @pytest.mark.parametrize(
        ("owner", "workload", "is_owned"),
        [
            (None, ("Deployment", "cart"), False),
            (("ReplicaSet", "cart-7d9f8"), ("Deployment", "cart"), True),
            (("ReplicaSet", "cart-other"), ("Deployment", "cart"), False),
            (("ReplicaSet", "cart"), ("Deployment", "cart"), False),
            (("ReplicaSet", "cart-7d9f8"), ("Deployment", "cart-7d9f8"), False),
            (("Job", "night-29012345"), ("CronJob", "night"), True),
            (("Job", "night-by-hand"), ("CronJob", "night-by"), False),
            (("Job", "night-29012345"), ("Deployment", "night"), False),
            (("StatefulSet", "db"), ("StatefulSet", "db"), True),
        ],
    )
    def test_is_the_controller_or_what_the_controller_is_called_after(
        self, owner: tuple[str, str] | None, workload: tuple[str, str], is_owned: bool
    ) -> None:
        json = make_pod(labels={"pod-template-hash": "7d9f8"})
        if owner:
            json["metadata"]["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "controller": True}]
        assert is_owned_by(Pod.from_json(json), *workload) is is_owned


class TestVariants:
    def test_are_one_object_for_the_same_rules(self) -> None:
        rule_set = CompiledRuleSet(rules())
        assert rule_set.without(["team", "gone"]) is rule_set.without(["team"])
        assert rule_set.without(["gone"]) is rule_set.without([]) is rule_set

    def test_keep_their_enforced_side_apart(self) -> None:
        shadow = make_rule_set(filters=[FILTERS[0], FILTERS[1] | {"mode": "shadow"}])
        left = CompiledRuleSet(shadow).without(["team"])
        assert [rule.key for rule, _ in left.filters] == ["zone"]
        assert left.enforced.filters == []

    def test_are_limited_in_number(self) -> None:
        names = [f"r{number}" for number in range(_MOST_VARIANTS + 1)]
        rule_set = CompiledRuleSet(make_rule_set(filters=[FILTERS[0] | {"name": name} for name in names]))
        first = rule_set.without(names[:1])
        for name in names[1:]:
            rule_set.without([name])
        assert rule_set.without(names[:1]) is not first

    def test_are_made_by_many_threads_at_once(self) -> None:
        names = [f"r{number}" for number in range(12)]
        rule_set = CompiledRuleSet(make_rule_set(filters=[FILTERS[0] | {"name": name} for name in names]))
        out = list(combinations(names, 3))

        def left(start: int) -> list[int]:
            return [len(rule_set.without(out[(start + 7 * turn) % len(out)]).filters) for turn in range(4_000)]

        usual = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(8) as threads:
                assert {number for found in threads.map(left, range(8)) for number in found} == {len(names) - 3}
        finally:
            sys.setswitchinterval(usual)

    def test_documents_are_left_the_same_rules(self) -> None:
        document = without_rules(rules(), ["team", "short", "keep"])
        left = CompiledRuleSet(rules()).without(["team", "short", "keep"])
        assert [rule for rule, _ in left.filters] == document.spec.filters
        assert [rule for rule, _ in left.scores] == document.spec.scores
        assert document.spec.victims == left.victims == []

    def test_a_rule_set_names_what_can_be_paused(self) -> None:
        assert set(rules().spec.keys) == CompiledRuleSet(rules()).keys() == set(NAMES)


class TestNextEnd:
    def test_is_of_what_ends_first_after_a_moment(self) -> None:
        made = revision(make_pause(until="2026-01-05T00:00:00Z"), make_pause("b", "RuleSet/other"), make_exemption())
        assert made.suspensions_end_at(EPOCH) == datetime(2026, 1, 5, tzinfo=UTC)
        assert made.suspensions_end_at(datetime(2026, 1, 5, tzinfo=UTC)) == datetime(2026, 2, 1, tzinfo=UTC)
        assert made.suspensions_end_at(datetime(2026, 2, 1, tzinfo=UTC)) is None
        assert revision().suspensions_end_at(EPOCH) is None

    def test_an_assignment_comes_back_at_the_end_of_its_pause(self) -> None:
        for target, comes_back in (("Assignment/all", True), ("RuleSet/web", False)):
            made = revision(make_pause(target=target, until="2026-01-05T00:00:00Z")).suspensions
            assert made is not None
            assert made.gives_back_after(EPOCH) is comes_back
            assert not made.gives_back_after(datetime(2026, 1, 5, tzinfo=UTC))


NAMES = ["team", "zone", "short", "LeastRequestedPriority", "keep"]


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
def test_a_revision_decides_as_one_without_the_rules_that_are_out_of_force(paused: set[str], exempt: set[str]) -> None:
    suspensions: list[Pause | Exemption] = [make_pause(f"p{n}", f"RuleSet/web/{k}") for n, k in enumerate(paused)]
    suspensions += [make_exemption(f"e{n}", f"RuleSet/web/{key}") for n, key in enumerate(exempt)]
    choice = choose(*suspensions)
    assert choice.enforced is not None
    out = paused | exempt
    spec = {
        kind: [rule for rule in given if rule.get("name", rule.get("builtin")) not in out]
        for kind, given in (("filters", FILTERS), ("scores", SCORES), ("victims", VICTIMS))
    }
    wanted, found = CompiledRuleSet(make_rule_set(**spec)), choice.enforced[1]
    cycle = Cycle(pod=POD, snapshot=SNAPSHOT, now=EPOCH, params={})
    answers = [decide(each, cycle, SNAPSHOT.table.all_rows()) for each in (wanted, found)]
    assert answers[0].feasible == answers[1].feasible
    assert answers[0].points.tolist() == answers[1].points.tolist()
    assert [rule for rule, _ in wanted.victims] == [rule for rule, _ in found.victims]
    assert {each.target.rule for each in choice.suspended_by} == out


class TestDocuments:
    @pytest.mark.parametrize(
        "value",
        [
            make_pause(),
            make_pause(until="2026-01-05T00:00:00Z"),
            make_pause("all", "everything"),
            make_exemption(),
            make_exemption(pods=[{"namespace": "a", "selector": {}, "owner": {"kind": "Job", "name": "x"}}]),
        ],
    )
    def test_read_back_as_they_are(self, value: Pause | Exemption) -> None:
        assert read_document(document_of(value)) == value
        made = revision(value).revision
        assert decode_revision(encode(made)) == made

    @pytest.mark.parametrize(
        ("spec", "path", "says"),
        [
            ({"target": "RuleSet"}, "spec.target", "must be everything, Assignment/NAME"),
            ({"target": "everything/web"}, "spec.target", "must be"),
            ({"target": "everything/web/team"}, "spec.target", "must be"),
            ({"target": "Assignment/a/b"}, "spec.target", "must be"),
            ({"target": "RuleSet/web/"}, "spec.target", "must be"),
            ({"target": "RuleSet/web/a/b"}, "spec.target", "must be"),
            ({"target": "Node/n1"}, "spec.target", "must be"),
            ({"target": ""}, "spec.target", "is needed"),
            ({"reason": ""}, "spec.reason", "is needed"),
            ({"reason": "x" * 1001}, "spec.reason", "at most 1000"),
            ({"until": "tomorrow"}, "spec.until", "must be a time"),
            ({"until": "2026-01-01"}, "spec.until", "must be a time"),
            ({"until": "0001-01-01T00:00:00+10:00"}, "spec.until", "must be a time"),
        ],
    )
    def test_of_a_pause_is_refused_with_its_place(self, spec: dict[str, Any], path: str, says: str) -> None:
        with pytest.raises(RuleSetError) as caught:
            read_pause(pause_document(**spec))
        assert [fault.path for fault in caught.value.faults] == [path]
        assert says in str(caught.value)

    @pytest.mark.parametrize(
        ("spec", "path", "says"),
        [
            ({"target": "everything"}, "spec.target", "must be RuleSet/NAME"),
            ({"target": "Assignment/a"}, "spec.target", "must be RuleSet/NAME"),
            ({"owner": ""}, "spec.owner", "is needed"),
            ({"until": None}, "spec.until", "every Exemption ends"),
            ({"until": "soon"}, "spec.until", "must be a time"),
            ({"pods": []}, "spec.pods", "1 to 1000"),
            ({"pods": [{"namespace": "default"}]}, "spec.pods[0]", "needs a name, an owner or a selector"),
            ({"pods": [{"name": "a"}]}, "spec.pods[0].namespace", "is needed"),
            ({"pods": [{"namespace": "A", "name": "a"}]}, "spec.pods[0].namespace", "no namespace's name"),
            ({"pods": [{"namespace": "a", "name": "A"}]}, "spec.pods[0].name", "no Pod's name"),
            ({"pods": [{"namespace": "a", "name": "a" * 300}]}, "spec.pods[0].name", "no Pod's name"),
            ({"pods": [{"namespace": "a", "owner": {"kind": "Job"}}]}, "spec.pods[0].owner.name", "is needed"),
            (
                {"pods": [{"namespace": "a", "owner": {"kind": "deployment", "name": "b"}}]},
                "spec.pods[0].owner.kind",
                "'deployment' is no kind of Kubernetes, such as Deployment",
            ),
            (
                {"pods": [{"namespace": "a", "owner": {"kind": "Deployment", "name": "B"}}]},
                "spec.pods[0].owner.name",
                "no workload's name",
            ),
        ],
    )
    def test_of_an_exemption_is_refused_with_its_place(self, spec: dict[str, Any], path: str, says: str) -> None:
        with pytest.raises(RuleSetError) as caught:
            read_exemption(exemption_document(**spec))
        assert [fault.path for fault in caught.value.faults] == [path]
        assert says in str(caught.value)

    def test_targets_read_as_they_are_written(self) -> None:
        for text in ("everything", "Assignment/a", "RuleSet/web", "RuleSet/web/team"):
            assert str(Target.parse(text)) == text


def test_pauses_are_in_force_until_they_end() -> None:
    ended, ends = (make_pause(name, until=f"2026-01-01T00:00:0{second}Z") for name, second in (("a", 0), ("b", 1)))
    stays = make_pause("c")
    assert in_force([ended, ends, stays], datetime(2026, 1, 1, tzinfo=UTC)) == [ends, stays]
