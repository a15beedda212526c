"""The cluster's PriorityClasses follow the Revision: when a look is due, what it does, and what is kept of it."""

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from policies import publishing
from policies.models import (
    AuditEvent,
    ClusterPriorityClass,
    PriorityClassLook,
    PriorityClassReplacement,
    PriorityClassVersion,
)
from scheduler.cluster.errors import APIConfigurationError, APIForbiddenError, APIUnavailableError
from scheduler.priority_classes import reconcile
from scheduler.priority_classes.execute import LABEL
from scheduler.priority_classes.plan import Found
from scheduler.priority_classes.reconcile import look
from tests.builders import make_priority_class, make_rule_set
from tests.component.pages import publish, publish_staged, stage
from tests.component.policies.test_changes_at_once import somebody_waits, until
from tests.component.threads import at_once
from tests.priority_server import PriorityServer, stored

pytestmark = pytest.mark.django_db


@pytest.fixture
def server() -> PriorityServer:
    server = PriorityServer()
    server.have_system_classes()
    return server


def save(name: str = "batch", value: int = 1000, **spec: Any) -> None:
    stage(publishing.Edit.of(make_priority_class(name, value, **spec)))


def publish_classes() -> None:
    assert publish_staged() is not None


def bring(server: PriorityServer, name: str = "batch", value: int = 1000, **spec: Any) -> None:
    """Publish a class, and have a look bring it to the cluster."""
    save(name, value, **spec)
    publish_classes()
    look(server)


def states() -> dict[str, str]:
    """Return what people are shown of each live class."""
    rows = ClusterPriorityClass.objects.in_bulk()
    live = publishing.live_priority_classes()
    return {name: publishing.priority_class_state(each, rows.get(name)).state for name, each in live.items()}


def make_due() -> None:
    PriorityClassLook.objects.update(next_at=Now() - timedelta(seconds=1))


def test_a_published_class_is_pending_then_made_then_applied(server: PriorityServer) -> None:
    save()
    publish_classes()
    assert states() == {"batch": "pending"}
    assert look(server)
    assert states() == {"batch": "applied"}
    made = server.classes["batch"]
    assert (made["value"], made["metadata"]["labels"]) == (1000, {LABEL: "berth"})


def test_a_look_is_done_once_until_it_is_due_again(server: PriorityServer) -> None:
    assert look(server)
    assert not look(server)
    make_due()
    assert look(server)


def test_every_publish_makes_a_look_due(server: PriorityServer) -> None:
    look(server)
    publish(make_rule_set())
    assert look(server)
    assert not look(server)


def test_a_look_that_somebody_holds_isnt_done_twice_until_it_took_too_long(server: PriorityServer) -> None:
    look(server)
    make_due()
    PriorityClassLook.objects.update(holder="another", held_until=Now() + timedelta(seconds=5))
    assert not look(server)
    PriorityClassLook.objects.update(held_until=Now() - timedelta(seconds=1))
    assert look(server)


def test_who_lost_the_look_changes_and_keeps_nothing_more(server: PriorityServer) -> None:
    save()
    save("web", 5000)
    publish_classes()
    server.before_change = lambda: PriorityClassLook.objects.update(holder="another")
    look(server)
    assert server.changes == ["POST"]
    assert not ClusterPriorityClass.objects.exists()
    assert PriorityClassLook.objects.get().holder == "another"


def test_a_revision_that_comes_in_between_stops_the_older_ones_changes(server: PriorityServer) -> None:
    save(deletionPolicy="Delete")
    save("web", 5000)
    publish_classes()

    def withdraw() -> None:
        server.before_change = lambda: None
        stage(publishing.Edit("PriorityClass", "web", None))
        publish_classes()

    server.before_change = withdraw
    look(server)
    assert "web" not in server.classes
    assert look(server)
    assert states() == {"batch": "applied"}
    assert not ClusterPriorityClass.objects.filter(name="web").exists()


def test_system_classes_are_shown_and_never_touched(server: PriorityServer) -> None:
    look(server)
    rows = ClusterPriorityClass.objects.filter(state="system")
    assert [(row.name, row.value) for row in rows] == [
        ("system-node-critical", 2_000_001_000),
        ("system-cluster-critical", 2_000_000_000),
    ]
    assert server.changes == []


def test_a_description_that_no_database_stores_holds_up_nothing(server: PriorityServer) -> None:
    """The API server takes a NUL, PostgreSQL doesn't."""
    save()
    publish_classes()
    server.have("theirs", value=5, description="for\0us")
    look(server)
    server.have("batch", description="changed\0")
    make_due()
    look(server)
    rows = ClusterPriorityClass.objects.in_bulk()
    assert (rows["theirs"].description, rows["batch"].state) == ("forus", "drifted")
    assert rows["batch"].message == "Changed in the cluster since Berth applied it: description is “changed”."


