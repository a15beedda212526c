"""Reading untrusted documents: every fault is collected with its path, and reading goes on."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Any, TypeVar, cast

from policies.engine.errors import Fault

T = TypeVar("T")
V = TypeVar("V")

# The depth of nested lists and objects. A document that (by reference) contains itself is deeper than any limit.
MAX_DEPTH = 64

_LARGEST = 2**63
# How many characters of a wrong text a message repeats.
_SHOWN = 80
_SURROGATES = re.compile("[\ud800-\udfff]")
HALF_CHARACTER = "holds half of a character (a lone surrogate)"
# Unicode's bidirectional controls (UAX 9): text after one is displayed in another order than it is stored.
_REORDERING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_REORDERED = (
    "holds U+{:04X}, which makes readers see the text in another order than Berth reads it: take it out, or write it as "
    "\\u{:04x} in a text of an expression"
)


class Reader:
    """Reads the members of one object of a document, collecting faults.

    `faults` is shared by all readers of a document.
    """

    def __init__(self, value: object, path: str, faults: list[Fault], known: Collection[str]) -> None:
        self.path = path
        self.faults = faults
        self._members: Mapping[str, Any] = {}
        if isinstance(value, dict):
            self._members = value
            self._refuse_unknown(known)
        elif value is not None:
            self.fault("", f"must be an object, not {type_name(value)}")

    def __contains__(self, name: str) -> bool:
        return self._members.get(name) is not None

    def where(self, name: str) -> str:
        """Return the path of a member; of the object itself for an empty name."""
        return f"{self.path}.{name}".strip(".") if name else self.path

    def fault(self, name: str, message: str) -> None:
        """Note a fault of a member, or of the object itself when the name is empty."""
        self.faults.append(Fault(self.where(name), message))

    def _refuse_unknown(self, known: Collection[str]) -> None:
        for name in self._members:
            if name not in known:
                near = get_close_matches(str(name), known, n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(known))}"
                self.fault(str(name), f"unknown member{hint}")

    def raw(self, name: str) -> Any:
        """Return a member as it is, None when it is missing or null."""
        return self._members.get(name)

    def text(self, name: str, default: str = "", *, required: bool = False) -> str:
        """Read a text; one that is required isn't empty."""
        text = self._typed(name, str, "a text", default, required=required)
        if required and self._members.get(name) == "":
            self.fault(name, "is needed")
        return text

    def integer(self, name: str, default: int, *, low: int, high: int) -> int:
        """Read a whole number within limits. One that equals the default is the default itself, see `choice`."""
        number = self._typed(name, int, "a whole number", default)
        if not low <= number <= high:
            self.fault(name, f"must be {low} to {high}, not {number}")
            return default
        return default if number == default else number

    def boolean(self, name: str) -> bool:
        """Read true or false; false when missing."""
        return self._typed(name, bool, "true or false", default=False)

    def choice(self, name: str, options: Collection[str], default: str) -> Any:
        """Read one of a few words.

        A word that equals the default is returned as the default object itself: msgspec leaves a member out by identity, and
        a document that spells a default out must have the digest of one that doesn't.
        """
        word = self.text(name, default)
        if word == default:
            return default
        if word in options:
            return word
        self.fault(name, f"must be one of {', '.join(options)}, not {word!r}")
        return default

    def mapping(self, name: str) -> dict[str, Any]:
        """Read an object with members of any kind."""
        nothing: dict[str, Any] = {}
        return self._typed(name, dict, "an object", nothing)

    def texts(self, name: str) -> list[str]:
        """Read a list of texts."""
        return [text for text in self.items(name, self._text_item) if text is not None]

    def labels(self, name: str) -> dict[str, str]:
        """Read an object whose members are all texts."""
        members = self.mapping(name)
        for key, value in members.items():
            if not isinstance(value, str):
                self.fault(f"{name}.{key}", f"must be a text, not {type_name(value)}; put it in quotes")
        return {key: value for key, value in members.items() if isinstance(value, str)}

    def items(self, name: str, read: Callable[[object, str], T]) -> list[T]:
        """Read a list, each element by `read(value, path)`."""
        nothing: list[object] = []
        values = self._typed(name, list, "a list", nothing)
        return [read(value, f"{self.where(name)}[{index}]") for index, value in enumerate(values)]

    def _text_item(self, value: object, path: str) -> str | None:
        if isinstance(value, str):
            return value
        self.faults.append(Fault(path, f"must be a text, not {type_name(value)}"))
        return None

    def _typed(self, name: str, kind: type, wanted: str, default: V, *, required: bool = False) -> V:
        value = self._members.get(name)
        if value is None:
            if required:
                self.fault(name, "is needed")
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            # "Not a number" would say nothing of 100.5 or 1e6.
            found = str(value) if kind is int and isinstance(value, float) else type_name(value)
            self.fault(name, f"must be {wanted}, not {found}")
            return default
        return cast("V", value)


def not_json(value: object, path: str = "", depth: int = 0) -> Iterator[Fault]:
    """Yield a fault for each part of a value that can't be stored as JSON and passed to an expression unchanged."""
    if isinstance(value, str):
        if fault := _text_fault(value):
            yield Fault(path, fault)
    elif isinstance(value, int):  # true and false are 1 and 0
        if not -_LARGEST <= value < _LARGEST:
            yield Fault(path, "is too large a number: 64 bits are what Kubernetes and expressions count with")
    elif isinstance(value, float):
        if not isfinite(value):
            yield Fault(path, f"must be a number that JSON can write, not {value}: put it in quotes if it is a text")
    elif isinstance(value, dict | list):
        if depth == MAX_DEPTH:
            yield Fault("", f"lists and objects stand more than {MAX_DEPTH} deep inside each other")
            return
        for where, member in _parts(value, path):
            if where is None:
                remedy = (
                    "must be a text without control characters"
                    if isinstance(member, str)
                    else "must be a text: put it in quotes"
                )
                yield Fault(path, f"the member name {member!a} {remedy}")
            else:
                yield from not_json(member, where, depth + 1)
    elif value is not None:
        yield Fault(path, f"must be a value that JSON has, not {type(value).__name__}")


def _text_fault(text: str) -> str:
    if "\0" in text:
        return "holds NUL (U+0000), which databases don't store"
    if text.isascii():
        return ""
    if _SURROGATES.search(text):
        return HALF_CHARACTER
    found = reordering(text)
    return _REORDERED.format(ord(found), ord(found)) if found else ""


def reordering(text: str) -> str:
    """Return the first bidirectional control in a text; "" where there is none."""
    found = None if text.isascii() else _REORDERING.search(text)
    return found[0] if found else ""


def _parts(value: dict[Any, Any] | list[Any], path: str) -> Iterator[tuple[str | None, object]]:
    """Iterate over (path, value) of each part; (None, name) for a member whose name isn't a text."""
    if isinstance(value, list):
        for index, part in enumerate(value):
            yield f"{path}[{index}]", part
        return
    for name, part in value.items():
        if isinstance(name, str) and not _text_fault(name):
            yield f"{path}.{name}".strip("."), part
        else:
            yield None, name


def shown(text: str) -> str:
    """Return a text for a message, in quotes, with characters outside ASCII escaped, so that look-alikes can be told apart."""
    return ascii(text[:_SHOWN]) + ("…" if len(text) > _SHOWN else "")


def type_name(value: object) -> str:
    """Name a JSON type as people do."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
