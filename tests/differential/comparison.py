"""Compares Berth's built-ins with kube-scheduler's plugins, case by case. Needs no Django.

`python -m tests.differential.comparison --help` runs it without pytest.
"""

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from policies.engine.decision import EPOCH, Answer, CompiledRuleSet, ScoreColumn, decide
from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import FilterRule, RuleSet, RuleSetSpec, ScoreRule
from policies.engine.scheduling import ALWAYS_ASKED
from policies.engine.scores.registry import BUILTIN_SCORES
from tests.differential.deviations import is_deviation, is_refused_volume
from tests.differential.generator import generate
from tests.differential.making.words import Json
from tests.differential.plugins import Conversation, answer_all, build

FILTERS = {
    "CheckNodeUnschedulable": "NodeUnschedulable",
    "PodFitsHost": "NodeName",
    "PodToleratesNodeTaints": "TaintToleration",
    "MatchNodeSelector": "NodeAffinity",
    "PodFitsHostPorts": "NodePorts",
    "PodFitsResources": "NodeResourcesFit",
    "NoDiskConflict": "VolumeRestrictions",
    "MaxVolumeCount": "NodeVolumeLimits",
    "NoVolumeZoneConflict": "VolumeZone",
    "EvenPodsSpread": "PodTopologySpread",
    "MatchInterPodAffinity": "InterPodAffinity",
}
# What Berth's own scheduler asks beside the rules of a rule set.
ALWAYS = {"CheckVolumeBinding": "VolumeBinding", "NodeDeclaredFeatures": "NodeDeclaredFeatures"}
PLUGINS = FILTERS | ALWAYS
# Berth's name -> kube-scheduler's, each with the scoring strategy where it has several.
SCORES = {
    "TaintTolerationPriority": "TaintToleration",
    "NodeAffinityPriority": "NodeAffinity",
    "LeastRequestedPriority": "NodeResourcesFit:LeastAllocated",
    "MostRequestedPriority": "NodeResourcesFit:MostAllocated",
    "RequestedToCapacityRatioPriority": "NodeResourcesFit:RequestedToCapacityRatio",
    "NodeResourcesFit:LeastAllocated": "NodeResourcesFit:LeastAllocated",
    "NodeResourcesFit:MostAllocated": "NodeResourcesFit:MostAllocated",
    "NodeResourcesFit:RequestedToCapacityRatio": "NodeResourcesFit:RequestedToCapacityRatio",
    "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
    "EvenPodsSpreadPriority": "PodTopologySpread",
    "InterPodAffinityPriority": "InterPodAffinity",
    "ImageLocalityPriority": "ImageLocality",
}

# The constant reasons, which must be the same. Others name objects, which Berth's never do.
TEXTS = (
    "node(s) were unschedulable",
    "node(s) didn't match the requested node name",
    "node(s) had untolerated taint(s)",
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't match scheduler-enforced node affinity",
    "pod affinity terms conflict",
    "node(s) didn't have free ports for the requested pod ports",
    "Too many pods",
    "Insufficient ",
    "node(s) had no available disk",
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
    "node(s) exceed max volume count",
    "node(s) had no available volume zone",
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) didn't match Pod's required features",
    "pod has unbound immediate PersistentVolumeClaims",
    "node(s) didn't match pod topology spread constraints",
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
)

CHUNK = 500


class Difference(NamedTuple):
    """What one rule and its plugin say differently: of a node ("*" for the Pod) a verdict, or a score over some."""

    builtin: str
    what: str
    node: str
    expected: object
    found: object

    def __str__(self) -> str:
        return f"{self.builtin}: {self.what} of {self.node}: kube-scheduler {self.expected}, Berth {self.found}"


# Berth's side


def translate(made: Any, given: Json) -> Json:
    """Return a plugin's arguments, as a KubeSchedulerConfiguration has them, in the form of the built-in.

    A plugin may filter and score: what the built-in knows nothing of is left out, and shows as a difference.
    """
    scoring = given.get("scoringStrategy", {})
    flat = {**given, **scoring, **scoring.get("requestedToCapacityRatio", {})}
    known = {field.encode_name for field in msgspec.structs.fields(made.Arguments)}
    return {name: value for name, value in flat.items() if name in known}


_SHAPE: Json = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}
# What a rule gets where the case says nothing, as in the Go program.
DEFAULT_ARGUMENTS: dict[str, Json] = {
    "RequestedToCapacityRatioPriority": _SHAPE,
    "NodeResourcesFit:MostAllocated": {"scoringStrategy": {"type": "MostAllocated"}},
    "NodeResourcesFit:RequestedToCapacityRatio": {
        "scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": _SHAPE},
    },
}


