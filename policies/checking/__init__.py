"""Checking of untrusted documents, in a separate process with limits on time and memory.

Pages, REST, commands and publishing read and check documents only by these functions, which do the same as the functions of the
same names in `policies.engine`, `policies.manifests`, `policies.classic` and `policies.profiles`. If a document exceeds the
limits (`limits`), the process ends, and the document is refused with a message. Other checks and the calling process go on.

They raise a RuleSetError with every fault, also when a check exceeds the limits. Functions that return faults don't raise.
"""

import sys
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any

from policies.checking.limits import BATCH_DOCUMENTS
from policies.checking.passed import Passed
from policies.checking.pool import for_one_request, run, run_each
from policies.checking.wire import Facts, read_faults, read_value
from policies.engine.errors import Fault, RuleSetError
from policies.engine.ruleset import Assignment, Document, PriorityClass, RuleSet, encode
from policies.manifests import Located

__all__ = [
    "Facts",
    "facts_of",
    "faults_beside",
    "faults_of",
    "faults_together",
    "for_one_request",
    "import_policy",
    "params_faults",
    "read_assignment",
    "read_document",
    "read_documents",
    "read_each",
    "read_priority_class",
    "read_rule_set",
    "read_until",
    "run_tests",
    "run_tests_of_each",
]


def read_documents(text: str, source: str) -> list[Located]:
    """Return the documents of a file."""
    return [Located(*found) for found in run("read_documents", text, source)]


def read_document(document: object, file: str = "") -> Document:
    """Return the value of a document of any kind; for a file also of kube-scheduler's kinds, converted to a rule set."""
    found: Document = read_value(run("read_document", document, file))
    return found


def read_each(documents: Iterable[tuple[object, str]]) -> list[Document | RuleSetError]:
    """Return the value or the faults of each of many documents, in order; each comes with its file, or nothing."""
    return [_read_or_refused(found) for found in run_each("read_document", documents)]


def read_until(documents: Iterable[tuple[object, str]], faults: int) -> list[Document | RuleSetError]:
    """Return what `read_each` does, but not of the documents after those that have so many faults together."""
    waiting = iter(documents)
    found: list[Document | RuleSetError] = []
    while faults > 0 and (part := list(islice(waiting, BATCH_DOCUMENTS))):
        read = read_each(part)
        faults -= sum(len(each.faults) for each in read if isinstance(each, RuleSetError))
        found += read
    return found


def _read_or_refused(found: Any) -> Any:
    return found if isinstance(found, RuleSetError) else read_value(found)


def read_rule_set(document: object) -> RuleSet:
    """Return the value of a RuleSet document."""
    found: RuleSet = read_value(run("read_rule_set", document))
    return found


def read_assignment(document: object) -> Assignment:
    """Return the value of an Assignment document."""
    found: Assignment = read_value(run("read_assignment", document))
    return found


def read_priority_class(document: object) -> PriorityClass:
    """Return the value of a PriorityClass document."""
    found: PriorityClass = read_value(run("read_priority_class", document))
    return found


def import_policy(document: object, *, name: str) -> RuleSet:
    """Return the rule set that a classic Policy makes, or the one profile of a KubeSchedulerConfiguration."""
    found: RuleSet = read_value(run("import_policy", document, name))
    return found


# Rule sets whose tests passed: files are tested when they are read, and again when a Change is sent to review, examined by the
# gate and published, which holds the lock of Revisions if files are applied. Tests name their moment, so they pass again.
_passed = Passed(most=5_000)


def run_tests(rule_set: RuleSet) -> list[Fault]:
    """Return a fault for each failed test of a rule set, or for tests that exceed the limits."""
    return run_tests_of_each([rule_set])[0]


def run_tests_of_each(rule_sets: Iterable[RuleSet]) -> list[list[Fault]]:
    """Return for each of many rule sets what `run_tests` returns, in order."""
    # Most rule sets have no tests, and needn't be sent.
    asked = [(each, sha256(encode(each)).digest() if each.spec.tests else b"") for each in rule_sets]
    untested = {digest: each for each, digest in asked if digest and digest not in _passed}
    answers = run_each("run_tests", [(each,) for each in untested.values()])
    found = {digest: _faults_or_refused(answer) for digest, answer in zip(untested, answers, strict=True)}
    for digest, faults in found.items():
        if not faults:
            _passed.add(digest)
    return [found.get(digest, []) for _, digest in asked]


def params_faults(assignment: Assignment, rule_set: RuleSet) -> list[Fault]:
    """Return the faults of an Assignment's params for its rule set."""
    try:
        return read_faults(run("params_faults", assignment, rule_set))
    except RuleSetError as error:
        return error.faults


def faults_beside(read: Sequence[Document | RuleSetError]) -> list[list[Fault]]:
    """Return for each of many documents of one request, as `read_each` returns them, the faults that arise from the others."""
    rule_sets = {each.name: each for each in read if isinstance(each, RuleSet)}
    found: list[list[Fault]] = [[] for _ in read]
    first: dict[tuple[type, str], list[Fault]] = {}
    default = ""
    for value, faults in zip(read, found, strict=True):
        if isinstance(value, RuleSetError):
            continue
        of_first = first.setdefault((type(value), value.name), faults)
        if of_first is not faults:
            several = Fault("metadata.name", f"{value.name} is in these files more than once")
            faults.append(several)
            if several not in of_first:
                of_first.append(several)
        if isinstance(value, PriorityClass) and value.global_default:
            if default:
                message = f"{value.name}: {default} is the global default as well, and Kubernetes allows only one"
                faults.append(Fault("", message))
            default = default or value.name
        if isinstance(value, Assignment) and value.params and value.rule_set in rule_sets:
            faults.extend(params_faults(value, rule_sets[value.rule_set]))
    return found


def faults_together(documents: Iterable[tuple[object, str]], most: int = sys.maxsize) -> list[list[Fault]]:
    """Return for each of many documents, each with its file, the result of `faults_of`, and the faults that arise from the others.

    After the documents in which reading finds `most` faults together the others aren't looked at: they are missing in the answer.
    """
    read = read_until(documents, most)
    tested = iter(run_tests_of_each(each for each in read if isinstance(each, RuleSet)))
    alone = [
        each.faults if isinstance(each, RuleSetError) else next(tested) if isinstance(each, RuleSet) else []
        for each in read
    ]
    return [[*own, *beside] for own, beside in zip(alone, faults_beside(read), strict=True)]


def facts_of(rule_set: RuleSet) -> list[Facts]:
    """Return the fields that each rule reads, and its cost, in words; nothing if this exceeds the limits."""
    try:
        found: list[Facts] = run("facts_of", rule_set)
    except RuleSetError:
        return []
    return found


def faults_of(document: object, file: str = "") -> list[Fault]:
    """Return every fault of a document of a known kind, including failed tests; for a file also of kube-scheduler's kinds."""
    return _faults_or_refused(run_each("faults_of", [(document, file)])[0])


def _faults_or_refused(found: Any) -> list[Fault]:
    return found.faults if isinstance(found, RuleSetError) else read_faults(found)
