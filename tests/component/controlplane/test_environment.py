"""The environment: decoded once, every wrong variable named with its accepted form."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, OperationalError
from django.http.request import split_domain_port, validate_host
from psycopg.pq import Conninfo

from controlplane import health
from controlplane.checks import faults_of
from controlplane.env import _RENAMED, ConfigurationError, Environment, decode, read_environment
from controlplane.env_values import READERS
from controlplane.management.commands import migrate
from manage import _why as why_of_manage
from scheduler.extender.origin import is_known_host
from tests.certificates import Authority

_READERS_BY_VARIABLE = {f"BERTH_{field.upper()}" for field in READERS}
KEY = "k" * 40


def _faults(variables: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        decode(variables)
    return caught.value.faults


@pytest.mark.parametrize(
    "process",
    [
        "manage.py lint examples/shortest-name.yaml",
        "-m controlplane.binder",
        "-m celery -q -A controlplane worker -P threads -c 1",
        "-m celery -q -A controlplane beat --pidfile=",
        "-m gunicorn -c python:controlplane.gunicorn_conf -b 127.0.0.1:0 controlplane.wsgi",
        "-m gunicorn -c python:scheduler.extender.server.gunicorn_conf scheduler.extender.wsgi",
    ],
)
def test_a_process_ends_with_what_is_wrong_in_its_environment_and_no_traceback(process: str, tmp_path: Path) -> None:
    wrong = {"BERTH_STATE_DIR": str(tmp_path), "BERTH_REVIEW_PAUSES": "maybe", "BERTH_LOG_LEVELS": "info"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BERTH_", "DJANGO_"))}
    done = subprocess.run(
        [sys.executable, *process.split()],
        cwd=Path(__file__).parents[3],
        env={**kept, **wrong},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "Berth's environment is wrong:",
        "  - BERTH_LOG_LEVELS is not a setting of Berth; did you mean BERTH_LOG_LEVEL?",
        "  - BERTH_REVIEW_PAUSES='maybe' is not true or false",
    ]


def test_a_command_whose_reader_has_gone_ends_without_a_traceback(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "manage.py", "help"],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "BERTH_STATE_DIR": str(tmp_path)},
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BERTH_", "DJANGO_"))}
    return {**kept, "BERTH_STATE_DIR": str(folder), **more}


def manage(folder: Path, *arguments: str, stdout: int, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=Path(__file__).parents[3],
        env=environment(folder, **more),
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
        text=True,
        timeout=60,
    )


def test_a_command_whose_output_has_no_room_says_so_in_a_line(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    done = manage(tmp_path, "help", stdout=full)
    os.close(full)
    assert (done.returncode, done.stderr) == (1, "manage.py: the output: No space left on device\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_command_writes_utf_8_whatever_the_locale_is(encoding: str, tmp_path: Path) -> None:
    configuration = "deploy/kube-scheduler/config.yaml"
    done = manage(tmp_path, "doctor", "lint", configuration, stdout=subprocess.PIPE, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("· note ")


def test_a_command_that_is_interrupted_ends_without_a_traceback(tmp_path: Path) -> None:
    # Where pytest runs in the background, its children pass over the signal.
    command = subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "manage.py", "doctor", "lint", "-"],
        cwd=Path(__file__).parents[3],
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert command.stdin is not None
    # More than a pipe holds: it is written when the command has begun to read.
    command.stdin.write(b"#" * (4 << 20))
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=60)
    assert (command.returncode, said) == (130, b"")


def test_a_command_on_a_database_without_tables_says_what_to_run(tmp_path: Path) -> None:
    done = manage(tmp_path, "export", stdout=subprocess.DEVNULL)
    assert done.returncode == 1
    assert re.fullmatch(r"manage\.py: \d+ migrations are missing; run python manage\.py migrate\n", done.stderr)


def test_who_waits_for_migrations_is_told_that_they_are_missing(tmp_path: Path) -> None:
    """As Pods do before they start: their log said nothing."""
    done = manage(tmp_path, "migrate", "--check", stdout=subprocess.DEVNULL)
    assert done.returncode == 1
    assert re.fullmatch(r"manage\.py: \d+ migrations are missing; run python manage\.py migrate\n", done.stderr)


def test_who_waits_for_migrations_goes_on_when_they_are_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one container: a kubelet begins one that fails anew after up to five minutes."""
    looks = iter(["3 migrations are missing", OperationalError("connection refused\nIs it up?"), ""])
    monkeypatch.setattr(migrate, "missing_migrations", lambda: said_or_raised(next(looks)))
    monkeypatch.setattr(migrate, "connection", SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(migrate, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(migrate, "_TELL_SECONDS", 0.0)
    before = signal.getsignal(signal.SIGTERM)
    assert not migrate.Command()._waited(60)
    signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().out.splitlines() == [
        "waiting: 3 migrations are missing",
        "waiting: the database can't be reached: connection refused",
    ]


def said_or_raised(found: str | Exception) -> str:
    if isinstance(found, Exception):
        raise found
    return found


def test_who_waited_long_enough_for_migrations_ends_with_what_is_missing(tmp_path: Path) -> None:
    done = manage(tmp_path, "migrate", "--check", "--wait", "0.1", stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout.count("waiting: ")) == (1, 1)
    assert re.fullmatch(r"manage\.py: \d+ migrations are missing; run python manage\.py migrate\n", done.stderr)


def test_who_waits_for_migrations_ends_at_once_when_told_to(tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "migrate", "--check", "--wait", "60"]
    folder = Path(__file__).parents[3]
    with subprocess.Popen(command, cwd=folder, env=environment(tmp_path), stdout=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline().startswith(b"waiting: ")
        waiting.terminate()
        assert waiting.wait(10) == 128 + signal.SIGTERM


def test_waiting_without_check_is_refused() -> None:
    with pytest.raises(CommandError, match="--wait goes with --check"):
        call_command("migrate", "--wait", "1")


def test_a_migration_that_breaks_off_says_what_it_met(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "berth.sqlite3")) as database:
        database.execute("CREATE TABLE django_content_type (id integer)")
    done = manage(tmp_path, "migrate", stdout=subprocess.DEVNULL)
    assert done.returncode == 1
    assert done.stderr == 'manage.py: migrate broke off: table "django_content_type" already exists\n'
    done = manage(tmp_path, "migrate", "--traceback", stdout=subprocess.DEVNULL)
    assert done.stderr.startswith("Traceback")


BROKEN_OFF = "the database broke it off: terminating connection. See what the command has done, and run it again"


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (
            psycopg.errors.AdminShutdown("terminating connection"),
            "the database was away: terminating connection. It answers again: see what the command has done, and run it again",
        ),
        (
            psycopg.OperationalError("terminating connection"),
            "the database was away: terminating connection. It answers again: see what the command has done, and run it again",
        ),
        (psycopg.errors.LockNotAvailable("terminating connection"), BROKEN_OFF),
        (psycopg.errors.QueryCanceled("terminating connection"), BROKEN_OFF),
        (psycopg.errors.IdleInTransactionSessionTimeout("terminating connection"), BROKEN_OFF),
        (psycopg.errors.DiskFull("terminating connection"), ""),
        (psycopg.errors.UniqueViolation("terminating connection"), ""),
    ],
)
def test_a_command_that_the_database_ended_says_so_and_its_own_faults_keep_their_traceback(
    cause: psycopg.Error, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "missing_migrations", lambda: "")
    error = DatabaseError("terminating connection\nmore")
    error.__cause__ = cause
    assert why_of_manage(error) == expected


