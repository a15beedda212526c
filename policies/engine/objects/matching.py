"""Node selectors over many nodes at once: each label is evaluated once per distinct value, not once per node.

Source: k8s.io/component-helpers v0.36.3 scheduling/corev1/nodeaffinity/nodeaffinity.go.
"""

from collections.abc import Callable, Sequence

import numpy as np

from policies.engine.objects.columns import Mask, label
from policies.engine.objects.pod_spec import PodSpec
from policies.engine.objects.table import Rows, Table
from policies.engine.selectors import (
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    is_empty_term,
    is_valid_term,
    matches,
    matches_field,
)


def match_required(table: Table, rows: Rows, spec: PodSpec, give_way: Callable[[], None]) -> Mask:
    """Return which nodes a Pod's nodeSelector and required node affinity accept."""
    accepted = np.ones(len(rows), dtype=np.bool_)
    for key, value in (spec.node_selector or {}).items():
        give_way()
        accepted &= _has_value(table, rows, key, [value])
    required = required_terms(spec)
    if required is not None:
        accepted &= match_selector(table, rows, required, give_way)
    return accepted


def required_terms(spec: PodSpec) -> NodeSelector | None:
    """Return a Pod's required node affinity."""
    affinity = spec.affinity
    return affinity.node_affinity.required if affinity and affinity.node_affinity else None


def match_selector(
    table: Table, rows: Rows, selector: NodeSelector, give_way: Callable[[], None], *, with_fields: bool = True
) -> Mask:
    """Return which nodes any term accepts."""
    accepted = np.zeros(len(rows), dtype=np.bool_)
    for term in selector.node_selector_terms or ():
        accepted |= match_term(table, rows, term, give_way, with_fields=with_fields)
    return accepted


def match_term(
    table: Table, rows: Rows, term: NodeSelectorTerm, give_way: Callable[[], None], *, with_fields: bool = True
) -> Mask:
    """Return which nodes a term accepts. An empty one, and one that Kubernetes can't parse, accept none.

    Without `with_fields` only labels are matched: requirements on fields are parsed, but not evaluated. `give_way` is called
    before each requirement: a Pod may have tens of thousands, and each is evaluated on all nodes.
    """
    if is_empty_term(term) or not is_valid_term(term):
        return np.zeros(len(rows), dtype=np.bool_)
    accepted = np.ones(len(rows), dtype=np.bool_)
    for requirement in term.match_expressions or ():
        give_way()
        accepted &= _match_requirement(table, rows, requirement)
    for requirement in (term.match_fields or ()) if with_fields else ():
        give_way()
        accepted &= _match_field(table, rows, requirement)
    return accepted


def _has_value(table: Table, rows: Rows, key: str, values: Sequence[str | None]) -> Mask:
    column = label(table, key)
    codes = [column.code_of[value] for value in values if value in column.code_of]
    found = column.codes[rows]
    accepted = np.zeros(len(rows), dtype=np.bool_)
    for code in codes:
        accepted |= found == code
    return accepted


def _match_requirement(table: Table, rows: Rows, requirement: Requirement) -> Mask:
    key = requirement.key
    match requirement.operator:
        case "In":
            return _has_value(table, rows, key, requirement.values or ())
        case "NotIn":
            return ~_has_value(table, rows, key, requirement.values or ())
        case "Exists":
            return ~_has_value(table, rows, key, [None])
        case "DoesNotExist":
            return _has_value(table, rows, key, [None])
    column = label(table, key)
    # Gt and Lt: evaluated once per distinct value; indexing by the codes spreads the results over the nodes.
    answers = [isinstance(value, str) and matches(requirement, {key: value}) for value in column.values]
    return np.array(answers, dtype=np.bool_)[column.codes[rows]]


def _match_field(table: Table, rows: Rows, requirement: Requirement) -> Mask:
    named = (requirement.values or [""])[0]
    if requirement.key != "metadata.name":
        return np.full(len(rows), matches_field(requirement, ""), dtype=np.bool_)
    # A node that doesn't exist has row -1, which no node has.
    accepted: Mask = rows == table.row_of.get(named, -1)
    return accepted if requirement.operator == "In" else ~accepted
