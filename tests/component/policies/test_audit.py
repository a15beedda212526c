"""No act without its AuditEvent, and none without its act: every verb of `policies.publishing`, refused, rolled back and done."""

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from policies import publishing
from policies.models import AuditEvent, Change, Revision, RuleSet, RuleSetVersion
from policies.models.audit import first_id_at, time_of_id, time_ordered_id
from policies.origin import Origin, coming_from
from policies.publishing import Edit, OnBehalf, PublishingError
from tests.builders import TEAM_FILTER, exemption_document, make_assignment, make_exemption, make_pause, make_rule_set
from tests.component.pages import publish_all
from tests.component.policies.people import person
from tests.component.policies.test_changes import A, B, C, opened
from tests.component.policies.test_priority_classes import seen

pytestmark = pytest.mark.django_db

# Does a verb, as somebody.
Act = Callable[[Any], object]


def draft(*values: Any) -> Change:
    return opened(*(values or [make_rule_set("web", **C)]))


def digest_of(change: Change) -> str:
    return Change.objects.get(pk=change.pk).digest


def on(change: Change, verb: Any, **more: Any) -> Act:
    """Do a verb with a Change that was looked at."""
    looks = "expected_digest" in inspect.signature(verb).parameters
    return lambda by: verb(change=change, by=by, **more, **({"expected_digest": digest_of(change)} if looks else {}))


def in_review() -> Change:
    change = draft()
    publishing.submit_change(change=change, by="ops", expected_digest=digest_of(change))
    return change


def rejected() -> Change:
    change = in_review()
    publishing.reject_change(change=change, by=User.objects.get(username="carol"), expected_digest="", text="no")
    return change


def rebased() -> Act:
    change = draft()
    publish_all(make_rule_set("web", **A))
    return on(change, publishing.rebase_change, expected_revision=publishing.current_revision().number)


def due() -> Act:
    change = draft()
    at = timezone.now() + timedelta(hours=1)
    publishing.schedule_change(change=change, by="ops", publish_at=at, expected_digest=digest_of(change))
    return lambda _by: publishing.publish_due(now=at)


def paused() -> Act:
    publish_all(make_pause())
    return lambda by: publishing.resume(target="RuleSet/web", by=by, reason="moved")


def reordered() -> Act:
    publish_all(make_assignment("first", order=1), make_assignment("second", order=2))
    return lambda by: publishing.reorder(names=["second", "first"], by=by)


def exempted() -> Act:
    publish_all(make_exemption())
    return lambda by: publishing.end_exemption(name="cart", by=by, reason="moved")


def adopting(verb: Any) -> Act:
    names = [seen("mine", 7, managed=False, state="foreign").name]
    return lambda by: verb(names=names, by=by, reason="ours")


def checked() -> Act:
    change = draft()
    return lambda by: publishing.record_gate(change, publishing.name_of(by), [], revision=1, snapshot_at=None)


def drifted() -> Act:
    name = seen("batch", 7, state="drifted").name
    return lambda by: publishing.put_back(name=name, by=by, reason="no")


def first_version() -> RuleSetVersion:
    return RuleSetVersion.objects.get(number=1)


def web() -> RuleSet:
    return RuleSet.objects.get(name="web")


OPENED, SUBMITTED, PUBLISHED = "change.open", "change.submit", "change.publish"
# A form's edit of something that nobody has in a Change yet.
_EDIT = {"edit": Edit.of(make_rule_set("db", **A)), "title": "db", "seen": "", "reason": "why"}

