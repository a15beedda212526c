"""Changes that twenty people publish at one moment: on PostgreSQL its lock puts them in a row, SQLite has one writer."""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from policies import publishing
from policies.engine import ruleset as engine
from policies.models import Change, ChangeEvent, GateSetting, ReviewSetting, Revision, RuleSet, RuleSetVersion
from policies.publishing import Edit, PublishingError, acts, audit
from scheduler.applying import Applied, Documents, Planned, Wish, apply, plan_documents
from scheduler.backtest.runs import Span, start_backtest
from scheduler.doctor import runs as canaries
from scheduler.evidence import runs, verifications
from scheduler.evidence.runs import EvidenceError
from scheduler.evidence.selection import Case
from scheduler.evidence.verifications import UnderWayError
from scheduler.history.holds import make_hold
from scheduler.models import CanaryRun, EvidenceExport, Verification
from tests.builders import make_assignment, make_rule_set
from tests.component.pages import publish_all
from tests.component.policies.people import person
from tests.component.policies.test_changes import A, B, C, live, opened
from tests.component.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)


def publish_at_once(changes: Sequence[Change]) -> list[Revision | PublishingError]:
    """Publish all, each in a thread of its own; give what came of each."""
    digests = dict(Change.objects.values_list("pk", "digest"))
    return at_once(  # type: ignore[return-value] # what publishing gives
        len(changes),
        lambda index: publishing.publish_change(
            change=changes[index], by=f"ops-{changes[index].pk}", expected_digest=digests[changes[index].pk]
        ),
    )


def check_chain(number: int) -> None:
    """Revisions are numbered without a gap, and each digest covers the one before."""
    rows = list(Revision.objects.order_by("number"))
    assert [row.number for row in rows] == list(range(1, number + 1))
    former = ""
    for row in rows:
        text = publishing.digest_text(row)
        assert json.loads(text)["former"] == former
        assert hashlib.sha256(text.encode()).hexdigest() == row.digest
        former = row.digest


def test_each_loser_is_told_what_moved_and_gets_in_after_a_rebase() -> None:
    """Ten of a thing of their own, ten of one that all want, with an Assignment beside it that nobody else touches."""
    own = [opened(make_rule_set(f"own-{index}", **A)) for index in range(10)]
    sharing = [
        opened(
            make_rule_set("shared", filters=A["filters"], params={"by": index}),
            make_assignment(f"of-{index}", "shared", order=index),
        )
        for index in range(10)
    ]
    results = publish_at_once([change for pair in zip(own, sharing, strict=True) for change in pair])
    assert all(isinstance(result, Revision) for result in results[0::2])
    results = results[1::2]
    published = 11
    while True:
        check_chain(published)
        losers = [change for change, got in zip(sharing, results, strict=True) if isinstance(got, PublishingError)]
        assert len(losers) == len(sharing) - 1
        sharing = losers
        if not losers:
            break
        told = {str(got) for got in results if isinstance(got, PublishingError)}
        assert all("published another RuleSet shared since; rebase it" in said for said in told)
        winner = next(each for each in live().rule_sets if each.name == "shared")
        for change in losers:
            [moved] = publishing.moved_of(change)
            assert (moved.name, moved.live, moved.mine) == ("shared", winner, publishing.edits_of(change)[1].value)
            assert moved.base is None or isinstance(moved.base, engine.RuleSet)
            publishing.rebase_change(
                change=change,
                by="ops",
                expected_digest=Change.objects.get(pk=change.pk).digest,
                expected_revision=live().number,
            )
        results = publish_at_once(losers)
        published += 1
    assert published == 20
    assert {change.state for change in Change.objects.all()} == {"published"}
    # What a loser's Change made beside the thing that moved is live too, once.
    assert sorted(each.order for each in live().assignments) == list(range(10))
    assert next(each.version for each in live().rule_sets if each.name == "shared") == 10


def test_one_change_published_by_twenty_at_once_is_published_once() -> None:
    change = opened(make_rule_set("web", **A))
    results = publish_at_once([change] * 20)
    assert [result.number for result in results if isinstance(result, Revision)] == [1]
    assert len([result for result in results if isinstance(result, PublishingError)]) == 19
    check_chain(1)


