"""Compares two answers node by node: nodes that both treat alike share a row. Pure."""

from collections.abc import Iterator

import msgspec
import numpy as np

from policies.engine.decision import Answer
from scheduler.decisions.matrix import Matrix, Refusal, Row, matrix_of, passing, refusals_of

_PASSES = "passes"
_NOT_ASKED = "not asked about"
_EVERY_ROW = 1_000_000


class Said(msgspec.Struct, frozen=True):
    """An answer's verdict on a node: that it passes, or the rule that refused it and why; and its points."""

    verdict: str
    points: int | None = None

    @property
    def mark(self) -> str:
        """The verdict's sign: ✓ for a node that passes, · for one that wasn't evaluated, ✗ for a refused one."""
        return {_PASSES: "✓", _NOT_ASKED: "·"}.get(self.verdict, "✗")

    @property
    def kind(self) -> str:
        """The kind of cell that a page draws for the verdict."""
        return {_PASSES: "good", _NOT_ASKED: "none"}.get(self.verdict, "bad")


class Pair(msgspec.Struct, frozen=True):
    """Nodes with the same pair of verdicts."""

    first: Said
    second: Said
    nodes: list[str]

    @property
    def differs(self) -> bool:
        """Whether the two verdicts differ."""
        return self.first != self.second


def compared(first: Answer, second: Answer) -> list[Pair]:
    """Return the verdicts of two answers; differing ones first, larger groups before smaller ones."""
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


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of an answer: the nodes that pass, the best node, the refusing rules; and its table.

    Attributes:
        names: the candidate nodes.
        best: the feasible node with the highest total, on a tie the first by name; empty without scores that count.
        points: the best node's points, 0..10.
        ties: how many other nodes have the same total.
        scored: whether there are scores that count.
        missed: the rules that weren't evaluated in time.
    """

    names: list[str]
    feasible: frozenset[str]
    best: str
    points: int
    ties: int
    scored: bool
    missed: list[str]
    refusals: list[Refusal]
    matrix: Matrix

    @classmethod
    def of(cls, answer: Answer) -> "Judged":
        """Sum up an answer."""
        best = answer.best
        totals = answer.totals.tolist() if best else []
        names = [answer.name_at(position) for position in answer.scored.tolist()] if best else []
        top = totals[names.index(best)] if best else 0
        return cls(
            names=answer.names,
            feasible=frozenset(passing(answer)),
            best=best,
            points=int(answer.points[names.index(best)]) if best else 0,
            ties=totals.count(top) - 1 if best else 0,
            scored=answer.is_ranked,
            missed=answer.missed,
            refusals=refusals_of(answer),
            matrix=matrix_of(answer, best=best, most=_EVERY_ROW),
        )


class Both(msgspec.Struct, frozen=True):
    """Nodes that the draft treats alike and the live rules treat alike: their row in each of the two tables."""

    nodes: list[str]
    draft: Row
    live: Row | None = None

    @property
    def differs(self) -> bool:
        """Whether the two rows differ in feasibility, points or winner."""
        live = self.live
        return live is not None and (
            (self.draft.feasible, self.draft.total, self.draft.best) != (live.feasible, live.total, live.best)
        )


def side_by_side(draft: Judged, live: Judged | None) -> list[Both]:
    """Return two tables of the same nodes as one: differing rows first, then refused ones, larger groups before smaller ones."""
    of_live = {name: row for row in live.matrix.rows for name in row.nodes} if live else {}
    found: list[Both] = []
    for row in draft.matrix.rows:
        groups: dict[int, tuple[list[str], Row | None]] = {}
        for name in row.nodes:
            other = of_live.get(name)
            groups.setdefault(id(other), ([], other))[0].append(name)
        found += [Both(nodes, row, other) for nodes, other in groups.values()]
    return sorted(
        found,
        key=lambda both: (not both.differs, not both.draft.best, both.draft.feasible, -len(both.nodes), both.nodes[0]),
    )
