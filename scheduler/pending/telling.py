"""A Pod as it is told: its story, and that it waits. Which of those that had its name is meant, and what is known of one without Decisions."""

import msgspec

from scheduler.decisions.story import Story, story_of, uids_of
from scheduler.models import PendingPod
from scheduler.pending.listing import pending


class Told(msgspec.Struct, frozen=True):
    """What is known of a Pod.

    Attributes:
        story: what its Decisions and outcomes say; None where there are none.
        waiting: the Pod among those that have no node; None where it isn't.
        others: UIDs of other Pods that had its name, the newest first.
    """

    story: Story | None
    waiting: PendingPod | None
    others: list[str]


def told(namespace: str, name: str, uid: str = "", *, with_causes: bool = False) -> Told:
    """Return what is known of a Pod; of the newest one of its name where no UID is given.

    One that waits without a Decision is newer than all that have one: two Pods of a name aren't there at once.

    Args:
        namespace: the Pod's.
        name: the Pod's.
        uid: of the one that is meant.
        with_causes: as `story_of` has it.
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
    """Return the story of a Pod that waits and has no Decision: that Berth wasn't asked about it, and what is known to hold it."""
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
