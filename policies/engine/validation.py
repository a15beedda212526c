"""The one validator of rule documents: what passes here can be published, what doesn't is refused with all faults.

The admin's forms, the REST API, files in git and imports all come through `read_document` or the function of one kind.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar, get_args

import msgspec

from policies.engine.cel import (
    OF_PREEMPTION,
    Cost,
    Expression,
    Result,
    VictimExpression,
    too_costly,
    too_costly_together,
)
from policies.engine.errors import ExpressionError, Fault, ObjectError, RuleSetError
from policies.engine.filters.registry import BUILTIN_FILTERS, NO_BUILTIN
from policies.engine.objects.node import Node
from policies.engine.objects.owners import NO_OWNER
from policies.engine.objects.pod import Pod
from policies.engine.params import overridden, type_faults
from policies.engine.pauses import ASSIGNMENT, EVERYTHING, RULE_SET, Target
from policies.engine.reading import Reader, not_json, shown, type_name
from policies.engine.rule import Declared
from policies.engine.ruleset import (
    API_VERSION,
    DEFAULT_FAILURES,
    Assignment,
    AssignmentMode,
    DeadlineChoice,
    DeletionPolicy,
    Document,
    Exemption,
    ExemptPods,
    Expectation,
    Failures,
    FilterRule,
    LabelMatch,
    Match,
    OutageChoice,
    Pause,
    PreemptionPolicy,
    PriorityClass,
    Rule,
    RuleSet,
    RuleSetSpec,
    RuleSetTest,
    ScoreRule,
    VictimRule,
    Workload,
)
from policies.engine.scores.registry import BUILTIN_SCORES
from policies.engine.selectors import is_label_key, is_label_value

_Made = TypeVar("_Made", bound=Declared)

MAX_WEIGHT = 1_000_000
MAX_REASON_LENGTH = 128
MAX_RULES = 100
# A quiet watch is opened anew after 90 s: less silence is no sign of a fault. More than a week is a slip.
STALE_AFTER_SECONDS = (100, 604_800)
_MAX_JSON_FAULTS = 100
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SCHEDULER_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./:]*[A-Za-z0-9])?")
_MAX_SUBDOMAIN = 253
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_SUBDOMAIN_LENGTH = 253
# What Kubernetes allows: an int32, and nothing above a billion, which is where its own classes are.
PRIORITY_VALUES = (-(2**31), 1_000_000_000)
SYSTEM_PREFIX = "system-"
_MODES = ("enforce", "shadow", "off")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_RULE = {"name", "builtin", "expression", "arguments", "mode"}
_FILTER = _RULE | {"reason", "onError", "preemptionHelps"}
_SCORE = _RULE | {"weight", "bounds"}
_VICTIM = {"name", "expression", "reason", "onError", "mode"}
_SPEC = {"filters", "scores", "victims", "params", "failures", "tests"}
_PRIORITY_CLASS = {"value", "globalDefault", "preemptionPolicy", "adopt", "deletionPolicy"}
_KUBERNETES_GROUP = "scheduling.k8s.io/"
_KUBERNETES_PRIORITY_CLASS = frozenset({"value", "globalDefault", "description", "preemptionPolicy"})
# Members of metadata that say nothing of the class itself (k8s.io/apimachinery v0.36.3 meta/v1/types.go).
_OF_THE_API_SERVER = frozenset(
    {"annotations", "creationTimestamp", "generation", "labels", "managedFields", "resourceVersion", "selfLink", "uid"}
)
_PAUSE = {"target", "reason", "until"}
_EXEMPTION = _PAUSE | {"owner", "pods"}
_EXEMPT_PODS = {"namespace", "name", "owner", "selector"}
MAX_EXPLANATION_LENGTH = 1_000
MAX_EXEMPT_PODS = 1_000
_TARGETS = "everything, Assignment/NAME, RuleSet/NAME, or RuleSet/NAME/RULE for one of its rules"
_ASSIGNMENT = {"order", "ruleSet", "match", "mode", "percent", "params"}
_MATCH = {"schedulerNames", "namespaces", "namespaceSelector", "podSelector", "priorityClassNames", "ownerKinds"}
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
# Whose Pods are another kind's, which Pods do show.
_OWNERS_OF_OWNERS = {"CronJob": "Job"}


def read_rule_set(document: object) -> RuleSet:
    """Check a RuleSet document.

    Raises:
        RuleSetError: with every fault in it.
    """
    faults = _refuse_not_json(document)
    name, description, spec = _read_envelope(document, "RuleSet", _SPEC, faults)
    filters = spec.items("filters", lambda value, path: _read_filter(value, path, faults))
    scores = spec.items("scores", lambda value, path: _read_score(value, path, faults))
    victims = spec.items("victims", lambda value, path: _read_victim(value, path, faults))
    failures = _read_failures(spec.raw("failures"), spec.where("failures"), faults)
    tests = spec.items("tests", lambda value, path: _read_test(value, path, faults))
    params = spec.mapping("params")
    for kind, rules in (("filters", filters), ("scores", scores), ("victims", victims)):
        _check_rules(kind, rules, faults)
    _check_costs(filters, scores, params, faults)
    _check_costs_of_victims(victims, params, faults)
    if faults:
        raise RuleSetError(faults)
    return RuleSet(
        name=name,
        description=description,
        spec=RuleSetSpec(
            filters=filters, scores=scores, victims=victims, params=params, failures=failures, tests=tests
        ),
    )


def read_assignment(document: object) -> Assignment:
    """Check an Assignment document.

    Raises:
        RuleSetError: with every fault in it.
    """
    faults = _refuse_not_json(document)
    name, description, spec = _read_envelope(document, "Assignment", _ASSIGNMENT, faults)
    assignment = Assignment(
        name=name,
        description=description,
        rule_set=spec.text("ruleSet", required=True),
        order=spec.integer("order", 100, low=0, high=1_000_000),
        match=_read_match(spec.raw("match"), spec.where("match"), faults),
        mode=spec.choice("mode", get_args(AssignmentMode), "enforce"),
        percent=spec.integer("percent", 1, low=1, high=100) if "percent" in spec else 0,
        params=spec.mapping("params"),
    )
    if ("percent" in spec) != (assignment.mode == "canary"):
        is_canary = assignment.mode == "canary"
        spec.fault("percent", "is needed: of 100 workloads, how many" if is_canary else "belongs to mode canary")
    if faults:
        raise RuleSetError(faults)
    return assignment


def params_faults(assignment: Assignment, rule_set: RuleSet) -> list[Fault]:
    """Return what is wrong with the params of an Assignment for its rule set: names, types, and what rules cost with them."""
    spec = rule_set.spec
    if faults := type_faults(rule_set.name, spec.params, assignment.params):
        return faults
    params = overridden(spec.params, assignment.params)
    _check_costs(spec.filters, spec.scores, params, faults)
    _check_costs_of_victims(spec.victims, params, faults)
    return [Fault("spec.params", f"with them, rule set {rule_set.name} costs too much: {each}") for each in faults]


def read_priority_class(document: object) -> PriorityClass:
    """Check a PriorityClass document, as Kubernetes v1.36.3 does (pkg/apis/scheduling/validation/validation.go).

    Raises:
        RuleSetError: with every fault in it.
    """
    faults = _refuse_not_json(document)
    name, description, spec = _read_envelope(document, "PriorityClass", _PRIORITY_CLASS, faults)
    low, high = PRIORITY_VALUES
    if "value" not in spec:
        spec.fault("value", "is needed")
    priority_class = PriorityClass(
        name=name,
        description=description,
        value=spec.integer("value", 0, low=low, high=high),
        global_default=spec.boolean("globalDefault"),
        preemption_policy=spec.choice("preemptionPolicy", get_args(PreemptionPolicy), "PreemptLowerPriority"),
        adopt=spec.boolean("adopt"),
        deletion_policy=spec.choice("deletionPolicy", get_args(DeletionPolicy), "Keep"),
    )
    if faults:
        raise RuleSetError(faults)
    return priority_class


def read_pause(document: object) -> Pause:
    """Check a Pause document.

    Raises:
        RuleSetError: with every fault in it.
    """
    faults = _refuse_not_json(document)
    name, description, spec = _read_envelope(document, "Pause", _PAUSE, faults)
    pause = Pause(
        name=name,
        description=description,
        target=_read_target(spec, (EVERYTHING, ASSIGNMENT, RULE_SET), _TARGETS),
        reason=_read_explanation(spec, "reason"),
        until=_read_moment(spec, "until") if "until" in spec else "",
    )
    if faults:
        raise RuleSetError(faults)
    return pause


def read_exemption(document: object) -> Exemption:
    """Check an Exemption document.

    Raises:
        RuleSetError: with every fault in it.
    """
    faults = _refuse_not_json(document)
    name, description, spec = _read_envelope(document, "Exemption", _EXEMPTION, faults)
    pods = spec.items("pods", lambda value, path: _read_exempt_pods(value, path, faults))
    if not 0 < len(pods) <= MAX_EXEMPT_PODS:
        spec.fault("pods", f"needs 1 to {MAX_EXEMPT_PODS} entries: whom the rule passes over")
    if "until" not in spec:
        spec.fault("until", "is needed: every Exemption ends, such as at 2026-12-31T00:00:00Z")
    exemption = Exemption(
        name=name,
        description=description,
        owner=_read_explanation(spec, "owner"),
        target=_read_target(spec, (RULE_SET,), "RuleSet/NAME, or RuleSet/NAME/RULE for one of its rules"),
        reason=_read_explanation(spec, "reason"),
        until=_read_moment(spec, "until") if "until" in spec else "",
        pods=pods,
    )
    if faults:
        raise RuleSetError(faults)
    return exemption


def _read_target(spec: Reader, kinds: Collection[str], wanted: str) -> str:
    text = _read_needed(spec, "target")
    kind, name, rule = Target.parse(text)
    is_right = text == EVERYTHING if kind == EVERYTHING else _DNS_NAME.fullmatch(name) is not None
    if rule or text.count("/") > 1:
        is_right = is_right and kind == RULE_SET and _NAME.fullmatch(rule) is not None
    if text and not (kind in kinds and is_right):
        spec.fault("target", f"must be {wanted}, not {shown(text)}")
    return text


def _read_needed(reader: Reader, member: str) -> str:
    """Read a text that must say something."""
    text = reader.text(member)
    if not text.strip() and reader.raw(member) in (None, text):  # one of another type has its fault already
        reader.fault(member, "is needed")
    return text


def _read_explanation(spec: Reader, member: str) -> str:
    """Read a text that people are to read: it is needed, and short."""
    text = _read_needed(spec, member)
    if len(text) > MAX_EXPLANATION_LENGTH:
        spec.fault(member, f"must be at most {MAX_EXPLANATION_LENGTH} characters, not {len(text)}")
    return text


def _read_moment(spec: Reader, member: str) -> str:
    """Read a time with its zone, and write it in UTC: the same moment has one digest."""
    text = spec.text(member)
    moment = _moment(text)
    if moment is None:
        spec.fault(member, "must be a time with its zone, such as 2026-12-31T18:00:00Z")
        return ""
    return moment.isoformat().replace("+00:00", "Z")


def _moment(text: str) -> datetime | None:
    """Return a moment in UTC; None for a text that is none."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _read_exempt_pods(value: object, path: str, faults: list[Fault]) -> ExemptPods:
    reader = Reader(value, path, faults, _EXEMPT_PODS)
    namespace, name = _read_needed(reader, "namespace"), reader.text("name")
    if namespace and not _DNS_NAME.fullmatch(namespace):
        reader.fault("namespace", f"{shown(namespace)} is no namespace's name: a-z, 0-9 and dashes, at most 63")
    if name and not _is_subdomain(name):
        reader.fault("name", f"{shown(name)} is no Pod's name: a-z, 0-9, dashes and dots")
    owner = None
    if "owner" in reader:
        found = Reader(reader.raw("owner"), reader.where("owner"), faults, {"kind", "name"})
        owner = Workload(kind=_read_needed(found, "kind"), name=_read_needed(found, "name"))
    selector = _read_labels(reader, "selector") if "selector" in reader else None
    if not name and owner is None and selector is None:
        reader.fault("", "needs a name, an owner or a selector: which Pods of the namespace")
    return ExemptPods(namespace=namespace, name=name, owner=owner, selector=selector)


