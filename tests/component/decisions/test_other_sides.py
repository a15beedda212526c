"""What would have been on the other side of a canary, as the page of a Decision shows it."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.test import Client

from policies import publishing
from policies.engine.decision import CompiledRevision, decide
from policies.engine.objects.node import Node
from policies.engine.objects.owners import draw
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.scheduling import judge, pick, with_default_filters
from scheduler.decisions.masking import Masks
from scheduler.decisions.record import AS_COLUMNS, Entry, NodesEntry, make_compressor, read_body, store_json
from scheduler.models import Decision, SnapshotPart
from tests.builders import make_assignment, make_node, make_pod, make_rule_set
from tests.component.pages import change_url, publish_all, text_of
from tests.recording import History

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 1, tzinfo=UTC)
PERCENT = 50
# Rule sets by what they do with the nodes n1, n2 and n3.
ALL: dict[str, Any] = {"filters": [{"name": "all", "expression": "true"}]}
ONLY_N1 = {"filters": [{"name": "only-n1", "expression": "node.metadata.name == 'n1'", "reason": "no"}]}
NONE = {"filters": [{"name": "none", "expression": "false", "reason": "no"}]}
LIKES_N1, LIKES_N2 = (
    {"scores": [{"name": "likes", "expression": f"node.metadata.name == '{name}' ? 9 : 0", "bounds": [0, 9]}]}
    for name in ("n1", "n2")
)
BY_NEXT = "Had canary next taken the Pod, by next v1, Assignment next:"
BY_NOW = "Had canary next skipped the Pod, by now v1, Assignment now:"


def a_pod(*, taken: bool, **fields: Any) -> Pod:
    """Return a Pod that the canary takes, or passes over."""
    pods = (Pod.from_json(make_pod("web-1", uid=f"uid-{number}", **fields)) for number in range(100))
    return next(pod for pod in pods if (draw("next", pod) < PERCENT) is taken)


def asked(history: History, *, taken: bool, verb: str = "filter", **fields: Any) -> Decision:
    """Decide about a Pod as the extender and the binder do, by what is published."""
    revision = CompiledRevision(publishing.current_revision())
    snapshot = Snapshot.of([Node.from_json(make_node(f"n{number}")) for number in (1, 2, 3)])
    pod, rows = a_pod(taken=taken, **fields), snapshot.table.all_rows()
    choice = revision.choose(pod, snapshot, AT)
    common: dict[str, Any] = {"verb": verb, "pod": pod, "now": AT, "revision": revision, "draws": choice.draws}
    about: dict[str, Any] = {"snapshot": snapshot, "names": list(snapshot.nodes)}
    entry: Entry = NodesEntry(**common, **about)
    if choice.enforced:
        assignment, rule_set = choice.enforced
        rule_set = with_default_filters(rule_set) if verb == "schedule" else rule_set
        cycle = Cycle(pod=pod, snapshot=snapshot, now=AT, params=rule_set.params)
        answer = (
            judge(rule_set, cycle, rows)
            if verb == "schedule"
            else decide(rule_set, cycle, rows, filtering=verb == "filter", scoring=verb == "prioritize")
        )
        common |= {"assignment": assignment, "rule_set": rule_set}
        if verb == "schedule":
            found = pick(answer, cycle, rows, after="", is_default_profile=False)
            common["notes"] = {} if found is None else {"node": answer.name_at(found)}
        entry = Entry(**common, nodes=1) if verb == "bind" else NodesEntry(**common, **about, answer=answer)
    history.recorder.record(entry)
    history.settle()
    return Decision.objects.get(pk=entry.id)


def publish_canary(next_rules: dict[str, Any], now_rules: dict[str, Any] | None) -> None:
    """Publish a canary in front of what is enforced today, if something is."""
    publish_all(
        make_rule_set("next", **next_rules),
        make_assignment("next", "next", order=1, mode="canary", percent=PERCENT),
    )
    if now_rules is not None:
        publish_all(make_rule_set("now", **now_rules), make_assignment("now", "now", order=2))


def shown(auditor: Client, decision: Decision) -> str:
    """Return the piece that the page asks for."""
    piece = f"/admin/scheduler/decision/{decision.pk}/shadows/"
    assert f'hx-get="{piece}"' in auditor.get(change_url("decision", decision.pk)).content.decode()
    return text_of(auditor.get(piece))


@pytest.mark.parametrize("verb", ["filter", "schedule"])
def test_a_canary_that_was_passed_over_would_have_refused_the_node(
    history: History, auditor: Client, verb: str
) -> None:
    publish_canary(ONLY_N1, ALL)
    decision = asked(history, taken=False, verb=verb)
    Decision.objects.update(placed_on="n2")
    said = shown(auditor, decision)
    assert said == f"The other side of the canary {BY_NEXT} It would have refused the node that the Pod got."
    Decision.objects.update(placed_on="n1")
    assert f"{BY_NEXT} It agrees" in shown(auditor, decision)


@pytest.mark.parametrize(
    ("next_rules", "now_rules", "verb", "says"),
    [
        (ALL, NONE, "filter", "It would have refused all nodes, though the Pod had some."),
        (NONE, ALL, "filter", "It would have allowed a node for a Pod that got none."),
        (LIKES_N1, LIKES_N2, "prioritize", "It would have chosen another node."),
        (ALL, ONLY_N1, "filter", "It depends on the node that the Pod gets, which isn't known yet."),
    ],
)
def test_of_a_pod_that_the_canary_took_the_next_assignment_is_asked(
    history: History, auditor: Client, next_rules: dict[str, Any], now_rules: dict[str, Any], verb: str, says: str
) -> None:
    publish_canary(next_rules, now_rules)
    assert f"{BY_NOW} {says}" in shown(auditor, asked(history, taken=True, verb=verb))


def test_where_nothing_stands_behind_the_canary_every_node_would_have_passed(history: History, auditor: Client) -> None:
    publish_canary(NONE, None)
    said = shown(auditor, asked(history, taken=True))
    assert "Had canary next skipped the Pod, by no rule set, Assignment none: It would have allowed a node" in said
    said = shown(auditor, asked(history, taken=True, verb="schedule"))
    assert "Assignment none: It would have allowed a node for a Pod that got none." in said


def test_the_two_sides_of_each_canary_are_said(history: History, auditor: Client) -> None:
    publish_canary(ONLY_N1, ALL)
    publish_all(make_rule_set("other", **NONE), make_assignment("other", "other", order=0, mode="canary", percent=1))
    decision = asked(history, taken=True)
    said = shown(auditor, decision)
    assert "The other side of the canaries" in said
    assert f"{BY_NOW} It agrees" in said
    assert "Had canary other taken the Pod, by other v1, Assignment other: It would have refused all nodes" in said
    sides = auditor.get(f"/api/v1/decisions/{decision.pk}/sides").json()["canaries"]
    assert [(each["canary"], each["takes"], each["rule_set"], each["divergence"]) for each in sides] == [
        ("next", False, "now", "agreed"),
        ("other", True, "other", "refused all"),
    ]


def prune_snapshot() -> None:
    SnapshotPart.objects.all().delete()


def lose_revision() -> None:
    Decision.objects.update(revision=99)


def other_revision() -> None:
    Decision.objects.update(revision=1)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (
            prune_snapshot,
            "the Snapshot that the Decision was made on is not there: pruned, not stored yet, or without room in the spool",
        ),
        (lose_revision, "Revision 99 is not there"),
        (other_revision, "Revision 1 is another one now than the one that decided"),
    ],
)
def test_what_can_not_be_decided_says_why(
    history: History, auditor: Client, spoil: Callable[[], None], why: str
) -> None:
    publish_canary(ONLY_N1, ALL)
    decision = asked(history, taken=False)
    spoil()
    assert f"Had canary next taken the Pod: Not replayable: {why}." in shown(auditor, decision)


def test_nothing_is_said_by_rules_that_read_what_was_masked(tmp_path: Path, auditor: Client) -> None:
    history = History(tmp_path / "spool", masks=Masks(env=["*token*"]))
    reads = "pod.spec.containers.exists(c, c.?env.orValue([]).exists(e, e.?value.orValue('') == 'x'))"
    publish_canary({"filters": [{"name": "token", "expression": reads}]}, ALL)
    container = {"name": "main", "image": "example.org/web:1", "env": [{"name": "a-token", "value": "x"}]}
    decision = asked(history, taken=False, containers=[container])
    history.spool.close()
    assert "Not replayable: masked before it was stored: env a-token." in shown(auditor, decision)


def test_a_pod_that_no_assignment_took_has_no_snapshot_to_decide_on(history: History, auditor: Client) -> None:
    publish_canary(ONLY_N1, None)
    assert "Not replayable: no Assignment took the Pod, and a Snapshot is" in shown(
        auditor, asked(history, taken=False)
    )


def test_a_binding_chooses_no_node(history: History, auditor: Client) -> None:
    publish_canary(ONLY_N1, ALL)
    assert "Not replayable: a Decision of bind chooses no node" in shown(
        auditor, asked(history, taken=False, verb="bind")
    )


def test_an_answer_that_comes_out_otherwise_is_no_ground_to_compare_on(history: History, auditor: Client) -> None:
    publish_canary(ONLY_N1, ALL)
    decision = asked(history, taken=False)
    Decision.objects.update(feasible=2)
    said = shown(auditor, decision)
    assert "Not replayable: decided anew, what was answered differs: feasible was 2 and is 3." in said


def test_details_that_were_pruned_say_nothing_of_canaries(history: History, auditor: Client) -> None:
    publish_canary(ONLY_N1, ALL)
    decision = asked(history, taken=False)
    Decision.objects.update(body=b"")
    assert shown(auditor, decision) == ""


@pytest.mark.parametrize(
    "notes", [{"canaries": {"next": {"drawn": 3}}}, {"canaries": ["next"]}, {"suspendedBy": [{"kind": "Pause"}]}]
)
def test_notes_of_another_form_are_a_body_that_cant_be_read(
    notes: dict[str, Any], history: History, auditor: Client
) -> None:
    publish_canary(ONLY_N1, ALL)
    decision = asked(history, taken=True)
    body = msgspec.structs.replace(read_body(bytes(decision.body)), notes=notes)
    columns = AS_COLUMNS + make_compressor().compress(msgspec.msgpack.encode(body))
    for damaged in (columns, store_json({"notes": notes})):
        Decision.objects.update(body=damaged)
        path = f"/api/v1/decisions/{decision.pk}"
        assert "is damaged" in auditor.get(path).json()["detail"]
        assert auditor.get(f"{path}/sides").json()["canaries"] == []
        assert auditor.get(f"/api/v1/pods/{decision.pod_namespace}/{decision.pod_name}").status_code == 200
        assert "can't be read" in text_of(auditor.get(change_url("decision", decision.pk)))
