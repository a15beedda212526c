"""Writes a KubeSchedulerConfiguration from answers, with a comment on each setting that says why. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import yaml

from policies import manifests
from policies.classic import read_top
from policies.engine.assignments import DEFAULT_SCHEDULER
from policies.engine.errors import Fault, RuleSetError
from policies.engine.reading import Reader, type_name
from scheduler.doctor.shape import API_VERSION, KIND, TLSConfig

VERBS = ("filter", "prioritize", "bind", "preempt")
# Wider than any text, so that none is folded.
_ONE_LINE = 10_000


class Managed(msgspec.Struct, frozen=True):
    """An extended resource for which kube-scheduler calls Berth."""

    name: str
    ignored_by_scheduler: bool = False


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers for a configuration. The defaults are for the local cluster."""

    url_prefix: str = "http://127.0.0.1:8010"
    verbs: tuple[str, ...] = VERBS
    node_cache_capable: bool = True
    weight: int = 150
    http_timeout_seconds: float = 3.0
    ignorable: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    # The name in Berth's certificate, if it isn't the host of `url_prefix`.
    server_name: str = ""
    managed_resources: tuple[Managed, ...] = ()
    scheduler_name: str = DEFAULT_SCHEDULER
    percentage_of_nodes_to_score: int = 100
    # kube-scheduler's kubeconfig for the API server; empty: its own Pod's service account.
    kubeconfig: str = ""


_COMMENTS = {
    "percentageOfNodesToScore": "Berth may refuse most nodes. With less than 100, kube-scheduler asks about a sample of them only.",
    "weight": "One point of Berth's counts weight x 10; kube-scheduler's own scores reach 1,400 together by default.",
    "nodeCacheCapable": "Names only: with full nodes, kube-scheduler's own scores see every node as empty (kubernetes#141781).",
    "httpTimeout": "kube-scheduler asks about one Pod at a time: a call that hangs holds up all Pods this long.",
    "ignorable": "true would place Pods without Berth's rules while Berth is down.",
    "tlsConfig": "Files on kube-scheduler's machine. Berth lets in whom BERTH_EXTENDER_CLIENTS names.",
    "bindVerb": "Rules that count Pods are checked again when a Pod is bound.",
    "preemptVerb": "Rules may protect Pods from preemption.",
    "managedResources": "Berth is asked only about Pods whose containers name one of these in requests or limits.",
}


def document_of(answers: Answers, others: Sequence[dict[str, Any]] = (), *, with_berth: bool = True) -> dict[str, Any]:
    """Return the configuration as a document, with other extenders before Berth's."""
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    if answers.kubeconfig:
        document["clientConnection"] = {"kubeconfig": answers.kubeconfig}
    if with_berth or answers.percentage_of_nodes_to_score != Answers().percentage_of_nodes_to_score:
        document["percentageOfNodesToScore"] = answers.percentage_of_nodes_to_score
    document["profiles"] = [{"schedulerName": answers.scheduler_name}]
    document["extenders"] = [*others, *([_extender(answers)] if with_berth else [])]
    return document


# Members of a classic Policy's extender (Kubernetes v1.15 pkg/scheduler/api/v1/types.go) -> today's. Go reads either case.
_OF_A_POLICY = {
    name.lower(): name
    for name in (
        "urlPrefix", "filterVerb", "preemptVerb", "prioritizeVerb", "weight", "bindVerb", "enableHTTPS", "tlsConfig",
        "httpTimeout", "nodeCacheCapable", "managedResources", "ignorable",
    )
}  # fmt: skip
_OF_TLS = {name.lower(): name for name in TLSConfig.__struct_encode_fields__}
_OF_A_RESOURCE = {name.lower(): name for name in ("name", "ignoredByScheduler")}
_LONGEST_NANOSECONDS = 2**63 - 1
_LARGEST_WEIGHT = 2**63 - 1


