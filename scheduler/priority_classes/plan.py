"""Plans the steps in the cluster for the Revision's PriorityClasses. Pure; `execute` takes the steps.

Berth's own classes carry its label; all others are shown and left alone until the Revision says `adopt`. A value
is immutable: a class that is published with another value is replaced (deleted and created again), and an unfinished
replacement comes first. Sources: Kubernetes v1.36.3 pkg/apis/scheduling/validation/validation.go (immutable fields),
plugin/pkg/admission/priority/admission.go (one global default).
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from policies.engine.documents import SYSTEM_PREFIX
from policies.engine.ruleset import PriorityClass


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A PriorityClass in the cluster.

    Attributes:
        digest: of the version that Berth applied last, empty if none.
        refused: the digest of the version that the API server refused, so that the former one was put back; empty if none.
        refused_why: the API server's message then.
        metadata: the parts that it keeps when it is created again: labels, annotations, finalizers, owners.
    """

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
    refused: str = ""
    refused_why: str = ""
    metadata: Mapping[str, Any] = {}

    @property
    def is_system(self) -> bool:
        """Whether it is one of Kubernetes' own."""
        return self.name.startswith(SYSTEM_PREFIX)


# An annotation: `created` on classes that Berth created, `adopted` on those that it adopted. Only the former are ever deleted.
ORIGIN: Final = "berth/origin"
CREATED: Final = "created"


class Act(StrEnum):
    """The action for a class."""

    CREATE = "create"
    UPDATE = "update"
    ADOPT = "adopt"
    REPLACE = "replace"
    PUT_BACK = "put back"
    DELETE = "delete"
    NOTHING = "nothing"
    WAIT = "wait"
    CONFLICT = "conflict"
    FOREIGN = "foreign"
    DRIFTED = "drifted"
    REFUSED = "refused"
    KEEP = "keep"
    SYSTEM = "system"


# The actions that change the cluster.
SENT: Final = frozenset({Act.CREATE, Act.UPDATE, Act.ADOPT, Act.REPLACE, Act.PUT_BACK, Act.DELETE})
# The actions that leave a class as others, or an earlier Revision, made it.
_LEFT: Final = frozenset({Act.CONFLICT, Act.FOREIGN, Act.DRIFTED, Act.REFUSED, Act.KEEP})


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """A class that is being deleted and created again; written down before its deletion.

    Attributes:
        uid: the deleted class's.
        former: that class, as a body that would put it back.
    """

    name: str
    uid: str
    value_before: int
    former: Mapping[str, Any]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The action for one class, and the reason, if it isn't obvious.

    `replacement` is the class's unfinished replacement.
    """

    name: str
    act: Act
    message: str = ""
    wanted: PriorityClass | None = None
    found: Found | None = None
    replacement: Replacement | None = None


def plan(
    wanted: Sequence[PriorityClass],
    found: Sequence[Found],
    *,
    withdrawn: Sequence[PriorityClass] = (),
    overwrite: Collection[str] = (),
    under_way: Sequence[Replacement] = (),
) -> list[Step]:
    """Return a step for each wanted class, each class in the cluster, and each class to put back, in the order of execution.

    Args:
        wanted: the live Revision's classes.
        found: the cluster's classes.
        withdrawn: classes that were live once and aren't now, in their last live version.
        overwrite: names of drifted classes to put back, and of refused ones to try again.
        under_way: unfinished replacements.
    """
    there = {each.name: each for each in found}
    begun = {each.name: each for each in under_way}
    steps = [_step_for(each, there.get(each.name), overwrite=each.name in overwrite) for each in wanted]
    was_live, names = {each.name: each for each in withdrawn}, {each.name for each in wanted}
    steps += [_step_without(each, was_live.get(each.name)) for each in found if each.name not in names]
    steps = [msgspec.structs.replace(step, replacement=begun.get(step.name)) for step in steps]
    steps += [
        Step(name=each.name, act=Act.PUT_BACK, message="Removed here while it was replaced.", replacement=each)
        for each in under_way
        if each.name not in names | there.keys() and _stays(each, was_live.get(each.name))
    ]
    return sorted(_default_waits(steps), key=_order)


def _stays(begun: Replacement, was_live: PriorityClass | None) -> bool:
    """Return whether a class that left the Revision during its replacement stays in the cluster, like any other."""
    origin = (begun.former["metadata"].get("annotations") or {}).get(ORIGIN)
    return was_live is None or was_live.deletion_policy == "Keep" or origin != CREATED


def ending(begun: Replacement, step: Step | None, found: Found | None) -> tuple[str, str] | None:
    """Return the end of a replacement, a state of PriorityClassReplacement, and the reason; None while it is unfinished.

    Args:
        begun: the replacement.
        step: the step that was taken for its class; None if there was nothing to do.
        found: the cluster's class afterwards; None if there is none.
    """
    if step is None or step.act is Act.DELETE:
        return "given up", "It was taken out here meanwhile."
    if found is None:
        return None
    if found.uid == begun.uid:
        # Where a finalizer holds the deleted class, it is missing only later, and is put back then if it stays.
        is_unfinished = step.act in {Act.REPLACE, Act.WAIT} or found.is_going
        return None if is_unfinished else ("given up", "It isn't wanted any more.")
    if found.refused:
        return "put back", found.refused_why
    if step.wanted is not None and found.is_managed and not any(_fixed(step.wanted, found)):
        return "done", ""
    if step.act is Act.REPLACE or not found.is_managed:
        return "given up", "Another class of this name was made meanwhile."
    return "put back", step.message


def digest_of(wanted: PriorityClass) -> str:
    """Return the digest of the wanted contents of the cluster's class."""
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
    if found.is_managed:
        return _act_for_ours(wanted, found, overwrite=overwrite)
    if not wanted.adopt:
        return Act.FOREIGN, _FOREIGN
    if fixed := list(_fixed(wanted, found)):
        return Act.CONFLICT, f"{' and '.join(fixed)}. {_CONFLICT.format(name=wanted.name)}"
    return Act.ADOPT, ""


