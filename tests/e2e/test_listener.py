"""The extender's listener: who gets in, what slow and hostile clients can do, and how a process ends."""

import errno
import os
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from scheduler.http_server.listeners import refuse_beginnings
from tests.certificates import Authority, Files, write
from tests.extender import BASE_DIR, BODY, Extender, client_context, post
from tests.stack import eventually

# kube-scheduler's httpTimeout when none is set: an answer that takes longer is none.
KUBE_SCHEDULER_SECONDS = 5.0

SECRET = "hunter2"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secured(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    clients = {"BERTH_EXTENDER_CLIENTS": "system:kube-scheduler, spiffe://example.org/scheduler,second.example.org"}
    with Extender(tmp_path_factory.mktemp("secured"), files.environment() | clients) as extender:
        yield extender


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    with Extender(tmp_path_factory.mktemp("plain"), {"BERTH_EXTENDER_MAX_BODY_BYTES": "100000"}) as extender:
        yield extender


def call(extender: Extender, files: Files, client: Path | None) -> tuple[int, dict[str, Any]]:
    connection = extender.connect(client_context(files.server_ca, client), timeout=KUBE_SCHEDULER_SECONDS)
    try:
        return post(connection)
    finally:
        connection.close()


class TestClientCertificates:
    @pytest.mark.parametrize(
        ("name", "alternatives"),
        [
            pytest.param("system:kube-scheduler", {}, id="common name"),
            pytest.param("", {"uris": ("spiffe://example.org/scheduler",)}, id="URI"),
            pytest.param("somebody", {"dns": ("second.example.org",)}, id="DNS"),
        ],
    )
    def test_who_is_on_the_list_by_common_or_alternative_name_may_call(
        self, secured: Extender, files: Files, name: str, alternatives: dict[str, Any]
    ) -> None:
        assert call(secured, files, files.client(name, **alternatives))[0] == 200

    @pytest.mark.parametrize(
        ("name", "alternatives"),
        [
            pytest.param("system:kube-controller-manager", {}, id="another name"),
            pytest.param("system:kube-scheduler2", {}, id="a longer name"),
            pytest.param("system:kube-schedule", {}, id="a shorter name"),
            pytest.param("System:Kube-Scheduler", {}, id="another case"),
            pytest.param("*", {"dns": ("*.example.org",)}, id="a wildcard"),
            pytest.param("", {"emails": ("second.example.org@example.org",)}, id="a name within a name"),
        ],
    )
    def test_who_is_not_on_the_list_is_refused_by_a_text_that_names_nobody(
        self, secured: Extender, files: Files, name: str, alternatives: dict[str, Any]
    ) -> None:
        status, answer = call(secured, files, files.client(name, **alternatives))
        assert (status, answer) == (403, {"Error": "the client certificate is not one that may call"})

    @pytest.mark.parametrize(
        "written",
        [
            pytest.param(b"\x30\x06\x82\x04\xff\xfeab", id="a DNS name that isn't text"),
            pytest.param(b"\x30\x06\x86\x04\xff\xfeab", id="a URI that isn't text"),
        ],
    )
    def test_who_shows_names_that_cannot_be_read_is_refused_in_words_and_fills_no_log(
        self, secured: Extender, files: Files, written: bytes
    ) -> None:
        status, answer = call(secured, files, files.client(written_alternatives=written))
        assert (status, answer) == (403, {"Error": "the client certificate is not one that may call"})
        assert "a request failed" not in secured.log

    def test_a_call_with_a_large_body_is_refused_in_words_too(self, secured: Extender, files: Files) -> None:
        connection = secured.connect(client_context(files.server_ca, files.client("somebody")))
        assert post(connection, body=b"x" * 5_000_000)[0] == 403

    @pytest.mark.parametrize(
        ("make", "alert"),
        [
            pytest.param(lambda _: None, "CERTIFICATE_REQUIRED", id="none"),
            pytest.param(lambda files: files.client(days=-1), "CERTIFICATE_EXPIRED", id="expired"),
            pytest.param(lambda files: files.client(days=30), "BAD_CERTIFICATE|CERTIFICATE_EXPIRED", id="not yet"),
            pytest.param(
                lambda files: files.client(by=Authority("clients")), "UNKNOWN_CA|DECRYPT", id="wrong authority"
            ),
            pytest.param(lambda files: files.client(by=files.servers), "UNKNOWN_CA", id="the servers' authority"),
        ],
    )
    def test_a_handshake_without_a_certificate_that_holds_is_refused(
        self, secured: Extender, files: Files, make: Callable[[Files], Path | None], alert: str
    ) -> None:
        with pytest.raises(ssl.SSLError) as caught:
            call(secured, files, make(files))
        assert re.search(alert, str(caught.value.reason))

    def test_a_server_s_certificate_is_no_client_certificate(self, secured: Extender, files: Files) -> None:
        certificate, key = files.clients.sign("system:kube-scheduler")
        with pytest.raises(ssl.SSLError):
            call(secured, files, write(files.folder / "server-as-client.pem", certificate + key))

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    def test_tls_1_2_and_1_3_are_spoken_with_http_1_1_in_them(
        self, secured: Extender, files: Files, version: ssl.TLSVersion
    ) -> None:
        context = client_context(files.server_ca, files.client())
        context.minimum_version = context.maximum_version = version
        connection = secured.connect(context)
        assert post(connection)[0] == 200
        assert isinstance(connection.sock, ssl.SSLSocket)
        assert connection.sock.selected_alpn_protocol() == "http/1.1"

    @pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
    def test_tls_1_1_is_refused(self, secured: Extender, files: Files) -> None:
        context = client_context(files.server_ca, files.client())
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, OSError)):
            post(secured.connect(context))

    def test_plain_http_gets_no_answer_on_the_listener_with_tls(self, secured: Extender) -> None:
        with pytest.raises(OSError):  # noqa: PT011 - reset or closed, as it happens
            post(secured.connect())

    def test_a_certificate_that_ends_while_its_connection_goes_on_is_refused_from_then_on(
        self, secured: Extender, files: Files
    ) -> None:
        connection = secured.connect(client_context(files.server_ca, files.client(days=3 / 86_400)))
        assert post(connection)[0] == 200
        eventually(lambda: post(connection)[0] == 403, seconds=30, what="the certificate has ended")

    def test_the_probes_are_on_their_own_listener_without_tls_and_nothing_else_is(self, secured: Extender) -> None:
        for probe in ("livez", "metrics"):
            assert secured.says_yes(probe)
        assert secured.ask("GET", "/readyz")[0] == 503
        for verb in ("filter", "prioritize", "filter/"):
            assert secured.ask("POST", f"/{verb}", BODY)[0] == 404


