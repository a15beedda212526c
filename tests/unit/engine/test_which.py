"""Which Assignment takes a Pod is said as it is chosen, with a reason for each that is passed over."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.decision import EPOCH, CompiledRevision
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import Assignment, Exemption, Match, Pause, Revision, RuleSet
from policies.engine.which import Which, lines_of, which
from tests.builders import make_exemption, make_pause, make_pod
from tests.unit.engine.test_assignments import labels, matches, pods

POD = Pod.from_json(make_pod("cart", namespace="shop", uid="u"))


def revision(*assignments: Assignment, suspensions: tuple[Pause | Exemption, ...] = ()) -> Revision:
    return Revision(
        number=3,
        rule_sets=[RuleSet(name="web")],
        assignments=list(assignments),
        pauses=[each for each in suspensions if isinstance(each, Pause)],
        exemptions=[each for each in suspensions if isinstance(each, Exemption)],
    )


def assigned(name: str, order: int = 1, **fields: Any) -> Assignment:
    return Assignment(name=name, rule_set="web", order=order, **fields)


@given(
    st.lists(
        st.tuples(matches, st.integers(0, 3), st.sampled_from(["enforce", "shadow", "canary"]), st.booleans()),
        max_size=8,
    ),
    pods,
    labels,
)
def test_it_is_the_one_that_is_chosen(
    found: list[tuple[Match, int, Any, bool]], pod: Pod, namespace_labels: dict[str, str]
) -> None:
    assignments = [
        assigned(f"a{index}", order, match=match, mode=mode, percent=50 if mode == "canary" else 0)
        for index, (match, order, mode, _) in enumerate(found)
    ]
    pauses = [make_pause(f"p{index}", f"Assignment/a{index}") for index, each in enumerate(found) if each[3]]
    made = revision(*assignments, suspensions=tuple(pauses))
    snapshot = Snapshot.of([], [], namespaces={pod.namespace: namespace_labels})
    choice = CompiledRevision(made).choose(pod, snapshot, EPOCH)
    said = which(made, pod, namespace_labels, EPOCH)
    assert said.assignment == (choice.enforced[0].name if choice.enforced else "")
    assert said.shadows == [each.name for each, _ in choice.shadows]
    named = [said.assignment, *said.shadows, *said.hidden, *(each.name for each in said.passed_over)]
    assert len(set(named)) == len(named)
    assert all(each.why for each in said.passed_over)


@pytest.mark.parametrize(("percent", "takes"), [(47, ""), (48, "canary")])
def test_a_canary_takes_who_drew_less_than_its_percent_and_nobody_else(percent: int, takes: str) -> None:
    made = revision(assigned("canary", mode="canary", percent=percent))
    choice = CompiledRevision(made).choose(POD, Snapshot.of([]), EPOCH)
    assert (choice.enforced[0].name if choice.enforced else "") == takes
    assert which(made, POD, {}, EPOCH).assignment == takes


def test_each_that_is_passed_over_has_its_reason() -> None:
    made = revision(
        assigned("elsewhere", 1, match=Match(namespaces=["bank"])),
        assigned("canary", 2, mode="canary", percent=1),
        assigned("paused", 3),
        assigned("watched", 4, mode="shadow"),
        assigned("takes", 5, params={"team": "shop"}),
        assigned("behind", 6),
        assigned("watched-behind", 7, mode="shadow"),
        assigned("behind-elsewhere", 8, match=Match(namespaces=["bank"])),
        suspensions=(make_pause("quiet", "Assignment/paused"),),
    )
    found = which(made, POD, {}, EPOCH)
    assert "\n".join(lines_of(found)) == (
        "shop/cart gets rule set web by Assignment takes\n"
        '  with params {"team":"shop"}\n'
        "  beside it, in shadow: watched\n"
        "  not elsewhere: the namespace is shop, not bank\n"
        "  not canary: the Pod's workload drew 47, and 1 % are those below\n"
        "  not paused: it is out of force by Pause quiet\n"
        "  behind matches it too, but comes later in the order\n"
        "  watched-behind matches it too, but comes later in the order"
    )


def test_a_canary_that_takes_it_says_why() -> None:
    found = which(revision(assigned("canary", mode="canary", percent=99)), POD, {}, EPOCH)
    assert found.because == ["as a canary: the Pod's workload drew 47, and 99 % are those below"]
    assert list(lines_of(found)) == [
        "shop/cart gets rule set web by Assignment canary",
        "  as a canary: the Pod's workload drew 47, and 99 % are those below",
    ]


def owned(pod: Pod, kind: str, name: str, uid: str) -> Pod:
    owner = {"kind": kind, "name": name, "uid": uid, "controller": True}
    return Pod.from_json({**pod.json, "metadata": {**pod.json["metadata"], "uid": "", "ownerReferences": [owner]}})


def test_what_has_no_uid_yet_is_said_to_draw_anew_in_the_cluster() -> None:
    """A file's Pod and the one that is made of it have nothing in common by which both would draw the same."""
    made = revision(assigned("canary", mode="canary", percent=50))
    typed = Pod.from_json(make_pod("cart", labels={"pod-template-hash": "abc"}))
    new = Pod.from_json({**typed.json, "metadata": {**typed.json["metadata"], "uid": ""}})

    def says(pod: Pod) -> bool:
        found = which(made, pod, {}, EPOCH)
        (said,) = [*found.because, *(why for each in found.passed_over for why in each.why)]
        return said.endswith("; this is by its name, since it has no UID yet: in the cluster it draws again")

    assert says(new)
    assert says(owned(typed, "Job", "nightly", ""))
    assert not says(typed)
    assert not says(owned(typed, "Job", "nightly", "u"))
    assert not says(owned(typed, "ReplicaSet", "cart-abc", "")), "a Deployment draws by its name"


