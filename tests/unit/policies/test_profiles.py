"""A profile of a KubeSchedulerConfiguration to a rule set."""

from pathlib import Path
from typing import Any

import pytest

from policies.engine import default_set
from policies.engine.decision import CompiledRuleSet
from policies.engine.errors import RuleSetError
from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.reading import MAX_DEPTH
from policies.engine.ruleset import RuleSet
from policies.engine.scores.registry import BUILTIN_SCORES
from policies.manifests import read_documents
from policies.profiles import CONFIGURATION_VERSION, import_profile
from tests.unit.policies.test_official_policies import run
from tests.upstream_configurations import (
    ADDED_AFFINITY,
    ALL_OF_ONES_OWN,
    HEAD,
    MOST_ALLOCATED,
    MULTI_POINT,
    NO_SCORING,
    RATIO,
    SCORING,
    SHAPES,
    SPREAD,
)


def made(text: str) -> list[RuleSet]:
    (located,) = read_documents(HEAD + text, "x.yaml")
    return [import_profile(each.document, name="x") for each in located.items()]


def weights(rule_set: RuleSet) -> dict[str, int]:
    return {rule.builtin: rule.weight for rule in rule_set.spec.scores}


def arguments(rules: list[Any], builtin: str) -> dict[str, Any]:
    (rule,) = (rule for rule in rules if rule.builtin == builtin)
    return rule.arguments


def faults_of(profile: object, **top: object) -> dict[str, str]:
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    with pytest.raises(RuleSetError) as caught:
        import_profile(document | {"profiles": [profile]} | top, name="x")
    return {fault.path: fault.message for fault in caught.value.faults}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_every_shape_of_the_documentation_makes_rule_sets_that_compile(text: str) -> None:
    for rule_set in made(text):
        assert CompiledRuleSet(rule_set)


def test_a_file_without_profiles_is_the_default_profile() -> None:
    (rule_set,) = made("")
    filters = [BUILTIN_FILTERS[rule.builtin] for rule in rule_set.spec.filters]
    assert filters == [BUILTIN_FILTERS[name] for name in default_set.FILTERS]
    classic = {"LeastRequestedPriority": "NodeResourcesFit"}
    wanted = {BUILTIN_SCORES[classic.get(name, name)]: weight for name, weight in default_set.SCORES.items()}
    assert {BUILTIN_SCORES[name]: weight for name, weight in weights(rule_set).items()} == wanted


def test_scores_are_disabled_and_weigh_what_the_profile_says_and_one_where_it_says_nothing() -> None:
    (rule_set,) = made(SCORING)
    assert weights(rule_set) == {
        "ImageLocality": 2, "NodeAffinity": 1, "TaintToleration": 3, "NodeResourcesFit": 1, "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1,
    }  # fmt: skip
    assert "PodTopologySpread" in [rule.builtin for rule in rule_set.spec.filters]


def test_each_profile_is_a_rule_set_and_one_of_another_scheduler_has_its_name() -> None:
    default, none = made(NO_SCORING)
    assert (default.name, none.name) == ("x", "x-no-scoring-scheduler")
    assert weights(default)["TaintToleration"] == 3
    assert (none.spec.scores, len(none.spec.filters)) == ([], 11)


@pytest.mark.parametrize(
    ("scheduler", "called"),
    [("a" * 60 + "-b", "x-" + "a" * 60), ("a" * 61 + "-b", "x-" + "a" * 61), ("__", "x")],
    ids=["cut at a dash", "cut before a dash", "no letter in it"],
)
def test_whatever_a_scheduler_is_called_its_rule_set_has_a_name(scheduler: str, called: str) -> None:
    document = {"apiVersion": CONFIGURATION_VERSION, "profiles": [{"schedulerName": scheduler}]}

    assert import_profile(document, name="x").name == called


def test_what_all_points_enable_is_bounded_by_what_one_says() -> None:
    (rule_set,) = made(MULTI_POINT)
    filters = [rule.builtin for rule in rule_set.spec.filters]
    assert not {"NodePorts", "NodeName"} & set(filters)
    found = weights(rule_set)
    assert (found["ImageLocality"], found["TaintToleration"], found["InterPodAffinity"]) == (5, 1, 7)
    assert found["NodeAffinity"] == 2


def test_all_of_kube_schedulers_own_may_be_disabled() -> None:
    (rule_set,) = made(ALL_OF_ONES_OWN)
    assert [rule.builtin for rule in rule_set.spec.filters] == ["NodeResourcesFit", "TaintToleration"]
    assert weights(rule_set) == {"NodeResourcesFit": 3, "NodeResourcesBalancedAllocation": 1}


