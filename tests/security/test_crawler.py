"""Every URL with keys and queries that nobody means, as everybody: no answer is a fault of the server's.

The short form shares keys, queries and pages out among the people, and keys between GET and POST. `SECURITY=whole` asks the
superuser, for whom every page is open, and an Operator, who writes, each of them; the others share them. Equal cases are asked once:

- A key is tried where it leads to a view. What a URL's converter doesn't take (`x` for a number) leads to none, whoever asks, and is
  tried at one place for each key.
- A parameter is tried with each value at the pages that read it by its name, or answer it otherwise than a name that nobody knows. With
  one value every parameter is tried at every page that goes through all that it is sent, those with the key of a row that is there among
  them. A page that doesn't sees only what it reads by name; such names that aren't listed here are tried as well.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from django.core.handlers import wsgi
from django.http import QueryDict
from django.test import Client

from tests import admin_pages
from tests.security.crawl import case_of, places
from tests.security.people import PEOPLE, WHOLE, knocking
from tests.security.rows import make_rows
from tests.security.test_doors import filled

LONG = "9" * 25
KEYS = [
    "0", "1", "-1", "+1", "1.5", "1e5", " 1", "01", LONG, "9" * 5_000, "f" * 5_000, "-" + LONG, "9223372036854775808", "x", "None",
    "True", "NaN", "%00", "1%00", "%00x", "%EF%BC%91", "%D9%A3", "%80", "%F0%9F%98%80", "%E2%80%AE", "_5F", "_", "_2Fx",
    "%0d%0aX:y", "..%2f..%2fetc", "<script>alert(1)</script>", "'%22;--", "{{7*7}}", "%25s", "00000000-0000-0000-0000-000000000000",
    "web", "WEB", "a" * 2_000,
]  # fmt: skip
VALUES = [
    "",
    "1",
    "-1",
    "0",
    LONG,
    "9" * 5_000,
    "x",
    "\0",
    "a\0b",
    "a/b",
    "1.2.-3",
    "\ud7ff\u202e",
    "NaN",
    "99999",
    "[1]",
    "a,b",
    "(a+)+$",
    "a " * 1_500,
]
NAMES = [
    "limit", "offset", "page", "p", "q", "o", "e", "all", "verb", "revision", "rule_set", "rule_set_version", "pod_name",
    "pod_namespace", "pod_uid", "assignment", "best", "refused", "answer", "mode", "rule_set__id__exact", "created_at__year",
    "created_at__month", "created_at__day", "state", "groups__id__exact", "is_active__exact", "_popup", "_to_field", "_facets",
    "_changelist_filters", "next", "s", "format", "app_label", "model_name", "field_name", "term", "process", "namespace",
    "pod_name__regex", "pod_name__iregex", "pod_name__contains", "user__password__startswith", "id__in", "at__date",
]  # fmt: skip


@pytest.fixture
def rows(db: None) -> None:
    make_rows()


_UNAVAILABLE = ("/readyz", "/api/v1/assignments/which")


def faults(client: Client, paths: list[tuple[str, dict[str, str]]], method: str = "get") -> list[str]:
    """Return what was answered by a fault. A process that isn't ready says 503, and so does who asks a cluster, which isn't there."""
    found = []
    for path, query in paths:
        response = getattr(client, method)(path, query)
        if response.status_code >= 500 and (response.status_code != 503 or path not in _UNAVAILABLE):
            found.append(f"{method} {path[:120]} {query if len(str(query)) < 200 else '…'}: {fault_of(response)}")
    return found


def fault_of(response: Any) -> str:
    kind, error, _trace = getattr(response, "exc_info", None) or ("", "", "")
    return f"{response.status_code} {getattr(kind, '__name__', '')} {str(error)[:120]}"


def share(things: Sequence[str], who: str, turn: int) -> Sequence[str]:
    """Return a person's part of a list at one place: all of it over all people, and over all places."""
    number = len(PEOPLE)
    return things[(PEOPLE.index(who) + turn) % number :: number]


def asks_all(who: str) -> bool:
    return WHOLE and who in {"superuser", "Operator"}


