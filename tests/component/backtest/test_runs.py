"""Backtests: what a Change would have done to recorded Decisions, whoever is killed on the way."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from policies import publishing
from policies.engine.decision import CompiledRevision
from policies.engine.failures import Conditions
from policies.models import AuditEvent, Change
from scheduler.backtest import deciding, runs
from scheduler.backtest.compare import Kind
from scheduler.backtest.results import Result
from scheduler.backtest.runs import Span, Worker, cancel_backtest, lines_of, plan, result_of, start_backtest
from scheduler.decisions.columns import Packed, StoredAnswer, StoredFilter
from scheduler.decisions.record import AS_COLUMNS, make_compressor, read_body
from scheduler.gate.runs import examine
from scheduler.models import Backtest, BacktestChunk, Decision
from tests.builders import make_assignment, make_exemption, make_pause, make_rule_set
from tests.component.backtest.corpus import AT, Corpus
from tests.component.decisions import test_replay
from tests.component.pages import change_url, opened, publish_all
from tests.recording import History

pytestmark = pytest.mark.django_db

SCORES = [{"builtin": "LeastRequestedPriority"}]
FILTERS = [{"builtin": "PodFitsResources"}]
# What the planted rule refuses.
MARKED = [f"default/p{number}" for number in (3, 8, 11, 19, 20, 31, 38)]


@pytest.fixture
def corpus(tmp_path: Path) -> Iterator[Corpus]:
    """40 Pods by a rule set that lets all pass; 7 carry a label that nothing reads."""
    publish_all(make_rule_set("web", filters=FILTERS, scores=SCORES), make_assignment("all", "web"))
    history = History(tmp_path / "spool")
    made = Corpus(history, CompiledRevision(publishing.current_revision()))
    for number in range(40):
        made.ask(f"p{number}", **({"marked": "yes"} if f"default/p{number}" in MARKED else {}))
    history.settle()
    yield made
    history.spool.close()


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "CHUNK", 7)


def planting(expression: str = "!('marked' in pod.metadata.labels)") -> Change:
    """A Change with one rule more."""
    rule = {"name": "planted", "expression": expression, "reason": "it is marked"}
    return opened(make_rule_set("web", filters=[*FILTERS, rule], scores=SCORES))


def found_by(change: Change, **span: Any) -> tuple[Result, bytes]:
    row = start_backtest(change=change, by="ops", span=Span(**span))
    Worker(row.pk).work()
    row.refresh_from_db()
    result = result_of(row)
    assert result is not None, row.fault
    return result, bytes(row.result)


def test_a_planted_rule_is_found_with_the_pods_that_it_refuses(corpus: Corpus, small_chunks: None) -> None:
    result, _ = found_by(planting())
    none = [line for line in result.pods if line.kind is Kind.NO_NODE]
    assert [line.pod for line in none] == MARKED
    assert {(line.rule_set, line.rule, line.reason, line.nodes) for line in none} == {
        ("web", "planted", "it is marked", 6)
    }
    assert result.pods == none
    assert (result.decisions, result.decided, result.same) == (80, 80, 73)
    assert [(each.rule, each.pods, each.decisions) for each in result.causes] == [("planted", 7, 7)]
    assert result.undecided == []
    # Of p0 to p3 both Decisions were made by then, of all others after it.
    assert result.later == 2 * (40 - 4)
    assert result.sentences[:2] == [
        "80 Decisions decided anew: 73 the same",
        "7 Pods would get no node, in 7 Decisions",
    ]


def test_twice_it_comes_to_the_same_bytes_in_whatever_chunks(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    change = planting()
    until = timezone.now()
    whole = found_by(change, until=until)[1]
    for size in (1, 5, 16):
        monkeypatch.setattr(runs, "CHUNK", size)
        assert found_by(change, until=until)[1] == whole


def test_processes_that_are_killed_leave_no_trace_in_the_result(
    corpus: Corpus, small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, until = planting(), timezone.now()
    whole = found_by(change, until=until)[1]
    random = Random(5)

    class KilledError(Exception):
        pass

    def perhaps(_: Any) -> None:
        if random.random() < 0.08:
            raise KilledError

    monkeypatch.setattr(runs._Noted, "__call__", perhaps)
    row = start_backtest(change=change, by="ops", span=Span(until=until))
    kills = 0
    while Backtest.objects.get(pk=row.pk).is_under_way:
        try:
            Worker(row.pk).work()
        except KilledError:
            kills += 1
        BacktestChunk.objects.update(heartbeat_at=timezone.now() - runs.SILENT * 2)
    assert kills > 3
    assert bytes(Backtest.objects.get(pk=row.pk).result) == whole


def test_a_machine_that_decides_one_in_a_turn_comes_to_the_same_end(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, until = planting(), timezone.now()
    whole = found_by(change, until=until)[1]
    row = start_backtest(change=change, by="ops", span=Span(until=until))
    plan(row)
    turns = 0
    while Backtest.objects.get(pk=row.pk).is_under_way:
        before = runs.progress_of(row)
        short_turn(row, monkeypatch)
        turns += 1
        assert runs.progress_of(row) - before <= 2
    assert turns > 40
    assert bytes(Backtest.objects.get(pk=row.pk).result) == whole


def short_turn(row: Backtest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a second, so time is up with the second Decision."""
    ticks = count()
    monkeypatch.setattr(runs, "monotonic", lambda: float(next(ticks)))
    Worker(row.pk).work(until=2)


