"""Bindings and preemptions against a server whose answers get lost: what is believed in the end is what the server has."""

import gc
import json
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.dry_run import Preemption
from scheduler.binder.actions import Condition, Event
from scheduler.binder.api_calls import LOOK_AGAIN_SECONDS, APICalls, Message
from scheduler.binder.nominator import Nominator
from scheduler.binder.preemption_executor import act
from scheduler.binder.queue import Queue, State
from scheduler.cluster.bind import BINDING_UNCONFIRMED
from scheduler.cluster.dispatcher import UNANSWERED, APIRequest
from scheduler.cluster.errors import (
    APIConflictError,
    APIForbiddenError,
    APINotFoundError,
    APITimeoutError,
    APIUnavailableError,
)
from tests.builders import make_pod

STATUSES = {APINotFoundError: 404, APIConflictError: 409, APIForbiddenError: 403}
# What becomes of a request: it is done and answered, done and the answer is lost, lost itself, or cut by a server that is full.
FATES = ("well", "answer lost", "request lost", "busy")
fates = st.lists(st.sampled_from(FATES), max_size=6)


def pod(name: str, uid: str = "", **more: Any) -> Pod:
    document = make_pod(name, **more)
    document["metadata"] |= {"uid": uid or f"uid-{name}", "resourceVersion": "1"}
    return Pod.from_json(document)


