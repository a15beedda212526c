"""Canaries decide for some workloads, by a draw that is each workload's own and stays."""

from typing import Any

import pytest

from policies.engine.decision import EPOCH, CompiledRevision
from policies.engine.objects.owners import deployment_of, draw, owner_kinds_of, workload_of
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import Assignment, Match, Revision, RuleSet
from tests.builders import make_pod


def owned(kind: str, owner: str, uid: str = "", **pod: Any) -> Pod:
    """Make a Pod that something controls."""
    made = make_pod(**pod)
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": "beside", "uid": "beside"},
        {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": uid, "controller": True},
    ]
    return Pod.from_json(made)


def deployed(name: str, template: str, pod: str = "p", namespace: str = "shop") -> Pod:
    """Make a Pod of a Deployment, of one of its ReplicaSets."""
    labels = {"pod-template-hash": template}
    return owned("ReplicaSet", f"{name}-{template}", f"uid-{template}", name=pod, labels=labels, namespace=namespace)


class TestTheOwner:
    @pytest.mark.parametrize(
        ("pod", "kinds"),
        [
            (Pod.from_json(make_pod()), ("none",)),
            (owned("Job", "nightly", "u"), ("Job",)),
            (deployed("web", "5d4f"), ("ReplicaSet", "Deployment")),
            (owned("ReplicaSet", "web-5d4f", "u"), ("ReplicaSet",)),
            (owned("ReplicaSet", "web", "u", labels={"pod-template-hash": "5d4f"}), ("ReplicaSet",)),
            (owned("ReplicaSet", "-5d4f", "u", labels={"pod-template-hash": "5d4f"}), ("ReplicaSet",)),
            (owned("Rollout", "web-5d4f", "u", labels={"pod-template-hash": "5d4f"}), ("Rollout",)),
        ],
    )
    def test_is_of_the_kind_that_the_pod_shows(self, pod: Pod, kinds: tuple[str, ...]) -> None:
        assert owner_kinds_of(pod) == kinds

    def test_a_deployment_is_known_by_the_name_of_its_replica_set(self) -> None:
        assert deployment_of(deployed("web-front", "5d4f")) == "web-front"

    @pytest.mark.parametrize(
        ("pod", "workload"),
        [
            (deployed("web", "5d4f"), "Deployment/shop/web"),
            (owned("Job", "nightly", "uid-job"), "uid-job"),
            (owned("Job", "nightly", namespace="shop"), "Job/shop/nightly"),
            (Pod.from_json(make_pod("a", uid="uid-a")), "uid-a"),
            (Pod.from_json({"metadata": {"name": "a", "namespace": "shop"}}), "Pod/shop/a"),
        ],
    )
    def test_is_what_pods_of_one_workload_share(self, pod: Pod, workload: str) -> None:
        assert workload_of(pod) == workload


class TestADraw:
    def test_is_the_same_in_any_process(self) -> None:
        assert [draw("a", Pod.from_json(make_pod(uid=uid))) for uid in ("1", "2", "3")] == [72, 95, 42]

    def test_is_one_for_all_pods_of_a_deployment_also_across_a_rollout(self) -> None:
        pods = [deployed("web", template, f"p{number}") for template in ("old", "new") for number in range(20)]
        assert len({draw("a", pod) for pod in pods}) == 1

    def test_is_another_one_in_another_namespace_and_for_another_assignment(self) -> None:
        many = [(name, namespace) for name in "abcdefgh" for namespace in ("shop", "bank")]
        assert len({draw(name, deployed("web", "x", namespace=namespace)) for name, namespace in many}) > 8

    def test_hits_every_share_alike(self) -> None:
        drawn = [draw("a", Pod.from_json(make_pod(uid=f"u{number}"))) for number in range(10_000)]
        assert set(drawn) == set(range(100))
        for percent in (1, 10, 50, 90):
            assert abs(sum(each < percent for each in drawn) - 100 * percent) < 200


def revision(*assignments: Assignment) -> CompiledRevision:
    sets = [RuleSet(name=name) for name in ("new", "old", "other")]
    return CompiledRevision(Revision(number=1, rule_sets=sets, assignments=list(assignments)))


NOTHING = Snapshot.of([], [])
CANARY = Assignment(name="canary", rule_set="new", order=1, mode="canary", percent=30)


class TestACanary:
    def pods(self) -> list[Pod]:
        return [deployed(f"web-{number}", "x") for number in range(200)]

    def test_takes_the_workloads_below_its_percent_and_the_next_assignment_takes_the_rest(self) -> None:
        compiled = revision(CANARY, Assignment(name="rest", rule_set="old", order=2))
        for pod in self.pods():
            choice = compiled.choose(pod, NOTHING, EPOCH)
            assert choice.enforced is not None
            assert choice.enforced[0].name == ("canary" if draw("canary", pod) < 30 else "rest")
            assert choice.draws == [(CANARY, draw("canary", pod))]

    def test_leaves_a_pod_to_nobody_where_nobody_is_behind_it(self) -> None:
        compiled = revision(CANARY)
        taken = [compiled.choose(pod, NOTHING, EPOCH).enforced is not None for pod in self.pods()]
        assert taken == [draw("canary", pod) < 30 for pod in self.pods()]

    def test_keeps_those_that_it_has_when_its_percent_grows(self) -> None:
        more = revision(Assignment(name="canary", rule_set="new", mode="canary", percent=60))
        kept = [pod for pod in self.pods() if revision(CANARY).choose(pod, NOTHING, EPOCH).enforced]
        assert kept
        assert all(more.choose(pod, NOTHING, EPOCH).enforced for pod in kept)

    def test_of_100_percent_takes_all(self) -> None:
        all_of_them = revision(Assignment(name="canary", rule_set="new", mode="canary", percent=100))
        assert all(all_of_them.choose(pod, NOTHING, EPOCH).enforced for pod in self.pods())

    def test_draws_only_where_it_matches_and_is_reached(self) -> None:
        first = Assignment(name="first", rule_set="old", order=0, match=Match(namespaces=["shop"]))
        elsewhere = Assignment(name="bank", rule_set="new", mode="canary", percent=50, match=Match(namespaces=["bank"]))
        assert revision(first, CANARY).choose(self.pods()[0], NOTHING, EPOCH).draws == []
        assert revision(elsewhere).choose(self.pods()[0], NOTHING, EPOCH).draws == []

    def test_stands_beside_shadows_in_their_order(self) -> None:
        shadow = Assignment(name="shadow", rule_set="other", order=0, mode="shadow")
        compiled = revision(shadow, CANARY, Assignment(name="rest", rule_set="old", order=2))
        passed = next(pod for pod in self.pods() if draw("canary", pod) >= 30)
        choice = compiled.choose(passed, NOTHING, EPOCH)
        assert [each.name for each, _ in choice.shadows] == ["shadow"]
        assert choice.enforced is not None
        assert choice.enforced[0].name == "rest"
