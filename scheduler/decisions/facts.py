"""Facts that lists filter by and only the body has: the Pod's owner, and the rules that refused nodes. Pure: bytes in, texts out."""

from collections.abc import Iterable

import msgspec

from policies.engine.objects.metadata import Metadata, decode_object
from policies.engine.objects.owners import DEPLOYMENT, deployment_behind
from scheduler.cluster.texts import stored
from scheduler.decisions.columns import StoredFilter


class Facts(msgspec.Struct, frozen=True):
    """The Pod's owner, and the rules that refused nodes: names between line ends, so that a search matches whole names."""

    owner_kind: str = ""
    owner_name: str = ""
    refused_by: str = ""


class _Object(msgspec.Struct):
    metadata: Metadata = Metadata()


class _Answer(msgspec.Struct, array_like=True):
    size: int
    filters: list[StoredFilter]


class _Body(msgspec.Struct, array_like=True):
    """The members of a Body up to the answer; the others are skipped."""

    pod: bytes
    namespace_labels: msgspec.Raw
    revision_digest: msgspec.Raw
    meaning: msgspec.Raw
    order: msgspec.Raw
    answer: _Answer | None = None


_decode_body = msgspec.msgpack.Decoder(_Body).decode
_pods = msgspec.json.Decoder(_Object)


def facts_in(encoded: bytes | memoryview) -> Facts:
    """Return the facts in an encoded Body; empty ones if it can't be decoded."""
    try:
        body = _decode_body(encoded)
        kind, name = owner_of(decode_object(body.pod, _pods).metadata)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Facts()
    return Facts(kind, name, _as_lines(_refusing(body.answer.filters)) if body.answer else "")


def owner_of(metadata: Metadata) -> tuple[str, str]:
    """Return kind and name of a Pod's owner: the Deployment behind its ReplicaSet; empty for a Pod without an owner."""
    owner = metadata.controller
    if owner is None:
        return "", ""
    deployment = deployment_behind(owner, metadata)
    return (DEPLOYMENT, stored(deployment)) if deployment else (stored(owner.kind), stored(owner.name))


def _as_lines(names: Iterable[str]) -> str:
    """Return names between line ends; nothing for none."""
    joined = "\n".join(names)
    return f"\n{joined}\n" if joined else ""


def _refusing(filters: Iterable[StoredFilter]) -> list[str]:
    """Return the enforced rules that refused a node: those with a status."""
    return [column.rule for column in filters if column.mode == "enforce" and column.verdicts and column.statuses]
