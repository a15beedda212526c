"""Documents in sentences, for pages, Revisions and commands: rules, matches, Assignments, PriorityClasses, Pauses. Pure."""

from collections.abc import Mapping
from datetime import datetime

from policies.engine import ruleset as engine
from policies.engine.documents import moment_of
from policies.engine.pauses import ASSIGNMENT, EVERYTHING, Target, ends_at
from policies.wording import json_text, on_one_line, visible

_FAILURES = {
    "deadline": "the deadline has passed",
    "stale_snapshot": "the watch has been silent for more than {seconds} s",
    "database": "the database can't be reached",
    "redis": "Redis can't be reached",
    "api_server": "the API server can't be reached",
}
_CHOICES = {"lastKnown": "decide by the last known state", "pass": "let nodes pass", "refuse": "refuse nodes"}

AnyRule = engine.FilterRule | engine.ScoreRule | engine.VictimRule


def builtin_help(name: str) -> str:
    """Return the first line of a built-in's help; empty for a name that isn't a built-in's."""
    # Imported here: they load numpy and CEL, which most sentences don't need.
    from policies.engine.filters.registry import BUILTIN_FILTERS
    from policies.engine.scores.registry import BUILTIN_SCORES

    found = BUILTIN_FILTERS.get(name) or BUILTIN_SCORES.get(name)
    return found.summary() if found else ""


def rule_sentence(rule: AnyRule) -> str:
    """Return a rule's effect, as a sentence without a full stop."""
    match rule:
        case engine.FilterRule():
            sentence = _filter_sentence(rule)
        case engine.ScoreRule():
            sentence = _score_sentence(rule)
        case engine.VictimRule():
            sentence = _victim_sentence(rule)
    return sentence if rule.mode == "enforce" else f"[{rule.mode}] {sentence}"


def match_sentence(match: engine.Match) -> str:
    """Return which Pods a match selects, in words."""
    parts = []
    for word, names in (
        ("schedulerName", match.scheduler_names),
        ("namespace", match.namespaces),
        ("PriorityClass", match.priority_class_names),
        ("owner of kind", match.owner_kinds),
    ):
        if names:
            parts.append(f"{word} {' or '.join(names)}")
    for word, selector in (("namespace labels", match.namespace_selector), ("Pod labels", match.pod_selector)):
        if text := selector_text(selector):
            parts.append(f"{word} {text}")
    return " and ".join(parts) or "every Pod"


def selector_text(selector: engine.LabelMatch) -> str:
    """Return a label selector as kubectl writes it: `team=web,tier in (a,b),!gpu`."""
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for entry in selector.match_expressions:
        key, values = entry.get("key", ""), ",".join(entry.get("values") or ())
        match entry.get("operator"):
            case "Exists":
                parts.append(key)
            case "DoesNotExist":
                parts.append(f"!{key}")
            case "NotIn":
                parts.append(f"{key} notin ({values})")
            case _:
                parts.append(f"{key} in ({values})")
    return ",".join(parts)


def _filter_sentence(rule: engine.FilterRule) -> str:
    if rule.builtin:
        return _builtin_sentence(rule)
    reason = f" as “{rule.reason}”" if rule.reason else ""
    on_error = "; a node passes where it can't be evaluated" if rule.on_error == "pass" else ""
    preemption = "; preemption may help" if rule.preemption_helps else ""
    return f"{rule.name}: refuse nodes{reason} unless {on_one_line(rule.expression)}{on_error}{preemption}"


def _score_sentence(rule: engine.ScoreRule) -> str:
    weight = f", weight {rule.weight}"
    if rule.builtin:
        return _builtin_sentence(rule, weight)
    between = f" between {rule.bounds[0]} and {rule.bounds[1]}" if rule.bounds else ""
    return f"{rule.name}: prefer a high {on_one_line(rule.expression)}{between}{weight}"


def _builtin_sentence(rule: engine.FilterRule | engine.ScoreRule, weight: str = "") -> str:
    """Return what a built-in rule is, after its own name, and before what the built-in does."""
    named = f"{rule.name}: " if rule.name else ""
    help_text = builtin_help(rule.builtin)
    return f"{named}{rule.builtin}{_with(rule.arguments)}{weight}" + (f" ({help_text})" if help_text else "")


def _with(values: Mapping[str, object]) -> str:
    """Return what a built-in's arguments or an Assignment's params are, in words; empty where there are none."""
    said = ", ".join(visible(f"{name} {json_text(value)}") for name, value in sorted(values.items()))
    return f" with {said}" if said else ""


def _victim_sentence(rule: engine.VictimRule) -> str:
    reason = f" as “{rule.reason}”" if rule.reason else ""
    on_error = "; a Pod isn't protected where it can't be evaluated" if rule.on_error == "pass" else ""
    return f"{rule.name}: protect Pods from preemption{reason} unless {on_one_line(rule.expression)}{on_error}"


