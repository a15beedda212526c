"""The table of Notices: their kinds and audiences, for inboxes and webhooks. Pure.

An act makes at most one Notice, of the most specific kind: publishing that brings an older Revision back is "rolled
back", and publishing that pauses is "paused".
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote

import msgspec

from policies.audit_words import sentence_of
from policies.models import AuditEvent
from policies.origin import Door
from policies.wording import counted


class Kind(StrEnum):
    """The kind of event."""

    REVIEW_ASKED = "review-asked"
    APPROVED = "approved"
    REJECTED = "rejected"
    PUBLISHED = "published"
    ROLLED_BACK = "rolled-back"
    PAUSED = "paused"
    HELD_BACK = "held-back"
    DRIFT = "drift"
    DECISIONS_LOST = "decisions-lost"
    SHADOW_DIVERGES = "shadow-diverges"
    EXPIRY_AHEAD = "expiry-ahead"


# The label of each kind, for lists and forms.
WORDS: Final[Mapping[Kind, str]] = {
    Kind.REVIEW_ASKED: "review asked",
    Kind.APPROVED: "approved",
    Kind.REJECTED: "rejected",
    Kind.PUBLISHED: "published",
    Kind.ROLLED_BACK: "rolled back",
    Kind.PAUSED: "paused",
    Kind.HELD_BACK: "held back",
    Kind.DRIFT: "drift",
    Kind.DECISIONS_LOST: "Decisions lost",
    Kind.SHADOW_DIVERGES: "shadow diverges",
    Kind.EXPIRY_AHEAD: "expiry ahead",
}
_APPROVE, _PUBLISH = "policies.approve", "policies.publish"
_EDIT, _SEE = "policies.change_ruleset", "scheduler.view_decision"

# The acts that make Notices: others needn't be read.
ACTS: Final = frozenset(
    f"change.{act}" for act in ("submit", "ask", "approve", "reject", "publish", "urgent", "hold", "overtake")
)


class Audience(msgspec.Struct, frozen=True):
    """The accounts that a Notice goes to, always without the one that acted.

    Attributes:
        names: these accounts.
        permission: all accounts with this permission.
        authors: the accounts that edited the Change.
    """

    names: tuple[str, ...] = ()
    permission: str = ""
    authors: bool = False


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A Notice without a number.

    Attributes:
        kind: the kind of event.
        at: its time.
        sentence: the event in a sentence.
        text: the reason, as its author wrote it.
        thing: kind and name of the object.
        by: the account that acted.
        reader: the account that acted, unless a schedule did it in its name: it has seen what was told of the object before.
        link: the path of its page.
        to: its audience.
        change: the number of the Change.
    """

    kind: Kind
    at: datetime
    sentence: str
    text: str = ""
    thing: tuple[str, str] = ("", "")
    by: str = ""
    reader: str = ""
    link: str = ""
    to: Audience
    change: int | None = None


def of_act(event: AuditEvent, more: Mapping[str, Any], *, rolls_back: bool) -> Draft | None:
    """Return the Notice of an act; None for acts without Notices.

    Args:
        event: the act.
        more: the other members of its body.
        rolls_back: whether its Change brings an older Revision back, and nothing else.
    """
    found = _kind_of(event.kind, more, rolls_back=rolls_back)
    if found is None:
        return None
    kind, to = found
    return Draft(
        kind=kind,
        at=event.at,
        sentence=sentence_of(event, more),
        text=event.reason,
        thing=(event.thing_kind, event.thing_name),
        by=event.by,
        reader="" if event.door == Door.BEAT else event.by,
        link=f"/admin/policies/change/{event.change}/change/",
        to=to,
        change=event.change,
    )


