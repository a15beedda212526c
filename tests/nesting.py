"""JSON nested more deeply than this Python reads: the limit is 1,000 levels in 3.11, 10,000 in 3.13, the stack in 3.14."""

import msgspec


def _unread() -> int:
    levels = 5_000
    while True:
        try:
            msgspec.json.decode(b"[" * levels + b"]" * levels, type=msgspec.Raw)
        except RecursionError:
            return levels
        levels *= 2


# Too many levels, in the form that is cheapest to read.
DEEP = _unread()
