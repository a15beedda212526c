"""Who runs a command."""

import os

import pytest

from policies.origin import system_user


def test_an_account_without_a_name_is_called_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a Pod whose number OpenShift chose: no file of its image knows it."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 1_000_700_000)

    assert system_user() == "uid 1000700000"
