"""Lines of the log: one a record, whatever is in it, and with the record's fields."""

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn

import pytest
import redis
import yaml
from celery.apps import worker
from celery.signals import celeryd_init
from django.db import InternalError, OperationalError, ProgrammingError, connection
from django.test import Client, RequestFactory

from controlplane.celery import app
from controlplane.logs import REFUSALS_A_SECOND, FewRefusals, JSONFormatter, KeyValueFormatter, WithoutPath, say_at_once
from scheduler.decisions.spool import SpoolFullError
from scheduler.extender.verbs.context import NotReadyError
from scheduler.extender.verbs.handlers import VerbHandlers
from scheduler.extender.views import VerbView


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("berth.test", logging.WARNING, __file__, 1, message, (), None)
    vars(made).update(extra)
    return made


def test_text_is_quoted_so_that_no_input_forges_a_field() -> None:
    line = KeyValueFormatter("admin").format(record('a "b"\nlevel=error', account="sam", number=7, thing=object()))
    assert "\n" not in line
    assert line.endswith(
        'level=warning role=admin logger=berth.test message="a \\"b\\"\\nlevel=error" account=sam number=7'
    )


@pytest.mark.parametrize("text", ["plain", 'a "b"\n\u2028{}', "\x00\x1b[31m", "ü"])
def test_json_is_one_line_and_holds_the_same_fields(text: str) -> None:
    line = JSONFormatter("extender").format(record(text, decision="d-1", number=7, good=True))
    assert len(line.splitlines()) == 1
    found = json.loads(line)
    assert found.pop("at").endswith("Z")
    assert found == {
        "level": "warning",
        "role": "extender",
        "logger": "berth.test",
        "message": text,
        "decision": "d-1",
        "number": 7,
        "good": True,
    }


def test_a_fault_keeps_its_trace() -> None:
    made = record("it failed")
    try:
        int("x")
    except ValueError:
        made.exc_info = sys.exc_info()
    assert "ValueError" in json.loads(JSONFormatter("worker").format(made))["traceback"]


def test_a_refusal_is_one_short_line(auditor: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="django.request"):
        assert auditor.get("/admin/auth/group/add/", secure=True).status_code == 403
    (made,) = caplog.records
    assert made.exc_info
    found = json.loads(JSONFormatter("admin").format(made))
    assert found["message"] == "Forbidden (Permission denied): /admin/auth/group/add/"
    assert "traceback" not in found


@pytest.mark.parametrize("status", [404, 405, 500])
def test_the_extender_says_of_a_request_neither_its_path_nor_its_method(status: int) -> None:
    forms = {404: ("%s: %s", "Not Found"), 405: ("Method Not Allowed (%s): %s", "SECRET"), 500: ("at %s", "/secret")}
    text, first = forms[status]
    logger = logging.getLogger("django.request")
    made = logger.makeRecord(
        "django.request", logging.WARNING, "", 1, text, (first, "/secret")[: text.count("%s")], None
    )
    made.status_code = status
    assert WithoutPath().filter(made)
    assert made.getMessage() == HTTPStatus(status).phrase


