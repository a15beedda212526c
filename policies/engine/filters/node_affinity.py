"""The Pod's nodeSelector and required node affinity accept the node."""

import msgspec
import numpy as np

from policies.engine.objects.matching import match_required, match_selector, required_terms
from policies.engine.objects.pod_spec import NodeAffinity
from policies.engine.objects.table import Rows
from policies.engine.rule import Cycle
from policies.engine.selectors import NodeSelector, NodeSelectorTerm
from policies.engine.status import PASSED, Code, Status, Verdicts

NOT_MATCHED = Status(Code.UNRESOLVABLE, "node(s) didn't match Pod's node affinity/selector")
NOT_ENFORCED = Status(Code.UNRESOLVABLE, "node(s) didn't match scheduler-enforced node affinity")
CONFLICT = Status(Code.UNRESOLVABLE, "pod affinity terms conflict")


class MatchNodeSelector:
    """The node's labels satisfy the Pod's nodeSelector and its required node affinity.

    All of nodeSelector, and any term of the affinity; in a term all of matchExpressions (In, NotIn, Exists,
    DoesNotExist, Gt, Lt) and matchFields (metadata.name In or NotIn one value). An empty term, and one that
    Kubernetes can't parse, match no node. When every term names nodes that exclude each other, the reason says so.

    Source: kube-scheduler v1.36.3 framework/plugins/nodeaffinity/node_affinity.go (PreFilter, Filter).
    """

    class Arguments(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
        """Node affinity that all Pods get besides their own."""

        added_affinity: NodeAffinity | None = None

    def __init__(self, arguments: Arguments) -> None:
        self._added = arguments.added_affinity.required if arguments.added_affinity else None

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Match labels, and the node's name where affinity uses matchFields."""
        spec = cycle.pod.spec
        required = required_terms(spec)
        if required is None and not spec.node_selector and self._added is None:
            return Verdicts.success(len(rows))
        if required is not None and _excludes_all(required):
            return Verdicts.refusing(np.ones(len(rows), dtype=np.bool_), CONFLICT)
        refused = ~match_required(cycle.table, rows, spec)
        if self._added is None:
            return Verdicts.refusing(refused, NOT_MATCHED)
        verdicts = Verdicts.refusing(~match_selector(cycle.table, rows, self._added), NOT_ENFORCED)
        verdicts.codes[(verdicts.codes == PASSED) & refused] = 1
        return Verdicts(verdicts.codes, [NOT_ENFORCED, NOT_MATCHED])


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
