"""What the page of a Revision says after publishing: who has taken it up, who hasn't yet, and the first Decision by it."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from policies import publishing
from scheduler.models import Decision, Process, Requeue
from tests.builders import make_rule_set

pytestmark = pytest.mark.django_db
TAKEN = timezone.now() - timedelta(minutes=3)


@pytest.fixture(autouse=True)
def _published(db: None) -> None:
    for number in range(2):
        edits = [
            publishing.Edit.of(
                make_rule_set("web", filters=[{"builtin": "PodFitsResources"}], params={"number": number})
            )
        ]
        change = publishing.open_change(title="one", edits=edits, by="ops")
        publishing.publish_change(change=change, by="ops", expected_digest=change.digest)


def process(role: str, revision: int, *, silent_seconds: float = 0) -> None:
    at = timezone.now() - timedelta(seconds=silent_seconds)
    times = {"started_at": TAKEN, "heartbeat_at": at, "revision_at": TAKEN}
    Process.objects.create(id=f"{role}@a:1:1", role=role, host="a", pid=1, revision=revision, **times)


def shown(client: Client, number: int = 2) -> str:
    text = client.get(f"/admin/policies/revision/{number}/change/").content.decode()
    return " ".join(text.partition('id="revision-serving"')[2].partition("</section>")[0].split())


def test_who_has_taken_it_up_is_named_with_when(auditor: Client) -> None:
    process("extender", 2)
    process("binder", 2)
    process("worker", 0)
    text = shown(auditor)
    assert "✓ Every process serves it." in text
    assert f"extender on a, pid 1</a>, since {TAKEN:%Y-%m-%d %H:%M:%S} UTC" in text
    assert "worker" not in text


def test_the_link_to_a_process_leads_to_it_whatever_its_host_is_called(auditor: Client) -> None:
    """In the admin's URLs an underscore begins the code of a character: _40 is that of @."""
    Process.objects.create(
        id="extender@node_40:1:1", role="extender", host="node_40", pid=1, revision=2,
        started_at=TAKEN, heartbeat_at=timezone.now(), revision_at=TAKEN,
    )  # fmt: skip
    url = shown(auditor).partition('href="/admin/scheduler/process/')[2].partition('"')[0]
    assert auditor.get(f"/admin/scheduler/process/{url}").status_code == 200


def test_who_has_not_yet_comes_first(auditor: Client) -> None:
    process("extender", 2)
    process("binder", 1)
    text = shown(auditor)
    assert "! Some processes don't serve it yet." in text
    assert text.index("binder on a, pid 1</a> still serves Revision 1") < text.index("extender on a")


def test_of_a_former_revision_nobody_serves_anything(auditor: Client) -> None:
    process("extender", 2)
    assert "No process serves it any longer." in shown(auditor, 1)


def test_who_is_silent_does_not_count(auditor: Client) -> None:
    process("extender", 2, silent_seconds=60)
    assert "! No process reports that it serves a Revision." in shown(auditor)


def test_the_first_decisions_by_it_are_linked(auditor: Client) -> None:
    assert "It has no Decisions yet" in shown(auditor)
    now = timezone.now()
    for number, (revision, mode) in enumerate(((1, "enforce"), (2, "enforce"), (2, "enforce"), (2, "shadow"))):
        row = Decision(process="a", sequence=number, verb="filter", revision=revision, nodes=10, feasible=number)
        row.mode = mode
        row.at = now + timedelta(seconds=number)
        row.pod_namespace, row.pod_name, row.pod_uid = "default", f"web-{number}", f"uid-{number}"
        row.save(force_insert=True)
    text = shown(auditor)
    assert f'{Decision.objects.get(sequence=1).pk}/change/">' in text
    assert "default/web-1</a>, ✓ 1 of 10 nodes" in text
    assert "default/web-2</a>, ✓ 2 of 10 nodes" in text
    assert "web-0" not in text
    assert "web-3" not in text, "a shadow's answer isn't what its Pod got"


def test_it_says_how_many_waiting_pods_were_woken_for_it(auditor: Client) -> None:
    process("extender", 2)
    assert "· Waiting Pods are woken once every extender serves it." in shown(auditor)
    Requeue.objects.create(cause="revision", revision=2, requeued_at=TAKEN, looked_at=12, pods=1)
    Requeue.objects.create(cause="time", revision=2, requeued_at=TAKEN, looked_at=0, pods=40)
    text = shown(auditor)
    assert "12 refusals of Pods waiting for kube-scheduler were re-evaluated with it, and 1 Pod woken." in text


def test_the_page_looks_again_by_itself_while_the_revision_is_new(auditor: Client) -> None:
    process("extender", 1)
    assert 'hx-trigger="every 2s"' in shown(auditor)
    piece = auditor.get("/admin/scheduler/revisions/2/progress/").content.decode()
    assert piece.strip().startswith("<section")
    assert "still serves Revision 1" in piece
    Process.objects.update(revision=3)
    assert 'hx-trigger="every 2s"' not in shown(auditor)
