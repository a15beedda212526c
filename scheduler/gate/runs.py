"""Running the gate: on documents at once, or on a Change that somebody sent to review, by a worker.

A worker runs it in a process of its own: its memory goes with it, nothing else of the worker waits for it, and it takes the
processor only where nobody else wants it.
"""

import gc
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
from scheduler.backtest.runs import digest_of, newest_of, result_of
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError
from scheduler.gate.checks import CHECKS, Question, look
from scheduler.gate.cluster import list_cluster
from scheduler.gate.forecast import DECIDING_SECONDS, Forecast, OwnScheduler, forecast_of

logger = logging.getLogger("berth.gate")

# Called with what is done now, how much of it is done, and of how much; 0 where that isn't known.
Step = Callable[[str, int, int], None]

# Below what Celery waits for before it gives a task to another worker (controlplane/celery.py).
LONGEST_SECONDS = 100
# Of these, what is kept for starting, and for writing what was found.
_AROUND_SECONDS = 20
_STEP_SECONDS = 0.5
# Python's collector would look through all Pods again and again while they are read: a third of the time.
_COLLECTING = (50_000, 20, 100)

# What was live when this process last asked a cluster: a thousand rule sets take seconds to compile.
_last_live: CompiledRevision | None = None


class CancelledError(Exception):
    """Nobody wants the result any more."""


class Examined(NamedTuple):
    """What the checks found, on what of the cluster; None where it wasn't looked at."""

    results: list[Result]
    snapshot_at: datetime | None = None
    forecast: Forecast | None = None


def connect() -> Client:
    """Return a client of the cluster that is scheduled.

    Raises:
        APIError: there is none, or it is away.
    """
    return Client.connect(settings.BERTH.kubeconfig)


def _silent(phase: str, done: int, total: int) -> None:
    del phase, done, total


def examine(
    before: Revision,
    after: Revision,
    edits: Sequence[Edit],
    levels: Mapping[str, str],
    *,
    on_step: Step = _silent,
    client: Callable[[], Client] | None = connect,
    deciding_seconds: float = DECIDING_SECONDS,
    ends_at: float = math.inf,
) -> Examined:
    """Run the checks that aren't off.

    Args:
        before: what is live.
        after: what would be.
        edits: what makes the difference.
        levels: what comes of what each check finds.
        on_step: called as the work goes on.
        client: the cluster's; None not to ask it.
        deciding_seconds: how long Pods are decided on.
        ends_at: until when, by `monotonic()`, however long the cluster takes to be read.
    """
    question = Question(before, after, edits)
    if levels.get("backtest", OFF) != OFF and (newest := newest_of(digest_of(edits))):
        question.backtest = result_of(newest)
    # What needs no cluster comes first: where documents have faults, there is nothing to be decided with.
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
    if "documents" in results and results["documents"].verdict != PASSED:
        question.unknown = "the documents have faults"
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
    question.forecast = forecast_of(
        cluster.pods,
        cluster.snapshot,
        lambda done, total: on_step("deciding on Pods", done, total),
        lambda: monotonic() > until,
    )
    return cluster.pods.now


def _compiled(before: Revision, after: Revision) -> tuple[CompiledRevision, CompiledRevision]:
    """Return both ready to decide with. Of what is live only what changed since the last time is compiled."""
    global _last_live  # noqa: PLW0603 - one a process; who is overtaken compiles a little more
    live = _last_live = CompiledRevision(before, former=_last_live)
    return live, CompiledRevision(after, former=live)


def carry_out(
    run: GateRun, *, client: Callable[[], Client] | None = connect, deciding_seconds: float = DECIDING_SECONDS
) -> None:
    """Carry out a run that was taken up, and write what came of it.

    Where deciding may take no longer than so many seconds, the whole takes less than what `run_waiting` waits for: a cluster that
    is slow to be read leaves less time to decide, and what there was no time for is counted.
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
        logger.info("%s isn't wanted any more", run)
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
        CancelledError: it isn't wanted any more.
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
    """Take up the run that waits longest, and carry it out in a process of its own. Nothing where none waits."""
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


def collect_seldom() -> None:
    """Look for garbage seldom: what is read goes with the process."""
    gc.set_threshold(*_COLLECTING)
