"""Shared code of the pages of append-only settings: which row applies, who set it when, and a row in words."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django import forms
from django.db.models import Max, OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminTextareaWidget

from policies.admin.base import ReadOnlyAdmin, link, named, rows_of, thing_urls
from policies.admin.fields import LinesField
from policies.admin.frame import ModelForm, RefusedForm, display, once, refusal_of
from policies.admin.times import time_ago
from policies.publishing import fault_of_words


class SettingForm(RefusedForm):
    """A setting, the reason for it, the newest setting when the page was opened, and the one that a refusal told of since."""

    seen_field = "told"
    advice = "Save again to set yours after it."
    reason = LinesField(
        label="Reason",
        max_length=2000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text="Kept in the list.",
    )
    seen = forms.IntegerField(label="", required=False, widget=forms.HiddenInput)
    told = forms.IntegerField(label="", required=False, widget=forms.HiddenInput)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if not self.is_bound:
            rows = type(self.instance)._default_manager  # noqa: SLF001 - documented
            self.initial["seen"] = rows.aggregate(newest=Max("pk"))["newest"] or 0

    def clean_reason(self) -> str:
        """Refuse a reason with characters that others would see differently."""
        reason: str = self.cleaned_data["reason"]
        if said := fault_of_words(reason):
            raise forms.ValidationError(said)
        return reason


class SettingAdmin(ReadOnlyAdmin):
    """An append-only list of settings, and the page of one.

    `newest_of` names the columns for whose values the newest row applies; `shown` are the fields on a row's page.
    """

    list_display_links = ("scope",)
    newest_of: ClassVar[Sequence[str]]
    shown: ClassVar[Sequence[str]]
    every = ""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Annotate which row replaced each, in the same query."""
        same = {name: OuterRef(name) for name in self.newest_of}
        rows = super().get_queryset(request)
        newer = rows.filter(**same, pk__gt=OuterRef("pk")).order_by("pk")
        found: QuerySet[Any] = rows.annotate(replaced_by=Subquery(newer.values("pk")[:1]))
        return found

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may add rows: only administrators may."""
        return request.user.has_perm(f"{self.opts.app_label}.add_{self.opts.model_name}")

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001,FBT002 - Django's
        """Use the form only for adding a row: the page of an existing row has none of its fields."""
        if obj is not None:
            return super().get_form(request, obj, change, **{**kwargs, "form": ModelForm})
        made = super().get_form(request, obj, change, **kwargs)
        made.refusal = refusal_of(request)  # type: ignore[attr-defined] # a class made for this request
        return made

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields that show a row in words; for adding, those of the form."""
        return super().get_fields(request, obj) if obj is None else self.shown

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Make all fields of an existing row read-only."""
        return () if obj is None else self.shown

    @display(description="Changes of")
    def scope(self, row: Any) -> str:
        """Return its scope."""
        return f"rule set {row.rule_set}" if row.rule_set else self.every

    @display(description="Changes of")
    @once
    def scope_link(self, row: Any) -> SafeString | str:
        """Return its scope, as a link to the rule set."""
        key = ("RuleSet", row.rule_set)
        url = thing_urls(rows_of([key])).get(key)
        return link(url, self.scope(row)) if url else self.scope(row)

    @display(description="State", label={"holds": "success"})
    def holds(self, row: Any) -> str:
        """Return whether it is the newest of its kind."""
        return "replaced" if row.replaced_by else "holds"

    @display(description="State")
    def stands(self, row: Any) -> SafeString | str:
        """Return whether it is the newest of its kind, with a link to the one that replaced it."""
        if not row.replaced_by:
            return "holds"
        meta = self.opts
        return link(
            reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.replaced_by]),
            "replaced by a newer one",
        )

    @display(description="Set by", ordering="set_by")
    def setter(self, row: Any) -> SafeString | str:
        """Return who set it."""
        return named(row, row.set_by)

    @display(description="Set by")
    def set_by_when(self, row: Any) -> SafeString:
        """Return who set it, and how long ago."""
        return format_html("{}, {}", named(row, row.set_by), time_ago(row.set_at))

    @display(description="Reason")
    def why(self, row: Any) -> str:
        """Return the reason."""
        return row.reason or "none was given"
