"""The pages of Decisions, and of those that were lost or could not be read."""

import json
from typing import Any

from django.contrib import admin
from django.db.models import F, QuerySet, Sum
from django.db.models.functions import Length
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from policies.admin.base import ReadOnlyAdmin, link, revision_url
from policies.admin.frame import display
from policies.admin.versions import copyable
from scheduler.admin.decision_list import list_page
from scheduler.admin.links import version_urls
from scheduler.decisions.matrix import matrix_of
from scheduler.decisions.reading import body_of, chosen_by, preemption_of, recorded
from scheduler.models import DeadLetter, Decision, DecisionGap

_SHOWN = (
    *("answer", "outcome", "preemption", "matrix", "pod", "when", "by_revision", "by_rule_set", "chosen"),
    *("ids", "raw"),
)


@admin.register(Decision)
class DecisionAdmin(ReadOnlyAdmin):
    """The pages of Decisions."""

    fieldsets = ((None, {"fields": _SHOWN}),)
    readonly_fields = _SHOWN
    # What stands beside it comes before the long table.
    change_form_outer_before_template = "policies/panels.html"
    change_form_outer_after_template = ""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Decision]:
        """Read from where the history is read."""
        return recorded()

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list, which has filters and pages of its own."""
        self.check_may_view(request)
        return list_page(request, lost_sentence())

    @display(description="Revision")
    def by_revision(self, row: Decision) -> Any:
        """Link to the Revision."""
        return link(revision_url(row.revision), row.revision) if row.revision else "none"

    @display(description="Rule set")
    def by_rule_set(self, row: Decision) -> Any:
        """Link to the version of the rule set."""
        version = (row.rule_set, row.rule_set_version)
        said = f"{row.rule_set} v{row.rule_set_version}" if row.rule_set_version else row.rule_set or "default set"
        url = version_urls([version]).get(version)
        return link(url, said) if url else said

    @display(description="Answer")
    def answer(self, row: Decision) -> SafeString:
        """Return the answer in a sentence."""
        return format_html("{}", answer_of(row))

    @display(description="Placed on")
    def outcome(self, row: Decision) -> str:
        """Return where the Pod ended up in a sentence."""
        return outcome_of(row)

    @display(description="Why this rule set")
    def chosen(self, row: Decision) -> str:
        """Return what canaries drew for the Pod, and the params that its Assignment gave."""
        return "; ".join(chosen_by(body_of(row))) or f"Assignment {row.assignment or 'none'}"

    @display(description="Preemption")
    def preemption(self, row: Decision) -> str:
        """Return which Pods had to go for this one."""
        return preemption_of(body_of(row))

    @display(description="Pod")
    def pod(self, row: Decision) -> SafeString:
        """Name the Pod, with all Decisions about it."""
        url = f"{reverse('admin:scheduler_decision_changelist')}?pod_uid={row.pod_uid}"
        return format_html(
            "{}/{} <code>{}</code> {}", row.pod_namespace, row.pod_name, row.pod_uid, link(url, "all its Decisions")
        )

    @display(description="When")
    def when(self, row: Decision) -> str:
        """Return the time and how long it took."""
        return f"{row.at:%Y-%m-%d %H:%M:%S.%f} UTC, in {row.duration_microseconds:,} µs, {row.verb}, mode {row.mode}"

    @display(description="Nodes and rules")
    def matrix(self, row: Decision) -> str:
        """Return what each rule said of each node."""
        return render_to_string(
            "scheduler/matrix.html", {"matrix": matrix_of(body_of(row), best=row.best), "best": row.best}
        )

    @display(description="Record")
    def ids(self, row: Decision) -> str:
        """Return what names the record."""
        return f"{row.pk}, number {row.sequence} of {row.process}; Assignment {row.assignment or 'none'}"

    @display(description="Raw JSON")
    def raw(self, row: Decision) -> SafeString:
        """Return the body as it was written."""
        text = copyable(json.dumps(body_of(row), indent=1, ensure_ascii=False))
        return format_html('<details class="berth-details"><summary>Show the body</summary>{}</details>', text)


@admin.register(DecisionGap)
class DecisionGapAdmin(ReadOnlyAdmin):
    """The pages of Decisions that were answered and are lost."""

    list_display = ("found", "process", "numbers", "decisions", "reason", "may_return")
    fields = list_display
    readonly_fields = fields
    empty_title = "No Decision was lost"
    empty_text = "Each process numbers its Decisions; a number that is missing would stand here, with the reason."

    @display(description="When", ordering="at")
    def found(self, row: DecisionGap) -> str:
        """Return the time."""
        return f"{row.at:%Y-%m-%d %H:%M:%S} UTC"

    @display(description="Numbers")
    def numbers(self, row: DecisionGap) -> str:
        """Return the numbers that are missing."""
        return f"{row.first} to {row.last}"


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    """The pages of records that could not be read or stored."""

    list_display = ("found", "writer", "sequence", "size", "reason")
    fields = list_display
    readonly_fields = fields
    empty_title = "Every record could be read"
    empty_text = "A record that is damaged, or that the database refuses, is kept here as it came."

    def get_queryset(self, request: HttpRequest) -> Any:
        """Leave the bytes in the database."""
        return super().get_queryset(request).defer("data").annotate(bytes=Length("data"))

    @display(description="When", ordering="at")
    def found(self, row: DeadLetter) -> str:
        """Return the time."""
        return f"{row.at:%Y-%m-%d %H:%M:%S} UTC"

    @display(description="Bytes")
    def size(self, row: Any) -> int:
        """Return how much there is of it."""
        return int(row.bytes)


def answer_of(row: Decision) -> str:
    """Return a Decision's answer in a sentence."""
    pod = f"{row.pod_namespace}/{row.pod_name}"
    if row.error:
        return f"The question about {pod} couldn't be answered: {row.error}"
    if not row.feasible:
        return f"{pod} may use none of {row.nodes} nodes; most often: {row.top_reason or 'no reason given'}."
    best = f" The best is {row.best}." if row.best else ""
    refused = f" Most were refused because: {row.top_reason}." if row.feasible < row.nodes and row.top_reason else ""
    return f"{pod} may use {row.feasible} of {row.nodes} nodes.{best}{refused}"


def outcome_of(row: Decision) -> str:
    """Return where a Pod ended up."""
    if not row.placed_on:
        return (
            f"the Pod is gone, and nobody saw it on a node; found {row.placed_at:%Y-%m-%d %H:%M:%S} UTC"
            if row.placed_at
            else "not known yet"
        )
    best = {True: ", one of the best by the last answer", False: ", not one of the best by the last answer", None: ""}
    return f"{row.placed_on}{best[row.placed_best]}"


def lost_sentence() -> str:
    """Return how many Decisions are lost, and how many missing; empty when none is."""
    rows = DecisionGap.objects.order_by("may_return").values_list("may_return")
    counts: dict[bool, int] = dict(rows.annotate(number=Sum(F("last") - F("first") + 1)))
    if not counts:
        return ""
    newest = DecisionGap.objects.values_list("at", flat=True)[0]
    lost, absent = counts.get(False, 0), counts.get(True, 0)
    said = f"{lost + absent} Decisions were answered and are not in the history, the last on {newest:%Y-%m-%d %H:%M:%S} UTC."
    return f"{said} {absent} of them may still come: their process is gone. See Decision gaps." if absent else said


def duration(seconds: float) -> str:
    """Return a duration as people say it: 4 s, 3 min, 2 h, 5 d."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(int(seconds), 0)} s"
