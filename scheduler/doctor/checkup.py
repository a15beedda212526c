"""Checks every part that Berth needs to place a Pod, and reports findings with remedies.

Each part has a function with side effects that never raises for the part's own faults: an unavailable
part must not hide the others.
"""

import contextlib
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import F, Max, Sum

from policies.engine.errors import ExpressionError
from policies.engine.ruleset import Pause
from policies.models import (
    AuditEvent,
    Change,
    ClusterPriorityClass,
    PriorityClassLook,
    PriorityClassReplacement,
    RevisionPart,
)
from policies.publishing import (
    AuditKind,
    current_revision,
    ending_soon,
    held_changes,
    live_priority_classes,
    live_since,
    said_by,
    scheduled_changes,
    suspended,
    unapproved_changes,
)
from policies.wording import ago, counted
from scheduler.broker import celery_app
from scheduler.certificates import CertificateError, expires_at
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError
from scheduler.decisions.assignment_uses import idle_now
from scheduler.decisions.missing import database_now, missing
from scheduler.decisions.replica import history_behind, is_history_away
from scheduler.decisions.shipping import MOST_IN_REDIS
from scheduler.decisions.stream import MOST_IN_ENTRY, DecisionStream, StreamError
from scheduler.doctor.addresses import BERTHS_PORT, split, without_secrets
from scheduler.doctor.canary import LastCall, last_calls
from scheduler.doctor.catalogue import Finding, is_ok
from scheduler.doctor.configuration import VERBS
from scheduler.doctor.encoding import REMEDY, narrow_encoding
from scheduler.doctor.findings import Linted, lint
from scheduler.doctor.own_pods import own_pods
from scheduler.doctor.parts import Part, State
from scheduler.doctor.pooling import POOLED, is_shared
from scheduler.doctor.published import Known, known_of
from scheduler.doctor.reviews import account_asking, may
from scheduler.doctor.rights import COMPONENTS, component_of, questions, rights_of
from scheduler.doctor.shape import TLSConfig
from scheduler.doctor.signing import ledger_part
from scheduler.doctor.suspensions import ending_sentence
from scheduler.history.storage import forecast_now, over_budget, samples_now, size_in_words
from scheduler.history.storage import in_words as forecast_in_words
from scheduler.models import DecisionGap, PendingLook, Process

SILENT_AFTER = timedelta(seconds=10)
# A quiet API server sends nothing for up to 90 s.
SNAPSHOT_OLD_SECONDS = 120.0

# Entries in Redis: half of the shippers' limit.
WAITING_MANY = MOST_IN_REDIS // 2
# Decisions that were lost earlier don't make the checkup fail: nothing brings them back.
LOST_LATELY = timedelta(days=1)
_INGEST_LOOK_SECONDS = 2.5
ENDS_SOON = timedelta(days=21)
_FULL_SHARE = 0.95
# A tick comes every three seconds; listing a large cluster's Pods may take half a minute, and the pause after it four times as long.
_TICKS_STOPPED = timedelta(minutes=3)
# The most Assignments that a line names.
_NAMED = 5
_PING_SECONDS = 1.0
_REACH_SECONDS = 3.0


