"""Pages that decide about a Pod again end in time, whatever the Pod asks of each node, and say that it took too long.

Time goes by as columns of all nodes are read: at 5,000 nodes each takes a millisecond or two.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from django.test import Client

from policies import publishing
from policies.engine.decision import CompiledRevision, CompiledRuleSet, decide
from policies.engine.errors import DeadlineError
from policies.engine.explain import explain_node
from policies.engine.objects.node import Node
from policies.engine.objects.owners import draw
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Table
from policies.engine.rule import Cycle
from scheduler.admin import preview as preview_page
from scheduler.admin import scenario as scenario_page
from scheduler.decisions import time_limit
from scheduler.decisions.record import NodesEntry
from scheduler.models import Decision
from scheduler.preview import preview
from scheduler.scenario import rules_of
from tests.builders import JSONObject, make_assignment, make_pod, make_rule_set
from tests.component.pages import change_url, opened, publish_all, text_of
from tests.recording import History
from tests.security.test_oversize import ASKED_OF_EACH_NODE, NODES, NOW, node_affinity

MANY = 2_000
# Columns that are read within the time that a page has, and those that one rule reads at once beside it.
IN_TIME, AT_MOST = 50, 100
TERMS: list[JSONObject] = [{"key": f"k{number}", "operator": "Exists"} for number in range(MANY)]
LARGE = node_affinity("required", {"nodeSelectorTerms": [{"matchExpressions": [each]} for each in TERMS]})
RULES: dict[str, Any] = {"filters": [{"builtin": "MatchNodeSelector"}]}
TOO_LONG = "it takes longer than 10 s"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The columns that were read of all nodes, which is what time goes by."""
    columns: list[object] = []
    column = Table._column
    monkeypatch.setattr(
        Table, "_column", lambda self, key, *more, **named: columns.append(key) or column(self, key, *more, **named)
    )
    seconds = time_limit.SECONDS / IN_TIME
    monkeypatch.setattr(time_limit, "time", SimpleNamespace(monotonic=lambda: len(columns) * seconds))
    return columns


@pytest.mark.parametrize(("asked", "rules"), ASKED_OF_EACH_NODE.values(), ids=ASKED_OF_EACH_NODE)
def test_what_each_rule_says_of_one_node_is_worked_out_in_time(
    asked: JSONObject, rules: JSONObject, read: list[object]
) -> None:
    def give_way() -> None:
        if len(read) > IN_TIME:
            raise DeadlineError

    snapshot = Snapshot.of(map(Node.from_json, NODES))
    cycle = Cycle(pod=Pod.from_json(make_pod(**asked)), snapshot=snapshot, now=NOW, give_way=give_way)
    with pytest.raises(DeadlineError):
        explain_node(CompiledRuleSet(make_rule_set(**rules)), cycle, "n1")
    assert len(read) < AT_MOST


def json_of(document: JSONObject) -> str:
    return msgspec.json.encode(document).decode()


def pod_of(taken: bool | None, **asked: Any) -> Pod:
    """Return a Pod; one that the canary `next` takes or passes over, where that is asked for."""
    found = (Pod.from_json(make_pod("large", uid=f"uid-{number}", **asked)) for number in range(100))
    return next(each for each in found if taken is None or (draw("next", each) < 50) is taken)


@pytest.fixture
def decided(tmp_path: Path) -> Iterator[Callable[..., Decision]]:
    """Decide and record as the extender does, without a deadline."""
    history = History(tmp_path / "spool")

    def ask(pod: Pod, *, at: datetime = NOW) -> Decision:
        revision = CompiledRevision(publishing.current_revision())
        snapshot = Snapshot.of(map(Node.from_json, NODES))
        choice = revision.choose(pod, snapshot, at)
        assert choice.enforced is not None
        assignment, rule_set = choice.enforced
        cycle = Cycle(pod=pod, snapshot=snapshot, now=at, params=rule_set.params)
        answer = decide(rule_set, cycle, snapshot.table.all_rows(), scoring=False)
        entry = NodesEntry(
            verb="filter", pod=pod, now=at, revision=revision, draws=choice.draws, snapshot=snapshot,
            names=list(snapshot.nodes), assignment=assignment, rule_set=rule_set, answer=answer,
        )  # fmt: skip
        history.recorder.record(entry)
        history.settle()
        return Decision.objects.get(pk=entry.id)

    yield ask
    history.spool.close()


