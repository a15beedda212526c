"""PriorityClasses: the live ones with changes applied, and reverting what others changed in the cluster."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

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
from policies.publishing.parts import Key, Kind, is_same
from policies.publishing.revisions import current_revision
from policies.publishing.shown import check_shown, digest_of_shown
from policies.wording import counted

logger = logging.getLogger("berth.publishing")

_State = PriorityClassVersion.State
# How many workloads a sentence about the users of a class names.
_SHOWN_USERS = 5
# States in which a person may revert the cluster's class to the live one.
PUT_BACK_STATES = (ClusterPriorityClass.State.DRIFTED, ClusterPriorityClass.State.REFUSED)
_WAY_OUT = "Take it over with what it has, and change it then; or give yours a new name."


def priority_class_faults(priority_class: engine.PriorityClass, beside: Iterable[engine.PriorityClass]) -> list[Fault]:
    """Return the faults of a valid PriorityClass that come from the cluster's classes, and from the other classes that will be live."""
    faults = _fixed_faults(priority_class)
    other = next((each for each in beside if each.global_default and each.name != priority_class.name), None)
    if priority_class.global_default and other is not None:
        message = f"{other.name} is the global default, and Kubernetes allows only one; remove it there first, in the same Change"
        faults.append(Fault("spec.globalDefault", message))
    return faults


def cluster_warnings(wanted: Sequence[engine.PriorityClass], removed: Collection[str] = ()) -> list[str]:
    """Return warnings about classes that Berth leaves alone in the cluster, by its last known state.

    Args:
        wanted: the classes that a Change edits.
        removed: the names of those that it removes.
    """
    there_or_drifted = Q(present=True) | Q(state=ClusterPriorityClass.State.DRIFTED)
    seen = {row.name: row for row in ClusterPriorityClass.objects.filter(there_or_drifted)}
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
    kept = _kept_default(seen.values(), wanted, removed)
    lines += [
        f"! {each.name} can't become the global default: the cluster's {kept} is, and stays there once it is removed "
        f"here. Keep {kept} here without globalDefault, or delete it in the cluster"
        for each in wanted
        if kept and each.global_default
    ]
    drifted = {name: row for name, row in seen.items() if row.state == ClusterPriorityClass.State.DRIFTED}
    lines += [
        f"! {each.name} in the cluster isn't as Berth applied it, and what others made of it is overwritten. "
        f"{drifted[each.name].message}"
        for each in wanted
        if each.name in drifted and not _is_as_in_cluster(each, drifted[each.name])
    ]
    return lines


def _kept_default(
    seen: Iterable[ClusterPriorityClass], wanted: Sequence[engine.PriorityClass], removed: Collection[str]
) -> str:
    """Return the cluster's global default if Berth manages it, and it isn't published any more, and stays; else an empty text."""
    row = next((row for row in seen if row.present and row.managed and row.global_default), None)
    live = live_priority_classes()
    if row is None or row.name in (live.keys() - set(removed)) | {each.name for each in wanted}:
        return ""
    was = live.get(row.name) or next((each for each in withdrawn_priority_classes() if each.name == row.name), None)
    is_deleted = was is not None and was.deletion_policy == "Delete" and row.made_by_berth
    return "" if is_deleted else row.name


def _is_as_in_cluster(wanted: engine.PriorityClass, row: ClusterPriorityClass) -> bool:
    held = (wanted.value, wanted.global_default, wanted.preemption_policy, wanted.description)
    return held == (row.value, row.global_default, row.preemption_policy, row.description)


def live_priority_classes() -> dict[str, engine.PriorityClass]:
    """Return the PriorityClasses that are live, by name."""
    return {each.name: each for each in current_revision().priority_classes}


def digest_of_putting_back(name: str) -> str:
    """Return the digest of what reverting a class would do: of the cluster's class, as last seen, and of the live one."""
    return digest_of_shown(*_put_back_sides(name))


def faults_of_putting_back(found: ClusterPriorityClass) -> list[str]:
    """Return why there is nothing to put back, as after a colleague did it; none if there is something."""
    if found.overwrite:
        return [f"Nothing to do: somebody has already asked for {found.name} to be put back, which takes some seconds."]
    if found.state in PUT_BACK_STATES:
        return []
    return [f"Nothing to do: {found.name} isn't drifted or refused in the cluster."]