def test_the_commands_of_the_documentation_make_certificates_that_do(tmp_path: Path) -> None:
    if not shutil.which("openssl"):
        pytest.skip("openssl is missing")
    section = (BASE_DIR / "docs" / "operations.md").read_text().partition("## Certificates")[2]
    commands = section.partition("```sh\n")[2].partition("```")[0]
    subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=tmp_path, check=True, capture_output=True)
    settings = {
        "BERTH_EXTENDER_TLS_CERT_FILE": str(tmp_path / "server.crt"),
        "BERTH_EXTENDER_TLS_KEY_FILE": str(tmp_path / "server.key"),
        "BERTH_EXTENDER_CLIENT_CA_FILE": str(tmp_path / "client-ca.crt"),
    }
    client = tmp_path / "client.pem"
    client.write_bytes((tmp_path / "client.crt").read_bytes() + (tmp_path / "client.key").read_bytes())
    with Extender(tmp_path, settings) as extender:
        assert post(extender.connect(client_context(tmp_path / "server-ca.crt", client)))[0] == 200


class TestRotation:
    @pytest.fixture
    def own(self, tmp_path: Path) -> Iterator[tuple[Extender, Files]]:
        files = Files(tmp_path / "tls")
        with Extender(tmp_path, files.environment()) as extender:
            yield extender, files

    def serial(self, extender: Extender, files: Files, client: Path) -> str:
        """The serial number of the certificate that a new connection sees."""
        connection = extender.connect(client_context(files.server_ca, client))
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        serial = dict(connection.sock.getpeercert() or {})["serialNumber"]
        connection.close()
        return str(serial)

    def test_a_new_server_certificate_is_for_new_connections_and_old_ones_go_on(
        self, own: tuple[Extender, Files]
    ) -> None:
        extender, files = own
        client = files.client()
        old = extender.connect(client_context(files.server_ca, client))
        assert post(old)[0] == 200
        before = self.serial(extender, files, client)
        first = old.sock

        files.renew_server()

        assert self.serial(extender, files, client) != before
        assert post(old)[0] == 200
        assert old.sock is first

    def test_a_new_client_authority_takes_the_old_one_s_place_without_a_restart(
        self, own: tuple[Extender, Files]
    ) -> None:
        extender, files = own
        old, new = files.client(), Authority("new clients")
        new_client = files.client(by=new)
        connected = extender.connect(client_context(files.server_ca, old))
        assert post(connected)[0] == 200

        write(files.client_ca, files.clients.pem + new.pem)
        assert call(extender, files, old)[0] == 200
        assert call(extender, files, new_client)[0] == 200

        write(files.client_ca, new.pem)
        with pytest.raises(ssl.SSLError):
            call(extender, files, old)
        assert call(extender, files, new_client)[0] == 200
        assert post(connected)[0] == 200

    def test_files_of_a_mounted_secret_are_read_anew_when_its_link_is_swapped(self, tmp_path: Path) -> None:
        """kubelet writes a new folder and renames the link `..data` to it; the files are links through `..data`."""
        files = Files(tmp_path / "tls")
        mount = tmp_path / "mount"
        mount.mkdir()

        def publish(name: str) -> None:
            folder = mount / f"..{name}"
            folder.mkdir()
            for path in (files.cert, files.key, files.client_ca):
                (folder / path.name).write_bytes(path.read_bytes())
            (mount / "..data_tmp").symlink_to(folder.name)
            (mount / "..data_tmp").rename(mount / "..data")

        publish("first")
        for path in (files.cert, files.key, files.client_ca):
            (mount / path.name).symlink_to(Path("..data") / path.name)
        settings = {name: str(mount / Path(text).name) for name, text in files.environment().items()}
        client = files.client()
        with Extender(tmp_path, settings) as extender:
            before = self.serial(extender, files, client)
            files.renew_server()
            assert self.serial(extender, files, client) == before
            publish("second")
            assert self.serial(extender, files, client) != before

    @pytest.mark.parametrize("broken", ["certificate", "key", "authority", "missing"])
    def test_a_broken_new_file_leaves_the_old_one_in_use_and_is_told_once(
        self, own: tuple[Extender, Files], broken: str
    ) -> None:
        extender, files = own
        client = files.client()
        before = self.serial(extender, files, client)
        expiry = extender.metric('berth_tls_expires_at_seconds{file="certificate"}')
        path = {"certificate": files.cert, "key": files.key, "authority": files.client_ca, "missing": files.cert}[
            broken
        ]
        if broken == "missing":
            path.unlink()
        else:
            write(path, b"-----BEGIN NOTHING-----\nhunter2\n")

        for _ in range(3):
            assert self.serial(extender, files, client) == before
            assert call(extender, files, client)[0] == 200

        assert extender.metric("berth_tls_reload_failures_total") == 1
        assert extender.log.count("the previous ones stay in use") == 1
        assert SECRET not in extender.log
        assert extender.metric('berth_tls_expires_at_seconds{file="certificate"}') == expiry

        write(files.client_ca, files.clients.pem)
        files.renew_server()
        assert self.serial(extender, files, client) != before

    def test_a_broken_file_is_told_without_any_connection(self, own: tuple[Extender, Files]) -> None:
        extender, files = own
        write(files.key, b"")
        eventually(lambda: extender.metric("berth_tls_reload_failures_total") == 1, what="the failure is counted")


