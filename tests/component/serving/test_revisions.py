"""The Revision that a process serves: from the database, from disk, swapped whole."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.db import DatabaseError

from policies import publishing
from policies.engine.decision import CompiledRevision
from policies.engine.ruleset import decode_revision, encode
from scheduler.metrics import PUBLISH_TO_SERVED
from scheduler.serving import revisions
from scheduler.serving.revisions import RevisionHolder
from tests.builders import make_assignment, make_rule_set
from tests.component.pages import publish_all

pytestmark = pytest.mark.django_db


def publish(name: str, expression: str = "true") -> int:
    rule_set = make_rule_set(name=name, filters=[{"name": "f", "expression": expression}])
    return publish_all(rule_set).number


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


def test_only_a_revision_published_while_the_process_runs_says_how_long_a_publish_took(tmp_path: Path) -> None:
    def publishes() -> float:
        (metric,) = PUBLISH_TO_SERVED.collect()
        return next(sample.value for sample in metric.samples if sample.name.endswith("_count"))

    before = publishes()
    publish("one")
    holder = make_holder(tmp_path)
    holder.poll()
    assert publishes() == before
    publish("two")
    holder.poll()
    assert publishes() == before + 1


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


def test_a_first_look_at_a_database_that_is_away_says_that_there_is_no_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_arguments: Any) -> None:
        message = "away"
        raise DatabaseError(message)

    holder = make_holder(tmp_path)
    monkeypatch.setattr(RevisionHolder, "_poll_once", away)
    monkeypatch.setattr(revisions.connection, "close", lambda: None)
    holder.poll()
    assert caplog.messages == ["database unreachable, there is no Revision to serve yet: away"]


def test_each_cause_for_which_the_database_is_away_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A database that a failover ends refuses its role or its connections afterwards; what it says first is no cause."""
    causes = iter(
        ["terminating connection", "no route", "too many connections\nLINE 1", "too many connections\nLINE 2"]
    )

    def away(*_arguments: Any) -> None:
        raise DatabaseError(next(causes))

    holder = make_holder(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(RevisionHolder, "_poll_once", away)
        patched.setattr(revisions.connection, "close", lambda: None)
        for _ in range(3):
            holder.poll()
    holder.poll()
    said = [message.partition("yet: ")[2] for message in caplog.messages if message.startswith("database unreachable")]
    assert said == ["no route", "too many connections\nLINE 1"]
    assert caplog.messages.count("database reachable again") == 1


def test_a_connection_that_was_ended_is_no_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    holder = make_holder(tmp_path)
    holder.poll()
    number = publish("one")
    look, faults = RevisionHolder._poll_once, [DatabaseError("terminating connection")]

    def ended_once(self: RevisionHolder) -> None:
        if faults:
            raise faults.pop()
        look(self)

    monkeypatch.setattr(RevisionHolder, "_poll_once", ended_once)
    monkeypatch.setattr(revisions.connection, "close", lambda: None)
    holder.poll()
    assert (holder.reachable, number_of(holder)) == (True, number)
    assert not [message for message in caplog.messages if "unreachable" in message]


@pytest.mark.parametrize("table", ["policies_revision", "policies_revisionpart"])
def test_a_database_that_hangs_counts_as_unreachable_until_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    publish("one")
    holder = make_holder(tmp_path)
    seen: list[bool] = []
    now = 1000.0

    def hangs(execute: Any, query: str, *arguments: Any) -> Any:
        nonlocal now
        if f'FROM "{table}"' in query and not seen:
            for seconds in (0.0, revisions.HANGS_SECONDS - 1, 1.0):
                now += seconds
                seen.append(holder.reachable)
        return execute(query, *arguments)

    monkeypatch.setattr(revisions.time, "monotonic", lambda: now)
    with revisions.connection.execute_wrapper(hangs):
        holder.poll()
    assert (seen, holder.reachable) == ([True, True, False], True)


def test_a_database_that_is_slow_at_each_of_several_queries_is_reachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish("one")
    holder = make_holder(tmp_path)
    seen: list[bool] = []
    now = 1000.0

    def slow(execute: Any, *query: Any) -> Any:
        nonlocal now
        now += revisions.HANGS_SECONDS - 1
        seen.append(holder.reachable)
        return execute(*query)

    monkeypatch.setattr(revisions.time, "monotonic", lambda: now)
    with revisions.connection.execute_wrapper(slow):
        holder.poll()
    assert len(seen) > 3
    assert all(seen)


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

    def refuse(_revision: Any, **_: Any) -> None:
        raise KeyError

    with monkeypatch.context() as patched:
        patched.setattr(revisions, "CompiledRevision", refuse)
        holder.poll()
        holder.poll()
    assert number_of(holder) == number


def test_a_revision_with_a_part_of_a_newer_berth_leaves_the_one_in_use_until_another_is_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    holder = make_holder(tmp_path)
    first = publish("one")
    holder.poll()
    number = publish("two")

    def refuse(*_: Any) -> None:
        message = "Invalid enum value 'newer'"
        raise msgspec.ValidationError(message)

    with monkeypatch.context() as patched:
        patched.setattr(revisions, "stored_revision", refuse)
        holder.poll()
        holder.poll()
    assert number_of(holder) == first
    (said,) = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert said == f"Revision {number} can't be used, still serving Revision {first}: Invalid enum value 'newer'"

    last = publish("three")
    holder.poll()
    assert number_of(holder) == last


def test_a_disk_that_is_full_does_not_stop_the_swap(tmp_path: Path) -> None:
    (tmp_path / "revision.new").mkdir()
    holder = make_holder(tmp_path)
    number = publish("one")
    holder.poll()
    assert number_of(holder) == number


def test_what_a_publish_did_not_change_stays_the_same_compiled_object(tmp_path: Path) -> None:
    holder = make_holder(tmp_path)
    publish("one")
    publish("two")
    holder.poll()
    before = holder.current
    publish("three")
    holder.poll()
    assert before is not None
    assert holder.current is not None
    assert holder.current is not before
    assert holder.current.rule_sets["one"] is before.rule_sets["one"]
    assert holder.current.rule_sets["two"] is before.rule_sets["two"]
    assert [each.name for each in holder.current.to_warm] == ["three"]


def test_only_parts_that_changed_are_read(tmp_path: Path, django_assert_max_num_queries: Any) -> None:
    holder = make_holder(tmp_path)
    for number in range(5):
        publish(f"set-{number}")
    holder.poll()
    publish("more")
    with django_assert_max_num_queries(5) as asked:
        holder.poll()
    (read,) = [query["sql"] for query in asked.captured_queries if 'FROM "policies_part"' in query["sql"]]
    assert read.count("'") <= 2, read
    assert number_of(holder) == 6


def test_what_was_kept_on_disk_is_not_compiled_again(tmp_path: Path) -> None:
    publish("one")
    make_holder(tmp_path).poll()
    started = make_holder(tmp_path)
    started._read_kept()
    kept = started.current
    started.poll()
    assert kept is not None
    assert started.current is not None
    assert started.current.rule_sets["one"] is kept.rule_sets["one"]


def test_the_file_on_disk_holds_the_whole_revision(tmp_path: Path) -> None:
    publish("one")
    publish("two")
    publish_all(make_assignment("all", "two"))
    make_holder(tmp_path).poll()
    kept = (tmp_path / "revision.json").read_bytes()
    assert decode_revision(kept) == publishing.current_revision()
    assert kept == encode(publishing.current_revision())


def test_another_content_under_the_same_number_is_taken_up(tmp_path: Path) -> None:
    """As after a restore: Revision 1 is there again, with another digest."""
    holder = make_holder(tmp_path)
    publish("one")
    holder.poll()
    holder._seen = (1, "the digest of another Revision 1")
    holder._stored = publishing.StoredRevision(1, "the digest of another Revision 1", "", {})
    holder.poll()
    assert set(holder.current.rule_sets) == {"one"}  # type: ignore[union-attr]
    assert holder._seen[1] == publishing.current_revision().digest


def test_calls_go_first_once_a_revision_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = make_holder(tmp_path)
    rests: list[int] = []
    monkeypatch.setattr(holder._pace, "rest", lambda: rests.append(1))
    publish("one")
    holder.poll()
    assert rests == []
    publish("two")
    holder.poll()
    assert rests == [1]


def test_what_is_kept_on_disk_is_for_the_owner_alone(tmp_path: Path) -> None:
    kept = tmp_path / "revision.new"
    kept.write_text("of an older Berth, which could be read by everybody")
    publish("one")
    make_holder(tmp_path).poll()
    assert (tmp_path / "revision.json").stat().st_mode & 0o777 == 0o600
