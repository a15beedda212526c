"""Rows of what happened to Pods: Decisions, the processes that made them, and requeues."""

import uuid
from datetime import timedelta

from django.conf import settings
from django.db import models


class Decision(models.Model):
    """One answer to one question about one Pod, with all that is needed to replay it.

    The columns are for lists; `body` is compressed, and `scheduler.decisions.reading` reads it. `process` is who wrote
    it, `sequence` its number there. `names_number`, `chain` and `position` refer to NodeNames and SnapshotPart of that
    writer; 0 to nothing. `placed_*` say where the Pod ended up: `placed_best` whether that node was among the best of
    the last answer about the Pod, None where that isn't known. `placed_at` without `placed_on`: the Pod was found gone then,
    and nobody had seen it on a node. Without both the outcome is open. `divergence` says of a shadow how it differs from what was
    answered, see `scheduler.decisions.divergence`; it is empty for an answer. `owner_*` and `refused_by` are taken from the
    body when it is stored, see `scheduler.decisions.facts`; rows of before that have none. `ledger_index` is the row's leaf
    in the ledger; a row of before the ledger has none.
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
        blank=True, default="", db_default="", help_text="The rules that refused nodes, a line each."
    )
    ledger_index = models.BigIntegerField(null=True, blank=True, help_text="Its leaf in the ledger's log of Decisions.")

    class Meta:
        ordering = ["-at", "-sequence"]
        constraints = [models.UniqueConstraint(fields=["process", "sequence"], name="one_decision_per_sequence")]
        indexes = [
            models.Index(fields=["-at", "-sequence"], name="decision_newest"),
            models.Index(fields=["pod_namespace", "pod_name", "-at"], name="decision_pod"),
            models.Index(fields=["pod_uid", "-at"], name="decision_uid"),
            models.Index(fields=["rule_set", "-at"], name="decision_rule_set"),
            models.Index(fields=["revision", "-at"], name="decision_revision"),
            models.Index(fields=["verb", "-at"], name="decision_verb"),
            # What `scheduler.decisions.outcomes` goes by: few of a million.
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
            # What auditors narrow by, and few rows have.
            models.Index(fields=["owner_name", "-at"], condition=~models.Q(owner_name=""), name="decision_owner"),
            models.Index(fields=["placed_on", "-at"], condition=~models.Q(placed_on=""), name="decision_placed"),
            models.Index(fields=["-at"], condition=models.Q(feasible=0), name="decision_refused"),
            models.Index(fields=["-at"], condition=models.Q(placed_best=False), name="decision_best_missed"),
            models.Index(fields=["-at"], condition=~models.Q(error=""), name="decision_error"),
            models.Index(fields=["ledger_index"], name="decision_ledger"),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.pod_namespace}/{self.pod_name}"


class Outcome(models.Model):
    """What became of a Pod, as the first who saw it wrote it down; never changed. A Pod that was bound has another one at its end.

    `process` is who wrote it, `sequence` the number of the record in that writer's spool; 0 for what was found by asking the
    API server, see `scheduler.decisions.outcomes`. `by` is the scheduler that the Pod names, or who removed it. `decision` is
    the Decision that the binding, or the removal, followed from, where that is known. `reason` says why it was evicted, as
    Kubernetes names it. `preemptor_*` is the Pod that it had to go for. `body` is the record as it was written, byte for byte.
    """

    class Kind(models.TextChoices):
        """What became of it. UNBOUND: it was deleted without a node. GONE: nobody saw whether it had one."""

        BOUND = "bound"
        PREEMPTED = "preempted"
        EVICTED = "evicted"
        DELETED = "deleted"
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
        # Of several that saw a Pod preempted, one may know for whom, and the others' records may be there before its own.
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
    """A Pod that was bound and isn't known to have ended: whose end is looked for where no watch saw it."""

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
    """How often a shadow diverged so from what was answered; counted when its Decisions are stored.

    What was dropped or failed has no Decision: processes that decide count it with their heartbeat.
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
    """When an Assignment last took a Pod. The row without a name is nobody's: it says from when on that is kept."""

    KEPT_SINCE = ""

    name = models.TextField(primary_key=True)
    last_at = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.name or 'kept'} {self.last_at}"


class NodeNames(models.Model):
    """The names of nodes that Decisions of a writer refer to by position. `data` is a JSON list, compressed."""

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

    `parts` is 0 but in the last part of a base, where it says how many there are. `data` is JSON, compressed.
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


