"""The first page: one line of health, what happened lately, the local cluster while it builds, and what to do next."""

import datetime
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from policies import publishing
from policies.models import Change, ClusterPriorityClass, RuleSet
from policies.publishing import lifecycle
from scheduler.admin.decision_list import verdict_of
from scheduler.admin.inbox import newest_unread
from scheduler.admin.links import node_url, pod_url
from scheduler.admin.pending import says_of_pending
from scheduler.admin.processes import STALE_AFTER
from scheduler.admin.traffic import last_call, says_of_traffic
from scheduler.decisions.missing import absent
from scheduler.decisions.reading import recorded
from scheduler.decisions.replica import history_behind, unless_away
from scheduler.models import Process

# How many open Changes are named.
_MOST_CHANGES = 20
# The roles of processes that serve a Revision.
_SERVES = {"extender", "binder"}
# How many unread notices are shown.
_MOST_NOTICES = 5
# The permissions that every role has: the contents of Home need all of them.
_SEEN = (
    "policies.view_rulesetversion",
    "policies.view_assignment",
    "policies.view_priorityclass",
    "policies.view_revision",
    "scheduler.view_decision",
    "scheduler.view_process",
)


class ClusterStatus(msgspec.Struct, frozen=True):
    """The status that the local cluster's program writes to STATE_DIR/cluster/status.json."""

    phase: str
    step: str = ""
    message: str = ""
    done: float = 0
    total: float = 0
    updated_at: str = ""
    components: dict[str, Any] = {}

    @property
    def is_ready(self) -> bool:
        """Whether Pods can be scheduled in it."""
        return self.phase == "ready"

    @property
    def is_moving(self) -> bool:
        """Whether its state will change by itself."""
        return self.phase in {"building", "starting"}


def cluster_status(state_dir: Path) -> ClusterStatus | None:
    """Read the local cluster's status; None when there is no local cluster, or its file is half-written."""
    try:
        return msgspec.json.decode((state_dir / "cluster" / "status.json").read_bytes(), type=ClusterStatus)
    except (OSError, msgspec.DecodeError):
        return None


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Fill the first page."""
    if not request.user.has_perms(_SEEN):
        return {**context, "title": "Home", "has_no_role": True}
    now = timezone.now()
    current = publishing.current_revision()
    status = cluster_status(settings.BERTH.state_dir)
    waiting = Change.objects.filter(state__in=lifecycle.OPEN)
    changes = list(waiting.prefetch_related("events")[:_MOST_CHANGES])
    return {
        **context,
        "title": "Home",
        "pending": says_of_pending(now),
        "revision": current,
        "serving": _serving(current.number, now),
        "called": last_call(now),
        "lost": sum(absent()),
        "behind": history_behind(),
        # None: the history's replica is unavailable.
        "history": unless_away(lambda: {"lately": says_of_traffic(now), "newest": _newest()}),
        "cluster": status,
        "refreshes": status is not None and status.is_moving,
        "steps": _next_steps(request),
        "stuck_classes": _stuck_classes(),
        "ending": publishing.ending_soon(now),
        "unapproved": Change.objects.filter(pk__in=publishing.unapproved_changes()),
        "asked": publishing.changes_waiting_for(request.user.get_username()),
        "unread": newest_unread(request, _MOST_NOTICES),
        "held": publishing.held_changes(),
        "changes": changes,
        "edited_since_timed": [row.pk for row in changes if row.publish_at and not publishing.holds_schedule(row)],
        "short_of_approvals": publishing.short_of_approvals(changes),
        "more_changes": max(0, waiting.count() - _MOST_CHANGES),
    }


def _stuck_classes() -> list[dict[str, str]]:
    """Return the live PriorityClasses that differ in the cluster and need somebody's attention."""
    state = ClusterPriorityClass.State
    rows = ClusterPriorityClass.objects.filter(
        state__in=[state.REFUSED, state.CONFLICT, state.FOREIGN, state.DRIFTED],
        name__in=publishing.live_priority_classes(),
    )
    return [
        {
            "name": row.name,
            "state": row.state,
            "message": row.message,
            "url": reverse("cluster_priority_class", args=[quote(row.name)]),
        }
        for row in rows
    ]


def _serving(number: int, now: datetime.datetime) -> dict[str, Any]:
    """Count the processes that serve Revisions, and those that serve this one, and return since when all of them do."""
    rows = list(Process.objects.all())
    silent = [row for row in rows if row.heartbeat_at <= now - STALE_AFTER]
    alive = [row for row in rows if row not in silent and row.role in _SERVES]
    current = [row for row in alive if row.revision == number]
    return {
        "all": len(alive),
        "current": len(current),
        "silent": len(silent),
        "since": max((row.revision_at for row in current if row.revision_at), default=None),
    }


def _newest() -> list[dict[str, Any]]:
    # Without shadows, as the figures above them: a shadow's answer isn't what its Pod got.
    rows = recorded().exclude(mode="shadow").defer("body")[:8]
    return [
        {
            "row": row,
            "verdict": verdict_of(row),
            "url": reverse("admin:scheduler_decision_change", args=[row.pk]),
            "best": node_url(row.best) if row.best else "",
            "pod": pod_url(row.pod_namespace, row.pod_name, row.pod_uid),
        }
        for row in rows
    ]


def _next_steps(request: HttpRequest) -> list[dict[str, str]]:
    """Return the next steps for a system that doesn't schedule anything yet."""
    current = publishing.current_revision()
    if not RuleSet.objects.exists():
        return _step(
            request,
            "policies.add_ruleset",
            "Add the first rule set",
            reverse("admin:policies_ruleset_add"),
            "No rule set exists. Until one is published and assigned, kube-scheduler places every Pod as if Berth were not there.",
        )
    if not current.rule_sets:
        return _step(
            request,
            "policies.publish",
            "Publish a Change",
            reverse("admin:policies_change_changelist"),
            "There are rule sets in Changes, but nothing is published.",
        )
    if not current.assignments:
        return _step(
            request,
            "policies.add_assignment",
            "Add an Assignment",
            reverse("admin:policies_assignment_changelist"),
            "A rule set is published, but no Assignment gives it to any Pod.",
        )
    return []


def _step(request: HttpRequest, permission: str, title: str, url: str, text: str) -> list[dict[str, str]]:
    may = request.user.has_perm(permission)
    return [{"title": title, "text": text, "url": url if may else ""}]
