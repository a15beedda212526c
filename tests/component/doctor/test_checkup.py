"""What doctor says of all parts together, and what it takes for known."""

from typing import Any

import pytest
from django.db import DatabaseError, connection

from scheduler.doctor import checkup
from scheduler.doctor.checkup import check, configured_verbs, known
from tests.component.doctor.checkups import part, set_environment

pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("healthy")
def test_when_everything_works_nothing_is_an_error() -> None:
    found = check()
    assert found.ok
    assert {each.name: each.state for each in found.parts} == {
        "database": "ok", "schema": "ok", "extender": "ok", "beat": "unknown", "Revision": "warning", "Snapshot": "ok",
        "kube-scheduler": "unknown", "Redis": "ok", "worker": "ok", "Changes": "ok", "Pauses": "ok", "history": "ok", "Decisions": "ok", "ledger": "ok", "Assignments": "ok", "PriorityClasses": "ok", "API server": "ok", "rights": "ok",
        "Storage": "unknown", "disk": "ok", "configuration": "unknown",
    }  # fmt: skip


@pytest.mark.usefixtures("healthy")
def test_everything_that_is_not_well_says_what_to_do() -> None:
    assert [each.name for each in check().parts if each.state != "ok" and not each.remedy] == []


@pytest.mark.usefixtures("healthy")
def test_a_database_that_is_away_hides_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_args: Any, **_options: Any) -> None:
        message = "connection refused\nmore"
        raise DatabaseError(message)

    monkeypatch.setattr(connection, "cursor", away)
    monkeypatch.setattr(connection, "close", lambda: None)
    found = check(quick=True)
    assert part(found, "database").state == "error"
    assert part(found, "API server").state == "ok"
    assert {"extender", "Revision", "Snapshot"}.isdisjoint({each.name for each in found.parts})


@pytest.mark.usefixtures("healthy")
def test_without_a_configuration_of_kube_scheduler_the_usual_verbs_are_wanted() -> None:
    assert configured_verbs() == ("filter", "prioritize")


@pytest.mark.usefixtures("healthy")
def test_a_deadline_that_is_set_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, extender_deadline_seconds=4.0)
    assert known().deadline_seconds == 4.0


@pytest.mark.usefixtures("healthy")
def test_rules_that_cannot_be_read_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise DatabaseError

    monkeypatch.setattr(checkup, "current_revision", away)
    assert known().refuses is None
