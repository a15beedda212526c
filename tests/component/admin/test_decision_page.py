"""The page of a Decision, at any number of nodes; the page of a node."""

import io
import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from policies.engine.decision import CompiledRevision, CompiledRuleSet, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.publishing import current_revision
from scheduler.decisions.record import NodesEntry
from scheduler.models import Decision
from tests.builders import TEAM_FILTER, make_assignment, make_node, make_pod, make_rule_set
from tests.component.controlplane.test_pages import make_decision
from tests.component.pages import change_url, get, publish, text_of
from tests.recording import row_of

pytestmark = pytest.mark.django_db
AT = datetime(2026, 1, 1, tzinfo=UTC)
RULES: dict[str, Any] = {
    "filters": [
        TEAM_FILTER,
        {"name": "nobody", "expression": "true"},
        {"name": "rack", "expression": "node.metadata.labels.rack != 'r1'", "reason": "rack r1 is full"},
    ],
    "scores": [{"name": "rank", "expression": "int(node.metadata.labels.rank)", "bounds": [0, 9]}],
}


def decided(number: int, *, publishes: bool = True, **fields: Any) -> Decision:
    """A Decision about so many nodes: a third of another team, of the others a tenth in rack r1; ten ranks."""
    made = make_rule_set(**RULES)
    if publishes:
        publish(made)
    rule_set = CompiledRuleSet(msgspec.structs.replace(made, version=1))
    pod = Pod.from_json(make_pod("web-1", labels={"team": "web"}))
    nodes = (
        make_node(f"n{index:04}", labels={"team": "web" if index % 3 else "data", "rack": f"r{index % 10}", "rank": str(index % 7)})
        for index in range(number)
    )  # fmt: skip
    snapshot = Snapshot.of(map(Node.from_json, nodes))
    answer = decide(rule_set, Cycle(pod=pod, snapshot=snapshot, now=AT, params={}), snapshot.table.all_rows())
    names = [info.name for info in snapshot.table.infos]
    entry = NodesEntry(verb="schedule", pod=pod, now=AT, assignment=make_assignment(), rule_set=rule_set,
                       snapshot=snapshot, names=names, answer=answer,
                       revision=CompiledRevision(current_revision()))  # fmt: skip
    return row_of(entry, sequence=Decision.objects.count() + 1, **({"revision": 1} | fields))


@pytest.mark.parametrize("number", [10, 5_000])
def test_a_decision_takes_nine_queries_at_any_size(auditor: Client, number: int) -> None:
    row = decided(number)
    get(auditor, change_url("decision", row.pk))
    with CaptureQueriesContext(connection) as queries:
        page = get(auditor, change_url("decision", row.pk))
    assert len(queries) <= 9, "\n".join(query["sql"][:170] for query in queries)
    assert len(page.content) < 150_000


def test_refused_groups_come_first_and_the_chosen_node_has_a_row_of_its_own(auditor: Client) -> None:
    row = decided(100)
    Decision.objects.update(placed_on=row.best)
    page = get(auditor, change_url("decision", row.pk))
    shown = [each["row"] for each in page.context["rows"]]
    assert [each.feasible for each in shown] == sorted(each.feasible for each in shown)
    refused = [len(each.nodes) for each in shown if not each.feasible]
    assert refused == sorted(refused, reverse=True)
    (best,) = (each for each in shown if each.best)
    assert (best.nodes, best.placed) == ([row.best], True)
    text = text_of(page)
    assert "refused, " in text
    assert "1 rule passed every node: nobody." in text
    assert "nobody" not in page.context["columns"]
    assert "nobody" in get(auditor, f"{change_url('decision', row.pk)}?columns=all").context["columns"]
    assert "other nodes have" in page.context["ties"]


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("rule=rack", lambda row: row.cells[2].kind == "bad"),
        ("reason=rack r1 is full", lambda row: row.cells[2].reason == "rack r1 is full"),
        ("least=5", lambda row: row.total and int(row.total) >= 5),
        ("rule=rack&least=5", lambda row: False),
        ("least=x", lambda row: True),
    ],
)
def test_the_matrix_is_filtered_by_rule_reason_and_points(auditor: Client, query: str, fits: Any) -> None:
    row = decided(60)
    every = [each["row"] for each in get(auditor, change_url("decision", row.pk)).context["rows"]]
    shown = [each["row"] for each in get(auditor, f"{change_url('decision', row.pk)}?{query}").context["rows"]]
    assert shown == [each for each in every if fits(each)]


