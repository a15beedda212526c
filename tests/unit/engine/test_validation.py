"""The one validator: what it lets through can be stored, compiled and decided with; what it refuses it explains."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.engine.decision import CompiledRevision
from policies.engine.documents import document_of, read_assignment
from policies.engine.errors import Fault, RuleSetError
from policies.engine.reading import MAX_DEPTH, Reader, type_name
from policies.engine.ruleset import Assignment, Failures, Revision, RuleSet, decode_revision, encode
from policies.engine.validation import MAX_REASON_LENGTH, MAX_RULES, MAX_WEIGHT, read_rule_set
from tests.builders import TEAM_FILTER, assignment_document, make_node, make_pod, rule_set_document

FULL_RULE_SET: dict[str, Any] = {
    "apiVersion": "berth/v1",
    "kind": "RuleSet",
    "metadata": {"name": "web-on-web", "description": "Web Pods stay on their team's nodes"},
    "spec": {
        "filters": [
            {**TEAM_FILTER, "onError": "pass", "preemptionHelps": True, "mode": "shadow"},
            {"builtin": "PodFitsResources", "arguments": {"ignoredResources": ["example.com/gpu"]}},
            {"name": "fits-too", "builtin": "PodFitsResources", "mode": "off"},
        ],
        "scores": [
            {"name": "short", "expression": "20 - size(node.metadata.name)", "bounds": [0, 20.5], "weight": 3},
            {"builtin": "LeastRequestedPriority", "arguments": {"resources": [{"name": "cpu", "weight": 2}]}},
        ],
        "victims": [
            {
                "name": "production-stays",
                "expression": "victim.metadata.?labels.env.orValue('') != 'prod'",
                "reason": "production Pods are not preempted",
                "onError": "pass",
                "mode": "shadow",
            },
        ],
        "params": {"limit": 3, "nested": {"list": [1, None, True, "x", 2.5]}},
        "failures": {
            "deadline": "pass",
            "staleSnapshot": "refuse",
            "staleAfterSeconds": 100,
            "database": "pass",
            "redis": "refuse",
            "apiServer": "pass",
        },
        "tests": [
            {
                "name": "a test",
                "pod": make_pod(),
                "nodes": [make_node("n1")],
                "pods": [make_pod("other")],
                "now": "2026-03-29T01:30:00Z",
                "expect": {
                    "feasible": [],
                    "best": "",
                    "reasons": {"n1": "node belongs to another team"},
                    "protected": ["other"],
                },
            },
            {"name": "nothing expected", "pod": {}, "expect": {}},
        ],
    },
}
FULL_ASSIGNMENT: dict[str, Any] = {
    "apiVersion": "berth/v1",
    "kind": "Assignment",
    "metadata": {"name": "all-web", "description": "Everything"},
    "spec": {
        "ruleSet": "web-on-web",
        "order": 7,
        "mode": "shadow",
        "match": {
            "schedulerNames": ["berth"],
            "namespaces": ["default"],
            "namespaceSelector": {"matchLabels": {"kind": "prod"}},
            "podSelector": {
                "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["b"]},
                    {"key": "a", "operator": "NotIn", "values": ["c"]},
                    {"key": "a", "operator": "Exists"},
                    {"key": "b", "operator": "DoesNotExist"},
                ]
            },
            "priorityClassNames": ["high"],
        },
    },
}


def faults_of(document: object) -> dict[str, str]:
    """Return path -> message of what is refused; empty when nothing is."""
    read = read_assignment if isinstance(document, dict) and document.get("kind") == "Assignment" else read_rule_set
    try:
        read(document)
    except RuleSetError as error:
        return {fault.path: fault.message for fault in error.faults}
    return {}


def filter_faults(**rule: Any) -> dict[str, str]:
    return {
        path.removeprefix("spec.filters[0]").strip("."): message
        for path, message in faults_of(rule_set_document(filters=[rule])).items()
    }


def score_faults(**rule: Any) -> dict[str, str]:
    return {
        path.removeprefix("spec.scores[0]").strip("."): message
        for path, message in faults_of(rule_set_document(scores=[rule])).items()
    }


WANTED = ".addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions"


def wanted(requirement: dict[str, Any]) -> dict[str, Any]:
    """Return a node affinity that requires a label."""
    terms = [{"matchExpressions": [requirement]}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def spread(*keys: str) -> dict[str, Any]:
    return {
        "defaultConstraints": [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"} for key in keys]
    }


class TestReadRuleSet:
    def test_every_member_of_a_rule_set_is_read(self) -> None:
        rule_set = read_rule_set(FULL_RULE_SET)
        assert rule_set.name == "web-on-web"
        first = rule_set.spec.filters[0]
        assert (first.key, first.on_error, first.preemption_helps, first.mode) == ("team", "pass", True, "shadow")
        assert [rule.key for rule in rule_set.spec.filters] == ["team", "PodFitsResources", "fits-too"]
        assert rule_set.spec.scores[0].bounds == (0, 20.5)
        (victim,) = rule_set.spec.victims
        assert (victim.key, victim.on_error, victim.mode) == ("production-stays", "pass", "shadow")
        assert rule_set.spec.failures == Failures(
            deadline="pass",
            stale_snapshot="refuse",
            stale_after_seconds=100,
            database="pass",
            redis="refuse",
            api_server="pass",
        )
        assert rule_set.spec.tests[0].expect.protected == ["other"]
        assert rule_set.spec.params["limit"] == 3
        assert rule_set.spec.tests[0].expect.best == ""
        assert rule_set.spec.tests[1].expect.feasible is None

    def test_tells_all_faults_at_once_each_with_its_path(self) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Rules",
            "metadata": {"name": "Web", "labels": {}},
            "spec": {
                "filters": [
                    {"expression": "node.metadata.name ==", "resaon": "x"},
                    {"builtin": "PodFitsResource"},
                    "PodFitsResources",
                ],
                "scores": [{"name": "a b", "expression": "'x'", "weight": 0, "bounds": [3, 1]}],
                "params": [],
                "tests": [{"pod": {"spec": 1}, "now": "yesterday", "nodes": [{}, 5]}],
            },
        }
        assert set(faults_of(document)) == {
            "apiVersion",
            "kind",
            "metadata.labels",
            "metadata.name",
            "spec.filters[0].resaon",
            "spec.filters[0].name",
            "spec.filters[0].expression",
            "spec.filters[1].builtin",
            "spec.filters[2]",
            "spec.scores[0].name",
            "spec.scores[0].weight",
            "spec.scores[0].bounds",
            "spec.scores[0].expression",
            "spec.params",
            "spec.tests[0].name",
            "spec.tests[0].expect",
            "spec.tests[0].pod",
            "spec.tests[0].now",
            "spec.tests[0].nodes[1]",
        }

    @pytest.mark.parametrize("document", [None, [], "text", 1, True])
    def test_what_is_no_object_is_refused_as_a_whole(self, document: object) -> None:
        with pytest.raises(RuleSetError) as caught:
            read_rule_set(document)
        assert ["must be an object with apiVersion" in fault.message for fault in caught.value.faults] == [True]

    def test_every_member_of_the_envelope_is_asked_for(self) -> None:
        assert faults_of({}) == {
            "apiVersion": "must be berth/v1",
            "kind": "must be RuleSet",
            "metadata.name": "is needed",
            "spec": "is needed",
        }

    @pytest.mark.parametrize("name", ["Web", "-web", "web-", "w_b", "a" * 64, "wéb"])
    def test_a_name_that_kubernetes_would_not_take_is_refused(self, name: str) -> None:
        assert "lower-case letters" in faults_of(rule_set_document(name))["metadata.name"]

    def test_a_name_of_63_characters_is_taken(self) -> None:
        assert read_rule_set(rule_set_document("a" * 63)).name == "a" * 63

    @pytest.mark.parametrize(
        ("document", "path", "hint"),
        [
            pytest.param({"filter": []}, "spec.filter", "did you mean filters?", id="a member that is nearly right"),
            pytest.param(
                {"zzz": 1}, "spec.zzz", "known are failures, filters, params, scores, tests, victims", id="none"
            ),
            pytest.param(
                {"filters": [{"builtin": "PodFitResources"}]},
                "spec.filters[0].builtin",
                "no built-in is called PodFitResources; did you mean PodFitsResources?",
                id="a built-in",
            ),
            pytest.param(
                {"scores": [{"builtin": "zzz"}]}, "spec.scores[0].builtin", "known are", id="a built-in like none"
            ),
        ],
    )
    def test_a_wrong_word_is_answered_with_the_nearest_known(
        self, document: dict[str, Any], path: str, hint: str
    ) -> None:
        assert hint in faults_of(rule_set_document(**document))[path]

    def test_a_hundred_rules_are_taken_and_one_more_is_not(self) -> None:
        rules = [{"name": f"r{place}", "expression": "true"} for place in range(MAX_RULES + 1)]
        assert faults_of(rule_set_document(filters=rules[:-1])) == {}
        assert faults_of(rule_set_document(filters=rules)) == {"spec.filters": "at most 100 rules, not 101"}

    def test_two_rules_may_not_share_a_name(self) -> None:
        rules = [{"builtin": "PodFitsResources"}, {"builtin": "PodFitsResources"}]
        message = "PodFitsResources is already the name of spec.filters[0]; give one of them another name"
        assert faults_of(rule_set_document(filters=rules)) == {"spec.filters[1].name": message}

    def test_a_filter_and_a_score_may_share_a_name(self) -> None:
        spec = {"filters": [{"name": "a", "expression": "true"}], "scores": [{"name": "a", "expression": "1"}]}
        assert faults_of(rule_set_document(**spec)) == {}

    def test_a_default_that_is_spelled_out_leaves_no_trace_in_the_bytes_that_digests_are_taken_of(self) -> None:
        spelled = '{"mode": "enforce", "onError": "reject", "preemptionHelps": false, "reason": "", "arguments": {}}'
        explicit = rule_set_document(filters=[{"name": "a", "expression": "true"} | json.loads(spelled)])
        assert encode(read_rule_set(explicit)) == encode(
            read_rule_set(rule_set_document(filters=[{"name": "a", "expression": "true"}]))
        )


class TestRules:
    def test_a_rule_needs_a_builtin_or_an_expression(self) -> None:
        assert filter_faults(name="x") == {"": "needs a builtin or an expression"}

    def test_a_built_in_that_is_only_named_is_told_what_was_meant(self) -> None:
        hint = "needs a builtin or an expression; did you mean builtin: PodFitsResources?"
        assert filter_faults(name="PodFitsResources") == {"": hint}
        assert score_faults(name="PodFitsResources") == {"": "needs a builtin or an expression"}, "that is a filter"

    def test_a_rule_is_not_both(self) -> None:
        faults = filter_faults(name="x", builtin="PodFitsResources", expression="true")
        assert faults["expression"] == "a rule is a builtin or an expression, not both"

    def test_a_builtin_of_the_wrong_type_is_one_fault(self) -> None:
        assert filter_faults(name="x", builtin=5) == {"builtin": "must be a text, not a number"}

    def test_an_expression_needs_a_name_and_takes_no_arguments(self) -> None:
        faults = filter_faults(expression="true", arguments={"a": 1})
        assert faults["name"].startswith("a rule with an expression needs a name")
        assert faults["arguments"] == "belong to built-ins; an expression reads params"

    def test_a_refused_expression_carries_its_position(self) -> None:
        with pytest.raises(RuleSetError) as caught:
            read_rule_set(rule_set_document(filters=[{"name": "x", "expression": "true &&\n nothing"}]))
        (fault,) = caught.value.faults
        assert (fault.path, fault.line, fault.column) == ("spec.filters[0].expression", 2, 2)
        assert str(fault).endswith("(line 2, column 2 of the expression)")

    def test_a_builtin_has_its_own_reason_and_codes(self) -> None:
        faults = filter_faults(builtin="PodFitsResources", reason="x", preemptionHelps=False, onError="pass")
        assert set(faults) == {"reason", "preemptionHelps", "onError"}
        assert set(score_faults(builtin="LeastRequestedPriority", bounds=[0, 1])) == {"bounds"}

    @pytest.mark.parametrize(
        ("builtin", "arguments", "place", "fault"),
        [
            ("PodFitsResources", {"zzz": 1}, ".zzz", "unknown member; known are ignoredResourceGroups, ignoredResources"),
            ("PodFitsResources", {"ignoredResources": "x"}, ".ignoredResources", "Expected `array`, got `str`"),
            ("PodFitsHost", {"zzz": 1}, "", "must be left out: this built-in takes none"),
            ("NodeAffinity", {"addedAffinity": {"required": {}}}, ".addedAffinity.required", "unknown member; known are preferred"),
            ("NodeAffinity", {"addedAffinity": wanted({"key": "a", "operator": "In", "value": ["b"]})}, f"{WANTED}[0].value", "unknown member; did you mean values?"),
            ("PodTopologySpread", {"defaultConstraints": [{"minDomain": 3}]}, ".defaultConstraints[0].minDomain", "unknown member; did you mean minDomains?"),
            ("PodTopologySpread", {"defaultingType": "list"}, ".defaultingType", "must be one of List, System, not 'list'"),
        ],
    )  # fmt: skip
    def test_arguments_that_a_builtin_does_not_have_are_refused_at_their_place(
        self, builtin: str, arguments: dict[str, Any], place: str, fault: str
    ) -> None:
        faults = filter_faults(builtin=builtin, arguments=arguments)
        assert list(faults) == [f"arguments{place}"]
        assert faults[f"arguments{place}"].startswith(fault)

    def test_a_builtins_own_check_of_its_arguments_is_told(self) -> None:
        arguments = {"resources": [{"name": "cpu", "weight": 101}]}
        faults = score_faults(builtin="LeastRequestedPriority", arguments=arguments)
        assert "must be 1 to 100, not 101" in faults["arguments.resources[0]"]

    def test_a_topology_may_have_a_default_constraint_of_each_kind(self) -> None:
        kinds = ("DoNotSchedule", "ScheduleAnyway")
        defaults = [{"topologyKey": "zone", "whenUnsatisfiable": kind, "maxSkew": 1} for kind in kinds]
        assert filter_faults(builtin="PodTopologySpread", arguments={"defaultConstraints": defaults}) == {}

    def test_names_and_groups_of_ignored_resources_are_taken(self) -> None:
        arguments = {"ignoredResources": ["example.com/gpu"], "ignoredResourceGroups": ["example.com", "example.org"]}
        assert filter_faults(builtin="PodFitsResources", arguments=arguments) == {}

    @pytest.mark.parametrize("find", [filter_faults, score_faults])
    @pytest.mark.parametrize(
        "requirement",
        [
            {"key": "zone", "operator": "in", "values": ["a"]},
            {"key": "zone", "operator": "In"},
            {"key": "zone", "operator": "Exists", "values": ["a"]},
            {"key": "cores", "operator": "Gt", "values": ["many"]},
            {"key": "a zone", "operator": "Exists"},
        ],
    )
    def test_an_added_affinity_that_kubernetes_cannot_read_is_refused(
        self, find: Callable[..., dict[str, str]], requirement: dict[str, Any]
    ) -> None:
        faults = find(builtin="NodeAffinity", arguments={"addedAffinity": wanted(requirement)})
        assert faults["arguments"].startswith(f"addedAffinity: {requirement['key']!r} {requirement['operator']!r} ")

    def test_an_added_preference_that_would_give_less_than_0_is_refused(self) -> None:
        preference = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
        added = {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": weight, "preference": preference} for weight in (5, 0, -5)
            ]
        }
        faults = score_faults(builtin="NodeAffinityPriority", arguments={"addedAffinity": added})
        assert faults == {
            "arguments": "addedAffinity: a preference weighs 0 or more, not -5; use NotIn or DoesNotExist"
        }

    def test_an_added_affinity_for_names_takes_one_each(self) -> None:
        names = {"key": "metadata.name", "operator": "In"}
        term = {"matchFields": [names | {"values": ["a"]}, names | {"values": ["a", "b"]}]}
        added = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
        faults = score_faults(builtin="NodeAffinity", arguments={"addedAffinity": added})
        said = (
            "addedAffinity: 'metadata.name' 'In' ['a', 'b'] can't be read: matchFields take In or NotIn, with one value"
        )
        assert faults["arguments"] == said

    @pytest.mark.parametrize("find", [filter_faults, score_faults])
    @pytest.mark.parametrize(
        ("builtin", "arguments", "fault"),
        [
            ("NodeResourcesFit", {"ignoredResources": ["a.b/c", "a b"]}, "ignoredResources[1]: 'a b' is no resource's name"),
            ("NodeResourcesFit", {"ignoredResourceGroups": ["a.b/c"]}, "ignoredResourceGroups[0]: 'a.b/c' is no domain"),
            ("PodTopologySpread", spread("a zone"), "defaultConstraints[0].topologyKey: 'a zone' is no label's key"),
            ("PodTopologySpread", spread("a", "b", "a"), "defaultConstraints[2]: one before it has the same topologyKey"),
        ],
    )  # fmt: skip
    def test_arguments_with_which_kube_scheduler_does_not_start_are_refused(
        self, find: Callable[..., dict[str, str]], builtin: str, arguments: dict[str, Any], fault: str
    ) -> None:
        assert find(builtin=builtin, arguments=arguments)["arguments"].startswith(fault)

    @pytest.mark.parametrize(
        ("resources", "fault"),
        [
            ([{"name": "cpu"}, {"name": "memory", "weight": 2}], "the weight of memory must be 1"),
            ([{"name": "cpu"}, {"name": "memory"}, {"name": "cpu"}], "cpu stands twice"),
        ],
    )
    def test_a_balance_takes_each_resource_once_and_no_weights(self, resources: list[Any], fault: str) -> None:
        faults = score_faults(builtin="BalancedResourceAllocation", arguments={"resources": resources})
        assert faults["arguments"].startswith(fault)

    @pytest.mark.parametrize("name", ["a b", "-a", "a-", "é", "a" * 64, "%"])
    def test_a_rules_name_is_plain(self, name: str) -> None:
        assert "name" in filter_faults(name=name, expression="true")

    @pytest.mark.parametrize("reason", ["100%", "two\nlines", "\x01", "tab\there"])
    def test_a_reason_is_one_line_that_go_can_print(self, reason: str) -> None:
        assert "percent sign" in filter_faults(name="x", expression="true", reason=reason)["reason"]

    def test_a_reason_may_be_as_long_as_the_limit(self) -> None:
        assert filter_faults(name="x", expression="true", reason="é" * MAX_REASON_LENGTH) == {}
        faults = filter_faults(name="x", expression="true", reason="é" * (MAX_REASON_LENGTH + 1))
        assert faults == {"reason": "must be at most 128 characters, not 129"}

    @pytest.mark.parametrize(("weight", "fine"), [(0, False), (1, True), (MAX_WEIGHT, True), (MAX_WEIGHT + 1, False)])
    def test_a_weight_outside_its_limits_is_a_fault(self, weight: int, fine: bool) -> None:
        assert (score_faults(name="x", expression="1", weight=weight) == {}) is fine

    @pytest.mark.parametrize("weight", [True, 1.5, "1", [1]])
    def test_a_weight_is_a_whole_number(self, weight: object) -> None:
        assert score_faults(name="x", expression="1", weight=weight)["weight"].startswith("must be a whole number")

    @pytest.mark.parametrize("bounds", [[0, 1], [-1.5, 2], [-(2**63), 2**63 - 1]])
    def test_bounds_are_two_numbers(self, bounds: list[Any]) -> None:
        assert score_faults(name="x", expression="1", bounds=bounds) == {}

    @pytest.mark.parametrize("bounds", [[], [1], [1, 1], [2, 1], [0, 1, 2], ["0", 1], [False, True], {"0": 1}, "01", 5])
    def test_other_bounds_are_refused(self, bounds: object) -> None:
        assert score_faults(name="x", expression="1", bounds=bounds) == {
            "bounds": "must be two numbers, the lower one first: [0, 20]"
        }

    @pytest.mark.parametrize(
        ("member", "value", "message"),
        [
            ("mode", "on", "must be one of enforce, shadow, off, not 'on'"),
            ("onError", "ignore", "must be one of reject, pass, not 'ignore'"),
            ("preemptionHelps", "yes", "must be true or false, not a text"),
            ("reason", 5, "must be a text, not a number"),
        ],
    )
    def test_a_member_of_the_wrong_kind_is_told_what_fits(self, member: str, value: object, message: str) -> None:
        assert filter_faults(name="x", expression="true", **{member: value}) == {member: message}


def victim_faults(**rule: Any) -> dict[str, str]:
    return {
        path.removeprefix("spec.victims[0]").strip("."): message
        for path, message in faults_of(rule_set_document(victims=[rule])).items()
    }


class TestVictims:
    def test_a_rule_needs_a_name_and_an_expression(self) -> None:
        assert victim_faults() == {"name": "is needed", "expression": "is needed"}
        assert victim_faults(name="", expression="") == {"name": "is needed", "expression": "is needed"}

    def test_there_are_no_builtins_and_no_weights(self) -> None:
        faults = victim_faults(name="x", expression="true", builtin="PodFitsResources", weight=1)
        assert set(faults) == {"builtin", "weight"}

    @pytest.mark.parametrize(
        ("expression", "message"),
        [
            ("victim.metadata.labelz.env == 'x'", "victim.metadata has no field labelz; did you mean labels?"),
            ("victim.spec.priorty > 0", "victim.spec has no field priorty; did you mean priority?"),
            ("victim.spec.hostNetwork", "victim.spec.hostNetwork isn't kept of Pods on nodes; known are containers,"),
            ("victim.spec.containers[0].env.size() > 0", "victim.spec.containers.env isn't kept of Pods on nodes;"),
            ("pod.metadata.labelz.env == 'x'", "ObjectMeta has no field labelz; did you mean labels?"),
            ("size(victim.metadata.name)", "gives int, but a boolean is needed"),
            ("victim.metadata.name", "gives string, but a boolean is needed"),
            ("now - timestamp(victim.status.startTime) > duration('7d')", "'7d' is not a duration; write it like"),
            ("usage.free.cpu > 0", "undeclared reference to 'usage'; known are node, now, params, pod, victim"),
            ("node.count({'app': 'x'}) > 0", "undeclared reference to 'count'"),
            ("victim.metadata.name.matches('(')", "invalid regular expression"),
            ("victim.metadata.ownerReferences.exists(victim, true)", "victim is a name of Berth's"),
            ("victim.metadata.ownerReferences.exists(requests, true)", "requests is a name of Berth's"),
            ("victim.metadata.name ==", "the expression ends too early"),
        ],
    )
    def test_a_wrong_expression_is_explained(self, expression: str, message: str) -> None:
        assert message in victim_faults(name="x", expression=expression)["expression"]

    def test_a_filter_knows_no_victim(self) -> None:
        faults = filter_faults(name="x", expression="victim.metadata.name == 'a'")
        assert faults["expression"].startswith("undeclared reference to 'victim'")

    def test_names_reasons_and_words_are_checked_as_those_of_filters(self) -> None:
        faults = victim_faults(name="a b", expression="true", reason="50%", onError="ignore", mode="on")
        assert set(faults) == {"name", "reason", "onError", "mode"}

    def test_two_rules_may_not_share_a_name(self) -> None:
        rules = [{"name": "a", "expression": "true"}] * 2
        assert set(faults_of(rule_set_document(victims=rules))) == {"spec.victims[1].name"}


class TestFailures:
    @pytest.mark.parametrize(
        ("member", "value", "message"),
        [
            ("deadline", "lastKnown", "must be one of refuse, pass, not 'lastKnown'"),
            ("staleSnapshot", "reject", "must be one of lastKnown, pass, refuse, not 'reject'"),
            ("staleAfterSeconds", 99, "must be 100 to 604800, not 99"),
            ("staleAfterSeconds", 604_801, "must be 100 to 604800, not 604801"),
            ("staleAfterSeconds", 100.5, "must be a whole number, not 100.5"),
            ("staleAfterSeconds", 1e6, "must be a whole number, not 1000000.0"),
            ("database", True, "must be a text, not true or false"),
            ("rediz", "pass", "unknown member; did you mean redis?"),
        ],
    )
    def test_a_wrong_choice_is_told_what_fits(self, member: str, value: object, message: str) -> None:
        assert faults_of(rule_set_document(failures={member: value})) == {f"spec.failures.{member}": message}

    @pytest.mark.parametrize("failures", [{}, {"deadline": "refuse", "staleAfterSeconds": 300}, None])
    def test_what_is_chosen_by_default_leaves_no_trace_in_the_bytes_that_digests_are_taken_of(
        self, failures: object
    ) -> None:
        chosen = read_rule_set(rule_set_document(filters=[TEAM_FILTER], failures=failures))
        assert encode(chosen) == encode(read_rule_set(rule_set_document(filters=[TEAM_FILTER])))
        assert b"failures" not in encode(chosen)

    def test_a_revision_of_before_there_were_choices_has_the_default_ones(self) -> None:
        old = b'{"number":1,"ruleSets":[{"name":"a","spec":{"params":{"b":1}}}]}'
        revision = decode_revision(old)
        assert revision.rule_sets[0].spec.failures == Failures()
        assert encode(revision) == old


class TestNotJSON:
    """Values that Python can hold and a stored document, or an expression, can't."""

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            pytest.param(float("inf"), "must be a number that JSON can write, not inf", id="infinity"),
            pytest.param(float("nan"), "must be a number that JSON can write, not nan", id="no number"),
            pytest.param(2**63, "is too large a number", id="a number beyond 64 bits"),
            pytest.param(-(2**63) - 1, "is too large a number", id="a number beyond 64 bits below zero"),
            pytest.param("\ud800", "holds half of a character", id="half of a character"),
            pytest.param("a\0b", "holds NUL", id="what no database stores"),
            pytest.param({1, 2}, "must be a value that JSON has, not set", id="a set"),
            pytest.param(b"x", "must be a value that JSON has, not bytes", id="bytes"),
        ],
    )
    @pytest.mark.parametrize("place", ["params", "pod", "bounds"])
    def test_is_refused_with_its_path(self, place: str, value: object, message: str) -> None:
        document = deepcopy(FULL_RULE_SET)
        if place == "params":
            document["spec"]["params"]["nested"]["list"][2] = value
            path = "spec.params.nested.list[2]"
        elif place == "pod":
            document["spec"]["tests"][0]["pod"]["spec"]["x"] = value
            path = "spec.tests[0].pod.spec.x"
        else:
            document["spec"]["scores"][0]["bounds"] = [0, value]
            path = "spec.scores[0].bounds[1]"
        assert faults_of(document)[path].startswith(message)

    @pytest.mark.parametrize("name", [1, None, True, "\udfff"])
    def test_a_members_name_is_a_text(self, name: object) -> None:
        faults = faults_of(rule_set_document(params={"x": {name: 1}}))
        wanted = "without control characters" if isinstance(name, str) else ": put it in quotes"
        assert faults == {"spec.params.x": f"the member name {name!r} must be a text {wanted}".replace(" :", ":")}

    def test_a_document_that_contains_itself_is_refused(self) -> None:
        loop: list[Any] = []
        loop += [loop, loop, {"again": loop}]
        assert "deep inside each other" in faults_of(rule_set_document(params={"loop": loop}))[""]

    def test_nesting_ends_at_the_limit(self) -> None:
        def nested(depth: int) -> Any:
            return [nested(depth - 1)] if depth else 1

        assert faults_of(rule_set_document(params={"x": nested(MAX_DEPTH - 3)})) == {}
        assert set(faults_of(rule_set_document(params={"x": nested(MAX_DEPTH - 2)}))) == {""}


