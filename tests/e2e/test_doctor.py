"""doctor beside the real control plane: what it makes is taken, what it says of the wiring is so."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.stack import BASE_DIR, Stack, eventually, make_node

pytestmark = pytest.mark.e2e
NODES = [make_node("n1"), make_node("n2"), make_node("n3")]


class MadeStack(Stack):
    """A stack whose kube-scheduler runs with what doctor made."""

    def _write_scheduler_config(self, extender: dict[str, Any], others: list[dict[str, Any]]) -> None:
        del extender, others
        command = [sys.executable, "manage.py", "doctor", "configuration", "--url-prefix", self.extender_url]
        made = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, check=True)
        self._scheduler_config = self.folder / "scheduler.yaml"
        self._scheduler_config.write_text(made.stdout)


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with MadeStack(tmp_path_factory.mktemp("doctor"), nodes=NODES) as running:
        yield running


def wiring(stack: Stack, *arguments: str, code: int = 0) -> dict[str, Any]:
    said = stack.manage("doctor", "wiring", "--output", "json", *arguments, code=code)
    return dict(json.loads(said[: said.rindex("}") + 1]))


def canaries(stack: Stack) -> list[str]:
    return [name for name in stack.pods() if name.startswith("berth-canary-")]


def test_the_canary_sees_filter_and_prioritize_says_from_whom_and_goes(wired: Stack) -> None:
    report = wiring(wired)

    assert report["ok"] is True
    states = {verb["verb"]: verb["state"] for verb in report["verbs"]}
    assert (states["filter"], states["prioritize"]) == ("seen", "seen")
    assert report["node"] in {"n1", "n2", "n3"}
    for verb in report["verbs"][:2]:
        assert [call["identity"] for call in verb["callers"] if call["during"]] == ["127.0.0.1"]
        assert verb["process"].startswith("extender@")
    eventually(lambda: not canaries(wired), what="the canary is gone")


def test_everything_else_is_well_too(wired: Stack) -> None:
    wiring(wired)
    said = json.loads(wired.manage("doctor", "--output", "json"))

    assert said["ok"] is True
    parts = {part["name"]: part for part in said["parts"]}
    for name in ("database", "extender", "Snapshot", "Redis", "worker", "history", "API server", "rights", "address"):
        assert parts[name]["state"] == "ok", parts[name]
    assert "127.0.0.1 called" in parts["kube-scheduler"]["says"]
    assert parts["configuration"]["state"] == "ok", parts["configuration"]


def test_a_pod_that_nobody_schedules_is_said_to_be_nobodys(wired: Stack) -> None:
    report = wiring(wired, "--scheduler-name", "nobody", "--timeout", "3", code=1)

    assert "none has the schedulerName nobody" in report["advice"][0]["happens"]
    eventually(lambda: not canaries(wired), what="the canary is gone")


def test_a_namespace_that_is_missing_is_said_to_be(wired: Stack) -> None:
    report = wiring(wired, "--namespace", "nowhere", code=1)

    assert report["pod"] == ""
    assert "Make the namespace" in report["advice"][0]["remedy"]


def test_a_canary_that_is_ended_takes_its_pod_along(wired: Stack) -> None:
    command = [sys.executable, "manage.py", "doctor", "wiring", "--scheduler-name", "nobody", "--timeout", "60"]
    process = subprocess.Popen(command, cwd=BASE_DIR, env={**wired._environment, "BERTH_STATE_DIR": str(wired.state)})
    eventually(lambda: canaries(wired), what="the canary is there")
    process.terminate()

    assert process.wait(timeout=30) != 0
    assert canaries(wired) == []


def test_a_url_that_leads_nowhere_is_found_by_the_canary(wired: Stack) -> None:
    path = wired.state / "cluster" / "scheduler-config.yaml"
    before = path.read_text()
    broken = yaml.safe_load(before)
    broken["extenders"][0]["urlPrefix"] = "http://127.0.0.1:1"
    try:
        path.write_text(yaml.safe_dump(broken))
        restart_kube_scheduler(wired)
        report = wiring(wired, code=1)
    finally:
        path.write_text(before)
        restart_kube_scheduler(wired)

    assert {verb["verb"]: verb["state"] for verb in report["verbs"]}["filter"] == "missing"
    assert "connection refused" in report["advice"][0]["happens"]
    assert "correct urlPrefix" in report["advice"][0]["remedy"]
    assert wiring(wired)["ok"] is True


def restart_kube_scheduler(stack: Stack) -> None:
    """Let kube-scheduler read its file anew."""
    before = stack.cluster_status()["components"]["kube-scheduler"]["pid"]
    stack.kill_component("kube-scheduler")

    def is_back() -> bool:
        component = stack.cluster_status()["components"]["kube-scheduler"]
        return bool(component["pid"] and component["pid"] != before and component.get("state") == "ready")

    eventually(is_back, seconds=120, what="kube-scheduler is back")
