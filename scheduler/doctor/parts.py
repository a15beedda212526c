"""What a checkup says of one part."""

from typing import Literal

import msgspec

State = Literal["ok", "warning", "error", "unknown"]


class Part(msgspec.Struct, frozen=True):
    """One part: what was found, and what to do when it isn't well."""

    name: str
    state: State
    says: str
    remedy: str = ""
