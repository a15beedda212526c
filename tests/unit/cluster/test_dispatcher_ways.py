"""The ways to the API server that a kubeconfig can name: what the client reaches, the dispatcher reaches too."""

import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from scheduler.cluster.client import Client
from scheduler.cluster.dispatcher import UNANSWERED, APIRequest, Dispatcher
from tests.certificates import Authority
from tests.stack import eventually
from tests.unit.cluster.scripted_server import Answer, ScriptedServer, serving, write_kubeconfig


def kubeconfig(folder: Path, url: str, **cluster: str) -> Path:
    path = write_kubeconfig(folder, url)
    document = msgspec.json.decode(path.read_bytes())
    document["clusters"][0]["cluster"] |= cluster
    path.write_bytes(msgspec.json.encode(document))
    return path


def ask_both(client: Client) -> int:
    """Ask by the client and by the dispatcher; returns the status that the dispatcher was told."""
    assert client.get(path="/api/v1/pods") == b"{}"
    told: list[int] = []
    dispatcher = Dispatcher(client, timeout_seconds=5.0, connections=1)
    dispatcher.start()
    dispatcher.send(APIRequest("/api/v1/bindings", b"{}", lambda status, _: told.append(status)))
    eventually(lambda: told, seconds=20, every=0.002, what="it is answered")
    dispatcher.stop()
    return told[0]


@contextmanager
def proxying(server: ScriptedServer) -> Iterator[tuple[str, list[bytes]]]:
    """Run a proxy that leads every tunnel to the server, and forwards nothing else; yields its URL and what it was asked."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def serve(near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", urlsplit(server.url).port or 0)) as far:
            head = b""
            while b"\r\n\r\n" not in head:
                head += near.recv(4096)
            asked.append(head.partition(b" HTTP/")[0])
            near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=pump, args=(far, near), daemon=True)
            back.start()
            pump(near, far)
            back.join()

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(near,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        listener.shutdown(socket.SHUT_RDWR)


def pump(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65_536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        return


@pytest.fixture
def speaking_tls(tmp_path: Path) -> Iterator[tuple[ScriptedServer, Path]]:
    """Serve with TLS as kube.example; yields the server and the file of its authority."""
    authority = Authority()
    certificate, key = authority.sign("kube", dns=("kube.example",))
    pair, ca = tmp_path / "pair.pem", tmp_path / "ca.pem"
    pair.write_bytes(certificate + key)
    ca.write_bytes(authority.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    with serving(lambda _: Answer(body=b"{}")) as server:
        server._http.socket = context.wrap_socket(server._http.socket, server_side=True)
        yield server, ca


def test_a_server_behind_a_gateways_path_is_asked_below_that_path(tmp_path: Path) -> None:
    with serving(lambda _: Answer(body=b"{}")) as server:
        status = ask_both(Client.connect(kubeconfig(tmp_path, f"{server.url}/k8s/clusters/c-1/")))

    assert status == 200
    assert [request.path for request in server.requests][-1] == "/k8s/clusters/c-1/api/v1/bindings"


def test_a_server_behind_a_proxy_is_asked_through_a_tunnel(
    tmp_path: Path, speaking_tls: tuple[ScriptedServer, Path]
) -> None:
    server, ca = speaking_tls
    with proxying(server) as (url, asked):
        more = {"proxy-url": url, "certificate-authority": str(ca)}
        status = ask_both(Client.connect(kubeconfig(tmp_path, "https://kube.example:6443", **more)))

    assert status == 200
    assert asked == [b"CONNECT kube.example:6443"] * 2
    assert [request.path for request in server.requests] == ["/api/v1/pods", "/api/v1/bindings"]


def test_a_way_that_no_connection_of_its_own_can_go_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client.connect(kubeconfig(tmp_path, "http://kube.example:8080", **{"proxy-url": "http://127.0.0.1:1"}))
    told: list[int] = []
    dispatcher = Dispatcher(client, timeout_seconds=5.0, connections=1)
    with caplog.at_level(logging.WARNING, "berth.cluster"):
        for number in range(2):
            dispatcher._away_until = 0.0
            dispatcher.send(APIRequest(f"/{number}", b"{}", lambda status, _: told.append(status)))
            dispatcher._hand_out()

    assert told == [UNANSWERED] * 2
    assert [record.getMessage() for record in caplog.records] == [
        "nothing can be sent to the API server: connecting: a proxy is only gone through by http:// and to an API server with https://"
    ]