class Server:
    """An API server that has Pods, and does with each request what fate says; well when fate says nothing more."""

    def __init__(self, fates: Iterable[str] = (), **uids: str) -> None:
        self.fates = iter(fates)
        self.uids = uids
        self.nodes: dict[str, str] = {}
        self.nominated: dict[str, str | None] = {}
        self.bindings = 0
        self.deleted: list[str] = []
        self.does: Callable[[str, str], None] = lambda verb, name: None

    def post(self, *, path: str, body: bytes, timeout_seconds: float, query: dict[str, str] | None = None) -> bytes:
        return self._ask("ask" if query else "post", path, body)

    def patch(self, *, path: str, body: bytes, content_type: str, timeout_seconds: float) -> bytes:
        return self._ask("patch", path, body)

    def delete(self, *, path: str, body: bytes, timeout_seconds: float) -> bytes:
        return self._ask("delete", path, body)

    def get(self, *, path: str, timeout_seconds: float) -> bytes:
        return self._ask("get", path, b"{}")

    def _ask(self, verb: str, path: str, body: bytes) -> bytes:
        fate = next(self.fates, "well")
        if fate == "request lost":
            raise APITimeoutError("nothing came")
        if fate == "busy":
            raise APIUnavailableError("too many requests", status=429)
        answer = self._do(verb, path.split("/")[6], json.loads(body))
        if fate == "answer lost":
            raise APIUnavailableError("the connection broke")
        return json.dumps(answer).encode()

    def _do(self, verb: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        verb = "ask" if "dryRun" in body else verb
        self.does(verb, name)
        uid = self.uids.get(name)
        if uid is None:
            raise APINotFoundError(f"no Pod {name}", status=404)
        wanted = body.get("preconditions", body.get("metadata", {})).get("uid", uid)
        if wanted != uid or (verb == "post" and name in self.nodes):
            raise APIConflictError(f"another Pod {name}", status=409)
        if verb == "post":
            self.nodes[name] = body["target"]["name"]
            self.bindings += 1
        elif verb == "patch" and "nominatedNodeName" in body["status"]:
            self.nominated[name] = body["status"]["nominatedNodeName"]
        elif verb == "delete":
            self.deleted.append(self.uids.pop(name))
        return {"metadata": {"uid": uid}, "spec": {"nodeName": self.nodes.get(name, "")}}


class Live:
    """Stands in for the live snapshot: which Pods are counted on a node though no watch has shown them there."""

    def __init__(self) -> None:
        self.assumed: set[str] = set()

    def forget(self, uid: str) -> None:
        self.assumed.discard(uid)

    def node_uid(self, _: str) -> str:
        return ""

    def snapshot(self) -> Snapshot:
        return Snapshot({})


class Desk:
    """APICalls, with the dispatcher, the threads and the deciding thread played by the test."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.now = 100.0
        self.leading = True
        self.events: list[Event] = []
        self.live, self.queue, self.nominator = Live(), Queue(), Nominator()
        self.told: list[Message] = []
        self.sent: list[APIRequest] = []
        either: Any = self
        client: Any = server
        live: Any = self.live
        self.calls = APICalls(
            client=client,
            dispatcher=either,
            post=self.events.append,
            leads=lambda: self.leading,
            tell=self.told.append,
            queue=self.queue,
            live=live,
            nominator=self.nominator,
        )

    def send(self, request: APIRequest) -> None:
        """Take a request as the dispatcher does."""
        self.sent.append(request)

    def place(self, pod: Pod, node: str) -> None:
        """Decide on a Pod that waits."""
        self.queue.put(pod, self.now)
        taken = self.queue.take(self.now)
        assert taken is not None
        self.live.assumed.add(pod.uid)
        placement: Any = SimpleNamespace(pod=pod, node=node, node_uid="", decision="")
        self.calls.send(placement, self.now)

    def go_on(self) -> None:
        """Let everything happen that can happen now."""
        while self.sent or self.told or not self.calls._work.empty():
            while self.sent:
                self._dispatch(self.sent.pop(0))
            while not self.calls._work.empty():
                task = self.calls._work.get()
                assert task is not None
                task()
            while self.told:
                self.told.pop(0)(self.now)

    def settle(self) -> None:
        """Let time pass until nothing is open."""
        self.go_on()
        while self.calls.again:
            self.now += LOOK_AGAIN_SECONDS
            self.calls.send_again(self.now)
            self.go_on()

    def _dispatch(self, request: APIRequest) -> None:
        if not request.ready():
            return
        try:
            self.server.post(path=request.path, body=request.body, timeout_seconds=1)
        except (APINotFoundError, APIConflictError, APIForbiddenError) as error:
            request.done(STATUSES[type(error)], b"")
        except APIUnavailableError as error:
            request.done(error.status or UNANSWERED, b"")
        else:
            request.done(201, b"")

    @property
    def reasons(self) -> list[str]:
        """Why events were told, but for the one that says after some time that a binding isn't confirmed."""
        return [event.reason for event in self.events if event.note != BINDING_UNCONFIRMED]


class TestBindings:
    @given(fates)
    def test_a_pod_is_bound_once_and_known_to_be_whatever_is_lost(self, lost: list[str]) -> None:
        server = Server(lost, a="uid-a")
        desk = Desk(server)
        desk.place(pod("a"), "n1")
        desk.settle()

        assert (server.nodes, server.bindings) == ({"a": "n1"}, 1)
        assert (desk.calls.bound, desk.reasons) == (1, ["Scheduled"])
        assert desk.calls.is_binding("uid-a")
        assert desk.live.assumed == {"uid-a"}

    @given(fates)
    def test_a_pod_that_another_one_bound_elsewhere_is_given_up_whatever_is_lost(self, lost: list[str]) -> None:
        server = Server(lost, a="uid-a")
        server.nodes["a"] = "n2"
        desk = Desk(server)
        desk.place(pod("a"), "n1")
        desk.settle()

        assert (server.nodes, desk.calls.bound, desk.reasons) == ({"a": "n2"}, 0, [])
        assert not desk.calls.is_binding("uid-a")
        assert desk.live.assumed == set()

    @given(fates, st.sampled_from([None, "uid-of-another"]))
    def test_a_pod_that_is_gone_is_let_go_and_another_of_its_name_is_left_alone(
        self, lost: list[str], instead: str | None
    ) -> None:
        server = Server(lost, **({"a": instead} if instead else {}))
        desk = Desk(server)
        desk.place(pod("a"), "n1")
        desk.settle()

        assert (server.nodes, desk.calls.bound, desk.reasons) == ({}, 0, [])
        assert "uid-a" not in desk.queue
        assert desk.live.assumed == set()

    @given(fates)
    def test_who_has_lost_the_lease_sends_nothing_and_counts_what_may_be_bound_until_that_is_known(
        self, lost: list[str]
    ) -> None:
        server = Server(lost, a="uid-a")
        desk = Desk(server)
        desk.place(pod("a"), "n1")
        desk.go_on()
        bindings = server.bindings
        desk.leading = False
        for _ in range(3):
            desk.now += LOOK_AGAIN_SECONDS
            desk.calls.send_again(desk.now)
            desk.go_on()
        assert server.bindings == bindings
        assert desk.live.assumed == {"uid-a"}

        desk.leading = True
        desk.settle()
        assert (server.nodes, server.bindings, desk.calls.bound) == ({"a": "n1"}, 1, 1)
        assert desk.live.assumed == {"uid-a"}

    def test_what_may_be_bound_is_asked_for_no_more_once_the_watch_has_shown_it(self) -> None:
        desk = Desk(Server(["answer lost", "request lost", "request lost"], a="uid-a"))
        desk.place(pod("a"), "n1")
        desk.go_on()
        assert desk.calls.again
        desk.leading = False
        desk.calls.let_go("uid-a")
        desk.settle()
        assert (desk.calls.in_flight, desk.calls.again) == ({}, [])

    def test_a_binding_that_is_sent_again_keeps_nothing_of_what_was_decided_on(self) -> None:
        """Which is a Snapshot each time, of all nodes."""

        class Decided(SimpleNamespace):
            pass

        desk = Desk(Server(["request lost", "request lost"], a="uid-a"))
        waiting = pod("a")
        desk.queue.put(waiting, desk.now)
        desk.queue.take(desk.now)
        placement: Any = Decided(pod=waiting, node="n1", node_uid="", decision="")
        kept = weakref.ref(placement)
        desk.calls.send(placement, desk.now)
        del placement
        desk.go_on()
        assert desk.calls.again
        gc.collect()
        assert kept() is None

    def test_a_binding_that_is_confirmed_after_it_was_taken_back_changes_nothing(self) -> None:
        desk = Desk(Server(a="uid-a"))
        desk.place(pod("a"), "n1")
        (request,) = desk.sent
        desk.leading = False
        assert not request.ready()
        request.done(201, b"")
        desk.sent.clear()
        desk.go_on()

        assert (desk.calls.bound, desk.events, desk.live.assumed) == (0, [], set())
        waiting = desk.queue.get("uid-a")
        assert waiting is not None
        assert waiting.state is State.BACKOFF

    def test_a_pod_whose_binding_failed_keeps_the_node_that_was_made_free_for_it(self) -> None:
        server = Server(a="uid-a")
        server.nodes["a"] = "n2"
        desk = Desk(server)
        urgent = pod("a")
        desk.queue.put(urgent, desk.now).nominated = "n1"
        desk.place(urgent, "n1")
        desk.settle()
        assert desk.nominator.nominated == {"n1": [urgent]}

    def test_a_name_that_leads_elsewhere_is_not_counted_as_being_bound(self) -> None:
        desk = Desk(Server())
        with pytest.raises(ValueError, match="not a name of Kubernetes"):
            desk.place(pod("a"), "../n1")
        assert (desk.calls.in_flight, desk.sent) == ({}, [])


NOMINATED = Condition("Unschedulable", "0/1 nodes are available.", "n1")


def victims() -> Iterator[Pod]:
    for name in ("v", "w"):
        yield pod(name, nodeName="n1")


def preempt(desk: Desk, *, yielding: tuple[Pod, ...] = ()) -> None:
    urgent = pod("a", priority=10)
    desk.queue.put(urgent, desk.now)
    waiting = desk.queue.take(desk.now)
    assert waiting is not None
    waiting.nominated = "n1"
    desk.queue.refuse(urgent.uid, desk.now, requeued_by=())
    desk.calls.preempt(waiting, Preemption("n1", list(victims()), 0, list(yielding), []), NOMINATED, lambda _: None)
    desk.go_on()


class TestPreemptions:
    @given(fates)
    def test_nobody_is_removed_before_the_server_has_the_nomination(self, lost: list[str]) -> None:
        server = Server(lost, a="uid-a", v="uid-v", w="uid-w")

        def check(verb: str, name: str) -> None:
            assert name == "a" or server.nominated == {"a": "n1"}

        server.does = check
        desk = Desk(server)
        preempt(desk)
        waiting = desk.queue.get("uid-a")
        assert waiting is not None
        # Either all are removed and the Pod waits for that, or it is tried again.
        assert waiting.state is (State.UNSCHEDULABLE if not server.uids.keys() & {"v", "w"} else State.BACKOFF) or lost
        assert desk.reasons.count("Preempted") <= len(server.deleted)

    @given(fates)
    def test_repeated_until_it_is_done_each_victim_is_deleted_once_and_nobody_else(self, lost: list[str]) -> None:
        server = Server(lost, a="uid-a", v="uid-v", w="uid-w", x="uid-x")
        client: Any = server
        told: list[Event] = []
        for _ in range(len(lost) + 1):
            try:
                made = Preemption("n1", list(victims()), 0, [], [])
                done = act(
                    client,
                    made,
                    pod("a"),
                    post=told.append,
                    expect=lambda _: None,
                    leads=lambda: True,
                    is_there=lambda _: True,
                )
            except APIUnavailableError:
                continue
            assert done
        assert server.deleted == ["uid-v", "uid-w"]
        assert server.uids == {"a": "uid-a", "x": "uid-x"}
        names = [event.regarding.name for event in told]
        assert names == sorted(set(names))

    @pytest.mark.parametrize("moment", ["patch", "delete"])
    def test_a_pod_that_takes_a_victims_name_at_any_moment_is_left_alone_and_the_next_victim_goes(
        self, moment: str
    ) -> None:
        server = Server(a="uid-a", v="uid-v", w="uid-w")

        def replace(verb: str, name: str) -> None:
            if (verb, name) == (moment, "v"):
                server.uids["v"] = "uid-of-the-next"

        server.does = replace
        desk = Desk(server)
        preempt(desk)
        assert server.deleted == ["uid-w"]
        assert server.uids["v"] == "uid-of-the-next"
        assert desk.nominator._begun.keys() == {"uid-a"}

    def test_one_that_was_refused_is_begun_no_more_and_who_yielded_is_tried_again(self) -> None:
        server = Server(a="uid-a", late="uid-late", v="uid-v", w="uid-w")

        def forbid(verb: str, name: str) -> None:
            if verb == "delete":
                raise APIForbiddenError("no right to delete", status=403)

        server.does = forbid
        desk = Desk(server)
        late = pod("late")
        desk.queue.put(late, desk.now).nominated = "n1"
        desk.nominator.nominate(late.uid, "n1", late)
        assert desk.queue.take(desk.now) is not None
        desk.queue.refuse(late.uid, desk.now, requeued_by=())
        preempt(desk, yielding=(late,))

        assert server.nominated == {"a": "n1", "late": None}
        assert desk.nominator._begun == {}
        assert desk.nominator.nominated == {"n1": [late]}  # until the watch shows what the server has
        states = {waiting.pod.name: waiting.state for waiting in desk.queue.waiting()}
        assert states == {"a": State.BACKOFF, "late": State.ACTIVE}
        assert "Preempted" not in desk.reasons

    def test_who_loses_the_lease_after_the_nomination_removes_nobody(self) -> None:
        server = Server(a="uid-a", v="uid-v", w="uid-w")
        desk = Desk(server)

        def lose(verb: str, name: str) -> None:
            desk.leading = False

        server.does = lose
        preempt(desk)
        assert (server.nominated, server.deleted) == ({"a": "n1"}, [])
        assert desk.nominator._begun == {}
