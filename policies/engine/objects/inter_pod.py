"""Where the Pods are that affinity terms select, and which nodes share their topology.

Source: kube-scheduler v1.36.3 framework/plugins/interpodaffinity/filtering.go and scoring.go.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from policies.engine.objects.affinity import Term
from policies.engine.objects.columns import (
    ANY_NAMESPACE,
    Mask,
    label,
    most_selected,
    sums_by,
    traits,
    traits_in,
    traits_selected,
)
from policies.engine.objects.pod import Pod, Traits
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.sparse import KeysOf, Places, Sparse
from policies.engine.objects.table import Numbers, Rows, Table
from policies.engine.selectors import Labels, Selector

_NO_LABELS: Labels = {}


def resolved(terms: Iterable[Term], snapshot: Snapshot) -> list[Term]:
    """Return the incoming Pod's terms with the namespaces that their selectors match."""
    return [term.resolved(snapshot.namespaces) for term in terms]


# Where Pods are: by their traits, or how many are on each node.
Meant = Sequence[Places] | Numbers

# Up to this many terms of a namespace are all evaluated; of more, only those that may select the Pod are looked up.
_MAX_LISTED = 16
# In place of a label: the key of terms that require no label.
_ANY_LABELS = None

# Up to this many distinct traits terms are evaluated each time; for more, the result is kept as a column.
_MAX_ASKED = 256


def places_of(table: Table, terms: Sequence[Term]) -> Meant:
    """Return where existing Pods are that all of these resolved terms select."""
    key = ("meant", tuple(terms))
    everywhere = terms[0].namespace_selector.matches(_NO_LABELS)
    if not table.keeps(key):
        namespaces: Iterable[Hashable] = traits(table).groups() if everywhere else terms[0].namespaces
        if sum(most_selected(table, namespace, terms[0].selector) for namespace in namespaces) <= _MAX_ASKED:
            return _places_of(table, terms, namespaces)

    def means(found: Traits) -> bool:
        return all(term.matches_resolved(found.namespace, found.labels) for term in terms)

    def count_all() -> Numbers:
        numbers = np.zeros(len(table), dtype=np.int64)
        for places in _places_of(table, terms, traits(table).groups() if everywhere else terms[0].namespaces):
            numbers[places.rows] += places.numbers  # rows are distinct
        return numbers

    return table.numbers(key, lambda info: sum(means(pod.traits) for pod in info.pods), first=count_all)


def _places_of(table: Table, terms: Sequence[Term], namespaces: Iterable[Hashable]) -> list[Places]:
    meant: list[Places] = []
    for namespace in namespaces:
        there = traits_in(table, namespace)
        meant += [
            there[found]
            for found in traits_selected(table, namespace, terms[0].selector)
            if all(term.matches_resolved(found.namespace, found.labels) for term in terms)
        ]
    return meant


def tokens_for(sparse: Sparse, pod: Pod) -> Iterator[tuple[Any, Places]]:
    """Iterate over the terms of existing Pods that may select a Pod: those for its namespace, and those for several.

    Where there are many, terms that require a label which the Pod doesn't have are left out.
    """
    for group in (pod.namespace, ANY_NAMESPACE):
        places = sparse.group(group)
        if len(places) <= _MAX_LISTED:
            yield from places.items()
            continue
        index = sparse.index(group, _by_rarest_label)
        for token in index.may_have((_ANY_LABELS, *pod.labels.items())):
            yield token, places[token]


def _by_rarest_label(tokens: Collection[Any]) -> KeysOf:
    """Make the function that indexes a term by a label that it requires: of several, the one that the fewest terms require."""
    asking = Counter(pair for token in tokens for pairs in _selector_of(token).labels_asked_for() for pair in pairs)

    def keys_of(token: Any) -> Sequence[Hashable]:
        selector = _selector_of(token)
        if selector.nothing:
            return ()
        return min(
            selector.labels_asked_for(), key=lambda pairs: sum(asking[pair] for pair in pairs), default=(_ANY_LABELS,)
        )

    return keys_of


def _selector_of(token: Term | tuple[Term, int | None]) -> Selector:
    return (token if isinstance(token, Term) else token[0]).selector


class Domains:
    """Sums over the values of a topology's label, for one Table; nodes without the label are in no domain."""

    def __init__(self, table: Table, key: str) -> None:
        self._codes, values, code_of = label(table, key)
        self._missing = code_of.get(None, -1)
        self.sums: Numbers = np.zeros(len(values), dtype=np.int64)
        self.touched = False

    def add(self, places: Places, weight: int = 1) -> None:
        """Add weight x the count on each node to the node's domain."""
        self._add(places.rows, places.numbers, weight)

    def add_all(self, found: Meant, weight: int = 1) -> None:
        """Add several counts at once."""
        if isinstance(found, np.ndarray):
            self._add_column(found, weight)
        elif found:
            rows = np.concatenate([places.rows for places in found])
            self._add(rows, np.concatenate([places.numbers for places in found]), weight)

    def _add(self, rows: Rows, numbers: Numbers, weight: int) -> None:
        codes = self._codes[rows]
        if self._missing >= 0:
            labelled = codes != self._missing
            codes, numbers = codes[labelled], numbers[labelled]
        if len(codes):
            self.touched = True
            # Not `sums[codes] += …`, which adds only once for codes that occur several times.
            np.add.at(self.sums, codes, numbers * weight)

    def _add_column(self, numbers: Numbers, weight: int) -> None:
        sums = sums_by(self._codes, numbers, len(self.sums))
        if self._missing >= 0:
            sums[self._missing] = 0
        if sums.any():
            self.touched = True
            self.sums += sums * weight

    def has(self, rows: Rows) -> Mask:
        """Return which nodes have the label."""
        has: Mask = self._codes[rows] != self._missing
        return has

    def at(self, rows: Rows) -> Numbers:
        """Return the sum of each node's domain, 0 for a node that is in none."""
        return self.sums[self._codes[rows]]
