"""Requests, credentials, timeouts and faults of the client."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from scheduler.cluster import errors
from scheduler.cluster.client import MERGE_PATCH, Client, LineStream, pending_pods
from tests.certificates import Authority, write
from tests.unit.cluster.kubernetes_json import list_json, pod_json, status_json
from tests.unit.cluster.scripted_server import Answer, Request, serving, write_kubeconfig


def write_pair(folder: Path, authority: Authority) -> Path:
    """Write a server's certificate with its key."""
    return write(folder / "pair.pem", b"".join(authority.sign("server")))


class TestConnect:
    """Loading a configuration."""

    @pytest.mark.parametrize(
        "content",
        [
            pytest.param(None, id="there is no file"),
            pytest.param("", id="the file is empty"),
            pytest.param("{[", id="the file isn't YAML"),
            pytest.param("current-context: x\ncontexts: []\nclusters: []\nusers: []", id="the context is missing"),
        ],
    )
    def test_refuses_a_kubeconfig_that_is_of_no_use(self, tmp_path: Path, content: str | None) -> None:
        """The fault is one of ours, with the package's as its cause."""
        path = tmp_path / "kubeconfig"
        if content is not None:
            path.write_text(content)
        with pytest.raises(errors.APIConfigurationError) as caught:
            Client.connect(path).get(path="/version")
        assert caught.value.__cause__ is not None
        assert str(caught.value).startswith(f"no usable Kubernetes configuration in {path}: ")

    @pytest.mark.parametrize("nothing", [None, ""])
    def test_refuses_the_in_cluster_configuration_outside_a_cluster(
        self, monkeypatch: pytest.MonkeyPatch, nothing: str | None
    ) -> None:
        """Nothing else is taken instead."""
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        with pytest.raises(errors.APIConfigurationError, match="BERTH_KUBECONFIG names none, and this is no Pod: "):
            Client.connect(nothing).get(path="/version")

    def test_takes_up_a_kubeconfig_that_comes_later(self, tmp_path: Path) -> None:
        """Berth may start before the cluster has written its kubeconfig."""
        path = tmp_path / "kubeconfig"
        client = Client.connect(path)
        with pytest.raises(errors.APIConfigurationError):
            client.get(path="/version")
        write_kubeconfig(tmp_path, "http://127.0.0.1:1").replace(path)
        with pytest.raises(errors.APIUnavailableError):
            client.get(path="/version")

    def test_connecting_needs_no_server_and_the_first_request_says_so(self, tmp_path: Path) -> None:
        """The API server may be away at start; the first request says so."""
        client = Client.connect(write_kubeconfig(tmp_path, "http://127.0.0.1:1"))
        with pytest.raises(errors.APIUnavailableError) as caught:
            client.get(path="/version")
        assert caught.value.status is None
        assert caught.value.__cause__ is not None

    def test_reaches_a_server_on_this_machine_without_the_proxy(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As kubectl does."""
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        with serving(lambda _: Answer(body=b"{}")) as server:
            assert Client.connect(write_kubeconfig(tmp_path, server.url)).get(path="/version") == b"{}"

    @pytest.mark.parametrize("says_keys", [True, False])
    def test_takes_certificates_as_go_does(self, tmp_path: Path, says_keys: bool) -> None:
        """Those of many clusters don't say whose key signed them, which Python asks for from 3.13 on."""
        authority = Authority(says_keys=says_keys)
        write(tmp_path / "ca.pem", authority.pem)
        with serving(lambda _: Answer(body=b"{}"), pair=write_pair(tmp_path, authority)) as server:
            kubeconfig = write_kubeconfig(tmp_path, server.url, cluster={"certificate-authority": "ca.pem"})
            assert Client.connect(kubeconfig).get(path="/version") == b"{}"

    @pytest.mark.parametrize("cluster", [{}, {"certificate-authority": "other.pem"}])
    def test_refuses_a_server_that_no_known_authority_signed(self, tmp_path: Path, cluster: dict[str, str]) -> None:
        write(tmp_path / "other.pem", Authority().pem)
        with serving(lambda _: Answer(body=b"{}"), pair=write_pair(tmp_path, Authority())) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url, cluster=cluster))
            with pytest.raises(errors.APIUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
                client.get(path="/version")
        assert not server.requests

    @pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
    def test_takes_any_server_where_the_kubeconfig_says_so(self, tmp_path: Path) -> None:
        with serving(lambda _: Answer(body=b"{}"), pair=write_pair(tmp_path, Authority())) as server:
            kubeconfig = write_kubeconfig(tmp_path, server.url, cluster={"insecure-skip-tls-verify": True})
            assert Client.connect(kubeconfig).get(path="/version") == b"{}"


class TestCredentials:
    """Who asks."""

    def test_sends_the_token_of_the_kubeconfig_with_each_request(self, tmp_path: Path) -> None:
        """A bearer token goes with each request."""
        with serving(lambda _: Answer(body=b"{}")) as server:
            Client.connect(write_kubeconfig(tmp_path, server.url, {"token": "secret"})).get(path="/version")
        assert server.requests[0].headers["Authorization"] == "Bearer secret"

    def test_reads_credentials_anew_when_they_are_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A token that was replaced on disk is used without a restart, and the request is sent again."""
        monkeypatch.setattr("scheduler.cluster.client.CREDENTIALS_KEPT_SECONDS", 0.0)

        valid = ["old"]

        def script(request: Request) -> Answer:
            return Answer(200 if request.headers["Authorization"] == f"Bearer {valid[0]}" else 401, b"{}")

        with serving(script) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url, {"token": "old"}))
            client.get(path="/version")
            write_kubeconfig(tmp_path, server.url, {"token": "new"})
            valid[0] = "new"
            assert client.get(path="/version") == b"{}"
        assert len(server.requests) == 3

    def test_gives_up_when_new_credentials_are_refused_too(self, tmp_path: Path) -> None:
        """A 401 that stays is not asked for in a loop."""
        with serving(lambda _: Answer(401, msgspec.json.encode(status_json(401, "Unauthorized")))) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url, {"token": "old"}))
            for _ in range(3):
                with pytest.raises(errors.APIForbiddenError):
                    client.get(path="/version")
        assert len(server.requests) <= 4

    def test_token_is_in_no_message(self, tmp_path: Path) -> None:
        """Faults are logged; tokens must not be."""
        with serving(lambda _: Answer(403, b"no")) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url, {"token": "secret"}))
            with pytest.raises(errors.APIForbiddenError) as caught:
                client.get(path="/version")
        assert "secret" not in str(caught.value)


class TestRequests:
    """What is sent and what comes back."""

    def test_a_refusal_is_the_exception_of_its_status(self, tmp_path: Path) -> None:
        """With the words of the server."""
        body = msgspec.json.encode(status_json(409, "AlreadyExists"))
        with serving(lambda _: Answer(409, body)) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            with pytest.raises(errors.APIConflictError, match="POST /api/v1/x: 409 AlreadyExists") as caught:
                client.post(path="/api/v1/x", body=b"{}")
        assert caught.value.reason == "AlreadyExists"

    def test_nothing_is_sent_twice(self, tmp_path: Path) -> None:
        """A fault is the caller's to judge."""
        with serving(lambda _: Answer(503, headers={"Retry-After": "1"})) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            with pytest.raises(errors.APIUnavailableError) as caught:
                client.post(path="/x", body=b"{}")
        assert caught.value.retry_after_seconds == 1.0
        assert len(server.requests) == 1

    def test_a_redirect_is_not_followed(self, tmp_path: Path) -> None:
        """Credentials stay with the server they are for."""
        with serving(lambda _: Answer(302, headers={"Location": "/elsewhere"})) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            with pytest.raises(errors.APIUnavailableError):
                client.get(path="/x")
        assert [request.path for request in server.requests] == ["/x"]

    def test_a_server_that_says_nothing_is_waited_for_no_longer_than_asked(self, tmp_path: Path) -> None:
        """Every request has a timeout, and a lease's is short."""

        given_up = threading.Event()

        def script(_: Request) -> Answer:
            given_up.wait(60)
            return Answer()

        with serving(script) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            with pytest.raises(errors.APITimeoutError):
                client.get(path="/x", timeout_seconds=0.2)
            given_up.set()

    def test_an_answer_cut_short_is_a_fault(self, tmp_path: Path) -> None:
        """Half a list is never taken for a list."""
        with serving(lambda _: Answer(stream=[b'{"items":', None])) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            with pytest.raises(errors.APIUnavailableError):
                client.get(path="/x")

    def test_each_verb_sends_its_body(self, tmp_path: Path) -> None:
        """PUT, PATCH and DELETE as Kubernetes wants them."""
        with serving(lambda _: Answer(body=b"{}")) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            client.put(path="/x", body=b"1")
            client.patch(path="/x", body=b"2", content_type=MERGE_PATCH)
            client.delete(path="/x", body=b"3")
            client.delete(path="/x")
        sent = [(asked.method, asked.body, asked.headers.get("Content-Type")) for asked in server.requests]
        assert sent == [
            ("PUT", b"1", "application/json"),
            ("PATCH", b"2", "application/merge-patch+json"),
            ("DELETE", b"3", "application/json"),
            ("DELETE", b"", None),
        ]

    def test_connections_are_used_again(self, tmp_path: Path) -> None:
        """A handshake a request would cost more than the request, also after refusals."""
        with serving(lambda asked: Answer(404 if asked.path == "/no" else 200, b"{}")) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            for _ in range(5):
                client.get(path="/yes")
                with pytest.raises(errors.APINotFoundError):
                    client.get(path="/no")
        assert len(server.requests) == 10
        assert server.connections == 1

    def test_may_be_used_by_many_threads(self, tmp_path: Path) -> None:
        """More at once than connections are kept."""
        with serving(lambda asked: Answer(body=asked.path.encode())) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url), pool_size=4)
            answers: list[bool] = []

            def ask(number: int) -> None:
                for turn in range(10):
                    path = f"/{number}/{turn}"
                    answers.append(client.get(path=path) == path.encode())

            threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert answers == [True] * 120


