"""How lists and events are read."""

import logging

import msgspec
import pytest

from policies.engine.objects.cluster_kinds import ALL_KINDS, CLAIMS, DISRUPTION_BUDGETS, PersistentVolumeClaim
from policies.engine.objects.node import Node
from scheduler.cluster.errors import APIForbiddenError, APIGoneError, APIUnavailableError, APIUnreadableError
from scheduler.cluster.kinds import NAMESPACES, NODES, OBJECTS, PODS, Bookmark, Refusal, Seen
from tests.unit.cluster.kubernetes_json import (
    claim_json,
    event_json,
    list_json,
    namespace_json,
    node_json,
    pod_json,
    status_json,
)


def test_read_page_gives_pods_by_uid() -> None:
    """Two Pods of the same name, one after the other, are two."""
    page = PODS.read_page(list_json([pod_json("a", uid="u1"), pod_json("a", uid="u2")], version="7", token="t"))
    assert set(page.objects) == {"u1", "u2"}
    assert (page.resource_version, page.continue_token) == ("7", "t")
    assert page.objects["u1"].requests.get("cpu") == 100


def test_read_page_gives_nodes_with_their_json() -> None:
    """Expressions see all of a node but managedFields, also what the engine has no field for."""
    json = node_json("n1") | {"spec": {"podCIDR": "10.0.0.0/24"}}
    sent = json | {"metadata": json["metadata"] | {"managedFields": [{"manager": "kubelet"}]}}
    node = NODES.read_page(list_json([sent])).objects["n1"]
    assert isinstance(node, Node)
    assert node.json == json
    assert node.allocatable.get("cpu") == 4000


@pytest.mark.parametrize("metadata", [b"", b'"metadata":null,', b'"metadata":{"labels":null},'])
def test_read_page_gives_nodes_that_lack_nearly_everything(metadata: bytes) -> None:
    """Go writes and reads them too."""
    node = NODES.read_page(b'{"metadata":{"resourceVersion":"3"},"items":[{%b"status":null}]}' % metadata).objects[""]
    assert (node.name, node.labels, node.images) == ("", {}, {})


def test_read_page_takes_a_list_without_items() -> None:
    """Go writes an empty slice as null."""
    page = NAMESPACES.read_page(b'{"metadata":{"resourceVersion":"3"},"items":null}')
    assert page.objects == {}


@pytest.mark.parametrize("page", [b"", b"<html>", b"[]", b'{"items": [1', b"{}", b'{"status":"ok","items":[]}'])
def test_read_page_refuses_what_is_no_list(page: bytes) -> None:
    """A proxy's answer is a fault of the connection, not an empty cluster."""
    with pytest.raises(APIUnavailableError):
        PODS.read_page(page)


def test_read_page_leaves_out_an_object_that_it_cannot_read(caplog: pytest.LogCaptureFixture) -> None:
    """One strange object doesn't hide all the others, and the log names it."""
    strange = [pod_json("bad", cpu="many"), pod_json("worse") | {"spec": {"containers": 5}}, {"metadata": {"name": 7}}]
    for each in strange:
        each["metadata"]["labels"] = {"key": "hunter2"}
    with caplog.at_level(logging.ERROR, "berth.cluster"):
        page = PODS.read_page(list_json([*strange, pod_json("good")]))
    assert set(page.objects) == {"uid-good"}
    said = [record.getMessage().partition(" object=") for record in caplog.records]
    assert [(before, named) for before, _, named in said] == [
        ("object_unreadable kind=pods", name) for name in ("default/bad", "default/worse", "?")
    ]
    assert "hunter2" not in caplog.text


def test_read_page_leaves_out_an_object_that_is_not_utf_8() -> None:
    page = list_json([pod_json("latin"), pod_json("good")], version="3").replace(b'"latin"', b'"lat\xeen"')
    assert [pod.name for pod in PODS.read_page(page).objects.values()] == ["good"]


