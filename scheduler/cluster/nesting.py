"""Answers of the API server, nested no deeper than readers bear.

An object's `metadata.managedFields` is JSON of whatever depth its author likes: kube-apiserver v1.36.3 takes some thousand levels. Who
may create a Pod could so end each list and watch of Pods, for reading by recursion ends at Python's limit, and no object of the page
would be read. Nothing that rules or Berth read of an object is nested as deeply; what is deeper is emptied.
"""

import re

import msgspec

# Levels that are always left as they are. The schema of Pods and Nodes ends far above.
MOST_LEVELS = 100
# A text with fewer opening brackets is nested less deeply.
_FEW_BRACKETS = 300
# So many levels have to be left for readers, which are called from deeper within Python than the look at a text is.
_LEFT = 600
_BEFORE, _BEHIND = b"[" * _LEFT, b"]" * _LEFT

_look_at = msgspec.json.Decoder(msgspec.Raw).decode
# A text may end with the answer, and is never read twice: of one that isn't closed, each quote in it would be tried as the first.
_TEXT_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def bounded(text: bytes) -> bytes:
    """Return a JSON text that can be read by recursion: itself, or with what is nested too deeply emptied."""
    if text.count(b"{") + text.count(b"[") <= _FEW_BRACKETS:
        return text
    try:
        _look_at(b"".join((_BEFORE, text, _BEHIND)))
    except RecursionError:
        return _emptied(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return text  # What is wrong with it is said where it is read.
    return text


def _emptied(text: bytes) -> bytes:
    """Return a text with nothing in the lists and objects of the deepest level that is left."""
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
    # Where it ends before the bracket is closed, the rest is left out: it was cut short.
    return b"".join((*pieces, text[kept_from:])) if level < MOST_LEVELS else b"".join(pieces)
