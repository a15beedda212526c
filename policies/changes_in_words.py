"""The differences of rule sets and of Revisions in sentences, with what reviewers should look at twice. Pure."""

import unicodedata
from collections.abc import Mapping, Sequence

import msgspec

from policies.engine import ruleset as engine
from policies.engine.pauses import ASSIGNMENT, EVERYTHING, Target
from policies.sentences import (
    AnyRule,
    assignment_sentence,
    exempt_pods,
    moment_text,
    priority_class_sentence,
    rule_sentence,
    suspension_sentence,
    target_in_words,
)
from policies.wording import json_text, on_one_line, visible

# ASCII characters that look alike in many fonts, from Unicode's table of confusables (UTS 39), and o for O.
_ALIKE = str.maketrans({"I": "l", "1": "l", "0": "o", "O": "o", "m": "rn"})
# How many letters of a text a line names; ten are enough to notice.
_MAX_ODD = 10
_DELETIONS = {"Keep": "it stays in the cluster", "Delete": "deleted from the cluster, if Berth made it"}


def rule_set_changes(before: engine.RuleSet | None, after: engine.RuleSet | None) -> list[str]:
    """Return the differences of two states of one rule set, rule by rule. None is its absence."""
    old = before.spec if before else engine.RuleSetSpec()
    new = after.spec if after else engine.RuleSetSpec()
    lines = _rule_changes("filter", old.filters, new.filters) + _rule_changes("score", old.scores, new.scores)
    lines += _rule_changes("victims rule", old.victims, new.victims)
    known = set(_places(old))
    lines += [
        _odd_line(place, odd)
        for place, text in _places(new)
        if (place, text) not in known and (odd := _odd_letters(text))
    ]
    if before and after and before.description != after.description:
        lines.append(f"description {_shown(before.description)} → {_shown(after.description)}")
    if changed := _members(old.params, new.params):
        lines.append(f"params changed: {changed}")
    if old.failures != new.failures:
        lines.append(f"failures changed: {_fields_changed(old.failures, new.failures)}")
    return [visible(line) for line in lines + _test_changes(old.tests_by_name, new.tests_by_name)]


def _places(spec: engine.RuleSetSpec) -> list[tuple[str, str]]:
    """Return the texts of a rule set that may contain look-alike letters, each after its place in words.

    Pairs rather than a mapping: places can have the same words (two tests of one name).
    """
    places = []
    for kind, rules in (("filter", spec.filters), ("score", spec.scores), ("victims rule", spec.victims)):
        for rule in rules:
            named = f"{kind} {rule.key}"
            places.append((f"{named}: its expression", rule.expression))
            places.append((f"{named}: its reason", getattr(rule, "reason", "")))  # scores have none
            places += [(f"{named}: its argument {name}", _member(name, each)) for name, each in rule.arguments.items()]
    places += [(f"param {name}: it", _member(name, value)) for name, value in spec.params.items()]
    return places + [(f"test {test.name}: it", f"{test.name} {_expected(test.expect)}") for test in spec.tests]


def _member(name: str, value: object) -> str:
    """Return a member of an object as JSON: its name may contain look-alike letters as well as its value."""
    return json_text({name: value})


def _odd_line(place: str, odd: str) -> str:
    return f"! look twice at {place} holds {odd}, which can look like another letter"


def _test_changes(old: Mapping[str, engine.RuleSetTest], new: Mapping[str, engine.RuleSetTest]) -> list[str]:
    """Return which tests are added, removed and changed, by name."""
    lines = [f"test {name} added: {_expected(test.expect)}" for name, test in new.items() if name not in old]
    lines += [f"test {name} removed: {_expected(test.expect)}" for name, test in old.items() if name not in new]
    for name, test in new.items():
        if name not in old or old[name] == test:
            continue
        was = old[name]
        others = [
            field
            for field in ("pod", "nodes", "pods", "namespaces", "now")
            if json_text(getattr(was, field)) != json_text(getattr(test, field))  # as rules do: 1 isn't true
        ]
        said = [f"expects “{_expected(was.expect)}” → “{_expected(test.expect)}”"] if was.expect != test.expect else []
        lines.append(f"test {name} changed: {', '.join([*said, *(f'different {field}' for field in others)])}")
    if [*old] != [*new] and not lines:
        lines.append(f"tests reordered: {', '.join(new)}")
    return lines