def _put_back_sides(name: str) -> tuple[object, object]:
    there = ClusterPriorityClass.objects.filter(pk=name).values_list(
        "state", "message", "value", "global_default", "preemption_policy", "description"
    )
    return there.first(), live_priority_classes().get(name)


@transaction.atomic
def put_back(*, name: str, by: By, reason: str, expected_digest: str = "") -> None:
    """Revert a PriorityClass that others changed in the cluster to the live one, at the next look; or retry what was refused.

    Args:
        name: the name of the class.
        by: who does it.
        reason: why, in that person's words.
        expected_digest: `digest_of_putting_back` when that person looked.

    Raises:
        PublishingError: nothing was changed or refused there, it is reverted already or about to be, it changed since that person
            looked, the reason could mislead its readers, or this account may not do it.
    """
    if not may(by, "policies.publish") or not reach_of(by).is_whole:
        raise PublishingError([f"{name_of(by)} may not put PriorityClasses back; who publishes them may."])
    check_words(reason)
    # First, and locked until the transaction ends, like the class: a look writes its own row before those of the classes.
    ask_for_look()
    row = ClusterPriorityClass.objects.select_for_update().filter(pk=name).first()
    if row is not None and row.overwrite:
        raise PublishingError(faults_of_putting_back(row))
    there, live = _put_back_sides(name)
    check_shown(expected_digest, there, live)
    if ClusterPriorityClass.objects.filter(pk=name, state__in=PUT_BACK_STATES).update(overwrite=True) != 1:
        raise PublishingError([f"{name} isn't drifted or refused any more; reload the page."])
    digests = (digest_of_shown(there), digest_of_shown(live))
    audit.record_event(audit.Kind.PUT_BACK, by=by, thing=(Kind.PRIORITY_CLASS, name), digests=digests, reason=reason)
    logger.info("%s restores PriorityClass %s: %s", name_of(by), name, reason)


def ask_for_users() -> None:
    """Ask for a count of the Pods of each class in the cluster, within seconds. They are counted every minute or so anyway."""
    PriorityClassLook.objects.filter(users_asked_at__isnull=True).update(users_asked_at=Now())


def users_sentence(name: str) -> str:
    """Return who uses a class in the cluster, by the last count."""
    look = PriorityClassLook.objects.first()
    if look is None or look.users_counted_at is None:
        return "Its users haven't been counted yet; the worker counts them every minute."
    users = PriorityClassUser.objects.filter(priority_class=name)
    found = users.aggregate(pods=Sum("pods"), namespaces=Count("namespace", distinct=True))
    workloads = users.values("namespace", "kind", "name").distinct()
    largest = workloads.annotate(all=Sum("pods")).order_by("-all", "namespace", "name")[:_SHOWN_USERS]
    named = ", ".join(f"{each['kind']} {each['namespace']}/{each['name']} ({each['all']:,})" for each in largest)
    at = f"counted at {look.users_counted_at:%Y-%m-%d %H:%M:%S} UTC"
    if not found["pods"]:
        return f"No Pod uses it, {at}."
    number = workloads.count()
    used = f"{counted(found['pods'], 'Pod')} of {counted(number, 'workload')} in {counted(found['namespaces'], 'namespace')}"
    return f"Used by {used}, {at}: {named}{', …' if number > _SHOWN_USERS else ''}."


def ask_for_look() -> None:
    """Make the next look at the cluster's PriorityClasses due at once, even while one is under way."""
    PriorityClassLook.objects.update(next_at=Now(), asked=F("asked") + 1)


def _fixed_faults(wanted: engine.PriorityClass) -> list[Fault]:
    """Return the faults where an adopted class would need another value or preemptionPolicy: adoption keeps these.

    A class that Berth manages is deleted and recreated; one that it neither manages nor adopts isn't touched at all.
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
    """Return, in sentences, which of the cluster's classes, as last seen, will be deleted and recreated for these."""
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
    """Return a class as the cluster has it, to be made live; members that only Berth has keep their live values.

    Raises:
        PublishingError: the cluster has none, or it is Kubernetes' own.
    """
    found = ClusterPriorityClass.objects.filter(pk=name, present=True).first()
    if found is None or found.state == ClusterPriorityClass.State.SYSTEM:
        raise PublishingError([f"The cluster has no {name} that could be taken over; reload the page."])
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
    """Return the names of the cluster's classes that weren't published in Berth, the highest value first."""
    found = ClusterPriorityClass.objects.filter(present=True).exclude(state=ClusterPriorityClass.State.SYSTEM)
    live = live_priority_classes()
    return [row.name for row in found.order_by("-value", "name") if row.name not in live]


