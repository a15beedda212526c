"""What is watched while one Revision follows another."""

from typing import Any

import pytest

from policies.engine.decision import CompiledRevision
from policies.engine.objects.cluster_kinds import CLAIMS, OWNERS, SERVICES
from policies.engine.ruleset import Revision
from scheduler.serving.revisions import PIN_SECONDS
from scheduler.serving.watched_kinds import WatchedKinds
from tests.builders import make_rule_set


class Live:
    """Stands for the live Snapshot: notes what is required."""

    def __init__(self) -> None:
        self.required: frozenset[str] = frozenset()
        self.waited: list[frozenset[str]] = []
        self.unlisted: frozenset[str] = frozenset()

    def require(self, kinds: frozenset[str]) -> None:
        self.required = kinds

    def wait_until_listed(self, kinds: frozenset[str], timeout_seconds: float) -> frozenset[str]:
        assert kinds <= self.required
        self.waited.append(kinds)
        return kinds & self.unlisted


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.live = Live()
        self.reads = WatchedKinds(self.live, clock=lambda: self.now)  # type: ignore[arg-type] # stands for it


def revision_of(number: int, **spec: Any) -> CompiledRevision:
    return CompiledRevision(Revision(number=number, rule_sets=[make_rule_set(**spec)]))


CLAIMS_ONLY = revision_of(1, filters=[{"builtin": "NoDiskConflict"}])
SERVICES_ONLY = revision_of(2, scores=[{"builtin": "ServiceSpreadingPriority"}])
OWNERS_ONLY = revision_of(3, scores=[{"builtin": "SelectorSpreadPriority"}])


def test_a_revision_waits_for_what_it_reads() -> None:
    world = World()
    world.reads.prepare(CLAIMS_ONLY)
    assert world.live.required == {CLAIMS}
    assert world.live.waited == [{CLAIMS}]


def test_what_the_former_revision_reads_is_watched_until_no_pod_can_be_pinned_to_it() -> None:
    world = World()
    for revision in (CLAIMS_ONLY, SERVICES_ONLY):
        world.reads.prepare(revision)
        world.reads.served()
    assert world.live.required == {CLAIMS, SERVICES}
    world.now = PIN_SECONDS
    world.reads.let_go()
    assert world.live.required == {CLAIMS, SERVICES}
    world.now = PIN_SECONDS + 1
    world.reads.let_go()
    assert world.live.required == {SERVICES}


def test_nothing_is_let_go_while_the_next_revision_is_prepared() -> None:
    world = World()
    world.reads.prepare(CLAIMS_ONLY)
    world.reads.served()
    world.now = 10 * PIN_SECONDS
    world.reads.prepare(OWNERS_ONLY)
    world.now = 20 * PIN_SECONDS
    world.reads.let_go()
    assert world.live.required == {CLAIMS} | OWNERS


def test_a_list_that_is_late_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.live.unlisted = frozenset({CLAIMS})
    world.reads.prepare(CLAIMS_ONLY)
    assert [record.getMessage() for record in caplog.records] == [
        f"Revision 1 reads kinds that aren't listed yet: {CLAIMS}"
    ]