def test_no_approval_outlives_a_base_that_is_moved_beside_it() -> None:
    """Approvals beside what moves their base: each is dropped by it, or refused."""
    carol = person("carol", "Approver")
    for number in range(5):
        waiting = [opened(make_rule_set("web", filters=A["filters"], params={"of": number, "by": i})) for i in range(3)]
        for change in waiting:
            publishing.submit_change(change=change, by="ops", expected_digest=change.digest)
        mover = opened(make_rule_set("web", filters=A["filters"], params={"moved": number}))

        def act(index: int, waiting: list[Change] = waiting, mover: Change = mover) -> object:
            if index == 1:
                return publishing.publish_change(change=mover, by="ops", expected_digest=mover.digest)
            change = waiting[max(index - 1, 0)]
            return publishing.approve_change(change=change, by=carol, expected_digest=change.digest)

        got = at_once(4, act)
        assert isinstance(got[1], Revision)
        for change in waiting:
            approved = change.events.filter(act="approve").count()
            assert change.events.filter(act="overtake").count() == approved
        assert not ChangeEvent.objects.approvals().filter(change__in=waiting).exists()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer")
def test_a_plan_beside_who_publishes_waits_and_says_what_it_would_change_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan publishes in a transaction that is rolled back: it must not take the number that is being given."""
    change = opened(make_rule_set("web", **A))
    has_begun = threading.Event()

    def until_the_plan_waits(*_: object) -> None:
        has_begun.set()
        until(somebody_waits)

    def act(index: int) -> object:
        if index == 0:
            return publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        has_begun.wait(30)
        wanted = make_rule_set("data", **A)
        return plan_documents(Documents(rule_sets={"data": wanted}), by="ops", asks_cluster=False)

    monkeypatch.setattr("policies.publishing.changes.mark_published", until_the_plan_waits)
    made, planned = at_once(2, act)
    assert isinstance(made, Revision)
    assert isinstance(planned, Planned)
    assert (made.number, planned.revision) == (1, 2)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer")
def test_a_plan_beside_who_applies_the_same_new_rule_set_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both write the rule set's name and wait for the lock of Revisions: in one order, or they would wait for each other."""
    documents = Documents(rule_sets={"web": make_rule_set("web", **A)})
    has_begun, look = threading.Event(), publishing.check_seen

    def look_once_the_plan_waits(*seen: Any) -> None:
        has_begun.set()
        until(somebody_waits)
        look(*seen)

    def act(index: int) -> object:
        if index == 0:
            return apply(documents, Wish(title="new", publish=True), by="ops")
        has_begun.wait(30)
        return plan_documents(documents, by="ops", asks_cluster=False)

    monkeypatch.setattr(publishing, "check_seen", look_once_the_plan_waits)
    applied, planned = at_once(2, act)
    assert isinstance(applied, Applied)
    assert isinstance(planned, Planned)
    assert (str(applied.revision), planned.revision) == ("Revision 1", 0)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer")
def test_an_edit_of_an_approved_change_beside_who_applies_the_same_new_rule_set_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One holds the Change and writes the new name, the other wrote it and drops the Change's approvals."""
    change = opened(make_rule_set("web", **A))
    publishing.submit_change(change=change, by="ops", expected_digest=change.digest)
    publishing.approve_change(change=change, by=person("carol", "Approver"), expected_digest=change.digest)
    documents = Documents(rule_sets={name: make_rule_set(name, **B) for name in ("web", "fresh")})
    holds_the_change, has_named, keep = threading.Event(), threading.Event(), acts.keep_rule_sets

    def keep_once_both_are_there(contents: Any) -> None:
        if threading.current_thread() is editing[0]:
            holds_the_change.set()
            until(lambda: has_named.is_set() or somebody_waits())
        keep(contents)
        if threading.current_thread() is not editing[0]:
            has_named.set()

    editing: list[threading.Thread] = []

    def act(index: int) -> object:
        if index == 0:
            editing.append(threading.current_thread())
            edit = Edit.of(make_rule_set("fresh", **C))
            return publishing.edit_change(change=change, edits=[edit], by="ops", expected_digest="")
        holds_the_change.wait(30)
        return apply(documents, Wish(title="new", publish=True), by="ops")

    monkeypatch.setattr(acts, "keep_rule_sets", keep_once_both_are_there)
    edited, applied = at_once(2, act)
    assert isinstance(edited, Change)
    assert isinstance(applied, Applied)
    assert {edit.name for edit in change.edits.all()} == {"web", "fresh"}
    assert not ChangeEvent.objects.approvals().filter(change=change).exists()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer")
