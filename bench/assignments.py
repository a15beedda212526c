"""The cost of matching a Pod: microseconds to choose among 20, 200 and 2,000 Assignments, by kind of match.

`python -m bench.assignments` prints the median for each kind of match, and the ratio of the most Assignments to the fewest beside its
aim. It prints the same for canaries that all match, and the time to compile 2,000 Assignments with params of their own, beside that for
200 rule sets. Half of the Pods match an Assignment. Figures depend on this machine's processor: compare only those of one run.
"""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

from bench.arguments import parse_no_arguments
from bench.running import machine
from policies.engine.decision import EPOCH, CompiledRevision
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import Assignment, FilterRule, LabelMatch, Match, Revision, RuleSet, RuleSetSpec

SIZES = (20, 200, 2_000)
AIM = 1.25
_PODS, _TURNS = 40, 25
# Kinds of the Pods' owners.
_KINDS = ("Deployment", "StatefulSet", "DaemonSet", "Job")

RULES = RuleSet(
    name="teams",
    spec=RuleSetSpec(
        filters=[
            FilterRule(name="team", expression="node.metadata.?labels.team.orValue('') == params.team", reason="other")
        ],
        params={"team": "nobody"},
    ),
)

MATCHES: dict[str, Callable[[int], Match]] = {
    "namespace": lambda number: Match(namespaces=[f"team-{number}"]),
    "Pod label": lambda number: Match(pod_selector=LabelMatch(match_labels={"team": f"team-{number}"})),
    "namespace label": lambda number: Match(namespace_selector=LabelMatch(match_labels={"team": f"team-{number}"})),
    "namespace and kind of owner": lambda number: Match(
        namespaces=[f"team-{number}"], owner_kinds=[_KINDS[number % 2], "none"]
    ),
}


def pod(number: int, size: int) -> Pod:
    """Return a Pod of a Deployment, every second one of a team that has an Assignment."""
    team = f"team-{number * 7 % size if number % 2 else size + number}"
    owner = {"kind": "ReplicaSet", "name": "web-5d4f", "uid": f"u{number}", "controller": True}
    labels = {"team": team, "app": "web", "pod-template-hash": "5d4f", "tier": "front"}
    metadata = {"name": f"p{number}", "namespace": team, "uid": f"p{number}", "labels": labels}
    return Pod.from_json({"metadata": {**metadata, "ownerReferences": [owner]}, "spec": {"containers": []}})


def assignments(size: int, match: Callable[[int], Match], **fields: Any) -> list[Assignment]:
    """Return `size` Assignments of one rule set."""
    return [
        Assignment(name=f"a{number}", rule_set="teams", order=number, match=match(number), **fields)
        for number in range(size)
    ]


def choosing(made: list[Assignment], size: int) -> float:
    """Return the microseconds for choosing an Assignment, the median of many turns."""
    revision = CompiledRevision(Revision(number=1, rule_sets=[RULES], assignments=made))
    pods = [pod(number, size) for number in range(_PODS)]
    namespaces = {each.namespace: {"team": each.namespace, "env": "live"} for each in pods}
    snapshot = Snapshot.of([], [], namespaces=namespaces)
    taken = []
    for _ in range(_TURNS):
        started = perf_counter()
        for each in pods:
            revision.choose(each, snapshot, EPOCH)
        taken.append((perf_counter() - started) * 1e6 / _PODS)
    return median(taken)


def compiling(revision: Revision) -> float:
    """Return the milliseconds for compiling a Revision."""
    started = perf_counter()
    CompiledRevision(revision)
    return (perf_counter() - started) * 1e3


def main() -> None:
    """Print the results."""
    parse_no_arguments(__doc__)
    print(machine())
    for kind, match in MATCHES.items():
        found = [choosing(assignments(size, match), size) for size in SIZES]
        ratio = found[-1] / found[0]
        figures = ", ".join(f"{size:,}: {each:.1f} µs" for size, each in zip(SIZES, found, strict=True))
        reached = "reached" if ratio <= AIM else "missed"
        print(f"{kind:<28} {figures} [ratio {ratio:.2f}, aim {AIM}: {reached}]")
    for percent in (1, 100):
        made = assignments(1, lambda _: Match(), mode="canary", percent=percent)
        print(f"one canary of {percent} % {choosing(made, 1):.1f} µs")
    teams = [
        Assignment(name=f"a{number}", rule_set="teams", order=number, params={"team": f"team-{number}"})
        for number in range(SIZES[-1])
    ]
    milliseconds = compiling(Revision(number=1, rule_sets=[RULES], assignments=teams))
    print(f"{SIZES[-1]:,} Assignments with params of one rule set: compiled in {milliseconds:.0f} ms")
    few = SIZES[1]
    own = [RuleSet(name=f"teams-{number}", spec=RULES.spec) for number in range(few)]
    teams = [Assignment(name=f"a{number}", rule_set=f"teams-{number}", order=number) for number in range(few)]
    milliseconds = compiling(Revision(number=1, rule_sets=own, assignments=teams))
    print(f"{few} Assignments with a rule set each: compiled in {milliseconds:.0f} ms")


if __name__ == "__main__":
    main()
