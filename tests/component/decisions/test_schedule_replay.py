"""Decisions of Berth's own scheduler, replayed: the same rules behind the default set, the same nominated Pods, the same answer."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from policies.engine.decision import CompiledRevision
from policies.engine.errors import DeadlineError
from policies.engine.failures import Conditions
from policies.engine.objects.pod import Pod
from policies.engine.rule import Cycle
from policies.engine.scheduling import find_best
from scheduler.binder.cycle import Profile
from scheduler.binder.recording import cycle_entry, shadow_entry
from scheduler.decisions.reading import body_of
from scheduler.decisions.rebuilding import ReplayError
from scheduler.decisions.record import Entry
from scheduler.decisions.replay import Replays, replay
from scheduler.models import Decision
from scheduler.serving.shadows import GiveWay
from tests.builders import make_pod
from tests.component.decisions import test_replay
from tests.component.decisions.test_replay import AT, RULE_SETS, Cluster
from tests.recording import History

pytestmark = pytest.mark.django_db
revision = test_replay.revision
AWAY = Conditions(snapshot_age_seconds=0.0, redis_reachable=False)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mixed_cycles_replay_to_the_same_answers(tmp_path: Path, revision: CompiledRevision, seed: int) -> None:
    history, cluster, book = History(tmp_path / "spool"), Cluster(seed), Profile(revision)
    last = ""
    waiting: list[Callable[[GiveWay], Entry]] = []
    for number in range(60):
        for _ in range(cluster.random.randrange(3)):
            cluster.change()
        snapshot = cluster.live()
        if cluster.random.random() < 0.3:
            first = Pod.from_json(cluster.new_pod(f"nominated-{number}", priority=5))
            snapshot = snapshot.changed({}, nominated={cluster.random.choice(list(cluster.nodes)): [first]})
        rows = snapshot.table.all_rows()
        if cluster.random.random() < 0.3:
            rows = rows[1::2]
        pod = Pod.from_json(
            cluster.new_pod(f"asked-{number}", policy=cluster.random.choice(["", *RULE_SETS]), priority=number % 7)
        )
        placement = book.place(
            pod, snapshot, rows, now=AT + timedelta(seconds=number), after=last, conditions=AWAY if number % 9 else None
        )
        last = placement.node
        if placement.row >= 0 and cluster.random.random() < 0.5:
            cluster.builder.assume(pod, placement.node)
        entry = cycle_entry(placement, 0.001, {"node": placement.node})
        history.recorder.record(entry)
        waiting += [partial(shadow_entry, placement, *found, entry.id) for found in placement.shadows]
        # Decided later, when the cluster has moved on.
        while len(waiting) > cluster.random.randrange(4):
            history.recorder.record(waiting.pop(0)(lambda: None))
    history.settle()

    replays = Replays()
    rows_of = Decision.objects.order_by("sequence")
    assert {row.sequence: found for row in rows_of if (found := replays.replay(row).differences)} == {}
    assert {row.mode for row in rows_of} == {"enforce", "shadow"}
    assert {row.rule_set for row in rows_of} == {"classic-default", *RULE_SETS}
    history.spool.close()


def test_a_cycle_that_there_was_no_time_for_says_so_and_is_not_replayed(
    tmp_path: Path, revision: CompiledRevision
) -> None:
    def give_way() -> None:
        raise DeadlineError

    history, cluster = History(tmp_path / "spool"), Cluster(1)
    snapshot, pod = cluster.live(), Pod.from_json(cluster.new_pod("asked", policy="", priority=0))
    placement = Profile(revision).place(pod, snapshot, snapshot.table.all_rows(), now=AT, give_way=give_way)
    history.recorder.record(cycle_entry(placement, 5.0, {}))
    history.settle()
    row = Decision.objects.get()

    assert body_of(row)["notes"]["missed"]
    with pytest.raises(ReplayError, match="there was no time for all rules"):
        Replays().replay(row)
    history.spool.close()


@pytest.mark.parametrize("policy", ["", "counting"])
@pytest.mark.parametrize("given", ["a worse one", "unknown", "none"])
def test_a_node_that_is_not_among_the_best_is_no_same_answer(
    tmp_path: Path, revision: CompiledRevision, policy: str, given: str
) -> None:
    history, cluster = History(tmp_path / "spool"), Cluster(1)
    snapshot, pod = cluster.live(), Pod.from_json(cluster.new_pod("asked", policy=policy))
    placement = Profile(revision).place(pod, snapshot, snapshot.table.all_rows(), now=AT)
    assert placement.enforced is not None
    answer = placement.enforced.answer
    assert placement.enforced.rule_set.name == (policy or "classic-default")
    cycle, rows = Cycle(pod=pod, snapshot=snapshot, now=AT), snapshot.table.all_rows()
    best = find_best(answer, cycle, rows, is_default_profile=not policy).tolist()
    worse = next(name for at, name in enumerate(answer.names) if at not in best)
    # Of the rule set's own points all nodes have as many; the default set ranks them.
    assert bool(answer.totals.min() == answer.totals.max()) is bool(policy)
    node, said = {
        "a worse one": (worse, f"the Pod got {worse}, which is not among the best"),
        "unknown": ("n77", "the Pod got n77, which is not among the best"),
        "none": ("", "the Pod got no node, though some would do"),
    }[given]
    for name in (placement.node, node):
        history.recorder.record(cycle_entry(placement, 0.001, {"node": name}))
    history.settle()

    found = [replay(row).differences for row in Decision.objects.order_by("sequence")]
    assert found == [[], [said]]
    history.spool.close()


def test_a_pod_that_got_a_node_which_the_rules_refuse_is_no_same_answer(
    tmp_path: Path, revision: CompiledRevision
) -> None:
    history, cluster = History(tmp_path / "spool"), Cluster(1)
    snapshot, pod = cluster.live(), Pod.from_json(make_pod("asked", requests={"cpu": "99"}))
    placement = Profile(revision).place(pod, snapshot, snapshot.table.all_rows(), now=AT)
    assert not placement.node
    history.recorder.record(cycle_entry(placement, 0.001, {"node": "n1"}))
    history.settle()

    assert replay(Decision.objects.get()).differences == ["the Pod got n1, which is not among the best"]
    history.spool.close()
