"""The list of Decisions: its filters are in the URL, and on the page as chips that can be removed."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.utils import timezone

from policies.admin.base import revision_url
from policies.admin.narrowing import PLACES, Chip, Narrowing, fields_of, given_of, with_values, without
from policies.parameters import SearchError
from policies.wording import passed
from scheduler.admin.links import decision_url, node_url, pod_url, version_url, workload_url
from scheduler.decisions.grouping import WAYS, Group, groups_of
from scheduler.decisions.replica import history_behind
from scheduler.decisions.search import ANSWERS, BY_NAME, FILTERS, SPANS, Page, Search, parse_search
from scheduler.models import Decision

# Parameters beside the filters: whether the list updates itself, whether only its rows are requested, and the grouping.
_OURS = ("live", "rows", "group")
_TIMES = {"span": "time", "from": "from", "to": "to"}
# Filters that only links use, or that others replace, have no form field; they show as chips.
_WITHOUT_FIELD = ("pod_uid", "pod_name", "refused", "process", "top_reason", "divergence", "best", "placed_on")
_HIDDEN = {*_WITHOUT_FIELD, "span", "group"}
_BADLY_ASKED = 400


def list_page(request: HttpRequest, lost: str) -> HttpResponse:
    """Show Decisions, newest first; for an update of a live list, only its rows.

    Args:
        request: with the filters.
        lost: the sentence about lost Decisions.
    """
    # Typed times override a span.
    asks_when = request.GET.get("from") or request.GET.get("to")
    query: QueryDict = without(request.GET, "span") if asks_when else request.GET
    asked = request.GET.dict()
    if asks_when:
        asked.pop("span", None)
    way = query.get("group", "")
    search, page, groups, faults = _look(asked, way)
    follows = bool(query.get("live")) and not way and not search.before and not search.after and not faults
    context = {
        "rows": [] if way else _rows(page.rows),
        "page": page,
        "looked_until": page.looked_until,
        "by_name": _by_name(query, search) if page.looked_until else "",
        "older": _with(query, before=page.older) if page.older else "",
        "newer": _with(query, after=page.newer) if page.newer else "",
        "follows": follows,
        "poll": _with(query, rows="1"),
        "is_narrowed": bool(search.values or search.times),
    }
    if query.get("rows") and not way and not faults:
        return TemplateResponse(request, "scheduler/decision_rows.html", context)
    context |= {
        **admin.site.each_context(request),
        "behind": history_behind(),
        **_above(query, search, faults),
        "title": "Decisions",
        "lost": lost,
        "way": WAYS.get(way, ""),
        "groups": _groups(groups, query),
    }
    return TemplateResponse(request, "scheduler/decisions.html", context, status=_BADLY_ASKED if faults else None)


def _look(asked: dict[str, str], way: str) -> tuple[Search, Page, list[Group], Mapping[str, str]]:
    """Return the search, its page, the groups if it is grouped, and the faults of invalid parameters."""
    try:
        search = parse_search(asked, timezone.now(), also=_OURS)
        groups, page = groups_of(search, way) if way else ([], search.page())
    except SearchError as error:
        return Search(), Page([], None, None), [], error.faults
    return search, page, groups, {}


def _above(query: QueryDict, search: Search, faults: Mapping[str, str]) -> dict[str, Any]:
    """Return the context above the rows: filters, spans of time, groupings, and whether the list updates itself."""
    way = query.get("group", "")
    return {
        "narrowing": Narrowing(
            id="decision-search",
            label="Decisions",
            faults=faults,
            fields=fields_of(FILTERS, query, {each.name: each.choices for each in FILTERS}, {"q", *_WITHOUT_FIELD}),
            chips=_chips(query, search),
            given=given_of(query),
            summary="Filter by owner, node, rule, reason and more",
            finds="any part of its name, or a UID",
            hidden=[(name, str(value)) for name, value in query.items() if name in _HIDDEN and value],
        ),
        "spans": [
            Chip("", words, _with(without(query, "from", "to"), span=span))
            if search.times.get("span") != span
            else Chip("active", words, "")
            for span, words in SPANS.items()
        ],
        "ways": [
            (words, "" if each == way else _with(without(query, "live"), group=each)) for each, words in WAYS.items()
        ],
        "list_url": _with(query, group=""),
        "live_url": _with(without(query, *PLACES, "group"), live="1"),
        "stop_url": _with(without(query, "live")),
    }


def _groups(groups: list[Group], query: QueryDict) -> list[dict[str, Any]]:
    """Return each group for the page: its name, its own page if it has one, and the list of its Decisions."""
    return [{"group": each, "url": _with(query, group="", **_narrowed(query, each)), **_named(each)} for each in groups]


def _narrowed(query: QueryDict, group: Group) -> dict[str, str]:
    """Return the filters of a group. A rule is added to those that the list is filtered by: it isn't the only one that refused."""
    asked = [name for name in query.get("refused_by", "").split(",") if name]
    rule = group.narrows.get("refused_by", "")
    if not rule or not asked:
        return dict(group.narrows)
    return {"refused_by": ",".join(dict.fromkeys([*asked, rule]))}


