"""To which addresses nothing is sent, however they are written."""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.webhooks.targets import TargetError, read_url, refusal, resolve

# With the word for it, where every Python has the same.
FORBIDDEN = {
    "0.0.0.0": "unspecified",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "10.0.0.1": "",
    "172.16.0.1": "",
    "192.168.1.1": "",
    "100.64.0.1": "",
    "168.63.129.16": "Azure's host",
    "169.254.169.254": "link-local",
    "224.0.0.1": "multicast",
    "255.255.255.255": "",
    "::": "unspecified",
    "::1": "loopback",
    "::2": "",
    "fe80::1": "link-local",
    "fc00::1": "",
    "fd00:ec2::254": "",
    "fec0::1": "",
    "ff02::1": "multicast",
    "2001:db8::1": "",
    "64:ff9b:1::1": "",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:168.63.129.16": "Azure's host",
    "::ffff:169.254.169.254": "link-local",
    "::10.0.0.1": "",
    "2002:7f00:1::1": "loopback",
    "64:ff9b::a9fe:a9fe": "link-local",
}
_V4_FORBIDDEN = [ip_network(text) for text in ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]
_V4_FORBIDDEN += [
    ip_network(text) for text in ("169.254.0.0/16", "224.0.0.0/4", "0.0.0.0/8", "100.64.0.0/10", "168.63.129.16/32")
]
LOCAL = [ip_network("127.0.0.0/8")]


@pytest.mark.parametrize("text", sorted(FORBIDDEN))
def test_what_stands_beside_berth_is_no_target(text: str) -> None:
    assert f" is {FORBIDDEN[text]}" in refusal(ip_address(text))


@pytest.mark.parametrize("text", ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_what_anybody_reaches_is_a_target(text: str) -> None:
    assert refusal(ip_address(text)) == ""


@given(st.sampled_from(_V4_FORBIDDEN), st.integers(0, 2**32 - 1))
def test_no_way_of_writing_a_forbidden_address_lets_it_pass(network: Any, chance: int) -> None:
    inner = IPv4Address(int(network.network_address) + chance % network.num_addresses)
    ways = [
        inner,
        IPv6Address(f"::ffff:{inner}"),
        IPv6Address(int(IPv6Address("64:ff9b::")) | int(inner)),
        IPv6Address(int(IPv6Address("2002::")) | int(inner) << 80),
    ]
    assert refusal(IPv6Address(int(inner)), [network]), "a spelling that nobody routes"
    for address in ways:
        assert refusal(address), address
        assert refusal(address, [ip_network("203.0.113.0/24")]), "another network is allowed"
        assert refusal(address, [network]) == "", "its own is"


@given(st.ip_addresses())
def test_what_is_let_pass_is_global_and_nobodys_group(address: Any) -> None:
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    if not refusal(address):
        assert (inner or address).is_global or address in ip_network("64:ff9b::/96")
        assert not (inner or address).is_multicast


@pytest.mark.parametrize(
    "url",
    ["", "ftp://example.org/", "https://", "https:///x", "example.org", "https://a b/", "https://u:p@example.org/", "https://u@example.org/",
     "https://example.org:99999/", "https://exa\nmple.org/", "javascript:alert(1)", "https://[::1", "https://x/" + "y" * 2000],
)  # fmt: skip
def test_what_is_no_url_of_a_webhook_is_refused(url: str) -> None:
    with pytest.raises(TargetError):
        read_url(url)


def test_a_url_is_read_to_what_is_asked() -> None:
    target = read_url("https://hooks.example.org:8443/services/a?b=c#d")
    assert (target.host, target.port, target.path) == ("hooks.example.org", 8443, "/services/a?b=c")
    assert target.host_header == "hooks.example.org:8443"
    assert read_url("https://[2606:4700::1]").host_header == "[2606:4700::1]"
    assert read_url("https://hooks.example.org").path == "/"
    assert read_url("https://hooks.example.org?a=b").path == "/?a=b"


def found(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    asked: list[str] = []

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


def test_a_name_is_looked_up_once_and_its_addresses_are_what_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = found(monkeypatch, "8.8.8.8", "8.8.4.4")
    assert resolve(read_url("https://hooks.example.org/"), []) == ["8.8.8.8", "8.8.4.4"]
    assert asked == ["hooks.example.org"]


def test_a_name_that_leads_here_too_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, "8.8.8.8", "127.0.0.1")
    with pytest.raises(TargetError, match=r"127\.0\.0\.1 is loopback"):
        resolve(read_url("https://hooks.example.org/"), [])


@pytest.mark.parametrize(
    "url", ["https://2130706433/", "https://0x7f.1/", "https://localhost/", "https://[::ffff:7f00:1]/"]
)
def test_no_spelling_of_loopback_is_a_target(url: str) -> None:
    with pytest.raises(TargetError, match=r"isn't a target|can't be found"):
        resolve(read_url(url), [])


def test_in_clear_it_is_sent_to_networks_that_are_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, "8.8.8.8")
    with pytest.raises(TargetError, match="https:// alone"):
        resolve(read_url("http://hooks.example.org/"), LOCAL)
    assert resolve(read_url("http://hooks.example.org/"), [ip_network("8.8.8.0/24")]) == ["8.8.8.8"]