def test_names_of_equal_nodes_unfold_in_pages(auditor: Client) -> None:
    row = decided(1_500)
    page = get(auditor, f"/admin/scheduler/decision/{row.pk}/nodes/?node=n0003&p=2")
    assert "500 nodes were treated alike by every rule: refused." in text_of(page)
    assert len(page.context["names"]) == 200
    assert "Berth wasn't asked about nope" in text_of(
        get(auditor, f"/admin/scheduler/decision/{row.pk}/nodes/?node=nope")
    )


def test_names_of_nodes_that_two_decisions_treat_alike_unfold_in_pages(auditor: Client) -> None:
    rows = [decided(1_500), decided(1_500, publishes=False)]
    url = f"/admin/scheduler/decision/{rows[0].pk}/beside/{rows[1].pk}/"
    page = get(auditor, url)
    assert "n0000 and 499 like it" in text_of(page)
    assert 'href="?node=n0000"' in page.content.decode()
    names = get(auditor, f"{url}?node=n0000&p=3")
    assert "Of 500 nodes both said the same. Left: team: node belongs to another team Right: team:" in text_of(names)
    assert len(names.context["names"]) == 100
    assert "Compare both" in text_of(names)
    assert "Berth wasn't asked about nope" in text_of(get(auditor, f"{url}?node=nope"))


def test_a_node_that_one_of_two_decisions_was_not_asked_about_is_not_said_to_pass(auditor: Client) -> None:
    rows = [decided(2), decided(1, publishes=False)]
    url = f"/admin/scheduler/decision/{rows[0].pk}/beside/{rows[1].pk}/"
    assert "· not asked about" in text_of(get(auditor, url))
    names = get(auditor, f"{url}?node=n0001").content.decode()
    assert '<span class="berth-cell-none">not asked about</span>' in names


def test_why_not_a_node_is_answered_for_any(auditor: Client) -> None:
    row = decided(10)
    said = text_of(get(auditor, f"{change_url('decision', row.pk)}?why=n0000"))
    assert 'filter team (version 1) refused n0000: "node belongs to another team"' in said
    assert "Berth wasn't asked about n99" in text_of(get(auditor, f"{change_url('decision', row.pk)}?why=n99"))


def test_a_node_that_berth_had_not_seen_yet_is_not_said_to_be_one_that_nobody_asked_about(auditor: Client) -> None:
    made = make_rule_set(**RULES)
    publish(made)
    rule_set = CompiledRuleSet(msgspec.structs.replace(made, version=1))
    pod, snapshot = Pod.from_json(make_pod("web-1")), Snapshot.of([Node.from_json(make_node("n1"))])
    answer = decide(rule_set, Cycle(pod=pod, snapshot=snapshot, now=AT), snapshot.table.rows([]), scoring=False)
    entry = NodesEntry(verb="filter", pod=pod, now=AT, assignment=make_assignment(), rule_set=rule_set, snapshot=snapshot,
                       names=["n9"], answer=answer)  # fmt: skip
    row = row_of(entry, revision=1)
    page = text_of(get(auditor, f"{change_url('decision', row.pk)}?why=n9"))
    said = 'Berth hadn\'t seen n9 yet when it was asked, and refused it: "node is not known to Berth yet".'
    assert page.count(said) == 2
    assert "Berth wasn't asked about" not in page
    assert "n9 yet" in text_of(get(auditor, f"/admin/scheduler/decision/{row.pk}/remedies/"))
    told = io.StringIO()
    call_command("explain", "default/web-1", "--node", "n9", stdout=told)
    assert said in told.getvalue()


def test_a_decision_is_decided_anew_by_a_button_that_changes_nothing(auditor: Client) -> None:
    row = decided(10)
    url = f"/admin/scheduler/decision/{row.pk}/replay/"
    assert auditor.get(url).status_code == 405
    before = list(Decision.objects.values())
    page = auditor.post(url)
    assert page.status_code == 200
    assert "The Decision can't be replayed: the Decision refers to no Snapshot." in text_of(page)
    assert list(Decision.objects.values()) == before


