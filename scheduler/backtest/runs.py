"""Runs backtests: starts them, divides them into chunks, decides these in several processes, combines the results, cancels.

All state is in the database. A process takes a chunk, decides it, and writes its results at once; if its time is up before, it
divides the chunk. If a process was killed, its chunk is taken again. A backtest stores its own input, and a chunk's results
depend on that alone: so the result is the same, whichever process was killed and when.
"""

import hashlib
import logging
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import msgspec
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Max, Q, QuerySet, Sum
from django.db.models.functions import Now
from django.utils import timezone

from policies import publishing
from policies.engine.decision import CompiledRevision
from policies.engine.errors import ExpressionError
from policies.engine.pauses import ends_at
from policies.engine.ruleset import Revision
from policies.engine.ruleset import encode as encode_document
from policies.models import Change, ChangeEdit
from policies.publishing import Edit, PublishingError
from policies.publishing.actors import lock_account
from policies.publishing.audit import Kind
from policies.publishing.gates import engine_version
from policies.publishing.silence import is_silent
from policies.publishing.standing import edit_of
from scheduler.background import run_command
from scheduler.backtest.deciding import GONE, Decider
from scheduler.backtest.results import ChunkResult, Line, Result, by_pod, decode, encode, pack, summed, unpack
from scheduler.models import Backtest, BacktestChunk, Decision

logger = logging.getLogger("berth.backtest")

# Decisions per chunk: some seconds of work on an idle machine. A killed process loses its chunk.
CHUNK = 2000
# A process that was silent for this long counts as dead.
SILENT = timedelta(seconds=20)
_STEP_SECONDS = 1.0
# If no process has started a backtest by then, no worker runs, or Redis is unavailable.
WAITS_LONG = timedelta(seconds=15)
# A started backtest without progress for this long counts as stuck; between two turns of a worker it pauses for some seconds.
STANDS_STILL = timedelta(seconds=60)
# A chunk that killed this many processes would kill more.
_MOST_ATTEMPTS = 20
# The number of finished backtests that keep the list of all their Pods.
_KEPT = 20
# How long a process works before it lets the worker do other tasks.
LONGEST_SECONDS = 60.0
# The permission to start and cancel backtests, and to start scenarios.
RUN_BACKTEST = "scheduler.run_backtest"
_VERBS = ("filter", "prioritize", "schedule", "bind", "preempt")

_State = Backtest.State
_ChunkState = BacktestChunk.State
_UNDER_WAY = (_State.QUEUED, _State.RUNNING)
_SAME = ("change", "rule_set", "revision", "digest", "since", "namespaces", "rule_sets", "asked_by")


class BacktestError(Exception):
    """The request can't be fulfilled; the message says why, and what to do."""


class SpanError(BacktestError):
    """No Decision can be in the requested span."""


class CancelledError(Exception):
    """The backtest was cancelled, or another process has taken over."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The selection of Decisions; a field that isn't given selects all."""

    since: datetime | None = None
    until: datetime | None = None
    namespaces: Sequence[str] = ()
    rule_sets: Sequence[str] = ()


def digest_of(edits: Iterable[Edit]) -> str:
    """Return a digest of these edits, independent of the Revision that they are applied to."""
    return hashlib.sha256(msgspec.json.encode(sorted(map(_stored, edits)))).hexdigest()


def _stored(edit: Edit) -> tuple[str, str, str]:
    return edit.kind, edit.name, encode_document(edit.value).decode() if edit.value is not None else ""


