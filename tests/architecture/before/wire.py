"""Tried on `f51a37f` and the commit before: bodies in chunks are read, and nobody is bound to a node that doesn't exist."""

from pathlib import Path
from typing import Any

from policies.engine.objects.pod import Pod
from scheduler.cluster.bind import Target
from scheduler.extender.verbs.bind import Binder
from scheduler.extender.verbs.in_flight import InFlight
from tests.builders import make_node, make_pod
from tests.extender import BODY, Extender
from tests.unit.extender.verbs.test_handlers import StillCluster


class Cluster(StillCluster):
    def wait_for_nodes(self, names: list[str], timeout_seconds: float) -> bool:
        return bool((self.snapshot().table.rows(names) >= 0).all())


class Posts:
    def __init__(self) -> None:
        self.paths: list[str] = []

    def post(self, *, path: str, body: bytes, timeout_seconds: float) -> bytes:
        self.paths.append(path)
        return b"{}"


def test_a_body_in_chunks_is_read(tmp_path: Path) -> None:
    with Extender(tmp_path) as extender:
        connection = extender.connect()
        parts = iter([BODY[:9], BODY[9:]])
        connection.request("POST", "/filter", parts, {"Content-Type": "application/json"}, encode_chunked=True)

        assert connection.getresponse().status == 200


def test_a_node_that_does_not_exist_is_refused_and_nothing_is_posted() -> None:
    client, nothing = Posts(), Any
    live = Cluster(make_node("n1"), synced=True)
    binder = Binder(client=client, live=live, in_flight=InFlight(), lock=nothing, contexts=nothing)  # type: ignore[arg-type]
    bound = binder.bind(Pod.from_json(make_pod("p")), Target("default", "p", "u", "nowhere"), None)

    assert (bool(bound.error), client.paths) == (True, [])
