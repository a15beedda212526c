"""Comparison of any two versions of a thing, any two Revisions, or any two Changes. Read-only."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.decorators import permission_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from policies import publishing
from policies.admin.base import change_url, marked, number_in, revision_url
from policies.admin.differences import whole
from policies.admin.panels import add_panel
from policies.admin.rule_sets import version_url
from policies.changes_in_words import part_changes
from policies.engine import ruleset as engine
from policies.engine.errors import RuleSetError
from policies.models import Change, PriorityClass, PriorityClassVersion, Revision, RuleSet, RuleSetVersion
from policies.publishing import Difference, Kind, PublishingError

SEE, SEE_CHANGES = "policies.view_revision", "policies.view_change"
_PER_PAGE = 20
_REVISION, _CHANGE = "Revision", "Change"
_WORDS = {Kind.RULE_SET: "rule set", Kind.ASSIGNMENT: "Assignment", Kind.PRIORITY_CLASS: "PriorityClass"}


class AskedError(Exception):
    """The request can't be compared; the message says why."""


class _Found(NamedTuple):
    """The differences on a page, the number of all, and the name and URL of each side."""

    differences: Sequence[Difference]
    number: int
    sides: Sequence[tuple[str, str]]


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Compare what the address names: a kind, a name if the kind has versions, and two numbers."""
    asked = {name: request.GET.get(name, "").strip() for name in ("kind", "name", "before", "after")}
    number = max(number_in(request.GET.get("p", "")) or 1, 1)
    sees_changes = request.user.has_perm(SEE_CHANGES)
    if asked["kind"] == _CHANGE and not sees_changes:
        raise PermissionDenied
    fault, found = "", _Found((), 0, ())
    try:
        if any(asked.values()):
            found = _found(asked, (number - 1) * _PER_PAGE, number * _PER_PAGE)
    except AskedError as error:
        fault = str(error)
    except (PublishingError, RuleSetError) as error:
        fault = f"One of the two can't be read: {error}"
    last = -(-found.number // _PER_PAGE)
    context = {
        **admin.site.each_context(request),
        "title": " beside ".join(title for title, _ in found.sides) or "Compare",
        "asked": asked,
        "is_named": asked["kind"] in _WORDS,
        "fault": fault,
        "sides": found.sides,
        "number": found.number,
        "things": [_thing(each) for each in found.differences],
        "former": _page_url(asked, min(number - 1, last)) if number > 1 and last else "",
        "next": _page_url(asked, number + 1) if number < last else "",
        "kinds": [each for each in (_REVISION, _CHANGE, *_WORDS) if each != _CHANGE or sees_changes],
    }
    return TemplateResponse(request, "policies/compare.html", context)


def _page_url(asked: dict[str, str], number: int) -> str:
    return f"?{urlencode({key: value for key, value in asked.items() if value} | {'p': number})}"


def _found(asked: dict[str, str], start: int, stop: int) -> _Found:
    kind, name = asked["kind"], asked["name"]
    numbers = [number_in(asked[side]) for side in ("before", "after")]
    if kind not in {_REVISION, _CHANGE, *_WORDS}:
        message = f"Choose what to compare: {', '.join([_REVISION, _CHANGE, *_WORDS])}."
        raise AskedError(message)
    if None in numbers:
        message = "Enter two numbers."
        raise AskedError(message)
    before, after = (number for number in numbers if number is not None)
    if kind == _REVISION:
        return _revisions(before, after, start, stop)
    if kind == _CHANGE:
        return _changes(before, after, start, stop)
    found = [_version(kind, name, number) for number in (before, after)]
    (old, _), (new, _) = found
    differs = not publishing.is_same(old, new)
    sides = [
        (f"{_WORDS[Kind(kind)]} {name} version {number}" if number else "nothing", url)
        for number, (_, url) in zip((before, after), found, strict=True)
    ]
    return _Found([Difference((kind, name), old, new)] if differs else [], int(differs), sides)


def _revisions(before: int, after: int, start: int, stop: int) -> _Found:
    known = set(Revision.objects.filter(pk__in=(before, after)).values_list("pk", flat=True))
    for number in (before, after):
        if number and number not in known:
            message = f"There is no Revision {number}."
            raise AskedError(message)
    differences, number = publishing.revision_differences(before, after, start, stop)
    sides = [
        (f"Revision {each}" if each else "nothing", revision_url(each) if each else "") for each in (before, after)
    ]
    return _Found(differences, number, sides)


def _changes(before: int, after: int, start: int, stop: int) -> _Found:
    known = Change.objects.in_bulk([before, after])
    for number in (before, after):
        if number not in known:
            message = f"There is no Change {number}."
            raise AskedError(message)
    differences = publishing.change_differences(known[before], known[after])
    sides = [(f"Change {number}", change_url(number)) for number in (before, after)]
    return _Found(differences[start:stop], len(differences), sides)


def _version(kind: str, name: str, number: int) -> tuple[engine.Document | None, str]:
    """Return a version of a thing, and the URL of its page; number 0 is the state before the first version."""
    if not number:
        return None, ""
    found: engine.Document | None = None
    url = ""
    if kind == Kind.RULE_SET:
        row = RuleSetVersion.objects.select_related("rule_set").filter(rule_set__name=name, number=number).first()
        if row is not None:
            content = publishing.version_content(row)
            found, url = msgspec.structs.replace(content, version=number), version_url(row)
    elif kind == Kind.PRIORITY_CLASS:
        version = PriorityClassVersion.objects.filter(name=name, number=number).first()
        found = publishing.priority_class_content(version) if version else None
        url = f"{reverse('cluster_priority_class', args=[quote(name)])}#versions"
    else:
        versions = publishing.assignment_versions(name)
        found = next((each.value for each in versions if each.number == number), None)
        url = reverse("admin:policies_assignment_versions", args=[name]) if found else ""
    if found is None:
        message = f"There is no version {number} of {_WORDS[Kind(kind)]} {name}."
        raise AskedError(message)
    return found, url


def _thing(each: Difference) -> dict[str, Any]:
    kind, name = each.key
    return {
        "name": f"{'rule set' if kind == Kind.RULE_SET else kind} {name}",
        "unread": each.unread,
        "lines": [marked(line) for line in part_changes(each.before, each.after)],
        "whole": whole(each.before, each.after),
    }


def compare_form(kind: str, number: int, other: int, *, name: str = "") -> SafeString:
    """Return the form that asks for the other side of a comparison."""
    context = {
        "kind": kind,
        "number": number,
        "other": max(other, 0),
        "name": name,
        "word": kind if kind not in _WORDS else "version",
    }
    return SafeString(render_to_string("policies/compare_form.html", context))


def _of_revision(row: Revision, _: HttpRequest) -> SafeString:
    return compare_form(_REVISION, row.number, row.number - 1)


def _of_change(row: Change, _: HttpRequest) -> SafeString:
    return compare_form(_CHANGE, row.pk, row.pk - 1)


def _of_version(row: RuleSetVersion, _: HttpRequest) -> SafeString:
    if row.pk is None:
        return SafeString("")
    return compare_form(Kind.RULE_SET, row.number, row.number - 1, name=row.rule_set.name)


def _of_rule_set(row: RuleSet, _: HttpRequest) -> SafeString:
    newest = row.versions.values_list("number", flat=True).first()
    return compare_form(Kind.RULE_SET, newest, newest - 1, name=row.name) if newest else SafeString("")


def _of_priority_class(row: PriorityClass, _: HttpRequest) -> SafeString:
    newest = PriorityClassVersion.objects.filter(name=row.name).order_by("-number").values_list("number", flat=True)
    number = newest.first()
    return compare_form(Kind.PRIORITY_CLASS, number, number - 1, name=row.name) if number else SafeString("")


add_panel(Revision, _of_revision)
add_panel(Change, _of_change)
add_panel(RuleSetVersion, _of_version)
add_panel(RuleSet, _of_rule_set)
add_panel(PriorityClass, _of_priority_class)