@pytest.mark.django_db
class TestOfADecision:
    @pytest.fixture(autouse=True)
    def _published(self) -> None:
        publish_all(make_rule_set("web", **RULES), make_assignment("all", "web"))

    def test_why_not_that_node(self, decided: Callable[..., Decision], auditor: Client, read: list[object]) -> None:
        row = decided(pod_of(None, **LARGE))
        read.clear()
        said = text_of(auditor.get(change_url("decision", row.pk), {"why": "n1"}))
        assert f"What would change the result couldn't be computed: {TOO_LONG}." in said
        assert "node(s) didn't match Pod's node affinity/selector" in said
        assert len(read) < AT_MOST

    def test_what_would_let_it_run(self, decided: Callable[..., Decision], auditor: Client, read: list[object]) -> None:
        row = decided(pod_of(None, **LARGE))
        read.clear()
        said = text_of(auditor.get(f"/admin/scheduler/decision/{row.pk}/remedies/"))
        assert f"Only as far as it is recorded: {TOO_LONG}." in said
        assert len(read) < AT_MOST

    def test_whether_it_comes_out_again(
        self, decided: Callable[..., Decision], auditor: Client, read: list[object]
    ) -> None:
        row = decided(pod_of(None, **LARGE))
        read.clear()
        said = text_of(auditor.post(f"/admin/scheduler/decision/{row.pk}/replay/"))
        assert f"The Decision can't be replayed: {TOO_LONG}." in said
        assert len(read) < AT_MOST

    def test_what_made_the_difference_to_the_one_before(
        self, decided: Callable[..., Decision], auditor: Client, read: list[object]
    ) -> None:
        one, other = (decided(pod_of(None, **LARGE), at=datetime(2026, 1, day, tzinfo=UTC)) for day in (1, 2))
        read.clear()
        said = text_of(auditor.get(f"/admin/scheduler/difference/{one.pk}/{other.pk}/"))
        assert f"it can't be decided anew: {TOO_LONG}" in said
        assert len(read) < AT_MOST

    def test_and_all_differences_of_a_story_together(
        self, decided: Callable[..., Decision], auditor: Client, read: list[object]
    ) -> None:
        for day in range(1, 7):
            decided(pod_of(None, **(LARGE if day % 2 else {})), at=datetime(2026, 1, day, tzinfo=UTC))
        read.clear()
        found = auditor.get("/api/v1/pods/default/large").json()
        assert [each["causes"]["fault"] for each in found["attempts"] if each["causes"]]
        assert len(read) < 2 * AT_MOST


@pytest.mark.django_db
def test_the_other_side_of_a_canary(decided: Callable[..., Decision], auditor: Client, read: list[object]) -> None:
    publish_all(
        make_rule_set("next", **RULES),
        make_assignment("next", "next", order=1, mode="canary", percent=50),
        make_rule_set("now"),
        make_assignment("now", "now", order=2),
    )
    row = decided(pod_of(taken=False, **LARGE))
    read.clear()
    assert TOO_LONG in text_of(auditor.get(f"/admin/scheduler/decision/{row.pk}/shadows/"))
    assert len(read) < AT_MOST


@pytest.mark.django_db
class TestOfADraft:
    @pytest.fixture
    def change(self) -> int:
        publish_all(make_rule_set("web"), make_assignment("all", "web"))
        return opened(make_rule_set("web", **RULES)).pk

    @pytest.fixture
    def operator_on_a_cluster(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
        snapshot = Snapshot.of(map(Node.from_json, NODES))
        for page in (preview_page, scenario_page):
            monkeypatch.setattr(page, "live_snapshot", lambda *_: snapshot)
            monkeypatch.setattr(page, "connect", lambda: None)
        monkeypatch.setattr(preview_page, "pending_pods", lambda _: [])
        return operator

    def test_a_preview_says_of_which_rules_there_is_nothing(self, change: int, read: list[object]) -> None:
        snapshot = Snapshot.of(map(Node.from_json, NODES))
        found = preview(make_pod(**LARGE), "web", rules_of(change), snapshot, why="n1")
        assert "Time was up after 10 s: MatchNodeSelector weren't asked about every node" in found.sentences[0]
        assert found.why == ["Time was up after 10 s, before each rule was asked about n1"]
        assert found.test == {}
        assert found.notes == ["There is no test of it: time was up after 10 s"]
        assert len(read) < 2 * AT_MOST

    def test_and_its_page_offers_no_test(self, change: int, operator_on_a_cluster: Client, read: list[object]) -> None:
        asked = {"rule_set": "web", "change": change, "document": json_of(make_pod(**LARGE)), "why": "n1"}
        answer = operator_on_a_cluster.post("/admin/scheduler/preview/", asked)
        said = text_of(answer)
        assert "before each rule was asked about n1" in said
        assert "There is no test of it" in said
        assert 'id="save-test"' not in answer.content.decode()
        assert len(read) < 2 * AT_MOST

    def test_a_scenario_ends_too(self, change: int, operator_on_a_cluster: Client, read: list[object]) -> None:
        asked = {"pods": 3, "change": change, "document": json_of({"kind": "Pod", **make_pod(**LARGE)})}
        said = text_of(operator_on_a_cluster.post("/admin/scheduler/scenario/", asked))
        assert "it takes longer than 60 s: ask for fewer Pods" in said
        assert len(read) < 10 * AT_MOST
