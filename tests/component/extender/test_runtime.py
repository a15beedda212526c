"""The list of processes that an extender keeps itself on."""

import logging
from datetime import UTC, datetime, timedelta, tzinfo
from unittest import mock

import pytest
from django.test import RequestFactory
from prometheus_client import generate_latest

from controlplane.env import BASE_DIR
from policies.engine.decision import CompiledRevision
from policies.engine.ruleset import Revision
from scheduler.decisions.spool import SpoolFullError
from scheduler.extender import runtime
from scheduler.extender.runtime import FORGET_SECONDS, Runtime
from scheduler.extender.verbs.context import NO_REVISION, NO_SNAPSHOT, NotReadyError
from scheduler.extender.verbs.handlers import Reply, VerbHandlers
from scheduler.extender.verbs.verdict_metrics import VERDICTS
from scheduler.extender.views import VerbView
from scheduler.models import Process
from tests.builders import make_assignment, make_rule_set

pytestmark = pytest.mark.django_db

OPERATIONS = BASE_DIR / "docs" / "operations.md"


@pytest.fixture(autouse=True)
def published_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has one counter of verdicts, and counts only the rules that a Runtime has served last."""
    monkeypatch.setattr(VERDICTS, "_published", VERDICTS._published)


class Full:
    """Answers that can't be recorded."""

    def filter(self, body: bytes) -> bytes:
        raise SpoolFullError("no space left")

    def prioritize(self, body: bytes) -> bytes:
        raise SpoolFullError("no space left")


def make_process(name: str, *, silent_seconds: float) -> None:
    at = datetime.now(UTC) - timedelta(seconds=silent_seconds)
    Process.objects.create(id=name, role="extender", host="h", pid=1, started_at=at, heartbeat_at=at)


def test_processes_that_were_killed_long_ago_are_taken_off_the_list() -> None:
    make_process("dead", silent_seconds=FORGET_SECONDS + 60)
    make_process("silent for a moment", silent_seconds=60)

    Runtime()._forget_the_dead()

    assert list(Process.objects.values_list("id", flat=True)) == ["silent for a moment"]


def test_others_stay_on_the_list_of_an_extender_whose_clock_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(days=1)

    make_process("alive", silent_seconds=0)
    monkeypatch.setattr(runtime, "datetime", Clock)
    Runtime()._forget_the_dead()
    assert Process.objects.filter(id="alive").exists()


def test_a_process_puts_itself_on_the_list_and_takes_itself_off() -> None:
    runtime = Runtime()
    runtime.heartbeat.write()
    assert list(Process.objects.values_list("id", "role")) == [(runtime.heartbeat.process_id, "extender")]
    runtime.heartbeat.leave()
    assert not Process.objects.exists()


def test_what_alerts_wait_for_is_counted_from_nought_before_it_happens() -> None:
    """Prometheus sees no rise in a counter that begins at 1: the first miss, and the first fault, would ring nowhere."""
    rule_set = make_rule_set("not-missed-yet")
    revision = Revision(number=1, rule_sets=[rule_set], assignments=[make_assignment("all", "not-missed-yet")])
    Runtime()._on_revision(CompiledRevision(revision))
    shown = generate_latest().decode()
    assert 'berth_deadline_misses_total{rule_set="not-missed-yet"} 0.0' in shown
    for verb in ("filter", "prioritize", "bind", "preempt"):
        assert f'berth_extender_calls_total{{outcome="failed",verb="{verb}"}}' in shown


@pytest.mark.parametrize(("verb", "status"), [("filter", 200), ("prioritize", 503)])
def test_where_a_decision_must_be_recorded_and_cannot_be_kube_scheduler_is_told(verb: str, status: int) -> None:
    view = VerbView(verb=verb, answers=Full())
    code, body, outcome = view._answer(b"{}")
    assert (code, outcome) == (status, "not_ready")
    assert body.body == b'{"Error":"Berth has no room to record its Decisions"}'


@pytest.mark.parametrize("fault", [NO_REVISION, NO_SNAPSHOT])
def test_a_filter_that_can_not_be_answered_yet_is_counted_as_operations_says(fault: str) -> None:
    handlers = mock.Mock(spec=VerbHandlers)
    handlers.filter.side_effect = NotReadyError(fault)
    code, _, outcome = VerbView(verb="filter", answers=handlers)._answer(b"{}")
    (said,) = (line for line in OPERATIONS.read_text().splitlines() if line.startswith("A `/filter` that is answered"))
    assert fault.removeprefix("Berth ") in said
    assert (code, f"counts as `{outcome}`" in said) == (200, True)


@pytest.mark.parametrize("method", ["OPTIONS", "GET", "PUT", "TRACE"])
def test_a_verb_is_asked_by_post_alone_and_says_so(method: str) -> None:
    call = VerbView.as_view(verb="filter", answers=Answering())
    answer = call(RequestFactory().generic(method, "/filter", headers={"Host": "localhost"}))
    assert (answer.status_code, answer["Allow"]) == (405, "POST")
    assert answer.content == f'{{"Error":"Method \\"{method}\\" not allowed."}}'.encode()


@pytest.mark.parametrize(
    ("coding", "status"),
    [("gzip", 415), ("GZIP", 415), ("identity, br", 415), ("identity", 200), ("Identity", 200), ("", 200)],
)
def test_a_compressed_body_is_refused_as_such_and_not_read_as_json(coding: str, status: int) -> None:
    call = VerbView.as_view(verb="filter", answers=Answering())
    said = {"Host": "localhost", "Content-Encoding": coding}
    answer = call(RequestFactory().post("/filter", b"{}", content_type="application/json", headers=said))
    refusal = b'{"Error":"a body with Content-Encoding isn\'t read: send it without compression"}'
    assert (answer.status_code, answer.content) == (status, refusal if status == 415 else b"{}")


class Answering(VerbHandlers):
    """Answers, or isn't ready; each with a Decision."""

    def __init__(self) -> None:
        pass

    def filter(self, body: object) -> Reply:
        return Reply(b"{}", "the-decision")

    def prioritize(self, body: object) -> Reply:
        error = NotReadyError("not yet")
        error.decision = "the-decision"
        raise error


@pytest.mark.parametrize(
    ("verb", "says"), [("filter", "filter answered in "), ("prioritize", "prioritize not answered: not yet")]
)
def test_each_log_line_of_a_call_has_its_decision(verb: str, says: str, caplog: pytest.LogCaptureFixture) -> None:
    view = VerbView(verb=verb, answers=Answering())
    with caplog.at_level(logging.DEBUG, "berth.extender"):
        view.post(RequestFactory().post(f"/{verb}", b"{}", content_type="application/json"))
    assert caplog.records[0].getMessage().startswith(says)
    assert {getattr(record, "decision", "") for record in caplog.records} == {"the-decision"}