def _named(group: Group) -> dict[str, str]:
    row, newest = group.row, decision_url(group.row.pk)
    if "best" in group.narrows:
        return {"name": row.best, "page": node_url(row.best), "newest": newest}
    if named := next((group.narrows[each] for each in ("refused_by", "top_reason") if each in group.narrows), ""):
        return {"name": named, "page": "", "newest": newest}
    page = pod_url(row.pod_namespace, row.pod_name, row.pod_uid)
    return {"name": f"{row.pod_namespace}/{row.pod_name}", "page": page, "newest": newest}


def _chips(query: QueryDict, search: Search) -> list[Chip]:
    named = [(name, BY_NAME[name].title, _words(name, value)) for name, value in search.values.items()]
    timed = [(name, _TIMES[name], SPANS.get(value, value)) for name, value in search.times.items()]
    return [Chip(title, text, _with(without(query, name))) for name, title, text in (*timed, *named)]


def _words(name: str, value: str) -> str:
    return BY_NAME[name].choices.get(value, value)


def _with(query: QueryDict, **values: object) -> str:
    return with_values(without(query, "rows"), **values)


def _by_name(query: QueryDict, search: Search) -> str:
    """Return the URL that searches for exactly the Pod's name in place of a part of it; an index serves that."""
    namespace, _slash, name = search.values.get("q", "").strip().rpartition("/")
    wanted = {"pod_name": name} | ({"pod_namespace": namespace} if namespace else {})
    return _with(without(query, "q"), **wanted) if name else ""


def _rows(found: list[Decision]) -> list[dict[str, Any]]:
    return [
        {
            "row": row,
            "url": decision_url(row.pk),
            "pod": pod_url(row.pod_namespace, row.pod_name, row.pod_uid),
            "workload": workload_url(row.pod_namespace, row.owner_kind, row.owner_name) if row.owner_name else "",
            "best": node_url(row.best) if row.best else "",
            "placed": node_url(row.placed_on) if row.placed_on else "",
            "revision": revision_url(row.revision) if row.revision else "",
            "version": version_url(row.rule_set, row.rule_set_version) if row.rule_set_version else "",
            "answer": verdict_of(row),
            "took": f"{row.duration_microseconds / 1000:.1f} ms",
            "rules": ", ".join(row.refused_by.strip().splitlines()),
        }
        for row in found
    ]


def verdict_of(row: Decision) -> dict[str, str]:
    """Return a Decision's verdict in a few words, with a sign before it."""
    if row.error:
        return {"mark": "!", "kind": "bad", "text": ANSWERS["error"]}
    if row.nodes and row.found_no_node:
        return {"mark": "✗", "kind": "bad", "text": f"none of {row.nodes:,} nodes"}
    mark, kind = ("✓", "good") if row.nodes else ("–", "plain")
    return {"mark": mark, "kind": kind, "text": passed(row.feasible, row.nodes)}