def target_of(named: str) -> tuple[Change, str]:
    """Return the Change that is named by its number, or the open one that edits a rule set, with that rule set's name.

    Raises:
        BacktestError: there is no such Change, or several.
    """
    if named.isdecimal():
        change = Change.objects.filter(pk=int(named)).first() if len(named) <= len(str(2**31 - 1)) else None
        if change is None:
            message = f"There is no Change {named}."
            raise BacktestError(message)
        return change, ""
    found = sorted(publishing.open_changes_of([("RuleSet", named)]))
    if not found:
        message = f"No open Change edits a rule set {named}: save an edit of it into a Change first, or name a Change by its number."
        raise BacktestError(message)
    if len(found) > 1:
        message = f"Several Changes edit rule set {named}: name one of {', '.join(map(str, found))} by its number."
        raise BacktestError(message)
    return Change.objects.get(pk=found[0]), named


def start_backtest(*, change: Change, by: User | str, span: Span, rule_set: str = "") -> Backtest:
    """Start a backtest of a Change's current edits, or of its edits to one rule set. A form that is sent twice starts one.

    Raises:
        BacktestError: this account may not, or the Change has nothing to test.
    """
    _check_may(by)
    try:
        edits = _edits_of(change, rule_set)
    except PublishingError as error:
        raise BacktestError(" ".join(error.messages)) from error
    if not edits:
        message = f"{change} edits nothing{f' of rule set {rule_set}' if rule_set else ''}."
        raise BacktestError(message)
    now = timezone.now()
    until = min(span.until or now, now)
    if span.since is not None and span.since >= until:
        end = "now" if until == now else f"at {until:%Y-%m-%d %H:%M:%S} UTC"
        message = f"No Decision is of a span that begins at {span.since:%Y-%m-%d %H:%M:%S} UTC and ends {end}."
        raise SpanError(message)
    row = Backtest(
        change=change,
        rule_set=rule_set,
        revision=publishing.current_revision().number,
        edits=[list(_stored(edit)) for edit in edits],
        digest=digest_of(edits),
        engine=engine_version(),
        since=span.since,
        until=until,
        namespaces=sorted(span.namespaces),
        rule_sets=sorted(span.rule_sets),
        asked_by=_name(by),
        asked_at=now,
    )
    with transaction.atomic():
        lock_account(by)
        if there := _just_started(row):
            return there
        row.save()
        _record(Kind.BACKTEST_START, row, by)
    return row


def _just_started(wanted: Backtest) -> Backtest | None:
    """Return the same backtest of the same person, if it was started a moment ago and is under way."""
    same = {name: getattr(wanted, name) for name in _SAME}
    since = wanted.asked_at - publishing.SAME_CLICK
    found = Backtest.objects.filter(**same, state__in=_UNDER_WAY, asked_at__gt=since)
    # Up to now is another moment at each click.
    is_open_ended = wanted.until == wanted.asked_at
    return found.filter(until=F("asked_at") if is_open_ended else wanted.until).first()


def _edits_of(change: Change, rule_set: str) -> list[Edit]:
    return [edit for edit in publishing.edits_of(change) if not rule_set or edit.key == ("RuleSet", rule_set)]


def is_edited_since(backtest: Backtest) -> bool:
    """Return whether its Change has other edits now than those under test."""
    try:
        return digest_of(_edits_of(backtest.change, backtest.rule_set)) != backtest.digest
    except PublishingError:
        return True


def _record(kind: Kind, backtest: Backtest, by: User | str) -> None:
    """Write an AuditEvent."""
    publishing.record_event(
        kind,
        by=by,
        thing=("Backtest", str(backtest.pk)),
        change=backtest.change_id,
        digests=("", backtest.digest),
        more=msgspec.to_builtins(parameters_of(backtest)),
    )


def cancel_backtest(*, backtest: Backtest, by: User | str) -> bool:
    """Cancel a backtest; False if it had ended.

    Raises:
        BacktestError: this account may not.
    """
    _check_may(by)
    under_way = Backtest.objects.filter(pk=backtest.pk, state__in=_UNDER_WAY)
    with transaction.atomic():
        done = under_way.update(state=_State.CANCELLED, ended_at=timezone.now(), ended_by=_name(by)) == 1
        if done:
            _record(Kind.BACKTEST_CANCEL, backtest, by)
    return done


