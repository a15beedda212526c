"""Several people, several Changes, every door, settings and times, in any order: what may never be, never is."""

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import transaction
from django.http import HttpResponse
from django.utils import timezone
from hypothesis import HealthCheck, example, given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from policies import publishing
from policies.engine import ruleset as engine
from policies.models import Change, ChangeEvent, Revision, RuleSet, RuleSetVersion
from policies.publishing import Edit, Key, Kind, PublishingError, Value
from tests.builders import make_rule_set
from tests.component.rest.asking import act_on_change
from tests.conftest import HTTPSClient

pytestmark = pytest.mark.django_db

PEOPLE = {
    "alice": ("Operator",),
    "bob": ("Operator", "Approver"),
    "carol": ("Approver", "Payments"),
    "dave": ("Auditor",),
    "erin": ("Approver",),
}
NAMES = ("web", "data")
TARGETS = ("everything", "RuleSet/web", "RuleSet/data")
BUILTINS = ("PodFitsHost", "MatchNodeSelector", "PodToleratesNodeTaints")
AUTHORING = {"open", "edit", "rebase"}
DOORS = ("admin", "command", "rest")
HOUR = timedelta(hours=1)
# `make long` walks further.
EXAMPLES = int(os.environ.get("MACHINE_EXAMPLES", "50"))

# What a thing says, and its version: 0 where it gets one by publishing, or has none.
Content = tuple[str, int]
Makes = dict[Key, Content | None]

# Operators more often: who may do nothing leads nowhere.
people = st.sampled_from(["alice", "bob", "alice", "bob", *sorted(PEOPLE)])
# The first ones, and the last one: what single acts leave in review.
changes = st.sampled_from([0, 1, 2, -1])
doors = st.sampled_from(DOORS)
hours = st.integers(1, 6)
early = st.sampled_from([False, False, True])
edits = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((*BUILTINS, None)), min_size=1)
steps = st.one_of(
    st.tuples(st.just("open"), people, edits),
    st.tuples(st.just("edit"), people, changes, edits, early),
    st.tuples(st.just("discard"), people, changes, st.sampled_from(NAMES)),
    st.tuples(st.just("rebase"), people, changes, st.sets(st.sampled_from(NAMES))),
    st.tuples(st.sampled_from(["submit", "reopen", "withdraw", "reject"]), people, changes, doors),
    st.tuples(st.sampled_from(["approve", "publish"]), people, changes, doors, early),
    # What leads further than single acts by chance do.
    st.tuples(st.just("bring"), st.just("alice"), changes, doors, st.one_of(st.none(), hours)),
    st.tuples(st.just("bring"), st.just("alice"), changes, doors, st.one_of(st.none(), hours)),
    st.tuples(st.just("send back"), st.just("carol"), changes, doors),
    st.tuples(st.just("edit late"), people, changes, doors, hours, edits),
    st.tuples(st.just("ask"), people, changes, people),
    st.tuples(st.sampled_from(["schedule", "expire"]), people, changes, doors, hours),
    st.tuples(st.just("tick"), people, hours),
    st.tuples(st.just("form"), people, st.sampled_from(NAMES), st.sampled_from(BUILTINS)),
    st.tuples(st.just("roll back"), people, st.integers(1, 3)),
    st.tuples(st.just("pause"), people, st.sampled_from(TARGETS), st.one_of(st.none(), hours)),
    st.tuples(st.just("resume"), people, st.sampled_from(TARGETS)),
    st.tuples(st.just("exempt"), people, st.sampled_from(NAMES), hours),
    st.tuples(st.just("end exemption"), people, st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["archive", "bring back"]), people, st.sampled_from(NAMES)),
    st.tuples(st.just("set"), st.sampled_from(["", *NAMES]), st.integers(0, 2), st.sampled_from(["", "Payments"])),
)


def edit_of(name: str, builtin: str | None) -> Edit:
    value = make_rule_set(name, filters=[{"builtin": builtin}]) if builtin else None
    return Edit("RuleSet", name, value)


def content(value: Value | None) -> Content | None:
    match value:
        case engine.RuleSet():
            return value.spec.filters[0].key, value.version
        case engine.Pause() | engine.Exemption():
            return f"{value.target} until {value.until or 'resumed'}", 0
        case _:
            return None


