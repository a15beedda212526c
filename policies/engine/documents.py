"""Reading of the documents that hold no expression: Assignments, PriorityClasses, Pauses and Exemptions; and how all are written.

Rule sets are read in `policies.engine.validation`, which needs CEL and every built-in. Code that reads no rule sets needs neither.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import Any, get_args

import msgspec

from policies.engine.errors import Fault, RuleSetError
from policies.engine.objects.owners import NO_OWNER
from policies.engine.pauses import ASSIGNMENT, EVERYTHING, RULE_SET, Target
from policies.engine.reading import Reader, not_json, shown, type_name
from policies.engine.ruleset import (
    API_VERSION,
    Assignment,
    AssignmentMode,
    DeletionPolicy,
    Document,
    Exemption,
    ExemptPods,
    LabelMatch,
    Match,
    Pause,
    PreemptionPolicy,
    PriorityClass,
    RuleSet,
    Workload,
)
from policies.engine.selectors import is_label_key, is_label_value

_MAX_JSON_FAULTS = 100
# What is said where `moment_of` finds no time.
NO_MOMENT = "must be a time with its zone, such as 2126-01-31T22:00:00Z"
NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SCHEDULER_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./:]*[A-Za-z0-9])?")
_MAX_SUBDOMAIN = 253
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# The range that Kubernetes allows: an int32, at most a billion. Its own classes are above that.
PRIORITY_VALUES = (-(2**31), 1_000_000_000)
SYSTEM_PREFIX = "system-"
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_PRIORITY_CLASS = {"value", "globalDefault", "preemptionPolicy", "adopt", "deletionPolicy"}
KUBERNETES_GROUP = "scheduling.k8s.io/"
_KUBERNETES_PRIORITY_CLASS = frozenset({"value", "globalDefault", "description", "preemptionPolicy"})
# Members of metadata that don't describe the class itself (k8s.io/apimachinery v0.36.3 meta/v1/types.go).
_OF_THE_API_SERVER = frozenset(
    {
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generation",
        "labels",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
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
# Kinds that don't own Pods directly, and the kind in between that a Pod's owner reference names.
_OWNERS_OF_OWNERS = {"CronJob": "Job"}


def read_assignment(document: object) -> Assignment:
    """Check an Assignment document.

    Raises:
        RuleSetError: with every fault in it.
    """
    with envelope(document, "Assignment", _ASSIGNMENT) as (name, description, spec):
        assignment = Assignment(
            name=name,
            description=description,
            rule_set=spec.text("ruleSet", required=True),
            order=spec.integer("order", 100, low=0, high=1_000_000),
            match=_read_match(spec.raw("match"), spec.where("match"), spec.faults),
            mode=spec.choice("mode", get_args(AssignmentMode), "enforce"),
            percent=spec.integer("percent", 1, low=1, high=100) if "percent" in spec else 0,
            params=spec.mapping("params"),
        )
        if ("percent" in spec) != (assignment.mode == "canary"):
            is_canary = assignment.mode == "canary"
            spec.fault("percent", "is needed: of 100 workloads, how many" if is_canary else "belongs to mode canary")
        return assignment


def read_priority_class(document: object) -> PriorityClass:
    """Check a PriorityClass document, as Kubernetes v1.36.3 does (pkg/apis/scheduling/validation/validation.go).

    Raises:
        RuleSetError: with every fault in it.
    """
    low, high = PRIORITY_VALUES
    with envelope(document, "PriorityClass", _PRIORITY_CLASS) as (name, description, spec):
        if "value" not in spec:
            spec.fault("value", "is needed")
        return PriorityClass(
            name=name,
            description=description,
            value=spec.integer("value", 0, low=low, high=high),
            global_default=spec.boolean("globalDefault"),
            preemption_policy=spec.choice("preemptionPolicy", get_args(PreemptionPolicy), "PreemptLowerPriority"),
            adopt=spec.boolean("adopt"),
            deletion_policy=spec.choice("deletionPolicy", get_args(DeletionPolicy), "Keep"),
        )


def read_pause(document: object) -> Pause:
    """Check a Pause document.

    Raises:
        RuleSetError: with every fault in it.
    """
    with envelope(document, "Pause", _PAUSE) as (name, description, spec):
        return Pause(
            name=name,
            description=description,
            target=_read_target(spec, (EVERYTHING, ASSIGNMENT, RULE_SET), _TARGETS),
            reason=_read_explanation(spec, "reason"),
            until=_read_until(spec),
        )


def read_exemption(document: object) -> Exemption:
    """Check an Exemption document.

    Raises:
        RuleSetError: with every fault in it.
    """
    with envelope(document, "Exemption", _EXEMPTION) as (name, description, spec):
        pods = spec.items("pods", lambda value, path: _read_exempt_pods(value, path, spec.faults))
        if not 0 < len(pods) <= MAX_EXEMPT_PODS:
            spec.fault("pods", f"needs 1 to {MAX_EXEMPT_PODS} entries: whom the rule passes over")
        if "until" not in spec:
            spec.fault("until", "is needed: every Exemption ends, such as at 2026-12-31T00:00:00Z")
        return Exemption(
            name=name,
            description=description,
            owner=_read_explanation(spec, "owner"),
            target=_read_target(spec, (RULE_SET,), "RuleSet/NAME, or RuleSet/NAME/RULE for one of its rules"),
            reason=_read_explanation(spec, "reason"),
            until=_read_until(spec),
            pods=pods,
        )


def _read_target(spec: Reader, kinds: Collection[str], wanted: str) -> str:
    text = _read_needed(spec, "target")
    kind, name, rule = Target.parse(text)
    is_right = text == EVERYTHING if kind == EVERYTHING else _DNS_NAME.fullmatch(name) is not None
    if rule or text.count("/") > 1:
        is_right = is_right and kind == RULE_SET and NAME.fullmatch(rule) is not None
    if text and not (kind in kinds and is_right):
        spec.fault("target", f"must be {wanted}, not {shown(text)}")
    return text


def _read_needed(reader: Reader, member: str) -> str:
    """Read a text that must not be blank."""
    text = reader.text(member)
    if not text.strip() and reader.raw(member) in (None, text):  # one of another type has its fault already
        reader.fault(member, "is needed")
    return text


def _read_explanation(spec: Reader, member: str) -> str:
    """Read an explanation for people: it is required, and short."""
    text = _read_needed(spec, member)
    if len(text) > MAX_EXPLANATION_LENGTH:
        spec.fault(member, f"must be at most {MAX_EXPLANATION_LENGTH} characters, not {len(text)}")
    return text


def _read_until(spec: Reader) -> str:
    """Read an end with its zone, if there is one, and write it in UTC: the same moment has one digest."""
    if "until" not in spec:
        return ""
    moment = moment_of(spec.text("until"))
    if moment is None:
        spec.fault("until", NO_MOMENT)
        return ""
    return moment.isoformat().replace("+00:00", "Z")


def moment_of(text: str) -> datetime | None:
    """Return a moment in UTC; None for a text that isn't a time."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _read_exempt_pods(value: object, path: str, faults: list[Fault]) -> ExemptPods:
    reader = Reader(value, path, faults, _EXEMPT_PODS)
    namespace, name = _read_needed(reader, "namespace"), reader.text("name")
    if namespace and not is_namespace(namespace):
        reader.fault("namespace", f"{shown(namespace)} is no namespace's name: a-z, 0-9 and dashes, at most 63")
    if name and not is_subdomain(name):
        reader.fault("name", f"{shown(name)} is no Pod's name: a-z, 0-9, dashes and dots")
    owner = None
    if "owner" in reader:
        found = Reader(reader.raw("owner"), reader.where("owner"), faults, {"kind", "name"})
        owner = Workload(kind=_read_needed(found, "kind"), name=_read_needed(found, "name"))
        if owner.kind.strip() and not _KIND.fullmatch(owner.kind):
            found.fault("kind", f"{shown(owner.kind)} is no kind of Kubernetes, such as Deployment or Job")
        if owner.name.strip() and not is_subdomain(owner.name):
            found.fault("name", f"{shown(owner.name)} is no workload's name: a-z, 0-9, dashes and dots")
    selector = _read_labels(reader, "selector") if "selector" in reader else None
    if not name and owner is None and selector is None:
        reader.fault("", "needs a name, an owner or a selector: which Pods of the namespace")
    return ExemptPods(namespace=namespace, name=name, owner=owner, selector=selector)


