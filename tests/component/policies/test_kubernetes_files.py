"""Kubernetes' own files by `apply`: PriorityClasses alone, in a List, with tabs."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError

from policies import manifests, publishing
from policies.management.commands.lint import lint_files
from policies.models import Change, PriorityClass
from scheduler import applying
from tests.builders import make_rule_set, rule_set_document
from tests.component.pages import opened
from tests.component.policies.test_commands import _run as run
from tests.unit.policies.test_official_policies import KUBERNETES
from tests.upstream_configurations import HEAD, NO_SCORING

pytestmark = pytest.mark.django_db


def test_a_priority_class_of_kubernetes_is_applied_published_and_exported(tmp_path: Path) -> None:
    path = tmp_path / "class.yaml"
    path.write_text(manifests.to_yaml(KUBERNETES))
    assert "PriorityClass high-priority version 1 added" in run("apply", "--publish", str(path))
    assert publishing.live_priority_classes()["high-priority"].preemption_policy == "Never"
    exported = tmp_path / "exported.yaml"
    exported.write_text(run("export"))
    assert "Nothing to publish" in run("apply", "--publish", str(exported))
    assert "Nothing to publish" in run("apply", "--publish", str(path))


def test_a_list_is_applied_item_by_item(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    items = [KUBERNETES | {"metadata": {"name": name}} for name in ("a", "b")]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent="\t"))
    run("apply", "--publish", str(path))
    assert sorted(PriorityClass.objects.values_list("name", flat=True)) == ["a", "b"]


def written_by_kubectl(name: str, value: int) -> dict[str, Any]:
    metadata = {"creationTimestamp": "2026-07-26T05:43:27Z", "generation": 1, "name": name, "resourceVersion": "69"}
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return kind | {"metadata": metadata, "preemptionPolicy": "PreemptLowerPriority", "value": value}


def list_of(*items: dict[str, Any]) -> str:
    document = {"apiVersion": "v1", "items": list(items), "kind": "List", "metadata": {"resourceVersion": ""}}
    return manifests.to_yaml(document)


SYSTEM = [written_by_kubectl(*each) for each in (("system-cluster-critical", 2 * 10**9), ("system-node-critical", 7))]
NAMES = "system-cluster-critical, system-node-critical"


def test_the_classes_that_kubernetes_makes_itself_are_passed_over_with_a_line_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "classes.yaml"
    path.write_text(list_of(written_by_kubectl("shop", 10), *SYSTEM))
    line = f"! {path}: {NAMES} passed over: Kubernetes makes such PriorityClasses itself"

    assert run("lint", str(path)) == f"{line}\nno faults\n"
    assert line in run("apply", "--publish", "--no-cluster", str(path)).splitlines()
    assert list(publishing.live_priority_classes()) == ["shop"]
    assert run("plan", "--no-cluster", str(path)).splitlines()[1:] == [line]


def test_a_file_of_nothing_but_classes_of_kubernetes_is_refused_and_removes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "classes.yaml"
    path.write_text(list_of(*SYSTEM))
    with pytest.raises(CommandError, match=f"holds no document besides {NAMES}, which Kubernetes makes itself: if it"):
        run("apply", "--publish", "--prune", "*", str(path))


def test_a_class_of_somebodys_own_that_begins_with_system_is_refused_as_before(tmp_path: Path) -> None:
    path = tmp_path / "classes.yaml"
    path.write_text(list_of(written_by_kubectl("system-mine", 10)))
    with pytest.raises(CommandError, match="system- is reserved for Kubernetes' own PriorityClasses"):
        run("apply", str(path))


def test_json_with_tabs_is_applied(tmp_path: Path) -> None:
    path = tmp_path / "web.json"
    path.write_text(json.dumps(rule_set_document(), indent="\t"))
    assert "rule set web added" in run("apply", str(path))


POLICY = {
    "kind": "Policy",
    "apiVersion": "v1",
    "predicates": [{"name": "PodFitsResources"}, {"name": "PodSelectorMatches"}],
    "priorities": [{"name": "LeastRequestedPriority", "weight": 3}],
}


def test_a_classic_policy_is_applied_as_the_rule_set_that_it_makes_called_like_its_file(tmp_path: Path) -> None:
    path = tmp_path / "Old_Scheduler.policy.json"
    path.write_text(json.dumps(POLICY, indent="\t"))
    assert "no faults" in run("lint", str(path))
    assert "rule set old-scheduler-policy version 1" in run("apply", "--publish", str(path))
    (spec,) = (each.spec for each in publishing.current_revision().rule_sets)
    assert [each.builtin for each in spec.filters] == ["PodFitsResources", "PodSelectorMatches"]
    assert [(each.builtin, each.weight) for each in spec.scores] == [("LeastRequestedPriority", 3)]
    assert "Nothing to publish" in run("apply", "--publish", str(path))


def test_a_classic_policy_with_faults_is_refused_with_their_places(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(POLICY | {"predicates": [{"name": "CheckVolumeBinding"}]}))
    for command in ("lint", "apply"):
        with pytest.raises(CommandError):
            run(command, str(path))
    assert "predicates[0]" in " ".join(map(str, lint_files([path], [])))


def test_the_profiles_of_a_configuration_are_applied_as_the_rule_sets_that_they_make(tmp_path: Path) -> None:
    path = tmp_path / "kube_scheduler.yaml"
    path.write_text(HEAD + NO_SCORING)
    assert "no faults" in run("lint", str(path))
    said = run("apply", "--publish", str(path))
    assert "rule set kube-scheduler version 1" in said
    assert "rule set kube-scheduler-no-scoring-scheduler version 1" in said
    scores = {each.name: len(each.spec.scores) for each in publishing.current_revision().rule_sets}
    assert scores == {"kube-scheduler": 7, "kube-scheduler-no-scoring-scheduler": 0}
    assert "Nothing to publish" in run("apply", "--publish", str(path))


def test_a_fault_at_the_head_of_a_configuration_is_told_once_for_all_its_profiles(tmp_path: Path) -> None:
    path = tmp_path / "kube_scheduler.yaml"
    path.write_text((HEAD + NO_SCORING).replace("/v1\n", "/v1beta3\n", 1))
    (line,) = lint_files([path], [])
    assert "apiVersion: must be kubescheduler.config.k8s.io/v1; older ones" in line
    assert [each.text for each in applying.lint_files([(str(path), path.read_text())])[0]] == [line]
    with pytest.raises(applying.DocumentsError, match="older ones") as refused:
        applying.read_files([(str(path), path.read_text())])
    assert len(refused.value.faults) == 1


def test_importpolicy_opens_one_change_with_a_rule_set_for_each_profile(tmp_path: Path) -> None:
    path = tmp_path / "kube_scheduler.yaml"
    path.write_text(HEAD + NO_SCORING)
    said = run("importpolicy", "--open-change", "--name", "mine", str(path))
    assert "rule set mine added" in said
    assert "rule set mine-no-scoring-scheduler added" in said


def test_importpolicy_opens_a_change_with_the_profiles_that_are_not_live_yet(tmp_path: Path) -> None:
    path = tmp_path / "kube_scheduler.yaml"
    path.write_text(HEAD + "profiles:\n  - schedulerName: default-scheduler\n")
    run("apply", "--publish", "--no-cluster", str(path))
    path.write_text(HEAD + NO_SCORING)
    said = run("importpolicy", "--open-change", "--name", "kube-scheduler", str(path))
    assert "rule set kube-scheduler-no-scoring-scheduler added" in said
    assert len(publishing.edits_of(Change.objects.latest("pk"))) == 1


def test_importpolicy_names_the_open_changes_of_the_same_rule_set_and_opens_no_second_equal_one(tmp_path: Path) -> None:
    theirs = opened(make_rule_set("old", filters=[{"builtin": "PodFitsHost"}]), by="alice")
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(POLICY))
    said = run("importpolicy", "--open-change", "--name", "old", str(path))
    mine = Change.objects.latest("pk")
    beside = f"! {theirs}, which is open, edits rule set old as well"
    assert said.splitlines()[0] == f"{mine} was opened: import of policy.json"
    assert beside in said.splitlines()
    again = run("importpolicy", "--open-change", "--name", "old", str(path)).splitlines()
    assert again == [f"{mine} is open already, and makes the same: import of policy.json", *said.splitlines()[1:]]
    assert Change.objects.count() == 2


@pytest.mark.parametrize("options", [[], ["--open-change"]], ids=["printed", "as a Change"])
def test_profiles_that_would_become_one_rule_set_are_refused_with_the_line(options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "kube_scheduler.yaml"
    path.write_text(HEAD + NO_SCORING + "  - schedulerName: no.scoring.scheduler\n")
    with pytest.raises(
        CommandError, match=r"profiles\[\d\].schedulerName: a profile before it becomes the rule set"
    ) as refused:
        run("importpolicy", *options, str(path))
    last = len(path.read_text().splitlines())
    assert str(refused.value).startswith(f"{path}:{last}: ")
    assert not Change.objects.exists()


def test_importpolicy_opens_no_change_without_any_rule(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(
        '{"apiVersion": "v1", "kind": "Policy", "extenders": [{"urlPrefix": "http://berth", "filterVerb": "filter"}]}'
    )
    with pytest.raises(CommandError, match="names no rules"):
        run("importpolicy", "--open-change", str(path))
    assert not Change.objects.exists()


def test_two_global_defaults_in_files_are_told_by_every_command(tmp_path: Path) -> None:
    path = tmp_path / "classes.yaml"
    default = {"globalDefault": True}
    path.write_text(list_of(*(written_by_kubectl(name, 10) | default for name in ("a", "b"))))
    _, line = (number for number, line in enumerate(path.read_text().splitlines(), 1) if line.startswith("- "))
    said = "b: a is the global default as well, and Kubernetes allows only one"
    assert list(lint_files([path], [])) == [f"{path}:{line}: {said}"]
    for command in (["apply"], ["apply", "--publish"], ["plan", "--no-cluster"]):
        with pytest.raises(CommandError, match=said):
            run(*command, str(path))
