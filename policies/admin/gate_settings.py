"""Gate settings: the consequence of a check's findings, by rule set; set by administrators, with a history."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminSelectWidget

from policies import publishing
from policies.admin.base import person
from policies.admin.frame import display
from policies.admin.setting_rows import SettingAdmin, SettingForm
from policies.models import GateSetting, RuleSet
from policies.wording import listed

_WORDS: dict[str, str] = {
    GateSetting.Level.OFF: "what BERTH_GATE_CHECKS says",
    GateSetting.Level.WARNING: "a warning",
    GateSetting.Level.BLOCKING: "it isn't published",
}


class GateSettingForm(SettingForm):
    """The form of a gate setting."""

    rule_set = forms.ChoiceField(label="Changes that edit", widget=UnfoldAdminSelectWidget)
    check_name = forms.ChoiceField(label="Check", widget=UnfoldAdminSelectWidget)

    class Meta:
        model = GateSetting
        fields = ("rule_set", "check_name", "level", "reason")
        labels = {"level": "Effect"}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        rule_sets = RuleSet.objects.order_by("name").values_list("name", flat=True)
        self.fields["rule_set"].choices = [("", "choose a rule set"), *((name, name) for name in rule_sets)]  # type: ignore[attr-defined] # a ChoiceField
        self.fields["check_name"].choices = [(check, check) for check in settings.BERTH.gate_checks]  # type: ignore[attr-defined] # a ChoiceField


@admin.register(GateSetting)
class GateSettingAdmin(SettingAdmin):
    """The pages of gate settings: an append-only list, and the form that adds to it."""

    form = GateSettingForm
    list_display = ("scope", "check_name", "comes_of_it", "holds", "setter", "set_at", "reason")
    newest_of = ("rule_set", "check_name")
    shown = ("scope_link", "check_name", "comes_of_it", "stands", "set_by_when", "why")
    search_fields = ("rule_set", "check_name", "set_by", "reason")
    empty_title = "No gate setting yet"

    def says_when_empty(self) -> str:
        """Return what applies without a setting."""
        checks = settings.BERTH.gate_checks
        by_level = {
            level: [name for name in checks if checks[name] == level] for level in ("blocking", "warning", "off")
        }
        applies = "; ".join(f"{level}: {listed(names)}" for level, names in by_level.items() if names)
        return f"By BERTH_GATE_CHECKS, {applies}. A setting here can require more for Changes that edit a rule set."

    def save_model(self, request: HttpRequest, obj: GateSetting, form: Any, change: Any) -> None:
        """Save it through `policies.publishing`, which makes all changes of state."""
        typed = form.cleaned_data
        made = publishing.set_gate_level(
            rule_set=typed["rule_set"],
            check=typed["check_name"],
            level=typed["level"],
            by=person(request),
            reason=typed["reason"],
            seen=typed["seen"],
            told=typed["told"],
        )
        obj.pk, obj.set_at = made.pk, made.set_at
        obj._state.adding = False  # noqa: SLF001 - the row is there

    @display(description="Effect")
    def comes_of_it(self, row: GateSetting) -> str:
        """Return the consequence of the check's findings; the installation's setting may be stricter than the row."""
        installed = settings.BERTH.gate_checks.get(row.check_name)
        if (row.level, installed) == (GateSetting.Level.WARNING, GateSetting.Level.BLOCKING):
            return "a warning; BERTH_GATE_CHECKS is stricter: it isn't published"
        return _WORDS[row.level]