def by_case(paths: Iterator[tuple[str, str]]) -> list[str]:
    """Return the first path of those that come to the same, with each key."""
    first: dict[tuple[str, ...], str] = {}
    for path, key in paths:
        # The test's client makes a path of bytes in UTF-8 just so.
        first.setdefault((*case_of(unquote_to_bytes(path).decode(errors="replace")), key), path)
    return list(first.values())


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.usefixtures("rows")
def test_no_key_in_a_path_is_answered_by_a_fault(who: str, method: str) -> None:
    found = [place for place in places() if place.has_keys]
    keys = [(place, KEYS if asks_all(who) else share(KEYS, who, turn)) for turn, place in enumerate(found)]
    if not WHOLE:
        half = {"get": 0, "post": 1}[method]
        keys = [(place, tried[(turn + half) % 2 :: 2]) for turn, (place, tried) in enumerate(keys)]
    paths = by_case((place.path(key), key) for place, tried in keys for key in tried)
    assert faults(knocking(who), [(path, {}) for path in paths], method) == []


class Noting(QueryDict):
    """A query that notes which names are looked for in vain, and whether somebody goes through all that there are.

    What is sent isn't noted: who goes through all of them reads each by its name in the end.
    """

    read: set[str] = set()
    all_are_read = False

    def appendlist(self, key: str, value: Any) -> None:
        """Add a value that was sent: to make a query reads none of it."""
        dict.setdefault(self, key, []).append(value)

    def _note(self, key: object) -> None:
        if not super().__contains__(key):
            self.read.add(str(key))

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)

    def getlist(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().getlist(key, default)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    def __iter__(self) -> Iterator[Any]:
        Noting.all_are_read = True
        return super().__iter__()

    def __len__(self) -> int:
        Noting.all_are_read = True
        return super().__len__()

    def keys(self) -> Any:
        Noting.all_are_read = True
        return super().keys()

    def values(self) -> Any:
        Noting.all_are_read = True
        return super().values()

    def lists(self) -> Any:
        Noting.all_are_read = True
        return super().lists()

    def items(self) -> Any:
        return ((key, values[-1] if values else []) for key, values in self.lists())


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.usefixtures("rows")
def test_no_query_is_answered_by_a_fault(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wsgi, "QueryDict", Noting)
    client, found = knocking(who), []
    for turn, path in enumerate(pages()):
        if not WHOLE and (PEOPLE.index(who) + turn) % len(PEOPLE):
            continue
        names, tried = names_of(client, path, who, turn)
        found += faults(client, [(path, {name: value}) for name in names for value in tried])
    assert found == []


def pages() -> list[str]:
    """Return every path, with the key of a row that is there."""
    found = [next(filled(place)) if place.has_keys else place.path("") for place in places()]
    return sorted({*found, *admin_pages.paths().values()})


def names_of(client: Client, path: str, who: str, turn: int) -> tuple[list[str], Sequence[str]]:
    """Return the parameters that a page takes notice of, and the values that this person tries of each."""
    Noting.read.clear()
    Noting.all_are_read = False
    unknown = client.get(path, {"nobody_knows": "x"}).status_code
    asked = NAMES if asks_all(who) else share(NAMES, who, turn)
    # What is read because of another name is noted when all are sent at once.
    client.get(path, dict.fromkeys({*asked, *Noting.read}, "x"))
    tried = [name for name in asked if name not in Noting.read] if Noting.all_are_read else []
    # Where an unknown name is let pass, all at once show whether there is one that isn't.
    if unknown < 400 and client.get(path, dict.fromkeys(tried, "x")).status_code == unknown:
        tried = []
    # What is no value of a known name may be answered as an unknown one is: hence a number as well.
    known = [
        name for name in tried if any(client.get(path, {name: value}).status_code != unknown for value in ("x", "1"))
    ]
    names = sorted(Noting.read | set(known))
    values = VALUES if asks_all(who) else share(VALUES, who, turn)
    # NUL is refused before a page is looked at.
    return names, [value for value in values if "\0" not in value or turn < len(PEOPLE)]
