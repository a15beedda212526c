"""PriorityClasses in the cluster: what is to be done there for those of the Revision, and doing it.

`plan` is pure and decides all of it; `apply` sends what the plan says and nothing else. What belongs to Berth carries its
label; everything else is shown and left alone until the Revision says `adopt`. Sources: Kubernetes v1.36.3
pkg/apis/scheduling/validation/validation.go (what never changes), plugin/pkg/admission/priority/admission.go (one global
default).
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from policies.engine.ruleset import PriorityClass
from policies.engine.validation import SYSTEM_PREFIX
from scheduler.cluster.client import MERGE_PATCH, Client
from scheduler.cluster.errors import (
    APIConflictError,
    APIError,
    APIForbiddenError,
    APIInvalidError,
    APINotFoundError,
    APIUnavailableError,
)

PATH = "/apis/scheduling.k8s.io/v1/priorityclasses"
LABEL = "app.kubernetes.io/managed-by"
MANAGER = "berth"
# An annotation: `created` on what Berth made, `adopted` on what it took over. Only the first is ever deleted.
ORIGIN = "berth/origin"
# An annotation: the digest of what Berth applied last. By it a change of others is told from a new version.
DIGEST = "berth/applied"
_TIMEOUT_SECONDS = 5.0
# Faults of one request. The others are the API server's, and the next request would have them too.
_OF_ONE_CLASS = (APIConflictError, APINotFoundError, APIInvalidError, APIForbiddenError)

T = TypeVar("T")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A PriorityClass as the API server has it. `digest` is that of what Berth applied last, empty if nothing."""

    name: str
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""
    resource_version: str = ""
    uid: str = ""
    is_managed: bool = False
    is_made_by_berth: bool = False
    is_going: bool = False
    digest: str = ""

    @property
    def is_system(self) -> bool:
        """Whether it is one of Kubernetes' own."""
        return self.name.startswith(SYSTEM_PREFIX)


class Act(StrEnum):
    """What is to be done about a class."""

    CREATE = "create"
    UPDATE = "update"
    ADOPT = "adopt"
    DELETE = "delete"
    NOTHING = "nothing"
    WAIT = "wait"
    CONFLICT = "conflict"
    FOREIGN = "foreign"
    DRIFTED = "drifted"
    KEEP = "keep"
    SYSTEM = "system"


# What changes the cluster.
SENT = frozenset({Act.CREATE, Act.UPDATE, Act.ADOPT, Act.DELETE})


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about one class, and why in words where it isn't plain."""

    name: str
    act: Act
    message: str = ""
    wanted: PriorityClass | None = None
    found: Found | None = None


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


def plan(
    wanted: Sequence[PriorityClass],
    found: Sequence[Found],
    *,
    withdrawn: Sequence[PriorityClass] = (),
    overwrite: Collection[str] = (),
) -> list[Step]:
    """Return a step for each class that is wanted or found, in the order in which they are to be taken.

    Args:
        wanted: those of the live Revision.
        found: those of the cluster.
        withdrawn: those that were live once and aren't now, as they were live last.
        overwrite: names of drifted classes that are to be put back.
    """
    there = {each.name: each for each in found}
    steps = [_step_for(each, there.get(each.name), overwrite=each.name in overwrite) for each in wanted]
    was_live, names = {each.name: each for each in withdrawn}, {each.name for each in wanted}
    steps += [_step_without(each, was_live.get(each.name)) for each in found if each.name not in names]
    return sorted(_default_waits(steps), key=_order)


def digest_of(wanted: PriorityClass) -> str:
    """Return the digest of what the cluster's class is to hold."""
    held = [wanted.value, wanted.global_default, wanted.preemption_policy, wanted.description]
    return hashlib.sha256(msgspec.json.encode(held)).hexdigest()[:16]


def _step_for(wanted: PriorityClass, found: Found | None, *, overwrite: bool) -> Step:
    act, message = _act_for(wanted, found, overwrite=overwrite)
    return Step(name=wanted.name, act=act, message=message, wanted=wanted, found=found)


def _act_for(wanted: PriorityClass, found: Found | None, *, overwrite: bool) -> tuple[Act, str]:
    if found is None:
        return Act.CREATE, ""
    if found.is_system:
        return Act.SYSTEM, "It is Kubernetes' own, and never touched."
    if found.is_going:
        return Act.WAIT, "The cluster is deleting it; it is made anew once it is gone."
    if not found.is_managed and not wanted.adopt:
        return Act.FOREIGN, _FOREIGN
    if fixed := list(_fixed(wanted, found)):
        return Act.CONFLICT, f"{' and '.join(fixed)}. {_CONFLICT.format(name=wanted.name)}"
    return _act_for_ours(wanted, found, overwrite=overwrite) if found.is_managed else (Act.ADOPT, "")


