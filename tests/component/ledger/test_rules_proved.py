"""Revisions, their rules and what was done with Changes are proved by AuditEvents: what was done to them past Berth is named."""

import hashlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from policies import publishing
from policies.models import (
    Assignment,
    AuditEvent,
    Change,
    ChangeEdit,
    ChangeEvent,
    Part,
    PriorityClass,
    PriorityClassVersion,
    Revision,
    RevisionPart,
    Rule,
    RuleSet,
    RuleSetVersion,
)
from scheduler.evidence import rules
from scheduler.ledger import credible
from scheduler.ledger.events import append_events
from tests.builders import make_assignment, make_priority_class, make_rule_set
from tests.component.pages import opened, publish_all
from tests.ledgers import Ledgered, faults, plant_event, without_triggers

pytestmark = pytest.mark.django_db


@pytest.fixture
def published(ledgered: Ledgered) -> Ledgered:
    """Three Revisions, of which carol approved the second, and the third gives a reason and takes something away."""
    publish_all(make_rule_set("web"), make_assignment("all", "web"))
    change = opened(make_rule_set("data"), title="for data")
    publishing.submit_change(change=change, by="ops", expected_digest=change.digest)
    carol = User.objects.create_superuser("carol")
    publishing.approve_change(change=change, by=carol, expected_digest=change.digest)
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    publishing.roll_back(to_number=1, by="ops", reason="data waits")
    append_events(timezone.now())
    ledgered.sign()
    return ledgered


def test_what_nobody_touched_is_as_it_was_noted(published: Ledgered) -> None:
    assert faults(published.verify()) == []


def the(name: str) -> Part:
    return Part.objects.get(pk=RevisionPart.objects.get(name=name).part_id)


def rewrite(name: str) -> None:
    """Put other rules in the place of those that were published, with the digest that they have."""
    part = the(name)
    document = part.document.replace("PodFitsResources", "PodFitsHostPorts")
    other = Part.objects.create(digest=hashlib.sha256(document.encode()).hexdigest(), document=document)
    RevisionPart.objects.filter(part=part).update(part=other)


def do(which: str, **fields: object) -> None:
    ChangeEvent.objects.filter(act=which).update(**fields)


CHANGED = "is not what was noted when ops made it: it was changed"
EDITS = "doesn't make what an AuditEvent says that it made: its edits were changed"
DIGEST = "isn't what its digest was taken over: it, what it holds or the Revision before was changed"


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (lambda: Part.objects.filter(pk=the("web").pk).update(document="{}"), "(RuleSet web since Revision 1) isn't what was published: it was changed"),
        (lambda: rewrite("web"), f"Revision 1 {DIGEST}"),
        (lambda: RevisionPart.objects.filter(name="data").update(until=None), f"Revision 3 {DIGEST}"),
        (lambda: RevisionPart.objects.filter(name="data").delete(), f"Revision 2 {DIGEST}"),
        (lambda: RevisionPart.objects.filter(name="web").update(until=1), f"Revision 1 {DIGEST}"),
        (lambda: RevisionPart.objects.filter(name="web").update(until=1), "RuleSet web since Revision 1 ends with Revision 1, so that no Revision holds it: it was changed or planted"),
        (lambda: RevisionPart.objects.create(kind="RuleSet", name="data", part=the("data"), since_id=2, until_id=3), f"Revision 2 {DIGEST}"),
        (lambda: Revision.objects.filter(pk=2).update(created_at=timezone.now() - timedelta(days=1)), f"Revision 2 {DIGEST}"),
        (lambda: Revision.objects.filter(pk=2).update(digest="0" * 64), f"Revision 2 {CHANGED}"),
        (lambda: Revision.objects.filter(pk=2).update(made_by="eve"), f"Revision 2 {CHANGED}"),
        (lambda: Revision.objects.filter(pk=3).update(reason="none"), f"Revision 3 {CHANGED}"),
        (lambda: Revision.objects.create(number=4, digest="0" * 64, made_by="eve", created_at=timezone.now()), "Revision 4 was planted: no AuditEvent says that it was made"),
        (lambda: Change.objects.filter(title="for data").update(title="for web"), "is called 'for web', and no AuditEvent calls it so: it was changed"),
        (lambda: Change.objects.create(title="planted", opened_by="carol", opened_at=timezone.now(), moved_at=timezone.now(), base=3, digest="0" * 64), "was planted: no AuditEvent says that carol opened it"),
        (lambda: Change.objects.filter(title="for data").update(opened_by="dave"), "is said to be opened by dave, and an AuditEvent says by ops: it was changed"),
        (lambda: ChangeEdit.objects.filter(change__title="for data").update(document="{}"), EDITS),
        (lambda: ChangeEdit.objects.filter(change__title="for data").delete(), EDITS),
        (lambda: Change.objects.filter(revision=3).update(state="draft", revision=None), "published by ops was changed or removed: an AuditEvent notes it"),
        (lambda: do("approve", by="dave"), "approved by carol was changed or removed: an AuditEvent notes it"),
        (lambda: do("approve", by="dave"), "approved by dave was changed or planted: no AuditEvent notes it"),
        (lambda: do("approve", act="reject"), "rejected by carol was changed or planted: no AuditEvent notes it"),
        (lambda: do("approve", act="nothing"), "nothing by carol was changed or planted: no AuditEvent notes it"),
        (lambda: do("approve", digest="0" * 64), "approved by carol was changed or removed: an AuditEvent notes it"),
        (lambda: ChangeEvent.objects.filter(act="approve").delete(), "approved by carol was changed or removed: an AuditEvent notes it"),
        (lambda: Change.objects.get(title="for data").events.create(act="approve", by="dave", at=timezone.now(), digest=""), "approved by dave was changed or planted: no AuditEvent notes it"),
    ],
)  # fmt: skip
def test_what_was_done_to_rules_past_berth_is_named(
    published: Ledgered, tamper: Callable[[], object], said: str
) -> None:
    without_triggers()
    tamper()
    assert any(each.startswith("events: ") and each.endswith(said) for each in faults(published.verify()))