class TestListPages:
    """Lists in pages."""

    def test_asks_for_page_after_page(self, tmp_path: Path) -> None:
        """Each with the token of the one before."""

        def script(request: Request) -> Answer:
            token = request.query.get("continue", "")
            return Answer(body=list_json([pod_json(f"p{token}")], token={"": "1", "1": "2", "2": ""}[token]))

        with serving(script) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            pods = pending_pods(client)
        assert [pod["metadata"]["name"] for pod in pods] == ["p", "p1", "p2"]
        assert {request.query["limit"] for request in server.requests} == {"500"}
        assert {request.query["fieldSelector"] for request in server.requests} == {
            "spec.nodeName=,status.phase=Pending"
        }

    def test_says_when_a_page_is_gone(self, tmp_path: Path) -> None:
        """Whoever lists begins again."""

        def script(request: Request) -> Answer:
            return Answer(410) if "continue" in request.query else Answer(body=list_json([], token="more"))

        with serving(script) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            with pytest.raises(errors.APIGoneError):
                list(client.list_pages(path="/api/v1/pods"))

    def test_refuses_an_answer_that_is_no_list(self, tmp_path: Path) -> None:
        """A proxy's page isn't an empty list."""
        with serving(lambda _: Answer(body=b"<html>")) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            with pytest.raises(errors.APIUnavailableError):
                client.list_pods()


