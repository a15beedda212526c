"""What follows from each order of lists, events and faults."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from policies.engine.objects.pod import Pod
from scheduler.cluster.errors import (
    RESOURCE_VERSION_TOO_LARGE,
    APIError,
    APIForbiddenError,
    APIGoneError,
    APIInvalidError,
    APIUnavailableError,
)
from scheduler.cluster.kinds import PODS, Bookmark, Page, Seen
from scheduler.cluster.reflection import Change, Changes, ListPage, OpenWatch, Reflection
from tests.unit.cluster.kubernetes_json import event_json, list_json, pod_json


def page_of(*pods: dict[str, Any], version: str = "10", token: str = "") -> Page[Pod]:
    """Read a page with these Pods."""
    return PODS.read_page(list_json(list(pods), version=version, token=token))


def seen(type_: str, pod: dict[str, Any]) -> Seen[Pod]:
    """Read an event of this Pod."""
    event = PODS.read_event(event_json(type_, pod))
    assert isinstance(event, Seen)
    return event


def listed(*pods: dict[str, Any], version: str = "10") -> Reflection[Pod]:
    """Return a reflection that has listed these Pods."""
    reflection: Reflection[Pod] = Reflection(Random(1))
    reflection.on_page(page_of(*pods, version=version))
    return reflection


def told(changes: Changes[Pod] | None) -> list[tuple[str, str]]:
    """Return kind and name of each change."""
    assert changes is not None
    return [(change.kind, change.object.name) for change in changes.changes]


class TestNextRequest:
    """What is asked next."""

    def test_begins_with_a_list_at_once(self) -> None:
        """Nothing is known, so nothing can be watched."""
        reflection: Reflection[Pod] = Reflection()
        assert reflection.next_request() == ListPage("", whole=False)
        assert reflection.delay_seconds == 0.0

    def test_watches_from_the_version_of_the_list(self) -> None:
        """Nothing between list and watch is missed."""
        request = listed(version="42").next_request()
        assert isinstance(request, OpenWatch)
        assert request.resource_version == "42"

    def test_spreads_the_ends_of_watches(self) -> None:
        """Many watchers don't come back all at once."""
        reflection = listed()
        requests = [reflection.next_request() for _ in range(200)]
        seconds = {request.timeout_seconds for request in requests if isinstance(request, OpenWatch)}
        assert min(seconds) >= 290
        assert max(seconds) <= 590
        assert len(seconds) > 50

    def test_watches_on_from_the_last_event_or_bookmark(self) -> None:
        """A reconnect repeats nothing."""
        reflection = listed()
        reflection.on_event(seen("ADDED", pod_json("a", version="11")))
        assert reflection.resource_version == "11"
        reflection.on_event(Bookmark("15"))
        assert reflection.resource_version == "15"
        reflection.on_event(seen("DELETED", pod_json("a", version="17")))
        assert reflection.resource_version == "17"


class TestOnPage:
    """What lists change."""

    def test_tells_nothing_before_the_last_page(self) -> None:
        """Half a list isn't a state of the cluster."""
        reflection: Reflection[Pod] = Reflection()
        assert reflection.on_page(page_of(pod_json("a"), version="5", token="more")) is None
        assert reflection.next_request() == ListPage("more", whole=False)
        changes = reflection.on_page(page_of(pod_json("b"), version="5"))
        assert told(changes) == [("added", "a"), ("added", "b")]
        assert reflection.resource_version == "5"

    def test_tells_that_an_empty_list_is_complete(self) -> None:
        """An empty cluster is a known one."""
        reflection: Reflection[Pod] = Reflection()
        assert reflection.on_page(page_of()) == Changes([], replaced=True)

    def test_tells_how_a_new_list_differs_deletions_first(self) -> None:
        """What vanished while nobody watched is deleted, what stayed isn't mentioned and stays the same object."""
        reflection = listed(pod_json("same"), pod_json("gone"), pod_json("changed"))
        same = reflection.objects["uid-same"]
        reflection.list_anew()
        changes = reflection.on_page(
            page_of(pod_json("same"), pod_json("new"), pod_json("changed", version="2"), version="20")
        )
        assert told(changes) == [("deleted", "gone"), ("added", "new"), ("modified", "changed")]
        assert reflection.objects["uid-same"] is same

    def test_keeps_pods_apart_that_have_one_name(self) -> None:
        """A Pod deleted and made again while nobody watched is another one."""
        reflection = listed(pod_json("a", uid="u1"))
        reflection.list_anew()
        changes = reflection.on_page(page_of(pod_json("a", uid="u2")))
        assert changes is not None
        assert [(change.kind, change.key) for change in changes.changes] == [
            ("deleted", "u1"),
            ("added", "u2"),
        ]

    def test_keeps_the_objects_until_the_new_list_is_complete(self) -> None:
        """An old Snapshot is better than half a one."""
        reflection = listed(pod_json("a"))
        reflection.on_fault(APIGoneError("gone"))
        reflection.on_page(page_of(pod_json("b"), token="more"))
        assert set(reflection.objects) == {"uid-a"}


