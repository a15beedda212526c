"""What a refused change of state says."""

import re
from collections.abc import Sequence

from policies.engine.errors import Fault
from policies.engine.reading import reordering

# Halves of characters, as bytes of a command line that are no UTF-8: no database stores them.
_HALVES = re.compile("[\ud800-\udfff]")
# Controls but those of lines, which terminals obey; what has no width, and separates lines; tags.
_UNSEEN = re.compile(
    "[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u200b\u2028\u2029\u2060-\u2064\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


class PublishingError(Exception):
    """A change of state was refused. `messages` are for people; `faults` say where in a document, if in one."""

    def __init__(self, faults: Sequence[Fault | str]) -> None:
        self.faults = [fault if isinstance(fault, Fault) else Fault("", fault) for fault in faults]
        super().__init__("; ".join(self.messages))

    @property
    def messages(self) -> list[str]:
        """What is wrong, a sentence each."""
        return [str(fault) for fault in self.faults]


class ForbiddenError(PublishingError):
    """Whoever asks may not do it, in whatever state things are."""


class OvertakenError(PublishingError):
    """What was looked at is another by now: somebody was faster."""


def fault_of_words(*texts: str) -> str:
    """Return what is wrong with words that others will read: no text at all, in another order than it was written, or not all of it."""
    if found := "".join(map(reordering, texts)):
        return f"The text holds U+{ord(found[0]):04X}, which shows it in another order than it has: take it out."
    if _HALVES.search("".join(texts)):
        return "The text has bytes that are no UTF-8: write it anew."
    unseen = _UNSEEN.search("".join(texts))
    return (
        f"The text holds U+{ord(unseen[0]):04X}, which nobody sees and terminals may obey: take it out."
        if unseen
        else ""
    )


def check_words(*texts: str) -> None:
    """Check what somebody says of an act.

    Raises:
        PublishingError: it deceives whoever reads it.
    """
    if said := fault_of_words(*texts):
        raise PublishingError([said])