def test_defaults_stand_when_nothing_is_set() -> None:
    environment = decode({"PATH": "/bin"})
    assert (environment.role, environment.local, environment.database_url) == ("command", False, "")


def test_what_is_set_is_shown_without_its_secrets() -> None:
    secrets = dict.fromkeys(Environment().secrets, "hunter2")
    shown = repr(Environment(**secrets, worker_bind="127.0.0.1:9"))
    assert "hunter2" not in shown
    assert "worker_bind='127.0.0.1:9'" in shown
    assert "redis_url=…" in shown


def test_all_wrong_variables_are_named_at_once() -> None:
    faults = _faults({"BERTH_LOCAL": "maybe", "BERTH_LOG_LEVEL": "loud", "BERTH_ROLE": "king"})
    assert len(faults) == 3
    assert "BERTH_LOCAL='maybe' is not true or false" in faults


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BERTH_DATABASE_URL", "mysql://u:hunter2@h/db"),
        ("BERTH_REDIS_URL", "http://:hunter2@h"),
        ("BERTH_SECRET_KEY", "hunter2"),
        ("BERTH_DATABASE_URL", "postgresql://u:p@h:hunter2/db"),
        ("BERTH_DATABASE_URL", "postgresql://u:hunter2#x@h:5432/db"),
        ("BERTH_DATABASE_URL", "postgresql://u:1#hunter2@h:5432/db"),
        ("BERTH_DATABASE_URL", "postgresql://u:1?hunter2@h:5432/db"),
        ("BERTH_DATABASE_URL", "postgresql://u:hunter2@[::1/db"),
        ("BERTH_HISTORY_DATABASE_URL", "postgresql://u:hunter2@h:99999/db"),
        ("BERTH_DATABASE_URL", "postgresql:///db?password=1&hunter2"),
        ("BERTH_REDIS_URL", "redis://:hunter2/x@h:6379/0"),
        ("BERTH_REDIS_URL", "redis://:1/hunter2@h:6379/0"),
        ("BERTH_REDIS_URL", "redis://hunter2/x@h:6379/0"),
        ("BERTH_REDIS_URL", "redis://:hunter2#x@h:6379/0"),
        ("BERTH_REDIS_URL", "redis://:p@h:hunter2/0"),
        ("BERTH_REDIS_URL", "redis://:hunter2@h:6379/cache"),
        ("BERTH_REDIS_URL", "redis://:hunter2@h:6379/0?socket_timeout=3"),
        ("BERTH_REDIS_URL", "redis://:hunter2@h:6379?db=3"),
        ("BERTH_REDIS_URL", "redis://:hunter2@h:6379/0?ssl_ca_certs=/ca.crt"),
        ("BERTH_REDIS_URL", "rediss://:hunter2@h:6379/0?ssl_cert_reqs=CERT_REQUIRED"),
        ("BERTH_REDIS_URL", "rediss://:hunter2@h:6379/0?ssl_min_version=TLSv1_3"),
        ("BERTH_LEDGER_WEBHOOK_URL", "https://u:hunter2@h/x"),
        ("BERTH_LEDGER_WEBHOOK_URL", "https://h:hunter2/x"),
    ],
)
def test_a_wrong_secret_is_named_and_not_shown(name: str, value: str) -> None:
    (fault,) = _faults({name: value})
    assert fault.startswith(f"{name} is not ")
    assert "hunter2" not in fault


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", "inf"])
def test_a_wrong_number_is_refused(value: str) -> None:
    (fault,) = _faults({"BERTH_EXTENDER_MAX_BODY_BYTES": value})
    assert "a whole number of bytes above 0" in fault