def test_a_part_that_was_removed_is_missed(published: Ledgered) -> None:
    with transaction.atomic():
        without_triggers()
        part = the("web")
        Part.objects.filter(pk=part.pk)._raw_delete(connection.alias)
        said = faults(published.verify())
        transaction.set_rollback(True)  # no reference may be left to what was removed
    assert said == [f"events: part {part.pk} (RuleSet web since Revision 1) is missing: it was removed"]


def planted(**fields: object) -> None:
    RevisionPart.objects.create(kind="RuleSet", name="data", part=the("data"), **fields)


def held_until_none() -> None:
    RevisionPart.objects.filter(name="web").update(until=9)


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (lambda: planted(since_id=0), "RuleSet data since Revision 0 begins with"),
        (held_until_none, "RuleSet web since Revision 1 ends with"),
    ],
)
def test_a_part_of_a_revision_that_there_isnt_is_named(
    published: Ledgered, tamper: Callable[[], object], said: str
) -> None:
    """Readers compare numbers alone, so a Revision would hold it, or lose it, though its digest doesn't say so."""
    with transaction.atomic():
        without_triggers()
        tamper()
        found = faults(published.verify())
        transaction.set_rollback(True)  # no reference may be left to what isn't there
    assert found == [f"events: {said} a Revision that isn't there: it was changed or planted"]


def test_a_change_and_a_revision_that_were_removed_are_missed(published: Ledgered) -> None:
    without_triggers()
    number = Change.objects.get(revision=3).pk
    Change.objects.filter(pk=number).delete()
    RevisionPart.objects.filter(name="data").update(until=None)
    Revision.objects.filter(pk=3).delete()
    said = faults(published.verify())
    assert f"events: Change {number} was removed: AuditEvents say what was done with it" in said
    assert "events: Revision 3 was removed: an AuditEvent says that ops made it" in said


def test_what_is_older_than_audit_events_is_compared_with_its_own_digests(ledgered: Ledgered) -> None:
    without_triggers()
    publish_all(make_rule_set("web"))
    AuditEvent.objects.all().delete()
    publish_all(make_rule_set("data"))
    append_events(timezone.now())
    ledgered.sign()
    assert faults(ledgered.verify()) == []
    rewrite("web")
    assert faults(ledgered.verify())[:2] == [f"events: Revision 1 {DIGEST}", f"events: Revision 2 {DIGEST}"]


