"""What became of shadows, counted in the database: once each, and settled when the Pod has its node."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError

from policies.engine.decision import CompiledRevision
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import Revision
from scheduler.binder.cycle import Profile
from scheduler.binder.recording import cycle_entry, shadow_entry
from scheduler.decisions import shadow_counts
from scheduler.decisions.divergence import Divergence, Subject
from scheduler.decisions.reading import body_of
from scheduler.decisions.settling import settle_shadows
from scheduler.models import Decision, ShadowCount
from scheduler.serving.shadows import Shadows
from tests.builders import make_assignment, make_node, make_pod, make_rule_set
from tests.component.decisions.test_outcomes import Cluster, look
from tests.recording import History, outcome_of
from tests.unit.extender.verbs import test_shadows
from tests.unit.extender.verbs.test_shadows import NEVER, NOT_N3

pytestmark = pytest.mark.django_db

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
ONLY_N1 = {"filters": [{"name": "only-n1", "expression": "node.metadata.name == 'n1'", "reason": "no"}]}
LIKES_N2 = {"scores": [{"name": "n2", "expression": "node.metadata.name == 'n2' ? 9 : 0", "bounds": [0, 9]}]}


class Extender:
    """The extender's verbs, a history, and rule sets in mode shadow named s0, s1, …"""

    def __init__(self, folder: Path, *shadows: dict[str, Any], enforced: dict[str, Any] | None = NOT_N3) -> None:
        self.history = History(folder / "spool")
        self._setting = test_shadows.setting(*shadows, enforced=enforced)
        self._setting.answers._recorder = self.history.recorder
        self._setting.shadows = self._setting.answers._shadows = Shadows(self.history.recorder.record)

    def ask(self, verb: str, name: str, nodes: list[str] | None = None) -> None:
        getattr(self._setting, verb)(test_shadows.a_pod(name), nodes)

    def decide(self) -> None:
        self._setting.decide_shadows()
        self.history.settle()

    def seen_on(self, name: str, node: str) -> None:
        self.history.recorder.record_outcome(outcome_of(name, node, AT))
        self.history.settle()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def counts(assignment: str = "s0") -> dict[str, int]:
    rows = ShadowCount.objects.filter(assignment=assignment, number__gt=0)
    return dict(rows.values_list("divergence", "number"))


def diverged() -> dict[str, str]:
    return dict(Decision.objects.filter(assignment="s0", mode="shadow").values_list("pod_name", "divergence"))


class TestBehindKubeScheduler:
    def test_what_is_known_at_once_is_counted_when_it_is_stored(self, folder: Path) -> None:
        extender = Extender(folder, NEVER, NOT_N3)
        for name in ("a", "b"):
            extender.ask("filter", name)
        extender.decide()
        assert counts("s0") == {Divergence.REFUSED_ALL: 2}
        assert counts("s1") == {Divergence.AGREED: 2}
        row = ShadowCount.objects.get(assignment="s0")
        assert (row.revision, row.rule_set, row.rule_set_version, row.verb) == (7, "s0", 0, "filter")

    def test_what_depends_on_the_node_is_settled_when_the_pod_is_seen_on_it(self, folder: Path) -> None:
        extender = Extender(folder, ONLY_N1)
        for name in ("stays", "goes", "waits"):
            extender.ask("filter", name)
        extender.decide()
        assert counts() == {Divergence.OPEN: 3}

        extender.seen_on("stays", "n1")
        extender.seen_on("goes", "n2")

        assert diverged() == {
            "stays": Divergence.AGREED,
            "goes": Divergence.REFUSED_NODE,
            "waits": Divergence.OPEN,
        }
        assert counts() == {Divergence.AGREED: 1, Divergence.REFUSED_NODE: 1, Divergence.OPEN: 1}

    def test_what_depends_on_the_node_is_settled_when_a_look_finds_the_pod_on_it(self, folder: Path) -> None:
        """Nobody saw it bound."""
        extender, cluster = Extender(folder, ONLY_N1), Cluster()
        extender.ask("filter", "a")
        extender.decide()
        row = Decision.objects.filter(mode="shadow").get()
        cluster.put("a", node="n2")
        assert look(cluster, row.at + timedelta(hours=1)) == 1
        assert counts() == {Divergence.REFUSED_NODE: 1}

    def test_scores_are_compared_with_the_node_where_nothing_is_enforced(self, folder: Path) -> None:
        extender = Extender(folder, LIKES_N2, enforced=None)
        extender.ask("prioritize", "a", ["n1", "n2"])
        extender.decide()
        assert counts() == {Divergence.OPEN: 1}
        extender.seen_on("a", "n1")
        assert counts() == {Divergence.ANOTHER_NODE: 1}

    def test_one_that_is_stored_after_its_pod_was_seen_is_settled_at_once(self, folder: Path) -> None:
        extender = Extender(folder, ONLY_N1)
        extender.ask("filter", "late")
        extender.seen_on("late", "n2")
        extender.decide()
        assert counts() == {Divergence.REFUSED_NODE: 1}

    def test_who_settles_second_counts_nothing(self, folder: Path) -> None:
        extender = Extender(folder, ONLY_N1)
        extender.ask("filter", "a")
        extender.decide()
        for _ in range(2):
            settle_shadows([outcome_of("a", "n2", AT)])
        assert counts() == {Divergence.REFUSED_NODE: 1}

    def test_a_pod_that_is_gone_and_a_node_that_was_not_asked_about_leave_it_open(self, folder: Path) -> None:
        extender = Extender(folder, ONLY_N1)
        for name in ("gone", "elsewhere"):
            extender.ask("filter", name)
        extender.decide()
        settle_shadows([outcome_of("gone", "", AT), outcome_of("elsewhere", "n77", AT)])
        assert counts() == {Divergence.OPEN: 2}

    def test_rules_in_mode_shadow_of_an_enforced_rule_set_diverge_too(self, folder: Path) -> None:
        inside = {"filters": [{**ONLY_N1["filters"][0], "mode": "shadow"}, *NOT_N3["filters"]]}
        extender = Extender(folder, enforced=inside)
        extender.ask("filter", "a")
        extender.decide()
        assert counts("real") == {Divergence.OPEN: 1}
        extender.seen_on("a", "n2")
        assert counts("real") == {Divergence.REFUSED_NODE: 1}

    def test_an_answer_doesnt_diverge(self, folder: Path) -> None:
        extender = Extender(folder, NEVER)
        extender.ask("filter", "a")
        extender.decide()
        assert [row.divergence for row in Decision.objects.filter(mode="enforce")] == [""]

    def test_a_shadow_names_the_decision_that_it_stands_beside(self, folder: Path) -> None:
        extender = Extender(folder, NEVER)
        extender.ask("filter", "a")
        extender.decide()
        answered, shadow = Decision.objects.order_by("sequence")
        assert body_of(shadow)["notes"] == {"answered": str(answered.pk), "inside": False}


