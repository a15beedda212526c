"""Runs the gate: on documents at once, or in a worker for a Change that was sent to review.

A worker runs it in a separate process: its memory is freed at the end, nothing else in the worker waits for it, and it uses the
CPU only when nothing else needs it.
"""

import logging
import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import NamedTuple

from django.conf import settings

from policies import publishing
from policies.engine.decision import CompiledRevision
from policies.engine.ruleset import Revision
from policies.models import GateRun
from policies.publishing import Edit, PublishingError, Result
from policies.publishing.gates import OFF, PASSED
from scheduler.background import run_command
from scheduler.backtest.runs import BacktestError, digest_of, newest_of, result_of
from scheduler.cluster.client import Client, connect
from scheduler.cluster.errors import APIError
from scheduler.gate.checks import CHECKS, Question, look
from scheduler.gate.cluster import list_cluster
from scheduler.gate.forecast import DECIDING_SECONDS, Forecast, OwnScheduler, forecast

logger = logging.getLogger("berth.gate")

# Called with the current step, how much of it is done, and the total; 0 if that isn't known.
Step = Callable[[str, int, int], None]

# Less than the time after which Celery gives a task to another worker (controlplane/celery.py).
LONGEST_SECONDS = 100
# The part of that time for starting, and for writing the results.
_AROUND_SECONDS = 20
_STEP_SECONDS = 0.5

# The live Revision when this process last listed a cluster: a thousand rule sets take seconds to compile.
_last_live: CompiledRevision | None = None


class CancelledError(Exception):
    """The run was cancelled."""


class Examined(NamedTuple):
    """The checks' results, and the cluster they are based on; None if it wasn't listed."""

    results: list[Result]
    snapshot_at: datetime | None = None
    forecast: Forecast | None = None


def examine(
    before: Revision,
    after: Revision,
    edits: Sequence[Edit],
    levels: Mapping[str, str],
    *,
    client: Callable[[], Client] | None,
    on_step: Step = lambda _phase, _done, _total: None,
    deciding_seconds: float = DECIDING_SECONDS,
    ends_at: float = math.inf,
) -> Examined:
    """Run the checks that aren't off.

    Args:
        before: the live Revision.
        after: the Revision after the Change.
        edits: the Change's edits.
        levels: each check's level.
        client: to the cluster; None to leave it out.
        on_step: called as the work proceeds.
        deciding_seconds: the time for deciding on Pods.
        ends_at: the deadline by `monotonic()`, however long it takes to list the cluster.
    """
    question = Question(before, after, edits)
    if levels.get("backtest", OFF) != OFF and (newest := newest_of(digest_of(edits))):
        try:
            question.backtest = result_of(newest)
        except BacktestError as error:
            question.no_backtest = str(error)
    # Checks without the cluster come first: if documents have faults, nothing can be decided.
    wanted = sorted((check for check in CHECKS if levels.get(check, OFF) != OFF), key=lambda check: CHECKS[check][0])
    results: dict[str, Result] = {}
    at = None
    for check in wanted:
        asks_cluster, _ = CHECKS[check]
        if asks_cluster and question.forecast is None and not question.unknown:
            at = _ask_cluster(question, results, client, on_step, deciding_seconds, ends_at)
        on_step(f"checking: {check}", 0, 0)
        results[check] = look(check, question)
    return Examined(list(results.values()), at, question.forecast)


