"""The pages of processes: which report, and what each serves."""

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from policies.admin.base import ReadOnlyAdmin, link, revision_url
from policies.admin.frame import display
from policies.admin.panels import add_panel
from policies.admin.times import time_ago
from policies.models import Revision
from scheduler.admin.decision_list import verdict_of
from scheduler.admin.links import decision_url, pod_url
from scheduler.decisions.reading import recorded
from scheduler.decisions.replica import unless_away
from scheduler.history.storage import size_in_words
from scheduler.models import Process, Requeue

STALE_AFTER = Process.STALE_AFTER
# For this long after a Revision was made its page refreshes itself.
_WATCHED = timedelta(minutes=10)
_FIRST_DECISIONS = 5


@admin.register(Process)
class ProcessAdmin(ReadOnlyAdmin):
    """The pages of processes."""

    list_display = ("role", "host_pid", "state", "serves", "snapshot", "spool", "started", "heartbeat")
    list_filter = ("role",)
    fields = ("role", "host_pid", "state", "serves", "snapshot", "spool", "started", "heartbeat")
    readonly_fields = fields
    empty_title = "No process has reported"
    empty_text = (
        "Berth's processes report once a second. Start them with make up, or check the Pods of the Deployments."
    )

    @display(description="Host")
    def host_pid(self, row: Process) -> str:
        """Return the process's host and PID."""
        return f"{row.host}, pid {row.pid}"

    @display(description="State", label={"alive": "success", "! silent": "danger"})
    def state(self, row: Process) -> str:
        """Return whether it reports."""
        return "! silent" if timezone.now() - row.heartbeat_at > STALE_AFTER else "alive"

    @display(description="Serves")
    def serves(self, row: Process) -> Any:
        """Return the Revision that it serves, and since when."""
        if not row.revision:
            return "no Revision"
        since = f" since {row.revision_at:%Y-%m-%d %H:%M:%S} UTC" if row.revision_at else ""
        return format_html("<span>{}{}</span>", link(revision_url(row.revision), f"Revision {row.revision}"), since)

    @display(description="Snapshot age", ordering="snapshot_age_seconds")
    def snapshot(self, row: Process) -> str:
        """Return the age of its Snapshot of the cluster."""
        return "no Snapshot" if row.snapshot_age_seconds is None else f"{row.snapshot_age_seconds:.1f} s"

    @display(description="Spool", ordering="spool_records")
    def spool(self, row: Process) -> str:
        """Return the number of its unsent records, and the bytes on disk of these and of all records not yet in the database."""
        if row.spool_records is None:
            return "unknown"
        return f"{row.spool_records:,} to send, {size_in_words(row.spool_bytes or 0)}"

    @display(description="Started", ordering="started_at")
    def started(self, row: Process) -> str:
        """Return when it started."""
        return f"{row.started_at:%Y-%m-%d %H:%M:%S} UTC"

    @display(description="Last heartbeat", ordering="heartbeat_at")
    def heartbeat(self, row: Process) -> SafeString:
        """Return how long ago it reported."""
        return time_ago(row.heartbeat_at)


def revision_panel(revision: Revision, _: HttpRequest) -> SafeString:
    """Return a Revision's rollout, for the user who published it."""
    return render_to_string("scheduler/revision_panel.html", _progress_of(revision))


@admin.site.admin_view
@permission_required("policies.view_revision", raise_exception=True)
@require_safe
def progress(request: HttpRequest, number: int) -> HttpResponse:
    """Show the rollout as a fragment."""
    return TemplateResponse(
        request, "scheduler/revision_panel.html", _progress_of(get_object_or_404(Revision, pk=number))
    )


def _progress_of(revision: Revision) -> dict[str, Any]:
    """Return which processes serve a Revision, how many waiting Pods were requeued for it, and its first answers."""
    alive = Process.objects.filter(heartbeat_at__gt=timezone.now() - STALE_AFTER, revision__gt=0)
    rows = [(row, reverse("admin:scheduler_process_change", args=[quote(row.pk)])) for row in alive]
    asked = recorded().filter(revision=revision.number).exclude(mode="shadow").order_by("at").defer("body")
    first = unless_away(lambda: list(asked[:_FIRST_DECISIONS]))
    is_past = bool(rows) and all(row.revision > revision.number for row, _ in rows)
    is_new = timezone.now() - revision.created_at < _WATCHED
    return {
        "revision": revision,
        "is_watched": is_new and not is_past,
        "woken": Requeue.objects.filter(cause="revision", revision=revision.number).first(),
        "serving": [(row, url) for row, url in rows if row.revision == revision.number],
        "behind": [(row, url) for row, url in rows if row.revision < revision.number],
        "is_past": is_past,
        "is_away": first is None,
        "first": [
            (row, decision_url(row.pk), pod_url(row.pod_namespace, row.pod_name, row.pod_uid), verdict_of(row))
            for row in first or ()
        ],
    }


add_panel(Revision, revision_panel)
