"""How a worker carries a run of the gate out: in a process of its own, whatever becomes of that."""

import subprocess
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from django.conf import settings

from policies import publishing
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import Revision
from policies.models import Change, GateRun
from policies.publishing import Edit
from scheduler.cluster.errors import APIUnavailableError
from scheduler.gate import runs
from scheduler.gate.cluster import Cluster
from scheduler.gate.forecast import Forecast, Gathered, OwnScheduler, forecast
from tests.builders import make_assignment, make_node, make_pod, make_rule_set

pytestmark = pytest.mark.django_db


def away() -> Any:
    message = "connection refused"
    raise APIUnavailableError(message)


@pytest.fixture
def change() -> Change:
    values = [make_rule_set("web"), make_assignment("all", "web")]
    return publishing.open_change(title="t", edits=[Edit.of(value) for value in values], by="ops", reason="r")


@pytest.fixture
def asked(change: Change) -> GateRun:
    return publishing.run_gate(change=change, by="ops")


def ends(monkeypatch: pytest.MonkeyPatch, how: Any) -> list[tuple[str, ...]]:
    """Let processes end like this; the commands that were started."""
    started: list[tuple[str, ...]] = []

    def run(*command: str, seconds: float) -> Any:
        assert seconds == runs.LONGEST_SECONDS
        started.append(command)
        if isinstance(how, Exception):
            raise how
        return subprocess.CompletedProcess(command, how, "", "said")

    monkeypatch.setattr(runs, "run_command", run)
    return started


def test_nothing_is_started_where_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    started = ends(monkeypatch, 0)
    runs.run_waiting()
    assert started == []


def test_a_run_is_handed_to_a_process_with_the_number_of_its_attempt(
    asked: GateRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    (command,) = (ends(monkeypatch, 0), runs.run_waiting())[0]
    assert command == ("gate", "--taken", f"{asked.pk}.1")


@pytest.mark.parametrize(
    ("how", "state", "fault"),
    [
        (-9, "queued", ""),
        (subprocess.TimeoutExpired("gate", 100), "failed", "It took more than 100 s. manage.py gate"),
        (OSError("no memory"), "failed", "Its process could not be started: no memory."),
    ],
)
def test_however_the_process_ends_the_row_says_it(
    asked: GateRun, monkeypatch: pytest.MonkeyPatch, how: Any, state: str, fault: str
) -> None:
    ends(monkeypatch, how)
    runs.run_waiting()
    row = GateRun.objects.get(pk=asked.pk)
    assert row.state == state
    assert row.fault.startswith(fault)


def test_without_a_cluster_everything_else_is_looked_at(change: Change, asked: GateRun) -> None:
    run = publishing.take_gate()
    assert run is not None
    runs.carry_out(run, client=away)
    row = GateRun.objects.get(pk=asked.pk)
    found = {each.check: each for each in publishing.results_of(row)}
    assert (row.state, row.snapshot_at, row.revision) == ("done", None, 0)
    assert found["documents"].verdict == found["tests"].verdict == "passed"
    assert found["refused"].says == "refused could not look at the cluster: connection refused"
    assert publishing.gate_of(change).refusal == ""


def test_nothing_is_compiled_for_a_cluster_that_is_away(asked: GateRun, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(runs, "CompiledRevision", lambda *given, **_: compiled.append(given))
    run = publishing.take_gate()
    assert run is not None
    runs.carry_out(run, client=away)
    assert GateRun.objects.get(pk=asked.pk).state == "done"
    assert compiled == []


def test_rule_sets_that_are_live_as_before_are_not_compiled_again() -> None:
    kept, old, new = make_rule_set("kept"), make_rule_set("web"), make_rule_set("web", params={"a": 1})
    first, _ = runs._compiled(Revision(number=1, rule_sets=[kept, old]), Revision(number=0))
    second, _ = runs._compiled(Revision(number=2, rule_sets=[kept, new]), Revision(number=0))
    assert second.rule_sets["kept"] is first.rule_sets["kept"]
    assert second.rule_sets["web"].source == new


def run_of_broken_documents(asked: GateRun) -> GateRun:
    publishing.withdraw_change(change=asked.change, by="ops")
    broken = publishing.open_change(title="t", edits=[Edit.of(make_assignment("all", "gone"))], by="ops", reason="r")
    publishing.run_gate(change=broken, by="ops")
    run = publishing.take_gate()
    assert run is not None
    runs.carry_out(run)
    return GateRun.objects.get(pk=run.pk)


def test_what_cannot_be_decided_with_is_not_asked_of_the_cluster(asked: GateRun) -> None:
    run = run_of_broken_documents(asked)
    found = {each.check: each for each in publishing.results_of(run)}
    assert found["documents"].verdict == "found"
    assert found["refused"].says.endswith("the documents have faults")
    assert "rule set gone has no published version" in publishing.gate_of(run.change).refusal


def test_faulty_documents_end_no_run_where_their_check_is_off(asked: GateRun, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = {**settings.BERTH.gate_checks, "documents": "off"}
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, gate_checks=levels))
    run = run_of_broken_documents(asked)
    found = {each.check: each for each in publishing.results_of(run)}
    assert (run.state, "documents" in found) == ("done", False)
    assert "Assignment all: rule set gone has no published version" in found["refused"].says


def test_a_run_that_nobody_wants_any_more_ends_without_a_word(asked: GateRun) -> None:
    run = publishing.take_gate()
    assert run is not None
    publishing.edit_change(change=asked.change, edits=[Edit.of(make_rule_set("db"))], by="ops", expected_digest="")
    publishing.run_gate(change=asked.change, by="ops")
    runs.carry_out(run, client=away)
    assert [row.state for row in asked.change.gate_runs.all()] == ["queued", "cancelled"]


def test_a_fault_of_berths_own_is_written_and_not_swallowed(asked: GateRun) -> None:
    run = publishing.take_gate()
    assert run is not None

    def broken() -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        runs.carry_out(run, client=broken)
    row = GateRun.objects.get(pk=asked.pk)
    assert (row.state, row.fault) == ("failed", "A fault of Berth's own ended it; the worker's log has it.")


def test_a_cluster_that_is_slow_to_be_read_leaves_less_time_to_decide(
    asked: GateRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, made = [0.0], []

    def read(client: Any, compiled: Any, on_progress: Any, own: OwnScheduler) -> Cluster:
        del client, on_progress
        assert own == OwnScheduler(frozenset(settings.BERTH.scheduler_names), settings.BERTH.scheduler_node_label)
        before, after = compiled()
        clock[0] += runs.LONGEST_SECONDS
        pods = Gathered(before, after, {}, datetime.now(UTC))
        pods.add(Pod.from_json(make_pod("waits")))
        return Cluster(Snapshot.of([Node.from_json(make_node("n1"))]), pods)

    def decide(*arguments: Any) -> Forecast:
        made.append(forecast(*arguments))
        return made[0]

    monkeypatch.setattr(runs, "monotonic", lambda: clock[0])
    monkeypatch.setattr(runs, "list_cluster", read)
    monkeypatch.setattr(runs, "forecast", decide)
    run = publishing.take_gate()
    assert run is not None
    runs.carry_out(run, client=lambda: None)  # type: ignore[arg-type,return-value] # nothing is asked
    assert made[0].waiting_left_out == 1
    assert GateRun.objects.get(pk=asked.pk).state == "done"
