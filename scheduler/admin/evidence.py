"""The page of evidence: request an archive, see its progress, download it."""

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe
from unfold.widgets import UnfoldAdminTextInputWidget

from policies.admin.base import person
from policies.admin.times import MomentField
from scheduler.evidence.runs import KEPT, EvidenceError, ask, case_of, take
from scheduler.evidence.selection import Case
from scheduler.history.storage import size_in_words
from scheduler.models import EvidenceExport

SEE, EXPORT = "scheduler.view_evidenceexport", "scheduler.export_evidence"
_SHOWN = 50
_MARKS = {"done": "✓", "failed": "✗"}


def _text(label: str, most: int, **more: Any) -> forms.CharField:
    return forms.CharField(label=label, max_length=most, required=False, widget=UnfoldAdminTextInputWidget(), **more)


def _moment(label: str, help_text: str) -> MomentField:
    widget = forms.DateTimeInput(attrs={"type": "datetime-local", "class": "berth-input"})
    return MomentField(label=label, required=False, widget=widget, help_text=help_text)


class CaseForm(forms.Form):
    """The period and the case."""

    first = _moment("From (UTC)", "Empty: from the oldest one kept.")
    until = _moment("Before (UTC)", "Empty: up to now.")
    pod_namespace = _text("Namespace", 253, help_text="Of the Pods. Empty: all.")
    pod_name = _text("Pod", 253, help_text="The exact name. Empty: all.")
    pod_uid = _text("UID", 100)
    change = forms.IntegerField(
        label="Change",
        required=False,
        min_value=1,
        max_value=2**31 - 1,
        widget=UnfoldAdminTextInputWidget(attrs={"inputmode": "numeric"}),
        help_text="Its number: exports its events, and the Decisions of the Revision that it made.",
    )

    def clean(self) -> dict[str, Any]:
        """Check that the period isn't empty."""
        given = super().clean() or {}
        first, until = given.get("first"), given.get("until")
        if first and until and until <= first:
            self.add_error("until", "The end is before the start.")
        return given

    def case(self) -> Case:
        """Return the requested case."""
        given = self.cleaned_data
        return Case(**given)


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """List the newest archives, with a form to request one."""
    known = {name: request.GET.get(name, "")[:253] for name in ("pod_namespace", "pod_name", "pod_uid", "change")}
    return _page(request, CaseForm(initial=known))


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def rows(request: HttpRequest) -> HttpResponse:
    """Show the list as a fragment."""
    return TemplateResponse(request, "scheduler/evidence_rows.html", _shown(request))


@admin.site.admin_view
@permission_required([SEE, EXPORT], raise_exception=True)
@require_POST
def start(request: HttpRequest) -> HttpResponse:
    """Request an archive."""
    form = CaseForm(request.POST)
    if form.is_valid():
        try:
            ask(form.case(), by=person(request), now=timezone.now())
        except EvidenceError as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, "The archive is being made. The audit trail records that you requested it.")
            return HttpResponseRedirect(reverse("evidence"))
    return _page(request, form)


@admin.site.admin_view
@permission_required([SEE, EXPORT], raise_exception=True)
@require_POST
def download(request: HttpRequest, number: int) -> HttpResponseBase:
    """Send an archive; the audit trail records who downloaded it."""
    row = get_object_or_404(EvidenceExport, pk=number)
    try:
        pieces = take(row, by=person(request))
    except EvidenceError as error:
        messages.error(request, str(error))
        return HttpResponseRedirect(reverse("evidence"))
    headers = {"Content-Disposition": f'attachment; filename="evidence-{row.pk}.tar"', "Content-Length": str(row.bytes)}
    return StreamingHttpResponse(pieces, content_type="application/x-tar", headers=headers)


def _page(request: HttpRequest, form: CaseForm) -> HttpResponse:
    context = {
        **admin.site.each_context(request),
        "title": "Evidence",
        "form": form,
        "days": KEPT // timedelta(days=1),
        **_shown(request),
    }
    return TemplateResponse(request, "scheduler/evidence.html", context)


def _shown(request: HttpRequest) -> dict[str, Any]:
    found = list(EvidenceExport.objects.all()[:_SHOWN])
    now = timezone.now()
    return {
        "rows": [_row(row, now) for row in found],
        "is_under_way": any(row.is_under_way for row in found),
        "may_export": request.user.has_perm(EXPORT),
    }


def _row(row: EvidenceExport, now: datetime) -> dict[str, Any]:
    is_kept = row.state == EvidenceExport.State.DONE and row.ended_at is not None and row.ended_at > now - KEPT
    return {
        "row": row,
        "what": case_of(row).words(),
        "mark": _MARKS.get(row.state, "…"),
        "says": _says(row, is_kept=is_kept),
        "url": reverse("evidence_download", args=[row.pk]) if is_kept else "",
    }


def _says(row: EvidenceExport, *, is_kept: bool) -> str:
    written = f"{row.rows:,} rows, {size_in_words(row.bytes)}"
    match row.state:
        case EvidenceExport.State.QUEUED:
            return "waiting for a worker"
        case EvidenceExport.State.RUNNING:
            return f"in progress: {written} so far"
        case EvidenceExport.State.FAILED:
            return f"failed: {row.fault}"
        case _:
            return written if is_kept else f"{written}; no longer kept"
