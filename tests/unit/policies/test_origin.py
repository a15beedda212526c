"""Who runs a command, and from where a request comes."""

import os

import pytest

from policies.origin import address_of, system_user


def test_an_account_without_a_name_is_called_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a Pod whose number OpenShift chose: no file of its image knows it."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 1_000_700_000)

    assert system_user() == "uid 1000700000"


@pytest.mark.parametrize(
    ("said", "address"),
    [("", "10.0.0.1"), ("198.51.100.7", "10.0.0.1 for 198.51.100.7"), ("a" * 187, f"10.0.0.1 for {'a' * 187}")],
)
def test_an_address_has_the_connections_and_whom_a_proxy_says_it_asks_for(said: str, address: str) -> None:
    assert address_of("10.0.0.1", said) == address


def test_what_a_client_says_in_front_does_not_push_out_what_the_proxy_adds() -> None:
    address = address_of("10.0.0.1", f"{', '.join(['203.0.113.9'] * 40)}, 198.51.100.7")
    assert address.startswith("10.0.0.1 for …")
    assert address.endswith(", 198.51.100.7")
    assert len(address) == 200
