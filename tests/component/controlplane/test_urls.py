"""Names of URLs: one name leads to one place."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from django.urls import URLResolver, get_resolver


def named(resolver: Any, before: str = "", within: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for each in resolver.url_patterns:
        where = before + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from named(each, where, (*within, each.namespace) if each.namespace else within)
        elif each.name:
            yield (*within, each.name), where


def test_no_name_leads_to_a_page_and_to_rest() -> None:
    """Who reverses a name gets the last one that took it: a button would lead to JSON."""
    places: dict[tuple[str, ...], set[bool]] = defaultdict(set)
    for name, where in named(get_resolver()):
        places[name].add(where.startswith("api/"))
    assert len(places) > 100
    assert [name for name, found in places.items() if len(found) > 1] == []
