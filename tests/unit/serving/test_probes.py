"""Probes on a listener of their own."""

import socket
import urllib.error
import urllib.request

import pytest

from scheduler.serving.probes import Probes, listen
from tests.stack import free_port


def asked(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_probes_say_what_is_missing_and_whether_the_process_gets_round() -> None:
    missing, alive, port = ["Revision"], [True], free_port()
    probes = Probes(f"127.0.0.1:{port}", unready=lambda: missing, is_alive=lambda: alive[0])
    probes.start()

    assert asked(port, "/readyz") == (503, '{"ok": false, "missing": ["Revision"]}')
    missing.clear()
    assert asked(port, "/readyz")[0] == 200
    assert asked(port, "/livez") == (200, "ok\n")
    alive[0] = False
    assert asked(port, "/livez")[0] == 503
    assert "berth_binder_leader" in asked(port, "/metrics")[1]
    assert asked(port, "/else")[0] == 404
    probes.stop()


def test_metrics_are_what_the_process_gives() -> None:
    port = free_port()
    probes = listen(f"127.0.0.1:{port}", unready=list, metrics=lambda: b"berth_decisions_lost_total 3\n")
    assert probes is not None
    assert asked(port, "/metrics") == (200, "berth_decisions_lost_total 3\n")
    assert asked(port, "/livez") == (200, "ok\n")
    probes.stop()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/else"])
def test_a_page_whose_name_leads_here_reads_nothing(path: str) -> None:
    port = free_port()
    probes = listen(f"127.0.0.1:{port}", unready=list)
    assert probes is not None
    assert asked(port, path, "evil.example:80") == (403, "the Host header names another server than this\n")
    assert asked(port, "/livez", "10.1.2.3:8013")[0] == 200
    probes.stop()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="IPv6 is off here")
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_all_addresses_are_those_of_ipv4_too_as_servers_have_it(host: str) -> None:
    port = free_port()
    probes = listen(f"[::]:{port}", unready=list)
    assert probes is not None
    with urllib.request.urlopen(f"http://{host}:{port}/livez", timeout=5) as answer:
        assert answer.status == 200
    probes.stop()


def test_without_an_address_nobody_listens() -> None:
    assert listen("", unready=list) is None


def test_an_address_that_is_taken_is_logged_and_the_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """Two workers on one machine by the same settings: the second one works without probes."""
    address = f"127.0.0.1:{free_port()}"
    first = listen(address, unready=list)
    assert first is not None
    assert listen(address, unready=list) is None
    assert f"probes and metrics aren't served: can't listen on {address}" in caplog.text
    first.stop()