class Checkpoint(models.Model):
    """How far a writer's records are stored: written in the transaction that stores them, so nothing comes twice.

    `numbered` is how many Decisions the writer says that it has answered, `numbered_at` when that was; the others are the
    ingest's. The row without a writer is nobody's: who stores holds a lock on it, so that there is one at a time.
    """

    writer = models.TextField(primary_key=True)
    segment = models.IntegerField(default=1)
    offset = models.BigIntegerField(default=0)
    next_sequence = models.BigIntegerField(default=1)
    next_decision = models.BigIntegerField(default=1)
    has_ended = models.BooleanField(default=False)
    at = models.DateTimeField()
    numbered = models.BigIntegerField(default=0)
    numbered_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.writer


class DecisionGap(models.Model):
    """Decisions that were answered and are not in the history: their numbers, and why.

    `may_return`: their process is gone, and nobody knows whether they are lost; the row goes when they arrive.
    """

    process = models.TextField()
    first = models.BigIntegerField()
    last = models.BigIntegerField()
    reason = models.TextField()
    at = models.DateTimeField()
    may_return = models.BooleanField(default=False)

    class Meta:
        ordering = ["-at"]
        constraints = [models.UniqueConstraint(fields=["process", "first"], name="one_gap_per_number")]

    def __str__(self) -> str:
        return f"{self.process}: {self.first} to {self.last}"

    @property
    def decisions(self) -> int:
        """How many Decisions these are."""
        return self.last - self.first + 1


class DeadLetter(models.Model):
    """A record that could not be read or stored, as it came. Nothing is thrown away."""

    writer = models.TextField(blank=True, default="")
    segment = models.IntegerField(default=0)
    offset = models.BigIntegerField(default=0)
    sequence = models.BigIntegerField(default=0)
    kind = models.IntegerField(default=0)
    reason = models.TextField()
    data = models.BinaryField()
    at = models.DateTimeField()

    class Meta:
        ordering = ["-at"]
        verbose_name_plural = "dead letters"

    def __str__(self) -> str:
        return f"{self.writer} {self.sequence}"


class Process(models.Model):
    """One running process of Berth and what it serves; written by the process itself, about once a second."""

    # Who hasn't written for so long is silent.
    STALE_AFTER = timedelta(seconds=10)

    id = models.TextField(primary_key=True, help_text="role@host:pid:start")
    role = models.TextField()
    host = models.TextField()
    pid = models.IntegerField()
    revision = models.IntegerField(default=0)
    revision_at = models.DateTimeField(null=True, blank=True)
    snapshot_age_seconds = models.FloatField(null=True, blank=True)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()

    class Meta:
        ordering = ["role", "host", "pid"]
        verbose_name_plural = "processes"

    def __str__(self) -> str:
        return self.id


class Requeue(models.Model):
    """Waiting Pods were made to be tried again: because of a Revision (one row), or of time (a row each time).

    `looked_at` counts the waiting Pods whose refusal was judged again, `pods` those that were requeued.
    """

    cause = models.TextField(default="revision", help_text="revision or time")
    revision = models.IntegerField()
    requeued_at = models.DateTimeField()
    looked_at = models.IntegerField(default=0)
    pods = models.IntegerField(default=0)

    class Meta:
        ordering = ["-requeued_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["revision"], condition=models.Q(cause="revision"), name="one_requeue_per_revision"
            )
        ]

    def __str__(self) -> str:
        return f"requeue for Revision {self.revision}" if self.cause == "revision" else f"requeue at {self.requeued_at}"


