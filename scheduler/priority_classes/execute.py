"""Sends the steps of `plan` for PriorityClasses to the API server, and nothing else.

A class is replaced in steps, and the process may stop after each: a dry run asks the API server whether it would accept the new
class, the replacement is written down, the class is deleted and created again. The next look continues from the record and the
cluster's state.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from policies.engine.ruleset import PriorityClass
from scheduler.cluster.client import MERGE_PATCH, Client, Query, decoded
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
# An annotation: the digest of the version that Berth applied last. It distinguishes changes by others from a new version.
DIGEST: Final = "berth/applied"
# Annotations of a class that was put back: the digest of the version that the API server refused, and its message.
REFUSED: Final = "berth/refused"
_REFUSED_WHY: Final = "berth/refused-because"
_LONGEST_WHY = 1_000
_DRY_RUN: Final = {"dryRun": "All"}
_TIMEOUT_SECONDS = 5.0
_REFUSALS = (APIInvalidError, APIForbiddenError)
# Faults of one request. All other faults are of the API server as a whole, and the next request would meet them too.
_OF_ONE_CLASS = (APIConflictError, APINotFoundError, *_REFUSALS)
# Admission notices with a delay that a global default is gone: a request that is refused for that is tried this many times.
_TRIES = 20
_PAUSE_SECONDS = 0.05
# The metadata that a class keeps when it is created again.
_CARRIED = ("labels", "annotations", "finalizers", "ownerReferences")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a step. `state` is one of ClusterPriorityClass; `found` is the class in the cluster now."""

    step: Step
    state: str
    message: str = ""
    found: Found | None = None

    @property
    def is_finished(self) -> bool:
        """Whether another look soon would do nothing more."""
        return self.state in {"applied", "deleted"} or self.step.act not in SENT | {Act.WAIT}


def read_classes(client: Client) -> list[Found]:
    """Read all PriorityClasses of the cluster.

    Raises:
        APIError: they can't be read.
    """
    # In one request, without pages: they are few, and a look must not hang for long.
    answer, context = client.get(path=PATH, timeout_seconds=_TIMEOUT_SECONDS), f"GET {PATH}"
    return [found_of(item, context=context) for item in decoded(answer, type_=_List, context=context).items or ()]


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


def found_of(json: Mapping[str, Any], *, context: str) -> Found:
    """Return the parts of an API server's PriorityClass that Berth reads; `context` says what was asked for.

    Raises:
        APIUnavailableError: the object isn't a PriorityClass.
    """
    try:
        item = msgspec.convert(json, _Item)
    except msgspec.ValidationError as error:
        message = f"{context}: the answer isn't what Kubernetes gives: {error}"
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
        refused_why=annotations.get(_REFUSED_WHY, ""),
        metadata={member: json["metadata"][member] for member in _CARRIED if json["metadata"].get(member)},
    )


def _decoded(answer: bytes, *, context: str) -> Found:
    return found_of(decoded(answer, type_=dict[str, Any], context=context), context=context)


# Records that a class is about to be deleted and created again, and as what, so that a later process can finish it.
Journal = Callable[[Step, Replacement], None]


