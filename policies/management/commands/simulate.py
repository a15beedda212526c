"""`manage.py simulate`: apply a rule set to recorded or invented cases, a line of JSON each. Needs no database."""

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from policies import checking
from policies.engine.decision import EPOCH, NOT_EVALUATED, Answer, CompiledRuleSet, decide
from policies.engine.documents import NO_MOMENT, moment_of
from policies.engine.errors import Fault, ObjectError, RuleSetError
from policies.engine.objects.cluster_objects import MEMBERS, ClusterObjects
from policies.engine.objects.namespace import Namespace
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.reading import Reader, type_name
from policies.engine.rule import Cycle
from policies.engine.ruleset import RuleSet
from policies.engine.status import Code, Status
from policies.management.files import is_beside_rules

_SUCCESS = Status(Code.SUCCESS)
_LISTS = {"nodes", "pods", "namespaces", *MEMBERS}
_MEMBERS = {"pod", "now", *_LISTS}


class Command(BaseCommand):
    """Applies a rule set to cases."""

    help = "Print, for each case, the feasible nodes, the result of each rule, and the scores."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--policy", type=Path, required=True, help="file with the RuleSet; the first one in it is used"
        )
        parser.add_argument(
            "--cases", type=Path, required=True, help='one case per line: {"pod":{},"nodes":[],"pods":[]}'
        )
        parser.add_argument("--whole", action="store_true", help="evaluate every rule on every node")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line for each case."""
        rule_set = CompiledRuleSet(_read_policy(options["policy"]))
        for where, line in _lines_of(options["cases"]):
            self.stdout.write(json.dumps(simulate(rule_set, _read_case(line, where), whole=options["whole"])))


def _read_policy(path: Path) -> RuleSet:
    try:
        for located in checking.read_documents(path.read_text(encoding="utf-8"), str(path)):
            if is_beside_rules(located.document):
                continue
            try:
                return checking.read_rule_set(located.document)
            except RuleSetError as error:
                message = "\n".join(located.describe(fault) for fault in error.faults)
                raise CommandError(message, returncode=1) from error
    except RuleSetError as error:
        raise CommandError("\n".join(fault.message for fault in error.faults), returncode=1) from error
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} can't be read: {error}"
        raise CommandError(message, returncode=1) from error
    message = f"{path} contains no RuleSet"
    raise CommandError(message, returncode=1)


def _lines_of(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the lines that aren't empty, each with its place."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"{path}:{number}", line
    except OSError as error:
        message = f"{path} can't be read: {error}"
        raise CommandError(message, returncode=1) from error


def _read_case(line: bytes, where: str) -> Cycle:
    try:
        return read_case(json.loads(line))
    except json.JSONDecodeError as error:
        message = f"{where}: not readable as JSON: column {error.colno}: {error.msg}"
        raise CommandError(message, returncode=1) from error
    except RecursionError as error:
        message = f"{where}: lists and objects are nested too deeply"
        raise CommandError(message, returncode=1) from error
    except (ObjectError, ValueError, LookupError, TypeError) as error:
        message = f"{where}: {error}"
        raise CommandError(message, returncode=1) from error


def read_case(case: Any) -> Cycle:
    """Make the objects that rules see from a case.

    A case has pod, nodes and pods and, where they matter, `now` (RFC 3339), namespaces, persistentVolumeClaims and the
    other objects that rules read.

    Raises:
        ObjectError: it has no Pod, an unknown member, no list where one is due, or something in it isn't a Kubernetes object.
    """
    if not isinstance(case, dict):
        message = "a case must be an object"
        raise ObjectError(message)
    if case.get("pod") is None:
        message = 'a case must have a Pod: {"pod": {"metadata": {"name": "a"}}, "nodes": []}'
        raise ObjectError(message)
    _refuse_malformed(case)
    nodes = [Node.from_json(node) for node in case.get("nodes") or ()]
    pods = [Pod.from_json(pod) for pod in case.get("pods") or ()]
    metadata = [Namespace.from_json(item).metadata for item in case.get("namespaces") or ()]
    namespaces = {each.name: each.labels or {} for each in metadata}
    now = EPOCH if case.get("now") is None else _read_time(case["now"])
    snapshot = Snapshot.of(nodes, pods, namespaces, objects=ClusterObjects.from_json(case))
    return Cycle(pod=Pod.from_json(case["pod"]), snapshot=snapshot, now=now)


def _refuse_malformed(case: dict[str, Any]) -> None:
    faults: list[Fault] = []
    Reader(case, "", faults, _MEMBERS)
    faults += (
        Fault(name, f"must be a list, not {type_name(case[name])}")
        for name in sorted(_LISTS & case.keys())
        if not isinstance(case[name], list | None)
    )
    if faults:
        raise ObjectError("; ".join(map(str, faults)))


def _read_time(value: Any) -> datetime:
    found = moment_of(value) if isinstance(value, str) else None
    if found is None:
        message = f"now: {NO_MOMENT}"
        raise ObjectError(message)
    return found


def simulate(rule_set: CompiledRuleSet, case: Cycle, *, whole: bool = False) -> dict[str, Any]:
    """Return the outcome of a case as JSON: the feasible nodes, and each rule's result for each node."""
    cycle = Cycle(pod=case.pod, snapshot=case.snapshot, now=case.now, params=rule_set.params)
    answer = decide(rule_set, cycle, cycle.table.all_rows(), whole=whole)
    scored = {position: index for index, position in enumerate(answer.scored.tolist())}
    nodes = {
        name: {"filters": _filters(answer, position), **_scores(answer, scored.get(position))}
        for position, name in enumerate(answer.names)
    }
    return {"feasible": answer.feasible, "nodes": nodes}


def _filters(answer: Answer, position: int) -> dict[str, Any]:
    said = {}
    for column in answer.filters:
        if column.codes[position] != NOT_EVALUATED:
            status = column.at(position) or _SUCCESS
            said[column.rule.key] = {"code": status.code.value, "reason": status.reason}
    return said


def _scores(answer: Answer, index: int | None) -> dict[str, Any]:
    """Return the scores of a node as JSON; `index` is its position among the scored nodes."""
    if index is None or not answer.scores:
        return {"scores": {}}
    raw = {column.rule.key: int(column.raw[index]) for column in answer.scores}
    scores = {key: {"raw": number, "score": number / 10} for key, number in raw.items()}
    return {"scores": scores, "score": int(answer.points[index])}