def test_arguments_go_to_the_rules_that_read_them() -> None:
    (most,), (ratio,), (spread,) = made(MOST_ALLOCATED), made(RATIO), made(SPREAD)
    strategy = arguments(most.spec.scores, "NodeResourcesFit")["scoringStrategy"]
    assert (strategy["type"], strategy["resources"][2]) == ("MostAllocated", {"name": "intel.com/foo", "weight": 3})
    assert arguments(most.spec.filters, "NodeResourcesFit") == {}
    strategy = arguments(ratio.spec.scores, "NodeResourcesFit")["scoringStrategy"]
    assert strategy["requestedToCapacityRatio"]["shape"][1] == {"utilization": 100, "score": 10}
    assert strategy["resources"][1] == {"name": "intel.com/bar", "weight": 1}
    for rules in (spread.spec.filters, spread.spec.scores):
        assert arguments(rules, "PodTopologySpread")["defaultingType"] == "List"
    _, foo = made(ADDED_AFFINITY)
    assert arguments(foo.spec.filters, "NodeAffinity")["addedAffinity"]


def test_what_kube_scheduler_passes_over_is_passed_over() -> None:
    strategy = {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 0}], "requestedToCapacityRatio": None}
    config = [
        {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy, "ignoredResources": ["a.b/c"]}},
        {"name": "NodeResourcesBalancedAllocation", "args": {"resources": []}},
        {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 5}},
        {"name": "DefaultPreemption", "args": None},
    ]
    rest = {"parallelism": 4, "extenders": [{"urlPrefix": "http://x"}], "leaderElection": {"leaderElect": True}}
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    rule_set = import_profile(document | rest | {"profiles": [{"pluginConfig": config}]}, name="x")
    found = arguments(rule_set.spec.scores, "NodeResourcesFit")["scoringStrategy"]
    assert found == {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    assert arguments(rule_set.spec.filters, "NodeResourcesFit") == {"ignoredResources": ["a.b/c"]}
    assert arguments(rule_set.spec.scores, "NodeResourcesBalancedAllocation") == {}


SHAPE = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}


