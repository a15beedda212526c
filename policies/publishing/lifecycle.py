"""Which acts are allowed on a Change, by whom and when. Pure: the one table that the admin, REST and commands use."""

from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from policies.scopes import EDIT, PUBLISH, REVIEW
from policies.wording import counted

DRAFT, IN_REVIEW, APPROVED = "draft", "in_review", "approved"
PUBLISHED, REJECTED, WITHDRAWN = "published", "rejected", "withdrawn"

# States in which a Change can still go live, and can be edited.
OPEN: Final = frozenset({DRAFT, IN_REVIEW, APPROVED})

# The states in which an act is possible.
_POSSIBLE: Final[dict[str, frozenset[str]]] = {
    "edit": OPEN,
    "rebase": OPEN,
    "submit": frozenset({DRAFT}),
    "gate": OPEN,
    "ask": frozenset({IN_REVIEW}),
    "comment": OPEN | {REJECTED},
    "approve": frozenset({IN_REVIEW, APPROVED}),
    "reject": frozenset({IN_REVIEW, APPROVED}),
    "reopen": frozenset({REJECTED}),
    "withdraw": OPEN | {REJECTED},
    "publish": OPEN,
    "urgent": OPEN,
    "schedule": OPEN,
}
# The token scopes of which an act needs any one; other acts need edit.
_SCOPES: Final = {
    "gate": (EDIT, REVIEW, PUBLISH),
    "ask": (EDIT, REVIEW),
    "comment": (EDIT, REVIEW),
    "approve": (REVIEW,),
    "reject": (REVIEW,),
    "publish": (PUBLISH,),
    "urgent": (PUBLISH,),
    "schedule": (PUBLISH,),
    "pause": (PUBLISH, EDIT),
}
# Acts that are also possible on a Change that was published in an emergency and waits for approval.
_AFTERWARDS: Final = frozenset({"approve", "ask"})
_WORDS: Final = {
    DRAFT: "a draft",
    IN_REVIEW: "in review",
    APPROVED: "approved",
    PUBLISHED: "published",
    REJECTED: "rejected",
    WITHDRAWN: "withdrawn",
}
_GONE: Final = " There is no such group any more: an administrator has to name another one, under Review settings."


class Actor(msgspec.Struct, frozen=True):
    """Who acts, and what that account may do. The name is the person's, even when a token or command acts for that person.

    Attributes:
        token: the name of the token that acts; empty where none does.
        scopes: the token's scopes; None where no token acts.
    """

    name: str
    may_edit: bool = False
    may_pause: bool = False
    may_publish: bool = False
    may_approve: bool = False
    may_break_glass: bool = False
    token: str = ""
    scopes: AbstractSet[str] | None = None


