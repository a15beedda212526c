"""Decisions of rule sets in mode shadow, decided late while the cluster moves on, replay to the same answers."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from policies.engine.decision import CompiledRevision
from policies.engine.objects.snapshot import Snapshot
from scheduler.decisions.replay import Replays
from scheduler.models import Decision
from scheduler.serving.shadows import Shadows
from tests.component.decisions import test_replay
from tests.component.decisions.test_replay import RULE_SETS, Cluster
from tests.recording import History
from tests.unit.extender.verbs.test_handlers import Setting, StillCluster

pytestmark = pytest.mark.django_db
revision = test_replay.revision


class MovingCluster(StillCluster):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def snapshot(self) -> Snapshot:
        return self._cluster.live()


@pytest.mark.parametrize("seed", [1, 2])
def test_what_the_extender_decides_after_its_answers_replays(
    tmp_path: Path, revision: CompiledRevision, seed: int
) -> None:
    history, cluster = History(tmp_path / "spool"), Cluster(seed)
    setting = Setting(cluster=MovingCluster(cluster), settle_seconds=0.0)
    setting.questions._revisions.current = revision
    setting.answers._recorder = history.recorder
    setting.shadows = setting.answers._shadows = Shadows(history.recorder.record)
    for number in range(60):
        for _ in range(cluster.random.randrange(3)):
            cluster.change()
        pod = cluster.new_pod(f"asked-{number}", policy=cluster.random.choice(["", *RULE_SETS]))
        names = cluster.random.sample(list(cluster.nodes), cluster.random.randint(1, len(cluster.nodes)))
        body = json.dumps({"Pod": pod, "NodeNames": names}).encode()
        cluster.random.choice([setting.answers.filter, setting.answers.prioritize])(body)
        if number % 7 == 6:
            setting.decide_shadows()
    setting.decide_shadows()
    history.settle()

    rows = list(Decision.objects.order_by("sequence"))
    replays = Replays()
    assert {row.sequence: found for row in rows if (found := replays.replay(row).differences)} == {}
    shadows = [row for row in rows if row.mode == "shadow"]
    assert {row.verb for row in shadows} == {"filter", "prioritize"}
    # The one is in mode shadow as a whole, the other has a rule in mode shadow.
    assert {row.rule_set for row in shadows} == {"team", "broken"}
    # A shadow comes behind Decisions that were made on later Snapshots.
    names = [(row.mode, int(row.pod_name.removeprefix("asked-"))) for row in rows]
    assert any(mode == "shadow" and number < before for (_, before), (mode, number) in pairwise(names))
    history.spool.close()
