"""Who acts: a person, a token for its owner, a command's user; which name is written down, and what each may do."""

import msgspec
from django.contrib.auth.models import User

from policies.publishing.lifecycle import Actor
from policies.scopes import PUBLISH, Reach, scope_of


class OnBehalf(msgspec.Struct, frozen=True):
    """A token that acts for its owner: never more than the owner may, and what it does counts as done by the owner.

    Attributes:
        owner: the account that answers for it.
        via: what names the token: never what `via` says of a command or the schedule.
        scopes: of read, edit, review and publish, those that it was given.
        reach: what it may touch.
    """

    owner: User
    via: str
    scopes: frozenset[str] = frozenset()
    reach: Reach = Reach()


# Who does it: an account, something that acts for one, or the name of somebody without one (a command's user).
By = User | OnBehalf | str

# What the clock does carries this name; it has a space, so that no account can have it.
CLOCK = "the schedule"


def name_of(by: By) -> str:
    """Return the name that is written down: the person's, whatever acts for that person."""
    return by if isinstance(by, str) else _account(by).get_username()


def user_of(by: By) -> User | None:
    """Return the account that answers for it; None for a command's user."""
    return None if isinstance(by, str) else _account(by)


def via_of(by: By) -> str:
    """Return what it was done through; empty for a person's own session."""
    match by:
        case str():
            return "schedule" if by == CLOCK else "command"
        case OnBehalf():
            return by.via
        case _:
            return ""


def actor_of(by: By) -> Actor:
    """Return what somebody may do. A command's user has the machine, so may edit and publish; who approves shows who they are."""
    if isinstance(by, str):
        return Actor(by, may_edit=True, may_pause=True, may_publish=True)
    edits = "policies.change_ruleset"
    return Actor(
        name_of(by),
        may_edit=may(by, edits),
        may_pause=may(by, edits) or (_has_scope(by, PUBLISH) and _account(by).has_perm(edits)),
        may_publish=may(by, "policies.publish"),
        may_approve=may(by, "policies.approve"),
        may_break_glass=may(by, "policies.break_glass"),
        token=by.via if isinstance(by, OnBehalf) else "",
        scopes=by.scopes if isinstance(by, OnBehalf) else None,
    )


def may(by: By, permission: str) -> bool:
    """Return whether somebody has a right; a token has it where its owner does, and its scopes have it. A command's user has all."""
    if isinstance(by, str):
        return True
    return _has_scope(by, scope_of(permission)) and _account(by).has_perm(permission)


def reach_of(by: By) -> Reach:
    """Return what somebody may touch: everything, but for some tokens."""
    return by.reach if isinstance(by, OnBehalf) else Reach()


def _has_scope(by: User | OnBehalf, scope: str) -> bool:
    return not isinstance(by, OnBehalf) or scope in by.scopes


def _account(by: User | OnBehalf) -> User:
    """Return the account.

    Raises:
        TypeError: it is an account as a token shows it, by which nothing would be out of reach.
    """
    if isinstance(by, OnBehalf):
        return by.owner
    if hasattr(by, "scopes"):
        message = f"{by} acts by a token here: the OnBehalf of the request has to be given, not its user"
        raise TypeError(message)
    return by
