"""Writes a KubeSchedulerConfiguration from answers, with a comment on each setting that says why. Pure."""

from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from scheduler.doctor.shape import API_VERSION, KIND

VERBS = ("filter", "prioritize", "bind", "preempt")
DEFAULT_SCHEDULER = "default-scheduler"


class Managed(msgspec.Struct, frozen=True):
    """An extended resource that makes Berth be asked."""

    name: str
    ignored_by_scheduler: bool = False


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration is made from. The defaults are the local default's."""

    url_prefix: str = "http://127.0.0.1:8010"
    verbs: tuple[str, ...] = VERBS
    node_cache_capable: bool = True
    weight: int = 150
    http_timeout_seconds: float = 3.0
    ignorable: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    # The name in Berth's certificate, where it isn't the host of `url_prefix`.
    server_name: str = ""
    managed_resources: tuple[Managed, ...] = ()
    scheduler_name: str = DEFAULT_SCHEDULER
    percentage_of_nodes_to_score: int = 100
    # Where kube-scheduler finds the API server; empty: its own Pod's service account.
    kubeconfig: str = ""


_COMMENTS = {
    "percentageOfNodesToScore": "Berth may refuse most nodes. With less than 100, kube-scheduler asks about a sample of them only.",
    "weight": "One point of Berth's counts weight x 10; kube-scheduler's own scores reach 1,400 together by default.",
    "nodeCacheCapable": "Names only: with full nodes, kube-scheduler's own scores see every node as empty (kubernetes#141781).",
    "httpTimeout": "kube-scheduler asks about one Pod at a time: a call that hangs holds up all Pods this long.",
    "ignorable": "true would place Pods without Berth's rules while Berth is away.",
    "tlsConfig": "Files on kube-scheduler's machine. Berth lets in whom BERTH_EXTENDER_CLIENTS names.",
    "bindVerb": "Rules that count Pods are checked again when a Pod is bound.",
    "preemptVerb": "Rules may protect Pods from preemption.",
    "managedResources": "Berth is asked only about Pods whose containers name one of these in requests or limits.",
}


def document_of(answers: Answers) -> dict[str, Any]:
    """Return the configuration as a document."""
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    if answers.kubeconfig:
        document["clientConnection"] = {"kubeconfig": answers.kubeconfig}
    document["percentageOfNodesToScore"] = answers.percentage_of_nodes_to_score
    document["profiles"] = [{"schedulerName": answers.scheduler_name}]
    document["extenders"] = [_extender(answers)]
    return document


def _extender(answers: Answers) -> dict[str, Any]:
    extender: dict[str, Any] = {"urlPrefix": answers.url_prefix}
    extender |= {f"{verb}Verb": verb for verb in VERBS if verb in answers.verbs}
    if "prioritize" in answers.verbs:
        extender["weight"] = answers.weight
    extender["nodeCacheCapable"] = answers.node_cache_capable
    extender["httpTimeout"] = _duration(answers.http_timeout_seconds)
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


def _duration(seconds: float) -> str:
    return f"{seconds:g}s" if float(seconds).is_integer() else f"{seconds * 1000:g}ms"


def to_yaml(answers: Answers) -> str:
    """Write the configuration as YAML, each setting that needs it with a comment before it."""
    head = "# kube-scheduler with Berth as its extender: kube-scheduler --config FILE"
    return "\n".join([head, *_members(document_of(answers), "")]) + "\n"


def _members(document: dict[str, Any], indent: str) -> Iterator[str]:
    for name, value in document.items():
        if name in _COMMENTS:
            yield f"{indent}# {_COMMENTS[name]}"
        if name == "extenders":
            first, *rest = _members(value[0], "  ")
            yield from (f"{name}:", f"- {first.strip()}", *rest)
        else:
            text = yaml.safe_dump({name: value}, sort_keys=False, default_flow_style=False, width=10_000)
            yield from (indent + line for line in text.splitlines())
