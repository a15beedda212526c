"""Review settings: which approvals Changes need; set by administrators, with a history."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.models import Group
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminSelectWidget

from policies import publishing
from policies.admin.base import person
from policies.admin.frame import display
from policies.admin.setting_rows import SettingAdmin, SettingForm
from policies.models import ReviewSetting, RuleSet
from policies.publishing.lifecycle import Need
from policies.wording import counted

_NOT_REQUIRED = "No Change needs an approval: BERTH_REVIEW_REQUIRED is false."


class ReviewSettingForm(SettingForm):
    """The form of a review setting."""

    rule_set = forms.ChoiceField(label="Changes of", required=False, widget=UnfoldAdminSelectWidget)
    group = forms.ChoiceField(label="Only people in", required=False, widget=UnfoldAdminSelectWidget)

    class Meta:
        model = ReviewSetting
        fields = ("rule_set", "approvals", "group", "roll_backs", "reason")

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        rule_sets = RuleSet.objects.order_by("name").values_list("name", flat=True)
        groups = Group.objects.order_by("name").values_list("name", flat=True)
        self.fields["rule_set"].choices = [("", ReviewSettingAdmin.every), *((name, name) for name in rule_sets)]  # type: ignore[attr-defined] # a ChoiceField
        self.fields["group"].choices = [("", "anybody who may approve"), *((name, name) for name in groups)]  # type: ignore[attr-defined] # a ChoiceField

    def clean(self) -> dict[str, Any]:
        """Refuse requirements that can't be met."""
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("group") and not cleaned.get("approvals"):
            self.add_error("approvals", "Enter how many people of this group have to approve.")
        return cleaned


@admin.register(ReviewSetting)
class ReviewSettingAdmin(SettingAdmin):
    """The pages of review settings: an append-only list, and the form that adds to it."""

    form = ReviewSettingForm
    list_display = ("scope", "asks_for", "holds", "setter", "set_at", "reason")
    newest_of = ("rule_set",)
    shown = ("scope_link", "asks_for", "stands", "set_by_when", "why")
    every = "everything"
    search_fields = ("rule_set", "set_by", "reason")
    empty_title = "No review setting yet"

    def says_when_empty(self) -> str:
        """Return what applies without a setting."""
        berth = settings.BERTH
        needed = f"Each Change needs {counted(berth.review_approvals, 'approval')}"
        applies = f"{needed}: BERTH_REVIEW_REQUIRED is true." if berth.review_required else _NOT_REQUIRED
        return f"{applies} A setting here can require more, for all Changes or for those of one rule set."

    def save_model(self, request: HttpRequest, obj: ReviewSetting, form: Any, change: Any) -> None:
        """Save it through `policies.publishing`, which makes all changes of state."""
        made = publishing.set_review(by=person(request), **form.cleaned_data)
        obj.pk, obj.set_at = made.pk, made.set_at
        obj._state.adding = False  # noqa: SLF001 - the row is there
        need = Need(made.rule_set, made.approvals, made.group, able=publishing.number_able(made.group))
        if made.group and need.note:
            self.message_user(request, f"Too few people can approve.{need.note}", messages.WARNING)

    @display(description="Required approvals")
    def asks_for(self, row: ReviewSetting) -> str:
        """Return the approvals that it requires."""
        return publishing.sentence_of(row)
