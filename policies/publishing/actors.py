"""Who acts: a person, a token for its owner, or a command's user; which name is recorded, and what each may do."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
from django.contrib.auth.models import User
from django.utils import timezone

from policies.models import GateSetting, ReviewSetting
from policies.publishing.errors import OvertakenError
from policies.publishing.lifecycle import Actor
from policies.scopes import PUBLISH, Reach, scope_of


class OnBehalf(msgspec.Struct, frozen=True):
    """A token that acts for its owner. It may never do more than the owner, and its acts count as the owner's.

    Attributes:
        owner: the account responsible for it.
        via: the token's name; it never equals the `via` of a command or the schedule.
        scopes: those that it was given, of read, edit, review and publish.
        reach: the things that it may touch.
    """

    owner: User
    via: str
    scopes: frozenset[str] = frozenset()
    reach: Reach = Reach()


# The actor: an account, a token that acts for one, or the name of a user without an account (a command's user).
By = User | OnBehalf | str

# Within this time, equal acts of an account are one form that was sent twice: by a second click, or by reloading the page.
SAME_CLICK = timedelta(minutes=1)

# The name recorded for acts of the clock. It has a space, so no account can have it.
CLOCK = "the schedule"


def name_of(by: By) -> str:
    """Return the name that is recorded: the person's, even when a token acts for that person."""
    return by if isinstance(by, str) else _account(by).get_username()


def user_of(by: By) -> User | None:
    """Return the responsible account; None for a command's user."""
    return None if isinstance(by, str) else _account(by)


def lock_account(by: By) -> None:
    """Let other acts of this account wait until the transaction ends: of two equal forms, the second sees what the first did."""
    if (account := user_of(by)) is not None:
        User.objects.select_for_update(no_key=True).filter(pk=account.pk).first()


def has_just_set(row: GateSetting | ReviewSetting, by: By, wanted: Mapping[str, object]) -> bool:
    """Return whether the same person gave a setting these values a moment ago: then the form was sent twice."""
    same = all(getattr(row, name) == value for name, value in wanted.items())
    return same and row.set_by == name_of(by) and timezone.now() - row.set_at < SAME_CLICK


def check_not_set_since(
    before: GateSetting | ReviewSetting, seen: int | None, said: str, *, told: int | None = None
) -> None:
    """Check that a setting isn't newer than those that a person saw.

    Args:
        before: the setting in force.
        seen: the newest setting of its kind when the page was opened, 0 for none; None compares nothing.
        said: the setting in force, as a sentence.
        told: the one setting that a refusal told that person of since.

    Raises:
        OvertakenError: it is newer.
    """
    if seen is not None and before.pk > seen and before.pk != told:
        message = f"This was set since you opened the page, by {before.set_by}. {said}"
        raise OvertakenError([message], seen=str(before.pk))


def via_of(by: By) -> str:
    """Return through which token or command somebody acts; empty for a person's own session."""
    match by:
        case str():
            return "schedule" if by == CLOCK else "command"
        case OnBehalf():
            return by.via
        case _:
            return ""


def actor_of(by: By) -> Actor:
    """Return what somebody may do. A command's user controls the machine, so may edit and publish; approving needs an account."""
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
    """Return whether somebody has a permission. A token has it where both its owner and its scopes do. A command's user has all."""
    if isinstance(by, str):
        return True
    return _has_scope(by, scope_of(permission)) and _account(by).has_perm(permission)


def reach_of(by: By) -> Reach:
    """Return what somebody may touch: everything, except for some tokens."""
    return by.reach if isinstance(by, OnBehalf) else Reach()


def _has_scope(by: User | OnBehalf, scope: str) -> bool:
    return not isinstance(by, OnBehalf) or scope in by.scopes


def _account(by: User | OnBehalf) -> User:
    """Return the account.

    Raises:
        TypeError: it is an account derived from a token, with which the token's reach would be ignored.
    """
    if isinstance(by, OnBehalf):
        return by.owner
    if hasattr(by, "scopes"):
        message = f"{by} acts by a token here: the OnBehalf of the request has to be given, not its user"
        raise TypeError(message)
    return by