class Checkup(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The result of the whole checkup. `ok`: no part has an error."""

    ok: bool
    parts: list[Part]
    calls: dict[str, list[LastCall]] = {}
    findings: list[Finding] = []


def check(*, scheduler_config: Path | None = None, urls: tuple[str, ...] = (), quick: bool = False) -> Checkup:
    """Check everything.

    Args:
        scheduler_config: kube-scheduler's file; by default BERTH_SCHEDULER_CONFIG, if set.
        urls: the addresses of Berth's extender, to distinguish it from other extenders.
        quick: for a page: skip checks that take seconds or call other servers more than once.
    """
    database = [_database(), *_tables(), *_schema()]
    reachable = database[0].state == "ok" and all(part.state == "ok" for part in database)
    calls = last_calls() if reachable else {}
    parts = [*database]
    if reachable:
        parts += [
            *_encoding(),
            *_pooler(),
            *_writes(),
            *_processes(calls),
            *_leases(),
            _last_call(calls),
            _recorded(),
            *_replica(),
            _ticks(),
            ledger_part(datetime.now(UTC)),
            _storage(),
            _changes(),
            _pauses(),
            _assignments(),
            _priority_classes(),
        ]
    parts += [*_history(quick=quick), *_api_server(quick=quick), _spool()]
    linted, found = _configuration(scheduler_config, known(urls) if reachable else _settings_known(urls))
    parts += [*found, *_certificates(linted), *([] if quick else _address(linted))]
    if reachable and not quick:
        parts += _own_pods(linted)
    ok = not any(part.state == "error" for part in parts)
    return Checkup(ok=ok, parts=parts, calls=calls, findings=linted.findings if linted else [])


def known(urls: tuple[str, ...] = ()) -> Known:
    """Return the facts about Berth for the lint, from the database and the settings; unavailable ones are unknown."""
    of_settings = _settings_known(urls)
    try:
        return known_of(current_revision(), of_settings)
    except (DatabaseError, ExpressionError, msgspec.DecodeError, msgspec.ValidationError, KeyError):
        connection.close()
        return of_settings


def _settings_known(urls: tuple[str, ...]) -> Known:
    ours = settings.BERTH
    port = ours.extender_bind.rpartition(":")[2]
    if not urls and port != str(BERTHS_PORT):
        urls = (f"http://127.0.0.1:{port}",)
    return Known(deadline_seconds=ours.extender_deadline_seconds, urls=urls, secret_path=ours.extender_secret_path)


def configured_verbs() -> tuple[str, ...]:
    """Return the verbs that a canary has to see: those in kube-scheduler's file, if that is known. A canary never preempts."""
    linted, _ = _configuration(None, Known())
    if linted is None or linted.configuration is None or not linted.berths:
        return _USUAL_VERBS
    verbs = linted.configuration.extenders[linted.berths[0]].verbs
    return tuple(verb for verb in _CANARYS_VERBS if verbs[verb]) or _USUAL_VERBS


_USUAL_VERBS = ("filter", "prioritize")
_CANARYS_VERBS = ("filter", "prioritize", "bind")


# Database


def _database() -> Part:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        connection.close()
        says = f"{connection.vendor} can't be reached: {str(error).strip().splitlines()[0]}"
        return Part(
            "database",
            "error",
            says,
            "Start it, or correct BERTH_DATABASE_URL. Pods are still scheduled by the last Revision.",
        )
    return Part("database", "ok", f"{connection.vendor} answers")


_HIDDEN_TABLES = """
SELECT name FROM unnest(%s::text[]) AS name
WHERE to_regclass(quote_ident(name)) IS NOT NULL AND NOT has_table_privilege(quote_ident(name), 'SELECT') ORDER BY name
"""


def _tables() -> Iterator[Part]:
    """Check that this role may read the tables: tables that belong to another role than berth_owner are closed to berth_app."""
    if connection.vendor != "postgresql":
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute(_HIDDEN_TABLES, [[*connection.introspection.django_table_names(), "django_migrations"]])
            hidden = [name for (name,) in cursor.fetchall()]
    except DatabaseError:
        connection.close()
        return
    if hidden:
        says = f"this role may not read {counted(len(hidden), 'table')}, {hidden[0]} among them"
        remedy = "Run deploy/postgres/roles.sql as a superuser, and migrate as berth_owner."
        yield Part("tables", "error", says, remedy)


def _schema() -> Iterator[Part]:
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        connection.close()
        return
    if missing:
        yield Part(
            "schema",
            "error",
            f"{len(missing)} {'migration is' if len(missing) == 1 else 'migrations are'} missing",
            "Run manage.py migrate.",
        )
    else:
        yield Part("schema", "ok", "is up to date")


def _encoding() -> Iterator[Part]:
    if says := narrow_encoding(connection):
        yield Part("encoding", "error", says, REMEDY)


def _pooler() -> Iterator[Part]:
    if is_shared(connection):
        yield Part("pooler", "error", POOLED.says, POOLED.remedy)


def _writes() -> Iterator[Part]:
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute("SHOW transaction_read_only")
        (is_read_only,) = cursor.fetchone()
    if is_read_only == "on":
        says = "PostgreSQL takes none: it is a standby, or default_transaction_read_only is on"
        remedy = "Promote it, or lead to the primary: target_session_attrs=read-write in BERTH_DATABASE_URL passes over others."
        yield Part("writes", "error", says, remedy)


# Processes


def _processes(calls: dict[str, list[LastCall]]) -> Iterator[Part]:
    now = datetime.now(UTC)
    rows = list(Process.objects.filter(role__in=["extender", "binder"]))
    alive = [row for row in rows if now - row.heartbeat_at <= SILENT_AFTER]
    if not alive:
        says = "no process has reported in the last 10 s"
        yield Part("extender", "error", says, "Start the extender; its log says why it doesn't run.")
        return
    yield _reporting(alive, len(rows) - len(alive), is_asked=bool(calls))
    yield _revision(alive, current_revision().number)
    yield _snapshot(alive)


def _reporting(alive: list[Process], silent: int, *, is_asked: bool) -> Part:
    """Return which processes report. A binder doesn't replace an extender: it answers no calls."""
    numbers = Counter(row.role for row in alive)
    says = " and ".join(counted(numbers[role], role) for role in ("extender", "binder") if numbers[role])
    says += (" reports" if len(alive) == 1 else " report") + (f", {silent} silent" if silent else "")
    if not numbers["extender"]:
        remedy = "Start it if kube-scheduler asks Berth: until then its Pods wait. Its log says why it doesn't run."
        return Part("extender", "error" if is_asked else "warning", f"none reports; {says}", remedy)
    if silent:
        return Part("extender", "warning", says, "Were they killed? They are removed from the list after an hour.")
    return Part("extender", "ok", says)


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
    if oldest > SNAPSHOT_OLD_SECONDS:
        return Part(
            "Snapshot",
            "error",
            f"{oldest:,.0f} s old",
            "The watch has broken: is the API server up? See berth.cluster.",
        )
    return Part("Snapshot", "ok", f"{oldest:.1f} s old")


# The consequence if replicas of a role use Leases in different namespaces.
_AGREED = {
    "extender": "limits of rules that count Pods may be exceeded by one",
    "binder": "each of them schedules, and both bind to the same nodes",
}


def _leases() -> Iterator[Part]:
    """Compare the namespaces of the Leases by which the replicas of a role coordinate, as each live process recorded at its start."""
    alive = Process.objects.filter(role__in=_AGREED, heartbeat_at__gt=database_now() - SILENT_AFTER).values("id")
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


def _last_call(calls: dict[str, list[LastCall]]) -> Part:
    newest = min((call for found in calls.values() for call in found), key=lambda call: call.seconds_ago, default=None)
    if newest is None:
        remedy = "Create a Pod, or run a canary (doctor wiring), which says why."
        return Part("kube-scheduler", "unknown", "has not called yet", remedy)
    seen = [verb for verb in VERBS if verb in calls]
    says = f"{newest.identity} called {newest.ago}; verbs seen: {', '.join(_seen(verb, calls[verb]) for verb in seen)}"
    if newest.is_old:
        return Part("kube-scheduler", "unknown", f"{says}. It isn't known whether it still calls Berth", _WOULD_IT_CALL)
    return Part("kube-scheduler", "ok", says)


_WOULD_IT_CALL = (
    "Run a canary (doctor wiring), which shows whether it calls Berth. If no Pod was created since, nothing is wrong."
)


def _seen(verb: str, calls: list[LastCall]) -> str:
    """Return a verb, with the time since its last call if that call is too old to be proof."""
    newest = min(calls, key=lambda call: call.seconds_ago)
    return f"{verb} ({newest.ago})" if newest.is_old else verb


# History


def _replica() -> Iterator[Part]:
    """Yield whether the replica from which pages read is up to date, if there is one."""
    if settings.HISTORY_DATABASE == DEFAULT_DB_ALIAS:
        return
    if is_history_away():
        remedy = "Bring it back, or take BERTH_HISTORY_DATABASE_URL out: pages read the database itself then."
        yield Part("replica", "warning", "can't be reached: pages show no history", remedy)
    elif behind := history_behind():
        remedy = "Check its replication: pages and REST don't show newer records. Scheduling doesn't read the replica."
        yield Part("replica", "warning", f"is {behind} behind", remedy)
    else:
        yield Part("replica", "ok", "pages read the history from it")


def _history(*, quick: bool) -> Iterator[Part]:
    stream = DecisionStream(settings.BERTH.redis_url)
    try:
        waiting = stream.length()
        yield _redis(stream.refusal(), stream.eviction_policy())
        yield from () if quick else [_worker()]
        yield _ingested(stream, waiting, quick=quick)
    except StreamError as error:
        remedy = "Start it, or correct BERTH_REDIS_URL. Decisions wait with the extender meanwhile."
        yield Part("Redis", "error", f"can't be reached: {error}", remedy)


def _changes() -> Part:
    """Return which Changes need somebody: published without approval, held back, or due and not published."""
    overdue = list(scheduled_changes().filter(publish_at__lt=datetime.now(UTC) - _OVERDUE))
    if overdue:
        says = f"{_named(overdue)} should be live by now"
        return Part("Changes", "error", says, "Do the worker and beat run? They will catch up.")
    unapproved, held = Change.objects.filter(pk__in=unapproved_changes()), held_changes()
    waiting = [f"{_named(rows)} {what}" for rows, what in ((unapproved, _WITHOUT), (held, _HELD_BACK)) if rows]
    if waiting:
        remedy = "See Changes: approve them afterwards, roll them back, or set another time."
        return Part("Changes", "warning", "; ".join(waiting), remedy)
    return Part("Changes", "ok", "none was published without approval or held back at its time")


def _pauses() -> Part:
    """Return which rules are suspended, and which Exemptions end soon."""
    now = datetime.now(UTC)
    paused = [each for each in suspended(now) if isinstance(each.value, Pause)]
    said = [f"{each.what} is paused by {each.by}: {each.value.reason}" for each in paused if not each.has_ended]
    said += [f"the pause of {each.what} has ended" for each in paused if each.has_ended]
    said += [ending_sentence(each) for each in ending_soon(now)]
    if said:
        remedy = "Resume, remove what has ended, or agree on another end with its owner: the page Pauses."
        return Part("Pauses", "warning", "; ".join(said), remedy)
    return Part("Pauses", "ok", "nothing is paused, and no Exemption ends soon")


_WITHOUT, _HELD_BACK = "published without approval", "held back at its time"
_OVERDUE = timedelta(seconds=60)


def _named(changes: Iterable[Change]) -> str:
    return ", ".join(str(each) for each in changes)


def _recorded() -> Part:
    """Return whether every answered Decision is in the history; computed now, so it doesn't depend on beat."""
    now = database_now()
    rows = DecisionGap.objects.filter(may_return=False)
    lost = rows.aggregate(decisions=Sum(F("last") - F("first") + 1), newest=Max("at"))
    said = _lost_in_words(lost["decisions"], lost["newest"]) if lost["decisions"] else ""
    gone = missing(now)
    if gone:
        number = sum(gap.decisions for gap in gone)
        says = f"{number:,} of processes that are gone {'is' if number == 1 else 'are'} not stored"
        remedy = (
            f"Bring back the state folder (BERTH_STATE_DIR) of {', '.join(gap.process for gap in gone[:3])}, and start a process "
            "on it: it ships what is left. If the folder is there, do Redis, the worker and beat run?"
        )
        return Part("Decisions", "error", f"{says}; {said}" if said else says, f"{remedy} {_GAPS}" if said else remedy)
    if not said:
        return Part("Decisions", "ok", "none is lost")
    state: State = "error" if now - lost["newest"] < LOST_LATELY else "warning"
    return Part("Decisions", state, said, _GAPS)


def _lost_in_words(number: int, newest: datetime) -> str:
    return f"{number:,} {'is' if number == 1 else 'are'} lost, the last on {newest:%Y-%m-%d %H:%M} UTC"


_GAPS = "The admin's page Decision gaps shows their numbers and the reasons."


def _ticks() -> Part:
    """Return whether beat's ticks reach a worker: the tick for waiting Pods records its time even if the API server is unavailable."""
    look = PendingLook.objects.first()
    newest = max((at for at in (look.looked_at, look.fault_at) if at), default=None) if look else None
    if newest is None:
        return Part("beat", "unknown", "no worker has received a tick yet", _NO_TICKS)
    if (silent := datetime.now(UTC) - newest) > _TICKS_STOPPED:
        return Part("beat", "error", f"no worker has received a tick since {newest:%Y-%m-%d %H:%M} UTC", _NO_TICKS)
    return Part("beat", "ok", f"workers receive its ticks; the last one {ago(max(silent.total_seconds(), 0.0))}")


_NO_TICKS = "Do beat and the worker run? Until then refused Pods aren't requeued, Changes with a time don't go live, and nothing is signed."


def _storage() -> Part:
    """Return the history's size, and whether the forecast stays within the budget."""
    newest, _ = samples_now()
    if newest is None:
        says = "how large the history is hasn't been measured yet"
        return Part(
            "Storage", "unknown", says, "Wait five minutes after the start; then see whether worker and beat run."
        )
    says = f"the history takes up {size_in_words(newest.decision_bytes + newest.journal_bytes)}"
    found = forecast_now()
    if found is None:
        return Part("Storage", "ok", says)
    says = f"{says}; {forecast_in_words(found)}"
    if over_budget(found):
        remedy = (
            f"The budget is {size_in_words(settings.BERTH.history_budget_bytes)}: keep details for fewer days "
            "(BERTH_RETENTION_DETAILS_DAYS), or Decisions (BERTH_RETENTION_DAYS), or give it more."
        )
        return Part("Storage", "warning", says, remedy)
    return Part("Storage", "ok", says)


def _assignments() -> Part:
    """Return whether every live Assignment takes Pods: one that never does is mistyped, hidden by an earlier one, or left over."""
    days = settings.BERTH.assignment_idle_days
    found = idle_now(datetime.now(UTC))
    if not found:
        says = f"each took a Pod, or changed, within {counted(days, 'day')}"
        return Part("Assignments", "ok", says if live_since(RevisionPart.Kind.ASSIGNMENT) else "none is published")
    names = ", ".join(each.name for each in found[:_NAMED]) + (", …" if len(found) > _NAMED else "")
    remedy = "The page Which one takes this Pod? explains why an Assignment doesn't match a Pod; remove Assignments that nobody needs."
    return Part("Assignments", "warning", f"{len(found)} matched no Pod for {counted(days, 'day')}: {names}", remedy)


def _priority_classes() -> Part:
    """Return whether the cluster's PriorityClasses match the published ones, according to the worker's last look."""
    name, live = "PriorityClasses", live_priority_classes()
    look = PriorityClassLook.objects.first()
    if look is None:
        remedy = "Do the worker and beat run?"
        return Part(name, "unknown", "the cluster wasn't read yet", remedy) if live else _none_published()
    if look.error:
        remedy = "Is the API server up, and may the worker list them?"
        return Part(name, "error", f"the cluster can't be read: {look.error}", remedy)
    under_way = PriorityClassReplacement.objects.filter(state=PriorityClassReplacement.State.UNDER_WAY)
    gone = ClusterPriorityClass.objects.filter(present=False, name__in=under_way.values("name"))
    if gone:
        says = f"{', '.join(row.name for row in gone)}: deleted in order to be created again, but not created yet"
        remedy = "Berth retries every second; the admin shows the API server's answer beside it."
        return Part(name, "error", says, remedy)
    rows = ClusterPriorityClass.objects.filter(state__in=_LOOKED_AFTER, name__in=live)
    if rows:
        says = "; ".join(f"{row.name} is {row.state}" for row in rows)
        remedy = "Its page in the admin shows both sides: restore the published one, or publish the cluster's."
        return Part(name, "warning", says, remedy)
    return Part(name, "ok", f"{len(live)} in the cluster as published") if live else _none_published()


def _none_published() -> Part:
    return Part("PriorityClasses", "ok", "none is published")


# The states of a class that need somebody's attention.
_LOOKED_AFTER = ("refused", "conflict", "foreign", "drifted")


def _redis(refusal: str, policy: str) -> Part:
    if refusal:
        remedy = (
            "Give it memory (maxmemory) or room on its disk; of replicas, lead BERTH_REDIS_URL to the master. Decisions wait "
            "with the extender meanwhile, and tasks aren't run."
        )
        return Part("Redis", "error", f"answers, but refuses writes: {refusal}", remedy)
    if policy in {"", "noeviction"}:
        return Part("Redis", "ok", "answers")
    says = f"answers, but may evict records and tasks: maxmemory-policy is {policy}"
    return Part(
        "Redis",
        "warning",
        says,
        "Set maxmemory-policy noeviction. Evicted Decisions are sent again from disk.",
    )


# The Celery node name of a binder (controlplane/binder.py), which answers a ping, too, but runs none of a worker's tasks.
_BINDER = "binder@"


def _worker() -> Part:
    app = celery_app()
    with app.connection() as broker:
        try:
            answers = app.control.ping(timeout=_PING_SECONDS, connection=broker)
        except (*broker.connection_errors, *broker.channel_errors) as error:
            return Part(
                "worker",
                "error",
                f"can't be reached: {error}",
                "Is Redis up, and does it have free memory (maxmemory)?",
            )
    answers = [each for each in answers if not any(name.startswith(_BINDER) for name in each)]
    if not answers:
        remedy = "Start the worker: without it no Decision reaches the database, and refused Pods aren't requeued."
        return Part("worker", "error", "none answers", remedy)
    return Part("worker", "ok", f"{len(answers)} answer{'s' if len(answers) == 1 else ''}")


def _ingested(stream: DecisionStream, waiting: int, *, quick: bool) -> Part:
    """Return whether Decisions are being ingested. A few always wait: a second look shows whether their number goes down."""
    if waiting and not quick:
        time.sleep(_INGEST_LOOK_SECONDS)
        if (later := stream.length()) >= waiting:
            remedy = "Do the worker and beat run? Is the database up? See the worker's log."
            return Part("history", "warning", f"{_waiting(later)} and their number doesn't decrease", remedy)
        waiting = later
    if waiting > WAITING_MANY:
        remedy = "Do the worker and beat run? A second worker helps."
        return Part("history", "warning", _waiting(waiting), remedy)
    return Part("history", "ok", _waiting(waiting))


def _waiting(number: int) -> str:
    return (
        f"at most {number * MOST_IN_ENTRY:,} records of Decisions wait in Redis"
        if number
        else "no Decision waits in Redis"
    )


def _spool() -> Part:
    """Check this machine's state folder, where an extender keeps Decisions until they are stored."""
    folder: Path = settings.BERTH.state_dir
    files = [path for path in (folder / "spool").rglob("*") if path.is_file()]
    try:
        disk = shutil.disk_usage(folder)
    except OSError as error:
        return Part("disk", "error", f"{folder} can't be used: {error.strerror}", "Correct BERTH_STATE_DIR.")
    size = sum(path.stat().st_size for path in files)
    says = f"{disk.free / 2**30:.1f} GiB free for state"
    says += f"; {size / 2**20:.1f} MiB of Decisions in {len(files)} files of the spool" if files else ""
    if disk.used / disk.total > _FULL_SHARE:
        return Part("disk", "warning", says, "Free disk space: an extender that can't write loses Decisions.")
    return Part("disk", "ok", says)


# API server

# Without these Berth can't answer; the others are for requeueing, canaries, binding and PriorityClasses.
_NEEDED = {(verb, resource) for resource in ("nodes", "pods", "namespaces") for verb in ("list", "watch")}


def _api_server(*, quick: bool) -> Iterator[Part]:
    client = Client.connect(settings.BERTH.kubeconfig)
    try:
        version = msgspec.json.decode(client.get(path="/version", timeout_seconds=_REACH_SECONDS))
        yield Part("API server", "ok", f"Kubernetes {version.get('gitVersion', 'of an unknown version')}")
        if not quick:
            yield _rights(client)
    except (APIError, msgspec.DecodeError) as error:
        remedy = "Is it up, and is BERTH_KUBECONFIG right? In a Pod, leave BERTH_KUBECONFIG empty."
        yield Part("API server", "error", f"can't be reached: {error}", remedy)


def _rights(client: Client) -> Part:
    """Check the rights of the present account: one of Berth's processes needs its own rights, any other account those of all processes."""
    own = component_of(account_asking(client))
    components, namespace = ([own[0]], own[1]) if own else (list(COMPONENTS), settings.BERTH.lease_namespace)
    asked = {
        (each["verb"], right.resource): each
        for component in components
        for right in rights_of(component, (), reviews_tokens=bool(settings.BERTH.token_review_audience))
        for each in questions(right, namespace)
    }
    refused = [key for key, attributes in asked.items() if not may(client, attributes)]
    if not refused:
        return Part(
            "rights", "ok", f"this account may do what {f'the {own[0]} needs' if own else 'all processes need'}"
        )
    says = f"this account may not {', '.join(f'{verb} {resource}' for verb, resource in refused)}"
    if _NEEDED.intersection(refused):
        return Part("rights", "error", says, "Apply what manage.py doctor rbac prints.")
    return Part(
        "rights", "warning", says, "Berth's processes need these rights: manage.py doctor rbac prints the manifest."
    )


def _own_pods(linted: Linted | None) -> Iterator[Part]:
    try:
        revision = current_revision()
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError):
        return  # a Revision of another version, which processes report
    yield from own_pods(Client.connect(settings.BERTH.kubeconfig), linted, revision, datetime.now(UTC))