def failures_sentences(failures: engine.Failures) -> list[str]:
    """Return the choices for outages that differ from the default ones, each in a sentence without a full stop."""
    default = engine.DEFAULT_FAILURES
    seconds = failures.stale_after_seconds
    chosen = {name: getattr(failures, name) for name in _FAILURES}
    differing = {name for name, choice in chosen.items() if choice != getattr(default, name)}
    if seconds != default.stale_after_seconds:
        differing.add("stale_snapshot")
    return [
        f"when {when.format(seconds=seconds)}: {_CHOICES[chosen[name]]}"
        for name, when in _FAILURES.items()
        if name in differing
    ]


def exempt_pods(exemption: engine.Exemption) -> str:
    """Return which Pods an Exemption selects, in words."""
    return "; ".join(exempt_pods_sentence(each) for each in exemption.pods)


def ending_sentence(suspension: engine.Pause | engine.Exemption, back_at: datetime | None = None) -> str:
    """Return the line about a Pause or an Exemption that ends because its target is removed, until a moment where one is given."""
    kind, what = type(suspension).__name__, target_in_words(suspension.target)
    end = ends_at(suspension.until)
    if back_at is not None and (end is None or end > back_at):
        return (
            f"! {kind} {suspension.name} ends with it: {what} would be gone; both come back when the Change goes back"
        )
    return f"! {kind} {suspension.name} ends with it: {what} would be gone; if it comes back, it is in force"


def not_paused(target: str) -> str:
    """Return the sentence that a target isn't paused; if the target is everything, parts of it may be paused."""
    what = "Berth as a whole" if target == EVERYTHING else target_in_words(target)
    return f"{what} isn't paused."


def suspension_sentence(suspension: engine.Pause | engine.Exemption) -> str:
    """Return what a Pause or an Exemption suspends, for which Pods and until when, in words."""
    what, reason = target_in_words(suspension.target), on_one_line(suspension.reason)
    until = moment_text(suspension.until) if suspension.until else "it is resumed"
    if isinstance(suspension, engine.Pause):
        return f"{what} is paused until {until}: {reason}"
    return f"{what} passes over {exempt_pods(suspension)} until {until}, for {suspension.owner}: {reason}"


def moment_text(text: str) -> str:
    """Return a document's time as pages write it, 2026-12-31 18:00 UTC; in full, for lines that compare two of them."""
    moment = moment_of(text)
    if moment is None:
        return text
    return f"{moment.replace(tzinfo=None).isoformat(' ').removesuffix(':00')} UTC"


def target_in_words(text: str) -> str:
    """Return the target of a Pause or an Exemption, in words."""
    target = Target.parse(text)
    if target.kind == EVERYTHING:
        return "everything"
    if target.kind == ASSIGNMENT:
        return f"Assignment {target.name}"
    return f"rule {target.rule} of rule set {target.name}" if target.rule else f"rule set {target.name}"


def exempt_pods_sentence(entry: engine.ExemptPods) -> str:
    """Return which Pods an entry of an Exemption selects, in words."""
    parts = [f"Pod {entry.name}"] if entry.name else ["Pods"]
    if entry.owner is not None:
        parts.append(f"of {entry.owner.kind} {entry.owner.name}")
    if entry.selector is not None:
        parts.append(f"with labels {selector_text(entry.selector)}")
    return f"{' '.join(parts)} in {entry.namespace}"


def priority_class_sentence(priority_class: engine.PriorityClass) -> str:
    """Return the effect of a PriorityClass, in words."""
    parts = [f"value {priority_class.value:,}"]
    if priority_class.global_default:
        parts.append("for all Pods that name no class")
    if priority_class.preemption_policy == "Never":
        parts.append("never preempts other Pods")
    if priority_class.adopt:
        parts.append("takes over a class with this name in the cluster")
    if priority_class.deletion_policy == "Delete":
        parts.append("deleted from the cluster when it is removed here")
    return ", ".join(parts)


def priority_class_sentences(priority_class: engine.PriorityClass) -> list[str]:
    """Return all fields of a PriorityClass, including defaults, in sentences."""
    removes = "never preempt other Pods" if priority_class.preemption_policy == "Never" else _MAY_REMOVE
    takes = "is taken over" if priority_class.adopt else "is left as it is, and this one isn't created"
    stays = "is deleted too" if priority_class.deletion_policy == "Delete" else "stays"
    return [
        f"Pods that name it have priority {priority_class.value:,}, and {removes}.",
        *(["New Pods that name no class get it."] if priority_class.global_default else []),
        f"A class with this name that Berth didn't create in the cluster {takes}.",
        f"When it is removed here, the class in the cluster {stays}.",
    ]


_MAY_REMOVE = "may preempt Pods of lower priority"


def assignment_sentence(assignment: engine.Assignment) -> str:
    """Return which Pods an Assignment matches and what they get, in words."""
    mode = "" if assignment.mode == "enforce" else f" ({_mode_text(assignment)})"
    matched = match_sentence(assignment.match)
    return f"order {assignment.order}, {matched} gets {assignment.rule_set}{mode}{_with(assignment.params)}"


def _mode_text(assignment: engine.Assignment) -> str:
    """Return the mode, with the percent of a canary."""
    return f"canary {assignment.percent} %" if assignment.mode == "canary" else assignment.mode
