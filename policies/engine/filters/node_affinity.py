"""The Pod's nodeSelector and required node affinity accept the node."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from policies.engine.objects.matching import match_required, match_selector, required_terms
from policies.engine.objects.node import Node, spelled_label
from policies.engine.objects.pod_spec import NodeAffinity
from policies.engine.objects.table import Rows
from policies.engine.rule import NODE, Cycle, Detail, Filter, Scope
from policies.engine.selectors import (
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    is_empty_term,
    is_valid_term,
    matches,
    matches_field,
)
from policies.engine.status import PASSED, Code, Status, Verdicts

NOT_MATCHED = Status(Code.UNRESOLVABLE, "node(s) didn't match Pod's node affinity/selector")
NOT_ENFORCED = Status(Code.UNRESOLVABLE, "node(s) didn't match scheduler-enforced node affinity")
CONFLICT = Status(Code.UNRESOLVABLE, "pod affinity terms conflict")


class MatchNodeSelector(Filter):
    """The node's labels satisfy the Pod's nodeSelector and its required node affinity.

    All of nodeSelector must match, and any term of the affinity. In a term all of matchExpressions (In, NotIn, Exists,
    DoesNotExist, Gt, Lt) and matchFields (metadata.name In or NotIn one value) must match. An empty term, and one that
    Kubernetes can't parse, match no node. When every term names nodes that exclude each other, the reason says so.

    Source: kube-scheduler v1.36.3 framework/plugins/nodeaffinity/node_affinity.go (PreFilter, Filter).
    """

    scope = Scope.NODE
    requeued_by = frozenset({NODE})

    class Arguments(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
        """Node affinity that all Pods get besides their own."""

        added_affinity: NodeAffinity | None = None

    def __init__(self, arguments: Arguments) -> None:
        self._affinity = arguments.added_affinity or NodeAffinity()
        self._added = self._affinity.required

    def fault(self) -> str:
        """Return what kube-scheduler refuses too (apis/config/validation/validation_pluginargs.go)."""
        return f"addedAffinity: {self._affinity.fault}" if self._affinity.fault else ""

    def detail(self, cycle: Cycle, row: int, status: Status) -> Detail:
        """Name the labels and terms that the node lacks."""
        spec, node = cycle.pod.spec, cycle.table.infos[row].node
        seen: dict[str, Any] = {}
        asking = [
            ("the rule", _missing({}, self._added, node, seen), self._added),
            ("the Pod", _missing(spec.node_selector or {}, required_terms(spec), node, seen), required_terms(spec)),
        ]
        wanting = [(who, " and ".join(wants), required) for who, wants, required in asking if wants]
        has = [f"no {path}" if value is None else f"{path} = {value}" for path, value in seen.items()]
        says = ", and ".join(f"{who} wants {wanted}" for who, wanted, _ in wanting)
        says += f", and the node has {' and '.join(has)}" if has else ""
        less = f"{' and '.join(who for who, _, _ in wanting)} didn't ask for it"
        if all(_labels_help(required, node) for _, _, required in wanting):
            remedy = f"would pass if {node.name} were labelled so, or if {less}"
        else:
            remedy = f"no label of {node.name} helps: would pass if {less}"
        return Detail(says, " and ".join(wanted for _, wanted, _ in wanting), remedy, seen)

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Match labels, and the node's name where affinity uses matchFields."""
        spec = cycle.pod.spec
        required = required_terms(spec)
        if required is None and not spec.node_selector and self._added is None:
            return Verdicts.success(len(rows))
        if required is not None and _excludes_all(required):
            return Verdicts.refusing(np.ones(len(rows), dtype=np.bool_), CONFLICT)
        refused = ~match_required(cycle.table, rows, spec, cycle.give_way)
        if self._added is None:
            return Verdicts.refusing(refused, NOT_MATCHED)
        verdicts = Verdicts.refusing(~match_selector(cycle.table, rows, self._added, cycle.give_way), NOT_ENFORCED)
        verdicts.codes[(verdicts.codes == PASSED) & refused] = 1
        return Verdicts(verdicts.codes, [NOT_ENFORCED, NOT_MATCHED])


def _missing(selector: Mapping[str, str], required: NodeSelector | None, node: Node, seen: dict[str, Any]) -> list[str]:
    """Return what a node lacks of a nodeSelector and of required node affinity, and put the labels concerned into `seen`."""
    wants = []
    for key, value in sorted(selector.items()):
        if node.labels.get(key) != value:
            wants.append(f"{key}={value}")
            seen[spelled_label(key)] = node.labels.get(key)
    if required is not None:
        failing = [_failing(term, node, seen) for term in required.node_selector_terms or ()]
        if all(failing):
            wants.append(" or ".join(failing) or "one of no terms, which no node has")
    return wants


def _labels_help(required: NodeSelector | None, node: Node) -> bool:
    """Return whether a term asks for nothing else of a node than labels, so that it may match once the node has these."""
    return required is None or any(
        not is_empty_term(term)
        and is_valid_term(term)
        and all(matches_field(each, node.name) for each in term.match_fields or ())
        for term in required.node_selector_terms or ()
    )


def _failing(term: NodeSelectorTerm, node: Node, seen: dict[str, Any]) -> str:
    """Return the requirements of a node affinity term that the node doesn't meet; empty when it passes."""
    if is_empty_term(term):
        return "an empty term, which no node has"
    if not is_valid_term(term):
        return "a term that Kubernetes can't read"
    missing = [each for each in term.match_expressions or () if not matches(each, node.labels)]
    for each in missing:
        seen[spelled_label(each.key)] = node.labels.get(each.key)
    fields = [each for each in term.match_fields or () if not matches_field(each, node.name)]
    return " and ".join(_requirement(each) for each in [*missing, *fields])


def _requirement(requirement: Requirement) -> str:
    values = ", ".join(requirement.values or ())
    return f"{requirement.key} {requirement.operator}" + (f" ({values})" if values else "")


def _excludes_all(selector: NodeSelector) -> bool:
    """Return whether every term names nodes by In, and none can be all that its term names."""
    terms = selector.node_selector_terms or ()
    named = [_named(term) for term in terms]
    return bool(terms) and all(names is not None and not names for names in named)


def _named(term: NodeSelectorTerm) -> set[str] | None:
    """Return the nodes that a term names by In, None when it names none so."""
    names: set[str] | None = None
    for requirement in term.match_fields or ():
        if requirement.key == "metadata.name" and requirement.operator == "In":
            values = set(requirement.values or ())
            names = values if names is None else names & values
    return names