def _act_for_ours(wanted: PriorityClass, found: Found, *, overwrite: bool) -> tuple[Act, str]:
    changed = list(_changed(wanted, found))
    if found.digest != digest_of(wanted) or (changed and overwrite):
        return Act.UPDATE, ""
    if changed:
        return Act.DRIFTED, f"Changed in the cluster since Berth applied it: {', '.join(changed)}."
    return Act.NOTHING, ""


_FOREIGN = (
    "The cluster has a class of this name that Berth doesn't manage, and it is left as it is. Set adopt and publish to "
    "take it over, or give yours another name."
)
_CONFLICT = (
    "Kubernetes never changes that, and the cluster's class is left as it is. Give yours a new name; or have {name} "
    "deleted from the cluster: Berth then makes it as it is here."
)


def _fixed(wanted: PriorityClass, found: Found) -> Iterator[str]:
    """Iterate over what differs and can't be changed."""
    if wanted.value != found.value:
        yield f"value is {found.value} in the cluster and {wanted.value} here"
    if wanted.preemption_policy != found.preemption_policy:
        yield f"preemptionPolicy is {found.preemption_policy} in the cluster and {wanted.preemption_policy} here"


def _changed(wanted: PriorityClass, found: Found) -> Iterator[str]:
    """Iterate over what differs and can be changed."""
    if wanted.global_default != found.global_default:
        yield f"globalDefault is {str(found.global_default).lower()}"
    if wanted.description != found.description:
        yield f"description is “{found.description}”"


def _step_without(found: Found, was_live: PriorityClass | None) -> Step:
    act, message = _act_without(found, was_live)
    return Step(name=found.name, act=act, message=message, found=found)


def _act_without(found: Found, was_live: PriorityClass | None) -> tuple[Act, str]:
    if found.is_system:
        return Act.SYSTEM, "Kubernetes' own."
    if not found.is_managed:
        return Act.FOREIGN, "Berth doesn't manage it."
    if was_live is None:
        return Act.KEEP, "It carries Berth's label, and was never published here."
    if was_live.deletion_policy == "Keep":
        return Act.KEEP, "Removed here; its deletionPolicy was Keep."
    if not found.is_made_by_berth:
        return Act.KEEP, "Removed here; Berth didn't make it, and deletes only what it made."
    if found.is_going:
        return Act.KEEP, "The cluster is deleting it."
    return Act.DELETE, ""


def _takes_default(step: Step) -> bool:
    """Return whether a step makes its class the global default, which it isn't now."""
    is_now = step.found is not None and step.found.global_default
    return step.act in SENT and step.wanted is not None and step.wanted.global_default and not is_now


def _gives_up_default(step: Step) -> bool:
    """Return whether a step ends its class being the global default."""
    is_now = step.found is not None and step.found.global_default
    return step.act in SENT and is_now and (step.wanted is None or not step.wanted.global_default)


def _default_waits(steps: Sequence[Step]) -> Iterator[Step]:
    """Let the new global default wait for a look of its own: admission sees only with a delay that the old one is gone."""
    giving = next((step.name for step in steps if _gives_up_default(step)), None)
    for step in steps:
        if giving is not None and _takes_default(step):
            message = f"It becomes the global default once {giving} isn't any more."
            yield msgspec.structs.replace(step, act=Act.WAIT, message=message)
        else:
            yield step


def _order(step: Step) -> tuple[bool, bool, str]:
    """Sort the global default last, so that a fault with it holds up nobody; deletions after what is made."""
    return step.act is Act.DELETE, _takes_default(step), step.name


def read_classes(client: Client) -> list[Found]:
    """Read all PriorityClasses of the cluster.

    Raises:
        APIError: they can't be read.
    """
    # Whole, not in pages: they are few, and a look must not hang for long.
    answer = client.get(path=PATH, timeout_seconds=_TIMEOUT_SECONDS)
    return [_found(item) for item in _decoded(answer, _List).items or ()]


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


class _List(msgspec.Struct, frozen=True):
    items: list[_Item] | None = None


