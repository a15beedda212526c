"""The pages of storage and of legal holds, and what doctor says of both."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.test import Client
from django.utils.connection import ConnectionDoesNotExist

from policies.models import AuditEvent
from scheduler.doctor.checkup import check
from scheduler.doctor.parts import Part
from scheduler.history.storage import SAMPLE_EVERY, sample
from scheduler.models import Checkpoint, Decision, LegalHold, Pruning, StorageSample
from tests.component.controlplane.test_pages import make_decision

pytestmark = pytest.mark.django_db
STORAGE, HOLDS, MAKE = (
    "/admin/scheduler/storage/",
    "/admin/scheduler/legal-holds/",
    "/admin/scheduler/legal-holds/make/",
)
CASE = {
    "reason": "case 7",
    "pod_namespace": "shop",
    "pod_name": "web-1",
    "from_at": "2026-11-01",
    "until_at": "2026-11-02",
}


def text(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def weighed(monkeypatch: pytest.MonkeyPatch, **setting: int) -> None:
    """Two samples a day apart: 1,000,000 Decisions came, each of 2 kB and with 0.5 kB of Snapshots."""
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, **setting))
    now = datetime.now(UTC)
    for days, stored in ((1, 1_000_000), (0, 2_000_000)):
        StorageSample.objects.create(
            at=now - timedelta(days=days), decisions=stored, rows=stored, decision_bytes=stored * 2_000,
            detail_bytes=1_500, journal_bytes=stored * 500,
        )  # fmt: skip


def storage_part() -> Part:
    return next(each for each in check(quick=True).parts if each.name == "Storage")


def test_storage_says_what_the_history_takes_up_and_will(auditor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no forecast yet" in text(auditor, STORAGE)
    weighed(monkeypatch, retention_days=164)
    shown = text(auditor, STORAGE)
    assert "At today&#x27;s rate, 1,000,000 Decisions a day, 164 days need 410 GB" in shown
    assert "4.0 GB" in shown
    assert "164 days (BERTH_RETENTION_DAYS)" in shown


def test_a_forecast_beyond_the_budget_is_a_warning_on_the_page_and_of_doctor(
    auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert storage_part().state == "unknown"
    weighed(monkeypatch, retention_days=30, history_budget_bytes=100 * 10**9)
    assert storage_part().state == "ok"
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, history_budget_bytes=50 * 10**9))
    found = storage_part()
    assert (found.state, "The budget is 50 GB" in found.remedy) == ("warning", True)
    assert "30 days need 75 GB; the budget is 50 GB" in text(auditor, STORAGE)


def test_what_was_pruned_is_shown_with_its_rule(auditor: Client) -> None:
    at = datetime(2026, 11, 18, tzinfo=UTC)
    Pruning.objects.create(
        rule="decisions",
        days=30,
        at=at,
        from_at=at - timedelta(days=37),
        until_at=at - timedelta(days=30),
        rows=1234,
        bytes=5_000_000,
    )
    shown = text(auditor, STORAGE)
    assert all(words in shown for words in ("Decisions", "30 days", "1,234", "5.0 MB", "2026-10-19 00:00"))


def test_a_sample_is_taken_once_an_hour_and_old_ones_go() -> None:
    now = datetime(2026, 11, 18, tzinfo=UTC)
    make_decision()
    Checkpoint.objects.create(writer="p", at=now, next_decision=8)
    StorageSample.objects.create(
        at=now - timedelta(days=100), decisions=1, rows=1, decision_bytes=1, detail_bytes=1, journal_bytes=1
    )
    found = sample(now)
    assert found is not None
    assert (found.decisions, found.rows) == (7, 1)
    assert found.decision_bytes > 0
    assert sample(now + timedelta(minutes=5)) is None
    assert sample(now + SAMPLE_EVERY) is not None
    assert StorageSample.objects.count() == 2


def test_a_sample_of_a_clock_that_was_set_back_since_keeps_no_later_one_from_being_taken() -> None:
    now = datetime.now(UTC)
    sample(now + timedelta(days=300))
    sample(now)
    assert list(StorageSample.objects.values_list("at", flat=True)) == [now]
    assert sample(now - timedelta(minutes=5)) is None, "two workers' clocks differ a little"


def test_an_operator_makes_a_hold_and_only_an_approver_lifts_it(
    operator: Client, approver: Client, auditor: Client
) -> None:
    operator.post(MAKE, CASE)
    hold = LegalHold.objects.get()
    assert (hold.pod_name, hold.made_by, hold.reason) == ("web-1", "operator", "case 7")
    assert (hold.from_at, hold.until_at) == (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 3, tzinfo=UTC))
    assert "Pod shop/web-1, from 2026-11-01 00:00 UTC, until 2026-11-03 00:00 UTC" in text(auditor, HOLDS)
    lift = f"{HOLDS}{hold.pk}/lift/"
    assert [client.post(lift, {"reason": "over"}).status_code for client in (operator, auditor)] == [403, 403]
    approver.post(lift, {"reason": ""})
    assert LegalHold.objects.get().lifted_at is None
    approver.post(lift, {"reason": "over"})
    assert (LegalHold.objects.get().lifted_by, LegalHold.objects.get().lift_reason) == ("approver", "over")
    assert "approver" in text(auditor, HOLDS)
    made, lifted = AuditEvent.objects.filter(thing_kind="LegalHold").order_by("id")
    assert (made.kind, made.by, made.reason, made.before) == ("hold.make", "operator", "case 7", "")
    assert (lifted.kind, lifted.by, lifted.reason) == ("hold.lift", "approver", "over")
    assert (lifted.before, lifted.after) == (made.after, "")


def test_an_auditor_sees_holds_and_has_no_button(auditor: Client) -> None:
    LegalHold.objects.create(reason="x", made_by="a", made_at=datetime.now(UTC), pod_namespace="d")
    assert 'method="post"' not in text(auditor, HOLDS).split('id="main"')[-1]
    assert auditor.post(MAKE, CASE).status_code == 403
    assert LegalHold.objects.count() == 1


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"reason": "x"}, "Give a namespace, a Pod, or a time"),
        ({"reason": "x", "pod_name": "web-1"}, "needs its namespace"),
        ({"reason": "x", "from_at": "2026-11-03", "until_at": "2026-11-01"}, "ends before it begins"),
        ({"reason": "x", "pod_namespace": "shop", "until_at": "9999-12-31"}, "Leave it empty for no end."),
        ({"pod_namespace": "d"}, "This field is required"),
        ({"reason": "x", "pod_namespace": "Shop"}, "Shop can't be a namespace: write a-z"),
        ({"reason": "x", "pod_namespace": "n" * 64}, "can't be a namespace"),
        ({"reason": "x", "pod_namespace": "shop", "pod_name": "web_1"}, "web_1 can't be a Pod's name: write a-z"),
        ({"reason": "x", "pod_namespace": "shop", "pod_name": "shop/web-1"}, "can't be a Pod's name"),
    ],
)
def test_what_can_be_no_hold_is_refused_at_the_form(operator: Client, form: dict[str, Any], said: str) -> None:
    answer = operator.post(MAKE, form)
    assert said in answer.content.decode().replace("&#x27;", "'")
    assert not LegalHold.objects.exists()


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("over\u202e", "U+202E"),
        ("  ", "Give a reason for lifting the hold."),
        ("x" * 2001, "at most 2000 characters"),
    ],
)
def test_a_refused_reason_for_lifting_is_still_in_its_field(approver: Client, reason: str, said: str) -> None:
    row = LegalHold.objects.create(reason="x", made_by="a", made_at=datetime.now(UTC), pod_namespace="d")
    page = approver.post(f"{HOLDS}{row.pk}/lift/", {"reason": reason}).content.decode()
    assert said in page
    assert f'name="reason" value="{reason}"' in page
    assert LegalHold.objects.get().lifted_at is None


def test_lifting_a_hold_that_somebody_lifted_meanwhile_says_so(approver: Client) -> None:
    now = datetime.now(UTC)
    row = LegalHold.objects.create(reason="x", made_by="a", made_at=now, lifted_at=now, lifted_by="b")
    page = approver.post(f"{HOLDS}{row.pk}/lift/", {"reason": "over"}).content.decode()
    assert "was lifted already" in page


def test_a_decision_without_its_details_still_has_its_page(auditor: Client) -> None:
    row = make_decision()
    Decision.objects.update(body=b"")
    assert "may use" in text(auditor, f"/admin/scheduler/decision/{row.pk}/change/")
    assert auditor.get(f"/api/v1/decisions/{row.pk}").json()["body"] == {}


def test_pages_and_rest_read_decisions_from_where_the_setting_says(
    auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = make_decision()
    monkeypatch.setattr(settings, "HISTORY_DATABASE", "replica")
    for path in (
        "/admin/", "/admin/scheduler/decision/", f"/admin/scheduler/decision/{row.pk}/change/", "/api/v1/decisions",
        f"/api/v1/decisions/{row.pk}",
    ):  # fmt: skip
        with pytest.raises(ConnectionDoesNotExist):
            auditor.get(path)


def test_what_holds_is_shown_however_many_newer_holds_were_lifted(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.admin.storage._MOST_LIFTED", 2)
    now = datetime.now(UTC)
    for days, name in enumerate(("lifted-0", "lifted-1", "lifted-2", "holding")):
        lifted_at = None if name == "holding" else now
        made_at = now - timedelta(days=days)
        LegalHold.objects.create(reason=name, pod_namespace="a", made_by="ops", made_at=made_at, lifted_at=lifted_at)
    shown = text(operator, HOLDS)
    assert [name in shown for name in ("holding", "lifted-0", "lifted-1", "lifted-2")] == [True, True, True, False]
    assert "Older lifted holds aren't shown" in shown
    LegalHold.objects.exclude(lifted_at=None).first().delete()  # type: ignore[union-attr] # there are three
    assert "Older lifted holds" not in text(operator, HOLDS)
