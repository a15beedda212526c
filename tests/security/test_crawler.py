"""Every URL with keys and queries that nobody means, as everybody: no answer is a fault of the server's.

The short form shares keys and queries out among the people. `SECURITY=whole` asks everybody with each key, and the superuser, for whom
every page is open, with each query; the others share the queries of each page.
"""

from typing import Any

import pytest
from django.test import Client

from tests.builders import TEAM_FILTER, make_assignment, make_rule_set
from tests.component.controlplane.test_pages import make_decision, make_process
from tests.component.pages import publish, publish_all
from tests.security.crawl import places
from tests.security.people import PEOPLE, WHOLE, knocking

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
    "1.2.-3",
    "\ud7ff\u202e",
    "NaN",
    "99999",
    "[1]",
    "a,b",
    "(a+)+$",
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
    publish(make_rule_set(filters=[TEAM_FILTER]))
    publish_all(make_assignment())
    make_decision()
    make_process()


def faults(client: Client, paths: list[tuple[str, dict[str, str]]], method: str = "get") -> list[str]:
    """Return what was answered by a fault. A process that isn't ready says 503."""
    found = []
    for path, query in paths:
        response = getattr(client, method)(path, query)
        if response.status_code >= 500 and path != "/readyz":
            found.append(f"{method} {path[:120]} {query if len(str(query)) < 200 else '…'}: {fault_of(response)}")
    return found


def fault_of(response: Any) -> str:
    kind, error, _trace = getattr(response, "exc_info", None) or ("", "", "")
    return f"{response.status_code} {getattr(kind, '__name__', '')} {str(error)[:120]}"


def share(things: list[str], who: str, turn: int) -> list[str]:
    """Return a person's part of a list at one place: all of it over all people, and over all places."""
    number = len(PEOPLE)
    return things[(PEOPLE.index(who) + turn) % number :: number]


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.usefixtures("rows")
def test_no_key_in_a_path_is_answered_by_a_fault(who: str, method: str) -> None:
    found = [place for place in places() if place.has_keys]
    paths = [
        (place.path(key), {}) for turn, place in enumerate(found) for key in (KEYS if WHOLE else share(KEYS, who, turn))
    ]
    assert faults(knocking(who), paths, method) == []


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.usefixtures("rows")
def test_no_query_is_answered_by_a_fault(who: str) -> None:
    found = [place for place in places() if not place.has_keys]
    queries = [(name, value) for name in NAMES for value in VALUES]
    numbers = [str(number) for number in range(len(queries))]
    paths = []
    for turn, place in enumerate(found):
        # Each list has names of its own; all names are tried at all of them.
        shared = share(numbers, who, turn)
        wanted = (numbers if who == "superuser" else shared) if WHOLE else shared[turn % 12 :: 12]
        paths += [(place.path(""), dict([queries[int(number)]])) for number in wanted]
    assert faults(knocking(who), paths) == []