@pytest.mark.parametrize(
    ("name", "most", "unit"),
    [
        *((f"BERTH_{name}_DAYS", 36_500, "days") for name in ("RETENTION", "NOTICE", "TOKEN_MAX", "ASSIGNMENT_IDLE")),
        ("BERTH_EXEMPTION_NOTICE_DAYS", 36_500, "days"),
        ("BERTH_SESSION_HOURS", 876_000, "hours"),
        ("BERTH_LOCK_OUT_MINUTES", 52_560_000, "minutes"),
        ("BERTH_GATE_MAX_AGE_SECONDS", 3_153_600_000, "seconds"),
        ("BERTH_EXTENDER_DEADLINE_SECONDS", 86_400, "seconds"),
    ],
)
def test_a_time_is_a_hundred_years_at_most_and_one_that_is_waited_for_a_day(name: str, most: int, unit: str) -> None:
    decode({name: str(most)})
    for value in (most + 1, 99_999_999_999_999):
        (fault,) = _faults({name: str(value)})
        assert fault.startswith(f"{name}='{value}' is not a ")
        assert fault.endswith(f"number of {unit} above 0, at most {most:,}")


@pytest.mark.parametrize("value", ["1e-300", "0.04", "0", "nan", "86401"])
def test_asking_for_revisions_without_a_rest_or_seldom_is_refused(value: str) -> None:
    name = "BERTH_EXTENDER_REVISION_POLL_SECONDS"
    assert _faults({name: value}) == [f"{name}={value!r} is not a number of seconds from 0.05 to 86,400"]
    assert decode({name: "0.05"}).extender_revision_poll_seconds == 0.05


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", "1000001", "9" * 20])
def test_a_wrong_rate_of_requeues_is_refused(value: str) -> None:
    assert _faults({"BERTH_REQUEUES_PER_SECOND": value}) == [
        f"BERTH_REQUEUES_PER_SECOND={value!r} is not a whole number of Pods above 0, at most 1,000,000"
    ]
    assert decode({"BERTH_REQUEUES_PER_SECOND": "1000000"}).requeues_per_second == 1_000_000
    assert decode({"BERTH_REQUEUES_PER_SECOND": "7"}).requeues_per_second == 7


def test_what_a_full_spool_does_is_one_of_two_things() -> None:
    environment = decode({"BERTH_SPOOL_FULL": "refuse", "BERTH_SPOOL_MAX_BYTES": "1048576"})
    assert (environment.spool_full, environment.spool_max_bytes) == ("refuse", 1 << 20)
    assert _faults({"BERTH_SPOOL_FULL": "wait", "BERTH_SPOOL_MAX_BYTES": "0"}) == [
        "BERTH_SPOOL_FULL='wait' is not one of lose, refuse",
        "BERTH_SPOOL_MAX_BYTES='0' is not a whole number of bytes, at least 1,048,576",
    ]