def test_decisions_that_are_stored_after_the_plan_do_not_take_the_progress_beyond_the_total(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Decision.objects.filter(pod_name__in=["p1", "p30"])
    stored = list(late)
    late.delete()
    row = start_backtest(change=planting(), by="ops", span=Span())
    plan(row)
    Decision.objects.bulk_create(stored)
    row.refresh_from_db()
    while row.is_under_way:
        short_turn(row, monkeypatch)
        row.refresh_from_db()
        assert runs.progress_of(row) <= row.total
    assert runs.progress_of(row) == row.total == 76


@pytest.mark.parametrize("days", [-1, 1])
def test_a_worker_whose_clock_is_wrong_takes_no_chunk_of_another(
    corpus: Corpus, small_chunks: None, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = start_backtest(change=planting(), by="ops", span=Span(until=timezone.now()))
    plan(row)
    row.refresh_from_db()
    first = Worker(row.pk)._take(row)
    assert first is not None
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(days=days))
    second = Worker(row.pk)._take(row)
    assert second is not None
    assert second.number != first.number
    first.refresh_from_db()
    assert (first.state, first.attempts) == ("running", 1)


def test_what_makes_no_difference_is_found_to_make_none(corpus: Corpus) -> None:
    result, _ = found_by(opened(make_rule_set("web", filters=FILTERS, scores=SCORES, params={"unused": 1})))
    assert (result.same, result.pods) == (80, [])
    assert result.sentences == [
        "80 Decisions decided anew: 80 the same",
        "No Pod would have been treated otherwise by it",
    ]


def test_another_best_node_is_named_with_the_score_that_speaks_for_it(corpus: Corpus) -> None:
    rule = {
        "name": "zone-b",
        "expression": "node.metadata.labels.zone == 'b' ? 10 : 0",
        "bounds": [0, 10],
        "weight": 50,
    }
    result, _ = found_by(opened(make_rule_set("web", filters=FILTERS, scores=[*SCORES, rule])))
    best = [line for line in result.pods if line.kind is Kind.OTHER_BEST]
    assert {line.rule for line in best} == {"zone-b"}
    assert all(int(line.before[1:]) % 2 == 0 and int(line.after[1:]) % 2 == 1 for line in best)
    assert len(best) > 10
    assert result.pods_of(Kind.OTHER_POINTS) == 40 - len(best)


@pytest.mark.parametrize(
    ("edit", "rule_set"),
    [(make_pause("by", "Assignment/all"), ""), (make_rule_set("web", filters=FILTERS), "web")],
    ids=["no rule set any more", "no scores any more"],
)
def test_pods_whose_nodes_get_no_points_any_more_are_treated_otherwise(
    corpus: Corpus, edit: Any, rule_set: str
) -> None:
    result, _ = found_by(opened(edit))
    assert [(each.kind, each.pods, each.decisions) for each in result.differing] == [(Kind.OTHER_POINTS, 40, 40)]
    assert {(line.verb, line.rule_set, line.rule, line.points) for line in result.pods} == {
        ("prioritize", rule_set, "", 10)
    }


def test_pods_whose_nodes_get_points_for_the_first_time_are_treated_otherwise(corpus: Corpus) -> None:
    Decision.objects.all().delete()
    publish_all(make_rule_set("web", filters=FILTERS))
    unranked = Corpus(corpus.history, CompiledRevision(publishing.current_revision()))
    unranked.ask("first")
    corpus.history.settle()
    result, _ = found_by(opened(make_rule_set("web", filters=FILTERS, scores=SCORES)))
    assert [(line.pod, line.verb, line.kind, line.points) for line in result.pods] == [
        ("default/first", "prioritize", Kind.OTHER_POINTS, 10)
    ]


def test_pods_that_had_no_node_and_would_get_one_are_named_with_the_rule_that_refused_them(
    corpus: Corpus, tmp_path: Path
) -> None:
    strict = {"name": "strict", "expression": "node.metadata.labels.zone == 'c'", "reason": "another zone"}
    publish_all(make_rule_set("web", filters=[*FILTERS, strict], scores=SCORES))
    history = History(tmp_path / "other", writer="extender@other")
    later = Corpus(history, CompiledRevision(publishing.current_revision()))
    later.ask("refused")
    history.settle()
    history.spool.close()
    result, _ = found_by(opened(make_rule_set("web", filters=FILTERS, scores=SCORES)))
    (line,) = result.pods
    assert (line.kind, line.pod, line.rule, line.reason, line.gained) == (
        Kind.ALLOWED,
        "default/refused",
        "strict",
        "another zone",
        6,
    )


def test_what_the_live_rules_would_do_too_is_not_laid_at_the_edits_door(corpus: Corpus) -> None:
    rule = {"name": "planted", "expression": "!('marked' in pod.metadata.labels)", "reason": "it is marked"}
    publish_all(make_rule_set("web", filters=[*FILTERS, rule], scores=SCORES))
    other = make_rule_set("web", filters=[*FILTERS, rule], scores=SCORES, params={"unused": 1})
    result, _ = found_by(opened(other))
    assert result.differing == []
    assert [(each.kind, each.pods) for each in result.live] == [(Kind.NO_NODE, 7)]


@pytest.mark.parametrize(
    "ended",
    [
        make_pause("storm", "everything", until="2026-01-02T00:00:00Z"),
        make_pause("web-paused", "RuleSet/web", until="2026-01-02T00:00:00Z"),
        make_exemption(until="2026-01-02T00:00:00Z", pods=[{"namespace": "default", "selector": {}}]),
    ],
    ids=["everything", "rule set", "Exemption"],
)
def test_a_pause_or_an_exemption_that_has_ended_hides_nothing_of_what_an_edit_does(corpus: Corpus, ended: Any) -> None:
    publish_all(ended)
    result, _ = found_by(planting())
    assert [line.pod for line in result.pods if line.kind is Kind.NO_NODE] == MARKED
    assert result.live == []


def test_what_an_ended_pause_of_a_rule_had_let_pass_is_not_laid_at_the_edits_door(tmp_path: Path) -> None:
    rule = {"name": "planted", "expression": "!('marked' in pod.metadata.labels)", "reason": "it is marked"}
    rule_set = make_rule_set("web", filters=[*FILTERS, rule], scores=SCORES)
    paused = make_pause("mark", "RuleSet/web/planted", until=(AT + timedelta(days=1)).isoformat())
    publish_all(rule_set, make_assignment("all", "web"), paused)
    history = History(tmp_path / "spool")
    made = Corpus(history, CompiledRevision(publishing.current_revision()))
    made.ask("p1", marked="yes")
    history.settle()
    history.spool.close()
    other = make_rule_set("web", filters=[*FILTERS, rule], scores=SCORES, params={"unused": 1})
    result, _ = found_by(opened(other))
    assert result.differing == []
    assert [(each.kind, each.pods) for each in result.live] == [(Kind.NO_NODE, 1)]


def test_decisions_are_chosen_by_time_namespace_and_rule_set(corpus: Corpus) -> None:
    change = planting()
    result, _ = found_by(change, since=AT + timedelta(seconds=1), until=AT + timedelta(seconds=11))
    assert result.decisions == 20
    assert [line.pod for line in result.pods] == MARKED[:2]
    assert found_by(change, namespaces=["shop"])[0].sentences == ["No Decision was recorded in this span"]
    assert found_by(change, rule_sets=["web"])[0].decisions == 80
    assert found_by(change, rule_sets=["db"])[0].decisions == 0


def test_what_cannot_be_decided_is_counted_with_why(corpus: Corpus) -> None:
    Decision.objects.filter(pod_name="p1").update(verb="bind")
    Decision.objects.filter(pod_name="p2").update(chain=99)
    Decision.objects.filter(pod_name="p5").update(body=b"\x01broken")
    Decision.objects.filter(pod_name="p6").update(body=b"")
    result, _ = found_by(planting())
    assert sorted((each.decisions, each.why.split(",")[0]) for each in result.undecided) == [
        (2, "a bind asks again what counts Pods"),
        (2, "the Snapshot that they were made on isn't there"),
        (2, "their details were pruned"),
        (2, "they can't be read"),
    ]
    assert (result.decisions, result.decided) == (80, 72)


def _of_fewer_nodes(answer: StoredAnswer) -> None:
    answer.size = 2


def _of_more_nodes(answer: StoredAnswer) -> None:
    answer.size = 50


def _with_a_reason_that_is_not_there(answer: StoredAnswer) -> None:
    answer.filters = [StoredFilter("PodFitsResources", "enforce", [], {}, Packed(1, 6, b"\x05"))]


def _with_places_that_are_not_there(answer: StoredAnswer) -> None:
    answer.scored = Packed(1, 6, bytes(range(1, 7)))


def _with_places_out_of_order(answer: StoredAnswer) -> None:
    answer.scored = Packed(1, 6, bytes(reversed(range(6))))


def _with_fewer_scores(answer: StoredAnswer) -> None:
    answer.scores[0].raw = Packed(1, 6, b"\x05\x04")


def _with_half_a_score(answer: StoredAnswer) -> None:
    answer.scores[0].raw = Packed(2, 6, b"\x05\x05\x05")


def _with_scores_of_no_width(answer: StoredAnswer) -> None:
    answer.scores[0].raw = Packed(3, 6, b"\x05\x05\x05")


def _with_scores_without_end(answer: StoredAnswer) -> None:
    answer.scores[0].raw = Packed(1, 10**12, b"\x05")


@pytest.mark.parametrize(
    "damage",
    [
        _of_fewer_nodes, _of_more_nodes, _with_a_reason_that_is_not_there, _with_places_that_are_not_there,
        _with_places_out_of_order, _with_fewer_scores, _with_half_a_score, _with_scores_of_no_width, _with_scores_without_end,
    ],
)  # fmt: skip
def test_a_record_whose_columns_do_not_fit_together_is_counted_and_ends_no_backtest(
    corpus: Corpus, auditor: Client, damage: Callable[[StoredAnswer], None]
) -> None:
    row = Decision.objects.filter(verb="prioritize")[0]
    body = read_body(bytes(row.body))
    assert body.answer is not None
    damage(body.answer)
    Decision.objects.filter(pk=row.pk).update(
        body=AS_COLUMNS + make_compressor().compress(msgspec.msgpack.encode(body))
    )
    result, _ = found_by(planting())
    assert [(each.decisions, each.why) for each in result.undecided] == [(1, "they can't be read")]
    assert (result.decisions, result.decided) == (80, 79)
    assert auditor.get(change_url("decision", row.pk)).status_code == 200


def test_what_is_pruned_while_it_runs_is_counted_as_undecided(corpus: Corpus, small_chunks: None) -> None:
    row = start_backtest(change=planting(), by="ops", span=Span())
    runs.plan(row)
    Decision.objects.filter(pod_name__in=["p1", "p30"]).delete()
    Worker(row.pk).work()
    row.refresh_from_db()
    result = result_of(row)
    assert result is not None
    assert (result.decisions, result.decided, row.total) == (80, 76, 80)
    assert [(each.why, each.decisions) for each in result.undecided] == [("they were pruned while the backtest ran", 4)]


def test_rules_that_read_what_was_not_recorded_are_not_guessed_about(corpus: Corpus) -> None:
    result, _ = found_by(opened(make_rule_set("web", filters=[{"builtin": "NoVolumeZoneConflict"}])))
    (left,) = result.undecided
    assert left.decisions == 80
    assert left.why.startswith("the rules read what was not recorded: ")


def test_a_backtest_that_is_sent_twice_is_started_once(corpus: Corpus) -> None:
    change = planting()
    row = start_backtest(change=change, by="ops", span=Span())
    assert start_backtest(change=change, by="ops", span=Span()) == row
    assert AuditEvent.objects.filter(kind="backtest.start").count() == 1
    others = [
        start_backtest(change=change, by="ops", span=Span(namespaces=["shop"])),
        start_backtest(change=change, by="ops", span=Span(until=row.until - timedelta(hours=1))),
        start_backtest(change=change, by="sam", span=Span()),
        start_backtest(change=planting("true"), by="ops", span=Span()),
    ]
    assert len({row, *others}) == 5
    cancel_backtest(backtest=row, by="ops")
    assert start_backtest(change=change, by="ops", span=Span()) != row


def test_a_cancelled_one_stops_and_says_who_did(corpus: Corpus, small_chunks: None) -> None:
    row = start_backtest(change=planting(), by="ops", span=Span())
    assert cancel_backtest(backtest=row, by="ops")
    Worker(row.pk).work()
    row.refresh_from_db()
    assert (row.state, row.ended_by, result_of(row)) == ("cancelled", "ops", None)
    assert not cancel_backtest(backtest=row, by="ops")


def test_an_edit_of_the_change_leaves_a_backtest_with_what_was_asked(corpus: Corpus) -> None:
    change = planting()
    row = start_backtest(change=change, by="ops", span=Span())
    publishing.withdraw_change(change=change, by="ops")
    Worker(row.pk).work()
    row.refresh_from_db()
    result = result_of(row)
    assert result is not None
    assert result.pods_of(Kind.NO_NODE) == 7


def test_another_version_of_berth_does_not_go_on_with_it(corpus: Corpus) -> None:
    row = start_backtest(change=planting(), by="ops", span=Span())
    Backtest.objects.update(engine="another")
    Worker(row.pk).work()
    row.refresh_from_db()
    assert (row.state, row.fault.partition(",")[0]) == ("failed", "Another version of Berth began it")


def test_one_whose_chunk_ends_whoever_takes_it_fails_and_says_so(corpus: Corpus) -> None:
    row = start_backtest(change=planting(), by="ops", span=Span())
    plan(row)
    BacktestChunk.objects.update(state=BacktestChunk.State.RUNNING, attempts=20, heartbeat_at=AT)
    Worker(row.pk).work()
    row.refresh_from_db()
    assert (row.state, "were ended 20 times" in row.fault) == ("failed", True)


def test_those_that_ended_long_ago_keep_the_pods_that_their_results_name(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_KEPT", 1)
    change = planting()
    for _ in range(2):
        found_by(change)
    former, last = Backtest.objects.order_by("pk")
    assert (former.chunks.exists(), last.chunks.exists()) == (False, True)
    assert [line.pod for line in lines_of(former)] == [line.pod for line in lines_of(last)] == MARKED


def test_the_command_names_the_pods_twice_alike(corpus: Corpus) -> None:
    change = planting()
    until = timezone.now().isoformat()

    def said(*arguments: str) -> str:
        out = StringIO()
        call_command("backtest", *arguments, "--until", until, stdout=out, stderr=StringIO())
        return out.getvalue()

    text = said(str(change.pk), "--output", "json")
    assert said(str(change.pk), "--output", "json") == text
    found = json.loads(text)
    assert found["ok"] is True
    assert [line["pod"] for line in found["pods"]] == MARKED
    assert "default/p3: none of 6 nodes would do any more, by rule planted of rule set web: it is marked" in said("web")
    table = said("web", "--output", "csv").splitlines()
    assert len(table) == 8
    assert table[1].startswith("no-node,default/p3,")


def test_what_cannot_be_named_is_refused_with_what_to_do(corpus: Corpus) -> None:
    for named, says in (("4711", "There is no Change 4711"), ("web", "No open Change edits a rule set web")):
        out = StringIO()
        with pytest.raises(CommandError, match=says):
            call_command("backtest", named, "--output", "json", stdout=out)
        assert json.loads(out.getvalue())["ok"] is False
    planting(), planting("true")
    with pytest.raises(CommandError, match="Several Changes edit rule set web"):
        call_command("backtest", "web")


def test_cycles_of_berths_own_scheduler_are_decided_anew_behind_the_default_filters(corpus: Corpus) -> None:
    Decision.objects.all().delete()
    history = corpus.history
    for number in range(10):
        corpus.schedule(f"s{number}", **({"marked": "yes"} if number == 4 else {}))
    history.settle()
    result, _ = found_by(planting())
    assert result.decisions == result.decided == 10
    assert [(line.pod, line.rule, line.kind) for line in result.pods] == [("default/s4", "planted", Kind.NO_NODE)]


def test_of_nodes_that_were_equal_the_one_counts_that_the_pod_got(corpus: Corpus) -> None:
    """Berth's own scheduler takes turns among equals; which of them comes first by name says nothing of a Pod."""
    Decision.objects.all().delete()
    for number in range(6):
        corpus.schedule(f"s{number}")
    corpus.history.settle()
    got = [read_body(bytes(each.body)).notes["node"] for each in Decision.objects.order_by("sequence")]
    equal = [f"n000{number}" for number in (0, 2, 4)]
    assert set(got) >= {*equal, "n0001"}
    prefers = {"name": "zone", "expression": "node.metadata.labels.zone == 'b' ? 1 : 0", "bounds": [0, 1], "weight": 9}
    result, _ = found_by(opened(make_rule_set("web", filters=FILTERS, scores=[*SCORES, prefers])))
    others = [f"default/s{place}" for place, node in enumerate(got) if node in equal]
    moved = [line for line in result.pods if line.kind is Kind.OTHER_BEST]
    assert [line.pod for line in moved] == others
    assert [line.before for line in moved] == [node for node in got if node in equal]


def test_nodes_that_a_rule_set_has_for_equal_are_ranked_by_the_default_set(corpus: Corpus) -> None:
    """As Berth's own scheduler ranks them: where the scores that packed Pods are taken away, it spreads them."""
    Decision.objects.all().delete()
    publish_all(make_rule_set("web", filters=FILTERS, scores=[{"builtin": "MostRequestedPriority"}]))
    packed = Corpus(corpus.history, CompiledRevision(publishing.current_revision()))
    for number in range(2):
        packed.schedule(f"s{number}", cpu="16")
    corpus.history.settle()
    (node,) = {read_body(bytes(each.body)).notes["node"] for each in Decision.objects.all()}
    result, _ = found_by(opened(make_rule_set("web", filters=FILTERS)))
    (moved,) = result.pods
    assert (moved.pod, moved.kind, moved.before) == ("default/s1", Kind.OTHER_BEST, node)
    assert (moved.rule_set, moved.rule) == ("web", "MostRequestedPriority")


def test_where_the_node_made_free_for_a_pod_is_refused_the_others_would_be_looked_at(corpus: Corpus) -> None:
    Decision.objects.all().delete()
    corpus.schedule("preempts", nominated="n0002")
    corpus.history.settle()
    assert Decision.objects.get().nodes == 1
    result, _ = found_by(planting("node.metadata.name != 'n0002'"))
    assert (result.pods, result.decided) == ([], 0)
    assert [(each.why, each.decisions) for each in result.undecided] == [(deciding.OTHERS_NOT_ASKED, 1)]
    result, _ = found_by(planting("node.metadata.name != 'n0003'"))
    assert (result.pods, result.decided, result.same) == ([], 1, 1)
    result, _ = found_by(planting("false"))
    assert [(line.kind, line.nodes) for line in result.pods] == [(Kind.NO_NODE, 1)]


def test_where_all_others_are_refused_the_nodes_that_denied_a_pod_would_be_looked_at(corpus: Corpus) -> None:
    Decision.objects.all().delete()
    corpus.schedule("denied", denied=["n0003", "gone"])
    corpus.history.settle()
    assert Decision.objects.get().nodes == 5
    result, _ = found_by(planting("node.metadata.name == 'n0003'"))
    assert (result.pods, result.decided) == ([], 0)
    assert [(each.why, each.decisions) for each in result.undecided] == [(deciding.DENIED_NOT_ASKED, 1)]
    result, _ = found_by(planting("false"))
    assert [(line.kind, line.nodes) for line in result.pods] == [(Kind.NO_NODE, 5)]


def test_a_node_that_passes_now_goes_before_those_that_had_denied_the_pod(corpus: Corpus) -> None:
    Decision.objects.all().delete()
    alone = {"name": "alone", "expression": "node.metadata.name == 'n0000'", "reason": "not this one"}
    publish_all(make_rule_set("web", filters=[*FILTERS, alone], scores=SCORES))
    Corpus(corpus.history, CompiledRevision(publishing.current_revision())).schedule("denied", denied=["n0000"])
    corpus.history.settle()
    decision = Decision.objects.get()
    assert (decision.nodes, decision.feasible) == (6, 1)
    result, _ = found_by(planting("node.metadata.name in ['n0000', 'n0003']"))
    (line,) = result.pods
    assert (line.kind, line.before, line.after, line.rule) == (Kind.OTHER_BEST, "n0000", "n0003", "alone")
    result, _ = found_by(planting("node.metadata.name == 'n0000'"))
    assert (result.pods, result.decided) == ([], 1)
    result, _ = found_by(planting("false"))
    assert [(line.kind, line.nodes) for line in result.pods] == [(Kind.NO_NODE, 1)]


def test_a_node_made_free_for_a_pod_that_passes_now_is_the_one_that_it_would_get(corpus: Corpus) -> None:
    Decision.objects.all().delete()
    refusing = {"name": "other", "expression": "node.metadata.name != 'n0003'", "reason": "not this one"}
    publish_all(make_rule_set("web", filters=[*FILTERS, refusing], scores=SCORES))
    refused = Corpus(corpus.history, CompiledRevision(publishing.current_revision()))
    refused.schedule("preempts", nominated="n0003")
    corpus.history.settle()
    assert Decision.objects.get().nodes == 6
    result, _ = found_by(opened(make_rule_set("web", filters=FILTERS, scores=SCORES)))
    (line,) = result.pods
    assert (line.kind, line.before, line.after, line.rule) == (Kind.OTHER_BEST, "n0000", "n0003", "other")


def test_what_the_default_set_decided_in_an_outage_is_not_laid_at_the_edits_door(corpus: Corpus) -> None:
    """The rule set stepped back then, and would again: what it says of the Pod is beside the point."""
    Decision.objects.all().delete()
    strict = {"name": "strict", "expression": "node.metadata.labels.zone == 'c'", "reason": "another zone"}
    publish_all(make_rule_set("web", filters=[*FILTERS, strict], scores=SCORES, failures={"apiServer": "pass"}))
    away = Corpus(corpus.history, CompiledRevision(publishing.current_revision()))
    away.schedule("passed", conditions=Conditions(snapshot_age_seconds=1, api_server_reachable=False))
    corpus.history.settle()
    result, _ = found_by(opened(make_rule_set("unused")))
    assert (result.pods, result.live, result.decided) == ([], [], 0)
    assert [(each.why, each.decisions) for each in result.undecided] == [(deciding.STEPPED_BACK, 1)]


def test_mixed_decisions_are_the_same_by_the_same_rules(tmp_path: Path) -> None:
    values = [make_rule_set(name, **spec) for name, spec in test_replay.RULE_SETS.items()]
    for order, value in enumerate(values):
        match = {"podSelector": {"matchLabels": {"policy": value.name}}}
        publish_all(value, make_assignment(f"by-{value.name}", value.name, order=order, match=match))
    revision = CompiledRevision(publishing.current_revision())
    history, cluster = History(tmp_path / "spool"), test_replay.Cluster(seed=3)
    for number in range(80):
        cluster.change()
        test_replay.ask(history, cluster, revision, number)
    history.settle()
    history.spool.close()
    result, _ = found_by(opened(make_rule_set("unused")))
    assert result.differing == []
    assert result.decided + sum(each.decisions for each in result.undecided) == result.decisions
    assert result.decided > 40


def test_the_gate_goes_by_the_newest_backtest_of_the_same_edits(corpus: Corpus) -> None:
    change = planting()
    found_by(change)
    before, edits = publishing.current_revision(), publishing.edits_of(change)
    after = publishing.with_edits(before, edits)
    (result,) = examine(before, after, edits, {"backtest": "blocking"}, client=None).results
    assert (result.verdict, result.count) == ("found", 7)
    other = [publishing.Edit.of(make_rule_set("web"))]
    (result,) = examine(before, after, other, {"backtest": "blocking"}, client=None).results
    assert result.verdict == "unknown"