def _expected(expect: engine.Expectation) -> str:
    """Return a test's expectation in words."""
    said = []
    if expect.feasible is not None:
        said.append(f"feasible {', '.join(expect.feasible) or 'none'}")
    if expect.best is not None:
        said.append(f"best {expect.best or 'none'}")
    if expect.reasons is not None:
        said += [f"{node} refused as {on_one_line(reason)}" for node, reason in expect.reasons.items()]
    if expect.protected is not None:
        said.append(f"protected {', '.join(expect.protected) or 'none'}")
    return "; ".join(said) or "nothing"


def revision_changes(before: engine.Revision, after: engine.Revision) -> list[str]:
    """Return the differences of two Revisions, a line for each thing.

    The first lines are about new names that look like live ones.
    """
    changes = look_alikes(before, after) + _rule_sets_changed(before, after) + _assignments_changed(before, after)
    changes += _priority_classes_changed(before, after) + _suspensions_changed(before, after)
    return [visible(line) for line in changes]


def look_alikes(before: engine.Revision, after: engine.Revision) -> list[str]:
    """Return a line for each new name that can be mistaken for a live one, or for another new one."""
    old, new = _names_by_kind(before), _names_by_kind(after)
    lines = []
    for kind, names in new.items():
        known = {name.translate(_ALIKE): name for name in sorted(old[kind])}
        for name in sorted(names - old[kind]):
            other = known.setdefault(name.translate(_ALIKE), name)
            if other != name:
                lines.append(f"! look twice at {kind} “{name}”: it can be taken for “{other}”")
    return lines


def _names_by_kind(revision: engine.Revision) -> dict[str, set[str]]:
    matches = [assignment.match for assignment in revision.assignments]
    selectors = [selector for match in matches for selector in (match.namespace_selector, match.pod_selector)]
    return {
        "rule set": {each.name for each in revision.rule_sets},
        "Assignment": {each.name for each in revision.assignments},
        "PriorityClass": {each.name for each in revision.priority_classes}.union(
            *(match.priority_class_names for match in matches)
        ),
        "scheduler": set().union(*(match.scheduler_names for match in matches)),
        "namespace": set().union(*(match.namespaces for match in matches)),
        "label": set().union(
            *(selector.match_labels for selector in selectors),
            *({str(entry.get("key", "")) for entry in selector.match_expressions} for selector in selectors),
        ),
    }


def part_changes(
    before: engine.Document | None,
    after: engine.Document | None,
) -> list[str]:
    """Return the differences of two states of one thing. None is its absence; a state without a number has version 0."""
    return revision_changes(_with(before), _with(after))


def _with(part: engine.Document | None) -> engine.Revision:
    return engine.Revision(
        number=0,
        rule_sets=[part] if isinstance(part, engine.RuleSet) else [],
        assignments=[part] if isinstance(part, engine.Assignment) else [],
        priority_classes=[part] if isinstance(part, engine.PriorityClass) else [],
        pauses=[part] if isinstance(part, engine.Pause) else [],
        exemptions=[part] if isinstance(part, engine.Exemption) else [],
    )


def _odd_letters(text: str) -> str:
    """Return the letters and invisible characters that aren't ASCII, each with its number and Unicode's name."""
    odd = {char for char in text if not char.isascii() and unicodedata.category(char)[0] in "LMCN"}
    named = [f"“{char}” (U+{ord(char):04X} {unicodedata.name(char, 'without a name')})" for char in sorted(odd)]
    more = f" and {len(named) - _MAX_ODD} more" if len(named) > _MAX_ODD else ""
    return ", ".join(named[:_MAX_ODD]) + more


