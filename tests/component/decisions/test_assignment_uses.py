"""When Assignments last took a Pod: kept as Decisions are stored, shown in the list, named by doctor."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scheduler.decisions.assignment_uses import Idle, idle, kept_since, last_uses, note_uses
from scheduler.doctor.live_rules import assignments
from scheduler.models import AssignmentUse, Decision
from tests.builders import make_assignment, make_rule_set
from tests.component.pages import get, publish_all, text_of

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def decided(assignment: str, at: datetime = AT, **fields: Any) -> Decision:
    return Decision(assignment=assignment, at=at, **fields)


class TestWhatIsIdle:
    def test_is_what_took_no_pod_since_it_is_live_and_since_that_is_known(self) -> None:
        live = {"busy": AT - 90 * DAY, "quiet": AT - 90 * DAY, "never": AT - 80 * DAY, "new": AT - DAY}
        last = {"busy": AT - DAY, "quiet": AT - 40 * DAY}
        assert idle(live, last, AT - 365 * DAY, AT, 30 * DAY) == [
            Idle("never", AT - 80 * DAY),
            Idle("quiet", AT - 40 * DAY),
        ]
        assert idle(live, last, AT - 3 * DAY, AT, 30 * DAY) == []

    def test_what_was_changed_lately_is_given_time(self) -> None:
        assert idle({"a": AT - DAY}, {"a": AT - 90 * DAY}, AT - 365 * DAY, AT, 30 * DAY) == []


@pytest.mark.django_db
class TestKeeping:
    def test_the_newest_time_of_each_is_kept_also_of_shadows(self) -> None:
        note_uses(
            [decided("a"), decided("a", AT + DAY), decided("a", AT - DAY), decided("b", mode="shadow"), decided("")]
        )
        assert last_uses(["a", "b", "c"]) == {"a": AT + DAY, "b": AT}

    def test_what_comes_late_takes_nothing_back(self) -> None:
        note_uses([decided("a")])
        note_uses([decided("a", AT - DAY)])
        assert last_uses(["a"]) == {"a": AT}

    def test_a_minute_is_close_enough(self) -> None:
        note_uses([decided("a")])
        with CaptureQueriesContext(
            connection,
        ) as asked:
            note_uses([decided("a", AT + timedelta(seconds=59))])
            note_uses([])
        assert [query["sql"].split()[0] for query in asked] == ["SELECT"]
        note_uses([decided("a", AT + timedelta(seconds=60))])
        assert last_uses(["a"]) == {"a": AT + timedelta(seconds=60)}

    def test_from_when_on_is_known(self) -> None:
        since = kept_since()
        assert since is not None
        assert timezone.now() - since < DAY


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two Assignments that have been live for long, as far as the setting goes; one has taken a Pod."""
    publish_all(make_rule_set("web"), make_assignment("busy"), make_assignment("left-over"))
    note_uses([decided("busy", timezone.now())])
    long_ago = timezone.now() - 31.5 * DAY
    monkeypatch.setattr("scheduler.decisions.assignment_uses.kept_since", lambda: AT)
    monkeypatch.setattr(
        "scheduler.decisions.assignment_uses.live_since",
        lambda _kind, names=None: {"busy": AT, "left-over": long_ago},
    )


@pytest.mark.django_db
@pytest.mark.usefixtures("old")
class TestWhereItIsShown:
    def test_the_list_says_when_each_took_a_pod(self, operator: Client) -> None:
        said = text_of(get(operator, "/admin/policies/assignment/"))
        assert "Last used" in said
        assert re.search(r"busy every Pod web enforce .*\d s ago .*left-over every Pod .*web enforce ", said)
        assert "never, in 31 d" in said

    def test_doctor_names_those_that_take_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = assignments()
        assert (found.state, found.says) == ("warning", "1 matched no Pod for 30 days: left-over")
        assert "Which one takes this Pod?" in found.remedy
        changed = msgspec.structs.replace(settings.BERTH, assignment_idle_days=60)
        monkeypatch.setattr(settings, "BERTH", changed)
        assert assignments().state == "ok"


@pytest.mark.django_db
def test_nothing_is_said_before_it_is_known(operator: Client) -> None:
    publish_all(make_rule_set("web"), make_assignment("new"))
    AssignmentUse.objects.all().delete()
    assert assignments().state == "ok"
    assert "not yet" in text_of(get(operator, "/admin/policies/assignment/"))
