"""Sends to the API server what `plan` says about PriorityClasses, and nothing else.

A class is replaced in steps of which each can be the last: the API server is asked whether it would take the new one, what is to
be done is written down, the class is deleted and made anew. Whoever looks next goes on from what is written and what is there.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from policies.engine.ruleset import PriorityClass
from scheduler.cluster.client import MERGE_PATCH, Client, Query
from scheduler.cluster.errors import (
    APIConflictError,
    APIError,
    APIForbiddenError,
    APIInvalidError,
    APINotFoundError,
    APIUnavailableError,
)
from scheduler.priority_classes.plan import CREATED, ORIGIN, SENT, Act, Found, Replacement, Step, digest_of

PATH: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
LABEL: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "berth"
# An annotation: the digest of what Berth applied last. By it a change of others is told from a new version.
DIGEST: Final = "berth/applied"
# Annotations of a class that was put back: the digest of what the API server refused in its place, and its words.
REFUSED: Final = "berth/refused"
REFUSED_WHY: Final = "berth/refused-because"
_LONGEST_WHY = 1_000
_DRY_RUN: Final = {"dryRun": "All"}
_TIMEOUT_SECONDS = 5.0
_REFUSALS = (APIInvalidError, APIForbiddenError)
# Faults of one request. The others are the API server's, and the next request would have them too.
_OF_ONE_CLASS = (APIConflictError, APINotFoundError, *_REFUSALS)
# Admission sees only with a delay that a global default is gone: what it refuses for that is tried again this often.
_TRIES = 20
_PAUSE_SECONDS = 0.05
# What a class keeps when it is made anew.
_CARRIED = ("labels", "annotations", "finalizers", "ownerReferences")

T = TypeVar("T")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a step. `state` is one of ClusterPriorityClass; `found` is what the cluster has now."""

    step: Step
    state: str
    message: str = ""
    found: Found | None = None

    @property
    def is_finished(self) -> bool:
        """Whether looking again soon would do nothing more."""
        return self.state in {"applied", "deleted"} or self.step.act not in SENT | {Act.WAIT}


def read_classes(client: Client) -> list[Found]:
    """Read all PriorityClasses of the cluster.

    Raises:
        APIError: they can't be read.
    """
    # Whole, not in pages: they are few, and a look must not hang for long.
    answer = client.get(path=PATH, timeout_seconds=_TIMEOUT_SECONDS)
    return [found_of(item) for item in _decoded(answer, _List).items or ()]


class _List(msgspec.Struct, frozen=True):
    items: list[dict[str, Any]] | None = None


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    deletion_timestamp: str = ""


class _Item(msgspec.Struct, rename="camel", frozen=True):
    metadata: _Metadata
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""


def _decoded(answer: bytes, type_: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=type_)
    except msgspec.DecodeError as error:
        message = f"{PATH}: the answer isn't what Kubernetes gives: {error}"
        raise APIUnavailableError(message) from error


def found_of(json: Mapping[str, Any]) -> Found:
    """Return what Berth reads of a PriorityClass of the API server.

    Raises:
        APIUnavailableError: it isn't one.
    """
    try:
        item = msgspec.convert(json, _Item)
    except msgspec.ValidationError as error:
        message = f"{PATH}: the answer isn't what Kubernetes gives: {error}"
        raise APIUnavailableError(message) from error
    metadata = item.metadata
    labels, annotations = metadata.labels or {}, metadata.annotations or {}
    return Found(
        name=metadata.name,
        value=item.value,
        global_default=item.global_default,
        preemption_policy=item.preemption_policy,
        description=item.description,
        resource_version=metadata.resource_version,
        uid=metadata.uid,
        is_managed=labels.get(LABEL) == MANAGER,
        is_made_by_berth=annotations.get(ORIGIN) == CREATED,
        is_going=bool(metadata.deletion_timestamp),
        digest=annotations.get(DIGEST, ""),
        refused=annotations.get(REFUSED, ""),
        refused_why=annotations.get(REFUSED_WHY, ""),
        metadata={member: json["metadata"][member] for member in _CARRIED if json["metadata"].get(member)},
    )


# Writes down that a class is to be deleted and made anew, so that whoever comes next can finish it.
Journal = Callable[[Step, Replacement], None]