def test_a_spool_that_would_hold_next_to_nothing_is_refused() -> None:
    """As a number of GiB is without its unit."""
    assert _faults({"BERTH_SPOOL_MAX_BYTES": "2"}) == [
        "BERTH_SPOOL_MAX_BYTES='2' is not a whole number of bytes, at least 1,048,576"
    ]


@pytest.mark.parametrize("name", ["BERTH_STATE_DIR", "BERTH_LEDGER_CHECKPOINT_DIR"])
def test_a_home_that_no_shell_has_expanded_is_refused(name: str) -> None:
    assert _faults({name: "~/berth"}) == [f"{name}='~/berth' is not a directory; write its path without ~"]


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    (fault,) = _faults({"BERTH_DATABSE_URL": "x"})
    assert "did you mean BERTH_DATABASE_URL?" in fault


def test_a_name_of_a_secrets_file_may_be_the_nearest() -> None:
    assert _faults({"BERTH_DATABASE_URL_FLIE": "/url"}) == [
        "BERTH_DATABASE_URL_FLIE is not a setting of Berth; did you mean BERTH_DATABASE_URL_FILE?"
    ]


def test_details_are_kept_as_long_as_their_decision_at_most() -> None:
    assert _faults({"BERTH_RETENTION_DAYS": "30", "BERTH_RETENTION_DETAILS_DAYS": "31"}) == [
        "BERTH_RETENTION_DETAILS_DAYS=31 is longer than BERTH_RETENTION_DAYS=30: details are deleted with their Decision"
    ]
    for forever_or_as_long in ({}, {"BERTH_RETENTION_DAYS": "30"}):
        assert decode({**forever_or_as_long, "BERTH_RETENTION_DETAILS_DAYS": "30"}).retention_details_days == 30


@pytest.mark.parametrize(
    "alone", [{"BERTH_TOKEN_REVIEW_AUDIENCE": "berth"}, {"BERTH_TOKEN_REVIEW_ROLES": "berth/ci=Operator"}]
)
def test_tokens_of_kubernetes_need_an_audience_and_roles(alone: dict[str, str]) -> None:
    [fault] = _faults(alone)
    assert "belong together: set both, or neither" in fault


def test_a_setting_that_was_renamed_is_refused_with_its_new_name() -> None:
    assert _faults({"BERTH_WAKES_PER_SECOND": "7"}) == [
        "BERTH_WAKES_PER_SECOND was renamed: use BERTH_REQUEUES_PER_SECOND"
    ]


def test_every_new_name_of_a_renamed_setting_is_one_and_no_former_name_is() -> None:
    assert _RENAMED.keys().isdisjoint(_READERS_BY_VARIABLE)
    assert set(_RENAMED.values()) <= _READERS_BY_VARIABLE


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////var/lib/berth/db.sqlite3",
        "sqlite:////var/lib/berth #1/what?/db.sqlite3",
        "postgresql://u:p%40ss@db.example.org:5432/berth",
        "postgresql:///berth?host=/run/postgresql",
        "postgresql:///berth?host=/run/post@gresql",
        "postgresql://u@[::1]/berth?sslmode=require",
    ],
)
def test_database_urls_in_the_accepted_forms_are_taken(url: str) -> None:
    assert decode({"BERTH_DATABASE_URL": url}).database_url == url


def test_every_option_that_libpq_or_django_understands_may_stand_in_a_database_url() -> None:
    names = [each.keyword.decode() for each in Conninfo.get_defaults()] + ["assume_role"]
    url = f"postgresql://u@h/berth?{'&'.join(f'{name}=1' for name in names)}"
    assert decode({"BERTH_DATABASE_URL": url}).database_url == url


