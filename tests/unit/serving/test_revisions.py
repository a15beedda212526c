"""Which Revision filtered a Pod, so that the same one scores it."""

import threading

import pytest

from policies.engine.decision import CompiledRevision
from policies.engine.ruleset import Revision
from scheduler.serving import revisions
from scheduler.serving.revisions import PIN_SECONDS, Pins


def revision(number: int) -> CompiledRevision:
    return CompiledRevision(Revision(number=number))


class TestPins:
    def test_a_pod_keeps_the_revision_that_filtered_it_last(self) -> None:
        pins, first, second = Pins(), revision(1), revision(2)
        pins.pin("a", first)
        pins.pin("b", first)
        pins.pin("a", second)
        assert (pins.of("a"), pins.of("b"), pins.of("c")) == (second, first, None)

    def test_a_pin_ends_after_a_minute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [1000.0]
        monkeypatch.setattr(revisions.time, "monotonic", lambda: now[0])
        pins, first = Pins(), revision(1)
        pins.pin("a", first)
        now[0] += PIN_SECONDS
        assert pins.of("a") is first
        now[0] += 0.1
        assert pins.of("a") is None

    def test_the_pod_pinned_longest_ago_is_given_up_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(revisions, "_MAX_PINS", 2)
        pins, first = Pins(), revision(1)
        for uid in ("a", "b", "a", "c"):
            pins.pin(uid, first)
        assert [pins.of(uid) for uid in ("a", "b", "c")] == [first, None, first]

    def test_threads_share_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(revisions, "_MAX_PINS", 50)
        pins, known = Pins(), [revision(number) for number in range(4)]
        wrong: list[str] = []

        def work(number: int) -> None:
            for step in range(300):
                uid = f"{number}-{step}"
                pins.pin(uid, known[number])
                if pins.of(uid) not in {known[number], None}:
                    wrong.append(uid)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
