"""What forms kept as drafts and as rows that weren't live becomes Changes: from here on forms edit nothing else."""

import hashlib
import json

import msgspec
from django.db import migrations
from django.utils import timezone

_DEFAULTS = {
    "Assignment": {
        "description": "", "order": 100, "mode": "enforce", "scheduler_names": [], "namespaces": [],
        "namespace_selector": {}, "pod_selector": {}, "priority_class_names": [], "owner_kinds": [], "percent": None,
        "params": {},
    },
    "PriorityClass": {
        "description": "", "value": 0, "global_default": False, "preemption_policy": "PreemptLowerPriority",
        "adopt": False, "deletion_policy": "Keep",
    },
}
_MATCH = {
    "scheduler_names": "schedulerNames", "namespaces": "namespaces", "namespace_selector": "namespaceSelector",
    "pod_selector": "podSelector", "priority_class_names": "priorityClassNames", "owner_kinds": "ownerKinds",
}


# The members of a label selector; without others that an old form may have kept, it would match other objects.
_SELECTOR = {"matchLabels", "matchExpressions"}


def open_changes(apps, schema_editor):
    """Open a Change for each draft, and one for the Assignments and the PriorityClasses that differ from what is live."""
    _drafts(apps)
    _rows(apps, "Assignment", _assignment)
    _rows(apps, "PriorityClass", _priority_class)


def _drafts(apps):
    version_model = apps.get_model("policies", "RuleSetVersion")
    for draft in list(version_model.objects.filter(state="draft").select_related("rule_set").order_by("pk")):
        name, content = draft.rule_set.name, _canonical(_rule_set(draft))
        if not content:
            draft.delete()
            continue
        live = _live(apps, "RuleSet").get(name, ("", ""))[1]
        # A new rule set without a rule is only a name: that stays, as its row.
        if (live or draft.rules.exists()) and _value("RuleSet", content) != _value("RuleSet", live):
            edits = {("RuleSet", name): (content, draft.author)}
            _open(apps, f"Draft of {name} v{draft.number}", draft.author, edits, draft.note)
        draft.delete()


def _rows(apps, kind, document_of):
    model, live = apps.get_model("policies", kind), _live(apps, kind)
    found, edits = {row.name: row for row in model.objects.all()}, {}
    for name, row in found.items():
        content = _canonical(document_of(row))
        if content and _value(kind, content) != _value(kind, live.get(name, ("", ""))[1]):
            edits[kind, name] = (content, row.author)
    for name in live:
        if name not in found:
            edits[kind, name] = ("", "")
    if not edits:
        return
    authors = sorted({author for _, author in edits.values() if author}) or ["unknown"]
    named = "PriorityClasses" if kind == "PriorityClass" else "Assignments"
    _open(apps, f"{named} that were not published", authors[0], edits, "")
    # The rows are those of what is live from here on. Of the global default the database allows one.
    model.objects.exclude(name__in=live).delete()
    if kind == "PriorityClass":
        model.objects.update(global_default=False)
    for name, (_, document) in live.items():
        model.objects.update_or_create(name=name, defaults=_columns(apps, kind, json.loads(document)))


