"""The columns that several rules read."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from policies.engine.objects.affinity import NO_TERMS, Term
from policies.engine.objects.node import NodeInfo, Taint
from policies.engine.objects.pod import Traits
from policies.engine.objects.resources import PODS
from policies.engine.objects.sparse import KeysOf, Places, Sparse
from policies.engine.objects.table import Coded, Codes, Numbers, Table
from policies.engine.quantity import wrap
from policies.engine.selectors import Selector

Mask = npt.NDArray[np.bool_]

_NOBODYS = 2**31

# The group of affinity terms that may select Pods of several namespaces.
ANY_NAMESPACE = None
# In place of a namespace: Pods of all of them.
ALL_NAMESPACES = None


def allocatable(table: Table, resource: str) -> Numbers:
    """Return the allocatable amount of a resource: millicores, bytes or pieces."""
    return table.numbers(("allocatable", resource), lambda info: info.node.allocatable.get(resource))


def requested(table: Table, resource: str) -> Numbers:
    """Return the sum of the requests of the Pods on a node for a resource."""
    return table.numbers(("requested", resource), lambda info: info.requested.get(resource))


def free(table: Table, resource: str) -> Numbers:
    """Return allocatable minus requested for a resource. A result that doesn't fit 64 bits wraps, as in Go."""
    return table.numbers(
        ("free", resource), lambda info: wrap(info.node.allocatable.get(resource) - info.requested.get(resource))
    )


def free_slots(table: Table) -> Numbers:
    """Return how many more Pods a node takes, -1 where there are too many already."""
    return table.numbers("free slots", lambda info: max(info.node.allocatable.get(PODS) - len(info.pods), -1))


def nonzero_requested(table: Table, resource: str) -> Numbers:
    """Return the sum of the requests of the Pods on a node for a resource, with the defaults that scores count."""
    return table.numbers(("nonzero requested", resource), lambda info: info.nonzero_requested.get(resource))


def pod_count(table: Table) -> Numbers:
    """Return how many Pods are on a node."""
    return table.numbers("pod count", lambda info: len(info.pods))


def lowest_priority(table: Table) -> Numbers:
    """Return the lowest priority of the Pods on a node; above every priority where there are none."""
    return table.numbers("lowest priority", lambda info: min((pod.priority for pod in info.pods), default=_NOBODYS))


def label(table: Table, key: str) -> Coded:
    """Return the value of a label, None where the node doesn't have it."""

    def read(info: NodeInfo) -> tuple[str | None, str | None]:
        value = info.node.labels.get(key)
        return value, value

    return table.coded(("label", key), read)


def has_label(table: Table, key: str) -> Mask:
    """Return whether a node has a label."""
    column = label(table, key)
    # Where every node has the label there is no code for None, and no row has the code -1.
    missing = column.code_of.get(None, -1)
    has: Mask = column.codes != missing
    return has


def taints(table: Table) -> Coded:
    """Return a node's taints: a tuple of Taint."""

    def read(info: NodeInfo) -> tuple[Hashable, tuple[Taint, ...]]:
        found = tuple(info.node.parsed.spec.taints or ())
        return found, found

    return table.coded("taints", read)


def unschedulable(table: Table) -> Numbers:
    """Return whether a node is cordoned: 0 or 1."""
    return table.numbers("unschedulable", lambda info: info.node.parsed.spec.unschedulable)


def traits(table: Table) -> Sparse:
    """Return where Pods are, by the traits that selectors see. Group: namespace; token: Traits."""

    def read(info: NodeInfo) -> Iterable[tuple[Hashable, Hashable]]:
        return ((pod.namespace, pod.traits) for pod in info.pods)

    return table.sparse("pod traits", read)


def _traits_of(table: Table, namespace: Hashable) -> Sparse:
    """Return `traits`; for ALL_NAMESPACES a version with that as the only group, made on first use."""
    if namespace is not ALL_NAMESPACES:
        return traits(table)

    def read(info: NodeInfo) -> Iterable[tuple[Hashable, Hashable]]:
        return ((ALL_NAMESPACES, pod.traits) for pod in info.pods)

    return table.sparse("pod traits of all namespaces", read)


def traits_in(table: Table, namespace: Hashable) -> Mapping[Traits, Places]:
    """Return where Pods of a namespace, or of ALL_NAMESPACES, are, by the traits that selectors see."""
    return _traits_of(table, namespace).group(namespace)  # type: ignore[return-value] # all tokens are Traits


