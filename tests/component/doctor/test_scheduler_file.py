"""What doctor says of kube-scheduler's configuration: its findings, the address, the certificates."""

import os
import socket
import ssl
import subprocess
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from scheduler.doctor.checkup import check, configured_verbs
from scheduler.doctor.parts import Part
from tests.certificates import Authority, write
from tests.component.doctor.checkups import part, set_environment
from tests.http_answers import answering
from tests.unit.doctor.cases import berth

pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("healthy")
class TestConfiguration:
    def write(self, folder: Path, text: str) -> Path:
        path = folder / "scheduler.yaml"
        path.write_text(text)
        return path

    def test_its_findings_come_with_it(self, tmp_path: Path) -> None:
        found = check(scheduler_config=self.write(tmp_path, berth("nodeCacheCapable: false")), quick=True)
        assert part(found, "configuration").state == "error"
        assert "node-cache-capable-false" in {each.id for each in found.findings}
        assert not found.ok

    def test_the_file_that_is_set_is_looked_at(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        path = self.write(tmp_path, berth("prioritizeVerb: prioritize, weight: 150, bindVerb: bind"))
        set_environment(monkeypatch, scheduler_config=str(path))
        assert part(check(quick=True), "configuration").state == "ok"
        assert configured_verbs() == ("filter", "prioritize", "bind")

    @pytest.mark.parametrize(("profile", "is_told"), [("gpu", True), ("berth", False)])
    def test_a_profile_with_a_name_that_berths_scheduler_has_here_is_told(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: str, is_told: bool
    ) -> None:
        set_environment(monkeypatch, scheduler_names=("night", "gpu"))
        path = self.write(tmp_path, berth() + f"profiles: [{{schedulerName: {profile}}}]")
        found = check(scheduler_config=path, quick=True).findings
        assert ("profile-name-is-berths" in {each.id for each in found}) is is_told

    def test_a_file_that_is_missing_is_an_error(self, tmp_path: Path) -> None:
        assert part(check(scheduler_config=tmp_path / "none", quick=True), "configuration").state == "error"


class _Answers(BaseHTTPRequestHandler):
    code = 200

    def do_GET(self) -> None:
        self.send_response(self.code)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Stay silent."""


def _alert(listening: socket.socket) -> None:
    """Answer a request as a server of TLS does: with an alert."""
    caller, _ = listening.accept()
    with caller:
        caller.recv(4096)
        caller.sendall(b"\x15\x03\x03\x00\x02\x02\x46\r\n")


@pytest.fixture(params=[200])
def server(request: pytest.FixtureRequest) -> Iterator[HTTPServer]:
    handler = type("Answers", (_Answers,), {"code": request.param})
    with answering(handler) as made:
        yield made


def make_certificate(folder: Path, *, days: int) -> Path:
    path = folder / "certificate.pem"
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=any", "-addext", "subjectAltName=IP:127.0.0.1", "-days", str(days)]
    subprocess.run([*new, *names, "-keyout", folder / "key.pem", "-out", path], check=True, capture_output=True)
    path.write_text(path.read_text() + (folder / "key.pem").read_text())
    return path


@pytest.fixture
def asked() -> Iterator[int]:
    """A standard input with an answer to OpenSSL's question for a passphrase."""
    there, (answer, giver) = os.dup(0), os.pipe()
    os.set_blocking(answer, False)
    os.write(giver, b"word\n")
    os.dup2(answer, 0)
    yield answer
    os.dup2(there, 0)
    for each in (there, answer, giver):
        os.close(each)


@pytest.mark.usefixtures("healthy")
class TestAddress:
    def look(self, folder: Path, url: str, members: str = "") -> Part:
        (folder / "scheduler.yaml").write_text(berth(members, url))
        return part(check(scheduler_config=folder / "scheduler.yaml"), "address")

    @pytest.mark.parametrize(("server", "state"), [(200, "ok"), (403, "ok"), (308, "error")], indirect=["server"])
    def test_what_answers_there_is_told(self, tmp_path: Path, server: HTTPServer, state: str) -> None:
        assert self.look(tmp_path, f"http://127.0.0.1:{server.server_port}").state == state

    def test_nothing_there_is_a_warning(self, tmp_path: Path, server: HTTPServer) -> None:
        assert self.look(tmp_path, "http://127.0.0.1:1").state == "warning"

    def test_what_speaks_no_http_is_a_warning(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            answers = threading.Thread(target=_alert, args=[listening])
            answers.start()
            found = self.look(tmp_path, f"http://127.0.0.1:{listening.getsockname()[1]}")
            answers.join()
        assert found.state == "warning"
        assert "speaks no HTTP" in found.says

    @pytest.mark.parametrize("url", ["http://127.0.0.1:1/a b", "http://127.0.0.1:1/\u00e4", "http://a..b:1"])
    def test_a_url_that_nobody_can_call_is_a_warning(self, tmp_path: Path, url: str) -> None:
        found = self.look(tmp_path, url)
        assert (found.state, "nobody can call" in found.says) == ("warning", True)

    def test_a_ca_that_is_elsewhere_is_a_warning(self, tmp_path: Path) -> None:
        assert self.look(tmp_path, "https://127.0.0.1:1", "tlsConfig: {caFile: /nowhere}").state == "warning"

    def test_a_server_is_checked_by_the_ca(self, tmp_path: Path, server: HTTPServer) -> None:
        certificate = make_certificate(tmp_path, days=90)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = f"https://127.0.0.1:{server.server_port}"
        assert self.look(tmp_path, url, f"tlsConfig: {{caFile: {certificate}}}").state == "ok"
        assert self.look(tmp_path, url).state == "warning"

    def test_a_server_is_called_with_the_data_that_stand_in_the_file(self, tmp_path: Path, server: HTTPServer) -> None:
        certificate = make_certificate(tmp_path, days=90)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate)
        context.load_cert_chain(certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url, data = f"https://127.0.0.1:{server.server_port}", b64encode(certificate.read_bytes()).decode()
        ours = f"certData: {data}, keyData: {data}"
        assert self.look(tmp_path, url, f"tlsConfig: {{caData: {data}, {ours}}}").state == "ok"
        assert self.look(tmp_path, url, f"tlsConfig: {{caData: {data}, caFile: /nowhere, {ours}}}").state == "ok"
        assert self.look(tmp_path, url, f"tlsConfig: {{caData: {data}}}").state == "warning"

    @pytest.mark.parametrize("form", [["pkcs8", "-topk8"], ["ec", "-aes128"]], ids=["PKCS 8", "of openssl"])
    def test_a_key_with_a_passphrase_is_told_and_nobody_is_asked_for_it(
        self, tmp_path: Path, form: list[str], asked: int
    ) -> None:
        certificate, key = make_certificate(tmp_path, days=90), tmp_path / "locked.pem"
        lock = ["openssl", *form, "-passout", "pass:word", "-in", tmp_path / "key.pem", "-out", key]
        subprocess.run(lock, check=True, capture_output=True)
        found = self.look(tmp_path, "https://127.0.0.1:1", f"tlsConfig: {{certFile: {certificate}, keyFile: {key}}}")
        assert (found.state, "passphrase" in found.remedy) == ("warning", True)
        assert os.read(asked, 9) == b"word\n"

    @pytest.mark.parametrize("members", ["tlsConfig: {insecure: true}", "enableHTTPS: true"])
    def test_a_server_that_kube_scheduler_does_not_verify_is_reached(
        self, tmp_path: Path, server: HTTPServer, members: str
    ) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(make_certificate(tmp_path, days=90))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        assert self.look(tmp_path, f"https://127.0.0.1:{server.server_port}", members).state == "ok"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def base64_of(*pems: bytes) -> str:
    return b64encode(b"".join(pems)).decode()


@pytest.mark.usefixtures("healthy")
class TestCertificates:
    def look(self, folder: Path, members: str) -> Part:
        (folder / "scheduler.yaml").write_text(berth(f"tlsConfig: {{{members}}}", "https://berth.example"))
        return part(check(scheduler_config=folder / "scheduler.yaml", quick=True), "certificate")

    @pytest.mark.parametrize("member", ["caFile", "certFile", "caData", "certData"])
    @pytest.mark.parametrize(
        ("days", "state", "says"),
        [
            (15, "warning", "expires on "),
            (-1, "error", "expired at "),
            (21.5, "error", "is valid only from "),
        ],
    )
    def test_the_time_in_which_it_is_valid_is_told(
        self, tmp_path: Path, authority: Authority, member: str, days: float, state: str, says: str
    ) -> None:
        pem, _ = authority.sign("any", days=days)
        value = base64_of(pem) if member.endswith("Data") else write(tmp_path / "a.pem", pem)
        found = self.look(tmp_path, f"{member}: {value}")
        assert (found.name, found.state) == (f"certificate tlsConfig.{member}", state)
        assert says in found.says

    def test_one_that_is_valid_for_long_is_well(self, tmp_path: Path) -> None:
        assert self.look(tmp_path, f"caFile: {make_certificate(tmp_path, days=90)}").state == "ok"

    def test_data_stand_in_for_the_file_beside_them(self, tmp_path: Path, authority: Authority) -> None:
        ended, _ = authority.sign("any", days=-1)
        lasting = base64_of(make_certificate(tmp_path, days=90).read_bytes())
        assert self.look(tmp_path, f"caData: {lasting}, caFile: {write(tmp_path / 'a.pem', ended)}").state == "ok"

    @pytest.mark.parametrize(("days", "state"), [(-1, "warning"), (22, "ok")], ids=["ended", "not begun"])
    def test_one_authority_of_several_that_is_not_valid_ends_no_calls(
        self, tmp_path: Path, authority: Authority, days: float, state: str
    ) -> None:
        lasting, (other, _) = make_certificate(tmp_path, days=90).read_bytes(), authority.sign("any", days=days)
        found = self.look(tmp_path, f"caData: {base64_of(lasting, other)}")
        assert found.state == state
        assert self.look(tmp_path, f"certData: {base64_of(lasting, other)}").state == "error"

    def test_a_certificate_on_another_machine_is_unknown(self, tmp_path: Path) -> None:
        assert self.look(tmp_path, f"caFile: {tmp_path / 'none.pem'}").state == "unknown"

    @pytest.mark.parametrize("member", ["caFile", "caData"])
    def test_what_is_no_certificate_is_an_error(self, tmp_path: Path, member: str) -> None:
        value = base64_of(b"word") if member == "caData" else write(tmp_path / "a.pem", b"word")
        assert self.look(tmp_path, f"{member}: {value}").state == "error"
