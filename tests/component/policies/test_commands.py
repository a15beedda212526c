"""apply, export and createoperator, as people call them."""

import contextlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from berth.documents import _files_of
from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command, load_command_class
from django.db import connection
from django.http import HttpRequest
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from policies import checking, manifests, publishing
from policies.checking.passed import Passed
from policies.engine.documents import document_of
from policies.management.files import texts_of
from policies.models import Change, Revision, RuleSetVersion
from scheduler.cluster.client import Client as ClusterClient
from scheduler.cluster.errors import APIUnavailableError
from scheduler.models import Process
from tests.builders import (
    TEAM_FILTER,
    assignment_document,
    make_assignment,
    make_pause,
    make_rule_set,
    rule_set_document,
)
from tests.component.pages import opened, publish_all

pytestmark = pytest.mark.django_db


def _run(*arguments: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, **options)
    return out.getvalue()


@pytest.mark.parametrize("arguments", [("explain", "web-\udcff"), ("events", "--by", "\udcff")])
def test_an_argument_that_is_no_text_is_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match=r"'.*\\udcff.*' has bytes that aren't UTF-8: write it again") as caught:
        _run(*arguments)
    assert caught.value.returncode == 1


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "web.yaml"
    documents = [assignment_document(), rule_set_document(filters=[TEAM_FILTER])]
    path.write_text("---\n".join(manifests.to_yaml(document) for document in documents))
    return path


@pytest.mark.parametrize("command", [("lint", "-"), ("plan", "--no-cluster", "-"), ("apply", "-")])
def test_a_dash_in_place_of_a_file_is_standard_input(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("kind: RuleSets"))
    out = io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command(*command, stdout=out)
    assert "-:1: kind: must be RuleSet" in f"{out.getvalue()}{caught.value}"


def test_a_folder_is_all_its_documents_as_to_the_command_berth(manifest: Path, tmp_path: Path) -> None:
    (tmp_path / "classes" / ".git").mkdir(parents=True)
    (tmp_path / "classes" / "README.md").write_text("none of the documents")
    (tmp_path / "classes" / ".git" / "other.yaml").write_text("kind: RuleSets")
    (tmp_path / "classes" / "again").symlink_to("..")
    low = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "low"}, "value": 1}
    (tmp_path / "classes" / "low.json").write_text(manifests.to_json(low))
    assert _run("lint", str(tmp_path)) == "no faults\n"
    said = _run("apply", str(tmp_path))
    assert f"apply {tmp_path.name}" in said
    assert "PriorityClass low added" in said
    assert "rule set web added" in said
    with pytest.raises(SystemExit):
        _run("plan", "--no-cluster", str(tmp_path))


@pytest.mark.parametrize("command", [("lint",), ("plan", "--no-cluster"), ("apply", "--prune", "web")])
def test_a_folder_of_which_something_cant_be_read_is_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    out = io.StringIO()
    with pytest.raises(CommandError) as empty:
        call_command(*command, str(tmp_path), stdout=out)
    (tmp_path / "web.yaml").symlink_to(tmp_path / "elsewhere" / "web.yaml")
    with pytest.raises(CommandError) as dangling:
        call_command(*command, str(tmp_path), stdout=out)
    said = f"{out.getvalue()}{empty.value}{dangling.value}"
    assert "there is no YAML or JSON file in this folder: if it should hold nothing, put a file there with {api" in said
    assert "web.yaml'" in said
    assert "Is a directory" not in said


@pytest.mark.parametrize("command", [("lint",), ("plan", "--no-cluster"), ("apply",)])
def test_a_file_whose_name_no_file_can_have_is_a_fault_in_printable_words(command: tuple[str, ...]) -> None:
    out = io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command(*command, f"\x1b[2J{'x' * 300}.yaml", stdout=out)
    said = f"{out.getvalue()}{caught.value}"
    assert "name too long" in said
    assert "\x1b" not in said


