"""Webhooks' pages: for superusers, with the secret shown once and the URL never again; each act has its AuditEvent."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import Client
from django.utils import timezone
from prometheus_client import generate_latest

from policies.audit_words import sentence_of
from policies.models import AuditEvent
from policies.publishing import said_by
from scheduler.models import Delivery, Notice, Webhook
from scheduler.webhooks.metrics import WEBHOOKS
from scheduler.webhooks.sealing import unseal
from tests.component.pages import get, text_of
from tests.conftest import HTTPSClient

pytestmark = pytest.mark.django_db
LIST, ADD = "/admin/scheduler/webhooks/", "/admin/scheduler/webhooks/add/"
URL = "https://hooks.example.org/services/T0/B0/very-secret"
FORM: dict[str, Any] = {"name": "ci", "url": URL, "format": "slack", "kinds": ["drift", "rejected"], "is_active": "on"}


@pytest.fixture
def root(db: None) -> Client:
    client = HTTPSClient()
    client.force_login(User.objects.create(username="root", is_superuser=True, is_staff=True))
    return client


def made(client: Client, **fields: Any) -> tuple[Webhook, str]:
    answer = client.post(ADD, FORM | fields)
    return Webhook.objects.get(name=(FORM | fields)["name"]), answer.context["secret"]


def page(row: Webhook, act: str = "") -> str:
    return f"{LIST}{row.pk}/{act}"


def seen_on(client: Client, row: Webhook) -> dict[str, str]:
    """Return what the webhook's page holds of its present state."""
    return {"seen": get(client, page(row)).context["form"]["seen"].value()}


def test_its_secret_is_shown_once_and_its_url_never_again(root: Client) -> None:
    row, secret = made(root)
    assert secret.startswith("whsec_")
    assert (unseal(row.sealed_url), unseal(row.sealed_secret)) == (URL, secret)
    assert (row.host, row.kinds, row.format, row.made_by) == (
        "https://hooks.example.org",
        ["drift", "rejected"],
        "slack",
        "root",
    )
    kept = [str(value) for value in Webhook.objects.values_list().get()]
    kept += [bytes(event.body).decode() for event in AuditEvent.objects.all()]
    kept += [get(root, url).content.decode() for url in (LIST, page(row))]
    assert not [text for text in kept if "very-secret" in text or secret in text]


def test_a_new_secret_of_one_that_a_colleague_removes_at_the_same_moment_is_refused(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, _ = made(root)

    def removed_meanwhile(_: HttpRequest) -> str:
        row.delete()
        return "root"

    monkeypatch.setattr("scheduler.admin.webhooks.person", removed_meanwhile)
    answer = root.post(page(row, "secret/"), follow=True)
    assert "Webhook ci was removed meanwhile." in text_of(answer)
    assert not Webhook.objects.exists()


def test_an_old_page_does_not_turn_on_what_a_colleague_turned_off(root: Client) -> None:
    row, _ = made(root)
    seen = seen_on(root, row)["seen"]
    assert f'name="seen" value="{seen}"' in get(root, page(row)).content.decode()
    off = {name: value for name, value in FORM.items() if name not in {"url", "is_active"}}
    assert root.post(page(row), off | {"seen": seen}).status_code == 302
    old = off | {"name": "ci renamed", "is_active": "on", "seen": seen}
    said = root.post(page(row), old)
    assert "Somebody changed ci since you opened this page." in text_of(said)
    assert "ci renamed" in said.content.decode()
    row.refresh_from_db()
    assert (row.name, row.is_active) == ("ci", False)


def test_a_form_without_the_state_it_was_made_from_is_refused(root: Client) -> None:
    row, _ = made(root)
    assert "Somebody changed ci since you opened this page." in text_of(root.post(page(row), FORM | {"name": "blind"}))
    assert Webhook.objects.get().name == "ci"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"url": "http:/x"}, "begins with https://"),
        ({"url": "https://u:p@a.example/"}, "Leave user and password out"),
        ({"name": ""}, "This field is required"),
        ({"format": "pigeon"}, "Select a valid choice"),
        ({"kinds": ["weather"]}, "Select a valid choice"),
    ],
)
def test_what_is_no_webhook_is_refused_and_says_why(root: Client, fields: dict[str, Any], says: str) -> None:
    assert says in text_of(root.post(ADD, FORM | fields))
    assert not Webhook.objects.exists()
    assert not AuditEvent.objects.filter(kind__startswith="webhook.").exists()