def make_rule_set(arguments: Json) -> CompiledRuleSet:
    """Make a rule of each built-in, named as in FILTERS and SCORES, and those of ALWAYS."""

    def given(made: Any, name: str, plugin: str) -> Json:
        return translate(made, arguments[plugin]) if plugin in arguments else DEFAULT_ARGUMENTS.get(name, {})

    filters = [
        FilterRule(name=name, builtin=name, arguments=given(BUILTIN_FILTERS[name], name, plugin))
        for name, plugin in FILTERS.items()
    ]
    scores = []
    for name, plugin in SCORES.items():
        builtin = name.partition(":")[0]
        scores.append(ScoreRule(name=name, builtin=builtin, arguments=given(BUILTIN_SCORES[builtin], name, plugin)))
    made = CompiledRuleSet(RuleSet(name="all", spec=RuleSetSpec(filters=filters, scores=scores)))
    always = [(rule, asked) for rule, asked in ALWAYS_ASKED if rule.builtin in ALWAYS]
    made.take([*made.filters, *always], made.scores)
    return made


_WITHOUT_ARGUMENTS = make_rule_set({})


def judge(case: Json, feasible: Sequence[str]) -> tuple[Answer, Answer]:
    """Let Berth evaluate every rule on every node, and score the nodes that kube-scheduler's filters let pass."""
    rule_set = make_rule_set(case["arguments"]) if case.get("arguments") else _WITHOUT_ARGUMENTS
    snapshot = Snapshot.of(
        map(Node.from_json, case["nodes"]),
        map(Pod.from_json, case.get("pods", ())),
        {entry["metadata"]["name"]: entry["metadata"].get("labels", {}) for entry in case.get("namespaces", ())},
        objects=ClusterObjects.from_json(case),
    )
    cycle = Cycle(pod=Pod.from_json(case["pod"]), snapshot=snapshot, now=EPOCH)
    whole = decide(rule_set, cycle, snapshot.table.all_rows(), whole=True)
    rows = snapshot.table.rows(feasible)
    return whole, decide(rule_set, cycle, rows, filtering=False, whole=True)


# Comparing


def compare(case: Json, expected: Json) -> list[Difference]:
    """Return all differences between Berth and an answer of the Go program, but for those kept on purpose."""
    if "error" in expected:
        raise AssertionError(
            f"the Go program can't evaluate this case: {expected['error']}\n{msgspec.json.encode(case).decode()}"
        )
    verdicts = expected["filters"]
    feasible = [name for name in verdicts if all(said["code"] in PASSING for said in verdicts[name].values())]
    try:
        whole, among_feasible = judge(case, feasible)
    except Exception as error:  # noqa: BLE001 - a fault of the engine is a difference like any other
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}, {place.name}"
        return [Difference("the engine", f"fault {type(error).__name__}", "*", "an answer", f"{error} ({where})")]
    found = [*_compare_filters(verdicts, whole)]
    found += _compare_scores("score", expected["scores"], whole)
    if feasible:
        found += _compare_scores("score among the feasible nodes", expected["scoresFeasible"], among_feasible)
    return [difference for difference in found if not is_deviation(case, difference.builtin)]


PASSING = ("Success", "Skip")


def _compare_filters(verdicts: Json, answer: Answer) -> Iterator[Difference]:
    for column in answer.filters:
        builtin = column.rule.key
        plugin = PLUGINS[builtin]
        for position, name in enumerate(answer.names):
            said, status = verdicts[name][plugin], column.at(position)
            code = "Success" if said["code"] == "Skip" else said["code"]
            ours = str(status.code) if status else "Success"
            reasons = sorted(said.get("reasons", ()))
            reason = status.reason if status else ""
            if builtin == "CheckVolumeBinding" and is_refused_volume(code, reasons, reason):
                continue
            if ours != code:
                yield Difference(builtin, "verdict", name, (code, reasons), (ours, reason))
            elif all(text.startswith(TEXTS) for text in reasons) and sorted(reason.split(", ")) != (reasons or [""]):
                yield Difference(builtin, "reason", name, reasons, reason)


def _compare_scores(what: str, scores: Json, answer: Answer) -> Iterator[Difference]:
    for column in answer.scores:
        yield from _compare_score(what, scores[SCORES[column.rule.name]], column, answer.names)


def _compare_score(what: str, expected: Json, column: ScoreColumn, names: list[str]) -> Iterator[Difference]:
    if expected.get("error"):
        return  # kube-scheduler fails the Pod's whole cycle; the API server refuses such Pods
    # A plugin that is skipped adds nothing to any node's sum.
    points = dict.fromkeys(names, 0) if expected["skip"] else expected["nodes"]
    for name, raw in zip(names, column.raw.tolist(), strict=True):
        if raw != points[name]:
            yield Difference(column.rule.name, what, name, "Skip" if expected["skip"] else points[name], raw)


