"""The pages and REST of PriorityClasses, for three roles: what is said, and who may change what."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from policies import publishing
from policies.models import (
    AuditEvent,
    Change,
    ClusterPriorityClass,
    PriorityClass,
    PriorityClassLook,
    PriorityClassVersion,
    Revision,
)
from scheduler.priority_classes.reconcile import look
from tests.builders import make_priority_class, priority_class_document
from tests.component.pages import change_url, confirmed, form_data, get, stage, text_of
from tests.component.policies.test_priority_classes import publish_all, save, seen
from tests.component.priority_classes.test_reconcile import make_due
from tests.priority_server import PriorityServer

pytestmark = pytest.mark.django_db
LIST = "/admin/policies/priorityclass/"
ADD = f"{LIST}add/"
ROLES = ["operator", "approver", "auditor"]


def page_of(name: str = "batch") -> str:
    return change_url("priorityclass", PriorityClass.objects.get(name=name).pk)


def put_back_url() -> str:
    return f"{LIST}{PriorityClass.objects.get().pk}/put-back/"


@pytest.fixture
def server() -> PriorityServer:
    server = PriorityServer()
    server.have_system_classes()
    server.have("mine", value=7, description="by hand")
    save(description="Batch that may wait", preemptionPolicy="Never")
    publish_all()
    look(server)
    return server


@pytest.mark.parametrize("role", ROLES)
def test_everybody_sees_the_list_and_a_class(role: str, request: pytest.FixtureRequest) -> None:
    client = request.getfixturevalue(role)
    assert "No PriorityClass of Berth's yet" in text_of(get(client, LIST))
    request.getfixturevalue("server")
    text = text_of(get(client, LIST))
    assert "1,000 batch Batch that may wait value 1,000, never preempts other Pods ✓ applied" in text
    assert "2,000,001,000 system-node-critical system" in text
    assert "7 mine ! foreign Berth doesn't manage it. not counted yet" in text
    page = text_of(get(client, page_of()))
    assert "Version 1: value 1,000, never preempts other Pods ✓ applied" in page
    assert "managed by Berth, which created it" in page
    assert "1 published value 1,000, never preempts other Pods Revision 1 ops at" in page
    assert "kind: PriorityClass" in page


def test_who_may_not_change_a_class_reads_sentences(auditor: Client, approver: Client, operator: Client) -> None:
    save(description="Batch that may wait", preemptionPolicy="Never", deletionPolicy="Delete")
    publish_all()
    for reader in (auditor, approver):
        page = text_of(get(reader, page_of()))
        assert "Batch that may wait" in page
        assert "Pods that name it have priority 1,000, and never preempt other Pods." in page
        assert "is left as it is" in page
        assert "When it is removed here, the class in the cluster is deleted too." in page
        for word in ("Adopt", "Deletion policy", "Preemption policy", "Global default"):
            assert word not in page.split("Document")[0], word
    assert "Deletion policy" in text_of(get(operator, page_of()))


def test_nobody_sees_it_without_logging_in(client: Client) -> None:
    assert client.get(LIST)["Location"].startswith("/admin/login/")


def test_an_auditor_has_no_button_that_changes_anything(auditor: Client, server: PriorityServer) -> None:
    save(description="drifts", preemptionPolicy="Never")
    publish_all()
    look(server)
    server.have("batch", description="by hand")
    make_due()
    look(server)
    for path in (LIST, page_of()):
        main = get(auditor, path).content.decode().split('id="main"')[-1]
        for word in ("Save and publish", "Put back", 'name="_save"', "/add/", "/delete/"):
            assert word not in main, (path, word)


@pytest.mark.parametrize("role", ["approver", "auditor"])
def test_who_may_not_edit_is_refused(role: str, server: PriorityServer, request: pytest.FixtureRequest) -> None:
    client = request.getfixturevalue(role)
    assert client.post(ADD, {"name": "x", "value": 1}).status_code == 403
    assert client.post(page_of(), {"value": 1}).status_code == 403
    assert client.post(page_of().replace("change", "delete"), {"post": "yes"}).status_code == 403


def test_an_auditor_cannot_put_back(auditor: Client, server: PriorityServer) -> None:
    assert auditor.post(put_back_url(), {"reason": "x"}).status_code == 403
    assert Revision.objects.count() == 1


def test_an_operator_adds_a_class_publishes_it_and_sees_it_applied(operator: Client) -> None:
    server = PriorityServer()
    data = form_data(get(operator, ADD)) | {
        "name": "shop.web", "value": "5000", "description": "The shop's pages", "global_default": "on",
        "preemption_policy": "Never", "deletion_policy": "Delete", "policies_priorityclass_save_and_publish": "",
    }  # fmt: skip
    said = text_of(operator.post(ADD, data, follow=True))
    assert "Revision 1 was made" in said
    assert "PriorityClass shop.web" in said
    assert "… pending Berth hasn't looked at the cluster since this was published." in text_of(get(operator, LIST))
    look(server)
    assert "✓ applied" in text_of(get(operator, LIST))
    assert server.classes["shop.web"]["preemptionPolicy"] == "Never"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", "system-mine", "reserved for Kubernetes"),
        ("name", "Web", "lower-case"),
        ("value", "1000000001", "less than or equal to 1000000000"),
        ("value", "", "required"),
        ("value", "1.5", "whole number"),
        ("global_default", "on", "batch is the global default"),
    ],
)
def test_what_kubernetes_would_refuse_is_said_at_its_field(operator: Client, field: str, value: str, said: str) -> None:
    save(globalDefault=True)
    publish_all()
    data = form_data(get(operator, ADD)) | {"name": "new", "value": "5", field: value}
    response = operator.post(ADD, data)
    assert said in " ".join(response.context["adminform"].form.errors[field])
    assert PriorityClass.objects.count() == 1


@pytest.mark.parametrize("value", ["", "1.5", "1000000001"])
def test_a_bad_name_and_a_bad_value_are_said_at_once(operator: Client, value: str) -> None:
    data = form_data(get(operator, ADD)) | {"name": "Web", "value": value}
    errors = operator.post(ADD, data).context["adminform"].form.errors
    assert sorted(errors) == ["name", "value"]
    assert "lower-case" in errors["name"][0]
    assert len(errors["value"]) == 1


def test_a_value_that_a_class_of_others_keeps_when_it_is_taken_over_is_refused_with_the_ways_out(
    operator: Client, server: PriorityServer
) -> None:
    ClusterPriorityClass.objects.update(managed=False)
    data = form_data(get(operator, page_of())) | {"value": "2000", "adopt": "on"}
    errors = operator.post(page_of(), data).context["adminform"].form.errors["value"]
    assert "is 1000 in the cluster's batch, which is to be taken over as it is." in " ".join(errors)
    assert PriorityClass.objects.get().value == 1000


def test_an_edit_is_saved_and_said_not_to_be_live(operator: Client, server: PriorityServer) -> None:
    data = form_data(get(operator, page_of())) | {"description": "new words"}
    said = text_of(operator.post(page_of(), data, follow=True))
    assert "It isn't live until that Change is published" in said
    assert "description “Batch that may wait” → “new words”" in said
    assert "1 edit in open Changes, not live yet batch edited by operator" in text_of(get(operator, LIST))
    assert "is a draft: PriorityClass batch, by operator" in text_of(get(operator, "/admin/"))


def test_deleting_a_class_is_published_like_any_edit(operator: Client, server: PriorityServer) -> None:
    said = confirmed(operator, page_of().replace("change", "delete"), "gone")
    assert "PriorityClass batch removed: it stays in the cluster" in said
    change = Change.objects.get(state="draft")
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    look(server)
    assert "1,000 batch , never preempts kept Removed here; its deletionPolicy was Keep." in text_of(
        get(operator, LIST)
    )


def page_of_staged() -> str:
    return change_url("change", Change.objects.get(state="draft").pk)


def test_its_change_says_which_classes_the_cluster_has_already(operator: Client, server: PriorityServer) -> None:
    save("mine", 9)
    assert "! mine in the cluster isn't managed by Berth" in text_of(get(operator, page_of_staged()))
    save("mine", 7, adopt=True)
    assert "isn't managed by Berth" not in text_of(get(operator, page_of_staged()))


def test_its_change_says_that_others_hold_the_global_default(operator: Client, server: PriorityServer) -> None:
    server.have("mine", globalDefault=True)
    make_due()
    look(server)
    save("web", 5000, globalDefault=True)
    assert "! web can't become the global default: the cluster's mine is" in text_of(get(operator, page_of_staged()))


def test_what_others_changed_is_shown_and_put_back(operator: Client, server: PriorityServer) -> None:
    assert operator.get(put_back_url()).status_code == 403
    server.have("batch", description="by hand")
    make_due()
    look(server)
    assert "! drifted Changed in the cluster since Berth applied it: description is “by hand”." in text_of(
        get(operator, LIST)
    )
    assert "batch is drifted: Changed in the cluster" in text_of(get(operator, "/admin/"))
    assert "description is “by hand”" in text_of(get(operator, put_back_url()))
    assert "will be put back within a few seconds" in confirmed(operator, put_back_url(), "no")
    look(server)
    assert server.classes["batch"]["description"] == "Batch that may wait"
    assert LogEntry.objects.filter(change_message="Put back in the cluster: no").exists()


@pytest.mark.parametrize("of", ["Berth", "the cluster"])
def test_who_puts_back_second_is_told_that_there_is_nothing_to_do(
    of: str, operator: Client, server: PriorityServer
) -> None:
    url = put_back_url() if of == "Berth" else "/admin/scheduler/priority-classes/batch/put-back/"
    server.have("batch", description="by hand")
    make_due()
    look(server)
    sent = {"reason": "no", "digest": get(operator, url).context["confirmation"].digest}
    assert operator.post(url, sent).status_code == 302
    look(server)
    assert "Nothing to do: batch isn't drifted or refused in the cluster." in text_of(operator.post(url, sent))
    assert AuditEvent.objects.filter(kind="put-back").count() == 1


def test_a_refusal_stands_beside_the_class_and_on_the_first_page(operator: Client, server: PriorityServer) -> None:
    server.have("mine", globalDefault=True)
    save("web", 5000, globalDefault=True)
    publish_all()
    look(server)
    refused = "The API server refused: PriorityClass mine is already marked as default"
    assert f"✗ refused {refused}" in text_of(get(operator, LIST))
    assert f"web is refused: {refused}" in text_of(get(operator, "/admin/"))


def test_a_cluster_that_cant_be_asked_is_said(auditor: Client, server: PriorityServer) -> None:
    PriorityClassLook.objects.update(error="connection refused")
    assert "! The cluster can't be reached connection refused The data below is from" in text_of(get(auditor, LIST))
    assert "The cluster can't be reached now: connection refused" in text_of(get(auditor, page_of()))


def test_a_revision_shows_its_classes_by_value(auditor: Client, server: PriorityServer) -> None:
    save("web", 5000)
    publish_all()
    text = text_of(get(auditor, change_url("revision", 2)))
    assert text.index("web version 1: value 5,000") < text.index("batch version 1: value 1,000")


class TestREST:
    def test_a_class_comes_with_its_document_versions_and_what_the_cluster_has(
        self, auditor: Client, server: PriorityServer
    ) -> None:
        save("shop.web", 5000)
        publish_all()
        (web, batch) = auditor.get("/api/v1/priority-classes").json()["results"]
        assert (web["name"], web["live_version"], web["state"], web["cluster"]) == ("shop.web", 1, "pending", None)
        assert (batch["live_version"], batch["state"], batch["cluster"]["value"]) == (1, "applied", 1000)
        assert auditor.get("/api/v1/priority-classes/shop.web").json()["document"] == priority_class_document(
            "shop.web", 5000
        )
        assert [each["number"] for each in batch["versions"]] == [1]

    def test_only_who_may_view_it_may(self, client: Client) -> None:
        assert client.get("/api/v1/priority-classes").status_code == 401

    @pytest.mark.parametrize(("value", "ok"), [(5, True), (2 * 10**9, False)])
    def test_a_document_is_checked(self, auditor: Client, value: int, ok: bool) -> None:
        answer = auditor.post("/api/v1/validate", priority_class_document(value=value), content_type="application/json")
        assert answer.json()["ok"] is ok

    def test_the_list_costs_the_same_for_many_classes(
        self, auditor: Client, server: PriorityServer, django_assert_max_num_queries: Any
    ) -> None:
        stage(*(publishing.Edit.of(make_priority_class(f"c{number}", number)) for number in range(20)))
        publish_all()
        with django_assert_max_num_queries(20):
            get(auditor, LIST)
        with django_assert_max_num_queries(10):
            auditor.get("/api/v1/priority-classes")


def test_a_class_that_is_in_another_state_than_the_live_version_is_pending(
    auditor: Client, server: PriorityServer
) -> None:
    save(description="new words", preemptionPolicy="Never")
    publish_all()
    assert "… pending" in text_of(get(auditor, LIST))
    assert auditor.get("/api/v1/priority-classes/batch").json()["state"] == "pending"


def test_a_class_made_by_others_in_the_meantime_is_said_to_be_theirs(auditor: Client) -> None:
    save()
    publish_all()
    seen(managed=False, state="foreign")
    assert "managed by others" in text_of(get(auditor, page_of()))


@pytest.mark.parametrize(
    "path",
    [
        "/admin/policies/compare/?kind=PriorityClass&name=batch&before=1&after=2",
        "/admin/scheduler/priority-classes/batch/",
        "/admin/scheduler/priority-classes/batch/go-back/2/",
        "",
    ],
)
def test_a_version_that_a_newer_berth_wrote_is_said_to_be_unreadable(
    operator: Client, server: PriorityServer, path: str
) -> None:
    PriorityClassVersion.objects.create(
        name="batch",
        number=2,
        state="superseded",
        document='{"name": []}',
        revision=1,
        published_by="ops",
        published_at=timezone.now(),
    )
    said = text_of(get(operator, path or page_of()))
    assert "PriorityClass batch version 2 can't be read: a newer version of Berth wrote it." in said
