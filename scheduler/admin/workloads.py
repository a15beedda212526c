"""The page of a workload: its Pods by state, where they run, which rules they get, and what refused them today."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from policies.admin.base import decisions_url, revision_url
from policies.wording import counted
from scheduler.admin.decision_list import verdict_of
from scheduler.admin.links import assignment_url, decision_url, node_url, pod_url, version_url
from scheduler.admin.pending import shown_pod
from scheduler.decisions.replica import history_behind
from scheduler.decisions.workload_story import WorkloadStory, workload_story
from scheduler.pending.listing import pending, waiting_of

SEE = "scheduler.view_decision"
_MOST_WAITING = 200
# The labels of ends. "open" is for Pods that got an answer and weren't seen anywhere since.
_ENDS = {
    "bound": "bound, and since deleted",
    "preempted": "preempted",
    "evicted": "evicted",
    "deleted": "deleted",
    "ended": "completed, deleted at once, or ended while nobody watched",
    "unbound": "deleted without a node",
    "gone": "gone, and it isn't known whether they had a node",
    "open": "decided about, with an unknown outcome",
}


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def page(request: HttpRequest, namespace: str, kind: str, name: str) -> HttpResponse:
    """Show a workload, as far as Berth has Decisions about its Pods or sees them wait."""
    now = timezone.now()
    rows = pending(namespace=namespace, owner_kind=kind, owner_name=name)
    waiting, uids = waiting_of(rows[:_MOST_WAITING], now), set(rows.values_list("uid", flat=True))
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    story = workload_story(namespace, kind, name, today, uids)
    is_known = bool(waiting or story.newest)
    own = {"owner": f"{kind}/{name}", "pod_namespace": namespace}
    refused = own | {"refused": "true", "mode": "enforce", "from": f"{today:%Y-%m-%d}"}
    context = {
        **admin.site.each_context(request),
        "behind": history_behind(),
        "title": f"{kind} {namespace}/{name}",
        "is_known": is_known,
        "name": name,
        "waiting": [shown_pod(each, now) for each in waiting],
        "more_waiting": len(uids) > _MOST_WAITING,
        "story": story,
        "says": _says(len(uids), story),
        "placed": [(each, pod_url(each.namespace, each.name, each.uid), node_url(each.node)) for each in story.placed],
        "nodes": [(node, number, node_url(node)) for node, number in story.nodes],
        "ended": [(_ENDS.get(ended, ended), number) for ended, number in sorted(story.ended.items())],
        "decisions": decisions_url(**own) if is_known else decisions_url(owner=f"{kind}/{name}"),
        "refusals": decisions_url(**refused),
        "reasons": [
            (
                each.text or each.error or "no reason given",
                each.number,
                decisions_url(
                    **refused, **({"top_reason": each.text} if each.text else {"answer": "error"} if each.error else {})
                ),
            )
            for each in story.reasons
        ],
        **_rules(story),
    }
    return TemplateResponse(request, "scheduler/workload.html", context, status=None if is_known else 404)


def _says(waiting: int, story: WorkloadStory) -> str:
    """Return its state in a sentence."""
    running = sum(number for _, number in story.nodes)
    waits = (
        f"{waiting} of its Pods {'is' if waiting == 1 else 'are'} Pending" if waiting else "None of its Pods is Pending"
    )
    runs = f"{running} {'is' if running == 1 else 'are'} on {counted(len(story.nodes), 'node')}"
    return f"{waits}, {runs}, as far as Berth knows." if running else f"{waits}; none is known to be on a node."


def _rules(story: WorkloadStory) -> dict[str, Any]:
    row = story.newest
    if row is None:
        return {}
    return {
        "newest": row,
        "newest_url": decision_url(row.pk),
        "newest_verdict": verdict_of(row),
        "newest_pod": pod_url(row.pod_namespace, row.pod_name, row.pod_uid),
        "version": version_url(row.rule_set, row.rule_set_version) if row.rule_set_version else "",
        "revision": revision_url(row.revision) if row.revision else "",
        "assignment": assignment_url(row.assignment) if row.assignment else "",
    }
