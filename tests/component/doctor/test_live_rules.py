"""What doctor says of what is published: Pauses, Assignments, PriorityClasses."""

from datetime import UTC, datetime, timedelta

import pytest

from policies import publishing
from policies.models import ClusterPriorityClass, PriorityClassLook, PriorityClassReplacement
from scheduler.doctor.checkup import check
from scheduler.priority_classes.reconcile import look
from tests.builders import make_assignment, make_exemption, make_priority_class, make_rule_set
from tests.component.doctor.checkups import part
from tests.component.pages import publish_all
from tests.priority_server import PriorityServer

pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("healthy")
def test_assignments_are_not_praised_where_there_is_none() -> None:
    assert part(check(), "Assignments").says == "none is published"
    publish_all(make_rule_set("web"), make_assignment())
    assert part(check(), "Assignments").says.startswith("each took a Pod")


def test_an_exemption_that_has_ended_passes_over_nothing_any_more() -> None:
    publish_all(make_rule_set("web"))
    publish_all(make_exemption(until="2020-01-01T00:00:00Z"))
    ended = "Exemption cart of team cart ended at 2020-01-01 00:00 UTC: rule set web decides about its Pods again"
    assert part(check(quick=True), "Pauses").says == ended


@pytest.mark.usefixtures("healthy")
def test_priority_classes_that_differ_in_the_cluster_are_named() -> None:
    edit = publishing.Edit.of(make_priority_class("batch", 1000))
    change = publishing.open_change(title="tested", edits=[edit], by="ops")
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    assert part(check(), "PriorityClasses").state == "unknown"
    server = PriorityServer()
    look(server)
    assert part(check(), "PriorityClasses").says == "1 in the cluster as published"
    server.have("batch", description="theirs")
    PriorityClassLook.objects.update(next_at=datetime.now(UTC) - timedelta(seconds=1))
    look(server)
    found = part(check(), "PriorityClasses")
    assert (found.state, found.says) == ("warning", "batch is drifted")
    assert found.remedy


@pytest.mark.usefixtures("healthy")
def test_a_priority_class_that_is_gone_in_the_middle_of_its_replacement_is_an_error() -> None:
    now = datetime.now(UTC)
    PriorityClassLook.objects.create(held_until=now, next_at=now)
    ClusterPriorityClass.objects.create(name="batch", state="refused", present=False, looked_at=now, changed_at=now)
    PriorityClassReplacement.objects.create(
        name="batch", version=2, value_before=1, value=2, uid="u", former="{}", started_at=now
    )
    found = part(check(), "PriorityClasses")
    assert (found.state, found.says) == ("error", "batch: deleted in order to be created again, but not created yet")


@pytest.mark.usefixtures("healthy")
def test_a_cluster_whose_priority_classes_cant_be_read_is_an_error() -> None:
    now = datetime.now(UTC)
    PriorityClassLook.objects.create(held_until=now, next_at=now, error="403 Forbidden")
    assert part(check(), "PriorityClasses").says == "the cluster can't be read: 403 Forbidden"