def test_an_option_of_a_database_url_that_libpq_does_not_know_is_named_with_the_nearest() -> None:
    url = "postgresql://u:p@h/berth?connect_timeout=3&{}=require"
    unknown = "which PostgreSQL's libpq doesn't know; did you mean sslmode?"
    assert _faults(
        {"BERTH_DATABASE_URL": url.format("sslmod"), "BERTH_HISTORY_DATABASE_URL": url.format("SSLMODE")}
    ) == [
        f"BERTH_DATABASE_URL has the option 'sslmod', {unknown}",
        f"BERTH_HISTORY_DATABASE_URL has the option 'SSLMODE', {unknown}",
    ]
    # What stands behind an & in a password looks like an option.
    (fault,) = _faults({"BERTH_DATABASE_URL": "postgresql:///berth?password=1&hunter2=x"})
    assert fault.startswith("BERTH_DATABASE_URL has the option number 2, which PostgreSQL's libpq doesn't know")
    assert "hunter2" not in fault


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "redis://h",
        "redis://:p%40ss@h:6379/",
        "redis://u:p%2Fss@[::1]:6379/15",
        "rediss://:p@h:6379/0?ssl_ca_certs=/run/ca.crt&ssl_certfile=/run/tls.crt&ssl_keyfile=/run/tls.key",
        "rediss://:p@h/0?ssl_cert_reqs=none&ssl_check_hostname=false",
    ],
)
def test_redis_urls_in_the_accepted_forms_are_taken(url: str) -> None:
    assert decode({"BERTH_REDIS_URL": url}).redis_url == url


HOSTS = "host names, separated by commas, without https:// and port"
NAMES_OF_NO_REQUEST = [
    *("https://berth.example.org", "berth.example.org:8443", "a,b/", "a b", " , ", "[::1]:80"),
    *("*.example.org", "berth.example.org.", "a..b"),
]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("BERTH_ALLOWED_HOSTS", value) for value in [*NAMES_OF_NO_REQUEST, "berth_1.example.org", "bücher.example"]),
        *(("BERTH_EXTENDER_HOSTS", value) for value in [*NAMES_OF_NO_REQUEST, "*", ".example.org"]),
    ],
)
def test_a_host_that_no_request_can_name_is_refused(name: str, value: str) -> None:
    (fault,) = _faults({name: value})
    assert fault.startswith(f"{name}={value!r} is not {HOSTS}")


@pytest.mark.parametrize(
    ("value", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("LocalHost", "localhost:8000"),
        ("[::1]", "[::1]"),
        ("fd00::1", "[fd00::1]:8000"),
        (".example.org", "berth.example.org"),
        (".example.org", "example.org"),
        ("*", "berth.example.org"),
    ],
)
def test_a_request_that_names_an_allowed_host_is_taken(value: str, host: str) -> None:
    allowed = decode({"BERTH_ALLOWED_HOSTS": f"a, {value}"}).allowed_hosts
    domain, _ = split_domain_port(host)
    assert allowed[0] == "a"
    assert validate_host(domain, allowed)


@pytest.mark.parametrize(
    "value",
    [
        *("https://a b", "berth.example.org", "https://berth.example.org/", "https://u:p@berth.example.org", "https://*"),
        *("https://berth.example.org?x", "https://berth.example.org:0", "https://h:99999", "https://[x]", "https://bücher.example"),
    ],
)  # fmt: skip
def test_an_origin_that_no_browser_names_is_refused(value: str) -> None:
    assert _faults({"BERTH_TRUSTED_ORIGINS": f"https://h,{value}"}) == [
        f"BERTH_TRUSTED_ORIGINS={f'https://h,{value}'!r} is not origins like https://berth.example.org, separated by commas"
    ]


def test_origins_of_browsers_are_taken() -> None:
    origins = (
        "https://berth.example.org:8443",
        "http://127.0.0.1:8000",
        "http://[::1]:8000",
        "https://*.example.org",
        "http://berth_1",
    )
    assert decode({"BERTH_TRUSTED_ORIGINS": ", ".join(origins)}).trusted_origins == origins


@pytest.mark.parametrize("value", ["10.0.0.1", "fd00::1", "[fd00::1]", "extender.berth.svc", "berth_1"])
def test_names_and_addresses_of_the_extender_are_taken(value: str) -> None:
    hosts = decode({"BERTH_EXTENDER_HOSTS": value}).extender_hosts
    asked = f"[{value}]" if value.startswith("fd") else value
    assert is_known_host(f"{asked}:8010", hosts, with_tls=False)


def test_a_path_of_the_checkpoints_webhook_may_hold_an_at_sign() -> None:
    url = "https://hooks.example.org/services/@berth?to=ops@example.org"
    assert decode({"BERTH_LEDGER_WEBHOOK_URL": url}).ledger_webhook_url == url


def test_a_secret_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    assert decode({"BERTH_SECRET_KEY_FILE": str(tmp_path / "key")}).secret_key == KEY


def test_a_missing_or_empty_secret_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert "is not a readable text file" in _faults({"BERTH_SECRET_KEY_FILE": str(tmp_path / "none")})[0]
    assert "is an empty file" in _faults({"BERTH_SECRET_KEY_FILE": str(tmp_path / "empty")})[0]


