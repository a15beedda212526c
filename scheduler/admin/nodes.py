"""The page of a node: its history with Pods, and its present state."""

from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from policies.admin.base import decisions_url
from policies.models import RuleSet
from policies.parameters import SearchError
from scheduler.admin.links import decision_url, pod_url
from scheduler.cluster.client import connect
from scheduler.decisions.node_story import node_story
from scheduler.decisions.replica import history_behind
from scheduler.decisions.search import SPANS, Search, parse_search
from scheduler.node_now import NodeNowError, node_now

SEE = "scheduler.view_decision"
_BADLY_ASKED = 400
_TIMES = ("span", "from", "to")
# The most rule sets that are linked beside a label.
_MOST_NAMED = 10


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Show which Pods a node accepted and refused, why, and which were placed there; `span`, `from` and `to` select the time."""
    faults: dict[str, str] = {}
    search = Search()
    asked = request.GET.dict()
    try:
        search = parse_search({name: value for name, value in asked.items() if name in _TIMES}, timezone.now())
    except SearchError as error:
        faults |= error.faults
    faults |= {
        name: f"isn't a filter of this page; there are {', '.join(_TIMES)}" for name in asked if name not in _TIMES
    }
    story = node_story(name, search)
    context = {
        **admin.site.each_context(request),
        "behind": history_behind(),
        "title": f"Node {name}",
        "name": name,
        "faults": faults,
        "story": story,
        "spans": [(words, f"?span={span}", search.times.get("span") == span) for span, words in SPANS.items()]
        + [("any time", "?", not search.times)],
        "reasons": [
            {
                "reason": each,
                "url": decisions_url(refused_by=each.rule, **search.times),
                "newest": decision_url(each.newest.pk, name),
                "pod": pod_url(each.newest.pod_namespace, each.newest.pod_name, each.newest.pod_uid),
            }
            for each in story.reasons
        ],
        "placed": [(row, pod_url(row.pod_namespace, row.pod_name, row.pod_uid)) for row in story.placed],
        "all_placed": decisions_url(placed_on=name, **search.times),
        "about": decisions_url(best=name, **search.times),
        "missed": decisions_url(best=name, missed="true", **search.times),
    }
    return TemplateResponse(request, "scheduler/node.html", context, status=_BADLY_ASKED if faults else None)


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def now(request: HttpRequest, name: str) -> HttpResponse:
    """Show a node's present use, what keeps Pods away, and which rule sets name its labels: a fragment of its page."""
    try:
        found = node_now(connect(), name)
    except NodeNowError as error:
        return TemplateResponse(request, "scheduler/node_now.html", {"fault": str(error)})
    named = {each for label in found.labels for each in label.rule_sets}
    urls = {
        rule_set: reverse("admin:policies_ruleset_change", args=[key])
        for rule_set, key in RuleSet.objects.filter(name__in=named).values_list("name", "pk")
    }
    labels = [
        (label, [(each, urls[each]) for each in label.rule_sets if each in urls][:_MOST_NAMED])
        for label in found.labels
    ]
    return TemplateResponse(request, "scheduler/node_now.html", {"now": found, "labels": labels})
