"""One part of a checkup's result."""

from typing import Literal

import msgspec

State = Literal["ok", "warning", "error", "unknown"]

# The marks of states and of severities, on the page and in the terminal.
MARKS = {"ok": "✓", "warning": "!", "error": "✗", "unknown": "?", "note": "·"}


class Part(msgspec.Struct, frozen=True):
    """One part: the finding, and the remedy if there is a fault."""

    name: str
    state: State
    says: str
    remedy: str = ""
