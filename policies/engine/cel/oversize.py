"""Pods and nodes that are larger than expressions' costs were estimated for (`size_bounds`).

The estimate on which an expression is accepted assumes sizes of lists and texts, but Kubernetes allows larger ones: an
annotation of 256 KiB turned 35 ms into ten seconds. So before an expression is evaluated, the values that it reads are compared
with the assumptions. Where a value is larger, the cost is estimated again for the actual values. If it is still within the
limit, the expression is evaluated. Otherwise a TooLarge replaces the value, and the rule set's `failures.deadline` decides.
Nothing here measures time: the same Pod and nodes give the same answer on every machine, and in a replay.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from policies.engine.cel.cost import (
    MAX_EXPRESSION_MILLISECONDS,
    Cost,
    assumed_at,
    estimate,
    estimate_of_node,
    estimate_of_victims,
)
from policies.engine.cel.expression_split import Split, Subexpression
from policies.engine.cel.language import EvaluationFault
from policies.engine.cel.pruning import pruned
from policies.engine.cel.size_bounds import KEY_LENGTH, ROOTS, Bound, of_object
from policies.engine.cel.syntax import OF_POD
from policies.engine.objects.node import Path, spelled
from policies.engine.rule import Cycle

# The most values, among those that an expression reads, for which a cost is estimated: more would take long by themselves.
MOST_VALUES = 5_000
# The depth of nested lists and objects.
MOST_DEEP = 64
# Characters of text for each value of an object that are taken to be as usual: of an object no texts are priced.
_USUAL_LENGTH = 64
# The beginning of each message: Decisions are counted by it.
TOO_LARGE = "is larger than the costs of rules are estimated for: "
_ENDLESS = f"more than {MOST_VALUES:,} values or {MOST_DEEP} deep"
# The names in messages of the parts of a Pod that are too large, where that isn't the Pod itself.
_OF_POD = {"namespaceObject": "Pod's namespace"}
# The names in messages of the objects that a victims rule reads.
_OBJECTS = {"victim": "victim", "pod": "Pod", "node": "node"}


class TooLarge(EvaluationFault, frozen=True):
    """Replaces a value that would take too long to evaluate."""


class PodSize:
    """Compares Pods with the sizes that one expression's estimate assumes.

    Args:
        compiled: the expression.
        reads: the paths that it reads, by object.
    """

    def __init__(self, compiled: bytes, reads: Mapping[str, Sequence[Path]]) -> None:
        self._compiled = compiled
        self._reads = {root: reads[root] for root in OF_POD if reads[root]}
        self._assumed = {
            root: [(path, assumed_at(root, path)) for path in paths] for root, paths in self._reads.items()
        }

    def fault(self, cycle: Cycle) -> TooLarge | None:
        """Return why the Pod can't be decided on within the limits; None when it can."""
        for root, assumed in self._assumed.items():
            if (place := _beyond(cycle.variable(root), assumed)) is not None:
                return self._fault_of(cycle, f"the {_OF_POD.get(root, 'Pod')} {TOO_LARGE}{spelled(root, place)}")
        return None

    def _fault_of(self, cycle: Cycle, message: str) -> TooLarge | None:
        found = {root: pruned(cycle.variable(root), paths) for root, paths in self._reads.items()}
        if any(map(_is_endless, found.values())):
            return TooLarge(f"{message}, {_ENDLESS}")
        allowed = max(MAX_EXPRESSION_MILLISECONDS, estimate(self._compiled, cycle.params).milliseconds())
        bounds = {root: of_object(value) for root, value in found.items()}
        return _too_large(message, estimate(self._compiled, cycle.params, bounds), allowed)


