"""PriorityClasses: saving one, publishing all of them as their rows are, and putting back what others changed in the cluster."""

import logging
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import Count, F, Max, Sum
from django.db.models.functions import Now

from policies import compiler
from policies.engine import ruleset as engine
from policies.engine.errors import Fault, RuleSetError
from policies.engine.validation import read_priority_class
from policies.models import (
    ClusterPriorityClass,
    PriorityClass,
    PriorityClassLook,
    PriorityClassUser,
    PriorityClassVersion,
    Revision,
)
from policies.publishing.actors import By, name_of
from policies.publishing.errors import PublishingError
from policies.publishing.revisions import current_revision, lock_revisions, make_revision
from policies.publishing.shown import check_shown

logger = logging.getLogger("berth.publishing")

_State = PriorityClassVersion.State
# How many workloads a sentence about who uses a class names.
SHOWN_USERS = 5
# States in which a person may have the cluster's class made as it is live.
PUT_BACK_STATES = (ClusterPriorityClass.State.DRIFTED, ClusterPriorityClass.State.REFUSED)
_WAY_OUT = "Take it over with what it has, and change it then; or give yours a new name."


def save_priority_class(*, priority_class: engine.PriorityClass, by: By) -> tuple[PriorityClass, bool]:
    """Write a checked PriorityClass to the row of its name. Nothing goes live by it.

    Returns:
        The row, and whether anything changed.

    Raises:
        PublishingError: Kubernetes wouldn't take it: a value that can't change, or a second global default.
    """
    fields = compiler.priority_class_fields(priority_class)
    try:
        with transaction.atomic():
            row = PriorityClass.objects.filter(name=priority_class.name).first()
            if row is not None and all(getattr(row, field) == value for field, value in fields.items()):
                return row, False
            if faults := priority_class_faults(priority_class):
                raise PublishingError(faults)
            fields["author"] = name_of(by)
            row, _created = PriorityClass.objects.update_or_create(name=priority_class.name, defaults=fields)
    except IntegrityError as error:
        fault = Fault("spec.globalDefault", "another class has just been made the global default")
        raise PublishingError([fault]) from error
    return row, True


def priority_class_faults(priority_class: engine.PriorityClass) -> list[Fault]:
    """Return what stands against saving a checked PriorityClass: what other rows and the cluster have."""
    faults = fixed_faults(priority_class)
    if priority_class.global_default and (message := second_global_default(priority_class.name)):
        faults.append(Fault("spec.globalDefault", message))
    return faults


def second_global_default(name: str) -> str:
    """Return what stands against a class becoming the global default; empty when nothing does."""
    other = PriorityClass.objects.filter(global_default=True).exclude(name=name).first()
    return f"{other} is the global default, and Kubernetes allows one; take it away there first" if other else ""


def publish_priority_classes(*, by: By, reason: str, expected_digest: str = "") -> Revision | None:
    """Make the next Revision with the PriorityClasses as their rows are now. None when they are live already.

    Args:
        by: who publishes.
        reason: why, in that person's words.
        expected_digest: `digest_of_shown` of what that person looked at, when nothing else may be published.

    Raises:
        PublishingError: a PriorityClass is faulty, or changes what Kubernetes never changes, or they changed.
    """
    with transaction.atomic():
        before = lock_revisions()
        classes = checked_priority_classes(before)
        check_shown(expected_digest, before.priority_classes, classes)
        return make_revision(before, before.rule_sets, before.assignments, by=by, reason=reason, classes=classes)


def unpublished_priority_classes() -> dict[str, str]:
    """Return the names of PriorityClasses whose rows differ from what is live, each with how: new, changed or removed."""
    return unpublished_among(current_revision().priority_classes)


def live_priority_classes() -> dict[str, engine.PriorityClass]:
    """Return the PriorityClasses that are live, by name."""
    return {each.name: each for each in current_revision().priority_classes}


