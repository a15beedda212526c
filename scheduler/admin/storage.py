"""The pages of storage and legal holds: the history's size, what each rule pruned, and what may not be pruned."""

from collections.abc import Mapping
from datetime import date, timedelta
from types import MappingProxyType
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.decorators import permission_required
from django.core.validators import MaxValueValidator
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe
from unfold.widgets import UnfoldAdminTextInputWidget

from policies.admin.base import person
from policies.parameters import start_of
from scheduler.history.holds import HoldError, in_words, lift_hold, make_hold
from scheduler.history.storage import forecast_now, over_budget, retention, samples_now, size_in_words
from scheduler.history.storage import in_words as forecast_in_words
from scheduler.models import LegalHold, Pruning

SEE, HOLD, _LIFT = "scheduler.view_pruning", "scheduler.make_legalhold", "scheduler.lift_legalhold"
_SHOWN = 50
# The most lifted holds that are shown, the newest.
_MOST_LIFTED = 500


class HoldForm(forms.Form):
    """The selection to hold, and why."""

    reason = forms.CharField(
        max_length=2000, widget=UnfoldAdminTextInputWidget(), help_text="Whoever lifts the hold needs to know it."
    )
    pod_namespace = forms.CharField(
        label="Namespace", max_length=253, required=False, widget=UnfoldAdminTextInputWidget()
    )
    pod_name = forms.CharField(
        label="Pod", max_length=253, required=False, widget=UnfoldAdminTextInputWidget(), help_text="The exact name."
    )
    pod_uid = forms.CharField(label="UID", max_length=100, required=False, widget=UnfoldAdminTextInputWidget())
    from_at = forms.DateField(
        label="From",
        required=False,
        widget=UnfoldAdminTextInputWidget(attrs={"type": "date"}),
        help_text="A day, in UTC.",
    )
    until_at = forms.DateField(
        label="To",
        required=False,
        widget=UnfoldAdminTextInputWidget(attrs={"type": "date"}),
        help_text="The last day, inclusive.",
        # The day after it is noted, and the calendar ends.
        validators=[MaxValueValidator(date.max - timedelta(days=1), "Leave it empty for no end.")],
    )

    def what(self) -> dict[str, Any]:
        """Return the arguments of `make_hold`: whole days in UTC."""
        found = dict(self.cleaned_data)
        first, last = found.pop("from_at"), found.pop("until_at")
        found["from_at"] = start_of(first) if first else None
        found["until_at"] = start_of(last) + timedelta(days=1) if last else None
        return found


class LiftForm(forms.Form):
    """The reason for lifting a hold."""

    reason = forms.CharField(
        max_length=2000,
        widget=UnfoldAdminTextInputWidget(),
        error_messages={"required": "Give a reason for lifting the hold."},
    )


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def storage(request: HttpRequest) -> HttpResponse:
    """Show the history's size, its retention, and what was pruned."""
    newest, _ = samples_now()
    found = forecast_now()
    kept = retention()
    context = {
        **admin.site.each_context(request),
        "title": "Storage",
        "sample": newest,
        "sizes": [
            ("Decisions and outcomes of Pods", size_in_words(newest.decision_bytes)),
            ("Snapshots and names of nodes", size_in_words(newest.journal_bytes)),
        ]
        if newest
        else [],
        "forecast": forecast_in_words(found) if found else "",
        "each": (size_in_words(found.bytes_each), size_in_words(found.details_each)) if found else None,
        "budget": size_in_words(settings.BERTH.history_budget_bytes) if settings.BERTH.history_budget_bytes else "",
        "is_over": bool(found and over_budget(found)),
        "kept": kept,
        "holds": LegalHold.objects.filter(lifted_at=None).count(),
        "prunings": [
            {"row": row, "rule": row.get_rule_display(), "size": size_in_words(row.bytes)}
            for row in Pruning.objects.all()[:_SHOWN]
        ],
    }
    return TemplateResponse(request, "scheduler/storage.html", context)


@admin.site.admin_view
@permission_required("scheduler.view_legalhold", raise_exception=True)
@require_safe
def holds(request: HttpRequest) -> HttpResponse:
    """Show legal holds, active ones first."""
    return _holds(request, HoldForm())


@admin.site.admin_view
@permission_required(HOLD, raise_exception=True)
@require_POST
def make(request: HttpRequest) -> HttpResponse:
    """Make a hold."""
    form = HoldForm(request.POST)
    if form.is_valid():
        try:
            made = make_hold(by=person(request), now=timezone.now(), **form.what())
        except HoldError as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, f"Legal hold placed: {in_words(made)}.")
            return HttpResponseRedirect(reverse("legal_holds"))
    return _holds(request, form)


@admin.site.admin_view
@permission_required(_LIFT, raise_exception=True)
@require_POST
def lift(request: HttpRequest, number: int) -> HttpResponse:
    """Lift a hold. A refusal shows the page again, with the typed reason."""
    form = LiftForm(request.POST)
    if form.is_valid():
        try:
            lifted = lift_hold(number=number, by=person(request), now=timezone.now(), **form.cleaned_data)
        except HoldError as error:
            form.add_error("reason", str(error))
        else:
            messages.success(request, f"Legal hold lifted: {in_words(lifted)}. Normal retention applies again.")
            return HttpResponseRedirect(reverse("legal_holds"))
    for said in form.errors.get("reason", ()):
        messages.error(request, str(said))
    return _holds(request, HoldForm(), {number: request.POST.get("reason", "")})


def _holds(request: HttpRequest, form: HoldForm, typed: Mapping[int, str] = MappingProxyType({})) -> HttpResponse:
    # All active holds are shown: anybody may make any number of newer ones, and a hidden hold could not be lifted.
    holding = LegalHold.objects.filter(lifted_at=None)
    lifted = list(LegalHold.objects.exclude(lifted_at=None)[: _MOST_LIFTED + 1])
    context = {
        **admin.site.each_context(request),
        "title": "Legal holds",
        "rows": [
            {"row": row, "what": in_words(row), "typed": typed.get(row.pk, "")}
            for row in (*holding, *lifted[:_MOST_LIFTED])
        ],
        "has_more": len(lifted) > _MOST_LIFTED,
        "form": form,
        "may_hold": request.user.has_perm(HOLD),
        "may_lift": request.user.has_perm(_LIFT),
    }
    return TemplateResponse(request, "scheduler/legal_holds.html", context)
