"""Converts rows to engine documents and back: the only module that knows both.

Documents from the rows of a draft are unchecked (`policies.engine.validation` checks them); rows from an engine value
are valid by construction.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from policies.engine import ruleset as engine
from policies.models import Assignment, PriorityClass, Rule, RuleSet, RuleSetVersion

JSONObject = dict[str, Any]

# Documents hold whole numbers of 64 bits.
_LIMIT = 2**63


def document_of_rules(
    *,
    name: str,
    description: str,
    params: JSONObject,
    tests: list[JSONObject],
    rules: Iterable[Rule],
    failures: JSONObject | None = None,
) -> JSONObject:
    """Return a RuleSet document from rows that needn't be saved or valid. Rules keep the given order."""
    rows = list(rules)
    filters = [_rule_document(rule) for rule in rows if rule.kind == Rule.Kind.FILTER]
    scores = [_rule_document(rule) for rule in rows if rule.kind == Rule.Kind.SCORE]
    victims = [_rule_document(rule) for rule in rows if rule.kind == Rule.Kind.VICTIM]
    rules_by_kind = {"filters": filters, "scores": scores, "victims": victims}
    spec: JSONObject = rules_by_kind | {"params": params, "failures": failures, "tests": tests}
    return _document("RuleSet", name, description, {key: value for key, value in spec.items() if value})


def rule_set_document(version: RuleSetVersion) -> JSONObject:
    """Return the RuleSet document of a version from its rows, unchecked."""
    return document_of_rules(
        name=version.rule_set.name,
        description=version.description,
        params=version.params,
        tests=version.tests,
        rules=version.rules.all(),
        failures=version.failures,
    )


def document_of_content(content: engine.RuleSet) -> JSONObject:
    """Return the RuleSet document that the rows of this content give, with the content's own numbers."""
    fields = version_fields(content)
    del fields["digest"]
    return document_of_rules(name=content.name, rules=rules_of(content, version=RuleSetVersion()), **fields)


def version_fields(rule_set: engine.RuleSet) -> JSONObject:
    """Return the columns of a version that hold a rule set's content, besides its rules."""
    spec = rule_set.spec
    return {
        "description": rule_set.description,
        "params": _plain(spec.params),
        "failures": _plain(spec.failures),
        "tests": _plain(spec.tests),
        "digest": digest_of(rule_set),
    }


def rules_of(rule_set: engine.RuleSet, *, version: RuleSetVersion) -> list[Rule]:
    """Return the unsaved rows of a rule set's rules: filters first, victims rules last, each kind in its order."""
    rows = [_filter_row(rule) for rule in rule_set.spec.filters] + [_score_row(rule) for rule in rule_set.spec.scores]
    rows += [_victim_row(rule) for rule in rule_set.spec.victims]
    for position, row in enumerate(rows):
        row.version, row.position = version, position
    return rows


def assignment_document(row: Assignment) -> JSONObject:
    """Return the Assignment document of a row, unchecked."""
    match = {
        "schedulerNames": row.scheduler_names,
        "namespaces": row.namespaces,
        "namespaceSelector": row.namespace_selector,
        "podSelector": row.pod_selector,
        "priorityClassNames": row.priority_class_names,
        "ownerKinds": row.owner_kinds,
    }
    # What holds its default is left out: the same Assignment is the same document, and has the same digest.
    spec: JSONObject = {"order": row.order, "ruleSet": row.rule_set.name if row.rule_set_id else ""}
    if row.mode != Assignment.Mode.ENFORCE:
        spec["mode"] = row.mode
    if row.percent is not None:
        spec["percent"] = row.percent
    if row.params:
        spec["params"] = row.params
    if given := {key: value for key, value in match.items() if value}:
        spec["match"] = given
    return _document("Assignment", row.name, row.description, spec)


def assignment_fields(assignment: engine.Assignment, *, rule_set: RuleSet) -> JSONObject:
    """Return the columns of an Assignment's row, besides its name."""
    match = assignment.match
    return {
        "description": assignment.description,
        "order": assignment.order,
        "rule_set": rule_set,
        "mode": assignment.mode,
        "percent": assignment.percent or None,
        "params": _plain(assignment.params),
        "scheduler_names": list(match.scheduler_names),
        "namespaces": list(match.namespaces),
        "namespace_selector": _plain(match.namespace_selector),
        "pod_selector": _plain(match.pod_selector),
        "priority_class_names": list(match.priority_class_names),
        "owner_kinds": list(match.owner_kinds),
    }


