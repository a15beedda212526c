"""The story of a node: what its Decisions said of it, and which Pods went there."""

from datetime import timedelta

import pytest

from scheduler.decisions.node_story import Reason, node_story
from scheduler.decisions.search import Search
from scheduler.models import Decision
from tests.builders import make_assignment
from tests.component.controlplane.test_pages import make_decision
from tests.component.decisions.test_story import Asking, pod, rules, snapshot
from tests.component.pages import publish_all
from tests.recording import History

pytestmark = pytest.mark.django_db


@pytest.fixture
def asking(history: History) -> Asking:
    publish_all(rules("data"), make_assignment("all", "team", match={}))
    return Asking(history)


def test_each_decision_accepted_a_node_refused_it_did_not_ask_about_it_or_is_unknown(
    history: History, asking: Asking
) -> None:
    pruned = asking.filter(pod(), snapshot(n1="data"))
    asking.filter(pod(), snapshot(n1="web", n2="data"))
    newest = asking.filter(pod(), snapshot(n1="web", n2="data"))
    asking.filter(pod(), snapshot(n1="data"))
    asking.filter(pod(), snapshot(n2="data"))
    history.settle()
    Decision.objects.filter(pk=pruned).update(body=b"")
    found = node_story("n1", Search())
    assert (found.read, found.accepted, found.refused, found.not_asked, found.unknown) == (5, 1, 2, 1, 1)
    assert found.reasons == [Reason("team", "another team", 2, Decision.objects.get(pk=newest))]
    assert found.since == Decision.objects.get(pk=pruned).at
    assert [(each.accepted, each.refused) for each in found.periods] == [(1, 2)]


def test_a_pod_that_was_bound_to_a_node_twice_is_named_once_and_those_elsewhere_not() -> None:
    first = make_decision(pod_uid="a", placed_on="n1", best="n1")
    again = make_decision(pod_uid="a", placed_on="n1", best="n2", at=first.at + timedelta(seconds=1))
    make_decision(pod_uid="b", placed_on="n2", best="n1")
    found = node_story("n1", Search())
    assert {row.pod_uid for row in found.placed} == {"a"}
    assert len(found.placed) == 1
    assert (found.best, again.placed_on) == (2, "n1")