def test_a_withdrawn_class_that_a_newer_berth_wrote_stays_and_holds_up_nothing(server: PriorityServer) -> None:
    server.classes["late"] = stored(Found(name="late", is_managed=True, is_made_by_berth=True))
    PriorityClassVersion.objects.create(
        name="late", number=1, state="withdrawn", document='{"name": []}', revision=1, published_by="ops",
        published_at=timezone.now(),
    )  # fmt: skip
    bring(server)
    assert states() == {"batch": "applied"}
    assert "late" in server.classes
    assert "or in a version that can't be read" in ClusterPriorityClass.objects.get(name="late").message


def test_a_refusal_is_kept_in_the_api_servers_words_and_tried_again(server: PriorityServer) -> None:
    server.have("mine", value=1, globalDefault=True)
    bring(server, globalDefault=True)
    row = ClusterPriorityClass.objects.get(name="batch")
    assert (row.state, row.present) == ("refused", False)
    assert "PriorityClass mine is already marked as default" in row.message
    server.have("mine", globalDefault=False)
    make_due()
    look(server)
    assert states() == {"batch": "applied"}
    assert ClusterPriorityClass.objects.get(name="batch").message == ""


def test_a_class_of_others_is_left_until_it_is_adopted(server: PriorityServer) -> None:
    server.have("batch", value=1000, description="mine")
    bring(server, description="Berth's words")
    assert states() == {"batch": "foreign"}
    assert server.changes == []
    bring(server, description="Berth's words", adopt=True)
    assert states() == {"batch": "applied"}
    assert server.classes["batch"]["description"] == "Berth's words"
    row = ClusterPriorityClass.objects.get(name="batch")
    assert (row.managed, row.made_by_berth) == (True, False)


def test_a_class_of_others_with_another_value_is_a_conflict_when_adopted(server: PriorityServer) -> None:
    save(adopt=True)
    publish_classes()
    server.have("batch", value=7)
    look(server)
    assert states() == {"batch": "conflict"}
    assert "value is 7 in the cluster and 1000 here" in ClusterPriorityClass.objects.get(name="batch").message
    assert server.changes == []


def test_what_others_change_is_shown_and_put_back_only_when_asked(server: PriorityServer) -> None:
    bring(server)
    server.have("batch", description="mine")
    make_due()
    look(server)
    assert states() == {"batch": "drifted"}
    assert server.classes["batch"]["description"] == "mine"
    publishing.put_back(name="batch", by="ops", reason="not agreed")
    assert look(server)
    assert states() == {"batch": "applied"}
    assert server.classes["batch"]["description"] == ""
    assert not ClusterPriorityClass.objects.filter(overwrite=True).exists()


