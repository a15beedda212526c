"""The classic scheduler Policy JSON (kind Policy, apiVersion v1) to rule sets and back.

Format: Kubernetes v1.15 pkg/scheduler/api/v1/types.go; removed in v1.23. Members without an equivalent in a rule set
(extenders, alwaysCheckAllPredicates) are kept as one line of JSON in its description, from which the export restores them. The
resources that kube-scheduler left to the extenders are ignored by PodFitsResources as well.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from policies.engine import default_set
from policies.engine.errors import Fault, RuleSetError
from policies.engine.filters.registry import BUILTIN_FILTERS, FILTER_ALIASES, NO_BUILTIN
from policies.engine.reading import Reader, not_json, type_name
from policies.engine.ruleset import API_VERSION, DEFAULT_FAILURES, FilterRule, RuleSet, ScoreRule
from policies.engine.scores.registry import BUILTIN_SCORES, SCORE_ALIASES
from policies.engine.validation import MAX_WEIGHT, read_rule_set
from policies.go_defaults import ignored_by_scheduler, with_weights, with_whole_points

JSONObject = dict[str, Any]

# The predicates in GeneralPredicates (v1.15 predicates.go).
GENERAL_PREDICATES = ("PodFitsResources", "PodFitsHost", "PodFitsHostPorts", "MatchNodeSelector")

# The prefix of the description's line with the members that aren't rules.
KEPT = "Kept of the classic Policy, without effect here: "

MAX_FAULTS = 100

_HARD_WEIGHT = "hardPodAffinitySymmetricWeight"
# Stored for a Policy with only extenders: it is exported without lists, which differs from empty lists.
_NO_LISTS = "noLists"
_NO_RULES = ("extenders", "alwaysCheckAllPredicates", _HARD_WEIGHT)
_MEMBERS = {"kind", "apiVersion", "predicates", "priorities", *_NO_RULES}
_MAX_HARD_WEIGHT = 100
_INTER_POD = "InterPodAffinityPriority"
_FIT = "PodFitsResources"
_IGNORED = "ignoredResources"
_RENAMED = {"HostName": "PodFitsHost", "PodFitsPorts": "PodFitsHostPorts"}
_EXPORTED = {"PodFitsHost": "HostName", "MaxVolumeCount": "MaxCSIVolumeCountPred"}
_VOLUME_COUNTS = frozenset(name for name in FILTER_ALIASES if name.startswith("Max"))
_NO_COUNTERPART = NO_BUILTIN | {
    "ResourceLimitsPriority": "limits of Pods were scored by an alpha feature only, which is gone: leave the entry out",
}
# Argument of a Policy -> the built-in that takes it, and its members, which have the same names in the built-in.
_CUSTOM: dict[str, tuple[str, frozenset[str]]] = {
    "serviceAffinity": ("ServiceAffinity", frozenset({"labels"})),
    "labelsPresence": ("CheckNodeLabelPresence", frozenset({"labels", "presence"})),
    "serviceAntiAffinity": ("ServiceAntiAffinityPriority", frozenset({"label"})),
    "labelPreference": ("NodeLabelPriority", frozenset({"label", "presence"})),
    "requestedToCapacityRatioArguments": ("RequestedToCapacityRatioPriority", frozenset({"shape", "resources"})),
}

_RATIO = "requestedToCapacityRatioArguments"
_LAST_COUNTED = "kube-scheduler took the last: leave one of them"
_ONE_LABEL = "a Policy takes exactly one label for it"
_PREDICATE_ARGUMENTS = ("serviceAffinity", "labelsPresence")
_PRIORITY_ARGUMENTS = ("serviceAntiAffinity", "labelPreference", _RATIO)


def import_policy(document: object, *, name: str) -> RuleSet:
    """Convert a Policy to a rule set.

    Entries keep their order and weights. A duplicate entry is taken once. A missing list becomes today's defaults, an
    empty one no rules. Predicates that kube-scheduler ran whether named or not aren't added. A Policy with only
    extenders gives no rules: kube-scheduler runs its defaults itself, besides any extender that it calls.

    Args:
        document: the Policy, decoded.
        name: the name of the rule set.

    Raises:
        RuleSetError: with every fault, each with its path in the Policy.
    """
    made = _ImportedPolicy(top := read_top(document))
    faults = top.faults
    try:
        rule_set = read_rule_set(made.document(name))
    except RuleSetError as error:
        faults += [made.translate(fault) for fault in error.faults]
    if faults:
        raise RuleSetError(faults)
    return rule_set


def read_top(document: object) -> Reader:
    """Return a reader of a Policy that has found the faults of its kind and version, and its unknown members.

    Raises:
        RuleSetError: the document isn't JSON, or no object.
    """
    faults = list(islice(not_json(document), MAX_FAULTS))
    if not faults and not isinstance(document, dict):
        message = f"must be an object with kind, apiVersion, predicates and priorities, not {type_name(document)}"
        faults.append(Fault("", message))
    if faults:
        raise RuleSetError(faults)
    top = Reader(document, "", faults, _MEMBERS)
    if top.raw("kind") != "Policy":
        top.fault("kind", "must be Policy")
    if top.raw("apiVersion") not in ("v1", "kubescheduler.config.k8s.io/v1"):
        top.fault("apiVersion", "must be v1")
    return top


class _Rules:
    """Collects rules for a document, and the places in the Policy of each rule's entry and of its arguments."""

    def __init__(self) -> None:
        self.rules: list[JSONObject] = []
        self.paths: list[str] = []
        self.arguments: list[str] = []
        self._named: dict[str, tuple[JSONObject, str]] = {}

    def add(self, rule: JSONObject, path: str, arguments: str = "") -> None:
        if rule not in self.rules:
            self.rules.append(rule)
            self.paths.append(path)
            self.arguments.append(arguments)

    def add_named(self, rule: JSONObject, entry: Reader, arguments: str = "") -> None:
        """Add the rule of an entry; another one of the entry's name is a fault."""
        name = entry.raw("name")
        first, where = self._named.setdefault(name, (rule, entry.path))
        if first == rule:
            self.add(rule, entry.path, arguments)
        else:
            entry.fault("name", f"{name} stands at {where} already, and {_LAST_COUNTED}")


