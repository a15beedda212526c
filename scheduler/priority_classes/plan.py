"""PriorityClasses in the cluster: what is to be done there for those of the Revision. Pure; `execute` does it.

What belongs to Berth carries its label; everything else is shown and left alone until the Revision says `adopt`. A value
never changes: a class that is published with another one is replaced, deleted and made anew, and what is under way of that
goes first. Sources: Kubernetes v1.36.3 pkg/apis/scheduling/validation/validation.go (what never changes),
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
    """A PriorityClass as the API server has it.

    Attributes:
        digest: of what Berth applied last, empty if nothing.
        refused: the digest of what the API server refused in its place, so that it was put back; empty if nothing was.
        refused_why: the API server's words then.
        metadata: what it keeps when it is made anew: labels, annotations, finalizers, owners.
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


# An annotation: `created` on what Berth made, `adopted` on what it took over. Only the first is ever deleted.
ORIGIN: Final = "berth/origin"
CREATED: Final = "created"


class Act(StrEnum):
    """What is to be done about a class."""

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


# What changes the cluster.
SENT: Final = frozenset({Act.CREATE, Act.UPDATE, Act.ADOPT, Act.REPLACE, Act.PUT_BACK, Act.DELETE})


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """A class that is being deleted and made anew; written down before it is deleted.

    Attributes:
        uid: that of the class that is deleted.
        former: that class, as it would be posted to put it back.
    """

    name: str
    uid: str
    value_before: int
    former: Mapping[str, Any]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about one class, and why in words where it isn't plain.

    `replacement` is the one that was begun for this class and isn't ended.
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
    """Return a step for each class that is wanted, found or to be put back, in the order in which they are to be taken.

    Args:
        wanted: those of the live Revision.
        found: those of the cluster.
        withdrawn: those that were live once and aren't now, as they were live last.
        overwrite: names of drifted classes that are to be put back, and of refused ones that are to be tried again.
        under_way: replacements that were begun and aren't ended.
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
    """Return whether a class that left the Revision while it was replaced stays in the cluster, as any other."""
    origin = (begun.former["metadata"].get("annotations") or {}).get(ORIGIN)
    return was_live is None or was_live.deletion_policy == "Keep" or origin != CREATED


def ending(begun: Replacement, step: Step | None, found: Found | None) -> tuple[str, str] | None:
    """Return how a replacement ended, a state of PriorityClassReplacement, and why; None while it is under way.

    Args:
        begun: which.
        step: the one that was taken about its class; None where there was nothing to do.
        found: the cluster's class after that; None where there is none.
    """
    if step is None or step.act is Act.DELETE:
        return "given up", "It was taken out here meanwhile."
    if found is None:
        return None
    if found.uid == begun.uid:
        return None if step.act in {Act.REPLACE, Act.WAIT} else ("given up", "It isn't wanted any more.")
    if found.refused:
        return "put back", found.refused_why
    if step.wanted is not None and found.is_managed and not any(_fixed(step.wanted, found)):
        return "done", ""
    if step.act is Act.REPLACE or not found.is_managed:
        return "given up", "Another class of this name was made meanwhile."
    return "put back", step.message


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
    # One that is missing because it is being replaced waits for nothing: it is made first, and made the default then.
    is_now = step.found.global_default if step.found is not None else step.replacement is not None
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


def _order(step: Step) -> tuple[bool, bool, bool, str]:
    """Sort what is being replaced and missing first, the global default last, so that a fault with it holds up nobody."""
    is_missing = step.replacement is not None and step.found is None
    return not is_missing, step.act is Act.DELETE, _takes_default(step), step.name