@pytest.mark.parametrize("act", ["go_back", "archive"])
def test_what_somebody_publishes_just_after_the_look_is_not_undone_unseen(
    act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page's digest names the live Revision: nobody makes another one between comparing it and publishing."""
    publish_all(make_rule_set("web", **A))
    publish_all(make_rule_set("web", **B))
    other = opened(make_rule_set("web", **C))
    seen = publishing.digest_of_shown(2)
    told: list[object] = []

    def publish_other() -> None:
        try:
            told.append(publishing.publish_change(change=other, by="sam", expected_digest=other.digest))
        except PublishingError as error:
            told.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=publish_other)

    def meanwhile(**asked: Any) -> Change:
        thread.start()
        until(lambda: bool(told) or somebody_waits())
        return publishing.open_change(**asked)

    monkeypatch.setattr("policies.publishing.proposals.open_change", meanwhile)
    if act == "go_back":
        version = RuleSetVersion.objects.get(number=1)
        made = publishing.go_back(version=version, by="ops", reason="back", expected_digest=seen)
    else:
        made = publishing.archive(rule_set=RuleSet.objects.get(), by="ops", reason="old", expected_digest=seen)
    thread.join(30)
    assert made.number == 3
    (refused,) = told
    assert "published another RuleSet web since; rebase it" in str(refused)


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite has one writer, which a waiting test would hold up"
)
def test_a_hold_and_a_backtest_that_a_double_click_asks_for_are_made_once() -> None:
    alice = person("alice", "Operator")
    change, now = opened(make_rule_set("web", **A)), timezone.now()
    for ask in (
        lambda _: start_backtest(change=change, by=alice, span=Span()).pk,
        lambda _: make_hold(by=alice, now=now, reason="case 7", pod_namespace="d").pk,
    ):
        assert len(set(at_once(4, ask))) == 1


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite has one writer, which a waiting test would hold up"
)
def test_an_archive_and_a_verification_that_a_double_click_asks_for_are_made_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alice, now = person("alice", "Operator"), timezone.now()
    record_once_another_has_come(monkeypatch)

    def click(_: int) -> None:
        with suppress(EvidenceError):
            runs.ask(Case(), by=alice, now=now)
        with suppress(UnderWayError):
            verifications.ask(by=alice, now=now)

    at_once(2, click)
    assert (EvidenceExport.objects.count(), Verification.objects.count()) == (1, 1)


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite has one writer, which a waiting test would hold up"
)
def test_a_verification_that_two_people_ask_for_at_one_instant_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    people = [person("alice", "Operator"), person("bob", "Operator")]
    record_once_another_has_come(monkeypatch)

    def click(index: int) -> str:
        try:
            return verifications.ask(by=people[index], now=timezone.now()).asked_by
        except UnderWayError:
            return "under way"

    came = at_once(2, click)
    assert came.count("under way") == 1
    assert Verification.objects.count() == 1


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite has one writer, which a waiting test would hold up"
)
def test_a_canary_that_two_people_ask_for_at_one_instant_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    record_once_another_has_come(monkeypatch)
    monkeypatch.setattr(publishing, "record_event", audit.record_event)

    def click(index: int) -> str:
        try:
            return canaries.ask(by=f"ops-{index}", namespace="default", scheduler_name="default-scheduler").asked_by
        except canaries.CanaryBusyError:
            return "under way"

    came = at_once(2, click)
    assert came.count("under way") == 1
    assert CanaryRun.objects.count() == 1


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite has one writer, which a waiting test would hold up"
)
@pytest.mark.parametrize("kind", [ReviewSetting, GateSetting])
def test_of_two_who_set_the_same_at_one_instant_one_is_told_of_the_other(
    kind: type[ReviewSetting | GateSetting], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_once_another_has_come(monkeypatch)
    RuleSet.objects.create(name="web")

    def act(index: int) -> object:
        by = f"ops-{index}"
        if kind is ReviewSetting:
            return publishing.set_review(rule_set="web", approvals=index + 1, by=by, seen=0)
        return publishing.set_gate_level(rule_set="web", check="tests", level="warning", by=by, seen=0)

    got = at_once(2, act)
    assert {type(each) for each in got} == {kind, publishing.OvertakenError}
    assert kind.objects.count() == 1


def record_once_another_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each act wait, before it records itself, until another does the same or waits for its lock."""
    came, record = Counter[str](), audit.record_event

    def record_then(kind: str, **said: Any) -> None:
        came[kind] += 1
        until(lambda: came[kind] > 1 or somebody_waits())
        record(kind, **said)

    monkeypatch.setattr(audit, "record_event", record_then)


def somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*), pg_sleep(0.01) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


def until(happens: Callable[[], bool]) -> None:
    assert any(happens() for _ in range(1_000))