def _is_subdomain(name: str) -> bool:
    return len(name) <= _MAX_SUBDOMAIN and _DNS_SUBDOMAIN.fullmatch(name) is not None


def read_document(document: object) -> Document:
    """Check a document of whichever kind it says it is.

    Raises:
        RuleSetError: with every fault in it, or because there is no such kind.
    """
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == "Pause":
        return read_pause(document)
    if kind == "Exemption":
        return read_exemption(document)
    if kind == "Assignment":
        return read_assignment(document)
    if isinstance(document, dict) and kind == "PriorityClass":
        kubernetes = str(document.get("apiVersion")).startswith(_KUBERNETES_GROUP)
        return _read_kubernetes_priority_class(document) if kubernetes else read_priority_class(document)
    if kind is None or kind == "RuleSet":
        return read_rule_set(document)
    hint = "; importpolicy makes a RuleSet of it" if kind in ("Policy", "KubeSchedulerConfiguration") else ""
    fault = Fault("kind", f"must be RuleSet, Assignment, PriorityClass, Pause or Exemption, not {kind!r}{hint}")
    raise RuleSetError([fault])


def _read_kubernetes_priority_class(document: dict[str, Any]) -> PriorityClass:
    """Check Kubernetes' own PriorityClass, whose members stand at the top. Faults have the paths of that document.

    What the API server writes into metadata is passed over, and so are labels and annotations: Berth leaves them as they are.
    """
    top = Reader(
        document, "", _refuse_not_json(document), {"apiVersion", "kind", "metadata", *_KUBERNETES_PRIORITY_CLASS}
    )
    if top.raw("apiVersion") != _KUBERNETES_GROUP + "v1":
        top.fault("apiVersion", f"must be {_KUBERNETES_GROUP}v1, or {API_VERSION} with a spec")
    found = Reader(top.raw("metadata"), "metadata", top.faults, {"name", *_OF_THE_API_SERVER})
    metadata = {"name": found.raw("name"), "description": top.raw("description")}
    spec = {name: top.raw(name) for name in _KUBERNETES_PRIORITY_CLASS - {"description"} if name in top}
    own = {"apiVersion": API_VERSION, "kind": "PriorityClass", "metadata": metadata, "spec": spec}
    try:
        value = read_priority_class(own)
    except RuleSetError as error:
        places = {"metadata.description": "description"}
        top.faults += [
            msgspec.structs.replace(fault, path=places.get(fault.path, fault.path.removeprefix("spec.")))
            for fault in error.faults
        ]
    if top.faults:
        raise RuleSetError(top.faults)
    return value


