"""The doctor's pages: the wiring with its canary, the configuration to copy, and the lint of an existing one."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from kombu.exceptions import OperationalError

from policies.admin.base import decisions_url, person
from policies.admin.versions import copyable
from policies.wording import ago
from scheduler.admin.forms import CANARY_DEFAULTS, AnswersForm, CanaryForm, LintForm
from scheduler.doctor.canary import LastCall
from scheduler.doctor.catalogue import Finding, is_ok
from scheduler.doctor.checkup import check, known
from scheduler.doctor.configuration import VERBS, to_yaml
from scheduler.doctor.findings import lint
from scheduler.doctor.parts import MARKS, Part
from scheduler.doctor.runs import LONGEST, CanaryBusyError, ask, give_up
from scheduler.models import CanaryRun, Process
from scheduler.tasks import run_canary

SEE, RUN = "scheduler.view_caller", "scheduler.run_canary"
_VERB_MARKS = {"seen": ("✓", "ok"), "missing": ("✗", "error"), "not asked": ("·", "unknown")}
# The path of a call: from kube-scheduler to the rules, and of its Decision into the history.
_ORDER = (
    "kube-scheduler", "configuration", "certificate", "extender", "API server", "Snapshot", "database", "tables",
    "schema", "Revision", "Changes", "Pauses", "Assignments", "Redis", "beat", "history", "Decisions", "ledger", "Storage", "PriorityClasses", "disk",
)  # fmt: skip

_SHOWN_RUNS = 5

# Pages with details of a part.
_PAGES = {
    "configuration": "doctor_lint", "extender": "admin:scheduler_process_changelist",
    "Revision": "admin:policies_revision_changelist", "Changes": "admin:policies_change_changelist", "Pauses": "pauses",
    "Assignments": "admin:policies_assignment_changelist", "Decisions": "admin:scheduler_decisiongap_changelist",
    "Storage": "storage", "ledger": "ledger", "PriorityClasses": "admin:policies_priorityclass_changelist",
}  # fmt: skip


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def wiring(request: HttpRequest) -> HttpResponse:
    """Show each part with its last proof, the callers, and the canary."""
    return _wiring(request, CanaryForm(initial=CANARY_DEFAULTS))


def _wiring(request: HttpRequest, form: CanaryForm) -> HttpResponse:
    found = check(quick=True)
    runs = [_run(row) for row in CanaryRun.objects.all()[:_SHOWN_RUNS]]
    is_running = any(run["is_moving"] for run in runs)
    context = {
        "parts": [_part(part) for part in sorted(found.parts, key=_place)],
        "is_ok": found.ok,
        "has_warnings": any(part.state == "warning" for part in found.parts),
        "verbs": _calls(found.calls),
        "findings": [_finding(each) for each in found.findings if each.severity != "note"],
        "runs": runs,
        "is_running": is_running,
        # Not below a refused form: a refresh would drop what was typed, or ask for a POST again.
        "refreshes": is_running and not form.is_bound,
        "form": form,
        "may_run": request.user.has_perm(RUN),
    }
    return _page(request, "wiring", "Doctor", context)


@admin.site.admin_view
@permission_required(RUN, raise_exception=True)
@require_POST
def canary(request: HttpRequest) -> HttpResponse:
    """Request a canary, and redirect to its result. A refused name shows the page again, with what was typed."""
    form = CanaryForm(request.POST)
    if not form.is_valid():
        return _wiring(request, form)
    _ask(request, form)
    return HttpResponseRedirect(reverse("doctor"))


def _ask(request: HttpRequest, form: CanaryForm) -> None:
    try:
        row = ask(by=str(person(request)), **form.cleaned_data)
    except CanaryBusyError:
        messages.warning(request, "A canary is running: its result will appear below.")
        return
    try:
        run_canary.apply_async(kwargs={"number": str(row.pk)}, retry=False, expires=LONGEST.total_seconds())
    except OperationalError:
        give_up(row)
        messages.error(
            request, "The canary couldn't be started: Redis can't be reached. Restore Redis, then try again."
        )


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
def configuration(request: HttpRequest) -> HttpResponse:
    """Make a configuration from answers."""
    form = AnswersForm(request.POST or AnswersForm.defaults())
    context: dict[str, Any] = {"form": form}
    if form.is_valid():
        answers = form.answers()
        text = to_yaml(answers)
        findings = lint(text, known((answers.url_prefix,))).findings
        context |= {"text": copyable(text), **_findings(findings)}
    return _page(request, "configuration", "Doctor: generate a configuration", context)


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
def lint_page(request: HttpRequest) -> HttpResponse:
    """Lint a configuration. The pasted text is neither kept nor logged: it may contain keys."""
    form = LintForm(request.POST or None, initial={"text": _configured()})
    context: dict[str, Any] = {"form": form}
    if request.method == "POST" and form.is_valid():
        urls = tuple(filter(None, [form.cleaned_data["berth_url"]]))
        linted = lint(form.cleaned_data["text"], known(urls), source="line")
        context |= _findings(linted.findings)
    return _page(request, "lint", "Doctor: lint a configuration", context)


def _configured() -> str:
    """Return kube-scheduler's file if Berth knows it and it contains no secrets; else an empty text."""
    try:
        text = (
            Path(settings.BERTH.scheduler_config).read_text(encoding="utf-8") if settings.BERTH.scheduler_config else ""
        )
    except (OSError, UnicodeDecodeError):
        return ""
    secret = {"url-credentials", "tls-inline-key", "not-readable"}
    return "" if secret & {finding.id for finding in lint(text).findings} else text