def test_both_commands_find_the_same_documents_in_a_folder(tmp_path: Path) -> None:
    beside = (".git/c.yaml", "..data/d.yml", "e.txt", "node_modules/f.yaml")
    for name in ("b.yaml", "a.json", "h.YAML", "sub/g.yml", *beside):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "sub" / "again").symlink_to(tmp_path)
    (tmp_path / "away.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    wrong: list[str] = []
    found = _files_of(str(tmp_path), wrong)
    assert found == [file.name for file in texts_of([str(tmp_path)])]
    assert len(found) == 5


@pytest.mark.parametrize("command", [("lint",), ("plan", "--no-cluster"), ("apply",)])
def test_a_file_with_null_characters_is_said_to_have_them(command: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_bytes("a: b\n".encode("utf-16-le"))
    out = io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command(*command, str(file), stdout=out)
    said = f"{out.getvalue()}{caught.value}"
    assert f"{file}:1: can't be read: it has null" in said or f"{file}: not readable: it has null" in said


def test_a_change_of_the_folder_where_one_is_has_a_title(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(manifest.parent)
    _run("apply", ".")
    assert Change.objects.get().title == "apply ."


def test_apply_opens_a_change_and_publishes_nothing(manifest: Path) -> None:
    said = _run("apply", str(manifest))
    assert f"{Change.objects.get()} was opened: apply web.yaml" in said
    assert "rule set web added" in said
    assert "Assignment all-web added" in said
    assert "Nothing is live yet" in said
    assert not Revision.objects.exists()
    assert not RuleSetVersion.objects.exists()


def test_a_change_of_many_files_names_a_few_of_them_and_says_how_many_there_are(tmp_path: Path) -> None:
    files = [tmp_path / f"a-rule-set-with-quite-a-long-name-{number}.yaml" for number in range(12)]
    for number, file in enumerate(files):
        file.write_text(manifests.to_yaml(rule_set_document(f"long-{number}")))
    _run("apply", *map(str, files))
    shown = ", ".join(file.name for file in files[:3])
    assert Change.objects.get().title == f"apply 12 files: {shown} and 9 more"


@pytest.mark.parametrize(
    ("name", "called"),
    [
        (b"caf\xe9.yaml", "caf\\udce9.yaml"),
        (b"\x1b[2J.yaml", "\\u001b[2J.yaml"),
        ("\u202ex.yaml".encode(), "\\u202ex.yaml"),
    ],
)
def test_a_file_is_applied_whatever_bytes_its_name_has(name: bytes, called: str, tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(name)
    file.write_text(manifests.to_yaml(rule_set_document("web")))
    _run("apply", str(file))
    assert Change.objects.get().title == f"apply {called}"


@pytest.mark.parametrize("option", ["--title", "--reason"])
def test_words_of_a_command_line_that_are_no_utf_8_are_refused(option: str, manifest: Path) -> None:
    with pytest.raises(CommandError, match="has bytes that aren't UTF-8: write it again"):
        _run("apply", str(manifest), option, os.fsdecode(b"caf\xe9"))
    assert not Change.objects.exists()


def test_apply_says_for_programs_which_change_and_which_revision_it_made(manifest: Path) -> None:
    opened = json.loads(_run("apply", "--output", "json", str(manifest)))
    assert (opened["ok"], opened["change"], opened["revision"]) == (True, Change.objects.get().pk, None)
    made = json.loads(_run("apply", "--publish", "--output", "json", str(manifest)))
    assert (made["change"], made["revision"]) == (opened["change"] + 1, 1)
    again = json.loads(_run("apply", "--publish", "--output", "json", str(manifest)))
    assert (again["ok"], again["change"], again["revision"]) == (True, None, None)
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("apply", "--output", "json", str(manifest) + ".none", stdout=out)
    assert json.loads(out.getvalue())["ok"] is False


def test_apply_publish_makes_it_live_rule_sets_first(manifest: Path) -> None:
    said = _run("apply", "--publish", str(manifest), "--reason", "ticket 7")
    assert "Revision 1 was made" in said
    live = publishing.current_revision()
    assert [each.name for each in live.rule_sets + live.assignments] == ["web", "all-web"]
    assert set(Revision.objects.values_list("reason", flat=True)) == {"ticket 7"}


def test_a_default_that_is_spelled_out_is_published_like_one_that_isnt(tmp_path: Path) -> None:
    rule = {"name": "a", "expression": "true", "mode": "enforce", "onError": "reject"}
    (tmp_path / "x.yaml").write_text(json.dumps(rule_set_document("x", filters=[rule])))
    assert "Revision 1 was made" in _run("apply", "--publish", str(tmp_path / "x.yaml"))


def test_applying_again_says_that_nothing_changed(manifest: Path) -> None:
    _run("apply", "--publish", str(manifest))
    said = _run("apply", "--publish", str(manifest))
    assert "rule set web is unchanged" in said
    assert "Assignment all-web is unchanged" in said
    assert "Nothing to publish: Revision 1 already has all of it" in said
    assert RuleSetVersion.objects.count() == 1


def test_a_changed_document_becomes_the_next_version(manifest: Path) -> None:
    _run("apply", "--publish", str(manifest))
    manifest.write_text(manifests.to_yaml(rule_set_document()))
    assert "rule set web version 2 published in place of 1" in _run("apply", "--publish", str(manifest))
    assert [each.version for each in publishing.current_revision().rule_sets] == [2]


def test_an_assignment_of_a_faulty_rule_set_beside_it_has_no_fault_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    faulty = rule_set_document(filters=[{"name": "PodFitsResources"}])
    others = [assignment_document(), assignment_document("typo", "wep")]
    path.write_text("---\n".join(map(manifests.to_yaml, [faulty, *others])))
    with pytest.raises(CommandError) as refused:
        _run("apply", str(path))
    assert "did you mean builtin: PodFitsResources?" in str(refused.value)
    assert "no rule set is called wep" in str(refused.value)
    assert "no rule set is called web," not in str(refused.value)
    assert str(refused.value).endswith("Nothing was applied: 2 faults.")
    with pytest.raises(CommandError, match=r"Nothing was planned: 2 faults\.$"):
        _run("plan", "--no-cluster", str(path))


def test_files_that_come_together_are_checked_together(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine.yaml", tmp_path / "theirs.yaml"
    mine.write_text(manifests.to_yaml(rule_set_document()))
    theirs.write_text(manifests.to_yaml(assignment_document(params={"gone": 1})))
    for command in ("lint", "apply"):
        with pytest.raises(CommandError):
            _run(command, str(mine), str(mine))
        out = io.StringIO()
        with pytest.raises(CommandError) as refused:
            call_command(command, str(mine), str(theirs), stdout=out)
        said = f"{out.getvalue()}{refused.value}"
        assert re.search(rf"{theirs}:\d+: spec.params.gone: rule set web has no such param", said)


def test_all_faults_are_said_with_file_and_line_and_nothing_is_applied(manifest: Path, tmp_path: Path) -> None:
    other = tmp_path / "faulty.yaml"
    other.write_text(
        "apiVersion: berth/v1\nkind: RuleSet\nmetadata: {name: bad}\nspec:\n  filters:\n"
        "  - builtin: PudFits\n  - name: x\n    expression: 1 +\n"
    )
    with pytest.raises(CommandError) as caught:
        _run("apply", str(manifest), str(other), str(tmp_path / "none.yaml"))
    message = str(caught.value)
    assert f"{other}:6: spec.filters[0].builtin" in message
    assert f"{other}:8: spec.filters[1].expression" in message
    assert "none.yaml: not readable" in message
    assert not RuleSetVersion.objects.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no document"),
        ("a: [", "not readable as YAML"),
        ("[1]", "must be an object"),
        ("kind: Pod", "must be RuleSet, Assignment, PriorityClass, Pause or Exemption"),
        ("kind: [RuleSet]", "must be RuleSet, Assignment, PriorityClass, Pause or Exemption"),
        ("kind: {RuleSet: web}", "must be RuleSet, Assignment, PriorityClass, Pause or Exemption"),
        (manifests.to_yaml(assignment_document(rule_set="none")), "no rule set is called none"),
        ("---\n".join([manifests.to_yaml(rule_set_document())] * 2), "more than once"),
    ],
)
def test_what_is_no_rule_document_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(CommandError, match=said):
        _run("apply", str(tmp_path / "x.yaml"))


def test_nothing_is_applied_when_publishing_is_refused(tmp_path: Path) -> None:
    empty = {"apiVersion": "berth/v1", "kind": "RuleSet", "metadata": {"name": "web"}, "spec": {}}
    (tmp_path / "x.yaml").write_text(manifests.to_yaml(empty))
    for command in (["apply", "--publish"], ["plan", "--no-cluster"]):
        with pytest.raises(CommandError, match="web: web has no rule; add one before publishing"):
            _run(*command, str(tmp_path / "x.yaml"))
    assert not RuleSetVersion.objects.exists()


def test_publishing_is_refused_where_review_is_required(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True))
    with pytest.raises(CommandError, match="It needs 1 more approval from people who didn't edit it") as refused:
        _run("apply", "--publish", str(manifest))
    assert str(refused.value).endswith(
        "\nApplied without publishing it (--publish), its Change stays, and can be sent to review."
    )
    assert not Change.objects.exists()
    manifest.write_text(manifests.to_yaml(rule_set_document() | {"spec": {}}))
    with pytest.raises(CommandError, match=r"has no rule; add one before publishing\.$"):
        _run("apply", "--publish", str(manifest))
    manifest.write_text(manifests.to_yaml(rule_set_document()))
    assert "Change" in _run("apply", str(manifest))


def test_where_review_is_required_the_examples_wait_in_one_change(
    manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True))
    for _start in range(2):
        _run("seed", "--examples", str(manifest.parent))
    assert Change.objects.get().state == "draft"
    assert not Revision.objects.exists()


def test_a_pod_is_only_said_to_stay_pending_where_the_examples_are_live(
    tmp_path: Path, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Server:
        def post(self, *, path: str, body: bytes) -> None:
            """Take it."""

    monkeypatch.setattr(ClusterClient, "connect", lambda _kubeconfig: Server())
    workload = tmp_path / "workload.txt"
    workload.write_text("kind: Deployment\nmetadata: {name: refused, namespace: default}\n")
    said = "example Deployments are in the cluster"
    assert _run("seed", "--workload", str(workload)) == f"{said}\n"
    _run("apply", "--publish", "--no-cluster", str(manifest))
    assert _run("seed", "--workload", str(workload)) == f"{said}; the Pod of refused stays Pending on purpose\n"


def test_the_example_pods_are_made_once_the_extender_sees_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    extender = Process(id="extender@vm:1:x", role="extender", host="vm", pid=1, started_at=timezone.now())

    class Server:
        def get(self, *, path: str) -> bytes:
            """Be ready at the second question."""
            steps.append(path)
            if len(steps) == 1:
                message = "not yet"
                raise APIUnavailableError(message)
            return b"ok"

        def post(self, *, path: str, body: bytes) -> None:
            """Take it."""
            del body
            steps.append(path)

    def sleep(_seconds: float) -> None:
        steps.append("sleeps")
        extender.heartbeat_at = timezone.now()
        extender.snapshot_age_seconds = 0.1 if steps.count("sleeps") == 3 else None
        extender.save()

    monkeypatch.setattr(ClusterClient, "connect", lambda _kubeconfig: Server())
    monkeypatch.setattr("scheduler.management.commands.seed.time.sleep", sleep)
    workload = tmp_path / "workload.txt"
    workload.write_text("kind: Deployment\nmetadata: {name: refused, namespace: default}\n")
    _run("seed", "--workload", str(workload), "--wait-seconds", "60")
    created = "/apis/apps/v1/namespaces/default/deployments"
    assert steps == ["/readyz", "sleeps", "/readyz", "sleeps", "sleeps", created]


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "86401", "soon"])
@pytest.mark.parametrize("command", ["schedule", "seed"])
def test_a_wait_that_never_ends_or_has_ended_before_is_refused(command: str, value: str) -> None:
    parser = load_command_class("scheduler", command).create_parser("manage.py", command)
    with pytest.raises(CommandError, match=f"'{value}' isn't a number of seconds from 0 to 86,400"):
        parser.parse_args(["--wait-seconds", value])
    assert parser.parse_args(["--wait-seconds", "0", *(["--once"] if command == "schedule" else [])]).wait_seconds == 0


