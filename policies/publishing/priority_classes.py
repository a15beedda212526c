"""PriorityClasses: those that are live with others in their place, and putting back what others changed in the cluster."""

import logging
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from django.db import transaction
from django.db.models import Count, F, Max, Q, Sum
from django.db.models.functions import Now

from policies import compiler
from policies.engine import ruleset as engine
from policies.engine.errors import Fault
from policies.models import (
    ClusterPriorityClass,
    PriorityClass,
    PriorityClassLook,
    PriorityClassUser,
    PriorityClassVersion,
)
from policies.publishing import audit
from policies.publishing.actors import By, may, name_of, reach_of
from policies.publishing.errors import PublishingError, check_words
from policies.publishing.parts import Key, Kind
from policies.publishing.revisions import current_revision
from policies.publishing.shown import check_shown, digest_of_shown
from policies.wording import counted

logger = logging.getLogger("berth.publishing")

_State = PriorityClassVersion.State
# How many workloads a sentence about who uses a class names.
SHOWN_USERS = 5
# States in which a person may have the cluster's class made as it is live.
PUT_BACK_STATES = (ClusterPriorityClass.State.DRIFTED, ClusterPriorityClass.State.REFUSED)
_WAY_OUT = "Take it over with what it has, and change it then; or give yours a new name."


def priority_class_faults(priority_class: engine.PriorityClass, beside: Iterable[engine.PriorityClass]) -> list[Fault]:
    """Return what stands against a checked PriorityClass: what the cluster has, and the classes beside which it will be."""
    faults = fixed_faults(priority_class)
    other = next((each for each in beside if each.global_default and each.name != priority_class.name), None)
    if priority_class.global_default and other is not None:
        message = f"{other.name} is the global default, and Kubernetes allows one; take it away there first, in the same Change"
        faults.append(Fault("spec.globalDefault", message))
    return faults


def cluster_warnings(wanted: Sequence[engine.PriorityClass]) -> list[str]:
    """Return what the cluster, as it was seen last, will make of classes that it has from others."""
    drifted_or_theirs = Q(present=True, managed=False) | Q(state=ClusterPriorityClass.State.DRIFTED)
    seen = {row.name: row for row in ClusterPriorityClass.objects.filter(drifted_or_theirs)}
    theirs = {name: row for name, row in seen.items() if row.present and not row.managed}
    lines = [
        f"! {each.name} in the cluster isn't managed by Berth, and stays as it is until adopt is set"
        for each in wanted
        if each.name in theirs and not each.adopt
    ]
    default = next((row.name for row in theirs.values() if row.global_default), "")
    lines += [
        f"! {each.name} can't become the global default: the cluster's {default} is, and isn't managed by Berth"
        for each in wanted
        if default and each.global_default and each.name != default
    ]
    drifted = {name: row for name, row in seen.items() if row.state == ClusterPriorityClass.State.DRIFTED}
    lines += [
        f"! {each.name} in the cluster isn't as Berth applied it, and what others made of it is overwritten. "
        f"{drifted[each.name].message}"
        for each in wanted
        if each.name in drifted and not _is_as_in_cluster(each, drifted[each.name])
    ]
    return lines


def _is_as_in_cluster(wanted: engine.PriorityClass, row: ClusterPriorityClass) -> bool:
    held = (wanted.value, wanted.global_default, wanted.preemption_policy, wanted.description)
    return held == (row.value, row.global_default, row.preemption_policy, row.description)


def live_priority_classes() -> dict[str, engine.PriorityClass]:
    """Return the PriorityClasses that are live, by name."""
    return {each.name: each for each in current_revision().priority_classes}


def digest_of_putting_back(name: str) -> str:
    """Return what names what putting a class back would do: what the cluster has of it, as it was seen last, and what is live."""
    return digest_of_shown(*_put_back_sides(name))


def _put_back_sides(name: str) -> tuple[object, object]:
    there = ClusterPriorityClass.objects.filter(pk=name).values_list(
        "state", "message", "value", "global_default", "preemption_policy", "description"
    )
    return there.first(), live_priority_classes().get(name)


