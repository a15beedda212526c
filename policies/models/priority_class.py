"""PriorityClasses: the wanted state, the published versions, and the API server's state."""

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

NAME_MAX_LENGTH = 253
_LOWEST, _HIGHEST = -(2**31), 1_000_000_000


class PriorityClass(models.Model):
    """A PriorityClass in its wanted state; the Revision is the live state."""

    class PreemptionPolicy(models.TextChoices):
        """Whether Pods of the class may preempt others."""

        PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority", "PreemptLowerPriority: may have Pods of lower priority removed"
        NEVER = "Never", "Never: goes first in the queue, but removes nobody"

    class DeletionPolicy(models.TextChoices):
        """What happens to the cluster's class when this one is removed from the live state."""

        KEEP = "Keep", "Keep: it stays in the cluster"
        DELETE = "Delete", "Delete: it is deleted from the cluster, if Berth made it"

    name = models.CharField(
        max_length=NAME_MAX_LENGTH,
        unique=True,
        help_text="Lower-case letters, digits, dashes and dots. It can't be changed later, because Pods refer to the class by it.",
    )
    description = models.TextField(
        blank=True, default="", help_text="When to use it. It is also the description of the cluster's class."
    )
    value = models.IntegerField(
        validators=[MinValueValidator(_LOWEST), MaxValueValidator(_HIGHEST)],
        help_text="The priority of its Pods: higher goes first. At most 1,000,000,000. A new value deletes and recreates the cluster's class.",
    )
    global_default = models.BooleanField(
        default=False,
        help_text="New Pods without a class get this one. At most one class can be the default; existing Pods keep their priority.",
    )
    preemption_policy = models.CharField(
        max_length=20,
        choices=PreemptionPolicy,
        default=PreemptionPolicy.PREEMPT_LOWER_PRIORITY,
        help_text="A new policy deletes and recreates the cluster's class.",
    )
    adopt = models.BooleanField(
        default=False,
        help_text="Adopt a class of this name that exists in the cluster. Its value and preemptionPolicy must be the same.",
    )
    deletion_policy = models.CharField(
        max_length=6,
        choices=DeletionPolicy,
        default=DeletionPolicy.KEEP,
        help_text="What happens to the cluster's class when the deletion of this one is published.",
    )
    author = models.CharField(max_length=150, blank=True, default="", help_text="Who saved it last, as text.")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-value", "name"]
        verbose_name = "PriorityClass"
        verbose_name_plural = "PriorityClasses"
        constraints = [
            models.UniqueConstraint(
                fields=["global_default"], condition=Q(global_default=True), name="one_global_default"
            ),
            models.CheckConstraint(
                condition=Q(value__gte=_LOWEST, value__lte=_HIGHEST), name="priority_value_as_kubernetes_allows"
            ),
            models.CheckConstraint(
                condition=Q(preemption_policy__in=["PreemptLowerPriority", "Never"]), name="known_preemption_policy"
            ),
            models.CheckConstraint(condition=Q(deletion_policy__in=["Keep", "Delete"]), name="known_deletion_policy"),
        ]

    def __str__(self) -> str:
        return self.name


class PriorityClassVersion(models.Model):
    """One published state of a PriorityClass. Publishing creates it; the database refuses all changes except of its state.

    It names the class by text, since history outlives the row. `withdrawn` marks the last live version of a class that
    is no longer in the live Revision.
    """

    class State(models.TextChoices):
        """Whether it is live."""

        PUBLISHED = "published", "published"
        SUPERSEDED = "superseded", "superseded"
        WITHDRAWN = "withdrawn", "withdrawn"

    name = models.CharField(max_length=NAME_MAX_LENGTH)
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=State, default=State.PUBLISHED)
    document = models.TextField(help_text="The exact canonical JSON that the digest is taken over.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the document, in hex.")
    revision = models.PositiveIntegerField(help_text="The Revision by which it was first published.")
    published_by = models.CharField(max_length=150)
    published_at = models.DateTimeField()

    class Meta:
        ordering = ["name", "-number"]
        verbose_name = "PriorityClass version"
        constraints = [
            models.UniqueConstraint(fields=["name", "number"], name="one_number_per_priority_class"),
            models.UniqueConstraint(
                fields=["name"],
                condition=Q(state__in=["published", "withdrawn"]),
                name="one_last_live_version_per_priority_class",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["published", "superseded", "withdrawn"]), name="known_priority_class_state"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} v{self.number}"


