"""The table of rights, and the manifest in the repository that is made from it."""

import re
from pathlib import Path

import pytest
import yaml

from policies.engine.scheduling import default_profile
from scheduler.doctor.rights import COMPONENTS, READABLE_KINDS, component_of, manifest, rights_of

ROOT = Path(__file__).parents[3]


def test_the_manifest_in_the_repository_is_what_the_table_says() -> None:
    shipped = (ROOT / "deploy" / "kubernetes" / "base" / "rbac.yaml").read_text().split("\n", 1)[1]
    assert shipped == manifest("berth")


@pytest.mark.parametrize("component", COMPONENTS)
def test_no_process_may_do_everything_or_read_secrets(component: str) -> None:
    for right in rights_of(component):
        assert "*" not in (*right.verbs, right.resource, right.group)
        assert right.resource != "secrets"
        assert right.reason


def test_what_no_rule_reads_the_extender_may_not_read() -> None:
    few, many = ({right.resource for right in rights_of("extender", read)} for read in ((), READABLE_KINDS))
    assert many - few == READABLE_KINDS


@pytest.mark.parametrize("component", ["binder", "worker", "admin"])
def test_who_evaluates_the_default_set_may_list_what_it_reads_whatever_rules_are_live(component: str) -> None:
    listed = {right.resource for right in rights_of(component, ()) if "list" in right.verbs}
    assert default_profile().reads - listed == set()


def test_budgets_are_read_only_by_the_binder_which_preempts() -> None:
    reading = [name for name in COMPONENTS for right in rights_of(name) if right.resource == "poddisruptionbudgets"]
    assert reading == ["binder"]


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_page_on_security_names_every_resource_that_a_process_may_touch(component: str) -> None:
    _, _, section = (ROOT / "docs" / "security.md").read_text().partition("## What Berth may do in the cluster")
    row = next(line for line in section.splitlines() if line.startswith(f"| {component}")).lower()
    said_together = READABLE_KINDS if "published rules read" in row else frozenset()

    named = {right.resource for right in rights_of(component, reviews_tokens=True)} - said_together
    assert {resource for resource in named if resource.removesuffix("s") not in row} == set()


def test_the_account_that_the_page_on_clusters_runs_which_and_scenario_with_may_get_what_these_read() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    (account,) = re.findall(r"exec deploy/berth-(\w+) -- python manage\.py which", page)
    got = {right.resource for right in rights_of(account, ()) if "get" in right.verbs}
    assert got >= {"pods", "namespaces", "deployments"}


def test_a_manifest_for_another_namespace_names_no_other() -> None:
    documents = list(yaml.safe_load_all(manifest("scheduling")))
    namespaces = {each["metadata"].get("namespace", "scheduling") for each in documents}
    subjects = {subject["namespace"] for each in documents for subject in each.get("subjects", ())}
    assert namespaces == subjects == {"scheduling"}


@pytest.mark.parametrize(
    ("account", "found"),
    [
        ("system:serviceaccount:berth:berth-worker", ("worker", "berth")),
        ("system:serviceaccount:berth:berth-other", None),
        ("system:serviceaccount:berth:default", None),
        ("kubernetes-admin", None),
        ("", None),
    ],
)
def test_an_account_of_a_process_is_known_by_its_name(account: str, found: tuple[str, str] | None) -> None:
    assert component_of(account) == found


def test_tokens_are_reviewed_by_the_admin_alone_and_only_where_that_is_switched_on() -> None:
    on = [
        each for name in COMPONENTS for each in rights_of(name, reviews_tokens=True) if each.resource == "tokenreviews"
    ]
    assert [each.verbs for each in on] == [("create",)]
    assert "tokenreviews" not in manifest("berth")
    assert (
        "berth-admin"
        in manifest("berth", reviews_tokens=True).split("tokenreviews")[0].rsplit("kind: ClusterRole\n")[-1]
    )