# Every verb that somebody does: what has to be there, the verb itself, and the AuditEvents that it writes, in order.
_SHOP = publishing.Keeper("shop-rules")
ACTS: dict[str, tuple[Callable[[], Act], list[str]]] = {
    "open_change": (
        lambda: lambda by: publishing.open_change(title="t", edits=[Edit.of(make_rule_set("web", **C))], by=by),
        [OPENED],
    ),
    "claim": (lambda: lambda by: publishing.claim(keys=[("RuleSet", "web")], keeper=_SHOP, by=by), ["claim"]),
    "bring_back": (
        lambda: lambda by: publishing.bring_back(to_number=1, by=by, reason="r"),
        [OPENED, PUBLISHED, "roll-back"],
    ),
    "begin_change": (lambda: lambda by: publishing.begin_change(title="t", by=by), [OPENED]),
    "begin_once": (lambda: lambda by: publishing.begin_once(title="t", by=by), [OPENED]),
    "export": (lambda: lambda by: publishing.export(by=by), ["export"]),
    "save_edit": (lambda: lambda by: publishing.save_edit(change=None, by=by, **_EDIT), [OPENED]),
    "edit_change": (
        lambda: on(draft(), publishing.edit_change, edits=[Edit.of(make_rule_set("db", **A))]),
        ["change.edit"],
    ),
    "discard_edits": (
        lambda: on(
            draft(make_rule_set("web", **C), make_rule_set("db", **A)),
            publishing.discard_edits,
            keys={("RuleSet", "db")},
        ),
        ["change.edit"],
    ),
    "rebase_change": (rebased, ["change.rebase"]),
    "submit_change": (lambda: on(draft(), publishing.submit_change), [SUBMITTED]),
    "run_gate": (
        lambda: on(draft(), publishing.run_gate),
        ["gate.ask"],
    ),
    "record_gate": (checked, ["gate.ask"]),
    "ask_for_review": (
        lambda: on(in_review(), publishing.ask_for_review, whom="carol"),
        ["change.ask"],
    ),
    "describe_change": (
        lambda: on(draft(), publishing.describe_change, title="another"),
        ["change.describe"],
    ),
    "comment_on_change": (
        lambda: on(draft(), publishing.comment_on_change, text="hm"),
        ["change.comment"],
    ),
    "approve_change": (lambda: on(in_review(), publishing.approve_change), ["change.approve"]),
    "reject_change": (lambda: on(in_review(), publishing.reject_change, text="no"), ["change.reject"]),
    "reopen_change": (
        lambda: on(rejected(), publishing.reopen_change),
        ["change.reopen"],
    ),
    "withdraw_change": (
        lambda: on(draft(), publishing.withdraw_change),
        ["change.withdraw"],
    ),
    "publish_change": (lambda: on(draft(), publishing.publish_change), [PUBLISHED]),
    "publish_urgently": (lambda: on(draft(), publishing.publish_urgently, reason="fire"), ["change.urgent"]),
    "schedule_change": (
        lambda: on(draft(), publishing.schedule_change, publish_at=timezone.now() + timedelta(hours=1)),
        ["change.schedule"],
    ),
    "set_expiry": (
        lambda: on(draft(), publishing.set_expiry, expires_at=timezone.now() + timedelta(hours=1)),
        ["change.edit"],
    ),
    "publish_due": (due, [PUBLISHED]),
    "roll_back": (
        lambda: lambda by: publishing.roll_back(to_number=1, by=by, reason="back"),
        [OPENED, PUBLISHED, "roll-back"],
    ),
    "propose_roll_back": (
        lambda: lambda by: publishing.propose_roll_back(to_number=1, by=by, reason="back"),
        [OPENED, "roll-back", SUBMITTED],
    ),
    "go_back": (
        lambda: lambda by: publishing.go_back(version=first_version(), by=by, reason="back"),
        [OPENED, PUBLISHED, "go-back"],
    ),
    "propose_going_back": (
        lambda: lambda by: publishing.propose_going_back(version=first_version(), by=by, reason="back"),
        [OPENED, "go-back", SUBMITTED],
    ),
    "adopt": (lambda: adopting(publishing.adopt), [OPENED, PUBLISHED, "adopt"]),
    "propose_adoption": (lambda: adopting(publishing.propose_adoption), [OPENED, "adopt", SUBMITTED]),
    "archive": (
        lambda: lambda by: publishing.archive(rule_set=web(), by=by, reason="unused"),
        [OPENED, PUBLISHED, "archive"],
    ),
    "propose_archiving": (
        lambda: lambda by: publishing.propose_archiving(rule_set=web(), by=by, reason="unused"),
        [OPENED, "archive", SUBMITTED],
    ),
    "reorder": (reordered, [OPENED]),
    "pause": (
        lambda: lambda by: publishing.pause(target="RuleSet/web", by=by, reason="fire"),
        [OPENED, PUBLISHED, "pause"],
    ),
    "resume": (paused, [OPENED, PUBLISHED, "resume"]),
    "exempt": (
        lambda: (
            lambda by: publishing.exempt(
                name="cart", spec=exemption_document(until="2126-02-01T00:00:00Z")["spec"], by=by
            )
        ),
        [OPENED, PUBLISHED, "exempt"],
    ),
    "end_exemption": (exempted, [OPENED, PUBLISHED, "exemption.end"]),
    "put_back": (drifted, ["put-back"]),
    "set_review": (lambda: lambda by: publishing.set_review(approvals=1, by=by, reason="law"), ["review.set"]),
    "set_gate_level": (
        lambda: lambda by: publishing.set_gate_level(rule_set="web", check="tests", level="blocking", by=by),
        ["gate.set"],
    ),
}
# What Berth's processes do by themselves, and what an act brings with it: no act of anybody's.
BY_PROCESSES = {
    "take_gate": "a worker",
    "note_gate": "a worker",
    "end_gate": "a worker",
    "fail_gate": "a worker",
    "lose_gate": "a worker",
    "make_live": "a part of publish_change, and asked by plan, which rolls it back",
    "ask_for_look": "a look at the cluster is due: nothing is decided",
    "ask_for_users": "a count of Pods is due: nothing is decided",
    "remember_checked": "what was checked is kept in memory",
    "record_event": "writes AuditEvents",
    "record_start": "writes what a process is set to at its start",
}
ONLY_READ = {
    "way_to_live",
    *("actor_of", "adoptable", "adopted", "askable", "assignment_versions", "bases_of", "blocked", "changes_to_edit"),
    *("changes_waiting_for", "check_version", "checked_rule_sets", "cluster_warnings", "content_digest"),
    *("content_of_version", "provenance_of", "rule_set_held", "rule_sets_in_use"),
    *(
        "check_held",
        "check_reach_of",
        "check_seen",
        "current_revision",
        "differing",
        "digest_of_shown",
        "digest_text",
        "document_text",
        "edits_between",
        "edits_of",
        "ended_with",
        "endings_of",
        "has_revision",
        "lasts_until",
        "pause_of",
    ),
    *(
        "ending_soon",
        "exemption_faults",
        "fault_of_words",
        "found_in",
        "misfits",
        "misfitting_params",
        "gate_of",
        "held_by",
        "held_changes",
        "holds_schedule",
        "in_order",
        "is_as_written",
    ),
    *("former_revision", "known_digests", "load_revision"),
    *("is_same", "levels_of", "live_priority_classes", "live_since", "merged_of", "moved_of"),
    *("readable_edits", "readable_moved"),
    *(
        "name_of",
        "may",
        "beside",
        "more_of",
        "reach_of",
        "via_of",
        "needs_gate",
        "needs_of",
        "needs_review",
        "open_already",
        "open_changes_of",
        "open_edits",
        "parts_of_seen",
        "parts_of",
    ),
    *("priority_class_faults", "priority_class_state", "replaced_in_cluster", "results_of", "review_settings"),
    *(
        "reviewers_among",
        "rule_sets_of",
        "rule_sets_touched",
        "said_at",
        "said_by",
        "scheduled_changes",
        "seen_of",
        "sentence_of",
        "version_content",
        "version_document",
    ),
    *(
        "short_of_approvals",
        "number_able",
        "past_ends",
        "standing_of",
        "stored_revision",
        "suspended",
        "unapproved_changes",
        "users_sentence",
        "values_of",
    ),
    *("check_owner_name", "check_owners", "drift_notes", "owner_marks", "owner_notes"),
    *(
        "approvals_given",
        "asked_in_order",
        "change_differences",
        "digest_of_order",
        "digest_of_putting_back",
        "edit_in",
        "faults_of_putting_back",
        "numbers_of",
        "one_revision",
        "orders_for",
        "orders_of",
        "overview_of",
        "priority_class_content",
    ),
    *(
        "revision_differences",
        "waiting_for",
        "waits_for_approval_afterwards",
        "with_edits",
        "with_found",
        "withdrawn_priority_classes",
    ),
}
# Acts before which there was nothing.
FIRST = {OPENED, "claim", "export", "review.set", "gate.set"}
# Whoever calls these was asked before: a page, a command, the clock.
NOT_ASKED = {"export", "record_gate", "publish_due"}


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> User:
    """Somebody who may do everything, with two Revisions of a rule set, and an approver."""
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
    person("carol", "Approver")
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    publish_all(make_rule_set("web", filters=[TEAM_FILTER, *B["filters"]]))
    return User.objects.create(username="root", is_superuser=True, is_staff=True)


