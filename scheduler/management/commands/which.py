"""`manage.py which POD`: which Assignment takes a Pod, and why not those before it."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from policies import publishing
from policies.engine.assignments import unmet
from policies.engine.errors import ObjectError
from policies.engine.objects.pod import Pod
from policies.engine.ruleset import Assignment
from policies.manifests import to_json
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError


class Passed(msgspec.Struct, frozen=True):
    """An Assignment that doesn't take the Pod, and what the Pod hasn't of what it requires."""

    name: str
    why: list[str]


class Found(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What applies to a Pod. `assignment` and `rule_set` are empty where none takes it."""

    ok: bool = True
    pod: str
    assignment: str = ""
    rule_set: str = ""
    # Those whose rule sets are evaluated beside it, and recorded only.
    shadows: list[str] = []
    passed_over: list[Passed] = []
    # Those that would take it, were there none before them.
    hidden: list[str] = []


class Command(BaseCommand):
    """Asks the live Assignments in their order, as every answer does."""

    help = (
        "Say which live Assignment takes a Pod, and why those before it don't. The Pod is the cluster's, or a file's."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("pod", metavar="POD", help="name, or namespace/name; of a file its path: ./pod.json")
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Find the Pod and its namespace, ask, write."""
        del args
        try:
            pod, labels = (
                _from_file(options["pod"]) if options["pod"].endswith(".json") else _from_cluster(options["pod"])
            )
        except (OSError, ValueError, ObjectError, APIError) as error:
            message = f"{options['pod']}: {error}"
            raise CommandError(message, returncode=1) from error
        found = which(publishing.current_revision().assignments, pod, labels)
        as_json = options["output"] == "json"
        self.stdout.write(to_json(msgspec.to_builtins(found)) if as_json else _text(found))


def which(assignments: list[Assignment], pod: Pod, namespace_labels: dict[str, str]) -> Found:
    """Return what applies to a Pod: the first Assignment in order that takes it; shadow ones don't end the search."""
    chosen: Assignment | None = None
    shadows: list[str] = []
    hidden: list[str] = []
    passed: list[Passed] = []
    for each in sorted(assignments, key=lambda assignment: (assignment.order, assignment.name)):
        why = unmet(each.match, pod, namespace_labels)
        if chosen is not None:
            hidden += [] if why else [each.name]
        elif why:
            passed.append(Passed(each.name, why))
        elif each.mode == "shadow":
            shadows.append(each.name)
        else:
            chosen = each
    return Found(
        pod=f"{pod.namespace}/{pod.name}",
        assignment=chosen.name if chosen else "",
        rule_set=chosen.rule_set if chosen else "",
        shadows=shadows,
        passed_over=passed,
        hidden=hidden,
    )


def _from_file(path: str) -> tuple[Pod, dict[str, str]]:
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    return Pod.from_json(document), {}


def _from_cluster(named: str) -> tuple[Pod, dict[str, str]]:
    namespace, _, name = named.rpartition("/")
    namespace = namespace or "default"
    client = Client.connect(Path(settings.BERTH.kubeconfig) if settings.BERTH.kubeconfig else None)
    pod = Pod.from_json(json.loads(client.get(path=f"/api/v1/namespaces/{namespace}/pods/{name}")))
    found = json.loads(client.get(path=f"/api/v1/namespaces/{namespace}"))
    return pod, found["metadata"].get("labels") or {}


def _text(found: Found) -> str:
    if found.assignment:
        lines = [f"{found.pod} gets rule set {found.rule_set} by Assignment {found.assignment}"]
    else:
        lines = [f"no Assignment takes {found.pod}: kube-scheduler decides by its own rules, Berth by its default set"]
    lines += [f"  beside it, in shadow: {name}" for name in found.shadows]
    lines += [f"  not {each.name}: {'; '.join(each.why)}" for each in found.passed_over]
    lines += [f"  {name} would take it too, and stands behind" for name in found.hidden]
    return "\n".join(lines)
