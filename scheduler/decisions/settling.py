"""Settles how shadows diverged that depends on the node that the Pod got, once that is known."""

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

# Of one Pod: it may have been asked about for hours before it got its node. The newest say the most.
_MOST_OF_ONE = 20


class Settled(Protocol):
    """A Pod, and the node that it got; "" for none."""

    @property
    def pod_uid(self) -> str:
        """Its UID."""
        ...

    @property
    def node_name(self) -> str:
        """Its node."""
        ...


def settle_shadows(outcomes: Iterable[Settled]) -> None:
    """Note of the shadows of Pods that are on a node by now what they would have done, and count them so.

    Raises:
        django.db.DatabaseError: the database is away.
    """
    node_of = {outcome.pod_uid: outcome.node_name for outcome in outcomes if outcome.node_name}
    counts: Counter[tuple[Subject, str]] = Counter()
    for row in Decision.objects.filter(pk__in=list(_waiting(node_of))).iterator(chunk_size=100):
        found = _settled(row, node_of[row.pod_uid])
        # Who comes second counts nothing.
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
    """Return whose shadow a Decision is."""
    return Subject(row.revision, row.assignment, row.rule_set, row.rule_set_version, row.verb)


def is_inside(body: Body) -> bool:
    """Return whether a shadow is of rules in mode shadow inside an enforced rule set."""
    return bool(body.notes.get("inside"))


def _settled(row: Decision, node: str) -> Divergence | None:
    """Return what a shadow would have done; None where that can't be said."""
    try:
        body = read_body(bytes(row.body))
        names = names_asked(row, body)
    except ValueError as error:
        logger.warning("Decision %s can't be compared with what became of the Pod: %s", row.pk, error)
        return None
    if body.answer is None or node not in names:
        return None  # the Pod got a node that this question wasn't about
    # Berth's own scheduler knows the node at once, so what is open is of kube-scheduler's.
    shadow = would_be(answer_of(row, body, names), is_inside=is_inside(body), is_exact=False)
    return settled(shadow, names.index(node))
