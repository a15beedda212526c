"""Rows of Pods that are retried because a Revision, time or labels of their Namespace let them pass."""

from django.db import models


class Requeue(models.Model):
    """A requeueing of waiting Pods: because of a Revision (one row), of time or of a Namespace (a row each time).

    `looked_at` counts the waiting Pods whose refusal was evaluated again, `pods` those that were requeued.
    """

    cause = models.TextField(default="revision", help_text="revision, time or namespace")
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


class RelabelledNamespace(models.Model):
    """A Namespace whose labels changed; the row stays until the Pods that wait in it were evaluated with the new labels."""

    name = models.TextField(primary_key=True)
    relabelled_at = models.DateTimeField()

    class Meta:
        ordering = ["name"]
        default_permissions = ()

    def __str__(self) -> str:
        return self.name


class WaitingPod(models.Model):
    """A waiting Pod, and the evaluation of its newest refusal; the row stays as long as the Pod waits.

    `decision` is the newest evaluated Decision of /filter (null: none was recorded), `revision` the Revision by which it was
    evaluated (0: not yet). `next_at` is when time can change it. `cause` is why the Pod is to be requeued; it is cleared
    once that is done. `requeued_decision` and `requeued_revision` keep it from being requeued for the same reason again.
    """

    uid = models.TextField(primary_key=True)
    namespace = models.TextField()
    name = models.TextField()
    created_at = models.DateTimeField(help_text="When the Pod was created.")
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


class Wake(models.Model):
    """A Pod of Berth's own scheduler that a user wants tried at once; the row stays until the process that leads has handled it."""

    uid = models.TextField(primary_key=True)
    asked_at = models.DateTimeField()

    class Meta:
        ordering = ["asked_at", "uid"]
        default_permissions = ()
        permissions = [("wake_pod", "Can have waiting Pods tried at once")]

    def __str__(self) -> str:
        return self.uid


class RequeueState(models.Model):
    """The one row that lets one process at a time requeue Pods, and has the state that the last one saw.

    `holder` names a tick that holds it until `held_until`, by the database's clock; empty if none does.
    """

    id = models.IntegerField(primary_key=True, default=1)
    holder = models.TextField(blank=True, default="")
    held_until = models.DateTimeField()
    revision = models.IntegerField(default=0, help_text="The Revision for which waiting Pods were last checked.")
    newest_decision = models.UUIDField(null=True, blank=True)
    looked_at = models.DateTimeField(null=True, blank=True)
    requeued_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="one_requeue_state")]

    def __str__(self) -> str:
        return f"requeueing up to Revision {self.revision}"