class _ImportedPolicy:
    def __init__(self, top: Reader) -> None:
        self._faults = top.faults
        self.filters, self.scores = _Rules(), _Rules()
        self._ignored = ignored_by_scheduler(top.raw("extenders"))
        self._only_extenders = "extenders" in top and "predicates" not in top and "priorities" not in top
        if not self._only_extenders:
            self._read_predicates(top)
            self._read_priorities(top)
        self._read_kept(top)

    def _read_predicates(self, top: Reader) -> None:
        if "predicates" in top:
            top.items("predicates", self._predicate)
            return
        for name in default_set.FILTERS:
            # By the name that a Policy uses, so that an exported rule set is imported unchanged.
            exported = _EXPORTED.get(name, name)
            self.filters.add(self._filter(_RENAMED.get(exported, exported)), "predicates")

    def _filter(self, builtin: str) -> JSONObject:
        ignores = self._ignored and _is_fit(builtin)
        return {"builtin": builtin} | ({"arguments": {_IGNORED: self._ignored}} if ignores else {})

    def _read_priorities(self, top: Reader) -> None:
        if "priorities" in top:
            top.items("priorities", self._priority)
            return
        for name, weight in default_set.SCORES.items():
            self.scores.add({"builtin": name, "weight": weight}, "priorities")

    def _read_kept(self, top: Reader) -> None:
        self._kept: JSONObject = {}
        if "extenders" in top:
            self._kept["extenders"] = top.items("extenders", self._extender)
            if self._only_extenders:
                self._kept[_NO_LISTS] = True
        if "alwaysCheckAllPredicates" in top:
            self._kept["alwaysCheckAllPredicates"] = top.boolean("alwaysCheckAllPredicates")
        if _HARD_WEIGHT in top:
            weight = top.integer(_HARD_WEIGHT, 1, low=0, high=_MAX_HARD_WEIGHT)
            # In Go 0 means a missing member (v1.15 factory/factory.go, CreateFromConfig), which defaults to 1.
            rules = [rule for rule in self.scores.rules if weight and _is_inter_pod(rule["builtin"])]
            for rule in rules:
                rule["arguments"] = {"hardPodAffinityWeight": weight}
            if not rules:
                self._kept[_HARD_WEIGHT] = weight

    def document(self, name: str) -> JSONObject:
        """Return the rule set's document, with the members that aren't rules in its description."""
        description = "Imported from a classic Policy"
        if self._kept:
            description += f"\n{KEPT}{json.dumps(self._kept, sort_keys=True)}"
        return {
            "apiVersion": API_VERSION,
            "kind": "RuleSet",
            "metadata": {"name": name, "description": description},
            "spec": {"filters": self.filters.rules, "scores": self.scores.rules},
        }

    def translate(self, fault: Fault) -> Fault:
        """Translate the path of a fault in the document to the Policy."""
        for kind, made in (("filters", self.filters), ("scores", self.scores)):
            head = f"spec.{kind}["
            if fault.path.startswith(head):
                index, _, member = fault.path.removeprefix(head).partition("]")
                if member.startswith(".arguments"):
                    path = made.arguments[int(index)] or made.paths[int(index)]
                    return Fault(path + member.removeprefix(".arguments"), fault.message)
                message = fault.message.replace(f"spec.{kind}[", "rule [")
                return Fault(made.paths[int(index)] + member.replace(".builtin", ".name"), message)
        names = {"spec.filters": "predicates", "spec.scores": "priorities"}
        return Fault(names.get(fault.path, fault.path), fault.message)

    def _extender(self, value: object, path: str) -> object:
        """Keep an entry as it is. Its members are read where it is converted, which finds their faults."""
        if not isinstance(value, dict):
            message = f"must be an object such as {{urlPrefix: …, filterVerb: …}}, not {type_name(value)}; correct it or leave it out"
            self._faults.append(Fault(path, message))
        return value

    def _predicate(self, value: object, path: str) -> None:
        reader = Reader(value, path, self._faults, {"name", "argument"})
        name = reader.text("name", required=True)
        if "argument" in reader:
            self._custom(reader, name, self.filters, _PREDICATE_ARGUMENTS, {})
        elif name == "GeneralPredicates":
            for each in GENERAL_PREDICATES:
                self.filters.add(self._filter(each), path)
        elif name and _is_known(reader, name, BUILTIN_FILTERS, _PREDICATE_ARGUMENTS):
            self.filters.add_named(self._filter(_RENAMED.get(name, name)), reader)

    def _priority(self, value: object, path: str) -> None:
        reader = Reader(value, path, self._faults, {"name", "weight", "argument"})
        name = reader.text("name", required=True)
        if "weight" not in reader:
            reader.fault("weight", "is needed: a whole number from 1 on")
        weight = reader.integer("weight", 1, low=1, high=MAX_WEIGHT)
        if "argument" in reader:
            self._custom(reader, name, self.scores, _PRIORITY_ARGUMENTS, {"weight": weight})
        elif name and _is_known(reader, name, BUILTIN_SCORES, _PRIORITY_ARGUMENTS):
            self.scores.add_named({"builtin": name, "weight": weight}, reader)

    def _custom(
        self, reader: Reader, name: str, made: _Rules, kinds: tuple[str, ...], more: Mapping[str, object]
    ) -> None:
        """Read an entry with an argument: a built-in with a custom name."""
        argument = Reader(reader.raw("argument"), reader.where("argument"), reader.faults, kinds)
        given = [kind for kind in kinds if kind in argument]
        if len(given) != 1:
            argument.fault("", f"needs exactly one of {', '.join(kinds)}")
            return
        builtin, members = _CUSTOM[given[0]]
        found = Reader(argument.raw(given[0]), argument.where(given[0]), reader.faults, members)
        arguments = {key: found.raw(key) for key in sorted(members) if key in found}
        if "presence" in members:
            # Go omits false from JSON, so a missing value is false; the built-in's default is true.
            arguments["presence"] = found.boolean("presence")
        if given[0] == _RATIO:
            _check_ratio(found)
            # kube-scheduler took an omitted weight, and one of 0, as 1, and no resources as the default ones.
            arguments = with_weights(with_whole_points(arguments))
        rule: JSONObject = {"builtin": builtin, "arguments": arguments, **more}
        if name:
            made.add_named(rule if name == builtin else {"name": name, **rule}, reader, found.path)


