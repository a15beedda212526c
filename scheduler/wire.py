"""The scheduler extender's wire: what kube-scheduler sends and what it accepts. No Django.

Source: k8s.io/kube-scheduler v0.36.3 extender/v1/types.go, whose structs carry no JSON tags: so the members are sent
under their Go names (NodeNames), and read back whatever their case. Kubernetes objects inside are plain v1 JSON.
"""

from collections.abc import Sequence
from itertools import starmap
from typing import Any

import msgspec

from scheduler.recognition import KnownNodes

_ARGUMENTS = ("Pod", "Nodes", "NodeNames")


class WireError(ValueError):
    """A body that kube-scheduler can't have sent. The message is for a person and holds nothing of the body."""


class ExtenderArgs(msgspec.Struct):
    """The body of /filter and /prioritize.

    One of `nodes` (the items, each as it was sent) and `node_names` is None: nodeCacheCapable says which.
    """

    pod: msgspec.Raw
    nodes: list[bytes] | None
    node_names: list[str] | None


_ABSENT = msgspec.Raw(b"null")


class _Body(msgspec.Struct):
    """The members as kube-scheduler spells them."""

    Pod: msgspec.Raw = _ABSENT
    Nodes: msgspec.Raw = _ABSENT
    NodeNames: msgspec.Raw = _ABSENT


class _ByNames(msgspec.Struct):
    """What kube-scheduler sends when it sends names."""

    Pod: msgspec.Raw
    Nodes: None
    NodeNames: list[str]


class _HostPriority(msgspec.Struct, gc=False):
    Host: str
    Score: int


_known_nodes = KnownNodes()
_decode_by_names = msgspec.json.Decoder(_ByNames).decode
_decode_body = msgspec.json.Decoder(_Body).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_names = msgspec.json.Decoder(list[str]).decode
_encode = msgspec.json.Encoder().encode


def decode_args(body: bytes) -> ExtenderArgs:
    """Read the body of /filter or /prioritize. Unknown members are passed over, members match whatever their case.

    Raises:
        WireError: it isn't such a body.
    """
    if (usual := _usual(body)) is not None:
        return usual
    sent = _members(body)
    pod, nodes, names = _present(sent.Pod), _present(sent.Nodes), _present(sent.NodeNames)
    if pod is None:
        message = "the body has no Pod"
        raise WireError(message)
    return ExtenderArgs(
        pod=pod,
        nodes=None if nodes is None else [bytes(item) for item in _node_items(nodes)],
        node_names=None if names is None else _node_names(names),
    )


def _usual(body: bytes) -> ExtenderArgs | None:
    """Read a body in one pass if it is spelled as kube-scheduler spells it; None when it isn't, or is at fault."""
    if (full := _known_nodes.read(body)) is not None:
        sent = ExtenderArgs(pod=full.pod, nodes=full.nodes, node_names=None)
    else:
        try:
            named = _decode_by_names(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        sent = ExtenderArgs(pod=named.Pod, nodes=None, node_names=named.NodeNames)
    return sent if _present(sent.pod) else None


def _members(body: bytes) -> _Body:
    if not body.strip():
        message = "the body is empty; it must be an ExtenderArgs object as JSON"
        raise WireError(message)
    try:
        sent = _decode_body(body)
        if _present(sent.Pod) and (_present(sent.Nodes) or _present(sent.NodeNames)):
            return sent
        by_fold = {name.lower(): value for name, value in _decode_members(body).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"the body is not an ExtenderArgs object as JSON: {_without_content(error)}"
        raise WireError(message) from error
    return _Body(*(by_fold.get(name.lower(), _ABSENT) for name in _ARGUMENTS))


def _present(raw: msgspec.Raw) -> msgspec.Raw | None:
    return None if bytes(memoryview(raw)[:5]) == b"null" else raw


def _node_items(nodes: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        members = {name.lower(): value for name, value in _decode_members(nodes).items()}
        items = _present(members.get("items", _ABSENT))
        decoded = [] if items is None else _decode_items(items)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"Nodes is not a NodeList: {_without_content(error)}"
        raise WireError(message) from error
    if any(_present(item) is None for item in decoded):
        message = "Nodes.items has a null in it"
        raise WireError(message)
    return decoded


def _node_names(names: msgspec.Raw) -> list[str]:
    try:
        return _decode_names(names)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"NodeNames is not a list of names: {_without_content(error)}"
        raise WireError(message) from error


def _without_content(error: Exception) -> str:
    """Keep the body out of logs: msgspec's messages name types, positions and paths; Python's could quote the body."""
    return str(error) if isinstance(error, msgspec.DecodeError) else type(error).__name__


def decode_json(raw: bytes | msgspec.Raw) -> Any:
    """Decode a part of a body.

    Raises:
        WireError: it isn't JSON.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"the body is not JSON: {_without_content(error)}"
        raise WireError(message) from error


def encode_filter_result(
    *,
    nodes: Sequence[bytes] | None,
    node_names: Sequence[str] | None,
    failed: dict[str, str],
    unresolvable: dict[str, str],
) -> bytes:
    """Write ExtenderFilterResult.

    Only the member that kube-scheduler reads in this nodeCacheCapable mode is written, and never a null.
    """
    reasons = {"FailedNodes": failed, "FailedAndUnresolvableNodes": unresolvable, "Error": ""}
    if nodes is None:
        return _encode({"NodeNames": node_names or [], **reasons})
    # Megabytes: put together in one go. The pieces that go before and behind are part of the first and last node.
    items = list(nodes) or [b""]
    items[0] = b'{"Nodes":{"items":[' + items[0]
    items[-1] += b"]}," + _encode(reasons)[1:]
    return b",".join(items)


def encode_error(message: str) -> bytes:
    """Write a result that has nothing but an error."""
    return _encode({"Error": message})


def encode_priorities(points: Sequence[tuple[str, int]]) -> bytes:
    """Write HostPriorityList: whole numbers 0..10."""
    return _encode(list(starmap(_HostPriority, points)))
