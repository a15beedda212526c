"""Deciding for a scheduler that binds Pods itself: which node a Pod gets. Pure.

kube-scheduler runs its own filters besides the extender; here nothing else filters. So the filters of the classic default set
that a rule set doesn't have itself are evaluated before its own: no Pod is ever bound to a node without room for it.
"""

import copy
from bisect import bisect_right
from functools import lru_cache

import msgspec
import numpy as np

from policies.engine.decision import (
    NOT_EVALUATED,
    NOT_IN_TIME,
    Answer,
    CompiledRuleSet,
    FilterColumn,
    run_filters,
    run_scores,
)
from policies.engine.default_set import default_document, default_rule_set
from policies.engine.filters.bound_volumes import CheckResourceClaims, CheckVolumeBinding
from policies.engine.filters.declared_features import NodeDeclaredFeatures
from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.objects.columns import label
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows, Table
from policies.engine.rule import Cycle, Filter
from policies.engine.ruleset import FilterRule, RuleSet
from policies.engine.status import PASSED

_BINDS_LATE = CheckVolumeBinding(binds_late=True)
# Filters that are always evaluated, and can't be rules of a rule set: for what Berth, or a node's kubelet, doesn't support.
# An unbound claim or device keeps the Pod off every node. Like kube-scheduler v1.36.3's PreFilter, these filters come first, so
# that this is the reason given.
_ASKED_FIRST: tuple[tuple[FilterRule, Filter], ...] = (
    (FilterRule(builtin="CheckVolumeBinding"), CheckVolumeBinding()),
    (FilterRule(builtin="CheckResourceClaims"), CheckResourceClaims()),
)
_ASKED_LAST: tuple[tuple[FilterRule, Filter], ...] = (
    (FilterRule(builtin="NodeDeclaredFeatures"), NodeDeclaredFeatures()),
)
ALWAYS_ASKED = (*_ASKED_FIRST, *_ASKED_LAST)


@lru_cache(maxsize=1)
def default_profile() -> CompiledRuleSet:
    """Return the rules for Pods that no Assignment takes, always the same object: the default set, and the filters that always apply."""
    rule_set = default_rule_set()
    rule_set.filters = [*_ASKED_FIRST, *rule_set.filters, *_ASKED_LAST]
    rule_set.reads |= CheckVolumeBinding.reads
    return rule_set


def with_default_filters(rule_set: CompiledRuleSet) -> CompiledRuleSet:
    """Return a rule set that first has the filters of the classic default set that it doesn't enforce itself, then its own.

    Scores, victims and failures are its own. Where it has a built-in of the default set in mode enforce, that rule with its
    arguments replaces the default one.
    """
    own = {type(made) for rule, made in rule_set.filters if rule.mode == "enforce"}
    default = default_profile()
    found = copy.copy(rule_set)
    guards = [(rule, made) for rule, made in default.filters if type(made) not in own]
    found.take([*guards, *rule_set.filters], rule_set.scores)
    return found


def document_with_default_filters(rule_set: RuleSet | None) -> RuleSet:
    """Return the document that `with_default_filters` compiles, without the filters that always apply; the default profile's for None."""
    default = default_document()
    if rule_set is None:
        return default
    own = {BUILTIN_FILTERS[rule.builtin] for rule in rule_set.spec.filters if rule.builtin and rule.mode == "enforce"}
    guards = [rule for rule in default.spec.filters if BUILTIN_FILTERS[rule.builtin] not in own]
    spec = msgspec.structs.replace(rule_set.spec, filters=[*guards, *rule_set.spec.filters])
    return msgspec.structs.replace(rule_set, spec=spec)


def as_kube_scheduler(profile: CompiledRuleSet) -> CompiledRuleSet:
    """Return a profile as kube-scheduler would apply it: kube-scheduler binds claims at their first consumer and allocates devices.

    It isn't known on which nodes kube-scheduler would find no volume or device: such nodes pass.
    """
    found = copy.copy(profile)
    kept = [(rule, made) for rule, made in profile.filters if not isinstance(made, CheckResourceClaims)]
    filters = [(rule, _BINDS_LATE if isinstance(made, CheckVolumeBinding) else made) for rule, made in kept]
    found.take(filters, profile.scores)
    return found


def usable_rows(table: Table, node_label: tuple[str, str] | None) -> Rows:
    """Return the nodes that the scheduler uses: those with its label (key and value), or all nodes where it has no label."""
    if node_label is None:
        return table.all_rows()
    key, value = node_label
    column = label(table, key)
    return np.flatnonzero(column.codes == column.code_of.get(value, -1))


