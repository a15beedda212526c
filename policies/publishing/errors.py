"""What a refused change of state says."""

from collections.abc import Sequence

from policies.engine.errors import Fault


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
