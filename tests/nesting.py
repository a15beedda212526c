"""JSON that is nested more deeply than this Python reads: 3.11 ends after a thousand levels, 3.13 after ten thousand, 3.14 where its stack does."""

import msgspec


def _unread() -> int:
    levels = 5_000
    while True:
        try:
            msgspec.json.decode(b"[" * levels + b"]" * levels, type=msgspec.Raw)
        except RecursionError:
            return levels
        levels *= 2


# Levels that are too many, by the cheapest way to read them.
DEEP = _unread()
