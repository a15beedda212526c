"""What became of Pods, on its way into the database and joined to their Decisions."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.db import DatabaseError, connection, transaction

from policies.engine.objects.node import Node
from policies.engine.objects.snapshot import Snapshot
from scheduler.decisions.ingest import ingest
from scheduler.decisions.node_names import names_of
from scheduler.decisions.record import UNWATCHED, Best, read_outcome
from scheduler.decisions.stream import DecisionStream
from scheduler.models import DeadLetter, Decision, DecisionGap, PlacedPod
from scheduler.models import Outcome as OutcomeRow
from tests.builders import make_node
from tests.component.decisions.real_history import AT, RealHistory, make_entry
from tests.recording import outcome_of

pytestmark = pytest.mark.django_db


def best_of(node: str) -> Best:
    table = Snapshot.of([Node.from_json(make_node(node))]).table
    return Best(names_of(table), np.array([0]), np.array([True]))


class TestOutcomes:
    def test_a_pods_node_is_joined_to_all_its_decisions(self, real_history: RealHistory) -> None:
        for name in ("web", "other", "web"):
            real_history.recorder.record(make_entry(name))
        real_history.recorder.record_outcome(outcome_of("web", "n1", AT))
        real_history.settle()
        found = Decision.objects.order_by("sequence").values_list("placed_on", "placed_at", "placed_best")
        assert list(found) == [("n1", AT, None), ("", None, None), ("n1", AT, None)]

    def test_who_knew_whether_it_was_the_best_is_believed(self, tmp_path: Path, stream: DecisionStream) -> None:
        histories = [RealHistory(tmp_path / name, stream, name) for name in ("knows", "doesn't")]
        histories[0].recorder.record(make_entry("web", best_nodes=best_of("n1")))
        for real_history in histories:
            real_history.recorder.record_outcome(outcome_of("web", "n1", AT))
            real_history.settle()
            real_history.spool.close()
        assert Decision.objects.get().placed_best is True

    @pytest.mark.parametrize("order", [("knows", "saw"), ("saw", "knows")])
    def test_what_several_saw_is_joined_before_the_decision_is_stored(
        self, tmp_path: Path, stream: DecisionStream, order: tuple[str, str]
    ) -> None:
        """A row that is changed afterwards is written anew, with all its indexes."""
        histories = {name: RealHistory(tmp_path / name, stream, name) for name in order}
        histories["knows"].recorder.record(make_entry("web", best_nodes=best_of("n1")))
        for seconds, real_history in enumerate(histories.values()):
            real_history.recorder.record_outcome(outcome_of("web", "n1", AT + timedelta(seconds=seconds)))
            real_history.ship()
        changed: list[int] = []

        def count(execute: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
            found = execute(sql, params, many, context)
            if sql.startswith("UPDATE scheduler_decision"):
                changed.append(context["cursor"].rowcount)
            return found

        with connection.execute_wrapper(count):
            assert ingest(stream) == 3
        for real_history in histories.values():
            real_history.spool.close()
        assert changed
        assert set(changed) == {0}
        assert list(Decision.objects.values_list("placed_on", "placed_best")) == [("n1", True)]

    def test_of_several_who_saw_the_same_one_record_is_kept_as_it_was_written(
        self, tmp_path: Path, stream: DecisionStream
    ) -> None:
        histories = [RealHistory(tmp_path / name, stream, name) for name in ("first", "second")]
        written = [outcome_of("web", "n1", AT, by="default-scheduler"), outcome_of("web", "", AT, kind="deleted")]
        for real_history in histories:
            for outcome in written:
                real_history.recorder.record_outcome(outcome)
            real_history.settle()
            real_history.spool.close()
        rows = OutcomeRow.objects.order_by("sequence")
        assert [(row.process, row.sequence, row.kind) for row in rows] == [
            ("first", 1, "bound"),
            ("first", 2, "deleted"),
        ]
        assert [bytes(row.body) for row in rows] == [outcome.encode() for outcome in written]
        assert [read_outcome(bytes(row.body)) for row in rows] == written
        assert not PlacedPod.objects.exists()

    @pytest.mark.parametrize(
        ("watched", "unwatched"),
        [
            (("n1", "deleted", ""), ("n1", "ended", UNWATCHED)),
            (("n1", "preempted", ""), ("n1", "ended", UNWATCHED)),
            (("n1", "ended", ""), ("n1", "ended", UNWATCHED)),
            (("", "unbound", ""), ("", "gone", "")),
        ],
    )
    @pytest.mark.parametrize("together", [True, False])
    def test_that_nobody_watched_a_pods_end_is_not_kept_where_another_process_did(
        self,
        tmp_path: Path,
        stream: DecisionStream,
        watched: tuple[str, str, str],
        unwatched: tuple[str, str, str],
        together: bool,
    ) -> None:
        """Also where that is shipped first, and both are stored at once."""
        said = {"watches": watched, "lists anew": unwatched}
        for name in sorted(said, reverse=not together):
            node, kind, reason = said[name]
            history = RealHistory(tmp_path / name, stream, name)
            history.recorder.record_outcome(outcome_of("web", node, AT, kind=kind, reason=reason))
            history.ship()
            if not together:
                ingest(stream)
            history.spool.close()
        ingest(stream)
        assert list(OutcomeRow.objects.values_list("kind", "process")) == [(watched[1], "watches")]

    def test_of_an_end_that_nobody_watched_the_first_record_is_kept(
        self, tmp_path: Path, stream: DecisionStream
    ) -> None:
        for name in ("first", "second"):
            history = RealHistory(tmp_path / name, stream, name)
            for kind in ("bound", "ended"):
                reason = UNWATCHED if kind == "ended" else ""
                history.recorder.record_outcome(outcome_of("web", "n1", AT, kind=kind, reason=reason))
            history.settle()
            history.spool.close()
        rows = OutcomeRow.objects.order_by("sequence").values_list("kind", "process")
        assert list(rows) == [("bound", "first"), ("ended", "first")]

    @pytest.mark.parametrize("order", [("knows", "saw"), ("saw", "knows")])
    def test_who_knows_for_whom_a_pod_was_preempted_is_heard_whoever_comes_first(
        self, tmp_path: Path, stream: DecisionStream, order: tuple[str, str]
    ) -> None:
        from scheduler.decisions.story import ends_of

        for name in order:
            real_history = RealHistory(tmp_path / name, stream, name)
            named = {"preemptor_uid": "uid-urgent", "preemptor_namespace": "default", "preemptor_name": "urgent"}
            outcome = outcome_of("web", "n1", AT, kind="preempted", **(named if name == "knows" else {}))
            real_history.recorder.record_outcome(outcome)
            real_history.settle()
            real_history.spool.close()
        assert [end.says for end in ends_of("uid-web", [])] == ["preempted from n1 for default/urgent"]
        assert OutcomeRow.objects.filter(preemptor_uid="uid-urgent").count() == 1

    def test_what_another_writer_said_before_is_joined_when_the_decision_comes(self, real_history: RealHistory) -> None:
        real_history.recorder.record_outcome(outcome_of("web", "n1", AT))
        real_history.settle()
        assert list(PlacedPod.objects.values_list("uid", "node_name")) == [("uid-web", "n1")]
        real_history.recorder.record(make_entry("web"))
        real_history.settle()
        assert list(Decision.objects.values_list("placed_on", "placed_at")) == [("n1", AT)]

    def test_the_end_of_a_pod_says_nothing_of_when_it_was_bound(self, real_history: RealHistory) -> None:
        later = AT + timedelta(days=1)
        for name in ("seen", "unseen"):
            real_history.recorder.record(make_entry(name))
        real_history.recorder.record_outcome(outcome_of("seen", "n1", AT))
        real_history.settle()
        for name in ("seen", "unseen"):
            real_history.recorder.record_outcome(outcome_of(name, "n1", later, kind="evicted"))
        real_history.settle()
        found = Decision.objects.order_by("sequence").values_list("placed_on", "placed_at")
        assert list(found) == [("n1", AT), ("n1", later)]

    def test_a_pod_that_is_known_to_have_ended_is_not_looked_after_when_its_binding_comes_late(
        self, real_history: RealHistory
    ) -> None:
        real_history.recorder.record_outcome(outcome_of("web", "n1", AT, kind="preempted"))
        real_history.recorder.record_outcome(outcome_of("web", "n1", AT))
        real_history.settle()
        assert OutcomeRow.objects.count() == 2
        assert not PlacedPod.objects.exists()

    def test_one_that_the_database_refuses_holds_up_nothing(self, real_history: RealHistory) -> None:
        if connection.vendor != "postgresql":
            pytest.skip("SQLite takes a zero byte")
        real_history.recorder.record_outcome(outcome_of("a\0b", "n1", AT))
        real_history.recorder.record_outcome(outcome_of("web", "n1", AT))
        real_history.settle()
        assert [row.pod_name for row in OutcomeRow.objects.all()] == ["web"]
        assert DeadLetter.objects.get().reason.startswith("the database refuses it: ")

    def test_a_record_that_is_none_becomes_a_dead_letter(self, real_history: RealHistory) -> None:
        real_history.recorder.record_outcome(outcome_of("web", "n1", AT, decision="not an id"))
        real_history.settle()
        assert DeadLetter.objects.get().reason.startswith("it can't be read: ")

    def test_a_row_is_never_changed(self, real_history: RealHistory) -> None:
        real_history.recorder.record_outcome(outcome_of("web", "n1", AT))
        real_history.settle()
        with pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
            OutcomeRow.objects.update(node_name="n2")


def test_a_clock_that_goes_back_by_a_day_puts_nothing_out_of_order(real_history: RealHistory) -> None:
    yesterday = AT - timedelta(days=1)
    real_history.recorder.record(make_entry("web"))
    real_history.recorder.record(make_entry("web", now=yesterday))
    real_history.recorder.record_outcome(outcome_of("web", "n1", yesterday))
    real_history.recorder.record_outcome(outcome_of("web", "n1", yesterday - timedelta(days=1), kind="deleted"))
    real_history.settle()
    found = Decision.objects.order_by("sequence").values_list("at", "placed_on", "placed_at")
    assert list(found) == [(AT, "n1", yesterday), (yesterday, "n1", yesterday)]
    assert list(OutcomeRow.objects.order_by("sequence").values_list("kind", flat=True)) == ["bound", "deleted"]
    assert not DecisionGap.objects.exists()
    assert not PlacedPod.objects.exists()
