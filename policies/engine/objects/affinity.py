"""Affinity between Pods, parsed.

Sources: k8s.io/kube-scheduler v0.36.3 framework/types.go (AffinityTerm, GetAffinityTerms) and kube-scheduler v1.36.3
framework/types.go (PodInfo.Update), framework/plugins/interpodaffinity/plugin.go.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import msgspec

from policies.engine.objects.metadata import MOST_SHARED_CHARACTERS
from policies.engine.objects.pod_spec import Affinity, PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from policies.engine.selectors import Labels, Selector, SelectorError, parse_selector

T = TypeVar("T")
S = TypeVar("S")

_NO_LABELS: Labels = {}


class Term(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """Which Pods the term selects (namespaces by name or by labels, and labels of the Pods), and the topology's key."""

    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector
    topology_key: str

    def matches(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        """Return whether the term selects a Pod."""
        near = namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        return near and self.selector.matches(labels)

    def resolved(self, namespaces: Mapping[str, Labels]) -> "Term":
        """Return the incoming Pod's term with the namespaces that its selector matches now added by name.

        The selector stays: it is evaluated again with no labels at all. So one that matches the empty set (NotIn,
        DoesNotExist) selects the Pods of every namespace: kube-scheduler v1.36.3 intends to drop the selector but
        changes a copy of the term (interpodaffinity/plugin.go, mergeAffinityTermNamespacesIfNotEmpty).
        """
        selector = self.namespace_selector
        if selector.is_empty or selector.nothing:
            return self
        found = {name for name, labels in namespaces.items() if selector.matches(labels)}
        return msgspec.structs.replace(self, namespaces=self.namespaces | found)

    def matches_resolved(self, namespace: str, labels: Labels) -> bool:
        """Return whether a resolved term of the incoming Pod selects an existing Pod."""
        return self.matches(namespace, labels, _NO_LABELS)


class Weighted(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A preference."""

    term: Term
    weight: int


class Terms(msgspec.Struct, frozen=True, gc=False):
    """All of a Pod's affinity to other Pods. A list in which one selector can't be parsed is empty."""

    required: tuple[Term, ...] = ()
    required_anti: tuple[Term, ...] = ()
    preferred: tuple[Weighted, ...] = ()
    preferred_anti: tuple[Weighted, ...] = ()
    valid: bool = True


NO_TERMS = Terms()


def terms_of(namespace: str, affinity: Affinity | None) -> Terms:
    """Parse a Pod's terms. Pods with the same affinity share them."""
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    encoded = msgspec.json.encode((affinity.pod_affinity, affinity.pod_anti_affinity))
    make = _terms if len(encoded) <= MOST_SHARED_CHARACTERS else _terms.__wrapped__
    return make(namespace, encoded)


_DECODER = msgspec.json.Decoder(tuple[PodAffinity | None, PodAffinity | None])


@lru_cache(maxsize=8192)
def _terms(namespace: str, encoded: bytes) -> Terms:
    near, far = _DECODER.decode(encoded)
    valid: list[bool] = []

    def make_term(term: PodAffinityTerm) -> Term:
        return _term(namespace, term)

    def make_weighted(found: WeightedPodAffinityTerm) -> Weighted:
        return Weighted(_term(namespace, found.pod_affinity_term), found.weight)

    return Terms(
        required=_all_or_none(near.required if near else None, make_term, valid),
        required_anti=_all_or_none(far.required if far else None, make_term, valid),
        preferred=_all_or_none(near.preferred if near else None, make_weighted, valid),
        preferred_anti=_all_or_none(far.preferred if far else None, make_weighted, valid),
        valid=all(valid),
    )


def _all_or_none(found: Sequence[S] | None, make: Callable[[S], T], valid: list[bool]) -> tuple[T, ...]:
    try:
        return tuple(map(make, found or ()))
    except SelectorError:
        valid.append(False)
        return ()


def _term(namespace: str, term: PodAffinityTerm) -> Term:
    names = term.namespaces or []
    if not names and term.namespace_selector is None:
        names = [namespace]
    return Term(
        namespaces=frozenset(names),
        namespace_selector=parse_selector(term.namespace_selector),
        selector=parse_selector(term.label_selector),
        topology_key=term.topology_key,
    )
