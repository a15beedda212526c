"""From pausing to answers that go by it: the extender's verbs and the cycles of Berth's own scheduler, by what a process takes up."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policies import publishing
from policies.engine.decision import CompiledRevision
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.scheduling import default_profile
from scheduler.binder.cycle import Profile, opens_at
from scheduler.binder.recording import cycle_entry
from scheduler.decisions.record import SUSPENDED_BY, Body
from scheduler.serving.revisions import RevisionHolder
from tests.builders import make_assignment, make_node, make_pause, make_pod, make_rule_set
from tests.component.pages import publish_all
from tests.unit.extender.verbs.test_handlers import Setting

pytestmark = pytest.mark.django_db
FILTERS = [
    {"name": f"not-{name}", "expression": f"node.metadata.name != '{name}'", "reason": name} for name in ("n1", "n2")
]
SCORES = [{"name": "third", "expression": "node.metadata.name == 'n3' ? 10 : 0", "bounds": [0, 10]}]
NAMES = ["n1", "n2", "n3"]
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def holder(tmp_path: Path) -> RevisionHolder:
    """What a process serves by, once rules are published."""
    publish_all(make_rule_set("web", filters=FILTERS, scores=SCORES), make_assignment("all", "web"))
    holder = RevisionHolder(path=tmp_path / "revision.json", poll_seconds=60)
    holder.poll()
    return holder


def served(holder: RevisionHolder) -> CompiledRevision:
    """What is served after the next look, which each process has twice a second."""
    holder.poll()
    assert holder.current is not None
    return holder.current


def extender(holder: RevisionHolder) -> Setting:
    setting = Setting()
    setting.questions._revisions = holder
    return setting


def notes(entry: Any) -> Any:
    return msgspec.msgpack.decode(entry.encode().body, type=Body).notes


@pytest.mark.parametrize(
    ("target", "passing", "scores"),
    [
        ("RuleSet/web/not-n1", ["n1", "n3"], {"n1": 0, "n2": 0, "n3": 10}),
        ("RuleSet/web/third", ["n3"], {"n1": 0, "n2": 0, "n3": 0}),
        ("RuleSet/web", NAMES, {}),
        ("Assignment/all", NAMES, {}),
        ("everything", NAMES, {}),
    ],
)
def test_the_extender_answers_without_what_is_paused_until_it_is_resumed(
    holder: RevisionHolder, target: str, passing: list[str], scores: dict[str, int]
) -> None:
    setting, pod = extender(holder), make_pod("p", uid="uid-p")
    assert setting.filter(pod)["NodeNames"] == ["n3"]

    publishing.pause(target=target, by="ops", reason="storm")
    served(holder)
    assert setting.filter(pod)["NodeNames"] == passing
    assert setting.prioritize(pod) == scores
    for entry in setting.recorder.records[-2:]:
        assert [each["target"] for each in notes(entry)[SUSPENDED_BY]] == [target]

    publishing.resume(target=target, by="ops", reason="over")
    served(holder)
    assert setting.filter(pod)["NodeNames"] == ["n3"]
    assert SUSPENDED_BY not in notes(setting.recorder.records[-1])


def test_a_kept_revision_has_its_pauses_after_a_start_without_the_database(
    holder: RevisionHolder, tmp_path: Path
) -> None:
    publishing.pause(target="everything", by="ops", reason="storm")
    served(holder)
    again = RevisionHolder(path=tmp_path / "revision.json", poll_seconds=60)
    again._read_kept()
    assert again.current is not None
    assert again.current.revision == served(holder).revision


def test_binding_and_preemption_go_without_what_is_paused(holder: RevisionHolder) -> None:
    setting, pod = extender(holder), make_pod("p", uid="uid-p")
    assert setting.preempt(pod, n1=[], n3=[]) == ["n3"]
    publishing.pause(target="everything", by="ops", reason="storm")
    served(holder)
    assert setting.preempt(pod, n1=[], n3=[]) == ["n1", "n3"]
    assert notes(setting.recorder.records[-1])[SUSPENDED_BY][0]["name"] == "everything"


SNAPSHOT = Snapshot.of([Node.from_json(make_node(name)) for name in NAMES], [])


def placed(revision: CompiledRevision, now: datetime = NOW, **pod: Any) -> Any:
    return Profile(revision).place(Pod.from_json(make_pod("p", **pod)), SNAPSHOT, SNAPSHOT.table.all_rows(), now=now)


def test_berths_own_scheduler_goes_by_the_default_set_instead(holder: RevisionHolder) -> None:
    assert placed(served(holder)).node == "n3"
    publish_all(make_pause(until="2026-05-01T13:00:00Z"))
    paused = placed(served(holder))
    assert paused.enforced.rule_set is default_profile()
    assert [each["target"] for each in notes(cycle_entry(paused, 0.1, {"node": "n1"}))[SUSPENDED_BY]] == ["RuleSet/web"]
    assert placed(served(holder), now=datetime(2026, 5, 1, 13, tzinfo=UTC)).node == "n3"


def test_its_refused_pods_are_tried_again_when_a_pause_ends(holder: RevisionHolder) -> None:
    until = datetime(2026, 5, 1, 13, tzinfo=UTC)
    publish_all(make_pause(target="RuleSet/web/third", until=until.isoformat()))
    refused = placed(served(holder), nodeSelector={"none": "has this"})
    assert refused.node == ""
    assert opens_at(refused) == until
    assert opens_at(placed(served(holder), now=until, nodeSelector={"none": "has this"})) is None


def test_what_is_left_of_a_rule_set_is_the_same_object_for_every_pod(holder: RevisionHolder) -> None:
    publishing.pause(target="RuleSet/web/not-n1", by="ops", reason="storm")
    profile = Profile(served(holder))
    rows = SNAPSHOT.table.all_rows()
    placements = [profile.place(Pod.from_json(make_pod(name)), SNAPSHOT, rows, now=NOW) for name in ("a", "b")]
    rule_sets = [found.enforced.rule_set for found in placements if found.enforced]
    assert rule_sets[0] is rule_sets[1]
    assert rule_sets[0].keys().isdisjoint(["not-n1"])


def test_what_the_binder_keeps_of_them_is_limited(holder: RevisionHolder, monkeypatch: pytest.MonkeyPatch) -> None:
    revision = served(holder)
    profile = Profile(revision)
    monkeypatch.setattr(profile, "_most_kept", 2)
    whole = revision.rule_sets["web"]
    for keys in (["not-n1"], ["not-n2"], ["not-n1", "not-n2"]):
        profile.of(whole.without(keys))
    assert len(profile._with_default_filters) == 2
    assert profile.of(whole) is profile.of(whole)
