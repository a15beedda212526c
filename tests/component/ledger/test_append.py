"""Each stored Decision is a leaf: the hash of what its writer had on disk."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policies.engine.objects.pod import Pod
from scheduler.decisions.reading import body_of, exact_bytes
from scheduler.decisions.record import AS_COLUMNS, AS_RECORD, Outcome, make_compressor, payload_of
from scheduler.decisions.segments import Position, Segments
from scheduler.ledger.append import Appender, read_edge
from scheduler.ledger.logs import DECISIONS, OUTCOMES
from scheduler.ledger.tree import HASH_BYTES, ProofError, leaf_hash
from scheduler.models import DeadLetter, Decision, LedgerHead, LedgerTile
from scheduler.models import Outcome as OutcomeRow
from tests.builders import make_pod
from tests.recording import History, Prepared, outcome_of
from tests.unit.ledger.test_tree import root_of

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 1, tzinfo=UTC)


def record(history: Any, *names: str) -> None:
    for name in names:
        history.recorder.record(Prepared(verb="bind", pod=Pod.from_json(make_pod(name)), now=AT))


def leaves() -> list[bytes]:
    data = b"".join(bytes(tile.hashes) for tile in LedgerTile.objects.filter(log=DECISIONS, level=0).order_by("number"))
    return [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]


def test_a_leaf_is_the_hash_of_what_stood_on_the_writers_disk(tmp_path: Path) -> None:
    history = History(tmp_path)
    record(history, "a", "b", "c")
    frames = Segments(tmp_path / "extender@test").read(Position(1, 0)).frames
    history.settle()
    rows = list(Decision.objects.order_by("ledger_index"))
    assert [row.ledger_index for row in rows] == [0, 1, 2]
    assert [exact_bytes(row) for row in rows] == [frame.payload for frame in frames]
    assert leaves() == [leaf_hash(frame.payload) for frame in frames]
    head = LedgerHead.objects.get(log=DECISIONS)
    assert (head.size, bytes(head.root), head.unlogged) == (3, root_of(leaves()), 0)


def test_batches_continue_the_tree_over_tiles(tmp_path: Path) -> None:
    history = History(tmp_path)
    for start in range(0, 600, 200):
        record(history, *(f"pod-{number}" for number in range(start, start + 200)))
        history.settle()
    head = LedgerHead.objects.get(log=DECISIONS)
    assert head.size == Decision.objects.count() == 600
    assert bytes(head.root) == root_of(leaves()) == read_edge(DECISIONS, 600).root()
    assert [leaf_hash(exact_bytes(row)) for row in Decision.objects.order_by("ledger_index")] == leaves()


def test_what_the_database_refuses_gets_no_leaf(tmp_path: Path) -> None:
    history = History(tmp_path)
    record(history, "a", "b", "c")
    history.ship()
    Decision.objects.create(process="extender@test", sequence=2, at=AT, verb="bind", revision=0)
    history.settle()
    rows = Decision.objects.exclude(ledger_index=None).order_by("ledger_index")
    assert [(row.ledger_index, row.pod_name) for row in rows] == [(0, "a"), (1, "c")]
    assert [leaf_hash(exact_bytes(row)) for row in rows] == leaves()
    assert DeadLetter.objects.count() == 1
    assert LedgerHead.objects.get(log=DECISIONS).unlogged == 1


def test_records_that_an_older_version_shipped_are_logged_alike(tmp_path: Path) -> None:
    history = History(tmp_path)
    record(history, "a", "b")
    history.ship()
    for shipment in history.stream.entries.values():
        assert not isinstance(shipment, dict)
        exact = make_exact(shipment.data)
        start = 4 + int.from_bytes(exact[:4], "little")
        shipment.data = exact[:start] + AS_COLUMNS + make_compressor().compress(exact[start:])
    history.settle()
    rows = list(Decision.objects.order_by("ledger_index"))
    assert [leaf_hash(exact_bytes(row)) for row in rows] == leaves()
    assert [body_of(row)["pod"]["metadata"]["name"] for row in rows] == ["a", "b"]


def make_exact(data: bytes) -> bytes:
    from scheduler.decisions.record import record_of, split

    return record_of(split(data)[1])


def test_a_head_that_is_not_the_records_own_is_put_aside(tmp_path: Path) -> None:
    history = History(tmp_path)
    record(history, "a")
    history.ship()
    [shipment] = history.stream.entries.values()
    assert not isinstance(shipment, dict)
    exact = make_exact(shipment.data)
    other = exact.replace(b"\xa1a", b"\xa1b", 1)
    start = 4 + int.from_bytes(exact[:4], "little")
    shipment.data = other[:start] + AS_RECORD + make_compressor().compress(exact)
    history.settle()
    assert not Decision.objects.exists()
    assert "the head in front of it is not its own" in DeadLetter.objects.get().reason


def test_a_decision_of_version_0_1_0_has_a_leaf_over_its_columns_and_its_json(tmp_path: Path) -> None:
    history = History(tmp_path)
    fields = {
        "id": "5a5a5a5a-0000-4000-8000-000000000001", "at": AT.isoformat(), "process": "old", "sequence": 1,
        "verb": "filter", "pod_namespace": "default", "pod_name": "web", "pod_uid": "u", "revision": 1,
        "body": {"pod": {}},
    }  # fmt: skip
    history.stream.entries[b"9-9"] = {b"d": msgspec.json.encode(fields)}
    history.settle()
    row = Decision.objects.get()
    assert leaves() == [leaf_hash(exact_bytes(row))]
    row.pod_name = "other"
    assert leaves() != [leaf_hash(exact_bytes(row))]


def test_a_log_whose_last_tile_is_gone_takes_nothing(tmp_path: Path) -> None:
    history = History(tmp_path)
    record(history, "a")
    history.settle()
    LedgerTile.objects.all().delete()
    with pytest.raises(ProofError, match="tile 0/0 has not 1 hashes"):
        Appender(DECISIONS, AT)


@pytest.mark.parametrize("kept", [0, 1, 256, 300])
def test_a_log_whose_head_is_older_than_its_tiles_takes_nothing(tmp_path: Path, kept: int) -> None:
    """Whoever restores this table alone would otherwise have hashes overwritten, and numbers of leaves given twice."""
    history = History(tmp_path)
    older = None
    for count in (1, 255, 44, 3):
        record(history, *(f"pod-{number}" for number in range(count)))
        history.settle()
        head = LedgerHead.objects.get(log=DECISIONS)
        older = head if head.size == kept else older
    before = leaves()
    LedgerHead.objects.all().delete()
    if older is not None:
        older.save(force_insert=True)
    with pytest.raises(ProofError, match=f"has {kept} leaves by its row in scheduler_ledgerhead, which is older"):
        Appender(DECISIONS, AT)
    assert leaves() == before


@pytest.mark.parametrize(("log", "table"), [(DECISIONS, "scheduler_decision"), (OUTCOMES, "scheduler_outcome")])
@pytest.mark.parametrize("kept", [0, 3])
def test_a_log_that_is_older_than_its_rows_takes_nothing_until_it_is_as_new(
    tmp_path: Path, log: str, table: str, kept: int
) -> None:
    """Whoever restores all of the ledger's tables, and no other, would otherwise have numbers of leaves given twice."""
    history = History(tmp_path)
    states: dict[int, list[Any]] = {0: []}
    for number in range(5):
        record(history, f"pod-{number}")
        history.recorder.record_outcome(outcome_of(f"pod-{number}", "n1", AT))
        history.settle()
        states[number + 1] = [*LedgerHead.objects.all(), *LedgerTile.objects.all()]
    restore(states[kept])
    with pytest.raises(ProofError, match=f"a row of {table} claims leaf 4, and the log {log} has only {kept}:"):
        Appender(log, AT)
    restore(states[5])
    assert Appender(log, AT).size == 5


