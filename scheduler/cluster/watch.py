"""The thread that lists and watches one kind of object for as long as the process lives.

Only requests, waiting and logging are here; `reflection` interprets the answers.
"""

import logging
import math
import time
from collections.abc import Callable
from random import Random
from threading import Event, Lock, Thread
from typing import Generic, TypeVar

from scheduler.cluster.client import PAGE_SIZE, Client, LineStream
from scheduler.cluster.errors import APIError, APITimeoutError
from scheduler.cluster.kinds import Kept, Kind, Refusal
from scheduler.cluster.reflection import Changes, ListPage, OpenWatch, Reflection, why
from scheduler.metrics import WATCH_LAG, WATCH_LISTS, WATCH_RESTARTS

logger = logging.getLogger("berth.cluster")

# How long a watch may be silent: 30 s above the interval of bookmarks (apiserver v0.36.3 cacher.go).
#
# A collection that doesn't change gets no bookmarks at all (none newer than its list), so its watch is reopened this often.
SILENCE_SECONDS = 90.0

JOIN_SECONDS = 5.0

# While many events come, the watch sleeps this long after one that it had to wait for, so that they gather: each time that it wakes,
# a thread that decides or answers a call has to give up the interpreter. At most half of the time, so that no watch falls behind.
REST_SECONDS = 0.01
# This many events without a pause of that length aren't gathered. A deleted Pod makes two or three, and at the last one kube-scheduler
# calls for the Pods that wait for its room: an extender that hears of it later refuses them again, and isn't called for five minutes.
FEW_EVENTS = 10
# An event that is there is read in less.
_WAITED_SECONDS = 0.0003

T = TypeVar("T", bound=Kept)


