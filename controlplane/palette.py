"""The search of Ctrl-K, limited to what somebody may see: one indexed query for each kind, with a few rows of each."""

import time
from collections.abc import Iterator
from typing import Any, TypeVar
from uuid import UUID

from django.contrib import admin
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.db.models import Case, Manager, Model, Q, QuerySet, When
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_safe
from unfold.dataclasses import SearchResult

from controlplane.site import elsewhere, navigation
from policies import publishing
from policies.admin.person_links import SEE
from policies.models import Assignment, AuditEvent, Change, PriorityClass, Revision, RuleSet
from scheduler.admin.links import decision_url, node_url, pod_url
from scheduler.decisions.reading import recorded
from scheduler.models import Decision

_Row = TypeVar("_Row", bound=Model)
_PER_PAGE = 100
# How many results of each kind.
_MOST = 6
_LARGEST = 2**31 - 1
# A part of a name is searched in this many of the newest Decisions; a whole name in all.
_LOOKED_AT = 5_000
# The fewest letters of a part of a name.
_LEAST = 2


@admin.site.admin_view
@require_safe
def search(request: HttpRequest) -> HttpResponse:
    """Return fresh results of Ctrl-K: Unfold's own view caches them for five minutes."""
    began, text = time.monotonic(), request.GET.get("s", "")
    if not text.strip():
        return HttpResponse()
    pages = Paginator(find(request, text), _PER_PAGE)
    if not pages.count:
        context = {"asked": text.strip(), "looked_at": _LOOKED_AT}
        return TemplateResponse(request, "admin/nothing_found.html", context, headers={"HX-Trigger": "search"})
    results = pages.get_page(request.GET.get("page"))
    context = {
        "page_obj": pages,
        "results": results,
        "page_counter": (results.number - 1) * _PER_PAGE,
        "execution_time": time.monotonic() - began,
    }
    return TemplateResponse(request, "unfold/helpers/command_results.html", context, headers={"HX-Trigger": "search"})


def find(request: HttpRequest, text: str) -> list[SearchResult]:
    """Return the things that have this text in their name, as their number or as their id: pages first, then exact names."""
    asked = text.strip()
    if not asked:
        return []
    kinds = [
        ("policies.view_change", _changes),
        ("policies.view_revision", _revisions),
        ("policies.view_ruleset", _rule_sets),
        ("policies.view_assignment", _assignments),
        ("policies.view_priorityclass", _priority_classes),
        ("scheduler.view_decision", _decisions),
        ("scheduler.view_decision", _pods),
        ("scheduler.view_decision", _nodes),
        (SEE, _people),
        ("auth.view_user", _accounts),
    ]
    rows = [each for permission, kind in kinds if request.user.has_perm(permission) for each in kind(asked)]
    return [*_pages(request, asked), *sorted(rows, key=lambda row: _name_in(row.title) != _name_in(asked))]


def _name_in(text: str) -> str:
    """Return the name in a text that may have a namespace before it."""
    return text.rpartition("/")[2].lower()


def _pages(request: HttpRequest, asked: str) -> Iterator[SearchResult]:
    listed = [item for group in navigation(request) for item in group["items"]]
    for item in [*listed, *elsewhere(request)]:
        if asked.lower() in item["title"].lower():
            yield SearchResult(item["title"], "Page", item["link"], item["icon"])


def _changes(asked: str) -> Iterator[SearchResult]:
    number = _number(asked, "change")
    # The one of this number first: others may have a number in their titles, such as a ticket's.
    found = Change.objects.filter(Q(pk=number) | Q(title__icontains=asked))
    found = found.order_by(Case(When(pk=number, then=0), default=1), "-pk")
    rows = list(found.prefetch_related("events")[:_MOST])
    short = publishing.short_of_approvals(rows)
    for row in rows:
        url = reverse("admin:policies_change_change", args=[row.pk])
        state = publishing.SHORT_OF_APPROVALS if row.pk in short else row.get_state_display()
        yield SearchResult(str(row), f"Change, {state}: {row.title}", url, "rate_review")


def _revisions(asked: str) -> Iterator[SearchResult]:
    number = _number(asked, "revision")
    for row in Revision.objects.filter(pk=number) if number else ():
        url = reverse("admin:policies_revision_change", args=[row.pk])
        yield SearchResult(f"Revision {row.pk}", "Revision", url, "history")