def test_what_is_out_of_force_is_said() -> None:
    later = EPOCH + timedelta(hours=1)
    until = later.isoformat().replace("+00:00", "Z")
    exempt = make_exemption("cart", "RuleSet/web/team", pods=[{"namespace": "shop", "name": "cart"}], until=until)
    made = revision(assigned("all"), suspensions=(make_pause("whole", "RuleSet/web"), exempt))
    assert which(made, POD, {}, EPOCH).because == [
        "its rule set is out of force by Pause whole: it decides nothing",
        f"its rule team is out of force by Exemption cart until {until}",
    ]
    assert len(which(made, POD, {}, later).because) == 1


def test_a_shadow_whose_rule_set_is_paused_is_not_said_to_be_evaluated() -> None:
    made = revision(assigned("watched", mode="shadow"), suspensions=(make_pause("whole", "RuleSet/web"),))
    assert CompiledRevision(made).choose(POD, Snapshot.of([], []), EPOCH).shadows == []
    assert list(lines_of(which(made, POD, {}, EPOCH)))[1:] == [
        "  not watched: its rule set is out of force by Pause whole: it isn't evaluated"
    ]


def test_where_everything_is_paused_nothing_is_asked() -> None:
    made = revision(assigned("all"), suspensions=(make_pause("stop", "everything"),))
    found = which(made, POD, {}, EPOCH)
    assert found == Which(pod="shop/cart", revision=3, because=["everything is out of force by Pause stop"])
    assert next(iter(lines_of(found))).startswith("no Assignment takes shop/cart")


@pytest.mark.parametrize(
    ("metadata", "said"),
    [(None, "default/(no name yet)"), ({"namespace": "shop", "generateName": "web-"}, "shop/web-(no name yet)")],
)
def test_a_pod_without_a_name_is_said_to_have_none(metadata: dict[str, Any] | None, said: str) -> None:
    pod = Pod.from_json({"metadata": metadata} if metadata else {})
    assert next(lines_of(which(revision(), pod, {}, EPOCH))).startswith(f"no Assignment takes {said}: ")
