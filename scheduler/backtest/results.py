"""The results of a backtest: by chunk, and in total. The total depends on the chunks alone, so it is reproducible. Pure."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import zstandard

from policies.wording import counted
from scheduler.backtest.compare import Difference, Kind

# The most Pods of each kind that are named in the result; the full list has the others.
_MOST_NAMED = 1000

# The sentences, in the order of display: singular and plural.
SENTENCES = {
    Kind.NO_NODE: ("Pod would get no node", "Pods would get no node"),
    Kind.ALLOWED: ("Pod had no node and would get one", "Pods had no node and would get one"),
    Kind.OTHER_BEST: ("Pod would have another best node", "Pods would have another best node"),
    Kind.OTHER_NODES: ("Pod would have other nodes to go to", "Pods would have other nodes to go to"),
    Kind.OTHER_POINTS: ("Pod's nodes would have other points", "Pods' nodes would have other points"),
}
# With these, a Pod would get another node, so that later Snapshots would have been different.
_MOMENT = np.dtype("<i8")
_MOVING = frozenset({Kind.NO_NODE, Kind.ALLOWED, Kind.OTHER_BEST})


class Line(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A Pod, and its first Decision with this difference. `times`: how many have it; `live`: whether the live rules cause it too."""

    kind: Kind
    pod: str
    uid: str
    decision: str
    at_microseconds: int
    verb: str
    rule_set: str
    rule: str
    reason: str = ""
    before: str = ""
    after: str = ""
    nodes: int = 0
    gained: int = 0
    lost: int = 0
    points: int = 0
    live: bool = False
    times: int = 1

    @property
    def sentence(self) -> str:
        """The difference, with its cause."""
        by = f"rule {self.rule} of rule set {self.rule_set}" if self.rule else self._without_rule()
        because = f": {self.reason}" if self.reason else ""
        match self.kind:
            case Kind.NO_NODE:
                return f"{self.pod}: none of {self.nodes:,} nodes would do any more, by {by}{because}"
            case Kind.ALLOWED:
                return f"{self.pod}: {counted(self.gained, 'node')} would do, which {by} had refused{because}"
            case Kind.OTHER_BEST:
                return f"{self.pod}: {self.after} in place of {self.before}, by {by}{because}"
            case Kind.OTHER_NODES:
                return f"{self.pod}: {counted(self.gained, 'node')} more and {self.lost:,} less than {self.nodes:,}, by {by}{because}"
            case Kind.OTHER_POINTS:
                return f"{self.pod}: the points of a node change by {self.points} of 10"

    def _without_rule(self) -> str:
        return f"rule set {self.rule_set}" if self.rule_set else "no rule set applying"


class ChunkResult(msgspec.Struct, array_like=True):
    """The results of a chunk.

    Attributes:
        decided: how many Decisions were decided again.
        lines: the Decisions that differ.
        undecided: how many could not be decided, by reason.
        moments: the times of the decided ones, in microseconds and in order: 8 bytes each, little endian.
    """

    decided: int = 0
    lines: list[Line] = []
    undecided: dict[str, int] = {}
    moments: bytes = b""


class Count(msgspec.Struct, frozen=True, rename="camel"):
    """How many Pods have a difference, in how many Decisions; with the first cause, if counted by rule."""

    kind: Kind
    pods: int
    decisions: int
    rule_set: str = ""
    rule: str = ""


class Undecided(msgspec.Struct, frozen=True, rename="camel"):
    """How many Decisions could not be decided exactly, and why."""

    why: str
    decisions: int