def since(before: AuditEvent | None) -> list[AuditEvent]:
    """What was written after an event, in order."""
    later = AuditEvent.objects.filter(pk__gt=before.pk) if before else AuditEvent.objects.all()
    return list(later.order_by("id"))


def test_the_tables_hold_every_verb() -> None:
    functions = {name for name in publishing.__all__ if inspect.isfunction(getattr(publishing, name))}
    assert functions == ACTS.keys() | BY_PROCESSES.keys() | ONLY_READ
    asked = {name for name in functions if "by" in inspect.signature(getattr(publishing, name)).parameters}
    assert asked - ACTS.keys() == {
        "actor_of",
        "check_reach_of",
        "make_live",
        "name_of",
        "open_already",
        "record_event",
        "reach_of",
        "via_of",
        "may",
    }


@pytest.mark.parametrize("verb", sorted(ACTS))
def test_a_verb_writes_its_events_with_its_act_and_none_without(root: User, verb: str) -> None:
    prepare, kinds = ACTS[verb]
    act, nobody = prepare(), User.objects.create(username="nobody")
    before = AuditEvent.objects.first()
    if verb not in NOT_ASKED:
        with pytest.raises(PublishingError):
            act(nobody)
        assert since(before) == [], "it was refused"
    with transaction.atomic():
        act(root)
        assert since(before) != []
        transaction.set_rollback(True)
    assert since(before) == [], "it was rolled back"
    with coming_from(Origin(door="admin", address="10.0.0.7", request_id="request-1", via="nightly")):
        act(root)
    written = since(before)
    assert [event.kind for event in written] == kinds
    for event in written:
        assert publishing.is_as_written(event)
        assert (event.address, event.request_id) == ("10.0.0.7", "request-1")
        assert event.by == ("ops" if verb == "publish_due" else "root")
        assert (event.door, event.via) == (
            ("beat", publishing.CLOCK) if verb == "publish_due" else ("admin", "nightly")
        )
        assert event.after
        # A Change begins from nothing, and so does what waits in one; a setting is the first of its kind here.
        is_first = event.kind in FIRST or (verb.startswith("propose_") and not event.kind.startswith("change."))
        assert bool(event.before) != is_first