def test_what_was_changed_of_it_is_said_and_what_is_secret_by_digest_alone(root: Client) -> None:
    row, _ = made(root)
    root.post(page(row), FORM | {"name": "chat", "url": f"{URL}-too"} | seen_on(root, row))
    root.post(page(row, "delete/"), seen_on(root, row))
    events = {event.kind: event for event in AuditEvent.objects.filter(kind__startswith="webhook.")}
    make, change, delete = (events[f"webhook.{kind}"] for kind in ("make", "change", "delete"))
    said = said_by(change)
    assert sentence_of(change, said.more) == "root changed webhook chat: name, which was ci, URL"
    assert make.before == delete.after == ""
    assert make.after == change.before != change.after == delete.before
    assert b"very-secret" not in bytes(change.body)


def test_an_older_page_removes_no_webhook_that_a_colleague_has_changed(root: Client) -> None:
    row, _ = made(root)
    page_of_before = get(root, page(row))
    seen = seen_on(root, row)
    assert f'name="seen" value="{seen["seen"]}"' in page_of_before.content.decode().partition("Remove…")[2]
    root.post(page(row), FORM | {"name": "chat"} | seen)
    for shown in (seen, {}):
        answer = root.post(page(row, "delete/"), shown, follow=True)
        assert answer.redirect_chain == [(page(row), 302)]
        assert "Somebody changed chat since you opened this page" in text_of(answer)
    assert Webhook.objects.count() == 1


