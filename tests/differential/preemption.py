"""Compares Berth's preemption with kube-scheduler's own DefaultPreemption, case by case. Needs no Django."""

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from policies.engine.decision import EPOCH
from policies.engine.default_set import default_rule_set
from policies.engine.objects.cluster_kinds import PodDisruptionBudget
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.dry_run import (
    NEVER,
    STILL_LEAVING,
    DryRun,
    Preemption,
    Search,
    cost,
    pods_of,
    search,
    wanted,
)
from policies.engine.preemption.fit import Fitting
from policies.engine.preemption.vetoes import Candidate
from policies.engine.rule import Cycle
from policies.engine.scheduling import judge
from policies.engine.status import Code
from tests.differential.comparison import minimise
from tests.differential.deviations import may_preempt_otherwise
from tests.differential.plugins import Conversation, answer_all, build
from tests.differential.preemption_cases import generate_preemption

Json = dict[str, Any]

RULES = default_rule_set()


class Situation(NamedTuple):
    """A case as Berth reads it."""

    pod: Pod
    snapshot: Snapshot
    budgets: list[PodDisruptionBudget]


def read(case: Json) -> Situation:
    pods = [Pod.from_json(pod) for pod in case["pods"]]
    nominated: dict[str, list[Pod]] = {}
    for pod in pods:
        if not pod.spec.node_name and pod.parsed.status.nominated_node_name:
            nominated.setdefault(pod.parsed.status.nominated_node_name, []).append(pod)
    snapshot = Snapshot.of(
        map(Node.from_json, case["nodes"]),
        pods,
        {entry["metadata"]["name"]: entry["metadata"].get("labels", {}) for entry in case.get("namespaces", ())},
        objects=ClusterObjects.from_json(case),
    )
    budgets = msgspec.convert(case.get("podDisruptionBudgets", []), list[PodDisruptionBudget])
    return Situation(Pod.from_json(case["pod"]), snapshot.changed({}, nominated=nominated), budgets)


class Outcome(NamedTuple):
    """What Berth does: nodes that pass, else the search, and the candidates in the order that the case asks for.

    Attributes:
        potential: the nodes that may be freed.
        everywhere: candidate of each node that can be freed.
        by_chance: whether there are so many nodes that kube-scheduler looks at some only, beginning anywhere.
    """

    feasible: list[str]
    search: Search
    candidates: list[Candidate]
    potential: list[str]
    everywhere: dict[str, Candidate]
    by_chance: bool


def decided(case: Json) -> Outcome:
    situation = read(case)
    pod, snapshot, budgets = situation
    cycle = Cycle(pod=pod, snapshot=snapshot, now=EPOCH)
    answer = judge(RULES, cycle, snapshot.table.all_rows())
    if answer.feasible_count:
        return Outcome(answer.feasible, Search(), [], [], {}, by_chance=False)
    found = search(cycle=cycle, rule_set=RULES, budgets=budgets, answer=answer)
    potential = [name for name, status in answer.refused() if status.code is Code.UNSCHEDULABLE]
    dry_run = DryRun(cycle, budgets, Fitting(RULES, cycle))
    enough = min(case.get("wanted") or wanted(len(potential)), len(potential))
    candidates = dry_run.candidates(potential, case["offset"], enough)
    by_chance = wanted(len(potential)) < len(potential)
    everywhere = dry_run.candidates(potential, 0, len(potential)) if by_chance else found.candidates
    return Outcome([], found, candidates, potential, {each.node: each for each in everywhere}, by_chance)


def differences(case: Json, expected: Json) -> list[str]:
    """Return what Berth does otherwise than the Go program; of equals it may choose any."""
    if _plugin_fails(expected) or may_preempt_otherwise(case):
        return []  # where a plugin fails, kube-scheduler gives the Pod up, and Berth refuses one node
    if "error" in expected:
        raise AssertionError(
            f"the Go program can't evaluate this case: {expected['error']}\n{msgspec.json.encode(case).decode()}"
        )
    try:
        outcome = decided(case)
    except Exception as error:  # noqa: BLE001 - a fault of the engine is a difference like any other
        place = traceback.extract_tb(error.__traceback__)[-1]
        return [f"fault: {type(error).__name__}: {error} ({Path(place.filename).name}, {place.name})"]
    if outcome.feasible or expected["feasible"]:
        same = outcome.feasible == expected["feasible"]
        return [] if same else [f"feasible: kube-scheduler {expected['feasible']}, Berth {outcome.feasible}"]
    return list(_differences(outcome, expected))


def _plugin_fails(expected: Json) -> bool:
    """Return whether a plugin ended with an error, when nodes were filtered or when Pods were thought away."""
    return "failed" in expected or expected.get("error", "").startswith("running ")


def _differences(outcome: Outcome, expected: Json) -> Iterator[str]:
    ours, theirs = [_written(candidate) for candidate in outcome.candidates], expected["candidates"]
    if set(outcome.potential) != {name for name, code in expected["statuses"].items() if code == "Unschedulable"}:
        # kube-scheduler asks about a node with nominated Pods first with them, and Berth first without them: the code that is
        # found first may be another, and so what the offset counts. What can be freed is the same.
        ours, theirs = sorted(ours, key=_node), sorted(theirs, key=_node)
    if ours != theirs:
        yield f"candidates: kube-scheduler {expected['candidates']}, Berth {ours}"
    found = outcome.search
    message = expected.get("message", "").removeprefix("preemption: ")
    ineligible = message if message in {NEVER, STILL_LEAVING} else ""
    if found.keeps_nomination or ineligible:
        if found.reason != ineligible:
            yield f"eligible: kube-scheduler {message!r}, Berth {found.reason!r}"
        return
    if found.preemption is None or not expected["node"]:
        if found.preemption is not None or expected["node"]:
            yield f"node: kube-scheduler {expected['node']!r}, Berth {found.preemption}"
        return
    yield from _differing_choice(outcome, found.preemption, expected)