class TestOnEvent:
    """What events change."""

    def test_tells_each_change_with_what_was_before(self) -> None:
        """Whoever counts must know what to take away."""
        reflection = listed()
        added = reflection.on_event(seen("ADDED", pod_json("a", version="11")))
        assert added is not None
        assert (added.kind, added.before) == ("added", None)
        modified = reflection.on_event(seen("MODIFIED", pod_json("a", version="12", node="n1")))
        assert modified is not None
        assert (modified.kind, modified.before) == ("modified", added.object)
        deleted = reflection.on_event(seen("DELETED", pod_json("a", version="13", node="n1")))
        assert deleted is not None
        assert (deleted.kind, deleted.before, deleted.resource_version) == ("deleted", modified.object, "13")

    def test_tells_no_event_that_the_server_repeats(self) -> None:
        """After a reconnect the server may repeat itself."""
        reflection = listed(pod_json("a", version="9"))
        assert reflection.on_event(seen("ADDED", pod_json("a", version="9"))) is None
        assert reflection.on_event(seen("DELETED", pod_json("unknown", version="11"))) is None

    def test_takes_an_added_object_that_is_known_for_modified(self) -> None:
        """The kind follows what is known here."""
        change = listed(pod_json("a", version="9")).on_event(seen("ADDED", pod_json("a", version="11")))
        assert change is not None
        assert change.kind == "modified"

    def test_lets_an_object_go_that_it_can_no_longer_read(self) -> None:
        """What can't be read counts nowhere, and the last readable state is told."""
        change = listed(pod_json("a")).on_event(seen("MODIFIED", pod_json("a", version="11", cpu="many")))
        assert change is not None
        assert change.kind == "deleted"
        assert change.object is change.before