def traits_selected(table: Table, namespace: Hashable, selector: Selector) -> Sequence[Traits]:
    """Return the distinct traits of the Pods of a namespace that a selector matches."""
    fewest = _fewest(table, namespace, selector)
    if fewest is None:
        return [found for found in traits_in(table, namespace) if selector.matches(found.labels)]
    index = _traits_of(table, namespace).index(namespace, _by_label)
    having: Iterator[Traits] = chain.from_iterable(map(index.having, fewest))  # type: ignore[arg-type] # all tokens are Traits
    return [found for found in having if selector.matches(found.labels)]


def most_selected(table: Table, namespace: Hashable, selector: Selector) -> int:
    """Return how many distinct traits a selector has to be evaluated on."""
    fewest = _fewest(table, namespace, selector)
    if fewest is None:
        return len(traits_in(table, namespace))
    index = _traits_of(table, namespace).index(namespace, _by_label)
    return sum(map(index.most, fewest))


def _fewest(table: Table, namespace: Hashable, selector: Selector) -> Sequence[Hashable] | None:
    """Return labels of which every Pod that a selector matches has one: of the lists that it names the rarest. None for none."""
    named = selector.labels_asked_for()
    if len(named) <= 1:
        return named[0] if named else None
    index = _traits_of(table, namespace).index(namespace, _by_label)
    # All clauses must match, so any one of them bounds the search: the one that leaves the least to look at.
    return min(named, key=lambda pairs: sum(map(index.most, pairs)))


def _by_label(_: object) -> KeysOf:
    return _label_pairs


def _label_pairs(found: Traits) -> Iterable[Hashable]:
    return found.labels.items()


# Up to this many distinct traits are added up each time; the sum over more of them is kept as a column.
_MAX_ADDED = 32


def count_selected(table: Table, namespace: str | None, selector: Selector, *, deleting: bool) -> Numbers:
    """Count the Pods of a namespace, or of ALL_NAMESPACES, that a selector matches: a number for each node.

    `deleting` includes terminating Pods. Callers must not write to the result. Pods are counted by their distinct traits. Where
    there are many of these the counts are kept, and renewed from the Pods of nodes that changed.
    """

    def counts(found: Traits) -> bool:
        here = namespace is ALL_NAMESPACES or found.namespace == namespace
        return here and (deleting or not found.deleting) and selector.matches(found.labels)

    def count_all() -> Numbers:
        numbers = np.zeros(len(table), dtype=np.int64)
        everywhere = traits_in(table, namespace)
        for found in traits_selected(table, namespace, selector):
            if deleting or not found.deleting:
                places = everywhere[found]
                numbers[places.rows] += places.numbers  # rows are distinct
        return numbers

    key = ("selected", namespace, selector, deleting)
    if not table.keeps(key) and most_selected(table, namespace, selector) <= _MAX_ADDED:
        return count_all()
    return table.numbers(key, lambda info: sum(counts(pod.traits) for pod in info.pods), first=count_all)


def sums_by(codes: Codes, numbers: Numbers, size: int) -> Numbers:
    """Add up counts of Pods by code, for so many codes."""
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, codes, numbers)
    return sums


def _group_of(term: Term) -> Hashable:
    if len(term.namespaces) == 1 and term.namespace_selector.nothing:
        return next(iter(term.namespaces))
    return ANY_NAMESPACE


def required_anti_terms(table: Table) -> Sparse:
    """Return where Pods with required anti-affinity are. Group: the namespace that a term selects, if it is only one; token: Term."""

    def read(info: NodeInfo) -> Iterable[tuple[Hashable, Hashable]]:
        for pod in info.pods:
            terms = pod.terms
            # By identity: nearly all Pods share the empty one.
            if terms is not NO_TERMS:
                for term in terms.required_anti:
                    yield _group_of(term), term

    return table.sparse("required anti-affinity", read)


def weighed_terms(table: Table) -> Sparse:
    """Return where Pods are whose affinity scores count. Token: (Term, weight), None for required affinity's weight."""

    def read(info: NodeInfo) -> Iterable[tuple[Hashable, Hashable]]:
        for pod in info.pods:
            terms = pod.terms
            if terms is NO_TERMS:
                continue
            for term in terms.required:
                yield _group_of(term), (term, None)
            for found in terms.preferred:
                yield _group_of(found.term), (found.term, found.weight)
            for found in terms.preferred_anti:
                yield _group_of(found.term), (found.term, -found.weight)

    return table.sparse("weighed affinity", read)
