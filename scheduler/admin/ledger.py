"""The page of the ledger: each log's size, its last checkpoint, and the proof of one row."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST, require_safe
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from policies.admin.base import person
from policies.admin.panels import add_panel, add_revision_words
from policies.models import Change, Revision
from policies.wording import counted
from scheduler.decisions.missing import absent
from scheduler.evidence.standing import Proof, Signing, UnprovedError, prove, signings, standings
from scheduler.evidence.verifications import UnderWayError, ask, reports_of
from scheduler.ledger.keys import KeyFileError, known_verifiers
from scheduler.ledger.logs import DECISIONS, EVENTS, OUTCOMES
from scheduler.ledger.note import Verifier
from scheduler.models import Verification

# Users who may see archives may see their proofs.
SEE, EXPORT = "scheduler.view_evidenceexport", "scheduler.export_evidence"
_KINDS = {DECISIONS: "Decision", OUTCOMES: "Outcome of a Pod", EVENTS: "Event of the audit trail"}


class RowForm(forms.Form):
    """The row to prove."""

    log = forms.ChoiceField(label="What", choices=list(_KINDS.items()), widget=UnfoldAdminSelectWidget())
    key = forms.CharField(
        label="ID",
        max_length=64,
        widget=UnfoldAdminTextInputWidget(),
        help_text="For a Decision: the last part of its page's URL.",
    )


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Show the ledger's size and its checkpoints; prove one row, or the trees, if requested."""
    verifiers, key_fault = _keys()
    is_checked = "check" in request.GET
    found = standings(verifiers, check=is_checked)
    form = RowForm(request.GET if "key" in request.GET else None, initial={"log": DECISIONS})
    proof, unproved = _prove(form, verifiers)
    context = {
        **admin.site.each_context(request),
        "title": "Ledger",
        "logs": found,
        "faults": [each for each in found if each.fault],
        "is_checked": is_checked and bool(verifiers),
        "public_keys": [str(each) for each in verifiers],
        "key_fault": key_fault,
        "missing": sum(absent()),
        "form": form,
        "proof": proof,
        "proof_json": msgspec.json.format(msgspec.json.encode(proof)).decode() if proof else "",
        "unproved": unproved,
        "may_export": request.user.has_perm(EXPORT),
        **_verification(),
    }
    return TemplateResponse(request, "scheduler/ledger.html", context)


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_POST
def verify(request: HttpRequest) -> HttpResponse:
    """Request a verification of the whole ledger. It changes nothing, so everybody who may see the ledger may request it."""
    try:
        ask(by=person(request), now=timezone.now())
    except UnderWayError:
        messages.warning(request, "A verification is already running: its result will appear below.")
    return HttpResponseRedirect(f"{reverse('ledger')}#verification")


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def verification(request: HttpRequest) -> HttpResponse:
    """Show the last verification's progress as a fragment."""
    return TemplateResponse(request, "scheduler/verification.html", _verification())


def _verification() -> dict[str, Any]:
    row = Verification.objects.first()
    reports = reports_of(row) if row else []
    proved, checkpoints = sum(each.proved for each in reports), sum(each.checkpoints for each in reports)
    return {
        "verification": row,
        "found": f"{counted(proved, 'row')} proved, {counted(checkpoints, 'checkpoint')} agree",
        "wrong": [fault for each in reports for fault in each.faults],
        "more_wrong": sum(each.more_faults for each in reports),
    }


def _signed_words(made: Mapping[int, str]) -> dict[int, str]:
    return {change: _words_of(found) for change, found in signings(made).items()}


def _words_of(found: Signing) -> str:
    if not found.is_as_recorded:
        return "! its digest isn't the one that was recorded"
    if found.size is None or found.at is None:
        return "not yet"
    words = '<span>✓ with {} events, <span class="berth-nowrap">{}</span> {} UTC</span>'
    return format_html(words, f"{found.size:,}", f"{found.at:%Y-%m-%d}", f"{found.at:%H:%M:%S}")


def _signed_panel(revision: Revision, request: HttpRequest) -> SafeString:
    """Return whether a Revision is signed, and the link to its proof."""
    change: Change | None = getattr(revision, "change", None)
    found = signings({change.pk: revision.digest}).get(change.pk) if change else None
    proof = f"{reverse('ledger')}?{urlencode({'log': EVENTS, 'key': found.act})}" if found and found.size else ""
    context = {
        "words": _words_of(found) if found else "none: it was made before the ledger existed",
        "is_waiting": bool(found and found.is_as_recorded and found.size is None),
        "proof": proof if request.user.has_perm(SEE) else "",
    }
    return render_to_string("scheduler/revision_signed.html", context)


add_revision_words(_signed_words)
add_panel(Revision, _signed_panel)


def _keys() -> tuple[list[Verifier], str]:
    """Return the known public keys, and why there is none."""
    try:
        found = known_verifiers()
    except KeyFileError as error:
        return [], f"{error}."
    if found:
        return found, ""
    return (
        [],
        "This process knows no public key, so it can't check signatures: set BERTH_LEDGER_KEY_FILE, with FILE.pub beside the file.",
    )


def _prove(form: RowForm, verifiers: list[Verifier]) -> tuple[Proof | None, str]:
    if not form.is_bound or not form.is_valid():
        return None, ""
    given: dict[str, Any] = form.cleaned_data
    if not verifiers:
        return None, "Nothing can be proved without a public key."
    try:
        return prove(given["log"], given["key"].strip(), verifiers), ""
    except UnprovedError as error:
        return None, str(error)
