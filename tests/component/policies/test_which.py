"""`manage.py which`: which Assignment takes a Pod, and why not those before it."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIUnavailableError
from tests.builders import make_assignment, make_rule_set
from tests.component.pages import publish_all

pytestmark = pytest.mark.django_db


class Server:
    """An API server that has a Pod and its namespace."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get(self, *, path: str, timeout_seconds: float) -> bytes:
        assert timeout_seconds <= 5
        self.asked.append(path)
        if path.endswith("/pods/gone"):
            message = 'pods "gone" not found'
            raise APIUnavailableError(message)
        metadata = {"name": "web-1", "namespace": "shop", "labels": {"team": "a"}}
        if "/pods/" not in path:
            metadata = {"name": "shop", "labels": {"env": "live"}}
        return json.dumps({"metadata": metadata}).encode()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(Client, "connect", lambda _kubeconfig: server)
    return server


@pytest.fixture(autouse=True)
def _published() -> None:
    live = {"namespaceSelector": {"matchLabels": {"env": "live"}}}
    publish_all(
        make_rule_set("web"),
        make_assignment("batch", "web", order=1, match={"schedulerNames": ["batch"]}),
        make_assignment("watched", "web", order=2, mode="shadow"),
        make_assignment("of-live", "web", order=3, match=live),
        make_assignment("rest", "web", order=4),
    )


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("which", *arguments, stdout=out)
    return out.getvalue()


def test_it_says_which_one_takes_the_pod_and_why_not_those_before_it(server: Server) -> None:
    assert run("shop/web-1") == (
        "shop/web-1 gets rule set web by Assignment of-live\n"
        "  beside it, in shadow: watched\n"
        "  not batch: schedulerName is default-scheduler, not batch\n"
        "  rest matches it too, but comes later in the order\n"
    )
    assert server.asked == ["/api/v1/namespaces/shop/pods/web-1", "/api/v1/namespaces/shop"]


def test_a_file_holds_a_pod_that_isn_t_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "pod.json"
    path.write_text(json.dumps({"metadata": {"name": "new"}, "spec": {"schedulerName": "batch"}}))
    found: dict[str, Any] = json.loads(run("--output", "json", str(path)))
    assert (found["ok"], found["assignment"], found["hidden"]) == (True, "batch", ["watched", "rest"])


def test_a_file_is_yaml_as_kubectl_writes_it_and_holds_one(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("# a Pod\nmetadata: {name: new}\nspec: {schedulerName: batch}\n---\n")
    assert run(str(path)).startswith("default/new gets rule set web by Assignment batch\n")
    path.write_text("metadata: {name: one}\n---\nmetadata: {name: other}\n")
    with pytest.raises(CommandError, match="holds 2 documents; one is wanted"):
        run(str(path))


def test_where_none_takes_it_that_is_said(tmp_path: Path) -> None:
    publish_all(make_assignment("rest", "web", order=4, match={"namespaces": ["other"]}))
    path = tmp_path / "pod.json"
    path.write_text(json.dumps({"metadata": {"name": "new"}}))
    said = run(str(path))
    assert "no Assignment takes default/new" in said
    assert "not of-live: it has no namespace label env, which must be live" in said


def test_a_file_of_json_may_be_indented_with_tabs(tmp_path: Path) -> None:
    path = tmp_path / "pod.json"
    path.write_text('{\n\t"metadata": {\n\t\t"name": "new"},\n\t"spec": {"schedulerName": "batch"}\n}\n')
    assert run(str(path)).startswith("default/new gets rule set web by Assignment batch\n")


def test_a_file_with_an_ending_in_capitals_is_no_name_of_a_pod(tmp_path: Path) -> None:
    path = tmp_path / "pod.YAML"
    path.write_text("metadata: {name: new}\nspec: {schedulerName: batch}\n")
    assert run(str(path)).startswith("default/new gets rule set web by Assignment batch\n")


@pytest.mark.parametrize(("pod", "says"), [("shop/gone", "shop/gone: "), ("none.json", "none.json:1: can't be read")])
def test_a_pod_that_can_t_be_had_is_said(server: Server, pod: str, says: str) -> None:
    with pytest.raises(CommandError, match=says):
        run(pod)
