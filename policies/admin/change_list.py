"""The list of Changes: its filters, its columns, and what its search looks at."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from policies import publishing
from policies.admin.base import ReadOnlyAdmin, link, named, person, rows_of, thing_urls
from policies.admin.frame import ChangeList, display
from policies.admin.times import time_ago
from policies.models import Change, ChangeEdit
from policies.publishing import Kind, lifecycle
from policies.wording import counted

_OPEN = sorted(lifecycle.OPEN)
# How many things a line of the list names; of more it shows the number.
_NAMED = 3
_GATE_MARKS = {
    publishing.GateMark.NONE: "",
    publishing.GateMark.MOVES: "…",
    publishing.GateMark.FAILED: "✗",
    publishing.GateMark.OLD: "!",
    publishing.GateMark.PASSED: "✓",
    publishing.GateMark.WARNS: "!",
    publishing.GateMark.BLOCKS: "✗",
}


class StateFilter(admin.SimpleListFilter):
    """Filters the list: open ones, those that wait for me, mine, done ones."""

    title = "which"
    parameter_name = "which"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices."""
        return [
            ("open", "open"),
            ("waiting", "waiting for approval"),
            ("asked", "waiting for me"),
            ("timed", "at a set time"),
            ("mine", "opened by me"),
            ("done", "done"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Change]) -> QuerySet[Change]:
        """Return the Changes of the choice."""
        match self.value():
            case "open":
                return queryset.filter(state__in=_OPEN)
            case "waiting":
                return queryset.filter(Q(state=lifecycle.IN_REVIEW) | Q(pk__in=publishing.unapproved_changes()))
            case "asked":
                asked = publishing.changes_waiting_for(person(request).get_username())
                return queryset.filter(pk__in=[change.pk for change, _ in asked])
            case "timed":
                return queryset.filter(state__in=_OPEN, publish_at__isnull=False)
            case "mine":
                return queryset.filter(opened_by=person(request).get_username())
            case "done":
                return queryset.exclude(state__in=_OPEN)
            case _:
                return queryset


class _ChangeList(ChangeList):
    """Adds to the rows of a page the state of each open Change, and which approvals no longer suffice."""

    def get_results(self, request: HttpRequest) -> None:
        """Read the state of all rows with a few queries."""
        super().get_results(request)
        overview = publishing.overview_of(self.result_list)
        reviewers = publishing.reviewers_among(self.result_list)
        touched = _touched([row.pk for row in self.result_list if 0 < row.edit_count <= _NAMED])
        for row in self.result_list:
            row.overview = overview.get(row.pk)
            row.reviewers = reviewers
            lacks = row.overview is not None and row.overview.lacks_approvals
            row.is_short = lacks and row.state == lifecycle.APPROVED
            row.touched = touched.get(row.pk)


def _touched(numbers: Sequence[int]) -> dict[int, SafeString]:
    """Return the things that each of some Changes touches, with links to the pages of existing ones."""
    edits = list(ChangeEdit.objects.filter(change__in=numbers).order_by("kind", "name")) if numbers else []
    pages = thing_urls(rows_of(edit.key for edit in edits))
    lines: dict[int, list[SafeString | str]] = {}
    for edit in edits:
        said = f"{'rule set' if edit.kind == Kind.RULE_SET else edit.kind} {edit.name}"
        url = pages.get(edit.key)
        lines.setdefault(edit.change_id, []).append(link(url, said) if url else said)
    return {number: format_html_join(", ", "{}", ((line,) for line in found)) for number, found in lines.items()}


def _waits_for_its_time(row: Change, overview: publishing.Overview | None) -> str:
    """Return what a scheduled Change waits for: its time, and who has to act before it, as it would be held back then."""
    if row.publish_at is None:
        return ""
    if not publishing.holds_schedule(row):
        return "! somebody: edited since it was scheduled"
    at = publishing.said_at(row.publish_at)
    if overview and overview.lacks_approvals:
        who = "! an author, to submit it" if row.state == lifecycle.DRAFT else "anybody who may approve"
        return f"{who}, before {at}"
    # One that hasn't run for what is live by then is run at that time.
    if overview and overview.waits_for_gate and overview.gate == publishing.GateMark.BLOCKS:
        return f"! the gate, which blocks it, before {at}"
    return at