def apply(
    steps: Sequence[Step],
    client: Client,
    *,
    journal: Journal,
    may_go_on: Callable[[], bool] = lambda: True,
    pause: Callable[[float], None] = time.sleep,
) -> list[Outcome]:
    """Take the steps and say what came of each. What can't be done now is pending, and a later look does it.

    Args:
        steps: from `plan`.
        client: of the cluster.
        journal: called before a class is deleted to be made anew.
        may_go_on: asked before each change; after the first no nothing is changed any more.
        pause: waits for some seconds.
    """
    outcomes = []
    halted = ""
    executor = _Executor(client, journal, pause)
    for step in steps:
        if step.act not in SENT:
            outcomes.append(_outcome_of_rest(step))
            continue
        if not halted and not may_go_on():
            halted = "A newer Revision was published; that is applied in its place."
        if halted:
            outcomes.append(_unfinished(step, halted, step.found))
            continue
        try:
            outcomes.append(executor.send(step))
        except APIError as error:
            outcomes.append(_outcome_of_fault(step, error, executor.there))
            halted = "" if isinstance(error, _OF_ONE_CLASS) else str(error)
    return outcomes


_STATES = {
    Act.NOTHING: "applied",
    Act.WAIT: "pending",
    Act.CONFLICT: "conflict",
    Act.FOREIGN: "foreign",
    Act.DRIFTED: "drifted",
    Act.REFUSED: "refused",
    Act.KEEP: "kept",
    Act.SYSTEM: "system",
}


def _outcome_of_rest(step: Step) -> Outcome:
    return Outcome(step=step, state=_STATES[step.act], message=step.message, found=step.found)


def _unfinished(step: Step, message: str, there: Found | None) -> Outcome:
    return Outcome(step=step, state="pending" if step.wanted else "kept", message=message, found=there)


def _outcome_of_fault(step: Step, error: APIError, there: Found | None) -> Outcome:
    if isinstance(error, APIConflictError | APINotFoundError):
        return _unfinished(step, "It changed in the cluster at the same moment; Berth looks again.", there)
    if isinstance(error, _REFUSALS):
        state = "refused" if step.wanted else "kept"
        return Outcome(step=step, state=state, message=f"The API server refused: {error}", found=there)
    if there is None and step.act is Act.REPLACE:
        return _unfinished(step, f"The cluster is without it until it is made anew: {error}", there)
    return _unfinished(step, str(error), there)


class _Executor:
    """Sends one step after the other. `there` is what the cluster was known to have last of the class in hand."""

    def __init__(self, client: Client, journal: Journal, pause: Callable[[float], None]) -> None:
        self._client = client
        self._journal = journal
        self._pause = pause
        self.there: Found | None = None

    def send(self, step: Step) -> Outcome:
        """Change the cluster, and return what came of it.

        Raises:
            APIError: the API server is away, or refuses.
        """
        self.there = step.found
        match step.act, step.wanted, step.found:
            case Act.CREATE, PriorityClass() as wanted, None if step.replacement is not None:
                return self._make_anew(step, wanted, step.replacement)
            case Act.CREATE, PriorityClass() as wanted, _:
                return _applied(step, self._post(_object(wanted, {})))
            case ((Act.UPDATE | Act.ADOPT), PriorityClass() as wanted, Found() as found):
                return _applied(step, self._patch(found, _patch(wanted, found)))
            case Act.REPLACE, PriorityClass() as wanted, Found() as found:
                return self._replace(step, wanted, found)
            case Act.PUT_BACK, None, None if step.replacement is not None:
                found = self._post_patiently(dict(step.replacement.former))
                return Outcome(step=step, state="kept", message=step.message, found=found)
            case Act.DELETE, None, Found() as found:
                self._delete(found)
                return Outcome(step=step, state="deleted")
        raise AssertionError(step)  # `plan` makes no others

    def _replace(self, step: Step, wanted: PriorityClass, found: Found) -> Outcome:
        self._ask_whether_it_would_be_taken(wanted, found)
        former = _former(found)
        begun = Replacement(name=found.name, uid=found.uid, value_before=found.value, former=former)
        self._journal(step, begun)
        # From here on, whoever comes next finishes it.
        self._delete(found)
        self.there = None
        return self._make_anew(step, wanted, begun)

    def _ask_whether_it_would_be_taken(self, wanted: PriorityClass, found: Found) -> None:
        """Raise what the API server would refuse, before anything is deleted: it says last that there is one of this name."""
        # Of a class that is the global default already, admission would take the new one for a second.
        body = _object(wanted, found.metadata, is_default=wanted.global_default and not found.global_default)
        with contextlib.suppress(APIConflictError):
            self._client.post(
                path=PATH, query=_DRY_RUN, body=msgspec.json.encode(body), timeout_seconds=_TIMEOUT_SECONDS
            )
        if wanted.global_default:  # which the new one becomes by a change of its own
            self._patch(found, _patch(wanted, found), query=_DRY_RUN)

    def _make_anew(self, step: Step, wanted: PriorityClass, begun: Replacement) -> Outcome:
        """Make a class that was deleted for it; where the API server refuses it, put the former one back."""
        try:
            # The default is given when it is there: admission may still see the one that was deleted.
            found = self._post(_object(wanted, begun.former["metadata"], is_default=False))
        except _REFUSALS as error:
            return self._put_back(step, wanted, begun, str(error))
        self.there = found
        return _applied(step, self._patch(found, _patch(wanted, found)) if wanted.global_default else found)

    def _put_back(self, step: Step, wanted: PriorityClass, begun: Replacement, why: str) -> Outcome:
        metadata = begun.former["metadata"]
        marks = {REFUSED: digest_of(wanted), REFUSED_WHY: why[:_LONGEST_WHY]}
        annotations = {**(metadata.get("annotations") or {}), **marks}
        try:
            found = self._post_patiently({**begun.former, "metadata": {**metadata, "annotations": annotations}})
        except _REFUSALS as error:
            message = f"The cluster is without it. The API server refused it: {why}; and the former one: {error}"
            return Outcome(step=step, state="refused", message=message)
        message = f"The API server refused it when it was to be made anew, and the former one was put back: {why}"
        return Outcome(step=step, state="refused", message=message, found=found)

    def _post(self, body: Mapping[str, Any]) -> Found:
        answer = self._client.post(path=PATH, body=msgspec.json.encode(body), timeout_seconds=_TIMEOUT_SECONDS)
        return found_of(_decoded(answer, dict[str, Any]))

    def _post_patiently(self, body: Mapping[str, Any]) -> Found:
        """Post a class that may be the global default a moment after it was deleted as the global default."""
        for _ in range(_TRIES if body.get("globalDefault") else 0):
            try:
                return self._post(body)
            except APIForbiddenError:
                self._pause(_PAUSE_SECONDS)
        return self._post(body)

    def _patch(self, found: Found, patch: Mapping[str, Any], query: Query | None = None) -> Found:
        answer = self._client.patch(
            path=f"{PATH}/{found.name}",
            query=query,
            body=msgspec.json.encode(patch),
            content_type=MERGE_PATCH,
            timeout_seconds=_TIMEOUT_SECONDS,
        )
        return found_of(_decoded(answer, dict[str, Any]))

    def _delete(self, found: Found) -> None:
        only_this = {"preconditions": {"uid": found.uid, "resourceVersion": found.resource_version}}
        self._client.delete(
            path=f"{PATH}/{found.name}", body=msgspec.json.encode(only_this), timeout_seconds=_TIMEOUT_SECONDS
        )


