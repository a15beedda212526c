"""The jobs of the checking process, by name: it can do nothing else."""

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from policies import classic, profiles
from policies.checking.facts import facts_of
from policies.checking.wire import Sent, SentFault, write_faults, write_located, write_value
from policies.engine import decision, documents, validation
from policies.engine.errors import RuleSetError
from policies.engine.ruleset import Assignment, Document, RuleSet
from policies.manifests import CONFIGURATION, KUBE_SCHEDULERS, read_documents


def _faults_of(document: object, file: str = "") -> list[SentFault]:
    try:
        value = _read_document(document, file)
        return write_faults(decision.run_tests(value) if isinstance(value, RuleSet) else [])
    except RuleSetError as error:
        return write_faults(error.faults)


# The longest name of a rule set that validation accepts.
_MAX_NAME = 63


def _read_document(document: object, file: str) -> Document:
    """Return the value of a document; for a file also of kube-scheduler's kinds, converted to a rule set named after the file."""
    if file and isinstance(document, dict) and document.get("kind") in KUBE_SCHEDULERS:
        plain = re.sub(r"[^a-z0-9]+", "-", PurePath(file).stem.lower())[:_MAX_NAME].strip("-")
        return _imported(document, plain or "imported")
    return validation.read_document(document)


def _imported(document: object, name: str) -> RuleSet:
    is_configuration = isinstance(document, dict) and document.get("kind") == CONFIGURATION
    return (profiles.import_profile if is_configuration else classic.import_policy)(document, name=name)


def _import_policy(document: object, name: str) -> Sent:
    return write_value(_imported(document, name))


def _params_faults(assignment: Assignment, rule_set: RuleSet) -> list[SentFault]:
    return write_faults(validation.params_faults(assignment, rule_set))


def _read_by(read: Callable[[object], Any]) -> Callable[[object], Sent]:
    return lambda document: write_value(read(document))


def _read_documents(text: str, source: str) -> list[tuple[Any, ...]]:
    return [write_located(found) for found in read_documents(text, source)]


def _run_tests(rule_set: RuleSet) -> list[SentFault]:
    return write_faults(decision.run_tests(rule_set))


JOBS: Mapping[str, Callable[..., Any]] = {
    "facts_of": facts_of,
    "faults_of": _faults_of,
    "import_policy": _import_policy,
    "params_faults": _params_faults,
    "read_assignment": _read_by(documents.read_assignment),
    "read_document": lambda document, file: write_value(_read_document(document, file)),
    "read_documents": _read_documents,
    "read_priority_class": _read_by(documents.read_priority_class),
    "read_rule_set": _read_by(validation.read_rule_set),
    "run_tests": _run_tests,
}