class TestStart:
    @pytest.mark.parametrize(
        ("settings", "arguments", "message"),
        [
            pytest.param(
                {"BERTH_EXTENDER_TLS_CERT_FILE": "/nowhere"},
                (),
                "BERTH_EXTENDER_TLS_KEY_FILE and BERTH_EXTENDER_CLIENT_CA_FILE must be set too",
                id="a part of TLS",
            ),
            pytest.param(
                {"BERTH_EXTENDER_BIND": "0.0.0.0:1"}, (), "is reachable from other machines", id="open by setting"
            ),
            pytest.param({}, ("-b", "0.0.0.0:1"), "would listen for other machines without TLS", id="open by -b"),
            pytest.param(
                {
                    "BERTH_EXTENDER_TLS_CERT_FILE": "/nowhere/crt",
                    "BERTH_EXTENDER_TLS_KEY_FILE": "/nowhere/key",
                    "BERTH_EXTENDER_CLIENT_CA_FILE": "/nowhere/ca",
                },
                (),
                "BERTH_EXTENDER_CLIENT_CA_FILE '/nowhere/ca' can't be used: No such file or directory",
                id="no files",
            ),
        ],
    )
    def test_settings_that_would_leave_the_listener_open_or_dead_end_the_start_in_words(
        self, tmp_path: Path, settings: dict[str, str], arguments: tuple[str, ...], message: str
    ) -> None:
        extender = Extender(tmp_path, settings, *arguments)
        extender.launch()
        assert extender.process is not None
        assert extender.process.wait(60) != 0
        assert message in extender.log
        assert "Traceback" not in extender.log

    def test_a_key_with_a_passphrase_ends_the_start_and_asks_nobody_for_it(self, tmp_path: Path) -> None:
        files = Files(tmp_path / "tls")
        command = [
            "openssl",
            "ec",
            "-aes128",
            "-passout",
            "pass:hunter2",
            "-in",
            str(files.key),
            "-out",
            str(files.key),
        ]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("openssl is missing")
        extender = Extender(tmp_path, files.environment())
        extender.launch()
        assert extender.process is not None
        assert extender.process.wait(60) != 0
        assert "BERTH_EXTENDER_TLS_KEY_FILE" in extender.log