@pytest.mark.parametrize(
    ("strategy", "member", "message"),
    [
        ({}, ".type", "is needed: kube-scheduler doesn't start with a strategy without it"),
        ({"type": None}, ".type", "is needed: kube-scheduler doesn't start with a strategy without it"),
        (
            {"type": "MostAllocated", "requestedToCapacityRatio": SHAPE},
            "",
            "requestedToCapacityRatio goes with type RequestedToCapacityRatio",
        ),
    ],
)
def test_a_strategy_that_kube_scheduler_refuses_is_refused_unless_no_rule_is_made_of_it(
    strategy: dict[str, Any], member: str, message: str
) -> None:
    profile = {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]}
    document = {"apiVersion": CONFIGURATION_VERSION}
    with pytest.raises(RuleSetError) as refused:
        import_profile(document | {"profiles": [profile]}, name="x")
    place = f"profiles[0].pluginConfig[0].args.scoringStrategy{member}"
    assert [(each.path, each.message) for each in refused.value.faults] == [(place, message)]
    off = {"plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}}}
    assert import_profile(document | {"profiles": [profile | off]}, name="x")


def test_a_resource_that_kube_scheduler_leaves_to_an_extender_is_ignored_by_the_rules_too() -> None:
    managed = [{"name": "example.com/capacity", "ignoredByScheduler": True}, {"name": "example.com/gpu"}]
    broken = [None, {"managedResources": 5}, {"managedResources": [7, {"ignoredByScheduler": True}]}]
    broken.append({"managedResources": [{"name": "a b/c", "ignoredByScheduler": True}]})
    document = {
        "apiVersion": CONFIGURATION_VERSION,
        "extenders": [*broken, {"urlPrefix": "http://x", "managedResources": managed}],
    }
    args = {"ignoredResources": ["a.b/c"], "ignoredResourceGroups": ["g.h"]}
    of_args = {"profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}]}

    plain = import_profile(document, name="x")
    replaced = import_profile(document | of_args, name="x")

    ignored = {"ignoredResources": ["example.com/capacity"]}
    assert arguments(plain.spec.filters, "NodeResourcesFit") == ignored
    assert arguments(replaced.spec.filters, "NodeResourcesFit") == ignored | {"ignoredResourceGroups": ["g.h"]}


def test_what_may_be_left_out_is_read_as_kube_scheduler_reads_it() -> None:
    ratio = {"shape": [{"score": 9}, {"utilization": 50, "score": None}]}
    config = [
        {
            "name": "NodeResourcesFit",
            "args": {"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": ratio}},
        },
        {"name": "PodTopologySpread", "args": {"defaultingType": ""}},
    ]
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    rule_set = import_profile(document | {"profiles": [{"pluginConfig": config}]}, name="x")
    found = arguments(rule_set.spec.scores, "NodeResourcesFit")["scoringStrategy"]["requestedToCapacityRatio"]
    assert found == {"shape": [{"utilization": 0, "score": 9}, {"utilization": 50, "score": 0}]}
    assert arguments(rule_set.spec.scores, "PodTopologySpread") == {}


def test_a_plugin_with_an_empty_name_is_refused() -> None:
    empty = [{"name": ""}]
    found = faults_of({"plugins": {"score": {"enabled": empty, "disabled": empty}}, "pluginConfig": empty})
    assert found == {
        "profiles[0].pluginConfig[0].name": "is needed",
        "profiles[0].plugins.score.enabled[0].name": "is needed",
        "profiles[0].plugins.score.disabled[0].name": "is needed",
    }


def test_arguments_with_which_kube_scheduler_does_not_start_are_refused() -> None:
    constraint = {"maxSkew": 1, "topologyKey": "a zone", "whenUnsatisfiable": "ScheduleAnyway"}
    config = [
        {"name": "NodeResourcesFit", "args": {"ignoredResources": ["a b"]}},
        {"name": "PodTopologySpread", "args": {"defaultingType": "List", "defaultConstraints": [constraint]}},
    ]
    found = faults_of({"pluginConfig": config})
    assert list(found) == ["profiles[0].pluginConfig[0].args", "profiles[0].pluginConfig[1].args"]
    assert "ignoredResources[0]: 'a b' is no resource's name" in found["profiles[0].pluginConfig[0].args"]
    assert "topologyKey: 'a zone' is no label's key" in found["profiles[0].pluginConfig[1].args"]


def test_what_cant_be_taken_over_is_said_by_path_with_what_to_use_instead() -> None:
    plugins = {
        "queueSort": {"enabled": [{"name": "Coscheduling"}]},
        "multiPoint": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "NodePort"}, {"name": "Other"}]},
        "filter": {"enabled": [{"name": "VolumeBinding"}, {"name": "ImageLocality"}, {}]},
        "score": {
            "enabled": [
                {"name": "DynamicResources", "weight": 5},
                {"name": "NodeAffinity", "weight": -1},
                {"name": "NodeAffinity"},
                {"name": "NodeAfinity"},
            ]
        },
        "scores": {},
    }
    config = [
        {"name": "NodeResourcesFit", "args": {"scoringStrateg": {}, "ignoredResources": "cpu"}},
        {"name": "NodeResourcesFit"},
        {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 101}},
        {"name": "Coscheduling"},
        {},
    ]
    found = faults_of({"plugins": plugins, "pluginConfig": config}, profilez=[], apiVersion="v1beta3")
    anothers = "Coscheduling is a plugin that kube-scheduler doesn't bring along: leave the entry out"
    head = "profiles[0].plugins"
    starts = {
        "profilez": "unknown member; did you mean profiles?",
        "apiVersion": "must be kubescheduler.config.k8s.io/v1; older ones had other defaults",
        "profiles[0].pluginConfig[0].args.scoringStrateg": "unknown member; did you mean scoringStrategy?",
        "profiles[0].pluginConfig[0].args.ignoredResources": "Expected `array`, got `str`",
        "profiles[0].pluginConfig[1].name": "NodeResourcesFit has arguments at profiles[0].pluginConfig[0] already",
        "profiles[0].pluginConfig[2].args.hardPodAffinityWeight": "Expected `int` <= 100",
        "profiles[0].pluginConfig[3].name": anothers,
        "profiles[0].pluginConfig[4].name": "is needed",
        f"{head}.scores": "unknown member; did you mean score?",
        f"{head}.multiPoint.enabled[0].name": anothers,
        f"{head}.multiPoint.disabled[0].name": "no plugin is called NodePort; did you mean NodePorts?",
        f"{head}.filter.enabled[0].name": "VolumeBinding has no counterpart: kube-scheduler checks and binds volumes itself",
        f"{head}.filter.enabled[1].name": "ImageLocality has nothing to filter",
        f"{head}.filter.enabled[2].name": "is needed",
        f"{head}.score.enabled[0].name": "DynamicResources has no counterpart: devices are chosen by kube-scheduler",
        f"{head}.score.enabled[1].weight": "must be 0 to 1000000, not -1",
        f"{head}.score.enabled[2].name": "NodeAffinity is enabled here twice",
        f"{head}.score.enabled[3].name": "no plugin is called NodeAfinity; did you mean NodeAffinity?",
    }
    assert {path: message[: len(starts.get(path, ""))] for path, message in found.items()} == starts