class Need(msgspec.Struct, frozen=True):
    """A required number of approvals.

    Attributes:
        scope: the setting that requires them, in words.
        approvals: how many people must approve.
        group: only people of this group count; empty for anybody.
        members: those who approved and are in the group.
        is_gone: whether the group no longer exists: it was renamed or deleted since.
        able: how many people of the group may approve; None where that doesn't matter.
        left_out: whom of the group `able` leaves out since their approval of this Change can't count, in words; empty for nobody.
    """

    scope: str
    approvals: int
    group: str = ""
    members: AbstractSet[str] = frozenset()
    is_gone: bool = False
    able: int | None = None
    left_out: str = ""

    @property
    def note(self) -> str:
        """Why it can't be met at present; empty where it can."""
        if self.is_gone:
            return _GONE
        if self.able is None or self.able >= self.approvals:
            return ""
        who = f"Only {self.able}" if self.able else "Nobody"
        others = f", not counting {self.left_out}" if self.left_out else ""
        return f" {who} of {self.group} may approve{others}."


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a Change that decides which acts are allowed.

    Attributes:
        authors: everybody who has ever edited it.
        approved_by: who approved its current content and may still approve; approvals of earlier content aren't included.
        lapsed: whose approvals of it no longer count, and why, one sentence each.
        needed: how many people have to approve, of any group.
        needs: further requirements: approvals by people of a group.
        moved: the things that it touches and somebody else has changed since, by name.
        is_empty: whether it holds no edit.
        urgent_by: who published it without approval, in an emergency; empty where nobody did.
        approved_afterwards: whether enough people have approved it since.
        gate: why the gate blocks publishing; empty where it doesn't.
        expired: its expiry, if that is past and the Change never was live; else empty.
        ended: its Pauses and Exemptions that ended while it waited, one sentence each.
    """

    state: str
    authors: AbstractSet[str]
    approved_by: AbstractSet[str] = frozenset()
    lapsed: tuple[str, ...] = ()
    needed: int = 0
    needs: tuple[Need, ...] = ()
    moved: tuple[str, ...] = ()
    is_empty: bool = False
    urgent_by: str = ""
    approved_afterwards: bool = False
    gate: str = ""
    expired: str = ""
    ended: tuple[str, ...] = ()

    @property
    def approvals(self) -> int:
        """How many approvals count: nobody approves what they edited."""
        return len(self.counting)

    @property
    def counting(self) -> AbstractSet[str]:
        """The people whose approvals count."""
        return self.approved_by - self.authors - {self.urgent_by}

    @property
    def missing(self) -> list[str]:
        """The missing approvals, one sentence each."""
        return self._missing()

    def missing_for(self, actor: Actor) -> list[str]:
        """Return the missing approvals, one sentence each; that of a draft ends with this person's way to them."""
        return self._missing(f": {_way_to_review(actor)}" if self.state == DRAFT else "")

    def _missing(self, way: str = "") -> list[str]:
        said = []
        if (more := self.needed - self.approvals) > 0:
            said.append(f"It needs {counted(more, 'more approval')} from people who didn't edit it{way}.")
        more_of = [(need, need.approvals - len(self.counting & need.members)) for need in self.needs]
        said += [
            f"For {need.scope} it needs {counted(n, 'more approval')} from {need.group}.{need.note}"
            for need, n in more_of
            if n > 0
        ]
        return [*said, *self.lapsed] if said else []

    @property
    def is_approved(self) -> bool:
        """Whether approvals are needed, and all of them are there."""
        return bool(self.needed or self.needs) and not self.missing

    @property
    def waits_for_approval_afterwards(self) -> bool:
        """Whether it was published in an emergency, and not approved afterwards yet, by at least one person."""
        if self.state != PUBLISHED or not self.urgent_by or self.approved_afterwards:
            return False
        return bool(self.missing) or not self.counting


def refusal(act: str, actor: Actor, standing: Standing) -> str:
    """Return why an act is refused, in a sentence with what to do instead; empty where it is allowed."""
    return (
        lack_of_permission(act, actor, standing.authors)
        or _wrong_state(act, standing)
        or (_CHECKS[act](actor, standing) if act in _CHECKS else "")
    )


def refusal_of_any_content(act: str, actor: Actor, standing: Standing) -> str:
    """Return why an act that somebody may do is refused whatever the Change contains; empty where that depends on its content."""
    return _wrong_state(act, standing) or (_check_base(actor, standing) if act in ("publish", "urgent") else "")


def state_after(act: str, standing: Standing) -> str:
    """Return the state that an act leads to. `standing` is the Change's after the act was noted."""
    match act:
        case "approve" if standing.state == PUBLISHED:
            return PUBLISHED
        case "submit" | "approve":
            return APPROVED if standing.is_approved else IN_REVIEW
        case "edit" | "rebase" | "overtake":
            # The approved content or its base has changed: the Change needs its approvals again.
            return standing.state if standing.state == DRAFT else IN_REVIEW
        case "reject":
            return REJECTED
        case "reopen":
            return DRAFT
        case "withdraw":
            return WITHDRAWN
        case "publish" | "urgent":
            return PUBLISHED
        case _:
            return standing.state


def lack_of_permission(act: str, actor: Actor, authors: AbstractSet[str] = frozenset()) -> str:
    """Return why somebody may not do this in any state of a Change; empty where they may."""
    return _lack_of_scope(act, actor) or _lack_of_right(act, actor, authors)


def _lack_of_right(act: str, actor: Actor, authors: AbstractSet[str]) -> str:
    match act:
        case "approve" | "reject":
            return "" if actor.may_approve else f"{actor.name} may not {act} Changes; an Approver may."
        case "publish" | "schedule":
            return "" if actor.may_publish else f"{actor.name} may not publish; an Operator or an Approver may."
        case "urgent":
            return "" if actor.may_break_glass else f"{actor.name} may not publish without approvals; Emergency may."
        case "comment" | "ask":
            allowed = actor.may_edit or actor.may_approve
            said = "comment on Changes" if act == "comment" else "ask for a review"
            return "" if allowed else f"{actor.name} may not {said}; Operators and Approvers may."
        case "gate":
            allowed = actor.may_edit or actor.may_approve or actor.may_publish
            return "" if allowed else f"{actor.name} may not run the gate; Operators and Approvers may."
        case "withdraw":
            allowed = actor.may_edit and (actor.name in authors or actor.may_publish)
            return "" if allowed else f"{actor.name} may not withdraw it; its authors and who publishes may."
        case "pause":
            return "" if actor.may_pause else f"{actor.name} may not pause or resume; an Operator may."
        case _:
            return "" if actor.may_edit else f"{actor.name} may not edit; an Operator may."