def _rule_sets(asked: str) -> Iterator[SearchResult]:
    for row in _named(RuleSet.objects, asked):
        yield SearchResult(row.name, "Rule set", reverse("admin:policies_ruleset_change", args=[row.pk]), "rule")


def _assignments(asked: str) -> Iterator[SearchResult]:
    for row in _named(Assignment.objects, asked):
        url = reverse("admin:policies_assignment_change", args=[row.pk])
        yield SearchResult(row.name, "Assignment", url, "alt_route")


def _priority_classes(asked: str) -> Iterator[SearchResult]:
    for row in _named(PriorityClass.objects, asked):
        url = reverse("admin:policies_priorityclass_change", args=[row.pk])
        yield SearchResult(row.name, "PriorityClass", url, "low_priority")


def _decisions(asked: str) -> Iterator[SearchResult]:
    try:
        key = UUID(asked)
    except ValueError:
        return
    for row in recorded().filter(pk=key).only("pk", "verb", "pod_namespace", "pod_name"):
        said = f"Decision: {row.verb} for {row.pod_namespace}/{row.pod_name}"
        yield SearchResult(str(row.pk), said, decision_url(row.pk), "fact_check")


def _pods(asked: str) -> Iterator[SearchResult]:
    """Find a Pod by its UID, by its name with or without its namespace, or by a part of its name among the latest Decisions."""
    namespace, slash, name = asked.lower().rpartition("/")
    columns = ("pod_namespace", "pod_name")
    exact = [Q(pod_namespace=namespace, pod_name=name)] if slash else [Q(pod_uid=name), Q(pod_name=name)]
    found: list[tuple[str, str]] = []
    for one in exact:  # apart from each other, each has its index
        found += recorded().filter(one).order_by().values_list(*columns).distinct()[:_MOST]
    if len(name) >= _LEAST:
        lately = recorded().filter(pk__in=_newest()).filter(pod_name__icontains=name)
        lately = lately.filter(pod_namespace=namespace) if slash else lately
        found += lately.order_by().values_list(*columns).distinct()[:_MOST]
    for of, named in list(dict.fromkeys(found))[:_MOST]:
        yield SearchResult(f"{of}/{named}", "Pod", pod_url(of, named), "deployed_code")


def _nodes(asked: str) -> Iterator[SearchResult]:
    """Find a node that got a Pod by its name, or by a part of its name among the latest Decisions."""
    asked = asked.lower()
    found = list(recorded().filter(placed_on=asked).values_list("placed_on", flat=True)[:1])
    if len(asked) >= _LEAST:
        lately = recorded().filter(pk__in=_newest()).filter(placed_on__icontains=asked)
        found += lately.order_by("placed_on").values_list("placed_on", flat=True).distinct()[:_MOST]
    for name in list(dict.fromkeys(found))[:_MOST]:
        yield SearchResult(name, "Node", node_url(name), "dns")


def _people(asked: str) -> Iterator[SearchResult]:
    """Find somebody who did anything, by the whole name: searching parts of names needs the permission to see accounts."""
    for name in dict.fromkeys([asked, asked.lower()]):  # a phone begins what is typed with a capital
        if AuditEvent.objects.filter(by=name).exists():
            yield SearchResult(name, "Person", reverse("person", args=[name]), "person")


def _accounts(asked: str) -> Iterator[SearchResult]:
    for row in _named(User.objects, asked, "username"):
        yield SearchResult(row.username, "Account", reverse("admin:auth_user_change", args=[row.pk]), "person")


def _named(rows: Manager[_Row], asked: str, field: str = "name") -> QuerySet[_Row]:
    """Return the first rows with a text in their names: first the one with exactly this name, then those that begin with it."""
    place = Case(
        When(**{f"{field}__iexact": asked}, then=0), When(**{f"{field}__istartswith": asked}, then=1), default=2
    )
    return rows.filter(**{f"{field}__icontains": asked}).order_by(place, field)[:_MOST]


def _newest() -> QuerySet[Decision, Any]:
    return recorded().order_by("-at", "-sequence").values("pk")[:_LOOKED_AT]


def _number(asked: str, word: str) -> int:
    """Return the number in a text, alone or after its word; 0 for none."""
    text = asked.lower().removeprefix(word).strip().removeprefix("#")
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST))
    return min(int(text), _LARGEST) if is_number else 0
