"""Signs of life of a process that took up work."""

import threading
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError
from django.db.models.functions import Now

from policies.publishing import silence


class Rows:
    """Rows whose first sign of life the database doesn't take."""

    model = str

    def __init__(self, fault: Exception) -> None:
        self.fault = fault
        self.written: list[Any] = []
        self.is_again = threading.Event()

    def update(self, **fields: Any) -> int:
        self.written.append(fields)
        if len(self.written) == 1:
            raise self.fault
        self.is_again.set()
        return 1


@pytest.mark.parametrize("fault", [OperationalError("away"), InterfaceError("the connection is closed")])
def test_signs_of_life_go_on_during_a_long_step_and_after_the_database_was_away(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    monkeypatch.setattr(silence, "_BEAT_SECONDS", 0.01)
    rows = Rows(fault)
    with silence.beating(rows):  # type: ignore[arg-type] # as far as it is used
        assert rows.is_again.wait(30)
    assert all(fields == {"heartbeat_at": Now()} for fields in rows.written)
    assert "berth-beating" not in [thread.name for thread in threading.enumerate()]
