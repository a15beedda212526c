"""The ladder of PriorityClasses: by value, with bars of who uses each, what is Kubernetes' own grey, drift marked."""

import re
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client

from policies.admin import ladder
from policies.models import PriorityClassLook, PriorityClassUser
from scheduler.priority_classes.reconcile import look
from tests.component.pages import get, text_of
from tests.component.policies.test_priority_classes import publish_all, save
from tests.component.priority_classes.test_reconcile import make_due
from tests.priority_server import PriorityServer

pytestmark = pytest.mark.django_db
LIST = "/admin/policies/priorityclass/"


def use(name: str, namespace: str, pods: int, workload: str = "web") -> None:
    PriorityClassUser.objects.create(
        priority_class=name, namespace=namespace, kind="Deployment", name=workload, priority=0, pods=pods
    )


@pytest.fixture
def server() -> PriorityServer:
    server = PriorityServer()
    server.have_system_classes()
    server.have("mine", value=7)
    save("batch", 1000)
    save("web", 5000)
    publish_all()
    look(server)
    use("web", "shop", 300)
    use("web", "shop", 100, "api")
    use("web", "blog", 1000)
    use("batch", "night", 140)
    PriorityClassLook.objects.update(users_counted_at=Now())
    return server


def rungs(client: Client) -> dict[str, str]:
    """Return the rows of the ladder by name, as HTML."""
    body = get(client, LIST).content.decode().split('id="ladder"')[1].split("</section>")[0]
    found = re.findall(r"<tr.*?</tr>", body.split("<tbody>")[1], flags=re.DOTALL)
    return {re.findall(r'priority-classes/([^/"]+)/', row)[0]: row for row in found}


def test_all_classes_stand_by_value_whoever_made_them(auditor: Client, server: PriorityServer) -> None:
    wanted = ["system-node-critical", "system-cluster-critical", "web", "batch", "mine"]
    assert list(rungs(auditor)) == wanted


def test_pods_and_namespaces_stand_beside_a_bar_as_long_as_their_share(auditor: Client, server: PriorityServer) -> None:
    found = rungs(auditor)
    assert re.findall(r'<rect width="([\d.]+)"', found["web"]) == ["100.0"]
    assert re.findall(r'<rect width="([\d.]+)"', found["batch"]) == ["10.0"]
    assert "<rect" not in found["mine"]
    said = {name: " ".join(re.sub(r"<[^>]+>", " ", row).split()) for name, row in found.items()}
    assert said["web"].endswith("1,400 2")
    assert said["batch"].endswith("140 1")
    assert said["mine"].endswith("0 0")
    assert "Pods were counted at" in text_of(get(auditor, LIST))


def test_pods_that_were_never_counted_are_no_zero(auditor: Client, server: PriorityServer) -> None:
    PriorityClassUser.objects.all().delete()
    PriorityClassLook.objects.update(users_counted_at=None)
    assert "Pods haven't been counted yet" in text_of(get(auditor, LIST))
    said = {name: " ".join(re.sub(r"<[^>]+>", " ", row).split()) for name, row in rungs(auditor).items()}
    assert {text.endswith("not counted yet") for text in said.values()} == {True}


def test_one_pod_among_very_many_still_has_a_bar(auditor: Client, server: PriorityServer) -> None:
    use("mine", "lab", 1)
    use("web", "big", 1_000_000)
    assert re.findall(r'<rect width="([\d.]+)"', rungs(auditor)["mine"]) == ["1.0"]


def test_what_is_kubernetes_own_is_grey(auditor: Client, server: PriorityServer) -> None:
    grey = {name for name, row in rungs(auditor).items() if "berth-rung-system" in row}
    assert grey == {"system-node-critical", "system-cluster-critical"}


def test_drift_has_a_badge_with_a_sign_and_says_what_differs(auditor: Client, server: PriorityServer) -> None:
    assert "berth-badge-wrong" not in rungs(auditor)["web"]
    server.have("web", value=5000, description="by hand")
    make_due()
    look(server)
    row = rungs(auditor)["web"]
    assert '<span class="berth-badge berth-badge-wrong">! drifted</span>' in row
    assert "description is “by hand”" in row


def test_only_who_may_publish_is_offered_what_others_made(
    operator: Client, auditor: Client, server: PriorityServer
) -> None:
    assert "Take over 1 not made by Berth" in text_of(get(operator, LIST))
    assert "Take over 1" not in text_of(get(auditor, LIST))


def test_a_ladder_that_is_too_high_says_how_much_is_left_out(
    auditor: Client, server: PriorityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "MOST_RUNGS", 3)
    assert list(rungs(auditor)) == ["system-node-critical", "system-cluster-critical", "web"]
    assert "2 more with lower values aren't shown" in text_of(get(auditor, LIST))


def test_many_classes_take_no_more_queries(
    auditor: Client, server: PriorityServer, django_assert_max_num_queries: Any
) -> None:
    for number in range(60):
        save(f"class-{number}", 10_000 + number)
    publish_all()
    with django_assert_max_num_queries(16):
        assert len(rungs(auditor)) == 65


def test_an_empty_ladder_says_who_fills_it(auditor: Client) -> None:
    assert "No class has been seen in the cluster yet" in text_of(get(auditor, LIST))
