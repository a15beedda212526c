"""Which requests could be a web page's, by their headers."""

import socket

import msgspec
import pytest
from django.conf import settings
from django.test import RequestFactory

from scheduler.extender.origin import is_known_host, refusal_of
from scheduler.extender.views import HealthView

KUBE_SCHEDULERS = {"CONTENT_TYPE": "application/json", "HTTP_USER_AGENT": "Go-http-client/1.1"}


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8010",
        "127.0.0.1",
        "127.9.8.7:80",
        "localhost",
        "LocalHost:8010",
        "localhost.:8010",
        "[::1]:8010",
        "[::1]",
    ],
)
def test_names_and_addresses_of_loopback_are_known(host: str) -> None:
    assert is_known_host(host, (), with_tls=False)


def test_the_machines_own_name_is_known() -> None:
    assert is_known_host(f"{socket.gethostname()}:8010", (), with_tls=False)


@pytest.mark.parametrize(
    "host",
    [
        "", ":8010", "evil.example", "evil.example:8010", "127.0.0.1.evil.example", "localhost.evil.example",
        "localhost, evil.example", "evil.example@127.0.0.1", "127.0.0.1:8010/evil", "127.0.0.1:8010:8010", "127.1",
        "0x7f.1", "2130706433", "10.0.0.1:8010", "[fe80::1]", "[::1", "localhost\t", "a" * 10_000,
    ],
)  # fmt: skip
def test_any_other_host_is_not(host: str) -> None:
    assert not is_known_host(host, (), with_tls=False)


def test_names_that_are_set_are_known_and_no_names_below_them() -> None:
    known = ("berth-extender.berth.svc", "[2001:db8::1]")
    assert is_known_host("Berth-Extender.berth.svc:8010", known, with_tls=True)
    assert is_known_host("[2001:db8::1]:8010", known, with_tls=True)
    assert not is_known_host("a.berth-extender.berth.svc", known, with_tls=True)


def test_with_tls_the_client_has_checked_the_name() -> None:
    assert is_known_host("berth-extender.berth.svc:8010", (), with_tls=True)
    assert not is_known_host("", (), with_tls=True)


def test_kube_schedulers_call_is_taken() -> None:
    assert refusal_of({**KUBE_SCHEDULERS, "HTTP_HOST": "127.0.0.1:8010"}) == ""


@pytest.mark.parametrize("name", ["HTTP_ORIGIN", "HTTP_SEC_FETCH_SITE"])
@pytest.mark.parametrize("text", ["null", "http://127.0.0.1:8010", "cross-site", "same-origin", ""])
def test_what_a_browser_sends_along_is_refused_and_not_repeated(name: str, text: str) -> None:
    refusal = refusal_of({**KUBE_SCHEDULERS, "HTTP_HOST": "127.0.0.1:8010", name: text})
    assert "web pages" in refusal
    assert not text or text not in refusal


def test_the_refusal_of_a_host_names_the_setting_and_not_the_host() -> None:
    before = settings.BERTH
    try:
        assert "BERTH_EXTENDER_HOSTS" in refusal_of({**KUBE_SCHEDULERS, "HTTP_HOST": "evil.example"})
        settings.BERTH = msgspec.structs.replace(before, extender_hosts=("evil.example",))
        assert refusal_of({**KUBE_SCHEDULERS, "HTTP_HOST": "evil.example"}) == ""
    finally:
        settings.BERTH = before


@pytest.mark.parametrize("probe", ["livez", "readyz", "metrics"])
@pytest.mark.parametrize(("host", "status"), [("evil.example:8010", 403), ("127.0.0.1:8010", 200), ("10.1.2.3", 200)])
def test_probes_are_not_answered_under_a_page_s_name(probe: str, host: str, status: int) -> None:
    request = RequestFactory().get(f"/{probe}", headers={"Host": host})
    assert HealthView.as_view(probe=probe)(request).status_code == status