def document_of(value: Document) -> dict[str, Any]:
    """Return the document that reads as this value; members that hold their default are left out."""
    metadata = {"name": value.name} | ({"description": value.description} if value.description else {})
    if isinstance(value, RuleSet):
        spec = msgspec.to_builtins(value.spec)
    else:
        spec = msgspec.to_builtins(value)
        for member in ("name", "description", "version"):
            spec.pop(member, None)
    for rule in spec.get("scores", ()):
        if "bounds" in rule:
            rule["bounds"] = list(rule["bounds"])
    return {"apiVersion": API_VERSION, "kind": type(value).__name__, "metadata": metadata, "spec": spec}


def _refuse_not_json(document: object) -> list[Fault]:
    """Return the empty list of faults to go on with: what isn't JSON at all is refused before it is read."""
    faults = list(islice(not_json(document), _MAX_JSON_FAULTS))
    if faults:
        raise RuleSetError(faults)
    return faults


def _read_envelope(document: object, kind: str, known: set[str], faults: list[Fault]) -> tuple[str, str, Reader]:
    top = Reader(document, "", faults, {"apiVersion", "kind", "metadata", "spec"})
    if not isinstance(document, dict):
        faults.append(
            Fault("", f"must be an object with apiVersion, kind, metadata and spec, not {type_name(document)}")
        )
        return "", "", Reader(None, "spec", faults, known)
    if top.raw("apiVersion") != API_VERSION:
        top.fault("apiVersion", f"must be {API_VERSION}")
    if top.raw("kind") != kind:
        top.fault("kind", f"must be {kind}")
    metadata = Reader(top.raw("metadata"), "metadata", faults, {"name", "description"})
    name = metadata.text("name", required=True)
    if name and kind == "PriorityClass":
        _check_priority_class_name(name, metadata)
    elif name and not _DNS_NAME.fullmatch(name):
        metadata.fault("name", "must be lower-case letters, digits and dashes, at most 63, such as web-on-web")
    if "spec" not in top:
        top.fault("spec", "is needed")
    return name, metadata.text("description"), Reader(top.raw("spec"), "spec", faults, known)


