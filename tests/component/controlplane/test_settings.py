"""Settings as each role starts with them, in processes of their own."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from django.contrib import admin
from django.core.checks import Tags, run_checks

ROOT = Path(__file__).parents[3]


def _run(state_dir: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("BERTH_")}
    environ = inherited | {"BERTH_STATE_DIR": str(state_dir)} | variables
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False
    )


def test_check_deploy_is_clean_when_not_local(tmp_path: Path) -> None:
    key = "Aa1-" * 15 + "zyxwvutsr"
    done = _run(
        tmp_path, "manage.py", "check", "--deploy", "--fail-level", "INFO", BERTH_ROLE="admin", BERTH_SECRET_KEY=key
    )
    assert done.returncode == 0, done.stderr


def test_django_finds_nothing_wrong_with_the_pages_that_register_themselves() -> None:
    import_module("controlplane.urls")
    assert len(admin.site._registry) > 10
    assert run_checks(tags=[Tags.admin]) == []


@pytest.mark.parametrize("role", ["extender", "binder", "worker", "beat", "admin"])
def test_a_command_beside_a_process_says_nothing_of_what_the_process_does_not_serve(tmp_path: Path, role: str) -> None:
    """As by `kubectl exec`: each command in an extender's Pod began with a warning of a middleware for signing in."""
    done = _run(tmp_path, "manage.py", "change", "list", BERTH_ROLE=role, BERTH_LOCAL="true")
    assert "axes" not in done.stderr
    assert "migrations are missing" in done.stderr


def test_a_wrong_environment_ends_the_start_with_its_names(tmp_path: Path) -> None:
    done = _run(tmp_path, "manage.py", "check", BERTH_LOG_LEVEL="loud", BERTH_LOCL="1")
    assert done.returncode != 0
    assert "BERTH_LOG_LEVEL='loud' is not one of DEBUG, INFO, WARNING, ERROR" in done.stderr
    assert "did you mean BERTH_LOCAL?" in done.stderr


@pytest.mark.parametrize(
    ("role", "urls", "middleware"),
    [
        ("extender", "scheduler.extender.urls", 0),
        ("admin", "controlplane.urls", 16),
        ("worker", "controlplane.urls", 16),
    ],
)
def test_each_role_has_its_urls(tmp_path: Path, role: str, urls: str, middleware: int) -> None:
    code = "from controlplane import settings; print(settings.ROOT_URLCONF, len(settings.MIDDLEWARE))"
    done = _run(tmp_path, "-c", code, BERTH_ROLE=role, BERTH_LOCAL="true")
    assert done.stdout.split() == [urls, str(middleware)]


def test_postgresql_urls_become_djangos_settings(tmp_path: Path) -> None:
    code = "from controlplane import settings; d = settings.DATABASES['default']; print(*(d[k] for k in 'NAME USER PASSWORD HOST PORT'.split()), sep='|')"
    done = _run(tmp_path, "-c", code, BERTH_DATABASE_URL="postgresql://ops:p%40ss@db:6432/berth")
    assert done.stdout.strip() == "berth|ops|p@ss|db|6432"
    for url in ("postgresql:///berth?host=/run/pg", "postgresql://%2Frun%2Fpg/berth"):
        done = _run(tmp_path, "-c", code, BERTH_DATABASE_URL=url)
        assert done.stdout.strip() == "berth|||/run/pg|"


def test_a_postgresql_whose_machine_is_gone_is_waited_for_20_s_unless_the_url_says_otherwise(tmp_path: Path) -> None:
    code = "from controlplane import settings; d = settings.DATABASES['default']['OPTIONS']; print(int(d['tcp_user_timeout']), int(d['keepalives_idle']) + int(d['keepalives_interval']) * int(d['keepalives_count']))"
    done = _run(tmp_path, "-c", code, BERTH_DATABASE_URL="postgresql://db/berth")
    assert done.stdout.split() == ["20000", "20"]
    done = _run(
        tmp_path, "-c", code, BERTH_DATABASE_URL="postgresql://db/berth?tcp_user_timeout=7000&keepalives_idle=60"
    )
    assert done.stdout.split() == ["7000", "70"]


def test_celery_beats_only_tasks_that_expire(tmp_path: Path) -> None:
    code = (
        "from controlplane.celery import app; c = app.conf; "
        "print(all(e['options']['expires'] for e in c.beat_schedule.values()), c.task_acks_late, "
        "c.task_time_limit < c.broker_transport_options['visibility_timeout'], sorted(c.task_queues))"
    )
    done = _run(tmp_path, "-c", code)
    assert done.stdout.strip() == "True True True ['binder', 'ingest', 'ops']", done.stderr