def _open(apps, title, author, edits, reason):
    change_model, now = apps.get_model("policies", "Change"), timezone.now()
    revision = apps.get_model("policies", "Revision").objects.order_by("-number").first()
    bases = {(kind, name): _live(apps, kind).get(name, ("", ""))[0] for kind, name in edits}
    covered = [
        (kind, name, hashlib.sha256(content.encode()).hexdigest(), bases[kind, name])
        for (kind, name), (content, _) in sorted(edits.items())
    ]
    digest = hashlib.sha256(json.dumps(covered, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()
    change = change_model.objects.create(
        title=title[:200], reason=reason, base=revision.number if revision else 0, digest=digest,
        opened_by=author, moved_at=now,
    )
    edit_model, event_model = apps.get_model("policies", "ChangeEdit"), apps.get_model("policies", "ChangeEvent")
    for (kind, name), (content, by) in edits.items():
        edit_model.objects.create(
            change=change, kind=kind, name=name, document=content, base_digest=bases[kind, name],
            author=by or author, edited_at=now,
        )
    for index, by in enumerate([author, *sorted({by for _, by in edits.values() if by} - {author})]):
        event_model.objects.create(change=change, act="edit" if index else "open", by=by, at=now, digest=digest)


def _live(apps, kind):
    rows = apps.get_model("policies", "RevisionPart").objects.filter(kind=kind, until=None)
    return {name: (digest, document) for name, digest, document in rows.values_list("name", "part_id", "part__document")}


def _canonical(document):
    """Return a document's canonical JSON, as the engine writes it, also where this version refuses it: its Change names the faults.

    Empty where it can't be read at all, or would mean something else without what can't be read; the command says so.
    """
    from policies.engine import documents, ruleset, validation
    from policies.engine.errors import RuleSetError

    kind = document["kind"]
    read = {
        "RuleSet": validation.read_rule_set,
        "Assignment": documents.read_assignment,
        "PriorityClass": documents.read_priority_class,
    }[kind]
    try:
        found = read(document)
    except RuleSetError:
        spec = {"spec": document["spec"]} if kind == "RuleSet" else document["spec"]
        selectors = [each for each in document["spec"].get("match", {}).values() if isinstance(each, dict)]
        try:
            found = msgspec.convert({**document["metadata"], **spec}, type=getattr(ruleset, kind))
        except msgspec.ValidationError:
            found = None
        if found is None or any(each.keys() - _SELECTOR for each in selectors):
            print(f"  {kind} {document['metadata']['name']}: what was not published can't be read, and is left out")
            return ""
    return ruleset.encode(found).decode()


def _value(kind, document):
    """Return what a document says, whichever version it is or gets."""
    from policies.engine import ruleset

    if not document:
        return None
    value = msgspec.json.decode(document, type=getattr(ruleset, kind))
    return value if kind == "Assignment" else msgspec.structs.replace(value, version=0)


def _document(kind, name, description, spec):
    metadata = {"name": name, "description": description} if description else {"name": name}
    return {"apiVersion": "berth/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _assignment(row):
    spec = {"order": row.order, "ruleSet": row.rule_set.name, "mode": row.mode}
    if row.percent is not None:
        spec["percent"] = row.percent
    if row.params:
        spec["params"] = row.params
    spec["match"] = {member: getattr(row, column) for column, member in _MATCH.items() if getattr(row, column)}
    return _document("Assignment", row.name, row.description, spec)


def _priority_class(row):
    spec = {
        "value": row.value, "globalDefault": row.global_default, "preemptionPolicy": row.preemption_policy,
        "adopt": row.adopt, "deletionPolicy": row.deletion_policy,
    }
    return _document("PriorityClass", row.name, row.description, spec)


def _rule_set(draft):
    spec = {"params": draft.params, "tests": draft.tests, "failures": draft.failures}
    rules = list(draft.rules.order_by("position", "pk"))
    spec = {member: value for member, value in spec.items() if value}
    for member, kind in (("filters", "filter"), ("scores", "score"), ("victims", "victim")):
        if of_kind := [_rule(rule) for rule in rules if rule.kind == kind]:
            spec[member] = of_kind
    return _document("RuleSet", draft.rule_set.name, draft.description, spec)


def _rule(rule):
    members = {"name": rule.name, "builtin": rule.builtin, "expression": rule.expression, "arguments": rule.arguments}
    if rule.kind == "score":
        members["weight"] = rule.weight
        if rule.bounds_low is not None:
            members["bounds"] = [rule.bounds_low, rule.bounds_high]
    else:
        members["reason"] = rule.reason
        members["onError"] = "" if rule.on_error == "reject" else rule.on_error
    if rule.kind == "filter":
        members["preemptionHelps"] = rule.preemption_helps
    members["mode"] = "" if rule.mode == "enforce" else rule.mode
    return {member: value for member, value in members.items() if value}


def _columns(apps, kind, value):
    """Return a row's columns from the stored document of a part."""
    columns = dict(_DEFAULTS[kind])
    source = {**value, **value.get("match", {})}
    for column in columns:
        member = "".join(word.capitalize() if index else word for index, word in enumerate(column.split("_")))
        columns[column] = source.get(member, columns[column])
    if kind == "Assignment":
        columns["rule_set"], _ = apps.get_model("policies", "RuleSet").objects.get_or_create(name=source["ruleSet"])
    return columns


class Migration(migrations.Migration):

    dependencies = [("policies", "0015_gate_settings")]

    operations = [migrations.RunPython(open_changes, migrations.RunPython.noop)]
