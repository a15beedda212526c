"""Whom other labels of a Namespace requeue, and how the watch notes them."""

import json
import logging
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError

from policies.engine.decision import CompiledRevision
from scheduler.cluster.kinds import NAMESPACES, Seen
from scheduler.cluster.reflection import Changes, Reflection
from scheduler.models import RelabelledNamespace, Requeue, WaitingPod
from scheduler.requeue.relabelled import watch_namespaces
from scheduler.requeue.requeuer import ANNOTATION
from tests.component.requeue.world import ALWAYS, NEVER, World, rules

pytestmark = pytest.mark.django_db

OF_THE_TEAM = "namespaceObject.metadata.labels.?team.orValue('') == 'web'"


class TestLabels:
    def refused(self, world: World, *names: str, **more: Any) -> CompiledRevision:
        """Publish a rule that goes by the label team of a Pod's Namespace, and have it refuse Pods of the Namespace `shop`."""
        revision = world.publish(rules("web", 1, OF_THE_TEAM), rules("data", 1, NEVER))
        for name in names or ("a",):
            world.refuse(revision, name, "web", namespace="shop", **more)
        return revision

    def test_requeue_exactly_the_pods_whose_refusal_they_change(self, world: World) -> None:
        revision = self.refused(world, "a")
        world.refuse(revision, "by-another-rule", "data", namespace="shop")
        world.refuse(revision, "elsewhere", "web")
        world.pass_time(seconds=20)
        assert world.tick() == []
        world.pass_time(seconds=1)
        world.relabel("shop", team="web")
        assert world.tick() == ["a"]
        annotations = world.cluster.pods["uid-a"]["metadata"]["annotations"]
        assert annotations == {ANNOTATION: "labels of Namespace shop at 2026-05-01T12:00:21.000000Z"}
        assert Requeue.objects.get(cause="namespace").pods == 1

    def test_that_help_nobody_requeue_nobody_and_are_soon_looked_at_no_more(self, world: World) -> None:
        self.refused(world)
        world.relabel("shop", team="data")
        assert world.tick() == []
        world.pass_time(seconds=5)
        assert world.tick() == []
        assert not RelabelledNamespace.objects.exists()
        world.cluster.listed.clear()
        world.pass_time(seconds=1)
        assert world.tick() == []
        assert world.cluster.listed == []

    def test_that_changed_before_a_refusal_requeue_nobody(self, world: World) -> None:
        world.relabel("shop", team="web")
        world.pass_time(seconds=6)
        world.cluster.namespaces["shop"] = {}
        self.refused(world)
        world.cluster.namespaces["shop"] = {"team": "web"}
        assert world.tick() == []

    def test_by_which_another_assignment_or_none_takes_a_pod_requeue_it(self, world: World) -> None:
        selector = {"matchLabels": {"rules": "strict"}}
        revision = world.publish(rules("web", 1, NEVER), namespaceSelector=selector)
        for name, namespace in (("a", "shop"), ("b", "bank")):
            world.cluster.namespaces[namespace] = {"rules": "strict"}
            world.refuse(revision, name, "web", namespace=namespace)
        assert world.tick() == []
        world.relabel("shop")
        world.relabel("bank", rules="strict", more="labels")
        assert world.tick() == ["a"]

    def test_cost_nothing_where_nothing_goes_by_them(self, world: World) -> None:
        world.refuse(world.publish(rules("web", 1, NEVER)), "a", "web")
        world.tick()
        world.cluster.listed.clear()
        world.relabel("default", team="web")
        world.pass_time(seconds=1)
        assert world.tick() == []
        assert world.cluster.listed == []
        assert not RelabelledNamespace.objects.exists()

    def test_requeue_a_pod_whose_decision_comes_late(self, world: World) -> None:
        revision = self.refused(world, record=False)
        labels = dict(world.cluster.namespaces)
        world.relabel("shop", team="web")
        world.pass_time(seconds=1)
        assert world.tick() == []
        later, world.now = world.now, world.now - timedelta(seconds=1)
        world.cluster.namespaces = labels
        world.refuse(revision, "a", "web", namespace="shop")
        world.now, world.cluster.namespaces = later, {"shop": {"team": "web"}}
        assert world.tick() == ["a"]

    def test_requeue_a_pod_again_that_an_extender_refused_by_the_former_ones(self, world: World) -> None:
        revision = self.refused(world)
        world.relabel("shop", team="web")
        assert world.tick() == ["a"]
        assert world.tick() == []
        world.pass_time(seconds=1)
        world.cluster.namespaces = {}
        world.refuse(revision, "a", "web", namespace="shop")
        world.cluster.namespaces = {"shop": {"team": "web"}}
        assert world.tick() == ["a"]

    def test_stand_for_pods_beyond_the_rate_whatever_is_published_meanwhile(self, world: World) -> None:
        world.requeuer = world.make_requeuer(per_second=1)
        self.refused(world, "a", "b", "c")
        world.relabel("shop", team="web")
        assert world.tick() == ["a"]
        world.pass_time(seconds=6)
        assert world.tick() == ["b"]
        assert not RelabelledNamespace.objects.exists()
        world.publish(rules("web", 1, OF_THE_TEAM), rules("data", 2, ALWAYS))
        assert world.tick() == ["c"]
        assert world.tick() == []

    def test_that_are_taken_back_requeue_nobody_who_waits_for_the_rate(self, world: World) -> None:
        world.requeuer = world.make_requeuer(per_second=1)
        self.refused(world, "a", "b")
        world.relabel("shop", team="web")
        assert world.tick() == ["a"]
        world.relabel("shop")
        assert world.tick() == []
        assert not WaitingPod.objects.exclude(cause="").exists()