# kube-scheduler's file


def _configuration(path: Path | None, known_rules: Known) -> tuple[Linted | None, list[Part]]:
    place = path or (Path(settings.BERTH.scheduler_config) if settings.BERTH.scheduler_config else None)
    if place is None:
        remedy = "Name kube-scheduler's file: --scheduler-config, or BERTH_SCHEDULER_CONFIG."
        return None, [Part("configuration", "unknown", "was not checked", remedy)]
    try:
        linted = lint(place.read_text(encoding="utf-8"), known_rules, source=str(place))
    except (OSError, UnicodeDecodeError) as error:
        says = f"{place} can't be read: {error}"
        return None, [Part("configuration", "error", says, "Is it the file of kube-scheduler's --config?")]
    return linted, [_part_of(linted.findings, place)]


def _part_of(findings: list[Finding], place: Path) -> Part:
    counts = {kind: sum(finding.severity == kind for finding in findings) for kind in ("error", "warning", "note")}
    says = ", ".join(counted(count, kind) for kind, count in counts.items() if count)
    says = f"{place}: {says or 'nothing found'}"
    if is_ok(findings, strict=True):
        return Part("configuration", "ok", says)
    names = ", ".join(dict.fromkeys(finding.id for finding in findings if finding.severity != "note"))
    return Part("configuration", "warning" if is_ok(findings) else "error", f"{says}: {names}", "See the findings.")


