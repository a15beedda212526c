"""Notices of what people do and of what begins to hold: numbered without a gap, in the inboxes of those whom they concern."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from policies import publishing
from policies.models import Change
from policies.origin import Door, Origin, coming_from
from scheduler.ledger.events import append_events
from scheduler.models import DecisionGap, Delivery, InboxEntry, LedgerLeaf, Notice, ShadowCount, Webhook
from scheduler.notices import collect, conditions
from scheduler.notices.pruning import prune_notices
from scheduler.webhooks.keeping import Wanted, change_webhook, make_webhook
from tests.builders import make_pause, make_priority_class, make_rule_set
from tests.component.pages import publish_all
from tests.component.policies.people import person
from tests.component.policies.test_changes import A, B, C, do, opened
from tests.component.policies.test_changes_at_once import somebody_waits, until
from tests.component.policies.test_priority_classes import seen

pytestmark = pytest.mark.django_db


@pytest.fixture
def people(db: None) -> dict[str, User]:
    made = {"alice": person("alice", "Operator"), "carol": person("carol", "Approver"), "dan": person("dan", "Auditor")}
    told()  # from here on
    return made


def told() -> list[Notice]:
    """Make the Notices of what happened since; return them in order."""
    now = timezone.now()
    last = Notice.objects.first()
    append_events(now)
    collect.note_acts(now)
    collect.note_conditions(now)
    return list(Notice.objects.filter(number__gt=last.number if last else 0).order_by("number"))


def whose(notice: Notice) -> set[str]:
    return set(notice.entries.values_list("user__username", flat=True))


def test_a_review_from_asking_to_publishing_is_told_to_those_whom_it_concerns(people: dict[str, User]) -> None:
    alice, carol = people["alice"], people["carol"]
    change = opened(make_rule_set("web", **A), by=alice, title="Cap web")
    do(change, publishing.submit_change, alice)
    publishing.ask_for_review(change=change, by=alice, whom="carol")
    do(change, publishing.approve_change, carol)
    do(change, publishing.publish_change, carol)
    found = told()
    assert [each.kind for each in found] == ["review-asked", "review-asked", "approved", "published"]
    assert [each.number for each in found] == list(range(found[0].number, found[0].number + 4)), "no gap"
    assert [whose(each) for each in found] == [{"carol"}, {"carol"}, {"alice"}, {"alice"}]
    assert found[0].sentence == f"alice sent Change {change.pk} (Cap web) to review"
    assert told() == [], "none comes twice"


def test_who_acts_on_a_change_has_read_what_was_told_of_it_before(people: dict[str, User]) -> None:
    alice, carol = people["alice"], people["carol"]
    change, other = (opened(make_rule_set(name, **A), by=alice) for name in ("web", "batch"))
    do(change, publishing.submit_change, alice)
    do(other, publishing.submit_change, alice)
    told()
    assert unread_by(carol) == [("review-asked", str(change.pk)), ("review-asked", str(other.pk))]
    do(change, publishing.reject_change, carol, text="too wide")
    told()
    assert unread_by(carol) == [("review-asked", str(other.pk))], "she did what that one asked for"
    assert unread_by(alice) == [("rejected", str(change.pk))]
    do(change, publishing.reopen_change, alice)
    do(change, publishing.submit_change, alice)
    told()
    assert unread_by(alice) == []
    assert unread_by(carol) == [("review-asked", str(other.pk)), ("review-asked", str(change.pk))]


def test_what_a_schedule_does_in_somebodys_name_reads_nothing_for_them(people: dict[str, User]) -> None:
    alice, carol = people["alice"], people["carol"]
    change = opened(make_rule_set("web", **A), by=alice)
    do(change, publishing.submit_change, alice)
    do(change, publishing.approve_change, carol)
    with coming_from(Origin(door=Door.BEAT)):
        do(change, publishing.publish_change, alice)
    told()
    assert unread_by(alice) == [("approved", str(change.pk))]


def unread_by(user: User) -> list[tuple[str, str]]:
    """Return the kind and the Change of what somebody hasn't read, in order."""
    rows = InboxEntry.objects.filter(user=user, read_at=None).order_by("notice_id")
    return list(rows.values_list("notice__kind", "notice__thing_name"))


def test_a_rejection_is_told_to_the_author_with_its_reason(people: dict[str, User]) -> None:
    change = opened(make_rule_set("web", **A), by=people["alice"])
    do(change, publishing.submit_change, people["alice"])
    do(change, publishing.reject_change, people["carol"], text="too wide")
    notice = told()[-1]
    assert (notice.kind, notice.text, whose(notice)) == ("rejected", "too wide", {"alice"})


