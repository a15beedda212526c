"""The limits of a token within its owner's permissions: its scopes, and the rule sets and namespaces that it reaches. Pure."""

import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Final

import msgspec

READ, EDIT, REVIEW, PUBLISH = "read", "edit", "review", "publish"
SCOPES: Final = (READ, EDIT, REVIEW, PUBLISH)

# `*` matches any text, including none, and `?` one character; names contain neither.
PATTERN: Final = re.compile(r"[A-Za-z0-9._*?-]{1,100}")
MOST_PATTERNS: Final = 50
_EVERY: Final = "*"

# Permissions besides viewing. Others, such as for accounts, settings and legal holds, no token ever has.
_SCOPES: Final = {
    **dict.fromkeys(
        (
            *("policies.add_ruleset", "policies.change_ruleset", "policies.change_rulesetversion"),
            *("policies.add_assignment", "policies.change_assignment", "policies.delete_assignment"),
            *("policies.add_rule", "policies.change_rule", "policies.delete_rule"),
            *("policies.add_priorityclass", "policies.change_priorityclass", "policies.delete_priorityclass"),
            *("scheduler.run_canary", "scheduler.run_backtest"),
        ),
        EDIT,
    ),
    "policies.approve": REVIEW,
    "policies.publish": PUBLISH,
    "policies.break_glass": PUBLISH,
}
_SEEN: Final = ("policies.view_", "policies.see_", "scheduler.view_")


def scope_of(permission: str) -> str:
    """Return the scope that a token needs for a permission of its owner; empty for a permission that no token has."""
    return READ if permission.startswith(_SEEN) else _SCOPES.get(permission, "")


class Reach(msgspec.Struct, frozen=True):
    """The things that a token may touch. Without patterns it reaches everything; with patterns, only things that match one.

    Attributes:
        rule_sets: patterns of the names of rule sets and Assignments; empty for any name.
        namespaces: patterns of namespaces. A token with patterns of names but none of namespaces can't touch Assignments.
    """

    rule_sets: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether nothing is out of reach."""
        return not self.rule_sets and not self.namespaces

    def has_name(self, name: str) -> bool:
        """Return whether a rule set or an Assignment of this name is within reach."""
        return not self.rule_sets or _matches(name, self.rule_sets)

    def has_namespaces(self, names: Collection[str]) -> bool:
        """Return whether all of these namespaces are within reach; an empty list means all namespaces."""
        if self.is_whole or _EVERY in self.namespaces:
            return True
        return bool(names) and all(_matches(name, self.namespaces) for name in names)


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def pattern_faults(patterns: Collection[str]) -> list[str]:
    """Return the faults of patterns, one sentence each."""
    faults = [
        f"{pattern!r} is no pattern: letters, digits, '.', '_' and '-', with '*' for any text and '?' for one character."
        for pattern in patterns
        if not PATTERN.fullmatch(pattern)
    ]
    if len(patterns) > MOST_PATTERNS:
        faults.append(f"These are {len(patterns)} patterns; a token has {MOST_PATTERNS} at most.")
    return faults