class TestTests:
    @pytest.mark.parametrize("now", ["yesterday", "2026-03-29", "2026-03-29T01:30:00", "25:00"])
    def test_a_time_needs_its_zone(self, now: str) -> None:
        document = rule_set_document(tests=[{"name": "x", "pod": {}, "expect": {}, "now": now}])
        assert "a time with its zone" in faults_of(document)["spec.tests[0].now"]

    def test_namespaces_are_objects_with_a_name(self) -> None:
        namespaces = ["shop", {"metadata": {"labels": {"team": "web"}}}, {"metadata": {"name": "shop", "labels": 5}}]
        document = rule_set_document(tests=[{"name": "x", "pod": {}, "expect": {}, "namespaces": namespaces}])
        faults = faults_of(document)
        said = {path.removeprefix("spec.tests[0]."): message for path, message in faults.items()}
        assert said["namespaces[0]"] == "a Namespace is an object, not str"
        assert said["namespaces[1]"] == "Namespace: needs a name, as metadata.name"
        assert "labels" in said["namespaces[2]"]

    def test_expectations_are_lists_and_texts(self) -> None:
        expect = {"feasible": "n1", "best": 1, "reasons": {"n1": 5}, "worst": "n2"}
        faults = faults_of(rule_set_document(tests=[{"name": "x", "pod": {}, "expect": expect}]))
        assert {path.removeprefix("spec.tests[0].expect.") for path in faults} == {
            "feasible",
            "best",
            "reasons.n1",
            "worst",
        }
        assert "put it in quotes" in faults["spec.tests[0].expect.reasons.n1"]

    def test_objects_have_kubernetes_types(self) -> None:
        test = {"name": "x", "pod": {"metadata": {"labels": {"a": 1}}}, "pods": [1], "expect": {}}
        faults = faults_of(rule_set_document(tests=[test]))
        assert set(faults) == {"spec.tests[0].pod", "spec.tests[0].pods[0]"}


