"""Kill -9 of the worker that sends to a webhook: each Notice arrives once or more, and numbers tell the order.

WEBHOOK_KILLS says how often; `make long` does it.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.component.webhooks.test_receiver import SECRET, Receiver
from tests.faults.planes import Plane, Postgres
from tests.stack import eventually

KILLS = int(os.environ.get("WEBHOOK_KILLS", "0"))
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not KILLS, reason="WEBHOOK_KILLS says how often"),
    pytest.mark.timeout(3600),
]
# What goes through between one kill and the next, and more at the end.
BETWEEN = 20

PREPARE = """
from django.utils import timezone
from scheduler.models import Delivery, Notice, Webhook
from scheduler.webhooks.bodies import write_body
from scheduler.webhooks.keeping import Wanted, make_webhook
from scheduler.webhooks.sealing import seal
now = timezone.now()
hook, _ = make_webhook(Wanted("ci", "{url}", (), "json"), by="root", now=now)
Webhook.objects.filter(pk=hook.pk).update(sealed_secret=seal("{secret}"))
for number in range(1, {notices} + 1):
    notice = Notice.objects.create(number=number, at=now, kind="published", sentence="s")
    delivery = Delivery(webhook=hook, notice=notice, kind="published", made_at=now, next_at=now)
    write_body(delivery, hook)
    delivery.save()
"""
# The time of what the dead sender had taken, so that nobody has to wait for it.
LEASE_ENDS = ("UPDATE scheduler_webhook SET held_until = NULL", "UPDATE scheduler_delivery SET next_at = now()")


def test_each_notice_arrives_once_or_more_and_in_order_though_senders_are_killed(
    tmp_path: Path,
    database: Postgres,
) -> None:
    notices = BETWEEN * (KILLS + 2)
    folder = tmp_path / "receiver"
    folder.mkdir()
    receiver = Receiver(folder)
    plane = Plane(tmp_path, database, BERTH_WEBHOOK_ALLOW="127.0.0.1/32", BERTH_WEBHOOK_SECONDS="30")
    try:
        plane.manage("migrate", "--verbosity", "0")
        url = f"http://127.0.0.1:{receiver.port}/in"
        plane.manage("shell", "--no-imports", "-c", PREPARE.format(url=url, secret=SECRET, notices=notices))
        plane.start_worker()
        for kill in range(1, KILLS + 1):
            plane.tick("deliver_notices")
            eventually(lambda kill=kill: len(receiver.taken()) >= kill * BETWEEN, seconds=120, what="some arrive")  # type: ignore[misc]
            receiver.does("hang")
            eventually(lambda: receiver.taken()[-1]["mode"] == "hang", seconds=60, what="one has begun")
            plane.kill_worker()
            receiver.does("ok")
            for statement in LEASE_ENDS:
                plane.sql(statement)
            plane.start_worker()
        plane.tick("deliver_notices")
        waiting = "SELECT count(*) FROM scheduler_delivery WHERE state <> 'delivered'"
        eventually(lambda: plane.sql(waiting) == [(0,)], seconds=120, what="all are delivered")
        arrived = [each["body"]["number"] for each in receiver.taken()]
        assert list(dict.fromkeys(arrived)) == list(range(1, notices + 1)), "each arrives, the first time in its order"
        twice = [number for number, count in Counter(arrived).items() if count > 1]
        assert len(twice) == KILLS, "what a killed sender had begun comes again, and nothing else"
        deliveries = {each["body"]["number"]: each["delivery"] for each in receiver.taken()}
        assert len(set(deliveries.values())) == notices
        assert all(each["genuine"] for each in receiver.taken())
    finally:
        plane.stop()
        receiver.process.kill()
        receiver.process.wait()