# Making a case small


def minimise(case: Json, differs: Callable[[Json], bool]) -> Json:
    """Leave out all that can be left out while the difference stays."""
    case = deepcopy(case)
    smaller = True
    while smaller:
        smaller = False
        for path in sorted(_paths(case), key=lambda path: (len(path), str(path))):
            without = _without(case, path)
            if without is not None and differs(without):
                case, smaller = without, True
    return case


def _paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Iterate over the ways to all members and items; the last items of a list first, so that earlier ways stay good."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for index in reversed(range(len(value))):
            yield (*path, index)
            yield from _paths(value[index], (*path, index))


KEPT = {("pod",), ("nodes",), ("pod", "metadata"), ("pod", "spec")}


def _without(case: Json, path: tuple[Any, ...]) -> Json | None:
    if path in KEPT or path[-1] in {"name", "uid"}:
        return None
    copy = deepcopy(case)
    parent: Any = copy
    try:
        for key in path[:-1]:
            parent = parent[key]
        del parent[path[-1]]
    except (KeyError, IndexError, TypeError):
        return None
    return copy


def differs_likewise(conversation: Conversation, difference: Difference) -> Callable[[Json], bool]:
    """Return the question whether a case still shows a difference of the same rule and kind."""

    def differs(case: Json) -> bool:
        expected = conversation.ask(case)
        if "error" in expected:
            return False
        found = compare(case, expected)
        return any(other.builtin == difference.builtin and other.what == difference.what for other in found)

    return differs


# Many cases


class Finding(NamedTuple):
    """A case whose answers differ."""

    number: int
    differences: list[Difference]


class Outcome(NamedTuple):
    """What a run gave: the findings, and how often each plugin said what."""

    findings: list[Finding]
    verdicts: Counter[tuple[str, str]]


def compare_range(program: Path, seed: int, numbers: range) -> Outcome:
    """Compare the cases with these numbers."""
    cases = [generate(seed, number) for number in numbers]
    findings, verdicts = [], Counter()
    for number, case, expected in zip(numbers, cases, answer_all(program, cases), strict=True):
        differences = compare(case, expected)
        if differences:
            findings.append(Finding(number, differences))
        for said in expected.get("filters", {}).values():
            verdicts.update((plugin, verdict["code"]) for plugin, verdict in said.items())
    return Outcome(findings, verdicts)


def compare_many(program: Path, seed: int, numbers: range) -> Outcome:
    """Compare the cases with these numbers, on all cores."""
    chunks = [numbers[start : start + CHUNK] for start in range(0, len(numbers), CHUNK)]
    findings, verdicts = [], Counter()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for outcome in pool.map(compare_range, *zip(*((program, seed, chunk) for chunk in chunks), strict=True)):
            findings += outcome.findings
            verdicts += outcome.verdicts
    return Outcome(findings, verdicts)


def report(program: Path, seed: int, finding: Finding) -> str:
    """Return how to see a finding again, and its smallest form."""
    first = finding.differences[0]
    case = generate(seed, finding.number)
    with Conversation(program) as conversation:
        small = minimise(case, differs_likewise(conversation, first))
        differences = compare(small, conversation.ask(small))
    shown = "\n".join(f"  {difference}" for difference in differences)
    again = f"python -m tests.differential.comparison --seed {seed} --first {finding.number} --cases 1"
    return f"{again}\n{shown}\n  {msgspec.json.encode(small).decode()}"


def main() -> int:
    """Run the comparison and print one small case for each rule and kind of difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential.comparison", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--each", type=int, default=1, help="how many cases to print of each kind")
    parser.add_argument("--program", type=Path, help="the Go program; else it is built when needed")
    parser.add_argument("--only", default="", help="built-ins to look at, comma-separated")
    asked = parser.parse_args()
    program = asked.program or build()
    started = time.monotonic()
    outcome = compare_many(program, asked.seed, range(asked.first, asked.first + asked.cases))
    seconds = time.monotonic() - started
    shown: Counter[tuple[str, str]] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    for finding in outcome.findings:
        kinds = {(difference.builtin, difference.what) for difference in finding.differences}
        counts.update(kinds)
        for kind in sorted(kinds):
            if shown[kind] >= asked.each or (asked.only and kind[0] not in asked.only.split(",")):
                continue
            shown[kind] += 1
            ordered = sorted(finding.differences, key=lambda difference: (difference.builtin, difference.what) != kind)
            print(report(program, asked.seed, Finding(finding.number, ordered)), "\n")
    print(f"{asked.cases} cases in {seconds:.1f} s, {len(outcome.findings)} differ")
    for (builtin, what), count in counts.most_common():
        print(f"  {builtin}, {what}: {count} cases")
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
