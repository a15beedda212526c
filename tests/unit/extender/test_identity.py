"""Who may call without TLS: this machine, and no address that only begins like its own."""

import pytest
from django.conf import settings

from scheduler.extender.identity import caller_of


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