def test_an_empty_name_of_a_secrets_file_is_none() -> None:
    assert decode({"BERTH_SECRET_KEY_FILE": ""}) == decode({})
    assert decode({"BERTH_SECRET_KEY_FILE": "", "BERTH_SECRET_KEY": KEY}).secret_key == KEY


def test_a_secret_given_twice_is_refused(tmp_path: Path) -> None:
    assert "both set" in _faults({"BERTH_SECRET_KEY": KEY, "BERTH_SECRET_KEY_FILE": str(tmp_path)})[0]


def test_a_state_folder_of_another_account_is_told_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path, **_: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", denied)  # who runs tests as root may read all
    with pytest.raises(ConfigurationError, match=rf"uid {os.getuid()}: .*BERTH_STATE_DIR.*fsGroup"):
        read_environment({"BERTH_STATE_DIR": str(tmp_path)})


def test_the_state_directorys_file_lies_beneath_the_environment(tmp_path: Path) -> None:
    lines = ["  # written by make up", " ", "  BERTH_LOCAL = true ", "BERTH_LOG_LEVEL=debug", f"BERTH_SECRET_KEY={KEY}"]
    (tmp_path / "env").write_text("\n".join(lines))
    environment = read_environment({"BERTH_STATE_DIR": str(tmp_path), "BERTH_LOG_LEVEL": "error"})
    assert (environment.local, environment.log_level, environment.secret_key) == (True, "ERROR", KEY)


def test_an_empty_variable_does_not_hide_the_state_directorys_file(tmp_path: Path) -> None:
    (tmp_path / "env").write_text(f"BERTH_REVIEW_REQUIRED=true\nBERTH_SECRET_KEY={KEY}\n")
    empty = {"BERTH_STATE_DIR": str(tmp_path), "BERTH_REVIEW_REQUIRED": "", "BERTH_SECRET_KEY": ""}
    environment = read_environment(empty)
    assert (environment.review_required, environment.secret_key) == (True, KEY)


def test_a_file_beneath_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "env").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="env is not a readable text file"):
        read_environment({"BERTH_STATE_DIR": str(tmp_path)})


def test_a_secret_file_beats_the_file_beneath(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("BERTH_DATABASE_URL=sqlite:///beneath.sqlite3\n")
    (tmp_path / "url").write_text("sqlite:///above.sqlite3")
    variables = {"BERTH_STATE_DIR": str(tmp_path), "BERTH_DATABASE_URL_FILE": str(tmp_path / "url")}
    assert read_environment(variables).database_url == "sqlite:///above.sqlite3"


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("BERTH_SECRET_KEY hunter2", ""),
        ("BERTH_SECRET_KEY: hunter2", ""),
        ("BERTH_SECRET_KEY:hunter2==", ""),
        ("BERTH_SECRET_KEY: hunter2==", ": nothing may stand before KEY, such as export"),
        ("export BERTH_SECRET_KEY=hunter2", ": nothing may stand before KEY, such as export"),
        ("- BERTH_SECRET_KEY=hunter2", ": nothing may stand before KEY, such as export"),
    ],
)
def test_a_line_that_is_no_setting_is_refused_without_what_it_says(line: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "env").write_text(f"# by hand\n{line}\n")
    with pytest.raises(ConfigurationError) as refused:
        read_environment({"BERTH_STATE_DIR": str(tmp_path)})
    assert str(refused.value).endswith(f"line 2 is not KEY=VALUE{remedy}")
    assert "hunter2" not in str(refused.value)


def test_the_file_beneath_is_read_from_its_first_line_on_when_it_begins_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("BERTH_REVIEW_REQUIRED=true\n", encoding="utf-8-sig")
    assert read_environment({"BERTH_STATE_DIR": str(tmp_path)}).review_required


def test_the_local_default_keeps_the_key_it_made(tmp_path: Path) -> None:
    variables = {"BERTH_STATE_DIR": str(tmp_path / "new"), "BERTH_LOCAL": "true", "BERTH_ROLE": "admin"}
    key = read_environment(variables).secret_key
    assert len(key) >= 32
    assert read_environment(variables).secret_key == key
    assert (tmp_path / "new" / "secret_key").stat().st_mode & 0o077 == 0


def test_of_two_processes_that_make_the_key_the_first_ones_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"BERTH_STATE_DIR": str(tmp_path), "BERTH_LOCAL": "true", "BERTH_ROLE": "admin"}
    key = read_environment(variables).secret_key
    monkeypatch.setattr(Path, "exists", lambda _path: False)
    assert read_environment(variables).secret_key == key
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]


