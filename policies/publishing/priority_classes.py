"""PriorityClasses: saving one, publishing all of them as their rows are, and putting back what others changed in the cluster.

What rows want and how versions are numbered is in `policies.priority_classes`.
"""

import logging

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from policies import compiler, priority_classes
from policies.engine import ruleset as engine
from policies.engine.errors import Fault, RuleSetError
from policies.models import ClusterPriorityClass, PriorityClass, PriorityClassLook, Revision
from policies.publishing.errors import PublishingError
from policies.publishing.revisions import By, current_revision, lock_revisions, make_revision, name_of

logger = logging.getLogger("berth.publishing")


def save_priority_class(*, priority_class: engine.PriorityClass, by: By) -> tuple[PriorityClass, bool]:
    """Write a checked PriorityClass to the row of its name. Nothing goes live by it.

    Returns:
        The row, and whether anything changed.

    Raises:
        PublishingError: Kubernetes wouldn't take it: a value that can't change, or a second global default.
    """
    del by  # as with Assignments: the Revision names who published
    fields = compiler.priority_class_fields(priority_class)
    try:
        with transaction.atomic():
            row = PriorityClass.objects.filter(name=priority_class.name).first()
            if row is not None and all(getattr(row, field) == value for field, value in fields.items()):
                return row, False
            if faults := priority_class_faults(priority_class):
                raise PublishingError(faults)
            row, _created = PriorityClass.objects.update_or_create(name=priority_class.name, defaults=fields)
    except IntegrityError as error:
        fault = Fault("spec.globalDefault", "another class has just been made the global default")
        raise PublishingError([fault]) from error
    return row, True


def priority_class_faults(priority_class: engine.PriorityClass) -> list[Fault]:
    """Give what stands against saving a checked PriorityClass: what other rows and the cluster have."""
    faults = priority_classes.fixed_faults(priority_class)
    if priority_class.global_default and (message := second_global_default(priority_class.name)):
        faults.append(Fault("spec.globalDefault", message))
    return faults


def second_global_default(name: str) -> str:
    """Give what stands against a class becoming the global default; empty when nothing does."""
    other = PriorityClass.objects.filter(global_default=True).exclude(name=name).first()
    return f"{other} is the global default, and Kubernetes allows one; take it away there first" if other else ""


def publish_priority_classes(*, by: By, reason: str) -> Revision | None:
    """Make the next Revision with the PriorityClasses as their rows are now. None when they are live already.

    Raises:
        PublishingError: a PriorityClass is faulty, or changes what Kubernetes never changes.
    """
    with transaction.atomic():
        before = lock_revisions()
        classes = checked_priority_classes(before)
        return make_revision(before, before.rule_sets, before.assignments, by=by, reason=reason, classes=classes)


def unpublished_priority_classes() -> dict[str, str]:
    """Give the names of PriorityClasses whose rows differ from what is live, each with how: new, changed or removed."""
    return priority_classes.unpublished(current_revision().priority_classes)


def live_priority_classes() -> dict[str, engine.PriorityClass]:
    """Give the PriorityClasses that are live, by name."""
    return {each.name: each for each in current_revision().priority_classes}


def put_back(*, name: str, by: By, reason: str) -> None:
    """Have what others changed of a PriorityClass in the cluster put back to what is live, at the next look.

    Raises:
        PublishingError: nothing was changed there, or it is put back already.
    """
    drifted = ClusterPriorityClass.objects.filter(pk=name, state=ClusterPriorityClass.State.DRIFTED)
    if drifted.update(overwrite=True) != 1:
        raise PublishingError([f"{name} isn't drifted any more; load the page again."])
    PriorityClassLook.objects.update(next_at=Now())
    logger.info("%s has PriorityClass %s put back: %s", name_of(by), name, reason)


def checked_priority_classes(before: engine.Revision) -> list[engine.PriorityClass]:
    """Give the PriorityClasses of all rows, each with the version that it has or would get; each must be sound."""
    try:
        return priority_classes.wanted_by_rows(before.priority_classes)
    except RuleSetError as error:
        raise PublishingError(error.faults) from error