def trickle(extender: Extender, start: bytes) -> socket.socket:
    """Open a connection that has begun to say something and doesn't go on."""
    connection = socket.create_connection(("127.0.0.1", extender.port), timeout=60)
    connection.sendall(start)
    return connection


SLOW_HEAD = b"POST /filter HTTP/1.1\r\nHost: x\r\nX-Slow: "
SLOW_BODY = (
    b"POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n{"
)


class TestSlowClients:
    @pytest.mark.parametrize("start", [b"", b"P", SLOW_HEAD, SLOW_BODY], ids=["silent", "a letter", "head", "body"])
    @pytest.mark.parametrize("count", [50, 150])
    def test_clients_that_trickle_keep_nobody_from_being_answered(
        self, plain: Extender, start: bytes, count: int
    ) -> None:
        with ExitStack() as stack:
            slow = [stack.enter_context(trickle(plain, start)) for _ in range(count)]
            done = threading.Event()

            def drip() -> None:
                while start and not done.wait(0.2):
                    for connection in slow:
                        try:
                            connection.send(b" ")
                        except OSError:  # it was cut off, as it should be
                            continue

            dripping = threading.Thread(target=drip)
            dripping.start()
            try:
                for _ in range(10):
                    connection = plain.connect(timeout=KUBE_SCHEDULER_SECONDS)
                    assert post(connection)[0] == 200
                    connection.close()
                assert plain.says_yes("livez")
            finally:
                done.set()
                dripping.join()

    def test_clients_that_do_not_finish_the_handshake_keep_nobody_from_being_answered(
        self, secured: Extender, files: Files
    ) -> None:
        client = files.client()
        with ExitStack() as stack:
            for _ in range(50):
                stack.enter_context(trickle(secured, b"\x16\x03\x01\x02\x00\x01"))
            for _ in range(10):
                assert call(secured, files, client)[0] == 200

    def test_more_silent_connections_than_there_is_room_for_keep_nobody_out(self, plain: Extender) -> None:
        with ExitStack() as stack:
            for _ in range(600):
                stack.enter_context(trickle(plain, b""))
            for _ in range(10):
                assert post(plain.connect(timeout=KUBE_SCHEDULER_SECONDS))[0] == 200

    def test_clients_that_do_not_read_their_answers_keep_nobody_from_being_answered(self, plain: Extender) -> None:
        request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
        with ExitStack() as stack:
            for _ in range(100):
                connection = stack.enter_context(socket.socket())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
                connection.connect(("127.0.0.1", plain.port))
                connection.setblocking(False)
                for _ in range(1000):
                    try:
                        connection.send(request)
                    except BlockingIOError:
                        break
            for _ in range(10):
                assert post(plain.connect(timeout=KUBE_SCHEDULER_SECONDS))[0] == 200

    @pytest.mark.parametrize("start", [SLOW_HEAD, SLOW_BODY], ids=["head", "body"])
    def test_a_client_that_never_goes_on_is_told_and_let_go(self, plain: Extender, start: bytes) -> None:
        with trickle(plain, start) as connection:
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n")
        assert answer.endswith(b'{"Error":"Request Timeout"}')