def with_priority_classes(
    before: engine.Revision, wanted: Iterable[engine.PriorityClass]
) -> list[engine.PriorityClass]:
    """Return the live PriorityClasses with some replaced or added, each of these with its existing or next version.

    Raises:
        PublishingError: Kubernetes wouldn't accept one; or a class that isn't among them is the live global default.
    """
    faults: list[Fault] = []
    given = {each.name: each for each in _versioned(wanted, before.priority_classes, faults)}
    classes = {each.name: each for each in before.priority_classes} | given
    for kept in (each for each in classes.values() if each.global_default and each.name not in given):
        message = f"{kept.name} is the live global default, and Kubernetes allows only one; publish its change as well"
        faults += [Fault(f"{each.name}: spec.globalDefault", message) for each in given.values() if each.global_default]
    defaults = sorted(name for name, each in given.items() if each.global_default)
    if len(defaults) > 1:
        message = f"{defaults[0]} is the global default as well, and Kubernetes allows only one"
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
            versioned.append(value)  # a former version is restored unchanged
            continue
        if is_same(was.get(value.name), value):
            versioned.append(was[value.name])
            continue
        faults += _at(value.name, _fixed_faults(value))
        versioned.append(msgspec.structs.replace(value, version=_next_number(value.name)))
    return versioned


def _at(name: str, faults: Iterable[Fault]) -> list[Fault]:
    return [msgspec.structs.replace(fault, path=f"{name}: {fault.path}") for fault in faults]


def _next_number(name: str) -> int:
    newest = PriorityClassVersion.objects.filter(name=name).aggregate(newest=Max("number"))["newest"]
    return (newest or 0) + 1


def priority_class_content(version: PriorityClassVersion) -> engine.PriorityClass:
    """Return the content of a version.

    Raises:
        PublishingError: it can't be read.
    """
    try:
        return engine.decode_priority_class(version.document.encode())
    except msgspec.DecodeError as error:
        message = (
            f"PriorityClass {version.name} version {version.number} can't be read: a newer version of Berth wrote it."
        )
        raise PublishingError([message]) from error


def withdrawn_priority_classes() -> list[engine.PriorityClass]:
    """Return the classes that are no longer live, as they were last live, without those that can't be read.

    Those stay in the cluster: whether they were to be deleted isn't known.
    """
    found = []
    for row in PriorityClassVersion.objects.filter(state=_State.WITHDRAWN):
        with suppress(PublishingError):  # the page of the class says so
            found.append(priority_class_content(row))
    return found


def follow_priority_classes(before: engine.Revision, target: engine.Revision, authors: Mapping[Key, str]) -> None:
    """Update the rows, which lists and filters read, to the new live state."""
    live = {each.name: each for each in before.priority_classes}
    wanted = {each.name: each for each in target.priority_classes}
    PriorityClass.objects.filter(name__in=[name for name in live if name not in wanted]).delete()
    moved = [each for name, each in wanted.items() if live.get(name) != each]
    # The global default is removed before it is set elsewhere: the database allows only one.
    for each in sorted(moved, key=lambda each: each.global_default):
        author = {"author": authors.get((Kind.PRIORITY_CLASS, each.name), "")}
        PriorityClass.objects.update_or_create(name=each.name, defaults=compiler.priority_class_fields(each) | author)


class PriorityClassState(msgspec.Struct, frozen=True):
    """The state of a live class in the cluster: a state of ClusterPriorityClass, and a message."""

    state: str
    message: str = ""


def priority_class_state(live: engine.PriorityClass, found: ClusterPriorityClass | None) -> PriorityClassState:
    """Return the state of a live class. If only the state of another version is known, it is pending."""
    if found is None or found.version != live.version:
        return PriorityClassState(
            ClusterPriorityClass.State.PENDING, "Berth hasn't looked at the cluster since this was published."
        )
    return PriorityClassState(found.state, found.message)
