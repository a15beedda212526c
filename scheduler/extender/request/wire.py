"""The scheduler extender's wire format: what kube-scheduler sends and what it accepts. No Django.

Source: k8s.io/kube-scheduler v0.36.3 extender/v1/types.go, whose structs carry no JSON tags: so members are sent
under their Go names (NodeNames), and read case-insensitively. Kubernetes objects inside are plain v1 JSON.
"""

from collections.abc import Sequence
from itertools import starmap
from typing import Any

import msgspec

from policies.engine.objects.metadata import Int64
from scheduler.cluster.nesting import bounded
from scheduler.decisions.candidates import SentCandidate, SentVictim
from scheduler.extender.request.node_bytes import MARK, MAX_NODES, Body, KnownNodes, Reading, SentNodes
from scheduler.http_server.body import put


class WireError(ValueError):
    """A body that kube-scheduler can't have sent. The message is for people and repeats nothing from the body."""


class ExtenderArgs(msgspec.Struct):
    """The body of /filter and /prioritize.

    One of `nodes` and `node_names` is None, depending on nodeCacheCapable.
    """

    pod: msgspec.Raw
    nodes: SentNodes | None
    node_names: Sequence[str] | None


class BindingArgs(msgspec.Struct):
    """The body of /bind: the Pod, and the node to bind it to."""

    pod_name: str
    pod_namespace: str
    pod_uid: str
    node: str


class PreemptionArgs(msgspec.Struct):
    """The body of /preempt: the preemptor, and the candidate nodes with their victims."""

    pod: msgspec.Raw
    candidates: list[SentCandidate]


_ABSENT = msgspec.Raw(b"null")


class _Body(msgspec.Struct):
    """The members of ExtenderArgs as kube-scheduler spells them."""

    Pod: msgspec.Raw = _ABSENT
    Nodes: msgspec.Raw = _ABSENT
    NodeNames: msgspec.Raw = _ABSENT


class _ByNames(msgspec.Struct):
    """The body as kube-scheduler sends it with node names."""

    Pod: msgspec.Raw
    Nodes: None
    NodeNames: list[str]


class _PodWithoutNodes(msgspec.Struct, forbid_unknown_fields=True):
    """The part of such a body before the node names."""

    Pod: msgspec.Raw
    Nodes: None


class _HostPriority(msgspec.Struct, gc=False):
    Host: str
    Score: int


# A call's body as received: with its nodes recognised, or as plain bytes.
Sent = bytes | Body

# /bind's arguments are four short texts.
_MAX_BINDING_BYTES = 64 << 10
# The limit of commas and opening brackets in a body whose nodes weren't recognised, which equals its number of values. Each takes
# up to 160 bytes. A million nodes by name have half as many.
MAX_BODY_PIECES = 2_000_000
# A body of fewer bytes can't have too many values.
_FEW_BYTES = 1 << 20

_known_nodes = KnownNodes()
_decode_by_names = msgspec.json.Decoder(_ByNames).decode
_decode_before_names = msgspec.json.Decoder(_PodWithoutNodes).decode
_decode_body = msgspec.json.Decoder(_Body).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_raw_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
# The range of Go's int64, the type of NumPDBViolations; larger numbers couldn't be answered either.
_decode_number = msgspec.json.Decoder(Int64).decode
_decode_names = msgspec.json.Decoder(list[str]).decode
_encode = msgspec.json.Encoder().encode


def reading(size: int = 0) -> Reading:
    """Start reading a body of this many bytes; 0 if the size isn't known."""
    return Reading(_known_nodes, size)


def receive(body: bytes) -> Sent:
    """Read a body that has arrived completely."""
    coming = reading(len(body))
    put(body, coming)
    return coming.end()


def decode_args(body: Sent) -> ExtenderArgs:
    """Read the body of /filter or /prioritize. Unknown members are ignored; names of members are case-insensitive.

    Raises:
        WireError: it isn't such a body.
    """
    if not isinstance(body, Body):
        body = _readable(body)
        return _with_bounds(_usual(body) or _args(_members(body), None))
    around = _members(_readable(body.around()))
    is_whole = (nodes := _present(around.Nodes)) is not None and list(map(bytes, _node_items(nodes))) == [MARK]
    return _args(around, body.nodes) if is_whole else decode_args(body.whole())