def may_run(by: User | str) -> bool:
    """Return whether somebody may start and cancel backtests; a command's user has the machine."""
    return isinstance(by, str) or by.has_perm(RUN_BACKTEST)


def _check_may(by: User | str) -> None:
    if not may_run(by):
        message = f"{_name(by)} may not run backtests; an operator may."
        raise BacktestError(message)


def _name(by: User | str) -> str:
    return by if isinstance(by, str) else by.get_username()


def result_of(backtest: Backtest) -> Result | None:
    """Return the result of a backtest; None before it has ended.

    Raises:
        BacktestError: it is damaged.
    """
    if not backtest.result:
        return None
    try:
        return decode(bytes(backtest.result))
    except ValueError as error:
        raise _damaged(backtest, error) from error


def _damaged(backtest: Backtest, error: ValueError) -> BacktestError:
    return BacktestError(f"What {backtest} found is damaged in the database: {error}. Run it again.")


def newest_of(digest: str) -> Backtest | None:
    """Return the newest backtest of these edits that has ended with a result."""
    return Backtest.objects.filter(digest=digest, state=_State.DONE).order_by("-pk").first()


def _under_way() -> QuerySet[Backtest]:
    """Return the running and waiting backtests, in order."""
    return Backtest.objects.filter(state__in=_UNDER_WAY).order_by("pk")


def before(backtest: Backtest) -> Backtest | None:
    """Return the backtest that workers run before this one; None if this one is next."""
    return _under_way().filter(pk__lt=backtest.pk).first()


def progress_of(backtest: Backtest) -> int:
    """Return how many of a backtest's Decisions are done."""
    return backtest.chunks.filter(state=_ChunkState.DONE).aggregate(done=Sum("decisions"))["done"] or 0


def shown_at(backtest: Backtest) -> datetime | None:
    """Return when a deciding process last showed progress; None before the first time."""
    latest = backtest.chunks.aggregate(at=Max("heartbeat_at"))["at"]
    return max((at for at in (backtest.planned_at, latest) if at is not None), default=None)


def lines_of(backtest: Backtest) -> Iterator[Line]:
    """Iterate over all Pods that differ; for a backtest that ended long ago, over those that its result names.

    Raises:
        BacktestError: they are damaged.
    """
    if backtest.chunks.exists():
        yield from by_pod(_results(backtest))
    elif (result := result_of(backtest)) is not None:
        yield from result.pods


def of_in_words(backtest: Backtest) -> str:
    """Return the selection of Decisions, in words."""
    return (
        f"rule set {backtest.rule_set} as Change {backtest.change_id} makes it"
        if backtest.rule_set
        else f"Change {backtest.change_id}"
    )


def _results(backtest: Backtest) -> Iterator[ChunkResult]:
    rows = backtest.chunks.filter(state=_ChunkState.DONE).order_by("process", "first")
    for (data,) in rows.values_list("result").iterator(chunk_size=20):
        try:
            yield unpack(bytes(data))
        except ValueError as error:
            raise _damaged(backtest, error) from error


def _decisions_of(backtest: Backtest) -> QuerySet[Decision]:
    """Return the selected Decisions."""
    found = Decision.objects.filter(at__lt=backtest.until, mode="enforce", verb__in=_VERBS)
    if backtest.since is not None:
        found = found.filter(at__gte=backtest.since)
    if backtest.namespaces:
        found = found.filter(pod_namespace__in=backtest.namespaces)
    if backtest.rule_sets:
        found = found.filter(rule_set__in=backtest.rule_sets)
    return found


