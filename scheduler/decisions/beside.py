"""Two answers beside each other, node by node: nodes that both treat alike share a row. Pure."""

from collections.abc import Iterator

import msgspec
import numpy as np

from policies.engine.decision import Answer
from scheduler.decisions.matrix import refusals_of

_PASSES = "passes"
_NOT_ASKED = "not asked about"


class Said(msgspec.Struct, frozen=True):
    """What an answer said of a node: that it passes, or who refused it and why; and its points."""

    verdict: str
    points: int | None = None

    @property
    def is_refusal(self) -> bool:
        """Whether the node was refused."""
        return self.verdict not in {_PASSES, _NOT_ASKED}


class Pair(msgspec.Struct, frozen=True):
    """Nodes of which both answers said the same two things."""

    first: Said
    second: Said
    nodes: list[str]

    @property
    def differs(self) -> bool:
        """Whether the two said different things."""
        return self.first != self.second


def compared(first: Answer, second: Answer) -> list[Pair]:
    """Return what two answers said, those nodes first of which it differs, the largest groups before others."""
    one, other = dict(_said(first)), dict(_said(second))
    nothing = Said(_NOT_ASKED)
    groups: dict[tuple[Said, Said], list[str]] = {}
    for name in [*one, *(name for name in other if name not in one)]:
        groups.setdefault((one.get(name, nothing), other.get(name, nothing)), []).append(name)
    pairs = [Pair(said, against, nodes) for (said, against), nodes in groups.items()]
    return sorted(pairs, key=lambda pair: (not pair.differs, -len(pair.nodes), pair.nodes[0]))


def _said(answer: Answer) -> Iterator[tuple[str, Said]]:
    points: list[int | None] = [None] * len(answer.names)
    if answer.scores:
        for position, number in zip(answer.scored.tolist(), np.asarray(answer.points).tolist(), strict=True):
            points[position] = number
    refused = {
        name: f"{refusal.rule}: {refusal.reason or refusal.code}"
        for refusal in refusals_of(answer)
        for name in refusal.nodes
    }
    for name, number in zip(answer.names, points, strict=True):
        yield name, Said(refused.get(name, _PASSES), number)
