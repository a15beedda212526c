"""The encoding of the checking process's results: plain values and bytes, so that decoding them makes no other objects.

Values of documents are sent as canonical JSON. A copy by members would differ: documents and digests omit a default only if it
is the very same object (`Reader.choice`).
"""

from typing import Any

import msgspec

from policies.checking.limits import MORE_FAULTS
from policies.engine.errors import MOST_FAULTS, Fault
from policies.engine.ruleset import Assignment, Document, Exemption, Pause, PriorityClass, RuleSet, encode
from policies.manifests import Located

_KINDS = {kind.__name__: kind for kind in (RuleSet, Assignment, PriorityClass, Pause, Exemption)}

# Kind and name of a rule, the fields that it reads, and its cost.
Facts = tuple[str, str, list[str], str]
Sent = tuple[str, bytes]
SentFault = tuple[str, str, int, int]


def write_value(value: Document) -> Sent:
    """Encode a value of a document."""
    return type(value).__name__, encode(value)


def read_value(sent: Sent) -> Any:
    """Decode the result of `write_value`."""
    kind, data = sent
    return msgspec.json.decode(data, type=_KINDS[kind])


def write_faults(faults: list[Fault]) -> list[SentFault]:
    """Encode the faults of a document, MOST_FAULTS at most: the first ones, and how many more there are."""
    told = faults
    if len(faults) > MOST_FAULTS:
        told = faults[: MOST_FAULTS - 1]
        told.append(Fault("", MORE_FAULTS.format(len(faults) - len(told))))
    return [msgspec.structs.astuple(fault) for fault in told]


def read_faults(sent: list[SentFault]) -> list[Fault]:
    """Decode the result of `write_faults`."""
    return [Fault(*found) for found in sent]


def write_located(located: Located) -> tuple[Any, ...]:
    """Encode a document of a file, with the places of its members."""
    return located.document, located.source, located.lines, located.head