def apply(
    steps: Sequence[Step],
    client: Client,
    *,
    journal: Journal,
    may_go_on: Callable[[], bool] = lambda: True,
    pause: Callable[[float], None] = time.sleep,
) -> list[Outcome]:
    """Take the steps and return the result of each. A step that can't be taken now is pending, and a later look takes it.

    Args:
        steps: from `plan`.
        client: the cluster's client.
        journal: called before a class is deleted to be created again, and before a later look creates it.
        may_go_on: called before each change; after the first False nothing more is changed.
        pause: waits for a number of seconds.
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
    if isinstance(error, _REFUSALS) and not error.is_unauthenticated:
        state = "refused" if step.wanted else "kept"
        return Outcome(step=step, state=state, message=f"The API server refused: {error}", found=there)
    if there is None and step.act is Act.REPLACE:
        return _unfinished(step, f"The cluster is without it until it is made anew: {error}", there)
    return _unfinished(step, str(error), there)


class _Executor:
    """Sends one step after the other. `there` is the last known state of the current class in the cluster."""

    def __init__(self, client: Client, journal: Journal, pause: Callable[[float], None]) -> None:
        self._client = client
        self._journal = journal
        self._pause = pause
        self.there: Found | None = None

    def send(self, step: Step) -> Outcome:
        """Change the cluster, and return the result.

        Raises:
            APIError: the API server is unavailable, or refuses.
        """
        self.there = step.found
        match step.act, step.wanted, step.found:
            case Act.CREATE, PriorityClass() as wanted, None if step.replacement is not None:
                self._journal(step, step.replacement)  # another version may be wanted by now
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
        raise AssertionError(step)  # `plan` makes no other steps

    def _replace(self, step: Step, wanted: PriorityClass, found: Found) -> Outcome:
        self._ask_whether_it_would_be_taken(wanted, found)
        former = _former(found)
        begun = Replacement(name=found.name, uid=found.uid, value_before=found.value, former=former)
        self._journal(step, begun)
        # From here on, the next process would finish the replacement.
        self._delete(found)
        self.there = None
        return self._make_anew(step, wanted, begun)

    def _ask_whether_it_would_be_taken(self, wanted: PriorityClass, found: Found) -> None:
        """Raise the API server's refusal before anything is deleted: its last check is for an existing class of the name."""
        # Without the global default if the class is that already: admission would count the dry run's class as a second one.
        body = _object(wanted, found.metadata, is_default=wanted.global_default and not found.global_default)
        with contextlib.suppress(APIConflictError):
            self._client.post(
                path=PATH, query=_DRY_RUN, body=msgspec.json.encode(body), timeout_seconds=_TIMEOUT_SECONDS
            )
        if wanted.global_default:  # the new class becomes the default by a separate change
            self._patch(found, _patch(wanted, found), query=_DRY_RUN)

    def _make_anew(self, step: Step, wanted: PriorityClass, begun: Replacement) -> Outcome:
        """Create a class again after its deletion; if the API server refuses it, put the former one back."""
        try:
            # It becomes the default only after its creation: admission may still see the deleted one.
            found = self._post(_object(wanted, begun.former["metadata"], is_default=False))
        except _REFUSALS as error:
            if error.is_unauthenticated:
                raise  # with new credentials the same will do
            return self._put_back(step, wanted, begun, str(error))
        self.there = found
        return _applied(step, self._patch(found, _patch(wanted, found)) if wanted.global_default else found)

    def _put_back(self, step: Step, wanted: PriorityClass, begun: Replacement, why: str) -> Outcome:
        metadata = begun.former["metadata"]
        marks = {REFUSED: digest_of(wanted), _REFUSED_WHY: why[:_LONGEST_WHY]}
        annotations = {**(metadata.get("annotations") or {}), **marks}
        try:
            found = self._post_patiently({**begun.former, "metadata": {**metadata, "annotations": annotations}})
        except _REFUSALS as error:
            if error.is_unauthenticated:
                raise
            message = f"The cluster is without it. The API server refused it: {why}; and the former one: {error}"
            return Outcome(step=step, state="refused", message=message)
        message = f"The API server refused it when it was to be made anew, and the former one was put back: {why}"
        return Outcome(step=step, state="refused", message=message, found=found)

    def _post(self, body: Mapping[str, Any]) -> Found:
        answer = self._client.post(path=PATH, body=msgspec.json.encode(body), timeout_seconds=_TIMEOUT_SECONDS)
        return _decoded(answer, context=f"POST {PATH}")

    def _post_patiently(self, body: Mapping[str, Any]) -> Found:
        """Post a class that may become the global default just after the deletion of the former global default."""
        for _ in range(_TRIES if body.get("globalDefault") else 0):
            try:
                return self._post(body)
            except APIForbiddenError:
                self._pause(_PAUSE_SECONDS)
        return self._post(body)

    def _patch(self, found: Found, patch: Mapping[str, Any], query: Query | None = None) -> Found:
        path = f"{PATH}/{found.name}"
        answer = self._client.patch(
            path=path,
            query=query,
            body=msgspec.json.encode(patch),
            content_type=MERGE_PATCH,
            timeout_seconds=_TIMEOUT_SECONDS,
        )
        return _decoded(answer, context=f"PATCH {path}")

    def _delete(self, found: Found) -> None:
        only_this = {"preconditions": {"uid": found.uid, "resourceVersion": found.resource_version}}
        self._client.delete(
            path=f"{PATH}/{found.name}", body=msgspec.json.encode(only_this), timeout_seconds=_TIMEOUT_SECONDS
        )


def _applied(step: Step, found: Found) -> Outcome:
    return Outcome(step=step, state="applied", found=found)


def _object(wanted: PriorityClass, metadata: Mapping[str, Any], *, is_default: bool | None = None) -> dict[str, Any]:
    """Return a class to post.

    Args:
        wanted: its contents.
        metadata: the metadata that it keeps from the class that it replaces.
        is_default: whether it becomes the global default at once; otherwise a separate update does that, and it is recorded as missing.
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


_OURS = frozenset({ORIGIN, DIGEST, REFUSED, _REFUSED_WHY})


def _former(found: Found) -> dict[str, Any]:
    """Return a class of the cluster as a body that would put it back."""
    annotations = found.metadata.get("annotations") or {}
    kept = {name: text for name, text in annotations.items() if name not in {REFUSED, _REFUSED_WHY}}
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
    """Return the merge patch, which applies only while the class is the one that was found."""
    annotations: dict[str, str | None] = {DIGEST: digest_of(wanted)}
    if not found.is_managed:
        annotations[ORIGIN] = "adopted"
    if found.refused:
        annotations |= {REFUSED: None, _REFUSED_WHY: None}
    return {
        "metadata": {
            "resourceVersion": found.resource_version,
            "labels": {LABEL: MANAGER},
            "annotations": annotations,
        },
        "globalDefault": wanted.global_default,
        "description": wanted.description,
    }
