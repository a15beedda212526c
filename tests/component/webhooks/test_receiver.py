"""Deliveries to a receiver that runs: it fails, hangs, redirects to a private address, and comes back."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from policies.models import AuditEvent
from scheduler.models import Delivery, Notice, Webhook
from scheduler.webhooks import queue
from scheduler.webhooks.bodies import write_body
from scheduler.webhooks.keeping import (
    Wanted,
    WebhookError,
    change_webhook,
    delete_webhook,
    digest_of_webhook,
    make_webhook,
    renew_secret,
    send_again,
    send_test,
)
from scheduler.webhooks.pace import MOST_ATTEMPTS
from scheduler.webhooks.sealing import seal
from scheduler.webhooks.sending import Answer
from tests.certificates import Authority, write
from tests.component.policies.test_changes_at_once import somebody_waits, until
from tests.stack import BASE_DIR, eventually

pytestmark = pytest.mark.django_db
SECRET = "whsec_known"
State = Delivery.State


class Receiver:
    """The receiver's process, and what it was sent."""

    def __init__(self, folder: Path, *certificate: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "tests.receiver", folder, SECRET, *certificate]
        self.process = subprocess.Popen(command, cwd=BASE_DIR)
        eventually((folder / "ports").exists, what="the receiver listens")
        self.port, self.forbidden_port = (folder / "ports").read_text().split()

    def does(self, mode: str) -> None:
        (self.folder / "mode").write_text(mode)

    def taken(self, log: str = "taken") -> list[dict[str, Any]]:
        path = self.folder / log
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    running = Receiver(tmp_path)
    yield running
    running.process.kill()
    running.process.wait()


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = msgspec.structs.replace(settings.BERTH, webhook_allow=("127.0.0.1/32",), webhook_seconds=20.0)
    monkeypatch.setattr(settings, "BERTH", environment)


def hook(url: str, name: str = "ci", form: str = "json") -> Webhook:
    row, _ = make_webhook(Wanted(name, url, (), form), by="root", now=timezone.now())
    Webhook.objects.filter(pk=row.pk).update(sealed_secret=seal(SECRET))
    row.refresh_from_db()
    return row


def waiting(row: Webhook, *numbers: int) -> None:
    """Let Notices wait for a webhook."""
    now = timezone.now()
    for number in numbers:
        notice = Notice.objects.create(number=number, at=now, kind="published", sentence="s")
        delivery = Delivery(webhook=row, notice=notice, kind="published", made_at=now, next_at=now)
        write_body(delivery, row)
        delivery.save()


class Clock:
    """The time for a sender: what waits for an hour is due at once."""

    def __init__(self) -> None:
        self.now = timezone.now() + timedelta(minutes=1)

    def __call__(self) -> datetime:
        return self.now

    def goes_on(self) -> None:
        self.now += timedelta(hours=2)


def states() -> list[str]:
    return list(Delivery.objects.order_by("pk").values_list("state", flat=True))


def test_each_notice_arrives_signed_and_in_order_though_the_receiver_fails_hangs_and_redirects(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, clock = hook(f"http://127.0.0.1:{receiver.port}/in"), Clock()
    waiting(row, 1, 2, 3)
    receiver.does("fail")
    assert queue.deliver(now=clock) == 1, "it has a rest after it failed"
    first = Delivery.objects.order_by("pk")[0]
    assert (first.state, first.attempts, first.status, first.said) == (State.WAITING, 1, 503, "I am ill")
    assert first.next_at > clock.now

    clock.goes_on()
    receiver.does("hang")
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, webhook_seconds=0.3))
    assert queue.deliver(now=clock) == 1
    assert Delivery.objects.order_by("pk")[0].said == "no answer within 0.3 s"

    clock.goes_on()
    receiver.does("redirect")
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, webhook_seconds=20.0))
    assert queue.deliver(now=clock) == 1
    failed = Delivery.objects.order_by("pk")[0]
    assert failed.status == 302
    assert "127.0.0.2" in failed.said
    assert "isn't followed" in failed.said
    row.refresh_from_db()
    assert row.failures == 3

    clock.goes_on()
    receiver.does("ok")
    assert queue.deliver(now=clock) == 3
    assert states() == [State.DELIVERED] * 3
    row.refresh_from_db()
    assert (row.failures, row.held_until, row.said) == (0, None, "")
    arrived = [each["body"]["number"] for each in receiver.taken() if each["mode"] == "ok"]
    assert arrived == [1, 2, 3]
    assert all(each["genuine"] for each in receiver.taken())
    assert receiver.taken("forbidden") == [], "nothing went where the redirect led"


