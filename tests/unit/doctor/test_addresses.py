"""What an address tells."""

import pytest

from scheduler.doctor.addresses import is_loopback, secret_in, split, target, without_secrets


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST"])
def test_the_machine_itself_has_several_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "berth", "::2", "0.0.0.0", "localhost.example"])
def test_other_machines_are_not_it(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("url", "there"),
    [
        ("https://Berth.example./", ("berth.example", 443)), ("http://[::1]:8010", ("loopback", 8010)),
        ("http://a", ("a", 80)), ("//a", ("a", 0)), ("", ("", 0)), ("http://[::1", ("", 0)), ("http://a:99999", ("", 0)),
    ],
)  # fmt: skip
def test_a_url_leads_to_a_host_and_a_port(url: str, there: tuple[str, int]) -> None:
    assert target(url) == there


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pw@berth.example:8010/a?b=c", "https://berth.example:8010/a?b=c"),
        ("https://berth.example?token=abc", "https://berth.example/…"),
        ("https://[2001:db8::1]:8010", "https://[2001:db8::1]:8010"),
        ("http://[::1", "(not a URL)"), ("", ""),
    ],
)  # fmt: skip
def test_a_url_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


def test_a_url_that_cannot_be_read_may_still_hold_a_user() -> None:
    assert split("http://a@[::1") is None
    assert secret_in("http://a@[::1") == "user name"
    assert secret_in("http://[::1") == ""
