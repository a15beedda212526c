"""The page of a PriorityClass of the cluster: beside what is published, who uses it, taken over, put back, gone back."""

import html
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.db.models.functions import Now
from django.test import Client

from policies import publishing
from policies.models import Change, PriorityClass, PriorityClassLook, PriorityClassUser
from scheduler.cluster.errors import APIUnavailableError
from scheduler.priority_classes import users
from scheduler.priority_classes.reconcile import look
from scheduler.priority_classes.users import Counter
from tests.builders import make_priority_class
from tests.component.pages import change_url, confirmed, get, text_of
from tests.priority_server import PriorityServer
from tests.unit.priority_classes.test_users import Pods, pod

pytestmark = pytest.mark.django_db

PAGE, ADOPT = "/admin/scheduler/priority-classes/batch/", "/admin/scheduler/priority-classes/adopt/"


def publish(name: str = "batch", value: int = 1000, **spec: Any) -> None:
    edit = publishing.Edit.of(make_priority_class(name, value, **spec))
    change = publishing.open_change(title="tested", edits=[edit], by="ops")
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)


def look_now(server: PriorityServer) -> None:
    PriorityClassLook.objects.update(next_at=Now() - timedelta(seconds=1))
    look(server)


def count_users_of(client: Pods) -> bool:
    """Count as the worker does when its time has come."""
    return Counter().tick(client)


@pytest.fixture
def server() -> PriorityServer:
    server = PriorityServer()
    server.have_system_classes()
    return server


def test_what_others_changed_stands_beside_what_is_published(operator: Client, server: PriorityServer) -> None:
    publish(description="ours")
    look_now(server)
    assert "! theirs" not in text_of(get(operator, PAGE))
    server.have("batch", description="theirs")
    look_now(server)
    said = text_of(get(operator, PAGE))
    assert "! drifted: Changed in the cluster since Berth applied it: description is “theirs”." in said
    assert "description ours ! theirs" in said
    assert "value 1,000 1,000" in said


def test_where_the_cluster_has_only_kubernetes_own_classes_there_is_none_to_take_over(
    operator: Client, server: PriorityServer
) -> None:
    look_now(server)
    assert "each class of the cluster is published here or Kubernetes' own" in text_of(get(operator, ADOPT))


def test_what_others_changed_is_put_back_by_a_person(operator: Client, server: PriorityServer) -> None:
    publish(description="ours")
    look_now(server)
    server.have("batch", description="theirs")
    look_now(server)
    assert "will be put back within a few seconds" in confirmed(operator, f"{PAGE}put-back/", "not agreed")
    look(server)
    assert server.classes["batch"]["description"] == "ours"


