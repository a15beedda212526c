"""The pages of processes: who reports, and what each serves."""

from typing import Any

from django.contrib import admin
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from policies.admin.base import ReadOnlyAdmin, link, revision_url
from policies.admin.frame import display
from scheduler.admin.decisions import duration
from scheduler.models import Process

STALE_AFTER = Process.STALE_AFTER


@admin.register(Process)
class ProcessAdmin(ReadOnlyAdmin):
    """The pages of processes."""

    list_display = ("role", "host_pid", "state", "serves", "snapshot", "started", "heartbeat")
    list_filter = ("role",)
    fields = ("role", "host_pid", "state", "serves", "snapshot", "started", "heartbeat")
    readonly_fields = fields
    empty_title = "No process has reported"
    empty_text = "Processes of Berth report once a second. Start them with make up, or see the Deployment's Pods."

    @display(description="Host")
    def host_pid(self, row: Process) -> str:
        """Name the process."""
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
        return format_html("{}{}", link(revision_url(row.revision), f"Revision {row.revision}"), since)

    @display(description="Snapshot age", ordering="snapshot_age_seconds")
    def snapshot(self, row: Process) -> str:
        """Return how old its view of the cluster is."""
        return "no Snapshot" if row.snapshot_age_seconds is None else f"{row.snapshot_age_seconds:.1f} s"

    @display(description="Started", ordering="started_at")
    def started(self, row: Process) -> str:
        """Return when it started."""
        return f"{row.started_at:%Y-%m-%d %H:%M:%S} UTC"

    @display(description="Last heartbeat", ordering="heartbeat_at")
    def heartbeat(self, row: Process) -> SafeString:
        """Return how long ago it reported."""
        ago = f"{duration((timezone.now() - row.heartbeat_at).total_seconds())} ago"
        exact = f"{row.heartbeat_at:%Y-%m-%d %H:%M:%S} UTC"
        return format_html('<time datetime="{}" title="{}">{}</time>', row.heartbeat_at.isoformat(), exact, ago)