class WaitingPod(models.Model):
    """A waiting Pod, and what its newest refusal was found to lead to; there as long as the Pod waits.

    `decision` is the newest Decision of /filter looked at (null: none was recorded), `revision` the Revision that it was
    judged by (0: not yet). `next_at` is when time can change it. `cause` says why the Pod is to be requeued; it is empty
    again once that is done. `requeued_decision` and `requeued_revision` keep it from being requeued for the same thing again.
    """

    uid = models.TextField(primary_key=True)
    namespace = models.TextField()
    name = models.TextField()
    created_at = models.DateTimeField(help_text="The Pod's own time of creation.")
    decision = models.UUIDField(null=True, blank=True)
    revision = models.IntegerField(default=0)
    next_at = models.DateTimeField(null=True, blank=True, db_index=True)
    cause = models.TextField(blank=True, default="", db_index=True)
    requeued_at = models.DateTimeField(null=True, blank=True)
    requeued_decision = models.UUIDField(null=True, blank=True)
    requeued_revision = models.IntegerField(default=0)

    class Meta:
        ordering = ["created_at", "uid"]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class RequeueState(models.Model):
    """The one row by which one process at a time requeues Pods, and what the last one had seen.

    `holder` names a tick that holds it until `held_until`, by the database's clock; empty when nobody does.
    """

    id = models.IntegerField(primary_key=True, default=1)
    holder = models.TextField(blank=True, default="")
    held_until = models.DateTimeField()
    revision = models.IntegerField(default=0, help_text="The Revision for which waiting Pods were looked at last.")
    newest_decision = models.UUIDField(null=True, blank=True)
    looked_at = models.DateTimeField(null=True, blank=True)
    requeued_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="one_requeue_state")]

    def __str__(self) -> str:
        return f"requeueing up to Revision {self.revision}"


class PendingPod(models.Model):
    """A Pod without a node, of any scheduler, as the cluster's last list had it, and what held it the last time that Berth was asked.

    `since` is when the condition PodScheduled became False, else when the Pod was created; `condition` its reason and `message`
    its message, both empty for a Pod that no scheduler has tried. `decision` is the newest Decision about the Pod, `tried_at` when
    it was made, `nodes` and `feasible` what it came to. `rule` is Berth's rule that holds most of the nodes, empty where the
    scheduler's own do, and `reason` the text that stands for them.
    """

    uid = models.TextField(primary_key=True)
    namespace = models.TextField()
    name = models.TextField()
    scheduler_name = models.TextField(blank=True, default="")
    owner_kind = models.TextField(blank=True, default="")
    owner_name = models.TextField(blank=True, default="")
    priority = models.IntegerField(default=0)
    created_at = models.DateTimeField()
    since = models.DateTimeField()
    condition = models.TextField(blank=True, default="")
    message = models.TextField(blank=True, default="")
    nominated_node = models.TextField(blank=True, default="")
    decision = models.UUIDField(null=True, blank=True)
    tried_at = models.DateTimeField(null=True, blank=True)
    nodes = models.IntegerField(default=0)
    feasible = models.IntegerField(default=0)
    rule_set = models.TextField(blank=True, default="")
    assignment = models.TextField(blank=True, default="")
    rule = models.TextField(blank=True, default="")
    reason = models.TextField(blank=True, default="")

    class Meta:
        ordering = ["since", "uid"]
        default_permissions = ()
        indexes = [
            models.Index(fields=["rule", "reason", "since"], name="pending_reason"),
            models.Index(fields=["namespace", "owner_kind", "owner_name"], name="pending_owner"),
            models.Index(fields=["since", "uid"], name="pending_since"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PendingLook(models.Model):
    """The one row that says when the cluster was last asked for Pods without a node, and why it couldn't be."""

    id = models.IntegerField(primary_key=True, default=1)
    looked_at = models.DateTimeField(null=True, blank=True)
    fault = models.TextField(blank=True, default="")
    fault_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        default_permissions = ()
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="one_pending_look")]

    def __str__(self) -> str:
        return f"looked at {self.looked_at}"


class Caller(models.Model):
    """The last call of a caller with a verb; written by the extender's heartbeat, not by the call."""

    identity = models.TextField(help_text="name in the client certificate, or what stands for callers without one")
    verb = models.TextField()
    address = models.TextField(blank=True, default="")
    process = models.TextField(help_text="the process that was called last")
    last_at = models.DateTimeField()

    class Meta:
        ordering = ["identity", "verb"]
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["identity", "verb"], name="one_row_per_caller_and_verb")]

    def __str__(self) -> str:
        return f"{self.identity} {self.verb}"


class CanaryRun(models.Model):
    """A canary Pod that somebody asked for in the admin, and what came of it."""

    class State(models.TextChoices):
        """How far it is."""

        ASKED = "asked"
        RUNNING = "running"
        DONE = "done"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    asked_by = models.TextField()
    asked_at = models.DateTimeField()
    namespace = models.TextField()
    scheduler_name = models.TextField()
    state = models.TextField(choices=State.choices, default=State.ASKED)
    step = models.TextField(blank=True, default="", help_text="what is done right now")
    ended_at = models.DateTimeField(null=True, blank=True)
    report = models.JSONField(default=dict, help_text="what `doctor wiring --output json` writes")

    class Meta:
        ordering = ["-asked_at"]
        default_permissions = ("view",)
        permissions = [("run_canary", "Can run a canary Pod")]

    def __str__(self) -> str:
        return f"canary of {self.asked_by} at {self.asked_at:%Y-%m-%d %H:%M:%S}"