def test_a_roll_back_and_a_pause_are_told_as_such_to_whoever_may_publish(people: dict[str, User]) -> None:
    publish_all(make_rule_set("web", **A))
    publish_all(make_rule_set("web", **B))
    told()
    publishing.roll_back(to_number=1, by=people["alice"], reason="back")
    publish_all(make_pause())
    rolled, paused = told()
    assert (rolled.kind, whose(rolled)) == ("rolled-back", {"carol"})
    assert (paused.kind, whose(paused)) == ("paused", {"alice", "carol"})


def test_what_was_done_before_the_first_look_is_nobodys_news(db: None) -> None:
    person("carol", "Approver")
    do(opened(make_rule_set("web", **A)), publishing.submit_change, "ops")
    assert told() == []


def test_what_is_undone_makes_no_notice(people: dict[str, User]) -> None:
    change = opened(make_rule_set("web", **A), by=people["alice"])
    told()
    with pytest.raises(publishing.PublishingError):
        do(change, publishing.approve_change, people["dan"])
    assert told() == []


def test_a_leaf_that_names_no_event_keeps_no_later_act_from_being_told(people: dict[str, User]) -> None:
    alice = people["alice"]
    change = opened(make_rule_set("web", **A), by=alice, title="Cap web")
    append_events(timezone.now())
    newest = LedgerLeaf.objects.order_by("index").last()
    LedgerLeaf.objects.filter(index=newest.index if newest else 0).update(row="no id")
    do(change, publishing.submit_change, alice)
    (notice,) = told()
    assert notice.sentence == f"alice sent Change {change.pk} (Cap web) to review"


def test_drift_is_told_once_for_as_long_as_it_lasts(people: dict[str, User]) -> None:
    publish_all(make_priority_class("batch"))
    told()
    row = seen("batch", 7, state="drifted")
    (notice,) = told()
    assert (notice.kind, notice.thing_name, whose(notice)) == ("drift", "batch", {"alice", "carol"})
    assert told() == []
    type(row).objects.filter(pk=row.pk).update(state="applied")
    assert told() == []
    type(row).objects.filter(pk=row.pk).update(state="drifted")
    assert [each.kind for each in told()] == ["drift"], "it began again"


def test_lost_decisions_are_told_once_however_many_of_them_arrive(people: dict[str, User]) -> None:
    now = timezone.now()
    gap = DecisionGap.objects.create(process="e@a:1:2", first=3, last=9, reason="gone", at=now, may_return=True)
    (notice,) = told()
    assert notice.sentence == "7 Decisions of e@a:1:2 are lost or missing"
    assert whose(notice) == {"alice", "carol", "dan"}
    gap.delete()
    DecisionGap.objects.create(process="e@a:1:2", first=5, last=9, reason="gone", at=now, may_return=True)
    assert told() == []


