"""Files of users as they are: Kubernetes' own Policies with tabs, historic names, its PriorityClasses and Lists."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from policies.classic import export_policy, import_policy
from policies.engine.decision import CompiledRuleSet
from policies.engine.documents import document_of
from policies.engine.errors import RuleSetError
from policies.engine.filters.node_affinity import MatchNodeSelector
from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.validation import read_document, read_rule_set
from policies.manifests import read_documents
from tests.builders import make_priority_class, rule_set_document
from tests.upstream_policies import OFFICIAL, WITH_EXTENDER


def run(command: str, text: str, tmp_path: Path, *more: str) -> tuple[str, str]:
    path = tmp_path / "policy.json"
    path.write_text(text)
    out, err = io.StringIO(), io.StringIO()
    call_command(command, str(path), *more, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def refusal(text: str) -> str:
    with pytest.raises(RuleSetError) as caught:
        read_documents(text, "policy.json")
    return str(caught.value.faults[0].message)


class TestTabs:
    def test_the_official_policy_is_imported_as_published(self, tmp_path: Path) -> None:
        made, _ = run("importpolicy", OFFICIAL, tmp_path)
        rules = read_rule_set(read_documents(made, "made")[0].document).spec
        assert [rule.builtin for rule in rules.filters] == [
            "PodFitsHostPorts", "PodFitsResources", "NoDiskConflict", "MatchNodeSelector", "PodFitsHost",
        ]  # fmt: skip
        assert [(rule.builtin, rule.weight) for rule in rules.scores][-1] == ("EqualPriority", 1)

    def test_a_rule_set_in_json_with_tabs_is_linted(self, tmp_path: Path) -> None:
        said, _ = run("lint", json.dumps(rule_set_document(), indent="\t"), tmp_path)
        assert said == "no faults\n"

    def test_a_fault_stands_on_its_line_all_the_same(self, tmp_path: Path) -> None:
        text = json.dumps(rule_set_document(filters=[{"builtin": "PodFitsResource"}]), indent="\t")
        line = next(number for number, line in enumerate(text.splitlines(), 1) if "PodFitsResource" in line)
        (located,) = read_documents(text, "x.json")
        assert located.line_of("spec.filters[0].builtin") == line

    def test_a_tab_inside_a_text_stays_what_it_is(self) -> None:
        (located,) = read_documents('{\n\t"a": "x\\ty"\n}', "x.json")
        assert located.document == {"a": "x\ty"}

    @pytest.mark.parametrize("head", ["\ufeff", "  \n", ""])
    def test_json_may_begin_with_a_byte_order_mark_or_space(self, head: str) -> None:
        assert read_documents(head + '{\n\t"a": 1}', "x.json")[0].document == {"a": 1}

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('{\n\t"a": 1,\n\t"b" 2\n}', "policy.json:3: not readable as YAML or JSON: column 6: Expecting ':' delimiter"),
            ('{\n\t"a": [1,\n\t2\n', "policy.json:4: not readable as YAML or JSON: column 1: Expecting ',' delimiter"),
            ('[\n\t{"a": 1}\n\t{"b": 2}\n]', "policy.json:3: not readable as YAML or JSON: column 2: Expecting ',' delimiter"),
        ],
    )  # fmt: skip
    def test_a_slip_in_json_is_said_with_line_and_column(self, text: str, said: str) -> None:
        assert refusal(text) == said

    def test_a_member_that_stands_twice_is_refused_with_tabs_too(self) -> None:
        assert "policy.json:3: " in refusal('{\n\t"a": 1,\n\t"a": 2\n}')

    def test_yaml_with_a_tab_is_refused_as_before(self) -> None:
        assert "policy.json:2: " in refusal("a: 1\n\tb: 2\n")
        assert "column" not in refusal("{a: 1,\n\tb: [2}")

    def test_a_policy_given_to_lint_is_read_as_the_rules_that_it_makes(self, tmp_path: Path) -> None:
        path = tmp_path / "policy.json"
        path.write_text(OFFICIAL)
        out = io.StringIO()
        call_command("lint", str(path), stdout=out)
        assert out.getvalue() == "no faults\n"


class TestNames:
    def test_pod_selector_matches_is_the_node_selector(self) -> None:
        assert BUILTIN_FILTERS["PodSelectorMatches"] is MatchNodeSelector
        policy = {
            "kind": "Policy",
            "apiVersion": "v1",
            "predicates": [{"name": "PodSelectorMatches"}],
            "priorities": [],
        }
        (rule,) = import_policy(policy, name="x").spec.filters
        assert CompiledRuleSet(import_policy(policy, name="x")) is not None
        assert BUILTIN_FILTERS[rule.builtin] is MatchNodeSelector

    @pytest.mark.parametrize("name", ["CheckVolumeBinding", "NoVolumeNodeConflict", "VolumeBinding"])
    def test_a_rule_over_volume_binding_is_told_who_checks_it(self, name: str) -> None:
        with pytest.raises(RuleSetError) as caught:
            read_rule_set(rule_set_document(filters=[{"builtin": name}]))
        (fault,) = caught.value.faults
        assert fault.path == "spec.filters[0].builtin"
        assert f"{name} is no built-in: kube-scheduler checks and binds volumes itself" in fault.message
        assert "leave it out" in fault.message

    def test_general_predicates_are_spelled_out(self) -> None:
        with pytest.raises(RuleSetError, match="PodFitsResources, PodFitsHost, PodFitsHostPorts, MatchNodeSelector"):
            read_rule_set(rule_set_document(filters=[{"builtin": "GeneralPredicates"}]))


class TestExtendersAlone:
    def test_a_policy_of_extenders_alone_brings_no_rules(self, tmp_path: Path) -> None:
        made, said = run("importpolicy", WITH_EXTENDER, tmp_path)
        rules = read_rule_set(read_documents(made, "made")[0].document).spec
        assert (rules.filters, rules.scores) == ([], [])
        assert "doctor configuration --from-policy" in said

    @pytest.mark.parametrize(
        "document",
        [
            {"kind": "Policy", "apiVersion": "v1", "predicates": [], "priorities": []},
            {
                "kind": "KubeSchedulerConfiguration",
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "*"}]}}}],
                "extenders": [{"urlPrefix": "http://x"}],
            },
        ],
        ids=["without extenders", "no Policy"],
    )
    def test_a_file_that_doctor_converts_no_extender_of_is_only_said_to_name_no_rules(
        self, document: dict[str, Any], tmp_path: Path
    ) -> None:
        _, said = run("importpolicy", json.dumps(document), tmp_path)
        assert said == "This file names no rules.\n"

    def test_it_is_exported_as_it_came(self) -> None:
        policy = json.loads(WITH_EXTENDER)
        assert export_policy(import_policy(policy, name="x")) == policy

    def test_empty_lists_beside_extenders_stay_empty_lists(self) -> None:
        policy = json.loads(WITH_EXTENDER) | {"predicates": [], "priorities": []}
        assert export_policy(import_policy(policy, name="x")) == policy

    def test_a_list_that_is_missing_beside_another_is_the_defaults_still(self) -> None:
        policy = json.loads(WITH_EXTENDER) | {"predicates": []}
        spec = import_policy(policy, name="x").spec
        assert spec.filters == []
        assert spec.scores


KUBERNETES: dict[str, Any] = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high-priority", "labels": {"team": "web"}, "uid": "1-2", "creationTimestamp": None},
    "value": 1000000,
    "globalDefault": False,
    "preemptionPolicy": "Never",
    "description": "This priority class should be used for XYZ service pods only.",
}


class TestKubernetesPriorityClass:
    def test_it_is_the_same_class_as_berths_own_document(self) -> None:
        value = read_document(KUBERNETES)
        assert value == make_priority_class(
            "high-priority", 1000000, str(KUBERNETES["description"]), preemptionPolicy="Never"
        )
        assert read_document(document_of(value)) == value

    def test_what_others_hang_on_it_is_passed_over(self) -> None:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "operator", "uid": "3-4"}
        going = {"deletionTimestamp": "2026-07-26T05:43:27Z", "deletionGracePeriodSeconds": 0}
        metadata = KUBERNETES["metadata"] | {"ownerReferences": [owner], "finalizers": ["example.com/x"]} | going
        assert read_document(KUBERNETES | {"metadata": metadata}) == read_document(KUBERNETES)

    def test_what_it_leaves_out_is_as_kubernetes_takes_it(self) -> None:
        least = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "a"}, "value": 0}
        assert read_document(least) == make_priority_class("a", 0)

    @pytest.mark.parametrize(
        ("change", "path", "said"),
        [
            ({"valeu": 1}, "valeu", "did you mean value?"),
            ({"spec": {}}, "spec", "unknown member"),
            ({"value": None}, "value", "is needed"),
            ({"value": "5"}, "value", "must be a whole number"),
            ({"value": 2_000_000_000}, "value", "must be -2147483648 to 1000000000"),
            ({"preemptionPolicy": "Sometimes"}, "preemptionPolicy", "must be one of"),
            ({"description": 5}, "description", "must be a text"),
            ({"metadata": {"name": "system-x"}}, "metadata.name", "reserved for Kubernetes"),
            ({"metadata": {}}, "metadata.name", "is needed"),
            ({"metadata": {"name": "x", "nam": 1}}, "metadata.nam", "did you mean name?"),
            ({"apiVersion": "scheduling.k8s.io/v1beta1"}, "apiVersion", "must be scheduling.k8s.io/v1"),
        ],
    )
    def test_a_fault_has_its_place_in_that_document(self, change: dict[str, Any], path: str, said: str) -> None:
        with pytest.raises(RuleSetError) as caught:
            read_document(KUBERNETES | change)
        (fault,) = caught.value.faults
        assert fault.path == path
        assert said in fault.message

    def test_a_list_holds_several_and_faults_keep_their_lines(self, tmp_path: Path) -> None:
        items = [KUBERNETES, KUBERNETES | {"metadata": {"name": "b"}, "valeu": 1}]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)
        path = tmp_path / "list.json"
        path.write_text(text)
        out = io.StringIO()
        with pytest.raises(CommandError, match=r"^1 fault$"):
            call_command("lint", str(path), stdout=out)
        line = next(number for number, line in enumerate(text.splitlines(), 1) if "valeu" in line)
        assert out.getvalue() == f"{path}:{line}: valeu: unknown member; did you mean value?\n"

    def test_several_documents_and_lists_stand_in_one_file(self, tmp_path: Path) -> None:
        one = json.dumps(KUBERNETES)
        other = KUBERNETES | {"metadata": {"name": "other"}}
        two = json.dumps({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClassList", "items": [other]})
        said, _ = run("lint", f"{one}\n---\n{two}\n", tmp_path)
        assert said == "no faults\n"

    def test_items_of_a_list_of_one_kind_need_not_say_it(self, tmp_path: Path) -> None:
        bare = {name: said for name, said in KUBERNETES.items() if name not in {"apiVersion", "kind"}}
        of_one = {"kind": "PriorityClassList", "apiVersion": "scheduling.k8s.io/v1", "items": [bare]}
        assert run("lint", json.dumps(of_one), tmp_path)[0] == "no faults\n"
        with pytest.raises(CommandError, match=r"^1 fault$"):
            run("lint", json.dumps(of_one | {"items": [bare | {"valeu": 1}]}), tmp_path)

    @pytest.mark.parametrize("items", [None, "x"])
    def test_a_list_without_items_is_refused(self, items: object, tmp_path: Path) -> None:
        with pytest.raises(CommandError):
            run("lint", json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), tmp_path)