def _ask_cluster(
    question: Question,
    results: Mapping[str, Result],
    client: Callable[[], Client] | None,
    on_step: Step,
    deciding_seconds: float,
    ends_at: float,
) -> datetime | None:
    """Put the forecast into a question, or why there is none."""
    question.unknown = _faulty(question, results)
    if question.unknown:
        return None
    if client is None:
        question.unknown = "whoever asked for the gate left it out"
        return None
    on_step("reading the cluster", 0, 0)
    try:
        cluster = list_cluster(
            client(),
            lambda: _compiled(question.before, question.after),
            lambda read: on_step("reading Pods", read, 0),
            OwnScheduler(frozenset(settings.BERTH.scheduler_names), settings.BERTH.scheduler_node_label),
        )
    except APIError as error:
        question.unknown = str(error)
        return None
    until = min(monotonic() + deciding_seconds, ends_at)
    question.forecast = forecast(
        cluster.pods,
        cluster.snapshot,
        lambda done, total: on_step("deciding on Pods", done, total),
        lambda: monotonic() > until,
    )
    return cluster.pods.now


def _faulty(question: Question, results: Mapping[str, Result]) -> str:
    """Return why nothing can be decided by the documents: they have faults; empty where they have none."""
    shown = results.get("documents")
    found = shown or look("documents", question)
    if found.verdict == PASSED:
        return ""
    # If the check is off, its findings are shown nowhere else.
    return "the documents have faults" if shown else f"the documents have faults: {found.lines[0]}"


def _compiled(before: Revision, after: Revision) -> tuple[CompiledRevision, CompiledRevision]:
    """Return both Revisions compiled. Only changes of the live one since the last time are compiled."""
    global _last_live  # noqa: PLW0603 - one a process; who is overtaken compiles a little more
    live = _last_live = CompiledRevision(before, former=_last_live)
    return live, CompiledRevision(after, former=live)


def carry_out(
    run: GateRun, *, client: Callable[[], Client] | None = connect, deciding_seconds: float = DECIDING_SECONDS
) -> None:
    """Carry out a run, and write its results.

    With a limit for deciding, the whole run takes less than `run_waiting` waits for: if listing the cluster is slow, less time is
    left for deciding, and the Pods that there was no time for are counted.
    """
    ends_at = monotonic() + LONGEST_SECONDS - _AROUND_SECONDS if math.isfinite(deciding_seconds) else math.inf
    try:
        change = run.change
        before = publishing.current_revision()
        edits = publishing.edits_of(change)
        after = publishing.with_edits(before, edits)
        levels = publishing.levels_of(publishing.rule_sets_touched(change, before))
        noted = _Noted(run)
        examined = examine(
            before,
            after,
            edits,
            levels,
            on_step=noted,
            client=client,
            deciding_seconds=deciding_seconds,
            ends_at=ends_at,
        )
    except CancelledError:
        logger.info("%s was cancelled", run)
    except PublishingError as error:
        publishing.fail_gate(run, " ".join(error.messages))
    except Exception:
        publishing.fail_gate(run, "A fault of Berth's own ended it; the worker's log has it.")
        raise
    else:
        if publishing.end_gate(run, examined.results, revision=before.number, snapshot_at=examined.snapshot_at):
            logger.info("%s has ended", run)


class _Noted:
    """Writes the steps of a run, now and then.

    Raises:
        CancelledError: the run was cancelled.
    """

    def __init__(self, run: GateRun) -> None:
        self._run = run
        self._phase, self._at = "", 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        if phase == self._phase and monotonic() - self._at < _STEP_SECONDS:
            return
        self._phase, self._at = phase, monotonic()
        if not publishing.note_gate(self._run, phase, done, total):
            raise CancelledError


def run_waiting() -> None:
    """Carry out the longest-waiting run in a separate process. Does nothing if none waits."""
    run = publishing.take_gate()
    if run is None:
        return
    try:
        done = run_command("gate", "--taken", f"{run.pk}.{run.attempts}", seconds=LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        remedy = f"manage.py gate {run.change_id} takes as long as it needs."
        publishing.fail_gate(run, f"It took more than {LONGEST_SECONDS} s. {remedy}")
        return
    except OSError as error:
        publishing.fail_gate(run, f"Its process could not be started: {error}.")
        return
    if done.returncode:
        logger.error("%s ended with %s: %s", run, done.returncode, done.stderr.strip())
        publishing.lose_gate(run)