class TestLimits:
    @pytest.mark.parametrize(
        ("request_head", "status"),
        [
            pytest.param(b"POST /" + b"x" * 3000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, id="path"),
            pytest.param(b"POST / HTTP/1.1\r\n" + b"A: b\r\n" * 40 + b"\r\n", 431, id="header fields"),
            pytest.param(b"POST / HTTP/1.1\r\nA: " + b"b" * 5000 + b"\r\n\r\n", 431, id="a long header field"),
            pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, id="TLS where there is none"),
            pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="HTTP/2"),
            pytest.param(b"POST / HTTP/1.1\r\nA b: c\r\n\r\n", 400, id="a broken header field"),
            pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\n", 400, id="two lengths"),
        ],
    )
    def test_what_is_not_http_as_it_should_be_is_refused_without_being_quoted(
        self, plain: Extender, request_head: bytes, status: int
    ) -> None:
        with trickle(plain, request_head) as connection:
            answer = connection.makefile("rb").read()
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert re.search(rb'\r\n\r\n{"Error":"[A-Za-z -]+"}$', answer)

    def test_a_body_over_the_limit_is_refused_in_words(self, plain: Extender) -> None:
        status, answer = post(plain.connect(), body=b" " * 300_000)
        assert status == 413
        assert "BERTH_EXTENDER_MAX_BODY_BYTES" in answer["Error"]

    def test_calls_over_the_rate_are_answered_429_and_later_ones_again(self, tmp_path: Path) -> None:
        with Extender(tmp_path, {"BERTH_EXTENDER_CALLS_PER_SECOND": "20"}) as extender:
            connection = extender.connect()
            answers = [post(connection) for _ in range(60)]
            assert [status for status, _ in answers[:20]] == [200] * 20
            refused = [answer for status, answer in answers if status == 429]
            assert refused
            assert {answer["Error"] for answer in refused} == {
                "too many calls; BERTH_EXTENDER_CALLS_PER_SECOND sets the limit"
            }
            eventually(lambda: post(connection)[0] == 200, what="the bucket has filled")
            assert extender.metric('berth_extender_calls_total{outcome="refused",verb="filter"}') >= len(refused)


class TestSecrets:
    def test_what_clients_send_stands_in_no_line_of_the_log(self, tmp_path: Path) -> None:
        heads = [
            f"POST /filter?token={SECRET} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n",
            f"POST /filter/{SECRET} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n",
            f"POST http://berth:{SECRET}@127.0.0.1/nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n",
            f"POST /filter HTTP/1.1\r\nHost: {SECRET}@x\r\nAuthorization: Basic {SECRET}\r\nContent-Length: 0\r\n",
            f"POST /{SECRET} HTTP/9.9\r\nHost: x\r\n",
            f"{SECRET.upper()}* /x HTTP/1.1\r\nHost: x\r\n",
            f"POST / HTTP/1.1\r\n{SECRET} x: y\r\n",
            f"POST / HTTP/1.1\r\nSCRIPT_NAME: /{SECRET}\r\nScript-Name: /{SECRET}\r\nContent-Length: 0\r\n",
            f"POST / HTTP/1.1\r\nTransfer-Encoding: {SECRET}\r\n",
            f"POST / HTTP/1.1\r\nExpect: {SECRET}\r\n",
            f"POST /filter HTTP/1.1\r\nContent-Type: {SECRET}/x\r\nContent-Length: 0\r\n",
            f"PUT /filter?{SECRET} HTTP/1.1\r\nContent-Length: 0\r\n",
            f"POST /filter HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{SECRET}\r\n",
        ]
        bodies = [f'{{"{SECRET}'.encode(), f'{{"Pod":{{"metadata":{{"name":["{SECRET}"]}}}},"NodeNames":[]}}'.encode()]
        with Extender(tmp_path, {"BERTH_LOG_LEVEL": "DEBUG"}) as extender:
            for head in heads:
                with trickle(extender, head.encode() + b"\r\n") as connection:
                    connection.shutdown(socket.SHUT_WR)
                    answer = connection.makefile("rb").read()
                    assert answer.startswith(b"HTTP/1.1 "), head
            for body in bodies:
                assert post(extender.connect(), body=body)[0] == 400
            assert post(extender.connect(), headers={"Authorization": f"Basic {SECRET}"})[0] == 200
        assert "Worker exiting" in extender.log
        assert SECRET not in extender.log.lower()


