"""A crawler of pages as a given user sees them: their links, their forms, their buttons."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import parse_qsl, urljoin, urlsplit

from tests.security.crawl import Place, places

# How many links of a kind are followed; they may differ only in a page's state in the URL (order, page, day).
_MOST_OF_A_KIND = 2


class Button(NamedTuple):
    """A form with one of its buttons pressed."""

    method: str
    action: str
    # The data that a browser would send without any input.
    data: tuple[tuple[str, str], ...]
    text: str


class Shown(NamedTuple):
    """A page's links and buttons."""

    links: tuple[str, ...]
    buttons: tuple[Button, ...]


class _Form:
    def __init__(self, method: str, action: str) -> None:
        self.method, self.action = method, action
        self.fields: list[tuple[str, str]] = []
        self.buttons: list[tuple[str, str, str]] = []


class _Reader(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.links: list[str] = []
        self.forms: list[_Form] = []
        self._named: dict[str, _Form] = {}
        self._form: _Form | None = None
        self._select: tuple[_Form, str] | None = None
        self._options: list[tuple[str, bool]] = []
        self._textarea: tuple[_Form, str] | None = None
        self._text = ""
        self._is_template = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        each = {name: value or "" for name, value in attrs}
        if tag == "template":
            self._is_template += 1
        if self._is_template:
            return
        for name in ("href", "hx-get"):
            if each.get(name) and tag != "link":
                self.links.append(urljoin(self._url, each[name]))
        if tag == "form":
            self._form = _Form(each.get("method", "get").lower(), urljoin(self._url, each.get("action", "")))
            self.forms.append(self._form)
            self._named[each.get("id", "")] = self._form
            return
        form = self._named.get(each["form"]) if "form" in each else self._form
        if form is not None and "disabled" not in each:
            self._read_field(form, tag, each)

    def _read_field(self, form: _Form, tag: str, each: dict[str, str]) -> None:
        kind, name = each.get("type", ""), each.get("name", "")
        if (tag == "button" and kind in {"", "submit"}) or (tag == "input" and kind == "submit"):
            action = urljoin(self._url, each["formaction"]) if "formaction" in each else ""
            form.buttons.append((action, name, each.get("value", "")))
        elif tag == "input" and name and kind not in {"button", "file", "image", "reset"}:
            if kind not in {"checkbox", "radio"} or "checked" in each:
                form.fields.append((name, each.get("value", "on" if kind in {"checkbox", "radio"} else "")))
        elif tag == "select" and name:
            self._select, self._options = (form, name), []
        elif tag == "option" and self._select is not None:
            self._options.append((each.get("value", ""), "selected" in each))
        elif tag == "textarea" and name:
            self._textarea, self._text = (form, name), ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "template":
            self._is_template -= 1
        elif tag == "form":
            self._form = None
        elif tag == "select" and self._select is not None:
            form, name = self._select
            chosen = [value for value, is_chosen in self._options if is_chosen] or [v for v, _ in self._options[:1]]
            form.fields += [(name, value) for value in chosen]
            self._select = None
        elif tag == "textarea" and self._textarea is not None:
            form, name = self._textarea
            form.fields.append((name, self._text.removeprefix("\n")))
            self._textarea = None


def read(url: str, page: str) -> Shown:
    """Return the links and buttons of a page at a URL."""
    reader = _Reader(url)
    reader.feed(page)
    return Shown(tuple(dict.fromkeys(reader.links)), tuple(dict.fromkeys(_buttons(reader.forms))))


def _buttons(forms: list[_Form]) -> Iterator[Button]:
    for form in forms:
        if form.method == "dialog":
            continue
        for action, name, value in form.buttons:
            own = ((name, value),) if name else ()
            yield Button(form.method, action or form.action, (*form.fields, *own), f"{name}={value}")


# A URL's pattern in the URLconf, with * for each key; empty for one that the server doesn't have.
_PATTERNS: list[tuple[Place, re.Pattern[str]]] = []


def pattern_of(path: str) -> str:
    """Return the URLconf's pattern of a path, with * for its keys; of several, the most specific."""
    if not _PATTERNS:
        found = [(place, re.compile("[^/]+".join(map(re.escape, place.parts)))) for place in places()]
        _PATTERNS.extend(sorted(found, key=lambda pair: (len(pair[0].parts), -len("".join(pair[0].parts)))))
    return next(("*".join(place.parts) for place, regex in _PATTERNS if regex.fullmatch(path)), "")


def kind_of(url: str) -> tuple[str, tuple[str, ...]]:
    """Return the kind of a URL: its pattern, and the names in its query."""
    parts = urlsplit(url)
    return pattern_of(parts.path), tuple(sorted({name for name, _ in parse_qsl(parts.query)}))


def walk(
    get: Callable[[str], tuple[int, str]],
    starts: list[str],
    most: int = _MOST_OF_A_KIND,
    kind: Callable[[str], object] = lambda url: pattern_of(urlsplit(url).path),
) -> Iterator[tuple[str, int, str]]:
    """Yield URL, status and text of the pages reached by links from the first ones, with a limit for each kind.

    `get` returns status and text of a path; it follows redirects.
    """
    waiting, seen = list(starts), set(starts)
    counts = Counter(map(kind, starts))
    while waiting:
        url = waiting.pop(0)
        status, text = get(url)
        yield url, status, text
        for link in read(url, text).links:
            target = link.partition("#")[0]
            parts = urlsplit(target)
            if parts.netloc or not pattern_of(parts.path) or target in seen:
                continue
            seen.add(target)
            counts[kind(target)] += 1
            if counts[kind(target)] <= most:
                waiting.append(target)