def _page(request: HttpRequest, name: str, title: str, context: dict[str, Any]) -> HttpResponse:
    tabs = [("Wiring", "doctor", "wiring"), ("Generate a configuration", "doctor_configuration", "configuration")]
    tabs.append(("Lint a configuration", "doctor_lint", "lint"))
    whole = {
        **admin.site.each_context(request),
        "title": title,
        "tabs": [{"title": text, "url": reverse(url), "is_here": which == name} for text, url, which in tabs],
        **context,
    }
    return TemplateResponse(request, f"scheduler/doctor/{name}.html", whole)


def _place(part: Part) -> int:
    return next((place for place, name in enumerate(_ORDER) if part.name.startswith(name)), len(_ORDER))


def _part(part: Part) -> dict[str, Any]:
    url = next((name for words, name in _PAGES.items() if part.name.startswith(words)), "")
    return {"mark": MARKS[part.state], "url": reverse(url) if url else "", **msgspec.structs.asdict(part)}


def _calls(found: Mapping[str, list[LastCall]]) -> list[tuple[str, list[tuple[LastCall, str]]]]:
    """Return the last callers of each verb, with the page of the process that answered, if it still reports."""
    there = set(Process.objects.values_list("pk", flat=True))
    page = "admin:scheduler_process_change"
    return [
        (
            verb,
            [
                (call, reverse(page, args=[quote(call.process)]) if call.process in there else "")
                for call in found.get(verb, [])
            ],
        )
        for verb in VERBS
    ]


def _finding(finding: Finding) -> dict[str, Any]:
    return {"mark": MARKS[finding.severity], **msgspec.structs.asdict(finding)}


def _findings(findings: list[Finding]) -> dict[str, Any]:
    return {"findings": [_finding(each) for each in findings], "ok": is_ok(findings), "was_linted": True}


def _run(row: CanaryRun) -> dict[str, Any]:
    """Return a run for the page."""
    is_done = row.state == CanaryRun.State.DONE
    age = datetime.now(UTC) - row.asked_at
    verbs = [
        {**each, "mark": _VERB_MARKS[each["state"]][0], "kind": _VERB_MARKS[each["state"]][1]}
        for each in row.report.get("verbs", [])
    ]
    pod = row.report.get("pod", "")
    return {
        "row": row,
        "report": {**row.report, "verbs": verbs},
        "ago": ago(age.total_seconds()),
        "is_done": is_done,
        "is_moving": not is_done and age < LONGEST,
        "is_stuck": not is_done and age >= LONGEST,
        "decisions": decisions_url(pod_name=pod) if pod else "",
    }
