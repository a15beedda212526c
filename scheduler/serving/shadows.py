"""Evaluates rule sets in mode shadow: after the answer, in one thread that gives way to every answer.

Python runs one thread at a time, so a shadow that runs beside a call costs the call as much as one that runs before it. The thread
therefore works in slices and rests after each: long enough that it never uses more than `MOST_SHARE` of a core, and until no call
was in progress for `QUIET_SECONDS`. Under a constant stream of calls, it continues with `LEAST_SHARE` of a core. Shadows that it
can't evaluate in time are dropped and counted.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from django.db import DatabaseError

from policies.engine.decision import CompiledRevision, CompiledRuleSet
from policies.engine.ruleset import Assignment
from scheduler.decisions import shadow_counts
from scheduler.decisions.divergence import Subject
from scheduler.decisions.record import Entry
from scheduler.decisions.spool import SpoolFullError
from scheduler.metrics import SHADOW_DECISIONS, SHADOW_DIVERGENCES, SHADOW_SECONDS

logger = logging.getLogger("berth.shadows")

# How long the thread works before it checks for calls in progress: a call is delayed by at most this.
SLICE_SECONDS = 0.000_25
# The largest share of one core for shadows, and their share while calls are always in progress.
MOST_SHARE, LEAST_SHARE = 0.2, 0.02
# Within this time after an answer, kube-scheduler asks for the Pod's scores, or about the next Pod.
QUIET_SECONDS = 0.005
# Each waiting shadow keeps a Snapshot and a Revision in memory.
MOST_WAITING = 32
WAIT_SECONDS = 10.0
# The most calls with dropped shadows that wait to be counted while the database is unavailable or heartbeats are late.
MOST_PASSED_OVER = 4096
# The time limit of one shadow, including all pauses.
DECIDE_SECONDS = 60.0

# Called between evaluations; it may block, and raises OutOfTimeError when the time is up.
GiveWay = Callable[[], None]
# Evaluates a shadow, and returns its record.
Decide = Callable[[GiveWay], Entry]


# The rule sets in mode shadow that one call offers.
Offered = Sequence[tuple[Assignment, CompiledRuleSet]]


def subject_of(revision: CompiledRevision, assignment: Assignment, rule_set: CompiledRuleSet, verb: str) -> Subject:
    """Return the subject of an offered shadow."""
    return Subject(revision.number, assignment.name, rule_set.name, rule_set.version, verb)


class OutOfTimeError(Exception):
    """A shadow took too long, or the process ends."""


class _Task(NamedTuple):
    subject: Subject
    decide: Decide
    offered_at: float


class Shadows:
    """The shadows of one process, and the thread that decides on them. Safe to use from several threads.

    Args:
        record: records a Decision.
    """

    def __init__(self, record: Callable[[Entry], None]) -> None:
        self._record = record
        self._waiting: deque[_Task] = deque()
        # The calls in progress, by identity, each with the shadows that wait for its end; and the call of each thread.
        self._in_hand: dict[int, list[_Task]] = {}
        self._of_thread: dict[int, list[_Task]] = {}
        self._last_call = 0.0
        self._offered = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="berth-shadows", daemon=True)
        # Shadows without a Decision, until they are counted in the database.
        self._uncounted: Counter[tuple[Subject, str]] = Counter()
        self._counting = threading.Lock()
        # Calls whose shadows had no room, until they are counted.
        self._passed_over: deque[tuple[CompiledRevision, str, Offered]] = deque()
        # For the current task: until when it may run, and the thread's CPU seconds when the slice began.
        self._until = 0.0
        self._slice_began = 0.0

    def start(self) -> None:
        """Begin to decide."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Stop. Waiting shadows are dropped and counted."""
        self._stopping.set()
        self._offered.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        while self._waiting:
            self.drop(self._waiting.popleft().subject)
        self.count_passed_over()

    def begin(self) -> list[_Task]:
        """Note that this thread has a call in progress: shadows that it offers from now on are evaluated after the call's end.

        Returns the call, for `end`.
        """
        call: list[_Task] = []
        self._in_hand[id(call)] = self._of_thread[threading.get_ident()] = call
        return call

    def end(self, call: list[_Task]) -> None:
        """Note that the call's answer was sent. Any thread may call this: another than the deciding one may send the rest."""
        self._last_call = time.monotonic()
        for task in self._in_hand.pop(id(call), ()):
            self._put(task)
        call.clear()  # the thread is known by its last call, which would keep their Snapshots and Revisions

    @contextmanager
    def call(self) -> Iterator[None]:
        """Let the `with` block run before any shadow."""
        call = self.begin()
        try:
            yield
        finally:
            self.end(call)

    def offer(self, subject: Subject, decide: Decide) -> None:
        """Queue a shadow to be evaluated once the current call is answered, if there is time."""
        task = _Task(subject, decide, time.monotonic())
        call = self._of_thread.get(threading.get_ident())
        if call is None or id(call) not in self._in_hand:
            self._put(task)
        else:
            call.append(task)

    @property
    def has_room(self) -> bool:
        """Whether there is room for another shadow. If not, call `pass_over` instead of `offer`."""
        return len(self._waiting) < MOST_WAITING

    def pass_over(self, revision: CompiledRevision, verb: str, offered: Offered) -> None:
        """Note shadows that nobody decides on. They are counted as dropped with the heartbeat: no call waits for that."""
        self._passed_over.append((revision, verb, offered))
        if len(self._passed_over) > MOST_PASSED_OVER:
            self.count_passed_over()

    def drop(self, subject: Subject) -> None:
        """Count a shadow that isn't decided on."""
        self._count(subject, shadow_counts.DROPPED)

    def count_passed_over(self) -> None:
        """Count what was passed over until now."""
        found: Counter[Subject] = Counter()
        with suppress(IndexError):  # another thread may count them, too
            while True:
                revision, verb, offered = self._passed_over.popleft()
                found.update(subject_of(revision, *each, verb) for each in offered)
        for subject, number in found.items():
            self._count(subject, shadow_counts.DROPPED, number)

    def write_counts(self) -> None:
        """Add to the counts in the database what has no Decision: with the heartbeat, so that no call waits for it.

        Raises:
            django.db.DatabaseError: the database is away; they are kept for the next time.
        """
        self.count_passed_over()
        with self._counting:
            counts, self._uncounted = self._uncounted, Counter()
        try:
            shadow_counts.add(counts)
        except DatabaseError:
            with self._counting:
                self._uncounted += counts
            raise

    def _count(self, subject: Subject, result: str, number: int = 1) -> None:
        SHADOW_DECISIONS.labels(subject.rule_set, result).inc(number)
        with self._counting:
            self._uncounted[subject, result] += number

    def _put(self, task: _Task) -> None:
        if len(self._waiting) >= MOST_WAITING or self._stopping.is_set():
            self.drop(task.subject)
            return
        self._waiting.append(task)
        self._offered.set()

    # The thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._offered.wait()
            self._offered.clear()
            while self._waiting and not self._stopping.is_set():
                self._decide_next()

    def _decide_next(self) -> None:
        """Decide on the first waiting shadow. A function, so that nothing keeps its Snapshot until the next one is offered."""
        # Taken from the queue before the rest: a stop meanwhile drops the waiting ones.
        task = self._waiting.popleft()
        self._rest(SLICE_SECONDS)
        self._decide(task)

    def _decide(self, task: _Task) -> None:
        now = time.monotonic()
        if now > task.offered_at + WAIT_SECONDS or self._stopping.is_set():
            self.drop(task.subject)
            return
        rule_set = task.subject.rule_set
        self._until = now + DECIDE_SECONDS
        began = self._slice_began = time.thread_time()
        try:
            entry = task.decide(self._give_way)
            entry.duration_microseconds = int((time.thread_time() - began) * 1_000_000)
            self._record(entry)
        except (OutOfTimeError, SpoolFullError):
            self.drop(task.subject)
        except Exception:
            # The guard of a thread that must not end: the error is in one Pod's data, or in a rule.
            logger.exception("a shadow can't be evaluated: %s", rule_set)
            self._count(task.subject, shadow_counts.FAILED)
        else:
            SHADOW_DECISIONS.labels(rule_set, "decided").inc()
            SHADOW_DIVERGENCES.labels(task.subject.assignment, rule_set, entry.divergence).inc()
        ended = time.thread_time()
        SHADOW_SECONDS.labels(rule_set).inc(ended - began)
        self._rest(ended - self._slice_began)

    def _give_way(self) -> None:
        used = time.thread_time() - self._slice_began
        if used < SLICE_SECONDS:
            return
        self._rest(used)
        if self._stopping.is_set() or time.monotonic() > self._until:
            raise OutOfTimeError
        self._slice_began = time.thread_time()

    def _rest(self, used: float) -> None:
        """Rest after this many seconds of work: until no call is in progress, within a lower and an upper limit."""
        began = time.monotonic()
        self._stopping.wait(used / MOST_SHARE - used)
        longest = began + used / LEAST_SHARE - used
        while not self._stopping.is_set() and (now := time.monotonic()) < longest:
            quiet_at = now + QUIET_SECONDS if self._in_hand else self._last_call + QUIET_SECONDS
            if quiet_at <= now:
                return
            self._stopping.wait(min(quiet_at, longest) - now)
