"""What lists say of open Changes is what their own pages say, asked by as many questions however many there are."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from policies import publishing
from policies.engine.ruleset import Pause
from policies.models import Change, GateRun, GateSetting
from policies.publishing import Edit, GateMark, Result
from policies.publishing.gates import FOUND, PASSED, UNKNOWN
from policies.publishing.lifecycle import Standing
from tests.builders import make_assignment, make_rule_set
from tests.component.pages import publish_all

pytestmark = pytest.mark.django_db

A = {"filters": [{"builtin": "PodFitsHost"}]}
B = {"filters": [{"builtin": "MatchNodeSelector"}]}


@pytest.fixture(autouse=True)
def _reviewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True, review_approvals=2)
    )


def make_live(*values: Any) -> None:
    """Publish without review."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
        publish_all(*values)


def somebody(name: str, *groups: str) -> User:
    user: User = User.objects.create_superuser(name)
    user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return user


def opened(*edits: Edit, submitted: bool = True) -> Change:
    author = User.objects.filter(username="author").first() or somebody("author")
    change = publishing.open_change(title="t", edits=edits, by=author, reason="why")
    if submitted:
        publishing.submit_change(change=change, by=author, expected_digest=change.digest, text="")
    return Change.objects.get(pk=change.pk)


def approve(change: Change, by: User) -> None:
    publishing.approve_change(change=change, by=by, expected_digest=change.digest, text="")


def said_by_its_page(change: Change) -> list[tuple[int, int, str]]:
    standing: Standing = publishing.standing_of(change)
    anybody = [(standing.approvals, standing.needed, "")] if standing.needed else []
    of_groups = [(len(standing.counting & need.members), need.approvals, need.group) for need in standing.needs]
    return anybody + of_groups


def in_review(_: list[User]) -> Change:
    return opened(Edit.of(make_rule_set(**A)))


def draft(_: list[User]) -> Change:
    return opened(Edit.of(make_rule_set(**A)), submitted=False)


def approved_once(people: list[User]) -> Change:
    change = opened(Edit.of(make_rule_set(**A)))
    approve(change, people[0])
    return change


def approved_by_the_group(people: list[User]) -> Change:
    change = opened(Edit.of(make_rule_set(**A)))
    for each in people:
        approve(change, each)
    return change


def approved_by_who_is_gone(people: list[User]) -> Change:
    change = approved_by_the_group(people)
    User.objects.filter(pk=people[0].pk).update(is_active=False)
    return change


def of_its_assignment(people: list[User]) -> Change:
    make_live(make_rule_set(**A))
    change = opened(Edit.of(make_assignment()))
    approve(change, people[1])
    return change


def of_a_pause(_: list[User]) -> Change:
    make_live(make_rule_set(**A))
    return opened(Edit.of(Pause(name="everything", target="everything", reason="r")))


def rolling_back(_: list[User]) -> Change:
    make_live(make_rule_set(**A))
    make_live(make_rule_set(**B))
    return publishing.propose_roll_back(to_number=1, by=somebody("author"), reason="worse")


def moved(people: list[User]) -> Change:
    change = approved_once(people)
    make_live(make_rule_set(**B))
    return change


@pytest.mark.parametrize(
    "case",
    [
        in_review,
        draft,
        approved_once,
        approved_by_the_group,
        approved_by_who_is_gone,
        of_its_assignment,
        of_a_pause,
        moved,
    ],
)
@pytest.mark.parametrize("pauses_are_free", [True, False])
def test_a_list_says_of_approvals_and_of_what_moved_what_the_page_says(
    case: Callable[[list[User]], Change], pauses_are_free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_pauses=not pauses_are_free))
    people = [somebody("bo", "payments"), somebody("cy")]
    change = case(people)
    root = somebody("root")
    if publishing.current_revision().rule_sets:
        publishing.set_review(rule_set="web", approvals=1, group="payments", by=root)
    publishing.set_review(approvals=1, group="payments", roll_backs=False, by=root)
    found = publishing.overview_of([change])[change.pk]
    assert sorted(found.approvals) == sorted(said_by_its_page(Change.objects.get(pk=change.pk)))
    assert found.moved == len(publishing.moved_of(change))


