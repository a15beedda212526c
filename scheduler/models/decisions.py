"""Rows of Decisions: calls and answers, outcomes of Pods, and the answers of shadows."""

import uuid

from django.db import models

# The verbs that say which nodes a Pod may use: with one of these, an attempt to schedule it begins.
OPENING_VERBS = ("filter", "schedule")


def found_no_node(nodes: int, feasible: int, error: str) -> bool:
    """Return whether an answer left a Pod no node: there were some, and there was no error."""
    return bool(nodes and not feasible and not error)


# `found_no_node`, for queries.
FOUND_NO_NODE = models.Q(feasible=0, nodes__gt=0, error="")


class Decision(models.Model):
    """One answer to one call about one Pod, with everything needed to replay it.

    The columns are for lists; `body` is compressed, and `scheduler.decisions.reading` reads it. `process` is the
    writer, `sequence` the Decision's number there. `names_number`, `chain` and `position` refer to NodeNames and SnapshotPart of that
    writer; 0 is no reference. `placed_*` have the Pod's final node: `placed_best` is whether that node was among the best of
    the last answer about the Pod, None if that isn't known. `placed_at` without `placed_on`: the Pod was found gone at that time,
    and nobody had seen it on a node. Without both, the outcome is open. `divergence` is how a shadow differs from the
    answer, see `scheduler.decisions.divergence`; it is empty for an answer. `owner_*` and `refused_by` are copied from the
    body when it is stored, see `scheduler.decisions.facts`; older rows have none. `ledger_index` is the row's leaf
    in the ledger; a row from before the ledger has none.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    at = models.DateTimeField()
    process = models.TextField()
    sequence = models.BigIntegerField()
    verb = models.TextField()
    pod_namespace = models.TextField()
    pod_name = models.TextField()
    pod_uid = models.TextField()
    revision = models.IntegerField()
    rule_set = models.TextField(blank=True, default="")
    rule_set_version = models.IntegerField(default=0)
    assignment = models.TextField(blank=True, default="")
    nodes = models.IntegerField(default=0)
    feasible = models.IntegerField(default=0)
    best = models.TextField(blank=True, default="")
    top_reason = models.TextField(blank=True, default="")
    duration_microseconds = models.IntegerField(default=0)
    mode = models.TextField(default="enforce")
    error = models.TextField(blank=True, default="")
    body = models.BinaryField(default=bytes)
    names_number = models.IntegerField(default=0)
    chain = models.IntegerField(default=0)
    position = models.IntegerField(default=0)
    placed_on = models.TextField(blank=True, default="")
    placed_at = models.DateTimeField(null=True, blank=True)
    placed_best = models.BooleanField(null=True, blank=True)
    divergence = models.TextField(blank=True, default="", db_default="")
    owner_kind = models.TextField(blank=True, default="", db_default="")
    owner_name = models.TextField(blank=True, default="", db_default="")
    refused_by = models.TextField(
        blank=True, default="", db_default="", help_text="The rules that refused nodes, one per line."
    )
    ledger_index = models.BigIntegerField(null=True, blank=True, help_text="Its leaf in the ledger's log of Decisions.")

    class Meta:
        ordering = ["-at", "-sequence"]
        constraints = [models.UniqueConstraint(fields=["process", "sequence"], name="one_decision_per_sequence")]
        indexes = [
            models.Index(fields=["-at", "-sequence"], name="decision_newest"),
            models.Index(fields=["pod_name", "pod_namespace", "-at"], name="decision_pod_name"),
            models.Index(fields=["pod_namespace", "-at"], name="decision_namespace"),
            models.Index(fields=["pod_uid", "-at"], name="decision_uid"),
            models.Index(fields=["rule_set", "-at"], name="decision_rule_set"),
            models.Index(fields=["revision", "-at"], name="decision_revision"),
            models.Index(fields=["verb", "-at"], name="decision_verb"),
            # For `scheduler.decisions.outcomes`: few rows of a million.
            models.Index(
                fields=["at", "pod_uid", "pod_namespace", "pod_name"],
                condition=models.Q(placed_at=None),
                name="decision_open",
            ),
            # Shadows alone: examples of a divergence, and those that wait for their Pod's node.
            models.Index(
                fields=["assignment", "divergence", "-at"],
                condition=models.Q(mode="shadow"),
                name="decision_divergence",
            ),
            models.Index(fields=["pod_uid"], condition=models.Q(divergence="open"), name="decision_awaits_node"),
            # Filters of auditors with values in few rows.
            models.Index(fields=["owner_name", "-at"], condition=~models.Q(owner_name=""), name="decision_owner"),
            models.Index(fields=["placed_on", "-at"], condition=~models.Q(placed_on=""), name="decision_placed"),
            models.Index(fields=["-at"], condition=models.Q(feasible=0), name="decision_refused"),
            models.Index(fields=["-at"], condition=models.Q(placed_best=False), name="decision_best_missed"),
            models.Index(fields=["-at"], condition=~models.Q(error=""), name="decision_error"),
            models.Index(fields=["ledger_index"], name="decision_ledger"),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.pod_namespace}/{self.pod_name}"

    @property
    def found_no_node(self) -> bool:
        """Whether this answer left the Pod no node."""
        return found_no_node(self.nodes, self.feasible, self.error)


class Outcome(models.Model):
    """An outcome of a Pod, as its first observer recorded it; never changed. A Pod that was bound gets another one at its end.

    `process` is the writer, `sequence` the number of the record in that writer's spool; 0 if it was found by asking the
    API server, see `scheduler.decisions.outcomes`. `by` is the scheduler that the Pod names, or who removed it. `decision` is
    the Decision that led to the binding, or the removal, if it is known. `reason` is the reason of an eviction, as
    Kubernetes names it. `preemptor_*` is the Pod for which it was preempted. `body` is the record as it was written, byte for byte.
    """

    class Kind(models.TextChoices):
        """The kind of outcome.

        DELETED: somebody requested its deletion, and it is gone. ENDED: it ran to its end, or was deleted without a request to end
        first, or ended while nobody watched. UNBOUND: it was deleted without a node. GONE: nobody saw whether it had a node.
        """

        BOUND = "bound"
        PREEMPTED = "preempted"
        EVICTED = "evicted"
        DELETED = "deleted"
        ENDED = "ended"
        UNBOUND = "unbound"
        GONE = "gone"

    kind = models.TextField(choices=Kind.choices)
    at = models.DateTimeField()
    process = models.TextField()
    sequence = models.BigIntegerField(default=0)
    pod_namespace = models.TextField()
    pod_name = models.TextField()
    pod_uid = models.TextField()
    node_name = models.TextField(blank=True, default="")
    by = models.TextField(blank=True, default="")
    decision = models.UUIDField(null=True, blank=True)
    reason = models.TextField(blank=True, default="")
    preemptor_uid = models.TextField(blank=True, default="")
    preemptor_namespace = models.TextField(blank=True, default="")
    preemptor_name = models.TextField(blank=True, default="")
    body = models.BinaryField(default=bytes)
    ledger_index = models.BigIntegerField(null=True, blank=True, help_text="Its leaf in the ledger's log of outcomes.")

    class Meta:
        ordering = ["-at", "-pk"]
        default_permissions = ("view",)
        # Only one observer of a preemption may know the preemptor, and the others' records may be stored before its own.
        constraints = [
            models.UniqueConstraint(fields=["pod_uid", "kind", "preemptor_uid"], name="one_outcome_per_pod_and_kind")
        ]
        indexes = [
            models.Index(fields=["-at"], name="outcome_newest"),
            models.Index(fields=["pod_namespace", "pod_name", "-at"], name="outcome_pod"),
            models.Index(fields=["node_name", "-at"], name="outcome_node"),
            models.Index(fields=["ledger_index"], name="outcome_ledger"),
        ]

    def __str__(self) -> str:
        return f"{self.pod_namespace}/{self.pod_name} {self.kind}"


class PlacedPod(models.Model):
    """A Pod that was bound and isn't known to have ended: its end is looked for if no watch saw it."""

    uid = models.TextField(primary_key=True)
    namespace = models.TextField()
    name = models.TextField()
    node_name = models.TextField()
    bound_at = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ShadowCount(models.Model):
    """The number of a shadow's Decisions with one divergence; counted when they are stored.

    Dropped and failed ones have no Decision: the deciding processes count them with their heartbeat.
    """

    revision = models.IntegerField()
    assignment = models.TextField()
    rule_set = models.TextField()
    rule_set_version = models.IntegerField()
    verb = models.TextField()
    divergence = models.TextField(help_text="as of a Decision; or dropped, failed")
    number = models.BigIntegerField(default=0)

    class Meta:
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                fields=["assignment", "revision", "rule_set", "rule_set_version", "verb", "divergence"],
                name="one_count_per_divergence",
            )
        ]

    def __str__(self) -> str:
        return f"{self.number} × {self.divergence}: {self.assignment}, {self.verb}, Revision {self.revision}"


class AssignmentUse(models.Model):
    """The time at which an Assignment last took a Pod. The row without a name has the time from which these are recorded."""

    KEPT_SINCE = ""

    name = models.TextField(primary_key=True)
    last_at = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.name or 'kept'} {self.last_at}"


class NodeNames(models.Model):
    """The names of nodes to which Decisions of a writer refer by position. `data` is a JSON list, compressed."""

    writer = models.TextField()
    number = models.IntegerField()
    data = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["writer", "number"], name="one_list_of_names_per_number")]
        verbose_name_plural = "node names"

    def __str__(self) -> str:
        return f"names {self.number} of {self.writer}"


class SnapshotPart(models.Model):
    """A part of the journal of Snapshots: of a chain's base (position 0), or the change that leads to a position.

    `parts` is the number of parts in the last part of a base, and 0 in all others. `data` is JSON, compressed.
    """

    writer = models.TextField()
    chain = models.IntegerField()
    position = models.IntegerField()
    part = models.IntegerField(default=0)
    parts = models.IntegerField(default=0)
    data = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["writer", "chain", "position", "part"], name="one_snapshot_part_per_place")
        ]

    def __str__(self) -> str:
        return f"{self.writer} {self.chain}.{self.position}"