def extenders_of_policy(document: object) -> list[dict[str, Any]]:
    """Return the extenders of a classic scheduler Policy in the form of a KubeSchedulerConfiguration.

    Raises:
        RuleSetError: with every fault, each with its path in the Policy.
    """
    if not isinstance(document, dict) or document.get("kind") != "Policy":
        kind = repr(document.get("kind")) if isinstance(document, dict) else type_name(document)
        raise RuleSetError([Fault("kind", f"must be Policy, not {kind}")])
    top = read_top(document)
    faults = top.faults
    extenders = top.items("extenders", lambda value, path: _extender_of_policy(value, path, faults))
    if not extenders and not faults:
        top.fault("extenders", "is needed: this Policy has no extender")
    binders = [index for index, each in enumerate(extenders) if each.get("bindVerb")]
    faults += [
        Fault(
            f"extenders[{index}].bindVerb",
            f"extenders[{binders[0]}] binds already, and kube-scheduler takes one that does",
        )
        for index in binders[1:]
    ]
    if faults:
        raise RuleSetError(faults)
    return extenders


def _extender_of_policy(value: object, path: str, faults: list[Fault]) -> dict[str, Any]:
    reader = Reader(_renamed(value, _OF_A_POLICY), path, faults, set(_OF_A_POLICY.values()))
    made: dict[str, Any] = {"urlPrefix": reader.text("urlPrefix", required=True)}
    made |= {name: reader.text(name) for verb in VERBS if (name := f"{verb}Verb") in reader}
    if "weight" in reader:
        made["weight"] = reader.integer("weight", 0, low=0, high=_LARGEST_WEIGHT)
    if made.get("prioritizeVerb") and not made.get("weight"):
        reader.fault("weight", "is needed, from 1 on: kube-scheduler doesn't start with a prioritizeVerb without it")
    made |= {name: reader.boolean(name) for name in ("enableHTTPS", "nodeCacheCapable", "ignorable") if name in reader}
    if isinstance(reader.raw("httpTimeout"), str):
        reader.fault("httpTimeout", "must be a whole number of nanoseconds, such as 5000000000 for 5 s, not a text")
    elif "httpTimeout" in reader:
        # time.Duration in JSON: nanoseconds.
        made["httpTimeout"] = _go_duration(reader.integer("httpTimeout", 0, low=0, high=_LONGEST_NANOSECONDS))
    if "tlsConfig" in reader:
        tls = Reader(_renamed(reader.raw("tlsConfig"), _OF_TLS), f"{path}.tlsConfig", faults, set(_OF_TLS.values()))
        made["tlsConfig"] = {
            name: tls.boolean(name) if name == "insecure" else tls.text(name)
            for name in _OF_TLS.values()
            if name in tls
        }
    if "managedResources" in reader:
        made["managedResources"] = reader.items("managedResources", lambda each, at: _resource(each, at, faults))
    return made


def _resource(value: object, path: str, faults: list[Fault]) -> dict[str, Any]:
    reader = Reader(_renamed(value, _OF_A_RESOURCE), path, faults, set(_OF_A_RESOURCE.values()))
    ignored = {"ignoredByScheduler": True} if reader.boolean("ignoredByScheduler") else {}
    return {"name": reader.text("name", required=True)} | ignored


def _renamed(value: object, names: dict[str, str]) -> object:
    """Return an object with its members spelled as in today's configuration, which is decoded strictly."""
    return (
        {names.get(str(name).lower(), name): each for name, each in value.items()} if isinstance(value, dict) else value
    )


def _go_duration(nanoseconds: int) -> str:
    for unit, length in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if nanoseconds % length == 0:
            return f"{nanoseconds // length}{unit}"
    return f"{nanoseconds}ns"