def judge(rule_set: CompiledRuleSet, cycle: Cycle, rows: Rows) -> Answer:
    """Filter the nodes, also as they will be with the Pods nominated to them, and score those that pass.

    A node to which Pods of at least this Pod's priority are nominated must pass with them and without them
    (kube-scheduler v1.36.3 framework/runtime/framework.go, RunFilterPluginsWithNominatedPods). The refusals with them
    are columns of their own, after the others.

    Args:
        rule_set: the rules, see `with_default_filters`.
        cycle: the Pod, the Snapshot with `nominated`, and the moment. Where its `give_way` ends a rule, the rule set's
            `failures.deadline` decides, as in `decide`.
        rows: the nodes that may be used, as rows of the Snapshot's table.
    """
    answer = Answer.about(cycle.table, rows)
    run_filters(rule_set, cycle, rows, answer)
    if cycle.snapshot.nominated:
        _filter_with_nominated(rule_set, cycle, rows, answer)
    answer.scored = np.flatnonzero(answer.refusal == PASSED)
    run_scores(rule_set, cycle, rows[answer.scored], answer)
    return answer


def _filter_with_nominated(rule_set: CompiledRuleSet, cycle: Cycle, rows: Rows, answer: Answer) -> None:
    """Filter again the nodes to which Pods are nominated, each as if it alone had them already, as kube-scheduler does."""
    snapshot = cycle.snapshot
    together = snapshot.with_nominated(cycle.pod)
    if together is None:
        return
    positions = _positions_of_nominated(snapshot, together, rows)
    positions = positions[answer.refusal[positions] == PASSED]
    coming = [pod for waiting in snapshot.nominated.values() for pod in waiting]
    if not any(made.looks_around(cycle.pod, snapshot, coming) for _, made in rule_set.filters):
        _filter_again(rule_set, cycle, rows, answer, together=together, positions=positions)
        return
    for position in positions:
        name = snapshot.table.names[rows[position]]
        alone = snapshot.changed({name: together.node(name)}, nominated={})
        _filter_again(rule_set, cycle, rows, answer, together=alone, positions=np.array([position]))


def _filter_again(
    rule_set: CompiledRuleSet, cycle: Cycle, rows: Rows, answer: Answer, *, together: Snapshot, positions: Rows
) -> None:
    asked = rows[positions]
    again = Answer.about(together.table, asked)
    changed = Cycle(pod=cycle.pod, snapshot=together, now=cycle.now, params=cycle.params, give_way=cycle.give_way)
    run_filters(rule_set, changed, asked, again)
    if again.missed:
        _miss(answer, again, positions)
    for column in again.filters:
        if column.rule.mode == "enforce" and (column.codes >= 0).any():
            codes = np.full(len(rows), NOT_EVALUATED, dtype=np.int32)
            codes[positions] = column.codes
            refused = codes >= 0
            answer.refusal[refused] = codes[refused] + len(answer.refusals)
            answer.refusals += column.statuses
            answer.filters.append(FilterColumn(column.rule, codes, column.statuses, column.faults))


def _miss(answer: Answer, again: Answer, positions: Rows) -> None:
    """Take over the rules that weren't evaluated before the deadline, and the rule set's choice for the nodes: refused or not."""
    answer.missed += [key for key in again.missed if key not in answer.missed]
    refused = positions[[code >= 0 and again.refusals[code] is NOT_IN_TIME for code in again.refusal.tolist()]]
    answer.refusal[refused] = len(answer.refusals)
    answer.refusals.append(NOT_IN_TIME)


def _positions_of_nominated(alone: Snapshot, together: Snapshot, rows: Rows) -> Rows:
    """Return the positions in `rows` of the nodes that differ: those with nominated Pods that count."""
    row_of = alone.table.row_of
    differing = [row_of[name] for name in alone.nominated if alone.node(name) is not together.node(name)]
    return np.flatnonzero(np.isin(rows, differing))


def pick(answer: Answer, cycle: Cycle, rows: Rows, *, after: str, is_default_profile: bool) -> int | None:
    """Return the position in `rows` of the node that the Pod gets; None when none is feasible.

    Of the best nodes (`find_best`) it is the one whose name follows `after`; the first name follows the last. So identical Pods don't
    all land on the first node, and the same input gives the same node, in whichever order nodes were seen.

    Args:
        answer: from `judge`.
        cycle: as given to `judge`.
        rows: as given to `judge`.
        after: the node that was picked last; "" for none.
        is_default_profile: whether the totals are the default set's own.
    """
    best = find_best(answer, cycle, rows, is_default_profile=is_default_profile)
    if not len(best):
        return None
    names, places = cycle.table.by_name()
    theirs = places[rows[best]]
    # Names before `after` come last, in their order.
    return int(best[((theirs - bisect_right(names, after)) % len(names)).argmin()])


def find_best(answer: Answer, cycle: Cycle, rows: Rows, *, is_default_profile: bool) -> Rows:
    """Return the positions in `rows` of the best nodes: the highest exact total, then the highest by the classic default set."""
    best = _highest(answer.scored, answer.totals)
    if len(best) > 1 and not is_default_profile:
        ranked = Answer.about(cycle.table, rows[best])
        run_scores(default_profile(), cycle, rows[best], ranked)
        best = _highest(best, ranked.totals)
    return best


def _highest(positions: Rows, totals: np.ndarray) -> Rows:
    return positions[totals == totals.max()] if len(positions) else positions
