"""Checks Berth's processes: who reports, what they serve, who calls them, and that ticks reach a worker."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from policies.models import AuditEvent
from policies.publishing import AuditKind, current_revision, said_by
from policies.wording import ago, counted
from scheduler.decisions.missing import database_now
from scheduler.doctor.canary import LastCall
from scheduler.doctor.configuration import VERBS
from scheduler.doctor.parts import Part
from scheduler.models import PendingLook, Process

_SILENT_AFTER = timedelta(seconds=10)
# A quiet API server sends nothing for up to 90 s.
_SNAPSHOT_OLD_SECONDS = 120.0
# A tick comes every three seconds; listing a large cluster's Pods may take half a minute, and the pause after it four times as long.
_TICKS_STOPPED = timedelta(minutes=3)
# The consequence if replicas of a role use Leases in different namespaces.
_AGREED = {
    "extender": "limits of rules that count Pods may be exceeded by one",
    "binder": "each of them schedules, and both bind to the same nodes",
}
_WOULD_IT_CALL = (
    "Run a canary (doctor wiring), which shows whether it calls Berth. If no Pod was created since, nothing is wrong."
)
_TO_START = "Start the extender; its log says why it doesn't run."
_TO_LET_WRITE = "Let the database take writes first: until then no process can report, whether it runs or not."
_NO_TICKS = "Do beat and the worker run? Until then refused Pods aren't requeued, Changes with a time don't go live, and nothing is signed."


def reporting(calls: dict[str, list[LastCall]], *, may_report: bool) -> Iterator[Part]:
    """Check that extenders report, if kube-scheduler calls Berth; their Revisions, and how old their Snapshots are.

    Args:
        calls: kube-scheduler's last calls.
        may_report: whether the database takes their reports.
    """
    now = database_now()
    rows = list(Process.objects.filter(role__in=["extender", "binder"]))
    alive = [row for row in rows if now - row.heartbeat_at <= _SILENT_AFTER]
    if not alive:
        says = "no process has reported in the last 10 s"
        yield Part("extender", "error", says, _TO_START if may_report else _TO_LET_WRITE)
        return
    yield _roles(alive, [row for row in rows if row not in alive], is_asked=bool(calls))
    yield _revision(alive, current_revision().number)
    yield _snapshot(alive)


def _roles(alive: list[Process], silent: list[Process], *, is_asked: bool) -> Part:
    """Return which processes report. A binder doesn't replace an extender: it answers no calls."""
    says = _by_role(alive) + (" reports" if len(alive) == 1 else " report")
    says += f", {_by_role(silent)} silent" if silent else ""
    if not any(row.role == "extender" for row in alive):
        remedy = "Start it if kube-scheduler asks Berth: until then its Pods wait. Its log says why it doesn't run."
        return Part("extender", "error" if is_asked else "warning", f"none reports; {says}", remedy)
    if silent:
        return Part("extender", "warning", says, "Were they killed? They are removed from the list after an hour.")
    return Part("extender", "ok", says)


def _by_role(rows: Iterable[Process]) -> str:
    numbers = Counter(row.role for row in rows)
    return " and ".join(counted(numbers[role], role) for role in ("extender", "binder") if numbers[role])


def _revision(alive: list[Process], newest: int) -> Part:
    behind = [row for row in alive if row.revision != newest]
    if behind:
        names = ", ".join(f"{row.host} pid {row.pid} serves {row.revision}" for row in behind)
        remedy = "The log of the process says why: berth.revisions. Can it reach the database?"
        return Part("Revision", "error", f"the newest is {newest}, but {names}", remedy)
    if not newest:
        remedy = "Publish a rule set and an Assignment: until then, Pods are placed without any rules."
        return Part("Revision", "warning", "nothing is published", remedy)
    return Part("Revision", "ok", f"{newest} is served by all processes")


