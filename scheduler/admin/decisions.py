"""The pages of Decisions, and of those that were lost or could not be read."""

import json
from typing import Any

from django.contrib import admin, messages
from django.db.models import F, Q, QuerySet, Sum
from django.db.models.functions import Length
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.paginator import InfinitePaginator

from policies.admin.base import ReadOnlyAdmin, link, revision_url
from policies.admin.frame import display
from policies.admin.versions import copyable
from scheduler.decisions.matrix import matrix_of
from scheduler.decisions.reading import body_of, chosen_by, preemption_of
from scheduler.models import DeadLetter, Decision, DecisionGap

_SHOWN = (
    *("answer", "outcome", "preemption", "matrix", "pod", "when", "by_revision", "by_rule_set", "chosen"),
    *("ids", "raw"),
)


class RefusedFilter(admin.SimpleListFilter):
    """How a Decision went."""

    title = "answer"
    parameter_name = "answer"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Name the answers."""
        return [("none", "no node"), ("some", "some nodes refused"), ("all", "every node"), ("error", "error")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Decision]) -> QuerySet[Decision]:
        """Keep the Decisions that went so."""
        match self.value():
            case "none":
                return queryset.filter(feasible=0, nodes__gt=0)
            case "some":
                return queryset.filter(feasible__gt=0, feasible__lt=F("nodes"))
            case "all":
                return queryset.filter(feasible=F("nodes"))
            case "error":
                return queryset.exclude(error="")
            case _:
                return queryset


class _KnownValuesFilter(admin.SimpleListFilter):
    """A filter over names that are known without asking the whole table."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Decision]) -> QuerySet[Decision]:
        return queryset.filter(**{str(self.parameter_name): self.value()}) if self.value() else queryset


class VerbFilter(_KnownValuesFilter):
    """What was asked."""

    title = "verb"
    parameter_name = "verb"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Name the verbs."""
        return [(verb, verb) for verb in ("filter", "prioritize", "bind", "preempt", "schedule")]


class _NewestValuesFilter(_KnownValuesFilter):
    """A filter over what the newest Decisions have in a column: there may be thousands of names in all."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Name them, with the one that was chosen."""
        newest = Decision.objects.values_list(str(self.parameter_name), flat=True)[:1000]
        chosen = self.used_parameters.get(str(self.parameter_name), "")
        return [(name, name) for name in sorted({*newest, chosen} - {""})]


class RuleSetFilter(_NewestValuesFilter):
    """Which rule set decided."""

    title = "rule set"
    parameter_name = "rule_set"


class NamespaceFilter(_NewestValuesFilter):
    """The Pod's namespace."""

    title = "namespace"
    parameter_name = "pod_namespace"


@admin.register(Decision)
class DecisionAdmin(ReadOnlyAdmin):
    """The pages of Decisions."""

    list_display = (
        "time",
        "pod_label",
        "verb",
        "verdict",
        "best",
        "placed",
        "top_reason",
        "took",
        "by_revision",
        "by_rule_set",
    )
    list_display_links = ("time", "pod_label")
    list_filter = (VerbFilter, RefusedFilter, RuleSetFilter, NamespaceFilter)
    linked_by = (
        "revision", "rule_set", "rule_set_version", "assignment", "pod_uid", "pod_name", "process", "mode", "divergence"
    )  # fmt: skip
    search_fields = ("pod_name", "pod_uid")
    search_help_text = "Pod name (its beginning) or UID"
    fieldsets = ((None, {"fields": _SHOWN}),)
    readonly_fields = _SHOWN
    list_fullwidth = True
    # What stands beside it comes before the long table.
    change_form_outer_before_template = "policies/panels.html"
    change_form_outer_after_template = ""
    paginator = InfinitePaginator
    show_full_result_count = False
    empty_title = "No Decision yet"
    empty_text = (
        "A Decision is written for every question of kube-scheduler and every Pod with schedulerName berth. "
        "Create a Pod in the cluster, then reload this page."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Decision]:
        """Leave the bodies in the database where a list is asked."""
        queryset = super().get_queryset(request)
        match = request.resolver_match
        return queryset.defer("body") if match and (match.url_name or "").endswith("changelist") else queryset

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show above the list when Decisions were lost."""
        if lost := lost_sentence():
            messages.error(request, lost)
        return super().changelist_view(request, extra_context)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Look names up by their beginning and UIDs whole, as the indexes can."""
        term = search_term.strip()
        if not term:
            return queryset, False
        namespace, slash, name = term.rpartition("/")
        named = Q(pod_namespace=namespace, pod_name__startswith=name) if slash else Q(pod_name__startswith=name)
        return queryset.filter(named | Q(pod_uid=term)), False

    @display(description="Time", ordering="at")
    def time(self, row: Decision) -> SafeString:
        """Return the time, how long ago on hover."""
        ago = f"{duration((timezone.now() - row.at).total_seconds())} ago; times are UTC"
        shown = f"{row.at:%m-%d %H:%M:%S}"
        return format_html('<time datetime="{}" title="{}">{}</time>', row.at.isoformat(), ago, shown)

    @display(description="Pod", ordering="pod_name")
    def pod_label(self, row: Decision) -> SafeString:
        """Name the Pod."""
        return format_html('<span title="UID {}">{}/{}</span>', row.pod_uid, row.pod_namespace, row.pod_name)

    @display(description="Answer")
    def verdict(self, row: Decision) -> SafeString:
        """Return how many nodes the Pod may use."""
        return verdict_of(row)

    @display(description="Placed on", ordering="placed_on")
    def placed(self, row: Decision) -> SafeString:
        """Return the node that the Pod got, and whether it was the best."""
        if not row.placed_on:
            return format_html("{}", "")
        sign, words = {True: ("★", "one of the best"), False: ("☆", "not one of the best"), None: ("", "")}[
            row.placed_best
        ]
        return format_html('<span title="{}">{} {}</span>', words, row.placed_on, sign)

    @display(description="Took", ordering="duration_microseconds")
    def took(self, row: Decision) -> str:
        """Return the time that it took."""
        return f"{row.duration_microseconds / 1000:.1f} ms"

    @display(description="Revision", ordering="revision")
    def by_revision(self, row: Decision) -> Any:
        """Link to the Revision."""
        return link(revision_url(row.revision), row.revision) if row.revision else "none"

    @display(description="Rule set", ordering="rule_set")
    def by_rule_set(self, row: Decision) -> Any:
        """Link to the rule set."""
        if not row.rule_set_version:
            return row.rule_set or "default set"
        url = f"{reverse('admin:policies_ruleset_changelist')}?q={row.rule_set}"
        return link(url, f"{row.rule_set} v{row.rule_set_version}")

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


def verdict_of(row: Decision) -> SafeString:
    """Return a Decision's verdict in a few words, with a sign before it."""
    if row.error:
        return format_html('<span class="berth-bad-text">! {}</span>', "error")
    if row.nodes and not row.feasible:
        return format_html('<span class="berth-bad-text">✗ none of {} nodes</span>', row.nodes)
    return format_html('<span class="berth-good-text">✓ {} of {} nodes</span>', row.feasible, row.nodes)


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