def _decoded(answer: bytes, type_: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=type_)
    except msgspec.DecodeError as error:
        message = f"{PATH}: the answer isn't what Kubernetes gives: {error}"
        raise APIUnavailableError(message) from error


def _found(item: _Item) -> Found:
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
        is_made_by_berth=annotations.get(ORIGIN) == "created",
        is_going=bool(metadata.deletion_timestamp),
        digest=annotations.get(DIGEST, ""),
    )


def apply(steps: Sequence[Step], client: Client, *, may_go_on: Callable[[], bool] = lambda: True) -> list[Outcome]:
    """Take the steps and say what came of each. What can't be done now is pending, and a later look does it.

    Args:
        steps: from `plan`.
        client: of the cluster.
        may_go_on: asked before each change; after the first no nothing is changed any more.
    """
    outcomes = []
    halted = ""
    for step in steps:
        if step.act not in SENT:
            outcomes.append(_outcome_of_rest(step))
            continue
        if not halted and not may_go_on():
            halted = "A newer Revision was published; that is applied in its place."
        if halted:
            outcomes.append(_unfinished(step, halted))
            continue
        try:
            found = _send(step, client)
        except APIError as error:
            outcomes.append(_outcome_of_fault(step, error))
            halted = "" if isinstance(error, _OF_ONE_CLASS) else str(error)
        else:
            outcomes.append(Outcome(step=step, state="applied" if step.wanted else "deleted", found=found))
    return outcomes


_STATES = {
    Act.NOTHING: "applied",
    Act.WAIT: "pending",
    Act.CONFLICT: "conflict",
    Act.FOREIGN: "foreign",
    Act.DRIFTED: "drifted",
    Act.KEEP: "kept",
    Act.SYSTEM: "system",
}


def _outcome_of_rest(step: Step) -> Outcome:
    return Outcome(step=step, state=_STATES[step.act], message=step.message, found=step.found)


def _unfinished(step: Step, message: str) -> Outcome:
    return Outcome(step=step, state="pending" if step.wanted else "kept", message=message, found=step.found)


def _outcome_of_fault(step: Step, error: APIError) -> Outcome:
    if isinstance(error, APIConflictError | APINotFoundError):
        return _unfinished(step, "It changed in the cluster at the same moment; Berth looks again.")
    if isinstance(error, APIInvalidError | APIForbiddenError):
        state = "refused" if step.wanted else "kept"
        return Outcome(step=step, state=state, message=f"The API server refused: {error}", found=step.found)
    return _unfinished(step, str(error))


def _send(step: Step, client: Client) -> Found | None:
    """Change the cluster, and give the class as it is then; None once it is deleted."""
    match step.act, step.wanted, step.found:
        case Act.CREATE, PriorityClass() as wanted, _:
            body = msgspec.json.encode(_object(wanted))
            return _found(_decoded(client.post(path=PATH, body=body, timeout_seconds=_TIMEOUT_SECONDS), _Item))
        case ((Act.UPDATE | Act.ADOPT), PriorityClass() as wanted, Found() as found):
            patch = msgspec.json.encode(_patch(wanted, found))
            answer = client.patch(
                path=f"{PATH}/{found.name}", body=patch, content_type=MERGE_PATCH, timeout_seconds=_TIMEOUT_SECONDS
            )
            return _found(_decoded(answer, _Item))
        case Act.DELETE, None, Found() as found:
            only_this = {"preconditions": {"uid": found.uid, "resourceVersion": found.resource_version}}
            client.delete(
                path=f"{PATH}/{found.name}", body=msgspec.json.encode(only_this), timeout_seconds=_TIMEOUT_SECONDS
            )
    return None


def _object(wanted: PriorityClass) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {
            "name": wanted.name,
            "labels": {LABEL: MANAGER},
            "annotations": {ORIGIN: "created", DIGEST: digest_of(wanted)},
        },
        "value": wanted.value,
        "globalDefault": wanted.global_default,
        "preemptionPolicy": wanted.preemption_policy,
        "description": wanted.description,
    }


def _patch(wanted: PriorityClass, found: Found) -> dict[str, Any]:
    """Return the merge patch, which holds only as long as the class is the one that was found."""
    annotations = {DIGEST: digest_of(wanted)} | ({} if found.is_managed else {ORIGIN: "adopted"})
    return {
        "metadata": {
            "resourceVersion": found.resource_version,
            "labels": {LABEL: MANAGER},
            "annotations": annotations,
        },
        "globalDefault": wanted.global_default,
        "description": wanted.description,
    }