def test_what_both_schedulers_ask_by_themselves_is_no_rule() -> None:
    (fault,) = faults_of({"plugins": {"filter": {"enabled": [{"name": "NodeDeclaredFeatures"}]}}}).values()
    assert "kube-scheduler asks it by itself, and so does Berth's own scheduler: leave it out" in fault


@pytest.mark.parametrize(
    ("former", "builtin"),
    [
        ("NodeResourcesLeastAllocated", "NodeResourcesLeastAllocated"),
        ("NodeLabel", "NodeLabel"),
        ("DefaultPodTopologySpread", "SelectorSpread"),
        ("EBSLimits", "NodeVolumeLimits"),
    ],
)
def test_a_plugin_of_older_releases_is_refused_with_the_built_in_that_does_the_same(former: str, builtin: str) -> None:
    (fault,) = faults_of({"plugins": {"multiPoint": {"enabled": [{"name": former}]}}}).values()
    assert fault == (
        f"{former} is no plugin of kube-scheduler any more: leave the entry out, and add a rule with the built-in {builtin}"
    )
    assert builtin in BUILTIN_FILTERS or builtin in BUILTIN_SCORES


def test_a_fault_of_arguments_that_a_filter_and_a_score_read_is_told_once() -> None:
    args = {"defaultingType": "System", "defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone"}]}
    profile = {"pluginConfig": [{"name": "PodTopologySpread", "args": args}]}
    document = {"apiVersion": CONFIGURATION_VERSION, "kind": "KubeSchedulerConfiguration", "profiles": [profile]}
    with pytest.raises(RuleSetError) as caught:
        import_profile(document, name="x")
    assert [fault.path for fault in caught.value.faults] == ["profiles[0].pluginConfig[0].args"]


@pytest.mark.parametrize("kind", [{}, {"defaultingType": ""}, {"defaultingType": None}])
def test_default_constraints_need_a_defaulting_type_as_kube_scheduler_does_not_start_without(
    kind: dict[str, Any],
) -> None:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    args = {"defaultConstraints": [constraint]} | kind
    faults = faults_of({"pluginConfig": [{"name": "PodTopologySpread", "args": args}]})
    assert faults == {
        "profiles[0].pluginConfig[0].args.defaultingType": "must be List: kube-scheduler doesn't start with constraints without it"
    }


def test_several_profiles_at_once_are_refused() -> None:
    assert "give one at a time" in faults_of({}, profiles=[{}, None, {}])["profiles"]


def test_a_value_that_contains_itself_is_refused() -> None:
    profile: dict[str, Any] = {}
    profile["plugins"] = profile
    assert f"more than {MAX_DEPTH} deep" in faults_of(profile)[""]


class TestCommands:
    def test_lint_takes_the_file_as_it_is_and_says_lines(self, tmp_path: Path) -> None:
        assert run("lint", HEAD + NO_SCORING, tmp_path)[0] == "no faults\n"
        text = HEAD + ADDED_AFFINITY.replace("name: NodeAffinity", "name: NodeAfinity")
        line = next(number for number, line in enumerate(text.splitlines(), 1) if "NodeAfinity" in line)
        with pytest.raises(Exception, match=r"^1 fault$"):
            run("lint", text, tmp_path)
        (located,) = read_documents(text, "x.yaml")
        assert located.items()[1].line_of("profiles[1].pluginConfig[0].name") == line

    def test_importpolicy_writes_a_rule_set_for_each_profile(self, tmp_path: Path) -> None:
        written, _ = run("importpolicy", HEAD + NO_SCORING, tmp_path, "--name", "mine")
        names = [each.document["metadata"]["name"] for each in read_documents(written, "made.yaml")]
        assert names == ["mine", "mine-no-scoring-scheduler"]

    def test_a_file_of_very_many_profiles_is_refused_not_taken_apart(self, tmp_path: Path) -> None:
        text = HEAD + "profiles:\n" + "- {}\n" * 101
        with pytest.raises(Exception, match="has 101 profiles"):
            run("importpolicy", text, tmp_path)
