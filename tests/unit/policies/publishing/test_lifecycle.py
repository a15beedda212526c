"""What may be done with a Change: each act of each role in each state, as the reviewed table says it."""

from itertools import product
from pathlib import Path

import pytest

from policies.publishing import lifecycle
from policies.publishing.lifecycle import Actor, Need, Standing, refusal, refusal_to_be_asked, state_after

# Reviewed by people: a line for each role and state, with the acts that may be done.
TABLE = Path(__file__).with_name("change_acts.txt")

ACTS = (
    *("edit", "rebase", "submit", "gate", "ask", "comment", "approve", "reject"),
    *("reopen", "withdraw", "schedule", "publish", "urgent"),
)
STATES = ("draft", "in_review", "approved", "published", "rejected", "withdrawn")
ROLES = {
    "outsider": Actor("outsider"),
    "viewer": Actor("viewer"),
    "operator": Actor("operator", may_edit=True, may_publish=True),
    "author": Actor("author", may_edit=True, may_publish=True),
    "approver": Actor("approver", may_publish=True, may_approve=True),
    "administrator": Actor("administrator", may_edit=True, may_publish=True, may_approve=True),
    "emergency": Actor("emergency", may_publish=True, may_break_glass=True),
    "command": Actor("command", may_edit=True, may_publish=True),
}


def standing(state: str, **more: object) -> Standing:
    approved = frozenset({"somebody"}) if state == "approved" else frozenset()
    facts = {"authors": frozenset({"author"}), "approved_by": approved, "needed": 1} | more
    return Standing(state=state, **facts)  # type: ignore[arg-type] # each is what its name says


def computed_table() -> str:
    lines = []
    for role, state in product(ROLES, STATES):
        acts = [act for act in ACTS if not refusal(act, ROLES[role], standing(state))]
        lines.append(f"{role:>13}  {state:<9}  {' '.join(acts) or '-'}")
    return "\n".join(lines) + "\n"


def test_each_role_may_do_in_each_state_what_the_table_says() -> None:
    assert computed_table() == TABLE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("act", "state", "role"), list(product(ACTS, STATES, ROLES)))
def test_a_refusal_is_a_sentence_and_whoever_may_do_it_is_led_on(act: str, state: str, role: str) -> None:
    said = refusal(act, ROLES[role], standing(state))
    assert not said or said.endswith(".")


@pytest.mark.parametrize("needed", [1, 2])
def test_an_authors_approval_counts_for_nothing(needed: int) -> None:
    facts = standing("in_review", approved_by=frozenset({"author"}), needed=needed)
    assert facts.approvals == 0
    assert "people who didn't edit it" in refusal("publish", ROLES["operator"], facts)


def test_nobody_approves_what_they_edited_whatever_else_they_may() -> None:
    facts = standing("in_review", authors=frozenset({"administrator"}))
    said = refusal("approve", ROLES["administrator"], facts)
    assert said == "administrator edited it, and nobody can approve what they edited; somebody else has to."


def test_as_many_have_to_approve_as_the_setting_says() -> None:
    one = standing("in_review", approved_by=frozenset({"a"}), needed=2)
    assert state_after("approve", one) == "in_review"
    assert "It needs 1 more approval" in refusal("publish", ROLES["operator"], one)
    two = standing("approved", approved_by=frozenset({"a", "b"}), needed=2)
    assert state_after("approve", two) == "approved"
    assert not refusal("publish", ROLES["operator"], two)


@pytest.mark.parametrize("state", ["in_review", "approved"])
def test_who_has_approved_what_it_makes_is_told_so(state: str) -> None:
    facts = standing(state, approved_by=frozenset({"approver"}), needed=2)
    said = refusal("approve", ROLES["approver"], facts)
    assert said == "approver has approved its current result; another approval would change nothing."
    assert not refusal("approve", ROLES["administrator"], facts)


@pytest.mark.parametrize("act", ["approve", "publish"])
def test_what_moved_has_to_be_rebased_first(act: str) -> None:
    facts = standing("approved", moved=("RuleSet web",))
    assert "published another RuleSet web since; rebase it" in refusal(act, ROLES["administrator"], facts)


@pytest.mark.parametrize(
    ("state", "after"), [("draft", "draft"), ("in_review", "in_review"), ("approved", "in_review")]
)
def test_an_edit_takes_an_approved_change_back_to_review(state: str, after: str) -> None:
    assert state_after("edit", standing(state, approved_by=frozenset())) == after


def test_where_no_review_is_required_a_draft_is_published_as_it_is() -> None:
    assert not refusal("publish", ROLES["operator"], standing("draft", needed=0))
    assert not refusal("publish", ROLES["command"], standing("draft", needed=0))
    assert refusal("publish", ROLES["operator"], standing("draft", needed=0, is_empty=True)) == "It has no edits."
    assert refusal("approve", ROLES["approver"], standing("in_review", is_empty=True)) == "It has no edits."


def test_what_was_published_in_an_emergency_waits_for_somebody_elses_approval() -> None:
    facts = standing("published", urgent_by="administrator", approved_by=frozenset())
    assert facts.waits_for_approval_afterwards
    assert "published it without approval; somebody else" in refusal("approve", ROLES["administrator"], facts)
    assert not refusal("approve", ROLES["approver"], facts)
    done = standing("published", urgent_by="administrator", approved_by=frozenset({"approver"}))
    assert not done.waits_for_approval_afterwards
    assert state_after("approve", done) == "published"
    assert refusal("approve", ROLES["approver"], standing("published"))


