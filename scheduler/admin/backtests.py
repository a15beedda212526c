"""The pages of backtests: start one, see its progress and findings, cancel it, download its list."""

import csv
import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST, require_safe
from unfold.widgets import UnfoldAdminTextInputWidget

from policies.admin.base import change_url, person, revision_url
from policies.admin.panels import add_panel
from policies.admin.times import MomentField
from policies.models import Change
from scheduler.admin.links import pod_url
from scheduler.backtest.results import SENTENCES, Line, Result
from scheduler.backtest.runs import (
    RUN_BACKTEST,
    STANDS_STILL,
    WAITS_LONG,
    BacktestError,
    Span,
    SpanError,
    before,
    cancel_backtest,
    is_edited_since,
    lines_of,
    may_run,
    of_in_words,
    progress_of,
    result_of,
    shown_at,
    start_backtest,
    target_of,
)
from scheduler.backtest.table import HEADINGS, cells_of
from scheduler.models import Backtest

SEE = "scheduler.view_backtest"
_MOST_LISTED = 50
_MOST_SHOWN = 200


class BacktestForm(forms.Form):
    """The rules of a backtest, and its Decisions."""

    target = forms.CharField(
        label="Change, or rule set",
        max_length=300,
        widget=UnfoldAdminTextInputWidget(),
        help_text="The number of a Change; or the name of a rule set that one open Change edits, to test only that edit.",
    )
    since = MomentField(
        label="Decisions from (UTC)",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "class": "berth-input"}),
        help_text="Empty: from the oldest one kept.",
    )
    until = MomentField(
        label="Decisions before (UTC)",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "class": "berth-input"}),
        help_text="Empty: up to now.",
    )
    namespaces = forms.CharField(
        label="Only Pods in namespaces", required=False, max_length=2000, widget=UnfoldAdminTextInputWidget(),
        help_text="Separated by commas. Empty: all.",
    )  # fmt: skip
    rule_sets = forms.CharField(
        label="Only Decisions of rule sets", required=False, max_length=2000, widget=UnfoldAdminTextInputWidget(),
        help_text="Separated by commas. Empty: all.",
    )  # fmt: skip

    def span(self) -> Span:
        """Return the selected Decisions."""
        given = self.cleaned_data

        def names(field: str) -> list[str]:
            return [each.strip() for each in given[field].split(",") if each.strip()]

        return Span(
            since=given["since"],
            until=given["until"],
            namespaces=names("namespaces"),
            rule_sets=names("rule_sets"),
        )


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """List the newest backtests, of all or of one Change, with a form to start one."""
    found = Backtest.objects.select_related("change")
    number = request.GET.get("change", "")
    change = Change.objects.filter(pk=number).first() if number.isdecimal() and len(number) < len(str(2**31)) else None
    if change is not None:
        found = found.filter(change=change)
    elif number:
        messages.warning(request, f"There is no Change {number[:20]!r}: these are the backtests of all.")
    form = BacktestForm(initial={"target": change.pk if change else request.GET.get("rule_set", "")[:300]})
    return _list(request, found, form, change)


def _list(request: HttpRequest, found: Any, form: BacktestForm, change: Change | None = None) -> HttpResponse:
    context = {
        **admin.site.each_context(request),
        "title": "Backtests",
        "rows": [_row(each) for each in found[:_MOST_LISTED]],
        "form": form,
        "about": change,
        "back": change_url(change.pk) if change else "",
        "may_run": may_run(person(request)),
    }
    return TemplateResponse(request, "scheduler/backtests.html", context)


@admin.site.admin_view
@permission_required([SEE, RUN_BACKTEST], raise_exception=True)
@require_POST
def start(request: HttpRequest) -> HttpResponse:
    """Request a backtest, and redirect to its page."""
    form = BacktestForm(request.POST)
    if form.is_valid():
        try:
            change, rule_set = target_of(form.cleaned_data["target"])
            row = start_backtest(change=change, rule_set=rule_set, by=person(request), span=form.span())
        except BacktestError as error:
            form.add_error("since" if isinstance(error, SpanError) else "target", str(error))
        else:
            return HttpResponseRedirect(reverse("backtest", args=[row.pk]))
    return _list(request, Backtest.objects.select_related("change"), form)


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def detail(request: HttpRequest, number: int) -> HttpResponse:
    """Show a backtest's progress and findings."""
    row = get_object_or_404(Backtest.objects.select_related("change"), pk=number)
    context = {
        **admin.site.each_context(request),
        "title": f"Backtest {row.pk} of {of_in_words(row)}",
        "change_url": change_url(row.change_id),
        "revision_url": revision_url(row.revision) if row.revision else "",
        "is_edited_since": is_edited_since(row),
        **_shown(request, row),
    }
    return TemplateResponse(request, "scheduler/backtest.html", context)


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def progress(request: HttpRequest, number: int) -> HttpResponse:
    """Show a backtest's progress and findings, as a fragment."""
    row = get_object_or_404(Backtest.objects.select_related("change"), pk=number)
    return TemplateResponse(request, "scheduler/backtest_result.html", _shown(request, row))