def test_nobody_puts_back_what_came_to_the_cluster_while_the_page_was_made(
    operator: Client, server: PriorityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(description="ours")
    look_now(server)
    server.have("batch", description="theirs")
    look_now(server)
    digest = publishing.digest_of_putting_back

    def digest_late(name: str) -> str:
        server.have("batch", description="later")
        look_now(server)
        return digest(name)

    with monkeypatch.context() as patched:
        patched.setattr(publishing, "digest_of_putting_back", digest_late)
        shown = get(operator, f"{PAGE}put-back/")
    assert "description is “later”" in text_of(shown)


def test_what_others_changed_is_published_as_a_change(operator: Client, server: PriorityServer) -> None:
    publish(description="ours")
    look_now(server)
    server.have("batch", description="theirs", value=7)
    look_now(server)
    assert "description “ours” → “theirs”" in text_of(get(operator, f"{ADOPT}?name=batch"))
    confirmed(operator, f"{ADOPT}?name=batch", "they were right")
    assert Change.objects.latest("pk").title == "Take over batch: they were right"
    look(server)
    live = publishing.live_priority_classes()["batch"]
    assert (live.value, live.description, live.version) == (7, "theirs", 2)
    assert "✓ applied" in text_of(get(operator, PAGE))
    assert server.changes[-1] == "PATCH batch"


def test_nobody_takes_over_a_class_in_place_of_a_version_that_they_were_not_shown(
    operator: Client, server: PriorityServer
) -> None:
    server.have("batch", value=7)
    look_now(server)
    shown = get(operator, f"{ADOPT}?name=batch")
    publish(value=1000)
    data = {"reason": "they were right", "digest": shown.context["form"]["digest"].value()}
    assert "Somebody was faster" in text_of(operator.post(f"{ADOPT}?name=batch", data))
    assert publishing.live_priority_classes()["batch"].value == 1000


def test_all_classes_of_others_are_taken_over_at_once(operator: Client, server: PriorityServer) -> None:
    server.have("batch", value=7, description="by hand")
    server.have("web", value=9, globalDefault=True)
    look_now(server)
    said = text_of(get(operator, ADOPT))
    assert "PriorityClass batch" in said
    assert "PriorityClass web" in said
    assert "system-" not in said
    confirmed(operator, ADOPT, "ours from now on")
    look(server)
    live = publishing.live_priority_classes()
    assert {name: (each.value, each.adopt, each.global_default) for name, each in live.items()} == {
        "batch": (7, True, False),
        "web": (9, True, True),
    }
    assert server.classes["batch"]["metadata"]["annotations"]["berth/origin"] == "adopted"


def test_what_moved_since_it_was_looked_at_isnt_taken_over(operator: Client, server: PriorityServer) -> None:
    server.have("batch", value=7)
    look_now(server)
    page = get(operator, ADOPT)
    server.have("batch", description="moved")
    look_now(server)
    data = {"reason": "x", "digest": page.context["form"]["digest"].value()}
    assert "Somebody was faster" in text_of(operator.post(ADOPT, data))
    assert publishing.live_priority_classes() == {}


def test_a_class_goes_back_to_an_older_version_with_its_value(operator: Client, server: PriorityServer) -> None:
    publish()
    look_now(server)
    publish(value=2000)
    look_now(server)
    said = text_of(get(operator, f"{PAGE}go-back/1/"))
    assert "value 2,000 → 1,000" in said or "1,000" in said
    assert "batch is deleted in the cluster and made anew: value 2,000" in said
    confirmed(operator, f"{PAGE}go-back/1/", "too high")
    look(server)
    assert publishing.live_priority_classes()["batch"].version == 1
    assert server.classes["batch"]["value"] == 1000
    assert "from 2,000 to 1,000, done" in text_of(get(operator, PAGE))


def test_one_that_was_taken_out_comes_back_by_its_version(operator: Client, server: PriorityServer) -> None:
    publish()
    change = publishing.open_change(title="x", edits=[publishing.Edit("PriorityClass", "batch", None)], by="ops")
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    assert "Go back to this" in text_of(get(operator, PAGE))
    confirmed(operator, f"{PAGE}go-back/1/", "needed")
    assert publishing.live_priority_classes()["batch"].version == 1


def test_who_uses_it_is_counted_when_somebody_looks(operator: Client, server: PriorityServer) -> None:
    publish()
    look_now(server)
    assert "haven't been counted yet" in text_of(get(operator, PAGE))
    pods = [pod(f"web-{number}", owner=("Job", "web")) for number in range(3)]
    assert count_users_of(Pods(*pods, pod("old", owner=("Job", "web"), priority=7)))
    assert not count_users_of(Pods())  # a minute isn't over
    said = text_of(get(operator, PAGE))
    assert "Used by 4 Pods of 1 workload in 1 namespace" in said
    assert "shop Job web 3 1,000" in said
    assert "! 1 Pod with an outdated priority" in said
    assert "shop Job web 7 1: old" in said
    assert 'workloads/shop/Job/web/"' in get(operator, PAGE).content.decode()


def test_a_class_leads_to_its_form_who_may_edit_it_and_everybody_to_all_classes(
    operator: Client, auditor: Client, server: PriorityServer
) -> None:
    publish()
    look_now(server)
    form = f'href="/admin/policies/priorityclass/{PriorityClass.objects.get().pk}/change/">Edit<'
    assert form in get(operator, PAGE).content.decode()
    assert ">Edit<" not in get(auditor, PAGE).content.decode()
    assert 'href="/admin/policies/priorityclass/">All classes<' in get(auditor, PAGE).content.decode()


def test_many_workloads_come_page_by_page(
    operator: Client, server: PriorityServer, django_assert_max_num_queries: Any
) -> None:
    publish()
    look_now(server)
    PriorityClassUser.objects.bulk_create(
        PriorityClassUser(
            priority_class="batch", namespace="shop", kind="Job", name=f"j{number:04}", priority=1000, pods=1
        )
        for number in range(120)
    )
    PriorityClassLook.objects.update(users_counted_at=Now())
    with django_assert_max_num_queries(40):
        said = text_of(get(operator, PAGE))
    assert "j0049" in said
    assert "j0050" not in said
    assert "j0119" in text_of(get(operator, f"{PAGE}?p=3"))


def test_each_of_its_two_lists_keeps_its_page_while_the_other_is_turned(
    operator: Client, server: PriorityServer
) -> None:
    publish()
    look_now(server)
    PriorityClassUser.objects.bulk_create(
        PriorityClassUser(
            priority_class="batch", namespace="shop", kind="Job", name=f"j{number:04}", priority=7, pods=1
        )
        for number in range(150)
    )
    page = html.unescape(get(operator, f"{PAGE}?p=2&f=3").content.decode())
    assert 'href="?p=3&f=3#users"' in page
    assert 'href="?p=2&f=2#former"' in page


def test_namespaces_that_have_no_room_are_counted(operator: Client, server: PriorityServer) -> None:
    publish()
    look_now(server)
    PriorityClassUser.objects.bulk_create(
        PriorityClassUser(
            priority_class="batch", namespace=f"n{number:04}", kind="Job", name="j", priority=1000, pods=1
        )
        for number in range(53)
    )
    assert "n0049 1 and 3 more." in text_of(get(operator, PAGE))


def test_publishing_another_value_names_the_workloads_that_have_it(operator: Client, server: PriorityServer) -> None:
    publish()
    look_now(server)
    get(operator, PAGE)
    count_users_of(Pods(pod("web-1", owner=("Job", "web"))))
    said = publishing.replaced_in_cluster([make_priority_class("batch", 2000)])
    assert len(said) == 1
    assert "Pods that are there keep 1,000; new ones get 2,000" in said[0]
    assert "Job shop/web (1)" in said[0]


def test_publishing_a_class_that_others_changed_says_what_of_theirs_it_overwrites(
    operator: Client, server: PriorityServer
) -> None:
    publish(description="ours")
    look_now(server)
    assert publishing.cluster_warnings([make_priority_class("batch", 2000)]) == []
    server.have("batch", description="theirs")
    look_now(server)
    (said,) = publishing.cluster_warnings([make_priority_class("batch", 2000)])
    assert said.startswith(
        "! batch in the cluster isn't as Berth applied it, and what others made of it is overwritten."
    )
    assert "description is “theirs”" in said
    assert publishing.cluster_warnings([make_priority_class("batch", 1000, description="theirs")]) == []
    publishing.open_change(title="t", edits=[publishing.Edit.of(make_priority_class("batch", 2000))], by="operator")
    page = text_of(get(operator, f"/admin/policies/change/{Change.objects.latest('pk').pk}/change/"))
    assert "what others made of it is overwritten" in page


def test_a_class_that_nobody_knows_isnt_found(operator: Client) -> None:
    assert operator.get(PAGE).status_code == 404


def test_who_may_only_look_has_no_acts(auditor: Client, server: PriorityServer) -> None:
    publish(description="ours")
    look_now(server)
    server.have("batch", description="theirs")
    look_now(server)
    assert "Put back" not in text_of(get(auditor, PAGE))
    for path in (f"{PAGE}put-back/", f"{PAGE}go-back/1/", ADOPT):
        assert auditor.get(path).status_code == 403


def test_where_review_is_required_taking_over_and_going_back_ask_for_it(
    operator: Client, server: PriorityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish()
    publish(value=2000)
    server.have("web", value=9)
    look_now(server)
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True))
    for path in (f"{ADOPT}?name=web", f"{PAGE}go-back/1/"):
        assert "is in review. It goes live once it is approved and published" in confirmed(operator, path, "asked")
    assert Change.objects.filter(state="in_review").count() == 2
    assert set(publishing.live_priority_classes()) == {"batch"}


