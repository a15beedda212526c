"""What other parts of Berth show on the page of a row here: below the form, each as a piece of HTML."""

from collections.abc import Callable
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
    if row is None:
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