def test_read_event_gives_what_was_seen() -> None:
    """ADDED and MODIFIED carry the object, DELETED its last state."""
    for type_ in ("ADDED", "MODIFIED", "DELETED"):
        event = NAMESPACES.read_event(event_json(type_, namespace_json("web", version="9", labels={"a": "b"})))
        assert isinstance(event, Seen)
        assert (event.key, event.resource_version, event.deleted) == ("web", "9", type_ == "DELETED")
        assert event.object is not None
        assert event.object.metadata.labels == {"a": "b"}


def test_read_event_counts_an_unreadable_object_as_deleted() -> None:
    """As a new list would: what can't be read isn't there."""
    event = PODS.read_event(event_json("MODIFIED", pod_json("a", version="9", cpu="many")))
    assert event == Seen("uid-a", "9", None, deleted=True)


def test_read_event_gives_bookmarks() -> None:
    """A bookmark has no more than a version."""
    event = PODS.read_event(b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"12"}}}')
    assert event == Bookmark("12")


def test_read_event_gives_errors_inside_the_watch() -> None:
    """An ERROR event comes with HTTP 200 and carries a Status."""
    gone = PODS.read_event(event_json("ERROR", status_json(410, "Expired")))
    assert isinstance(gone, Refusal)
    assert isinstance(gone.error, APIGoneError)
    forbidden = PODS.read_event(event_json("ERROR", status_json(403, "Forbidden")))
    assert isinstance(forbidden, Refusal)
    assert isinstance(forbidden.error, APIForbiddenError)


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_read_event_refuses_a_line_cut_short(cut: int) -> None:
    """It is whole for all that is known: what a broken connection cut isn't given."""
    with pytest.raises(APIUnreadableError):
        PODS.read_event(event_json("ADDED", pod_json("a"))[:cut])


def test_read_event_refuses_json_that_is_no_event() -> None:
    """What isn't an event isn't guessed at."""
    with pytest.raises(APIUnreadableError):
        PODS.read_event(msgspec.json.encode({"kind": "Pod"}))


def test_every_kind_that_rules_may_read_can_be_watched() -> None:
    """In its own API group."""
    assert OBJECTS.keys() == ALL_KINDS
    assert OBJECTS[DISRUPTION_BUDGETS].path == "/apis/policy/v1/poddisruptionbudgets"
    assert all(kind.path.endswith(f"/{name}") for name, kind in OBJECTS.items())


def test_read_page_gives_objects_by_namespace_and_name() -> None:
    """One that was deleted and made again meanwhile takes the place of the one before."""
    json = [claim_json("c", volume="v"), claim_json("c", namespace="web")]
    page = OBJECTS[CLAIMS].read_page(list_json(json))
    assert set(page.objects) == {"default/c", "web/c"}
    found = page.objects["default/c"]
    assert isinstance(found, PersistentVolumeClaim)
    assert found.spec.volume_name == "v"


@pytest.mark.parametrize("name", sorted(ALL_KINDS))
def test_null_stands_for_a_member_that_is_not_there(name: str) -> None:
    """As Go reads it."""
    items = b'[{"metadata":{"name":"a","namespace":null},"spec":null}]'
    page = OBJECTS[name].read_page(b'{"metadata":{"resourceVersion":"3"},"items":%b}' % items)
    assert set(page.objects) == {"/a"}


def test_null_in_a_pod_stands_for_a_member_that_is_not_there() -> None:
    """As in the Pods that kube-scheduler sends."""
    json = pod_json("a")
    json["spec"]["priorityClassName"] = None
    assert set(PODS.read_page(list_json([json])).objects) == {"uid-a"}


def test_read_event_counts_an_unreadable_claim_as_deleted() -> None:
    """It is known by name as the readable ones are."""
    event = OBJECTS[CLAIMS].read_event(event_json("MODIFIED", claim_json("c", version="9") | {"spec": 5}))
    assert event == Seen("default/c", "9", None, deleted=True)
