"""Pods as Berth's own scheduler watches them: Pods that wait for it keep their JSON, because rules may read any field."""

from collections.abc import Callable, Collection

import msgspec

from policies.engine.objects.metadata import decode_object
from policies.engine.objects.pod import Pod, PodObject
from scheduler.cluster.kinds import PODS, Kind

_POD = msgspec.json.Decoder(PodObject)


def is_waiting(pod: Pod, scheduler_names: Collection[str]) -> bool:
    """Return whether a Pod waits for a node from one of these schedulers."""
    return not pod.spec.node_name and pod.spec.scheduler_name in scheduler_names and pod.is_live and not pod.is_deleting


def pods_waiting_for(scheduler_names: Collection[str]) -> Kind[Pod]:
    """Return the kind for all Pods, in which Pods that wait for one of these schedulers keep their JSON."""
    names = frozenset(scheduler_names)
    return _pods(lambda pod: is_waiting(pod, names))


def whole_pods() -> Kind[Pod]:
    """Return the kind for all Pods, each with its JSON: for callers that decide on all of them, once."""
    return _pods(lambda _: True)


def _pods(keeps_json: Callable[[Pod], bool]) -> Kind[Pod]:
    def read(raw: msgspec.Raw) -> Pod:
        pod = Pod(decode_object(raw, _POD))
        if keeps_json(pod):
            pod = Pod(pod.parsed, _as_listed(msgspec.json.decode(raw)))
        # Computed here, where an error leaves out one Pod, and not in the middle of a decision.
        _ = pod.requests, pod.nonzero_requests
        return pod

    return Kind(name=PODS.name, path=PODS.path, query=PODS.query, read=read, key=lambda metadata: str(metadata.uid))


def _as_listed(json: dict[str, object]) -> dict[str, object]:
    """Leave out the fields that a list omits from its items, and managedFields, as kube-scheduler does (scheduler.go v1.36.3)."""
    json.pop("kind", None)
    json.pop("apiVersion", None)
    metadata = json.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return json
