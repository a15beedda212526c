"""What `plan --gate` says of the Pods of a real cluster, before anything is published."""

import json
from pathlib import Path
from typing import Any

import pytest

from policies import manifests
from tests.builders import assignment_document, rule_set_document
from tests.stack import Stack, eventually

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
