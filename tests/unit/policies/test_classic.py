"""The classic scheduler Policy: in and out, nothing lost, and every fault at once."""

import io
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import manifests
from policies.classic import GENERAL_PREDICATES, export_policy, import_policy
from policies.engine.default_set import FILTERS, SCORES
from policies.engine.documents import document_of
from policies.engine.errors import RuleSetError
from policies.engine.filters.registry import BUILTIN_FILTERS, FILTER_ALIASES
from policies.engine.ruleset import FilterRule, RuleSet, RuleSetSpec, ScoreRule
from policies.engine.scores.registry import BUILTIN_SCORES
from policies.engine.validation import read_rule_set
from tests.builders import TEAM_FILTER, make_rule_set

EXTENDER = {"urlPrefix": "http://127.0.0.1:12346/scheduler", "filterVerb": "filter", "weight": 5, "enableHttps": False}
MANAGED = [{"name": "example.com/capacity", "ignoredByScheduler": True}, {"name": "example.com/gpu"}]
POLICY: dict[str, Any] = {
    "kind": "Policy",
    "apiVersion": "v1",
    "predicates": [
        {"name": "GeneralPredicates"},
        {"name": "PodToleratesNodeTaints"},
        {"name": "InOneRegion", "argument": {"serviceAffinity": {"labels": ["region"]}}},
        {"name": "NotRetiring", "argument": {"labelsPresence": {"labels": ["retiring"], "presence": False}}},
        {"name": "HasRack", "argument": {"labelsPresence": {"labels": ["rack"], "presence": True}}},
    ],
    "priorities": [
        {"name": "LeastRequestedPriority", "weight": 1},
        {"name": "InterPodAffinityPriority", "weight": 2},
        {"name": "RackSpread", "weight": 3, "argument": {"serviceAntiAffinity": {"label": "rack"}}},
        {"name": "Ssd", "weight": 4, "argument": {"labelPreference": {"label": "ssd", "presence": True}}},
        {
            "name": "Pack",
            "weight": 5,
            "argument": {
                "requestedToCapacityRatioArguments": {
                    "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
                    "resources": [{"name": "nvidia.com/gpu", "weight": 3}, {"name": "cpu", "weight": 1}],
                }
            },
        },
    ],
    "extenders": [EXTENDER],
    "hardPodAffinitySymmetricWeight": 10,
    "alwaysCheckAllPredicates": False,
}


def policy(**members: Any) -> dict[str, Any]:
    return {"kind": "Policy", "apiVersion": "v1", "predicates": [], "priorities": []} | members


def faults_of(document: object) -> dict[str, str]:
    with pytest.raises(RuleSetError) as caught:
        import_policy(document, name="imported")
    return {fault.path: fault.message for fault in caught.value.faults}