def same(one: Content | None, other: Content | None) -> bool:
    """Whether two say the same; a version that isn't numbered yet is any."""
    if one is None or other is None:
        return one is other
    return one[0] == other[0] and (one[1] == other[1] or 0 in (one[1], other[1]))


def moved(keys: Iterable[Key], one: dict[Key, Content], other: dict[Key, Content]) -> bool:
    return any(one.get(key) != other.get(key) for key in keys)


def contents_of(revision: engine.Revision | None) -> dict[Key, Content]:
    values = publishing.values_of(revision) if revision else {}
    return {key: found for key, value in values.items() if (found := content(value))}


def live() -> dict[Key, Content]:
    return contents_of(publishing.current_revision())


def live_rules() -> dict[str, str]:
    return {name: says for (kind, name), (says, _) in live().items() if kind == Kind.RULE_SET}


def made_of(change: Change) -> Makes:
    return {edit.key: content(edit.value) for edit in publishing.edits_of(change)}


def wanted_of(rules: dict[str, str | None]) -> Makes:
    return {("RuleSet", name): (builtin, 0) if builtin else None for name, builtin in rules.items()}


def rule_sets_in(key: Key, sides: tuple[Content | None, ...], before: dict[Key, Content]) -> set[str]:
    """The rule sets that one thing is about, however it was or becomes."""
    if key[0] == Kind.RULE_SET:
        return {key[1]}
    targets = {side[0].split(" until ")[0] for side in sides if side}
    all_live = {name for kind, name in before if kind == Kind.RULE_SET}
    return set().union(*(all_live if target == "everything" else {target.split("/")[1]} for target in targets))


def still_there(things: dict[Key, Content]) -> dict[Key, Content]:
    """All but Pauses and Exemptions of rule sets that are gone: these end with them."""
    names = {name for kind, name in things if kind == Kind.RULE_SET}
    targets = {key: says[0].split(" until ")[0] for key, says in things.items() if key[0] != Kind.RULE_SET}
    gone = {key for key, target in targets.items() if target != "everything" and target.split("/")[1] not in names}
    return {key: says for key, says in things.items() if key not in gone}


