"""manage.py doctor, as people and pipelines call it."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from django.conf import settings
from django.core.management import CommandError, call_command

from scheduler.cluster.client import Client
from scheduler.doctor import canary
from tests.component.doctor.doctor_cluster import OnePodCluster
from tests.component.doctor.test_canary import bind, once, seen
from tests.unit.doctor.cases import berth
from tests.upstream_policies import WITH_EXTENDER

pytestmark = pytest.mark.django_db


def doctor(*arguments: str, code: int = 0) -> str:
    out = io.StringIO()
    ended = 0
    try:
        call_command("doctor", *arguments, stdout=out, stderr=io.StringIO())
    except CommandError as error:
        ended = error.returncode
    assert ended == code, out.getvalue()
    return out.getvalue()


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        path = tmp_path / "scheduler.yaml"
        path.write_text(text)
        return str(path)

    return write


class TestLint:
    def test_a_file_without_errors_is_ok(self, file: Any) -> None:
        said = doctor("lint", file(berth()))
        assert "note ignorable-false" in said

    def test_an_error_ends_with_code_1_and_names_file_line_and_place(self, file: Any) -> None:
        path = file(berth("nodeCacheCapable: false"))
        said = doctor("lint", path, code=1)
        assert f"error node-cache-capable-false  {path}:3  extenders[0].nodeCacheCapable" in said
        assert "Do: Set nodeCacheCapable: true" in said

    def test_a_warning_ends_with_code_1_only_when_it_is_strict(self, file: Any) -> None:
        path = file(berth("ignorable: true"))
        doctor("lint", path)
        doctor("lint", path, "--strict", code=1)

    def test_json_says_whether_it_is_ok_and_what_was_found(self, file: Any) -> None:
        said = json.loads(doctor("lint", file(berth("nodeCacheCapable: false")), "--output", "json", code=1))
        assert said["ok"] is False
        assert set(said["findings"][0]) == {"id", "severity", "place", "line", "happens", "detail", "remedy"}

    def test_the_output_may_be_chosen_before_the_part_too(self, file: Any) -> None:
        assert json.loads(doctor("--output", "json", "lint", file(berth())))["ok"] is True

    def test_standard_input_can_be_linted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(berth("nodeCacheCapable: false")))
        assert "standard input:3" in doctor("lint", "-", code=1)

    def test_a_file_that_is_missing_is_said(self, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match="can't be read"):
            call_command("doctor", "lint", str(tmp_path / "none"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestConfiguration:
    def test_answers_become_a_file(self) -> None:
        said = doctor(
            "configuration", "--url-prefix", "https://berth.example", "--verbs", "filter,bind", "--http-timeout", "2s",
            "--ca-file", "/ca", "--cert-file", "/cert", "--key-file", "/key", "--ignorable", "true",
            "--managed-resource", "example.com/gpu:ignored", "--managed-resource", "example.com/fpga",
        )  # fmt: skip
        (extender,) = yaml.safe_load(said)["extenders"]
        assert extender == {
            "urlPrefix": "https://berth.example", "filterVerb": "filter", "bindVerb": "bind", "nodeCacheCapable": True,
            "httpTimeout": "2s", "ignorable": True,
            "tlsConfig": {"caFile": "/ca", "certFile": "/cert", "keyFile": "/key"},
            "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": True}, {"name": "example.com/fpga"}],
        }  # fmt: skip

    def test_answers_that_do_harm_end_with_code_1_and_the_file_all_the_same(self) -> None:
        said = doctor("configuration", "--url-prefix", "http://berth.example", code=1)
        assert yaml.safe_load(said)["extenders"][0]["urlPrefix"] == "http://berth.example"

    def test_json_holds_the_file_and_its_findings(self) -> None:
        said = json.loads(doctor("configuration", "--output", "json", "--weight", "20"))
        assert said["ok"] is True
        assert "weight-partly-outvoted" in {finding["id"] for finding in said["findings"]}
        assert yaml.safe_load(said["configuration"])["extenders"][0]["weight"] == 20

    def test_on_a_terminal_it_asks_and_asks_again_what_it_cannot_take(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = ["https://berth.example", "filter,eat", "filter", "", "soon", "2", "perhaps", "yes"]
        answers += ["/ca", "/cert", "/key", "", "", ""]
        monkeypatch.setattr(sys, "stdin", Terminal("\n".join(answers) + "\n"))
        out, asked = io.StringIO(), io.StringIO()
        call_command("doctor", "configuration", stdout=out, stderr=asked)
        (extender,) = yaml.safe_load(out.getvalue())["extenders"]
        assert (extender["urlPrefix"], extender["httpTimeout"]) == ("https://berth.example", "2s")
        assert (extender["ignorable"], extender["tlsConfig"]["keyFile"]) == (True, "/key")
        assert "eat isn't a verb" in asked.getvalue()

    def test_a_terminal_that_ends_gives_the_defaults(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", Terminal(""))
        assert yaml.safe_load(doctor("configuration"))["extenders"][0]["weight"] == 150

    def test_the_port_is_the_one_that_the_extender_listens_on(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        moved = msgspec.structs.replace(settings.BERTH, extender_bind="127.0.0.1:9010")
        monkeypatch.setattr(settings, "BERTH", moved)
        assert yaml.safe_load(doctor("configuration"))["extenders"][0]["urlPrefix"] == "http://127.0.0.1:9010"
        (tmp_path / "two.yaml").write_text(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders:\n"
            "- {urlPrefix: 'http://127.0.0.1:7000', filterVerb: filter}\n"
            "- {urlPrefix: 'http://127.0.0.1:9010', filterVerb: filter, nodeCacheCapable: false}\n"
        )
        said = doctor("lint", str(tmp_path / "two.yaml"), code=1)
        assert "extenders[1].nodeCacheCapable" in said
        assert "berth-not-found" not in said
        given = yaml.safe_load(doctor("configuration", "--url-prefix", "http://127.0.0.1:7000"))
        assert given["extenders"][0]["urlPrefix"] == "http://127.0.0.1:7000"

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--verbs", "eat"),
            ("--http-timeout", "0"),
            ("--http-timeout", "soon"),
            ("--ignorable", "perhaps"),
            ("--managed-resource", "a/b:c"),
        ],
    )
    def test_an_answer_that_cannot_be_taken_is_refused_with_what_can(self, arguments: tuple[str, ...]) -> None:
        with pytest.raises(CommandError, match=f"argument {arguments[0]}: (?!invalid)"):
            call_command("doctor", "configuration", *arguments)


class TestFromPolicy:
    @pytest.fixture
    def policy(self, tmp_path: Path) -> Any:
        def write(text: str) -> str:
            path = tmp_path / "policy.json"
            path.write_text(text)
            return str(path)

        return write

    def test_the_official_policys_extender_becomes_a_configuration(self, policy: Any) -> None:
        made = yaml.safe_load(doctor("configuration", "--from-policy", policy(WITH_EXTENDER)))
        assert [each["urlPrefix"] for each in made["extenders"]] == ["http://127.0.0.1:12346/scheduler"]

    def test_berths_own_is_added_when_an_option_names_something_of_it(self, policy: Any) -> None:
        file = policy(WITH_EXTENDER.replace('"bindVerb": "bind",', ""))
        made = yaml.safe_load(doctor("configuration", "--from-policy", file, "--url-prefix", "http://127.0.0.1:8010"))
        assert [each["urlPrefix"] for each in made["extenders"]][1] == "http://127.0.0.1:8010"
        assert made["percentageOfNodesToScore"] == 100

    def test_an_option_about_all_of_kube_scheduler_adds_no_extender(self, policy: Any) -> None:
        made = yaml.safe_load(
            doctor("configuration", "--from-policy", policy(WITH_EXTENDER), "--scheduler-name", "other")
        )
        assert made["profiles"] == [{"schedulerName": "other"}]
        assert len(made["extenders"]) == 1

    def test_two_that_bind_end_with_code_1(self, policy: Any) -> None:
        doctor("configuration", "--from-policy", policy(WITH_EXTENDER), "--verbs", "filter,bind", code=1)

    def test_a_fault_is_said_with_file_and_line(self, policy: Any) -> None:
        path = policy(WITH_EXTENDER.replace('"weight": 5,', ""))
        with pytest.raises(CommandError, match=rf"{path}:5: extenders\[0\]\.weight: is needed"):
            call_command("doctor", "configuration", "--from-policy", path)

    def test_rules_in_it_are_said_to_belong_elsewhere(self, policy: Any) -> None:
        told = io.StringIO()
        file = policy(WITH_EXTENDER.replace('"extenders"', '"predicates": [], "extenders"'))
        call_command("doctor", "configuration", "--from-policy", file, stdout=io.StringIO(), stderr=told)
        assert "convert them to a RuleSet with importpolicy" in told.getvalue()


class TestAddTo:
    def test_berth_is_added_and_what_was_the_matter_before_is_told_alone(self, file: Any) -> None:
        path = file(berth("nodeCacheCapable: false", url="https://ours.example"))
        told, out = io.StringIO(), io.StringIO()
        call_command("doctor", "configuration", "--add-to", path, stdout=out, stderr=told)
        made = yaml.safe_load(out.getvalue())
        assert [each["urlPrefix"] for each in made["extenders"]] == ["https://ours.example", "http://127.0.0.1:8010"]
        assert "extenders[0].nodeCacheCapable" in told.getvalue()

    def test_one_that_has_berth_already_ends_with_code_1(self, file: Any) -> None:
        doctor("configuration", "--add-to", file(berth()), "--url-prefix", "http://127.0.0.1:8010", code=1)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n", "wrong-kind"),
            ("kind: Policy\napiVersion: v1\n", "wrong-kind"),
            (f"{berth()}\n---\na: b\n", "several-documents"),
            ("- a\n", "wrong-kind"),
            ("a: [", "not-readable"),
            ("", "wrong-kind"),
        ],
    )
    def test_what_is_no_configuration_is_refused(self, file: Any, text: str, said: str) -> None:
        with pytest.raises(CommandError, match=said):
            call_command("doctor", "configuration", "--add-to", file(text))

    @pytest.mark.parametrize("more", [("--from-policy", "p.json"), ("--percentage-of-nodes-to-score", "50")])
    def test_what_stands_in_the_file_is_not_asked_for(self, file: Any, more: tuple[str, str]) -> None:
        with pytest.raises(CommandError, match="the file already has"):
            call_command("doctor", "configuration", "--add-to", file(berth()), *more)


class TestWiring:
    @pytest.fixture(autouse=True)
    def in_haste(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(canary, "GRACE_SECONDS", 0.05)
        monkeypatch.setattr(canary, "NAMES_SECONDS", 0.05)
        monkeypatch.setattr(canary, "POLL_SECONDS", 0.001)

    def connect(self, monkeypatch: pytest.MonkeyPatch, cluster: OnePodCluster) -> None:
        monkeypatch.setattr(Client, "connect", lambda *_args: cluster)

    def test_a_proven_wiring_is_ok(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connect(monkeypatch, OnePodCluster(once(seen("filter"), seen("prioritize"), bind)))
        said = doctor("wiring", "--timeout", "5")
        assert "✓ Berth was asked: filter, prioritize; the Pod got n1." in said

    def test_one_that_is_not_proven_ends_with_code_1_and_advice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connect(monkeypatch, OnePodCluster(bind))
        said = json.loads(doctor("wiring", "--timeout", "5", "--output", "json", code=1))
        assert said["ok"] is False
        assert [verb["state"] for verb in said["verbs"]][:2] == ["missing", "missing"]
        assert said["advice"][0]["remedy"]


def test_everything_is_looked_at_and_what_is_away_is_said() -> None:
    said = json.loads(doctor("--output", "json", code=1))
    assert said["ok"] is False
    parts = {part["name"]: part["state"] for part in said["parts"]}
    assert parts["database"] == "ok"
    assert parts["API server"] == "error"


def test_people_read_what_to_do_below_each_part() -> None:
    said = doctor(code=1)
    assert "✗ API server" in said
    assert "Do: Is it up, and is BERTH_KUBECONFIG right?" in said
