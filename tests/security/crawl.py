"""Every URL that the admin server has, from its URLconf: a page that is added tomorrow is crawled tomorrow."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from django.urls import Resolver404, URLPattern, URLResolver, get_resolver, resolve
from django.urls.resolvers import RoutePattern

_CONVERTED = re.compile(r"<(?:[a-z_]+:)?[a-z_]+>")
_GROUP = re.compile(r"\(\?P<[a-z_]+>(?:[^()\[\]]|\[[^\]]*\])*\)")
# Routes of the admin that look at no key: what adds a slash, and what adds `change/`.
LOOK_AT_NONE = ("(?P<url>.*)$", "<path:object_id>/")


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


def case_of(path: str) -> tuple[str, str]:
    """Return what a path comes to: its view's route with the values in it, or that there is none."""
    try:
        found = resolve(path, "controlplane.urls")
    except Resolver404:
        return "", ""
    if found.route.endswith(LOOK_AT_NONE):
        return found.route, ""
    return found.route, repr((found.args, sorted(found.kwargs.items())))


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
