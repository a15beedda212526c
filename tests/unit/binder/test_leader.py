"""One leader at a time, by its own monotonic clock."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from scheduler.binder import leader
from scheduler.binder.leader import (
    DURATION_SECONDS,
    RENEW_WITHIN_SECONDS,
    Elector,
    StateLock,
    identity_of,
)
from scheduler.cluster.errors import APIConflictError, APINotFoundError, APIUnavailableError
from tests.stack import eventually


class Server:
    """A Lease at an API server: changed by compare-and-set, away when told so."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.away = False

    def get(self, *, path: str, timeout_seconds: float) -> bytes:
        self._check()
        if self.lease is None:
            raise APINotFoundError(path)
        return msgspec.json.encode(self.lease)

    def post(self, *, path: str, body: bytes, timeout_seconds: float) -> bytes:
        self._check()
        if self.lease is not None:
            raise APIConflictError(path)
        return self._keep(msgspec.json.decode(body))

    def put(self, *, path: str, body: bytes, timeout_seconds: float) -> bytes:
        self._check()
        document = msgspec.json.decode(body)
        if self.lease is None or document["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise APIConflictError(path)
        return self._keep(document)

    def _keep(self, document: dict[str, Any]) -> bytes:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        self.lease = document
        return msgspec.json.encode(document)

    def _check(self) -> None:
        if self.away:
            message = "away"
            raise APIUnavailableError(message)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def elector(server: Server, clock: Clock, identity: str, **more: Any) -> Elector:
    return Elector(server, namespace="kube-system", name="x", identity=identity, clock=clock, **more)  # type: ignore[arg-type]


def test_the_first_one_leads_and_the_second_waits_until_the_lease_was_seen_unchanged_for_its_whole_duration() -> None:
    server, clock = Server(), Clock()
    first, second = elector(server, clock, "a"), elector(server, clock, "b")
    first.step()
    second.step()
    assert (first.leads(), second.leads(), second.holder) == (True, False, "a")

    clock.now += DURATION_SECONDS
    second.step()
    assert not second.leads()
    clock.now += 0.1
    second.step()

    assert (first.leads(), second.leads()) == (False, True)
    first.step()
    assert not first.leads()
    assert server.lease is not None
    assert server.lease["spec"]["leaseTransitions"] == 1


def test_a_lease_that_changed_hands_as_often_as_a_lease_can_say_is_taken_all_the_same() -> None:
    server, clock = Server(), Clock()
    elector(server, clock, "a").step()
    assert server.lease is not None
    server.lease["spec"]["leaseTransitions"] = 2**31 - 1
    second = elector(server, clock, "b")
    second.step()

    clock.now += DURATION_SECONDS + 0.1
    second.step()

    assert second.leads()
    assert server.lease["spec"]["leaseTransitions"] == 0


def test_a_time_that_the_api_server_gives_and_does_not_take_is_not_written_back() -> None:
    server, clock = Server(), Clock()
    first = elector(server, clock, "a")
    first.step()
    assert server.lease is not None
    server.lease["spec"]["acquireTime"] = "10000-01-01T11:59:59.000000Z"

    first.step()

    assert server.lease["spec"]["acquireTime"] == server.lease["spec"]["renewTime"]


def test_who_has_the_lease_is_told_as_a_database_takes_it() -> None:
    server, clock = Server(), Clock()
    elector(server, clock, "a\0b").step()
    second = elector(server, clock, "c")
    second.step()
    assert (second.holder, second.leads()) == ("ab", False)


def test_a_holder_that_can_not_renew_stops_leading_before_anyone_can_take_over() -> None:
    server, clock = Server(), Clock()
    first = elector(server, clock, "a")
    first.step()
    server.away = True

    clock.now += RENEW_WITHIN_SECONDS - 0.1
    first.step()
    assert first.leads()
    clock.now += 0.2
    first.step()

    assert not first.leads()
    assert RENEW_WITHIN_SECONDS < DURATION_SECONDS


def test_a_holder_leads_again_at_once_when_the_server_is_back_and_nobody_took_over() -> None:
    server, clock = Server(), Clock()
    first = elector(server, clock, "a")
    first.step()
    server.away = True
    clock.now += 60
    first.step()
    server.away = False

    first.step()

    assert first.leads()


def test_a_holder_that_sees_the_lease_in_other_hands_stops_leading_at_once() -> None:
    server, clock = Server(), Clock()
    held = elector(server, clock, "a")
    held.step()
    assert server.lease is not None
    server.lease["spec"]["holderIdentity"] = "b"  # as somebody may write it with kubectl
    held.step()
    assert (held.leads(), held.holder) == (False, "b")


def test_renewing_counts_from_when_it_was_asked_for() -> None:
    server, clock = Server(), Clock()
    first = elector(server, clock, "a")
    whole = server.post

    def slow(**members: Any) -> bytes:
        clock.now += 9.0
        return whole(**members)

    server.post = slow  # type: ignore[method-assign]
    first.step()
    clock.now += 1.5

    assert not first.leads()


def test_one_that_follows_on_the_same_state_folder_takes_its_own_lease_at_once(tmp_path: Path) -> None:
    server, clock = Server(), Clock()
    lock = StateLock(tmp_path)
    first = elector(server, clock, identity_of(tmp_path), lock=lock)
    first.step()
    following = StateLock(tmp_path)
    second = elector(server, clock, identity_of(tmp_path), lock=following)
    second.step()
    assert not second.leads()
    assert second.holder == "another process with the same state folder"

    lock.give_back()  # as the kernel does when a process is killed
    second.step()

    assert second.leads()
    following.give_back()


def test_who_stops_gives_the_lease_back_so_that_another_leads_at_once() -> None:
    server, clock = Server(), Clock()
    told: list[bool] = []
    first, second = elector(server, clock, "a", on_change=told.append), elector(server, clock, "b")
    first.step()
    first.start()

    first.stop()
    second.step()

    assert (first.leads(), second.leads()) == (False, True)
    assert told == [True, False]


def after_deletion(server: Server, clock: Clock) -> tuple[Elector, Elector]:
    """One that leads and another one that has seen so, and that the Lease is gone."""
    first, second = elector(server, clock, "a"), elector(server, clock, "b")
    first.step()
    second.step()
    server.lease = None
    second.step()
    return first, second


def test_a_lease_that_was_deleted_is_its_holders_still_until_that_can_not_believe_in_it_any_more() -> None:
    """As by who wants another one to lead: the holder hears of it only when it renews."""
    server, clock = Server(), Clock()
    first, second = after_deletion(server, clock)
    assert (first.leads(), second.leads()) == (True, False)

    clock.now += RENEW_WITHIN_SECONDS + 0.1
    second.step()
    assert (first.leads(), second.leads()) == (False, False)
    clock.now += DURATION_SECONDS - RENEW_WITHIN_SECONDS
    second.step()
    assert second.leads()


def test_a_holder_whose_lease_was_deleted_makes_it_anew() -> None:
    server, clock = Server(), Clock()
    first, second = after_deletion(server, clock)
    first.step()
    clock.now += DURATION_SECONDS
    second.step()
    assert not second.leads()


def test_another_state_folder_at_the_same_path_is_another_identity(tmp_path: Path) -> None:
    """As containers of one host have it that share its name: both would lead by one Lease."""
    folder = tmp_path / "state"
    first = identity_of(folder)
    assert identity_of(folder) == first
    folder.rename(tmp_path / "elsewhere")
    assert identity_of(folder) != first
    assert identity_of(tmp_path / "elsewhere") == first


def test_an_identity_that_can_not_be_kept_is_nobody_elses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert len({identity_of(tmp_path / "file" / "state") for _ in range(2)}) == 2


def test_two_that_see_a_free_lease_at_once_do_not_both_get_it() -> None:
    server, clock = Server(), Clock()
    first, second = elector(server, clock, "a"), elector(server, clock, "b")
    whole = server.get

    def get(**members: Any) -> bytes:
        server.get = whole  # type: ignore[method-assign]
        first.step()
        raise APINotFoundError(members["path"])

    server.get = get  # type: ignore[method-assign]
    second.step()

    assert (first.leads(), second.leads()) == (True, False)


@pytest.mark.parametrize("answer", [b"[]", b"{"])
def test_what_is_no_lease_is_no_lead(answer: bytes) -> None:
    server, clock = Server(), Clock()
    server.get = lambda **_: answer  # type: ignore[method-assign]
    only = elector(server, clock, "a")

    only.step()

    assert not only.leads()


def test_an_election_that_breaks_off_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leader, "RETRY_SECONDS", 0.01)
    server = Server()
    (tmp_path / "state").touch()  # not a folder, so that there can be no lock in it
    lock = StateLock(tmp_path / "state")
    made = elector(server, Clock(), "a", lock=lock)
    made.start()
    eventually(lambda: "the leader election failed" in caplog.text)
    assert not made.leads()
    (tmp_path / "state").unlink()

    eventually(made.leads)
    made.stop()