def _act_for_ours(wanted: PriorityClass, found: Found, *, overwrite: bool) -> tuple[Act, str]:
    fixed, changed = list(_fixed(wanted, found)), list(_changed(wanted, found))
    if found.digest == digest_of(wanted) and not overwrite and (fixed or changed):
        return Act.DRIFTED, f"Changed in the cluster since Berth applied it: {', '.join([*fixed, *changed])}."
    if fixed and found.refused == digest_of(wanted) and not overwrite:
        return Act.REFUSED, _REFUSED.format(why=found.refused_why)
    if fixed:
        return Act.REPLACE, f"{' and '.join(fixed)}: deleted and made anew. Pods that are there keep their priority."
    if changed or found.digest != digest_of(wanted):
        return Act.UPDATE, ""
    return Act.NOTHING, ""


_FOREIGN = (
    "The cluster has a class of this name that Berth doesn't manage, and it is left as it is. Set adopt and publish to "
    "take it over, or give yours another name."
)
_CONFLICT = (
    "What is taken over keeps that, and the cluster's class is left as it is. Take {name} over as the cluster has it, and "
    "change it then; or give yours a new name."
)
_REFUSED = "The API server refused it when it was to be made anew, and the former one was put back: {why}"


def _fixed(wanted: PriorityClass, found: Found) -> Iterator[str]:
    """Iterate over the immutable fields that differ."""
    if wanted.value != found.value:
        yield f"value is {found.value} in the cluster and {wanted.value} here"
    if wanted.preemption_policy != found.preemption_policy:
        yield f"preemptionPolicy is {found.preemption_policy} in the cluster and {wanted.preemption_policy} here"


def _changed(wanted: PriorityClass, found: Found) -> Iterator[str]:
    """Iterate over the mutable fields that differ."""
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
        return Act.KEEP, "It carries Berth's label, and was never published here, or in a version that can't be read."
    if was_live.deletion_policy == "Keep":
        return Act.KEEP, "Removed here; its deletionPolicy was Keep."
    if not found.is_made_by_berth:
        return Act.KEEP, "Removed here; Berth didn't make it, and deletes only what it made."
    if found.is_going:
        return Act.KEEP, "The cluster is deleting it."
    return Act.DELETE, ""


def _takes_default(step: Step) -> bool:
    """Return whether a step makes its class the global default, if it isn't that now."""
    # A class that is missing during its replacement doesn't wait: it is created first, and made the default afterwards.
    is_now = step.found.global_default if step.found is not None else step.replacement is not None
    return step.act in SENT and step.wanted is not None and step.wanted.global_default and not is_now


def _gives_up_default(step: Step) -> bool:
    """Return whether a step ends its class being the global default."""
    is_now = step.found is not None and step.found.global_default
    return step.act in SENT and is_now and (step.wanted is None or not step.wanted.global_default)


def _stays_default(step: Step) -> bool:
    """Return whether a class that Berth leaves alone is the global default."""
    return step.act in _LEFT and step.found is not None and step.found.global_default


def _default_waits(steps: Sequence[Step]) -> Iterator[Step]:
    """Defer the new global default to the next look: admission notices with a delay that the old one is gone.

    If the old one stays, the API server refuses the new one, and the step says so beforehand.
    """
    giving = next((step.name for step in steps if _gives_up_default(step)), None)
    staying = next((step for step in steps if _stays_default(step)), None)
    for step in steps:
        if giving is not None and _takes_default(step):
            message = f"It becomes the global default once {giving} isn't any more."
            yield msgspec.structs.replace(step, act=Act.WAIT, message=message)
        elif staying is not None and _takes_default(step):
            message = f"The API server refuses it while {staying.name} is the global default, and that stays: {staying.message}"
            yield msgspec.structs.replace(step, message=f"{step.message} {message}".strip())
        else:
            yield step


def _order(step: Step) -> tuple[bool, bool, bool, str]:
    """Return the sort key: missing classes under replacement first, the global default last, so that its fault blocks no others."""
    is_missing = step.replacement is not None and step.found is None
    return not is_missing, step.act is Act.DELETE, _takes_default(step), step.name
