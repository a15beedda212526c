"""PriorityClasses between rows and Revisions: what rows want, how versions are numbered, and how rows follow a rollback.

Nothing here makes a Revision: `policies.publishing` does, and calls this inside its transaction.
"""

from collections.abc import Mapping, Sequence

import msgspec
from django.db.models import Max

from policies import compiler
from policies.engine import ruleset as engine
from policies.engine.errors import Fault, RuleSetError
from policies.engine.validation import read_priority_class
from policies.models import ClusterPriorityClass, PriorityClass, PriorityClassVersion, Revision

_State = PriorityClassVersion.State
_WAY_OUT = "Give yours a new name; or have that one deleted from the cluster first, and save yours again."


def fixed_faults(wanted: engine.PriorityClass) -> list[Fault]:
    """Give what is wanted otherwise than the cluster has it and Kubernetes never changes: value and preemptionPolicy.

    A class in the cluster that Berth neither manages nor is to adopt doesn't count: it isn't touched anyway.
    """
    found = ClusterPriorityClass.objects.filter(pk=wanted.name, present=True).first()
    if found is None or not (found.managed or wanted.adopt):
        return []
    compared = [
        ("spec.value", found.value, wanted.value),
        ("spec.preemptionPolicy", found.preemption_policy, wanted.preemption_policy),
    ]
    return [
        Fault(path, f"is {there} in the cluster's {wanted.name}, and Kubernetes never changes it. {_WAY_OUT}")
        for path, there, here in compared
        if there != here
    ]


def wanted_by_rows(live: Sequence[engine.PriorityClass]) -> list[engine.PriorityClass]:
    """Give the PriorityClasses of all rows, each with the version that it has or would get.

    Args:
        live: those of the live Revision.

    Raises:
        RuleSetError: with the faults of all rows; paths begin with the row's name.
    """
    was = {each.name: each for each in live}
    wanted, faults = [], []
    for row in PriorityClass.objects.all():
        try:
            value = read_priority_class(compiler.priority_class_document(row))
        except RuleSetError as error:
            faults += [msgspec.structs.replace(fault, path=f"{row.name}: {fault.path}") for fault in error.faults]
            continue
        if same_content(was.get(value.name), value):
            wanted.append(was[value.name])
            continue
        faults += [msgspec.structs.replace(fault, path=f"{row.name}: {fault.path}") for fault in fixed_faults(value)]
        wanted.append(msgspec.structs.replace(value, version=_next_number(value.name)))
    if faults:
        raise RuleSetError(faults)
    return wanted


def same_content(live: engine.PriorityClass | None, value: engine.PriorityClass) -> bool:
    """Tell whether two states of a class differ in nothing but their version."""
    return live is not None and msgspec.structs.replace(live, version=value.version) == value


def _next_number(name: str) -> int:
    newest = PriorityClassVersion.objects.filter(name=name).aggregate(newest=Max("number"))["newest"]
    return (newest or 0) + 1


def keep_versions(before: engine.Revision, after: engine.Revision, made: Revision) -> None:
    """Write the versions that a Revision brings, and which of all are live now."""
    live = {(each.name, each.version) for each in after.priority_classes}
    names = {each.name for each in after.priority_classes}
    for version in PriorityClassVersion.objects.exclude(state=_State.SUPERSEDED):
        if (version.name, version.number) not in live:
            version.state = _State.SUPERSEDED if version.name in names else _State.WITHDRAWN
            version.save(update_fields=["state"])
    known = {(each.name, each.version) for each in before.priority_classes}
    for each in after.priority_classes:
        if (each.name, each.version) not in known:
            _publish_version(each, made)


def _publish_version(value: engine.PriorityClass, made: Revision) -> None:
    """Make the version's row; one that is there already, after a rollback, is live again."""
    PriorityClassVersion.objects.update_or_create(
        name=value.name,
        number=value.version,
        defaults={"state": _State.PUBLISHED},
        create_defaults={
            "state": _State.PUBLISHED,
            "document": engine.encode(value).decode(),
            "digest": compiler.digest_of(value),
            "revision": made.number,
            "published_by": made.made_by,
            "published_at": made.created_at,
        },
    )


def withdrawn() -> list[engine.PriorityClass]:
    """Give the classes that were live once and aren't now, as they were live last."""
    rows = PriorityClassVersion.objects.filter(state=_State.WITHDRAWN)
    return [engine.decode_priority_class(row.document.encode()) for row in rows]


def follow(before: engine.Revision, target: engine.Revision) -> None:
    """Have the rows follow a rollback where they hold what was live until now; unpublished edits stay."""
    live = {each.name: each for each in before.priority_classes}
    wanted = {each.name: each for each in target.priority_classes}
    rows = {row.name: value_of(row) for row in PriorityClass.objects.all()}
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
        PriorityClass.objects.update_or_create(name=name, defaults=fields)


def value_of(row: PriorityClass) -> engine.PriorityClass | None:
    """Give a row's checked content, None for a faulty one."""
    try:
        return read_priority_class(compiler.priority_class_document(row))
    except RuleSetError:
        return None


def _differ(one: engine.PriorityClass | None, other: engine.PriorityClass | None) -> bool:
    if one is None or other is None:
        return one is not other
    return not same_content(one, other)


def unpublished(live: Sequence[engine.PriorityClass]) -> dict[str, str]:
    """Give the names of classes whose rows differ from what is live, each with how: new, changed or removed."""
    was: Mapping[str, engine.PriorityClass] = {each.name: each for each in live}
    rows = {row.name: value_of(row) for row in PriorityClass.objects.all()}
    differing = {}
    for name in sorted({*was, *rows}):
        if name not in rows:
            differing[name] = "removed"
        elif name not in was:
            differing[name] = "new"
        elif _differ(rows[name], was[name]):
            differing[name] = "changed"
    return differing


class State(msgspec.Struct, frozen=True):
    """What became of a live class in the cluster: a state of ClusterPriorityClass, and what there is to say of it."""

    state: str
    message: str = ""


def state_of(live: engine.PriorityClass, found: ClusterPriorityClass | None) -> State:
    """Give what became of a live class. What is known of another version says nothing of this one: it is pending."""
    if found is None or found.version != live.version:
        return State(ClusterPriorityClass.State.PENDING, "Berth hasn't looked at the cluster since this was published.")
    return State(found.state, found.message)