def test_a_change_that_is_published_while_they_are_read_is_no_fault(
    published: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = opened(make_rule_set("late"))
    stored_acts = rules._stored_acts

    def published_first(*asked: object) -> object:
        publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        return stored_acts(*asked)

    monkeypatch.setattr(rules, "_stored_acts", published_first)
    assert faults(published.verify()) == []
    assert Change.objects.get(pk=change.pk).revision_id == 4


def test_an_approval_that_only_an_unlogged_event_tells_of_is_named(published: Ledgered) -> None:
    change = Change.objects.get(title="for data")
    now = timezone.now()
    plant_event(
        "change.approve", made_at=now - timedelta(days=2), says_at=now + timedelta(days=36_500), by="dave",
        change=change.pk, after=change.digest, more={"title": change.title},
    )  # fmt: skip
    change.events.create(act="approve", by="dave", at=now, digest=change.digest)
    said = faults(published.verify())
    assert (
        f"events: Change {change.pk} {ChangeEvent.Act.APPROVE.label} by dave was changed or planted: no AuditEvent notes it"
        in said
    )


def test_what_was_done_while_no_worker_logged_it_is_named_until_one_does(
    published: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = opened(make_rule_set("more"), title="for more")
    assert faults(published.verify()) == []
    monkeypatch.setattr(credible, "_TIME_TO_LOG", timedelta(0))
    said = faults(published.verify())
    assert any("have no leaf" in each for each in said)
    assert any(f"{change} was planted: no AuditEvent says that ops opened it" in each for each in said)
    append_events(timezone.now())
    published.sign()
    assert faults(published.verify()) == []


def test_an_act_that_is_put_on_another_account_is_named_and_one_of_a_renamed_account_is_not(
    published: Ledgered,
) -> None:
    carol = User.objects.get(username="carol")
    for name in ("caroline", "caro"):
        carol.username = name
        carol.save()
    assert faults(published.verify()) == []
    dave = User.objects.create_superuser("dave")
    ChangeEvent.objects.filter(act="approve").update(by_user=dave)
    (said,) = faults(published.verify())
    assert said.endswith("by carol is said to be an act of the account dave, which was never called so: it was changed")


def test_a_review_that_is_asked_of_another_account_is_named_and_one_of_a_renamed_account_is_not(
    published: Ledgered,
) -> None:
    carol, dave = User.objects.get(username="carol"), User.objects.create_superuser("dave")
    change = opened(make_rule_set("more"), title="for more")
    publishing.submit_change(change=change, by="ops", expected_digest=change.digest)
    publishing.ask_for_review(change=change, by="ops", whom="carol", text="")
    carol.username = "caroline"
    carol.save()
    assert faults(published.verify()) == []
    ChangeEvent.objects.filter(act="ask").update(whom_user=dave)
    (said,) = faults(published.verify())
    assert said.endswith("by ops is said to ask the account dave, which was never called carol: it was changed")


def test_a_revision_that_is_put_on_another_account_is_named_and_one_of_a_renamed_account_is_not(
    published: Ledgered,
) -> None:
    without_triggers()
    ops = User.objects.create_user("operations")
    Revision.objects.filter(number=1).update(made_by_user=ops)
    number, made_by = Revision.objects.values_list("number", "made_by").get(number=1)
    (said,) = faults(published.verify())
    assert said.endswith(
        f"Revision {number} by {made_by} is said to be made by the account operations, which was never called so: it was changed"
    )
    ops.username = made_by
    ops.save()
    ops.username = "operations"
    ops.save()
    assert faults(published.verify()) == []


def version() -> QuerySet[RuleSetVersion]:
    return RuleSetVersion.objects.filter(rule_set__name="web")


def plant_version() -> None:
    row = version().get()
    row.pk, row.number, row.state = None, 2, "superseded"
    row.save(force_insert=True)


CHANGED_ROWS: list[tuple[Callable[[], object], str]] = [
    (lambda: Rule.objects.filter(version__rule_set__name="web").update(builtin="PodFitsHostPorts"), "RuleSet web v1 doesn't have the rules that were published: it was changed"),
    (lambda: Rule.objects.filter(version__rule_set__name="web").delete(), "RuleSet web v1 doesn't have the rules that were published: it was changed"),
    (lambda: version().update(description="none"), "RuleSet web v1 doesn't have the rules that were published: it was changed"),
    (lambda: version().update(digest=the("data").digest), "RuleSet web v1 doesn't have the rules that were published: it was changed"),
    (lambda: version().update(number=7), "RuleSet web v7 was planted or changed: no Revision holds it"),
    (lambda: version().update(number=7), "RuleSet web v1 was removed: Revisions hold it"),
    (plant_version, "RuleSet web v2 was planted or changed: no Revision holds it"),
    (lambda: Assignment.objects.update(order=7), "Assignment all says something else in its column order than Revision 4: it was changed"),
    (lambda: Assignment.objects.update(rule_set=RuleSet.objects.get(name="data")), "Assignment all says something else in its column rule_set than Revision 4: it was changed"),
    (lambda: Assignment.objects.all().delete(), "Assignment all was removed: Revision 4 holds it"),
    (lambda: Assignment.objects.create(name="other", rule_set=RuleSet.objects.get(name="web")), "Assignment other was planted: Revision 4 doesn't hold it"),
    (lambda: PriorityClass.objects.update(value=7), "PriorityClass gold says something else in its column value than Revision 4: it was changed"),
    (lambda: PriorityClassVersion.objects.update(document="{}"), "PriorityClass gold v1 isn't what was published: it was changed"),
    (lambda: PriorityClassVersion.objects.all().delete(), "PriorityClass gold v1 was removed: Revisions hold it"),
    (lambda: PriorityClassVersion.objects.update(number=2), "PriorityClass gold v2 was planted or changed: no Revision holds it"),
]  # fmt: skip


@pytest.mark.parametrize(("tamper", "said"), CHANGED_ROWS)
def test_what_pages_read_of_rules_and_was_changed_past_berth_is_named(
    published: Ledgered, tamper: Callable[[], object], said: str
) -> None:
    publish_all(make_priority_class("gold"))
    append_events(timezone.now())
    published.sign()
    assert faults(published.verify()) == []
    without_triggers()
    tamper()
    assert f"events: {said}" in faults(published.verify())


def test_numbers_that_a_database_stores_otherwise_are_as_they_were_published(ledgered: Ledgered) -> None:
    doubles = {"factor": 1e16, "limit": 1e300, "least": -0.0, "odd": 1.2345678901234567e18}
    rules = make_rule_set("web", filters=[{"builtin": "PodFitsResources"}], params=doubles)
    publish_all(rules, make_assignment("all", "web", params={"limit": 1.5e300}))
    append_events(timezone.now())
    ledgered.sign()
    assert faults(ledgered.verify()) == []
