"""A victims rule's expression: over one Pod on a node, the Pod that finds no room, and the node. Nothing here works on columns."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from policies.engine.cel.cost import Cost, estimate_of_victims
from policies.engine.cel.expressions import Result
from policies.engine.cel.language import (
    BOOLEAN_TYPES,
    VICTIMS,
    Data,
    EvaluationFault,
    Program,
    check_constants,
    compile_checked,
    pattern_fault,
)
from policies.engine.cel.oversize import VictimSize
from policies.engine.cel.pruning import pruned
from policies.engine.cel.schema import check_fields
from policies.engine.cel.syntax import Tree, free_names, unpack


class VictimExpression:
    """A compiled expression over one Pod on a node.

    Attributes:
        source: as it was written.
        reads: the paths that it reads in victim, pod, node and params.
        reads_now: whether it reads the time.

    Raises:
        ExpressionError: it can't be used; with the position inside `source`.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._compiled = compile_checked(source, BOOLEAN_TYPES, Result.BOOLEAN.value, VICTIMS)
        tree = Tree(self._compiled)
        for expr, regex in tree.regexes:
            if fault := pattern_fault(regex):
                raise tree.fault(expr, fault)
        self.reads = tree.reads
        self.reads_now = "now" in free_names(unpack(self._compiled).expr)
        self._program = Program(tree.serialized)
        self._size = VictimSize(self._compiled, self.reads)

    def check_fields(self) -> None:
        """Check the fields that it reads against those of Kubernetes; those of the victim against the ones that Berth keeps; and its constants.

        Raises:
            ExpressionError: there is no such field, with the nearest known name and the position; it gives a field of another type;
                or a constant can't be read.
        """
        check_constants(self._compiled)
        check_fields(unpack(self._compiled), kind="bool", wanted=Result.BOOLEAN.value)

    def cost(self, params: Mapping[str, object]) -> Cost:
        """Estimate its cost in a preemption, with these params of its rule set."""
        return estimate_of_victims(self._compiled, params)

    def evaluate(self, objects: Mapping[str, Mapping[str, Any]], now: datetime) -> bool | EvaluationFault:
        """Return whether the Pod may be removed. `objects` has all values that the expression reads, under the names in `reads`."""
        data: Data = {name: pruned(objects[name], paths) for name, paths in self.reads.items() if paths}
        if (large := self._size.fault(data, objects.get("params", {}))) is not None:
            return large
        value = self._program.run({**data, "now": now})
        if isinstance(value, bool | EvaluationFault):
            return value
        return EvaluationFault(f"gave {type(value).__name__}, but {Result.BOOLEAN.value} is needed")
