"""The fields that each rule of a checked rule set reads, and its cost in a decision: for pages, in words."""

from collections.abc import Mapping, Sequence

from policies.checking.wire import Facts
from policies.engine.cel import Cost, Expression, Result, VictimExpression
from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.objects.node import Path, spelled
from policies.engine.rule import Scope
from policies.engine.ruleset import FilterRule, RuleSet, ScoreRule, VictimRule
from policies.engine.scores.registry import BUILTIN_SCORES

_MOST_PATHS = 4
_SCOPES = {
    Scope.NODE: "its node",
    Scope.NODE_AND_PODS: "its node and the Pods on it",
    Scope.CLUSTER: "Pods of the whole cluster",
}
# A smaller cost is shown as nothing.
_NOTHING = 0.1


def facts_of(rule_set: RuleSet) -> list[Facts]:
    """Return the facts of each rule, filters first."""
    spec = rule_set.spec
    return [
        *(("filter", rule.key, *_facts(rule, Result.BOOLEAN, spec.params)) for rule in spec.filters),
        *(("score", rule.key, *_facts(rule, Result.NUMBER, spec.params)) for rule in spec.scores),
        *(("victim", rule.key, *_of_victims(rule, spec.params)) for rule in spec.victims),
    ]


def _facts(rule: FilterRule | ScoreRule, result: Result, params: dict[str, object]) -> tuple[list[str], str]:
    if rule.builtin:
        builtins = BUILTIN_FILTERS if isinstance(rule, FilterRule) else BUILTIN_SCORES
        return [_SCOPES[builtins[rule.builtin].scope]], ""
    expression = Expression(rule.expression, result)
    paths = _paths(expression.reads, reads_now=expression.reads_now)
    counted = [_SCOPES[expression.scope]] if expression.counts_pods else []
    return [*paths, *counted], _cost(expression.cost(params))


def _of_victims(rule: VictimRule, params: dict[str, object]) -> tuple[list[str], str]:
    expression = VictimExpression(rule.expression)
    return _paths(expression.reads), _cost(expression.cost(params))


def _paths(reads: Mapping[str, Sequence[Path]], *, reads_now: bool = False) -> list[str]:
    found = sorted(spelled(root, path) for root, paths in reads.items() for path in paths)
    more = len(found) - _MOST_PATHS
    named = [*found[:_MOST_PATHS], *([f"{more} more"] if more > 0 else [])]
    return [*named, *(["now"] if reads_now else [])]


def _cost(cost: Cost) -> str:
    milliseconds = cost.milliseconds()
    if milliseconds < _NOTHING:
        return f"costs next to nothing in {cost.occasion}"
    return f"costs about {milliseconds:,.1f} ms in {cost.occasion}"
