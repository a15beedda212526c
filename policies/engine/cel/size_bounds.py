"""Upper bounds on the sizes of the values that an expression reads, by their place in Kubernetes' objects.

Where Kubernetes or the kubelet limits a list or a text, that limit is used; where nothing does, a size above those seen on
nodes and Pods of managed clusters. Sources: Kubernetes v1.36.3 pkg/kubelet/nodestatus/setters.go
(MaxNamesPerImageInNodeStatus) and KubeletConfiguration's nodeStatusMaxImages; k8s.io/apimachinery v0.36.3
pkg/api/validation/objectmeta.go (TotalAnnotationSizeLimitB, 256 KiB for all annotations), pkg/util/validation (names
253, label values 63, keys 317 characters).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from policies.engine.cel.kubernetes_schema import TYPES
from policies.engine.cel.syntax import OWN_TYPES
from policies.engine.objects.running import FIELDS

# Elements of lists and entries of maps, by the member's name.
COUNTS: Mapping[str, int] = {
    "addresses": 5,
    "allocatable": 16,
    "annotations": 50,
    "args": 20,
    "capacity": 16,
    "command": 20,
    "conditions": 16,
    "containers": 16,
    "containerStatuses": 16,
    "env": 50,
    "ephemeralContainers": 8,
    "ephemeralContainerStatuses": 8,
    "free": 16,
    "images": 50,
    "initContainers": 16,
    "initContainerStatuses": 16,
    "labels": 50,
    "names": 5,
    "ports": 16,
    "requested": 16,
    "taints": 16,
    "tolerations": 20,
    "volumeMounts": 20,
    "volumes": 20,
}

OTHER_COUNT = 20
# Characters of texts, by the name of the member, or of the list or map that contains them.
LENGTHS: Mapping[str, int] = {"annotations": 1024, "labels": 63, "name": 253, "message": 1024}

OTHER_LENGTH = 256
KEY_LENGTH = 317
NUMBER_LENGTH = 24
_OBJECT_VALUES: Mapping[str, int] = {"Node": 1500, "Pod": 1000, "victim": 500}
_MOST_VALUES = 60
_MAX_LITERALS = 100


@dataclass(frozen=True)
class Bound:
    """An upper bound on a value.

    Attributes:
        size: elements of a list or entries of a map.
        length: characters of a text.
        element: the bound of the elements of a list or a map, but for `members`.
        is_map: whether it is a map.
        type: the Kubernetes type of an object.
        other_types: the types of the objects that it can be instead.
        members: the bounds of the values under known keys.
        literals: the only texts that it can be. None where they aren't known.
        key_length: characters of a map's longest key.
    """

    size: int = 0
    length: int = 0
    element: "Bound | None" = None
    is_map: bool = False
    type: str = ""
    other_types: frozenset[str] = frozenset()
    members: "Mapping[str, Bound]" = field(default_factory=dict)
    literals: frozenset[str] | None = None
    key_length: int = KEY_LENGTH

    def member(self, name: str) -> "Bound":
        """Return the bound of the value under a key."""
        known = [self.members[name]] if name in self.members else []
        known += [of_type(fields[name], name) for fields in self._fields if name in fields]
        known += [self.element] if self.element is not None else []
        return joined(known) or (ANYTHING if self.types else self.inside)

    @property
    def types(self) -> frozenset[str]:
        """The Kubernetes types of the objects that it can be."""
        return self.other_types | {self.type} if self.type else self.other_types

    @property
    def _fields(self) -> "list[Mapping[str, str]]":
        return [_FIELDS[kind] for kind in self.types if kind in _FIELDS]

    @cached_property
    def each(self) -> "Bound | None":
        """The bound of the elements, whatever the key; None where there are none, and of an object."""
        return joined([*self.members.values(), *([self.element] if self.element is not None else [])])

    @cached_property
    def inside(self) -> "Bound":
        """The bound of the elements or members, whatever the key; of anything where there are none."""
        found = [of_type(kind, name) for fields in self._fields for name, kind in fields.items()]
        return joined([*found, *([self.each] if self.each is not None else [])]) or ANYTHING

    @property
    def rounds(self) -> int:
        """How often a loop over it goes round: over an object, once for each member."""
        return max([self.size, *map(len, self._fields)])

    @property
    def key(self) -> "Bound":
        """The bound of a key of a map."""
        return Bound(length=self.key_length)

    @property
    def values(self) -> int:
        """How many values it consists of, itself included."""
        inside = self.each.values if self.each is not None else 0
        return max([1 + self.size * (inside + self.is_map), *map(_values_of, self.types)])

    @property
    def characters(self) -> int:
        """How many characters its texts have together, without keys."""
        return self.length + (self.size * self.each.characters if self.each is not None else 0)

    @property
    def longest(self) -> int:
        """How many characters the longest text in it has, keys included."""
        inside = self.each.longest if self.each is not None else 0
        return max(self.length, inside, self.key_length if self.is_map else 0)

    def joined(self, other: "Bound") -> "Bound":
        """Return the bound of a value that is one or the other."""
        return _any_of([self, other])


def _any_of(bounds: "Sequence[Bound]") -> Bound:
    members: dict[str, list[Bound]] = {}
    for bound in bounds:
        for name, each in bound.members.items():
            members.setdefault(name, []).append(each)
    types = frozenset[str]().union(*(bound.types for bound in bounds))
    first = next((bound.type for bound in bounds if bound.type), "")
    return Bound(
        size=max(bound.size for bound in bounds),
        length=max(bound.length for bound in bounds),
        element=joined([bound.element for bound in bounds if bound.element is not None]),
        is_map=any(bound.is_map for bound in bounds),
        type=first,
        other_types=types - {first},
        members={name: found[0] if len(found) == 1 else _any_of(found) for name, found in members.items()},
        literals=_all_literals([bound.literals for bound in bounds]),
        key_length=max(bound.key_length for bound in bounds),
    )


def _all_literals(each: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    found: set[str] = set()
    for literals in each:
        if literals is None or len(found | literals) > _MAX_LITERALS:
            return None
        found |= literals
    return frozenset(found)


# A number, a boolean or a time.
SCALAR = Bound(length=NUMBER_LENGTH)

# A value of which nothing is known.
ANYTHING = Bound(size=OTHER_COUNT, length=OTHER_LENGTH, element=Bound(length=OTHER_LENGTH))

_FIELDS: Mapping[str, Mapping[str, str]] = {
    **TYPES,
    **FIELDS,
    **OWN_TYPES,
}


def of_type(name: str, member: str) -> Bound:
    """Return the bound of a value by its type, as written in TYPES, and by the name of its member."""
    kind, _, inner = name.partition(":")
    if kind in {"list", "map"}:
        element = of_type(inner, member)
        return Bound(COUNTS.get(member, OTHER_COUNT), element=element, is_map=kind == "map")
    if kind == "string":
        return Bound(length=LENGTHS.get(member, OTHER_LENGTH))
    if kind in {"int", "bool"}:
        return SCALAR
    return Bound(type=kind) if _FIELDS.get(kind) else ANYTHING


@lru_cache(maxsize=1024)
def _values_of(kind: str) -> int:
    """Return how many values an object has. Few objects have all possible members."""
    if kind in _OBJECT_VALUES:
        return _OBJECT_VALUES[kind]
    values = 1
    for name, inner in _FIELDS[kind].items():
        values += 1 + (5 if inner in _FIELDS else of_type(inner, name).values)
    return min(values, _MOST_VALUES)


def of_value(value: object) -> Bound:
    """Return the bound of a known value, such as one of `params`."""
    if isinstance(value, str):
        return Bound(length=len(value), literals=frozenset([value]))
    if isinstance(value, Mapping):
        return _of_map({str(key): of_value(found) for key, found in value.items()})
    if isinstance(value, list | tuple):
        return Bound(len(value), element=joined([of_value(found) for found in value]))
    return SCALAR


def of_object(value: object) -> Bound:
    """Return the bound of a value of a Pod or a node. A text in it may come from anybody: as a pattern it is priced as a bad one."""
    if isinstance(value, str):
        return Bound(length=len(value))
    if isinstance(value, dict):
        return _of_map({key: of_object(found) for key, found in value.items()})
    if isinstance(value, list):
        return Bound(len(value), element=joined([of_object(found) for found in value]))
    return SCALAR


def _of_map(members: Mapping[str, Bound]) -> Bound:
    longest = max(map(len, members), default=0)
    return Bound(len(members), is_map=True, members=members, key_length=max(longest, KEY_LENGTH))


def joined(bounds: Sequence[Bound]) -> Bound | None:
    """Return the bound of a value that is any of these; None when there are none."""
    if len(bounds) <= 1:
        return bounds[0] if bounds else None
    return _any_of(bounds)


ROOTS: Mapping[str, Bound] = {
    "pod": Bound(type="Pod"),
    "requests": of_type("map:int", "requests"),
    "namespaceObject": Bound(type="namespaceObject"),
    "node": Bound(type="Node"),
    "usage": Bound(type="usage"),
    "victim": Bound(type="victim"),
}