class ClusterPriorityClass(models.Model):
    """A PriorityClass in the API server at the last look, and the state of the live one of this name.

    `version` is the live version to which `state` refers; 0 for a class that isn't live. `overwrite` requests that a
    drifted or refused class is replaced by the live one, as long as the cluster's class is the one that was looked at.
    """

    class State(models.TextChoices):
        """The state of the live class in the cluster."""

        APPLIED = "applied", "applied"
        PENDING = "pending", "pending"
        REFUSED = "refused", "refused"
        CONFLICT = "conflict", "conflict"
        FOREIGN = "foreign", "foreign"
        DRIFTED = "drifted", "drifted"
        KEPT = "kept", "kept"
        SYSTEM = "system", "system"

    name = models.CharField(max_length=NAME_MAX_LENGTH, primary_key=True)
    state = models.CharField(max_length=8, choices=State)
    message = models.TextField(blank=True, default="")
    version = models.PositiveIntegerField(default=0)
    present = models.BooleanField(default=False, help_text="Whether the cluster has it.")
    value = models.IntegerField(default=0)
    global_default = models.BooleanField(default=False)
    preemption_policy = models.CharField(max_length=20, blank=True, default="")
    description = models.TextField(blank=True, default="")
    managed = models.BooleanField(default=False, help_text="Whether it carries Berth's label.")
    made_by_berth = models.BooleanField(default=False)
    overwrite = models.BooleanField(default=False)
    looked_at = models.DateTimeField()
    changed_at = models.DateTimeField(help_text="When the state last changed.")

    class Meta:
        ordering = ["-value", "name"]
        default_permissions = ("view",)
        verbose_name = "PriorityClass in the cluster"
        verbose_name_plural = "PriorityClasses in the cluster"

    def __str__(self) -> str:
        return self.name


class PriorityClassUser(models.Model):
    """Pods of one workload that name a PriorityClass and have one priority, by the last count."""

    priority_class = models.CharField(max_length=NAME_MAX_LENGTH)
    namespace = models.TextField()
    kind = models.TextField(
        help_text="The kind of the workload, such as Deployment or Job; Pod for a Pod without an owner."
    )
    name = models.TextField()
    priority = models.IntegerField(
        help_text="The priority that the Pods got when they were created; it doesn't change."
    )
    pods = models.PositiveIntegerField()
    examples = models.TextField(blank=True, default="", help_text="Names of some of the Pods.")

    class Meta:
        ordering = ["priority_class", "namespace", "kind", "name", "priority"]
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                fields=["priority_class", "namespace", "kind", "name", "priority"], name="one_count_of_a_workload"
            )
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} of {self.priority_class}"


class PriorityClassReplacement(models.Model):
    """A class of the cluster that is deleted and recreated, since its value is immutable in Kubernetes. Written before the deletion.

    A process that finds an unfinished row finishes it. `former` is restored if the API server refuses the new class.
    """

    class State(models.TextChoices):
        """Its progress, or its outcome."""

        UNDER_WAY = "under way", "under way"
        DONE = "done", "done"
        PUT_BACK = "put back", "put back"
        GIVEN_UP = "given up", "given up"

    name = models.CharField(max_length=NAME_MAX_LENGTH)
    state = models.CharField(max_length=9, choices=State, default=State.UNDER_WAY)
    version = models.PositiveIntegerField(help_text="The version for which the class is recreated.")
    value_before = models.IntegerField()
    value = models.IntegerField(help_text="The class's new value.")
    uid = models.TextField(help_text="The uid of the class that is deleted.")
    former = models.TextField(help_text="The deleted class as JSON, to restore it.")
    message = models.TextField(blank=True, default="", help_text="Why it failed.")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                fields=["name"], condition=Q(state="under way"), name="one_replacement_of_a_class_at_a_time"
            ),
            models.CheckConstraint(
                condition=Q(state="under way", ended_at__isnull=True)
                | Q(state__in=["done", "put back", "given up"], ended_at__isnull=False),
                name="replacements_end_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} from {self.value_before} to {self.value}"


class PriorityClassLook(models.Model):
    """The single row by which only one process at a time reconciles PriorityClasses, with the time of the next look.

    `holder` names the look that holds it until `held_until`, by the database's clock; empty when none does.
    """

    id = models.IntegerField(primary_key=True, default=1)
    holder = models.TextField(blank=True, default="")
    held_until = models.DateTimeField()
    revision = models.IntegerField(default=-1, help_text="The Revision that was last reconciled.")
    next_at = models.DateTimeField()
    asked = models.BigIntegerField(
        default=0, help_text="How often a reconciliation was requested; requests during one aren't lost."
    )
    looked_at = models.DateTimeField(null=True, blank=True, help_text="When the API server last answered.")
    error = models.TextField(blank=True, default="", help_text="Why the last reconciliation failed.")
    users_asked_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when somebody has been waiting for the count of each class's Pods."
    )
    users_counted_at = models.DateTimeField(null=True, blank=True)
    users_error = models.TextField(blank=True, default="", help_text="Why some or all of them couldn't be counted.")

    class Meta:
        default_permissions = ("view",)
        constraints = [models.CheckConstraint(condition=Q(id=1), name="one_priority_class_look")]

    def __str__(self) -> str:
        return f"PriorityClasses up to Revision {self.revision}"
