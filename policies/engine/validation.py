"""The one validator of rule documents: a document that passes can be published, any other is refused with all its faults.

The admin's forms, the REST API, files in git and imports all use `read_document` or the function for one kind.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import inspect

from policies.engine.cel import (
    OF_PREEMPTION,
    Cost,
    Expression,
    Result,
    VictimExpression,
    too_costly,
    too_costly_together,
)
from policies.engine.documents import (
    KUBERNETES_GROUP,
    NAME,
    NO_MOMENT,
    envelope,
    moment_of,
    read_assignment,
    read_exemption,
    read_kubernetes_priority_class,
    read_pause,
    read_priority_class,
)
from policies.engine.errors import ExpressionError, Fault, ObjectError, RuleSetError
from policies.engine.filters.registry import BUILTIN_FILTERS, NO_BUILTIN
from policies.engine.objects.namespace import Namespace
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.params import overridden, type_faults
from policies.engine.reading import Reader
from policies.engine.rule import Declared
from policies.engine.ruleset import (
    DEFAULT_FAILURES,
    Assignment,
    DeadlineChoice,
    Document,
    Expectation,
    Failures,
    FilterRule,
    OutageChoice,
    Rule,
    RuleSet,
    RuleSetSpec,
    RuleSetTest,
    ScoreRule,
    VictimRule,
)
from policies.engine.scores.registry import BUILTIN_SCORES

_Made = TypeVar("_Made", bound=Declared)

MAX_WEIGHT = 1_000_000
MAX_REASON_LENGTH = 128
MAX_RULES = 100
# A quiet watch is reopened after 90 s, so a shorter silence is no sign of a fault. More than a week is a mistake.
STALE_AFTER_SECONDS = (100, 604_800)
_MODES = ("enforce", "shadow", "off")
_RULE = {"name", "builtin", "expression", "arguments", "mode"}
_FILTER = _RULE | {"reason", "onError", "preemptionHelps"}
_SCORE = _RULE | {"weight", "bounds"}
_VICTIM = {"name", "expression", "reason", "onError", "mode"}
_SPEC = {"filters", "scores", "victims", "params", "failures", "tests"}


def read_rule_set(document: object) -> RuleSet:
    """Check a RuleSet document.

    Raises:
        RuleSetError: with every fault in it.
    """
    with envelope(document, "RuleSet", _SPEC) as (name, description, spec):
        faults = spec.faults
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
    return RuleSet(
        name=name,
        description=description,
        spec=RuleSetSpec(
            filters=filters, scores=scores, victims=victims, params=params, failures=failures, tests=tests
        ),
    )


def params_faults(assignment: Assignment, rule_set: RuleSet) -> list[Fault]:
    """Return the faults of an Assignment's params for its rule set: names, types, and the cost of the rules with these params."""
    spec = rule_set.spec
    if faults := type_faults(rule_set.name, spec.params, assignment.params):
        return faults
    params = overridden(spec.params, assignment.params)
    _check_costs(spec.filters, spec.scores, params, faults)
    _check_costs_of_victims(spec.victims, params, faults)
    return [Fault("spec.params", f"with them, rule set {rule_set.name} costs too much: {each}") for each in faults]


