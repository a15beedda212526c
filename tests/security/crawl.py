"""Every URL that the admin server has, from its URLconf: a page that is added tomorrow is crawled tomorrow."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.resolvers import RoutePattern

_CONVERTED = re.compile(r"<(?:[a-z_]+:)?[a-z_]+>")
_GROUP = re.compile(r"\(\?P<[a-z_]+>(?:[^()\[\]]|\[[^\]]*\])*\)")


class Place(NamedTuple):
    """A URL with holes for its keys."""

    parts: tuple[str, ...]

    @property
    def has_keys(self) -> bool:
        return len(self.parts) > 1

    def path(self, key: str) -> str:
        """Return the path with a key in every hole."""
        return key.join(self.parts)


def places() -> list[Place]:
    """Return every URL of the admin server, once each."""
    return sorted(set(_walk(get_resolver("controlplane.urls"), "/")))


def _walk(resolver: URLResolver, before: str) -> Iterator[Place]:
    for pattern in resolver.url_patterns:
        route = before + _text(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _walk(pattern, route)
        elif isinstance(pattern, URLPattern):
            yield Place(tuple(route.split("\0")))


def _text(pattern: Any) -> str:
    """Return a pattern's path with a NUL where a key belongs."""
    if isinstance(pattern, RoutePattern):
        return _CONVERTED.sub("\0", str(pattern))
    return _GROUP.sub("\0", str(pattern).removeprefix("^").removesuffix("$"))