@pytest.mark.parametrize(
    ("scopes", "left"),
    [
        ([], {"web", "web-old", "data", "of-web", "of-old"}),
        (["web*"], {"web", "data", "of-web", "of-old"}),
        (["RuleSet/*"], {"web", "of-web", "of-old"}),
        (["Assignment/of-*", "web-*"], {"web", "data"}),
    ],
)
def test_prune_removes_what_the_files_no_longer_hold_in_its_scope(
    tmp_path: Path, scopes: list[str], left: set[str]
) -> None:
    names = ("web", "web-old", "data")
    publish_all(*map(make_rule_set, names), make_assignment("of-web", "web"), make_assignment("of-old", "web"))
    path = tmp_path / "web.yaml"
    path.write_text(manifests.to_yaml(rule_set_document("web", filters=[TEAM_FILTER])))
    prune = [word for scope in scopes for word in ("--prune", scope)]
    with contextlib.suppress(SystemExit):  # it ends with 2: something would change
        _run("plan", "--no-cluster", *prune, str(path))
    assert publishing.current_revision().number == 1
    _run("apply", "--publish", *prune, str(path))
    live = publishing.current_revision()
    assert {each.name for each in [*live.rule_sets, *live.assignments]} == left


def test_files_that_hold_a_pause_and_prune_what_it_pauses_are_refused(tmp_path: Path) -> None:
    """Otherwise the Pause would end, though the files hold it."""
    paused = make_pause(target="RuleSet/web")
    publish_all(make_rule_set("web"), make_rule_set("data"), paused)
    path = tmp_path / "data.yaml"
    path.write_text("---\n".join(manifests.to_yaml(each) for each in (rule_set_document("data"), document_of(paused))))
    with pytest.raises(CommandError, match=r"web-paused: spec\.target: no rule set web is live"):
        _run("apply", "--publish", "--prune", "*", str(path))
    assert publishing.current_revision().pauses == [paused]


