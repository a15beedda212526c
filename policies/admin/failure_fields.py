"""The fields for a draft's answers in an outage: `spec.failures` as select boxes."""

from typing import Any

import msgspec
from django import forms
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget

from policies.engine.ruleset import DEFAULT_FAILURES
from policies.engine.validation import STALE_AFTER_SECONDS
from policies.models import RuleSetVersion

_OUTAGE = [
    ("lastKnown", "decide by what was known last"),
    ("pass", "let every node pass, without scores"),
    ("refuse", "refuse every node: the Pod waits"),
]
_DEADLINE = [("refuse", "refuse the nodes not asked about"), ("pass", "let the nodes not asked about pass")]


def _choice(label: str, choices: list[tuple[str, str]], help_text: str) -> forms.ChoiceField:
    """Make a select box. It isn't required: an omitted choice is the default."""
    return forms.ChoiceField(
        label=label, choices=choices, help_text=help_text, required=False, widget=UnfoldAdminSelectWidget
    )


class FailureFields(forms.Form):
    """A choice for each dependency that may be unavailable. If several are, the strictest choice wins: refuse, pass."""

    deadline = _choice(
        "Deadline exceeded", _DEADLINE, "The deadline passed before every rule was evaluated on every node."
    )
    stale_snapshot = _choice(
        "Silent watch",
        _OUTAGE,
        "No watch event for longer than the number of seconds set here: Berth's view of the cluster may be outdated.",
    )
    stale_after_seconds = forms.IntegerField(
        label="Silent for, seconds",
        required=False,
        min_value=STALE_AFTER_SECONDS[0],
        max_value=STALE_AFTER_SECONDS[1],
        help_text=f"At least {STALE_AFTER_SECONDS[0]}: a watch is silent for up to 90 s while nothing changes.",
        widget=UnfoldAdminIntegerFieldWidget,
    )
    api_server = _choice("API server unreachable", _OUTAGE, "Applies at once, before the watch counts as silent.")
    database = _choice("Database unreachable", _OUTAGE, "A newer Revision may have been published meanwhile.")
    redis = _choice("Redis unreachable", _OUTAGE, "Meanwhile Decisions are kept on disk.")

    instance: RuleSetVersion

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for path, name in FAILURE_PATHS.items():
            # The page without change permission has none of the fields.
            if name in self.fields:
                member = path.rpartition(".")[2]
                self.fields[name].initial = self.instance.failures.get(member, getattr(DEFAULT_FAILURES, name))

    def failures(self) -> dict[str, Any]:
        """Return the choices in a document's form."""
        chosen = {path.rpartition(".")[2]: self.cleaned_data.get(name) for path, name in FAILURE_PATHS.items()}
        return {member: value for member, value in chosen.items() if value not in (None, "")}


# Path in a document -> field.
FAILURE_PATHS = {
    f"spec.failures.{field.encode_name}": field.name for field in msgspec.structs.fields(type(DEFAULT_FAILURES))
}
FAILURE_FIELDSET = ("deadline", ("stale_snapshot", "stale_after_seconds"), "api_server", "database", "redis")
