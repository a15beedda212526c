"""The list of Assignments, with when each last took a Pod."""

from datetime import datetime

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from policies.admin.assignment_versions import VersionPages
from policies.admin.assignments import AssignmentAdmin, AssignmentChangeList
from policies.admin.frame import ChangeList, action, display
from policies.models import Assignment
from scheduler.admin.decisions import duration
from scheduler.decisions.assignment_uses import idle_now, last_uses

admin.site.unregister(Assignment)


class _UsedChangeList(AssignmentChangeList):
    """A list whose rows know when they last took a Pod."""

    def get_results(self, request: HttpRequest) -> None:
        """Ask for all of a page at once."""
        super().get_results(request)
        now = timezone.now()
        last = last_uses(row.name for row in self.result_list)
        idle = {each.name: each.since for each in idle_now(now)}
        for row in self.result_list:
            row.taken = _taken(last.get(row.name), idle.get(row.name), now)


def _taken(last: datetime | None, idle_since: datetime | None, now: datetime) -> tuple[str, str]:
    """Return a kind of label, and when an Assignment last took a Pod."""
    said = f"{duration((now - last).total_seconds())} ago" if last else "not yet"
    if idle_since is None:
        return "in use" if last else "none", said
    if last is None:
        said = f"never, in {duration((now - idle_since).total_seconds())}"
    return "idle", said


@admin.register(Assignment)
class UsedAssignmentAdmin(VersionPages, AssignmentAdmin):
    """The pages of Assignments, with what became of them."""

    list_display = (*AssignmentAdmin.list_display, "last_taken")
    actions_list = ("ask_which", "to_order")

    def get_changelist(self, request: HttpRequest, **kwargs: object) -> type[ChangeList]:
        """Use the list that knows open edits, who stands in whose way, and what takes Pods."""
        return _UsedChangeList

    @action(description="Which one takes this Pod?", url_path="which", icon="help")
    def ask_which(self, request: HttpRequest) -> HttpResponse:
        """Go to the page that asks."""
        del request
        return HttpResponseRedirect(reverse("which"))

    @action(description="Change their order", url_path="to-order", icon="swap_vert")
    def to_order(self, request: HttpRequest) -> HttpResponse:
        """Go to the page of the order."""
        del request
        return HttpResponseRedirect(reverse("admin:policies_assignment_order"))

    @display(description="Last took a Pod", label={"idle": "warning", "in use": "success", "none": "info"})
    def last_taken(self, row: Assignment) -> tuple[str, str]:
        """Return how long ago, with a warning where that is long."""
        found: tuple[str, str] = getattr(row, "taken", ("none", "not yet"))
        return found
