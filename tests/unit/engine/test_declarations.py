"""What rules say of themselves is true of every rule that there is, and a false word is found."""

from collections import Counter
from functools import cache
from typing import Any

import msgspec
import pytest

from policies.engine.cel import Expression, Result
from policies.engine.filters.bound_volumes import CheckResourceClaims, CheckVolumeBinding
from policies.engine.filters.declared_features import NodeDeclaredFeatures
from policies.engine.filters.expression import ExpressionFilter
from policies.engine.filters.inter_pod_affinity import MatchInterPodAffinity
from policies.engine.filters.node_affinity import MatchNodeSelector
from policies.engine.filters.node_resources import PodFitsResources
from policies.engine.filters.pod_topology_spread import EvenPodsSpread
from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.filters.volume_zone import NoVolumeZoneConflict
from policies.engine.objects.cluster_kinds import ALL_KINDS, CLAIMS, SERVICES
from policies.engine.rule import (
    NAMESPACE,
    NODE,
    NODE_GONE,
    POD_CAME,
    POD_CHANGES,
    POD_GONE,
    POD_LEAVES,
    Detail,
    Filter,
    NoArguments,
    Scope,
    Score,
)
from policies.engine.ruleset import FilterRule, ScoreRule
from policies.engine.scores.expression import ExpressionScore
from policies.engine.scores.inter_pod_affinity import InterPodAffinityPriority
from policies.engine.scores.node_resources import LeastRequestedPriority
from policies.engine.scores.registry import BUILTIN_SCORES
from policies.engine.scores.selector_spread import SelectorSpreadPriority
from tests.unit.engine.declarations import Asked, contradictions, worlds