def _check_ratio(ratio: Reader) -> None:
    """Note what a rule would read otherwise than kube-scheduler: it made up no shape, and counted no resource twice."""
    if "shape" not in ratio:
        ratio.fault(
            "shape", "is needed: a list of points, such as [{utilization: 0, score: 0}, {utilization: 100, score: 10}]"
        )
    resources = ratio.raw("resources")
    seen: set[str] = set()
    for index, each in enumerate(resources if isinstance(resources, list) else ()):
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(name, str):
            continue
        if name in seen:
            ratio.fault(f"resources[{index}].name", f"{name} stands here already, and {_LAST_COUNTED}")
        seen.add(name)


def _is_inter_pod(builtin: str) -> bool:
    return SCORE_ALIASES.get(builtin, builtin) == _INTER_POD


def _is_known(reader: Reader, name: str, builtins: Mapping[str, Any], kinds: tuple[str, ...]) -> bool:
    """Return whether a name without an argument is a built-in; add a fault when it isn't."""
    aliases = FILTER_ALIASES if builtins is BUILTIN_FILTERS else SCORE_ALIASES
    classic = aliases.get(name, name)
    wanted = next((kind for kind in kinds if _CUSTOM[kind][0] == classic), None)
    if wanted is not None and wanted != _RATIO:
        reader.fault("argument", f"is needed: {name} takes argument.{wanted}")
        return False
    if name in builtins:
        return True
    if name in _NO_COUNTERPART:
        reader.fault("name", f"{name} has no counterpart: {_NO_COUNTERPART[name]}")
        return False
    hint = Reader({name: True}, "", [], builtins)
    reader.fault("name", f"no built-in is called {name}" + hint.faults[0].message.removeprefix("unknown member"))
    return False


