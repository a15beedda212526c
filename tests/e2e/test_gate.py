"""What `plan --gate` says of the Pods of a real cluster, before anything is published."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from policies import manifests
from tests.builders import assignment_document, rule_set_document
from tests.stack import Stack, eventually

# However kube-scheduler hands over nodes: the gate isn't asked by it.
pytestmark = pytest.mark.parametrize("shared_stack", [True], indirect=True, ids=["names"])
OF_TEAM = {
    "name": "team",
    "expression": "node.metadata.?labels.team.orValue('') == pod.metadata.?labels.team.orValue('')",
    "reason": "another team's",
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    match = {"podSelector": {"matchLabels": {"kind": "gate"}}}
    documents = [
        rule_set_document("of-gate", filters=[OF_TEAM]),
        assignment_document("of-gate", "of-gate", order=0, match=match),
    ]
    path = tmp_path / "gate.yaml"
    path.write_text("---\n".join(map(manifests.to_yaml, documents)))
    return str(path)


def plan(stack: Stack, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stack.manage("plan", "--gate", "--output", "json", *arguments, code=2))
    return found


def test_it_lists_the_pods_that_would_be_left_with_no_node_and_those_that_run_where_they_would_be_refused(
    stack: Stack, file: str
) -> None:
    before = stack.newest_revision()
    for name, team, more in (
        ("waits", "ghosts", {"schedulerName": "nobody"}),
        ("narrows", "web", {"schedulerName": "nobody"}),
        ("strays", "data", {"nodeName": "n1"}),
        ("stays", "web", {"nodeName": "n1"}),
    ):
        stack.create_pod(name, labels={"kind": "gate", "team": team}, **more)
    stack.create_pod("other", labels={"team": "ghosts"}, schedulerName="nobody")
    eventually(lambda: len(stack.pods()) == 5)
    found = plan(stack, file)["forecast"]
    assert found["waiting"] == [
        {"pod": "default/narrows", "nodes": 3, "gained": 0, "lost": 1},
        {"pod": "default/waits", "nodes": 3, "gained": 0, "lost": 3},
    ]
    assert found["refused"] == [
        {"pod": "default/strays", "node": "n1", "rule": "team", "reason": "another team's"},
    ]
    assert {each["ruleSet"]: (each["gained"], each["lost"]) for each in found["taken"]}["of-gate"] == (4, 0)
    said = stack.manage("plan", "--gate", file, code=2)
    assert "! a Pod that waits would be left with no node\n" in said
    assert "default/waits waits, and would be left with no node: 3 would do now" in said
    assert "default/strays runs on n1, which team would refuse: another team's" in said
    assert stack.newest_revision() == before


def opened(stack: Stack, file: str) -> int:
    """A Change with the documents, sent to review."""
    number = int(json.loads(stack.manage("apply", "--output", "json", file))["change"])
    stack.manage("change", "submit", str(number))
    return number


def run_of(stack: Stack, change: int, fields: str = "state") -> tuple[Any, ...]:
    return stack.sql(f"SELECT {fields} FROM policies_gaterun WHERE change_id = {change} ORDER BY id DESC")[0]


def process_of_the_run(stack: Stack) -> int | None:
    """The process in which the worker carries a run out."""
    found = subprocess.run(
        ["pgrep", "-P", str(stack.pid("worker")), "-f", "gate --taken"], check=False, capture_output=True, text=True
    )
    return int(found.stdout.split()[0]) if found.stdout else None


def test_a_worker_looks_at_what_is_sent_to_review_and_a_run_that_is_killed_is_begun_again_once(
    stack: Stack, file: str
) -> None:
    stack.create_pod("strays", labels={"kind": "gate", "team": "data"}, nodeName="n1")
    eventually(lambda: len(stack.pods()) == 1)
    change = opened(stack, file)
    os.kill(eventually(lambda: process_of_the_run(stack), every=0.02), signal.SIGKILL)
    # A process that is too slow fails the run, so a longer wait would be in vain: its fault says more.
    under_way = {"queued", "running"}
    ended = eventually(lambda: run_of(stack, change, "state, fault"), until=lambda run: run[0] not in under_way)
    assert ended == ("done", "")
    attempts, revision, snapshot_at, results = run_of(stack, change, "attempts, revision, snapshot_at, results")
    assert (attempts, revision) == (2, stack.newest_revision())
    assert snapshot_at
    found = {each["check"]: each for each in (json.loads(results) if isinstance(results, str) else results)}
    assert found["refused"]["lines"] == ["default/strays runs on n1, which team would refuse: another team's"]
    assert found["documents"]["verdict"] == "passed"
    said = stack.manage("gate", str(change))
    assert "! a Pod runs where its rules would refuse it" in said
    stack.manage("change", "withdraw", str(change))
