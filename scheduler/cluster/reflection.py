"""What a list and watch has seen, and what it does next: no sockets, no threads, no clock.

`Reflection` is told each answer of the API server, and says what to ask next and how long to wait before.
Rules: client-go v0.36.3 tools/cache/reflector.go, and the faults of other clients that docs/adr/0004-kubernetes-client.md lists.
"""

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
# The longest pause while no server answers at all: asking costs nobody anything, and it is missed when it is back.
LONGEST_ABSENCE_SECONDS = 3.0
SHORTEST_WATCH_SECONDS = 290
LONGEST_WATCH_SECONDS = 590
# A watch that stayed open this long worked. A shorter one counts as a fault, or a server that closes each
# watch at once, or answers each with 410, would be asked without a pause.
HEALTHY_AFTER_SECONDS = 5.0

T = TypeVar("T", bound=Kept)

ChangeKind = Literal["added", "modified", "deleted"]


class Change(msgspec.Struct, Generic[T], frozen=True):
    """One object came, changed or went.

    Attributes:
        kind: "added", "modified" or "deleted".
        key: what the object is known by; see Kind.
        object: the last that was seen of it.
        before: what was known until now; None when it was added.
        resource_version: of the change. For an object that vanished while nobody watched, the last one known.
    """

    kind: ChangeKind
    key: str
    object: T
    before: T | None
    resource_version: str


class Changes(msgspec.Struct, Generic[T], frozen=True):
    """What one answer changed. `replaced`: it was a complete list, and these are the differences."""

    changes: list[Change[T]]
    replaced: bool = False


class ListPage(msgspec.Struct, frozen=True):
    """Next: ask for a page. `whole`: all in one, since the continue tokens were gone too soon."""

    continue_token: str
    whole: bool


class OpenWatch(msgspec.Struct, frozen=True):
    """Next: watch from this resourceVersion, and have the server end it after `timeout_seconds`."""

    resource_version: str
    timeout_seconds: int


class Reflection(Generic[T]):
    """The objects of one collection, as far as the answers so far show them.

    Attributes:
        objects: key -> object.
        resource_version: up to where they are known; None when the next thing is a new list.
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
        """Return the request that comes next."""
        if self.resource_version is None:
            return ListPage(self._continue_token, self._whole)
        seconds = self._jitter.randint(SHORTEST_WATCH_SECONDS, LONGEST_WATCH_SECONDS)
        return OpenWatch(self.resource_version, seconds)

    def on_page(self, page: Page[T]) -> Changes[T] | None:
        """Take a page; after the last one, give how the list differs from what was known: deletions first."""
        self.delay_seconds = 0.0
        if not self._continue_token:
            # All pages show the state at the first one's version; when they don't, the oldest is the safe
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
        """Take an event. Gives None when it changes nothing, as bookmarks and repeated events do."""
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
        """Note that the server took a request for a watch. It hasn't said anything yet."""
        self.failing = False

    def on_end(self, *, lasted_seconds: float) -> None:
        """Note that the server ended the watch, or that it fell silent. Both are normal."""
        self._back_off(lasted_seconds=lasted_seconds)

    def on_fault(self, error: APIError, *, lasted_seconds: float = 0.0) -> None:
        """Note that a request failed, or that a watch broke off with this error after so many seconds."""
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
        """Trust only a new list from here on. The objects stay until it is there."""
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
                # The object that is known stays, and with it all that was worked out from it.
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
    """Return in a word of a small fixed set why a request failed or a watch broke off, for counting."""
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
    """Return whether asking the same again can't help, be it a watch's version or a list's next page.

    As client-go, which goes on only after connection faults, 429 and internal errors. A line that can't be read would come again.
    """
    return not isinstance(error, APIUnavailableError) or RESOURCE_VERSION_TOO_LARGE in error.causes