class TestStop:
    def test_a_connection_in_use_gets_its_last_answer_with_connection_close(self, tmp_path: Path) -> None:
        extender = Extender(tmp_path).start()
        connection = extender.connect()
        assert post(connection)[0] == 200
        assert extender.process is not None
        extender.process.send_signal(signal.SIGTERM)

        # Calls go on until one is told that it was the last; none fails before.
        while True:
            connection.request("POST", "/filter", BODY, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
            if answer.headers.get("Connection") == "close":
                break
        assert extender.stop() == 0

    @pytest.mark.parametrize("wait_seconds", [0.0, 0.1])
    def test_a_connection_that_was_answered_a_moment_ago_is_good_for_one_more_call_for_seconds(
        self, tmp_path: Path, wait_seconds: float
    ) -> None:
        """Be it that a thread stays with it when the stop comes, or that it waits without one."""
        extender = Extender(tmp_path).start()
        connection = extender.connect()
        assert post(connection)[0] == 200
        assert extender.process is not None
        time.sleep(wait_seconds)
        extender.process.send_signal(signal.SIGTERM)
        time.sleep(4)

        connection.request("POST", "/filter", BODY, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, answer.headers.get("Connection")) == (200, "close")
        assert extender.stop() == 0

    def test_a_call_in_hand_is_finished(self, tmp_path: Path) -> None:
        extender = Extender(tmp_path).start()
        head = f"POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
        with trickle(extender, head.encode() + BODY[:10]) as connection:
            eventually(lambda: extender.says_yes("livez"))
            assert extender.process is not None
            extender.process.send_signal(signal.SIGTERM)
            eventually(lambda: not can_connect(extender.port), what="it listens no longer")
            connection.sendall(BODY[10:])
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nConnection: close\r\n" in answer
        assert extender.stop() == 0

    def test_clients_that_trickle_do_not_keep_a_process_from_ending_in_order(self, tmp_path: Path) -> None:
        extender = Extender(tmp_path).start()
        with ExitStack() as stack:
            for start in (b"", SLOW_HEAD, SLOW_BODY):
                stack.enter_context(trickle(extender, start))
            assert extender.stop() == 0
        assert "Worker exiting" in extender.log
        assert "SIGKILL" not in extender.log

    def test_a_new_master_takes_over_the_listeners_and_ends_the_old_one(self, tmp_path: Path) -> None:
        """Without a Revision it is never ready; it takes over all the same after a while, or is ended."""
        extender = Extender(tmp_path).start()
        assert extender.process is not None
        old = extender.process.pid
        os.kill(old, signal.SIGUSR2)
        eventually(lambda: extender.log.count("Booting worker") == 2, what="a second master has a worker")
        assert extender.process.poll() is None
        new = int(re.findall(r"Listening at: \S+ \((\d+)\)", extender.log)[-1])
        assert new != old
        try:
            assert post(extender.connect())[0] == 200
        finally:
            os.kill(new, signal.SIGTERM)
            assert extender.stop() == 0
        eventually(lambda: not can_connect(extender.port), what="both have ended")


# asm-generic/socket.h; from then on filters are refused with EPERM.
_SO_LOCK_FILTER = 44


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's filter is Linux's")
class TestRefuseBeginnings:
    def test_a_connection_that_was_made_is_kept_and_a_new_one_is_not_begun(self) -> None:
        with ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            made = stack.enter_context(socket.create_connection(listener.getsockname()))
            late = stack.enter_context(socket.socket())
            refuse_beginnings(listener)
            late.settimeout(0.3)
            with pytest.raises(TimeoutError):
                late.connect(listener.getsockname())
            accepted = stack.enter_context(listener.accept()[0])
            made.sendall(b"a")
            assert accepted.recv(1) == b"a"

    def test_a_new_connection_is_told_that_nobody_listens_once_the_listener_is_closed(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as late:
            refuse_beginnings(listener)
            late.setblocking(False)
            assert late.connect_ex(listener.getsockname()) == errno.EINPROGRESS
            listener.close()
            select.select([], [late], [], 30)
            assert late.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED

    def test_where_the_kernel_refuses_the_filter_connections_are_taken_until_the_listener_is_closed(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, _SO_LOCK_FILTER, 1)
            refuse_beginnings(listener)
            assert can_connect(listener.getsockname()[1])


def can_connect(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