@pytest.mark.parametrize("scope", ["Ruleset/web-*", "rulesets/*", "RuleSet/", "RuleSet/web/team", ""])
def test_a_scope_in_which_nothing_can_be_is_refused(manifest: Path, scope: str) -> None:
    for command in (["plan", "--no-cluster"], ["apply"], ["apply", "--publish"]):
        with pytest.raises(CommandError, match=re.escape(f"{scope!r} is no scope to prune in: team-a-*")):
            _run(*command, "--prune", scope, str(manifest))
    assert not Change.objects.exists()


def test_export_writes_what_apply_reads_to_the_same_bytes(manifest: Path, tmp_path: Path) -> None:
    _run("apply", "--publish", str(manifest))
    exported = _run("export")
    (tmp_path / "again.yaml").write_text(exported)
    assert "Nothing to publish" in _run("apply", "--publish", str(tmp_path / "again.yaml"))
    assert _run("export") == exported
    assert [each.document["kind"] for each in manifests.read_documents(exported, "x")] == ["RuleSet", "Assignment"]


def test_export_can_be_narrowed(manifest: Path) -> None:
    _run("apply", "--publish", str(manifest))
    assert "kind: RuleSet" not in _run("export", kind="Assignment")
    assert "name: web" in _run("export", "web")
    with pytest.raises(CommandError, match="there is nothing to export called nope"):
        _run("export", "nope")


