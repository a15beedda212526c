"""What shadows would have done: a page of all, and panels for Assignments, Changes and Decisions; also canaries' other sides."""

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any
from uuid import UUID

import msgspec
from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.core.paginator import Paginator
from django.db.models import F, Max, Min, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from policies.admin.base import change_url, decisions_url, number_in
from policies.admin.panels import add_panel
from policies.models import Assignment, Change, RevisionPart
from policies.parameters import read_parameters
from policies.wording import percentage
from scheduler.admin.links import decision_url
from scheduler.decisions.divergence import Divergence
from scheduler.decisions.other_sides import OtherSide, other_sides, shadows_beside
from scheduler.decisions.reading import answered_of, recorded
from scheduler.decisions.shadow_counts import DROPPED, FAILED
from scheduler.models import Decision, ShadowCount

SEE = "scheduler.view_shadowcount"
_ASKS = dict.fromkeys(("assignment", "rule_set", "change", "p"), str)
_BADLY_ASKED = 400
_PER_PAGE = 50
# The text in the canonical JSON of an Assignment, and of a rule.
_IN_SHADOW = '"mode":"shadow"'

# The columns: divergences, then the states that have no Decision to show.
COLUMNS = (
    (Divergence.AGREED, "agreed"),
    (Divergence.REFUSED_NODE, "refused the node"),
    (Divergence.REFUSED_ALL, "refused all"),
    (Divergence.ANOTHER_NODE, "another node"),
    (Divergence.LET_PASS, "let pass"),
    (Divergence.OPEN, "open"),
    (DROPPED, "dropped"),
    (FAILED, "failed"),
)
_WITHOUT_DECISION = (DROPPED, FAILED)
_SENTENCES: Mapping[str, str] = {
    Divergence.AGREED: "It agrees with the outcome for the Pod.",
    Divergence.REFUSED_NODE: "It would have refused the node that the Pod got.",
    Divergence.REFUSED_ALL: "It would have refused all nodes, though the Pod had some.",
    Divergence.ANOTHER_NODE: "It would have chosen another node.",
    Divergence.LET_PASS: "It would have allowed a node for a Pod that got none.",
    Divergence.OPEN: "It depends on the node that the Pod gets, which isn't known yet.",
}


class Cell(msgspec.Struct, frozen=True):
    """The number of Decisions with one divergence, and the URL of examples."""

    column: str
    number: int
    share: str = ""
    url: str = ""


class Row(msgspec.Struct, frozen=True):
    """The divergences of one version of a rule set for the Pods of an Assignment, by one verb."""

    assignment: str
    rule_set: str
    version: int
    verb: str
    first: int
    last: int
    cells: Sequence[Cell]


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Show what shadows would have done: all, or those of one Assignment, rule set or Change."""
    _known, faults = read_parameters(request.GET.dict(), _ASKS, what="shadows")
    counts, about, back, since = _asked(request.GET)
    found = Paginator(_grouped(counts.none() if faults else counts), _PER_PAGE).get_page(request.GET.get("p"))
    context = {
        **admin.site.each_context(request),
        "title": "Shadows",
        "faults": faults,
        "about": about,
        "back": back,
        "headings": [text for _, text in COLUMNS],
        "rows": [_row(each, since) for each in found],
        "page": found,
    }
    return TemplateResponse(request, "scheduler/shadows.html", context, status=_BADLY_ASKED if faults else None)


def _asked(query: QueryDict) -> tuple[QuerySet[ShadowCount], str, str, str]:
    """Return the requested counts, their subject in words, the URL of the way back, and since when they count, if not always.

    Raises:
        Http404: there is no such Change.
    """
    counts, words, back, since = ShadowCount.objects.all(), list[str](), "", ""
    if number := query.get("change"):
        change = get_object_or_404(Change.objects.select_related("revision"), pk=number_in(number))
        counts, words, back = _of_change(change), [f"{change}: {change.title}"], change_url(change.pk)
        since = _since(change)
    for name, what in (("assignment", "Assignment"), ("rule_set", "rule set")):
        if value := query.get(name):
            counts = counts.filter(**{name: value})
            words.append(f"{what} {value}")
    return counts, f"of {' and '.join(words)}" if words else "", back, since


def _grouped(counts: QuerySet[ShadowCount]) -> Any:
    """Return one row of counts for each version of each shadow, the newest first."""
    sums = {f"number_{index}": Sum("number", filter=Q(divergence=how)) for index, (how, _) in enumerate(COLUMNS)}
    keys = ("assignment", "rule_set", "rule_set_version", "verb")
    rows = counts.filter(number__gt=0).values(*keys).annotate(first=Min("revision"), last=Max("revision"), **sums)
    return rows.order_by("assignment", "rule_set", F("rule_set_version").desc(), "verb")


def _row(found: dict[str, Any], since: str = "") -> Row:
    numbers = [found[f"number_{index}"] or 0 for index in range(len(COLUMNS))]
    compared = sum(number for number, (how, _) in zip(numbers, COLUMNS, strict=True) if how not in _WITHOUT_DECISION)
    cells = [
        _cell(found, number, str(how), compared, text, since)
        for number, (how, text) in zip(numbers, COLUMNS, strict=True)
    ]
    return Row(
        assignment=found["assignment"],
        rule_set=found["rule_set"],
        version=found["rule_set_version"],
        verb=found["verb"],
        first=found["first"],
        last=found["last"],
        cells=cells,
    )


def _cell(found: dict[str, Any], number: int, how: str, compared: int, column: str, since: str) -> Cell:
    if not number or how in _WITHOUT_DECISION:
        return Cell(column, number)
    asked = {name: found[name] for name in ("assignment", "rule_set", "rule_set_version", "verb")}
    asked |= {"from": since} if since else {}
    share = percentage(number / compared)
    return Cell(column, number, share, decisions_url(**asked, mode="shadow", divergence=how))


def _of_change(change: Change) -> QuerySet[ShadowCount]:
    """Return the counts, since a Change, of the shadows that it added or changed."""
    if change.revision is None:
        return ShadowCount.objects.none()
    made = RevisionPart.objects.filter(since=change.revision)
    assignments = made.filter(kind=RevisionPart.Kind.ASSIGNMENT).values("name")
    rule_sets = made.filter(kind=RevisionPart.Kind.RULE_SET).values("name")
    return ShadowCount.objects.filter(
        Q(assignment__in=assignments) | Q(rule_set__in=rule_sets), revision__gte=change.revision.number
    )


def _since(change: Change) -> str:
    """Return when a Change went live, for the links to Decisions, which have no lower bound of Revisions; empty if it isn't live."""
    return f"{change.revision.created_at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}" if change.revision else ""


