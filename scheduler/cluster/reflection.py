"""The state of a list and watch, and its next request: no sockets, no threads, no clock.

`Reflection` gets each answer of the API server, and returns the next request and how long to wait before it.
Rules: client-go v0.36.3 tools/cache/reflector.go, and the faults of other clients that docs/adr/0004-kubernetes-client.md lists.
"""

from collections.abc import Mapping
from random import Random, SystemRandom
from typing import Generic, Literal, TypeVar

import msgspec

from scheduler.cluster.errors import (
    LONGEST_ASKED_SECONDS,
    RESOURCE_VERSION_TOO_LARGE,
    APIConfigurationError,
    APIError,
    APIGoneError,
    APIUnavailableError,
    APIUnreadableError,
)
from scheduler.cluster.kinds import Bookmark, Kept, Page, Seen

SHORTEST_BACKOFF_SECONDS = 0.2
LONGEST_BACKOFF_SECONDS = 30.0
# The longest pause while no server answers at all: retrying costs nothing, and the server should be noticed soon when it is back.
LONGEST_ABSENCE_SECONDS = 3.0
SHORTEST_WATCH_SECONDS = 290
LONGEST_WATCH_SECONDS = 590
# A watch that stayed open this long worked. A shorter one counts as a fault. Otherwise, a server that closes each
# watch at once, or answers each with 410, would be called without a pause.
HEALTHY_AFTER_SECONDS = 5.0

T = TypeVar("T", bound=Kept)

ChangeKind = Literal["added", "modified", "deleted"]


class Change(msgspec.Struct, Generic[T], frozen=True):
    """One object was added, modified or deleted.

    Attributes:
        kind: "added", "modified" or "deleted".
        key: the object's key; see Kind.
        object: the object as last seen.
        before: the object before the change; None when it was added.
        resource_version: of the change. For an object that was deleted while no watch was open, the last one known.
    """

    kind: ChangeKind
    key: str
    object: T
    before: T | None
    resource_version: str


def added(found: Mapping[str, T]) -> list[Change[T]]:
    """Return objects that were listed once as changes: a SnapshotBuilder takes these."""
    return [Change("added", key, each, None, "") for key, each in found.items()]


class Changes(msgspec.Struct, Generic[T], frozen=True):
    """The changes from one answer. `replaced`: it was a complete list, and these are the differences."""

    changes: list[Change[T]]
    replaced: bool = False


class ListPage(msgspec.Struct, frozen=True):
    """Next: request a page. `whole`: the whole list in one page, since the continue tokens expired too soon."""

    continue_token: str
    whole: bool


class OpenWatch(msgspec.Struct, frozen=True):
    """Next: watch from this resourceVersion, and have the server end it after `timeout_seconds`."""

    resource_version: str
    timeout_seconds: int