class TestFaults:
    """What faults lead to."""

    @pytest.mark.parametrize(
        "error",
        [
            APIGoneError("too old", status=410),
            APIInvalidError("bad version", status=400),
            APIForbiddenError("no", status=403),
            APIUnavailableError("too large", status=504, causes=(RESOURCE_VERSION_TOO_LARGE,)),
        ],
        ids=str,
    )
    def test_a_version_that_is_refused_leads_to_a_new_list(self, error: APIError) -> None:
        """Asking for the same version again would be refused again."""
        reflection = listed(pod_json("a"))
        reflection.on_fault(error, lasted_seconds=1.0)
        assert reflection.next_request() == ListPage("", whole=False)
        assert set(reflection.objects) == {"uid-a"}

    @pytest.mark.parametrize("status", [None, 429, 500, 503])
    def test_a_server_that_is_away_is_asked_for_the_same_version(self, status: int | None) -> None:
        """A restart of the API server doesn't cost a list."""
        reflection = listed(version="33")
        reflection.on_fault(APIUnavailableError("away", status=status))
        request = reflection.next_request()
        assert isinstance(request, OpenWatch)
        assert request.resource_version == "33"

    def test_a_list_goes_on_at_its_page_after_a_connection_fault(self) -> None:
        """A long list needn't begin anew."""
        reflection: Reflection[Pod] = Reflection()
        reflection.on_page(page_of(pod_json("a"), token="more"))
        reflection.on_fault(APIUnavailableError("away"))
        assert reflection.next_request() == ListPage("more", whole=False)

    def test_a_list_whose_next_page_is_gone_is_asked_for_whole(self) -> None:
        """Where pages expire faster than they are read, only one answer helps."""
        reflection: Reflection[Pod] = Reflection()
        reflection.on_page(page_of(pod_json("a"), token="more"))
        reflection.on_fault(APIGoneError("expired", status=410))
        assert reflection.next_request() == ListPage("", whole=True)
        assert told(reflection.on_page(page_of(pod_json("b")))) == [("added", "b")]
        reflection.list_anew()
        assert reflection.next_request() == ListPage("", whole=False)

    def test_delays_grow_to_half_a_minute_and_are_never_none(self) -> None:
        """No order of faults makes a loop without a pause."""
        reflection = listed()
        delays = []
        for _ in range(30):
            reflection.on_fault(APIUnavailableError("overloaded", status=503))
            delays.append(reflection.delay_seconds)
        assert 0.2 <= min(delays) <= 0.4
        assert delays[0] <= 0.4
        assert 10.0 < max(delays) <= 30.0

    def test_a_server_that_answers_each_watch_with_410_is_not_hammered(self) -> None:
        """A list that succeeds in between doesn't reset the delay."""
        reflection: Reflection[Pod] = Reflection(Random(3))
        waited = 0.0
        for _ in range(20):
            waited += reflection.delay_seconds
            reflection.on_page(page_of(pod_json("a")))
            reflection.on_fault(APIGoneError("gone"), lasted_seconds=0.01)
        assert waited > 60.0

    def test_watches_that_end_at_once_are_opened_more_and_more_slowly(self) -> None:
        """A proxy that closes each watch isn't hammered either."""
        reflection = listed()
        for _ in range(10):
            reflection.on_end(lasted_seconds=0.1)
        slow = [reflection.delay_seconds]
        reflection.on_end(lasted_seconds=300.0)
        assert max(slow) > 0.4 >= reflection.delay_seconds

    def test_the_server_is_left_alone_as_long_as_it_asks(self) -> None:
        """Retry-After goes before the own delay when it is longer."""
        reflection = listed()
        reflection.on_fault(APIUnavailableError("busy", status=429, retry_after_seconds=12.0))
        assert reflection.delay_seconds == 12.0

    @pytest.mark.parametrize("seconds", [86_400.0, 99_999_999_999.0, float("inf")])
    def test_no_server_is_left_alone_for_longer_than_a_minute(self, seconds: float) -> None:
        """A proxy's Retry-After may say days, or more than a thread can wait for: that ended the watch."""
        reflection = listed()
        reflection.on_fault(APIUnavailableError("busy", status=503, retry_after_seconds=seconds))
        assert reflection.delay_seconds == 60.0

    def test_failing_until_something_is_heard_again(self) -> None:
        """A 410 and the end of a watch are no faults."""
        reflection = listed()
        reflection.on_end(lasted_seconds=400.0)
        reflection.on_fault(APIGoneError("gone"))
        assert not reflection.failing
        reflection.on_fault(APIUnavailableError("away"))
        reflection.on_fault(APIGoneError("gone"))
        assert reflection.failing
        reflection.on_event(Bookmark("12"))
        assert not reflection.failing