def _applied(step: Step, found: Found) -> Outcome:
    return Outcome(step=step, state="applied", found=found)


def _object(wanted: PriorityClass, metadata: Mapping[str, Any], *, is_default: bool | None = None) -> dict[str, Any]:
    """Return a class as it is posted.

    Args:
        wanted: what it holds.
        metadata: what it keeps of a class in whose place it comes.
        is_default: whether it is made the global default at once; else that is an update of its own, and noted as missing.
    """
    default = wanted.global_default if is_default is None else is_default
    kept = {name: text for name, text in (metadata.get("annotations") or {}).items() if name not in _OURS}
    marks = {ORIGIN: (metadata.get("annotations") or {}).get(ORIGIN, CREATED)}
    if default == wanted.global_default:
        marks[DIGEST] = digest_of(wanted)
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {
            **metadata,
            "name": wanted.name,
            "labels": {**(metadata.get("labels") or {}), LABEL: MANAGER},
            "annotations": {**kept, **marks},
        },
        "value": wanted.value,
        "globalDefault": default,
        "preemptionPolicy": wanted.preemption_policy,
        "description": wanted.description,
    }


_OURS = frozenset({ORIGIN, DIGEST, REFUSED, REFUSED_WHY})


def _former(found: Found) -> dict[str, Any]:
    """Return a class of the cluster as it would be posted to put it back."""
    annotations = found.metadata.get("annotations") or {}
    kept = {name: text for name, text in annotations.items() if name not in {REFUSED, REFUSED_WHY}}
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {**found.metadata, "name": found.name, "annotations": kept},
        "value": found.value,
        "globalDefault": found.global_default,
        "preemptionPolicy": found.preemption_policy,
        "description": found.description,
    }


def _patch(wanted: PriorityClass, found: Found) -> dict[str, Any]:
    """Return the merge patch, which holds only as long as the class is the one that was found."""
    annotations: dict[str, str | None] = {DIGEST: digest_of(wanted)}
    if not found.is_managed:
        annotations[ORIGIN] = "adopted"
    if found.refused:
        annotations |= {REFUSED: None, REFUSED_WHY: None}
    return {
        "metadata": {
            "resourceVersion": found.resource_version,
            "labels": {LABEL: MANAGER},
            "annotations": annotations,
        },
        "globalDefault": wanted.global_default,
        "description": wanted.description,
    }
