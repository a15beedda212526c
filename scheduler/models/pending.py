"""Rows of Pods without a node, of all schedulers."""

from django.db import models


class PendingPod(models.Model):
    """A Pod without a node, of any scheduler, as in the cluster's last list, and what held it when Berth was last asked.

    `since` is when the condition PodScheduled became False, else when the Pod was created; `condition` its reason and `message`
    its message, both empty for a Pod that no scheduler has tried. `decision` is the newest Decision about the Pod, `tried_at` its
    time, `nodes` and `feasible` its counts. `rule` is Berth's rule that refuses most of the nodes, empty if the
    scheduler's own plugins do, and `reason` the text of that refusal.
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
    """The one row with the time of the last list of Pods without a node, and the fault if it failed."""

    id = models.IntegerField(primary_key=True, default=1)
    looked_at = models.DateTimeField(null=True, blank=True)
    fault = models.TextField(blank=True, default="")
    fault_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        default_permissions = ()
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="one_pending_look")]

    def __str__(self) -> str:
        return f"looked at {self.looked_at}"
