"""What doctor says of the processes: who reports, what they serve, who calls them."""

from datetime import UTC, datetime, timedelta

import pytest

from scheduler.doctor.checkup import check
from scheduler.models import Caller, PendingLook, Process
from tests.component.doctor.checkups import make_process, part, set_clock, start_in

pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("healthy")
@pytest.mark.parametrize("role", ["extender", "binder"])
def test_processes_of_a_role_that_look_for_their_lease_in_several_namespaces_are_an_error(
    role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_in(monkeypatch, role, "one", "berth")
    second = start_in(monkeypatch, role, "two", "kube-system")
    said = part(check(quick=True), "Leases")
    assert said.state == "error"
    assert said.says.startswith(f"{role}s look in berth (one) and kube-system (two): ")
    second.delete()
    assert "Leases" not in {each.name for each in check(quick=True).parts}


@pytest.mark.usefixtures("healthy")
def test_an_extender_and_a_binder_need_no_lease_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    start_in(monkeypatch, "extender", "one", "berth")
    start_in(monkeypatch, "binder", "two", "kube-system")
    assert "Leases" not in {each.name for each in check(quick=True).parts}


@pytest.mark.usefixtures("healthy")
class TestProcesses:
    def test_no_process_that_reports_is_an_error(self) -> None:
        Process.objects.all().delete()
        assert part(check(quick=True), "extender").state == "error"

    def test_a_silent_process_beside_one_that_reports_is_a_warning(self) -> None:
        make_process("killed", heartbeat_at=datetime.now(UTC) - timedelta(minutes=1))
        assert part(check(quick=True), "extender").state == "warning"

    def test_the_role_of_a_silent_one_is_said(self) -> None:
        make_process("killed", role="binder", heartbeat_at=datetime.now(UTC) - timedelta(minutes=1))
        assert part(check(quick=True), "extender").says == "1 extender reports, 1 binder silent"

    def test_they_report_by_the_databases_clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        set_clock(monkeypatch, ahead=timedelta(days=1))
        assert part(check(quick=True), "extender").state == "ok"

    def test_each_role_is_counted(self) -> None:
        make_process("b")
        make_process("binds", role="binder")
        assert part(check(quick=True), "extender").says == "2 extenders and 1 binder report"

    @pytest.mark.parametrize(("is_asked", "state"), [(False, "warning"), (True, "error")])
    def test_a_binder_does_not_stand_in_for_an_extender(self, is_asked: bool, state: str) -> None:
        Process.objects.update(role="binder")
        if is_asked:
            Caller.objects.create(identity="kube", verb="filter", process="a", last_at=datetime.now(UTC))
        found = part(check(quick=True), "extender")
        assert (found.state, found.says) == (state, "none reports; 1 binder reports")
        assert found.remedy.startswith("Start it if kube-scheduler asks Berth")

    def test_a_process_that_serves_another_revision_is_an_error_and_is_named(self) -> None:
        make_process("behind", revision=7)
        found = part(check(quick=True), "Revision")
        assert found.state == "error"
        assert "behind pid 1 serves 7" in found.says

    @pytest.mark.parametrize("age", [None, 121.0])
    def test_a_process_that_does_not_see_the_cluster_is_an_error(self, age: float | None) -> None:
        make_process("blind", snapshot_age_seconds=age)
        assert part(check(quick=True), "Snapshot").state == "error"

    def test_who_called_last_is_named(self) -> None:
        at = datetime.now(UTC) - timedelta(seconds=30)
        for verb in ("filter", "prioritize"):
            Caller.objects.create(identity="system:kube-scheduler", verb=verb, process="a", last_at=at)
        found = part(check(quick=True), "kube-scheduler")
        assert (found.state, "system:kube-scheduler called 30 s ago" in found.says) == ("ok", True)

    def test_calls_of_long_ago_prove_nothing_of_now(self) -> None:
        now = datetime.now(UTC)
        for verb, ago in (("filter", timedelta(seconds=30)), ("bind", timedelta(days=12))):
            Caller.objects.create(identity="kube", verb=verb, process="a", last_at=now - ago)
        found = part(check(quick=True), "kube-scheduler")
        assert (found.state, found.says) == ("ok", "kube called 30 s ago; verbs seen: filter, bind (12 d ago)")
        Caller.objects.filter(verb="filter").update(last_at=now - timedelta(days=2))
        found = part(check(quick=True), "kube-scheduler")
        assert found.state == "unknown"
        assert "kube called 2 d ago; verbs seen: filter (2 d ago), bind (12 d ago)" in found.says
        assert "canary" in found.remedy


@pytest.mark.usefixtures("healthy")
@pytest.mark.parametrize(("minutes", "state"), [(0, "ok"), (2, "ok"), (4, "error")])
@pytest.mark.parametrize("field", ["looked_at", "fault_at"])
def test_ticks_that_no_longer_come_are_an_error_after_some_minutes(field: str, minutes: int, state: str) -> None:
    PendingLook.objects.create(**{field: datetime.now(UTC) - timedelta(minutes=minutes)})
    found = part(check(quick=True), "beat")
    assert (found.state, "Do beat and the worker run?" in found.remedy) == (state, state == "error")