class ListOfChanges(ReadOnlyAdmin):
    """The list of Changes."""

    list_display = (
        "number",
        "title",
        "state_label",
        "approvals",
        "gate_mark",
        "waits",
        "touches",
        "opener",
        "since",
    )
    list_display_links = ("number", "title")
    list_filter = (StateFilter, ("state", admin.ChoicesFieldListFilter))
    search_fields = ("title", "opened_by")
    search_help_text = "Title, who opened or edited it, or what it changes"
    empty_title = "No Change yet"
    empty_text = "Open one here. Saving a rule set, an Assignment or a PriorityClass also opens one, and so does manage.py apply FILE…."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Change]:
        """Add the number of things that each touches, and its events."""
        found: QuerySet[Change] = super().get_queryset(request)
        return found.annotate(edit_count=Count("edits")).prefetch_related("events")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Change], search_term: str
    ) -> tuple[QuerySet[Change], bool]:
        """Search by title, by the things that they touch, and by all authors."""
        found, may_repeat = super().get_search_results(request, queryset, search_term)
        if not search_term.strip():
            return found, may_repeat
        edits = ChangeEdit.objects.all()
        for term in search_term.split():
            edits = edits.filter(Q(name__icontains=term) | Q(author__icontains=term))
        either = Q(pk__in=found.order_by().values("pk")) | Q(pk__in=edits.order_by().values("change"))
        return queryset.filter(either), False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Use the list that knows whose approvals count."""
        return _ChangeList

    @display(description="Change", ordering="pk")
    def number(self, row: Change) -> str:
        """Name it."""
        return str(row)

    @display(
        description="State",
        label={"in review": "warning", "approved": "info", "published": "success", "rejected": "danger"}
        | {publishing.SHORT_OF_APPROVALS: "warning"},
        ordering="state",
    )
    def state_label(self, row: Any) -> str:
        """Return the state."""
        return publishing.SHORT_OF_APPROVALS if row.is_short else str(row.get_state_display())

    @display(description="Approvals")
    def approvals(self, row: Any) -> str:
        """Return how many of the needed approvals are given, for each group."""
        overview: publishing.Overview | None = row.overview
        if overview is None:
            return ""
        said = [f"{there} of {needed}{f' of {group}' * bool(group)}" for there, needed, group in overview.approvals]
        return "; ".join(said) or "none needed"

    @display(description="Gate")
    def gate_mark(self, row: Any) -> SafeString | str:
        """Return the gate's result, with a mark before it."""
        overview: publishing.Overview | None = row.overview
        if overview is None:
            return ""
        return format_html('<span class="berth-nowrap">{} {}</span>', _GATE_MARKS[overview.gate], overview.gate)

    @display(description="Waiting for")
    def waits(self, row: Any) -> str:
        """Return what it waits for: a reviewer, an approval afterwards, its time, or somebody to act after it was held back."""
        if row.held:
            return "! somebody: its scheduled publish was held back"
        if row.overview and row.overview.moved and row.state != lifecycle.DRAFT:
            return "! an author, to rebase it"  # until then nobody can approve or publish it
        if waiting := publishing.waiting_for(row, row.reviewers):
            return ", ".join(each.name for each in waiting)
        if publishing.waits_for_approval_afterwards(row):
            return "! an approval after the fact"
        if row.state in lifecycle.OPEN and row.publish_at:
            return _waits_for_its_time(row, row.overview)
        if row.state == lifecycle.IN_REVIEW and row.overview and not row.overview.approvals:
            return "the gate" if row.overview.waits_for_gate else "somebody to publish it"
        if row.state == lifecycle.APPROVED and not row.is_short and row.overview and row.overview.waits_for_gate:
            return "the gate"
        return "anybody who may approve" if row.state == lifecycle.IN_REVIEW or row.is_short else ""

    @display(description="Opened by", ordering="opened_by")
    def opener(self, row: Change) -> SafeString | str:
        """Return who opened it."""
        return named(row, row.opened_by)

    @display(description="Since", ordering="moved_at")
    def since(self, row: Change) -> SafeString:
        """Return how long ago its state became this one."""
        return time_ago(row.moved_at)

    @display(description="Touches")
    def touches(self, row: Any) -> SafeString | str:
        """Return the things that it touches, or how many, and how many of them somebody else has published meanwhile."""
        if row.state == lifecycle.PUBLISHED and not row.edit_count:
            return "see its Revision"
        moved = f", ! {row.overview.moved} changed meanwhile" if row.overview and row.overview.moved else ""
        return format_html("<span>{}{}</span>", row.touched or counted(row.edit_count, "thing"), moved)