def priority_class_document(row: PriorityClass) -> JSONObject:
    """Return the PriorityClass document of a row, unchecked."""
    spec: JSONObject = {"value": row.value}
    if row.global_default:
        spec["globalDefault"] = True
    if row.preemption_policy != PriorityClass.PreemptionPolicy.PREEMPT_LOWER_PRIORITY:
        spec["preemptionPolicy"] = row.preemption_policy
    if row.adopt:
        spec["adopt"] = True
    if row.deletion_policy != PriorityClass.DeletionPolicy.KEEP:
        spec["deletionPolicy"] = row.deletion_policy
    return _document("PriorityClass", row.name, row.description, spec)


def priority_class_fields(priority_class: engine.PriorityClass) -> JSONObject:
    """Return the columns of a PriorityClass' row, besides its name."""
    return {
        "description": priority_class.description,
        "value": priority_class.value,
        "global_default": priority_class.global_default,
        "preemption_policy": priority_class.preemption_policy,
        "adopt": priority_class.adopt,
        "deletion_policy": priority_class.deletion_policy,
    }


def revision_document(
    *,
    number: int,
    published_at: str,
    rule_sets: Sequence[engine.RuleSet],
    assignments: Sequence[engine.Assignment],
    priority_classes: Sequence[engine.PriorityClass] = (),
    pauses: Sequence[engine.Pause] = (),
    exemptions: Sequence[engine.Exemption] = (),
) -> engine.Revision:
    """Return the Revision: each kind sorted by name, except Assignments, which are in the order of evaluation."""
    return engine.Revision(
        number=number,
        published_at=published_at,
        rule_sets=sorted(rule_sets, key=lambda rule_set: rule_set.name),
        assignments=sorted(assignments, key=lambda assignment: (assignment.order, assignment.name)),
        priority_classes=sorted(priority_classes, key=lambda each: each.name),
        pauses=sorted(pauses, key=lambda each: each.name),
        exemptions=sorted(exemptions, key=lambda each: each.name),
    )


def digest_of(document: engine.Document | engine.Revision) -> str:
    """Return the SHA-256 of a document's canonical bytes, in hex."""
    return hashlib.sha256(engine.encode(document)).hexdigest()


def chain_text(*, number: int, published_at: str, parts: Iterable[tuple[str, str, str]], former: str) -> bytes:
    """Return the text over which a Revision's digest is computed: its parts (kind, name, digest), and the former Revision's digest."""
    covered = {"former": former, "number": number, "parts": sorted(parts), "publishedAt": published_at}
    return msgspec.json.encode(covered, order="sorted")


def _document(kind: str, name: str, description: str, spec: JSONObject) -> JSONObject:
    metadata = {"name": name, "description": description} if description else {"name": name}
    return {"apiVersion": engine.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _rule_document(row: Rule) -> JSONObject:
    fields: JSONObject = {
        "name": row.name,
        "builtin": row.builtin,
        "expression": row.expression,
        "arguments": row.arguments,
    }
    if row.kind == Rule.Kind.FILTER:
        fields["preemptionHelps"] = row.preemption_helps
    if row.kind != Rule.Kind.SCORE:
        fields["reason"] = row.reason
        if row.on_error != Rule.OnError.REJECT:
            fields["onError"] = row.on_error
    document = {key: value for key, value in fields.items() if value}
    if row.mode != Rule.Mode.ENFORCE:
        document["mode"] = row.mode
    if row.kind == Rule.Kind.SCORE:
        if row.weight != 1:
            document["weight"] = row.weight
        if row.bounds_low is not None or row.bounds_high is not None:
            document["bounds"] = [_number(bound) for bound in (row.bounds_low, row.bounds_high) if bound is not None]
    return document


def _shared_fields(rule: engine.Rule) -> JSONObject:
    return {
        "name": rule.name,
        "builtin": rule.builtin,
        "expression": rule.expression,
        "arguments": _plain(rule.arguments),
        "on_error": rule.on_error,
        "mode": rule.mode,
    }


def _filter_row(rule: engine.FilterRule) -> Rule:
    return Rule(
        kind=Rule.Kind.FILTER, reason=rule.reason, preemption_helps=rule.preemption_helps, **_shared_fields(rule)
    )


def _victim_row(rule: engine.VictimRule) -> Rule:
    return Rule(kind=Rule.Kind.VICTIM, reason=rule.reason, **_shared_fields(rule))


def _score_row(rule: engine.ScoreRule) -> Rule:
    low, high = rule.bounds or (None, None)
    return Rule(kind=Rule.Kind.SCORE, weight=rule.weight, bounds_low=low, bounds_high=high, **_shared_fields(rule))


def _number(value: float) -> float:
    """Return whole numbers as integers, so that 20 stays 20 in a column of floats."""
    return int(value) if float(value).is_integer() and -_LIMIT <= value < _LIMIT else float(value)


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value)
