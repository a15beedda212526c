"""Hooks by which other packages add content to these pages, such as panels below a row's form."""

from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import Model
from django.http import HttpRequest
from django.utils.safestring import SafeString

# Returns the HTML about a row for a request's user; empty for none.
Panel = Callable[[Any, HttpRequest], SafeString]

_PANELS: dict[type[Model], list[Panel]] = {}


def add_panel(model: type[Model], panel: Panel) -> None:
    """Add a panel to the pages of a model; other packages call this where they register their pages."""
    panels = _PANELS.setdefault(model, [])
    if panel not in panels:
        panels.append(panel)


def panels_of(row: Model | None, request: HttpRequest) -> list[SafeString]:
    """Return the panels of a row; none for one that isn't saved."""
    if row is None or row.pk is None:
        return []
    return [shown for panel in _PANELS.get(type(row), ()) if (shown := panel(row, request))]


# Returns another package's link for a draft, from the rule set's name and the draft's Change: label and URL.
DraftLink = Callable[[str, Any], tuple[str, str]]

_DRAFT_LINKS: list[DraftLink] = []


def add_draft_link(offer: DraftLink) -> None:
    """Add a link to the form of a rule set; other packages call this where they register their pages."""
    if offer not in _DRAFT_LINKS:
        _DRAFT_LINKS.append(offer)


def draft_links(name: str, change: Any) -> list[tuple[str, str]]:
    """Return other packages' links for the draft of a rule set."""
    return [offer(name, change) for offer in _DRAFT_LINKS]


# Returns another package's counts for the rules of a rule set: texts by the rule's name.
RuleCounts = Callable[[str], Mapping[str, str]]

_RULE_COUNTS: list[RuleCounts] = []


def add_rule_counts(count: RuleCounts) -> None:
    """Add counts to each rule; other packages call this where they register their pages."""
    if count not in _RULE_COUNTS:
        _RULE_COUNTS.append(count)


def rule_counts(name: str) -> dict[str, list[str]]:
    """Return other packages' counts for the rules of a rule set."""
    found: dict[str, list[str]] = {}
    for count in _RULE_COUNTS:
        for rule, words in count(name).items():
            found.setdefault(rule, []).append(words)
    return found


# Returns another package's link beside the list of rule sets: label and URL; None for users without the permission.
ListLink = Callable[[HttpRequest], tuple[str, str] | None]

_LIST_LINKS: list[ListLink] = []


def add_list_link(offer: ListLink) -> None:
    """Add a link beside the list of rule sets; other packages call this where they register their pages."""
    if offer not in _LIST_LINKS:
        _LIST_LINKS.append(offer)


def list_links(request: HttpRequest) -> list[tuple[str, str]]:
    """Return other packages' links beside the list of rule sets, for the request's user."""
    return [found for offer in _LIST_LINKS if (found := offer(request))]


# Takes the digests of Revisions by the number of the Change; returns another package's texts by that number.
RevisionWords = Callable[[Mapping[int, str]], Mapping[int, str]]

_REVISION_WORDS: list[RevisionWords] = []


def add_revision_words(words: RevisionWords) -> None:
    """Add texts to each Revision of the list; other packages call this where they register their pages."""
    if words not in _REVISION_WORDS:
        _REVISION_WORDS.append(words)


def revision_words(made: Mapping[int, str]) -> dict[int, str]:
    """Return other packages' texts about Revisions, by the Changes that made them."""
    found: dict[int, str] = {}
    for words in _REVISION_WORDS:
        found.update(words(made))
    return found
