"""The state of open Changes, for lists: a few queries for all of a page's rows, where `standing_of` needs several for each."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from django.contrib.auth.models import User
from django.db.models import F, Max, Q, prefetch_related_objects
from django.utils import timezone

from policies.engine import ruleset as engine
from policies.models import Change, ChangeEdit, GateRun, ReviewSetting
from policies.publishing import gates, lifecycle
from policies.publishing.lifecycle import Need, Standing
from policies.publishing.parts import documents_of, live_digests
from policies.publishing.reviewing import needs_of, review_settings
from policies.publishing.revisions import current_revision
from policies.publishing.standing import (
    AUTHORING,
    able_among,
    approvals_given,
    can_wait_for_gate,
    is_way_back,
    only_tightens_pauses,
)
from policies.publishing.touched import bases_that_name, touched_by

# Lists show this instead of the state of an approved Change whose approvals no longer suffice.
SHORT_OF_APPROVALS: Final = "approved, but no longer by enough people"


class GateMark(StrEnum):
    """The result of the gate's newest run for a Change's current content."""

    NONE = "not run"
    MOVES = "looking"
    FAILED = "came to no end"
    OLD = "out of date"
    PASSED = "passed"
    WARNS = "warnings"
    BLOCKS = "blocks it"


class Overview(msgspec.Struct, frozen=True):
    """The state of an open Change.

    Attributes:
        approvals: for each need (given, needed, group; "" for anybody).
        gate: the result of the gate.
        moved: how many of its things somebody else has published meanwhile.
        waits_for_gate: whether the gate keeps it from being published.
    """

    approvals: Sequence[tuple[int, int, str]]
    gate: GateMark
    moved: int
    waits_for_gate: bool = False

    @property
    def lacks_approvals(self) -> bool:
        """Whether more approvals are needed than given."""
        return _lacks(self.approvals)


def overview_of(changes: Iterable[Change]) -> dict[int, Overview]:
    """Return the state of each of these Changes that is open, by its number.

    `moved` counts things, as `moved_of` names them. Conflicting orders of Assignments are shown only on the Change's
    own page.
    """
    opened = [change for change in changes if change.state in lifecycle.OPEN]
    if not opened:
        return {}
    live = current_revision()
    edits, touched, bases = _read(opened, live)
    moved = _moved(edits, live.number)
    found = _gates(opened, touched, live.number)
    approvals = _approvals(opened, touched, bases)
    return {
        change.pk: Overview(
            approvals[change.pk],
            _mark(found[change.pk]),
            moved[change.pk],
            can_wait_for_gate(change, change.events.all(), bases) and bool(gates.refusal_of(found[change.pk])),
        )
        for change in opened
    }


def short_of_approvals(changes: Iterable[Change]) -> set[int]:
    """Return the numbers of the approved Changes whose approvals no longer suffice.

    The approvers may no longer approve, or more approvals are required than when they were given. A few queries for all Changes.
    """
    approved = [change for change in changes if change.state == lifecycle.APPROVED]
    if not approved:
        return set()
    _, touched, bases = _read(approved, current_revision())
    found = _approvals(approved, touched, bases)
    return {number for number, approvals in found.items() if _lacks(approvals)}


def _lacks(approvals: Iterable[tuple[int, int, str]]) -> bool:
    return any(there < needed for there, needed, _ in approvals)


def _read(
    changes: Sequence[Change], live: engine.Revision
) -> tuple[dict[int, list[ChangeEdit]], dict[int, set[str]], dict[str, str]]:
    """Return the edits of each Change, the rule sets that it touches, and the documents from which these were found."""
    prefetch_related_objects(changes, "edits", "events")
    edits = {change.pk: list(change.edits.all()) for change in changes}
    bases = documents_of(set().union(*map(bases_that_name, edits.values())))
    return edits, {number: touched_by(rows, bases, live) for number, rows in edits.items()}, bases


def _moved(edits: Mapping[int, Sequence[ChangeEdit]], number: int) -> dict[int, int]:
    digests = live_digests([row.key for rows in edits.values() for row in rows], number)
    return {change: sum(row.base_digest != digests.get(row.key, "") for row in rows) for change, rows in edits.items()}


def _gates(changes: Sequence[Change], touched: Mapping[int, Collection[str]], live: int) -> dict[int, gates.Gate]:
    """Return `gate_of` each of these Changes."""
    of_content = GateRun.objects.filter(change__in=changes, digest=F("change__digest")).order_by().values("change")
    is_done = Q(state=GateRun.State.DONE)
    newest = {
        row["change"]: (row["newest"], row["done"])
        for row in of_content.annotate(newest=Max("pk"), done=Max("pk", filter=is_done))
    }
    runs = GateRun.objects.in_bulk({number for pair in newest.values() for number in pair if number})
    named = [names for run in runs.values() for names in gates.found_of(gates.results_of(run)).values()]
    set_for = gates.set_levels(set().union(*touched.values(), *named))
    found = {}
    for change in changes:
        run, result = (runs.get(number) for number in newest.get(change.pk, (None, None)))
        results = gates.results_of(result) if result else []
        levels = gates.with_found(gates.strictest(touched[change.pk], set_for), results, set_for)
        stale = gates.stale_because(result, live, timezone.now()) if result else ""
        found[change.pk] = gates.Gate(run, result, levels, stale)
    return found


def _mark(gate: gates.Gate) -> GateMark:
    if gate.run is None:
        return GateMark.NONE
    if gate.run.is_under_way:
        return GateMark.MOVES
    if gate.run.state != GateRun.State.DONE:
        return GateMark.FAILED
    results = gates.results_of(gate.run)
    if gates.blocking(results, gate.levels):
        return GateMark.BLOCKS
    if gate.stale:
        return GateMark.OLD
    return GateMark.PASSED if all(each.verdict == gates.PASSED for each in results) else GateMark.WARNS


def _approvals(
    changes: Sequence[Change], touched: Mapping[int, Collection[str]], bases: Mapping[str, str]
) -> dict[int, list[tuple[int, int, str]]]:
    rows = review_settings()
    given = {change.pk: approvals_given(change, list(change.events.all())) for change in changes}
    asked = {event.by_user_id for events in given.values() for event in events if event.by_user_id}
    able = able_among(asked)
    groups = set(User.objects.filter(pk__in=able).values_list("pk", "groups__name")) if able else set()
    found = {}
    for change in changes:
        events = list(change.events.all())
        counted = {event.who: event.by_user_id for event in given[change.pk] if event.by_user_id in able}
        standing = Standing(
            state=change.state,
            authors={event.who for event in events if event.act in AUTHORING},
            approved_by=set(counted),
        )
        found[change.pk] = [
            (sum(not need.group or (counted[who], need.group) in groups for who in standing.counting), need)
            for need in _needs(change, touched[change.pk], bases, rows)
        ]
    return {number: [(there, need.approvals, need.group) for there, need in each] for number, each in found.items()}


def _needs(
    change: Change, touched: Collection[str], bases: Mapping[str, str], rows: Iterable[ReviewSetting]
) -> list[Need]:
    """Return the approvals that a Change needs: of the needs open to anybody only the highest, since it covers the others."""
    if is_way_back(change, list(change.events.all())):
        return []
    pauses = only_tightens_pauses(change, bases)
    needs = needs_of(touched, rolls_back=change.rolls_back_to is not None, pauses=pauses, rows=rows)
    of_anybody = sorted((need for need in needs if not need.group), key=lambda need: need.approvals)[-1:]
    return [*of_anybody, *(need for need in needs if need.group)]