def _check_priority_class_name(name: str, metadata: Reader) -> None:
    if len(name) > _MAX_SUBDOMAIN_LENGTH or not _DNS_SUBDOMAIN.fullmatch(name):
        metadata.fault(
            "name", "must be lower-case letters, digits, dashes and dots, at most 253, such as batch or shop.batch-low"
        )
    elif name.startswith(SYSTEM_PREFIX):
        metadata.fault("name", "system- is reserved for Kubernetes' own PriorityClasses; choose another beginning")


def _read_filter(value: object, path: str, faults: list[Fault]) -> FilterRule:
    reader = Reader(value, path, faults, _FILTER)
    rule = FilterRule(
        **_common(reader),
        on_error=reader.choice("onError", ("reject", "pass"), "reject"),
        reason=reader.text("reason"),
        preemption_helps=reader.boolean("preemptionHelps"),
    )
    _check_kind(rule, reader, BUILTIN_FILTERS, Result.BOOLEAN)
    _check_reason(rule.reason, reader)
    if rule.builtin:
        for name in ("reason", "preemptionHelps", "onError"):
            if name in reader:
                reader.fault(name, "belongs to rules with an expression: a built-in has its own")
    return rule


def _read_score(value: object, path: str, faults: list[Fault]) -> ScoreRule:
    reader = Reader(value, path, faults, _SCORE)
    rule = ScoreRule(
        **_common(reader),
        weight=reader.integer("weight", 1, low=1, high=MAX_WEIGHT),
        bounds=_read_bounds(reader),
    )
    _check_kind(rule, reader, BUILTIN_SCORES, Result.NUMBER)
    if rule.builtin and rule.bounds is not None:
        reader.fault("bounds", "belong to rules with an expression: a built-in has its own")
    return rule


