"""Namespaces whose labels changed: the watch that stores them as rows, and the queries of the Requeuer.

The watch decides nothing: it doesn't know what is published, nor which Pods wait. A row stays until the Pods in the Namespace were
examined for long enough. Changes while no worker runs are missed: kube-scheduler retries after five minutes.
"""

from collections.abc import Collection
from datetime import UTC, datetime

from django.db import connection

from policies.engine.objects.namespace import Namespace
from scheduler.cluster.client import Client
from scheduler.cluster.kinds import NAMESPACES
from scheduler.cluster.reflection import Change, Changes
from scheduler.cluster.watch import Reflector
from scheduler.models import RelabelledNamespace

# How long the Pods in a Namespace are examined after its labels changed. An earlier refusal arrives through Redis, and an extender
# that saw the labels later may refuse a Pod once more.
SETTLED_SECONDS = 5.0
_CHUNK = 500


def watch_namespaces(client: Client) -> Reflector[Namespace]:
    """Return the watch, which isn't started yet."""
    return Reflector(client=client, kind=NAMESPACES, handler=_Notes().take)


class _Notes:
    """Writes the rows. If the database is unavailable this raises, and the next list writes the missing rows."""

    def __init__(self) -> None:
        self._left: dict[str, datetime] = {}

    def take(self, changes: Changes[Namespace]) -> None:
        now = datetime.now(UTC)
        self._left |= {change.key: now for change in changes.changes if _is_relabelled(change)}
        if not self._left:
            return
        try:
            RelabelledNamespace.objects.bulk_create(
                (RelabelledNamespace(name=name, relabelled_at=at) for name, at in self._left.items()),
                batch_size=_CHUNK,
                update_conflicts=True,
                unique_fields=["name"],
                update_fields=["relabelled_at"],
            )
        finally:
            connection.close()  # changes are few: no connection is kept open for them
        self._left = {}


def _is_relabelled(change: Change[Namespace]) -> bool:
    """Return whether labels changed. In a Namespace that is new, or gone, no Pod was refused by others."""
    before, after = change.before, change.object
    return (
        before is not None
        and change.kind != "deleted"
        and (before.metadata.labels or {}) != (after.metadata.labels or {})
    )


def relabelled_namespaces() -> dict[str, datetime]:
    """Return the Namespaces to look at, each with when its labels changed."""
    return dict(RelabelledNamespace.objects.values_list("name", "relabelled_at"))


def forget(names: Collection[str], until: datetime) -> None:
    """Forget the Namespaces whose labels haven't changed since a time."""
    ordered = sorted(names)
    for start in range(0, len(ordered), _CHUNK):
        rows = RelabelledNamespace.objects.filter(name__in=ordered[start : start + _CHUNK])
        rows.filter(relabelled_at__lte=until).delete()