class Reflection(Generic[T]):
    """The objects of one collection, according to the answers so far.

    Attributes:
        objects: key -> object.
        resource_version: the version up to which they are known; None if a new list comes next.
        delay_seconds: how long to wait before the next request.
        failing: whether the last request failed. (A 410, or a watch that ends in time, is no fault.)
    """

    def __init__(self, jitter: Random | None = None) -> None:
        self.objects: dict[str, T] = {}
        self.resource_version: str | None = None
        self.delay_seconds = 0.0
        self.failing = False
        self._jitter = jitter or SystemRandom()
        self._failures = 0
        self._pages: dict[str, T] = {}
        self._pages_version = ""
        self._continue_token = ""
        self._whole = False

    def next_request(self) -> ListPage | OpenWatch:
        """Return the next request."""
        if self.resource_version is None:
            return ListPage(self._continue_token, self._whole)
        seconds = self._jitter.randint(SHORTEST_WATCH_SECONDS, LONGEST_WATCH_SECONDS)
        return OpenWatch(self.resource_version, seconds)

    def on_page(self, page: Page[T]) -> Changes[T] | None:
        """Process a page; after the last one, return how the list differs from the known objects: deletions first."""
        self.delay_seconds = 0.0
        if not self._continue_token:
            # All pages should show the state at the first page's version; if they don't, the oldest version is the safe
            # one.
            self._pages_version = page.resource_version
        self._pages.update(page.objects)
        self._continue_token = page.continue_token
        if page.continue_token:
            return None
        listed, self._pages = self._pages, {}
        self._whole = self.failing = False
        self.resource_version = self._pages_version
        return Changes(self._replace(listed), replaced=True)

    def on_event(self, event: Seen[T] | Bookmark) -> Change[T] | None:
        """Process an event. Returns None if it changes nothing, like a bookmark or a repeated event."""
        self.failing = False
        if event.resource_version:
            self.resource_version = event.resource_version
        if isinstance(event, Bookmark):
            return None
        before = self.objects.get(event.key)
        if event.deleted or event.object is None:
            if before is None:
                return None
            del self.objects[event.key]
            return Change("deleted", event.key, event.object or before, before, event.resource_version)
        if before is not None and _version(before) == event.resource_version:
            return None
        self.objects[event.key] = event.object
        kind: ChangeKind = "added" if before is None else "modified"
        return Change(kind, event.key, event.object, before, event.resource_version)

    def on_open(self) -> None:
        """Note that the server accepted a watch. It hasn't sent anything yet."""
        self.failing = False

    def on_end(self, *, lasted_seconds: float) -> None:
        """Note that the server ended the watch, or that it fell silent. Both are normal."""
        self._back_off(lasted_seconds=lasted_seconds)

    def on_fault(self, error: APIError, *, lasted_seconds: float = 0.0) -> None:
        """Note that a request failed, or that a watch ended with this error after this many seconds."""
        absent = isinstance(error, APIConfigurationError) or (
            isinstance(error, APIUnavailableError) and error.status is None
        )
        longest = LONGEST_ABSENCE_SECONDS if absent else LONGEST_BACKOFF_SECONDS
        self._back_off(lasted_seconds=lasted_seconds, longest_seconds=longest)
        self.delay_seconds = max(self.delay_seconds, min(error.retry_after_seconds or 0.0, LONGEST_ASKED_SECONDS))
        gone = isinstance(error, APIGoneError)
        self.failing = self.failing or not gone
        if gone and self._continue_token:
            self._whole = True
        if _needs_list(error):
            self.list_anew()

    def list_anew(self) -> None:
        """Trust only a new list from now on. The objects stay until it has arrived."""
        self.resource_version = None
        self._continue_token = ""
        self._pages = {}

    def _replace(self, listed: dict[str, T]) -> list[Change[T]]:
        known = self.objects
        changes: list[Change[T]] = [
            Change("deleted", key, before, before, _version(before))
            for key, before in known.items()
            if key not in listed
        ]
        for key, object_ in listed.items():
            before = known.get(key)
            version = _version(object_)
            if before is None:
                changes.append(Change("added", key, object_, None, version))
            elif _version(before) == version:
                # The known object stays, and with it all values that were computed from it.
                listed[key] = before
            else:
                changes.append(Change("modified", key, object_, before, version))
        self.objects = listed
        return changes

    def _back_off(self, *, lasted_seconds: float, longest_seconds: float = LONGEST_BACKOFF_SECONDS) -> None:
        if lasted_seconds >= HEALTHY_AFTER_SECONDS:
            self._failures = 0
        ceiling = min(longest_seconds, SHORTEST_BACKOFF_SECONDS * 2 ** (self._failures + 1))
        # Bounded: 2 to this power is far above any ceiling.
        self._failures = min(self._failures + 1, 10)
        self.delay_seconds = self._jitter.uniform(SHORTEST_BACKOFF_SECONDS, ceiling)


def why(error: APIError) -> str:
    """Return why a request failed or a watch ended, as one of a few fixed words, for metrics."""
    if isinstance(error, APIGoneError):
        return "gone"
    if isinstance(error, APIUnavailableError | APIConfigurationError):
        return "unreachable" if error.status is None else "failed"
    if isinstance(error, APIUnreadableError):
        return "unreadable"
    return "refused"


def _version(object_: Kept) -> str:
    return object_.metadata.resource_version


def _needs_list(error: APIError) -> bool:
    """Return whether repeating the request can't help, whether for a watch's version or for a list's next page.

    As client-go, which repeats it only after connection errors, 429 and internal errors. An unreadable line would come again.
    """
    return not isinstance(error, APIUnavailableError) or RESOURCE_VERSION_TOO_LARGE in error.causes
