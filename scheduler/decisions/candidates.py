"""The candidates of a preemption as they are recorded, so that a replay finds the same victims."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.narrowing import Narrowing
from policies.engine.preemption.vetoes import Candidate
from policies.engine.victims import Victim


class SentVictim(msgspec.Struct, omit_defaults=True):
    """A victim as kube-scheduler named it: by its UID, or by all of its JSON."""

    uid: str
    json: str = ""


class SentCandidate(msgspec.Struct, rename="camel", omit_defaults=True):
    """A node, and whom kube-scheduler would remove there."""

    node: str
    victims: list[SentVictim]
    pdb_violations: int = 0


def read_recorded(json: str) -> Pod:
    """Return a Pod that was recorded.

    Raises:
        msgspec.DecodeError, ObjectError: it can't be read.
    """
    return Pod.from_json(msgspec.json.decode(json))


def candidates_on(
    snapshot: Snapshot, sent: Iterable[SentCandidate], read: Callable[[str], Pod] = read_recorded
) -> list[Candidate]:
    """Return the candidates with their victims: as the Snapshot has them on the node, where they were named by UID.

    Args:
        snapshot: what is decided on.
        sent: what kube-scheduler sent.
        read: makes a Pod of its JSON; what it raises goes through.
    """
    return [Candidate(each.node, _victims(snapshot, each, read), each.pdb_violations) for each in sent]


def _victims(snapshot: Snapshot, candidate: SentCandidate, read: Callable[[str], Pod]) -> list[Victim]:
    info = snapshot.node(candidate.node)
    there = {pod.uid: pod for pod in info.pods} if info is not None else {}
    return [Victim(each.uid, read(each.json) if each.json else there.get(each.uid)) for each in candidate.victims]


def notes_of_narrowing(found: Narrowing) -> dict[str, Any]:
    """Return what a Decision says of a narrowing."""
    said: dict[str, Any] = msgspec.to_builtins(found)
    timed_out = said.pop("timed_out")
    return {**said, "timedOut": timed_out} if timed_out else said


def notes_of_candidates(sent: Sequence[SentCandidate]) -> dict[str, Any]:
    """Return what a Decision says of what was asked."""
    return {"candidates": msgspec.to_builtins(sent)}


def read_candidates(notes: Mapping[str, Any]) -> list[SentCandidate] | None:
    """Return what was asked; None where that isn't recorded.

    Raises:
        msgspec.ValidationError: it isn't what `notes_of_candidates` writes.
    """
    found = notes.get("candidates")
    return None if found is None else msgspec.convert(found, list[SentCandidate])
