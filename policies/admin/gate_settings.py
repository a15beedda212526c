"""Gate settings: what comes of what a check finds, by rule set; set by administrators, and who set what and when stays."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget

from policies import publishing
from policies.admin.base import ReadOnlyAdmin, named, person
from policies.admin.frame import ModelForm, display
from policies.models import GateSetting, RuleSet


class GateSettingForm(ModelForm):
    """What a setting asks for."""

    rule_set = forms.ChoiceField(label="Changes that touch", widget=UnfoldAdminSelectWidget)
    check_name = forms.ChoiceField(label="What it finds by", widget=UnfoldAdminSelectWidget)
    reason = forms.CharField(
        label="Reason",
        max_length=2000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text="Kept in the list.",
    )

    class Meta:
        model = GateSetting
        fields = ("rule_set", "check_name", "level", "reason")

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        rule_sets = RuleSet.objects.order_by("name").values_list("name", flat=True)
        self.fields["rule_set"].choices = [(name, name) for name in rule_sets]  # type: ignore[attr-defined] # a ChoiceField
        self.fields["check_name"].choices = [(check, check) for check in settings.BERTH.gate_checks]  # type: ignore[attr-defined] # a ChoiceField


@admin.register(GateSetting)
class GateSettingAdmin(ReadOnlyAdmin):
    """The pages of gate settings: a list that only grows, and the form that adds to it."""

    form = GateSettingForm
    list_display = ("rule_set", "check_name", "level", "holds", "setter", "set_at", "reason")
    search_fields = ("rule_set", "check_name", "set_by", "reason")
    list_display_links = None
    empty_title = "No gate setting yet"
    empty_text = "The environment's levels hold (BERTH_GATE_CHECKS). A setting here asks for more, of Changes that touch a rule set."

    def get_queryset(self, request: HttpRequest) -> QuerySet[GateSetting]:
        """Bring along whether a newer one has replaced each."""
        newer = GateSetting.objects.filter(
            rule_set=OuterRef("rule_set"), check_name=OuterRef("check_name"), pk__gt=OuterRef("pk")
        )
        found: QuerySet[GateSetting] = super().get_queryset(request)
        return found.annotate(is_replaced=Exists(newer))

    @display(description="Set by", ordering="set_by")
    def setter(self, row: GateSetting) -> SafeString | str:
        """Return who set it."""
        return named(row, row.set_by)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Administrators alone."""
        return request.user.has_perm("policies.add_gatesetting")

    def save_model(self, request: HttpRequest, obj: GateSetting, form: Any, change: Any) -> None:
        """Set it by the one place where state changes."""
        del change
        typed = form.cleaned_data
        made = publishing.set_gate_level(
            rule_set=typed["rule_set"],
            check=typed["check_name"],
            level=typed["level"],
            by=person(request),
            reason=typed["reason"],
        )
        obj.pk, obj.set_at = made.pk, made.set_at
        obj._state.adding = False  # noqa: SLF001 - the row is there

    @display(description="State", label={"holds": "success"})
    def holds(self, row: Any) -> str:
        """Return whether it is the newest of its check."""
        return "replaced" if row.is_replaced else "holds"