class Worker:
    """One process that works on backtests. It keeps its compiled rules and rebuilt Snapshots from chunk to chunk.

    Args:
        only: the only backtest to work on; None for all, in order.
        on_progress: called after each chunk.
    """

    def __init__(self, only: int | None = None, on_progress: Callable[[Backtest], None] = lambda _: None) -> None:
        self._only, self._on_progress = only, on_progress
        self._decider: tuple[int, Decider] | None = None
        self._next: tuple[int, int] = (0, 0)

    def work(self, until: float = float("inf")) -> None:
        """Work until nothing is left to do, or until the given time by `time.monotonic`.

        A chunk that isn't done by then is divided: what is decided stays, and the rest becomes a chunk of its own.
        """
        while monotonic() < until:
            backtest = self._first()
            if backtest is None or not self._go_on(backtest, until):
                return

    def _first(self) -> Backtest | None:
        under_way = _under_way()
        if self._only is not None:
            under_way = under_way.filter(pk=self._only)
        return under_way.first()

    def _go_on(self, backtest: Backtest, until: float) -> bool:
        """Run the next step. Return False if other processes do the rest."""
        try:
            if backtest.state == _State.QUEUED:
                return plan(backtest)
            chunk = self._take(backtest)
            if chunk is None:
                return _finish(backtest)
            self._carry_out(backtest, chunk, until)
        except CancelledError:
            logger.info("%s was cancelled", backtest)
        except BacktestError as error:
            _fail(backtest, str(error))
        else:
            self._on_progress(backtest)
        return True

    def _take(self, backtest: Backtest) -> BacktestChunk | None:
        """Take a chunk: the successor of the last one, whose Snapshots continue from there; else the first waiting one."""
        lost = backtest.chunks.filter(is_silent("heartbeat_at", SILENT), state=_ChunkState.RUNNING)
        if worn := lost.filter(attempts__gte=_MOST_ATTEMPTS).first():
            message = f"The processes that took {worn} were ended {worn.attempts} times. The worker's log may say why."
            raise BacktestError(message)
        lost.update(state=_ChunkState.QUEUED)
        waiting = backtest.chunks.filter(state=_ChunkState.QUEUED).order_by("number")
        number = self._next[1] if self._next[0] == backtest.pk else 0
        for row in (waiting.filter(number=number).first(), waiting.first()):
            if row is not None and self._is_mine(row):
                self._next = (backtest.pk, row.number + 1)
                row.refresh_from_db()
                return row
        return self._take(backtest) if waiting.exists() else None

    def _is_mine(self, row: BacktestChunk) -> bool:
        mine = BacktestChunk.objects.filter(pk=row.pk, state=_ChunkState.QUEUED)
        return mine.update(state=_ChunkState.RUNNING, heartbeat_at=Now(), attempts=F("attempts") + 1) == 1

    def _carry_out(self, backtest: Backtest, chunk: BacktestChunk, until: float) -> None:
        selected = _decisions_of(backtest).filter(
            process=chunk.process, sequence__gte=chunk.first, sequence__lte=chunk.last
        )
        rows = _InTime(selected.order_by("sequence").iterator(chunk_size=200), until)
        found = self._decider_of(backtest).chunk(rows, _Noted(chunk))
        with transaction.atomic():
            if rows.rest is not None:
                _divide(chunk, rows.rest, rows.taken)
            gone = chunk.decisions - rows.taken
            if gone > 0:
                found.undecided[GONE] = gone
            mine = BacktestChunk.objects.filter(pk=chunk.pk, state=_ChunkState.RUNNING, attempts=chunk.attempts)
            done = {"state": _ChunkState.DONE, "last": chunk.last, "decisions": chunk.decisions}
            if not mine.update(result=pack(found), **done):
                raise CancelledError

    def _decider_of(self, backtest: Backtest) -> Decider:
        if self._decider is None or self._decider[0] != backtest.pk:
            self._decider = (backtest.pk, _decider_of(backtest))
        return self._decider[1]