@transaction.atomic
def put_back(*, name: str, by: By, reason: str, expected_digest: str = "") -> None:
    """Put back what others changed of a PriorityClass in the cluster to what is live, at the next look; or try again what was refused.

    Args:
        name: which.
        by: who does it.
        reason: why, in that person's words.
        expected_digest: `digest_of_putting_back` when that person looked.

    Raises:
        PublishingError: nothing was changed or refused there, it is put back already, it differs from what was looked at, the
            reason deceives whoever reads it, or this account may not.
    """
    if not may(by, "policies.publish") or not reach_of(by).is_whole:
        raise PublishingError([f"{name_of(by)} may not put PriorityClasses back; who publishes them may."])
    check_words(reason)
    # Held until the end: the watch writes what it sees into this row.
    ClusterPriorityClass.objects.select_for_update().filter(pk=name).first()
    there, live = _put_back_sides(name)
    check_shown(expected_digest, there, live)
    if ClusterPriorityClass.objects.filter(pk=name, state__in=PUT_BACK_STATES).update(overwrite=True) != 1:
        raise PublishingError([f"{name} isn't drifted or refused any more; load the page again."])
    ask_for_look()
    digests = (digest_of_shown(there), digest_of_shown(live))
    audit.record_event(audit.Kind.PUT_BACK, by=by, thing=(Kind.PRIORITY_CLASS, name), digests=digests, reason=reason)
    logger.info("%s has PriorityClass %s put back: %s", name_of(by), name, reason)


def ask_for_users() -> None:
    """Ask for a count of the Pods of each class in the cluster, within seconds. They are counted every minute or so anyway."""
    PriorityClassLook.objects.filter(users_asked_at__isnull=True).update(users_asked_at=Now())


def users_sentence(name: str) -> str:
    """Return who uses a class in the cluster, as it was counted last."""
    look = PriorityClassLook.objects.first()
    if look is None or look.users_counted_at is None:
        return "Who uses it wasn't counted yet; the worker does so every minute."
    users = PriorityClassUser.objects.filter(priority_class=name)
    found = users.aggregate(pods=Sum("pods"), namespaces=Count("namespace", distinct=True))
    workloads = users.values("namespace", "kind", "name").distinct()
    largest = workloads.annotate(all=Sum("pods")).order_by("-all", "namespace", "name")[:SHOWN_USERS]
    named = ", ".join(f"{each['kind']} {each['namespace']}/{each['name']} ({each['all']:,})" for each in largest)
    at = f"counted at {look.users_counted_at:%Y-%m-%d %H:%M:%S} UTC"
    if not found["pods"]:
        return f"No Pod uses it, {at}."
    number = workloads.count()
    used = f"{counted(found['pods'], 'Pod')} of {counted(number, 'workload')} in {counted(found['namespaces'], 'namespace')}"
    return f"Used by {used}, {at}: {named}{', …' if number > SHOWN_USERS else ''}."


def ask_for_look() -> None:
    """Make a look at the cluster's PriorityClasses due at once; another one where one is under way."""
    PriorityClassLook.objects.update(next_at=Now(), asked=F("asked") + 1)


def fixed_faults(wanted: engine.PriorityClass) -> list[Fault]:
    """Return what is wanted otherwise than a class has it that is to be taken over: value and preemptionPolicy stay then.

    One that Berth manages is deleted and made anew; one that it neither manages nor is to adopt isn't touched at all.
    """
    found = ClusterPriorityClass.objects.filter(pk=wanted.name, present=True, managed=False).first()
    if found is None or not wanted.adopt:
        return []
    compared = [
        ("spec.value", found.value, wanted.value),
        ("spec.preemptionPolicy", found.preemption_policy, wanted.preemption_policy),
    ]
    return [
        Fault(path, f"is {there} in the cluster's {wanted.name}, which is to be taken over as it is. {_WAY_OUT}")
        for path, there, here in compared
        if there != here
    ]


def replaced_in_cluster(wanted: Iterable[engine.PriorityClass]) -> list[str]:
    """Return which of the cluster's classes, as they were seen last, will be deleted and made anew for these, in sentences."""
    there = {row.name: row for row in ClusterPriorityClass.objects.filter(present=True, managed=True)}
    replaced = [
        (each, there[each.name])
        for each in wanted
        if each.name in there
        and (there[each.name].value, there[each.name].preemption_policy) != (each.value, each.preemption_policy)
    ]
    return [
        f"! {each.name} is deleted in the cluster and made anew: value {row.value:,} and preemptionPolicy "
        f"{row.preemption_policy} there. Pods that are there keep {row.value:,}; new ones get {each.value:,}. "
        f"{users_sentence(each.name)}"
        for each, row in replaced
    ]


def adopted(name: str, live: engine.PriorityClass | None) -> engine.PriorityClass:
    """Return a class as the cluster has it, to be made live; what Berth alone knows of it stays as it is live.

    Raises:
        PublishingError: the cluster has none, or it is Kubernetes' own.
    """
    found = ClusterPriorityClass.objects.filter(pk=name, present=True).first()
    if found is None or found.state == ClusterPriorityClass.State.SYSTEM:
        raise PublishingError([f"The cluster has no {name} that could be taken over; load the page again."])
    kept = live or engine.PriorityClass(name=name, value=found.value)
    return msgspec.structs.replace(
        kept,
        value=found.value,
        global_default=found.global_default,
        preemption_policy=found.preemption_policy,
        description=found.description,
        version=0,
        adopt=kept.adopt or not found.managed,
    )