def test_export_gives_what_a_change_makes_only_when_asked(manifest: Path) -> None:
    change = opened(make_rule_set(filters=[TEAM_FILTER]), by="alice")
    assert _run("export") == ""
    assert "name: team" in _run("export", change=change.pk)
    with pytest.raises(CommandError, match="There is no Change 999"):
        _run("export", change=999)


@pytest.mark.parametrize(
    "asked",
    [
        ["backtest", "999"],
        ["change", "show", "999"],
        ["doctor", "lint", "missing"],
        ["gate", "999"],
        ["pause", "RuleSet/missing", "--reason", "it is away"],
        ["scenario", "missing.yaml", "--pods", "2"],
        ["token", "create", "--owner", "nobody", "--scopes", "read"],
        ["verify", "--keys", "missing"],
        ["which", "missing.yaml"],
        ["which", "default/web"],
    ],
    ids=" ".join,
)
def test_a_refusal_is_an_object_where_json_is_asked_for(asked: list[str]) -> None:
    out = io.StringIO()
    with pytest.raises(CommandError) as refused:
        call_command(*asked, "--output", "json", stdout=out)
    said = json.loads(out.getvalue())
    assert (said["ok"], said["error"]) == (False, str(refused.value))
    assert refused.value.returncode == 1


def test_what_is_left_to_workers_is_an_object_where_json_is_asked_for(manifest: Path) -> None:
    change = opened(make_rule_set(filters=[TEAM_FILTER]), by="alice")
    said = json.loads(_run("gate", str(change.pk), "--queue", "--output", "json"))
    assert said == {
        "ok": True,
        "state": "queued",
        "says": [f"A worker runs the gate of {change}; its page shows the progress."],
    }
    queued = json.loads(_run("backtest", str(change.pk), "--queue", "--output", "json"))
    assert (queued["ok"], queued["state"]) == (True, "queued")
    for _ in range(2):
        said = json.loads(_run("backtest", "--cancel", str(queued["backtest"]), "--output", "json"))
        assert (said["ok"], said["state"]) == (True, "cancelled")


