"""Server and token: kept where only the account can read them, or named by a kubeconfig."""

import io
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.certificates import Authority, write
from tests.unit.berth.conftest import Berth, Stub, _Handler

STATUS: dict[str, object] = {
    "revision": {"number": 3, "made_by": "operator"},
    "processes": [],
    "open_changes": 0,
    "lost_decisions": 2,
    "pending": {"pods": 1, "fault": ""},
    "paused": [],
}


@pytest.fixture
def nobody(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BERTH_SERVER", "BERTH_TOKEN"):
        monkeypatch.delenv(name)


def test_whoami_says_of_a_token_without_the_scope_read_that_it_is_needed(berth: Berth, stub: Stub) -> None:
    told = {"account": "operator", "token": "token ci (a)", "roles": ["Operator"]}
    stub.answer("GET", "/whoami", told | {"scopes": ["edit"], "may": {"read": False, "edit": True}})
    assert berth("whoami").out.endswith(
        "  it may: edit\n  ! The token lacks the scope read, which each call needs: create another token.\n"
    )
    stub.answer("GET", "/whoami", told | {"scopes": ["edit", "read"], "may": {"read": True, "edit": True}})
    assert berth("whoami").out.endswith("  it may: read, edit\n")
    stub.answer("GET", "/whoami", told | {"scopes": ["read"], "roles": [], "may": {"read": False}})
    assert berth("whoami").out.endswith("  roles: none\n  it may: nothing\n")


@pytest.mark.usefixtures("nobody")
def test_login_keeps_nothing_where_something_else_answers(
    berth: Berth, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.answer("GET", "/whoami", {"status": "UP"})
    monkeypatch.setattr("sys.stdin", io.StringIO("secret-token\n"))

    ran = berth("login", stub.url)

    assert ran.code == 3
    assert "isn't Berth" in ran.err
    assert not (tmp_path / "config").exists()


@pytest.mark.usefixtures("nobody")
def test_login_keeps_what_was_tried_for_this_account_alone(
    berth: Berth, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.answer("GET", "/whoami", {"account": "operator", "token": "ci", "scopes": ["read"], "roles": [], "may": {}})
    monkeypatch.setattr("sys.stdin", io.StringIO("secret-token\n"))

    ran = berth("login", stub.url + "/")

    assert ran.code == 0
    kept = tmp_path / "config" / "berth" / "config.json"
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert json.loads(kept.read_text())["server"] == stub.url
    assert "secret-token" not in ran.out + ran.err
    assert berth("whoami").out.startswith(f"{stub.url} knows you as operator.")
    assert stub.asked[-1]["headers"]["Authorization"] == "Bearer secret-token"

    assert berth("logout", "-o", "json").json == {"ok": True, "deleted": True}
    assert berth("whoami").code == 1
    assert berth("logout", "-o", "json").json == {"ok": True, "deleted": False}


@pytest.mark.usefixtures("nobody")
def test_a_token_that_the_server_refuses_isnt_kept(
    berth: Berth, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.answer("GET", "/whoami", {"status": 401, "detail": "Unknown token.", "faults": []}, 401)
    monkeypatch.setattr("sys.stdin", io.StringIO("secret-token\n"))

    assert berth("login", stub.url).code == 1
    assert not (tmp_path / "config").exists()


def test_a_token_that_is_no_text_is_refused_in_a_sentence(
    berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some shells of Windows pipe it."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("secret-token\n".encode("utf-16"))))

    ran = berth("login", stub.url)

    assert (ran.code, stub.asked) == (1, [])
    assert ran.err == "The token on standard input isn't UTF-8.\n"


@contextmanager
def listening(folder: Path, days: float = 1) -> Iterator[str]:
    """Yield where the stub listens with a certificate that `authority.pem` signed, and that ends in so many days."""
    authority = Authority()
    write(folder / "authority.pem", authority.pem)
    pair = write(folder / "pair.pem", b"".join(authority.sign("berth", days=days)))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def secured(stub: Stub, tmp_path: Path) -> Iterator[str]:
    with listening(tmp_path) as server:
        yield server


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("is_argument", [True, False])
def test_login_keeps_where_certificates_are_for_commands_in_any_folder(
    berth: Berth, stub: Stub, secured: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_argument: bool
) -> None:
    stub.answer("GET", "/whoami", {"account": "operator", "token": "ci", "scopes": ["read"], "roles": [], "may": {}})
    monkeypatch.setattr("sys.stdin", io.StringIO("secret-token\n"))
    monkeypatch.chdir(tmp_path)
    if not is_argument:
        monkeypatch.setenv("BERTH_CA_FILE", "authority.pem")

    ran = berth("login", secured, *(["--ca-file", "authority.pem"] if is_argument else []))

    assert ran.code == 0, ran.err
    monkeypatch.delenv("BERTH_CA_FILE", raising=False)
    monkeypatch.chdir("/")
    assert berth("whoami").code == 0

    (tmp_path / "authority.pem").unlink()
    assert "authority.pem holds no certificates" in berth("whoami").err


@pytest.mark.usefixtures("nobody")
def test_whose_certificate_nobody_known_signed_is_said_with_what_names_the_signer(berth: Berth, secured: str) -> None:
    ran = berth("status", "--server", secured)

    assert ran.code == 3
    assert "BERTH_CA_FILE" in ran.err
    assert "is this its address" not in ran.err


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server that listens here be another machine's, to which no proxy leads."""
    monkeypatch.setattr("berth.places._LOOPBACK", set())
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nobody", "far_away")
def test_certificates_of_the_system_verify_the_server(
    berth: Berth, stub: Stub, secured: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.answer("GET", "/status", STATUS)
    assert berth("status", "--server", secured).code == 3

    def of_the_system(context: ssl.SSLContext, purpose: object = None) -> None:
        del purpose
        context.load_verify_locations(tmp_path / "authority.pem")

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", of_the_system)
    ran = berth("status", "--server", secured)

    assert ran.code == 0, ran.err


@pytest.mark.usefixtures("nobody", "far_away")
@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_of_certificates_without_any_is_not_taken_for_the_output(
    berth: Berth, secured: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificates.pem"))
    if content:
        (tmp_path / "certificates.pem").write_text(content)

    ran = berth("status", "--server", secured, "--output", "json")

    assert ran.code == 3
    assert "BERTH_CA_FILE" in ran.json["error"]


@pytest.mark.usefixtures("nobody", "far_away")
def test_certificates_of_ssl_cert_file_verify_the_server(
    berth: Berth, stub: Stub, secured: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.answer("GET", "/status", STATUS)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))

    ran = berth("status", "--server", secured)

    assert ran.code == 0, ran.err


@pytest.mark.usefixtures("nobody", "stub")
def test_of_a_certificate_whose_time_is_over_nobody_is_sent_for_its_signer(
    berth: Berth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTH_CA_FILE", str(tmp_path / "authority.pem"))
    with listening(tmp_path, days=-1) as server:
        ran = berth("status", "--server", server)

    assert ran.code == 3
    assert "certificate has expired" in ran.err
    assert "BERTH_CA_FILE" not in ran.err


def _keep(tmp_path: Path, server: str, mode: int = 0o600) -> Path:
    path = tmp_path / "config" / "berth" / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"server": server, "token": "kept-token"}))
    path.chmod(mode)
    return path


@pytest.mark.usefixtures("nobody")
def test_a_kept_token_goes_to_its_own_server_alone(berth: Berth, stub: Stub, tmp_path: Path) -> None:
    _keep(tmp_path, "https://another.example.org")

    berth("status", "--server", stub.url)

    assert "Authorization" not in stub.asked[0]["headers"]


@pytest.mark.usefixtures("nobody")
def test_a_kept_token_that_others_can_read_is_refused(berth: Berth, stub: Stub, tmp_path: Path) -> None:
    path = _keep(tmp_path, stub.url, 0o644)

    ran = berth("status")

    assert (ran.code, stub.asked) == (1, [])
    assert f"chmod 600 {path}" in ran.err


@pytest.fixture
def homeless(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as an account that the machine doesn't know, as containers do."""
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)


@pytest.mark.usefixtures("homeless")
def test_an_account_without_a_home_needs_no_stored_server(
    berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.answer("GET", "/status", STATUS)
    monkeypatch.delenv("KUBECONFIG", raising=False)

    assert berth("status").code == 0
    assert "~/.kube/config can't be read as a kubeconfig" in berth("status", "--from-kubeconfig").err
    monkeypatch.delenv("BERTH_TOKEN")
    for asked in (["status"], ["logout"]):
        ran = berth(*asked)
        assert (ran.code, ran.out) == (1, "")
        assert "set HOME or XDG_CONFIG_HOME" in ran.err


def test_who_names_server_and_token_needs_no_home_that_can_be_read(berth: Berth, stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("nothing can be in here")
    stub.answer("GET", "/status", STATUS)

    assert berth("status").code == 0


def _kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    extension = {"name": "berth.io/server", "extension": {"server": url}}
    contexts = [
        {"name": "here", "context": {"cluster": "c", "extensions": [extension]}},
        {"name": "silent", "context": {"cluster": "c"}},
    ]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump({"current-context": "here", "contexts": contexts}))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{path}")


def test_kubeconfigs_context_names_the_server_when_told_so(
    berth: Berth, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _kubeconfig(tmp_path, monkeypatch, stub.url)
    monkeypatch.setenv("BERTH_SERVER", "http://127.0.0.1:1")
    stub.answer("GET", "/status", STATUS)

    assert berth("status").code == 3
    assert berth("status", "--from-kubeconfig").out.splitlines() == [
        *("Revision 3 is live, made by operator.", "! No process serves it.", "Pending Pods: 1"),
        *("Open Changes: 0", "✗ Lost Decisions: 2"),
    ]
    assert berth("status", "--context", "here").code == 0
    assert "extension berth.io/server" in berth("status", "--context", "silent").err
    assert "no context nowhere" in berth("status", "--context", "nowhere").err


def test_of_several_kubeconfigs_the_current_context_is_kubectls(
    berth: Berth, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def context(name: str, url: str) -> dict[str, object]:
        extension = {"name": "berth.io/server", "extension": {"server": url}}
        return {"name": name, "context": {"cluster": "c", "extensions": [extension]}}

    first = {"current-context": "production", "contexts": [context("staging", stub.url)]}
    contexts = [
        context("development", "http://127.0.0.1:1"),
        context("production", stub.url),
        context("staging", "http://127.0.0.1:1"),
    ]
    (tmp_path / "first").write_text(yaml.safe_dump(first))
    (tmp_path / "second").write_text(yaml.safe_dump({"current-context": "development", "contexts": contexts}))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/first:{tmp_path}/second")
    stub.answer("GET", "/status", STATUS)

    assert berth("status", "--from-kubeconfig").code == 0
    assert berth("status", "--context", "staging").code == 0
    assert berth("status", "--context", "development").code == 3


@pytest.mark.parametrize("extension", [{}, {"url": "https://berth.example.org"}, {"server": ""}, {"server": None}])
def test_a_context_whose_extension_names_no_server_asks_no_other_one(
    berth: Berth, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: dict[str, object]
) -> None:
    found = {"cluster": "c", "extensions": [{"name": "berth.io/server", "extension": extension}]}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump({"contexts": [{"name": "production", "context": found}]}))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setenv("BERTH_SERVER", stub.url)
    stub.answer("GET", "/status", STATUS)

    ran = berth("status", "--context", "production")

    assert (ran.code, stub.asked) == (1, [])
    assert "The context production doesn't say where Berth is" in ran.err


@pytest.mark.parametrize(
    "text", ["- a", "contexts: 5", "contexts: [null]", "contexts: [{name: a, context: {extensions: 5}}]"]
)
def test_a_kubeconfig_that_is_none_is_said_to_be_none(
    berth: Berth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))

    ran = berth("status", "--context", "a")

    assert ran.code == 1
    assert f"{tmp_path}/kubeconfig can't be read as a kubeconfig" in ran.err