def _read_victim(value: object, path: str, faults: list[Fault]) -> VictimRule:
    reader = Reader(value, path, faults, _VICTIM)
    rule = VictimRule(
        name=reader.text("name"),
        expression=reader.text("expression"),
        on_error=reader.choice("onError", ("reject", "pass"), "reject"),
        mode=reader.choice("mode", _MODES, "enforce"),
        reason=reader.text("reason"),
    )
    for member in ("name", "expression"):
        if not reader.raw(member):
            reader.fault(member, "is needed")
    _check_name(rule.name, reader)
    _check_reason(rule.reason, reader)
    if rule.expression:
        _compile(VictimExpression, rule.expression, reader)
    return rule


def _read_failures(value: object, path: str, faults: list[Fault]) -> Failures:
    reader = Reader(value, path, faults, Failures.__struct_encode_fields__)
    low, high = STALE_AFTER_SECONDS
    outage = get_args(OutageChoice)
    failures = Failures(
        deadline=reader.choice("deadline", get_args(DeadlineChoice), DEFAULT_FAILURES.deadline),
        stale_snapshot=reader.choice("staleSnapshot", outage, DEFAULT_FAILURES.stale_snapshot),
        stale_after_seconds=reader.integer(
            "staleAfterSeconds", DEFAULT_FAILURES.stale_after_seconds, low=low, high=high
        ),
        database=reader.choice("database", outage, DEFAULT_FAILURES.database),
        redis=reader.choice("redis", outage, DEFAULT_FAILURES.redis),
        api_server=reader.choice("apiServer", outage, DEFAULT_FAILURES.api_server),
    )
    return DEFAULT_FAILURES if failures == DEFAULT_FAILURES else failures