WORLDS = 80
SPREAD = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
EXISTS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
# Built-in -> arguments with which it has more to say than without; with none it is asked too, if it takes none.
ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "CheckNodeLabelPresence": [{"labels": ["disk"]}, {"labels": ["rack"], "presence": False}],
    "EvenPodsSpread": [{}, {"defaultingType": "List", "defaultConstraints": [SPREAD]}],
    "EvenPodsSpreadPriority": [{}, {"defaultingType": "List"}],
    "MatchNodeSelector": [{}, {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": EXISTS}}],
    "MaxReplicasPerDomain": [{"maxReplicas": 1}, {"maxReplicas": 2, "topologyKey": "rack"}],
    "NodeLabelPriority": [{"label": "disk"}],
    "NodeResourcesFit": [{}, {"scoringStrategy": {"type": "MostAllocated"}}],
    "PodFitsResources": [{}, {"ignoredResources": ["example.com/gpu"]}],
    "ServiceAffinity": [{"labels": ["rack"]}],
    "ServiceAntiAffinityPriority": [{"label": "rack"}],
}
FILTERS = [
    "node.metadata.?labels.disk.orValue('') == 'ssd'",
    "pod.metadata.?labels.app.orValue('') != node.metadata.?labels.team.orValue('')",
    "int(usage.allocatable.cpu) > 3000",
    "int(usage.free.cpu) > 1500",
    "usage.free.cpu - requests.cpu >= 500",
    "namespaceObject.metadata.labels.?env == optional.of('prod')",
    "node.count({'app': 'web'}) < params.most",
    "topology.count('rack', {'app': 'web'}) < 2",
    "cluster.countInAllNamespaces({'app': 'web'}) < 2",
    "now.getHours() > 12",
]
SCORES = [("size(node.metadata.name)", None), ("int(usage.free.cpu)", None), ("int(usage.free.cpu)", (0, 8000))]
SCORES += [("int(usage.allocatable.cpu)", None), ("0 - cluster.count({'app': 'web'})", (-9, 0))]


def registered() -> dict[str, Filter | Score]:
    """Make every rule that there is, the built-ins once for each of their arguments."""
    found: dict[str, Filter | Score] = {
        "binding": CheckVolumeBinding(),
        "claims": CheckResourceClaims(),
        "features": NodeDeclaredFeatures(),
    }
    for made in {*BUILTIN_FILTERS.values(), *BUILTIN_SCORES.values()}:
        for index, arguments in enumerate(ARGUMENTS.get(made.__name__, [{}])):
            found[f"{made.__name__}-{index}"] = made(msgspec.convert(arguments, made.Arguments))
    for source in FILTERS:
        found[source] = ExpressionFilter(FilterRule(name="f", expression=source))
    for source, bounds in SCORES:
        found[f"{source} {bounds}"] = ExpressionScore(ScoreRule(name="s", expression=source, bounds=bounds))
    return found


class SaysNodeAndLooksAtPods(PodFitsResources):
    scope = Scope.NODE


class SaysNearAndLooksFar(MatchInterPodAffinity):
    scope = Scope.NODE_AND_PODS


class SaysItDoesNotLookAround(EvenPodsSpread):
    def looks_around(self, pod: Any, snapshot: Any, coming: Any) -> bool:
        return False


class SaysItReadsNothing(NoVolumeZoneConflict):
    reads = frozenset()

    def filter(self, cycle: Any, rows: Any) -> Any:
        return NoVolumeZoneConflict().filter(cycle, rows)


class SaysItReadsClaimsAlone(SelectorSpreadPriority):
    reads = frozenset({CLAIMS})


class SaysPodsThatGoDoNotHelp(PodFitsResources):
    requeued_by = frozenset({NODE})


class SaysPodsThatComeDoNotHelp(MatchInterPodAffinity):
    requeued_by = frozenset({NODE, POD_GONE})


class SaysPodsThatLeaveDoNotHelp(EvenPodsSpread):
    def __init__(self, arguments: Any) -> None:
        super().__init__(arguments)
        self.requeued_by -= {POD_LEAVES}


class SaysNamespacesDoNotHelp(MatchInterPodAffinity):
    requeued_by = POD_CHANGES | {NODE}


class SaysLabelsOfNamespacesDoNotHelp(ExpressionFilter):
    Arguments = NoArguments

    def __init__(self, arguments: Any) -> None:
        super().__init__(FilterRule(name="f", expression="namespaceObject.metadata.labels.?env == optional.of('prod')"))
        self.requeued_by -= {NAMESPACE}


class SaysNodesThatGoDoNotHelp(EvenPodsSpread):
    def __init__(self, arguments: Any) -> None:
        super().__init__(arguments)
        self.requeued_by -= {NODE_GONE}


class SaysNodesDoNotHelp(MatchNodeSelector):
    requeued_by = frozenset()


class SaysVolumesDoNotHelp(NoVolumeZoneConflict):
    requeued_by = frozenset({NODE})


class ScoresByNodeAlone(LeastRequestedPriority):
    scope = Scope.NODE


class ScoresByItsOwnPods(InterPodAffinityPriority):
    scope = Scope.NODE_AND_PODS


LIARS = [
    SaysNodeAndLooksAtPods, SaysNearAndLooksFar, SaysItDoesNotLookAround, SaysItReadsNothing, SaysItReadsClaimsAlone,
    SaysPodsThatGoDoNotHelp, SaysPodsThatComeDoNotHelp, SaysPodsThatLeaveDoNotHelp, SaysNamespacesDoNotHelp,
    SaysLabelsOfNamespacesDoNotHelp,
    SaysNodesDoNotHelp, SaysNodesThatGoDoNotHelp, SaysVolumesDoNotHelp, ScoresByNodeAlone, ScoresByItsOwnPods,
]  # fmt: skip
WORDS = {
    "SaysNodeAndLooksAtPods": "scope is its node alone",
    "SaysNearAndLooksFar": "scope is its node with the Pods there",
    "SaysItDoesNotLookAround": "doesn't look around",
    "SaysItReadsNothing": "it looked at",
    "SaysItReadsClaimsAlone": "it looked at",
    "SaysPodsThatGoDoNotHelp": "pod gone isn't among what helps",
    "SaysPodsThatComeDoNotHelp": "pod came isn't among what helps",
    "SaysPodsThatLeaveDoNotHelp": "pod leaves isn't among what helps",
    "SaysNamespacesDoNotHelp": "namespace isn't among what helps",
    "SaysLabelsOfNamespacesDoNotHelp": "namespace isn't among what helps",
    "SaysNodesDoNotHelp": "node isn't among what helps",
    "SaysNodesThatGoDoNotHelp": "node gone isn't among what helps",
    "SaysVolumesDoNotHelp": "isn't among what helps",
    "ScoresByNodeAlone": "scope is its node alone",
    "ScoresByItsOwnPods": "scope is its node with the Pods there",
}


@cache
def found() -> dict[str, list[str]]:
    """Ask all rules, and all liars, in the same worlds: these are costly to make."""
    liars = [(liar.__name__, liar(liar.Arguments())) for liar in LIARS]
    return contradictions([*registered().items(), *liars], WORLDS)


@pytest.mark.parametrize("name", sorted(registered()))
def test_what_a_rule_says_of_itself_is_true(name: str) -> None:
    assert found()[name] == []


@pytest.mark.parametrize("liar", LIARS, ids=lambda liar: liar.__name__)
def test_a_false_word_is_found(liar: type[Filter | Score]) -> None:
    assert any(WORDS[liar.__name__] in sentence for sentence in found()[liar.__name__])


def test_the_worlds_are_such_that_every_filter_refuses_and_lets_pass_somewhere() -> None:
    said: Counter[tuple[str, bool]] = Counter()
    filters = {name: rule for name, rule in registered().items() if isinstance(rule, Filter)}
    for world in worlds(WORLDS):
        for name, rule in filters.items():
            said.update((name, status is None) for status in world.said(rule).values())
    always = {"now.getHours() > 12"}  # asked at midnight
    assert {name for name in filters if not said[name, False]} == set()
    assert {name for name in filters if not said[name, True]} == always


def test_every_event_and_every_kind_changes_in_the_worlds() -> None:
    events = Counter(change.event for index, world in enumerate(worlds(30)) for change in Asked(world, index).changes)
    assert set(events) == {NODE, NODE_GONE, NAMESPACE, POD_CAME, POD_GONE, POD_LEAVES} | ALL_KINDS


class TestWhatEachRuleSays:
    @pytest.mark.parametrize("made", sorted({*BUILTIN_FILTERS.values()}, key=lambda made: made.__name__))
    def test_a_filter_says_how_far_it_looks_and_what_helps(self, made: type[Filter]) -> None:
        rule = made(msgspec.convert(ARGUMENTS.get(made.__name__, [{}])[0], made.Arguments))
        assert isinstance(rule.scope, Scope)
        assert NODE in rule.requeued_by
        assert rule.requeued_by <= {NODE, NODE_GONE, NAMESPACE, POD_LEAVES, *POD_CHANGES} | ALL_KINDS
        assert rule.reads <= rule.requeued_by
        assert (rule.scope is Scope.NODE) == (not rule.requeued_by & POD_CHANGES)
        assert (rule.scope is Scope.CLUSTER) == (NODE_GONE in rule.requeued_by)
        assert rule.summary()

    @pytest.mark.parametrize("made", sorted({*BUILTIN_SCORES.values()}, key=lambda made: made.__name__))
    def test_a_score_says_how_far_it_looks_and_refuses_nobody(self, made: type[Score]) -> None:
        rule = made(msgspec.convert(ARGUMENTS.get(made.__name__, [{}])[0], made.Arguments))
        assert isinstance(rule.scope, Scope)
        assert rule.requeued_by == frozenset()
        assert rule.summary()

    def test_what_it_reads_may_depend_on_its_arguments(self) -> None:
        plain, listed = (
            EvenPodsSpread(msgspec.convert(each, EvenPodsSpread.Arguments)) for each in ARGUMENTS["EvenPodsSpread"]
        )
        assert plain.reads == frozenset()
        assert SERVICES in listed.reads
        assert listed.requeued_by - plain.requeued_by == listed.reads

    def test_nothing_but_the_pod_itself_helps_one_with_device_claims(self) -> None:
        assert CheckResourceClaims().requeued_by == frozenset()

    def test_without_words_of_its_own_a_rule_is_explained_by_its_first_line(self) -> None:
        cycle: Any = None
        wanted = "The Pod has no resourceClaims (dynamic resource allocation): Berth doesn't allocate devices"
        refused: Any = None
        assert CheckResourceClaims().detail(cycle, 0, refused) == Detail(wanted, wanted)
        assert CheckResourceClaims().detail_of_pass(cycle, 0) == Detail()

    def test_a_rule_that_does_not_answer_is_no_rule(self) -> None:
        nothing: Any = None
        for ask in (Filter().filter, Score().score):
            with pytest.raises(NotImplementedError):
                ask(nothing, nothing)


class TestExpressions:
    @pytest.mark.parametrize(
        ("source", "scope"),
        [
            ("true", Scope.NODE),
            ("pod.metadata.name == node.metadata.name", Scope.NODE),
            ("usage.allocatable.cpu > 1", Scope.NODE),
            ("usage.allocatable.cpu > usage.requested.cpu", Scope.NODE_AND_PODS),
            ("usage.free.cpu > 1", Scope.NODE_AND_PODS),
            ("has(usage.free)", Scope.NODE_AND_PODS),
            ("node.count({}) < 1", Scope.NODE_AND_PODS),
            ("cluster.count({}) < 1", Scope.CLUSTER),
            ("cluster.count({}) < 1 && usage.free.cpu > 1", Scope.CLUSTER),
            ("node.countInAllNamespaces({}) < 1", Scope.NODE_AND_PODS),
            ("cluster.countInAllNamespaces({}) < 1", Scope.CLUSTER),
        ],
    )
    def test_the_scope_is_what_is_read(self, source: str, scope: Scope) -> None:
        assert Expression(source, Result.BOOLEAN).scope is scope
        made = ExpressionFilter(FilterRule(name="f", expression=source))
        assert made.requeued_by & POD_CHANGES == (frozenset() if scope is Scope.NODE else POD_CHANGES)
        assert made.requeued_by - POD_CHANGES == ({NODE, NODE_GONE} if scope is Scope.CLUSTER else {NODE})
        assert made.counts_pods == (".count" in source)

    def test_without_bounds_a_score_over_usage_looks_at_all_nodes(self) -> None:
        scopes = {
            (source, bounds): ExpressionScore(ScoreRule(name="s", expression=source, bounds=bounds)).scope
            for source, bounds in SCORES
        }
        assert scopes == {
            ("size(node.metadata.name)", None): Scope.NODE,
            ("int(usage.free.cpu)", None): Scope.CLUSTER,
            ("int(usage.free.cpu)", (0, 8000)): Scope.NODE_AND_PODS,
            ("int(usage.allocatable.cpu)", None): Scope.NODE,
            ("0 - cluster.count({'app': 'web'})", (-9, 0)): Scope.CLUSTER,
        }

    def test_what_it_reads_of_the_pod_and_of_the_time_is_said(self) -> None:
        made = ExpressionFilter(FilterRule(name="f", expression="pod.metadata.name == 'a' && now.getHours() > 1"))
        assert made.pod_paths == {("metadata", "name")}
        assert made.reads_now
        assert PodFitsResources(PodFitsResources.Arguments()).pod_paths is None