class TestPatchPodAnnotations:
    """Writing annotations."""

    def test_names_the_pod_by_uid(self, tmp_path: Path) -> None:
        """So that another Pod of the same name is refused by the server."""
        with serving(lambda _: Answer(body=msgspec.json.encode(pod_json("a")))) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            pod = client.patch_pod_annotations(
                namespace="web", name="a", uid="u1", annotations={"berth/x": "1", "berth/y": None}
            )
        (request,) = server.requests
        assert (request.method, request.path) == ("PATCH", "/api/v1/namespaces/web/pods/a")
        assert msgspec.json.decode(request.body) == {
            "metadata": {"uid": "u1", "annotations": {"berth/x": "1", "berth/y": None}}
        }
        assert pod["metadata"]["name"] == "a"

    def test_patches_only_the_version_that_it_is_given(self, tmp_path: Path) -> None:
        """So that a Pod that changed meanwhile is refused by the server."""
        with serving(lambda _: Answer(body=msgspec.json.encode(pod_json("a")))) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            client.patch_pod_annotations(namespace="web", name="a", uid="u1", annotations={}, resource_version="7")
        (request,) = server.requests
        assert msgspec.json.decode(request.body)["metadata"]["resourceVersion"] == "7"

    @pytest.mark.parametrize(
        ("field", "kind"),
        [
            pytest.param("metadata.uid", errors.APIConflictError, id="another UID is a conflict"),
            pytest.param("metadata.annotations", errors.APIInvalidError, id="a bad annotation is invalid"),
        ],
    )
    def test_tells_another_pod_from_a_bad_annotation(
        self, tmp_path: Path, field: str, kind: type[errors.APIError]
    ) -> None:
        """The API server answers both with 422."""
        body = msgspec.json.encode(status_json(422, "Invalid", causes=[{"reason": "X", "field": field}]))
        with serving(lambda _: Answer(422, body)) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            with pytest.raises(kind):
                client.patch_pod_annotations(namespace="web", name="a", uid="u1", annotations={})