def _readable(body: bytes) -> bytes:
    """Return a body that can be read recursively: the managedFields of its Pods have any depth.

    kube-scheduler means to remove them, but until kubernetes#137473, merged in March 2026, its informer of Pods doesn't (kubernetes#132367).

    Raises:
        WireError: it has too many values.
    """
    if len(body) > _FEW_BYTES and pieces(body) > MAX_BODY_PIECES:
        message = f"the body has more than {MAX_BODY_PIECES:,} values, by its commas and brackets"
        raise WireError(message)
    return bounded(body)


def pieces(text: bytes) -> int:
    """Return the number of commas and opening brackets. Each value of a list or an object follows one of them."""
    return len(text) - len(text.translate(None, b",[{"))


def _with_bounds(args: ExtenderArgs) -> ExtenderArgs:
    if max(len(args.nodes or ()), len(args.node_names or ())) > MAX_NODES:
        message = f"the body has more than {MAX_NODES:,} nodes"
        raise WireError(message)
    return args


def _args(sent: _Body, nodes: SentNodes | None) -> ExtenderArgs:
    """Read the members of a body, and its nodes if they weren't recognised before."""
    if nodes is None and (listed := _present(sent.Nodes)) is not None:
        nodes = _known_nodes.intern([bytes(item) for item in _node_items(listed)])
    names = _present(sent.NodeNames)
    return ExtenderArgs(pod=_needed(sent.Pod), nodes=nodes, node_names=None if names is None else _node_names(names))


