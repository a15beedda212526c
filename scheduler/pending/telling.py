"""A Pod for its page: its story and its waiting, also for Pods that share a name, and for a Pod without Decisions."""

import msgspec

from scheduler.decisions.story import Story, story_of, uids_of
from scheduler.models import PendingPod
from scheduler.pending.listing import pending


class Told(msgspec.Struct, frozen=True):
    """What is known about a Pod.

    Attributes:
        story: its Decisions and outcomes; None if there are none.
        waiting: the Pod among those without a node; None if it isn't one.
        others: UIDs of other Pods that had its name, the newest first.
    """

    story: Story | None
    waiting: PendingPod | None
    others: list[str]


def told(namespace: str, name: str, uid: str = "", *, with_causes: bool = False) -> Told:
    """Return what is known about a Pod, by default about the newest one of its name.

    A waiting Pod without a Decision is newer than all Pods with one, because two Pods of a name can't exist at once.

    Args:
        namespace: the Pod's.
        name: the Pod's.
        uid: the Pod's; empty for the newest one.
        with_causes: see `story_of`.
    """
    known = uids_of(namespace, name)
    waiting = pending(namespace=namespace, name=name, **({"uid": uid} if uid else {})).first()
    if not uid and waiting is not None and waiting.uid not in known:
        uid = waiting.uid
    story = story_of(namespace, name, uid, with_causes=with_causes)
    meant = story.uid if story else waiting.uid if waiting else ""
    if waiting is not None and waiting.uid != meant:
        waiting = None
    return Told(story, waiting, [each for each in (story.uids if story else known) if each != meant])


def story_without_decisions(waiting: PendingPod, others: list[str]) -> Story:
    """Return the story of a waiting Pod without a Decision: that Berth wasn't asked about it, and what is known to hold it."""
    scheduler = waiting.scheduler_name or "no scheduler"
    return Story(
        namespace=waiting.namespace,
        name=waiting.name,
        uid=waiting.uid,
        uids=[waiting.uid, *others],
        owner=f"{waiting.owner_kind}/{waiting.owner_name}" if waiting.owner_name else "",
        now=f"It waits for {scheduler}, and no Decision about it is recorded: {waiting.reason}",
        attempts=[],
        ends=[],
        provenance=[],
    )