def test_the_page_of_a_change_says_who_keeps_a_former_value(operator: Client, server: PriorityServer) -> None:
    publish()
    look_now(server)
    edit = publishing.Edit.of(make_priority_class("batch", 2000))
    change = publishing.open_change(title="more", edits=[edit], by="ops")
    path = f"/admin/policies/change/{change.pk}/change/"
    assert "batch is deleted in the cluster and made anew" in text_of(get(operator, path))
    assert count_users_of(Pods(pod("web-1", owner=("Job", "web"))))
    assert "Used by 1 Pod of 1 workload in 1 namespace" in text_of(get(operator, path))


def test_no_more_workloads_are_kept_than_a_limit_and_it_says_so(
    operator: Client, server: PriorityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "MOST_WORKLOADS", 2)
    publish()
    look_now(server)
    get(operator, PAGE)
    pods = [pod(f"{name}-{number}", owner=("Job", name)) for name in "abc" for number in range(2 if name != "b" else 1)]
    assert count_users_of(Pods(*pods))
    assert sorted(PriorityClassUser.objects.values_list("name", flat=True)) == ["a", "c"]
    assert "! Only the 2 workloads with the most Pods are kept of 3." in text_of(get(operator, PAGE))


def test_a_new_count_is_made_when_somebody_asks(operator: Client, auditor: Client, server: PriorityServer) -> None:
    publish()
    look_now(server)
    assert count_users_of(Pods())
    assert "No Pod uses it" in text_of(get(operator, PAGE))
    assert auditor.post(f"{PAGE}count/").status_code == 403
    operator.post(f"{PAGE}count/")
    assert count_users_of(Pods(pod("web-1", owner=("Job", "web"))))
    assert "Used by 1 Pod of 1 workload" in text_of(get(operator, PAGE))


