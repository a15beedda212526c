"""Opening a Change with only a title, and choosing the things to edit in it."""

from collections.abc import Iterable
from difflib import get_close_matches
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest
from django.urls import reverse
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from policies import publishing
from policies.admin.base import edit_url_for
from policies.admin.fields import LinesField
from policies.engine import ruleset as engine
from policies.models import Change
from policies.publishing import Key

# How many things are offered while somebody types; the field accepts any thing.
MOST_OFFERED = 300
_LONGEST_TITLE = 200
_WORDS = {"RuleSet": "rule set", "Assignment": "Assignment", "PriorityClass": "PriorityClass"}
_CLOSE = 3


class BeginForm(forms.Form):
    """The form of a new Change: its title. Its edits are added later."""

    title = forms.CharField(
        label="Purpose, in one line",
        max_length=_LONGEST_TITLE,
        widget=UnfoldAdminTextInputWidget(attrs={"autofocus": True}),
        help_text="The title of the Change in all lists.",
    )
    reason = LinesField(
        label="Why",
        required=False,
        max_length=2000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3, "placeholder": "A ticket number helps."}),
        help_text="Approvers and auditors read it. You can add it later.",
    )


class Offer:
    """What the user may edit in a Change: the existing things, and the forms of new ones."""

    def __init__(self, row: Change, live: engine.Revision, request: HttpRequest) -> None:
        self._row, self._request = row, request
        held = [each.key for each in row.edits.all()]
        live_things: Iterable[Key] = publishing.values_of(live)
        # A Pause and an Exemption have no form: other pages create and end them.
        self._things: list[Key] = sorted(key for key in {*live_things, *held} if key[0] in _WORDS)
        self.url = reverse("admin:policies_change_edit", args=[row.pk])

    @property
    def offered(self) -> list[str]:
        """Things by kind and name, for the list of suggestions."""
        return [f"{kind}/{name}" for kind, name in self._things[:MOST_OFFERED]]

    @property
    def new(self) -> list[tuple[str, str]]:
        """The forms of new things, each with its label."""
        query = urlencode({"change": self._row.pk})
        return [
            (f"New {words}", f"{reverse(f'admin:policies_{kind.lower()}_add')}?{query}")
            for kind, words in _WORDS.items()
            if self._request.user.has_perm(f"policies.add_{kind.lower()}")
        ]

    def form_of(self, asked: str) -> str:
        """Return the URL of a thing's form, by its name, or by kind and name.

        Raises:
            PublishingError: there is none, more than one has this name, or this person may not edit it.
        """
        kind, _, name = asked.strip().rpartition("/")
        found = [key for key in self._things if key[1] == name and kind in {"", key[0]}]
        if len(found) != 1:
            raise publishing.PublishingError([self._fault(asked.strip(), found)])
        if url := edit_url_for(self._request, *found[0], self._row):
            return url
        raise publishing.PublishingError([f"Your role can't edit {'/'.join(found[0])}."])

    def _fault(self, asked: str, found: list[Key]) -> str:
        if not asked:
            return "Enter what to edit: the name of a rule set, an Assignment or a PriorityClass."
        if found:
            return f"More than one thing is called {asked}: {', '.join('/'.join(key) for key in found)}. Add the kind."
        names = {f"{kind}/{name}" if "/" in asked else name: f"{kind}/{name}" for kind, name in self._things}
        close = [names[each] for each in get_close_matches(asked, names, n=_CLOSE)]
        meant = f" Did you mean {' or '.join(close)}?" if close else ""
        return f"There is no rule set, Assignment or PriorityClass called {asked}, live or in this Change.{meant}"