class NodeSize:
    """Compares nodes with the sizes that are assumed where a part of an expression reads them."""

    def __init__(self, part: Subexpression, whole: Split) -> None:
        self._part = part
        self._whole = whole
        self._assumed = [(path, assumed_at("node", path)) for path in part.reads["node"]]

    def fault(self, node: Mapping[str, Any], params: Mapping[str, Any]) -> TooLarge | None:
        """Return why a node can't be decided on within the limits; None when it can. The arguments have all that the part reads."""
        place = _beyond(node, self._assumed)
        if place is None:
            return None
        if not _is_endless(node) and self._is_within_limit(node, params):
            return None
        # No figure, so that all nodes that are too large share one value with one message.
        return TooLarge(f"the node {TOO_LARGE}{spelled('node', place)}")

    def _is_within_limit(self, node: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
        found = estimate_of_node(self._part, self._whole, of_object(node), params)
        if found <= MAX_EXPRESSION_MILLISECONDS:
            return True
        # A rule that was published when prices were lower may exceed the limit by itself.
        return found <= estimate_of_node(self._part, self._whole, ROOTS["node"], params)


class VictimSize:
    """Compares the values that a victims rule reads of the victim, the Pod and the node with the sizes that its estimate assumes.

    Args:
        compiled: the expression.
        reads: the paths that it reads, by object.
    """

    def __init__(self, compiled: bytes, reads: Mapping[str, Sequence[Path]]) -> None:
        self._compiled = compiled
        self._assumed = {
            root: [(path, assumed_at(root, path)) for path in reads[root]] for root in _OBJECTS if reads[root]
        }

    def fault(self, objects: Mapping[str, Any], params: Mapping[str, Any]) -> TooLarge | None:
        """Return why it can't be evaluated within the limits; None when it can. `objects` has the values that it reads of each."""
        beyond = {root: _beyond(objects[root], assumed) for root, assumed in self._assumed.items()}
        places = {root: place for root, place in beyond.items() if place is not None}
        if not places:
            return None
        root, place = next(iter(places.items()))
        message = f"the {_OBJECTS[root]} {TOO_LARGE}{spelled(root, place)}"
        if any(_is_endless(objects[name]) for name in places):
            return TooLarge(f"{message}, {_ENDLESS}")
        found = {name: of_object(objects[name]) for name in places}
        cost = estimate_of_victims(self._compiled, params, found)
        # A rule that was published before victims rules were priced may exceed the limit by itself.
        if cost.milliseconds() <= MAX_EXPRESSION_MILLISECONDS:
            return None
        assumed = estimate_of_victims(self._compiled, params).milliseconds()
        return _too_large(message, cost, max(MAX_EXPRESSION_MILLISECONDS, assumed))


def _too_large(message: str, cost: Cost, allowed: float) -> TooLarge | None:
    milliseconds = cost.milliseconds()
    if milliseconds <= allowed:
        return None
    return TooLarge(f"{message}, about {milliseconds:,.0f} ms in {cost.occasion}, at most {allowed:,.0f} are allowed")


def _beyond(json: Any, assumed: Sequence[tuple[Path, Bound]]) -> Path | None:
    """Return the first path whose value is larger than assumed; None where there is none, as nearly always."""
    for path, bound in assumed:
        if not _fits_at(json, path, bound):
            return path
    return None


def _fits_at(json: Any, path: Path, bound: Bound) -> bool:
    for key in path:
        if not isinstance(json, dict) or key not in json:
            return True
        json = json[key]
    return _is_usual(json, bound) and _fits(json, bound)


def _fits(value: object, bound: Bound) -> bool:
    """Return whether a value is no larger than its bound."""
    if isinstance(value, str):
        return len(value) <= bound.length
    if isinstance(value, list):
        return len(value) <= bound.size and all(_fits(each, bound.inside) for each in value)
    if isinstance(value, dict):
        if bound.types:
            return all(_fits(each, bound.member(name)) for name, each in value.items())
        few = len(value) <= bound.size
        return few and all(len(name) <= KEY_LENGTH and _fits(each, bound.inside) for name, each in value.items())
    return True


def _is_usual(value: object, bound: Bound) -> bool:
    """Return whether objects have no more values together than is assumed: each member may fit, and all of them be too many."""
    if not (bound.types or bound.inside.types):
        return True
    left, characters = bound.values, bound.values * _USUAL_LENGTH
    waiting = [value]
    while waiting and left >= 0 and characters >= 0:
        found = waiting.pop()
        left -= 1
        if isinstance(found, str):
            characters -= len(found)
        elif isinstance(found, dict):
            left -= len(found)
            waiting.extend(found.values())
        elif isinstance(found, list):
            waiting.extend(found)
    return left >= 0 and characters >= 0


def _is_endless(value: object) -> bool:
    """Return whether it has too many values to look at, or is nested too deep."""
    level, seen = [value], 0
    for _ in range(MOST_DEEP):
        parts = [
            found.values() if isinstance(found, dict) else found for found in level if isinstance(found, dict | list)
        ]
        seen += sum(map(len, parts))
        if not parts or seen > MOST_VALUES:
            break
        level = list(chain.from_iterable(parts))
    else:
        return True
    return seen > MOST_VALUES