def test_the_raw_json_is_loaded_when_it_is_opened(auditor: Client) -> None:
    row = decided(10)
    url = f"/admin/scheduler/decision/{row.pk}/raw/"
    page = get(auditor, change_url("decision", row.pk)).content.decode()
    assert f'hx-get="{url}"' in page
    assert "&quot;verdicts&quot;" not in page
    assert "&quot;verdicts&quot;" in get(auditor, url).content.decode()


def test_a_damaged_body_is_said_on_every_page(auditor: Client) -> None:
    row = make_decision(body=b"\x01damaged")
    assert "The body of this Decision can't be read" in text_of(get(auditor, change_url("decision", row.pk)))
    for place in ("nodes/?node=n1", "raw/", f"beside/{row.pk}/"):
        get(auditor, f"/admin/scheduler/decision/{row.pk}/{place}")
    get(auditor, "/admin/scheduler/pods/shop/web-1/")
    get(auditor, "/admin/scheduler/nodes/n1/")


def test_a_version_leads_to_its_decisions_and_back(auditor: Client) -> None:
    from policies.models import RuleSetVersion

    row = decided(10)
    version = change_url("rulesetversion", RuleSetVersion.objects.get().pk)
    page = get(auditor, change_url("decision", row.pk)).content.decode()
    (link,) = set(re.findall(r'href="(/admin/scheduler/versions/[^"]*)"', page))
    assert auditor.get(link)["Location"] == version
    assert auditor.get(f"{link[:-2]}99999999999999999999/").status_code == 404
    shown = get(auditor, version).content.decode()
    assert change_url("decision", row.pk) in shown
    links = re.findall(r'href="([^"]*refused_by=rack[^"]*)"', shown)
    assert [each["row"].pk for each in get(auditor, links[0].replace("&amp;", "&")).context["rows"]] == [
        uuid.UUID(str(row.pk))
    ]


def test_a_node_says_by_periods_of_equal_length_what_it_was_for_pods(auditor: Client) -> None:
    page = "/admin/scheduler/nodes/n0000/"
    decided(10, at=AT)
    decided(10, publishes=False, at=AT + timedelta(seconds=50))
    assert "Over time" not in text_of(get(auditor, page))
    decided(10, publishes=False, at=AT + timedelta(minutes=3, seconds=10))
    assert "2026-01-01 00:03 2026-01-01 00:04 0 1 2026-01-01 00:00 2026-01-01 00:01 0 2 " in text_of(get(auditor, page))
    decided(10, publishes=False, at=AT + timedelta(days=3))
    assert "2026-01-04 00:00 2026-01-05 00:00 0 1 2026-01-01 00:00 2026-01-02 00:00 0 3 " in text_of(get(auditor, page))


def test_a_node_says_what_it_was_for_pods(auditor: Client) -> None:
    row = decided(10, placed_on="n0002", placed_at=AT)
    said = text_of(get(auditor, "/admin/scheduler/nodes/n0000/"))
    assert "0 allowed n0000, 1 refused it" in said
    assert "1 time by team : “node belongs to another team”, the last time for default/web-1" in said
    said = text_of(get(auditor, "/admin/scheduler/nodes/n0002/"))
    assert "1 allowed n0002, 0 refused it" in said
    assert f"Pods placed on it default/web-1 {AT:%Y-%m-%d %H:%M:%S} UTC" in said
    assert "0 refused it, and 1 wasn't asked about it" in text_of(get(auditor, "/admin/scheduler/nodes/elsewhere/"))
    assert "No Decision in this time" in text_of(get(auditor, "/admin/scheduler/nodes/n0002/?span=day"))
    assert auditor.get("/admin/scheduler/nodes/n0002/?span=never").status_code == 400
    assert "n0000" in get(auditor, change_url("decision", row.pk)).content.decode()


def test_names_that_no_path_can_hold_lead_to_lists(auditor: Client) -> None:
    make_decision(pod_namespace="a/b", pod_name="", best="x/y", placed_on="x/y", placed_at=AT)
    page = get(auditor, "/admin/scheduler/decision/").content.decode()
    assert "?pod_uid=uid-1" in page
    assert "?node=x%2Fy" in page


def test_a_decision_without_any_node_says_so(auditor: Client) -> None:
    row = make_decision(verb="schedule", nodes=0, feasible=0)
    page = text_of(get(auditor, change_url("decision", row.pk)))
    assert f"There was no node to ask about for {row.pod_namespace}/{row.pod_name}." in page
