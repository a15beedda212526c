"""What the API server is told of a Pod."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from policies.engine.objects.pod import Pod
from scheduler.binder import actions as actions_module
from scheduler.binder.actions import (
    MOST_TRIES,
    Condition,
    Event,
    Events,
    Reference,
    condition_of,
    failed_scheduling,
    scheduled,
    write_condition,
)
from scheduler.cluster.client import Client
from scheduler.cluster.dispatcher import APIRequest
from scheduler.cluster.errors import APIError, APITimeoutError
from scheduler.metrics import BINDER_EVENTS_DROPPED
from tests.builders import make_pod
from tests.unit.cluster.scripted_server import Answer, serving, write_kubeconfig

POD = Pod.from_json(make_pod("web-1", uid="u1"))


class Dispatcher:
    def __init__(self, *, full: bool = False) -> None:
        self.requests: list[APIRequest] = []
        self.full = full

    def send_later(self, request: APIRequest) -> bool:
        self.requests.append(request)
        return not self.full


def posted(event: Event) -> dict[str, Any]:
    dispatcher = Dispatcher()
    Events(dispatcher).post(event)  # type: ignore[arg-type]
    (request,) = dispatcher.requests
    assert request.path == "/apis/events.k8s.io/v1/namespaces/default/events"
    found: dict[str, Any] = msgspec.json.decode(request.body)
    return found


def test_a_bound_pod_gets_the_event_that_kube_scheduler_writes() -> None:
    found = posted(scheduled(POD, "n1"))

    assert found["metadata"]["name"].startswith("web-1.")
    assert found["eventTime"].endswith("Z")
    assert {name: found[name] for name in ("type", "reason", "action", "note", "reportingController")} == {
        "type": "Normal",
        "reason": "Scheduled",
        "action": "Binding",
        "note": "Successfully assigned default/web-1 to n1",
        "reportingController": "berth",
    }
    assert found["regarding"] == {
        "kind": "Pod",
        "namespace": "default",
        "name": "web-1",
        "uid": "u1",
        "apiVersion": "v1",
        "resourceVersion": "",
    }
    assert "related" not in found


def test_a_note_is_cut_and_who_else_it_is_about_is_named() -> None:
    event = failed_scheduling(POD, "x" * 5000)
    found = posted(msgspec.structs.replace(event, related=Reference.of(POD)))

    assert (found["type"], found["reason"], len(found["note"])) == ("Warning", "FailedScheduling", 1024)
    assert found["related"]["uid"] == "u1"


@pytest.mark.parametrize("letter", ["é", "規", "𝔸"])
def test_a_note_is_cut_by_the_bytes_that_the_api_server_counts(letter: str) -> None:
    note = posted(failed_scheduling(POD, letter * 1024))["note"]

    assert 1024 - 4 < len(note.encode()) <= 1024
    assert note == letter * ((1024 - 4) // len(letter.encode())) + " ..."
    assert posted(failed_scheduling(POD, letter * 256))["note"] == letter * 256


def test_an_event_about_a_pod_with_the_longest_name_has_a_name_that_the_api_server_takes() -> None:
    names = [
        posted(scheduled(Pod.from_json(make_pod("p" * length)), "n1"))["metadata"]["name"] for length in (236, 237, 253)
    ]

    assert names[0].startswith("p" * 236 + ".")
    assert [len(name) for name in names] == [253, 36, 36]


def test_events_that_are_too_many_or_not_taken_are_counted_and_given_up() -> None:
    before = BINDER_EVENTS_DROPPED._value.get()
    dispatcher = Dispatcher(full=True)
    Events(dispatcher).post(scheduled(POD, "n1"))  # type: ignore[arg-type]
    assert BINDER_EVENTS_DROPPED._value.get() == before + 1

    for status, answer in ((201, b""), (403, b""), (500, b'admission webhook "w" denied the request')):
        dispatcher.requests[0].done(status, answer)

    assert BINDER_EVENTS_DROPPED._value.get() == before + 3


@pytest.mark.parametrize("status", [0, 401, 429, 500, 503])
def test_an_event_that_is_not_accepted_for_now_is_sent_again_as_it_was(status: int) -> None:
    dispatcher = Dispatcher()
    events = Events(dispatcher)  # type: ignore[arg-type]
    events.post(scheduled(POD, "n1"))
    (first,) = dispatcher.requests
    first.done(status, b"")
    events.post_again()

    _, second = dispatcher.requests
    assert (second.path, second.body) == (first.path, first.body)
    second.done(409, b"")  # it was created by the first try
    events.post_again()
    assert len(dispatcher.requests) == 2


def test_few_events_are_sent_again_at_first_and_each_that_is_accepted_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(actions_module, "FIRST_EVENTS_AGAIN", 2)
    dispatcher = Dispatcher()
    events = Events(dispatcher)  # type: ignore[arg-type]
    for node in ("n1", "n2", "n3", "n4"):
        events.post(scheduled(POD, node))
    sent, dispatcher.requests = dispatcher.requests, []
    for request in sent:
        request.done(0, b"")
    events.post_again()
    assert [request.body for request in dispatcher.requests] == [request.body for request in sent[:2]]
    dispatcher.requests[0].done(0, b"")
    assert len(dispatcher.requests) == 2
    dispatcher.requests[1].done(201, b"")
    assert [request.body for request in dispatcher.requests[2:]] == [sent[2].body]


def test_an_event_is_given_up_after_as_many_tries_as_client_go_makes() -> None:
    before = BINDER_EVENTS_DROPPED._value.get()
    dispatcher = Dispatcher()
    events = Events(dispatcher)  # type: ignore[arg-type]
    events.post(scheduled(POD, "n1"))
    for number in range(MOST_TRIES):
        dispatcher.requests[number].done(503, b"")
        events.post_again()

    assert len(dispatcher.requests) == MOST_TRIES
    assert BINDER_EVENTS_DROPPED._value.get() == before + 1


def test_the_oldest_event_is_dropped_when_too_many_wait_to_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions_module, "MOST_EVENTS_AGAIN", 2)
    before = BINDER_EVENTS_DROPPED._value.get()
    dispatcher = Dispatcher()
    events = Events(dispatcher)  # type: ignore[arg-type]
    for node in ("n1", "n2", "n3"):
        events.post(scheduled(POD, node))
    sent, dispatcher.requests = dispatcher.requests, []
    for request in sent:
        request.done(0, b"")
    events.post_again()

    assert [request.body for request in dispatcher.requests] == [request.body for request in sent[1:]]
    assert BINDER_EVENTS_DROPPED._value.get() == before + 1


def test_the_condition_is_a_strategic_merge_patch_of_exactly_this_pod(tmp_path: Path) -> None:
    with serving(lambda _: Answer(200, b"{}")) as server:
        client = Client.connect(write_kubeconfig(tmp_path, server.url))
        assert write_condition(client, POD, Condition("Unschedulable", "no room", "n1"))
        assert write_condition(client, POD, Condition("Unschedulable", "no room"))
    first, second = server.requests
    sent = msgspec.json.decode(first.body)

    assert (first.method, first.path) == ("PATCH", "/api/v1/namespaces/default/pods/web-1/status")
    assert first.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert sent["metadata"] == {"uid": "u1"}
    assert sent["status"]["nominatedNodeName"] == "n1"
    (condition,) = sent["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
        "PodScheduled",
        "False",
        "Unschedulable",
        "no room",
    )
    assert msgspec.json.decode(second.body)["status"]["nominatedNodeName"] is None


@pytest.mark.parametrize(
    ("before", "stays"), [({"status": "False", "reason": "SchedulingGated"}, True), ({"status": "True"}, False)]
)
def test_a_condition_that_was_false_before_keeps_the_time_since_when_and_says_what_was_looked_at(
    tmp_path: Path, before: dict[str, str], stays: bool
) -> None:
    json = make_pod("web-1", uid="u1")
    json["metadata"]["generation"] = 3
    since = "2026-01-01T00:00:00Z"
    json["status"] = {"conditions": [{"type": "PodScheduled", "lastTransitionTime": since, **before}]}
    with serving(lambda _: Answer(200, b"{}")) as server:
        client = Client.connect(write_kubeconfig(tmp_path, server.url))
        assert write_condition(client, Pod.from_json(json), Condition("Unschedulable", "no room"))

    (condition,) = msgspec.json.decode(server.requests[0].body)["status"]["conditions"]
    assert (condition["lastTransitionTime"] == since, condition["observedGeneration"]) == (stays, 3)


@pytest.mark.parametrize("status", [403, 404, 409, 422])
def test_a_condition_that_is_not_taken_is_said_not_to_be_written(tmp_path: Path, status: int) -> None:
    with serving(lambda _: Answer(status)) as server:
        client = Client.connect(write_kubeconfig(tmp_path, server.url))
        assert not write_condition(client, POD, Condition("Unschedulable", "no room"))


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_a_condition_that_the_api_server_does_not_take_for_now_may_be_written_later(
    tmp_path: Path, status: int
) -> None:
    with serving(lambda _: Answer(status)) as server:
        client = Client.connect(write_kubeconfig(tmp_path, server.url))
        with pytest.raises(APIError, match=str(status)):
            write_condition(client, POD, Condition("Unschedulable", "no room"))


def test_a_condition_that_the_api_server_never_answers_to_may_be_written_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def patch(*_: object, **__: object) -> bytes:
        raise APITimeoutError("nothing came")

    client = Client.connect(None)
    monkeypatch.setattr(client, "patch", patch)
    with pytest.raises(APITimeoutError):
        write_condition(client, POD, Condition("Unschedulable", "no room"))


def test_the_condition_that_a_pod_has_is_read_from_its_json() -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    status = {"conditions": [{"type": "Ready", "status": "False"}, said], "nominatedNodeName": "n1"}

    assert condition_of(Pod.from_json({**make_pod(), "status": status})) == Condition("Unschedulable", "no room", "n1")
    assert condition_of(Pod.from_json(make_pod())) is None