class Backtest(models.Model):
    """A Change, or what it makes of one rule set, asked about recorded Decisions.

    What is asked stands here for good: the Revision that it builds on, the edits, and which Decisions. So a worker that goes on
    after another one was killed comes to the same result, to the byte. `digest` is of the edits alone.
    """

    class State(models.TextChoices):
        """How far it is."""

        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        DONE = "done", "done"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    change = models.ForeignKey("policies.Change", on_delete=models.CASCADE, related_name="backtests")
    rule_set = models.TextField(
        blank=True, default="", help_text="The one rule set whose edit is asked; empty for all."
    )
    revision = models.PositiveIntegerField(help_text="The Revision that the edits were put on: what was live.")
    edits = models.JSONField(help_text="The edits: kind, name, and the document's text; empty to remove it.")
    digest = models.CharField(max_length=64, help_text="Of the edits.")
    engine = models.CharField(max_length=40, help_text="The version of the rules' engine.")
    since = models.DateTimeField(null=True, help_text="Decisions from then on; null for the first.")
    until = models.DateTimeField(help_text="Decisions before then.")
    namespaces = models.JSONField(default=list, help_text="Of Pods in these; empty for all.")
    rule_sets = models.JSONField(default=list, help_text="That these answered; empty for all.")
    state = models.CharField(max_length=9, choices=State, default=State.QUEUED)
    asked_by = models.CharField(max_length=150, help_text="Who asked for it, as text that outlives the account.")
    asked_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    ended_by = models.CharField(max_length=150, blank=True, default="", help_text="Who cancelled it.")
    planner = models.UUIDField(null=True, help_text="Who sorts the Decisions into chunks.")
    planned_at = models.DateTimeField(null=True, help_text="When that was last seen to go on.")
    total = models.PositiveIntegerField(default=0, help_text="How many Decisions there are.")
    result = models.BinaryField(default=bytes, help_text="What it found, as JSON.")
    fault = models.TextField(blank=True, default="", help_text="Why it failed, and what to do.")

    class Meta:
        ordering = ["-pk"]
        default_permissions = ("view",)
        permissions = [("run_backtest", "Can run a backtest")]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=["queued", "running", "done", "failed", "cancelled"]),
                name="known_backtest_state",
            )
        ]
        indexes = [
            models.Index(fields=["state"], name="backtests_by_state"),
            models.Index(fields=["digest", "-id"], name="backtests_by_digest"),
        ]

    def __str__(self) -> str:
        return (
            f"backtest {self.pk} of {f'rule set {self.rule_set} in ' if self.rule_set else ''}Change {self.change_id}"
        )

    @property
    def is_under_way(self) -> bool:
        """Whether its result is still to come."""
        return self.state in {self.State.QUEUED, self.State.RUNNING}


class BacktestChunk(models.Model):
    """Decisions of one writer, from a sequence to another, that one process decides on anew.

    `result` is written once, whole; `attempts` fences: who was taken for dead and goes on writes nothing.
    """

    class State(models.TextChoices):
        """How far it is."""

        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        DONE = "done", "done"

    backtest = models.ForeignKey(Backtest, on_delete=models.CASCADE, related_name="chunks")
    number = models.PositiveIntegerField()
    process = models.TextField()
    first = models.BigIntegerField(help_text="The first Decision's sequence.")
    last = models.BigIntegerField()
    decisions = models.PositiveIntegerField()
    state = models.CharField(max_length=7, choices=State, default=State.QUEUED)
    attempts = models.PositiveSmallIntegerField(default=0)
    heartbeat_at = models.DateTimeField(null=True)
    result = models.BinaryField(default=bytes, help_text="What was found, compressed.")

    class Meta:
        ordering = ["backtest", "number"]
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["backtest", "number"], name="one_chunk_per_number"),
            models.CheckConstraint(
                condition=models.Q(state__in=["queued", "running", "done"]), name="known_backtest_chunk_state"
            ),
        ]
        indexes = [models.Index(fields=["backtest", "state", "number"], name="backtest_chunks_by_state")]

    def __str__(self) -> str:
        return f"chunk {self.number} of backtest {self.backtest_id}"


