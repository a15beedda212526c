"""`manage.py plan`: what applying and publishing would change, said before and without changing it."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from policies import manifests, publishing
from policies.models import Assignment, PriorityClass, PriorityClassVersion, Revision, RuleSet
from policies.publishing.gates import FOUND
from scheduler.applying import Documents, Planned, plan_documents
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIUnavailableError
from scheduler.gate import runs as gate
from scheduler.management.commands.plan import Command
from scheduler.priority_classes.reconcile import look
from tests.builders import (
    TEAM_FILTER,
    assignment_document,
    make_rule_set,
    priority_class_document,
    rule_set_document,
)
from tests.priority_server import PriorityServer
from tests.unit.priority_classes.test_users import Pods, pod

pytestmark = pytest.mark.django_db


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> PriorityServer:
    server = PriorityServer()
    server.have_system_classes()
    monkeypatch.setattr(Client, "connect", lambda _kubeconfig: server)
    return server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(
        tmp_path / "all.yaml",
        rule_set_document(filters=[TEAM_FILTER]),
        assignment_document(),
        priority_class_document("batch", 1000),
        priority_class_document("theirs", 7),
    )


def write(path: Path, *documents: dict[str, Any]) -> Path:
    path.write_text("---\n".join(manifests.to_yaml(document) for document in documents))
    return path


def run(command: str, *arguments: str) -> str:
    out = io.StringIO()
    with contextlib.suppress(SystemExit):
        call_command(command, *arguments, stdout=out)
    return out.getvalue()


def code_of_plan(*arguments: str) -> int:
    """Return what the process would end with."""
    try:
        call_command("plan", *arguments, stdout=io.StringIO())
    except SystemExit as ended:
        return int(str(ended.code))
    except CommandError as error:
        return error.returncode
    return 0


def test_an_option_that_there_isnt_is_told_from_what_would_change() -> None:
    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "plan", "--gates", "all.yaml"])
    assert ended.value.code == 1


def test_it_says_all_that_would_change_and_changes_nothing(server: PriorityServer, file: Path) -> None:
    server.have("theirs", value=7)
    said = run("plan", str(file))
    assert "Revision 1 would be made:" in said
    assert "rule set web version 1 published" in said
    assert "Assignment all-web added" in said
    assert "PriorityClass batch version 1 added: value 1,000" in said
    assert (
        "In the cluster:\n  PriorityClass batch: create\n  PriorityClass theirs: left, foreign. The cluster has" in said
    )
    for model in (RuleSet, Assignment, PriorityClass, PriorityClassVersion, Revision):
        assert not model.objects.exists(), model
    assert server.changes == []


def test_what_it_says_is_what_applying_does(server: PriorityServer, file: Path) -> None:
    planned = json.loads(run("plan", "--output", "json", str(file)))
    run("apply", "--publish", str(file))
    assert planned["ok"] is True
    assert planned["revision"] == publishing.current_revision().number
    assert "\n".join(planned["changes"]) == Revision.objects.get().summary
    assert planned["cluster"] == [{"name": "batch", "act": "create"}, {"name": "theirs", "act": "create"}]


def test_what_is_exported_plans_nothing(server: PriorityServer, file: Path) -> None:
    run("apply", "--publish", str(file))
    file.write_text(run("export"))
    assert "Nothing would be published: all of it is live." in run("plan", "--no-cluster", str(file))


def test_it_plans_where_review_is_required(server: PriorityServer, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import msgspec
    from django.conf import settings

    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True))
    assert "Revision 1 would be made" in run("plan", str(file))


def test_what_would_be_refused_is_refused(server: PriorityServer, tmp_path: Path) -> None:
    path = write(tmp_path / "x.yaml", priority_class_document("system-x", 5))
    with pytest.raises(CommandError, match=r"Refused: .*x\.yaml:4: metadata\.name: system- is reserved"):
        run("plan", str(path))
    path = write(
        tmp_path / "y.yaml",
        priority_class_document("a", 1, globalDefault=True),
        priority_class_document("b", 1, globalDefault=True),
    )
    with pytest.raises(CommandError, match="a is the global default as well"):
        run("plan", str(path))


def test_a_refusal_is_json_too(server: PriorityServer, tmp_path: Path) -> None:
    path = write(tmp_path / "x.yaml", priority_class_document("system-x", 5))
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("plan", "--output", "json", str(path), stdout=out)
    found = json.loads(out.getvalue())
    assert found["ok"] is False
    assert "system- is reserved" in found["error"]


def test_without_the_cluster_it_says_what_changes_here(server: PriorityServer, file: Path) -> None:
    server.fault = APIUnavailableError("connection refused")
    said = run("plan", str(file))
    assert "Revision 1 would be made:" in said
    assert "The cluster can't be asked about PriorityClasses: connection refused" in said
    assert "connection refused" not in run("plan", "--no-cluster", str(file))


class TestExitCode:
    def test_it_is_2_when_a_revision_would_be_made_and_0_when_all_is_live(
        self, server: PriorityServer, file: Path
    ) -> None:
        assert code_of_plan("--no-cluster", str(file)) == 2
        run("apply", "--publish", str(file))
        assert code_of_plan("--no-cluster", str(file)) == 0

    def test_it_is_2_when_only_the_cluster_would_change(self, server: PriorityServer, file: Path) -> None:
        run("apply", "--publish", str(file))
        assert code_of_plan("--output", "json", str(file)) == 2

    def test_it_is_0_when_the_cluster_keeps_what_is_theirs(self, server: PriorityServer, tmp_path: Path) -> None:
        path = write(tmp_path / "x.yaml", priority_class_document("theirs", 7))
        run("apply", "--publish", str(path))
        server.have("theirs", value=7)
        assert "left, foreign" in run("plan", str(path))
        assert code_of_plan(str(path)) == 0

    def test_it_is_1_for_faults(self, server: PriorityServer, tmp_path: Path) -> None:
        assert code_of_plan(str(write(tmp_path / "x.yaml", priority_class_document("system-x", 5)))) == 1
        assert code_of_plan(str(tmp_path / "none.yaml")) == 1


def test_it_says_who_keeps_the_number_of_a_class_that_would_be_made_anew(
    server: PriorityServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("apply", "--publish", str(file))
    look(server)
    write(file, priority_class_document("batch", 2000))
    pods = Pods(pod("web-1", owner=("Job", "web")), pod("x", priorityClassName="theirs"))
    monkeypatch.setattr(server, "list_pages", pods.list_pages)
    said = run("plan", str(file))
    assert "PriorityClass batch: replace. value is 1000 in the cluster and 2000 here: deleted and made anew." in said
    assert "Pods that keep their present priority:\n  batch: 1 Pod of Job shop/web with 1,000" in said
    assert "theirs: 1 Pod" not in said
    assert code_of_plan(str(file)) == 2


def test_a_plan_is_blocked_where_the_rule_set_that_its_gate_finds_asks_for_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The documents needn't name that rule set: its Pods may be taken from it by an Assignment of another one."""
    found = publishing.Result("taken", FOUND, "rule sets lose Pods", found=[{"ruleSet": "pay", "lost": 3}])
    monkeypatch.setattr(gate, "examine", lambda *_, **__: gate.Examined([found]))
    documents = Documents(rule_sets={"web": make_rule_set("web")})

    def planned() -> Planned:
        return plan_documents(documents, by="ops", gate=True, asks_cluster=False)

    assert (planned().ok, planned().blocked) == (True, "")
    publishing.set_gate_level(rule_set="pay", check="taken", level="blocking", by="root")
    assert not planned().ok
    assert planned().blocked.startswith("The gate blocks it: rule sets lose Pods.")
