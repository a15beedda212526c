"""What becomes of a binding, by what the API server says: faults that no real server can be made to show on demand."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from scheduler.cluster.bind import Outcome, Target, bind, look_up, version_if_possible
from scheduler.cluster.client import Client
from scheduler.trouble import Trouble
from tests.unit.cluster.scripted_server import Answer, Request, serving, write_kubeconfig

TARGET = Target("default", "web-1", "uid-1", "n1")
POST, GET = "/api/v1/namespaces/default/pods/web-1/binding", "/api/v1/namespaces/default/pods/web-1"


def status(code: int, reason: str = "") -> Answer:
    return Answer(code, msgspec.json.encode({"kind": "Status", "code": code, "reason": reason, "message": "no"}))


def denied(code: int) -> Answer:
    message = 'admission webhook "a policy" denied the request: not there'
    return Answer(code, msgspec.json.encode({"kind": "Status", "code": code, "message": message}))


def pod(node: str = "", uid: str = "uid-1") -> Answer:
    spec = {"nodeName": node} if node else {}
    return Answer(200, msgspec.json.encode({"metadata": {"uid": uid, "resourceVersion": "7"}, "spec": spec}))


@pytest.fixture
def outcome_of(tmp_path: Path) -> Callable[[Answer, Answer], Outcome]:
    def ask(posted: Answer, got: Answer) -> Outcome:
        def script(request: Request) -> Answer:
            return posted if request.method == "POST" else got

        with serving(script) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            return bind(client, TARGET, timeout_seconds=0.3)

    return ask


SLOW = Answer(200, stream=[1.0, b"{}"])
BROKEN = Answer(200, stream=[None])


@pytest.fixture(autouse=True)
def no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.cluster.bind._unread", Trouble())


class TestBind:
    def test_the_binding_names_pod_uid_and_node(self, tmp_path: Path) -> None:
        with serving(lambda _: Answer(201, b"{}")) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            assert bind(client, TARGET, timeout_seconds=1) is Outcome.BOUND
        (request,) = server.requests
        sent = msgspec.json.decode(request.body)
        assert (request.method, request.path) == ("POST", POST)
        assert sent["metadata"] == {"name": "web-1", "namespace": "default", "uid": "uid-1"}
        assert sent["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n1"}

    @pytest.mark.parametrize(
        ("posted", "got", "outcome"),
        [
            pytest.param(status(409), pod("n1"), Outcome.BOUND, id="bound there already: a repeated call"),
            pytest.param(status(409), pod("n2"), Outcome.ELSEWHERE, id="on another node"),
            pytest.param(status(409), pod(), Outcome.REFUSED, id="being deleted, or gated"),
            pytest.param(status(409), pod("n1", uid="other"), Outcome.GONE, id="another Pod of that name"),
            pytest.param(status(409), status(404), Outcome.GONE, id="gone while it was looked up"),
            pytest.param(status(409), status(500), Outcome.UNKNOWN, id="can't be looked up"),
            pytest.param(status(404), status(404), Outcome.GONE, id="gone"),
            pytest.param(status(404), pod(), Outcome.DENIED, id="there, whatever an admission webhook says"),
            pytest.param(status(422), pod(), Outcome.DENIED, id="not valid"),
            pytest.param(status(403), pod(), Outcome.DENIED, id="not allowed"),
            pytest.param(status(401), status(401), Outcome.UNAUTHENTICATED, id="the credentials are refused"),
            pytest.param(status(500), pod("n1"), Outcome.BOUND, id="failed after it was done"),
            pytest.param(status(500), pod(), Outcome.FAILED, id="failed, and not done"),
            pytest.param(status(500), status(500), Outcome.UNKNOWN, id="failed, and can't be looked up"),
            pytest.param(status(503), pod(), Outcome.UNKNOWN, id="the server is going away"),
            pytest.param(status(429), pod(), Outcome.UNKNOWN, id="too many requests"),
            pytest.param(denied(401), pod(), Outcome.DENIED, id="denied by a webhook as if by its credentials"),
            pytest.param(denied(429), pod(), Outcome.DENIED, id="denied by a webhook as too many requests"),
            pytest.param(denied(500), pod(), Outcome.DENIED, id="denied by a webhook that failed"),
            pytest.param(denied(500), pod("n1"), Outcome.BOUND, id="denied by a webhook, and bound there already"),
            pytest.param(SLOW, pod("n1"), Outcome.BOUND, id="timed out after it was done"),
            pytest.param(SLOW, pod(), Outcome.UNKNOWN, id="timed out, and not seen done"),
            pytest.param(BROKEN, pod("n1"), Outcome.BOUND, id="connection broke after it was done"),
            pytest.param(BROKEN, status(503), Outcome.UNKNOWN, id="the server went away"),
            pytest.param(status(500), Answer(200, b"no json"), Outcome.UNKNOWN, id="something else answers"),
        ],
    )
    def test_an_answer_that_is_no_success_is_looked_into(
        self, outcome_of: Callable[[Answer, Answer], Outcome], posted: Answer, got: Answer, outcome: Outcome
    ) -> None:
        assert outcome_of(posted, got) is outcome

    @pytest.mark.parametrize(("version", "outcome"), [("7", Outcome.DENIED), ("6", Outcome.REFUSED)])
    def test_a_conflict_about_the_pod_that_was_decided_on_is_a_denial(
        self, tmp_path: Path, version: str, outcome: Outcome
    ) -> None:
        target = msgspec.structs.replace(TARGET, resource_version=version)
        with serving(lambda request: status(409) if request.method == "POST" else pod()) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            assert bind(client, target, timeout_seconds=1) is outcome

    def test_without_a_server_the_outcome_is_unknown(self, tmp_path: Path) -> None:
        client = Client.connect(write_kubeconfig(tmp_path, "http://127.0.0.1:1"))
        assert bind(client, TARGET, timeout_seconds=0.3) is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("got", "outcome"),
    [(pod("n1"), Outcome.BOUND), (pod("n2"), Outcome.ELSEWHERE), (pod(), Outcome.UNKNOWN), (status(404), Outcome.GONE)],
)
def test_a_binding_that_was_not_answered_is_looked_up_and_not_sent_again(
    tmp_path: Path, got: Answer, outcome: Outcome
) -> None:
    with serving(lambda _: got) as server:
        client = Client.connect(write_kubeconfig(tmp_path, server.url))
        assert look_up(client, TARGET, timeout_seconds=1) is outcome
    assert [(request.method, request.path) for request in server.requests] == [("GET", GET)]


def test_while_the_api_server_is_away_looking_up_bindings_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = Client.connect(write_kubeconfig(tmp_path, "http://127.0.0.1:1"))
    with caplog.at_level("WARNING", "berth.cluster"):
        for number in range(5):
            target = msgspec.structs.replace(TARGET, name=f"web-{number}")
            assert look_up(away, target, timeout_seconds=0.3) is Outcome.UNKNOWN
        assert caplog.text.count("the outcome of a binding can't be read") == 1
        with serving(lambda _: pod("n1")) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            assert look_up(client, TARGET, timeout_seconds=1) is Outcome.BOUND
        look_up(away, TARGET, timeout_seconds=0.3)
        assert caplog.text.count("the outcome of a binding can't be read") == 2


class TestTarget:
    @pytest.mark.parametrize("name", ["", "../nodes/n1", "a/b", "a?x", "A", "a b", "%2e", "a\n", "-a", "a" * 254])
    @pytest.mark.parametrize("member", ["namespace", "name", "node_name"])
    def test_a_name_that_would_lead_elsewhere_is_refused(self, name: str, member: str) -> None:
        members = {"namespace": "default", "name": "web-1", "uid": "u", "node_name": "n1"} | {member: name}
        with pytest.raises(ValueError, match="name"):
            Target(**members)


class TestVersionIfPossible:
    @pytest.mark.parametrize(
        ("left", "found"),
        [("7", "7"), ("41", "41"), ("42", ""), ("999999999999", ""), ("9" * 5000, ""), ("from a person", "")],
    )
    def test_a_version_that_the_api_server_cannot_have_given_is_not_waited_for(
        self, tmp_path: Path, left: str, found: str
    ) -> None:
        with serving(lambda _: Answer(200, b'{"metadata":{"resourceVersion":"41"},"items":[]}')) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            assert version_if_possible(client, left, timeout_seconds=1) == found
        (request,) = server.requests
        assert (request.method, request.path, request.query) == ("GET", "/api/v1/pods", {"limit": "1"})

    @pytest.mark.parametrize("answer", [status(403), status(503), Answer(200, b"no list"), Answer(200, b"{}")])
    def test_a_version_is_kept_while_the_api_server_does_not_say(self, tmp_path: Path, answer: Answer) -> None:
        with serving(lambda _: answer) as server:
            client = Client.connect(write_kubeconfig(tmp_path, server.url))
            assert version_if_possible(client, "42", timeout_seconds=1) == "42"