class BinderState(models.Model):
    """What a process that schedules last said of its queue; written with its heartbeat, bounded, one row for each identity.

    `counts` says how many Pods are in which state. `pods` are those that wait the longest, each with namespace, name, uid,
    scheduler, priority, state, attempts, since, until, nominated and message. `overcommitted` names nodes with more Pods than they
    have room for, `overcommits` counts how often one was found since the process started.
    """

    identity = models.TextField(primary_key=True, help_text="in the Lease: host and state folder")
    process = models.TextField()
    heartbeat_at = models.DateTimeField()
    leads = models.BooleanField(default=False)
    holder = models.TextField(blank=True, default="", help_text="who had the Lease when it was looked at last")
    scheduler_names = models.JSONField(default=list)
    node_label = models.TextField(blank=True, default="")
    counts = models.JSONField(default=dict)
    in_flight = models.IntegerField(default=0)
    pods = models.JSONField(default=list)
    overcommitted = models.JSONField(default=list)
    overcommits = models.IntegerField(default=0)

    class Meta:
        ordering = ["-leads", "-heartbeat_at"]
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.identity


class LedgerHead(models.Model):
    """How far a log of the ledger goes. Who appends holds a lock on the row, so that there is one at a time.

    `unlogged` rows were there before the log began: nothing proves them, and there may be no more of them later.
    """

    log = models.TextField(primary_key=True)
    size = models.BigIntegerField(default=0)
    root = models.BinaryField()
    began_at = models.DateTimeField()
    unlogged = models.BigIntegerField(default=0)

    class Meta:
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.log}: {self.size} leaves"


class LedgerTile(models.Model):
    """256 hashes of a log's tree, or as many as there are; see `scheduler.ledger.tree`. Once whole it never changes."""

    log = models.TextField()
    level = models.SmallIntegerField()
    number = models.BigIntegerField()
    hashes = models.BinaryField()

    class Meta:
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["log", "level", "number"], name="one_ledger_tile_per_place")]

    def __str__(self) -> str:
        return f"{self.log} {self.level}/{self.number}"


class LedgerCheckpoint(models.Model):
    """A signed note that says how many leaves a log had, and their root. It stands outside the database too."""

    log = models.TextField()
    size = models.BigIntegerField()
    note = models.TextField()
    at = models.DateTimeField()

    class Meta:
        ordering = ["-at"]
        default_permissions = ("view",)
        indexes = [models.Index(fields=["log", "size"], name="ledger_checkpoint_size")]

    def __str__(self) -> str:
        return f"{self.log}: {self.size} leaves at {self.at:%Y-%m-%d %H:%M:%S}"


class LedgerLeaf(models.Model):
    """Which row a leaf is of, where rows can't say it themselves: they are written before they are appended, and never change."""

    log = models.TextField()
    index = models.BigIntegerField()
    row = models.TextField(help_text="the row's primary key")

    class Meta:
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["log", "index"], name="one_row_per_ledger_leaf"),
            models.UniqueConstraint(fields=["log", "row"], name="one_ledger_leaf_per_row"),
        ]

    def __str__(self) -> str:
        return f"{self.log} {self.index}"


class LedgerPruned(models.Model):
    """Leaves whose rows, or the bodies of these, were deleted by a rule: from `first` to before `until`. Their hashes stay."""

    class What(models.TextChoices):
        """What was deleted."""

        ROWS = "rows"
        DETAILS = "details"

    log = models.TextField()
    first = models.BigIntegerField()
    until = models.BigIntegerField()
    what = models.TextField(choices=What.choices, default=What.ROWS)
    rule = models.TextField(help_text="which rule of retention, in words")
    at = models.DateTimeField()

    class Meta:
        ordering = ["log", "first"]
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(condition=models.Q(until__gt=models.F("first")), name="ledger_pruned_has_leaves")
        ]

    def __str__(self) -> str:
        return f"{self.log}: {self.what} of {self.first} to {self.until - 1}, {self.rule}"