def test_publishing_says_what_was_live_and_what_is_by_digest(root: User) -> None:
    change = draft()
    publishing.publish_change(change=change, by=root, expected_digest="", reason="TICKET-7")
    event, (former, made) = AuditEvent.objects.filter(kind=PUBLISHED).first(), Revision.objects.order_by("number")[1:]
    assert event is not None
    assert (event.change, event.revision, event.reason) == (change.pk, made.number, "TICKET-7")
    assert (event.before, event.after) == (former.digest, made.digest)
    (thing,) = publishing.said_by(event).more["things"]
    assert (thing["kind"], thing["name"]) == ("RuleSet", "web")
    assert thing["before"] == publishing.stored_revision(former.number).parts["RuleSet", "web"].digest


def test_editing_says_what_becomes_of_each_thing(root: User) -> None:
    def said() -> list[tuple[str, bool, bool, str]]:
        event = AuditEvent.objects.first()
        assert event is not None
        things = publishing.said_by(event).more["things"]
        return [
            (each["name"], *(bool(each.get(of)) for of in ("before", "after")), each.get("edit", "")) for each in things
        ]

    change = draft()
    assert said() == [("web", True, True, "")]
    live = publishing.current_revision().rule_sets
    edits = [*map(Edit.of, live), Edit.of(make_rule_set("new"))]
    change = publishing.edit_change(change=change, edits=edits, by=root, expected_digest=change.digest)
    assert said() == [("new", False, True, ""), ("web", False, False, "taken out")]
    publish_all(make_rule_set("new", filters=[{"builtin": "PodFitsHost"}]))
    number = publishing.current_revision().number
    publishing.rebase_change(change=change, by=root, expected_digest="", expected_revision=number)
    assert said() == [("new", True, True, "")]


