"""Limits the nesting of API server answers to a depth that recursive decoders can handle.

The JSON of an object's `metadata.managedFields` can have any depth that its author likes: kube-apiserver v1.36.3 accepts some
thousand levels. So anyone who may create a Pod could break every list and watch of Pods: a recursive decoder fails at Python's
limit, and then no object of the page is decoded. No field that rules or Berth read is nested as deeply; deeper levels are emptied.
"""

import re
from collections.abc import Iterator
from itertools import islice

import msgspec

# Levels that are always left as they are. The schema of Pods and Nodes is far less deep.
MOST_LEVELS = 100
# A text with fewer opening brackets is nested less deeply.
_FEW_BRACKETS = 300
# Levels of recursion to reserve for decoders, which run deeper in Python's call stack than this check.
_LEFT = 600
_BEFORE, _BEHIND = b"[" * _LEFT, b"]" * _LEFT
# Brackets that are looked at for the end of an object, which takes 0.1 s; a Node of 10,000 levels has some 22,000.
_MOST_LOOKED_AT = 200_000

_look_at = msgspec.json.Decoder(msgspec.Raw).decode
# The text up to the next bracket that isn't in a string. A string may end with the answer. Nothing in it can match in two ways: else each
# quote in an unterminated string would be tried as its start.
_TO_BRACKET = re.compile(rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"?+[^"\[\]{}]*+)*+([\[\]{}])', re.DOTALL)


def bounded(text: bytes) -> bytes:
    """Return a JSON text that can be decoded recursively: the same text, or one with its too deeply nested parts emptied."""
    if text.count(b"{") + text.count(b"[") <= _FEW_BRACKETS:
        return text
    try:
        _look_at(b"".join((_BEFORE, text, _BEHIND)))
    except RecursionError:
        return _emptied(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return text  # The error is reported where the text is decoded.
    return text


def end_of(text: bytes) -> int:
    """Return where the list or object ends that a text begins with, at any depth; 0 if its end isn't there, or is too far to look for."""
    for found, level in islice(_brackets(text), _MOST_LOOKED_AT):
        if level == 0:
            return found.end()
    return 0


def _brackets(text: bytes) -> Iterator[tuple[re.Match[bytes], int]]:
    """Yield the brackets of a text's first list or object, each as group 1 of a match, with the level behind it."""
    at = level = 0
    while found := _TO_BRACKET.match(text, at):
        level += 1 if found[1] in (b"{", b"[") else -1
        yield found, level
        if level <= 0:
            return
        at = found.end()


def _emptied(text: bytes) -> bytes:
    """Return a text with empty lists and objects at the deepest level that is kept."""
    pieces: list[bytes] = []
    kept_from = level = 0
    for found, level in _brackets(text):
        is_opening = found[1] in (b"{", b"[")
        if is_opening and level == MOST_LEVELS:
            pieces.append(text[kept_from : found.end()])
        elif not is_opening and level == MOST_LEVELS - 1:
            kept_from = found.start(1)
    # If the text ends before the bracket is closed, the rest is left out: the answer was cut short.
    return b"".join((*pieces, text[kept_from:])) if level < MOST_LEVELS else b"".join(pieces)