def adoptable() -> list[str]:
    """Return the names of the cluster's classes that nobody has published here, the highest value first."""
    found = ClusterPriorityClass.objects.filter(present=True).exclude(state=ClusterPriorityClass.State.SYSTEM)
    live = live_priority_classes()
    return [row.name for row in found.order_by("-value", "name") if row.name not in live]


def with_priority_classes(
    before: engine.Revision, wanted: Iterable[engine.PriorityClass]
) -> list[engine.PriorityClass]:
    """Return the live PriorityClasses with some in their place, each of these with the version that it has or gets.

    Raises:
        PublishingError: Kubernetes wouldn't take one; or a class that isn't among them is the live global default.
    """
    faults: list[Fault] = []
    given = {each.name: each for each in _versioned(wanted, before.priority_classes, faults)}
    classes = {each.name: each for each in before.priority_classes} | given
    for kept in (each for each in classes.values() if each.global_default and each.name not in given):
        message = f"{kept.name} is the live global default, and Kubernetes allows one; publish its change as well"
        faults += [Fault(f"{each.name}: spec.globalDefault", message) for each in given.values() if each.global_default]
    defaults = sorted(name for name, each in given.items() if each.global_default)
    if len(defaults) > 1:
        message = f"{defaults[0]} is the global default as well, and Kubernetes allows one"
        faults += [Fault(f"{name}: spec.globalDefault", message) for name in defaults[1:]]
    if faults:
        raise PublishingError(faults)
    return list(classes.values())


def _versioned(
    values: Iterable[engine.PriorityClass], live: Sequence[engine.PriorityClass], faults: list[Fault]
) -> list[engine.PriorityClass]:
    was = {each.name: each for each in live}
    versioned = []
    for value in values:
        if value.version:
            versioned.append(value)  # one that was live goes back as it was
            continue
        if same_content(was.get(value.name), value):
            versioned.append(was[value.name])
            continue
        faults += _at(value.name, fixed_faults(value))
        versioned.append(msgspec.structs.replace(value, version=_next_number(value.name)))
    return versioned


def _at(name: str, faults: Iterable[Fault]) -> list[Fault]:
    return [msgspec.structs.replace(fault, path=f"{name}: {fault.path}") for fault in faults]


def same_content(live: engine.PriorityClass | None, value: engine.PriorityClass) -> bool:
    """Return whether two states of a class differ in nothing but their version."""
    return live is not None and msgspec.structs.replace(live, version=value.version) == value


def _next_number(name: str) -> int:
    newest = PriorityClassVersion.objects.filter(name=name).aggregate(newest=Max("number"))["newest"]
    return (newest or 0) + 1


def withdrawn_priority_classes() -> list[engine.PriorityClass]:
    """Return the classes that were live once and aren't now, as they were live last."""
    rows = PriorityClassVersion.objects.filter(state=_State.WITHDRAWN)
    return [engine.decode_priority_class(row.document.encode()) for row in rows]


def follow_priority_classes(before: engine.Revision, target: engine.Revision, authors: Mapping[Key, str]) -> None:
    """Make the rows, which lists and filters ask for, those of what goes live."""
    live = {each.name: each for each in before.priority_classes}
    wanted = {each.name: each for each in target.priority_classes}
    PriorityClass.objects.filter(name__in=[name for name in live if name not in wanted]).delete()
    moved = [each for name, each in wanted.items() if live.get(name) != each]
    # The global default is taken away before it is given: the database allows one.
    for each in sorted(moved, key=lambda each: each.global_default):
        author = {"author": authors.get((Kind.PRIORITY_CLASS, each.name), "")}
        PriorityClass.objects.update_or_create(name=each.name, defaults=compiler.priority_class_fields(each) | author)


class PriorityClassState(msgspec.Struct, frozen=True):
    """What became of a live class in the cluster: a state of ClusterPriorityClass, and what there is to say of it."""

    state: str
    message: str = ""


def priority_class_state(live: engine.PriorityClass, found: ClusterPriorityClass | None) -> PriorityClassState:
    """Return what became of a live class. What is known of another version says nothing of this one: it is pending."""
    if found is None or found.version != live.version:
        return PriorityClassState(
            ClusterPriorityClass.State.PENDING, "Berth hasn't looked at the cluster since this was published."
        )
    return PriorityClassState(found.state, found.message)
