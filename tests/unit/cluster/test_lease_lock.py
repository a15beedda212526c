"""A lock that holds across processes: never two who may rely on it, whatever the API server loses and however long a call takes."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.cluster import lease_lock
from scheduler.cluster.errors import APIConflictError, APIError, APINotFoundError, APITimeoutError, APIUnavailableError
from scheduler.cluster.lease import Lease, LeaseStore, Metadata, Spec
from scheduler.cluster.lease_lock import (
    DURATION_SECONDS,
    LONGEST_HOLD_SECONDS,
    MARGIN_SECONDS,
    NOTE,
    Held,
    LeaseLock,
    LockBusyError,
)

COLLECTION = "/apis/coordination.k8s.io/v1/namespaces/berth/leases"


class Server:
    """One Lease behind compare-and-set. `lost` says what becomes of the next calls: the answer or the call is lost."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.lost: list[str] = []
        self.calls: list[str] = []
        # An abandoned `with` block ends when nobody refers to it any more.
        self._kept: list[Any] = []

    def get(self, *, path: str, timeout_seconds: float) -> bytes:
        assert path == f"{COLLECTION}/counting"
        self._call("get", timeout_seconds)
        if self.lease is None:
            raise APINotFoundError(path)
        return json.dumps(self.lease).encode()

    def post(self, *, path: str, body: bytes, timeout_seconds: float) -> bytes:
        assert path == COLLECTION
        return self._write("post", body, timeout_seconds, expected=None)

    def put(self, *, path: str, body: bytes, timeout_seconds: float) -> bytes:
        assert path == f"{COLLECTION}/counting"
        return self._write("put", body, timeout_seconds, expected=json.loads(body)["metadata"]["resourceVersion"])

    def _write(self, verb: str, body: bytes, timeout_seconds: float, *, expected: str | None) -> bytes:
        is_lost = self._call(verb, timeout_seconds)
        if expected != (self.lease["metadata"]["resourceVersion"] if self.lease else None):
            raise APIConflictError("the object has been modified")
        self.version += 1
        self.lease = json.loads(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        if is_lost:
            self.now += timeout_seconds
            raise APITimeoutError("no answer")
        return json.dumps(self.lease).encode()

    def _call(self, verb: str, timeout_seconds: float) -> bool:
        """Note a call; return whether its answer is lost."""
        self.calls.append(verb)
        fate = self.lost.pop(0) if self.lost else "answered"
        if fate == "slow":
            self.now += timeout_seconds * 0.9
        if fate == "call":
            self.now += timeout_seconds
            raise APIUnavailableError("connection refused")
        return fate == "answer"

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""

    def lock(self, identity: str) -> LeaseLock:
        client: Any = self
        return LeaseLock(client, namespace="berth", name="counting", identity=identity, clock=lambda: self.now)

    def vanish_with(self, identity: str) -> None:
        """Let a process take the lock and never give it back."""
        manager = self.lock(identity).hold(1)
        manager.__enter__()
        self._kept.append(manager)


def hold_and_give_back(lock: LeaseLock) -> None:
    with lock.hold(30):
        pass


@contextmanager
def sleeping(server: Server, meanwhile: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let time pass where the lock sleeps, and something else happen in it."""

    def sleep(seconds: float) -> None:
        server.now += seconds
        meanwhile()

    former = lease_lock.time.sleep
    lease_lock.time.sleep = sleep  # type: ignore[assignment]
    try:
        yield
    finally:
        lease_lock.time.sleep = former  # type: ignore[assignment]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    with sleeping(made):
        yield made


class TestHolding:
    def test_a_lease_that_isnt_there_is_made_and_given_back_with_the_note(self, server: Server) -> None:
        with server.lock("one").hold(1) as held:
            assert (server.holder, held.note) == ("one", "")
            held.note = "42"
        assert server.holder == ""
        assert server.lease is not None
        assert server.lease["metadata"]["annotations"] == {NOTE: "42"}
        assert server.calls == ["get", "post", "put"]

    def test_the_next_process_reads_the_note_of_the_one_before(self, server: Server) -> None:
        with server.lock("one").hold(1) as held:
            held.note = "42"
        with server.lock("two").hold(1) as held:
            assert held.note == "42"
        assert server.lease is not None
        assert server.lease["spec"]["holderIdentity"] == ""

    def test_one_that_changed_hands_as_often_as_a_lease_can_say_is_taken(self, server: Server) -> None:
        hold_and_give_back(server.lock("a"))
        assert server.lease is not None
        server.lease["spec"]["leaseTransitions"] = 2**31 - 1
        with server.lock("b").hold(1):
            assert server.lease["spec"]["leaseTransitions"] == 0

    def test_another_process_waits_no_longer_than_asked(self, server: Server) -> None:
        with server.lock("one").hold(1):
            began = server.now
            with pytest.raises(LockBusyError, match="another process holds the lock"), server.lock("two").hold(0.5):
                pass
            assert server.now - began <= 0.5
            assert server.holder == "one"

    def test_one_that_vanished_is_followed_once_its_lease_was_seen_unchanged_for_as_long_as_it_lasts(
        self, server: Server
    ) -> None:
        server.vanish_with("gone")
        began = server.now
        with server.lock("two").hold(DURATION_SECONDS * 2):
            assert server.holder == "two"
            assert server.now - began > DURATION_SECONDS

    def test_a_lease_that_was_deleted_is_its_holders_still_for_a_process_that_saw_it_held(self, server: Server) -> None:
        one, other = server.lock("one"), server.lock("other")
        with one.hold(1) as held:
            with pytest.raises(LockBusyError), other.hold(1):
                pass
            server.lease = None
            with pytest.raises(LockBusyError), other.hold(1):
                pass
            assert one.is_valid(held)
        with other.hold(DURATION_SECONDS + 1):
            assert not one.is_valid(held)

    def test_a_process_takes_its_own_lease_back_at_once_after_a_restart(self, server: Server) -> None:
        server.vanish_with("one")
        with server.lock("one").hold(0.1):
            assert server.holder == "one"

    def test_an_exception_inside_gives_the_lock_back(self, server: Server) -> None:
        lock = server.lock("one")
        with pytest.raises(ZeroDivisionError), lock.hold(1):
            raise ZeroDivisionError
        assert server.holder == ""
        with lock.hold(1):
            assert server.holder == "one"


class TestFaults:
    def test_without_the_api_server_there_is_no_lock_and_the_next_call_can_have_it(self, server: Server) -> None:
        server.lost = ["call"]
        lock = server.lock("one")
        with pytest.raises(APIError), lock.hold(1):
            pass
        with lock.hold(1):
            assert server.holder == "one"

    def test_somebody_who_is_faster_is_waited_for(self, server: Server) -> None:
        other, lock = server.lock("other"), server.lock("one")
        read = server.get
        stolen: list[Any] = []

        def get(**arguments: Any) -> bytes:
            try:
                return read(**arguments)
            finally:
                if not stolen:
                    stolen.append(other.hold(1))
                    server.get = read  # type: ignore[method-assign]
                    stolen[0].__enter__()

        server.get = get  # type: ignore[method-assign]
        with pytest.raises(LockBusyError), lock.hold(0.2):
            pass
        assert server.holder == "other"
        stolen[0].__exit__(None, None, None)

    def test_a_lease_that_cant_be_given_back_runs_out_and_says_so(
        self, server: Server, caplog: pytest.LogCaptureFixture
    ) -> None:
        lock = server.lock("one")
        with lock.hold(1):
            server.lost = ["call"]
        assert "the Lease counting could not be released" in caplog.text
        with server.lock("two").hold(DURATION_SECONDS * 2):
            assert server.holder == "two"

    def test_a_holder_that_was_too_slow_doesnt_take_it_from_the_next(self, server: Server) -> None:
        slow = server.lock("slow").hold(1)
        held = slow.__enter__()
        with server.lock("next").hold(DURATION_SECONDS * 2):
            slow.__exit__(None, None, None)
            assert server.holder == "next"
            assert server.now > held.until

    def test_an_answer_that_is_no_lease_is_a_fault_of_the_api_server(self) -> None:
        client: Any = type("Client", (), {"get": lambda *_, **__: b'{"spec": 5}'})()
        store = LeaseStore(client, namespace="n", name="l", call_timeout_seconds=1)
        with pytest.raises(APIUnavailableError, match="isn't a Lease"):
            store.read()


class TestReliance:
    def test_it_ends_before_the_lease_does_counted_from_before_the_call(self, server: Server) -> None:
        lock = server.lock("one")
        server.lost = ["slow", "slow"]
        began = server.now
        with lock.hold(5) as held:
            assert held.until == pytest.approx(began + DURATION_SECONDS - MARGIN_SECONDS)
            server.now = held.until - 0.001
            assert lock.is_valid(held)
            server.now = held.until
            assert not lock.is_valid(held)

    def test_a_lease_without_a_duration_lasts_as_long_as_the_default(self, server: Server) -> None:
        client: Any = server
        store = LeaseStore(client, namespace="berth", name="l", call_timeout_seconds=1, clock=lambda: server.now)
        found = Lease(Metadata("7"), Spec(holder_identity="other"))
        assert not store.is_free(found, "me", default_seconds=3)
        server.now += 3
        assert not store.is_free(found, "me", default_seconds=3)
        server.now += 0.1
        assert store.is_free(found, "me", default_seconds=3)

    def test_each_renewal_by_the_other_begins_the_wait_anew(self, server: Server) -> None:
        client: Any = server
        store = LeaseStore(client, namespace="berth", name="l", call_timeout_seconds=1, clock=lambda: server.now)
        for version in range(5):
            found = Lease(Metadata(str(version)), Spec(holder_identity="other", lease_duration_seconds=3))
            assert not store.is_free(found, "me", default_seconds=1)
            server.now += 2.9


class TestThreads:
    def test_a_thread_that_waits_gets_the_lease_without_asking_the_api_server_again(self, server: Server) -> None:
        lock = server.lock("one")
        got = threading.Event()

        def second() -> None:
            with lock.hold(30):
                got.set()

        with lock.hold(1):
            thread = threading.Thread(target=second)
            thread.start()
            wait_for_a_thread(lock)
        thread.join(30)
        assert not thread.is_alive()
        assert got.is_set()
        assert server.calls == ["get", "post", "put"]

    def test_one_process_keeps_it_no_longer_than_others_should_wait(self, server: Server) -> None:
        lock = server.lock("one")
        with lock.hold(1):
            thread = threading.Thread(target=hold_and_give_back, args=(lock,))
            thread.start()
            wait_for_a_thread(lock)
            server.now += LONGEST_HOLD_SECONDS + 0.1
        thread.join(30)
        assert not thread.is_alive()
        assert server.calls == ["get", "post", "put", "get", "put", "put"]

    def test_a_thread_that_waits_comes_before_the_one_that_had_the_lock_and_wants_it_again(
        self, server: Server
    ) -> None:
        lock = server.lock("one")
        order: list[str] = []

        def second() -> None:
            with lock.hold(30):
                order.append("second")

        with lock.hold(1):
            thread = threading.Thread(target=second)
            thread.start()
            wait_for_a_thread(lock)
        with lock.hold(30):
            order.append("first again")
        thread.join(30)
        assert not thread.is_alive()
        assert order == ["second", "first again"]

    def test_another_process_has_it_before_the_next_thread_of_one_that_kept_it_for_long(self, server: Server) -> None:
        one, other = server.lock("one"), server.lock("other")
        order: list[str] = []

        def look() -> None:
            with other.hold(1):
                order.append("other")

        def second() -> None:
            with one.hold(30):
                order.append("second thread")

        # Not by `monkeypatch`, which may be undone after the fixture `server`, and would leave its clock to other tests.
        with sleeping(server, look):
            with one.hold(1):
                thread = threading.Thread(target=second)
                thread.start()
                wait_for_a_thread(one)
                server.now += LONGEST_HOLD_SECONDS + 0.1
            thread.join(30)
        assert not thread.is_alive()
        assert order == ["other", "second thread"]

    def test_threads_of_one_process_wait_no_longer_than_asked(self, server: Server) -> None:
        lock = server.lock("one")
        with lock.hold(1), pytest.raises(LockBusyError, match="other threads"), lock.hold(0.01):
            pass

    def test_a_thread_whose_time_ends_while_it_is_given_the_lease_leaves_it_to_nobody(self, server: Server) -> None:
        lock = server.lock("one")
        lock._turn = turns = TurnsOfTwo()
        with lock.hold(1):
            thread = threading.Thread(target=turns.run, args=(lock,))
            thread.start()
            turns.waits.wait(30)
        thread.join(30)
        assert not thread.is_alive()
        assert server.holder == ""


class TurnsOfTwo(threading.Condition):
    """Lets a second thread's time end just after the first one gave up its turn to look who waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self._time_is_up, self._has_gone = threading.Event(), threading.Event(), threading.Event()

    def run(self, lock: LeaseLock) -> None:
        with suppress(LockBusyError), lock.hold(30):
            pass
        self._has_gone.set()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:  # type: ignore[override]
        if predicate():
            return True
        self.waits.set()
        self.release()
        self._time_is_up.wait(timeout)
        self.acquire()
        return predicate()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        if self.waits.is_set() and threading.current_thread() is threading.main_thread():
            self._time_is_up.set()
            self._has_gone.wait(30)


def wait_for_a_thread(lock: LeaseLock) -> None:
    """Wait until another thread waits for its turn."""
    until = time.monotonic() + 30
    while not lock._waiting:  # without sleeping, which moves these tests' clock
        assert time.monotonic() < until


class Machine(RuleBasedStateMachine):
    """Processes that take, keep for too long, lose and give back; and an API server that loses calls and answers."""

    @initialize()
    def begin(self) -> None:
        self.server = Server()
        self.stack = ExitStack()
        self.stack.enter_context(sleeping(self.server))
        self.locks = [self.server.lock(f"p{number}") for number in range(3)]
        for lock in self.locks:
            # The machine's own chance would change what hypothesis repeats.
            lock._jitter = Random(1)  # type: ignore[assignment]
        self.managers: dict[int, Any] = {}
        self.held: dict[int, Held] = {}

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            self.stack.close()

    @rule(number=st.integers(0, 2), seconds=st.floats(0.1, 8))
    def take(self, number: int, seconds: float) -> None:
        if number in self.held:
            return
        manager = self.locks[number].hold(seconds)
        try:
            self.held[number] = manager.__enter__()
        except (LockBusyError, APIError):
            return
        self.managers[number] = manager

    @precondition(lambda self: self.held)
    @rule(choose=st.integers(0, 2))
    def give_back(self, choose: int) -> None:
        number = sorted(self.held)[choose % len(self.held)]
        del self.held[number]
        self.managers.pop(number).__exit__(None, None, None)

    @precondition(lambda self: self.held)
    @rule(choose=st.integers(0, 2))
    def vanish(self, choose: int) -> None:
        """A process is killed; another takes its place, with an identity of its own."""
        number = sorted(self.held)[choose % len(self.held)]
        del self.held[number]
        self.server._kept.append(self.managers.pop(number))
        self.locks[number] = self.server.lock(f"p{number}-{self.server.version}")

    @rule(seconds=st.floats(0, 7))
    def wait(self, seconds: float) -> None:
        self.server.now += seconds

    @rule(fates=st.lists(st.sampled_from(["answered", "slow", "call", "answer"]), max_size=4))
    def lose(self, fates: list[str]) -> None:
        self.server.lost = fates

    @invariant()
    def at_most_one_may_rely_on_it(self) -> None:
        held: Callable[[int], bool] = lambda number: self.locks[number].is_valid(self.held[number])  # noqa: E731
        assert sum(map(held, getattr(self, "held", {}))) <= 1


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=150, stateful_step_count=25)
