"""Ids of Decisions are UUIDs that sort by the time they were made at."""

import time
import uuid

import pytest

from scheduler.decisions.record import new_id


def test_an_id_is_a_uuid_of_version_7() -> None:
    found = uuid.UUID(new_id())
    assert (found.version, found.variant, str(found)) == (7, uuid.RFC_4122, str(found))


def test_ids_sort_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for milliseconds in (1, 2, 70_000, 1_800_000_000_000):
        monkeypatch.setattr(time, "time_ns", lambda now=milliseconds: now * 1_000_000)
        found.append(new_id())
    assert found == sorted(found)
    assert uuid.UUID(found[-1]).int >> 80 == 1_800_000_000_000


def test_a_thousand_ids_made_at_once_all_differ() -> None:
    assert len({new_id() for _ in range(1_000)}) == 1_000
