"""The exceptions of refused changes of state."""

import re
from collections.abc import Sequence

import msgspec

from policies.engine.errors import Fault
from policies.engine.reading import reordering

# Lone surrogates, such as from bytes of a command line that aren't UTF-8: databases can't store them.
_HALVES = re.compile("[\ud800-\udfff]")
# Control characters except those of lines, which terminals interpret; zero-width characters and line separators; tags.
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
        """The faults, one sentence each."""
        return [str(fault) for fault in self.faults]


class ForbiddenError(PublishingError):
    """This person may not do it, whatever the state is."""


class AbsentError(PublishingError):
    """What was asked for doesn't exist."""


class PastError(PublishingError):
    """A time that somebody sets is past."""


class OvertakenError(PublishingError):
    """The content that the person looked at has changed: somebody was faster.

    Attributes:
        seen: what the messages compare with, for a form that shows them, as the form's own field has it; empty where no form is concerned.
    """

    def __init__(self, messages: Sequence[str], *, seen: str = "") -> None:
        super().__init__(messages)
        self.seen = seen


class UnreadableRevisionError(msgspec.DecodeError):
    """The live Revision can't be read: a newer Berth published it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"Revision {number} was published by a newer version of Berth than this one")


def fault_of_words(*texts: str) -> str:
    """Return the fault of a text that others will read: it isn't valid text, or is displayed reordered or incompletely."""
    if found := "".join(map(reordering, texts)):
        return f"The text holds U+{ord(found[0]):04X}, which displays it in another order: remove it."
    if _HALVES.search("".join(texts)):
        return "The text has bytes that aren't UTF-8: write it again."
    unseen = _UNSEEN.search("".join(texts))
    return (
        f"The text holds U+{ord(unseen[0]):04X}, which is invisible and may control a terminal: remove it."
        if unseen
        else ""
    )


def check_words(*texts: str) -> None:
    """Check the reason or comment that somebody gives.

    Raises:
        PublishingError: it could mislead its readers.
    """
    if said := fault_of_words(*texts):
        raise PublishingError([said])