class Reflector(Generic[T]):
    """Informs a handler of every change of one kind of object.

    Args:
        client: to the API server.
        kind: the kind to watch.
        handler: called in the watching thread with the changes of each answer, in order. `replaced` is True
            after each complete list, even if it changed nothing. Exceptions are logged; a new list follows.
        heard: called in the watching thread after each answer or failure of the server: `version` and `failing` are up to date
            then.
        jitter: the source of randomness; for tests.
        silence_seconds: how long a watch may be silent before its connection counts as dead.
    """

    def __init__(
        self,
        *,
        client: Client,
        kind: Kind[T],
        handler: Callable[[Changes[T]], None],
        heard: Callable[[], None] = lambda: None,
        jitter: Random | None = None,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self._client = client
        self._kind = kind
        self._handler = handler
        self._heard = heard
        self._silence_seconds = silence_seconds
        self._reflection: Reflection[T] = Reflection(jitter)
        self._stopping = Event()
        self._stream_lock = Lock()
        self._stream: LineStream | None = None
        self._alive_at = -math.inf
        self._said_failing = False
        self._lag = WATCH_LAG.labels(kind.name)
        # The resourceVersion up to which the handler has seen all changes.
        self.version = ""
        self._thread = Thread(target=self._run, name=f"berth-watch-{kind.name}", daemon=True)

    def start(self) -> None:
        """Start the thread. Call it only once."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """End the watch, even while it waits for the server. Returns at once."""
        self._stopping.set()
        with self._stream_lock:
            if self._stream is not None:
                self._stream.abort()

    def join(self, timeout_seconds: float = JOIN_SECONDS) -> None:
        """Wait for the thread's end. A thread that hangs in a request longer than this ends with the process."""
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)

    def stop(self) -> None:
        """End the watch, and wait for the thread's end."""
        self.ask_to_stop()
        self.join()

    @property
    def ended(self) -> bool:
        """Whether its thread has ended, or was never started."""
        return not self._thread.is_alive()

    def age_seconds(self) -> float:
        """Return the time since the server's last sign of life: an answer, an event or a bookmark.

        Infinite before the first one.
        """
        return time.monotonic() - self._alive_at

    @property
    def failing(self) -> bool:
        """Whether the last request failed."""
        return self._reflection.failing

    def objects(self) -> list[T]:
        """Return all known objects, as last seen."""
        return list(self._reflection.objects.values())

    def _run(self) -> None:
        while not self._stopping.wait(self._reflection.delay_seconds):
            try:
                match self._reflection.next_request():
                    case ListPage() as request:
                        self._list(request)
                    case OpenWatch() as request:
                        self._watch(request)
            except APIError as error:
                self._fault(error)
            except Exception:
                # The last guard of a thread that must not end: a new list checks all known objects.
                logger.exception("watch_broken kind=%s", self._kind.name)
                self._reflection.on_end(lasted_seconds=0.0)
                self._reflection.list_anew()
                self._count_restart("broken")

    def _list(self, request: ListPage) -> None:
        query = self._kind.query | {"limit": "0" if request.whole else str(PAGE_SIZE)}
        if request.continue_token:
            query["continue"] = request.continue_token
        page = self._kind.read_page(self._client.get(path=self._kind.path, query=query))
        self._alive_at = time.monotonic()
        changes = self._reflection.on_page(page)
        if changes is not None:
            self._say_recovered()
            self._handler(changes)
            WATCH_LISTS.labels(self._kind.name).inc()
            self._take_note()

    def _watch(self, request: OpenWatch) -> None:
        query = self._kind.query | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": request.resource_version,
            "timeoutSeconds": str(request.timeout_seconds),
        }
        stream = self._client.stream(path=self._kind.path, query=query, read_timeout=self._silence_seconds)
        with self._stream_lock:
            self._stream = stream
            # The stop was requested before there was a stream to end.
            if self._stopping.is_set():
                stream.abort()
        opened_at = self._alive_at = time.monotonic()
        self._reflection.on_open()
        self._heard()
        try:
            self._follow(stream, opened_at)
        except APITimeoutError:
            # A quiet server or a dead connection: opening the next watch shows which.
            self._reflection.on_end(lasted_seconds=time.monotonic() - opened_at)
            self._count_restart("silent")
        except APIError as error:
            self._fault(error, lasted_seconds=time.monotonic() - opened_at)
        finally:
            with self._stream_lock:
                self._stream = None
            stream.close()

    def _follow(self, stream: LineStream, opened_at: float) -> None:
        asked_at = rested_at = opened_at
        events = 0
        for line in stream:
            waited = stream.received_at - asked_at
            events = 1 if waited > REST_SECONDS else events + 1
            event = self._kind.read_event(line)
            self._alive_at = time.monotonic()
            if isinstance(event, Refusal):
                self._fault(event.error, lasted_seconds=self._alive_at - opened_at)
                return
            change = self._reflection.on_event(event)
            if self._said_failing:
                self._say_recovered()
            if change is not None:
                self._handler(Changes([change]))
                self._lag.observe(time.monotonic() - stream.received_at)
            self._take_note()
            if waited > _WAITED_SECONDS and events > FEW_EVENTS and self._alive_at - rested_at > REST_SECONDS:
                self._stopping.wait(REST_SECONDS)
                rested_at = time.monotonic()
            asked_at = time.monotonic()
        self._reflection.on_end(lasted_seconds=time.monotonic() - opened_at)
        self._count_restart("ended")

    def _take_note(self) -> None:
        self.version = self._reflection.resource_version or ""
        self._heard()

    def _count_restart(self, reason: str) -> None:
        if not self._stopping.is_set():
            WATCH_RESTARTS.labels(self._kind.name, reason).inc()
            self._heard()

    def _fault(self, error: APIError, *, lasted_seconds: float = 0.0) -> None:
        self._reflection.on_fault(error, lasted_seconds=lasted_seconds)
        self._count_restart(why(error))
        if self._reflection.failing and not self._said_failing and not self._stopping.is_set():
            self._said_failing = True
            logger.warning("watch_lost kind=%s error=%s", self._kind.name, error)

    def _say_recovered(self) -> None:
        if self._said_failing:
            self._said_failing = False
            logger.info("watch_recovered kind=%s", self._kind.name)