class _InTime:
    """Iterates over Decisions until the given time, but over one at least: a slow machine, too, comes to an end.

    Attributes:
        taken: how many it returned.
        rest: the sequence of the first that it left; None if it left none.
    """

    def __init__(self, decisions: Iterator[Decision], until: float) -> None:
        self._decisions, self._until = decisions, until
        self.taken = 0
        self.rest: int | None = None

    def __iter__(self) -> Iterator[Decision]:
        for decision in self._decisions:
            if self.taken and monotonic() >= self._until:
                self.rest = decision.sequence
                return
            self.taken += 1
            yield decision


def _divide(chunk: BacktestChunk, rest: int, taken: int) -> None:
    """End a chunk before the sequence `rest`, and store what follows as another chunk; within a transaction.

    `taken` is how many Decisions were read before `rest`: more than were planned if some were stored since.
    """
    # Two processes that divide chunks at once would give both the same number.
    Backtest.objects.select_for_update().get(pk=chunk.backtest_id)
    last = BacktestChunk.objects.filter(backtest=chunk.backtest_id).aggregate(number=Max("number"))["number"]
    done = min(taken, chunk.decisions)
    BacktestChunk.objects.create(
        backtest_id=chunk.backtest_id,
        number=last + 1,
        process=chunk.process,
        first=rest,
        last=chunk.last,
        decisions=chunk.decisions - done,
    )
    chunk.last, chunk.decisions = rest - 1, done


class _Noted:
    """Writes now and then that a chunk makes progress.

    Raises:
        CancelledError: the backtest was cancelled, or another process has taken the chunk.
    """

    def __init__(self, chunk: BacktestChunk) -> None:
        self._chunk = chunk
        self._at = monotonic()

    def __call__(self) -> None:
        if monotonic() - self._at < _STEP_SECONDS:
            return
        self._at = monotonic()
        chunk = self._chunk
        mine = BacktestChunk.objects.filter(pk=chunk.pk, state=_ChunkState.RUNNING, attempts=chunk.attempts)
        mine = mine.filter(backtest__state=_State.RUNNING)
        if not mine.update(heartbeat_at=Now()):
            raise CancelledError


def _decider_of(backtest: Backtest) -> Decider:
    """Compile both sides.

    Raises:
        BacktestError: they can't be compiled any more.
    """
    if backtest.engine != engine_version():
        message = "Another version of Berth began it, whose rules may say something else. Start it again."
        raise BacktestError(message)
    before = publishing.load_revision(backtest.revision) if backtest.revision else Revision(number=0)
    if before is None:
        message = f"Revision {backtest.revision}, which it was put on, is not there any more. Start it again."
        raise BacktestError(message)
    try:
        stored = [ChangeEdit(kind=kind, name=name, document=text) for kind, name, text in backtest.edits]
        edits = list(map(edit_of, stored))
        lasting = _lasting(before, backtest.asked_at)
        live = CompiledRevision(lasting)
        wanted = CompiledRevision(publishing.with_edits(lasting, edits), former=live)
        return Decider(live, wanted, answers_as_then=lasting == before)
    except (PublishingError, ExpressionError, msgspec.DecodeError) as error:
        message = f"What it asks about has faults: {error}. Mend them, and start it again."
        raise BacktestError(message) from error
    except KeyError as error:
        message = f"An Assignment names rule set {error}, which isn't there. Mend that, and start it again."
        raise BacktestError(message) from error


def _lasting(revision: Revision, asked_at: datetime) -> Revision:
    """Return a Revision without the Pauses and Exemptions that had ended when a backtest was requested.

    At the time of an older Decision they would be in force, and hide what the rules do to the next such Pod. Those that a Change
    makes are kept: its effect at that time is the question.
    """

    def lasts(until: str) -> bool:
        end = ends_at(until)
        return end is None or end > asked_at

    pauses = [each for each in revision.pauses if lasts(each.until)]
    exemptions = [each for each in revision.exemptions if lasts(each.until)]
    return msgspec.structs.replace(revision, pauses=pauses, exemptions=exemptions)


