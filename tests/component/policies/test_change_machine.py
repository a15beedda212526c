"""Several people, several Changes, several doors, in any order: what may never be, never is."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import transaction
from hypothesis import HealthCheck, given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from policies import publishing
from policies.engine import ruleset as engine
from policies.models import Change, ChangeEvent, Revision, RuleSet, RuleSetVersion
from policies.publishing import Edit, PublishingError
from tests.builders import make_rule_set

pytestmark = pytest.mark.django_db

PEOPLE = {"alice": ("Operator",), "bob": ("Operator", "Approver"), "carol": ("Approver",), "dave": ("Auditor",)}
NAMES = ("web", "data")
BUILTINS = ("PodFitsHost", "MatchNodeSelector", "PodToleratesNodeTaints")
AUTHORING = {"open", "edit", "rebase"}

people = st.sampled_from(sorted(PEOPLE))
changes = st.integers(0, 3)
edits = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((*BUILTINS, None)), min_size=1)
steps = st.one_of(
    st.tuples(st.just("open"), people, edits),
    st.tuples(st.just("edit"), people, changes, edits, st.booleans()),
    st.tuples(st.just("rebase"), people, changes, st.sets(st.sampled_from(NAMES))),
    st.tuples(st.sampled_from(["submit", "reopen", "withdraw", "reject"]), people, changes),
    st.tuples(st.sampled_from(["approve", "publish"]), people, changes, st.booleans()),
    st.tuples(st.just("form"), people, st.sampled_from(NAMES), st.sampled_from(BUILTINS)),
    st.tuples(st.just("roll back"), people, st.integers(1, 3)),
)


def edit_of(name: str, builtin: str | None) -> Edit:
    value = make_rule_set(name, filters=[{"builtin": builtin}]) if builtin else None
    return Edit("RuleSet", name, value)


def live() -> dict[str, str]:
    return {each.name: each.spec.filters[0].builtin for each in publishing.current_revision().rule_sets}


class World:
    """Drives the verbs, and keeps in plain dicts what each Change has to make."""

    def __init__(self) -> None:
        self.users = {}
        for name, roles in PEOPLE.items():
            user = User.objects.create_user(name)
            user.groups.set(Group.objects.filter(name__in=roles))
            self.users[name] = user
        self.changes: list[Change] = []
        self.makes: list[dict[str, str | None]] = []
        # The digest before the last one: what somebody saw who looked too early.
        self.stale: list[str] = []

    def step(self, kind: str, person: str, *rest: Any) -> None:
        before, count = live(), Revision.objects.count()
        try:
            getattr(self, f"do_{kind.replace(' ', '_')}")(self.users[person], *rest)
        except (PublishingError, IndexError):
            assert (live(), Revision.objects.count()) == (before, count), "a refusal changes nothing"

    def _now(self, index: int, *, looked_too_early: bool = False) -> dict[str, Any]:
        change = self.changes[index]
        change.refresh_from_db()
        return {"change": change, "expected_digest": self.stale[index] if looked_too_early else change.digest}

    def do_open(self, by: User, wanted: dict[str, str | None]) -> None:
        made = publishing.open_change(title="t", edits=[edit_of(*item) for item in wanted.items()], by=by)
        self.changes.append(made)
        self.makes.append({name: builtin for name, builtin in wanted.items() if live().get(name) != builtin})
        self.stale.append("0" * 64)

    def do_edit(self, by: User, index: int, wanted: dict[str, str | None], early: bool) -> None:
        now = self._now(index, looked_too_early=early)
        old = self.changes[index].digest
        publishing.edit_change(edits=[edit_of(*item) for item in wanted.items()], by=by, **now)
        assert not early, "an edit over one that wasn't seen"
        for name, builtin in wanted.items():
            self.makes[index].pop(name, None)
            if live().get(name) != builtin:
                self.makes[index][name] = builtin
        if Change.objects.get(pk=self.changes[index].pk).digest != old:
            self.stale[index] = old

    def do_rebase(self, by: User, index: int, theirs: set[str]) -> None:
        now = self._now(index)
        old, number = self.changes[index].digest, publishing.current_revision().number
        moved = {each.name for each in publishing.moved_of(self.changes[index])}
        keys = [("RuleSet", name) for name in theirs]
        publishing.rebase_change(by=by, expected_revision=number, take_theirs=keys, **now)
        for name in moved:
            if name in theirs or live().get(name) == self.makes[index][name]:
                del self.makes[index][name]
        if moved:
            self.stale[index] = old

    def do_submit(self, by: User, index: int) -> None:
        publishing.submit_change(by=by, **self._now(index))

    def do_reopen(self, by: User, index: int) -> None:
        publishing.reopen_change(change=self._now(index)["change"], by=by)

    def do_withdraw(self, by: User, index: int) -> None:
        publishing.withdraw_change(change=self._now(index)["change"], by=by)

    def do_reject(self, by: User, index: int) -> None:
        publishing.reject_change(by=by, text="no", **self._now(index))

    def do_approve(self, by: User, index: int, early: bool) -> None:
        publishing.approve_change(by=by, **self._now(index, looked_too_early=early))
        assert not early

    def do_publish(self, by: User, index: int, early: bool) -> None:
        before = live()
        publishing.publish_change(by=by, **self._now(index, looked_too_early=early))
        assert not early
        wanted = {**before, **self.makes[index]}
        assert live() == {name: builtin for name, builtin in wanted.items() if builtin}

    def do_form(self, by: User, name: str, builtin: str) -> None:
        with transaction.atomic():
            row = RuleSet.objects.filter(name=name).first()
            draft = (
                publishing.new_draft(rule_set=row, by=by)
                if row
                else publishing.create_rule_set(name=name, description="", by=by)
            )
            content = make_rule_set(name, filters=[{"builtin": builtin}])
            publishing.publish(version=publishing.save_draft(version=draft, rule_set=content, by=by), by=by, reason="")

    def do_roll_back(self, by: User, number: int) -> None:
        publishing.roll_back(to_number=number, by=by, reason="")

    def check(self) -> None:
        """What may never be."""
        for number, change in enumerate(Change.objects.filter(state="published").order_by("revision_id"), 1):
            assert change.revision_id == number, "Revisions without a gap, one by each Change"
            events = list(ChangeEvent.objects.filter(change=change))
            authors = {event.by for event in events if event.act in AUTHORING}
            (published,) = (event for event in events if event.act == "publish")
            approved = {event.by for event in events if event.act == "approve" and event.digest == published.digest}
            assert approved - authors, "nothing unapproved, by nobody who edited it"
            assert not {event.by for event in events if event.act == "approve"} & {"alice", "dave"}
        versions = RuleSetVersion.objects.filter(state="published").values_list("rule_set__name", "number")
        found = {each.name: each.version for each in publishing.current_revision().rule_sets}
        assert len(versions) == len(found), "one published version of each that is live"
        assert dict(versions) == found
        for change, makes in zip(self.changes, self.makes, strict=True):
            made = {edit.name: edit.value for edit in publishing.edits_of(change)}
            kept = {
                name: value.spec.filters[0].builtin if isinstance(value, engine.RuleSet) else None
                for name, value in made.items()
            }
            assert kept == makes, "no edit is lost, and none comes from nowhere"


def run(drawn: list[tuple[Any, ...]], look: Callable[[World], None] = World.check) -> World:
    world = World()
    for each in drawn:
        world.step(*each)
        look(world)
    return world


@pytest.fixture
def reviewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True))


@given(st.lists(steps, min_size=4, max_size=25))
@of_hypothesis(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_is_unapproved_self_approved_lost_or_twice(reviewed: None, drawn: list[tuple[Any, ...]]) -> None:
    with transaction.atomic():
        run(drawn)
        transaction.set_rollback(True)


def test_the_machine_reaches_what_it_is_about(reviewed: None) -> None:
    """A walk through all of it: without one, a machine that refuses everything would pass."""
    world = run(
        [
            ("open", "alice", {"web": "PodFitsHost"}),
            ("open", "bob", {"web": "MatchNodeSelector"}),
            ("submit", "alice", 0),
            ("submit", "bob", 1),
            ("approve", "bob", 1, False),
            ("approve", "carol", 0, False),
            ("approve", "carol", 1, False),
            ("publish", "alice", 0, False),
            ("publish", "bob", 1, False),
            ("rebase", "bob", 1, set()),
            ("publish", "bob", 1, False),
            ("approve", "carol", 1, False),
            ("publish", "bob", 1, False),
            ("form", "bob", "web", "PodToleratesNodeTaints"),
            ("roll back", "carol", 1),
        ]
    )
    assert live() == {"web": "MatchNodeSelector"}
    assert [change.state for change in Change.objects.order_by("pk")[:2]] == ["published", "published"]
    assert Revision.objects.count() == 2
    assert len(world.changes) == 2
