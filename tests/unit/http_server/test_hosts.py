"""Under which names probes are answered: none that a web page can have."""

import socket

import pytest

from scheduler.http_server.hosts import is_this_machine, may_probe


@pytest.mark.parametrize(
    "host",
    [
        None, "127.0.0.1:8011", "10.1.2.3:8011", "10.1.2.3", "[fd00::3]:8011", "localhost:8011", "berth-extender:8011",
        "berth-extender.berth.svc:8011", "berth-extender.berth.svc.cluster.local.:8011", "machine.internal",
        f"{socket.gethostname()}:8011",
    ],
)  # fmt: skip
def test_probes_are_answered_under_what_kubelets_and_prometheus_name(host: str | None) -> None:
    assert may_probe(host)


@pytest.mark.parametrize(
    "host",
    [
        "", ":8011", "evil.example", "evil.example:8011", "127.0.0.1.evil.example:8011", "a.svc.evil.example", "svc.example",
        "localhost.evil.example", "localhost, evil.example", "evil.example@127.0.0.1", "127.0.0.1/evil", "a" * 10_000 + ".example",
    ],
)  # fmt: skip
def test_probes_are_not_answered_under_a_page_s_name(host: str) -> None:
    assert not may_probe(host)


def test_a_name_that_is_set_is_answered_and_none_below_it() -> None:
    assert may_probe("Berth.Example.org:8011", ("berth.example.org",))
    assert not may_probe("a.berth.example.org:8011", ("berth.example.org",))


@pytest.mark.parametrize(
    ("address", "is_here"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::12.3.4.5", False),
        ("::1:2", False),
        ("::1234:0:0:1", False),
        ("128.0.0.1", False),
        ("::ffff:12.7.0.1", False),
        ("127.evil.example", False),
        ("", False),
    ],
)
def test_only_loopbacks_addresses_are_this_machines(address: str, is_here: bool) -> None:
    assert is_this_machine(address) is is_here