class TestImport:
    def test_gives_built_ins_by_their_classic_names_with_weights_and_arguments(self) -> None:
        spec = import_policy(POLICY, name="old").spec
        assert [(rule.name, rule.builtin, rule.arguments) for rule in spec.filters] == [
            *[("", name, {}) for name in GENERAL_PREDICATES],
            ("", "PodToleratesNodeTaints", {}),
            ("InOneRegion", "ServiceAffinity", {"labels": ["region"]}),
            ("NotRetiring", "CheckNodeLabelPresence", {"labels": ["retiring"], "presence": False}),
            ("HasRack", "CheckNodeLabelPresence", {"labels": ["rack"], "presence": True}),
        ]
        assert [(rule.key, rule.weight) for rule in spec.scores] == [
            ("LeastRequestedPriority", 1),
            ("InterPodAffinityPriority", 2),
            ("RackSpread", 3),
            ("Ssd", 4),
            ("Pack", 5),
        ]
        assert spec.scores[1].arguments == {"hardPodAffinityWeight": 10}

    @pytest.mark.parametrize(
        "predicates",
        [{}, {"predicates": [{"name": "GeneralPredicates"}]}, {"predicates": [{"name": "PodFitsResources"}]}],
        ids=["the default ones", "GeneralPredicates", "PodFitsResources"],
    )
    @pytest.mark.parametrize("spelled", [str, str.upper], ids=["usual", "other case"])
    def test_ignores_a_resource_that_kube_scheduler_left_to_an_extender(
        self, predicates: dict[str, Any], spelled: Callable[[str], str]
    ) -> None:
        managed = [{spelled(name): value for name, value in each.items()} for each in MANAGED]
        extenders = [{"urlPrefix": "http://x", spelled("managedResources"): managed}]
        document = {"kind": "Policy", "apiVersion": "v1", "priorities": [], "extenders": extenders, **predicates}
        rule_set = import_policy(document, name="old")
        (rule,) = (rule for rule in rule_set.spec.filters if rule.builtin == "PodFitsResources")
        assert rule.arguments == {"ignoredResources": ["example.com/capacity"]}
        exported = export_policy(rule_set)
        assert exported["extenders"] == extenders
        assert import_policy(exported, name="old") == rule_set

    def test_a_rule_that_checks_what_the_extenders_have_ignored_is_no_policy(self) -> None:
        """As of a rule set that an earlier version of Berth imported: kube-scheduler would ignore the resource."""
        extenders = [
            {"urlPrefix": "http://x", "managedResources": [*MANAGED, {"name": "b", "ignoredByScheduler": True}]}
        ]
        made = document_of(
            import_policy(policy(predicates=[{"name": "PodFitsResources"}], extenders=extenders), name="a")
        )
        (rule,) = made["spec"]["filters"]
        for ignored in ({}, {"ignoredResources": ["b"]}):
            made["spec"]["filters"] = [rule | {"arguments": ignored}]
            with pytest.raises(RuleSetError) as caught:
                export_policy(read_rule_set(made))
            (fault,) = caught.value.faults
            assert (fault.path, "example.com/capacity" in fault.message) == ("spec.filters[0]", True)
        made["spec"]["filters"] = [rule | {"arguments": {"ignoredResources": ["b", "example.com/capacity"]}}]
        assert export_policy(read_rule_set(made))["predicates"] == [{"name": "PodFitsResources"}]

    def test_keeps_extenders_in_the_description(self) -> None:
        description = import_policy(POLICY, name="old").description
        assert json.loads(description.partition("here: ")[2])["extenders"] == [EXTENDER]

    def test_refuses_an_extender_that_is_no_object_at_its_place(self) -> None:
        wanted = "must be an object such as {urlPrefix: …, filterVerb: …}, not "
        assert faults_of(policy(extenders=[EXTENDER, 7, "http://berth", None])) == {
            "extenders[1]": f"{wanted}a number; correct it or leave it out",
            "extenders[2]": f"{wanted}a text; correct it or leave it out",
            "extenders[3]": f"{wanted}null; correct it or leave it out",
        }

    def test_takes_an_entry_that_stands_twice_once(self) -> None:
        twice = policy(predicates=[{"name": "PodFitsResources"}, {"name": "GeneralPredicates"}, {"name": "HostName"}])
        names = [rule.builtin for rule in import_policy(twice, name="x").spec.filters]
        assert names == ["PodFitsResources", "PodFitsHost", "PodFitsHostPorts", "MatchNodeSelector"]

    def test_takes_the_defaults_for_a_list_that_is_missing_and_no_rules_for_an_empty_one(self) -> None:
        missing = import_policy({"kind": "Policy", "apiVersion": "v1"}, name="x").spec
        assert [FILTER_ALIASES.get(rule.builtin, rule.builtin) for rule in missing.filters] == list(FILTERS)
        assert {rule.builtin: rule.weight for rule in missing.scores} == SCORES
        assert import_policy(policy(), name="x").spec.filters == []

    def test_takes_a_presence_that_is_missing_for_false_as_go_does(self) -> None:
        entry = {"name": "A", "argument": {"labelsPresence": {"labels": ["a"]}}}
        (rule,) = import_policy(policy(predicates=[entry]), name="x").spec.filters
        assert rule.arguments["presence"] is False

    def test_takes_a_resources_weight_of_0_or_none_for_1_and_missing_numbers_of_points_for_0_as_kube_scheduler_did(
        self,
    ) -> None:
        resources = [{"name": "cpu", "weight": 0}, {"name": "memory"}, {"name": "nvidia.com/gpu", "weight": 3}]
        ratio = {"shape": [{"score": 0}, {"utilization": 100, "score": 10}], "resources": resources}
        pack = {"name": "Pack", "weight": 1, "argument": {"requestedToCapacityRatioArguments": ratio}}
        (rule,) = import_policy(policy(priorities=[pack]), name="x").spec.scores
        assert [each["weight"] for each in rule.arguments["resources"]] == [1, 1, 3]
        assert rule.arguments["shape"] == [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
        ratio["resources"] = []
        (rule,) = import_policy(policy(priorities=[pack]), name="x").spec.scores
        assert "resources" not in rule.arguments

    def test_refuses_an_entry_with_an_empty_name_as_kube_scheduler_did(self) -> None:
        labels = {"labelsPresence": {"labels": ["a"]}}
        predicates = [{"name": ""}, {"name": "", "argument": labels}]
        assert faults_of(policy(predicates=predicates, priorities=[{"name": "", "weight": 1}])) == {
            "predicates[0].name": "is needed",
            "predicates[1].name": "is needed",
            "priorities[0].name": "is needed",
        }

    @pytest.mark.parametrize("ratio", [{}, {"shape": None}, {"resources": [{"name": "cpu"}]}])
    def test_makes_up_no_shape_where_kube_scheduler_refused_to_start(self, ratio: dict[str, Any]) -> None:
        pack = {"name": "Pack", "weight": 1, "argument": {"requestedToCapacityRatioArguments": ratio}}
        assert faults_of(policy(priorities=[pack])) == {
            "priorities[0].argument.requestedToCapacityRatioArguments.shape": "is needed: a list of points, such as "
            "[{utilization: 0, score: 0}, {utilization: 100, score: 10}]"
        }

    def test_counts_no_resource_twice_of_which_kube_scheduler_took_the_last(self) -> None:
        resources = [{"name": "cpu", "weight": 3}, {"name": "memory"}, {"name": "cpu"}]
        ratio = {"shape": [{"utilization": 100, "score": 10}], "resources": resources}
        pack = {"name": "Pack", "weight": 1, "argument": {"requestedToCapacityRatioArguments": ratio}}
        assert faults_of(policy(priorities=[pack])) == {
            "priorities[0].argument.requestedToCapacityRatioArguments.resources[2].name": "cpu stands here already, and "
            "kube-scheduler took the last: leave one of them"
        }

    def test_takes_no_name_for_two_things_of_which_kube_scheduler_took_the_last(self) -> None:
        zones = {"serviceAffinity": {"labels": ["zone"]}}
        predicates = [
            {"name": "PodFitsPorts"},
            {"name": "A", "argument": zones},
            {"name": "PodFitsPorts", "argument": zones},
        ]
        priorities = [{"name": "EqualPriority", "weight": 1}, {"name": "EqualPriority", "weight": 2}]
        said = "stands at {}[0] already, and kube-scheduler took the last: leave one of them"
        assert faults_of(policy(predicates=predicates, priorities=priorities)) == {
            "predicates[2].name": f"PodFitsPorts {said.format('predicates')}",
            "priorities[1].name": f"EqualPriority {said.format('priorities')}",
        }

    def test_keeps_a_weight_of_affinity_that_no_priority_uses(self) -> None:
        kept = policy(hardPodAffinitySymmetricWeight=7)
        assert export_policy(import_policy(kept, name="x")) == kept

    def test_takes_a_weight_of_affinity_of_0_for_none_as_go_does(self) -> None:
        """Kubernetes v1.15 pkg/scheduler/factory/factory.go, CreateFromConfig."""
        zero = policy(priorities=[{"name": "InterPodAffinityPriority", "weight": 2}], hardPodAffinitySymmetricWeight=0)
        made = import_policy(zero, name="x")
        assert made.spec.scores[0].arguments == {}
        assert export_policy(made) == zero

    def test_does_not_give_out_a_weight_of_affinity_of_0_which_would_be_1(self) -> None:
        score = {"builtin": "InterPodAffinityPriority", "arguments": {"hardPodAffinityWeight": 0}}
        with pytest.raises(RuleSetError, match=r"a Policy can't say 0, which kube-scheduler takes for 1"):
            export_policy(make_rule_set(scores=[score]))

    @pytest.mark.parametrize("alias", ["PodFitsPorts", "HostName", "MaxEBSVolumeCount", "MaxCSIVolumeCountPred"])
    def test_knows_historic_names_of_predicates(self, alias: str) -> None:
        (rule,) = import_policy(policy(predicates=[{"name": alias}]), name="x").spec.filters
        assert rule.builtin in BUILTIN_FILTERS

    def test_says_every_fault_at_once_with_its_path(self) -> None:
        faults = faults_of(
            {
                "kind": "Policie",
                "apiVersion": ["v1"],
                "predicate": [],
                "predicates": [
                    {"name": "CheckVolumeBinding"},
                    {"name": "PodFitResources"},
                    {"name": "ServiceAffinity"},
                    {"argument": {}},
                    {"name": "B", "argument": {"labelsPresence": {}, "serviceAffinity": {}}},
                    {"name": "no name", "argument": {"labelsPresence": {"labels": "rack"}}},
                    None,
                ],
                "priorities": [
                    {"name": "LeastRequestedPriority"},
                    {"name": "MostRequestedPriority", "weight": 0},
                    {"name": "EqualPriority", "weight": 1},
                    {"name": "EqualPriority", "weight": 2},
                    {"name": "C", "weight": 1, "argument": {"labelPreference": {"presence": True}}},
                ],
                "extenders": {},
                "alwaysCheckAllPredicates": "yes",
                "hardPodAffinitySymmetricWeight": 101,
            }
        )
        assert faults == {
            "kind": "must be Policy",
            "apiVersion": "must be v1",
            "predicate": "unknown member; did you mean predicates?",
            "predicates[0].name": "CheckVolumeBinding has no counterpart: kube-scheduler checks and binds volumes itself "
            "(its plugin VolumeBinding), and Berth's own scheduler refuses Pods whose claims aren't bound: leave it out",
            "predicates[1].name": "no built-in is called PodFitResources; did you mean PodFitsResources?",
            "predicates[2].argument": "is needed: ServiceAffinity takes argument.serviceAffinity",
            "predicates[3].name": "is needed",
            "predicates[3].argument": "needs exactly one of serviceAffinity, labelsPresence",
            "predicates[4].argument": "needs exactly one of serviceAffinity, labelsPresence",
            "predicates[5].name": "must be letters, digits, dashes, dots and underscores, at most 63",
            "predicates[5].argument.labelsPresence.labels": "Expected `array`, got `str`",
            "predicates[6].name": "is needed",
            "priorities[0].weight": "is needed: a whole number from 1 on",
            "priorities[1].weight": "must be 1 to 1000000, not 0",
            "priorities[3].name": "EqualPriority stands at priorities[2] already, and kube-scheduler took the last: "
            "leave one of them",
            "priorities[4].argument.labelPreference": "label is needed: the key that nodes are to have, or not",
            "extenders": "must be a list, not an object",
            "alwaysCheckAllPredicates": "must be true or false, not a text",
            "hardPodAffinitySymmetricWeight": "must be 0 to 100, not 101",
        }

    @pytest.mark.parametrize("name", ["CheckVolumeBinding", "NoVolumeNodeConflict", "ResourceLimitsPriority"])
    def test_says_why_a_historic_name_has_no_counterpart(self, name: str) -> None:
        faults = faults_of(policy(predicates=[{"name": name}], priorities=[{"name": name, "weight": 1}]))
        assert all("has no counterpart" in message for message in faults.values())
        assert list(faults) == ["predicates[0].name", "priorities[0].name"]

    @pytest.mark.parametrize("document", [None, [], "Policy", 1, True])
    def test_refuses_what_is_no_object(self, document: object) -> None:
        assert "must be an object" in faults_of(document)[""]

    def test_refuses_a_name_that_no_rule_set_can_have(self) -> None:
        with pytest.raises(RuleSetError, match="lower-case"):
            import_policy(POLICY, name="Old Policy")


class TestExport:
    def test_gives_back_what_was_imported_with_general_predicates_written_out(self) -> None:
        exported = export_policy(import_policy(POLICY, name="old"))
        four = [{"name": name} for name in ("PodFitsResources", "HostName", "PodFitsHostPorts", "MatchNodeSelector")]
        assert exported == POLICY | {"predicates": [*four, *POLICY["predicates"][1:]]}

    @pytest.mark.parametrize(
        "rules",
        [
            {"filters": [{"builtin": "NodeResourcesFit"}], "scores": [{"builtin": "TaintToleration", "weight": 3}]},
            {"filters": [{"builtin": "CheckNodeLabelPresence", "arguments": {"labels": ["a"]}}]},
            {"scores": [{"builtin": "RequestedToCapacityRatioPriority"}]},
        ],
        ids=["by plugin names", "without a name of its own", "without arguments"],
    )
    def test_says_the_same_rules_after_a_round_trip(self, rules: dict[str, Any]) -> None:
        once = export_policy(make_rule_set(**rules))
        assert export_policy(import_policy(once, name="x")) == once

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"presentLabels": ["a"]}, {"labels": ["a"], "presence": True}),
            ({"absentLabels": ["a"], "labels": ["b"], "presence": False}, {"labels": ["a", "b"], "presence": False}),
            ({"labels": [], "presence": False}, {"labels": [], "presence": False}),
            ({}, {"labels": [], "presence": True}),
        ],
    )
    def test_says_the_plugins_arguments_in_a_policys_words(self, given: dict[str, Any], said: dict[str, Any]) -> None:
        rule_set = make_rule_set(filters=[{"builtin": "NodeLabel", "arguments": given}])
        (entry,) = export_policy(rule_set)["predicates"]
        assert entry == {"name": "CheckNodeLabelPresence", "argument": {"labelsPresence": said}}

    def test_names_the_rules_of_a_former_version_that_this_one_would_refuse(self) -> None:
        filters = [FilterRule(builtin="Former"), FilterRule(builtin="ServiceAffinity", arguments={"labels": 5})]
        weighed = {"resources": [{"name": "cpu", "weight": 1000}]}
        scores = [ScoreRule(builtin="LeastRequestedPriority", arguments=weighed)]
        with pytest.raises(RuleSetError) as caught:
            export_policy(RuleSet(name="old", spec=RuleSetSpec(filters=filters, scores=scores)))
        assert {fault.path: fault.message for fault in caught.value.faults} == {
            "spec.filters[0]": "Former: this version has no such built-in",
            "spec.filters[1]": "ServiceAffinity: this version refuses its arguments: "
            "Expected `array`, got `int` - at `$.labels`",
            "spec.scores[0]": "LeastRequestedPriority: this version refuses its arguments: "
            "the weight of cpu must be 1 to 100, not 1000 - at `$.resources[0]`",
        }

    def test_names_every_rule_that_it_cant_say_and_why(self) -> None:
        label = {"builtin": "CheckNodeLabelPresence", "arguments": {"presentLabels": ["a"], "absentLabels": ["b"]}}
        rule_set = make_rule_set(
            params={"a": 1},
            victims=[{"name": "v", "expression": "true"}],
            failures={"redis": "pass"},
            filters=[
                TEAM_FILTER,
                {"builtin": "PodFitsHost", "mode": "shadow"},
                {"builtin": "PodFitsResources", "arguments": {"ignoredResources": ["example.com/x"]}},
                label,
                {"builtin": "NoDiskConflict"},
                {"name": "again", "builtin": "VolumeRestrictions"},
            ],
            scores=[
                {"builtin": "NodeResourcesFit"},
                {"builtin": "NodeLabelPriority", "arguments": {"presentLabelsPreference": ["a", "b"]}},
                {"builtin": "ServiceAntiAffinityPriority"},
                {
                    "name": "n",
                    "builtin": "NodeLabel",
                    "arguments": {"label": "a", "absentLabelsPreference": ["b"]},
                },
            ],
        )
        with pytest.raises(RuleSetError) as caught:
            export_policy(rule_set)
        assert {fault.path: fault.message for fault in caught.value.faults} == {
            "spec.params": "a Policy has no constants",
            "spec.failures": "a Policy can't say what to answer in an outage",
            "spec.victims[0]": "v: a Policy can't protect Pods from preemption",
            "spec.filters[0]": "team: a Policy has no expressions",
            "spec.filters[1]": "PodFitsHost: a Policy has no rules in mode shadow",
            "spec.filters[2]": "PodFitsResources: a Policy has no place for its ignoredResources",
            "spec.filters[3]": "CheckNodeLabelPresence: a Policy says which labels there must be or which not: "
            "make two rules of it",
            "spec.filters[5]": "again: a Policy calls it NoDiskConflict, as it does spec.filters[4]",
            "spec.scores[0]": "NodeResourcesFit: a Policy names what its strategy means: LeastRequestedPriority, "
            "MostRequestedPriority or the like",
            "spec.scores[1]": "NodeLabelPriority: a Policy takes exactly one label for it",
            "spec.scores[2]": "ServiceAntiAffinityPriority: a Policy takes exactly one label for it",
            "spec.scores[3]": "n: a Policy says which labels there must be or which not: make two rules of it",
        }

    @pytest.mark.parametrize("kept", ["{", "[]", "1", "[" * 100_000], ids=["broken", "a list", "a number", "deep"])
    def test_passes_over_a_note_that_someone_has_changed(self, kept: str) -> None:
        rule_set = import_policy(POLICY, name="old")
        head = rule_set.description.partition("here: ")[0]
        document = document_of(rule_set)
        document["metadata"]["description"] = f"{head}here: {kept}"
        assert "extenders" not in export_policy(read_rule_set(document))