def test_who_approves_and_then_publishes_in_an_emergency_is_not_the_second_pair_of_eyes() -> None:
    facts = standing("published", urgent_by="approver", approved_by=frozenset({"approver"}))
    assert facts.approvals == 0
    assert facts.waits_for_approval_afterwards


def test_of_two_approvals_after_an_emergency_nobody_gives_both() -> None:
    facts = standing("published", urgent_by="emergency", approved_by=frozenset({"approver"}), needed=2)
    assert facts.waits_for_approval_afterwards
    assert "approver has approved its current result" in refusal("approve", ROLES["approver"], facts)
    assert not refusal("approve", ROLES["administrator"], facts)


def test_who_only_edits_withdraws_their_own_and_nobody_elses() -> None:
    author, colleague = (Actor(name, may_edit=True) for name in ("author", "colleague"))
    assert not refusal("withdraw", author, standing("in_review"))
    said = "colleague may not withdraw it; its authors and who publishes may."
    assert refusal("withdraw", colleague, standing("in_review")) == said


@pytest.mark.parametrize("state", ["draft", "in_review", "approved"])
def test_who_opens_again_what_is_open_is_led_to_no_other_act(state: str) -> None:
    assert refusal("reopen", ROLES["operator"], standing(state)).endswith(", and so open already.")


def test_an_emergency_does_not_publish_over_what_moved() -> None:
    said = refusal("urgent", ROLES["emergency"], standing("draft", moved=("RuleSet web",)))
    assert "published another RuleSet web since; rebase it" in said


def test_open_states_are_those_that_can_still_go_live() -> None:
    able = {state for state in STATES if not refusal("publish", ROLES["operator"], standing(state, needed=0))}
    assert able == lifecycle.OPEN


@pytest.mark.parametrize(
    ("act", "scopes"), [("gate", "edit review publish"), ("comment", "edit review"), ("ask", "edit review")]
)
def test_any_right_that_an_act_takes_is_enough_of_a_person_and_of_a_token(act: str, scopes: str) -> None:
    for scope in ("read", *scopes.split()):
        may = {{"edit": "may_edit", "review": "may_approve", "publish": "may_publish"}.get(scope, "may_pause"): True}
        for actor in (Actor("somebody", **may), Actor("somebody", **may, token="token ci", scopes={scope})):
            assert bool(refusal(act, actor, standing("in_review"))) is (scope == "read"), (act, scope)


def of_group(*members: str) -> Need:
    return Need("rule set web", 1, "Payments", frozenset(members))


def test_approvals_of_a_group_are_counted_by_themselves_and_the_stricter_wins() -> None:
    by_another = standing("in_review", approved_by=frozenset({"a", "b"}), needs=(of_group(),))
    assert (
        refusal("publish", ROLES["operator"], by_another) == "For rule set web it needs 1 more approval from Payments."
    )
    assert state_after("approve", by_another) == "in_review"
    by_a_member = standing("in_review", approved_by=frozenset({"a", "b"}), needs=(of_group("b"),))
    assert state_after("approve", by_a_member) == "approved"
    where_nothing_else_asks = standing("in_review", approved_by=frozenset({"b"}), needed=0, needs=(of_group("b"),))
    assert state_after("approve", where_nothing_else_asks) == "approved"
    by_too_few = standing("in_review", approved_by=frozenset({"b"}), needed=2, needs=(of_group("b"),))
    assert refusal("publish", ROLES["operator"], by_too_few).startswith("It needs 1 more approval")


def test_each_rule_set_that_is_touched_has_to_be_approved() -> None:
    needs = (of_group("a"), Need("rule set data", 2, "Storage", frozenset({"b"})))
    facts = standing("in_review", approved_by=frozenset({"a", "b"}), needs=needs)
    assert facts.missing == ["For rule set data it needs 1 more approval from Storage."]


def test_an_author_in_the_group_does_not_count() -> None:
    facts = standing("in_review", approved_by=frozenset({"author"}), needs=(of_group("author"),))
    assert len(facts.missing) == 2


def test_only_who_may_approve_it_can_be_asked() -> None:
    facts = standing("in_review", needed=0, needs=(of_group(),))
    asked = [("operator", set()), ("approver", set()), ("approver", {"Payments"})]
    said = [refusal_to_be_asked(ROLES[name], groups, facts, asking="operator") for name, groups in asked]
    assert said == [
        "operator may not approve Changes; ask an Approver.",
        "approver's approval doesn't count here; ask somebody in Payments.",
        "",
    ]
    edited = standing("in_review", authors=frozenset({"approver"}))
    assert "edited it" in refusal_to_be_asked(ROLES["approver"], frozenset(), edited, asking="operator")


def test_nobody_asks_themselves_for_a_review() -> None:
    facts = standing("in_review")
    said = refusal_to_be_asked(ROLES["approver"], frozenset(), facts, asking="approver")
    assert said == "approver need not be asked: approve it, or ask somebody else."
    assert not refusal_to_be_asked(ROLES["approver"], frozenset(), facts, asking="operator")


@pytest.mark.parametrize(
    ("role", "way"),
    [
        ("operator", "send it to review"),
        ("approver", "an Operator has to send it to review"),
        ("emergency", "an Operator can send it to review; in an emergency publish it without approval"),
    ],
)
def test_a_draft_tells_each_role_a_way_to_publish_it_that_the_role_has(role: str, way: str) -> None:
    said = refusal("publish", ROLES[role], standing("draft"))
    assert said == f"It needs 1 more approval from people who didn't edit it: {way}."


def test_an_emergency_is_marked_even_where_no_approval_is_needed_by_now() -> None:
    facts = standing("published", urgent_by="emergency", needed=0)
    assert facts.waits_for_approval_afterwards
    assert not refusal("ask", ROLES["operator"], facts)
