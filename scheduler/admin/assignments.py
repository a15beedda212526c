"""The list of Assignments, with when each last took a Pod."""

from datetime import datetime
from typing import Any

import msgspec
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from policies import compiler, publishing
from policies.admin.assignment_versions import VersionPages
from policies.admin.assignments import AssignmentAdmin, AssignmentChangeList
from policies.admin.frame import ChangeList, action, display
from policies.engine.documents import read_assignment
from policies.engine.errors import RuleSetError
from policies.models import Assignment
from policies.wording import ago, duration, percentage
from scheduler.admin.links import assignment_url, pod_url
from scheduler.cluster.errors import APIError
from scheduler.decisions.assignment_uses import idle_now, last_uses
from scheduler.decisions.replica import HISTORY_AWAY, unless_away
from scheduler.decisions.today import Shares, shares_since
from scheduler.takes import Group, takes_of_cluster, warnings_of

admin.site.unregister(Assignment)


class _UsedChangeList(AssignmentChangeList):
    """A list whose rows have the time at which they last took a Pod, and their share of today's Pods."""

    def get_results(self, request: HttpRequest) -> None:
        """Query for all rows of a page at once."""
        super().get_results(request)
        now = timezone.now()
        names = [row.name for row in self.result_list]
        last = last_uses(names)
        idle = {each.name: each.since for each in idle_now(now, names)}
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        shares = unless_away(lambda: shares_since(midnight))
        for row in self.result_list:
            row.taken = _taken(last.get(row.name), idle.get(row.name), now)
            row.share = HISTORY_AWAY if shares is None else _share(shares, row.name)


def _taken(last: datetime | None, idle_since: datetime | None, now: datetime) -> tuple[str, str]:
    """Return a kind of label, and when an Assignment last took a Pod."""
    said = ago((now - last).total_seconds()) if last else "not yet"
    if idle_since is None:
        return "in use" if last else "none", said
    if last is None:
        said = f"never, in {duration((now - idle_since).total_seconds())}"
    return "idle", said


def _share(shares: Shares, name: str) -> str:
    percent = shares.of(name)
    said = percentage(percent / 100, decimals=0) if percent else "none"
    return f"{said} of the newest" if shares.is_part else said


def _takes_url(number: int | None) -> str:
    if number is None:
        return reverse("admin:policies_assignment_takes_new")
    return reverse("admin:policies_assignment_takes", args=[number])


def _warnings(row: Assignment) -> list[str]:
    try:
        value = read_assignment(compiler.assignment_document(row))
    except RuleSetError as error:
        return [f"It is invalid: {error}"]
    return warnings_of(value, publishing.current_revision(), timezone.now())


def _label(form: Any, name: str) -> str:
    """Return a field's label on the page; faults without a field are the whole form's."""
    return form[name].label if name in form.fields else "the form"


def _takes_page(form: Any, number: int | None) -> dict[str, Any]:
    context: dict[str, Any] = {"url": _takes_url(number)}
    if not form.is_valid():
        faults = [f"{_label(form, name)}: {' '.join(map(str, said))}" for name, said in form.errors.items()]
        return {**context, "fault": f"Correct the form first. {' '.join(faults)}"}
    value = read_assignment(compiler.assignment_document(form.instance))
    live, chosen = publishing.current_revision(), form.chosen()
    # A shadow takes no Pods; the page shows what it would take if it were enforced.
    context["is_shadow"] = value.mode == "shadow"
    enforced = msgspec.structs.replace(value, mode="enforce") if context["is_shadow"] else value
    try:
        edits = publishing.edits_of(chosen) if chosen else []
        after = publishing.with_edits(
            live, [*(each for each in edits if each.name != value.name), publishing.Edit.of(enforced)]
        )
        found = takes_of_cluster(value.name, live, after)
    except publishing.PublishingError as error:
        return {**context, "fault": " ".join(error.messages)}
    except APIError as error:
        after, found = live, None
        context["fault"] = f"The cluster can't be reached: {error}"
    groups = [_shown(each) for each in found.groups] if found else []
    return {
        **context,
        "name": value.name,
        "found": found,
        "groups": groups,
        "warnings": warnings_of(value, after, timezone.now()),
    }


def _shown(group: Group) -> dict[str, Any]:
    """Return a group with links to its Assignment and to the Pods that it names."""
    return {
        "group": group,
        "url": assignment_url(group.before) if group.before else "",
        "pods": [(name, pod_url(*name.split("/", 1))) for name in group.names],
    }


@admin.register(Assignment)
class UsedAssignmentAdmin(VersionPages, AssignmentAdmin):
    """The pages of Assignments, with the Pods that they took."""

    list_display = (*AssignmentAdmin.list_display, "share", "last_taken")
    actions_list = ("ask_which", "to_order")

    def get_changelist(self, request: HttpRequest, **kwargs: object) -> type[ChangeList]:
        """Return the list with open edits, hiding Assignments, and Pods taken."""
        return _UsedChangeList

    def get_urls(self) -> list[URLPattern]:
        """Add the pages that show what a form would take, for new and existing Assignments."""
        view = self.admin_site.admin_view(require_POST(self.takes))
        return [
            path("takes/", view, name="policies_assignment_takes_new"),
            path("<int:number>/takes/", view, name="policies_assignment_takes"),
            *super().get_urls(),
        ]

    def takes(self, request: HttpRequest, number: int | None = None) -> HttpResponse:
        """Show which Pods of the cluster the form's Assignment would take, and which Assignment takes them now. Writes nothing."""
        row = get_object_or_404(Assignment, pk=number) if number is not None else None
        may = self.has_change_permission(request, row) if row else self.has_add_permission(request)
        if not may:
            raise PermissionDenied
        form = self.get_form(request, row, change=row is not None)(request.POST, instance=row)
        context = _takes_page(form, number)
        if request.headers.get("HX-Request"):
            return TemplateResponse(request, "scheduler/assignment_takes.html", context)
        whole = {**self.admin_site.each_context(request), "title": "Pods that it takes", "opts": self.opts, **context}
        return TemplateResponse(request, "scheduler/assignment_takes_page.html", whole)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add a panel below an editable form, which shows what the Assignment would take."""
        row = context.get("original")
        may = self.has_change_permission(request, row) if row else self.has_add_permission(request)
        if may:
            shown = {"url": _takes_url(row.pk if row else None), "warnings": _warnings(row) if row else []}
            context["panels"] = [SafeString(render_to_string("scheduler/assignment_takes.html", shown, request))]
        return super().render_change_form(request, context, *args, **kwargs)

    @action(description="Which one takes this Pod?", url_path="which", icon="help")
    def ask_which(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the page that shows which Assignment takes a Pod."""
        del request
        return HttpResponseRedirect(reverse("which"))

    @action(description="Reorder", permissions=["change"], url_path="to-order", icon="swap_vert")
    def to_order(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the page of the order."""
        del request
        return HttpResponseRedirect(reverse("admin:policies_assignment_order"))

    @display(description="Pods today")
    def share(self, row: Assignment) -> str:
        """Return its share of the Pods since midnight UTC, or in the newest Decisions."""
        return str(getattr(row, "share", "none"))

    @display(description="Last used", label={"idle": "warning", "in use": "success", "none": "info"})
    def last_taken(self, row: Assignment) -> tuple[str, str]:
        """Return how long ago it took a Pod, with a warning if that is long ago."""
        found: tuple[str, str] = getattr(row, "taken", ("none", "not yet"))
        return found