# Any JSON, and JSON that looks like a Policy.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
KINDS = ["serviceAffinity", "labelsPresence", "serviceAntiAffinity", "labelPreference"]
NAMES = st.sampled_from(
    [*BUILTIN_FILTERS, *BUILTIN_SCORES, "GeneralPredicates", "CheckVolumeBinding", "HostName", "Mine", ""]
)
INNER = st.fixed_dictionaries(
    {},
    optional={
        "labels": JSON | st.lists(st.text(max_size=3), max_size=2),
        "label": JSON | st.text(min_size=1, max_size=3),
        "presence": JSON | st.booleans(),
        "shape": JSON | st.just([{"utilization": 0, "score": 1}]),
        "resources": JSON | st.just([{"name": "cpu", "weight": 1}]),
    },
)
ARGUMENT = JSON | st.dictionaries(
    st.sampled_from([*KINDS, "requestedToCapacityRatioArguments"]), JSON | INNER, min_size=1, max_size=1
)
ENTRY = JSON | st.fixed_dictionaries(
    {"name": NAMES}, optional={"weight": st.integers(0, 9) | JSON, "argument": ARGUMENT}
)
POLICIES = st.fixed_dictionaries(
    {"kind": st.just("Policy"), "apiVersion": st.just("v1")},
    optional={
        "predicates": st.lists(ENTRY, max_size=4) | JSON,
        "priorities": st.lists(ENTRY, max_size=4) | JSON,
        "extenders": st.lists(JSON, max_size=2) | JSON,
        "hardPodAffinitySymmetricWeight": st.integers(-1, 101) | JSON,
        "alwaysCheckAllPredicates": st.booleans() | JSON,
    },
)
RIGHT_ENTRY = st.fixed_dictionaries({"name": st.sampled_from(["PodFitsResources", "GeneralPredicates", "HostName"])})
RIGHT_POLICIES = st.fixed_dictionaries(
    {"kind": st.just("Policy"), "apiVersion": st.just("v1")},
    optional={
        "predicates": st.lists(
            RIGHT_ENTRY
            | st.builds(
                lambda name, labels: {"name": name, "argument": {"serviceAffinity": {"labels": labels}}},
                st.sampled_from(["A", "B"]),
                st.just(["zone"]),
            ),
            max_size=4,
        ),
        "priorities": st.lists(
            st.sampled_from(["EqualPriority", "InterPodAffinityPriority", "SelectorSpreadPriority"]),
            unique=True,
        ).map(lambda names: [{"name": name, "weight": 2} for name in names]),
        "extenders": st.lists(st.sampled_from([EXTENDER, EXTENDER | {"managedResources": MANAGED}]), max_size=2),
        "hardPodAffinitySymmetricWeight": st.integers(0, 100),
        "alwaysCheckAllPredicates": st.booleans(),
    },
)


