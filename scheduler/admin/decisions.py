"""The pages of Decisions, and of lost or unreadable ones."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Length
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404

from policies.admin.base import ReadOnlyAdmin
from policies.admin.frame import display
from scheduler.admin.decision_list import list_page
from scheduler.admin.decision_page import decision_page
from scheduler.decisions.missing import absent
from scheduler.decisions.reading import recorded
from scheduler.models import DeadLetter, Decision, DecisionGap


@admin.register(Decision)
class DecisionAdmin(ReadOnlyAdmin):
    """The pages of Decisions."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Decision]:
        """Return the rows from the history's database."""
        del request
        return recorded()

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list, which has filters and pages of its own."""
        self.check_may_view(request)
        return list_page(request, lost_sentence())

    def changeform_view(self, request: HttpRequest, object_id: str | None = None, *more: Any, **named: Any) -> Any:
        """Show a Decision, which is no form."""
        self.check_may_view(request)
        return decision_page(request, get_object_or_404(recorded(), pk=self.key_of(object_id or "")))


@admin.register(DecisionGap)
class DecisionGapAdmin(ReadOnlyAdmin):
    """The pages of Decisions that were answered and are lost."""

    list_display = ("found", "process", "numbers", "decisions", "reason", "may_return")
    fields = list_display
    readonly_fields = fields
    empty_title = "No Decision was lost"
    empty_text = "Each process numbers its Decisions. Missing numbers would be listed here, with the reason."

    @display(description="When", ordering="at")
    def found(self, row: DecisionGap) -> str:
        """Return the time."""
        return f"{row.at:%Y-%m-%d %H:%M:%S} UTC"

    @display(description="Numbers")
    def numbers(self, row: DecisionGap) -> str:
        """Return the missing numbers."""
        return f"{row.first} to {row.last}"


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    """The pages of records that could not be read or stored."""

    list_display = ("found", "writer", "sequence", "size", "reason")
    fields = list_display
    readonly_fields = fields
    empty_title = "Every record could be read"
    empty_text = "A record that is damaged, or that the database rejects, is kept here unchanged."

    def get_queryset(self, request: HttpRequest) -> Any:
        """Return the rows without their bytes."""
        return super().get_queryset(request).defer("data").annotate(bytes=Length("data"))

    @display(description="When", ordering="at")
    def found(self, row: DeadLetter) -> str:
        """Return the time."""
        return f"{row.at:%Y-%m-%d %H:%M:%S} UTC"

    @display(description="Bytes")
    def size(self, row: Any) -> int:
        """Return its size."""
        return int(row.bytes)


def lost_sentence() -> str:
    """Return how many Decisions are lost, and how many missing; empty if none is."""
    gone = absent()
    number = sum(gone)
    # None where the last of them arrived since they were counted.
    newest = DecisionGap.objects.values_list("at", flat=True).first() if number else None
    if newest is None:
        return ""
    many = "1 Decision was answered and is" if number == 1 else f"{number} Decisions were answered and are"
    said = f"{many} not in the history, the last on {newest:%Y-%m-%d %H:%M:%S} UTC."
    if not gone.may_return:
        return said
    return f"{said} {gone.may_return} of them may still arrive: their process is gone. See Decision gaps."