def read_document(document: object) -> Document:
    """Check a document of the kind that it declares.

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
        kubernetes = str(document.get("apiVersion")).startswith(KUBERNETES_GROUP)
        return read_kubernetes_priority_class(document) if kubernetes else read_priority_class(document)
    if kind is None or kind == "RuleSet":
        return read_rule_set(document)
    hint = "; importpolicy makes a RuleSet of it" if kind in ("Policy", "KubeSchedulerConfiguration") else ""
    fault = Fault("kind", f"must be RuleSet, Assignment, PriorityClass, Pause or Exemption, not {kind!r}{hint}")
    raise RuleSetError([fault])


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
        hint = f"; did you mean builtin: {rule.name}?" if rule.name in builtins else ""
        reader.fault("", f"needs a builtin or an expression{hint}")
    elif rule.builtin and rule.expression:
        reader.fault("expression", "a rule is a builtin or an expression, not both")
    elif rule.builtin:
        _check_builtin(rule, reader, builtins)
    elif rule.expression:
        _check_expression(rule, reader, result)
    _check_name(rule.name, reader)


def _check_name(name: str, reader: Reader) -> None:
    if name and not NAME.fullmatch(name):
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
    found: list[Fault] = []
    _check_words(rule.arguments, inspect.type_info(builtins[rule.builtin].Arguments), "arguments", found)
    if not found:
        found += _faults_of(rule, builtins)
    for fault in found:
        reader.fault(fault.path, fault.message)


def _check_words(value: object, kind: inspect.Type, path: str, faults: list[Fault]) -> None:
    """Note unknown members and words anywhere in arguments. msgspec decodes Kubernetes' own objects without the members."""
    match kind:
        case inspect.StructType(fields=fields) if isinstance(value, dict):
            known = {each.encode_name: each.type for each in fields}
            if value and not known:
                faults.append(Fault(path, "must be left out: this built-in takes none"))
                return
            Reader(value, path, faults, known)
            for name in sorted(known.keys() & value.keys()):
                _check_words(value[name], known[name], f"{path}.{name}", faults)
        case inspect.ListType(item_type=item) if isinstance(value, list):
            for index, each in enumerate(value):
                _check_words(each, item, f"{path}[{index}]", faults)
        case inspect.UnionType(types=kinds):
            for each in kinds:
                _check_words(value, each, path, faults)
        case inspect.LiteralType(values=words) if isinstance(value, str) and value not in words:
            faults.append(Fault(path, f"must be one of {', '.join(map(str, words))}, not {value!r}"))


def _faults_of(rule: FilterRule | ScoreRule, builtins: Mapping[str, type[Declared]]) -> list[Fault]:
    try:
        fault = make_builtin(builtins, rule).fault()
    except msgspec.ValidationError as error:
        fault, _, place = str(error).partition(" - at `$")
        return [Fault(f"arguments{place.rstrip('`')}", fault)]
    return [Fault("arguments", fault)] if fault else []


def make_builtin(builtins: Mapping[str, type[_Made]], rule: FilterRule | ScoreRule) -> _Made:
    """Make the built-in that a rule names, with the rule's arguments.

    Raises:
        msgspec.ValidationError: the built-in doesn't take these arguments.
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
    """Compile an expression, and check its fields, then its cost."""
    return Expression(source, result)


def _compile(make: Callable[[str], Expression | VictimExpression], source: str, reader: Reader) -> None:
    try:
        make(source).check_fields()
    except ExpressionError as error:
        reader.faults.append(Fault(reader.where("expression"), error.message, error.line, error.column))


def _check_costs(filters: Sequence[Rule], scores: Sequence[Rule], params: dict[str, Any], faults: list[Fault]) -> None:
    """Refuse expressions that cost too much, each alone and all together. Rules that are off don't count towards the sum."""
    costs = _costs_of("filters", filters, lambda source: _expression(source, Result.BOOLEAN).cost(params), faults)
    costs += _costs_of("scores", scores, lambda source: _expression(source, Result.NUMBER).cost(params), faults)
    if (found := too_costly_together(costs)) is not None:
        faults.append(Fault("spec", found))


def _check_costs_of_victims(rules: Sequence[Rule], params: dict[str, Any], faults: list[Fault]) -> None:
    """Refuse victims rules that cost too much. They are evaluated in another call than filters and scores."""
    costs = _costs_of("victims", rules, lambda source: VictimExpression(source).cost(params), faults)
    if (found := too_costly_together(costs, OF_PREEMPTION)) is not None:
        faults.append(Fault("spec.victims", found))


def _costs_of(
    kind: str, rules: Sequence[Rule], cost_of: Callable[[str], Cost], faults: list[Fault]
) -> list[tuple[float, str]]:
    """Return the milliseconds of each expression and its path, except for rules that are off; refuse those that cost too much."""
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


def _read_test(value: object, path: str, faults: list[Fault]) -> RuleSetTest:
    reader = Reader(value, path, faults, {"name", "pod", "nodes", "pods", "namespaces", "now", "expect"})
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
        namespaces=reader.items("namespaces", lambda item, where: _read_object(item, where, Namespace, faults)),
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
    if moment_of(text) is None:
        reader.fault("now", NO_MOMENT)


def _read_object(value: object, path: str, kind: type[Pod | Node | Namespace], faults: list[Fault]) -> Any:
    try:
        kind.from_json(value)
    except ObjectError as error:
        faults.append(Fault(path, str(error)))
        return {}
    return value