def _kind_of(act: str, more: Mapping[str, Any], *, rolls_back: bool) -> tuple[Kind, Audience] | None:
    match act:
        case "change.submit":
            return Kind.REVIEW_ASKED, Audience(permission=_APPROVE)
        case "change.overtake":
            return Kind.REVIEW_ASKED, Audience(permission=_APPROVE, authors=True)
        case "change.ask":
            return Kind.REVIEW_ASKED, Audience(names=(str(more.get("whom", "")),))
        case "change.approve":
            return Kind.APPROVED, Audience(authors=True)
        case "change.reject":
            return Kind.REJECTED, Audience(authors=True)
        case "change.publish" | "change.urgent":
            return _kind_of_publishing(more, rolls_back=rolls_back)
        case "change.hold":
            return Kind.HELD_BACK, Audience(permission=_PUBLISH, authors=True)
        case _:
            return None


def _kind_of_publishing(more: Mapping[str, Any], *, rolls_back: bool) -> tuple[Kind, Audience]:
    if rolls_back:
        return Kind.ROLLED_BACK, Audience(permission=_PUBLISH, authors=True)
    if _pauses(more.get("things")):
        return Kind.PAUSED, Audience(permission=_PUBLISH, authors=True)
    return Kind.PUBLISHED, Audience(authors=True)


def _pauses(things: Any) -> bool:
    """Return whether a Pause is among these things of a record. Those of a form that only a newer Berth knows are passed over."""
    listed = things if isinstance(things, list) else ()
    return any(isinstance(thing, Mapping) and thing.get("kind") == "Pause" and thing.get("after") for thing in listed)


def drift(name: str, state: str, message: str, at: datetime) -> Draft:
    """Return the Notice of a live PriorityClass that differs in the cluster."""
    return Draft(
        kind=Kind.DRIFT,
        at=at,
        sentence=f"PriorityClass {name} is {state} in the cluster",
        text=message,
        thing=("PriorityClass", name),
        link=f"/admin/scheduler/priority-classes/{quote(name, safe='')}/",
        to=Audience(permission=_PUBLISH),
    )


def decisions_lost(process: str, number: int, reason: str, at: datetime) -> Draft:
    """Return the Notice of Decisions that were answered and aren't stored."""
    what = counted(number, "Decision")
    return Draft(
        kind=Kind.DECISIONS_LOST,
        at=at,
        sentence=f"{what} of {process} {'is' if number == 1 else 'are'} lost or missing",
        text=reason,
        thing=("Process", process),
        link="/admin/scheduler/decisiongap/",
        to=Audience(permission=_SEE),
    )


def shadow_diverges(assignment: str, rule_set: str, version: int, number: int, at: datetime) -> Draft:
    """Return the Notice of a shadow that diverged for the first time."""
    times = "once" if number == 1 else f"{number} times"
    return Draft(
        kind=Kind.SHADOW_DIVERGES,
        at=at,
        sentence=f"The shadow of Assignment {assignment} ({rule_set} version {version}) would have done something else, {times} by now",
        thing=("Assignment", assignment),
        link="/admin/scheduler/shadows/",
        to=Audience(permission=_EDIT),
    )


def change_expires(number: int, title: str, expires_at: datetime, at: datetime) -> Draft:
    """Return the Notice of a Change that expires soon."""
    return Draft(
        kind=Kind.EXPIRY_AHEAD,
        at=at,
        sentence=f"What Change {number} ({title}) made goes back at {_moment(expires_at)}",
        thing=("Change", str(number)),
        link=f"/admin/policies/change/{number}/change/",
        to=Audience(permission=_PUBLISH, authors=True),
        change=number,
    )


def exemption_ends(name: str, owner: str, what: str, ends_at: datetime, at: datetime) -> Draft:
    """Return the Notice of an Exemption that ends soon."""
    return Draft(
        kind=Kind.EXPIRY_AHEAD,
        at=at,
        sentence=f"Exemption {name} of {owner} ends at {_moment(ends_at)}: {what} decides about its Pods from then on",
        thing=("Exemption", name),
        link=f"/admin/policies/pauses/?q={quote(name)}",
        to=Audience(names=(owner,), permission=_PUBLISH),
    )


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
