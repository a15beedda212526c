"""Answers /preempt: which candidates may be preempted for a Pod, see `policies.engine.preemption.narrowing`."""

import time
from collections.abc import Callable, Sequence

import msgspec

from policies.engine.errors import DeadlineError
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.narrowing import Dropped, Narrowing
from policies.engine.preemption.vetoes import Candidate
from scheduler.decisions.candidates import SentCandidate, SentVictim, candidates_on
from scheduler.extender.request.objects import read_pod
from scheduler.extender.request.wire import PreemptionArgs

NOT_NOW = "Berth can't see the cluster well enough to judge"


def keep_all(args: PreemptionArgs) -> Narrowing:
    """Return the narrowing for a Pod that no rule set applies to."""
    return Narrowing(list(args.victims))


def keep_none(args: PreemptionArgs, reason: str) -> Narrowing:
    """Return the narrowing that vetoes every candidate."""
    return Narrowing([], dropped=[Dropped(node, reason) for node in args.victims])


def sent_candidates(args: PreemptionArgs) -> list[SentCandidate]:
    """Return the candidates as they are recorded."""
    return [
        SentCandidate(node, [SentVictim(each.uid, _text_of(each.raw)) for each in sent.pods], sent.pdb_violations)
        for node, sent in args.victims.items()
    ]


def _text_of(raw: msgspec.Raw | None) -> str:
    return "" if raw is None else bytes(raw).decode(errors="replace")


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
