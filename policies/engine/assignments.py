"""Which Assignments can take a Pod, found without asking each of them.

Every Assignment is indexed by one thing that it requires of a Pod: a scheduler name, a namespace, a PriorityClass, a kind of
owner, or a label (or its value) of the Pod or of its namespace. Of its requirements, the index uses the one that the fewest
Assignments share. An Assignment that requires none of these is evaluated for every Pod.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

import msgspec

from policies.engine.objects.owners import owner_kinds_of
from policies.engine.objects.pod import Pod
from policies.engine.ruleset import LabelMatch, Match
from policies.engine.selectors import Labels, LabelSelector, Requirement, parse_selector

# The scheduler name of a Pod without a schedulerName.
DEFAULT_SCHEDULER = "default-scheduler"

# How many Assignments are indexed between two pauses: a millisecond's work.
FILED_TOGETHER = 50

# A property of a Pod or of its namespace: its kind, and its value.
Key = tuple[Hashable, ...]


class MatchIndex:
    """The positions of matches in their order, indexed by their requirements."""

    def __init__(self, matches: Sequence[Match], pause: Callable[[], None] = lambda: None) -> None:
        required: list[list[frozenset[Key]]] = []
        users: Counter[Key] = Counter()
        for position, match in enumerate(matches):
            if position % FILED_TOGETHER == 0:
                pause()
            required.append(list(_required(match)))
            for keys in required[position]:
                users.update(keys)
        self._positions: dict[Key, list[int]] = {}
        self._always: list[int] = []
        for position, alternatives in enumerate(required):
            if position % FILED_TOGETHER == 0:
                pause()
            if not alternatives:
                self._always.append(position)
                continue
            fewest = min(alternatives, key=lambda keys: sum(users[key] for key in keys))
            for key in fewest:
                self._positions.setdefault(key, []).append(position)

    def candidates(self, pod: Pod, namespace_labels: Labels) -> list[int]:
        """Return the positions, in order, of all matches that can take the Pod, and of a few others."""
        positions = self._positions
        found = list(self._always)
        for key in _keys_of(pod, namespace_labels):
            found += positions.get(key, ())
        # A Deployment's Pod has two kinds of owners, and a match may name both.
        return sorted(set(found))


def unmet(match: Match, pod: Pod, namespace_labels: Labels) -> list[str]:
    """Return, in words, the requirements of a match that a Pod doesn't meet; nothing for a Pod that it takes."""
    spec = pod.spec
    found = [
        f"{what} is {value or 'none'}, not {' or '.join(names)}"
        for what, value, names in (
            ("schedulerName", spec.scheduler_name or DEFAULT_SCHEDULER, match.scheduler_names),
            ("the namespace", pod.namespace, match.namespaces),
            ("the PriorityClass", spec.priority_class_name, match.priority_class_names),
        )
        if names and value not in names
    ]
    kinds = owner_kinds_of(pod)
    if match.owner_kinds and not set(kinds) & set(match.owner_kinds):
        found.append(f"the kind of its owner is {kinds[-1]}, not {' or '.join(match.owner_kinds)}")
    found += _unmet_labels("label", match.pod_selector, pod.labels)
    found += _unmet_labels("namespace label", match.namespace_selector, namespace_labels)
    return found


def _unmet_labels(kind: str, selector: LabelMatch, labels: Labels) -> Iterator[str]:
    wanted = [Requirement(key, "In", [value]) for key, value in selector.match_labels.items()]
    wanted += msgspec.convert(selector.match_expressions, list[Requirement])
    for requirement in wanted:
        key, values = requirement.key, " or ".join(value or "empty" for value in requirement.values or ())
        if parse_selector(LabelSelector(match_expressions=[requirement])).matches(labels):
            continue
        if key not in labels:
            yield f"it has no {kind} {key}" + (f", which must be {values}" if requirement.operator == "In" else "")
            continue
        wants = {
            "In": f"not {values}",
            "NotIn": f"which must not be {values}",
            "DoesNotExist": "which it must not have",
        }
        yield f"{kind} {key} is {labels[key] or 'empty'}, {wants[requirement.operator]}"


def _required(match: Match) -> Iterator[frozenset[Key]]:
    """Iterate over the requirements of a match: a Pod that it takes has one of the keys of each set."""
    for kind, names in (
        ("scheduler", match.scheduler_names),
        ("namespace", match.namespaces),
        ("priority class", match.priority_class_names),
        ("owner kind", match.owner_kinds),
    ):
        if names:
            yield frozenset((kind, name) for name in names)
    yield from _required_labels("label", match.pod_selector)
    yield from _required_labels("namespace label", match.namespace_selector)


def _required_labels(kind: str, selector: LabelMatch) -> Iterator[frozenset[Key]]:
    for key, value in selector.match_labels.items():
        yield frozenset({(kind, key, value)})
    for entry in selector.match_expressions:
        if entry["operator"] == "In":
            yield frozenset((kind, entry["key"], value) for value in entry.get("values") or ())
        elif entry["operator"] == "Exists":
            yield frozenset({(kind, entry["key"])})


def _keys_of(pod: Pod, namespace_labels: Labels) -> Iterable[Key]:
    """Return all keys of a Pod, each once."""
    spec = pod.spec
    keys: list[Key] = [
        ("scheduler", spec.scheduler_name or DEFAULT_SCHEDULER),
        ("namespace", pod.namespace),
        ("priority class", spec.priority_class_name),
        *(("owner kind", kind) for kind in owner_kinds_of(pod)),
    ]
    _add_labels(keys, "label", pod.labels)
    _add_labels(keys, "namespace label", namespace_labels)
    return keys


def _add_labels(keys: list[Key], kind: str, labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        keys.append((kind, key))
        keys.append((kind, key, value))