def _rule_changes(
    kind: str,
    before: Sequence[AnyRule],
    after: Sequence[AnyRule],
) -> list[str]:
    old, new = {rule.key: rule for rule in before}, {rule.key: rule for rule in after}
    lines = [f"{kind} added: {rule_sentence(rule)}" for key, rule in new.items() if key not in old]
    lines += [f"{kind} removed: {rule_sentence(rule)}" for key, rule in old.items() if key not in new]
    lines += [
        f"{kind} {key} changed: {_fields_changed(old[key], rule)}"
        for key, rule in new.items()
        if key in old and old[key] != rule
    ]
    if [key for key in old if key in new] != [key for key in new if key in old]:
        lines.append(f"{kind}s reordered: {', '.join(new)}")
    return lines


def _fields_changed(before: msgspec.Struct, after: msgspec.Struct) -> str:
    # omit_defaults concerns encoding only; every field is an attribute here. Users know a member by its name in documents.
    sides = [
        (each.encode_name, getattr(before, each.name), getattr(after, each.name, None))
        for each in msgspec.structs.fields(before)
    ]
    return ", ".join(f"{name} {_shown(was)} → {_shown(now)}" for name, was, now in sides if was != now)


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"“{on_one_line(value)}”" if isinstance(value, str) else json_text(value)


