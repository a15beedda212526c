"""Tokens at every verb of `policies.publishing`: the scopes that it takes, and nothing out of reach, by whichever way."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from policies import publishing
from policies.engine.ruleset import Assignment
from policies.models import AuditEvent, Change
from policies.publishing import Edit, OnBehalf, PublishingError
from policies.scopes import EDIT, PUBLISH, REVIEW, SCOPES, Reach
from tests.builders import make_assignment, make_exemption, make_pause, make_priority_class, make_rule_set
from tests.component.pages import publish_all
from tests.component.policies.test_audit import ACTS, root, since
from tests.component.policies.test_changes import A, B, C

pytestmark = pytest.mark.django_db
__all__ = ["root"]  # the fixture

# The scopes that a verb takes of a token: all of them, or any, where there are several sets.
_E, _R, _P, _EP = frozenset({EDIT}), frozenset({REVIEW}), frozenset({PUBLISH}), frozenset({EDIT, PUBLISH})
NEEDED: dict[str, tuple[frozenset[str], ...]] = {
    **dict.fromkeys(
        ("open_change", "save_edit", "edit_change", "describe_change", "discard_edits", "rebase_change"), (_E,)
    ),
    **dict.fromkeys(
        ("submit_change", "reopen_change", "set_expiry", "claim", "begin_change", "begin_once", "reorder"), (_E,)
    ),
    **dict.fromkeys(("propose_roll_back", "propose_going_back", "propose_adoption", "propose_archiving"), (_E,)),
    "run_gate": (_E, _R, _P),
    "ask_for_review": (_E, _R),
    "comment_on_change": (_E, _R),
    **dict.fromkeys(("approve_change", "reject_change"), (_R,)),
    **dict.fromkeys(("publish_change", "publish_urgently", "schedule_change", "roll_back", "put_back"), (_P,)),
    **dict.fromkeys(("pause", "resume", "bring_back"), (_P,)),
    **dict.fromkeys(("go_back", "adopt", "archive", "exempt", "end_exemption", "withdraw_change"), (_EP,)),
    # Of what an administrator alone may, no token has anything.
    **dict.fromkeys(("set_review", "set_gate_level"), ()),
}
# By the clock, and by what a command has found; what is read, REST's doors ask for.
WITHOUT_ACTOR = {"publish_due", "record_gate", "export"}
# They touch nothing yet, something new, or settings that no token has.
TOUCH_NOTHING = {"begin_change", "begin_once", "save_edit", "set_review", "set_gate_level"}


def token(owner: User, *scopes: str, **reach: tuple[str, ...]) -> OnBehalf:
    return OnBehalf(owner, "token ci (abcdefgh)", frozenset(scopes), Reach(**reach))


def test_the_table_has_every_verb() -> None:
    assert NEEDED.keys() | WITHOUT_ACTOR == ACTS.keys()


@pytest.mark.parametrize("verb", sorted(NEEDED))
def test_a_verb_takes_its_scopes_of_a_token_and_no_others(root: User, verb: str) -> None:
    act = ACTS[verb][0]()
    before = AuditEvent.objects.first()
    needed = NEEDED[verb]
    lacking = [set(SCOPES).difference(*needed)]
    if len(needed) == 1:
        lacking += [set(SCOPES) - {each} for each in needed[0]]
    for scopes in lacking:
        with pytest.raises(PublishingError):
            act(token(root, *scopes))
        assert since(before) == [], "it was refused"
    for some in needed[-1:]:
        act(token(root, *some))
        assert {event.via for event in since(before)} == {"token ci (abcdefgh)"}
        assert {event.by for event in since(before)} == {"root"}


@pytest.mark.parametrize("reach", [{"rule_sets": ("other-*",)}, {"namespaces": ("other",)}])
@pytest.mark.parametrize("verb", sorted(NEEDED.keys() - TOUCH_NOTHING))
def test_no_verb_touches_what_a_token_does_not_reach(root: User, verb: str, reach: dict[str, tuple[str, ...]]) -> None:
    publish_all(make_assignment("all-web", "web"))
    act = ACTS[verb][0]()
    before = AuditEvent.objects.first()
    with pytest.raises(PublishingError):
        act(token(root, *SCOPES, **reach))
    assert since(before) == []


TEAM_A: dict[str, tuple[str, ...]] = {"rule_sets": ("team-a-*",), "namespaces": ("team-a", "team-a-*")}


def give(name: str, rule_set: str, *namespaces: str, **match: Any) -> Assignment:
    return make_assignment(name, rule_set, match={"namespaces": list(namespaces), **match})


@pytest.fixture
def team_a(root: User) -> OnBehalf:
    """A token of a team's pipeline, beside another team's things."""
    publish_all(
        make_rule_set("team-a-web", **A),
        make_rule_set("team-b-x", **A),
        give("team-a-live", "team-a-web", "team-a"),
        give("team-b-live", "team-b-x", "team-b"),
        give("team-a-of-b", "team-b-x", "team-a"),
        give("team-a-wide", "team-a-web", "team-a", "team-b"),
        give("shared-live", "team-a-web", "team-a"),
        make_pause("b-paused", "RuleSet/team-b-x"),
        make_exemption("b-exempted", "RuleSet/team-b-x"),
    )
    return token(root, *SCOPES, **TEAM_A)


OUT_OF_REACH: dict[str, Callable[[], Edit]] = {
    "another team's rule set": lambda: Edit.of(make_rule_set("team-b-x", **C)),
    "removing it": lambda: Edit("RuleSet", "team-b-x", None),
    "a new one of another name": lambda: Edit.of(make_rule_set("shared", **C)),
    "a name that only begins so": lambda: Edit.of(make_rule_set("team-a", **C)),
    "another team's Assignment": lambda: Edit.of(give("team-b-live", "team-b-x", "team-b", "team-c")),
    "taking it over with all it has": lambda: Edit.of(give("team-b-live", "team-a-web", "team-a")),
    "removing an Assignment": lambda: Edit("Assignment", "team-b-live", None),
    "an Assignment that names another's rule set": lambda: Edit.of(give("team-a-2", "team-b-x", "team-a")),
    "turning an Assignment away from it": lambda: Edit.of(give("team-a-of-b", "team-a-web", "team-a")),
    "removing an Assignment of it": lambda: Edit("Assignment", "team-a-of-b", None),
    "an Assignment for another namespace": lambda: Edit.of(give("team-a-2", "team-a-web", "team-b")),
    "an Assignment for another namespace, too": lambda: Edit.of(give("team-a-2", "team-a-web", "team-a", "team-b")),
    "taking a namespace of another out": lambda: Edit.of(give("team-a-wide", "team-a-web", "team-a")),
    "an Assignment for all namespaces": lambda: Edit.of(give("team-a-2", "team-a-web")),
    "an Assignment by labels of namespaces": lambda: Edit.of(
        give("team-a-2", "team-a-web", namespaceSelector={"matchLabels": {"team": "a"}})
    ),
    "a PriorityClass": lambda: Edit.of(make_priority_class("team-a-batch")),
    "everything": lambda: Edit.of(make_pause("all", "everything")),
    "pausing another's rule set": lambda: Edit.of(make_pause("team-a-p", "RuleSet/team-b-x")),
    "pausing a rule of it": lambda: Edit.of(make_pause("team-a-p", "RuleSet/team-b-x/team")),
    "pausing another's Assignment": lambda: Edit.of(make_pause("team-a-p", "Assignment/team-b-live")),
    "pausing an Assignment that takes another's Pods": lambda: Edit.of(
        make_pause("team-a-p", "Assignment/team-a-wide")
    ),
    "pausing an Assignment of another's rule set": lambda: Edit.of(make_pause("team-a-p", "Assignment/team-a-of-b")),
    "pausing an Assignment of another name": lambda: Edit.of(make_pause("team-a-p", "Assignment/shared-live")),
    "a new Assignment of another name": lambda: Edit.of(give("shared", "team-a-web", "team-a")),
    "resuming": lambda: Edit("Pause", "b-paused", None),
    "a Pause in place of another's": lambda: Edit.of(make_pause("b-paused", "RuleSet/team-a-web")),
    "exempting from another's rule set": lambda: Edit.of(make_exemption("team-a-e", "RuleSet/team-b-x")),
    "ending an Exemption": lambda: Edit("Exemption", "b-exempted", None),
}


@pytest.mark.parametrize("what", sorted(OUT_OF_REACH))
def test_a_token_of_one_team_cannot_touch_another_teams(team_a: OnBehalf, what: str) -> None:
    edit, mine = OUT_OF_REACH[what](), publishing.current_revision().number
    with pytest.raises(PublishingError, match="Out of reach of token ci"):
        publishing.open_change(title="t", edits=[edit], by=team_a)
    own = [Edit.of(make_assignment("team-a-live", "team-a-web", order=7, match={"namespaces": ["team-a"]}))]
    change = publishing.open_change(title="mine", edits=own, by=team_a)
    with pytest.raises(PublishingError, match="Out of reach of token ci"):
        publishing.edit_change(change=change, edits=[edit], by=team_a, expected_digest=change.digest)
    with pytest.raises(PublishingError, match="Out of reach of token ci"):
        publishing.save_edit(edit=edit, change=None, by=team_a, title="t", seen=publishing.seen_of(None, edit.key))
    assert publishing.current_revision().number == mine
    assert [row.name for row in Change.objects.get(pk=change.pk).edits.all()] == ["team-a-live"]


def test_what_an_edit_was_made_on_is_out_of_reach_too_though_it_is_not_live_any_more(team_a: OnBehalf) -> None:
    removing = Edit("Assignment", "team-a-of-b", None)
    change = publishing.open_change(title="b", edits=[removing], by="ops")
    publish_all(give("team-a-of-b", "team-a-web", "team-a"))
    with pytest.raises(PublishingError, match="its rule set team-b-x isn't among the names"):
        publishing.withdraw_change(change=change, by=team_a)


def test_it_does_with_its_own_things_what_its_owner_may(team_a: OnBehalf) -> None:
    publish_all(give("team-a-wide", "team-a-web", "team-a"))
    edits = [
        Edit.of(make_rule_set("team-a-web", **C)),
        Edit.of(make_rule_set("team-a-new", **A)),
        Edit.of(give("team-a-2", "team-a-new", "team-a-batch", podSelector={"matchLabels": {"a": "b"}})),
        Edit("Assignment", "team-a-live", None),
        Edit.of(make_pause("p", "RuleSet/team-a-web")),
    ]
    change = publishing.open_change(title="mine", edits=edits, by=team_a)
    made = publishing.publish_change(change=change, by=team_a, expected_digest=change.digest)
    assert publishing.current_revision().number == made.number
    assert publishing.resume(target="RuleSet/team-a-web", by=team_a, reason="done").revision is not None


def test_a_rule_set_is_out_of_reach_where_it_decides_about_pods_of_others(team_a: OnBehalf) -> None:
    with pytest.raises(PublishingError, match="Assignment team-a-wide gives it to Pods of namespace team-a, team-b"):
        publishing.open_change(title="t", edits=[Edit.of(make_rule_set("team-a-web", **C))], by=team_a)


ON_OTHERS: dict[str, Callable[[Change, OnBehalf], object]] = {
    "submit": lambda row, by: publishing.submit_change(change=row, by=by, expected_digest=row.digest),
    "approve": lambda row, by: publishing.approve_change(change=row, by=by, expected_digest=row.digest),
    "reject": lambda row, by: publishing.reject_change(change=row, by=by, expected_digest=row.digest, text="no"),
    "publish": lambda row, by: publishing.publish_change(change=row, by=by, expected_digest=row.digest),
    "describe": lambda row, by: publishing.describe_change(change=row, by=by, title="x", expected_digest=row.digest),
    "comment": lambda row, by: publishing.comment_on_change(change=row, by=by, text="hm"),
    "withdraw": lambda row, by: publishing.withdraw_change(change=row, by=by),
    "gate": lambda row, by: publishing.run_gate(change=row, by=by),
    "schedule": lambda row, by: publishing.schedule_change(
        change=row, by=by, publish_at=None, expected_digest=row.digest
    ),
}


@pytest.mark.parametrize("act", sorted(ON_OTHERS))
def test_a_change_of_others_is_out_of_reach_with_all_that_is_done_to_it(team_a: OnBehalf, act: str) -> None:
    change = publishing.open_change(title="b", edits=[Edit.of(make_rule_set("team-b-x", **B))], by="ops")
    if act in ("approve", "reject"):
        publishing.submit_change(change=change, by="ops", expected_digest=change.digest)
    with pytest.raises(PublishingError, match="Out of reach of token ci"):
        ON_OTHERS[act](change, team_a)


def test_names_alone_reach_no_assignment(root: User) -> None:
    publish_all(make_rule_set("team-a-web", **A))
    names_only = token(root, *SCOPES, rule_sets=("team-a-*",))
    with pytest.raises(PublishingError, match="it affects Pods of namespace team-a"):
        publishing.open_change(title="t", edits=[Edit.of(give("team-a-1", "team-a-web", "team-a"))], by=names_only)
    everywhere = token(root, *SCOPES, rule_sets=("team-a-*",), namespaces=("*",))
    publishing.open_change(title="t", edits=[Edit.of(give("team-a-1", "team-a-web"))], by=everywhere)


def test_names_alone_reach_the_pauses_and_exemptions_of_rule_sets(root: User) -> None:
    publish_all(make_rule_set("team-a-web", **A), make_rule_set("team-b-x", **A))
    names_only = token(root, *SCOPES, rule_sets=("team-a-*",))
    mine = [make_pause("p", "RuleSet/team-a-web"), make_exemption("e", "RuleSet/team-a-web")]
    publishing.open_change(title="t", edits=map(Edit.of, mine), by=names_only)
    for theirs in (make_pause("p", "RuleSet/team-b-x"), make_exemption("e", "RuleSet/team-b-x")):
        with pytest.raises(PublishingError, match="team-b-x isn't among the names team-a-"):
            publishing.open_change(title="t", edits=[Edit.of(theirs)], by=names_only)