def is_namespace(name: str) -> bool:
    """Return whether Kubernetes allows this name for a namespace."""
    return _DNS_NAME.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """Return whether Kubernetes allows this name for a Pod, a workload or a PriorityClass."""
    return len(name) <= _MAX_SUBDOMAIN and _DNS_SUBDOMAIN.fullmatch(name) is not None


def read_kubernetes_priority_class(document: dict[str, Any]) -> PriorityClass:
    """Check Kubernetes' own PriorityClass, whose members are at the top level. Faults have the paths of that document.

    The metadata that the API server writes is ignored, and so are labels, annotations, owners and finalizers: Berth leaves
    them as they are.
    """
    top = Reader(
        document, "", _refuse_not_json(document), {"apiVersion", "kind", "metadata", *_KUBERNETES_PRIORITY_CLASS}
    )
    if top.raw("apiVersion") != KUBERNETES_GROUP + "v1":
        top.fault("apiVersion", f"must be {KUBERNETES_GROUP}v1, or {API_VERSION} with a spec")
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
    """Return the document for this value; members that hold their default are left out."""
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
    """Return an empty list of faults for reading. A value that isn't JSON is refused before it is read."""
    faults = list(islice(not_json(document), _MAX_JSON_FAULTS))
    if faults:
        raise RuleSetError(faults)
    return faults


@contextmanager
def envelope(document: object, kind: str, known: set[str]) -> Iterator[tuple[str, str, Reader]]:
    """Read what documents of all kinds have: name and description, and a reader for `spec`.

    Raises:
        RuleSetError: at the end, with every fault that was found until then.
    """
    faults = _refuse_not_json(document)
    yield _read_envelope(document, kind, known, faults)
    if faults:
        raise RuleSetError(faults)


def _read_envelope(document: object, kind: str, known: set[str], faults: list[Fault]) -> tuple[str, str, Reader]:
    if not isinstance(document, dict):
        faults.append(
            Fault("", f"must be an object with apiVersion, kind, metadata and spec, not {type_name(document)}")
        )
        return "", "", Reader(None, "spec", faults, known)
    top = Reader(document, "", faults, {"apiVersion", "kind", "metadata", "spec"})
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
    if not is_subdomain(name):
        metadata.fault(
            "name", "must be lower-case letters, digits, dashes and dots, at most 253, such as batch or shop.batch-low"
        )
    elif name.startswith(SYSTEM_PREFIX):
        metadata.fault("name", "system- is reserved for Kubernetes' own PriorityClasses; choose another beginning")


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
    """Read names that Kubernetes accepts. An invalid name would match no Pod, even where it looks like one that does."""
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
