"""Where Pods land by what is live and by what a Change would make live, side by side."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policies import publishing
from policies.engine.decision import CompiledRevision
from scheduler.models import BinderState, Decision
from scheduler.scenario import ScenarioError, rules_of, template_of, work_out
from tests.builders import make_assignment, make_rule_set
from tests.component.backtest.corpus import AT, Corpus
from tests.component.pages import publish_all
from tests.component.scenario.cases import DEPLOYMENT, POD_SPEC, cluster, only_a
from tests.recording import History

pytestmark = pytest.mark.django_db


def test_both_sides_stand_beside_each_other() -> None:
    found = work_out(template_of(DEPLOYMENT), 6, rules_of(only_a()), cluster())
    assert found.drafted is not None
    assert (found.live.fits, found.live.nodes) == (6, {"n0": 2, "n1": 2, "n2": 1, "n3": 1})
    assert (found.drafted.fits, found.drafted.nodes) == (4, {"n0": 2, "n2": 2})
    assert (found.live.before, found.live.after.cpu.max) == (found.drafted.before, 1.0)
    assert found.sentences == [
        "By what is live (the default set), 6 of 6 fit, on 4 nodes",
        f"By Change {found.change} (rule set web), 4 of 6 fit, on 2 nodes",
        "The 5th gets none: 2 nodes by PodFitsResources (Insufficient cpu), 2 nodes by zone (another zone)",
        found.sentences[-1],
    ]
    assert found.unknown == []
    assert found.sentences[-1].startswith('filter PodFitsResources refused n0: "Insufficient cpu"')


def test_pods_that_nothing_controls_are_told_on_both_sides_of_a_canary() -> None:
    publish_all(make_rule_set("next"), make_assignment("half", "next", mode="canary", percent=50))
    bare = {"kind": "Pod", "metadata": {"name": "web"}, "spec": POD_SPEC}
    found = work_out(template_of(bare), 8, rules_of(None), cluster())
    assert set(found.live.decided) == {"", "next"}
    assert sum(found.live.decided.values()) == 8
    for number, by in ((found.live.decided["next"], "rule set next"), (found.live.decided[""], "the default set")):
        assert f"{number} Pod{'s' * (number != 1)} by {by}" in found.sentences[0]
    assert ": a canary draws for each Pod), 8 of 8 fit" in found.sentences[0]
    assert len(work_out(template_of(DEPLOYMENT), 8, rules_of(None), cluster()).live.decided) == 1


def test_nodes_that_are_not_the_schedulers_take_none(settings: Any) -> None:
    settings.BERTH = msgspec.structs.replace(settings.BERTH, scheduler_node_label=("zone", "b"))
    found = work_out(template_of(DEPLOYMENT), 6, rules_of(only_a()), cluster())
    assert found.drafted is not None
    assert (found.live.nodes, found.drafted.nodes) == ({"n1": 2, "n3": 2}, {})


def test_it_comes_to_the_same_each_time() -> None:
    change = only_a()
    one, other = (work_out(template_of(DEPLOYMENT), 6, rules_of(change), cluster()) for _ in range(2))
    assert (one.live, one.drafted) == (other.live, other.drafted)


@pytest.mark.parametrize(
    ("number", "running", "said"),
    [
        (2, 3, "2 Pods can't be placed, because 3 run already: ask for 4 to 5,003 in all"),
        (3, 3, "3 Pods can't be placed, because 3 run already: ask for 4 to 5,003 in all"),
        (1, 1, "1 Pod can't be placed, because 1 runs already: ask for 2 to 5,001 in all"),
        (5_001, 0, "5,001 Pods can't be placed: ask for 1 to 5,000"),
    ],
    ids=["fewer than run", "as many as run", "one", "too many"],
)
def test_how_many_pods_may_be_asked_for_is_said_by_those_that_run(number: int, running: int, said: str) -> None:
    template = msgspec.structs.replace(template_of(DEPLOYMENT), running=running)

    with pytest.raises(ScenarioError, match=f"^{said}$"):
        work_out(template, number, rules_of(None), cluster())


def test_equal_nodes_go_on_behind_the_one_that_berths_scheduler_picked_last(tmp_path: Path) -> None:
    history = History(tmp_path / "spool")
    corpus = Corpus(history, CompiledRevision(publishing.current_revision()), nodes=4)
    at = AT + timedelta(hours=1)

    def first_of_three() -> dict[str, int]:
        history.settle()
        return dict(work_out(template_of(DEPLOYMENT), 1, rules_of(None), cluster(), at).live.nodes)

    assert first_of_three() == {"n0": 1}
    corpus.schedule("first")
    corpus.schedule("second")
    corpus.schedule("too large", cpu="1000")
    assert first_of_three() == {"n1": 1}  # behind n0001, where the second went
    Decision.objects.update(body=b"damaged")
    assert first_of_three() == {"n0": 1}
    history.spool.close()


@pytest.mark.parametrize(("leads", "seconds_ago", "node"), [(True, 1, "n2"), (True, 120, "n0"), (False, 1, "n0")])
def test_a_scenario_of_now_goes_on_where_berths_scheduler_says_that_it_stands(
    *, leads: bool, seconds_ago: int, node: str
) -> None:
    """One that was started anew stands nowhere yet, whatever is recorded of the one before it."""
    heard = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    BinderState.objects.create(identity="b", process="p", heartbeat_at=heard, leads=leads, last_node="n1")
    assert work_out(template_of(DEPLOYMENT), 1, rules_of(None), cluster()).live.nodes == {node: 1}


def test_a_change_that_is_not_there_is_named() -> None:
    with pytest.raises(ScenarioError, match="there is no Change 4711"):
        rules_of(4711)