@pytest.mark.parametrize(
    ("role", "server"),
    [
        ("admin", "-c python:controlplane.gunicorn_conf -b 127.0.0.1:0 controlplane.wsgi"),
        ("extender", "-c python:scheduler.extender.server.gunicorn_conf -b 127.0.0.1:0 scheduler.extender.wsgi"),
    ],
)
def test_what_gunicorn_says_is_a_line_as_all_others(role: str, server: str, tmp_path: Path) -> None:
    """Of a worker that was killed, or hangs, nobody else speaks."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BERTH_", "DJANGO_"))}
    given = {"BERTH_STATE_DIR": str(tmp_path), "BERTH_LOCAL": "true", "BERTH_LOG_FORMAT": "json"}
    lines = []
    with subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *server.split()],
        cwd=Path(__file__).parents[3],
        env=kept | given,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if "Booting worker" in line:
                process.terminate()

    said = [json.loads(line) for line in lines]
    assert {each["role"] for each in said} == {role}
    of_gunicorn = [each["message"] for each in said if each["logger"] == "gunicorn.error"]
    assert of_gunicorn[0].startswith("Starting gunicorn")
    assert of_gunicorn[-1] == "Shutting down: Master"


@pytest.mark.parametrize("service", ["worker", "beat", "binder"])
def test_where_json_is_asked_for_a_service_of_celery_begins_with_json(service: str, tmp_path: Path) -> None:
    """As docker-compose.yml starts it: Celery's banner is no line of a log."""
    root = Path(__file__).parents[3]
    composed = yaml.safe_load((root / "docker-compose.yml").read_text())["services"][service]["command"]
    module = composed[composed.index("-m") + 1 :] if composed[0] == "python" else composed
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    # Nobody listens there: a line about that comes at once.
    given = {"BERTH_REDIS_URL": "redis://127.0.0.1:1/0", "BERTH_STATE_DIR": str(tmp_path), "BERTH_LOG_FORMAT": "json"}
    with subprocess.Popen(
        [sys.executable, "-m", *module],
        cwd=root,
        env=kept | given | {"BERTH_LOCAL": "true", "BERTH_ROLE": service, "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = next(line for line in process.stdout if line.strip())
        process.kill()

    assert json.loads(first)["role"] == service


def test_a_fault_of_the_database_is_said_once_a_minute_however_many_tasks_meet_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]
    monkeypatch.setattr("controlplane.logs.time.monotonic", lambda: now[0])
    logger = logging.getLogger("celery.app.trace")

    def said(task: str, fault: Exception) -> bool:
        caplog.clear()
        logger.error("Task %s raised unexpected", task, exc_info=fault)
        return bool(caplog.records)

    away = OperationalError("Connection refused")
    assert [said(task, away) for task in ("ingest", "requeue", "ingest")] == [True, False, False]
    assert said("ingest", OperationalError("deadlock detected"))
    refuses = InternalError("cannot execute UPDATE in a read-only transaction")
    assert [said(task, refuses) for task in ("ingest", "requeue")] == [True, False]
    too_old = ProgrammingError("column lease_from does not exist\nLINE 1: SELECT lease_from")
    assert [said(task, too_old) for task in ("ingest", "requeue")] == [True, False]
    full = [OperationalError(f"could not extend file: No space left\nCONTEXT: line {line}") for line in (7, 8)]
    assert [said("ingest", each) for each in full] == [True, False]
    assert [said("ingest", KeyError("a")) for _ in range(2)] == [True, True]
    now[0] += 60
    assert said("requeue", away)


def test_a_watch_that_the_database_breaks_off_says_so_once_a_minute_and_all_else_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [9000.0]
    monkeypatch.setattr("controlplane.logs.time.monotonic", lambda: now[0])
    logger = logging.getLogger("berth.cluster")
    for fault in (
        OperationalError("too many clients"),
        OperationalError("too many clients"),
        KeyError("a"),
        KeyError("a"),
    ):
        logger.error("watch_broken kind=%s", "priorityclasses", exc_info=fault)
    logger.warning("watch_lost kind=%s", "pods")
    assert [record.exc_info is None for record in caplog.records] == [False, False, False, True]


@pytest.mark.parametrize("name", ["kombu.asynchronous.hub", "kombu.transport.redis"])
def test_a_fault_of_redis_is_said_once_a_minute_however_often_it_is_met(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [5000.0]
    monkeypatch.setattr("controlplane.logs.time.monotonic", lambda: now[0])
    for text in ("used memory > 'maxmemory'", "used memory > 'maxmemory'", "no permissions"):
        logging.getLogger(name).warning("Redis error, will retry", exc_info=redis.ResponseError(f"{name}: {text}"))
    assert len(caplog.records) == 2
    now[0] += 60
    logging.getLogger(name).warning("Redis error", exc_info=redis.ResponseError(f"{name}: used memory > 'maxmemory'"))
    assert len(caplog.records) == 3


def test_ticks_that_expired_while_no_worker_ran_leave_no_lines(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("celery.worker.request")
    logger.info("Discarding revoked task: %s[%s]", "scheduler.tasks.ingest", "1")
    logger.error("Hard time limit (%ss) exceeded for %s[%s]", 85, "scheduler.tasks.ingest", "1")
    assert [record.levelname for record in caplog.records] == ["ERROR"]


class TestRefusals:
    """Anybody who reaches a server can make it refuse requests."""

    @pytest.fixture
    def log(self, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
        """What the log's own handler writes within a second that doesn't pass."""
        monkeypatch.setattr("controlplane.logs.time.monotonic", lambda: 1000.0)
        (handler,) = (each for each in logging.getLogger().handlers if type(each) is logging.StreamHandler)
        assert any(isinstance(each, FewRefusals) for each in handler.filters)
        # Not the process's own filter, which counts what other tests made it refuse.
        monkeypatch.setattr(handler, "filters", [FewRefusals()])
        written = io.StringIO()
        monkeypatch.setattr(handler, "stream", written)
        return written

    @pytest.fixture
    def a_second_later(self, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
        """What has to be done then."""
        due: list[Callable[[], None]] = []

        class Timer:
            def __init__(self, seconds: float, function: Callable[[], None]) -> None:
                self.seconds, self.function = seconds, function

            def start(self) -> None:
                assert self.seconds == 1
                due.append(self.function)

        monkeypatch.setattr("controlplane.logs.threading.Timer", Timer)
        return due

    @pytest.mark.parametrize(
        ("path", "header", "lines"),
        [
            pytest.param("/nowhere", {}, 1, id="404"),
            pytest.param("/", {"host": "elsewhere.example"}, 1, id="another host"),
            pytest.param("/api/v1/rule-sets", {"authorization": "Bearer berth_none.at-all"}, 2, id="an unknown token"),
        ],
    )
    @pytest.mark.django_db
    def test_a_flood_of_them_leaves_ten_lines_a_second_and_one_with_the_number_of_the_others(
        self,
        path: str,
        header: dict[str, str],
        lines: int,
        client: Client,
        log: io.StringIO,
        a_second_later: list[Callable[[], None]],
    ) -> None:
        for _ in range(30):
            assert 400 <= client.get(path, headers=header, secure=True).status_code < 500
        assert len(log.getvalue().splitlines()) == REFUSALS_A_SECOND

        (say,) = a_second_later
        say()

        *_, last = log.getvalue().splitlines()
        assert f"{30 * lines - REFUSALS_A_SECOND} more lines about refused requests were left out" in last

    @pytest.mark.django_db
    def test_a_flood_of_them_keeps_no_other_line_out(
        self, client: Client, log: io.StringIO, a_second_later: list[Callable[[], None]]
    ) -> None:
        for _ in range(30):
            client.get("/nowhere", secure=True)
        logging.getLogger("berth.test").warning("a fault")
        logging.getLogger("django.request").error("Internal Server Error", extra={"status_code": 500})
        assert [line.rpartition("message=")[2] for line in log.getvalue().splitlines()[REFUSALS_A_SECOND:]] == [
            '"a fault"',
            '"Internal Server Error" status_code=500',
        ]
        assert a_second_later

    @pytest.mark.django_db
    def test_probes_while_the_database_is_away_have_ten_lines_a_second_of_their_own(
        self,
        client: Client,
        monkeypatch: pytest.MonkeyPatch,
        log: io.StringIO,
        a_second_later: list[Callable[[], None]],
    ) -> None:
        for _ in range(30):
            client.get("/nowhere", secure=True)

        def refuse() -> None:
            raise OperationalError

        with monkeypatch.context() as away:
            away.setattr(connection, "cursor", refuse)
            for _ in range(30):
                assert client.get("/readyz").status_code == 503
        lines = log.getvalue().splitlines()[REFUSALS_A_SECOND:]
        assert len(lines) == REFUSALS_A_SECOND
        assert "not ready: OperationalError" in lines[0]

        for say in a_second_later:
            say()

        *_, one, other = log.getvalue().splitlines()
        assert "20 more lines about refused requests were left out" in one
        # Each has a line for each of its two parts, and Django's own.
        number = 30 * 3 - REFUSALS_A_SECOND
        assert f"{number} more lines about requests that couldn't be answered for now were left out" in other

    @pytest.mark.django_db
    def test_metrics_while_the_database_is_away_have_ten_lines_a_second(
        self,
        client: Client,
        monkeypatch: pytest.MonkeyPatch,
        log: io.StringIO,
        a_second_later: list[Callable[[], None]],
    ) -> None:
        def refuse() -> None:
            raise OperationalError

        with monkeypatch.context() as away:
            away.setattr(connection, "cursor", refuse)
            for _ in range(30):
                assert client.get("/metrics").status_code == 200
        assert len(log.getvalue().splitlines()) == REFUSALS_A_SECOND
        assert len(a_second_later) == 1

    @pytest.mark.parametrize(
        "error", [NotReadyError("not yet"), SpoolFullError("no space left")], ids=["early", "full"]
    )
    def test_calls_that_arent_answered_have_ten_lines_a_second(
        self, error: Exception, log: io.StringIO, a_second_later: list[Callable[[], None]]
    ) -> None:
        class Refusing(VerbHandlers):
            def __init__(self) -> None:
                pass

            def filter(self, body: object) -> NoReturn:
                raise error

        view = VerbView(verb="filter", answers=Refusing())
        for _ in range(30):
            view.post(RequestFactory().post("/filter", b"{}", content_type="application/json"))
        assert len(log.getvalue().splitlines()) == REFUSALS_A_SECOND
        assert len(a_second_later) == 1


def test_what_celery_says_from_a_signals_handler_is_a_line_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "log").open("w") as file:
        handler = logging.StreamHandler(file)
        handler.setFormatter(JSONFormatter("worker"))
        monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
        monkeypatch.setattr(logging.getLogger("celery.worker"), "level", logging.INFO)
        say_at_once("worker: Warm shutdown (MainProcess)", sys.stdout)
    (line,) = (tmp_path / "log").read_text().splitlines()
    found = json.loads(line)
    assert (found["logger"], found["message"]) == ("celery.worker", "worker: Warm shutdown (MainProcess)")


def test_a_log_that_is_closed_keeps_no_worker_from_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = (tmp_path / "log").open("w")
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(file)])
    file.close()
    say_at_once("worker: Warm shutdown (MainProcess)")


def test_warnings_of_a_workers_start_and_its_shutdown_go_to_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery writes them beside it, where BERTH_LOG_FORMAT=json promises an object a line."""
    captured: list[dict[str, bool]] = []
    monkeypatch.setattr(logging, "captureWarnings", lambda **how: captured.append(how))
    monkeypatch.setattr(worker, "safe_say", print)
    celeryd_init.send(sender="celery@here", instance=None, conf=app.conf, options={})
    assert (worker.safe_say, captured) == (say_at_once, [{"capture": True}])
