"""Who acts: a person, a token for its owner, a command's user; which name is written down, and what each may do."""

import msgspec
from django.contrib.auth.models import User

from policies.publishing.lifecycle import Actor


class OnBehalf(msgspec.Struct, frozen=True):
    """A token that acts for its owner: never more than the owner may, and what it does counts as done by the owner.

    Attributes:
        owner: the account that answers for it.
        via: the token's name.
        scopes: of edit, review and publish, those that it was given.
    """

    owner: User
    via: str
    scopes: frozenset[str] = frozenset()


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
        return Actor(by, may_edit=True, may_publish=True)
    user, scopes = _account(by), by.scopes if isinstance(by, OnBehalf) else None

    def may(scope: str, permission: str) -> bool:
        return (scopes is None or scope in scopes) and user.has_perm(permission)

    return Actor(
        user.get_username(),
        may_edit=may("edit", "policies.change_ruleset"),
        may_publish=may("publish", "policies.publish"),
        may_approve=may("review", "policies.approve"),
        may_break_glass=may("publish", "policies.break_glass"),
    )


def _account(by: User | OnBehalf) -> User:
    return by.owner if isinstance(by, OnBehalf) else by