class TestReadAssignment:
    def test_every_member_of_an_assignment_is_read(self) -> None:
        assignment = read_assignment(FULL_ASSIGNMENT)
        assert (assignment.rule_set, assignment.order, assignment.mode) == ("web-on-web", 7, "shadow")
        assert assignment.match.namespace_selector.match_labels == {"kind": "prod"}
        assert assignment.match.pod_selector.match_expressions[2] == {"key": "a", "operator": "Exists"}

    def test_an_empty_match_takes_every_pod_and_the_order_is_100(self) -> None:
        assignment = read_assignment(assignment_document())
        assert (assignment.order, assignment.mode) == (100, "enforce")
        assert assignment.match == Assignment(name="x", rule_set="y").match

    @pytest.mark.parametrize(
        ("entry", "member", "message"),
        [
            ({"operator": "Exists"}, "key", "is needed"),
            ({"key": "a"}, "operator", "is needed: one of In, NotIn, Exists, DoesNotExist"),
            ({"key": "a", "operator": "Gt"}, "operator", "must be one of"),
            ({"key": "a", "operator": "In"}, "values", "In needs at least one value"),
            ({"key": "a", "operator": "NotIn", "values": []}, "values", "NotIn needs at least one value"),
            ({"key": "a", "operator": "Exists", "values": ["b"]}, "values", "Exists takes no values"),
            ({"key": "a", "operator": "In", "values": ["b", 1]}, "values[1]", "must be a text, not a number"),
        ],
    )
    def test_a_requirement_is_one_of_kubernetes(self, entry: dict[str, Any], member: str, message: str) -> None:
        document = assignment_document(match={"podSelector": {"matchExpressions": [entry]}})
        faults = faults_of(document)
        assert faults[f"spec.match.podSelector.matchExpressions[0].{member}"].startswith(message)

    def test_reads_a_canary_its_params_and_kinds_of_owners(self) -> None:
        document = assignment_document(
            mode="canary", percent=1, params={"team": "a"}, match={"ownerKinds": ["Deployment", "none"]}
        )
        assignment = read_assignment(document)
        assert (assignment.mode, assignment.percent, assignment.params) == ("canary", 1, {"team": "a"})
        assert assignment.match.owner_kinds == ["Deployment", "none"]
        assert read_assignment(document_of(assignment)) == assignment

    @pytest.mark.parametrize(
        ("spec", "path", "message"),
        [
            ({"mode": "canary"}, "spec.percent", "is needed: of 100 workloads, how many"),
            ({"percent": 10}, "spec.percent", "belongs to mode canary"),
            ({"mode": "shadow", "percent": 10}, "spec.percent", "belongs to mode canary"),
            ({"mode": "canary", "percent": 0}, "spec.percent", "must be 1 to 100, not 0"),
            ({"mode": "canary", "percent": 101}, "spec.percent", "must be 1 to 100, not 101"),
            ({"params": ["a"]}, "spec.params", "must be an object, not a list"),
            (
                {"match": {"ownerKinds": ["CronJob"]}},
                "spec.match.ownerKinds[0]",
                "a CronJob controls no Pod: say Job, whose Pods they are",
            ),
            (
                {"match": {"ownerKinds": ["Job", "deployment"]}},
                "spec.match.ownerKinds[1]",
                "'deployment' is no kind of Kubernetes, such as Deployment or Job, nor none",
            ),
        ],
    )
    def test_faults_of_canaries_and_owners_have_their_paths(
        self, spec: dict[str, Any], path: str, message: str
    ) -> None:
        assert faults_of(assignment_document(**spec)) == {path: message}

    def test_tells_all_faults_at_once(self) -> None:
        document = assignment_document(
            order=-1,
            mode="off",
            ruleSets="x",
            match={"namespaces": "default", "podSelector": {"matchLabels": {"a": 1}}},
        )
        del document["spec"]["ruleSet"]
        assert set(faults_of(document)) == {
            "spec.ruleSets",
            "spec.ruleSet",
            "spec.order",
            "spec.mode",
            "spec.match.namespaces",
            "spec.match.podSelector.matchLabels.a",
        }

    @pytest.mark.parametrize("order", [0, 1_000_000])
    def test_the_order_has_limits(self, order: int) -> None:
        assert faults_of(assignment_document(order=order)) == {}
        beyond = order - 1 if order == 0 else order + 1
        assert faults_of(assignment_document(order=beyond)) == {"spec.order": f"must be 0 to 1000000, not {beyond}"}