def _members(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    old, new = ({key: json_text(value) for key, value in side.items()} for side in (before, after))
    lines = [f"{key} added: {text}" for key, text in new.items() if key not in old]
    lines += [f"{key} removed: {text}" for key, text in old.items() if key not in new]
    lines += [f"{key} {old[key]} → {text}" for key, text in new.items() if key in old and old[key] != text]
    return ", ".join(lines)


def _differing(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return the names that were added, removed or changed, in order."""
    return sorted(name for name in {**old, **new} if old.get(name) != new.get(name))


def _rule_sets_changed(before: engine.Revision, after: engine.Revision) -> list[str]:
    old, new = ({rule_set.name: rule_set for rule_set in side.rule_sets} for side in (before, after))
    lines = []
    for name in _differing(old, new):
        was, now = old.get(name), new.get(name)
        if now is None:
            lines.append(f"rule set {name} archived")
            continue
        lines.append(_rule_set_head(was, now))
        lines += [f"{name}: {change}" for change in rule_set_changes(was, now)]
    return lines


def _rule_set_head(was: engine.RuleSet | None, now: engine.RuleSet) -> str:
    if was is None:
        return f"rule set {now.name} {f'version {now.version} published' if now.version else 'added'}"
    if not now.version or not was.version:
        return f"rule set {now.name} {_beside_an_edit(was, now)}"
    return f"rule set {now.name} version {now.version} published in place of {was.version}"


def _beside_an_edit(was: engine.RuleSet | engine.PriorityClass, now: engine.RuleSet | engine.PriorityClass) -> str:
    """Return which version is compared with a Change's edit, which gets its number when it goes live."""
    if now.version:
        return f"version {now.version}, compared with an edit that isn't live"
    return f"changed, compared with version {was.version}" if was.version else "changed, compared with another edit"


def _assignments_changed(before: engine.Revision, after: engine.Revision) -> list[str]:
    old, new = ({one.name: one for one in side.assignments} for side in (before, after))
    lines = []
    for name in _differing(old, new):
        was, now = old.get(name), new.get(name)
        if now is None:
            lines.append(f"Assignment {name} removed")
        elif was is None:
            lines.append(f"Assignment {name} added: {assignment_sentence(now)}")
        else:
            lines.append(f"Assignment {name} changed: {_assignment_changed(was, now)}")
        lines += _odd_params(name, was.params if was else {}, now.params if now else {})
    return lines


def _assignment_changed(was: engine.Assignment, now: engine.Assignment) -> str:
    """Return both sides in words, and the differences that these sentences don't show."""
    before, after = assignment_sentence(was), assignment_sentence(now)
    said = [f"{before} → {after}"] if before != after else []
    unsaid = now if not said else msgspec.structs.replace(was, description=now.description)
    return "; ".join([*said, *([_fields_changed(was, unsaid)] if was != unsaid else [])])


def _odd_params(assignment: str, before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    known = {_member(name, value) for name, value in before.items()}
    texts = {name: _member(name, value) for name, value in after.items()}
    return [
        _odd_line(f"Assignment {assignment}: its param {name}", odd)
        for name, text in texts.items()
        if text not in known and (odd := _odd_letters(text))
    ]


def _priority_classes_changed(before: engine.Revision, after: engine.Revision) -> list[str]:
    old, new = ({one.name: one for one in side.priority_classes} for side in (before, after))
    lines = []
    for name in _differing(old, new):
        was, now = old.get(name), new.get(name)
        if now is None:
            lines.append(f"PriorityClass {name} removed: {_DELETIONS[old[name].deletion_policy]}")
        elif was is None:
            version = f" version {now.version}" if now.version else ""
            lines.append(f"PriorityClass {name}{version} added: {priority_class_sentence(now)}")
        else:
            both_numbered = was.version and now.version
            head = f"version {now.version} in place of {was.version}" if both_numbered else _beside_an_edit(was, now)
            lines.append(f"PriorityClass {name} {head}: {_changed(was, now)}")
    return lines


def _suspensions_changed(before: engine.Revision, after: engine.Revision) -> list[str]:
    """Return the Pauses and Exemptions that are in only one of two Revisions, in words."""
    old: dict[str, engine.Pause | engine.Exemption] = {}
    new: dict[str, engine.Pause | engine.Exemption] = {}
    for side, revision in ((old, before), (new, after)):
        side |= {f"Pause {each.name}": each for each in revision.pauses}
        side |= {f"Exemption {each.name}": each for each in revision.exemptions}
    lines = []
    for name in _differing(old, new):
        was, now = old.get(name), new.get(name)
        if now is None and was is not None:
            is_gone = _has_target(before, was.target) and not _has_target(after, was.target)
            what = target_in_words(was.target)
            lines.append(f"{name} ended with {what}" if is_gone else f"{name} removed: {_over(was)}")
        elif now is not None and was is None:
            lines.append(f"{name} added: {suspension_sentence(now)}")
        elif now is not None and was is not None:
            lines.append(f"{name} changed: {_fields_changed(_with_words(was), _with_words(now))}")
    return lines


def _over(suspension: engine.Pause | engine.Exemption) -> str:
    """Return the effect that a Pause or an Exemption no longer has, in words: others may have the same target."""
    what = target_in_words(suspension.target)
    if isinstance(suspension, engine.Pause):
        return f"{what} is no longer paused by it"
    return f"{what} no longer passes over {exempt_pods(suspension)} by it"


def _with_words(suspension: engine.Pause | engine.Exemption) -> engine.Pause | engine.Exemption:
    """Return a copy with its end and its Pods in words."""
    words = {"until": moment_text(suspension.until) if suspension.until else "it is resumed"}
    if isinstance(suspension, engine.Exemption):
        words["pods"] = exempt_pods(suspension)
    return msgspec.structs.replace(suspension, **words)


def _has_target(revision: engine.Revision, text: str) -> bool:
    """Return whether a Revision has the target of a Pause or an Exemption."""
    target = Target.parse(text)
    if target.kind == ASSIGNMENT:
        return any(each.name == target.name for each in revision.assignments)
    found = [each for each in revision.rule_sets if each.name == target.name]
    return target.kind == EVERYTHING or any(not target.rule or target.rule in each.spec.keys for each in found)


def _changed(was: engine.PriorityClass, now: engine.PriorityClass) -> str:
    same = msgspec.structs.replace(was, version=now.version)
    fixed = (was.value, was.preemption_policy) != (now.value, now.preemption_policy)
    note = "; the cluster's class is deleted and re-created for it" if fixed else ""
    return f"{_fields_changed(same, now)}{note}" if same != now else "nothing changed"
