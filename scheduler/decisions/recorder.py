"""Records Decisions: numbers them, and ships them to Redis in the background, so that answers don't wait for it."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from scheduler.decisions.record import Record
from scheduler.decisions.stream import DecisionStream, StreamError
from scheduler.metrics import DECISIONS_LOST, DECISIONS_WAITING

logger = logging.getLogger("berth.decisions")

MAX_WAITING = 200_000
"""Decisions that wait in memory while Redis is away. Beyond this the oldest are given up, and counted as lost."""

_BATCH = 200
_PAUSE_SECONDS = 0.02
_RETRY_SECONDS = 0.5

MakeBody = Callable[[], dict[str, object]]


class Recorder:
    """Numbers Decisions without gaps and ships them in order.

    Args:
        stream: where to.
        process: who writes; with the number it identifies a Decision.
    """

    def __init__(self, stream: DecisionStream, process: str) -> None:
        self._stream = stream
        self._process = process
        self._waiting: deque[tuple[Record, MakeBody]] = deque()
        self._encoded: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._sequence = 0
        self._stopping = threading.Event()
        self._away = False
        self._thread = threading.Thread(target=self._run, name="berth-recorder", daemon=True)

    @property
    def redis_reachable(self) -> bool:
        """Whether Redis took what was shipped last."""
        return not self._away

    def start(self) -> None:
        """Begin to ship."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Ship what waits, as far as time allows, and end."""
        self._stopping.set()
        self._thread.join(timeout_seconds)
        left = len(self._waiting) + len(self._encoded)
        if left:
            logger.error("%d Decisions could not be shipped before the end", left)

    def record(self, record: Record, make_body: MakeBody) -> None:
        """Take a Decision. Its body is made in the background."""
        with self._lock:
            self._sequence += 1
            record.process = self._process
            record.sequence = self._sequence
            self._waiting.append((record, make_body))
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popleft()
                DECISIONS_LOST.inc()

    def _run(self) -> None:
        while not self._stopping.is_set() or self._waiting or self._encoded:
            self._encode_waiting(self._encoded)
            if self._encoded and not self._ship(self._encoded):
                if self._stopping.is_set():
                    return
                self._stopping.wait(_RETRY_SECONDS)
            elif not self._waiting:
                time.sleep(_PAUSE_SECONDS)

    def _encode_waiting(self, encoded: deque[bytes]) -> None:
        while self._waiting and len(encoded) < _BATCH:
            with self._lock:
                record, make_body = self._waiting.popleft()
            try:
                record.body = make_body()
                encoded.append(msgspec.json.encode(record))
            except Exception:
                # One Decision that can't be written must not end the thread, and with it all that follow.
                logger.exception("Decision %s can't be written and is lost", record.id)
                DECISIONS_LOST.inc()
        DECISIONS_WAITING.set(len(self._waiting) + len(encoded))

    def _ship(self, encoded: deque[bytes]) -> bool:
        try:
            self._stream.append(encoded)
        except StreamError as error:
            if not self._away:
                logger.warning("Redis unreachable, Decisions wait in memory: %s", error)
            self._away = True
            return False
        if self._away:
            logger.info("Redis reachable again")
        self._away = False
        encoded.clear()
        return True
