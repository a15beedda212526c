"""What is to be done in the cluster for PriorityClasses, for every way in which the two can differ."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.ruleset import PriorityClass
from scheduler.cluster.errors import (
    APIConflictError,
    APIError,
    APIForbiddenError,
    APIInvalidError,
    APINotFoundError,
    APITimeoutError,
    APIUnavailableError,
)
from scheduler.priority_classes.execute import LABEL, Outcome, read_classes
from scheduler.priority_classes.execute import apply as apply_with
from scheduler.priority_classes.plan import ORIGIN, SENT, Act, Found, Step, digest_of, plan
from tests.builders import make_priority_class
from tests.priority_server import PriorityServer

WANTED = make_priority_class("batch", 1000, "Batch that may wait")
_SINCE = "Changed in the cluster since Berth applied it:"


def found_as(wanted: PriorityClass, **fields: Any) -> Found:
    """Return the class as the cluster has it after Berth made it."""
    ours = Found(
        name=wanted.name,
        value=wanted.value,
        global_default=wanted.global_default,
        preemption_policy=wanted.preemption_policy,
        description=wanted.description,
        uid=f"uid-{wanted.name}",
        resource_version="7",
        is_managed=True,
        is_made_by_berth=True,
        digest=digest_of(wanted),
    )
    return msgspec.structs.replace(ours, **fields)


def apply(steps: list[Step], server: PriorityServer, **options: Any) -> list[Outcome]:
    """Take steps without writing down what is replaced."""
    return apply_with(
        steps, server, **{"journal": lambda _step, _begun: None, "pause": lambda _seconds: None} | options
    )


def only(steps: list[Step]) -> Step:
    (step,) = steps
    return step


class TestPlan:
    def test_what_is_missing_is_made(self) -> None:
        assert only(plan([WANTED], [])).act is Act.CREATE

    def test_what_is_as_wanted_is_left(self) -> None:
        assert only(plan([WANTED], [found_as(WANTED)])).act is Act.NOTHING

    def test_a_new_version_is_brought_over(self) -> None:
        before = make_priority_class("batch", 1000, "other words", globalDefault=True)
        assert only(plan([WANTED], [found_as(before)])).act is Act.UPDATE

    def test_what_others_changed_is_said_and_left(self) -> None:
        step = only(plan([WANTED], [found_as(WANTED, description="mine", global_default=True)]))
        assert step.act is Act.DRIFTED
        assert "globalDefault is true, description is “mine”" in step.message

    def test_what_others_changed_is_put_back_when_somebody_asks(self) -> None:
        drifted = [found_as(WANTED, description="mine")]
        assert only(plan([WANTED], drifted, overwrite={"batch"})).act is Act.UPDATE
        assert only(plan([WANTED], drifted, overwrite={"web"})).act is Act.DRIFTED

    def test_a_new_version_goes_over_what_others_changed(self) -> None:
        before = make_priority_class("batch", 1000, "before")
        assert only(plan([WANTED], [found_as(before, description="mine")])).act is Act.UPDATE

    def test_what_others_changed_to_what_is_wanted_is_ours_again(self) -> None:
        before = make_priority_class("batch", 1000, "before")
        assert only(plan([WANTED], [found_as(WANTED, digest=digest_of(before))])).act is Act.UPDATE

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"value": 7}, "value is 7 in the cluster and 1000 here"),
            ({"preemption_policy": "Never"}, "preemptionPolicy is Never in the cluster and PreemptLowerPriority here"),
        ],
    )
    def test_what_kubernetes_never_changes_is_made_anew_for_a_new_version_and_else_left_as_drifted(
        self, fields: dict[str, Any], said: str
    ) -> None:
        theirs = plan([WANTED], [found_as(WANTED, **fields)])
        assert (only(theirs).act, only(theirs).message) == (Act.DRIFTED, f"{_SINCE} {said}.")
        asked = plan([WANTED], [found_as(WANTED, **fields)], overwrite={"batch"})
        published = plan([WANTED], [found_as(WANTED, digest="of another version", **fields)])
        for steps in (asked, published):
            assert only(steps).act is Act.REPLACE
            assert said in only(steps).message

    @pytest.mark.parametrize("fields", [{"value": 7}, {"preemption_policy": "Never"}])
    def test_what_kubernetes_never_changes_is_a_conflict_in_a_class_that_is_to_be_taken_over(
        self, fields: dict[str, Any]
    ) -> None:
        wanted = msgspec.structs.replace(WANTED, adopt=True)
        step = only(plan([wanted], [found_as(WANTED, is_managed=False, **fields)], overwrite={"batch"}))
        assert step.act is Act.CONFLICT
        assert "new name" in step.message

    def test_a_class_of_others_is_left(self) -> None:
        step = only(plan([WANTED], [found_as(WANTED, is_managed=False)]))
        assert step.act is Act.FOREIGN
        assert "Set adopt" in step.message

    def test_a_class_of_others_is_adopted_when_that_is_wanted(self) -> None:
        wanted = msgspec.structs.replace(WANTED, adopt=True)
        assert only(plan([wanted], [found_as(WANTED, is_managed=False, digest="")])).act is Act.ADOPT

    def test_a_class_that_is_being_deleted_is_waited_for(self) -> None:
        assert only(plan([WANTED], [found_as(WANTED, is_going=True)])).act is Act.WAIT

    def test_a_system_class_is_never_touched_even_if_somebody_wants_one(self) -> None:
        system = Found(name="system-node-critical", value=2000001000, is_managed=True)
        wanted = PriorityClass(name="system-node-critical", value=5, adopt=True)
        assert only(plan([], [system])).act is Act.SYSTEM
        assert only(plan([wanted], [system], overwrite={wanted.name})).act is Act.SYSTEM

    def test_what_was_taken_out_with_delete_is_deleted(self) -> None:
        was = msgspec.structs.replace(WANTED, deletion_policy="Delete")
        assert only(plan([], [found_as(WANTED)], withdrawn=[was])).act is Act.DELETE

    @pytest.mark.parametrize(
        ("was", "fields"),
        [
            pytest.param([WANTED], {}, id="Keep"),
            pytest.param([], {}, id="never published here"),
            pytest.param(
                [msgspec.structs.replace(WANTED, deletion_policy="Delete")], {"is_made_by_berth": False}, id="adopted"
            ),
            pytest.param(
                [msgspec.structs.replace(WANTED, deletion_policy="Delete")], {"is_going": True}, id="going already"
            ),
        ],
    )
    def test_whatever_else_was_taken_out_stays(self, was: list[PriorityClass], fields: dict[str, Any]) -> None:
        step = only(plan([], [found_as(WANTED, **fields)], withdrawn=was))
        assert step.act is Act.KEEP
        assert step.message

    def test_what_carries_no_label_is_foreign_whatever_was_published(self) -> None:
        was = msgspec.structs.replace(WANTED, deletion_policy="Delete")
        assert only(plan([], [found_as(WANTED, is_managed=False)], withdrawn=[was])).act is Act.FOREIGN

    def test_the_global_default_is_given_up_in_one_look_and_taken_in_the_next(self) -> None:
        old, new = make_priority_class("old", 1, globalDefault=True), make_priority_class("new", 2, globalDefault=True)
        gives_up = make_priority_class("old", 1)
        first = {step.name: step for step in plan([gives_up, new], [found_as(old)])}
        assert (first["old"].act, first["new"].act) == (Act.UPDATE, Act.WAIT)
        assert "once old isn't" in first["new"].message
        second = plan([gives_up, new], [found_as(gives_up)])
        assert [(step.name, step.act) for step in second] == [("old", Act.NOTHING), ("new", Act.CREATE)]

    def test_the_global_default_waits_for_a_deletion_too(self) -> None:
        old, new = make_priority_class("old", 1, globalDefault=True), make_priority_class("new", 2, globalDefault=True)
        was = msgspec.structs.replace(old, deletion_policy="Delete")
        acts = {step.name: step.act for step in plan([new], [found_as(old)], withdrawn=[was])}
        assert acts == {"old": Act.DELETE, "new": Act.WAIT}

    def test_the_global_default_of_others_is_for_the_api_server_to_refuse(self) -> None:
        old, new = make_priority_class("old", 1, globalDefault=True), make_priority_class("new", 2, globalDefault=True)
        steps = {step.name: step for step in plan([new], [found_as(old, is_managed=False)])}
        assert {name: step.act for name, step in steps.items()} == {"old": Act.FOREIGN, "new": Act.CREATE}
        assert "refuses it while old is the global default, and that stays: Berth doesn't" in steps["new"].message

    def test_the_global_default_that_was_taken_out_and_stays_is_named_where_it_is_in_the_way(self) -> None:
        old, new = make_priority_class("old", 1, globalDefault=True), make_priority_class("new", 2, globalDefault=True)
        found = [found_as(old), found_as(make_priority_class("new", 1))]
        steps = {step.name: step for step in plan([new], found, withdrawn=[old])}
        assert {name: step.act for name, step in steps.items()} == {"old": Act.KEEP, "new": Act.REPLACE}
        assert "value is 1 in the cluster and 2 here" in steps["new"].message
        assert steps["new"].message.endswith("and that stays: Removed here; its deletionPolicy was Keep.")

    def test_the_new_default_comes_after_the_others_and_deletions_last(self) -> None:
        wanted = [make_priority_class("a", 1, globalDefault=True), make_priority_class("b", 2)]
        was = msgspec.structs.replace(WANTED, name="0", deletion_policy="Delete")
        assert [step.name for step in plan(wanted, [found_as(was)], withdrawn=[was])] == ["b", "a", "0"]


NAMES = st.sampled_from(["a", "b", "c", "system-node-critical"])
WORDS = st.sampled_from(["", "x"])
POLICIES = st.sampled_from(["PreemptLowerPriority", "Never"])
VALUES = st.integers(1, 2)
WANTEDS = st.builds(
    PriorityClass, name=NAMES, value=VALUES, global_default=st.booleans(), preemption_policy=POLICIES,
    description=WORDS, adopt=st.booleans(), deletion_policy=st.sampled_from(["Keep", "Delete"]),
)  # fmt: skip
FOUNDS = st.builds(
    Found, name=NAMES, value=VALUES, global_default=st.booleans(), preemption_policy=POLICIES, description=WORDS,
    is_managed=st.booleans(), is_made_by_berth=st.booleans(), is_going=st.booleans(),
    digest=st.one_of(st.just(""), WANTEDS.map(digest_of)), uid=st.just("u"), resource_version=st.just("1"),
)  # fmt: skip


def by_name(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(values, max_size=4, unique_by=lambda each: each.name)


class TestPlanOverAllCases:
    @given(wanted=by_name(WANTEDS), found=by_name(FOUNDS), withdrawn=by_name(WANTEDS), overwrite=st.sets(NAMES))
    def test_every_class_has_one_step_and_nothing_of_others_is_touched(
        self, wanted: list[PriorityClass], found: list[Found], withdrawn: list[PriorityClass], overwrite: set[str]
    ) -> None:
        steps = plan(wanted, found, withdrawn=withdrawn, overwrite=overwrite)
        there, here = {each.name: each for each in found}, {each.name: each for each in wanted}
        assert sorted(step.name for step in steps) == sorted(here | there)
        for step in steps:
            if step.act not in SENT or step.act is Act.CREATE:
                continue
            class_there = there[step.name]
            assert not class_there.is_system
            assert class_there.is_managed or (step.act is Act.ADOPT and here[step.name].adopt)
            if step.act is Act.DELETE:
                (was,) = [each for each in withdrawn if each.name == step.name]
                assert class_there.is_made_by_berth
                assert was.deletion_policy == "Delete"
                assert step.name not in here

    @given(wanted=by_name(WANTEDS), found=by_name(FOUNDS), withdrawn=by_name(WANTEDS))
    def test_the_order_of_the_input_changes_nothing(
        self, wanted: list[PriorityClass], found: list[Found], withdrawn: list[PriorityClass]
    ) -> None:
        assert plan(wanted, found, withdrawn=withdrawn) == plan(wanted[::-1], found[::-1], withdrawn=withdrawn[::-1])

    @given(wanted=by_name(WANTEDS), found=by_name(FOUNDS), withdrawn=by_name(WANTEDS))
    def test_looking_again_ends_with_nothing_left_to_send_but_what_is_refused(
        self, wanted: list[PriorityClass], found: list[Found], withdrawn: list[PriorityClass]
    ) -> None:
        defaults = [each for each in found if each.global_default]
        found = [
            each if each in defaults[:1] else msgspec.structs.replace(each, global_default=False) for each in found
        ]
        wanted = [each for each in wanted if not each.name.startswith("system-")]
        taking = [each.name for each in wanted if each.global_default]
        wanted = [
            msgspec.structs.replace(each, global_default=each.global_default and each.name == taking[0])
            for each in wanted
        ]
        server = PriorityServer(found)
        for _ in range(3):
            outcomes = apply(plan(wanted, read_classes(server), withdrawn=withdrawn), server)
        left = [step for step in plan(wanted, read_classes(server), withdrawn=withdrawn) if step.act in SENT]
        refused = {outcome.step.name for outcome in outcomes if outcome.state == "refused"}
        assert {step.name for step in left} == refused
        held = [name for name, each in server.classes.items() if each["globalDefault"]]
        assert len(held) <= 1
        assert not refused or held


class TestApply:
    def test_what_is_made_carries_the_label_and_what_is_deleted_is_gone(self) -> None:
        server = PriorityServer()
        (made,) = apply(plan([WANTED], []), server)
        assert (made.state, made.found) == ("applied", read_classes(server)[0])
        assert server.classes["batch"]["metadata"]["labels"] == {LABEL: "berth"}
        assert plan([WANTED], read_classes(server))[0].act is Act.NOTHING
        was = msgspec.structs.replace(WANTED, deletion_policy="Delete")
        (gone,) = apply(plan([], read_classes(server), withdrawn=[was]), server)
        assert (gone.state, gone.found, server.classes) == ("deleted", None, {})

    def test_what_is_adopted_keeps_the_labels_of_others_and_is_never_deleted(self) -> None:
        server = PriorityServer([found_as(WANTED, is_managed=False, is_made_by_berth=False, digest="")])
        server.classes["batch"]["metadata"]["labels"] = {"team": "data"}
        wanted = msgspec.structs.replace(WANTED, adopt=True, deletion_policy="Delete")
        (outcome,) = apply(plan([wanted], read_classes(server)), server)
        assert outcome.state == "applied"
        metadata = server.classes["batch"]["metadata"]
        assert metadata["labels"] == {"team": "data", LABEL: "berth"}
        assert metadata["annotations"][ORIGIN] == "adopted"
        assert only(plan([], read_classes(server), withdrawn=[wanted])).act is Act.KEEP

    def test_what_needs_nothing_sends_nothing(self) -> None:
        server = PriorityServer([found_as(WANTED)])
        server.have_system_classes()
        outcomes = apply(plan([WANTED], read_classes(server)), server)
        assert [outcome.state for outcome in outcomes] == ["applied", "system", "system"]
        assert server.changes == []
        assert all(outcome.is_finished for outcome in outcomes)

    @pytest.mark.parametrize(
        ("fault", "state", "said"),
        [
            (APIForbiddenError("no right"), "refused", "The API server refused: no right"),
            (APIInvalidError("too high"), "refused", "The API server refused: too high"),
            (APIConflictError("exists"), "pending", "changed in the cluster at the same moment"),
            (APINotFoundError("no such"), "pending", "changed in the cluster at the same moment"),
            (APIUnavailableError("away"), "pending", "away"),
            (APITimeoutError("silent"), "pending", "silent"),
        ],
    )
    def test_a_fault_is_said_beside_the_class(self, fault: APIError, state: str, said: str) -> None:
        server = PriorityServer()
        server.fault = fault
        (outcome,) = apply(plan([WANTED], []), server)
        assert outcome.state == state
        assert said in outcome.message
        assert not outcome.is_finished

    def test_a_deletion_that_fails_leaves_the_class_kept_and_unfinished(self) -> None:
        was = msgspec.structs.replace(WANTED, deletion_policy="Delete")
        for fault in (APIForbiddenError("no right"), APIUnavailableError("away")):
            server = PriorityServer([found_as(WANTED)])
            server.fault = fault
            (outcome,) = apply(plan([], [found_as(WANTED)], withdrawn=[was]), server)
            assert (outcome.state, outcome.is_finished) == ("kept", False)
            assert str(fault) in outcome.message

    def test_an_api_server_that_is_away_isnt_asked_for_the_rest(self) -> None:
        server = PriorityServer()
        server.fault = APIUnavailableError("away")
        outcomes = apply(plan([make_priority_class(name) for name in "abc"], []), server)
        assert [(each.state, each.message) for each in outcomes] == [("pending", "away")] * 3
        assert server.changes == ["POST"]

    def test_a_class_that_is_refused_doesnt_hold_up_the_others(self) -> None:
        server = PriorityServer([found_as(make_priority_class("mine", 1, globalDefault=True), is_managed=False)])
        wanted = [make_priority_class("a", 1, globalDefault=True), make_priority_class("b", 2)]
        states = {each.step.name: each.state for each in apply(plan(wanted, read_classes(server)), server)}
        assert states == {"a": "refused", "b": "applied", "mine": "foreign"}

    def test_what_changed_since_it_was_read_isnt_touched(self) -> None:
        before = make_priority_class("batch", 1000, "before")
        server = PriorityServer([found_as(before)])
        steps = plan([WANTED], read_classes(server))
        server.have("batch", description="mine")
        (outcome,) = apply(steps, server)
        assert outcome.state == "pending"
        assert server.classes["batch"]["description"] == "mine"

    def test_nothing_more_is_sent_once_it_may_not_go_on(self) -> None:
        server = PriorityServer()
        answers = iter([True, False])
        steps = plan([make_priority_class(name) for name in "abc"], [])
        outcomes = apply(steps, server, may_go_on=lambda: next(answers))
        assert [each.state for each in outcomes] == ["applied", "pending", "pending"]
        assert set(server.classes) == {"a"}

    def test_an_answer_that_is_none_of_kubernetes_is_a_fault_of_the_server(self) -> None:
        server = PriorityServer()
        server.classes["x"] = {"metadata": {"name": 7}}
        with pytest.raises(APIUnavailableError, match=r"^GET /apis/\S+: the answer isn't what Kubernetes gives"):
            read_classes(server)
