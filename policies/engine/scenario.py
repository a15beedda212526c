"""A simulation of where Pods would land if Berth's own scheduler placed them one after another. Pure.

Each Pod is decided on the Snapshot with the earlier Pods on their nodes. The default filters and the rule set that applies to the
Pod decide, and the Pod gets the node that `scheduling.pick` returns. Preemption, other schedulers, and changes of the cluster
meanwhile aren't simulated.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
import numpy as np

from policies.engine.decision import Answer, CompiledRevision, CompiledRuleSet
from policies.engine.explain import explain_node
from policies.engine.objects.columns import allocatable, requested
from policies.engine.objects.pod import Pod
from policies.engine.objects.resources import CPU, MEMORY
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows
from policies.engine.reuse import Judge
from policies.engine.rule import Cycle, go_on
from policies.engine.scheduling import default_profile, pick, usable_rows, with_default_filters
from policies.engine.status import Code


class Spread(msgspec.Struct, frozen=True, rename="camel"):
    """How evenly nodes are used: the share of a resource that is requested, on the emptiest and the fullest, and its standard deviation."""

    min: float
    max: float
    deviation: float


class Balance(msgspec.Struct, frozen=True, rename="camel"):
    """How evenly nodes are used, for the resources that Pods request most."""

    cpu: Spread
    memory: Spread


class Refusal(msgspec.Struct, frozen=True, rename="camel"):
    """A rule, the reason with which it refuses a Pod, and on how many nodes."""

    rule: str
    reason: str
    nodes: int


class Stop(msgspec.Struct, frozen=True, rename="camel"):
    """Why the next Pod gets no node: which Pod it is, which rules refuse it on how many nodes, and a sentence for one of these nodes."""

    pod: int
    refusals: list[Refusal]
    sentence: str


class Placed(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The outcome for Pods that are placed one after another.

    Attributes:
        rule_set: the rule set that applies to the first; "" for none, so that the default set decides.
        decided: how many Pods each rule set decided, "" for the default set; several where a canary draws for each Pod.
        asked: how many Pods there were.
        fits: how many got a node.
        nodes: how many Pods each node got, of the nodes that got any.
        landed: the node of each Pod, in order.
        before: how evenly nodes are used without these Pods.
        after: how evenly nodes are used with these Pods.
        stop: why the next Pod gets no node; None where all got one.
    """

    rule_set: str
    decided: Mapping[str, int]
    asked: int
    fits: int
    nodes: Mapping[str, int]
    landed: Sequence[str]
    before: Balance
    after: Balance
    stop: Stop | None = None


def place_pods(
    revision: CompiledRevision,
    snapshot: Snapshot,
    pods: Iterable[Pod],
    now: datetime,
    *,
    after: str = "",
    node_label: tuple[str, str] | None = None,
    give_way: Callable[[], None] = go_on,
) -> Placed:
    """Place Pods one after another, until one gets no node.

    Args:
        revision: the rules.
        snapshot: the cluster before.
        pods: in their order; each with a uid and JSON of its own.
        now: the moment that rules see.
        after: the node that was picked last before; "" for none.
        node_label: key and value of the label that nodes must have to be used; None for all nodes.
        give_way: as for a Cycle.

    Raises:
        DeadlineError: raised by `give_way`.
    """
    waiting = list(pods)
    before = balance_of(snapshot)
    decided: Counter[str] = Counter()
    landed: list[str] = []
    stop = None
    placer = _Placer(revision, now, usable_rows(snapshot.table, node_label), after)
    for number, pod in enumerate(waiting, 1):
        rule_set = placer.rule_set_for(pod, snapshot)
        decided["" if rule_set is default_profile() else rule_set.name] += 1
        cycle = Cycle(pod=pod, snapshot=snapshot, now=now, params=rule_set.params, give_way=give_way)
        node, answer = placer.place(rule_set, cycle)
        give_way()  # so that a deadline ends the simulation, and doesn't decide a Pod
        if not node:
            stop = _stop(number, rule_set, cycle, answer)
            break
        landed.append(node)
        snapshot = snapshot.assume(pod, node)
    counts = {node: landed.count(node) for node in sorted(set(landed))}
    balance = balance_of(snapshot)
    return Placed(
        rule_set=next(iter(decided), ""), decided=dict(decided), asked=len(waiting), fits=len(landed), nodes=counts, landed=landed,
        before=before, after=balance, stop=stop,
    )  # fmt: skip


class _Placer:
    """Decides as `scheduler.binder.cycle.Profile` does. For a single run, since it remembers the last node."""

    def __init__(self, revision: CompiledRevision, now: datetime, rows: Rows, after: str) -> None:
        self._revision, self._now, self._rows, self._after = revision, now, rows, after
        self._judge = Judge()
        self._profiles: dict[int, tuple[CompiledRuleSet, CompiledRuleSet]] = {}

    def rule_set_for(self, pod: Pod, snapshot: Snapshot) -> CompiledRuleSet:
        chosen = self._revision.choose(pod, snapshot, self._now).enforced
        if chosen is None:
            return default_profile()
        own = chosen[1]
        if id(own) not in self._profiles:
            # The value holds the rule set itself, so that no other object can get its id.
            self._profiles[id(own)] = (own, with_default_filters(own).enforced)
        return self._profiles[id(own)][1]

    def place(self, rule_set: CompiledRuleSet, cycle: Cycle) -> tuple[str, Answer]:
        rows = self._rows  # added Pods don't change these
        answer = self._judge.judge(rule_set, cycle, rows)
        is_default = rule_set is default_profile()
        position = pick(answer, cycle, rows, after=self._after, is_default_profile=is_default)
        if position is None:
            return "", answer
        self._after = cycle.table.names[rows[position]]
        return self._after, answer


def balance_of(snapshot: Snapshot) -> Balance:
    """Return how evenly the nodes of a Snapshot are used."""
    return Balance(_spread(snapshot, CPU), _spread(snapshot, MEMORY))


def _spread(snapshot: Snapshot, resource: str) -> Spread:
    """Return the spread over the nodes that have any of the resource."""
    has, asked = allocatable(snapshot.table, resource), requested(snapshot.table, resource)
    shares = asked[has > 0] / has[has > 0]
    if not len(shares):
        return Spread(0.0, 0.0, 0.0)
    return Spread(*(round(float(each), 4) for each in (shares.min(), shares.max(), shares.std())))


def _stop(number: int, rule_set: CompiledRuleSet, cycle: Cycle, answer: Answer) -> Stop:
    counts: dict[tuple[str, str], int] = {}
    example: dict[tuple[str, str], int] = {}
    for column in answer.filters:
        for code, status in enumerate(column.statuses):
            refused = np.flatnonzero(column.codes == code)
            if len(refused):
                key = (column.rule.key, status.reason)
                counts[key] = counts.get(key, 0) + len(refused)
                example.setdefault(key, int(refused[0]))
    if not counts:
        none = "none of the nodes has the label of those that Berth's own scheduler uses"
        return Stop(number, [], none if len(cycle.table) else "there are no nodes")
    ordered = sorted(counts, key=lambda key: (-counts[key], key))
    explained = explain_node(rule_set, cycle, answer.name_at(example[ordered[0]]))
    refusing = (rule for rule in explained.rules if rule.code != Code.SUCCESS and rule.mode == "enforce" and rule.asked)
    sentence = next((rule.sentence for rule in refusing), ordered[0][1])
    return Stop(number, [Refusal(*key, counts[key]) for key in ordered], sentence)
