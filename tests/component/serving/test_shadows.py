"""How the extender's and the binder's process hold their shadows."""

from datetime import UTC, datetime
from typing import Any

import pytest

from policies.engine.decision import CompiledRevision
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import Revision
from scheduler.binder.cycle import Profile
from scheduler.binder.runtime import Runtime as BinderRuntime
from scheduler.extender.runtime import Runtime as ExtenderRuntime
from scheduler.models import ShadowCount
from scheduler.serving import revisions
from scheduler.serving.revisions import PIN_SECONDS
from scheduler.serving.shadows import MOST_WAITING
from tests.builders import make_assignment, make_node, make_pod, make_rule_set

pytestmark = pytest.mark.django_db
NEVER = {"filters": [{"name": "never", "expression": "false", "reason": "never"}]}


def revision(number: int = 1) -> CompiledRevision:
    rule_sets, assignments = [make_rule_set("dry", **NEVER)], [make_assignment("dry", "dry", mode="shadow")]
    return CompiledRevision(Revision(number=number, rule_sets=rule_sets, assignments=assignments))


def test_the_binder_records_its_decision_at_once_and_the_shadows_when_there_is_time() -> None:
    runtime = BinderRuntime(identity="test")
    recorded: list[Any] = []
    runtime.recorder.record = runtime.shadows._record = recorded.append  # type: ignore[method-assign]
    snapshot = Snapshot.of([Node.from_json(make_node("n1"))], [])
    placement = Profile(revision()).place(
        Pod.from_json(make_pod("p")), snapshot, snapshot.table.all_rows(), now=datetime.now(UTC)
    )
    with runtime.shadows.call():
        runtime._record(placement, 0.001, {"node": placement.node})
        assert [(entry.mode, entry.verb, entry.encode().head.feasible) for entry in recorded] == [
            ("enforce", "schedule", 1)
        ]
        assert not runtime.shadows._waiting

    [task] = runtime.shadows._waiting
    runtime.shadows._decide(task)

    encoded = recorded[1].encode()
    shadow = encoded.head
    assert (shadow.mode, shadow.verb, shadow.rule_set, shadow.feasible) == ("shadow", "schedule", "dry", 0)
    assert (encoded.snapshot, shadow.at, shadow.pod_name) == (snapshot, recorded[0].now, "p")


def test_the_binder_passes_over_shadows_that_would_find_no_room_and_counts_them() -> None:
    runtime = BinderRuntime(identity="test")
    runtime.recorder.record = lambda _: None  # type: ignore[method-assign,assignment]
    snapshot = Snapshot.of([Node.from_json(make_node("n1"))], [])
    placement = Profile(revision()).place(
        Pod.from_json(make_pod("p")), snapshot, snapshot.table.all_rows(), now=datetime.now(UTC)
    )
    for _ in range(MOST_WAITING + 3):
        runtime._record(placement, 0.001, {"node": placement.node})
    assert len(runtime.shadows._waiting) == MOST_WAITING
    assert len(runtime.shadows._passed_over) == 3
    runtime.shadows.write_counts()
    assert ShadowCount.objects.get(assignment="dry", verb="schedule", divergence="dropped").number == 3


def test_the_binder_gives_way_while_it_decides() -> None:
    runtime = BinderRuntime(identity="test")
    assert not runtime.shadows._in_hand
    with runtime.loop._deciding():
        assert runtime.shadows._in_hand
    assert not runtime.shadows._in_hand


def test_the_extenders_pins_end_with_its_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(revisions.time, "monotonic", lambda: now[0])
    runtime = ExtenderRuntime()
    runtime._contexts._pins.pin("u", revision())
    monkeypatch.setattr(runtime, "_forget_the_dead", runtime._stopping.clear)

    for after, pins in ((PIN_SECONDS - 1, 1), (2, 0)):
        now[0] += after
        monkeypatch.setattr(runtime._changed, "wait", lambda _: runtime._stopping.set())
        runtime._run_heartbeats()
        assert len(runtime._contexts._pins) == pins