class JournalUse(models.Model):
    """When a chain of Snapshots, or a list of node names, was last needed by a Decision: it is kept as long as that one."""

    class Kind(models.TextChoices):
        """What is used."""

        CHAIN = "chain"
        NAMES = "names"

    writer = models.TextField()
    kind = models.TextField(choices=Kind.choices)
    number = models.IntegerField()
    last_at = models.DateTimeField()
    # Of a chain: the lowest and the highest number of names in it; 0: not known.
    least_names = models.IntegerField(default=0)
    most_names = models.IntegerField(default=0)

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["writer", "kind", "number"], name="one_use_per_part_of_journal")]
        indexes = [models.Index(fields=["last_at"], name="journal_use_oldest")]

    def __str__(self) -> str:
        return f"{self.kind} {self.number} of {self.writer}, {self.last_at}"


class LegalHold(models.Model):
    """What may not be pruned until the hold is lifted: what happened to some Pods, in a time or ever. Empty: any."""

    reason = models.TextField(help_text="why it is held; a case's number helps")
    pod_namespace = models.TextField("namespace", blank=True, default="")
    pod_name = models.TextField("name of the Pod", blank=True, default="")
    pod_uid = models.TextField("UID of the Pod", blank=True, default="")
    from_at = models.DateTimeField("from", null=True, blank=True)
    until_at = models.DateTimeField("until", null=True, blank=True)
    made_by = models.TextField()
    made_at = models.DateTimeField()
    lifted_by = models.TextField(blank=True, default="")
    lifted_at = models.DateTimeField(null=True, blank=True)
    lift_reason = models.TextField(blank=True, default="")
    # When what it had held was pruned as all else was before: what is past isn't looked at again otherwise.
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-made_at", "-pk"]
        default_permissions = ("view",)
        permissions = [
            ("make_legalhold", "Can make a legal hold"),
            ("lift_legalhold", "Can lift a legal hold"),
        ]

    def __str__(self) -> str:
        return f"legal hold {self.pk}: {self.reason}"


class Pruning(models.Model):
    """What was pruned by which rule: one row for a run of a rule that found something.

    `from_at` is the time of the oldest row that is gone; everything before `until_at` is, but for what is held. Where parts of
    the journal of Snapshots went, the times are those of the last Decisions that needed them.
    """

    class Rule(models.TextChoices):
        """Which rule; the first three have a time of their own, the others go with what needed them."""

        DECISIONS = "decisions"
        DETAILS = "details"
        OUTCOMES = "outcomes"
        SNAPSHOTS = "snapshots"
        NAMES = "names"

    at = models.DateTimeField()
    rule = models.TextField(choices=Rule.choices)
    days = models.IntegerField(help_text="what the setting said")
    from_at = models.DateTimeField()
    until_at = models.DateTimeField()
    rows = models.BigIntegerField(default=0)
    bytes = models.BigIntegerField(default=0)
    whole_partitions = models.IntegerField(default=0)

    class Meta:
        ordering = ["-at", "-pk"]
        default_permissions = ("view",)
        indexes = [models.Index(fields=["rule", "-until_at"], name="pruning_furthest")]

    def __str__(self) -> str:
        return f"{self.rule} until {self.until_at:%Y-%m-%d}"


class StorageSample(models.Model):
    """How much the history took up at a time, and how many Decisions and Pods had come by then: what a forecast goes by."""

    at = models.DateTimeField(primary_key=True)
    decisions = models.BigIntegerField(help_text="that were ever stored")
    rows = models.BigIntegerField(help_text="Decisions that are there; on PostgreSQL as its statistics say")
    decision_bytes = models.BigIntegerField(help_text="of Decisions and Outcomes, with indexes")
    detail_bytes = models.BigIntegerField(help_text="of the newest Decisions, what their details take each")
    journal_bytes = models.BigIntegerField(help_text="of Snapshots and names of nodes")

    class Meta:
        ordering = ["-at"]
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.at}: {self.decision_bytes + self.journal_bytes} bytes"


class Notice(models.Model):
    """Something that people, or programs of theirs, want to be told. Numbers are given one by one: they tell the order."""

    number = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField(help_text="When it happened.")
    kind = models.TextField(help_text="As `scheduler.notices.table` names it.")
    sentence = models.TextField(help_text="What happened, in a sentence.")
    text = models.TextField(blank=True, default="", help_text="Why, in the words of whoever did it.")
    thing_kind = models.TextField(blank=True, default="")
    thing_name = models.TextField(blank=True, default="")
    by = models.TextField(blank=True, default="", help_text="Who did it; empty for what came by itself.")
    link = models.TextField(blank=True, default="", help_text="The path of the page where it is looked at.")

    class Meta:
        ordering = ["-number"]
        default_permissions = ()
        indexes = [models.Index(fields=["at"], name="notices_by_age")]

    def __str__(self) -> str:
        return f"Notice {self.number}: {self.sentence}"