def test_a_state_folder_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is not a writable directory"):
        read_environment({"BERTH_STATE_DIR": str(tmp_path / "file"), "BERTH_LOCAL": "true", "BERTH_ROLE": "admin"})


def test_a_command_makes_do_without_a_key_and_writes_nothing(tmp_path: Path) -> None:
    assert read_environment({"BERTH_STATE_DIR": str(tmp_path / "none")}).secret_key
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("role", ["admin", "extender", "worker", "beat"])
def test_a_server_without_a_key_is_refused(tmp_path: Path, role: str) -> None:
    with pytest.raises(ConfigurationError, match="BERTH_SECRET_KEY or BERTH_SECRET_KEY_FILE is missing"):
        read_environment({"BERTH_STATE_DIR": str(tmp_path), "BERTH_ROLE": role})


def test_a_worker_whose_authorities_of_webhooks_cannot_be_used_is_refused(tmp_path: Path) -> None:
    none, text, ours = tmp_path / "none.pem", tmp_path / "text.pem", tmp_path / "ours.pem"
    text.write_text("no certificate\n")
    ours.write_bytes(Authority("ours").pem)
    worker = {"BERTH_STATE_DIR": str(tmp_path), "BERTH_SECRET_KEY": KEY, "BERTH_ROLE": "worker"}
    remedy = "Name a PEM file of certificates, or unset it"
    whys = {none: "No such file or directory", tmp_path: "Is a directory", text: "it holds no certificate in PEM"}
    for path, why in whys.items():
        with pytest.raises(ConfigurationError) as caught:
            read_environment(worker | {"BERTH_WEBHOOK_CA_FILE": str(path)})
        assert caught.value.faults == [f"BERTH_WEBHOOK_CA_FILE={str(path)!r} can't be used: {why}. {remedy}"]
    assert read_environment(worker | {"BERTH_WEBHOOK_CA_FILE": str(ours)}).webhook_ca_file == str(ours)
    # The settings of all processes may be the same, and the file only where webhooks are sent.
    assert read_environment(worker | {"BERTH_WEBHOOK_CA_FILE": str(none), "BERTH_ROLE": "beat"}).role == "beat"


@pytest.mark.parametrize(
    ("environment", "check"),
    [
        pytest.param(Environment(local=True, allowed_hosts=("berth.example.org",)), "berth.E001", id="plain HTTP"),
        pytest.param(Environment(local=True, behind_tls_proxy=True), "berth.E002", id="local behind a proxy"),
        pytest.param(Environment(allowed_hosts=("*",)), "berth.E003", id="any host"),
        pytest.param(Environment(role="extender", database_url="sqlite:///x"), "berth.W001", id="shared SQLite"),
    ],
)
def test_settings_that_contradict_each_other_are_found(environment: Environment, check: str) -> None:
    assert [fault.id for fault in faults_of(environment)] == [check]


def test_the_defaults_contradict_nothing() -> None:
    assert faults_of(Environment()) == faults_of(Environment(local=True)) == []


TLS = {
    "BERTH_EXTENDER_TLS_CERT_FILE": "/tls/tls.crt",
    "BERTH_EXTENDER_TLS_KEY_FILE": "/tls/tls.key",
    "BERTH_EXTENDER_CLIENT_CA_FILE": "/tls/ca.crt",
}


_PROVIDER = {
    "BERTH_OIDC_ISSUER": "https://sign-in.example.org",
    "BERTH_OIDC_CLIENT_ID": "berth",
    "BERTH_OIDC_CLIENT_SECRET": "secret",
    "BERTH_OIDC_ROLES": "ops=Operator",
}


@pytest.mark.parametrize("name", _PROVIDER)
def test_a_provider_of_which_a_part_is_missing_is_refused_with_its_name(name: str) -> None:
    first = next(other for other in _PROVIDER if other != name)
    # Set to nothing, as by a variable of somebody's script that isn't there.
    assert _faults(_PROVIDER | {name: ""}) == [f"{name} must be set too: {first} needs it"]


def test_a_whole_provider_is_taken() -> None:
    assert decode(_PROVIDER).oidc_roles == (("ops", "Operator"),)