def test_createoperator_prints_a_password_once() -> None:
    said = _run("createoperator", "ops")
    user = User.objects.get()
    assert user.check_password(said.removeprefix("password: ").splitlines()[0])
    assert [group.name for group in user.groups.all()] == ["Operator"]
    assert not user.is_superuser
    again = _run("createoperator", "ops")
    assert again == "The account ops exists already; its password is unchanged.\n"
    assert _run("createoperator", "ops", "--role", "Operator") == again


def test_createoperator_says_that_an_account_that_exists_did_not_get_the_role() -> None:
    _run("createoperator", "ops", "--role", "Auditor")
    assert "It has the role Auditor, and didn't get Approver: " in _run("createoperator", "ops", "--role", "Approver")

    assert set(User.objects.get(username="ops").groups.values_list("name", flat=True)) == {"Auditor"}
    User.objects.create(username="nobody")
    assert "It has no role, and didn't get superuser: " in _run("createoperator", "nobody", "--role", "superuser")


@pytest.mark.parametrize("name", ["", " ", "a b", "anna\n", "a/b", "x" * 151])
def test_createoperator_makes_no_account_of_a_name_that_nobody_could_have(name: str) -> None:
    with pytest.raises(CommandError, match=r"username: .*(blank|valid|150)") as refused:
        _run("createoperator", name)
    assert refused.value.returncode == 1
    assert not User.objects.exists()