class NoticeMark(models.Model):
    """How far Notices are made: one row. Who makes Notices holds it, so that there is one at a time."""

    last_number = models.BigIntegerField(default=0, help_text="Of the newest Notice.")
    next_event = models.BigIntegerField(
        default=0, help_text="The leaf of the log of AuditEvents that is looked at next."
    )

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"Notices until {self.last_number}"


class NoticedCondition(models.Model):
    """Something that holds for a while, and of which there is a Notice already. The row goes when it doesn't hold any more."""

    key = models.TextField(primary_key=True)
    kind = models.TextField()
    since = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.key


class InboxEntry(models.Model):
    """A Notice in somebody's inbox."""

    notice = models.ForeignKey(Notice, on_delete=models.CASCADE, related_name="entries")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    read_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-notice_id"]
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["user", "notice"], name="one_inbox_entry_per_notice")]
        indexes = [models.Index(fields=["user"], condition=models.Q(read_at=None), name="unread_entries")]

    def __str__(self) -> str:
        return f"Notice {self.notice_id} for {self.user_id}"


class Webhook(models.Model):
    """Where Notices are sent. Its URL and its secret are kept encrypted: the URL of a chat's webhook is a secret, too."""

    class Format(models.TextChoices):
        """What is sent."""

        JSON = "json", "JSON"
        SLACK = "slack", "Slack"
        TEAMS = "teams", "Microsoft Teams"

    name = models.TextField(unique=True)
    host = models.TextField(help_text="Of its URL: what is shown of it.")
    sealed_url = models.TextField()
    sealed_secret = models.TextField()
    kinds = models.JSONField(default=list, help_text="The kinds of Notices; none for all of them.")
    format = models.TextField(choices=Format.choices, default=Format.JSON)
    is_active = models.BooleanField(default=True)
    made_by = models.TextField()
    made_at = models.DateTimeField()
    failures = models.IntegerField(default=0, help_text="Attempts that failed since one came through.")
    said = models.TextField(blank=True, default="", help_text="What the last attempt came to.")
    held_until = models.DateTimeField(
        null=True, blank=True, help_text="Until when nobody sends there: somebody does, or it failed and has a rest."
    )

    class Meta:
        ordering = ["name"]
        default_permissions = ()
        permissions = [("manage_webhook", "Can make and change webhooks")]

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """A Notice for a webhook. The rows are the queue: those that wait and whose time has come are sent.

    `body` is what is sent, to the byte, each time. Who sends puts `next_at` off first, so that nobody else sends it at the same
    time, and it is sent again where that process ends before it has said what came of it.
    """

    class State(models.TextChoices):
        """What became of it."""

        WAITING = "waiting", "waits"
        DELIVERED = "delivered", "delivered"
        FAILED = "failed", "given up"

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    notice = models.ForeignKey(Notice, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries")
    kind = models.TextField()
    body = models.TextField()
    state = models.TextField(choices=State.choices, default=State.WAITING)
    made_at = models.DateTimeField()
    next_at = models.DateTimeField(help_text="When it is tried next.")
    attempts = models.IntegerField(default=0)
    tried_at = models.DateTimeField(null=True, blank=True)
    status = models.IntegerField(null=True, blank=True, help_text="The status of the last answer.")
    said = models.TextField(blank=True, default="", help_text="The beginning of the last answer, or why there is none.")
    asked_by = models.TextField(blank=True, default="", help_text="Who asked for it: of a test, or sent again.")

    class Meta:
        ordering = ["-pk"]
        default_permissions = ()
        verbose_name_plural = "deliveries"
        indexes = [
            models.Index(fields=["next_at"], condition=models.Q(state="waiting"), name="deliveries_due"),
            models.Index(fields=["webhook", "-id"], name="deliveries_of_webhook"),
            models.Index(fields=["made_at"], name="deliveries_by_age"),
        ]

    def __str__(self) -> str:
        return f"Delivery {self.pk} to {self.webhook_id}"