def test_a_token_acts_for_its_owner_and_both_are_named(root: User) -> None:
    publishing.open_change(
        title="t",
        edits=[Edit.of(make_assignment("all", "web"))],
        by=OnBehalf(root, "ci", frozenset({"edit"})),
    )
    event = AuditEvent.objects.first()
    assert event is not None
    assert (event.by, event.via) == ("root", "ci")


def test_what_the_clock_holds_back_and_takes_back_is_its_own_act(root: User) -> None:
    change, at = draft(), timezone.now() + timedelta(hours=1)
    publishing.set_expiry(change=change, by=root, expires_at=at, expected_digest="")
    publishing.publish_change(change=change, by=root, expected_digest="")
    before = AuditEvent.objects.first()
    publishing.publish_due(now=at)
    written = [(event.kind, event.by, event.door) for event in since(before)]
    clock = (publishing.CLOCK, "beat")
    assert written == [
        (OPENED, *clock),
        ("change.schedule", *clock),
        ("change.expire", *clock),
        (PUBLISHED, *clock),
    ]


def test_the_bytes_of_an_event_are_what_its_columns_say_and_a_changed_column_is_seen(root: User) -> None:
    publishing.set_review(approvals=2, by=root, reason="law")
    event = AuditEvent.objects.first()
    assert event is not None
    assert bytes(event.body).startswith(b'{"id":"' + str(event.pk).encode())
    assert publishing.said_by(event).schema == 1
    assert publishing.is_as_written(event)
    event.by = "mallory"
    assert not publishing.is_as_written(event)
    event.body = b"{}"
    assert not publishing.is_as_written(event)


def test_ids_sort_by_time_and_never_come_twice() -> None:
    now = timezone.now()
    made = [time_ordered_id(now) for _ in range(100)]
    assert sorted(set(made)) == made == sorted(made, key=str)
    assert {each.version for each in made} == {7}
    assert time_of_id(first_id_at(now)) == now
    assert first_id_at(now) < made[0] < first_id_at(now + timedelta(seconds=1))


def test_an_export_says_what_was_asked_for(root: User) -> None:
    publishing.export(by=root, kind="RuleSet", names=["web"])
    publishing.export(by=root)
    narrow, whole = reversed([publishing.said_by(row).more for row in AuditEvent.objects.filter(kind="export")])
    assert (narrow, whole) == ({"documents": 1, "kind": "RuleSet", "names": ["web"]}, {"documents": 1})
