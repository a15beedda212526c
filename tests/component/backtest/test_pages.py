"""The pages of backtests: operators start, auditors read, and a GET does nothing."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from policies import publishing
from policies.engine.decision import CompiledRevision
from policies.models import AuditEvent
from scheduler.backtest.runs import Worker, plan
from scheduler.gate.runs import examine
from scheduler.models import Backtest, BacktestChunk
from tests.builders import make_assignment, make_rule_set
from tests.component.backtest.corpus import Corpus
from tests.component.pages import get, opened, publish_all, text_of
from tests.recording import History

pytestmark = pytest.mark.django_db


@pytest.fixture
def change(tmp_path: Path) -> Iterator[Any]:
    """Five recorded Pods, of which a Change would refuse one."""
    publish_all(make_rule_set("web"), make_assignment("all", "web"))
    history = History(tmp_path / "spool")
    corpus = Corpus(history, CompiledRevision(publishing.current_revision()))
    for number in range(5):
        corpus.ask(f"p{number}", **({"marked": "yes"} if number == 3 else {}))
    history.settle()
    rule = {"name": "planted", "expression": "!('marked' in pod.metadata.labels)", "reason": "=it is marked"}
    yield opened(make_rule_set("web", filters=[rule]))
    history.spool.close()


def test_an_operator_starts_one_and_everybody_reads_what_it_found(
    operator: Client, auditor: Client, change: Any
) -> None:
    page = text_of(operator.get(f"/admin/policies/change/{change.pk}/change/"))
    assert "Backtest…" in page
    started = operator.post("/admin/scheduler/backtest/start/", {"target": change.pk})
    row = Backtest.objects.get()
    path = f"/admin/scheduler/backtest/{row.pk}/"
    assert (started.status_code, started["Location"]) == (302, path)
    assert "Waiting for a worker." in text_of(auditor.get(path))
    piece = auditor.get(f"{path}progress/").content.decode()
    assert "hx-get" in piece
    # How long ago is said where it is asked for anew: elsewhere it would stand still beside the progress.
    assert (piece.count("<time"), auditor.get(path).content.decode().count("<time")) == (1, 1)
    Worker().work()
    text = text_of(auditor.get(path))
    assert "1 Pod would get no node" in text
    assert "default/p3 : none of 6 nodes would do any more, by rule planted of rule set web" in text
    page = auditor.get(path).content.decode()
    assert '<a class="berth-link" href="/admin/scheduler/pods/default/p3/?uid=' in page
    assert '<a class="berth-link" href="/admin/policies/ruleset/?q=web">web</a>' in page
    assert b"hx-get" not in auditor.get(f"{path}progress/").content
    table = auditor.get(f"{path}pods.csv").content.decode().splitlines()
    assert table[1].startswith("no-node,default/p3,")
    assert ",'=it is marked," in table[1]
    found = auditor.get(f"/api/v1/backtests/{row.pk}").json()
    assert (found["state"], found["done"], found["total"]) == ("done", 10, 10)
    assert [line["pod"] for line in found["result"]["pods"]] == ["default/p3"]
    assert "result" not in auditor.get("/api/v1/backtests").json()["results"][0]
    assert "1 Pod would get no node" in text_of(auditor.get(f"/admin/policies/change/{change.pk}/change/"))


def test_one_that_waits_says_for_which_other_one_or_why_none_takes_it_up(operator: Client, change: Any) -> None:
    for namespaces in ("", "shop"):
        operator.post("/admin/scheduler/backtest/start/", {"target": change.pk, "namespaces": namespaces})
    Backtest.objects.update(asked_at=timezone.now() - timedelta(minutes=1))
    second, first = Backtest.objects.all()
    shown = text_of(operator.get(f"/admin/scheduler/backtest/{second.pk}/"))
    assert f"Queued behind backtest {first.pk}." in shown
    shown = text_of(operator.get(f"/admin/scheduler/backtest/{first.pk}/"))
    assert "no worker is running, Redis is unreachable, or the worker's machine is busy" in shown


def test_one_that_nobody_goes_on_with_says_since_when(operator: Client, change: Any) -> None:
    operator.post("/admin/scheduler/backtest/start/", {"target": change.pk})
    row = Backtest.objects.get()
    path = f"/admin/scheduler/backtest/{row.pk}/"
    assert plan(row)
    row.refresh_from_db()
    assert text_of(operator.get(path)).count("No progress") == 0
    left = timezone.now() - timedelta(minutes=3)
    Backtest.objects.update(planned_at=left - timedelta(minutes=1))
    BacktestChunk.objects.update(state=BacktestChunk.State.RUNNING, heartbeat_at=left)
    text = text_of(operator.get(path))
    assert f"No progress since {left:%Y-%m-%d %H:%M:%S} UTC: no worker is running" in text
    assert f"manage.py backtest --resume {row.pk} continues it at once" in text
    Worker().work()
    assert "No progress" not in text_of(operator.get(path))


def test_what_was_found_before_the_change_was_edited_is_said_to_be_of_before(operator: Client, change: Any) -> None:
    operator.post("/admin/scheduler/backtest/start/", {"target": change.pk})
    Worker().work()
    pages = (f"/admin/scheduler/backtest/{Backtest.objects.get().pk}/", f"/admin/policies/change/{change.pk}/change/")
    assert not [page for page in pages if "has been edited since" in text_of(operator.get(page))]
    edit = change.edits.get()
    edit.document = edit.document.replace("it is marked", "it has a mark")
    edit.save()
    assert [page for page in pages if "The Change has been edited since" in text_of(operator.get(page))] == [*pages]


def test_an_auditor_starts_and_cancels_none(operator: Client, auditor: Client, change: Any) -> None:
    assert auditor.post("/admin/scheduler/backtest/start/", {"target": change.pk}).status_code == 403
    assert not Backtest.objects.exists()
    operator.post("/admin/scheduler/backtest/start/", {"target": "web"})
    path = f"/admin/scheduler/backtest/{Backtest.objects.get().pk}/cancel/"
    assert auditor.post(path).status_code == 403
    assert Backtest.objects.get().state == "queued"
    operator.post(path)
    assert Backtest.objects.get().state == "cancelled"
    kinds = AuditEvent.objects.filter(kind__startswith="backtest.").order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["backtest.start", "backtest.cancel"]


def test_a_get_starts_nothing(operator: Client, change: Any) -> None:
    assert operator.get("/admin/scheduler/backtest/start/", {"target": change.pk}).status_code == 405
    assert operator.get("/admin/scheduler/backtest/", {"change": change.pk}).status_code == 200
    assert not Backtest.objects.exists()


def test_what_cannot_be_asked_about_is_said_at_its_field(operator: Client) -> None:
    assert "There is no Change 4711" in text_of(operator.post("/admin/scheduler/backtest/start/", {"target": "4711"}))


@pytest.mark.parametrize(
    ("until", "ends"), [("2026-01-02T00:00", "at 2026-01-02 00:00:00 UTC"), ("9000-01-01T00:00", "now")]
)
def test_a_span_that_ends_before_it_begins_is_refused(operator: Client, change: Any, until: str, ends: str) -> None:
    given = {"target": change.pk, "since": "2999-01-02T00:00", "until": until}
    said = text_of(operator.post("/admin/scheduler/backtest/start/", given))
    assert f"No Decision is of a span that begins at 2999-01-02 00:00:00 UTC and ends {ends}." in said
    with pytest.raises(CommandError, match="No Decision is of a span"):
        call_command("backtest", str(change.pk), "--from", "2026-01-02", "--until", "2026-01-02", "--queue")
    assert not Backtest.objects.exists()


def test_a_time_with_its_zone_is_read_by_it(operator: Client, change: Any) -> None:
    given = {"target": change.pk, "since": "2026-01-01T00:00:00+02:00", "until": "2026-01-01T00:00:00-02:00"}
    operator.post("/admin/scheduler/backtest/start/", given)
    made = Backtest.objects.get()
    assert (made.since, made.until) == (datetime(2025, 12, 31, 22, tzinfo=UTC), datetime(2026, 1, 1, 2, tzinfo=UTC))


@pytest.mark.django_db
@pytest.mark.parametrize("number", ["4711", "seven", "9" * 30])
def test_the_list_says_that_it_is_not_of_a_change_that_there_is_not(auditor: Client, number: str) -> None:
    assert "these are the backtests of all" in text_of(auditor.get(reverse("backtests"), {"change": number}))
    assert "these are the backtests of all" not in text_of(auditor.get(reverse("backtests"), {"change": ""}))


def test_a_damaged_result_is_said_on_every_page_and_over_rest(operator: Client, change: Any) -> None:
    operator.post("/admin/scheduler/backtest/start/", {"target": change.pk})
    Worker().work()
    row = Backtest.objects.get()
    Backtest.objects.update(result=b"damaged")
    BacktestChunk.objects.all().delete()
    said = f"What {row} found is damaged in the database"
    path = f"/admin/scheduler/backtest/{row.pk}/"
    pages = (path, f"{path}progress/", "/admin/scheduler/backtest/", f"/admin/policies/change/{change.pk}/change/")
    for page in pages:
        assert said in text_of(get(operator, page)), page
    assert said in text_of(operator.get(f"{path}pods.csv", follow=True))
    refused = operator.get(f"/api/v1/backtests/{row.pk}")
    assert (refused.status_code, said in refused.json()["detail"]) == (409, True)
    assert operator.get(f"/api/v1/backtests/{row.pk}", {"fields": "state"}).json() == {"state": "done"}
    with pytest.raises(CommandError, match=said):
        call_command("backtest", "--resume", str(row.pk))
    live, edits = publishing.current_revision(), publishing.edits_of(change)
    (result,) = examine(live, publishing.with_edits(live, edits), edits, {"backtest": "warn"}, client=None).results
    assert result.says.startswith(said)


def test_a_damaged_part_of_a_result_fails_the_backtest(operator: Client, change: Any) -> None:
    operator.post("/admin/scheduler/backtest/start/", {"target": change.pk})
    row = Backtest.objects.get()
    Worker().work()
    BacktestChunk.objects.update(result=b"damaged")
    Backtest.objects.update(state="running", result=b"")
    Worker().work()
    row.refresh_from_db()
    assert row.state == "failed"
    assert row.fault.startswith(f"What {row} found is damaged in the database")
    Backtest.objects.update(state="done")
    table = operator.get(f"/admin/scheduler/backtest/{row.pk}/pods.csv", follow=True)
    assert "is damaged in the database" in text_of(table)