def _common(reader: Reader) -> dict[str, Any]:
    return {
        "name": reader.text("name"),
        "builtin": reader.text("builtin"),
        "expression": reader.text("expression"),
        "arguments": reader.mapping("arguments"),
        "mode": reader.choice("mode", _MODES, "enforce"),
    }


def _read_bounds(reader: Reader) -> tuple[float, float] | None:
    bounds = reader.raw("bounds")
    if bounds is None:
        return None
    numbers = isinstance(bounds, list) and all(
        isinstance(bound, int | float) and not isinstance(bound, bool) for bound in bounds
    )
    if not numbers or len(bounds) != 2 or not bounds[0] < bounds[1]:  # noqa: PLR2004 - low and high
        reader.fault("bounds", "must be two numbers, the lower one first: [0, 20]")
        return None
    return (bounds[0], bounds[1])


def _check_kind(
    rule: FilterRule | ScoreRule, reader: Reader, builtins: Mapping[str, type[Declared]], result: Result
) -> None:
    if not reader.raw("builtin") and not reader.raw("expression"):
        reader.fault("", "needs a builtin or an expression")
    elif rule.builtin and rule.expression:
        reader.fault("expression", "a rule is a builtin or an expression, not both")
    elif rule.builtin:
        _check_builtin(rule, reader, builtins)
    elif rule.expression:
        _check_expression(rule, reader, result)
    _check_name(rule.name, reader)


def _check_name(name: str, reader: Reader) -> None:
    if name and not _NAME.fullmatch(name):
        reader.fault("name", "must be letters, digits, dashes, dots and underscores, at most 63")


def _check_builtin(rule: FilterRule | ScoreRule, reader: Reader, builtins: Mapping[str, type[Declared]]) -> None:
    if rule.builtin in NO_BUILTIN:
        reader.fault("builtin", f"{rule.builtin} is no built-in: {NO_BUILTIN[rule.builtin]}")
        return
    known = Reader({rule.builtin: True}, "", [], builtins)
    if known.faults:
        hint = known.faults[0].message.removeprefix("unknown member; ")
        reader.fault("builtin", f"no built-in is called {rule.builtin}; {hint}")
        return
    try:
        make_builtin(builtins, rule)
    except msgspec.ValidationError as error:
        reader.fault("arguments", str(error))


def make_builtin(builtins: Mapping[str, type[_Made]], rule: FilterRule | ScoreRule) -> _Made:
    """Make the built-in that a rule names, with the rule's arguments.

    Raises:
        msgspec.ValidationError: the arguments are not the built-in's.
    """
    made = builtins[rule.builtin]
    return made(msgspec.convert(rule.arguments, made.Arguments))


def _check_expression(rule: FilterRule | ScoreRule, reader: Reader, result: Result) -> None:
    if rule.arguments:
        reader.fault("arguments", "belong to built-ins; an expression reads params")
    if not rule.name:
        reader.fault("name", "a rule with an expression needs a name: Decisions and reasons use it")
    _compile(lambda source: _expression(source, result), rule.expression, reader)


@lru_cache(maxsize=256)
def _expression(source: str, result: Result) -> Expression:
    """Compile an expression; its fields and then its cost are looked at."""
    return Expression(source, result)


def _compile(make: Callable[[str], Expression | VictimExpression], source: str, reader: Reader) -> None:
    try:
        make(source).check_fields()
    except ExpressionError as error:
        reader.faults.append(Fault(reader.where("expression"), error.message, error.line, error.column))