def _certificates(linted: Linted | None) -> Iterator[Part]:
    """Check Berth's own certificates, and those that kube-scheduler's file names if they are on this machine."""
    names = ("extender_tls_cert_file", "extender_client_ca_file")
    files = {getattr(settings.BERTH, name, ""): f"BERTH_{name.upper()}" for name in names}
    for tls in _tls_of(linted):
        files |= {tls.ca_file: "tlsConfig.caFile", tls.cert_file: "tlsConfig.certFile"}
    for path, what in files.items():
        if path:
            yield _certificate(Path(path), what)


def _tls_of(linted: Linted | None) -> list[TLSConfig]:
    if linted is None or linted.configuration is None:
        return []
    return [linted.configuration.extenders[index].tls_config for index in linted.berths]


def _certificate(path: Path, what: str) -> Part:
    name = f"certificate {what}"
    try:
        end = datetime.fromtimestamp(expires_at(path.read_bytes()), UTC)
    except FileNotFoundError:
        return Part(name, "unknown", f"{path} isn't on this machine")
    except (OSError, CertificateError) as error:
        return Part(name, "error", f"{path}: {error}", "The file must be a certificate in PEM format.")
    left = end - datetime.now(UTC)
    if left < timedelta():
        return Part(name, "error", f"{path} expired at {end:%Y-%m-%d %H:%M} UTC", "Renew it: every call fails.")
    says = f"{path} expires on {end:%Y-%m-%d}, in {counted(left.days, 'day')}"
    return Part(name, "warning", says, "Renew it.") if left < ENDS_SOON else Part(name, "ok", says)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Returns a redirect as the answer."""

    def redirect_request(self, *_args: Any, **_options: Any) -> None:
        """Don't follow it: kube-scheduler's POST would become a GET."""


def _address(linted: Linted | None) -> Iterator[Part]:
    """Call Berth at the address in kube-scheduler's file, from this machine."""
    if linted is None or linted.configuration is None:
        return
    for index in linted.berths:
        extender = linted.configuration.extenders[index]
        parts = split(extender.url_prefix)
        if parts is not None and parts.scheme in {"http", "https"} and parts.hostname:
            yield _called(extender.url_prefix.rstrip("/"), extender.tls_config)