def _extender(answers: Answers) -> dict[str, Any]:
    extender: dict[str, Any] = {"urlPrefix": answers.url_prefix}
    extender |= {f"{verb}Verb": verb for verb in VERBS if verb in answers.verbs}
    if "prioritize" in answers.verbs:
        extender["weight"] = answers.weight
    extender["nodeCacheCapable"] = answers.node_cache_capable
    extender["httpTimeout"] = _go_duration(round(answers.http_timeout_seconds * 1_000_000_000))
    extender["ignorable"] = answers.ignorable
    tls = {
        "caFile": answers.ca_file,
        "certFile": answers.cert_file,
        "keyFile": answers.key_file,
        "serverName": answers.server_name,
    }
    if given := {name: text for name, text in tls.items() if text}:
        extender["tlsConfig"] = given
    if answers.managed_resources:
        extender["managedResources"] = [
            {"name": each.name} | ({"ignoredByScheduler": True} if each.ignored_by_scheduler else {})
            for each in answers.managed_resources
        ]
    return extender


def to_yaml(answers: Answers, others: Sequence[dict[str, Any]] = (), *, with_berth: bool = True) -> str:
    """Return the configuration as YAML, with a comment before each setting of Berth's that needs one."""
    whose = "Berth as its extender" if with_berth else "the extenders of a classic Policy"
    document = document_of(answers, others, with_berth=with_berth)
    del document["extenders"]
    lines = [f"# kube-scheduler with {whose}: kube-scheduler --config FILE", *_members(document, ""), "extenders:"]
    for each in others:
        lines += manifests.to_yaml([each], width=_ONE_LINE).splitlines()
    if with_berth:
        first, *rest = _members(_extender(answers), "  ")
        lines += [f"- {first.strip()}", *rest]
    return "\n".join(lines) + "\n"


def added_to(text: str, answers: Answers) -> str:
    """Return an existing configuration with Berth behind its extenders.

    The file's text and comments are kept; only if `extenders` is written in flow style (braces or brackets), the file is
    rewritten. If another extender binds already, Berth's entry doesn't: kube-scheduler accepts only one that does.
    """
    text = manifests.as_yaml(text)  # JSON may be indented with tabs
    document = yaml.safe_load(text)
    others = document.get("extenders") or []
    if any(isinstance(each, dict) and each.get("bindVerb") for each in others):
        answers = msgspec.structs.replace(answers, verbs=tuple(verb for verb in answers.verbs if verb != "bind"))
    whole = {} if "percentageOfNodesToScore" in document else {"percentageOfNodesToScore": 100}
    wanted = document | whole | {"extenders": [*others, _extender(answers)]}
    made = _inserted(text, list(_members(whole, "")), list(_members(_extender(answers), "  ")))
    return made if made and yaml.safe_load(made) == wanted else manifests.to_yaml(wanted)


def _inserted(text: str, whole: list[str], entry: list[str]) -> str:
    """Return a file in YAML's block style with lines inserted; empty for another style."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return ""
    entry = [f"- {entry[0].strip()}", *entry[1:]]
    key, items = next((pair for pair in root.value if pair[0].value == "extenders"), (root, None))
    if items is None:
        return _with_lines(text, root.end_mark.index, [*whole, "extenders:", *entry], "")
    if not isinstance(items, yaml.SequenceNode) or items.flow_style or not items.value:
        return ""
    last: yaml.Node = items
    while last.value and isinstance(last, yaml.CollectionNode):
        last = last.value[-1][1] if isinstance(last, yaml.MappingNode) else last.value[-1]
    end = last.end_mark.index
    if text[end - 1] != "\n":  # the rest of the line may be a comment
        end = (text.find("\n", end) + 1) or len(text)
    text = _with_lines(text, end, entry, " " * items.start_mark.column)
    return _with_lines(text, key.start_mark.index, whole, "")


def _with_lines(text: str, place: int, lines: list[str], indent: str) -> str:
    before, after = text[:place], text[place:]
    start = "" if not before or before.endswith("\n") else "\n"
    return before + start + "".join(f"{indent}{line}\n" for line in lines) + after


def _members(document: dict[str, Any], indent: str) -> Iterator[str]:
    for name, value in document.items():
        if name in _COMMENTS:
            yield f"{indent}# {_COMMENTS[name]}"
        text = manifests.to_yaml({name: value}, width=_ONE_LINE)
        yield from (indent + line for line in text.splitlines())