def _check_costs(filters: Sequence[Rule], scores: Sequence[Rule], params: dict[str, Any], faults: list[Fault]) -> None:
    """Refuse expressions that cost too much, one by one and all together. Rules that are off don't count together."""
    costs = _costs_of("filters", filters, lambda source: _expression(source, Result.BOOLEAN).cost(params), faults)
    costs += _costs_of("scores", scores, lambda source: _expression(source, Result.NUMBER).cost(params), faults)
    if (found := too_costly_together(costs)) is not None:
        faults.append(Fault("spec", found))


def _check_costs_of_victims(rules: Sequence[Rule], params: dict[str, Any], faults: list[Fault]) -> None:
    """Refuse victims rules that cost too much. They are asked in another call than filters and scores."""
    costs = _costs_of("victims", rules, lambda source: VictimExpression(source).cost(params), faults)
    if (found := too_costly_together(costs, OF_PREEMPTION)) is not None:
        faults.append(Fault("spec.victims", found))


def _costs_of(
    kind: str, rules: Sequence[Rule], cost_of: Callable[[str], Cost], faults: list[Fault]
) -> list[tuple[float, str]]:
    """Return the milliseconds of each expression and its path, but for those that are off; refuse those that cost too much."""
    costs: list[tuple[float, str]] = []
    for index, rule in enumerate(rules):
        path = f"spec.{kind}[{index}].expression"
        if not rule.expression or any(fault.path == path for fault in faults):
            continue
        cost = cost_of(rule.expression)
        if (found := too_costly(cost)) is not None:
            faults.append(Fault(path, found, cost.line, cost.column))
        elif rule.mode != "off":
            costs.append((cost.milliseconds(), path))
    return costs


def _check_reason(reason: str, reader: Reader) -> None:
    if len(reason) > MAX_REASON_LENGTH:
        reader.fault("reason", f"must be at most {MAX_REASON_LENGTH} characters, not {len(reason)}")
    if "%" in reason or not reason.isprintable():
        reader.fault("reason", "must be one line without a percent sign: kube-scheduler prints it as a format")


def _check_rules(kind: str, rules: list[Any], faults: list[Fault]) -> None:
    if len(rules) > MAX_RULES:
        faults.append(Fault(f"spec.{kind}", f"at most {MAX_RULES} rules, not {len(rules)}"))
    seen: dict[str, int] = {}
    for index, rule in enumerate(rules):
        first = seen.setdefault(rule.key, index)
        if rule.key and first != index:
            message = f"{rule.key} is already the name of spec.{kind}[{first}]; give one of them another name"
            faults.append(Fault(f"spec.{kind}[{index}].name", message))


def _read_match(value: object, path: str, faults: list[Fault]) -> Match:
    reader = Reader(value, path, faults, _MATCH)
    return Match(
        scheduler_names=_read_names(
            reader, "schedulerNames", _SCHEDULER_NAME, "a scheduler's name: letters, digits, - . _ / :"
        ),
        namespaces=_read_names(reader, "namespaces", _DNS_NAME, "a namespace's name: a-z, 0-9 and dashes, at most 63"),
        namespace_selector=_read_labels(reader, "namespaceSelector"),
        pod_selector=_read_labels(reader, "podSelector"),
        priority_class_names=_read_names(
            reader, "priorityClassNames", _DNS_SUBDOMAIN, "a PriorityClass's name: a-z, 0-9, dashes and dots"
        ),
        owner_kinds=_read_owner_kinds(reader),
    )


def _read_owner_kinds(reader: Reader) -> list[str]:
    kinds = reader.texts("ownerKinds")
    for index, kind in enumerate(kinds):
        where = f"ownerKinds[{index}]"
        if kind in _OWNERS_OF_OWNERS:
            reader.fault(where, f"a {kind} controls no Pod: say {_OWNERS_OF_OWNERS[kind]}, whose Pods they are")
        elif kind != NO_OWNER and not _KIND.fullmatch(kind):
            reader.fault(where, f"{shown(kind)} is no kind of Kubernetes, such as Deployment or Job, nor {NO_OWNER}")
    return kinds


