"""Decisions whose details were pruned: pages and commands say so, and invent no difference, no refusal and no missing question."""

import io

import msgspec
import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from scheduler.decisions.causes import causes_of
from scheduler.decisions.reading import PRUNED, read_decision
from scheduler.decisions.record import AS_COLUMNS, body_bytes, make_compressor
from scheduler.decisions.remedies import remedies_of
from scheduler.decisions.story import story_of
from scheduler.decisions.time_limit import TimeLimit
from scheduler.models import Decision
from scheduler.preview import PreviewError, pod_of_decision
from tests.builders import make_assignment
from tests.component.decisions.test_story import Asking, pod, rules, snapshot
from tests.component.pages import get, publish_all, text_of
from tests.recording import History

pytestmark = pytest.mark.django_db

NOT_KNOWN = "what changed in the Pod and the nodes isn't known: the details of {} are gone"


@pytest.fixture
def attempts(history: History) -> list[Decision]:
    """Three attempts with the same answer: the Pod may use n2, and not n1."""
    publish_all(rules("data"), make_assignment("all", "team", match={}))
    asking, seen = Asking(history), snapshot(n1="web", n2="data")
    for _ in range(3):
        asking.filter(pod(), seen)
    history.settle()
    return list(Decision.objects.order_by("at"))


def prune(row: Decision, body: bytes = b"") -> None:
    Decision.objects.filter(pk=row.pk).update(body=body)
    row.body = body


def damage_pod(row: Decision) -> None:
    """Damage the JSON of the Pod inside a body that can be decompressed."""
    body = body_bytes(bytes(row.body)).replace(b'"metadata"', b'"metadat\x01"')
    prune(row, AS_COLUMNS + make_compressor().compress(body))


def changes_and_times() -> list[tuple[list[str], int]]:
    story = story_of("default", "web-1")
    assert story is not None
    return [(attempt.changed, attempt.times) for attempt in reversed(story.attempts)]


def test_a_story_invents_no_change_beside_attempts_whose_details_were_pruned(attempts: list[Decision]) -> None:
    prune(attempts[0])
    assert changes_and_times() == [([], 1), ([NOT_KNOWN.format("the former attempt")], 2)]
    prune(attempts[1])
    assert changes_and_times() == [([], 2), ([NOT_KNOWN.format("the former attempt")], 1)]


def test_a_story_says_where_a_legal_hold_kept_the_details_of_the_former_attempt_only(attempts: list[Decision]) -> None:
    prune(attempts[2])
    assert changes_and_times() == [([], 2), ([NOT_KNOWN.format("this attempt")], 1)]


def test_pruned_attempts_with_other_numbers_of_nodes_are_told_one_by_one(attempts: list[Decision]) -> None:
    for row in attempts:
        prune(row)
    Decision.objects.filter(pk=attempts[2].pk).update(feasible=2)
    assert changes_and_times() == [([], 2), ([], 1)]


def test_the_rules_that_changed_are_told_also_of_pruned_attempts(history: History, attempts: list[Decision]) -> None:
    publish_all(rules("web"))
    Asking(history).filter(pod(), snapshot(n1="web", n2="data"))
    history.settle()
    Decision.objects.update(body=b"")
    Decision.objects.filter(rule_set_version=2).update(at=attempts[-1].at.replace(minute=5))
    newest = changes_and_times()[-1][0]
    assert "the rules changed: team v1 became team v2" in newest
    assert not [said for said in newest if "nodes" in said]


def test_the_page_of_a_decision_says_that_its_details_were_pruned(auditor: Client, attempts: list[Decision]) -> None:
    row = attempts[0]
    prune(row)
    page = f"/admin/scheduler/decision/{row.pk}/"
    said = text_of(get(auditor, f"{page}change/"))
    assert f"Its Pod, its nodes and each rule's result are unknown: {PRUNED}." in said
    assert "default/web-1 may use 1 of 2 nodes." in said
    assert "No rule refused a node" not in said
    assert "This Decision has no nodes" not in said
    for asked in (f"{page}change/?why=n1", f"{page}nodes/?node=n1"):
        said = text_of(get(auditor, asked))
        assert PRUNED in said
        assert "wasn't asked about" not in said


def test_two_decisions_are_not_compared_without_the_details_of_one(auditor: Client, attempts: list[Decision]) -> None:
    prune(attempts[0])
    page = f"/admin/scheduler/decision/{attempts[0].pk}/beside/{attempts[2].pk}/"
    for asked in (page, f"{page}?node=n1"):
        said = text_of(get(auditor, asked))
        assert f"Left: Its Pod, its nodes and each rule's result are unknown: {PRUNED}." in said
        assert "differ on" not in said
        assert "not asked about" not in said
    assert causes_of(attempts[0], attempts[2], TimeLimit()).fault == f"it can't be decided anew: {PRUNED}"


def test_the_page_of_a_node_does_not_take_pruned_decisions_for_ones_about_other_nodes(
    auditor: Client, attempts: list[Decision]
) -> None:
    prune(attempts[0])
    prune(attempts[1], b"\x01broken")
    said = text_of(get(auditor, "/admin/scheduler/nodes/n2/"))
    assert "1 allowed n2, 0 refused it, and 0 weren't asked about it. Of 2 it isn't known" in said
    assert "It wasn't refused." not in said


def test_no_remedy_and_no_pod_to_preview_is_made_up_for_a_pruned_decision(attempts: list[Decision]) -> None:
    row = attempts[0]
    prune(row)
    found = remedies_of(row)
    assert (found.sentences, found.fault) == ([], f"what would help isn't known: {PRUNED}")
    with pytest.raises(PreviewError, match="is unknown: the Decision's details were pruned"):
        pod_of_decision(str(row.pk))


def test_explain_says_that_the_details_were_pruned(attempts: list[Decision]) -> None:
    for row in attempts:
        prune(row)
    out = io.StringIO()
    call_command("explain", "web-1", stdout=out)
    assert f"what each rule said isn't known: {PRUNED}" in out.getvalue()
    with pytest.raises(CommandError, match="what rules said about n1 for default/web-1 isn't known"):
        call_command("explain", "web-1", "--node", "n1")


def test_a_damaged_pod_inside_a_record_stops_neither_its_story_nor_its_page(
    auditor: Client, attempts: list[Decision]
) -> None:
    damage_pod(attempts[2])
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(read_decision(attempts[2]).pod)
    assert changes_and_times() == [([], 2), ([NOT_KNOWN.format("this attempt")], 1)]
    said = text_of(get(auditor, f"/admin/scheduler/decision/{attempts[2].pk}/change/"))
    assert "The body of this Decision can't be read: the JSON of a Pod in it can't be read" in said
    assert auditor.get(f"/api/v1/decisions/{attempts[2].pk}").status_code == 409
