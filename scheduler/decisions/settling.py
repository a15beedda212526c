"""Settles the divergence of shadows that depends on the Pod's node, once the node is known."""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

from scheduler.decisions import shadow_counts
from scheduler.decisions.divergence import Divergence, Subject, settled, would_be
from scheduler.decisions.reading import answer_of, names_asked
from scheduler.decisions.record import Body, NewDecision, read_body
from scheduler.models import Decision

logger = logging.getLogger("berth.decisions")

# The most Decisions of one Pod: kube-scheduler may have asked about it for hours. The newest ones matter most.
_MOST_OF_ONE = 20


class Settled(Protocol):
    """A Pod, and its node; "" for none."""

    @property
    def pod_uid(self) -> str:
        """The Pod's UID."""
        ...

    @property
    def node_name(self) -> str:
        """The Pod's node."""
        ...


def settle_shadows(outcomes: Iterable[Settled]) -> None:
    """Record and count the divergence of the shadows of Pods that now have a node.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    node_of = {outcome.pod_uid: outcome.node_name for outcome in outcomes if outcome.node_name}
    counts: Counter[tuple[Subject, str]] = Counter()
    for row in Decision.objects.filter(pk__in=list(_waiting(node_of))).iterator(chunk_size=100):
        found = _settled(row, node_of[row.pod_uid])
        # If two processes settle the same shadow, only the first one counts it.
        if found and Decision.objects.filter(pk=row.pk, divergence=Divergence.OPEN).update(divergence=found):
            counts.update(shadow_counts.moved(subject_of(row), Divergence.OPEN, found))
    shadow_counts.add(counts)


def _waiting(uids: Iterable[str]) -> Iterable[UUID]:
    """Iterate over the shadows that wait for the nodes of these Pods, the newest of each."""
    rows = Decision.objects.filter(pod_uid__in=uids, divergence=Divergence.OPEN).order_by("-at")
    seen: Counter[str] = Counter()
    for key, uid in rows.values_list("pk", "pod_uid"):
        seen[uid] += 1
        if seen[uid] <= _MOST_OF_ONE:
            yield key


def subject_of(row: Decision | NewDecision) -> Subject:
    """Return the subject of a shadow's Decision."""
    return Subject(row.revision, row.assignment, row.rule_set, row.rule_set_version, row.verb)


def is_inside(body: Body) -> bool:
    """Return whether a shadow is of rules in mode shadow inside an enforced rule set."""
    return bool(body.notes.get("inside"))


def _settled(row: Decision, node: str) -> Divergence | None:
    """Return how a shadow diverged; None if that can't be determined."""
    try:
        body = read_body(bytes(row.body))
        names = names_asked(row, body)
    except ValueError as error:
        logger.warning("Decision %s can't be compared with the Pod's outcome: %s", row.pk, error)
        return None
    if body.answer is None or node not in names:
        return None  # the Pod's node wasn't among the nodes of this call
    # Berth's own scheduler knows the node at once, so open shadows are always kube-scheduler's.
    shadow = would_be(answer_of(row, body, names), is_inside=is_inside(body), is_exact=False)
    return settled(shadow, names.index(node))