@pytest.mark.parametrize(
    ("mode", "answered", "says"),
    [
        ("quote", "it answered 404: ", "Cannot POST /hooks/…?sig=…"),
        ("mumble", "", "its answer isn't HTTP: illegal status line"),
        ("move", "it answered 301: ", "it redirects, which isn't followed: enter the final URL. It leads to https://127.0.0.1/hooks/…?sig=…/"),
        ("shorten", "it answered 404: ", "No hook /hooks/…... here"),
        ("leave", "", "can't be reached: the connection was closed without an answer"),
    ],
)  # fmt: skip
def test_what_a_receiver_repeats_of_the_url_is_kept_and_logged_nowhere(
    mode: str, answered: str, says: str, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """Of Slack's and Teams' URLs the path is the secret."""
    row = hook(f"http://127.0.0.1:{receiver.port}/hooks/T0B0XXXXXX?sig=a%2Bsecret")
    waiting(row, 1)
    receiver.does(mode)
    queue.deliver(now=Clock())
    row.refresh_from_db()
    sent = Delivery.objects.get()
    assert (sent.said, row.said) == (says, f"{answered}{says}")
    assert "T0B0" not in caplog.text
    assert "secret" not in caplog.text


def test_of_a_receiver_that_refuses_without_a_word_the_status_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    row = hook("http://127.0.0.1/in")
    waiting(row, 1)
    monkeypatch.setattr(queue, "post", lambda *_, **__: Answer(410, ""))
    queue.deliver(now=Clock())
    row.refresh_from_db()
    assert row.said == "it answered 410"
    assert "attempt 1: it answered 410" in caplog.text


def test_of_a_long_answer_the_beginning_is_kept_without_what_no_database_stores(receiver: Receiver) -> None:
    waiting(hook(f"http://127.0.0.1:{receiver.port}/in"), 1)
    receiver.does("babble")
    queue.deliver(now=Clock())
    assert (states(), Delivery.objects.get().said) == ([State.DELIVERED], "ab" + "x" * 498)


def test_one_that_is_off_is_sent_nothing() -> None:
    waiting(hook("http://127.0.0.1:9/in"), 1)
    Webhook.objects.update(is_active=False)
    assert queue.deliver(now=Clock()) == 0
    assert states() == [State.WAITING]


def test_an_address_that_is_not_named_is_never_connected_to(receiver: Receiver) -> None:
    row, clock = hook(f"http://127.0.0.2:{receiver.forbidden_port}/in"), Clock()
    waiting(row, 1)
    assert queue.deliver(now=clock) == 1
    refused = Delivery.objects.get()
    assert refused.status is None
    assert "127.0.0.2 is loopback" in refused.said
    assert "BERTH_WEBHOOK_ALLOW" in refused.said
    assert receiver.taken("forbidden") == []


def test_what_a_killed_sender_had_taken_is_sent_by_another_once_its_lease_ends(receiver: Receiver) -> None:
    row, clock = hook(f"http://127.0.0.1:{receiver.port}/in"), Clock()
    waiting(row, 1, 2)
    assert len(queue._take(clock.now)) == 1  # and it is killed
    assert queue.deliver(now=clock) == 0, "it may still be at it"
    clock.goes_on()
    assert queue.deliver(now=clock) == 2
    assert [each["body"]["number"] for each in receiver.taken()] == [1, 2]


def test_a_sender_that_stood_still_notes_nothing_about_what_another_has_sent_meanwhile(receiver: Receiver) -> None:
    row, clock = hook(f"http://127.0.0.1:{receiver.port}/in"), Clock()
    waiting(row, 1)
    (stopped,) = queue._take(clock.now)
    clock.goes_on()
    assert queue.deliver(now=clock) == 1
    queue._note(stopped, Answer(None, "no answer within 20 s"), clock.now)
    assert states() == [State.DELIVERED]
    row.refresh_from_db()
    assert (row.failures, row.held_until, row.said) == (0, None, "")


def test_a_failure_at_the_former_url_holds_up_nothing_at_the_new_one(receiver: Receiver) -> None:
    row, clock = hook("http://127.0.0.1:9/in"), Clock()
    waiting(row, 1, 2)
    Webhook.objects.update(failures=9)
    (taken,) = queue._take(clock.now)
    new = Wanted("ci", f"http://127.0.0.1:{receiver.port}/in", ())
    change_webhook(Webhook.objects.get(), new, by="root", expected_digest="")
    queue._note(taken, Answer(None, "no answer within 20 s"), clock.now)
    row.refresh_from_db()
    assert (row.failures, row.held_until, row.said) == (0, None, "")
    assert queue.deliver(now=clock) == 1
    assert [each["body"]["number"] for each in receiver.taken()] == [2], "the first waits as long as any that failed"


def test_a_failure_before_a_test_that_was_sent_by_hand_and_arrived_holds_up_nothing(receiver: Receiver) -> None:
    row, clock = hook(f"http://127.0.0.1:{receiver.port}/in"), Clock()
    waiting(row, 1)
    Webhook.objects.update(failures=9)
    (taken,) = queue._take(clock.now)
    send_test(row, by="root", now=clock.now)
    assert queue.deliver(now=clock) == 1
    queue._note(taken, Answer(None, "no answer within 20 s"), clock.now)
    row.refresh_from_db()
    assert (row.failures, row.held_until) == (0, None)


def test_nothing_waits_for_the_day_by_which_the_clock_was_set_back(receiver: Receiver) -> None:
    row, clock = hook(f"http://127.0.0.1:{receiver.port}/in"), Clock()
    waiting(row, 1, 2)
    receiver.does("fail")
    clock.now += timedelta(days=1)
    assert queue.deliver(now=clock) == 1
    clock.now -= timedelta(days=1)
    receiver.does("ok")
    assert queue.deliver(now=clock) == 2
    assert [each["body"]["number"] for each in receiver.taken()] == [1, 1, 2]


def test_a_receiver_that_asks_for_time_gets_nothing_until_then(receiver: Receiver) -> None:
    row, clock = hook(f"http://127.0.0.1:{receiver.port}/in"), Clock()
    waiting(row, 1)
    receiver.does("busy")
    assert queue.deliver(now=clock) == 1
    receiver.does("ok")
    clock.now += timedelta(seconds=119)
    assert queue.deliver(now=clock) == 0
    clock.now += timedelta(seconds=1)
    assert queue.deliver(now=clock) == 1


def test_one_that_fails_holds_up_no_other(receiver: Receiver) -> None:
    bad, good = hook("http://127.0.0.1:9/in", "bad"), hook(f"http://127.0.0.1:{receiver.port}/in", "good")
    waiting(bad, 1, 2)
    waiting(good, 3, 4)
    queue.deliver(now=Clock())
    assert [each["body"]["number"] for each in receiver.taken()] == [3, 4]
    assert states() == [State.WAITING, State.WAITING, State.DELIVERED, State.DELIVERED]


def test_it_gives_up_after_its_attempts_and_says_so(receiver: Receiver) -> None:
    row, clock = hook(f"http://127.0.0.1:{receiver.port}/in"), Clock()
    waiting(row, 1)
    receiver.does("fail")
    Delivery.objects.update(attempts=MOST_ATTEMPTS - 1)
    queue.deliver(now=clock)
    assert states() == [State.FAILED]
    clock.goes_on()
    assert queue.deliver(now=clock) == 0


def test_a_test_and_what_is_sent_again_arrive_as_deliveries_of_their_own(receiver: Receiver) -> None:
    row, clock = hook(f"http://127.0.0.1:{receiver.port}/in", form="slack"), Clock()
    waiting(row, 7)
    queue.deliver(now=clock)
    again = send_again(Delivery.objects.get(), by="root", now=clock.now)
    made = send_test(row, by="root", now=clock.now)
    queue.deliver(now=clock)
    first, second, third = receiver.taken()
    assert first["body"] == second["body"]
    assert first["body"]["text"] == "s"
    assert second["delivery"] == str(again.pk)
    assert third["delivery"] == str(made.pk)
    assert "root tests the webhook ci" in third["body"]["text"]


def test_what_waits_or_is_sent_again_is_in_the_format_that_the_webhook_has_by_then(receiver: Receiver) -> None:
    row, clock = hook(f"http://127.0.0.1:{receiver.port}/in"), Clock()
    waiting(row, 7)
    queue.deliver(now=clock)
    waiting(row, 8)
    send_test(row, by="ann", now=clock.now)
    change_webhook(Webhook.objects.get(), Wanted("ci", "", (), "slack"), by="root", expected_digest="")
    send_again(Delivery.objects.get(notice=7), by="root", now=clock.now)
    queue.deliver(now=clock)
    before, *after = [each["body"] for each in receiver.taken()]
    assert before["number"] == 7
    assert [each["text"] for each in after] == ["s", "ann tests the webhook ci", "s"]
    footers = [each["blocks"][-1]["elements"][0]["text"].partition(":")[0] for each in after]
    assert footers == ["Berth, Notice 8", "Berth, Notice 0", "Berth, Notice 7"]
    assert json.loads(Delivery.objects.order_by("pk")[0].body) == before, "the log has what was sent"


@pytest.mark.parametrize(("does", "state"), [("ok", State.DELIVERED), ("fail", State.FAILED)])
def test_the_log_has_what_arrived_though_the_webhook_got_another_format_while_it_was_sent(
    receiver: Receiver, does: str, state: str
) -> None:
    row, clock = hook(f"http://127.0.0.1:{receiver.port}/in"), Clock()
    waiting(row, 1)
    receiver.does(does)
    Delivery.objects.update(attempts=MOST_ATTEMPTS - 1)
    (taken,) = queue._take(clock.now)
    change_webhook(Webhook.objects.get(), Wanted("ci", "", (), "slack"), by="root", expected_digest="")
    queue._note(taken, queue._send(taken), clock.now)
    (arrived,) = receiver.taken()
    delivery = Delivery.objects.get()
    assert (delivery.state, json.loads(delivery.body)) == (state, arrived["body"])


def test_a_failed_attempt_in_the_former_format_is_repeated_in_the_new_one() -> None:
    row, clock = hook("http://127.0.0.1:9/in"), Clock()
    waiting(row, 1)
    (taken,) = queue._take(clock.now)
    change_webhook(Webhook.objects.get(), Wanted("ci", "", (), "slack"), by="root", expected_digest="")
    queue._note(taken, queue._send(taken), clock.now)
    assert json.loads(Delivery.objects.get().body)["text"] == "s"


def test_what_is_sent_by_hand_ends_the_rest_of_a_webhook_that_failed(receiver: Receiver) -> None:
    row, clock = hook(f"http://127.0.0.1:{receiver.port}/in"), Clock()
    for number in (1, 2):
        Webhook.objects.update(failures=3, held_until=clock.now + timedelta(minutes=5))
        if number == 1:
            send_test(row, by="root", now=clock.now)
        else:
            send_again(Delivery.objects.get(), by="root", now=clock.now)
        assert queue.deliver(now=clock) == 1
        assert states() == [State.DELIVERED] * number


def test_what_is_sent_by_hand_waits_for_whoever_sends_to_the_webhook_now() -> None:
    row, clock = hook("http://127.0.0.1:9/in"), Clock()
    waiting(row, 1)
    assert len(queue._take(clock.now)) == 1
    send_test(row, by="root", now=clock.now)
    assert queue.deliver(now=clock) == 0


def test_a_new_secret_signs_from_then_on(receiver: Receiver) -> None:
    row, clock = hook(f"http://127.0.0.1:{receiver.port}/in"), Clock()
    waiting(row, 1)
    assert renew_secret(row, by="root").startswith("whsec_")
    queue.deliver(now=clock)
    assert [each["genuine"] for each in receiver.taken()] == [False], "the receiver doesn't know it yet"


def test_a_new_secret_keeps_what_a_colleague_changed_meanwhile() -> None:
    read = hook("http://127.0.0.1:9/in")
    change_webhook(Webhook.objects.get(), Wanted("ci", "", (), is_active=False), by="ann", expected_digest="")
    renew_secret(read, by="root")
    assert not Webhook.objects.get().is_active


def remove(row: Webhook, *, by: str) -> None:
    delete_webhook(row, by=by, expected_digest=digest_of_webhook(row))


def test_a_new_secret_does_not_bring_back_a_webhook_that_a_colleague_removed_meanwhile() -> None:
    read = hook("http://127.0.0.1:9/in")
    remove(Webhook.objects.get(), by="ann")
    with pytest.raises(WebhookError, match="Webhook ci was removed meanwhile"):
        renew_secret(read, by="root")
    assert not Webhook.objects.exists()


def test_what_is_sent_by_hand_or_removed_says_that_a_colleague_removed_the_webhook_meanwhile() -> None:
    read, now = hook("http://127.0.0.1:9/in"), timezone.now()
    delivery = send_test(read, by="root", now=now)
    remove(Webhook.objects.get(), by="ann")
    for act in (
        lambda: send_test(read, by="root", now=now),
        lambda: send_again(delivery, by="root", now=now),
        lambda: remove(read, by="root"),
    ):
        with pytest.raises(WebhookError, match="Webhook ci was removed meanwhile"):
            act()
    assert AuditEvent.objects.filter(kind="webhook.delete").count() == 1


def test_what_a_colleague_has_pointed_elsewhere_is_not_removed_by_who_has_not_seen_it() -> None:
    read = hook("http://127.0.0.1:9/in")
    change_webhook(Webhook.objects.get(), Wanted("ci", "http://127.0.0.1:9/new", ()), by="ann", expected_digest="")
    with pytest.raises(WebhookError, match="Somebody changed ci since you opened this page"):
        remove(read, by="root")
    remove(Webhook.objects.get(), by="root")
    assert not Webhook.objects.exists()


def test_under_another_key_nothing_is_sent_and_the_log_says_why(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = hook(f"http://127.0.0.1:{receiver.port}/in")
    waiting(row, 1)
    monkeypatch.setattr(settings, "SECRET_KEY", "another" * 10)
    queue.deliver(now=Clock())
    assert "BERTH_SECRET_KEY" in Delivery.objects.get().said
    assert receiver.taken() == []


@pytest.mark.django_db(transaction=True)
def test_several_senders_at_once_send_each_thing_in_order(receiver: Receiver) -> None:
    row, clock = hook(f"http://127.0.0.1:{receiver.port}/in"), Clock()
    waiting(row, *range(1, 13))

    def deliver() -> None:
        try:
            queue.deliver(now=clock)
        finally:
            connection.close()

    senders = [threading.Thread(target=deliver) for _ in range(3)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    queue.deliver(now=clock)
    assert [each["body"]["number"] for each in receiver.taken()] == list(range(1, 13))


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer: nothing waits for another's row")
@pytest.mark.django_db(transaction=True)
def test_an_outcome_that_is_noted_while_another_holds_the_webhook_waits_for_it_without_a_deadlock() -> None:
    row, clock = hook("http://127.0.0.1:9/in"), Clock()
    waiting(row, 1)
    (taken,) = queue._take(clock.now)

    def note() -> None:
        try:
            queue._note(taken, Answer(200, ""), clock.now)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as others:
        with transaction.atomic():
            Webhook.objects.select_for_update().get()
            noting = others.submit(note)
            until(somebody_waits)
            Delivery.objects.filter(webhook=row).update(asked_by="ann")
        noting.result()
    assert (states(), Delivery.objects.get().asked_by) == ([State.DELIVERED], "ann")


# What is wrong with a receiver's certificate: how it is made, and what the log says.
WRONG = {
    "another name": (
        {"dns": ("other.example",), "client": True, "says_purpose": False},
        "is not valid for '127.0.0.1'",
    ),
    "it has ended": ({"days": -1}, "certificate has expired"),
    "of clients": ({"client": True}, "unsuitable certificate purpose"),
}


def over_tls(folder: Path, by: Authority, **how: Any) -> Receiver:
    certificate, key = by.sign("receiver", **how)
    folder.mkdir()
    return Receiver(folder, write(folder / "receiver.pem", certificate + key))


def trust(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, webhook_ca_file=str(file)))


def test_a_receiver_of_ones_own_authority_gets_what_it_should_once_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, clock = Authority("ours"), Clock()
    receiver = over_tls(tmp_path / "receiver", ours)
    try:
        waiting(hook(f"https://127.0.0.1:{receiver.port}/in"), 1)
        queue.deliver(now=clock)
        assert "its certificate isn't valid: unable to get local issuer certificate" in Delivery.objects.get().said
        trust(monkeypatch, tmp_path / "none.pem")
        clock.goes_on()
        queue.deliver(now=clock)
        assert "BERTH_WEBHOOK_CA_FILE can't be read: No such file" in Delivery.objects.get().said
        assert receiver.taken() == [], "what can't be trusted gets nothing"
        trust(monkeypatch, write(tmp_path / "ca.pem", ours.pem))
        clock.goes_on()
        queue.deliver(now=clock)
        assert states() == [State.DELIVERED]
        assert [each["genuine"] for each in receiver.taken()] == [True]
    finally:
        receiver.process.kill()
        receiver.process.wait()


@pytest.mark.parametrize("wrong", WRONG)
def test_a_receiver_with_a_wrong_certificate_gets_nothing_and_the_log_says_why(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how, said = WRONG[wrong]
    ours = Authority("ours")
    trust(monkeypatch, write(tmp_path / "ca.pem", ours.pem))
    receiver = over_tls(tmp_path / "receiver", ours, **how)
    try:
        waiting(hook(f"https://127.0.0.1:{receiver.port}/in"), 1)
        queue.deliver(now=Clock())
        refused = Delivery.objects.get()
        assert (refused.state, refused.status) == (State.WAITING, None)
        assert said in refused.said
        assert receiver.taken() == []
    finally:
        receiver.process.kill()
        receiver.process.wait()