def _lack_of_scope(act: str, actor: Actor) -> str:
    """Return the scopes of which a token needs any one for an act and has none; empty where it has one."""
    needed = _SCOPES.get(act, (EDIT,))
    if actor.scopes is None or not actor.scopes.isdisjoint(needed):
        return ""
    return f"{actor.name} may not do this by {actor.token}: it doesn't have the scope {' or '.join(needed)}."


def is_possible(act: str, state: str) -> bool:
    """Return whether an act is possible on Changes in a state."""
    return state in _POSSIBLE[act]


def may_be_done_now(act: str, standing: Standing) -> bool:
    """Return whether an act can be done on a Change in its present state, by anybody."""
    return (
        is_possible(act, standing.state)
        or (act in _AFTERWARDS and standing.waits_for_approval_afterwards)
        or (act == "ask" and standing.state == APPROVED and bool(standing.missing))  # more are required since
    )


def refusal_to_be_asked(whom: Actor, groups: AbstractSet[str], standing: Standing, *, asking: str) -> str:
    """Return why somebody can't be asked for a review by `asking`: their approval wouldn't count, or they ask themselves; else empty."""
    if not whom.may_approve:
        return f"{whom.name} may not approve Changes; ask an Approver."
    if said := _lack_of_distance(whom, standing):
        return said
    if standing.needed or not standing.needs or any(need.group in groups for need in standing.needs):
        return f"{asking} need not be asked: approve it, or ask somebody else." if whom.name == asking else ""
    named = ", ".join(sorted({need.group for need in standing.needs}))
    return f"{whom.name}'s approval doesn't count here; ask somebody in {named}."


def _wrong_state(act: str, standing: Standing) -> str:
    if may_be_done_now(act, standing):
        return ""
    ways = {
        PUBLISHED: "Open another Change to go on from there.",
        WITHDRAWN: "Open another Change.",
        REJECTED: "Open it again first.",
        DRAFT: "Send it to review first.",
        IN_REVIEW: "It waits for approvals.",
        APPROVED: "Publish it.",
    }
    if act == "reopen" and standing.state in OPEN:
        return f"It is {_WORDS[standing.state]}, and so open already."
    return f"It is {_WORDS[standing.state]}. {ways[standing.state]}"


def _lack_of_distance(actor: Actor, standing: Standing) -> str:
    if actor.name in standing.authors:
        return f"{actor.name} edited it, and nobody can approve what they edited; somebody else has to."
    if actor.name == standing.urgent_by:
        return f"{actor.name} published it without approval; somebody else has to approve it now."
    return ""


def _check_approval(actor: Actor, standing: Standing) -> str:
    return (
        _lack_of_distance(actor, standing)
        or _check_content(actor, standing)
        or _repetition(actor, standing)
        or _check_base(actor, standing)
    )


def _repetition(actor: Actor, standing: Standing) -> str:
    if actor.name not in standing.approved_by:
        return ""
    return f"{actor.name} has approved its current result; another approval would change nothing."


def _check_base(_: Actor, standing: Standing) -> str:
    if not standing.moved:
        return ""
    return f"Somebody else has published another {', '.join(standing.moved)} since; rebase it, and look at both."


def _check_content(_: Actor, standing: Standing) -> str:
    return "It has no edits." if standing.is_empty else ""


def _check_urgent(actor: Actor, standing: Standing) -> str:
    return (
        _check_content(actor, standing)
        or _check_expiry(actor, standing)
        or " ".join(standing.ended)
        or _check_base(actor, standing)
    )


def _check_expiry(_: Actor, standing: Standing) -> str:
    if not standing.expired:
        return ""
    return (
        f"It expired before it went live: it was to go back at {standing.expired}. Set another time to go back or none, or "
        "withdraw it."
    )


def _way_to_review(actor: Actor) -> str:
    if actor.may_edit:
        return "send it to review"
    if actor.may_break_glass:
        return "an Operator can send it to review; in an emergency publish it without approval"
    return "an Operator has to send it to review"


def _check_publishing(actor: Actor, standing: Standing) -> str:
    return _check_urgent(actor, standing) or " ".join(standing.missing_for(actor)) or standing.gate


_CHECKS: Final = {
    "submit": _check_content,
    "approve": _check_approval,
    "publish": _check_publishing,
    "urgent": _check_urgent,
    "schedule": _check_content,
}
