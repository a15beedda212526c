"""The extender's listener, called as kube-scheduler calls it, and as it never does."""

import http.client
import json
import socket
from typing import Any

import pytest

from tests.stack import BASE_DIR, Stack

pytestmark = pytest.mark.e2e
NAMES = ["n1", "node-two", "the-third-node"]


@pytest.fixture(autouse=True)
def published_examples(stack: Stack) -> None:
    stack.publish(BASE_DIR / "examples" / "shortest-name.yaml", BASE_DIR / "examples" / "policy-by-label.yaml")


def make_pod(name: str = "web1", policy: str = "shortest-name") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"policy": policy}},
        "spec": {"containers": [{"name": "main", "image": "busybox", "resources": {}}]},
        "status": {"phase": "Pending"},
    }


def full_nodes() -> dict[str, Any]:
    return {"metadata": {}, "items": [{"metadata": {"name": name, "labels": {"x": "<&>"}}} for name in NAMES]}


def encode(**members: Any) -> bytes:
    return json.dumps(members).encode()


def answered_names(answer: dict[str, Any]) -> set[str]:
    passed = answer.get("NodeNames") or [
        node["metadata"]["name"] for node in (answer.get("Nodes") or {}).get("items", [])
    ]
    return {*passed, *answer["FailedNodes"], *answer["FailedAndUnresolvableNodes"]}


def assert_clean(answer: Any) -> None:
    """No null in any map or list, no float anywhere, no `%` in a text, no trace of Python."""
    if isinstance(answer, dict):
        for value in answer.values():
            assert value is not None
            assert_clean(value)
    elif isinstance(answer, list):
        for value in answer:
            assert value is not None
            assert_clean(value)
    else:
        assert not isinstance(answer, float)
        assert "%" not in str(answer)
        assert "Traceback" not in str(answer)


@pytest.mark.parametrize("nodes_as", ["names", "full"])
def test_filter_answers_every_node_by_name(stack: Stack, nodes_as: str) -> None:
    nodes = {"Nodes": None, "NodeNames": NAMES} if nodes_as == "names" else {"Nodes": full_nodes(), "NodeNames": None}
    for name, refused in (("web1", set()), ("frontend", set(NAMES))):
        status, answer = stack.call("filter", encode(Pod=make_pod(name), **nodes))

        assert status == 200
        assert answered_names(answer) == set(NAMES)
        assert set(answer["FailedAndUnresolvableNodes"]) == refused
        assert_clean(answer)


def test_filter_returns_full_nodes_as_they_were_sent(stack: Stack) -> None:
    nodes = full_nodes()
    nodes["items"][0]["spec"] = {"unknownMember": [1, {"a": None}]}

    _, answer = stack.call("filter", encode(Pod=make_pod(), Nodes=nodes, NodeNames=None))

    assert answer["Nodes"]["items"] == nodes["items"]
    assert "NodeNames" not in answer


def test_reasons_hold_no_node_names_and_no_numbers_that_change(stack: Stack) -> None:
    _, first = stack.call("filter", encode(Pod=make_pod("frontend"), Nodes=None, NodeNames=NAMES))
    _, second = stack.call("filter", encode(Pod=make_pod("backends1"), Nodes=None, NodeNames=NAMES[1:]))

    reasons = {*first["FailedAndUnresolvableNodes"].values(), *second["FailedAndUnresolvableNodes"].values()}
    assert reasons == {"the Pod's name has 5 characters or more"}


@pytest.mark.parametrize("nodes_as", ["names", "full"])
def test_prioritize_scores_every_node_with_a_whole_number(stack: Stack, nodes_as: str) -> None:
    nodes = {"Nodes": None, "NodeNames": NAMES} if nodes_as == "names" else {"Nodes": full_nodes(), "NodeNames": None}

    status, answer = stack.call("prioritize", encode(Pod=make_pod(), **nodes))

    assert status == 200
    assert [entry["Host"] for entry in answer] == NAMES
    assert all(type(entry["Score"]) is int and 0 <= entry["Score"] <= 10 for entry in answer)
    assert answer[0]["Score"] == 10
    assert_clean(answer)


@pytest.mark.parametrize(
    "spelling",
    [("Pod", "NodeNames"), ("pod", "nodenames"), ("POD", "NODENAMES"), ("pod", "nodeNames"), ("Pod", "nodeNames")],
)
def test_members_are_read_whatever_their_case(stack: Stack, spelling: tuple[str, str]) -> None:
    pod, names = spelling

    status, answer = stack.call("filter", json.dumps({pod: make_pod(), names: NAMES, "unknown": {"x": 1}}).encode())

    assert (status, answer["NodeNames"]) == (200, NAMES)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param({"Nodes": None, "NodeNames": None}, [], id="both null"),
        pytest.param({}, [], id="neither given"),
        pytest.param({"NodeNames": []}, [], id="no names"),
        pytest.param({"Nodes": {}, "NodeNames": None}, None, id="a list without items"),
        pytest.param({"Nodes": {"items": None}}, None, id="null items"),
    ],
)
def test_no_nodes_are_answered_with_no_nodes(stack: Stack, nodes: dict[str, Any], expected: list[str] | None) -> None:
    status, answer = stack.call("filter", encode(Pod=make_pod(), **nodes))

    assert status == 200
    assert answer.get("NodeNames") == expected
    assert answered_names(answer) == set()
    assert_clean(answer)


