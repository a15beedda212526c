"""The engine's exceptions: faults of a document's author, and faults of an evaluation."""

from typing import Final

import msgspec

# The most faults that a document, or an answer, tells; the last one may say that there are more. A few bytes make a fault, and each
# is several sentences: two megabytes of documents can have a million of them, and an answer of a hundred megabytes.
MOST_FAULTS: Final = 1_000


class Fault(msgspec.Struct, frozen=True):
    """One thing wrong with a document.

    `path` is the place in the document ("spec.filters[0].expression"); `line` and `column`, counted from 1, are the
    position inside the expression at that path, 0 when there is none.
    """

    path: str
    message: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        position = f" (line {self.line}, column {self.column} of the expression)" if self.line else ""
        return f"{self.path}: {self.message}{position}" if self.path else f"{self.message}{position}"


class RuleSetError(ValueError):
    """A document can't be used. Carries every fault at once, each with its path."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = faults
        super().__init__("; ".join(str(fault) for fault in faults))


class ExpressionError(ValueError):
    """A CEL expression was refused at compile time. `line` and `column` count from 1; 0 when unknown."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        self.message = message
        self.line = line
        self.column = column
        super().__init__(message)


class QuantityError(ValueError):
    """A text isn't a Kubernetes quantity."""


class ObjectError(ValueError):
    """A Kubernetes object (a Pod, a Node) doesn't have the shape that Kubernetes gives it."""


class DeadlineError(Exception):
    """Time was up while a rule was being evaluated. Raised by `Cycle.give_way`; the rule set's `failures.deadline` then decides."""