def _called(url: str, tls: TLSConfig) -> Part:
    shown = without_secrets(url)
    try:
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=_context(tls)), _NoRedirect)
        with opener.open(f"{url}/livez", timeout=_REACH_SECONDS):
            return Part("address", "ok", f"{shown} answers this machine")
    except urllib.error.HTTPError as error:
        with error:
            if error.code in {301, 302, 303, 307, 308}:
                remedy = "Use the URL that it redirects to: kube-scheduler's call fails after a redirect."
                return Part("address", "error", f"{shown} answers with a redirect, {error.code}", remedy)
        return Part("address", "ok", f"{shown} answers this machine, with {error.code}")
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        remedy = "Is the extender up there? Other machines may still reach it."
        return Part("address", "warning", f"{shown} can't be reached from this machine: {reason}", remedy)


def _context(tls: TLSConfig) -> ssl.SSLContext:
    """Return the TLS context that kube-scheduler would use, with those of its files that are on this machine.

    Raises:
        OSError: a file can't be used.
    """
    context = ssl.create_default_context(cafile=tls.ca_file or None)
    # Go doesn't require the authority key identifier of a certificate; Python does from 3.13 on.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if tls.cert_file and tls.key_file:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    if tls.server_name:
        context.check_hostname = False  # the name to check can't be set here; the CA is checked
    return context