def test_a_cluster_that_cant_be_counted_is_said_and_left_alone_until_later_or_until_somebody_asks(
    operator: Client, server: PriorityServer, caplog: pytest.LogCaptureFixture
) -> None:
    publish()
    look_now(server)

    class Away(Pods):
        def list_pages(self, **_: Any) -> Any:
            raise APIUnavailableError("connection refused")

    counter = Counter()
    for _ in range(3):
        assert not counter.tick(Away())
    assert caplog.text.count("can't be counted: connection refused") == 1
    assert "! connection refused" in text_of(get(operator, PAGE))
    operator.post(f"{PAGE}count/")
    assert counter.tick(Pods(pod("web-1", owner=("Job", "web"))))
    said = text_of(get(operator, PAGE))
    assert "Used by 1 Pod of 1 workload" in said
    assert "connection refused" not in said


@pytest.mark.parametrize(("policy", "is_in_the_way"), [("Keep", True), ("Delete", False)])
def test_a_global_default_that_is_removed_and_stays_is_named_before_another_is_published(
    operator: Client, server: PriorityServer, policy: str, is_in_the_way: bool
) -> None:
    publish("old", globalDefault=True, deletionPolicy=policy)
    look_now(server)
    new = publishing.Edit.of(make_priority_class("new", 2000, globalDefault=True))
    edits = [publishing.Edit(publishing.Kind.PRIORITY_CLASS, "old", None), new]
    change = publishing.open_change(title="t", edits=edits, by="operator")
    said = "! new can't become the global default: the cluster's old is, and stays there once it is removed here."
    assert (said in text_of(get(operator, change_url("change", change.pk)))) is is_in_the_way
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    for _ in range(3):
        look_now(server)
    assert ("new" not in server.classes) is is_in_the_way
    assert bool(publishing.cluster_warnings([new.value], [])) is is_in_the_way
    assert publishing.cluster_warnings([make_priority_class("plain", 3000)], []) == []