def export_policy(rule_set: RuleSet) -> JSONObject:
    """Convert a rule set to a Policy.

    Tests, the rule set's own name and the names of rules that take no argument have no place in a Policy and are left
    out: they change no answer.

    Raises:
        RuleSetError: with every rule that a Policy can't express, and why.
    """
    faults: list[Fault] = []
    policy: JSONObject = {"kind": "Policy", "apiVersion": "v1"}
    spec = rule_set.spec
    if spec.params:
        faults.append(Fault("spec.params", "a Policy has no constants"))
    if spec.failures != DEFAULT_FAILURES:
        faults.append(Fault("spec.failures", "a Policy can't say what to answer in an outage"))
    faults += [
        Fault(f"spec.victims[{index}]", f"{rule.key}: a Policy can't protect Pods from preemption")
        for index, rule in enumerate(spec.victims)
    ]
    kept = _kept(rule_set.description)
    ignored = ignored_by_scheduler(kept.get("extenders"))
    filters = [_without_ignored(rule) if ignored and _is_fit(rule.builtin) else rule for rule in spec.filters]
    policy["predicates"] = _entries("filters", filters, faults)
    policy["priorities"] = _entries("scores", spec.scores, faults)
    for index, rule in enumerate(spec.scores):
        if _is_inter_pod(rule.builtin) and "hardPodAffinityWeight" in rule.arguments:
            policy[_HARD_WEIGHT] = rule.arguments["hardPodAffinityWeight"]
            if not policy[_HARD_WEIGHT]:
                where = f"spec.scores[{index}].arguments.hardPodAffinityWeight"
                faults.append(Fault(where, f"{rule.key}: a Policy can't say 0, which kube-scheduler takes for 1"))
    faults += [
        Fault(f"spec.filters[{index}]", f"{rule.key}: {_of_extenders(ignored)}")
        for index, rule in enumerate(spec.filters)
        if ignored and _is_fit(rule.builtin) and {*(rule.arguments.get(_IGNORED) or ())} != {*ignored}
    ]
    if faults:
        raise RuleSetError(faults)
    if kept.pop(_NO_LISTS, False) and not spec.filters and not spec.scores:
        del policy["predicates"], policy["priorities"]
    return policy | {key: value for key, value in kept.items() if key not in policy}


def _is_fit(builtin: str) -> bool:
    return FILTER_ALIASES.get(builtin, builtin) == _FIT


def _without_ignored(rule: FilterRule) -> FilterRule:
    """Leave out of a rule which resources it ignores: the Policy's extenders say that."""
    return msgspec.structs.replace(
        rule, arguments={key: each for key, each in rule.arguments.items() if key != _IGNORED}
    )


def _of_extenders(ignored: Sequence[str]) -> str:
    wanted = ", ".join(ignored)
    return f"by a Policy's extenders in the description kube-scheduler ignores {wanted}: give it ignoredResources: [{wanted}]"


def _kept(description: str) -> JSONObject:
    lines = [line.removeprefix(KEPT) for line in description.splitlines() if line.startswith(KEPT)]
    try:
        found = json.loads(lines[0]) if lines else {}
    except (ValueError, RecursionError):
        return {}
    return {key: found[key] for key in (*_NO_RULES, _NO_LISTS) if key in found} if isinstance(found, dict) else {}


