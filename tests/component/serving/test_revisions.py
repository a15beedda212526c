"""The Revision that a process serves: from the database, from disk, swapped whole."""

from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError

from policies import publishing
from policies.engine.decision import CompiledRevision
from scheduler.serving import revisions
from scheduler.serving.revisions import RevisionHolder
from tests.builders import make_rule_set

pytestmark = pytest.mark.django_db


def publish(name: str, expression: str = "true") -> int:
    version = publishing.create_rule_set(name=name, description="", by="operator")
    rule_set = make_rule_set(name=name, filters=[{"name": "f", "expression": expression}])
    draft = publishing.save_draft(version=version, rule_set=rule_set, by="operator")
    revision = publishing.publish(version=draft, by="operator", reason="test")
    assert revision is not None
    return revision.number


def make_holder(tmp_path: Path, seen: list[int] | None = None) -> RevisionHolder:
    numbers = [] if seen is None else seen
    return RevisionHolder(
        path=tmp_path / "revision.json", poll_seconds=60, on_change=lambda revision: numbers.append(revision.number)
    )


def number_of(holder: RevisionHolder) -> int | None:
    return holder.current.number if isinstance(holder.current, CompiledRevision) else None


def test_an_empty_database_is_served_as_revision_0(tmp_path: Path) -> None:
    holder = make_holder(tmp_path)
    assert number_of(holder) is None
    holder.poll()
    assert number_of(holder) == 0


def test_each_new_revision_is_taken_up_once(tmp_path: Path) -> None:
    seen: list[int] = []
    holder = make_holder(tmp_path, seen)
    first = publish("one")
    holder.poll()
    holder.poll()
    second = publish("two")
    holder.poll()

    assert seen == [first, second]
    assert holder.taken_up_at is not None
    assert set(holder.current.rule_sets) == {"one", "two"}  # type: ignore[union-attr]


def test_a_database_that_is_away_leaves_the_revision_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = make_holder(tmp_path)
    number = publish("one")
    holder.poll()

    def away(*_arguments: Any) -> None:
        message = "away"
        raise DatabaseError(message)

    with monkeypatch.context() as patched:
        patched.setattr(RevisionHolder, "_poll_once", away)
        patched.setattr(revisions.connection, "close", lambda: None)
        holder.poll()
        holder.poll()
    assert number_of(holder) == number
    holder.poll()
    assert number_of(holder) == number


def test_a_start_without_a_database_serves_what_was_kept_on_disk(tmp_path: Path) -> None:
    number = publish("one")
    make_holder(tmp_path).poll()

    started = make_holder(tmp_path)
    started._read_kept()
    assert number_of(started) == number


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_a_kept_file_that_is_of_no_use_is_passed_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "revision.json").write_bytes(content)
    holder = make_holder(tmp_path)
    holder._read_kept()
    assert number_of(holder) is None


def test_a_revision_that_can_not_be_compiled_leaves_the_one_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = make_holder(tmp_path)
    number = publish("one")
    holder.poll()
    publish("two")

    def refuse(_revision: Any) -> None:
        raise KeyError

    with monkeypatch.context() as patched:
        patched.setattr(revisions, "CompiledRevision", refuse)
        holder.poll()
        holder.poll()
    assert number_of(holder) == number


def test_a_disk_that_is_full_does_not_stop_the_swap(tmp_path: Path) -> None:
    (tmp_path / "revision.new").mkdir()
    holder = make_holder(tmp_path)
    number = publish("one")
    holder.poll()
    assert number_of(holder) == number