def restore(rows: list[Any]) -> None:
    """Write these rows into the tables of heads and tiles, in place of theirs."""
    LedgerHead.objects.all().delete()
    LedgerTile.objects.all().delete()
    for row in rows:
        row.save(force_insert=True)


def test_only_the_first_batch_of_a_process_looks_for_rows_beyond_the_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
    django_assert_num_queries: Any,
) -> None:
    monkeypatch.setattr("scheduler.ledger.append._sizes_left", {})
    history = History(tmp_path)
    record(history, "a")
    with django_capture_on_commit_callbacks(execute=True):
        history.settle()
    with django_assert_num_queries(4):
        Appender(DECISIONS, AT).append([])
    monkeypatch.setattr("scheduler.ledger.append._sizes_left", {DECISIONS: 2})
    with django_assert_num_queries(5):
        Appender(DECISIONS, AT).append([])


def test_payloads_keep_head_and_body_apart() -> None:
    assert b"".join(payload_of(b"head", b"body")) == b"\x04\0\0\0headbody"


def test_what_became_of_a_pod_is_a_leaf_of_a_log_of_its_own(tmp_path: Path) -> None:
    history = History(tmp_path)
    for uid in ("u1", "u2", "u1"):
        outcome = Outcome(pod_uid=uid, pod_namespace="default", pod_name=uid, node_name="n1", at=AT)
        history.recorder.record_outcome(outcome)
    frames = Segments(tmp_path / "extender@test").read(Position(1, 0)).frames
    history.settle()
    rows = list(OutcomeRow.objects.order_by("ledger_index"))
    assert [(row.ledger_index, row.pod_uid) for row in rows] == [(0, "u1"), (1, "u2")]
    tile = LedgerTile.objects.get(log=OUTCOMES)
    assert bytes(tile.hashes) == leaf_hash(frames[0].payload) + leaf_hash(frames[1].payload)