def test_a_class_that_was_taken_out_before_it_was_put_back_is_left_once_it_is_published_again(
    server: PriorityServer,
) -> None:
    bring(server)
    server.have("batch", description="mine")
    make_due()
    look(server)
    publishing.put_back(name="batch", by="ops", reason="not agreed")
    stage(publishing.Edit("PriorityClass", "batch", None))
    publish_classes()
    look(server)
    bring(server)
    assert states() == {"batch": "drifted"}
    assert server.classes["batch"]["description"] == "mine"


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer")
@pytest.mark.django_db(transaction=True)
def test_what_somebody_puts_back_while_a_look_is_kept_waits_for_it(
    server: PriorityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both write the look's row and the class's: in one order, or they would wait for each other."""
    bring(server)
    server.have("batch", description="mine")
    make_due()
    look(server)
    make_due()
    keeps, end = threading.Event(), reconcile._end_replacements

    def end_once_somebody_waits(outcomes: Any) -> None:
        keeps.set()
        until(somebody_waits)
        end(outcomes)

    def act(index: int) -> object:
        if index == 0:
            return look(server)
        keeps.wait(30)
        return publishing.put_back(name="batch", by="ops", reason="not agreed")

    with monkeypatch.context() as patched:
        patched.setattr(reconcile, "_end_replacements", end_once_somebody_waits)
        assert at_once(2, act) == [True, None]
    assert look(server)
    assert states() == {"batch": "applied"}


def test_what_came_to_the_cluster_after_somebody_asked_is_shown_again_in_place_of_being_put_back(
    server: PriorityServer,
) -> None:
    bring(server)
    server.have("batch", description="mine")
    make_due()
    look(server)
    publishing.put_back(name="batch", by="ops", reason="not agreed")
    server.have("batch", description="agreed with ops meanwhile")
    for _ in range(2):
        make_due()
        look(server)
        assert server.classes["batch"]["description"] == "agreed with ops meanwhile"
    assert states() == {"batch": "drifted"}
    assert "agreed with ops meanwhile" in ClusterPriorityClass.objects.get(name="batch").message
    publishing.put_back(name="batch", by="ops", reason="not agreed either")
    look(server)
    assert (states(), server.classes["batch"]["description"]) == ({"batch": "applied"}, "")


def test_what_two_put_back_is_recorded_once_and_the_second_is_told_so(server: PriorityServer) -> None:
    bring(server)
    server.have("batch", description="mine")
    make_due()
    look(server)
    publishing.put_back(name="batch", by="ops", reason="not agreed")
    with pytest.raises(publishing.PublishingError, match="somebody has already asked for batch to be put back"):
        publishing.put_back(name="batch", by="ann", reason="not agreed")
    assert AuditEvent.objects.filter(kind="put-back").count() == 1


def test_putting_back_what_hasnt_drifted_is_refused(server: PriorityServer) -> None:
    bring(server)
    with pytest.raises(publishing.PublishingError, match="isn't drifted or refused any more"):
        publishing.put_back(name="batch", by="ops", reason="")


def test_a_class_that_others_deleted_is_made_again(server: PriorityServer) -> None:
    bring(server)
    del server.classes["batch"]
    make_due()
    look(server)
    assert states() == {"batch": "applied"}
    assert "batch" in server.classes


@pytest.mark.parametrize(("deletion_policy", "is_there"), [("Keep", True), ("Delete", False)])
def test_what_is_taken_out_stays_unless_its_document_said_delete(
    server: PriorityServer, deletion_policy: str, is_there: bool
) -> None:
    bring(server, deletionPolicy=deletion_policy)
    stage(publishing.Edit("PriorityClass", "batch", None))
    publish_classes()
    look(server)
    assert ("batch" in server.classes) is is_there
    rows = ClusterPriorityClass.objects.exclude(state="system")
    assert [(row.name, row.state) for row in rows] == ([("batch", "kept")] if is_there else [])


def test_delete_counts_although_nobody_looked_while_it_was_live(server: PriorityServer) -> None:
    bring(server)
    save(deletionPolicy="Delete")
    publish_classes()
    stage(publishing.Edit("PriorityClass", "batch", None))
    publish_classes()
    look(server)
    assert "batch" not in server.classes


def test_a_berth_deletes_nothing_that_it_never_published(server: PriorityServer) -> None:
    server.classes["batch"] = stored(Found(name="batch", value=1, is_managed=True, is_made_by_berth=True))
    look(server)
    assert server.changes == []
    row = ClusterPriorityClass.objects.get(name="batch")
    said = "It carries Berth's label, and was never published here, or in a version that can't be read."
    assert (row.state, row.message) == ("kept", said)


def test_the_global_default_moves_within_two_looks(server: PriorityServer) -> None:
    save("a", globalDefault=True)
    bring(server, "b", 5)
    save("a")
    bring(server, "b", 5, globalDefault=True)
    assert states() == {"a": "applied", "b": "pending"}
    make_due()
    look(server)
    assert states() == {"a": "applied", "b": "applied"}
    assert [name for name, each in server.classes.items() if each.get("globalDefault")] == ["b"]


def test_an_api_server_that_is_away_is_tried_again_and_what_was_seen_stays(
    server: PriorityServer, caplog: pytest.LogCaptureFixture
) -> None:
    bring(server)
    save("web", 5000)
    publish_classes()
    server.fault = APIUnavailableError("connection refused")
    look(server)
    make_due()
    look(server)
    assert caplog.text.count("connection refused") == 1
    assert states() == {"batch": "applied", "web": "pending"}
    last = PriorityClassLook.objects.get()
    assert (last.error, last.holder) == ("connection refused", "")
    server.fault = None
    make_due()
    look(server)
    assert states() == {"batch": "applied", "web": "applied"}
    assert PriorityClassLook.objects.get().error == ""


@pytest.mark.parametrize("fault", [APIForbiddenError("may not list"), APIConfigurationError("no kubeconfig")])
def test_a_cluster_that_berth_may_not_read_is_said(server: PriorityServer, fault: Exception) -> None:
    server.fault = fault
    assert look(server)
    assert PriorityClassLook.objects.get().error == str(fault)


def test_rolling_back_brings_the_cluster_back(server: PriorityServer) -> None:
    bring(server, description="first")
    bring(server, description="second")
    publishing.roll_back(to_number=1, by="ops", reason="")
    look(server)
    assert server.classes["batch"]["description"] == "first"
    assert states() == {"batch": "applied"}


def test_another_value_is_made_anew_and_the_row_says_so(server: PriorityServer) -> None:
    bring(server)
    bring(server, value=2000)
    assert states() == {"batch": "applied"}
    assert server.classes["batch"]["value"] == 2000
    row = PriorityClassReplacement.objects.get()
    assert (row.state, row.value_before, row.value, row.version) == ("done", 1000, 2000, 2)
    assert row.ended_at is not None


def test_it_is_written_down_before_the_class_is_deleted(server: PriorityServer) -> None:
    bring(server)
    save(value=2000)
    publish_classes()
    found: list[tuple[str, int]] = []

    def note() -> None:
        found.append((server.changes[-1], PriorityClassReplacement.objects.filter(state="under way").count()))

    server.before_change = note
    look(server)
    assert found == [("DELETE batch", 1), ("POST", 1)]


def test_one_that_was_left_half_done_is_finished_by_the_next_look(server: PriorityServer) -> None:
    bring(server)
    save(value=2000)
    publish_classes()

    def end() -> None:
        if server.changes[-1] == "POST":
            server.fault = APIUnavailableError("reset")

    server.before_change = end
    look(server)
    assert "batch" not in server.classes
    row = ClusterPriorityClass.objects.get(name="batch")
    assert (row.state, row.present) == ("pending", False), "though the API server may be away for long from here on"
    assert PriorityClassReplacement.objects.get().state == "under way"
    server.before_change, server.fault = (lambda: None), None
    make_due()
    look(server)
    assert server.classes["batch"]["value"] == 2000
    assert PriorityClassReplacement.objects.get().state == "done"


def cut_off(server: PriorityServer, at: str) -> None:
    """Do a look whose process is cut off from the API server before a request."""

    def end() -> None:
        if server.changes[-1] == at:
            server.fault = APIUnavailableError("reset")

    server.before_change = end
    make_due()
    look(server)
    server.before_change, server.fault = (lambda: None), None


def test_one_that_was_left_half_done_says_what_was_published_meanwhile_and_made(server: PriorityServer) -> None:
    bring(server)
    save(value=2000)
    publish_classes()
    cut_off(server, at="POST")
    bring(server, value=3000)
    assert server.classes["batch"]["value"] == 3000
    row = PriorityClassReplacement.objects.get()
    assert (row.state, row.value_before, row.value, row.version) == ("done", 1000, 3000, 3)


def test_what_others_wrote_on_a_class_between_two_tries_stays_when_it_is_made_anew(server: PriorityServer) -> None:
    bring(server)
    save(value=2000)
    publish_classes()
    cut_off(server, at="DELETE batch")
    server.classes["batch"]["metadata"]["labels"]["team"] = "data"
    cut_off(server, at="POST")
    assert "batch" not in server.classes
    make_due()
    look(server)
    assert server.classes["batch"]["metadata"]["labels"]["team"] == "data"


def test_one_whose_class_was_taken_out_meanwhile_is_put_back_where_it_is_to_stay(server: PriorityServer) -> None:
    bring(server)
    PriorityClassReplacement.objects.create(
        name="batch",
        version=2,
        value_before=1000,
        value=2000,
        uid=server.classes["batch"]["metadata"]["uid"],
        former=json.dumps({"metadata": {"name": "batch", "labels": {LABEL: "berth"}}, "value": 1000}),
        started_at=Now(),
    )
    del server.classes["batch"]
    stage(publishing.Edit("PriorityClass", "batch", None))
    publish_classes()
    look(server)
    assert server.classes["batch"]["value"] == 1000
    assert PriorityClassReplacement.objects.get().state == "put back"
    make_due()
    look(server)
    assert ClusterPriorityClass.objects.get(name="batch").state == "kept"


def test_rolling_back_another_value_makes_it_anew_with_the_former_one(server: PriorityServer) -> None:
    bring(server)
    bring(server, value=2000)
    publishing.roll_back(to_number=1, by="ops", reason="")
    look(server)
    assert states() == {"batch": "applied"}
    assert server.classes["batch"]["value"] == 1000


def test_one_with_another_value_by_others_is_drifted_until_somebody_puts_it_back(server: PriorityServer) -> None:
    bring(server)
    server.have("batch", value=7)
    make_due()
    look(server)
    assert states() == {"batch": "drifted"}
    assert server.classes["batch"]["value"] == 7
    publishing.put_back(name="batch", by="ops", reason="not agreed")
    look(server)
    assert server.classes["batch"]["value"] == 1000


def test_a_class_that_others_deleted_says_so_until_there_is_something_else_to_say(server: PriorityServer) -> None:
    bring(server)
    del server.classes["batch"]
    for _ in range(2):
        make_due()
        look(server)
    assert "Others deleted it; Berth made it again at" in ClusterPriorityClass.objects.get(name="batch").message


def test_a_look_that_is_asked_for_during_one_isnt_lost(server: PriorityServer) -> None:
    save()
    publish_classes()
    server.before_change = publishing.ask_for_look
    assert look(server)
    server.before_change = lambda: None
    assert look(server)
    assert not look(server)
