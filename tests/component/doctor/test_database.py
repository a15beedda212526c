"""What doctor says of the database."""

import re
from datetime import timedelta

import pytest
from django.db import connection, transaction

from scheduler.doctor.checkup import check
from scheduler.models import PendingLook, Process
from tests.component.doctor.checkups import part, set_clock

pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("healthy")
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no standby")
def test_a_database_that_takes_no_writes_is_not_called_well() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL transaction_read_only = on")
        found = check(quick=True)
        transaction.set_rollback(True)  # which takes the mode back
    assert "standby" in part(found, "writes").says
    assert not found.ok


@pytest.mark.usefixtures("healthy")
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no standby")
@pytest.mark.parametrize(("mode", "remedy"), [("on", "Let the database take writes"), ("off", "Start the extender")])
def test_no_extender_is_to_be_started_where_none_can_report(mode: str, remedy: str) -> None:
    Process.objects.all().delete()
    PendingLook.objects.all().delete()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL transaction_read_only = {mode}")
        found = check(quick=True)
        transaction.set_rollback(True)
    assert part(found, "extender").remedy.startswith(remedy)
    assert part(found, "beat").remedy.startswith("Do beat and the worker run" if mode == "off" else remedy)


@pytest.mark.usefixtures("healthy")
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no roles")
def test_tables_that_this_role_may_not_read_are_named_and_nothing_breaks_off() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE ROLE stranger")
        cursor.execute("GRANT SELECT ON django_migrations TO stranger")
        cursor.execute("SET LOCAL ROLE stranger")
        found = check(quick=True)
        transaction.set_rollback(True)
    assert re.fullmatch(r"this role may not read \d\d tables, auth_group among them", part(found, "tables").says)
    assert part(found, "schema").state == "ok"
    assert {"extender", "Revision"}.isdisjoint({each.name for each in found.parts})


@pytest.mark.usefixtures("healthy")
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has this machine's clock")
@pytest.mark.parametrize(("ahead", "side"), [(timedelta(days=1), "ahead of"), (timedelta(days=-1), "behind")])
def test_a_clock_that_differs_from_the_databases_is_a_warning_that_says_by_how_much(
    ahead: timedelta, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, ahead=ahead)
    found = part(check(quick=True), "clock")
    assert (found.state, f"{side} the database's" in found.says) == ("warning", True)
