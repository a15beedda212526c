"""A backtest names exactly the Pods that it should, by whatever a Change treats them otherwise, and counts what it did to each."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from policies import publishing
from policies.engine.decision import CompiledRevision
from policies.engine.objects.owners import draw
from policies.engine.objects.pod import Pod
from policies.publishing import Edit
from scheduler.backtest import runs
from scheduler.backtest.compare import Kind
from scheduler.backtest.runs import Span, Worker, lines_of, result_of, start_backtest
from scheduler.decisions.reading import body_of
from scheduler.models import Decision
from tests.builders import make_assignment, make_exemption, make_pause, make_rule_set
from tests.component.backtest.corpus import AT, Corpus
from tests.component.pages import publish_all
from tests.recording import History

pytestmark = pytest.mark.django_db

ZONE = {"name": "zone", "expression": "node.metadata.labels.zone == params.zone", "reason": "another zone"}
SCORES = [{"builtin": "LeastRequestedPriority"}]
STRICT = {"podSelector": {"matchLabels": {"policy": "strict"}}}
HALF = AT + timedelta(seconds=30)
# Which zones a Pod may go to.
Zones = Callable[[Pod, datetime], str]


def strict(**more: Any) -> Any:
    return make_rule_set("strict", **{"filters": [ZONE], "scores": SCORES, "params": {"zone": "a"}} | more)


def live(pod: Pod, at: datetime) -> str:
    del at
    return "a" if pod.labels.get("policy") == "strict" else "ab"


def is_exempt(pod: Pod, at: datetime) -> bool:
    return at < HALF and pod.labels["app"] == "x"


WINDOW = {"name": "hours", "expression": "now.getSeconds() < 40", "reason": "closed"}
CHANGES: dict[str, tuple[Any, Zones]] = {
    "a canary": (
        make_assignment("try", "strict", order=1, mode="canary", percent=50),
        lambda pod, at: "a" if draw("try", pod) < 50 else live(pod, at),
    ),
    "a shadow": (make_assignment("try", "strict", order=1, mode="shadow"), live),
    "an exemption": (
        make_exemption(
            "some",
            "RuleSet/strict",
            pods=[{"namespace": "default", "selector": {"matchLabels": {"app": "x"}}}],
            until=HALF.isoformat(),
        ),
        lambda pod, at: "ab" if is_exempt(pod, at) else live(pod, at),
    ),
    "a pause of a rule": (
        make_pause("zone", "RuleSet/strict/zone", until=HALF.isoformat()),
        lambda pod, at: "ab" if at < HALF else live(pod, at),
    ),
    "a pause of an Assignment": (make_pause("by", "Assignment/strict"), lambda _pod, _at: "ab"),
    "a time window": (
        strict(filters=[ZONE, WINDOW]),
        lambda pod, at: "" if at.second >= 40 and live(pod, at) == "a" else live(pod, at),
    ),
    "params": (
        make_assignment("strict", "strict", order=10, match=STRICT, params={"zone": "b"}),
        lambda pod, at: "b" if live(pod, at) == "a" else "ab",
    ),
    "an order": (make_assignment("all", "web", order=1), lambda _pod, _at: "ab"),
}


@pytest.fixture
def corpus(tmp_path: Path) -> Iterator[Corpus]:
    """60 questions about 20 Pods, some of which are asked about again and again; a part may go to zone a only."""
    publish_all(
        make_rule_set("web", scores=SCORES),
        strict(),
        make_assignment("all", "web", order=50),
        make_assignment("strict", "strict", order=10, match=STRICT),
    )
    history = History(tmp_path / "spool")
    made = Corpus(history, CompiledRevision(publishing.current_revision()))
    random = Random(1)
    labels = [
        {"app": random.choice("xy"), **({"policy": "strict"} if random.random() < 0.5 else {})} for _ in range(20)
    ]
    for number in range(60):
        chosen = number if number < 20 else random.randrange(20)
        made.ask(f"p{chosen}", **labels[chosen])
    history.settle()
    yield made
    history.spool.close()


def expected(what: str) -> Counter[tuple[Kind, str]]:
    """Count by hand in how many Decisions each Pod would have been treated otherwise, and how."""
    _, zones = CHANGES[what]
    found: Counter[tuple[Kind, str]] = Counter()
    for row in Decision.objects.all():
        body = body_of(row)
        pod = Pod.from_json(body["pod"])
        zone_of = {name: "ab"[int(name[1:]) % 2] for name in body["nodes"]}
        then = {name for name in zone_of if zone_of[name] in live(pod, row.at)}
        now = {name for name in zone_of if zone_of[name] in zones(pod, row.at)}
        kind = None
        if row.verb == "filter" and then != now:
            kind = Kind.OTHER_NODES if now and then else Kind.NO_NODE if then else Kind.ALLOWED
        elif row.verb == "prioritize" and now and row.best not in now:
            kind = Kind.OTHER_BEST
        elif (
            row.verb == "prioritize" and what == "an exemption" and live(pod, row.at) == "a" and is_exempt(pod, row.at)
        ):
            kind = Kind.OTHER_POINTS  # no rule set applies, so that nothing ranks its nodes
        if kind:
            found[kind, f"{row.pod_namespace}/{row.pod_name}"] += 1
    return found


@pytest.mark.parametrize("what", CHANGES)
def test_the_pods_are_named_that_it_treats_otherwise_and_no_others(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    edit, _ = CHANGES[what]
    monkeypatch.setattr(runs, "CHUNK", 7)
    change = publishing.open_change(title=what, edits=[Edit.of(edit)], by="ops")
    row = start_backtest(change=change, by="ops", span=Span())
    Worker(row.pk).work()
    row.refresh_from_db()
    result = result_of(row)
    assert result is not None, row.fault
    wanted = expected(what)
    assert {(line.kind, line.pod): line.times for line in lines_of(row)} == wanted
    assert result.undecided == []
    assert result.same == Decision.objects.count() - wanted.total()
    assert {each.kind: (each.pods, each.decisions) for each in result.differing} == {
        kind: (len(times), sum(times))
        for kind in Kind
        if (times := [number for (each, _pod), number in wanted.items() if each is kind])
    }
    assert bool(wanted) is (what != "a shadow")