def put_back(*, name: str, by: By, reason: str) -> None:
    """Put back what others changed of a PriorityClass in the cluster to what is live, at the next look; or try again what was refused.

    Raises:
        PublishingError: nothing was changed or refused there, or it is put back already.
    """
    if ClusterPriorityClass.objects.filter(pk=name, state__in=PUT_BACK_STATES).update(overwrite=True) != 1:
        raise PublishingError([f"{name} isn't drifted or refused any more; load the page again."])
    ask_for_look()
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
    named = ", ".join(f"{each['kind']} {each['namespace']}/{each['name']} ({each['all']})" for each in largest)
    at = f"counted at {look.users_counted_at:%Y-%m-%d %H:%M:%S} UTC"
    if not found["pods"]:
        return f"No Pod uses it, {at}."
    number = workloads.count()
    used = f"{_many(found['pods'], 'Pod')} of {_many(number, 'workload')} in {_many(found['namespaces'], 'namespace')}"
    return f"Used by {used}, {at}: {named}{', …' if number > SHOWN_USERS else ''}."


def _many(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def ask_for_look() -> None:
    """Make a look at the cluster's PriorityClasses due at once; another one where one is under way."""
    PriorityClassLook.objects.update(next_at=Now(), asked=F("asked") + 1)


def checked_priority_classes(before: engine.Revision) -> list[engine.PriorityClass]:
    """Return the PriorityClasses of all rows, each with the version that it has or would get; each must be sound."""
    try:
        return wanted_priority_classes(before.priority_classes)
    except RuleSetError as error:
        raise PublishingError(error.faults) from error


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


def wanted_priority_classes(live: Sequence[engine.PriorityClass]) -> list[engine.PriorityClass]:
    """Return the PriorityClasses of all rows, each with the version that it has or would get.

    Args:
        live: those of the live Revision.

    Raises:
        RuleSetError: with the faults of all rows; paths begin with the row's name.
    """
    values: list[engine.PriorityClass] = []
    faults: list[Fault] = []
    for row in PriorityClass.objects.all():
        try:
            values.append(read_priority_class(compiler.priority_class_document(row)))
        except RuleSetError as error:
            faults += _at(row.name, error.faults)
    wanted = _versioned(values, live, faults)
    if faults:
        raise RuleSetError(faults)
    return wanted


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


def follow_priority_classes(before: engine.Revision, target: engine.Revision, *, by: By) -> None:
    """Make the rows follow a rollback where they hold what was live until now; unpublished edits stay."""
    live = {each.name: each for each in before.priority_classes}
    wanted = {each.name: each for each in target.priority_classes}
    rows = {row.name: priority_class_of_row(row) for row in PriorityClass.objects.all()}
    moved = {
        name: wanted.get(name)
        for name in live | wanted
        if _differ(live.get(name), wanted.get(name)) and not _differ(rows.get(name), live.get(name))
    }
    # The global default is taken away before it is given: the database allows one.
    for name, then in sorted(moved.items(), key=lambda item: item[1] is not None and item[1].global_default):
        if then is None:
            PriorityClass.objects.filter(name=name).delete()
            continue
        fields = compiler.priority_class_fields(then)
        others = PriorityClass.objects.exclude(name=name)
        fields["global_default"] &= not others.filter(global_default=True).exists()
        PriorityClass.objects.update_or_create(name=name, defaults=fields | {"author": name_of(by)})


def priority_class_of_row(row: PriorityClass) -> engine.PriorityClass | None:
    """Return a row's checked content, None for a faulty one."""
    try:
        return read_priority_class(compiler.priority_class_document(row))
    except RuleSetError:
        return None


def _differ(one: engine.PriorityClass | None, other: engine.PriorityClass | None) -> bool:
    if one is None or other is None:
        return one is not other
    return not same_content(one, other)


def unpublished_among(live: Sequence[engine.PriorityClass]) -> dict[str, str]:
    """Return the names of classes whose rows differ from what is live, each with how: new, changed or removed."""
    was: Mapping[str, engine.PriorityClass] = {each.name: each for each in live}
    rows = {row.name: priority_class_of_row(row) for row in PriorityClass.objects.all()}
    differing = {}
    for name in sorted({*was, *rows}):
        if name not in rows:
            differing[name] = "removed"
        elif name not in was:
            differing[name] = "new"
        elif _differ(rows[name], was[name]):
            differing[name] = "changed"
    return differing


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