class TestListeners:
    def test_all_three_files_together_are_tls(self) -> None:
        environment = decode(TLS | {"BERTH_EXTENDER_BIND": "0.0.0.0:8010"})
        assert environment.extender_tls_cert_file == "/tls/tls.crt"
        assert environment.extender_clients == ("system:kube-scheduler",)

    @pytest.mark.parametrize("given", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
    def test_a_part_of_tls_is_refused_with_what_is_missing(self, given: tuple[int, ...]) -> None:
        names = list(TLS)
        (fault,) = _faults({names[index]: TLS[names[index]] for index in given})
        named, _, all_of_them = fault.partition(" must be set too: TLS needs all of ")
        assert named.split(" and ") == [name for index, name in enumerate(names) if index not in given]
        assert all_of_them == ", ".join(names)

    @pytest.mark.parametrize("address", ["127.0.0.1:1", "127.9.9.9:65535", "[::1]:8010", "localhost:80"])
    def test_loopback_needs_no_tls(self, address: str) -> None:
        assert decode({"BERTH_EXTENDER_BIND": address}).extender_bind == address

    @pytest.mark.parametrize("address", ["0.0.0.0:8010", "[::]:8010", "10.1.2.3:8010", "berth.example.org:8010"])
    def test_another_address_without_tls_is_refused_with_the_remedy(self, address: str) -> None:
        (fault,) = _faults({"BERTH_EXTENDER_BIND": address})
        assert "reachable from other machines" in fault
        assert "or bind to 127.0.0.1" in fault
        assert all(name in fault for name in TLS)

    @pytest.mark.parametrize(
        "address", ["8010", ":8010", "127.0.0.1", "127.0.0.1:0", "h:65536", "h:1:2", "a@b:1", "h:x"]
    )
    @pytest.mark.parametrize("name", ["BERTH_EXTENDER_BIND", "BERTH_EXTENDER_HEALTH_BIND"])
    def test_what_is_no_address_is_refused(self, name: str, address: str) -> None:
        (fault,) = _faults({name: address})
        assert fault == f"{name}={address!r} is not an address HOST:PORT"

    def test_the_probes_may_be_open_and_need_a_port_of_their_own(self) -> None:
        assert decode({"BERTH_EXTENDER_HEALTH_BIND": "0.0.0.0:8011"}).extender_health_bind == "0.0.0.0:8011"
        (fault,) = _faults({"BERTH_EXTENDER_HEALTH_BIND": "0.0.0.0:8010"})
        assert "give it a port of its own" in fault

    def test_tls_for_nobody_is_refused(self) -> None:
        (fault,) = _faults(TLS | {"BERTH_EXTENDER_CLIENTS": " , "})
        assert "names no allowed caller" in fault


def test_masks_are_names_with_a_star_at_an_end_or_none() -> None:
    found = decode(
        {"BERTH_MASK_ENV": "none", "BERTH_MASK_ANNOTATIONS": "example.org/*, *token*", "BERTH_MASK_LABELS": "*"}
    )
    assert (found.mask_env, found.mask_labels) == ((), ("*",))
    assert found.mask_annotations == ("example.org/*", "*token*")


@pytest.mark.parametrize("text", ["a*b", ",", "none,other x", "**", "a" * 400, ",".join(["a"] * 101)])
def test_masks_of_another_form_are_refused(text: str) -> None:
    (fault,) = _faults({"BERTH_MASK_ENV": text})
    assert "is not none, or at most 100 names separated by commas" in fault


def test_what_the_command_berth_reads_may_stand_in_the_same_shell() -> None:
    names = {"SERVER": "https://berth.example.org", "TOKEN": "t", "TOKEN_FILE": "f", "CA_FILE": "c", "ALLOW_HTTP": "1"}
    assert decode({f"BERTH_{name}": value for name, value in names.items()}) == decode({})


def test_what_a_kubelet_says_of_services_is_no_setting_of_berth() -> None:
    links = {}
    for service, port in {"BERTH_EXTENDER": "8010", "BERTH_REDIS": "6379", "BERTH": "80"}.items():
        address = f"tcp://10.96.0.7:{port}"
        links |= {f"{service}_SERVICE_HOST": "10.96.0.7", f"{service}_SERVICE_PORT": port, f"{service}_PORT": address}
        links |= {f"{service}_SERVICE_PORT_HTTPS": port, f"{service}_PORT_{port}_TCP": address}
        parts = {"PROTO": "tcp", "PORT": port, "ADDR": "10.96.0.7"}
        links |= {f"{service}_PORT_{port}_TCP_{part}": value for part, value in parts.items()}
    assert decode(links) == decode({})


def test_what_only_looks_like_a_services_is_refused_as_ever() -> None:
    faults = _faults({"BERTH_REDIS_SERVICE_HOST": "10.96.0.7", "BERTH_EXTENDER_PORT": "8010", "BERTH_REDIS_UR": "x"})
    assert [fault.partition(" ")[0] for fault in faults] == ["BERTH_EXTENDER_PORT", "BERTH_REDIS_UR"]
