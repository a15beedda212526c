"""Who may call: without TLS this machine, and no address that only begins like its own; with TLS names of a certificate that holds."""

import time
from collections import defaultdict
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from django.conf import settings

from scheduler.extender import identity
from scheduler.extender.identity import AllowedCaller, Bucket, CallRate, TooManyCalls, caller_of
from scheduler.http_server.connection import CONNECTION, Connection


class Asked:
    """A request, as far as it is asked who sent it."""

    def __init__(self, **environ: Any) -> None:
        self.META = environ


def a_connection(*, names: frozenset[str] | None = None, expires_at: float = 0.0, is_new: bool = False) -> Connection:
    """Return a connection whose client showed a certificate with these names, or none."""
    connection = object.__new__(Connection)
    connection.sock = None  # type: ignore[assignment] # nothing is asked of it: who is there was read before
    connection.kept = {"peer": None if names is None else identity._Peer(names, expires_at)}
    connection.is_new = is_new
    return connection


def ours(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, **changed))


@pytest.fixture
def tls(monkeypatch: pytest.MonkeyPatch) -> None:
    ours(monkeypatch, extender_tls_cert_file="/tls/server.pem", extender_clients=("kube-scheduler", "another"))


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::1:2", False),
        ("::1234:0:0:1", False),
        ("", False),
    ],
)
def test_without_tls_only_loopbacks_addresses_may_call(address: str, may: bool) -> None:
    assert not settings.BERTH.extender_tls_cert_file
    assert (caller_of({"REMOTE_ADDR": address}) is not None) is may
    request: Any = Asked(REMOTE_ADDR=address)
    assert AllowedCaller().has_permission(request, None) is may  # type: ignore[arg-type] # no view is asked


@pytest.mark.usefixtures("tls")
class TestWithTLS:
    def test_the_first_of_the_names_that_may_call_is_who_calls(self) -> None:
        names = frozenset({"kube-scheduler", "another", "a stranger"})
        assert caller_of({CONNECTION: a_connection(names=names, expires_at=time.time() + 60)}) == "another"

    @pytest.mark.parametrize(
        "environ",
        [
            pytest.param({}, id="no connection that is known"),
            pytest.param({CONNECTION: a_connection()}, id="no certificate"),
            pytest.param(
                {CONNECTION: a_connection(names=frozenset({"a stranger"}), expires_at=2**40)}, id="no name that may"
            ),
            pytest.param({CONNECTION: a_connection(names=frozenset(), expires_at=2**40)}, id="no name"),
        ],
    )
    def test_nobody_else_may_on_this_machine_either(self, environ: dict[str, Any]) -> None:
        assert caller_of({"REMOTE_ADDR": "127.0.0.1", **environ}) is None
        request: Any = Asked(REMOTE_ADDR="127.0.0.1", **environ)
        permission = AllowedCaller()
        assert not permission.has_permission(request, None)  # type: ignore[arg-type] # no view is asked
        assert permission.message.startswith("the client certificate is not one")

    def test_a_certificate_that_ends_while_its_connection_lasts_ends_what_its_client_may(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        environ = {CONNECTION: a_connection(names=frozenset({"kube-scheduler"}), expires_at=1_000.0)}
        for now, caller in ((999.9, "kube-scheduler"), (1_000.0, None), (1_000.1, None)):
            monkeypatch.setattr(time, "time", lambda now=now: now)
            assert caller_of(environ) == caller


class TestBucket:
    def test_it_holds_a_seconds_calls_and_fills_as_time_goes_by(self) -> None:
        bucket = Bucket()
        taken = [bucket.take(per_second=4, now=100.0) for _ in range(5)]
        assert taken == [True] * 4 + [False]
        assert [bucket.take(per_second=4, now=100.5) for _ in range(3)] == [True, True, False]
        assert [bucket.take(per_second=4, now=200.0) for _ in range(5)] == [True] * 4 + [False]

    def test_what_is_refused_takes_nothing_out(self) -> None:
        bucket = Bucket()
        assert bucket.take(per_second=1, now=0.0)
        assert not any(bucket.take(per_second=1, now=0.5) for _ in range(10))
        assert bucket.take(per_second=1, now=1.0)

    def test_less_than_a_call_a_second_is_a_call_now_and_then(self) -> None:
        bucket = Bucket()
        assert [bucket.take(per_second=0.5, now=now) for now in (0.0, 1.0, 2.0, 3.0, 4.0)] == [
            True,
            False,
            True,
            False,
            True,
        ]


class TestCallRate:
    @pytest.fixture(autouse=True)
    def buckets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(identity, "_buckets", defaultdict(Bucket))
        monkeypatch.setattr(time, "monotonic", lambda: 100.0)

    @staticmethod
    def allowed(times: int, **environ: Any) -> int:
        """Return how many of so many calls are let through."""
        request: Any = Asked(**environ)
        found = 0
        for _ in range(times):
            with suppress(TooManyCalls):
                found += CallRate().allow_request(request, None)  # type: ignore[arg-type] # no view is asked
        return found

    def test_connections_of_this_machine_that_were_answered_have_a_bucket_each(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ours(monkeypatch, extender_calls_per_second=3)
        one, other, new, newer = a_connection(), a_connection(), a_connection(is_new=True), a_connection(is_new=True)
        here = {"REMOTE_ADDR": "127.0.0.1"}
        assert self.allowed(5, **here, **{CONNECTION: one}) == 3
        assert self.allowed(5, **here, **{CONNECTION: other}) == 3
        # First calls share one: who makes a connection for each call comes no further.
        assert self.allowed(2, **here, **{CONNECTION: new}) == 2
        assert self.allowed(5, **here, **{CONNECTION: newer}) == 1
        assert self.allowed(5, **here) == 0

    def test_with_tls_a_name_has_one_however_many_its_connections(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ours(
            monkeypatch,
            extender_calls_per_second=3,
            extender_tls_cert_file="/tls/server.pem",
            extender_clients=("a", "b"),
        )
        a, again, b = (a_connection(names=frozenset({name}), expires_at=2**40) for name in "aab")
        assert self.allowed(2, **{CONNECTION: a}) == 2
        assert self.allowed(5, **{CONNECTION: again}) == 1
        assert self.allowed(5, **{CONNECTION: b}) == 3