def change_panel(change: Change, _: HttpRequest) -> SafeString:
    """Return the results of the shadows that a Change added; empty if it added none."""
    counts = _of_change(change)
    brought = RevisionPart.objects.filter(since=change.revision, part__document__contains=_IN_SHADOW)
    if change.revision is None or not (counts.exists() or brought.exists()):
        return SafeString("")
    return _panel(counts, f"?change={change.pk}", "Results of its shadows since", _since(change))


def _assignment_panel(assignment: Assignment, _: HttpRequest) -> SafeString:
    """Return what an Assignment's shadow would have done; empty if it never was one."""
    counts = ShadowCount.objects.filter(assignment=assignment.name)
    if assignment.mode != Assignment.Mode.SHADOW and not counts.exists():
        return SafeString("")
    asked = QueryDict(mutable=True)
    asked["assignment"] = assignment.name
    return _panel(counts, f"?{asked.urlencode()}", "Its results in shadow mode")


def _panel(counts: QuerySet[ShadowCount], query: str, title: str, since: str = "") -> SafeString:
    rows = [_row(each, since) for each in _grouped(counts)[: _PER_PAGE + 1]]
    context = {
        "title": title,
        "headings": [text for _, text in COLUMNS],
        "rows": rows[:_PER_PAGE],
        "url": reverse("shadows") + query,
        "has_more": len(rows) > _PER_PAGE,
    }
    return render_to_string("scheduler/shadow_panel.html", context)


def _decision_panel(row: Decision, _: HttpRequest) -> SafeString:
    """Return the panel beside a Decision: for a shadow, its answer; for an answer, its shadows and canaries, which the page loads later."""
    if row.mode != "shadow":
        return render_to_string("scheduler/beside.html", {"asks": reverse("decision_shadows", args=[row.pk])})
    if not row.divergence:
        return SafeString("")
    answered = answered_of(row)
    shadow = {
        "says": _said(row.divergence),
        "answered": decision_url(answered) if answered else "",
        "beside": reverse("decision_beside", args=[answered, row.pk]) if answered else "",
    }
    return render_to_string("scheduler/beside.html", {"shadow": shadow})


@admin.site.admin_view
@permission_required("scheduler.view_decision", raise_exception=True)
@require_safe
def beside(request: HttpRequest, key: UUID) -> HttpResponse:
    """Show the shadows of an answer, and the other sides of canaries: a fragment of its page."""
    row = get_object_or_404(recorded(), pk=key)
    context = {
        "beside": [_beside(row, each) for each in shadows_beside(row)],
        "others": [_other(each) for each in other_sides(row)],
    }
    return TemplateResponse(request, "scheduler/beside.html", context)


def _beside(row: Decision, shadow: Decision) -> dict[str, Any]:
    return {
        "row": shadow,
        "url": decision_url(shadow.pk),
        "beside": reverse("decision_beside", args=[row.pk, shadow.pk]),
        "says": _said(shadow.divergence),
    }


def _said(divergence: str) -> str:
    """Return a divergence in a sentence; unchanged, where a newer version of Berth wrote one that this one doesn't know."""
    return _SENTENCES.get(divergence, divergence)


def _other(side: OtherSide) -> dict[str, Any]:
    fault = f"Not replayable: {side.fault}."
    return {"side": side, "says": fault if side.divergence is None else _SENTENCES[side.divergence]}


add_panel(Assignment, _assignment_panel)
add_panel(Change, change_panel)
add_panel(Decision, _decision_panel)