class TestDocumentOf:
    @pytest.mark.parametrize("document", [FULL_RULE_SET, rule_set_document()], ids=["full", "short"])
    def test_a_rule_set_reads_back_equal(self, document: dict[str, Any]) -> None:
        rule_set = read_rule_set(document)
        assert read_rule_set(document_of(rule_set)) == rule_set

    @pytest.mark.parametrize("document", [FULL_ASSIGNMENT, assignment_document()], ids=["full", "short"])
    def test_an_assignment_reads_back_equal(self, document: dict[str, Any]) -> None:
        assignment = read_assignment(document)
        assert read_assignment(document_of(assignment)) == assignment

    def test_defaults_are_left_out(self) -> None:
        rules = [{"name": "x", "expression": "true", "mode": "enforce", "onError": "reject", "preemptionHelps": False}]
        document = document_of(read_rule_set(rule_set_document(filters=rules, scores=[])))
        assert document == rule_set_document(filters=[{"name": "x", "expression": "true"}])

    def test_a_revision_of_them_is_stored_and_read_back_equal(self) -> None:
        rule_set, assignment = read_rule_set(FULL_RULE_SET), read_assignment(FULL_ASSIGNMENT)
        revision = Revision(number=1, rule_sets=[rule_set], assignments=[assignment])
        assert decode_revision(encode(revision)) == revision
        assert encode(decode_revision(encode(revision))) == encode(revision)
        with pytest.raises(msgspec.DecodeError):
            decode_revision(b"{")


