"""Checks what is published: Changes that need somebody, Pauses, Assignments that take no Pod, PriorityClasses in the cluster."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django.conf import settings

from policies.engine.ruleset import Pause
from policies.models import Change, ClusterPriorityClass, PriorityClassLook, PriorityClassReplacement, RevisionPart
from policies.publishing import (
    ending_soon,
    held_changes,
    live_priority_classes,
    live_since,
    scheduled_changes,
    suspended,
    unapproved_changes,
)
from policies.wording import counted
from scheduler.decisions.assignment_uses import idle_now
from scheduler.doctor.parts import Part
from scheduler.doctor.suspensions import ending_sentence

_OVERDUE = timedelta(seconds=60)
_WITHOUT, _HELD_BACK = "published without approval", "held back at its time"
# The most Assignments that a line names.
_NAMED = 5
# The states of a class that need somebody's attention.
_LOOKED_AFTER = ("refused", "conflict", "foreign", "drifted")


def changes() -> Part:
    """Return which Changes need somebody: published without approval, held back, or due and not published."""
    overdue = list(scheduled_changes().filter(publish_at__lt=datetime.now(UTC) - _OVERDUE))
    if overdue:
        says = f"{_named(overdue)} should be live by now"
        return Part("Changes", "error", says, "Do the worker and beat run? They will catch up.")
    unapproved, held = Change.objects.filter(pk__in=unapproved_changes()), held_changes()
    waiting = [f"{_named(rows)} {what}" for rows, what in ((unapproved, _WITHOUT), (held, _HELD_BACK)) if rows]
    if waiting:
        remedy = "See Changes: approve them afterwards, roll them back, or set another time."
        return Part("Changes", "warning", "; ".join(waiting), remedy)
    return Part("Changes", "ok", "none was published without approval or held back at its time")


def _named(changes: Iterable[Change]) -> str:
    return ", ".join(str(each) for each in changes)


def pauses() -> Part:
    """Return which rules are suspended, and which Exemptions end soon."""
    now = datetime.now(UTC)
    paused = [each for each in suspended(now) if isinstance(each.value, Pause)]
    said = [f"{each.what} is paused by {each.by}: {each.value.reason}" for each in paused if not each.has_ended]
    said += [f"the pause of {each.what} has ended" for each in paused if each.has_ended]
    said += [ending_sentence(each) for each in ending_soon(now)]
    if said:
        remedy = "Resume, remove what has ended, or agree on another end with its owner: the page Pauses."
        return Part("Pauses", "warning", "; ".join(said), remedy)
    return Part("Pauses", "ok", "nothing is paused, and no Exemption ends soon")


def assignments() -> Part:
    """Return whether every live Assignment takes Pods: one that never does is mistyped, hidden by an earlier one, or left over."""
    days = settings.BERTH.assignment_idle_days
    found = idle_now(datetime.now(UTC))
    if not found:
        says = f"each took a Pod, or changed, within {counted(days, 'day')}"
        return Part("Assignments", "ok", says if live_since(RevisionPart.Kind.ASSIGNMENT) else "none is published")
    names = ", ".join(each.name for each in found[:_NAMED]) + (", …" if len(found) > _NAMED else "")
    remedy = "The page Which one takes this Pod? explains why an Assignment doesn't match a Pod; remove Assignments that nobody needs."
    return Part("Assignments", "warning", f"{len(found)} matched no Pod for {counted(days, 'day')}: {names}", remedy)


def priority_classes() -> Part:
    """Return whether the cluster's PriorityClasses match the published ones, according to the worker's last look."""
    name, live = "PriorityClasses", live_priority_classes()
    look = PriorityClassLook.objects.first()
    if look is None:
        remedy = "Do the worker and beat run?"
        return Part(name, "unknown", "the cluster wasn't read yet", remedy) if live else _none_published()
    if look.error:
        remedy = "Is the API server up, and may the worker list them?"
        return Part(name, "error", f"the cluster can't be read: {look.error}", remedy)
    under_way = PriorityClassReplacement.objects.filter(state=PriorityClassReplacement.State.UNDER_WAY)
    gone = ClusterPriorityClass.objects.filter(present=False, name__in=under_way.values("name"))
    if gone:
        says = f"{', '.join(row.name for row in gone)}: deleted in order to be created again, but not created yet"
        remedy = "Berth retries every second; the admin shows the API server's answer beside it."
        return Part(name, "error", says, remedy)
    rows = ClusterPriorityClass.objects.filter(state__in=_LOOKED_AFTER, name__in=live)
    if rows:
        says = "; ".join(f"{row.name} is {row.state}" for row in rows)
        remedy = "Its page in the admin shows both sides: restore the published one, or publish the cluster's."
        return Part(name, "warning", says, remedy)
    return Part(name, "ok", f"{len(live)} in the cluster as published") if live else _none_published()


def _none_published() -> Part:
    return Part("PriorityClasses", "ok", "none is published")