def _differing_choice(outcome: Outcome, chosen: Preemption, expected: Json) -> Iterator[str]:
    theirs = outcome.everywhere.get(expected["node"])
    if theirs is None:
        yield f"node: kube-scheduler {expected['node']}, which isn't among Berth's candidates"
        return
    equals = equals_of(outcome.search)
    if expected["node"] not in equals and not outcome.by_chance:
        yield f"node: kube-scheduler {expected['node']}, Berth one of {equals}"
    victims = sorted(pod.uid for pod in pods_of(theirs) if not pod.is_deleting)
    if victims != sorted(expected["evicted"]):
        yield f"victims: kube-scheduler {expected['evicted']}, Berth {victims}"
    if expected["node"] == chosen.node and sorted(pod.uid for pod in chosen.yielding) != sorted(expected["cleared"]):
        yield f"yielding: kube-scheduler {expected['cleared']}, Berth {[pod.uid for pod in chosen.yielding]}"


def equals_of(found: Search) -> list[str]:
    """Name the nodes that kube-scheduler would choose from by chance: none is better than the one chosen."""
    if found.preemption is None:
        return []
    costs = {candidate.node: cost(candidate, EPOCH) for candidate in found.candidates}
    return [name for name, each in costs.items() if each == costs[found.preemption.node]]


def _node(written: Json) -> str:
    return str(written["node"])


def _written(candidate: Candidate) -> Json:
    victims = [victim.uid for victim in candidate.victims]
    return {"node": candidate.node, "victims": victims, "pdbViolations": candidate.pdb_violations}


# Many cases


class Finding(NamedTuple):
    """A case in which Berth does otherwise."""

    number: int
    differences: list[str]


def compare_preemptions(program: Path, seed: int, numbers: range) -> tuple[list[Finding], Counter[str]]:
    """Compare the cases with these numbers; returns what differs, and how often what was seen in kube-scheduler."""
    findings, seen = [], Counter[str]()
    for start in range(0, len(numbers), 1000):
        chunk = numbers[start : start + 1000]
        cases = [generate_preemption(seed, number) for number in chunk]
        for number, case, expected in zip(chunk, cases, answer_all(program, cases, "preemption"), strict=True):
            if differing := differences(case, expected):
                findings.append(Finding(number, differing))
            seen.update(_kinds(expected))
    return findings, seen


def _kinds(expected: Json) -> Iterator[str]:
    if _plugin_fails(expected) or expected["feasible"]:
        yield "fails" if _plugin_fails(expected) else "fits"
        return
    yield "preempts" if expected["node"] else "can't preempt"
    candidates = expected["candidates"]
    message = expected.get("message", "").removeprefix("preemption: ")
    for kind, holds in {
        "several candidates": len(candidates) > 1,
        "several victims": any(len(each["victims"]) > 1 for each in candidates),
        "a violated budget": any(each["pdbViolations"] for each in candidates),
        "never": message == NEVER,
        "still leaving": message == STILL_LEAVING,
        "a Pod yields": bool(expected["cleared"]),
        "fewer candidates wanted than there are": expected["wanted"] < sum(
            code == "Unschedulable" for code in expected["statuses"].values()
        ),
    }.items():  # fmt: skip
        if holds:
            yield kind


def report(program: Path, seed: int, finding: Finding) -> str:
    """Return how to see a finding again, and its smallest form."""
    case = generate_preemption(seed, finding.number)
    kind = finding.differences[0].partition(":")[0]
    with Conversation(program, "preemption") as conversation:
        small = minimise(case, _differs_likewise(conversation, kind))
        shown = differences(small, conversation.ask(small))
    again = f"python -m tests.differential.preemption --seed {seed} --first {finding.number} --cases 1"
    return "\n  ".join([again, *shown, msgspec.json.encode(small).decode()])


def _differs_likewise(conversation: Conversation, kind: str) -> Callable[[Json], bool]:
    def differs(case: Json) -> bool:
        if not _is_clear(case):
            return False
        expected = conversation.ask(case)
        return "error" not in expected and any(text.startswith(kind) for text in differences(case, expected))

    return differs


def _is_clear(case: Json) -> bool:
    """Return whether nothing in the case is left to chance: of Pods alike on a node at most one hasn't started."""
    if not {"pod", "nodes", "pods", "offset"} <= case.keys():
        return False
    named = [*case["pods"], *case["nodes"]]
    if not all("name" in entry.get("metadata", {}) for entry in named):
        return False
    spots = Counter(
        (pod.get("spec", {}).get("nodeName", ""), pod.get("spec", {}).get("priority", 0))
        for pod in case["pods"]
        if "startTime" not in pod.get("status", {})
    )
    return all(number == 1 or not node for (node, _), number in spots.items())


def main() -> int:
    """Run the comparison and print one small case for each kind of difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential.preemption", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--cases", type=int, default=2000)
    asked = parser.parse_args()
    program = build()
    findings, seen = compare_preemptions(program, asked.seed, range(asked.first, asked.first + asked.cases))
    shown = set()
    for finding in findings:
        kind = finding.differences[0].partition(":")[0]
        if kind not in shown:
            shown.add(kind)
            print(report(program, asked.seed, finding), end="\n\n")
    print(f"{len(findings)} of {asked.cases} cases differ; seen in kube-scheduler: {dict(seen)}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