def test_a_node_that_berth_does_not_know_is_answered_by_name(stack: Stack) -> None:
    _, answer = stack.call("filter", encode(Pod=make_pod(), Nodes=None, NodeNames=["n1", "nobody-knows-me"]))

    assert answer["NodeNames"] == ["n1"]
    assert answer["FailedNodes"] == {"nobody-knows-me": "node is not known to Berth yet"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"", 400, id="empty"),
        pytest.param(b"  \n", 400, id="only white space"),
        pytest.param(b"this is not JSON", 400, id="not JSON"),
        pytest.param(b"null", 400, id="null"),
        pytest.param(b"{}", 400, id="an empty object"),
        pytest.param(b"[]", 400, id="a list"),
        pytest.param(b"42", 400, id="a number"),
        pytest.param(b'{"Pod": null, "NodeNames": ["n1"]}', 400, id="no Pod"),
        pytest.param(b'{"Pod": 7, "NodeNames": ["n1"]}', 400, id="a Pod that is a number"),
        pytest.param(
            b'{"Pod": {"metadata": {"name": 7}}, "NodeNames": ["n1"]}', 400, id="a Pod with a wrong type in it"
        ),
        pytest.param(b'{"Pod": {}, "NodeNames": "n1"}', 400, id="names that are a text"),
        pytest.param(b'{"Pod": {}, "NodeNames": [null]}', 400, id="a name that is null"),
        pytest.param(b'{"Pod": {}, "Nodes": {"items": [null]}}', 400, id="a node that is null"),
        pytest.param(b'{"Pod": {}, "Nodes": {"items": 3}}', 400, id="items that are a number"),
        pytest.param(b'{"Pod": {"metadata": {"name": "\xff"}}, "NodeNames": []}', 400, id="not UTF-8"),
        pytest.param(b"[" * 100_000, 400, id="deeply nested"),
    ],
)
@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_a_wrong_body_gets_a_clear_error_and_the_process_stays_up(
    stack: Stack, verb: str, body: bytes, status: int
) -> None:
    before = stack.metric("process_start_time_seconds")

    code, answer = stack.call(verb, body)

    assert code == status
    assert set(answer) == {"Error"}
    assert answer["Error"]
    assert_clean(answer)
    assert stack.metric("process_start_time_seconds") == before


def test_a_body_that_is_cut_off_anywhere_gets_a_clear_error(stack: Stack) -> None:
    body = encode(Pod=make_pod(), Nodes=None, NodeNames=NAMES)

    for end in range(0, len(body), 7):
        code, answer = stack.call("filter", body[:end])
        assert (code, set(answer)) == (400, {"Error"}), end


def test_a_connection_that_breaks_in_the_middle_of_a_body_harms_nobody(stack: Stack) -> None:
    body = encode(Pod=make_pod(), Nodes=None, NodeNames=NAMES)
    with socket.create_connection(("127.0.0.1", stack.extender_port)) as connection:
        head = f"POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[:20])

    assert stack.call("filter", body)[0] == 200


def test_a_body_of_100_megabytes_gets_a_clear_error_and_the_process_stays_up(stack: Stack) -> None:
    before = stack.metric("process_start_time_seconds")
    pod = make_pod()
    pod["metadata"]["annotations"] = {"a": "x" * 100_000_000}

    code, answer = stack.call("filter", encode(Pod=pod, Nodes=None, NodeNames=NAMES), timeout=120)

    assert code == 413
    assert "BERTH_EXTENDER_MAX_BODY_BYTES" in answer["Error"]
    assert stack.metric("process_start_time_seconds") == before


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/yaml"])
def test_a_wrong_content_type_gets_a_clear_error(stack: Stack, content_type: str) -> None:
    code, answer = stack.call("filter", encode(Pod=make_pod(), NodeNames=NAMES), content_type=content_type)

    assert code == 415
    assert content_type in answer["Error"]


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_json_by_any_spelling_is_taken(stack: Stack, content_type: str) -> None:
    assert stack.call("filter", encode(Pod=make_pod(), NodeNames=NAMES), content_type=content_type)[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/filter", 405), ("PUT", "/filter", 405), ("POST", "/", 404), ("POST", "/admin/", 404)],
)
def test_nothing_else_is_served(stack: Stack, method: str, path: str, status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", stack.extender_port, timeout=10)
    connection.request(method, path, body=b"{}", headers={"Content-Type": "application/json"})

    answer = connection.getresponse()

    assert answer.status == status
    assert "Location" not in answer.headers
    assert json.loads(answer.read())["Error"]
    connection.close()


def test_a_verb_with_a_slash_at_its_end_is_answered_without_a_redirect(stack: Stack) -> None:
    assert stack.call("filter/", encode(Pod=make_pod(), NodeNames=NAMES))[0] == 200


def test_one_connection_serves_many_calls(stack: Stack) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", stack.extender_port, timeout=10)
    connection.connect()
    first = connection.sock.getsockname()
    for verb in ("filter", "prioritize") * 20:
        connection.request(
            "POST", f"/{verb}", encode(Pod=make_pod(), NodeNames=NAMES), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        body = answer.read()
        assert (answer.status, int(answer.headers["Content-Length"])) == (200, len(body))
    assert connection.sock.getsockname() == first
    connection.close()
