"""Label selectors and node selectors, as Kubernetes matches them.

Sources: k8s.io/apimachinery v0.36.3 pkg/labels/selector.go, pkg/apis/meta/v1/helpers.go (LabelSelectorAsSelector) and
pkg/api/validate/content/kube.go; k8s.io/component-helpers v0.36.3 scheduling/corev1/nodeaffinity/nodeaffinity.go.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

Labels = Mapping[str, str]

_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_KEY = re.compile(rf"((?P<prefix>{_LABEL}(\.{_LABEL})*)/)?(?P<name>{_NAME})")
_VALUE = re.compile(rf"({_NAME})?")
_MAX_PREFIX = 253
_MAX_NAME = 63
# The most digits of a whole number of 64 bits.
_MAX_DIGITS = 19


class SelectorError(ValueError):
    """A selector that Kubernetes can't parse."""


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One `matchExpressions` entry: key, operator (In, NotIn, Exists, DoesNotExist, Gt, Lt), values."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """`metav1.LabelSelector`: all entries must match; an empty one matches everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


class NodeSelectorTerm(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One term of a node selector: labels (`matchExpressions`) and `metadata.name` (`matchFields`)."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """`v1.NodeSelector`: terms joined by OR."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class Clause(NamedTuple):
    """A validated Requirement."""

    key: str
    operator: str
    values: tuple[str, ...]


class Selector(msgspec.Struct, frozen=True, cache_hash=True):
    """A parsed label selector: all clauses must match. One without clauses matches everything, `nothing` matches nothing."""

    clauses: tuple[Clause, ...] = ()
    nothing: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it selects everything."""
        return not self.clauses and not self.nothing

    def matches(self, labels: Labels) -> bool:
        """Return whether all clauses match these labels."""
        if self.nothing:
            return False
        for key, operator, values in self.clauses:
            value = labels.get(key)
            if operator == "In":
                if value is None or value not in values:
                    return False
            elif operator == "NotIn":
                if value is not None and value in values:
                    return False
            elif (value is None) == (operator == "Exists"):
                return False
        return True

    def labels_asked_for(self) -> list[list[tuple[str, str]]]:
        """Return lists of labels: every selected object has exactly one label of each list."""
        return [
            [(key, value) for value in dict.fromkeys(values)]
            for key, operator, values in self.clauses
            if operator == "In"
        ]

    def joined(self, other: "Selector") -> "Selector":
        """Return the selector with the clauses of both. One that matches nothing adds no clauses, as in Go."""
        return Selector((*self.clauses, *other.clauses), self.nothing)


EVERYTHING = Selector()
NOTHING = Selector(nothing=True)


def selector_of(labels: Labels) -> Selector:
    """Return the selector for exactly these labels, without validation, like Go's SelectorFromSet."""
    return Selector(tuple(Clause(key, "In", (value,)) for key, value in sorted(labels.items())))


def parse_selector(selector: LabelSelector | None) -> Selector:
    """Parse a selector. None matches nothing, an empty one everything.

    Raises:
        SelectorError: Kubernetes refuses it.
    """
    if selector is None:
        return NOTHING
    requirements = [Requirement(key, "In", [value]) for key, value in sorted((selector.match_labels or {}).items())]
    requirements += selector.match_expressions or ()
    for requirement in requirements:
        if requirement.operator in {"Gt", "Lt"} or not is_valid(requirement):
            message = f"{requirement.key} {requirement.operator} is not a valid label selector"
            raise SelectorError(message)
    return Selector(tuple(Clause(found.key, found.operator, tuple(found.values or ())) for found in requirements))


def is_valid(requirement: Requirement) -> bool:
    """Return whether Kubernetes accepts a requirement about labels (labels.NewRequirement)."""
    values = requirement.values or ()
    match requirement.operator:
        case "In" | "NotIn":
            counted = len(values) > 0
        case "Exists" | "DoesNotExist":
            counted = not values
        case "Gt" | "Lt":
            counted = len(values) == 1 and to_integer(values[0]) is not None
        case _:
            return False
    return counted and is_label_key(requirement.key) and all(map(is_label_value, values))


def is_label_key(key: str) -> bool:
    """Return whether a text is a label key, that is, a qualified name."""
    match = _KEY.fullmatch(key)
    return bool(match and len(match["prefix"] or "") <= _MAX_PREFIX and len(match["name"]) <= _MAX_NAME)


def is_label_value(value: str) -> bool:
    """Return whether a text is the value of a label."""
    return len(value) <= _MAX_NAME and _VALUE.fullmatch(value) is not None


def matches_labels(selector: LabelSelector, labels: Labels) -> bool:
    """Return whether the selector matches. An empty selector matches every set of labels."""
    exact = selector.match_labels or {}
    return all(labels.get(key) == value for key, value in exact.items()) and all(
        matches(requirement, labels) for requirement in selector.match_expressions or ()
    )


def is_empty_term(term: NodeSelectorTerm) -> bool:
    """Return whether a term has no requirements."""
    return not term.match_expressions and not term.match_fields


def is_valid_term(term: NodeSelectorTerm) -> bool:
    """Return whether Kubernetes can parse a term."""
    return all(map(is_valid, term.match_expressions or ())) and all(map(_is_valid_field, term.match_fields or ()))


def _is_valid_field(requirement: Requirement) -> bool:
    return requirement.operator in {"In", "NotIn"} and len(requirement.values or ()) == 1


def fault_of_term(term: NodeSelectorTerm) -> str:
    """Return why Kubernetes can't parse a term, and what it takes; empty if it can."""
    for requirement in term.match_expressions or ():
        if not is_valid(requirement):
            return f"{_said(requirement)} can't be read: {_READABLE}"
    for requirement in term.match_fields or ():
        if not _is_valid_field(requirement):
            return f"{_said(requirement)} can't be read: matchFields take In or NotIn, with one value"
    return ""


_READABLE = (
    "matchExpressions take a label's key with In or NotIn and values of a label, Exists or DoesNotExist without values, "
    "or Gt or Lt with one whole number in quotes"
)


def _said(requirement: Requirement) -> str:
    return f"{requirement.key!r} {requirement.operator!r} {requirement.values or []}"


def matches_field(requirement: Requirement, name: str) -> bool:
    """Return whether a valid requirement about fields matches a node; metadata.name is the only field there is."""
    found = name if requirement.key == "metadata.name" else ""
    return (found in (requirement.values or ())) == (requirement.operator == "In")


def matches(requirement: Requirement, labels: Labels) -> bool:
    """Return whether a requirement about labels matches these labels."""
    key, values = requirement.key, requirement.values or ()
    match requirement.operator:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            # Gt and Lt, which only node selectors have.
            return _compares(requirement, labels.get(key))


def _compares(requirement: Requirement, text: str | None) -> bool:
    values = requirement.values or ()
    if text is None or len(values) != 1:
        return False
    left, right = to_integer(text), to_integer(values[0])
    if left is None or right is None:
        return False
    return left > right if requirement.operator == "Gt" else requirement.operator == "Lt" and left < right


def to_integer(text: str) -> int | None:
    """Read a whole number of 64 bits as Go's ParseInt does, None when the text isn't one."""
    digits = text[1:] if text[:1] in {"+", "-"} else text
    # isdigit alone accepts digits of all scripts; ParseInt doesn't.
    if not (digits.isascii() and digits.isdigit()):
        return None
    # A Pod may write thousands, more than Python's int reads. ParseInt doesn't count zeros in front, either.
    significant = digits.lstrip("0") or "0"
    if len(significant) > _MAX_DIGITS:
        return None
    number = -int(significant) if text[0] == "-" else int(significant)
    return number if -(2**63) <= number < 2**63 else None