@settings(max_examples=500)
@given(JSON | POLICIES)
def test_no_json_raises_anything_but_a_rule_set_error_either_way(document: object) -> None:
    with suppress(RuleSetError):
        export_policy(import_policy(document, name="imported"))


@settings(max_examples=200)
@given(RIGHT_POLICIES)
def test_a_policy_is_the_same_after_it_came_in_and_went_out_twice(document: dict[str, Any]) -> None:
    rule_set = import_policy(document, name="imported")
    once = export_policy(rule_set)
    assert import_policy(once, name="imported") == rule_set
    assert export_policy(import_policy(once, name="imported")) == once
    for member in ("extenders", "hardPodAffinitySymmetricWeight", "alwaysCheckAllPredicates"):
        assert once.get(member) == document.get(member)


class TestCommands:
    def run(self, *arguments: str) -> str:
        out = io.StringIO()
        call_command(*arguments, stdout=out)
        return out.getvalue()

    def test_a_policy_becomes_yaml_and_json_again(self, tmp_path: Path) -> None:
        (tmp_path / "policy.json").write_text(json.dumps(POLICY))
        written = self.run("importpolicy", str(tmp_path / "policy.json"), "--name", "old")
        (located,) = manifests.read_documents(written, "x")
        assert read_rule_set(located.document) == import_policy(POLICY, name="old")
        (tmp_path / "old.yaml").write_text(written)
        again = json.loads(self.run("exportpolicy", str(tmp_path / "old.yaml")))
        assert again == export_policy(import_policy(POLICY, name="old"))

    def test_documents_beside_the_rule_set_are_left_out(self, tmp_path: Path) -> None:
        path = tmp_path / "old.yaml"
        rule_set = manifests.to_yaml(document_of(import_policy(POLICY, name="old")))
        path.write_text(f"kind: PriorityClass\n---\n{rule_set}---\nkind: Assignment\n")
        assert json.loads(self.run("exportpolicy", str(path))) == export_policy(import_policy(POLICY, name="old"))

    def test_faults_have_file_and_line(self, tmp_path: Path) -> None:
        path = tmp_path / "policy.json"
        path.write_text(json.dumps(policy(predicates=[{"name": "PodFitsResources"}, {"name": "Nope"}]), indent=1))
        with pytest.raises(CommandError, match=r"policy.json:9: predicates\[1\].name: no built-in is called Nope"):
            self.run("importpolicy", str(path))

    def test_a_rule_that_a_policy_cant_say_has_file_and_line(self, tmp_path: Path) -> None:
        path = tmp_path / "web.yaml"
        path.write_text(manifests.to_yaml(document_of(make_rule_set(filters=[TEAM_FILTER]))))
        with pytest.raises(CommandError, match=r"web.yaml:7: spec.filters\[0\]: team: a Policy has no expressions"):
            self.run("exportpolicy", str(path))

    @pytest.mark.parametrize("command", ["importpolicy", "exportpolicy"])
    @pytest.mark.parametrize(
        ("text", "said"),
        [("", "holds 0 documents"), ("a: 1\n---\nb: 1", "holds 2 documents"), ("a: [", "not readable")],
    )
    def test_a_file_without_one_document_is_refused(self, tmp_path: Path, command: str, text: str, said: str) -> None:
        (tmp_path / "x.yaml").write_text(text)
        with pytest.raises(CommandError, match=said):
            self.run(command, str(tmp_path / "x.yaml"))

    def test_a_file_that_isnt_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match=r"none.json:1: can't be read"):
            self.run("importpolicy", str(tmp_path / "none.json"))
