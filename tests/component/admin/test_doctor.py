"""The doctor's pages: who sees them, who runs a canary, what they say."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from django.conf import settings
from django.test import Client
from kombu.exceptions import OperationalError

from scheduler.admin import doctor
from scheduler.admin.forms import AnswersForm
from scheduler.decisions.stream import DecisionStream, StreamError
from scheduler.doctor import canary, checkup, runs
from scheduler.doctor.runs import KEPT, LONGEST, CanaryBusyError, ask, carry_out
from scheduler.models import Caller, CanaryRun, Process
from scheduler.tasks import run_canary
from tests.component.doctor.doctor_cluster import OnePodCluster
from tests.component.doctor.test_canary import bind, failing, once, seen
from tests.component.pages import get, text_of
from tests.unit.doctor.cases import berth

pytestmark = pytest.mark.django_db
HOME = "/admin/scheduler/doctor/"
PAGES = [HOME, f"{HOME}configuration/", f"{HOME}lint/"]
WISH = {"namespace": "default", "scheduler_name": "default-scheduler"}
ROLES = ("operator", "approver", "auditor")


@pytest.fixture(autouse=True)
def without_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_self: DecisionStream) -> int:
        message = "connection refused"
        raise StreamError(message)

    monkeypatch.setattr(DecisionStream, "length", away)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The tasks that were sent."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(run_canary, "apply_async", lambda **options: found.append(options))
    return found


def make_run(**fields: Any) -> CanaryRun:
    usual = {"asked_by": "anna", "asked_at": datetime.now(UTC), **WISH}
    return CanaryRun.objects.create(**{**usual, **fields})


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("role", ROLES)
def test_every_role_sees_every_page(role: str, path: str, request: pytest.FixtureRequest) -> None:
    get(request.getfixturevalue(role), path)


@pytest.mark.parametrize("path", PAGES)
def test_nobody_sees_a_page_without_logging_in(client: Client, path: str) -> None:
    assert client.get(path)["Location"].startswith("/admin/login/")


@pytest.mark.parametrize("role", ROLES)
def test_the_doctor_is_in_everybodys_sidebar(role: str, request: pytest.FixtureRequest) -> None:
    assert HOME in get(request.getfixturevalue(role), "/admin/").content.decode()


class TestWiring:
    def test_each_part_says_how_it_is_and_what_to_do(self, auditor: Client) -> None:
        said = text_of(get(auditor, HOME))
        assert "✓ database sqlite answers" in said or "✓ database postgresql answers" in said
        assert "✗ Redis can't be reached: connection refused" in said
        assert "✗ API server can't be reached" in said

    def test_parts_stand_in_the_order_that_a_question_takes(self, auditor: Client) -> None:
        names = [part["name"] for part in get(auditor, HOME).context["parts"]]
        assert names.index("kube-scheduler") < names.index("extender") < names.index("database") < names.index("Redis")

    def test_who_called_is_named_and_verbs_that_never_came_are_too(self, auditor: Client) -> None:
        at = datetime.now(UTC) - timedelta(seconds=7)
        Caller.objects.create(
            identity="system:kube-scheduler", verb="filter", address="10.0.0.1", process="p", last_at=at
        )
        said = text_of(get(auditor, HOME))
        assert "filter ✓ 7 s ago system:kube-scheduler 10.0.0.1 p" in said
        assert "preempt ? never called" in said
        Caller.objects.update(last_at=at - timedelta(days=40))
        assert "filter ? 40 d ago: an old call system:kube-scheduler" in text_of(get(auditor, HOME))

    def test_what_it_names_leads_there(self, auditor: Client) -> None:
        at = datetime.now(UTC)
        Process.objects.create(id="there@a:1:1", role="extender", host="a", pid=1, started_at=at, heartbeat_at=at)
        for verb, process in (("filter", "there@a:1:1"), ("bind", "gone@a:1:1")):
            Caller.objects.create(identity="kube", verb=verb, address="10.0.0.1", process=process, last_at=at)
        page = get(auditor, HOME).content.decode()
        assert '<a class="berth-link" href="/admin/scheduler/process/there_40a_3A1_3A1/change/">there@a:1:1</a>' in page
        assert "<code>gone@a:1:1</code>" in page
        for path, name in (("policies/revision/", "Revision"), ("scheduler/decisiongap/", "Decisions")):
            assert f'href="/admin/{path}">{name}</a>' in page

    def test_a_call_of_last_year_is_said_in_days(self, auditor: Client) -> None:
        at = datetime.now(UTC) - timedelta(seconds=28_246_048)
        Caller.objects.create(identity="old", verb="filter", address="10.0.0.1", process="p", last_at=at)
        said = text_of(get(auditor, HOME))
        assert "filter ? 326 d ago: an old call old" in said
        assert "old called 326 d ago" in said

    def test_findings_of_kube_schedulers_file_are_there(
        self, auditor: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        configure(monkeypatch, tmp_path, berth("nodeCacheCapable: false"))
        assert "node-cache-capable-false" in text_of(get(auditor, HOME))


def configure(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    (folder / "scheduler.yaml").write_text(text)
    changed = msgspec.structs.replace(settings.BERTH, scheduler_config=str(folder / "scheduler.yaml"))
    monkeypatch.setattr(settings, "BERTH", changed)


class TestCanary:
    def test_an_operator_asks_for_one(self, operator: Client, sent: list[dict[str, Any]]) -> None:
        assert operator.post(f"{HOME}canary/", WISH)["Location"] == HOME
        row = CanaryRun.objects.get()
        assert (row.asked_by, row.state, row.scheduler_name) == ("operator", "asked", "default-scheduler")
        assert sent[0]["kwargs"] == {"number": str(row.pk)}

    @pytest.mark.parametrize("role", ["approver", "auditor"])
    def test_others_read_and_do_not_run(
        self, role: str, request: pytest.FixtureRequest, sent: list[dict[str, Any]]
    ) -> None:
        client = request.getfixturevalue(role)
        assert "canary-form" not in get(client, HOME).content.decode()
        assert client.post(f"{HOME}canary/", WISH).status_code == 403
        assert not sent

    def test_asking_changes_something_and_is_no_link(self, operator: Client) -> None:
        assert operator.get(f"{HOME}canary/").status_code == 405

    def test_one_at_a_time(self, operator: Client, sent: list[dict[str, Any]]) -> None:
        make_run(state="running")
        operator.post(f"{HOME}canary/", WISH)
        assert not sent
        assert "A canary is running" in text_of(get(operator, HOME))

    @pytest.mark.parametrize("name", ["../secrets", "Default", "", "a b"])
    def test_a_name_that_is_none_is_refused(self, operator: Client, sent: list[dict[str, Any]], name: str) -> None:
        page = operator.post(f"{HOME}canary/", {**WISH, "namespace": name, "scheduler_name": "mine"}).content.decode()
        assert not sent
        form = page.partition('id="canary-form"')[2].partition("</form>")[0]
        assert 'class="berth-error"' in form
        assert 'value="mine"' in form
        assert not name or f'value="{name}"' in form
        assert not CanaryRun.objects.exists()

    def test_without_redis_it_is_shown_as_ended_and_another_may_be_asked_for(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(**_: Any) -> None:
            raise OperationalError

        monkeypatch.setattr(run_canary, "apply_async", away)
        operator.post(f"{HOME}canary/", WISH)
        page = text_of(get(operator, HOME))
        assert "The canary couldn't be started: Redis can't be reached" in page
        assert "There was no canary: Redis, by which workers are told, can't be reached." in page
        operator.post(f"{HOME}canary/", WISH)
        assert [row.state for row in CanaryRun.objects.all()] == ["done", "done"]

    def test_one_that_runs_is_shown_with_its_step_and_the_page_follows_it(self, auditor: Client) -> None:
        make_run(state="running", step="waits for kube-scheduler's questions")
        page = get(auditor, HOME)
        assert "… waits for kube-scheduler's questions" in text_of(page)
        assert 'http-equiv="refresh"' in page.content.decode()

    def test_one_that_never_ended_says_so_and_the_page_stands_still(self, auditor: Client) -> None:
        make_run(asked_at=datetime.now(UTC) - LONGEST)
        page = get(auditor, HOME)
        assert "✗ It never finished" in text_of(page)
        assert 'http-equiv="refresh"' not in page.content.decode()

    def test_what_came_of_it_stays(self, auditor: Client) -> None:
        report = {
            "ok": False, "summary": "Berth was not asked about the canary.", "pod": "berth-canary-1", "namespace": "default",
            "verbs": [{"verb": "filter", "state": "missing", "says": "no Decision about the canary", "callers": []}],
            "advice": [{"happens": "It was placed.", "remedy": "Look at <the file>."}],
        }  # fmt: skip
        make_run(state="done", report=report, asked_at=datetime.now(UTC) - timedelta(days=3))
        page = get(auditor, HOME)
        said = text_of(page)
        assert "✗ Berth was not asked about the canary." in said
        assert "filter ✗ missing" in said
        assert "Look at <the file>." in said
        assert "pod_name=berth-canary-1" in page.content.decode()


class TestCarryingOut:
    @pytest.fixture(autouse=True)
    def in_haste(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(canary, "GRACE_SECONDS", 0.05)
        monkeypatch.setattr(canary, "NAMES_SECONDS", 0.05)
        monkeypatch.setattr(canary, "POLL_SECONDS", 0.001)

    def test_a_run_ends_with_its_report(self) -> None:
        row = make_run()
        carry_out(row.pk, client=OnePodCluster(once(seen("filter"), seen("prioritize"), bind)))
        row.refresh_from_db()
        assert (row.state, row.step, row.report["ok"]) == ("done", "", True)
        assert row.ended_at is not None

    def test_a_task_that_comes_twice_runs_once(self) -> None:
        row = make_run()
        cluster = OnePodCluster(bind)
        for _ in range(2):
            carry_out(row.pk, client=cluster)
        assert len(cluster.created) == 1

    def test_words_that_no_database_stores_are_kept_without_what_it_refuses(self) -> None:
        row = make_run()
        failed = failing("SchedulerError", "code 500: \0\1binary")
        carry_out(row.pk, client=OnePodCluster(once(failed, bind)))
        row.refresh_from_db()
        assert row.state == "done"
        assert "code 500: \x01binary" in row.report["advice"][0]["happens"]

    def test_a_run_that_is_gone_is_nobodys(self) -> None:
        cluster = OnePodCluster(bind)
        carry_out(uuid4(), client=cluster)
        assert cluster.created == []

    def test_a_fault_ends_the_run_too(self) -> None:
        def explode(_pod: dict[str, Any]) -> None:
            message = "a fault of our own"
            raise RuntimeError(message)

        row = make_run()
        with pytest.raises(RuntimeError):
            carry_out(row.pk, client=OnePodCluster(explode))
        row.refresh_from_db()
        assert (row.state, row.report["ok"]) == ("done", False)

    def test_the_step_is_there_to_be_read(self) -> None:
        steps: list[str] = []
        row = make_run()

        def look(_pod: dict[str, Any]) -> None:
            steps.append(CanaryRun.objects.get().step)

        carry_out(row.pk, client=OnePodCluster(once(look, bind)))
        assert steps == ["waits for kube-scheduler's questions"]

    def test_the_verbs_of_kube_schedulers_file_are_the_ones_that_are_wanted(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        configure(monkeypatch, tmp_path, berth())
        row = make_run()
        carry_out(row.pk, client=OnePodCluster(once(seen("filter"), bind)))
        row.refresh_from_db()
        assert row.report["ok"] is True

    def test_old_runs_make_room(self) -> None:
        for _ in range(KEPT):
            make_run(state="done", asked_at=datetime.now(UTC) - timedelta(hours=1))
        newest = ask(by="anna", **WISH)
        assert CanaryRun.objects.count() == KEPT
        assert CanaryRun.objects.first() == newest

    def test_one_that_never_ended_does_not_stand_in_the_way_for_good(self) -> None:
        make_run(state="running")
        with pytest.raises(CanaryBusyError):
            ask(by="anna", **WISH)
        CanaryRun.objects.update(asked_at=datetime.now(UTC) - runs.LONGEST)
        ask(by="anna", **WISH)


class TestMakingAConfiguration:
    PAGE = f"{HOME}configuration/"

    def test_it_begins_with_the_local_defaults(self, auditor: Client) -> None:
        page = get(auditor, self.PAGE)
        assert "urlPrefix: http://127.0.0.1:8010" in text_of(page)
        assert "data-berth-copy" in page.content.decode()

    def test_answers_become_the_file_and_what_it_does(self, auditor: Client) -> None:
        data = {
            **AnswersForm.defaults(),
            "url_prefix": "http://berth.example",
            "verbs": ["filter"],
            "node_cache_capable": "",
        }
        data["managed_resources"] = "example.com/gpu:ignored, example.com/fpga"
        said = text_of(auditor.post(self.PAGE, data))
        assert "urlPrefix: http://berth.example" in said
        assert "prioritizeVerb" not in said.partition("How kube-scheduler will behave")[0].partition("apiVersion")[2]
        assert {"plain-http", "node-cache-capable-false", "managed-resources-interest"} <= set(said.split())

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("weight", "heavy"),
            ("http_timeout_seconds", "0"),
            ("percentage_of_nodes_to_score", "101"),
            ("url_prefix", ""),
        ],
    )
    def test_an_answer_that_cannot_be_taken_is_marked(self, auditor: Client, name: str, value: str) -> None:
        page = auditor.post(self.PAGE, {**AnswersForm.defaults(), name: value})
        assert name in page.context["form"].errors
        assert "There is no configuration yet" in text_of(page)

    def test_a_word_behind_a_resource_is_refused(self, auditor: Client) -> None:
        page = auditor.post(self.PAGE, {**AnswersForm.defaults(), "managed_resources": "a.b/c:maybe"})
        assert "Write NAME or NAME:ignored." in text_of(page)


class TestLinting:
    PAGE = f"{HOME}lint/"

    def test_findings_have_severity_place_what_happens_and_what_to_do(self, auditor: Client) -> None:
        said = text_of(auditor.post(self.PAGE, {"text": berth("nodeCacheCapable: false")}))
        assert "kube-scheduler should not run with it" in said
        assert "✗ error node-cache-capable-false extenders[0].nodeCacheCapable line 3" in said
        assert "Set nodeCacheCapable: true" in said

    def test_a_good_file_is_said_to_be_good(self, auditor: Client) -> None:
        assert "kube-scheduler can run with it" in text_of(auditor.post(self.PAGE, {"text": berth()}))

    def test_which_of_several_extenders_is_berths_can_be_said(self, auditor: Client) -> None:
        text = berth().replace("]", ", {urlPrefix: 'https://other.example', filterVerb: check}]")
        said = text_of(auditor.post(self.PAGE, {"text": text, "berth_url": "https://other.example"}))
        assert "verb-not-served" in said

    def test_what_is_pasted_is_shown_as_text(self, auditor: Client) -> None:
        page = auditor.post(self.PAGE, {"text": "<script>alert(1)</script>: ["})
        assert "<script>alert" not in page.content.decode()

    def test_it_begins_with_the_file_that_is_known(
        self, auditor: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        configure(monkeypatch, tmp_path, berth("ignorable: true"))
        assert "ignorable: true" in text_of(get(auditor, self.PAGE))

    @pytest.mark.parametrize(
        "text", [berth(url="https://me:hunter2@b"), berth("tlsConfig: {keyData: aHVudGVyMg==}"), "hunter2: ["]
    )
    def test_but_not_when_there_may_be_a_secret_in_it(
        self, auditor: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
    ) -> None:
        configure(monkeypatch, tmp_path, text)
        page = get(auditor, self.PAGE).content.decode()
        assert "hunter2" not in page
        assert "aHVudGVyMg" not in page

    def test_a_known_file_that_is_missing_leaves_the_box_empty(
        self, auditor: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        changed = msgspec.structs.replace(settings.BERTH, scheduler_config="/nowhere/at/all")
        monkeypatch.setattr(settings, "BERTH", changed)
        assert get(auditor, self.PAGE).context["form"]["text"].value() == ""


def test_every_part_that_can_be_looked_at_has_its_place_in_the_order() -> None:
    names = [part.name for part in checkup.check().parts]
    assert [name for name in names if doctor._place(checkup.Part(name, "ok", "")) == len(doctor._ORDER)] == []