class ServerWithHistory(RuleBasedStateMachine):
    """An API server that keeps a history, and a reflection that follows it through whatever happens."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 1
        self.history: list[tuple[int, str, dict[str, Any]]] = []
        self.compacted = 1
        self.pods: dict[str, dict[str, Any]] = {}
        self.births = 0
        self.pinned: dict[str, list[dict[str, Any]]] = {}
        self.reflection: Reflection[Pod] = Reflection(Random(0))
        self.followed: dict[str, str] = {}

    def follow(self, change: Change[Pod]) -> None:
        """Do with the changes what a handler does; each must fit what was told before."""
        version = change.object.parsed.metadata.resource_version
        if change.kind == "added":
            assert change.key not in self.followed
            assert change.before is None
            self.followed[change.key] = version
            return
        assert change.before is not None
        assert self.followed[change.key] == change.before.parsed.metadata.resource_version
        if change.kind == "deleted":
            del self.followed[change.key]
        else:
            self.followed[change.key] = version

    @rule(name=st.sampled_from("abc"), node=st.sampled_from(["", "n1", "n2"]))
    def write(self, name: str, node: str) -> None:
        """A Pod is made or changed."""
        self.version += 1
        known = self.pods.get(name)
        if known is None:
            self.births += 1
        uid = known["metadata"]["uid"] if known else f"u{self.births}"
        pod = pod_json(name, node=node, uid=uid, version=str(self.version))
        self.pods[name] = pod
        self.history.append((self.version, "MODIFIED" if known else "ADDED", pod))

    @rule(name=st.sampled_from("abc"))
    def delete(self, name: str) -> None:
        """A Pod is deleted, if it is there."""
        pod = self.pods.pop(name, None)
        if pod is not None:
            self.version += 1
            last = pod | {"metadata": pod["metadata"] | {"resourceVersion": str(self.version)}}
            self.history.append((self.version, "DELETED", last))

    @rule()
    def compact(self) -> None:
        """The server forgets its history."""
        self.compacted = self.version

    @rule(error=st.sampled_from([APIUnavailableError("away"), APIForbiddenError("no"), APIGoneError("gone")]))
    def fail(self, error: APIError) -> None:
        """The next request fails, whatever it is."""
        self.reflection.on_fault(error)

    @rule(steps=st.integers(1, 4), size=st.integers(0, 3))
    def answer(self, steps: int, size: int) -> None:
        """The server answers some requests; a watch gives at most `size` events before it ends."""
        for _ in range(steps):
            self.step(size)

    def step(self, size: int) -> None:
        """Answer the next request."""
        request = self.reflection.next_request()
        if isinstance(request, ListPage):
            self.serve_page(request)
        elif int(request.resource_version) < self.compacted:
            self.reflection.on_fault(APIGoneError("too old"), lasted_seconds=0.0)
        else:
            self.serve_watch(int(request.resource_version), size)

    def serve_page(self, request: ListPage) -> None:
        """Answer with one Pod a page; later pages show the state at the first one."""
        if request.continue_token:
            version, _, start = request.continue_token.partition("/")
            if int(version) < self.compacted:
                self.reflection.on_fault(APIGoneError("expired"))
                return
        else:
            version, start = str(self.version), "0"
            self.pinned[version] = list(self.pods.values())
        index, pods = int(start), self.pinned[version]
        end = len(pods) if request.whole else index + 1
        token = f"{version}/{end}" if end < len(pods) else ""
        changes = self.reflection.on_page(page_of(*pods[index:end], version=version, token=token))
        for change in changes.changes if changes else ():
            self.follow(change)

    def serve_watch(self, version: int, size: int) -> None:
        """Send events, and a bookmark when there are no more."""
        events = [entry for entry in self.history if entry[0] > version]
        for _, type_, pod in events[:size]:
            change = self.reflection.on_event(seen(type_, pod))
            if change is not None:
                self.follow(change)
        if len(events) <= size:
            self.reflection.on_event(Bookmark(str(self.version)))
        self.reflection.on_end(lasted_seconds=1.0)

    @invariant()
    def handler_knows_what_the_store_holds(self) -> None:
        """The changes told so far add up to the store."""
        assert self.followed == {
            key: pod.parsed.metadata.resource_version for key, pod in self.reflection.objects.items()
        }

    def teardown(self) -> None:
        """However it went, a server that answers leads to what a fresh list would show."""
        for _ in range(20):
            self.step(1000)
        fresh: Reflection[Pod] = Reflection()
        fresh.on_page(page_of(*self.pods.values()))
        assert self.followed == {key: pod.parsed.metadata.resource_version for key, pod in fresh.objects.items()}


TestAnyOrderEndsAsAFreshListWould = ServerWithHistory.TestCase


@given(lasted=st.lists(st.floats(0, 600), max_size=40), retry=st.one_of(st.none(), st.floats(0)))
def test_delay_stays_between_its_bounds_whatever_happens(lasted: list[float], retry: float | None) -> None:
    """0.2 to 30 s, or what the server asks for, up to a minute."""
    reflection = listed()
    for seconds in lasted:
        reflection.on_fault(APIUnavailableError("away", retry_after_seconds=retry), lasted_seconds=seconds)
        assert 0.2 <= reflection.delay_seconds <= max(30.0, min(retry or 0.0, 60.0))