class TestBerthsOwnScheduler:
    def cycle(self, folder: Path, shadow: dict[str, Any], *, enforced: dict[str, Any]) -> dict[str, int]:
        history = History(folder / "spool")
        specs = {"s0": shadow, "real": enforced}
        assignments = [make_assignment("s0", "s0", order=1, mode="shadow"), make_assignment("real", "real", order=2)]
        rule_sets = [make_rule_set(name, **spec) for name, spec in specs.items()]
        profile = Profile(CompiledRevision(Revision(number=4, rule_sets=rule_sets, assignments=assignments)))
        snapshot = Snapshot.of([Node.from_json(make_node(name)) for name in ("n1", "n2", "n3")], [])
        pod = Pod.from_json(make_pod("p"))
        placement = profile.place(pod, snapshot, snapshot.table.all_rows(), now=AT)
        entry = cycle_entry(placement, 0.001, {"node": placement.node})
        history.recorder.record(entry)
        for assignment, rule_set in placement.shadows:
            history.recorder.record(shadow_entry(placement, assignment, rule_set, entry.id, lambda: None))
        history.settle()
        history.spool.close()
        return counts()

    @pytest.mark.parametrize(
        ("shadow", "enforced", "expected"),
        [
            (ONLY_N1, ONLY_N1, Divergence.AGREED),
            (NEVER, ONLY_N1, Divergence.REFUSED_ALL),
            (ONLY_N1, LIKES_N2, Divergence.REFUSED_NODE),
            (LIKES_N2, ONLY_N1, Divergence.ANOTHER_NODE),
            (ONLY_N1, NEVER, Divergence.LET_PASS),
        ],
    )
    def test_the_node_that_the_pod_got_is_what_counts(
        self, folder: Path, shadow: dict[str, Any], enforced: dict[str, Any], expected: Divergence
    ) -> None:
        assert self.cycle(folder, shadow, enforced=enforced) == {expected: 1}


class TestWhatHasNoDecision:
    SUBJECT = Subject(7, "s0", "rules", 2, "filter")

    def test_what_was_dropped_is_counted_with_the_heartbeat(self) -> None:
        shadows = Shadows(lambda _: None)
        for _ in range(3):
            shadows.drop(self.SUBJECT)
        assert counts() == {}
        shadows.write_counts()
        shadows.write_counts()
        shadows.drop(self.SUBJECT)
        shadows.write_counts()
        assert counts() == {"dropped": 4}

    def test_what_calls_passed_over_is_counted_with_the_heartbeat_too(self) -> None:
        shadows = Shadows(lambda _: None)
        revision = CompiledRevision(Revision(number=7, rule_sets=[make_rule_set("rules")]))
        offered = [(make_assignment("s0", "rules"), revision.rule_sets["rules"])] * 2
        for _ in range(3):
            shadows.pass_over(revision, "filter", offered)
        assert counts() == {}
        shadows.write_counts()
        assert counts() == {"dropped": 6}

    def test_it_is_kept_while_the_database_is_away(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shadows = Shadows(lambda _: None)
        shadows.drop(self.SUBJECT)

        def away(_: object) -> None:
            raise DatabaseError

        with monkeypatch.context() as patched:
            patched.setattr(shadow_counts, "add", away)
            with pytest.raises(DatabaseError):
                shadows.write_counts()
        shadows.write_counts()
        assert counts() == {"dropped": 1}
