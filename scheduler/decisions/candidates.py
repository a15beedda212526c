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
    """A node, and the Pods that kube-scheduler would preempt there."""

    node: str
    victims: list[SentVictim]
    pdb_violations: int = 0


def _read_recorded(json: str) -> Pod:
    """Return a Pod that was recorded.

    Raises:
        msgspec.DecodeError, ObjectError: the JSON can't be decoded.
    """
    return Pod.from_json(msgspec.json.decode(json))


def candidates_on(
    snapshot: Snapshot, sent: Iterable[SentCandidate], read: Callable[[str], Pod] = _read_recorded
) -> list[Candidate]:
    """Return the candidates with their victims; victims that were named by UID are taken from the node in the Snapshot.

    Args:
        snapshot: the Snapshot to decide on.
        sent: the candidates that kube-scheduler sent.
        read: makes a Pod from its JSON; its exceptions are passed on.
    """
    return [Candidate(each.node, _victims(snapshot, each, read), each.pdb_violations) for each in sent]


def _victims(snapshot: Snapshot, candidate: SentCandidate, read: Callable[[str], Pod]) -> list[Victim]:
    info = snapshot.node(candidate.node)
    there = {pod.uid: pod for pod in info.pods} if info is not None else {}
    return [Victim(each.uid, read(each.json) if each.json else there.get(each.uid)) for each in candidate.victims]


def notes_of_narrowing(found: Narrowing) -> dict[str, Any]:
    """Return a Decision's notes about a narrowing."""
    said: dict[str, Any] = msgspec.to_builtins(found)
    timed_out = said.pop("timed_out")
    return {**said, "timedOut": timed_out} if timed_out else said


def notes_of_candidates(sent: Sequence[SentCandidate]) -> dict[str, Any]:
    """Return a Decision's notes about the candidates in the call."""
    return {"candidates": msgspec.to_builtins(sent)}


def read_candidates(notes: Mapping[str, Any]) -> list[SentCandidate] | None:
    """Return the candidates in the call; None if they weren't recorded.

    Raises:
        msgspec.ValidationError: the notes aren't in the form that `notes_of_candidates` writes.
    """
    found = notes.get("candidates")
    return None if found is None else msgspec.convert(found, list[SentCandidate])
