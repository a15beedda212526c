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
from scheduler.binder.cycle import Profile
from scheduler.binder.recording import cycle_entry, shadow_entry
from scheduler.decisions.reading import body_of
from scheduler.decisions.record import Entry
from scheduler.decisions.replay import ReplayError, Replays
from scheduler.models import Decision
from scheduler.serving.shadows import GiveWay
from tests.component.decisions import test_replay
from tests.component.decisions.test_replay import AT, RULE_SETS, Cluster
from tests.recording import History

pytestmark = pytest.mark.django_db
revision = test_replay.revision
AWAY = Conditions(snapshot_age_seconds=0.0, redis_reachable=False)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mixed_cycles_replay_to_the_same_answers(tmp_path: Path, revision: CompiledRevision, seed: int) -> None:
    history, cluster, book = History(tmp_path / "spool"), Cluster(seed), Profile(revision)
    last = -1
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
        last = max(placement.row, -1)
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
