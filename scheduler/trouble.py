"""Trouble with an operation that is retried: it is known while it lasts, and logged once, not with each attempt."""

import time

# An ongoing problem is logged again after this time.
REMIND_SECONDS = 300.0


class Trouble:
    """Whether an operation fails, and when to log that: when it begins to, when the error changes, and from time to time."""

    def __init__(self) -> None:
        self._text: str | None = None
        self._said_at = 0.0

    @property
    def is_ongoing(self) -> bool:
        """Whether the last attempt failed."""
        return self._text is not None

    def is_news(self, text: str) -> bool:
        """Note a failed attempt; return whether to log it now."""
        now = time.monotonic()
        if text == self._text and now < self._said_at + REMIND_SECONDS:
            return False
        self._text, self._said_at = text, now
        return True

    def end(self) -> bool:
        """Note a successful attempt; return whether the one before failed."""
        was_ongoing, self._text = self.is_ongoing, None
        return was_ongoing