@pytest.mark.parametrize("case", [in_review, draft, moved, of_a_pause, rolling_back])
@pytest.mark.parametrize("is_required", [True, False])
@pytest.mark.parametrize("verdict", [PASSED, FOUND, None])
def test_a_list_says_of_waiting_for_the_gate_what_the_page_says(
    case: Callable[[list[User]], Change], is_required: bool, verdict: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = case([somebody("bo"), somebody("cy")])
    checks = {"newcheck": "blocking"}
    needed = msgspec.structs.replace(settings.BERTH, gate_required=is_required, gate_checks=checks)
    monkeypatch.setattr(settings, "BERTH", needed)
    if verdict is not None:
        gated(change, [Result("newcheck", verdict, "says")])
        publishing.run_gate(change=change, by="ops")  # the results of the one before still count
    change = Change.objects.get(pk=change.pk)
    assert publishing.overview_of([change])[change.pk].waits_for_gate == bool(publishing.standing_of(change).gate)


def gated(change: Change, results: list[Result]) -> None:
    run = publishing.take_gate(publishing.run_gate(change=change, by="ops").pk)
    assert run is not None
    number = publishing.current_revision().number
    assert publishing.end_gate(run, results, revision=number, snapshot_at=timezone.now())


@pytest.mark.parametrize(
    ("verdict", "level", "mark"),
    [
        (PASSED, "blocking", GateMark.PASSED),
        (FOUND, "blocking", GateMark.BLOCKS),
        (UNKNOWN, "blocking", GateMark.BLOCKS),
        (FOUND, "warning", GateMark.WARNS),
    ],
)
def test_the_gates_mark_goes_by_what_is_set_for_the_rule_set(verdict: str, level: str, mark: GateMark) -> None:
    change = opened(Edit.of(make_rule_set(**A)))
    gated(change, [Result("newcheck", verdict, "says")])
    GateSetting.objects.create(rule_set="web", check_name="newcheck", level=level, set_by="root", set_at=timezone.now())
    GateSetting.objects.create(
        rule_set="batch", check_name="newcheck", level="blocking", set_by="root", set_at=timezone.now()
    )
    assert publishing.overview_of([change])[change.pk].gate == mark


def test_the_gates_mark_is_of_the_newest_run_of_what_the_change_makes_now() -> None:
    change = opened(Edit.of(make_rule_set(**A)), submitted=False)

    def mark() -> GateMark:
        return publishing.overview_of([Change.objects.get(pk=change.pk)])[change.pk].gate

    assert mark() == GateMark.NONE
    gated(change, [Result("tests", PASSED, "no tests")])
    assert mark() == GateMark.PASSED
    GateRun.objects.update(snapshot_at=timezone.now() - timedelta(days=300))
    assert mark() == GateMark.OLD
    publishing.run_gate(change=change, by="ops")
    assert mark() == GateMark.MOVES
    GateRun.objects.filter(state="queued").update(state="failed")
    assert mark() == GateMark.FAILED
    GateRun.objects.update(digest="of before")
    assert mark() == GateMark.NONE


def test_what_is_done_has_no_standing() -> None:
    change = opened(Edit.of(make_rule_set(**A)))
    publishing.withdraw_change(change=change, by=User.objects.get(username="author"), expected_digest="", text="")
    assert publishing.overview_of(Change.objects.all()) == {}


def test_more_changes_ask_no_more() -> None:
    root = somebody("root", "payments")
    make_live(make_rule_set(**A), make_assignment())
    publishing.set_review(rule_set="web", approvals=1, group="payments", by=root)

    def asked(names: list[str]) -> int:
        for name in names:
            value: Any = make_assignment(name)
            change = opened(Edit.of(make_rule_set(f"set-{name}", **A)), Edit.of(value))
            approve(change, root)
            opened(Edit.of(Pause(name="everything", target="everything", reason=name)))
        rows = list(Change.objects.prefetch_related("events"))
        with CaptureQueriesContext(connection) as captured:
            publishing.overview_of(rows)
        return len(captured)

    assert asked(["a", "b"]) == asked(["c", "d", "e", "f"])