@pytest.mark.parametrize("path", ["/api/v1/namespaces/web/pods/a", "/api/v1/namespaces/web/pods/a/status"])
def test_a_patch_of_another_object_of_the_name_is_a_conflict_whatever_is_patched(tmp_path: Path, path: str) -> None:
    """So that who patches a Pod that was replaced meanwhile takes it for gone, and goes on."""
    causes = [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]
    with serving(lambda _: Answer(422, msgspec.json.encode(status_json(422, "Invalid", causes=causes)))) as server:
        client = Client.connect(write_kubeconfig(tmp_path, server.url))
        with pytest.raises(errors.APIConflictError) as caught:
            client.patch(path=path, body=b"{}", content_type=MERGE_PATCH)
    assert (caught.value.status, caught.value.reason) == (422, "Invalid")


class TestStream:
    """Answers that stay open."""

    def test_gives_whole_lines_however_they_are_cut(self, tmp_path: Path) -> None:
        """Chunks and lines have nothing to do with each other."""
        with serving(lambda _: Answer(stream=[b'{"a"', b":1}\n{}\n{", b"}\n"])) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            assert list(client.stream(path="/x", query={}, read_timeout=5)) == [b'{"a":1}', b"{}", b"{}"]

    def test_gives_no_half_line(self, tmp_path: Path) -> None:
        """The rest of a broken connection is a fault, not an event."""
        with serving(lambda _: Answer(stream=[b'{"a":1}\n{"b"', None])) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            stream = client.stream(path="/x", query={}, read_timeout=5)
            assert next(stream) == b'{"a":1}'
            with pytest.raises(errors.APIUnavailableError):
                next(stream)

    def test_a_stream_ends_with_an_error_once_the_server_is_silent_too_long(self, tmp_path: Path) -> None:
        """A dead connection that nobody closed."""
        with serving(lambda _: Answer(stream=[b"{}\n", 3.0])) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            stream = client.stream(path="/x", query={}, read_timeout=0.2)
            assert next(stream) == b"{}"
            with pytest.raises(errors.APITimeoutError):
                next(stream)

    def test_gives_nothing_that_was_read_after_it_was_aborted(self) -> None:
        """Python takes TLS off a connection that it shuts, and another thread then reads what TLS had written."""

        class Response:
            def stream(self, *_: object, **__: object) -> Iterator[bytes]:
                yield b"a\n"
                lines.abort()
                yield b"\xfc\x08\nb\n"

            def shutdown(self) -> None: ...

            def close(self) -> None: ...

        lines = LineStream(cast("Any", Response()), context="a watch")
        assert list(lines) == [b"a"]

    def test_ends_at_once_when_another_thread_aborts_it(self, tmp_path: Path) -> None:
        """Stopping doesn't wait for the server."""
        with serving(lambda _: Answer(stream=[b"{}\n", 5.0])) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            stream = client.stream(path="/x", query={}, read_timeout=60)
            started = time.monotonic()
            threading.Timer(0.1, stream.abort).start()
            assert list(stream) == [b"{}"]
            assert time.monotonic() - started < 2.0
            stream.abort()


class TestServerThatMoves:
    """The kubeconfig is read again after a broken connection, not at each of many."""

    def test_is_found_where_the_kubeconfig_says_it_is_now(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A cluster that is made again has another port."""
        monkeypatch.setattr("scheduler.cluster.client.CREDENTIALS_KEPT_SECONDS", -1.0)
        client = Client.connect(write_kubeconfig(tmp_path, "http://127.0.0.1:1"))
        with serving(lambda _: Answer(body=b"{}")) as server:
            for reach in (lambda: client.get(path="/version"), client.open_socket):
                write_kubeconfig(tmp_path, "http://127.0.0.1:1")
                client._access = None
                with pytest.raises(errors.APIUnavailableError):
                    reach()
                write_kubeconfig(tmp_path, server.url)
                assert client.get(path="/version") == b"{}"

    def test_a_kubeconfig_that_was_just_read_is_not_read_for_each_broken_connection(self, tmp_path: Path) -> None:
        """So that calls that fail by hundreds cost no more than they must."""
        client = Client.connect(write_kubeconfig(tmp_path, "http://127.0.0.1:1"))
        reads: list[int] = []
        load = client._load
        client._load = lambda: (reads.append(1), load())[1]
        for _ in range(5):
            with pytest.raises(errors.APIUnavailableError):
                client.get(path="/version")
        assert len(reads) == 1

    def test_a_refusal_is_no_reason_to_read_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The server is there: it has answered."""
        monkeypatch.setattr("scheduler.cluster.client.CREDENTIALS_KEPT_SECONDS", -1.0)
        with serving(lambda _: Answer(500, b"no")) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            for _ in range(2):
                with pytest.raises(errors.APIUnavailableError):
                    client.get(path="/version")
                write_kubeconfig(tmp_path, "http://127.0.0.1:1")
            assert len(server.requests) == 2
