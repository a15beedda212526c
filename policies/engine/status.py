"""Verdicts on nodes: a refusal is a value, an exception is a fault.

The codes and their meaning follow kube-scheduler v1.36.3, framework/interface.go.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

# The code of Verdicts for success, which needs no reason and is by far the most frequent.
PASSED = -1


class Code(StrEnum):
    """The result of one filter rule for one node."""

    SUCCESS = "Success"
    # Refused; removing other Pods from the node could help, so preemption may try it.
    UNSCHEDULABLE = "Unschedulable"
    # Refused, and preemption can't change that.
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    # The rule couldn't be evaluated and its onError is `reject`.
    ERROR = "Error"


class Status(msgspec.Struct, frozen=True):
    """A refusal: its code and a reason.

    The reason is constant for a rule: kube-scheduler aggregates refusals by their exact text, writes the text to
    the Pod's condition, and retries without backoff when it changes. So no node names, no numbers, no `%`.
    """

    code: Code
    reason: str = ""


@lru_cache(maxsize=64)
def _success(size: int) -> "Verdicts":
    codes = np.full(size, PASSED, dtype=np.int32)
    codes.flags.writeable = False
    verdicts = Verdicts(codes, [])
    verdicts.all_pass = True
    return verdicts


class Verdicts:
    """The results of a filter for nodes, in the order asked: `codes` holds -1 for success, else a position in `statuses`.

    `faults` says on how many nodes the rule could not be evaluated, by the message for its author.
    `all_pass` says that all nodes pass.
    """

    all_pass = False

    def __init__(
        self, codes: npt.NDArray[np.int32], statuses: list[Status], faults: Mapping[str, int] | None = None
    ) -> None:
        self.codes = codes
        self.statuses = statuses
        self.faults = faults or {}

    @staticmethod
    def success(size: int) -> "Verdicts":
        """Pass all nodes. The result is shared, and its codes are read-only."""
        return _success(size)

    @classmethod
    def refusing(cls, refused: npt.NDArray[np.bool_], status: Status) -> "Verdicts":
        """Refuse the nodes for which `refused` is true, all for the same reason."""
        codes = refused.astype(np.int32)
        codes += np.int32(PASSED)  # 0 where refused
        return cls(codes, [status])

    @classmethod
    def listed(cls, verdicts: Sequence[Status | None]) -> "Verdicts":
        """Take one status for each node, None for success."""
        positions: dict[Status, int] = {}
        codes = [PASSED if status is None else positions.setdefault(status, len(positions)) for status in verdicts]
        return cls(np.array(codes, dtype=np.int32), list(positions))

    def at(self, position: int) -> Status | None:
        """Return the status of one node, None for success."""
        code = int(self.codes[position])
        return None if code == PASSED else self.statuses[code]
