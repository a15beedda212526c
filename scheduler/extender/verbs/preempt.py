"""Answers /preempt: which candidates may be preempted for a Pod, see `policies.engine.preemption.narrowing`."""

import time
from collections.abc import Callable, Sequence

import msgspec

from policies.engine.errors import DeadlineError
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.narrowing import Dropped, Narrowing
from policies.engine.preemption.vetoes import Candidate
from scheduler.decisions.candidates import SentCandidate, candidates_on
from scheduler.extender.request.objects import read_pod

NOT_NOW = "Berth can't see the cluster well enough to judge"


def keep_all(sent: Sequence[SentCandidate]) -> Narrowing:
    """Return the narrowing for a Pod whose candidates no rule is asked about."""
    return Narrowing([each.node for each in sent])


def keep_none(sent: Sequence[SentCandidate]) -> Narrowing:
    """Return the narrowing that drops every candidate, because the rules can't be evaluated for now."""
    return Narrowing([], dropped=[Dropped(each.node, NOT_NOW) for each in sent])


def read_candidates(snapshot: Snapshot, sent: Sequence[SentCandidate]) -> list[Candidate]:
    """Return the candidates with their victims.

    Raises:
        WireError: a victim isn't a Pod, or is larger than any Pod can be.
    """
    return candidates_on(snapshot, sent, lambda json: read_pod(msgspec.Raw(json.encode())))


def deadline(until: float) -> Callable[[], None]:
    """Return a function that ends an evaluation when time is up. `until` is in seconds of `time.perf_counter()`."""

    def end_in_time() -> None:
        if time.perf_counter() > until:
            raise DeadlineError

    return end_in_time
