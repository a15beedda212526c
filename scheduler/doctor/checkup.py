"""Checks every part that Berth needs to place a Pod, and reports findings with remedies.

Each part has a function with side effects that never raises for the part's own faults: an unavailable
part must not hide the others.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from django.conf import settings
from django.db import DatabaseError, connection

from policies.engine.errors import ExpressionError
from policies.publishing import current_revision
from scheduler.cluster.client import connect
from scheduler.doctor import api_server, database, live_rules, processes, records, scheduler_file
from scheduler.doctor.addresses import BERTHS_PORT
from scheduler.doctor.canary import LastCall, last_calls
from scheduler.doctor.catalogue import Finding
from scheduler.doctor.findings import Linted
from scheduler.doctor.own_pods import own_pods
from scheduler.doctor.parts import Part
from scheduler.doctor.published import Known, known_of
from scheduler.doctor.signing import ledger_part

_USUAL_VERBS = ("filter", "prioritize")
_CANARYS_VERBS = ("filter", "prioritize", "bind")


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
    parts = [database.answering(), *database.tables(), *database.schema()]
    reachable = all(part.state == "ok" for part in parts)
    calls = last_calls() if reachable else {}
    if reachable:
        refusing = [*database.writes()]
        parts += [
            *database.encoding(),
            *database.pooler(),
            *refusing,
            *database.clock(),
            *processes.reporting(calls, may_report=not refusing),
            *processes.leases(),
            processes.last_call(calls),
            records.recorded(),
            *records.replica(),
            processes.ticks(may_report=not refusing),
            ledger_part(datetime.now(UTC)),
            records.storage(),
            live_rules.changes(),
            live_rules.pauses(),
            live_rules.assignments(),
            live_rules.priority_classes(),
        ]
    parts += [*records.ingest(quick=quick), *api_server.answering(quick=quick), records.spool()]
    rules = known(urls) if reachable else _settings_known(urls)
    linted, found = scheduler_file.configuration(scheduler_config, rules)
    parts += [*found, *scheduler_file.certificates(linted), *([] if quick else scheduler_file.address(linted))]
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
    return Known(
        deadline_seconds=ours.extender_deadline_seconds,
        own_schedulers=ours.scheduler_names,
        urls=urls,
        secret_path=ours.extender_secret_path,
    )


def configured_verbs() -> tuple[str, ...]:
    """Return the verbs that a canary has to see: those in kube-scheduler's file, if that is known. A canary never preempts."""
    linted, _ = scheduler_file.configuration(None, Known())
    if linted is None or linted.configuration is None or not linted.berths:
        return _USUAL_VERBS
    verbs = linted.configuration.extenders[linted.berths[0]].verbs
    return tuple(verb for verb in _CANARYS_VERBS if verbs[verb]) or _USUAL_VERBS


def _own_pods(linted: Linted | None) -> Iterator[Part]:
    try:
        revision = current_revision()
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError):
        return  # a Revision of another version, which processes report
    yield from own_pods(connect(), linted, revision, datetime.now(UTC))
