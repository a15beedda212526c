"""Berth's main job: an operator publishes rules, and a real kube-scheduler places real Pods by them."""

import time
from pathlib import Path

import pytest
import yaml

from tests.stack import BASE_DIR, Stack, eventually

pytestmark = pytest.mark.e2e
EXAMPLES = BASE_DIR / "examples"
SHORT = {"policy": "shortest-name"}


@pytest.fixture(autouse=True)
def published_examples(stack: Stack) -> None:
    stack.publish(EXAMPLES / "shortest-name.yaml", EXAMPLES / "policy-by-label.yaml")


def test_a_pod_with_a_short_name_lands_on_the_node_with_the_shortest_name(stack: Stack) -> None:
    stack.create_pod("web1", labels=SHORT)

    assert stack.wait_for_node("web1") == "n1"


def test_a_pod_with_a_long_name_stays_pending_with_the_rules_reason(stack: Stack) -> None:
    stack.create_pod("frontend", labels=SHORT)

    message = eventually(lambda: stack.scheduled_message("frontend"))
    assert "0/3 nodes are available: 3 the Pod's name has 5 characters or more" in message
    assert stack.node_of("frontend") == ""


def test_a_refused_pod_is_bound_within_ten_seconds_of_publishing_rules_that_allow_it(stack: Stack) -> None:
    stack.create_pod("frontend", labels=SHORT)
    eventually(lambda: stack.scheduled_message("frontend"))
    documents = list(yaml.safe_load_all((EXAMPLES / "shortest-name.yaml").read_text()))
    documents[0]["spec"]["filters"][0]["expression"] = "size(pod.metadata.name) < 20"
    documents[0]["spec"]["tests"] = []

    stack.publish(documents[0])
    published = time.monotonic()

    assert stack.wait_for_node("frontend", seconds=10) == "n1"
    print(f"bound {time.monotonic() - published:.1f} s after publishing")


def test_packed_pods_of_an_app_created_at_once_are_all_on_one_node(stack: Stack) -> None:
    names = [f"x-{index}" for index in range(6)]
    for name in names:
        stack.create_pod(name, labels={"policy": "packed", "app": "x"})

    assert len({stack.wait_for_node(name) for name in names}) == 1


def test_two_packed_apps_are_each_on_a_node_of_their_own_choice(stack: Stack) -> None:
    names = [f"{app}-{index}" for index in range(4) for app in ("x", "y")]
    for name in names:
        stack.create_pod(name, labels={"policy": "packed", "app": name[0]})

    for app in ("x", "y"):
        assert len({stack.wait_for_node(name) for name in names if name[0] == app}) == 1


def test_pods_by_node_label_are_only_on_labelled_nodes(stack: Stack) -> None:
    names = [f"labelled-{index}" for index in range(6)]
    for name in names:
        stack.create_pod(name, labels={"policy": "by-node-label", "app": "z"})

    assert {stack.wait_for_node(name) for name in names} <= {"node-two", "the-third-node"}


def test_a_pod_without_a_policy_is_placed_as_if_berth_were_not_there(stack: Stack) -> None:
    stack.create_pod("plain-with-a-long-name", nodeSelector={"team": "data"})

    assert stack.wait_for_node("plain-with-a-long-name") == "the-third-node"
    row = eventually(
        lambda: stack.sql(
            "SELECT rule_set, nodes, feasible FROM scheduler_decision WHERE pod_name = 'plain-with-a-long-name'"
        )
    )
    assert row[0] == ("", 1, 1)


def test_every_answer_is_recorded_as_a_decision_by_one_revision(stack: Stack) -> None:
    uid = stack.create_pod("web1", labels=SHORT)
    stack.wait_for_node("web1")

    query = f"SELECT verb, revision, rule_set, nodes, feasible, best FROM scheduler_decision WHERE pod_uid = '{uid}'"
    rows = eventually(lambda: rows if len(rows := stack.sql(query)) >= 3 else None)
    revision = stack.newest_revision()
    assert sorted(rows) == [
        ("bind", revision, "shortest-name", 1, 1, "n1"),
        ("filter", revision, "shortest-name", 3, 3, ""),
        ("prioritize", revision, "shortest-name", 3, 3, "n1"),
    ]


def test_a_new_revision_is_served_within_two_seconds_of_publishing(stack: Stack, tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((EXAMPLES / "shortest-name.yaml").read_text()))
    documents[0]["metadata"]["description"] = f"changed at {time.time()}"
    path = tmp_path / "changed.yaml"
    path.write_text(yaml.safe_dump(documents[0]))

    stack.manage("apply", "--publish", str(path))
    stack._published = ()
    seconds = stack.wait_until_served()

    assert stack.metric("berth_revision") == stack.newest_revision()
    print(f"served {seconds:.2f} s after publishing")
