"""Forms of the doctor's pages, and the parsing of times in any form."""

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from policies.engine.assignments import DEFAULT_SCHEDULER
from scheduler.doctor.configuration import VERBS, Answers, Managed

_MOST_NAMES = 1_000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_MAX_TEXT = 1_000_000
_DEFAULTS = Answers()
_VERB_CHOICES = [
    ("filter", "filter: which nodes a Pod may use"),
    ("prioritize", "prioritize: which are best"),
    ("bind", "bind: rules that count Pods are checked again"),
    ("preempt", "preempt: rules may protect Pods"),
]


def _text(label: str, *, help_text: str = "", required: bool = False) -> forms.CharField:
    return forms.CharField(
        label=label, help_text=help_text, required=required, max_length=2000, widget=UnfoldAdminTextInputWidget()
    )


class CanaryForm(forms.Form):
    """The requested canary."""

    namespace = _text("Namespace", required=True)
    scheduler_name = _text("schedulerName", required=True)

    def clean(self) -> dict[str, Any]:
        """Accept only valid names, because they are in the path of a request."""
        cleaned = super().clean() or {}
        for name in ("namespace", "scheduler_name"):
            if name in cleaned and not _NAME.fullmatch(cleaned[name]):
                self.add_error(name, "A Kubernetes name has only lower-case letters, digits, - and .")
        return cleaned


class ManagedField(forms.Field):
    """Extended resources, separated by commas, each with `:ignored` after it if kube-scheduler shall not check it."""

    def to_python(self, value: Any) -> tuple[Managed, ...]:
        """Parse the names.

        Raises:
            ValidationError: something else follows a colon, or there are too many names.
        """
        made: list[Managed] = []
        parts = [each.strip() for each in (value or "").split(",") if each.strip()]
        if len(parts) > _MOST_NAMES:
            message = f"{len(parts):,} names; at most {_MOST_NAMES:,} are accepted."
            raise ValidationError(message)
        for part in parts:
            name, _, word = part.partition(":")
            if word not in {"", "ignored"}:
                message = "Write NAME or NAME:ignored."
                raise ValidationError(message)
            made.append(Managed(name, ignored_by_scheduler=bool(word)))
        return tuple(made)


class AnswersForm(forms.Form):
    """The answers for a configuration."""

    url_prefix = _text(
        "URL at which kube-scheduler reaches Berth", required=True, help_text="https://HOST:PORT, no path"
    )
    verbs = forms.MultipleChoiceField(
        label="Extender verbs",
        choices=_VERB_CHOICES,
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget(),
    )
    weight = forms.IntegerField(
        label="Weight of Berth's scores",
        widget=UnfoldAdminIntegerFieldWidget(),
        help_text="141 or more outweighs all of kube-scheduler's default scores",
    )
    http_timeout_seconds = forms.FloatField(
        label="Timeout of a call, in seconds",
        min_value=0.001,
        max_value=600,
        widget=UnfoldAdminTextInputWidget(),
        help_text="If Berth hangs, every Pod waits this long for each call",
    )
    ignorable = forms.BooleanField(
        label="Place Pods without Berth's rules while Berth is unreachable",
        required=False,
        widget=UnfoldBooleanWidget(),
    )
    node_cache_capable = forms.BooleanField(
        label="Send only the names of nodes", required=False, widget=UnfoldBooleanWidget(),
        help_text="Otherwise kube-scheduler's own scores are wrong",
    )  # fmt: skip
    ca_file = _text("CA of Berth's certificate", help_text="A file on kube-scheduler's machine. Empty: plain HTTP")
    cert_file = _text("Client certificate", help_text="A file on kube-scheduler's machine")
    key_file = _text("Client key", help_text="A file on kube-scheduler's machine")
    server_name = _text("Host name in Berth's certificate", help_text="Empty: the host of the URL")
    scheduler_name = _text("schedulerName of the Pods", required=True)
    percentage_of_nodes_to_score = forms.IntegerField(
        label="Percentage of nodes to score", min_value=0, max_value=100, widget=UnfoldAdminIntegerFieldWidget(),
        help_text="100: kube-scheduler asks about all nodes",
    )  # fmt: skip
    managed_resources = ManagedField(
        label="Only for Pods that request these resources",
        required=False,
        widget=UnfoldAdminTextInputWidget(),
        help_text="Separated by commas; NAME:ignored if kube-scheduler shouldn't check the resource. Empty: all Pods",
    )
    kubeconfig = _text("kube-scheduler's kubeconfig", help_text="Empty if kube-scheduler runs in a Pod")

    _SELDOM = ("server_name", "node_cache_capable", "percentage_of_nodes_to_score", "managed_resources", "kubeconfig")

    def usual_fields(self) -> list[forms.BoundField]:
        """Return the fields that everybody needs."""
        return [self[name] for name in self.fields if name not in self._SELDOM]

    def seldom_fields(self) -> list[forms.BoundField]:
        """Return the fields whose defaults are nearly always right."""
        return [self[name] for name in self._SELDOM]

    def has_seldom_errors(self) -> bool:
        """Return whether one of these has an error, so that they have to be shown."""
        return any(self[name].errors for name in self._SELDOM)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the initial answers."""
        shown = {name: getattr(_DEFAULTS, name) for name in _DEFAULTS.__struct_fields__}
        return {**shown, "verbs": list(_DEFAULTS.verbs), "managed_resources": ""}

    def answers(self) -> Answers:
        """Return the answers of a valid form."""
        cleaned = {**self.cleaned_data, "verbs": tuple(verb for verb in VERBS if verb in self.cleaned_data["verbs"])}
        return Answers(**cleaned)


class LintForm(forms.Form):
    """A configuration to lint."""

    text = forms.CharField(
        label="kube-scheduler's configuration",
        max_length=_MAX_TEXT,
        strip=False,
        widget=UnfoldAdminTextareaWidget(
            attrs={
                "rows": 14,
                "class": "berth-code",
                "spellcheck": "false",
                "placeholder": "apiVersion: kubescheduler.config.k8s.io/v1",
            }
        ),
        help_text="Paste the file that you pass to kube-scheduler with --config. Berth doesn't store it.",
    )
    berth_url = _text("Berth's URL", help_text="Only if the file has several extenders")


CANARY_DEFAULTS = {"namespace": "default", "scheduler_name": DEFAULT_SCHEDULER}