def test_createoperator_prints_the_password_first_and_makes_no_account_where_nobody_reads_it() -> None:
    assert _run("createoperator", "ops").startswith("password: ")

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        call_command("createoperator", "dora", stdout=Closed())
    assert not User.objects.filter(username="dora").exists()


@pytest.mark.parametrize("name", ["", "a b", "dora\nThe account eve was made", "x" * 151, "../dora"])
def test_createoperator_refuses_a_name_that_nobody_could_sign_in_by(name: str) -> None:
    with pytest.raises(CommandError):
        _run("createoperator", name)
    assert not User.objects.exists()


def test_createoperator_reads_a_name_as_the_page_of_signing_in_does() -> None:
    said = _run("createoperator", "Ｄora")
    assert "The account Dora was made" in said
    password = said.removeprefix("password: ").splitlines()[0]
    assert authenticate(HttpRequest(), username="Dora", password=password) is not None


def test_many_documents_take_few_statements(tmp_path: Path) -> None:
    asked = {}
    for count in (10, 60):
        path = tmp_path / f"{count}.json"
        documents = []
        for number in range(count):
            name = f"of-{count}-{number}"
            documents.append(rule_set_document(name, filters=[{"name": "f", "expression": f"'{name}' != ''"}]))
            documents.append(assignment_document(name, name, order=number))
        path.write_text("\n---\n".join(map(json.dumps, documents)))
        with CaptureQueriesContext(connection) as captured:
            _run("apply", "--publish", str(path))
        asked[count] = len(captured)
    # The rest are batches, which SQLite takes smaller ones of.
    assert asked[60] < asked[10] + 30, asked
    assert len(publishing.current_revision().rule_sets) == 70
    assert {version.state for version in RuleSetVersion.objects.all()} == {"published"}


_TEST = {
    "name": "n1 passes",
    "pod": {"metadata": {"name": "web-0"}, "spec": {"containers": [{"name": "web", "image": "web"}]}},
    "nodes": [{"metadata": {"name": "n1"}}],
    "expect": {"feasible": ["n1"]},
}


def test_a_document_is_checked_and_tested_once_on_its_way_to_being_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    run_each = checking.run_each

    def noted(job: str, documents: Any) -> Any:
        documents = list(documents)
        asked.extend(job for _ in documents)
        return run_each(job, documents)

    monkeypatch.setattr(checking, "run_each", noted)
    monkeypatch.setattr(checking, "_passed", Passed(most=10))
    path = tmp_path / "web.json"
    filters = [{"name": "f", "expression": "size('once') == 4"}]
    path.write_text(json.dumps(rule_set_document("web-once", filters=filters, tests=[_TEST])))
    _run("apply", "--publish", str(path))
    assert [job for job in asked if job in {"read_document", "read_rule_set", "run_tests"}] == [
        "read_document",
        "run_tests",
    ]


def test_failed_tests_are_run_again(tmp_path: Path) -> None:
    filters = [{"name": "f", "expression": "false", "reason": "never"}]
    path = tmp_path / "web.json"
    path.write_text(json.dumps(rule_set_document("web-failing", filters=filters, tests=[_TEST])))
    for _ in range(2):
        with pytest.raises(CommandError, match="should pass: n1"):
            _run("apply", "--publish", str(path))


def test_new_assignments_are_written_by_one_statement(tmp_path: Path) -> None:
    documents = [rule_set_document("web-rows", filters=[{"name": "f", "expression": "true"}])]
    documents += [assignment_document(f"web-{number}", "web-rows", order=number) for number in range(3)]
    path = tmp_path / "web.json"
    path.write_text("\n---\n".join(map(json.dumps, documents)))
    with CaptureQueriesContext(connection) as captured:
        _run("apply", "--publish", str(path))
    written = [each["sql"] for each in captured if "policies_assignment" in each["sql"]]
    assert len([sql for sql in written if sql.startswith(("INSERT", "UPDATE"))]) == 1
