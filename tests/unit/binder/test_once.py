"""One pass without Celery: what it says where it can't begin."""

from types import SimpleNamespace

import pytest

from scheduler.binder import once


def test_a_pass_that_cannot_begin_says_what_is_missing_and_who_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    unready = SimpleNamespace(
        start=lambda: None,
        stop=lambda: None,
        elector=SimpleNamespace(leads=lambda: False),
        unready=lambda: ["Revision", "Snapshot"],
    )
    monkeypatch.setattr(once, "Runtime", lambda identity: unready)
    with pytest.raises(once.NotReadyError, match=r"without a Revision and a Snapshot: manage\.py doctor says whether"):
        once.schedule_once(0.1)
