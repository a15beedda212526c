"""How the checking process writes what it found: plain values and bytes, so that reading them makes nothing else.

Values of documents go as their canonical JSON. A copy of a value by its members would be another one: what holds a default is left
out of documents, and of digests, by the very object (`Reader.choice`).
"""

from typing import Any

import msgspec

from policies.engine.errors import Fault
from policies.engine.ruleset import Assignment, Document, Exemption, Pause, PriorityClass, RuleSet, encode
from policies.manifests import Located

_KINDS = {kind.__name__: kind for kind in (RuleSet, Assignment, PriorityClass, Pause, Exemption)}

# Kind and name of a rule, what it reads, and what it costs.
Facts = tuple[str, str, list[str], str]
Sent = tuple[str, bytes]
SentFault = tuple[str, str, int, int]


def write_value(value: Document) -> Sent:
    """Write a value of a document."""
    return type(value).__name__, encode(value)


def read_value(sent: Sent) -> Any:
    """Read what `write_value` wrote."""
    kind, data = sent
    return msgspec.json.decode(data, type=_KINDS[kind])


def write_faults(faults: list[Fault]) -> list[SentFault]:
    """Write faults."""
    return [msgspec.structs.astuple(fault) for fault in faults]


def read_faults(sent: list[SentFault]) -> list[Fault]:
    """Read what `write_faults` wrote."""
    return [Fault(*found) for found in sent]


def write_located(located: Located) -> tuple[Any, ...]:
    """Write a document of a file, with where its members stand."""
    return located.document, located.source, located.lines, located.head