def _usual(body: bytes) -> ExtenderArgs | None:
    """Read a body with names in one pass if it is spelled as kube-scheduler spells it; None when it isn't."""
    try:
        named = _decode_by_names(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return ExtenderArgs(pod=named.Pod, nodes=None, node_names=named.NodeNames) if _present(named.Pod) else None


def pod_before(body: bytes, end: int) -> msgspec.Raw | None:
    """Return the Pod of a body with names, which begin at `end`; None if there is more than the Pod before them.

    Raises:
        WireError: it has too many values.
    """
    try:
        found = _decode_before_names(_readable(body[:end] + b"}"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return _present(found.Pod)


def decode_binding(body: Sent) -> BindingArgs:
    """Read the body of /bind.

    Raises:
        WireError: it isn't such a body, or names no Pod or no node.
    """
    if not isinstance(body, Body) and len(body) > _MAX_BINDING_BYTES:
        message = f"the body is larger than any of a Binding: {_MAX_BINDING_BYTES:,} bytes"
        raise WireError(message)
    members = _folded(body, "ExtenderBindingArgs")
    texts = {name: _text(members, name) for name in ("PodName", "PodNamespace", "PodUID", "Node")}
    missing = [name for name, text in texts.items() if not text]
    if missing:
        message = f"the body has no {', '.join(missing)}"
        raise WireError(message)
    return BindingArgs(*texts.values())


def decode_preemption(body: Sent) -> PreemptionArgs:
    """Read the body of /preempt. Lists of victims may be empty or null; a null among victims may not be.

    Raises:
        WireError: it isn't such a body.
    """
    members = _folded(body, "ExtenderPreemptionArgs")
    pod = _needed(members.get("pod", _ABSENT))
    full = _present(members.get("nodenametovictims", _ABSENT))
    sent = full or _present(members.get("nodenametometavictims", _ABSENT))
    return PreemptionArgs(pod, [] if sent is None else _candidates(sent, full=full is not None))


def _candidates(sent: msgspec.Raw, *, full: bool) -> list[SentCandidate]:
    member = "NodeNameToVictims" if full else "NodeNameToMetaVictims"
    try:
        return [_candidate(node, raw, full=full) for node, raw in _decode_members(sent).items()]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{member} is not a map of victims: {_without_content(error)}"
        raise WireError(message) from error


def _candidate(node: str, raw: msgspec.Raw, *, full: bool) -> SentCandidate:
    if _present(raw) is None:
        return SentCandidate(node, [])
    members = _by_fold(raw)
    pods = _present(members.get("pods", _ABSENT))
    number = _present(members.get("numpdbviolations", _ABSENT))
    return SentCandidate(
        node,
        [] if pods is None else [_victim(pod, full=full) for pod in _decode_raw_list(pods)],
        pdb_violations=0 if number is None else _decode_number(number),
    )


def _victim(raw: msgspec.Raw, *, full: bool) -> SentVictim:
    if _present(raw) is None:
        message = "a list of victims has a null in it"
        raise WireError(message)
    members = _by_fold(raw)
    holder = _by_fold(members.get("metadata", msgspec.Raw(b"{}"))) if full else members
    uid = _decode_text(holder.get("uid", msgspec.Raw(b'""')))
    if not uid:
        message = "a victim has no UID"
        raise WireError(message)
    return SentVictim(uid, bytes(raw).decode(errors="replace") if full else "")


def _folded(body: Sent, kind: str) -> dict[str, msgspec.Raw]:
    if isinstance(body, Body):
        message = f"the body is one of /filter or /prioritize; it must be an {kind} object"
        raise WireError(message)
    if not body.strip():
        message = f"the body is empty; it must be an {kind} object as JSON"
        raise WireError(message)
    try:
        return _by_fold(_readable(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"the body is not an {kind} object as JSON: {_without_content(error)}"
        raise WireError(message) from error


def _by_fold(raw: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    return {name.lower(): value for name, value in _decode_members(raw).items()}


def _text(members: dict[str, msgspec.Raw], name: str) -> str:
    raw = _present(members.get(name.lower(), _ABSENT))
    try:
        return "" if raw is None else _decode_text(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"{name} of ExtenderBindingArgs is not a text: {_without_content(error)}"
        raise WireError(message) from error


def _members(body: bytes) -> _Body:
    if body.strip():
        try:
            sent = _decode_body(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            sent = _Body()  # The body is read again below, where the fault is reported.
        if _present(sent.Pod) and (_present(sent.Nodes) or _present(sent.NodeNames)):
            return sent
    by_fold = _folded(body, "ExtenderArgs")
    return _Body(*(by_fold.get(name, _ABSENT) for name in ("pod", "nodes", "nodenames")))


def _present(raw: msgspec.Raw) -> msgspec.Raw | None:
    return None if bytes(memoryview(raw)[:5]) == b"null" else raw


def _needed(pod: msgspec.Raw) -> msgspec.Raw:
    if _present(pod) is None:
        message = "the body has no Pod"
        raise WireError(message)
    return pod


def _node_items(nodes: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        items = _present(_by_fold(nodes).get("items", _ABSENT))
        decoded = [] if items is None else _decode_raw_list(items)
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
    """Keep the body out of logs: msgspec's messages give types, positions and paths; Python's could quote the body."""
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


def encode_names(names: Sequence[str]) -> list[bytes]:
    """Write a list of names, in pieces."""
    return [_encode(names)]


def encode_filter_result(
    *,
    nodes: Sequence[bytes] | None,
    names: Sequence[bytes],
    failed: dict[str, str],
    unresolvable: dict[str, str],
) -> list[bytes]:
    """Write ExtenderFilterResult, in pieces.

    Only the member that kube-scheduler reads in this nodeCacheCapable mode is written, and never a null. Nodes take
    megabytes, so each is a piece of its own: joining them would take as long as deciding.

    Args:
        nodes: the nodes that passed, if nodes were sent.
        names: the names of nodes that passed, if names were sent: JSON in pieces, see `encode_names`.
        failed: name -> reason.
        unresolvable: name -> reason, for nodes where preemption can't help.
    """
    reasons = {"FailedNodes": failed, "FailedAndUnresolvableNodes": unresolvable, "Error": ""}
    if nodes is None:
        return [b'{"NodeNames":', *names, b"," + _encode(reasons)[1:]]
    pieces = [b","] * (2 * len(nodes))
    pieces[1::2] = nodes
    pieces[:1] = [b'{"Nodes":{"items":[']
    return [*pieces, b"]}," + _encode(reasons)[1:]]


def encode_error(message: str) -> bytes:
    """Write a result with only an error. As ExtenderBindingResult, "" means that the Pod is bound."""
    return _encode({"Error": message})


def encode_priorities(names: Sequence[str], points: Sequence[int]) -> bytes:
    """Write HostPriorityList from names and their points, whole numbers from 0 to 10."""
    return _encode(list(starmap(_HostPriority, zip(names, points, strict=True))))


def encode_preemption_result(kept: Sequence[SentCandidate]) -> bytes:
    """Write ExtenderPreemptionResult from the candidates that are kept.

    Victims are always given by UID, whatever nodeCacheCapable is, and never as null: kube-scheduler reads no other form, and a
    null crashes it (k8s.io/kubernetes v1.36.3 pkg/scheduler/extender.go, convertToVictims). A result without nodes is a veto.
    """
    return _encode(
        {
            "NodeNameToMetaVictims": {
                each.node: {
                    "Pods": [{"UID": victim.uid} for victim in each.victims],
                    "NumPDBViolations": each.pdb_violations,
                }
                for each in kept
            }
        }
    )
