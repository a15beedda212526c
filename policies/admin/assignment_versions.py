"""The versions of an Assignment: who published which when, the differences of any two, and going back to one."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from policies import publishing
from policies.admin.base import change_url, confirm_going_back, marked, may_publish, number_in, revision_url
from policies.admin.differences import shown_lines
from policies.admin.frame import ModelAdmin
from policies.admin.panels import add_panel
from policies.changes_in_words import part_changes
from policies.differences import Line, unified, yaml_of
from policies.models import Assignment
from policies.publishing import AssignmentVersion
from policies.sentences import assignment_sentence

# How many versions the page of an Assignment shows; the page of its versions has all.
_FIRST = 10


class VersionPages(ModelAdmin):
    """The pages of versions, by name, because a removed Assignment has them, too."""

    def get_urls(self) -> list[URLPattern]:
        """Add these pages."""
        view = self.admin_site.admin_view
        return [
            path("versions/<str:name>/", view(self.versions), name="policies_assignment_versions"),
            path("versions/<str:name>/<int:number>/go-back/", view(self.go_back), name="policies_assignment_go_back"),
            *super().get_urls(),
        ]

    def versions(self, request: HttpRequest, name: str) -> HttpResponse:
        """Show all versions, and the differences of two of them; of the newest two where none are chosen."""
        found = self._found(request, name)
        by_number = {each.number: each for each in found}
        newest = found[-1].number
        asked = _number(request.GET.get("before", ""), newest - 1), _number(request.GET.get("after", ""), newest)
        before, after = (by_number.get(number) for number in asked)
        unknown = next((number for number in asked if number and number not in by_number), 0)
        fault = f"There is no version {unknown} of Assignment {name}." if unknown else ""
        changes, whole = list[str](), list[Line]()
        try:
            changes, whole = _changes(before, after), _lines(before, after)
        except publishing.PublishingError as error:
            fault = " ".join(error.messages)
        context = {
            **self.admin_site.each_context(request),
            "title": f"Versions of Assignment {name}",
            "name": name,
            "versions": _shown(found, may_go_back=may_publish(request)),
            "before": before,
            "after": after,
            "fault": fault,
            "changes": [marked(line) for line in changes],
            "whole": shown_lines(whole),
            "back": _page_of(name),
            "opts": self.opts,
        }
        return TemplateResponse(request, "policies/assignment_versions.html", context)

    def go_back(self, request: HttpRequest, name: str, number: int) -> HttpResponse:
        """Show what making a version live again would do, and do it."""
        version = next((each for each in self._found(request, name) if each.number == number), None)
        if version is None or not may_publish(request):
            raise Http404
        return confirm_going_back(self, request, version, reverse("admin:policies_assignment_versions", args=[name]))

    def _found(self, request: HttpRequest, name: str) -> list[AssignmentVersion]:
        self.check_may_view(request)
        found = publishing.assignment_versions(name)
        if not found:
            raise Http404
        return found


def _page_of(name: str) -> str:
    row = Assignment.objects.filter(name=name).first()
    if row is None:
        return reverse("admin:policies_assignment_changelist")
    return reverse("admin:policies_assignment_change", args=[row.pk])


def _number(text: str, default: int) -> int:
    found = number_in(text)
    return default if found is None else found


def _shown(versions: list[AssignmentVersion], *, may_go_back: bool) -> list[dict[str, Any]]:
    """Return versions as rows of a table, the newest first."""
    return [
        {
            "number": each.number,
            "is_live": each.is_live,
            "sentence": _sentence(each),
            "held": [
                {
                    "since": held.since,
                    "revision": revision_url(held.since),
                    "until": held.until,
                    "by": held.by,
                    "at": held.at,
                    "reason": held.reason,
                    "change": held.change,
                    "change_url": change_url(held.change) if held.change else "",
                }
                for held in reversed(each.held)
            ],
            "go_back": reverse("admin:policies_assignment_go_back", args=[each.name, each.number])
            if may_go_back and not each.is_live
            else "",
            "compare": f"{reverse('admin:policies_assignment_versions', args=[each.name])}?before={each.number}"
            if each is not versions[-1]
            else "",
        }
        for each in reversed(versions)
    ]


def _sentence(version: AssignmentVersion) -> str:
    try:
        return assignment_sentence(version.value)
    except publishing.PublishingError as error:
        return " ".join(error.messages)


def _changes(before: AssignmentVersion | None, after: AssignmentVersion | None) -> list[str]:
    return part_changes(before.value if before else None, after.value if after else None)


def _lines(before: AssignmentVersion | None, after: AssignmentVersion | None) -> list[Line]:
    return unified(*(yaml_of(side.value if side else None) for side in (before, after)))


def _panel(row: Assignment, request: HttpRequest) -> SafeString:
    """Return the newest versions, for the page of an Assignment."""
    found = publishing.assignment_versions(row.name)
    if not found:
        return format_html("{}", "")
    context = {
        "versions": _shown(found, may_go_back=False)[:_FIRST],
        "all": reverse("admin:policies_assignment_versions", args=[row.name]),
        "number": len(found),
    }
    return SafeString(render_to_string("policies/assignment_versions_panel.html", context, request))


add_panel(Assignment, _panel)
