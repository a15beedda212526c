"""Celery's way to Redis: by TLS it looks at the certificate, as the way of Decisions does, a password is what the URL says, and what is no
message ends nothing.
"""

import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from kombu import Connection

from controlplane import redis_transport
from tests.certificates import Files
from tests.component.decisions.real_history import serving

ROOT = Path(__file__).parents[3]
ASKS = """
import django
django.setup()
from scheduler.broker import celery_app
with celery_app().connection_for_write() as connection:
    connection.ensure_connection(max_retries=1, interval_start=0, timeout=1)
"""


class Stranger:
    """Listens by TLS, or without, and keeps what it is told; it answers nothing."""

    def __init__(self, files: Files | None = None) -> None:
        self.told = b""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if files else None
        if self._context and files:
            self._context.load_cert_chain(files.cert, files.key)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            try:
                if self._context:
                    connection = self._context.wrap_socket(connection, server_side=True)
                self.told += connection.recv(4096)
            except OSError:
                pass  # who came didn't like the certificate
            connection.close()

    def end(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "tls")


@pytest.fixture
def stranger(files: Files) -> Iterator[Stranger]:
    made = Stranger(files)
    yield made
    made.end()


def ask(folder: Path, url: str) -> str:
    """Return what a process says that connects as one which sends tasks."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BERTH_", "DJANGO_"))}
    given = {"BERTH_STATE_DIR": str(folder), "BERTH_REDIS_URL": url, "DJANGO_SETTINGS_MODULE": "controlplane.settings"}
    done = subprocess.run(
        [sys.executable, "-c", ASKS],
        cwd=ROOT,
        env=kept | given,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout + done.stderr


def test_a_password_is_told_to_nobody_whose_certificate_is_of_an_unknown_authority(
    stranger: Stranger, tmp_path: Path
) -> None:
    said = ask(tmp_path, f"rediss://:hunter2@localhost:{stranger.port}/0")
    assert "certificate verify failed" in said
    assert stranger.told == b""


def test_it_is_told_where_the_url_names_the_authority(stranger: Stranger, files: Files, tmp_path: Path) -> None:
    ask(tmp_path, f"rediss://:hunter2@localhost:{stranger.port}/0?ssl_ca_certs={files.server_ca}")
    assert b"hunter2" in stranger.told


def test_a_password_may_hold_what_celery_separates_urls_by(tmp_path: Path) -> None:
    stranger = Stranger()
    ask(tmp_path, f"redis://:hunter;2@127.0.0.1:{stranger.port}/0")
    stranger.end()
    assert b"hunter;2" in stranger.told


@pytest.mark.parametrize(
    "wrong", [b"garbage", b"[]", b"null", b"7", b'{"body": "x", "properties": {"body_encoding": "base64"}}']
)
def test_what_is_no_message_ends_no_worker_and_holds_up_none(tmp_path: Path, wrong: bytes) -> None:
    redis_transport.use()
    came: list[object] = []
    with (
        serving(tmp_path) as server,
        Connection(server.url) as connection,
        connection.SimpleQueue("ops") as queue,
    ):
        queue.put("before")
        with redis.Redis.from_url(server.url) as client:
            client.lpush("ops", wrong)
        queue.put("behind")
        queue.consumer.register_callback(lambda body, _: came.append(body))
        queue.consumer.consume()
        deadline = time.monotonic() + 10
        while len(came) < 2 and time.monotonic() < deadline:
            with suppress(TimeoutError):
                connection.drain_events(timeout=1)
    assert came == ["before", "behind"]


def test_a_queue_that_no_worker_reads_keeps_its_newest_messages_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_transport.use()
    monkeypatch.setattr(redis_transport, "_MOST_MESSAGES", 3)
    with (
        serving(tmp_path) as server,
        Connection(server.url) as connection,
        connection.SimpleQueue("ops") as queue,
    ):
        for number in range(5):
            queue.put(number)
        assert queue.qsize() == 3
        assert [queue.get(timeout=5).payload for _ in range(3)] == [2, 3, 4]


_WORKS = """
import django
django.setup()
from controlplane.celery import app
app.Worker(pool="threads", concurrency=1, queues=["ops"], without_heartbeat=True, without_gossip=True, without_mingle=True).start()
"""


def test_a_worker_connects_once_a_second_where_redis_takes_it_and_refuses_its_commands(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BERTH_", "DJANGO_"))}
    with serving(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-brpop"])
        given = {"BERTH_STATE_DIR": str(tmp_path), "BERTH_REDIS_URL": server.url, "BERTH_ROLE": "worker"}
        given |= {"DJANGO_SETTINGS_MODULE": "controlplane.settings", "BERTH_SECRET_KEY": "s" * 64}
        log = tmp_path / "log"
        with log.open("wb") as output:
            worker = subprocess.Popen([sys.executable, "-c", _WORKS], cwd=ROOT, env=kept | given, stderr=output)
        try:
            deadline = time.monotonic() + 60
            while (begun := log.read_text().count("Connected to")) < 1 and time.monotonic() < deadline:
                time.sleep(0.1)
            time.sleep(4)
            assert 1 <= log.read_text().count("Connected to") - begun <= 5
        finally:
            worker.kill()
            worker.wait()


def test_a_worker_outlives_the_end_of_redis_while_a_message_is_not_acknowledged(tmp_path: Path) -> None:
    """Celery collects the connection, which fails midway, and then closes it."""
    redis_transport.use()
    with serving(tmp_path) as server:
        connection = Connection(server.url)
        with connection.SimpleQueue("ops") as queue:
            queue.put("before")
        assert connection.default_channel.basic_get("ops") is not None
        for tag, channel in enumerate((connection.default_channel, connection.channel())):
            channel.basic_consume("ops", False, print, str(tag))
            channel.connection.cycle._register_BRPOP(channel)
        server.kill()
        connection.collect(socket_timeout=1)
        connection.close()


@pytest.mark.parametrize("end", ["ack", "reject", "requeue"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_task_that_ends_after_its_connection_ends_no_worker(tmp_path: Path, end: str, *, is_there: bool) -> None:
    """Its message can be acknowledged no more: it returns to its queue, and is done again."""
    redis_transport.use()
    with serving(tmp_path) as server:
        connection = Connection(server.url)
        with connection.SimpleQueue("ops") as queue:
            queue.put("before")
        message = connection.default_channel.basic_get("ops")
        assert message is not None
        for tag, channel in enumerate((connection.default_channel, connection.channel())):
            channel.basic_consume("ops", False, print, str(tag))
            channel.connection.cycle._register_BRPOP(channel)
        if not is_there:
            server.kill()
            connection.collect(socket_timeout=1)
        connection.close()
        getattr(message, end)()
        if is_there:
            with Connection(server.url) as again, again.SimpleQueue("ops") as queue:
                assert queue.get(timeout=5).payload == "before"
