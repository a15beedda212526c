"""Limits the nesting of API server answers to a depth that recursive decoders can handle.

The JSON of an object's `metadata.managedFields` can have any depth that its author likes: kube-apiserver v1.36.3 accepts some
thousand levels. So anyone who may create a Pod could break every list and watch of Pods: a recursive decoder fails at Python's
limit, and then no object of the page is decoded. No field that rules or Berth read is nested as deeply; deeper levels are emptied.
"""

import re
from itertools import islice

import msgspec

# Levels that are always left as they are. The schema of Pods and Nodes is far less deep.
MOST_LEVELS = 100
# A text with fewer opening brackets is nested less deeply.
_FEW_BRACKETS = 300
# Levels of recursion to reserve for decoders, which run deeper in Python's call stack than this check.
_LEFT = 600
_BEFORE, _BEHIND = b"[" * _LEFT, b"]" * _LEFT
# Strings and brackets that are looked at for the end of an object, which takes 0.1 s; a Node of 10,000 levels has some 50,000.
_MOST_LOOKED_AT = 200_000

_look_at = msgspec.json.Decoder(msgspec.Raw).decode
# A string may end with the answer, and is never scanned twice: else each quote in an unterminated string would be tried as its start.
_TEXT_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


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
    level = 0
    for found in islice(_TEXT_OR_BRACKET.finditer(text), _MOST_LOOKED_AT):
        if found[0] in (b"{", b"["):
            level += 1
        elif found[0] in (b"}", b"]"):
            level -= 1
        if level == 0:
            return found.end()
    return 0


def _emptied(text: bytes) -> bytes:
    """Return a text with empty lists and objects at the deepest level that is kept."""
    pieces: list[bytes] = []
    level = kept_from = 0
    for found in _TEXT_OR_BRACKET.finditer(text):
        if found[0] in (b"{", b"["):
            level += 1
            if level == MOST_LEVELS:
                pieces.append(text[kept_from : found.end()])
        elif found[0] in (b"}", b"]"):
            if level == MOST_LEVELS:
                kept_from = found.start()
            level -= 1
    # If the text ends before the bracket is closed, the rest is left out: the answer was cut short.
    return b"".join((*pieces, text[kept_from:])) if level < MOST_LEVELS else b"".join(pieces)