def rfc(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def make_live(name: str, builtin: str) -> None:
    change = publishing.open_change(title="before", edits=[edit_of(name, builtin)], by="root")
    publishing.publish_change(change=change, by="root", expected_digest=change.digest)


class World:
    """Drives the doors and the verbs, and keeps in plain dicts what each Change has to make and what review asks for."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, review_required: bool, free_pauses: bool = False, begun: bool = False
    ) -> None:
        self._monkeypatch = monkeypatch
        self.free_pauses = free_pauses
        berth = msgspec.structs.replace(settings.BERTH, review_required=review_required, review_pauses=not free_pauses)
        berth = msgspec.structs.replace(berth, rest_writes_per_minute=1_000_000)
        self.base = [(1, "")] if review_required else []
        self.settings: dict[str, tuple[int, str]] = {}
        self.start = self.clock = timezone.now().replace(microsecond=0)
        Group.objects.create(name="Payments")
        self.users, self.clients = {}, {}
        for name, roles in PEOPLE.items():
            user = User.objects.create_user(name, password="secret", is_staff=True)
            user.groups.set(Group.objects.filter(name__in=roles))
            self.users[name], self.clients[name] = user, HTTPSClient()
            self.clients[name].force_login(user)
        if begun:
            make_live("web", BUILTINS[0])
        monkeypatch.setattr(settings, "BERTH", berth)
        self.changes: list[Change] = []
        self.makes: list[Makes] = []
        # The digest before the last one: what somebody saw who looked too early.
        self.stale: list[str] = []
        # What each digest that a Change ever had stood for.
        self.digests: dict[tuple[int, str], Makes] = {}
        # What was live after the step in which each approval was given.
        self.approved_on: dict[int, int] = {}
        self.checked = Revision.objects.count()
        if begun:
            self.do_open(self.users["alice"], {"web": BUILTINS[1], "data": BUILTINS[0]})
            self.do_open(self.users["bob"], {"web": BUILTINS[2]})

    def step(self, kind: str, person: str, *rest: Any) -> None:
        before, count = live(), Revision.objects.count()
        try:
            getattr(self, f"do_{kind.replace(' ', '_')}")(self.users.get(person, person), *rest)
        except (PublishingError, IndexError):
            assert (live(), Revision.objects.count()) == (before, count), "a refusal changes nothing"

    def through(self, door: str, act: str, by: User, index: int, *, early: bool = False, at: Any = None) -> None:
        """Do an act through a door; refused it leaves no event."""
        index = self._at(index)
        change = self.changes[index]
        change.refresh_from_db()
        digest = self.stale[index] if early else change.digest
        before = change.events.count()
        getattr(self, f"_by_{door}")(by, change, act, digest, at)
        if change.events.count() == before:
            raise PublishingError(["refused"])
        assert not early or act not in ("approve", "publish"), "an act on what wasn't seen"

    def _by_admin(self, by: User, change: Change, act: str, digest: str, at: Any) -> None:
        data = {"act": act, "text": "because", "digest": digest, "revision": publishing.current_revision().number}
        data |= {name: f"{at:%Y-%m-%dT%H:%M:%S}" for name in ("publish_at", "expires_at") if at}
        self.clients[by.username].post(f"/admin/policies/change/{change.pk}/act/", data)

    def _by_command(self, by: User, change: Change, act: str, digest: str, at: Any) -> None:
        self._monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
        options = {"account": by.username, "digest": digest[:16], "reason": "because", "stdout": io.StringIO()}
        try:
            call_command("change", act, change.pk, at=at.isoformat() if at else "", **options)
        except CommandError as error:
            raise PublishingError([str(error)]) from error

    def _by_rest(self, by: User, change: Change, act: str, digest: str, at: Any) -> None:
        act_on_change(self.clients[by.username], change.pk, act, digest, at=at.isoformat() if at else "")

    def _keep(self, change: Change, makes: Makes) -> None:
        self.changes.append(change)
        self.makes.append(makes)
        self.stale.append("0" * 64)

    def _at(self, index: int) -> int:
        if not self.changes:
            raise IndexError
        return index % len(self.changes)

    def do_bring(self, by: User, index: int, door: str, hour: int | None) -> None:
        """Send to review, approve as others, and set a time, as far as it goes."""
        later = {} if hour is None else {"at": self.start + hour * HOUR}
        acts = [("submit", "alice"), ("approve", "carol"), ("approve", "erin")]
        acts += [("schedule", "alice")] if later else []
        for act, name in acts:
            with suppress(PublishingError):
                self.through(door, act, self.users[name], index, **(later if act == "schedule" else {}))

    def do_send_back(self, by: User, index: int, door: str) -> None:
        """Approve, reject, and send the same to review again, as far as it goes."""
        for act, name in (("approve", "erin"), ("reject", by.username), ("reopen", "alice"), ("submit", "alice")):
            with suppress(PublishingError):
                self.through(door, act, self.users[name], index)

    def do_edit_late(self, by: User, index: int, door: str, hour: int, wanted: dict[str, str | None]) -> None:
        """Set a time, edit what is to go live then, and let the time pass."""
        later = max(self.start, self.clock) + hour * HOUR
        with suppress(PublishingError):
            self.through(door, "schedule", self.users["alice"], index, at=later)
        with suppress(PublishingError):
            self.do_edit(by, index, wanted, early=False)
        self.do_tick(by, hour)

    def do_open(self, by: User, wanted: dict[str, str | None]) -> None:
        made = publishing.open_change(title="t", edits=[edit_of(*item) for item in wanted.items()], by=by)
        self._keep(made, self._differing(wanted_of(wanted)))

    def _differing(self, wanted: Makes) -> Makes:
        return {key: says for key, says in wanted.items() if not same(live().get(key), says)}

    def do_edit(self, by: User, index: int, wanted: dict[str, str | None], early: bool) -> None:
        index = self._at(index)
        change = self.changes[index]
        change.refresh_from_db()
        old = change.digest
        publishing.edit_change(
            change=change,
            edits=[edit_of(*item) for item in wanted.items()],
            by=by,
            expected_digest=self.stale[index] if early else old,
        )
        assert not early, "an edit over one that wasn't seen"
        for key in wanted_of(wanted):
            self.makes[index].pop(key, None)
        self.makes[index] |= self._differing(wanted_of(wanted))
        self._saw(index, old)

    def do_discard(self, by: User, index: int, name: str) -> None:
        index = self._at(index)
        old = Change.objects.get(pk=self.changes[index].pk).digest
        key = ("RuleSet", name)
        publishing.discard_edits(change=self.changes[index], keys=[key], by=by, expected_digest=old)
        del self.makes[index][key]
        self._saw(index, old)

    def _saw(self, index: int, old: str) -> None:
        if Change.objects.get(pk=self.changes[index].pk).digest != old:
            self.stale[index] = old

    def do_rebase(self, by: User, index: int, theirs: set[str]) -> None:
        index = self._at(index)
        change = self.changes[index]
        change.refresh_from_db()
        old, number = change.digest, publishing.current_revision().number
        moved = {each.key for each in publishing.moved_of(change)}
        keys = [key for key in moved if key[1] in theirs]
        publishing.rebase_change(change=change, by=by, expected_digest=old, expected_revision=number, take_theirs=keys)
        for key in moved:
            if key in keys or same(live().get(key), self.makes[index][key]):
                del self.makes[index][key]
        self._saw(index, old)

    def do_submit(self, by: User, index: int, door: str) -> None:
        self.through(door, "submit", by, index)

    def do_reopen(self, by: User, index: int, door: str) -> None:
        self.through(door, "reopen", by, index)

    def do_withdraw(self, by: User, index: int, door: str) -> None:
        self.through(door, "withdraw", by, index)

    def do_reject(self, by: User, index: int, door: str) -> None:
        self.through(door, "reject", by, index)

    def do_approve(self, by: User, index: int, door: str, early: bool) -> None:
        self.through(door, "approve", by, index, early=early)

    def do_publish(self, by: User, index: int, door: str, early: bool) -> None:
        self.through(door, "publish", by, index, early=early)

    def do_schedule(self, by: User, index: int, door: str, hour: int) -> None:
        self.through(door, "schedule", by, index, at=self.start + hour * HOUR)

    def do_expire(self, by: User, index: int, door: str, hour: int) -> None:
        index = self._at(index)
        old = self.changes[index].digest
        self.through(door, "expire", by, index, at=self.start + hour * HOUR)
        self._saw(index, old)

    def do_ask(self, by: User, index: int, whom: str) -> None:
        index = self._at(index)
        publishing.ask_for_review(change=self.changes[index], by=by, whom=whom)
        change = Change.objects.get(pk=self.changes[index].pk)
        authors = {event.by for event in change.events.all() if event.act in AUTHORING}
        assert "Approver" in PEOPLE[whom]
        assert whom not in authors
        waits = change in [found for found, _ in publishing.changes_waiting_for(whom)]
        assert waits == (not publishing.standing_of(change).moved)

    def do_tick(self, _: User, hour: int) -> None:
        self.clock += hour * HOUR
        publishing.publish_due(now=self.clock)
        count = Revision.objects.count()
        assert publishing.publish_due(now=self.clock) == [], "all that is due was done at once"
        assert Revision.objects.count() == count
        known = {change.pk for change in self.changes}
        for change in Change.objects.filter(expiry_of__isnull=False).exclude(pk__in=known).order_by("pk"):
            self._keep(change, made_of(change))

    def do_form(self, by: User, name: str, builtin: str) -> None:
        seen = publishing.seen_of(None, ("RuleSet", name))
        made = publishing.save_edit(edit=edit_of(name, builtin), change=None, by=by, title="form", seen=seen)
        if made is not None:
            self._keep(made, wanted_of({name: builtin}))

    def do_roll_back(self, by: User, number: int) -> None:
        publishing.roll_back(to_number=number, by=by, reason="")

    def do_pause(self, by: User, target: str, hour: int | None) -> None:
        until = rfc(self.start + hour * HOUR) if hour else ""
        made = publishing.pause(target=target, until=until, by=by, reason="because")
        ((key, says),) = made_of(made).items()
        assert (key[0], says) == (Kind.PAUSE, (f"{target} until {until or 'resumed'}", 0))
        self._keep(made, {key: says})

    def do_resume(self, by: User, target: str) -> None:
        paused = {key for key, says in live().items() if key[0] == Kind.PAUSE and says[0].startswith(f"{target} ")}
        self._keep(publishing.resume(target=target, by=by, reason="because"), dict.fromkeys(paused))

    def do_exempt(self, by: User, name: str, hour: int) -> None:
        until = rfc(self.start + hour * HOUR)
        target = f"RuleSet/{name}"
        spec = {
            "owner": "team",
            "target": target,
            "reason": "because",
            "until": until,
            "pods": [{"namespace": "shop", "name": "cart-0"}],
        }
        made = publishing.exempt(name=name, spec=spec, by=by)
        self._keep(made, {(Kind.EXEMPTION, name): (f"{target} until {until}", 0)})

    def do_end_exemption(self, by: User, name: str) -> None:
        made = publishing.end_exemption(name=name, by=by, reason="because")
        self._keep(made, {(Kind.EXEMPTION, name): None})

    def do_archive(self, by: User, name: str) -> None:
        rule_set = RuleSet.objects.filter(name=name).first()
        if rule_set is None:
            raise IndexError
        wait = publishing.needs_review([Edit(Kind.RULE_SET, name, None)])
        act = publishing.propose_archiving if wait else publishing.archive
        act(rule_set=rule_set, by=by, reason="because")
        self._keep(Change.objects.latest("pk"), {(Kind.RULE_SET, name): None})

    def do_bring_back(self, by: User, name: str) -> None:
        """Go back to the newest version of what is archived."""
        version = RuleSetVersion.objects.filter(rule_set__name=name).order_by("number").last()
        if version is None or name in live_rules():
            raise IndexError
        value = publishing.check_version(version)
        act = publishing.propose_going_back if publishing.needs_review([Edit.of(value)]) else publishing.go_back
        act(version=version, by=by, reason="because")
        self._keep(Change.objects.latest("pk"), {(Kind.RULE_SET, name): content(value)})

    def do_set(self, rule_set: str, approvals: int, group: str) -> None:
        publishing.set_review(rule_set=rule_set, approvals=approvals, group=group, by="root")
        self.settings[rule_set] = (approvals, group)

    def check(self) -> None:
        """What may never be."""
        for change in Change.objects.filter(revision__gt=self.checked).order_by("revision_id"):
            self.checked += 1
            assert change.revision_id == self.checked, "Revisions without a gap, one by each Change"
            self._check_published(change)
        for event in ChangeEvent.objects.filter(act="approve"):
            assert "Approver" in PEOPLE[event.by]
            self.approved_on.setdefault(event.pk, self.checked)
        versions = RuleSetVersion.objects.filter(state="published").values_list("rule_set__name", "number")
        found = {each.name: each.version for each in publishing.current_revision().rule_sets}
        assert len(versions) == len(found), "one published version of each that is live"
        assert dict(versions) == found
        for change, makes in zip(self.changes, self.makes, strict=True):
            change.refresh_from_db()
            assert made_of(change) == makes, "no edit is lost, and none comes from nowhere"
            if change.state in publishing.lifecycle.OPEN:
                assert self.digests.setdefault((change.pk, change.digest), dict(makes)) == makes, (
                    "a digest is of one content"
                )
                assert publishing.standing_of(change).counting == approvals_of(change), (
                    "of what it makes now, and not rejected"
                )
        self._check_times()

    def _check_times(self) -> None:
        """No two that touch the same thing have their time: one of them couldn't keep it."""
        timed: set[Key] = set()
        for change in publishing.scheduled_changes():
            if publishing.holds_schedule(change) and change.expiry_of is None:
                keys = set(made_of(change))
                assert timed.isdisjoint(keys)
                timed |= keys

    def _check_published(self, change: Change) -> None:
        before, after = (contents_of(publishing.load_revision(self.checked - back)) for back in (1, 0))
        events = list(change.events.order_by("pk"))
        (published,) = (event for event in events if event.act == "publish")
        assert published.digest == change.digest or not change.edits.exists()
        makes = made_of(change)
        if makes:
            wanted = still_there({key: says for key, says in {**before, **makes}.items() if says})
            assert wanted.keys() == after.keys()
            assert all(same(says, after[key]) for key, says in wanted.items()), "what it makes, and nothing else"
        edited = any(event.act in ("edit", "rebase") for event in events)
        if change.expiry_of is not None and not edited:
            self._check_taken_back(change, before, after)
            return
        changed = {key for key in before | after if before.get(key) != after.get(key)} | set(makes)
        touched = set().union(*(rule_sets_in(key, (before.get(key), after.get(key)), before) for key in changed))
        # New ones, and those that last longer: as texts, times sort as times, and before "resumed".
        only_pauses = bool(makes) and all(
            key[0] == Kind.PAUSE and says and before.get(key, says)[0] <= says[0] for key, says in makes.items()
        )
        approved = approvals_of(change, published.digest) - self._approved_before_a_move(change, makes)
        for approvals_needed, group in self._needs(touched, is_free=self.free_pauses and only_pauses):
            able = {name for name in approved if not group or group in PEOPLE[name]}
            assert len(able) >= approvals_needed, (
                "nothing unapproved, by nobody who edited it or whom it isn't asked of"
            )
        if scheduled := [
            event for event in events if event.act == "schedule" and "scheduled" in change.revision.reason
        ]:
            assert scheduled[-1].digest == published.digest, "the clock publishes what somebody saw"

    def _approved_before_a_move(self, change: Change, makes: Makes) -> set[str]:
        """Who approved it when something else was live of what it touches, be that live again."""
        given = {
            event.by: self.approved_on.get(event.pk, self.checked) for event in change.events.filter(act="approve")
        }
        first = min(given.values(), default=self.checked)
        held = [(n, contents_of(publishing.load_revision(n))) for n in range(first, self.checked)]
        return {by for by, on in given.items() for n, found in held if n >= on and moved(makes, found, held[-1][1])}

    def _check_taken_back(self, change: Change, before: dict[Key, Content], after: dict[Key, Content]) -> None:
        taken = change.expiry_of
        assert taken is not None
        assert taken.revision_id is not None
        made = contents_of(publishing.load_revision(taken.revision_id))
        for key in made_of(change):
            assert before.get(key) == made.get(key), "nobody else's work is overwritten"
            assert after.get(key) == self._held_before(taken.revision_id, key), "what was live before is live again"

    def _held_before(self, number: int, key: Key) -> Content | None:
        """What was there before a Revision, but for what has expired by now."""
        found = contents_of(publishing.load_revision(number - 1)).get(key)
        while number > 1 and contents_of(publishing.load_revision(number - 1)).get(key) == found:
            number -= 1
        maker = Change.objects.filter(revision=number).first()
        has_expired = maker is not None and maker.expires_at is not None and maker.expires_at <= self.clock
        return self._held_before(number, key) if has_expired and number > 1 else found

    def _needs(self, touched: set[str], *, is_free: bool) -> Iterator[tuple[int, str]]:
        if not is_free:
            yield from self.base
        yield from (self.settings[name] for name in ("", *touched) if self.settings.get(name, (0, ""))[0])


def approvals_of(change: Change, digest: str = "") -> set[str]:
    """Whose approvals count, by the events alone: of this content, since the last edit, rejection and move of its base, of nobody who edited it."""
    events = list(change.events.order_by("pk"))
    ended = max(event.pk for event in events if event.act in (*AUTHORING, "reject", "overtake"))
    authors = {event.by for event in events if event.act in AUTHORING}
    given = [event for event in events if event.act == "approve" and event.digest == (digest or change.digest)]
    return {event.by for event in given if event.pk > ended} - authors


def run(world: World, drawn: list[tuple[Any, ...]]) -> World:
    for each in drawn:
        world.step(*each)
        world.check()
    return world


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages aren't rendered, and passwords cost nothing: who asks is what matters."""
    monkeypatch.setattr("policies.admin.changes.TemplateResponse", lambda *_, **__: HttpResponse())
    monkeypatch.setattr(settings, "PASSWORD_HASHERS", ["django.contrib.auth.hashers.MD5PasswordHasher"])


@given(
    drawn=st.lists(steps, min_size=4, max_size=25),
    required=st.booleans(),
    free_pauses=st.booleans(),
    begun=st.booleans(),
)
@example(  # a Pause that lasts longer takes nothing back into force
    drawn=[("pause", "alice", "everything", 1), ("pause", "alice", "everything", None)],
    required=True,
    free_pauses=True,
    begun=False,
)
@of_hypothesis(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_is_unapproved_self_approved_lost_or_twice(
    monkeypatch: pytest.MonkeyPatch, drawn: list[tuple[Any, ...]], required: bool, free_pauses: bool, begun: bool
) -> None:
    with transaction.atomic(), monkeypatch.context() as patch:
        run(World(patch, review_required=required, free_pauses=free_pauses, begun=begun), drawn)
        transaction.set_rollback(True)


def test_the_machine_reaches_what_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk through all of it: without one, a machine that refuses everything would pass."""
    world = run(
        World(monkeypatch, review_required=True),
        [
            ("open", "alice", {"web": "PodFitsHost"}),
            ("open", "bob", {"web": "MatchNodeSelector"}),
            ("submit", "alice", 0, "admin"),
            ("submit", "bob", 1, "command"),
            ("ask", "alice", 0, "carol"),
            ("approve", "bob", 1, "admin", False),
            ("approve", "carol", 0, "command", False),
            ("approve", "carol", 1, "admin", False),
            ("publish", "alice", 0, "command", False),
            ("publish", "bob", 1, "admin", False),
            ("rebase", "bob", 1, set()),
            ("publish", "bob", 1, "admin", False),
            ("approve", "carol", 1, "admin", False),
            ("publish", "bob", 1, "admin", False),
            ("form", "bob", "web", "PodToleratesNodeTaints"),
            ("roll back", "carol", 1),
        ],
    )
    assert live_rules() == {"web": "MatchNodeSelector"}
    assert [change.state for change in Change.objects.order_by("pk")[:2]] == ["published", "published"]
    assert Revision.objects.count() == 2
    assert len(world.changes) == 3
    # With two to approve, one of them of a group; at a time, and back.
    for each in [
        ("set", "web", 2, "Payments"),
        ("set", "", 2, ""),
        ("open", "alice", {"web": None, "data": "PodFitsHost"}),
        ("set", "web", 1, "Payments"),
        ("expire", "alice", 3, "command", 6),
        ("submit", "alice", 3, "admin"),
        ("approve", "erin", 3, "admin", False),
        ("schedule", "alice", 3, "admin", 1),
        ("tick", "alice", 1),
    ]:
        world.step(*each)
        world.check()
    assert Change.objects.get(pk=world.changes[3].pk).held
    for each in [
        ("approve", "carol", 3, "command", False),
        ("schedule", "alice", 3, "command", 2),
        ("tick", "alice", 1),
    ]:
        world.step(*each)
        world.check()
    assert live_rules() == {"data": "PodFitsHost"}
    world.step("tick", "alice", 4)
    world.check()
    assert live_rules() == {"web": "MatchNodeSelector"}
    assert Revision.objects.count() == 4


def test_the_machine_reaches_single_acts_late_edits_and_rejections(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches what single acts make, and what may not outlive an edit or a rejection."""
    world = World(monkeypatch, review_required=True, begun=True)
    through_review = [("approve", "carol", -1, "admin", False), ("publish", "alice", -1, "command", False)]

    def walk(*drawn: tuple[Any, ...]) -> Change:
        run(world, list(drawn))
        return Change.objects.get(pk=world.changes[-1].pk)

    walk(("pause", "alice", "RuleSet/web", None), *through_review)
    walk(("exempt", "bob", "web", 3), *through_review)
    assert set(live()) == {(Kind.RULE_SET, "web"), (Kind.PAUSE, "ruleset-web"), (Kind.EXEMPTION, "web")}
    walk(("resume", "alice", "RuleSet/web"), *through_review)
    walk(("end exemption", "alice", "web"), *through_review)
    walk(("archive", "alice", "web"), *through_review)
    assert live() == {}
    walk(("bring back", "alice", "web"), *through_review)
    assert live_rules() == {"web": "PodFitsHost"}
    late = {"data": "MatchNodeSelector"}
    change = walk(("open", "alice", {"data": "PodFitsHost"}), ("bring", "alice", -1, "admin", None))
    assert change.state == "approved"
    change = walk(("edit late", "alice", -1, "admin", 1, late), ("tick", "alice", 1))
    assert (change.held != "", live_rules()) == (True, {"web": "PodFitsHost"})
    change = walk(("open", "alice", late), ("bring", "alice", -1, "admin", None), ("send back", "carol", -1, "admin"))
    assert (change.state, publishing.standing_of(change).counting) == ("in_review", set())
    assert walk(("publish", "alice", -1, "admin", False)).state == "in_review"
    edited = [("edit", "alice", -1, {"data": builtin}, False) for builtin in ("PodFitsHost", "MatchNodeSelector")]
    change = walk(("open", "alice", late), ("bring", "alice", -1, "admin", None), *edited)
    assert (change.state, publishing.standing_of(change).counting) == ("in_review", set())
    assert walk(("publish", "alice", -1, "admin", False)).state == "in_review"