def _read_names(reader: Reader, member: str, grammar: re.Pattern[str], wanted: str) -> list[str]:
    """Read names as Kubernetes has them: what can't be one matches no Pod, however much it looks like one that does."""
    names = reader.texts(member)
    for index, name in enumerate(names):
        if len(name) > _MAX_SUBDOMAIN or not grammar.fullmatch(name):
            reader.fault(f"{member}[{index}]", f"{shown(name)} is not {wanted}")
    return names


def _check_label(reader: Reader, member: str, key: str, values: Iterable[str]) -> None:
    if key and not is_label_key(key):
        reader.fault(
            member, f"{shown(key)} is no label key of Kubernetes: letters, digits, - . _, a prefix before / if any"
        )
    for value in values:
        if not is_label_value(value):
            reader.fault(member, f"{shown(value)} is no label value of Kubernetes: letters, digits, - . _, at most 63")


def _read_labels(parent: Reader, name: str) -> LabelMatch:
    reader = Reader(parent.raw(name), parent.where(name), parent.faults, {"matchLabels", "matchExpressions"})
    expressions = reader.items("matchExpressions", lambda value, path: _read_requirement(value, path, reader.faults))
    labels = reader.labels("matchLabels")
    for key, value in labels.items():
        _check_label(reader, "matchLabels", key, [value])
    return LabelMatch(match_labels=labels, match_expressions=expressions)


def _read_requirement(value: object, path: str, faults: list[Fault]) -> dict[str, Any]:
    reader = Reader(value, path, faults, {"key", "operator", "values"})
    key = reader.text("key", required=True)
    operator = reader.choice("operator", _OPERATORS, "In") if "operator" in reader else ""
    if not operator:
        reader.fault("operator", f"is needed: one of {', '.join(_OPERATORS)}")
    values = reader.texts("values")
    if operator in {"In", "NotIn"} and not values:
        reader.fault("values", f"{operator} needs at least one value")
    if operator in {"Exists", "DoesNotExist"} and values:
        reader.fault("values", f"{operator} takes no values")
    _check_label(reader, "key", key, ())
    _check_label(reader, "values", "", values)
    return {"key": key, "operator": operator} | ({"values": values} if values else {})


def _read_test(value: object, path: str, faults: list[Fault]) -> RuleSetTest:
    reader = Reader(value, path, faults, {"name", "pod", "nodes", "pods", "now", "expect"})
    expect = Reader(reader.raw("expect"), reader.where("expect"), faults, {"feasible", "best", "reasons", "protected"})
    if "expect" not in reader:
        reader.fault("expect", "is needed: what must come out, such as {feasible: [n1], best: n1}")
    if "pod" not in reader:
        reader.fault("pod", "is needed")
    test = RuleSetTest(
        name=reader.text("name", required=True),
        pod=_read_object(reader.mapping("pod"), reader.where("pod"), Pod, faults),
        nodes=reader.items("nodes", lambda item, where: _read_object(item, where, Node, faults)),
        pods=reader.items("pods", lambda item, where: _read_object(item, where, Pod, faults)),
        now=reader.text("now"),
        expect=Expectation(
            feasible=expect.texts("feasible") if "feasible" in expect else None,
            best=expect.text("best") if "best" in expect else None,
            reasons=expect.labels("reasons") if "reasons" in expect else None,
            protected=expect.texts("protected") if "protected" in expect else None,
        ),
    )
    if test.now:
        _check_time(test.now, reader)
    return test


def _check_time(text: str, reader: Reader) -> None:
    if _moment(text) is None:
        reader.fault("now", "must be a time with its zone, such as 2026-03-29T01:30:00Z")


def _read_object(value: object, path: str, kind: type[Pod] | type[Node], faults: list[Fault]) -> dict[str, Any]:
    try:
        return kind.from_json(value).json
    except ObjectError as error:
        faults.append(Fault(path, str(error)))
        return {}