def _snapshot(alive: list[Process]) -> Part:
    ages = [row.snapshot_age_seconds for row in alive]
    known_ages = [age for age in ages if age is not None]
    if len(known_ages) < len(ages):
        remedy = "Is BERTH_KUBECONFIG right, and may the account list what rules read? The log says watch_lost and why."
        return Part("Snapshot", "error", f"{len(ages) - len(known_ages)} of {len(ages)} have none", remedy)
    oldest = max(known_ages)
    if oldest > _SNAPSHOT_OLD_SECONDS:
        return Part(
            "Snapshot",
            "error",
            f"{oldest:,.0f} s old",
            "The watch has broken: is the API server up? See berth.cluster.",
        )
    return Part("Snapshot", "ok", f"{oldest:.1f} s old")


def leases() -> Iterator[Part]:
    """Compare the namespaces of the Leases by which the replicas of a role coordinate, as each live process recorded at its start."""
    alive = Process.objects.filter(role__in=_AGREED, heartbeat_at__gt=database_now() - _SILENT_AFTER).values("id")
    starts = AuditEvent.objects.filter(kind=AuditKind.PROCESS_START, thing_kind="Process", thing_name__in=alive)
    found: dict[str, dict[str, list[str]]] = {}
    for row in starts.order_by("pk"):
        with contextlib.suppress(msgspec.DecodeError, KeyError):  # `verify` reports damaged rows
            said = said_by(row).more
            role, namespace = said["role"], said["settings"]["lease_namespace"]
            found.setdefault(role, {}).setdefault(namespace, []).append(row.thing_name)
    apart = {role: namespaces for role, namespaces in found.items() if len(namespaces) > 1}
    if apart:
        says = "; ".join(
            f"{role}s look in {_in_words(namespaces)}: {_AGREED[role]}" for role, namespaces in apart.items()
        )
        yield Part(
            "Leases", "error", says, "Set the same BERTH_LEASE_NAMESPACE for all processes of a role, and restart them."
        )


def _in_words(namespaces: dict[str, list[str]]) -> str:
    return " and ".join(f"{namespace} ({', '.join(names)})" for namespace, names in sorted(namespaces.items()))


def last_call(calls: dict[str, list[LastCall]]) -> Part:
    """Return when kube-scheduler called last, and which verbs; calls long ago prove nothing of today."""
    newest = min((call for found in calls.values() for call in found), key=lambda call: call.seconds_ago, default=None)
    if newest is None:
        remedy = "Create a Pod, or run a canary (doctor wiring), which says why."
        return Part("kube-scheduler", "unknown", "has not called yet", remedy)
    seen = [verb for verb in VERBS if verb in calls]
    says = f"{newest.identity} called {newest.ago}; verbs seen: {', '.join(_seen(verb, calls[verb]) for verb in seen)}"
    if newest.is_old:
        return Part("kube-scheduler", "unknown", f"{says}. It isn't known whether it still calls Berth", _WOULD_IT_CALL)
    return Part("kube-scheduler", "ok", says)


def _seen(verb: str, calls: list[LastCall]) -> str:
    """Return a verb, with the time since its last call if that call is too old to be proof."""
    newest = min(calls, key=lambda call: call.seconds_ago)
    return f"{verb} ({newest.ago})" if newest.is_old else verb


def ticks(*, may_report: bool) -> Part:
    """Return whether beat's ticks reach a worker: the tick for waiting Pods records its time even if the API server is unavailable.

    Args:
        may_report: whether the database takes these times.
    """
    remedy = _NO_TICKS if may_report else _TO_LET_WRITE
    look = PendingLook.objects.first()
    newest = max((at for at in (look.looked_at, look.fault_at) if at), default=None) if look else None
    if newest is None:
        return Part("beat", "unknown", "no worker has received a tick yet", remedy)
    if (silent := datetime.now(UTC) - newest) > _TICKS_STOPPED:
        return Part("beat", "error", f"no worker has received a tick since {newest:%Y-%m-%d %H:%M} UTC", remedy)
    return Part("beat", "ok", f"workers receive its ticks; the last one {ago(max(silent.total_seconds(), 0.0))}")