def test_one_that_a_colleague_removes_while_it_is_saved_is_said_to_be_gone(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, _ = made(root)
    seen = seen_on(root, row)

    def removed_meanwhile(_: HttpRequest) -> str:
        row.delete()
        return "root"

    monkeypatch.setattr("scheduler.admin.webhooks.person", removed_meanwhile)
    answer = root.post(f"{LIST}{row.pk}/", FORM | {"name": "chat"} | seen, follow=True)
    assert "Webhook ci was removed meanwhile." in text_of(answer)
    assert not Webhook.objects.exists()


def test_one_that_a_colleague_removes_while_its_page_is_made_is_not_found(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, _ = made(root)

    def removed_meanwhile(*_: Any, **__: Any) -> tuple[dict[str, Any], list[str]]:
        Webhook.objects.all().delete()
        return {}, []

    monkeypatch.setattr("scheduler.admin.webhooks.read_parameters", removed_meanwhile)
    assert root.get(page(row)).status_code == 404


def test_a_page_whose_change_was_refused_is_called_by_the_name_that_is_stored(root: Client) -> None:
    row, _ = made(root)
    root.post(f"{LIST}add/", FORM | {"name": "chat"})
    answer = root.post(page(row), FORM | {"name": "chat"} | seen_on(root, row))
    assert "There is a webhook chat already." in text_of(answer)
    assert answer.context["title"] == "Webhook ci"


def test_a_refused_page_removes_nothing_that_it_did_not_show(root: Client) -> None:
    row, _ = made(root)
    seen = seen_on(root, row)
    root.post(page(row), FORM | {"name": "chat"} | seen)
    refused = root.post(page(row), FORM | {"name": "mine"} | seen)
    assert "Somebody changed chat since you opened this page" in text_of(refused)
    root.post(page(row, "delete/"), {"seen": refused.context["seen"]})
    assert Webhook.objects.count() == 1


def test_a_name_is_taken_once(root: Client) -> None:
    made(root)
    assert "There is a webhook ci already" in text_of(root.post(ADD, FORM))
    assert Webhook.objects.count() == 1


def test_more_webhooks_than_a_page_holds_are_on_further_pages(root: Client) -> None:
    now = timezone.now()
    Webhook.objects.bulk_create(Webhook(name=f"of team {number:03}", made_at=now) for number in range(201))
    first, second = (get(root, f"{LIST}?p={number}") for number in (1, 2))
    assert "Page 1 of 2. Next" in text_of(first)
    assert ["of team 200" in text_of(each) for each in (first, second)] == [False, True]


def test_it_is_changed_and_keeps_its_url_where_none_is_typed(root: Client) -> None:
    row, _ = made(root)
    Webhook.objects.update(failures=3, held_until=timezone.now())
    root.post(page(row), {"name": "ops", "url": "", "format": "json", "kinds": []} | seen_on(root, row))
    row.refresh_from_db()
    assert (row.name, row.kinds, row.format, row.is_active) == ("ops", [], "json", False)
    assert (unseal(row.sealed_url), row.held_until, row.failures) == (URL, None, 0)
    root.post(
        page(row), {"name": "ops", "url": "https://b.example", "format": "json", "is_active": "on"} | seen_on(root, row)
    )
    row.refresh_from_db()
    assert (row.host, unseal(row.sealed_url)) == ("https://b.example", "https://b.example")


def test_each_act_is_written_down_by_its_host_alone(root: Client) -> None:
    row, _ = made(root)
    delivery = {"webhook": row, "kind": "drift", "body": "{}", "made_at": timezone.now(), "next_at": timezone.now()}
    sent = Delivery.objects.create(**delivery, state=Delivery.State.FAILED)
    root.post(page(row, "test/"))
    root.post(page(row, "secret/"))
    root.post(f"/admin/scheduler/deliveries/{sent.pk}/again/")
    root.post(page(row), FORM | {"url": ""} | seen_on(root, row))
    root.post(page(row, "delete/"), seen_on(root, row))
    kinds = AuditEvent.objects.filter(thing_kind="Webhook", thing_name="ci", by="root").order_by("pk")
    assert [event.kind.partition(".")[2] for event in kinds] == ["make", "test", "secret", "again", "change", "delete"]
    assert not Webhook.objects.exists()


def test_the_log_says_what_came_of_each_delivery(root: Client) -> None:
    row, _ = made(root)
    now = timezone.now()
    common = {"webhook": row, "kind": "drift", "body": '{"number": 7}', "made_at": now, "next_at": now, "tried_at": now}
    Delivery.objects.create(**common, state="delivered", attempts=1, status=200, said="<i>thanks</i>")
    Delivery.objects.create(**common, state="waiting", attempts=3, said="no answer within 5 s")
    Delivery.objects.create(**common, state="failed", attempts=24, status=503, said="ill")
    Webhook.objects.update(failures=3, said="no answer within 5 s")
    answer = get(root, page(row))
    said = text_of(answer)
    for text in ("✓ delivered", "<i>thanks</i>", "next try at", "✗ given up", "503 ill", "It failed 3 times in a row"):
        assert text in said
    assert "<i>thanks" not in answer.content.decode()
    assert "failed 3 times in a row" in text_of(get(root, LIST))


def test_no_delivery_is_said_to_be_tried_while_its_webhook_waits_after_a_failure(root: Client) -> None:
    row, _ = made(root)
    now = timezone.now()
    common = {"webhook": row, "kind": "drift", "body": "{}", "made_at": now, "state": "waiting", "attempts": 3}
    Delivery.objects.create(**common, next_at=now + timedelta(minutes=1))
    Delivery.objects.create(**common, next_at=now + timedelta(minutes=9))
    Webhook.objects.update(failures=3, held_until=now + timedelta(minutes=5), said="no answer within 5 s")
    said = text_of(get(root, page(row)))
    held_until, *tries = (f"{now + timedelta(minutes=n):%Y-%m-%d %H:%M:%S}" for n in (5, 9, 5))
    assert f"3 times in a row; nothing else is sent before {held_until} UTC: no answer" in said
    assert re.findall(r"next try at (\S+ \S+) UTC", said) == tries
    Webhook.objects.update(held_until=now - timedelta(minutes=5))
    assert "nothing else is sent before" not in text_of(get(root, page(row)))
    Webhook.objects.update(is_active=False)
    assert "next try at" not in text_of(get(root, page(row)))


def test_what_is_sent_by_hand_to_a_webhook_that_is_off_is_said_to_wait(root: Client) -> None:
    row, _ = made(root)
    Webhook.objects.update(is_active=False)
    tested = root.post(page(row, "test/"), follow=True)
    first = Delivery.objects.get()
    again = root.post(f"/admin/scheduler/deliveries/{first.pk}/again/", follow=True)
    for answer, number in ((tested, first.pk), (again, first.pk + 1)):
        assert f"Delivery {number} is queued: {row.name} is off." in text_of(answer)


def test_a_delivery_leads_to_what_its_notice_is_about(root: Client) -> None:
    row, _ = made(root)
    now = timezone.now()
    notice = Notice.objects.create(number=7, at=now, kind="drift", sentence="batch is <b>drifted</b>", link="/admin/x/")
    for about in (notice, Notice.objects.create(number=8, at=now, kind="lost", sentence="s"), None):
        Delivery.objects.create(webhook=row, notice=about, kind="drift", body="{}", made_at=now, next_at=now)
    page_of = get(root, page(row)).content.decode()
    assert '<a class="berth-link" href="/admin/x/" title="batch is &lt;b&gt;drifted&lt;/b&gt;">7</a>' in page_of
    assert '<td data-label="Notice">8</td>' in page_of
    assert '<td data-label="Notice">none</td>' in page_of


def test_roles_see_nothing_of_webhooks(operator: Client, auditor: Client, root: Client) -> None:
    row, _ = made(root)
    for client in (operator, auditor):
        for url in (LIST, ADD, page(row)):
            assert client.get(url).status_code == 403
        assert client.post(page(row, "test/")).status_code == 403
        assert LIST not in client.get("/admin/").content.decode()
    assert LIST in root.get("/admin/").content.decode()


def test_metrics_say_which_fails_and_how_much_waits(root: Client) -> None:
    row, _ = made(root)
    now = timezone.now()
    Webhook.objects.update(failures=2)
    Delivery.objects.create(webhook=row, kind="drift", body="{}", made_at=now, next_at=now)
    said = generate_latest(WEBHOOKS).decode()
    assert f'berth_webhook_failures{{webhook="{row.pk}"}} 2.0' in said
    assert f'berth_webhook_waiting{{webhook="{row.pk}"}} 1.0' in said


def test_one_that_delivered_nothing_is_not_said_to_do_well(root: Client) -> None:
    row, _ = made(root, url="https://127.0.0.1/refused-when-it-is-sent-to")
    assert "nothing was delivered recently" in text_of(get(root, LIST))
    assert "Nothing was delivered to https://127.0.0.1 recently: send a test to see whether it works." in text_of(
        get(root, page(row))
    )
    root.post(page(row, "test/"))
    assert "nothing was delivered recently" in text_of(get(root, LIST))
    row.deliveries.update(state=Delivery.State.DELIVERED)
    assert "✓ working" in text_of(get(root, LIST))
    assert "✓ Sends to https://127.0.0.1" in text_of(get(root, page(row)))


@pytest.mark.parametrize("before", ["abc", "-1", "9" * 30])
def test_what_is_no_place_among_the_deliveries_is_refused(root: Client, before: str) -> None:
    row, _ = made(root)
    root.post(page(row, "test/"))
    answer = root.get(page(row), {"before": before})
    assert (answer.status_code, answer.context["deliveries"]) == (400, [])
    assert f"before : '{before}' is not a whole number" in text_of(answer)
    assert "Nothing has been sent yet" not in text_of(answer)
    assert get(root, f"{page(row)}?before=").context["deliveries"]