class Result(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The result of a backtest.

    Attributes:
        of: the selection of Decisions, in words.
        revision: the Revision that the edits were applied to.
        decisions: how many there were; `decided` of them could be decided again, `same` gave the same answer.
        differing: the differences that the edits would cause, by kind.
        live: the differences that the live rules would cause too, without the edits.
        causes: the differences by their first cause.
        undecided: the Decisions that could not be decided, by reason.
        later: how many Decisions came after the first Pod that would have got another node: their Snapshots have its old node.
        pods: the first Pods of each kind.
        more: how many Pods aren't named here.
    """

    of: str
    digest: str
    revision: int
    decisions: int
    decided: int
    same: int
    differing: list[Count]
    live: list[Count]
    causes: list[Count]
    undecided: list[Undecided]
    later: int
    pods: list[Line]
    more: int = 0

    def pods_of(self, kind: Kind) -> int:
        """Return how many Pods have this difference because of the edits."""
        return next((each.pods for each in self.differing if each.kind is kind), 0)

    @property
    def sentences(self) -> list[str]:
        """The result in sentences: numbers before names."""
        return list(_sentences(self))


def line_of(found: Difference, **decision: Any) -> Line:
    """Return the line of a Decision that differs."""
    members = found._asdict()
    del members["of_then"]
    return Line(**members, **decision)


def moments_of(microseconds: Iterable[int]) -> bytes:
    """Return times in the form of `ChunkResult.moments`."""
    return np.sort(np.fromiter(microseconds, dtype=_MOMENT)).tobytes()


def pack(found: ChunkResult) -> bytes:
    """Encode a chunk's results."""
    return zstandard.compress(msgspec.msgpack.encode(found, order="deterministic"))


def unpack(data: bytes) -> ChunkResult:
    """Decode a chunk's results.

    Raises:
        ValueError: they are damaged.
    """
    try:
        packed = zstandard.decompress(data)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    return msgspec.msgpack.decode(packed, type=ChunkResult)


def encode(found: Result) -> bytes:
    """Encode a result; equal results give equal bytes."""
    return msgspec.json.encode(found, order="deterministic")


def decode(data: bytes) -> Result:
    """Read a result.

    Raises:
        ValueError: it is damaged.
    """
    return msgspec.json.decode(data, type=Result)


def by_pod(chunks: Iterable[ChunkResult]) -> list[Line]:
    """Return the Pods that differ, each once for each kind: by kind, then in the order of time."""
    found: dict[tuple[Kind, bool, str], Line] = {}
    for chunk in chunks:
        for line in chunk.lines:
            key = (line.kind, line.live, line.uid or line.pod)
            known = found.get(key)
            if known is None:
                found[key] = line
            else:
                first = min(known, line, key=_when)
                found[key] = msgspec.structs.replace(first, times=known.times + line.times)
    kinds = list(Kind)
    return sorted(found.values(), key=lambda line: (line.live, kinds.index(line.kind), *_when(line)))


def _when(line: Line) -> tuple[int, str, str]:
    return line.at_microseconds, line.pod, line.decision


def summed(chunks: Iterable[ChunkResult], *, of: str, digest: str, revision: int) -> Result:
    """Combine the results of all chunks.

    Args:
        chunks: in their order.
        of: the selection of Decisions, in words.
        digest: of the edits.
        revision: the Revision that the edits were applied to.
    """
    kept = list(chunks)
    lines = by_pod(kept)
    own = [line for line in lines if not line.live]
    undecided: dict[str, int] = {}
    for chunk in kept:
        for why, number in chunk.undecided.items():
            undecided[why] = undecided.get(why, 0) + number
    decided = sum(chunk.decided for chunk in kept)
    named = [line for kind in Kind for line in [each for each in own if each.kind is kind][:_MOST_NAMED]]
    return Result(
        of=of,
        digest=digest,
        revision=revision,
        decisions=decided + sum(undecided.values()),
        decided=decided,
        same=decided - sum(line.times for line in lines),
        differing=_counted(own, by_rule=False),
        live=_counted([line for line in lines if line.live], by_rule=False),
        causes=_counted(own, by_rule=True),
        undecided=[
            Undecided(why, number) for why, number in sorted(undecided.items(), key=lambda each: (-each[1], each[0]))
        ],
        later=_later(kept),
        pods=named,
        more=len(own) - len(named),
    )


def _counted(lines: Iterable[Line], *, by_rule: bool) -> list[Count]:
    pods: dict[tuple[Kind, str, str], int] = {}
    decisions: dict[tuple[Kind, str, str], int] = {}
    for line in lines:
        key = (line.kind, line.rule_set, line.rule) if by_rule else (line.kind, "", "")
        pods[key] = pods.get(key, 0) + 1
        decisions[key] = decisions.get(key, 0) + line.times
    kinds = list(Kind)
    ordered = sorted(pods, key=lambda key: (kinds.index(key[0]), -pods[key], key[1:]))
    return [Count(key[0], pods[key], decisions[key], *key[1:]) for key in ordered]


def _later(kept: list[ChunkResult]) -> int:
    moved = [line.at_microseconds for chunk in kept for line in chunk.lines if line.kind in _MOVING and not line.live]
    first = min(moved, default=None)
    return 0 if first is None else sum(_after(first, chunk.moments) for chunk in kept)


def _after(first: int, moments: bytes) -> int:
    found = np.frombuffer(moments, dtype=_MOMENT)
    return len(found) - int(np.searchsorted(found, first, side="right"))


def _sentences(found: Result) -> Iterator[str]:
    if not found.decisions:
        yield "No Decision was recorded in this span"
        return
    yield f"{counted(found.decided, 'Decision')} decided anew: {found.same:,} the same"
    if not found.differing and found.decided:
        yield "No Pod would have been treated otherwise by it"
    for each in found.differing:
        yield f"{each.pods:,} {SENTENCES[each.kind][each.pods != 1]}, in {counted(each.decisions, 'Decision')}"
    for each in found.live:
        says = SENTENCES[each.kind][each.pods != 1]
        yield f"By what is live already, whatever becomes of this: {each.pods:,} {says} otherwise than then"
    if found.later:
        yield f"{counted(found.later, 'Decision')} came after the first Pod that would have ended elsewhere: they were decided on the cluster as it was"
    for left in found.undecided:
        yield f"{counted(left.decisions, 'Decision')} couldn't be decided: {left.why}"