def plan(backtest: Backtest) -> bool:
    """Divide the Decisions into chunks; False if another process does."""
    me, now = uuid.uuid4(), timezone.now()
    free = Q(planner=None) | is_silent("planned_at", SILENT)
    mine = Backtest.objects.filter(free, pk=backtest.pk, state=_State.QUEUED)
    if not mine.update(planner=me, planned_at=Now(), started_at=now):
        return False
    chunks, at = [], monotonic()
    for chunk in _chunks_of(backtest):
        chunks.append(chunk)
        if monotonic() - at > _STEP_SECONDS:
            at = monotonic()
            Backtest.objects.filter(pk=backtest.pk, planner=me).update(planned_at=Now())
    with transaction.atomic():
        still = Backtest.objects.filter(pk=backtest.pk, state=_State.QUEUED, planner=me)
        if still.update(state=_State.RUNNING, total=sum(chunk.decisions for chunk in chunks)):
            BacktestChunk.objects.bulk_create(chunks, batch_size=500)
    return True


def _chunks_of(backtest: Backtest) -> Iterator[BacktestChunk]:
    rows = _decisions_of(backtest).order_by("process", "sequence").values_list("process", "sequence")
    chunk: BacktestChunk | None = None
    number = 0
    for process, sequence in rows.iterator(chunk_size=5000):
        if chunk is not None and (chunk.process != process or chunk.decisions >= CHUNK):
            yield chunk
            chunk = None
        if chunk is None:
            number += 1
            chunk = BacktestChunk(backtest=backtest, number=number, process=process, first=sequence, decisions=0)
        chunk.last = sequence
        chunk.decisions += 1
    if chunk is not None:
        yield chunk


def _finish(backtest: Backtest) -> bool:
    """Combine the results if all chunks are done; False if others still work on some."""
    if backtest.chunks.exclude(state=_ChunkState.DONE).exists():
        return False
    result = summed(_results(backtest), of=of_in_words(backtest), digest=backtest.digest, revision=backtest.revision)
    running = Backtest.objects.filter(pk=backtest.pk, state=_State.RUNNING)
    running.update(state=_State.DONE, ended_at=timezone.now(), result=encode(result))
    _prune()
    return True


def _prune() -> None:
    """Delete the Pod lists of backtests that ended long ago; their numbers stay."""
    ended = Backtest.objects.exclude(state__in=_UNDER_WAY).order_by("-pk")
    kept = list(ended.values_list("pk", flat=True)[:_KEPT])
    BacktestChunk.objects.exclude(backtest__state__in=_UNDER_WAY).exclude(backtest__in=kept).delete()


def _fail(backtest: Backtest, fault: str) -> None:
    under_way = Backtest.objects.filter(pk=backtest.pk, state__in=_UNDER_WAY)
    under_way.update(state=_State.FAILED, ended_at=timezone.now(), fault=fault)


_one_at_a_time = threading.Lock()


def run_waiting() -> None:
    """Work on waiting backtests in a separate process, one per worker. Does nothing if none waits."""
    if not _under_way().exists() or not _one_at_a_time.acquire(blocking=False):
        return
    try:
        _run_process()
    finally:
        _one_at_a_time.release()


def _run_process() -> None:
    try:
        done = run_command("backtest", "--take-part", seconds=LONGEST_SECONDS + 30)
    except (subprocess.TimeoutExpired, OSError) as error:
        logger.warning("a backtest's process ended early, the next tick resumes it: %s", error)
        return
    if done.returncode:
        logger.error("a backtest's process ended with %s: %s", done.returncode, done.stderr.strip())


def parameters_of(backtest: Backtest) -> dict[str, Any]:
    """Return the parameters that select the Decisions."""
    return {
        "since": backtest.since,
        "until": backtest.until,
        "namespaces": backtest.namespaces,
        "rule_sets": backtest.rule_sets,
    }
