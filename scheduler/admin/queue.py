"""The page of Berth's own scheduler: the leading process, the waiting Pods and why they wait, and overcommitted nodes."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.views.decorators.http import require_safe

from policies.wording import ago, duration
from scheduler.admin.links import node_url, pod_url
from scheduler.admin.processes import STALE_AFTER
from scheduler.models import BinderState

SEE = "scheduler.view_binderstate"
_MARKS = {
    "active": ("·", "unknown"),
    "taken": ("…", "unknown"),
    "backoff": ("!", "warning"),
    "unschedulable": ("✗", "error"),
    "gated": ("·", "unknown"),
}


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Show the queue as the process that leads last wrote it."""
    now = datetime.now(UTC)
    rows = list(BinderState.objects.all())
    leading = next((row for row in rows if row.leads and now - row.heartbeat_at < STALE_AFTER), None)
    context = {
        **admin.site.each_context(request),
        "title": "Queue",
        "leading": leading,
        "others": [_other(row, now) for row in rows if row is not leading],
        "counts": list(leading.counts.items()) if leading else [],
        "pods": [_pod(pod, now) for pod in leading.pods] if leading else [],
        "left_out": max(0, sum(leading.counts.values()) - len(leading.pods)) if leading else 0,
    }
    return TemplateResponse(request, "scheduler/queue.html", context)


def _other(row: BinderState, now: datetime) -> dict[str, Any]:
    silent = now - row.heartbeat_at >= STALE_AFTER
    return {
        "row": row,
        "is_silent": silent,
        "ago": ago((now - row.heartbeat_at).total_seconds()),
    }


def _pod(pod: dict[str, Any], now: datetime) -> dict[str, Any]:
    mark, kind = _MARKS.get(pod["state"], ("?", "unknown"))
    waited = now - datetime.fromisoformat(pod["since"])
    # Binders of the former version don't write when time alone may let a Pod pass.
    until, helps = (
        datetime.fromisoformat(at) - now if at else timedelta() for at in (pod["until"], pod.get("opens_at"))
    )
    return {
        **pod,
        "mark": mark,
        "kind": kind,
        "waited": duration(waited.total_seconds()),
        "again": duration(until.total_seconds()) if until > timedelta() else "",
        "helps": duration(helps.total_seconds()) if helps > timedelta() else "",
        "story": pod_url(pod["namespace"], pod["name"], pod["uid"]),
        "node": node_url(pod["nominated"]) if pod["nominated"] else "",
    }
