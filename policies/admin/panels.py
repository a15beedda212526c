"""What other parts of Berth show on the page of a row here: below the form, each as a piece of HTML."""

from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import Model
from django.http import HttpRequest
from django.utils.safestring import SafeString

# Returns what is to be shown of a row to who asks; empty for nothing.
Panel = Callable[[Any, HttpRequest], SafeString]

_PANELS: dict[type[Model], list[Panel]] = {}


def add_panel(model: type[Model], panel: Panel) -> None:
    """Show something on the pages of a model: called where the pages of another part are registered."""
    panels = _PANELS.setdefault(model, [])
    if panel not in panels:
        panels.append(panel)


def panels_of(row: Model | None, request: HttpRequest) -> list[SafeString]:
    """Return what is shown on the page of a row; nothing for one that isn't saved."""
    if row is None or row.pk is None:
        return []
    return [shown for panel in _PANELS.get(type(row), ()) if (shown := panel(row, request))]


# Returns what another part offers for a draft, by the rule set's name and the Change that it is in: its words and its address.
DraftLink = Callable[[str, Any], tuple[str, str]]

_DRAFT_LINKS: list[DraftLink] = []


def add_draft_link(offer: DraftLink) -> None:
    """Offer something on the form of a rule set: called where the pages of another part are registered."""
    if offer not in _DRAFT_LINKS:
        _DRAFT_LINKS.append(offer)


def draft_links(name: str, change: Any) -> list[tuple[str, str]]:
    """Return what other parts offer for the draft of a rule set."""
    return [offer(name, change) for offer in _DRAFT_LINKS]


# Returns what another part has counted of the rules of a rule set: words by the rule's name.
RuleCounts = Callable[[str], Mapping[str, str]]

_RULE_COUNTS: list[RuleCounts] = []


def add_rule_counts(count: RuleCounts) -> None:
    """Show counts at each rule: called where the pages of another part are registered."""
    if count not in _RULE_COUNTS:
        _RULE_COUNTS.append(count)


def rule_counts(name: str) -> dict[str, list[str]]:
    """Return what other parts have counted of the rules of a rule set."""
    found: dict[str, list[str]] = {}
    for count in _RULE_COUNTS:
        for rule, words in count(name).items():
            found.setdefault(rule, []).append(words)
    return found


# Returns what another part offers beside the list of rule sets: its words and its address; None for who may not.
ListLink = Callable[[HttpRequest], tuple[str, str] | None]

_LIST_LINKS: list[ListLink] = []


def add_list_link(offer: ListLink) -> None:
    """Offer something beside the list of rule sets: called where the pages of another part are registered."""
    if offer not in _LIST_LINKS:
        _LIST_LINKS.append(offer)


def list_links(request: HttpRequest) -> list[tuple[str, str]]:
    """Return what other parts offer beside the list of rule sets to who asks."""
    return [found for offer in _LIST_LINKS if (found := offer(request))]


# Returns what another part knows of Revisions that Changes made, by the number of the Change: words, by their digests.
RevisionWords = Callable[[Mapping[int, str]], Mapping[int, str]]

_REVISION_WORDS: list[RevisionWords] = []


def add_revision_words(words: RevisionWords) -> None:
    """Show words at each Revision of the list: called where the pages of another part are registered."""
    if words not in _REVISION_WORDS:
        _REVISION_WORDS.append(words)


def revision_words(made: Mapping[int, str]) -> dict[int, str]:
    """Return what other parts say of Revisions, by the Changes that made them."""
    found: dict[int, str] = {}
    for words in _REVISION_WORDS:
        found.update(words(made))
    return found