# What anyone may send: any JSON, and documents that are nearly right.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
WORDS = st.sampled_from(["true", "1", "enforce", "PodFitsResources", "In", "Exists", "web", "node.metadata.name == ''"])


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, member in members for place in _places(member, (*path, key)))]


@st.composite
def nearly(draw: st.DrawFn, document: dict[str, Any]) -> Any:
    """Return a document in which a few places hold something else, or nothing."""
    document = deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(_places(document)))
        if not place:
            return draw(JSON)
        holder = document
        for key in place[:-1]:
            holder = holder[key]
        if draw(st.booleans()):
            holder[place[-1]] = draw(JSON | WORDS)
        elif isinstance(holder, dict):
            del holder[place[-1]]
            holder[draw(st.text(max_size=5))] = draw(JSON | WORDS)
    return document


class TestAnyDocument:
    @settings(max_examples=400)
    @given(JSON | nearly(FULL_RULE_SET))
    def test_is_refused_with_faults_or_can_be_stored_compiled_and_read_back(self, document: Any) -> None:
        try:
            rule_set = read_rule_set(document)
        except RuleSetError:
            return
        _can_be_used(Revision(number=1, rule_sets=[rule_set]))
        assert read_rule_set(msgspec.json.decode(msgspec.json.encode(document_of(rule_set)))) == rule_set

    @settings(max_examples=300)
    @given(JSON | nearly(FULL_ASSIGNMENT))
    def test_is_refused_with_faults_or_is_an_assignment_that_can_be_used(self, document: Any) -> None:
        try:
            assignment = read_assignment(document)
        except RuleSetError:
            return
        rule_set = RuleSet(name=assignment.rule_set)
        _can_be_used(Revision(number=1, rule_sets=[rule_set], assignments=[assignment]))
        assert read_assignment(document_of(assignment)) == assignment


def _can_be_used(revision: Revision) -> None:
    stored = decode_revision(encode(revision))
    assert encode(stored) == encode(revision)
    CompiledRevision(stored)


class TestReader:
    def test_the_path_of_an_object_itself_is_its_own(self) -> None:
        faults: list[Fault] = []
        reader = Reader({"a": None}, "spec", faults, {"a"})
        reader.fault("", "is wrong")
        assert faults == [Fault("spec", "is wrong")]
        assert reader.where("a") == "spec.a"
        assert "a" not in reader

    def test_a_fault_without_a_path_is_its_message(self) -> None:
        assert str(Fault("", "is wrong")) == "is wrong"
        assert str(Fault("spec", "is wrong")) == "spec: is wrong"
        assert str(RuleSetError([Fault("a", "b"), Fault("c", "d")])) == "a: b; c: d"

    @pytest.mark.parametrize(
        ("value", "name"),
        [({}, "an object"), ([], "a list"), ("", "a text"), (True, "true or false"), (None, "null"), (1.5, "a number")],
    )
    def test_types_are_named_as_people_name_them(self, value: object, name: str) -> None:
        assert type_name(value) == name