def test_all_gaps_of_a_dead_process_are_counted_and_make_no_other_one_news_again(
    people: dict[str, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "MOST", 3)
    now = timezone.now()
    more = {"reason": "gone", "may_return": True}
    DecisionGap.objects.create(process="a", first=1, last=1, at=now - timedelta(days=1), **more)
    assert len(told()) == 1
    for first in (10, 20, 30):
        DecisionGap.objects.create(process="b", first=first, last=first + 4, at=now, **more)
    assert [each.sentence for each in told()] == ["15 Decisions of b are lost or missing"]
    DecisionGap.objects.filter(process="b").delete()  # they arrived
    assert told() == []


def test_a_shadow_that_diverges_is_told_once_a_version(people: dict[str, User]) -> None:
    subject: dict[str, Any] = {"assignment": "all", "rule_set": "web", "verb": "filter"}
    ShadowCount.objects.create(revision=1, rule_set_version=1, divergence="agreed", number=5, **subject)
    assert told() == []
    for revision, version in ((1, 1), (2, 1), (3, 2)):
        ShadowCount.objects.create(
            revision=revision, rule_set_version=version, divergence="refused the node", number=1, **subject
        )
    first, second = told()
    assert {first.kind, second.kind} == {"shadow-diverges"}
    assert whose(first) == {"alice"}


def test_what_expires_soon_is_told_to_its_authors(people: dict[str, User]) -> None:
    change = opened(make_rule_set("web", **C), by=people["alice"], title="for a day")
    do(change, publishing.set_expiry, people["alice"], expires_at=timezone.now() + timedelta(days=1))
    do(change, publishing.publish_change, people["alice"])
    published, ahead = told()
    assert (published.kind, whose(published)) == ("published", set())
    assert (ahead.kind, whose(ahead)) == ("expiry-ahead", {"alice", "carol"})
    assert told() == []


def test_what_is_held_back_at_its_time_is_told_to_its_authors_and_who_may_publish(people: dict[str, User]) -> None:
    publish_all(make_rule_set("web", **A))
    change = opened(make_rule_set("web", **B), by=people["alice"], title="for a day")
    later = timezone.now() + timedelta(days=1)
    do(change, publishing.set_expiry, people["alice"], expires_at=later)
    do(change, publishing.publish_change, people["alice"])
    publish_all(make_rule_set("web", **C))
    told()
    publishing.publish_due(now=later)
    (held,) = (each for each in told() if each.kind == "held-back")
    assert whose(held) == {"alice", "carol"}
    assert "published another RuleSet web since" in held.text


def test_a_webhook_gets_the_kinds_that_it_asked_for_unless_it_is_off(people: dict[str, User]) -> None:
    now = timezone.now()
    everything, _ = make_webhook(Wanted("all", "https://a.example", ()), by="root", now=now)
    some, _ = make_webhook(Wanted("some", "https://a.example", ("rejected",)), by="root", now=now)
    off, _ = make_webhook(Wanted("off", "https://a.example", (), is_active=False), by="root", now=now)
    do(opened(make_rule_set("web", **A)), publishing.submit_change, "ops")
    (notice,) = told()
    assert [row.webhook for row in Delivery.objects.all()] == [everything]
    assert msgspec.json.decode(Delivery.objects.get().body)["number"] == notice.number
    assert Webhook.objects.count() == 3
    assert {some.host, off.host} == {"https://a.example"}


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer: nothing waits for another's row")
@pytest.mark.django_db(transaction=True)
def test_a_notice_that_is_made_while_its_webhook_gets_another_format_is_in_that() -> None:
    told()
    row, _ = make_webhook(Wanted("all", "https://a.example", ()), by="root", now=timezone.now())
    DecisionGap.objects.create(process="a", first=1, last=1, at=timezone.now(), reason="gone", may_return=True)

    def tell() -> None:
        try:
            collect.note_conditions(timezone.now())
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as others:
        with transaction.atomic():
            change_webhook(row, Wanted("all", "", (), "slack"), by="root", expected_digest="")
            telling = others.submit(tell)
            until(somebody_waits)
        telling.result()
    assert "blocks" in msgspec.json.decode(Delivery.objects.get().body)


def test_each_of_very_many_webhooks_gets_a_notice(people: dict[str, User]) -> None:
    now = timezone.now()
    Webhook.objects.bulk_create(Webhook(name=f"of team {number:03}", made_at=now) for number in range(601))
    publish_all(make_rule_set("web", **A))
    (notice,) = told()
    assert notice.deliveries.values("webhook").distinct().count() == 601


def test_links_of_messages_are_urls_where_berth_knows_its_own(
    people: dict[str, User], monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    make_webhook(Wanted("all", "https://a.example", ()), by="root", now=timezone.now())
    environment = msgspec.structs.replace(
        settings.BERTH, trusted_origins=("https://*.example.org", "https://berth.example.org")
    )
    monkeypatch.setattr(settings, "BERTH", environment)
    change = opened(make_rule_set("web", **A))
    do(change, publishing.submit_change, "ops")
    (notice,) = told()
    sent = msgspec.json.decode(Delivery.objects.get().body)
    assert sent["link"] == f"https://berth.example.org{notice.link}"
    client.force_login(User.objects.create(username="root", is_superuser=True, is_staff=True))
    assert client.get(notice.link, secure=True).status_code == 200


def test_old_notices_go_with_what_was_sent_of_them(people: dict[str, User]) -> None:
    make_webhook(Wanted("all", "https://a.example", ()), by="root", now=timezone.now())
    do(opened(make_rule_set("web", **A)), publishing.submit_change, "ops")
    assert told()
    later = timezone.now() + timedelta(days=settings.BERTH.notice_days - 1)
    assert prune_notices(later) == 0
    assert prune_notices(later + timedelta(days=2)) == 3
    assert [model.objects.count() for model in (Notice, InboxEntry, Delivery)] == [0, 0, 0]
    do(opened(make_rule_set("db", **A)), publishing.submit_change, "ops")
    assert [each.number for each in told()] == [2], "numbers go on"
    assert Change.objects.count() == 2