def namespace(name: str, version: str, **labels: str) -> Seen[Any]:
    """Return the event of a Namespace as a watch gives it."""
    found = {"metadata": {"name": name, "resourceVersion": version, "labels": labels}}
    event = NAMESPACES.read_event(json.dumps({"type": "MODIFIED", "object": found}).encode())
    assert isinstance(event, Seen)
    return event


@pytest.mark.django_db(transaction=True)
class TestTheWatch:
    def take(self, handler: Any, reflection: Reflection[Any], *events: Seen[Any]) -> None:
        for event in events:
            change = reflection.on_event(event)
            assert change is not None
            handler(Changes([change]))

    def noted(self) -> list[str]:
        return list(RelabelledNamespace.objects.values_list("name", flat=True))

    def test_notes_the_namespaces_whose_labels_changed(self) -> None:
        handler, reflection = watch_namespaces(None)._handler, Reflection[Any]()  # type: ignore[arg-type]
        self.take(handler, reflection, namespace("shop", "1"), namespace("bank", "2", team="bank"))
        self.take(handler, reflection, namespace("shop", "3"))
        assert self.noted() == []
        self.take(handler, reflection, namespace("shop", "4", team="web"))
        assert self.noted() == ["shop"]
        first = RelabelledNamespace.objects.get().relabelled_at
        self.take(handler, reflection, namespace("shop", "5"), Seen("bank", "6", deleted=True))
        assert self.noted() == ["shop"]
        assert RelabelledNamespace.objects.get().relabelled_at > first

    def test_writes_what_was_seen_while_the_database_was_away_after_the_next_list(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(*_: object, **__: object) -> None:
            raise DatabaseError("away")

        handler, reflection = watch_namespaces(None)._handler, Reflection[Any]()  # type: ignore[arg-type]
        self.take(handler, reflection, namespace("shop", "1"))
        with monkeypatch.context() as patched:
            patched.setattr(RelabelledNamespace.objects, "bulk_create", away)
            with pytest.raises(DatabaseError):
                self.take(handler, reflection, namespace("shop", "2", team="web"))
        assert self.noted() == []
        handler(Changes([], replaced=True))
        assert self.noted() == ["shop"]
        RelabelledNamespace.objects.all().delete()
        handler(Changes([], replaced=True))
        assert self.noted() == []


def test_what_labels_requeued_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.refuse(world.publish(rules("web", 1, OF_THE_TEAM)), "a", "web", namespace="shop")
    world.relabel("shop", team="web")
    caplog.set_level(logging.INFO, "berth.requeue")
    world.tick()
    assert "labels of Namespaces changed: 1 waiting Pods requeued" in caplog.text