def _entries(kind: str, rules: Sequence[FilterRule | ScoreRule], faults: list[Fault]) -> list[JSONObject]:
    entries: list[JSONObject] = []
    seen: dict[str, int] = {}
    for index, rule in enumerate(rules):
        entry = _entry(rule)
        if not isinstance(entry, str):
            first = seen.setdefault(entry["name"], index)
            entries.append(entry)
            if first == index:
                continue
            entry = f"a Policy calls it {entry['name']}, as it does spec.{kind}[{first}]"
        faults.append(Fault(f"spec.{kind}[{index}]", f"{rule.key}: {entry}"))
    return entries


def _entry(rule: FilterRule | ScoreRule) -> JSONObject | str:
    """Return a rule's entry, or why a Policy can't express it."""
    if not rule.builtin:
        return "a Policy has no expressions"
    if rule.mode != "enforce":
        return f"a Policy has no rules in mode {rule.mode}"
    if refused := _refused_here(rule):
        return refused
    aliases = FILTER_ALIASES if isinstance(rule, FilterRule) else SCORE_ALIASES
    classic = rule.builtin if rule.builtin in _VOLUME_COUNTS else aliases.get(rule.builtin, rule.builtin)
    entry: JSONObject = {"name": _EXPORTED.get(classic, classic)}
    if isinstance(rule, ScoreRule):
        entry["weight"] = rule.weight
    kind = next((kind for kind, (builtin, _) in _CUSTOM.items() if builtin == classic), None)
    if kind is None or (not rule.arguments and kind == _RATIO):
        return _refused_arguments(rule, classic) or entry
    argument = _argument(kind, rule)
    if isinstance(argument, str):
        return argument
    return entry | {"name": rule.name or entry["name"], "argument": {kind: argument}}


def _refused_here(rule: FilterRule | ScoreRule) -> str:
    """Return why this version refuses a rule; empty if it doesn't. What is live was checked by the version that published it."""
    builtins: Mapping[str, Any] = BUILTIN_FILTERS if isinstance(rule, FilterRule) else BUILTIN_SCORES
    if rule.builtin not in builtins:
        return "this version has no such built-in"
    try:
        msgspec.convert(rule.arguments, builtins[rule.builtin].Arguments)
    except msgspec.ValidationError as error:
        return f"this version refuses its arguments: {error}"
    return ""


def _refused_arguments(rule: FilterRule | ScoreRule, classic: str) -> str:
    if classic == "NodeResourcesFit":
        return "a Policy names what its strategy means: LeastRequestedPriority, MostRequestedPriority or the like"
    arguments = dict(rule.arguments)
    if classic == _INTER_POD:
        arguments.pop("hardPodAffinityWeight", None)
    made = (BUILTIN_FILTERS if isinstance(rule, FilterRule) else BUILTIN_SCORES)[rule.builtin].Arguments
    same = msgspec.convert(arguments, made) == made()
    return "" if same else f"a Policy has no place for its {', '.join(sorted(arguments))}"


def _argument(kind: str, rule: FilterRule | ScoreRule) -> JSONObject | str:
    """Return the argument of an entry in a Policy's form, or why there is none."""
    given = rule.arguments
    match kind:
        case "serviceAffinity":
            return {"labels": [*given.get("labels", ()), *given.get("affinityLabels", ())]}
        case "serviceAntiAffinity":
            own = [given["label"]] if given.get("label") else []
            labels = [*own, *given.get("antiAffinityLabelsPreference", ())]
            return {"label": labels[0]} if len(labels) == 1 else _ONE_LABEL
        case "labelsPresence":
            return _presence(given, given.get("labels", []), "presentLabels", "absentLabels")
        case "labelPreference":
            own = [given["label"]] if given.get("label") else []
            found = _presence(given, own, "presentLabelsPreference", "absentLabelsPreference")
            if isinstance(found, str):
                return found
            labels = found["labels"]
            return {"label": labels[0], "presence": found["presence"]} if len(labels) == 1 else _ONE_LABEL
        case _:
            defaults = msgspec.to_builtins(BUILTIN_SCORES[rule.builtin].Arguments())
            return {"shape": defaults["shape"]} | given


def _presence(given: JSONObject, own: list[str], present_key: str, absent_key: str) -> JSONObject | str:
    """Return the labels that a built-in checks, and whether it requires them."""
    wanted = bool(given.get("presence", True))
    present = [*given.get(present_key, ()), *(own if wanted else ())]
    absent = [*given.get(absent_key, ()), *(() if wanted else own)]
    if present and absent:
        return "a Policy says which labels there must be or which not: make two rules of it"
    return {"labels": present or absent, "presence": bool(present) or (wanted and not absent)}
