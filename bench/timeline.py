"""The times at which Pods were created and bound, as a watch shows them."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from time import monotonic

import msgspec

from bench.running import Cluster

_PODS = "/api/v1/namespaces/default/pods"


class _Meta(msgspec.Struct, frozen=True):
    uid: str = ""


class _Spec(msgspec.Struct, frozen=True):
    nodeName: str = ""  # noqa: N815 - Kubernetes' name


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: _Pod = _Pod()


class _ListMeta(msgspec.Struct, frozen=True):
    resourceVersion: str = ""  # noqa: N815 - Kubernetes' name


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()


class Timeline:
    """The times at which a watch showed each Pod, and showed it on a node; seconds of the monotonic clock, by UID."""

    def __init__(self) -> None:
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}

    def follow(self, lines: Iterator[bytes]) -> None:
        """Read a watch to its end."""
        decode = msgspec.json.Decoder(_Event).decode
        for line in lines:
            event = decode(line)
            if event.type == "DELETED":
                continue
            uid = event.object.metadata.uid
            self.created.setdefault(uid, monotonic())
            if event.object.spec.nodeName:
                self.bound.setdefault(uid, monotonic())

    def rate(self) -> float:
        """Return Pods a second, from the first bound to the last."""
        moments = sorted(self.bound.values())
        return (len(moments) - 1) / (moments[-1] - moments[0]) if len(moments) > 1 else 0.0

    def waits(self) -> list[float]:
        """Return the seconds that each bound Pod waited, ascending."""
        return sorted(at - self.created[uid] for uid, at in self.bound.items())


@contextmanager
def timeline(running: Cluster) -> Iterator[Timeline]:
    """Watch the Pods of the namespace default from now on."""
    version = msgspec.json.decode(running.client.get(path=_PODS, query={"limit": "1"}), type=_List)
    query = {"watch": "true", "resourceVersion": version.metadata.resourceVersion, "timeoutSeconds": "3600"}
    stream = running.client.stream(path=_PODS, query=query, read_timeout=3600)
    seen = Timeline()
    thread = Thread(target=seen.follow, args=(stream,), daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stream.abort()
        thread.join()