@admin.site.admin_view
@permission_required([SEE, RUN_BACKTEST], raise_exception=True)
@require_POST
def cancel(request: HttpRequest, number: int) -> HttpResponse:
    """Cancel a backtest."""
    row = get_object_or_404(Backtest, pk=number)
    try:
        done = cancel_backtest(backtest=row, by=person(request))
    except BacktestError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, "The backtest is cancelled." if done else "The backtest had already ended.")
    return HttpResponseRedirect(reverse("backtest", args=[row.pk]))


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def table(request: HttpRequest, number: int) -> HttpResponse:
    """Return all Pods that differ, as CSV."""
    row = get_object_or_404(Backtest, pk=number)
    headers = {"Content-Disposition": f'attachment; filename="backtest-{row.pk}.csv"'}
    response = HttpResponse(content_type="text/csv; charset=utf-8", headers=headers)
    writer = csv.writer(response)
    writer.writerow(HEADINGS)
    try:
        writer.writerows(map(cells_of, lines_of(row)))
    except BacktestError as error:
        messages.error(request, str(error))
        return HttpResponseRedirect(reverse("backtest", args=[row.pk]))
    return response


class Group(msgspec.Struct, frozen=True):
    """Pods that differ in one way."""

    title: str
    # Each with its Pod's URL and its sentence.
    lines: Sequence[tuple[Line, str, str]]
    more: int


def _shown(request: HttpRequest, row: Backtest) -> dict[str, Any]:
    result, says = _found(row)
    return {
        "row": row,
        "says": says,
        "done": progress_of(row) if row.is_under_way else row.total,
        "span": _span(row),
        "result": result,
        "groups": _groups(result) if result else [],
        "causes": [(each, SENTENCES[each.kind][1], _rules_url(each.rule_set)) for each in result.causes[:_MOST_SHOWN]]
        if result
        else [],
        "may_cancel": row.is_under_way and may_run(person(request)),
        "digest": _result_digest(row),
    }


def _result_digest(row: Backtest) -> str:
    """Return the digest that identifies the result: equal rules over equal Decisions have the same."""
    return hashlib.sha256(bytes(row.result)).hexdigest() if row.result else ""


def _groups(result: Result) -> list[Group]:
    found = []
    for each in result.differing:
        lines = [line for line in result.pods if line.kind is each.kind]
        shown = [(line, _pod_url(line), line.sentence.removeprefix(line.pod)) for line in lines[:_MOST_SHOWN]]
        found.append(Group(f"{each.pods:,} {SENTENCES[each.kind][each.pods != 1]}", shown, each.pods - len(shown)))
    return found


def _pod_url(line: Line) -> str:
    namespace, _, name = line.pod.partition("/")
    return pod_url(namespace, name, line.uid)


def _rules_url(rule_set: str) -> str:
    return f"{reverse('admin:policies_ruleset_changelist')}?{urlencode({'q': rule_set})}" if rule_set else ""


def _says(row: Backtest) -> str:
    match row.state:
        case Backtest.State.QUEUED:
            if (first := before(row)) is not None:
                return f"Queued behind backtest {first.pk}."
            if timezone.now() - row.asked_at < WAITS_LONG:
                return "Waiting for a worker."
            return (
                f"No worker has picked it up since {row.asked_at:%Y-%m-%d %H:%M:%S} UTC: no worker is running, Redis is unreachable, "
                "or the worker's machine is busy, because backtests have the lowest priority there. "
                f"It starts when a worker is free; manage.py backtest --resume {row.pk} runs it at once."
            )
        case Backtest.State.RUNNING:
            done = f"Running: {progress_of(row):,} of {row.total:,} Decisions are done."
            shown = shown_at(row)
            if shown is None or timezone.now() - shown < STANDS_STILL:
                return done
            return (
                f"{done} No progress since {shown:%Y-%m-%d %H:%M:%S} UTC: no worker is running, Redis is unreachable, or the worker's "
                f"machine is busy. It continues when a worker is free; manage.py backtest --resume {row.pk} continues it at once."
            )
        case Backtest.State.FAILED:
            return f"The backtest failed: {row.fault}"
        case Backtest.State.CANCELLED:
            return f"{row.ended_by} cancelled the backtest."
        case _:
            return "The backtest has finished."


def _span(row: Backtest) -> str:
    since = f"from {row.since:%Y-%m-%d %H:%M} UTC" if row.since else "from the first"
    words = [f"Decisions {since}, before {row.until:%Y-%m-%d %H:%M} UTC"]
    words += [f"of Pods in {', '.join(row.namespaces)}"] if row.namespaces else []
    words += [f"answered by rule set {', '.join(row.rule_sets)}"] if row.rule_sets else []
    return ", ".join(words)


def _found(row: Backtest) -> tuple[Result | None, str]:
    """Return the result, if there is one that can be read, and how far the backtest is."""
    try:
        return result_of(row), _says(row)
    except BacktestError as error:
        return None, str(error)


def _row(row: Backtest) -> dict[str, Any]:
    result, says = _found(row)
    return {
        "row": row,
        "of": of_in_words(row),
        "url": reverse("backtest", args=[row.pk]),
        "says": result.sentences[-1 if not result.differing else 1] if result else says,
    }


def change_panel(change: Change, _: HttpRequest) -> SafeString:
    """Return the links to a Change's backtests and scenarios, and the newest findings."""
    newest = Backtest.objects.filter(change=change).first()
    query = QueryDict(mutable=True)
    query["change"] = str(change.pk)
    context = {
        "newest": _row(newest) if newest else None,
        "is_edited_since": newest is not None and is_edited_since(newest),
        "backtests": f"{reverse('backtests')}?{query.urlencode()}",
        "scenario": f"{reverse('scenario')}?{query.urlencode()}",
    }
    return render_to_string("scheduler/backtest_panel.html", context)


add_panel(Change, change_panel)
