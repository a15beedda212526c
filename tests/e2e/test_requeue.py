"""A real kube-scheduler leaves refused Pods alone; Berth requeues those that a Revision, time or labels let pass, and no others."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler.cluster.client import MERGE_PATCH
from scheduler.requeue.requeuer import ANNOTATION
from tests.stack import Stack, eventually, make_node

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("requeue"), nodes=[make_node(f"n{place}") for place in range(3)]) as stack:
        yield stack


@pytest.fixture
def stack(own_stack: Stack) -> Iterator[Stack]:
    own_stack.delete_all_pods()
    yield own_stack
    own_stack.delete_all_pods()


def rule_set(name: str, expression: str, **params: Any) -> dict[str, Any]:
    return {
        "apiVersion": "berth/v1",
        "kind": "RuleSet",
        "metadata": {"name": name},
        "spec": {
            "params": params,
            "filters": [{"name": "f", "expression": expression, "reason": f"{name} refuses the node"}],
        },
    }


def assignment(name: str, **match: Any) -> dict[str, Any]:
    return {
        "apiVersion": "berth/v1",
        "kind": "Assignment",
        "metadata": {"name": name},
        "spec": {"ruleSet": name, "match": {"podSelector": {"matchLabels": {"policy": name}}, **match}},
    }


def annotation(pod: dict[str, Any]) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(ANNOTATION, ""))


def wait_until_quiet(stack: Stack, *names: str) -> dict[str, str]:
    """Wait until kube-scheduler tries the Pods no more, and their Decisions are stored; give their resource versions."""
    for name in names:
        eventually(lambda name=name: stack.scheduled_message(name), what=f"{name} was tried")

    def seen() -> tuple[Any, ...]:
        versions = {name: pod["metadata"]["resourceVersion"] for name, pod in stack.pods().items() if name in names}
        return versions, stack.sql("SELECT COUNT(*) FROM scheduler_decision")

    last = seen()
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < 4:
        time.sleep(0.2)
        if (found := seen()) != last:
            last, quiet_since = found, time.monotonic()
    versions: dict[str, str] = last[0]
    return versions


def relabel(stack: Stack, **labels: str | None) -> float:
    """Change labels of the Namespace `default`, and return when that was."""
    body = json.dumps({"metadata": {"labels": labels}}).encode()
    stack.client.patch(path="/api/v1/namespaces/default", body=body, content_type=MERGE_PATCH)
    return time.monotonic()


def requeues(stack: Stack) -> list[tuple[Any, ...]]:
    return stack.sql("SELECT cause, revision, pods FROM scheduler_requeue ORDER BY id")


def test_a_publish_wakes_exactly_the_pods_that_it_lets_pass(stack: Stack) -> None:
    web, data = rule_set("web", "false"), rule_set("data", "false")
    stack.publish(web, data, assignment("web"), assignment("data"))
    for name in ("web-1", "web-2", "data-1"):
        stack.create_pod(name, labels={"policy": name.partition("-")[0]})
    big = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "100"}}}
    stack.create_pod("in-tree", labels={"policy": "web"}, containers=[big])
    versions = wait_until_quiet(stack, "web-1", "web-2", "data-1", "in-tree")

    stack.publish(rule_set("web", "node.metadata.name == 'n9'"))
    helpless = stack.newest_revision()
    eventually(lambda: ("revision", helpless, 0) in requeues(stack), what="the helpless Revision was looked at")
    assert wait_until_quiet(stack, *versions) == versions

    stack.publish(rule_set("web", "node.metadata.name == 'n1'"))
    published = time.monotonic()
    assert stack.wait_for_node("web-1") == stack.wait_for_node("web-2") == "n1"
    print(f"both bound {time.monotonic() - published:.1f} s after the new Revision was served")

    helpful = stack.newest_revision()
    pods = stack.pods()
    # Whichever is requeued first: kube-scheduler itself tries the other again when that one is bound, and it may need no requeue.
    requeued = [text for name in ("web-1", "web-2") if (text := annotation(pods[name]))]
    assert requeued
    assert all(text.startswith(f"Revision {helpful} at ") for text in requeued)
    eventually(lambda: ("revision", helpful, len(requeued)) in requeues(stack), what="the requeues are counted")
    left = {name: version for name, version in versions.items() if name in ("data-1", "in-tree")}
    assert wait_until_quiet(stack, *left) == left
    assert not any(annotation(stack.pods()[name]) for name in left)


def test_a_window_that_opens_lets_a_pod_in_without_any_other_event(stack: Stack) -> None:
    opens = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=40)
    window = rule_set("window", "now >= timestamp(params.opens)", opens=f"{opens:%Y-%m-%dT%H:%M:%SZ}")
    minute = (opens + timedelta(minutes=30)).minute
    closed = rule_set("closed", "now.getMinutes() == params.minute", minute=minute)
    stack.publish(window, closed, assignment("window"), assignment("closed"))
    stack.create_pod("early", labels={"policy": "window"})
    stack.create_pod("shut-out", labels={"policy": "closed"})
    versions = wait_until_quiet(stack, "early", "shut-out")
    assert datetime.now(UTC) < opens, "the machine is too slow for this window"
    assert stack.node_of("early") == ""

    # 5 s are promised; the machine that runs this has other work.
    stack.wait_for_node("early", seconds=(opens - datetime.now(UTC)).total_seconds() + 10)
    print(f"bound {(datetime.now(UTC) - opens).total_seconds():.1f} s after the window opened")
    assert annotation(stack.pods()["early"]).startswith("time at ")
    assert stack.pods()["shut-out"]["metadata"]["resourceVersion"] == versions["shut-out"]
    eventually(lambda: ("time", stack.newest_revision(), 1) in requeues(stack), what="the requeue is counted")


def test_labels_of_a_namespace_let_its_pods_in_without_any_other_event(stack: Stack) -> None:
    strict = {"namespaceSelector": {"matchLabels": {"rules": "strict"}}}
    team = rule_set("team", "namespaceObject.metadata.labels.?team.orValue('') == 'web'")
    relabel(stack, rules="strict", team=None)
    stack.publish(team, rule_set("taken", "false"), rule_set("never", "false"))
    stack.publish(assignment("team"), assignment("taken", **strict), assignment("never"))
    for name in ("team", "taken", "never"):
        stack.create_pod(name, labels={"policy": name})

    for name, labels in {"team": {"team": "web"}, "taken": {"rules": None}}.items():
        # Also of the binding before, on which kube-scheduler tries all that were refused.
        wait_until_quiet(stack, name, "never")
        relabelled = relabel(stack, **labels)
        stack.wait_for_node(name, seconds=10)
        print(f"{name} bound {time.monotonic() - relabelled:.1f} s after its Namespace was relabelled")
        assert annotation(stack.pods()[name]).startswith("labels of Namespace default at ")
    assert not annotation(stack.pods()["never"])
    eventually(lambda: [row[0] for row in requeues(stack)].count("namespace") == 2, what="the requeues are counted")


def test_a_paused_rule_holds_no_pod_and_holds_them_again_once_it_is_resumed(stack: Stack) -> None:
    """In the processes that serve: the extender behind kube-scheduler, and Berth's own scheduler."""
    stack.publish(rule_set("web", "false"), assignment("web"))
    stack.create_pod("held", labels={"policy": "web"})
    stack.create_pod("held-by-berth", labels={"policy": "web"}, schedulerName="berth")
    wait_until_quiet(stack, "held", "held-by-berth")

    stack.manage("pause", "RuleSet/web/f", "--reason", "its nodes are being moved")
    print(f"the Pause is served {stack.wait_until_served():.2f} s after the command's end")
    assert stack.wait_for_node("held")
    assert stack.wait_for_node("held-by-berth")

    stack.manage("resume", "RuleSet/web/f")
    stack.wait_until_served()
    for name, more in (("again", {}), ("again-by-berth", {"schedulerName": "berth"})):
        stack.create_pod(name, labels={"policy": "web"}, **more)
        eventually(lambda name=name: "web refuses the node" in stack.scheduled_message(name), what=f"{name} is refused")
