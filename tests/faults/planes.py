"""A control plane without a cluster whose parts are killed: PostgreSQL, Redis, workers, beat."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
from celery import Celery

from controlplane.up import free_port, redis_server, wait_for_port
from tests import postgres
from tests.stack import BASE_DIR, eventually


class Postgres:
    """A PostgreSQL of the test's own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._user = postgres.unprivileged_user()
        self._binaries = postgres.binaries()
        self.url = f"postgresql://{postgres.NAME}@localhost/postgres?host={folder}"
        self._run("initdb", "-U", postgres.NAME, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        self._process: subprocess.Popen[bytes] | None = None

    def _run(self, program: str, *options: str) -> None:
        command = [self._binaries / program, "-D", self._folder / "data", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=self._user, cwd=self._folder)

    def start(self) -> None:
        options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={self._folder}", "-c", "fsync=off"]
        self._process = subprocess.Popen(
            [self._binaries / "postgres", "-D", self._folder / "data", *options, "-c", "max_connections=200"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self._user,
            cwd=self._folder,
            start_new_session=True,
        )
        eventually(self._answers, seconds=60, what="PostgreSQL answers")

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.url):
                return True
        except psycopg.OperationalError:
            return False

    def kill(self) -> None:
        """Kill the server and its children, as a crash of the machine's would."""
        assert self._process is not None
        os.killpg(self._process.pid, 9)
        self._process.wait()


class Plane:
    """A database, a Redis, and workers and a beat that are killed and started again."""

    def __init__(self, folder: Path, server: Postgres, **more: str) -> None:
        port = free_port()
        command = [redis_server(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
        self._redis = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        assert wait_for_port(port, 20)
        url = f"redis://127.0.0.1:{port}/0"
        self.environment = {name: text for name, text in os.environ.items() if not name.startswith("BERTH_")}
        self.environment |= {
            "BERTH_STATE_DIR": str(folder / "state"),
            "BERTH_DATABASE_URL": server.url,
            "BERTH_REDIS_URL": url,
            "BERTH_ROLE": "worker",
            "BERTH_SECRET_KEY": "s" * 64,
            **more,
        }
        self._log = (folder / "worker.log").open("ab")
        self._url = server.url
        self._broker = Celery(broker=url)
        self._worker: subprocess.Popen[bytes] | None = None
        self._beat: subprocess.Popen[bytes] | None = None

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(
            command,
            cwd=BASE_DIR,
            env={**self.environment, "BERTH_ROLE": "command"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start_worker(self) -> None:
        """Start one, and wait until it takes tasks."""
        self._worker = self._celery("worker", "-Q", "ops", "-c", "2", "-l", "INFO")
        eventually(lambda: self._broker.control.ping(timeout=0.5), seconds=120, what="the worker answers")

    def kill_worker(self) -> None:
        """Kill it and its children, as a crash of the machine's would."""
        self._worker = self._kill(self._worker)

    def start_beat(self) -> None:
        """Start what sends each task at its time."""
        Path(self.environment["BERTH_STATE_DIR"]).mkdir(exist_ok=True)
        self._beat = self._celery("beat", "--pidfile=", BERTH_ROLE="beat", BERTH_BEAT_BIND=f"127.0.0.1:{free_port()}")

    def kill_beat(self) -> None:
        self._beat = self._kill(self._beat)

    def _celery(self, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "controlplane", *arguments],
            cwd=BASE_DIR,
            env=self.environment | more,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def _kill(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def tick(self, task: str = "publish_scheduled") -> None:
        """What beat sends each second or two."""
        self._broker.send_task(f"scheduler.tasks.{task}", queue="ops")

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)  # type: ignore[arg-type] # written here
            return cursor.fetchall() if cursor.description else []

    def stop(self) -> None:
        self.kill_beat()
        self.kill_worker()
        self._broker.close()
        self._redis.terminate()
        self._redis.wait()
        self._log.close()
