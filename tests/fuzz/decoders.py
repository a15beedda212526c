"""What reads bytes from the wire, for the fuzzers: each reads a body as far as deciding would, or refuses it.

A decoder of a new verb is a function over bytes that raises WireError at most, and a few bodies as kube-scheduler sends
them; put both into DECODERS.
"""

import json
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from scheduler.extender.request.node_names import ByName
from scheduler.extender.request.objects import NodeCache, read_pod
from scheduler.extender.request.wire import WireError, decode_args, decode_binding, decode_preemption, receive
from tests.builders import make_node, make_pod

# Nodes that bodies may name.
TABLE = Snapshot.of([Node.from_json(make_node(name)) for name in ("n1", "node-two", "n2")]).table

# Stands in the bodies as a value; no error may repeat it.
SECRET = "hunter2"


class Decoder(NamedTuple):
    """A name, what reads, and bodies that it reads."""

    name: str
    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def read_filter_body(body: bytes) -> object:
    """Read a body of /filter or /prioritize, with the Pod and the Nodes in it."""
    sent = receive(body)
    args = decode_args(sent)
    asked = ByName().read(sent, TABLE) if isinstance(sent, bytes) else None
    if asked is not None:
        found = (bytes(asked.args.pod), asked.args.nodes, list(asked.args.node_names or ()))
        assert found == (bytes(args.pod), args.nodes, args.node_names)
    pod = read_pod(args.pod)
    nodes = NodeCache(size=100).read(args.nodes.at() if args.nodes else [])
    return [seen_of_pod(pod), [seen_of_node(NodeInfo(node, [pod])) for node in nodes], args.node_names]


def read_pod_alone(body: bytes) -> object:
    """Read a Pod's JSON."""
    return seen_of_pod(read_pod(msgspec.Raw(body)))


def read_node_alone(body: bytes) -> object:
    """Read a Node's JSON."""
    (node,) = NodeCache(size=1).read([body])
    return seen_of_node(NodeInfo(node))


def read_preemption_body(body: bytes) -> object:
    """Read a body of /preempt, with the Pods in it."""
    args = decode_preemption(body)
    whole = [victim.json.encode() for each in args.candidates for victim in each.victims if victim.json]
    return [seen_of_pod(read_pod(args.pod)), [seen_of_pod(read_pod(msgspec.Raw(text))) for text in whole]]


def seen_of_pod(pod: Pod) -> object:
    """All that is worked out from a Pod when a rule first asks."""
    return [
        pod.priority,
        pod.is_live,
        pod.is_deleting,
        pod.requests,
        pod.nonzero_requests,
        pod.wanted,
        pod.score_requests,
        pod.host_ports,
        pod.is_best_effort,
        pod.traits,
    ]


def seen_of_node(info: NodeInfo) -> object:
    """All that is worked out from a Node when a rule first asks."""
    node = info.node
    paths = (("metadata", "labels"), ("metadata", "labels", "team"), ("spec",), ("status", "allocatable", "cpu"))
    return [node.images, node.has_condition("Ready"), info.usage, [node.trace(path) for path in paths]]


POD = make_pod(
    "web-1",
    labels={"team": "web"},
    requests={"cpu": "250m", "memory": "1.5Gi", "example.org/gpu": "1"},
    priority=1000,
    tolerations=[{"key": "dedicated", "operator": "Equal", "value": SECRET, "effect": "NoSchedule"}],
    nodeSelector={"disk": "ssd"},
    initContainers=[{"name": "init", "image": "x", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
    overhead={"cpu": "10m"},
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"team": "web"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        },
    },
    topologySpreadConstraints=[
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ],
) | {"status": {"phase": "Pending", "qosClass": "Burstable"}}
POD["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}]
NODE = make_node("n1", labels={"zone": "a"}, taints=[{"key": "dedicated", "value": SECRET, "effect": "NoSchedule"}])
NODE["status"]["images"] = [{"names": ["example.org/web:1"], "sizeBytes": 123456}]


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


DECODERS = (
    Decoder(
        "args",
        read_filter_body,
        (
            _encode({"Pod": POD, "Nodes": None, "NodeNames": ["n1", "node-two"]}),
            _encode({"Pod": POD, "Nodes": {"metadata": {}, "items": [NODE, make_node("n2")]}, "NodeNames": None}),
            _encode({"pod": make_pod(), "nodenames": []}),
        ),
    ),
    Decoder("pod", read_pod_alone, (_encode(POD), _encode(make_pod()))),
    Decoder(
        "binding", decode_binding, (_encode({"PodName": "p", "PodNamespace": "d", "PodUID": SECRET, "Node": "n1"}),)
    ),
    Decoder(
        "preemption",
        read_preemption_body,
        (
            _encode({"Pod": POD, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}}),
            _encode(
                {
                    "Pod": POD,
                    "NodeNameToVictims": {
                        "n1": {"Pods": [make_pod(uid="u")], "NumPDBViolations": 0},
                        "n2": {"Pods": None},
                    },
                    "NodeNameToMetaVictims": None,
                }
            ),
        ),
    ),
    Decoder("node", read_node_alone, (_encode(NODE), _encode(make_node()))),
)


def refused(decoder: Decoder, body: bytes) -> str:
    """Read a body; returns the refusal's text, empty when it was read. Any other exception is a fault."""
    try:
        decoder.read(body)
    except WireError as error:
        return str(error)
    return ""
