"""Each form that a page shows to a superuser, sent as a browser would, with one field that nobody means: no fault.

`SECURITY=whole` alone, for it takes minutes. What it found has tests of its own (component/controlplane/test_doors.py).
"""

from html.parser import HTMLParser
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import transaction
from django.forms import Field
from django.test import Client

from policies.admin.fields import NamesField
from scheduler.admin.forms import ManagedField
from tests.security.people import WHOLE, knocking
from tests.security.rows import make_rows
from tests.security.test_crawler import LONG, fault_of, pages

VALUES = [
    "",
    "\0",
    "9" * 5_000,
    LONG,
    "-1",
    "\ud7ff\u202e",
    "[" * 50_000,
    "a: &a [*a]",
    "9999-99-99",
    "None",
    "a/b",
    "1" * 300,
]
# One's own session and password, and what leaves for a cluster.
OTHERS = ("/logout/", "/password_change/", "/canary/", "end-others")


class Forms(HTMLParser):
    """The forms of a page that are posted: where to, and what of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self._select = self._area = ""
        self._is_open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._is_open = has.get("method", "").lower() == "post"
            if self._is_open:
                self.found.append((has.get("action", ""), {}))
        elif self._is_open and tag == "option" and self._select and "selected" in has:
            self._fields[self._select] = has.get("value", "")
        elif self._is_open and has.get("name"):
            self._field(tag, has)

    def _field(self, tag: str, has: dict[str, str]) -> None:
        name = has["name"]
        if tag == "select":
            self._select = name
            self._fields.setdefault(name, "")
        elif tag == "textarea":
            self._area = name
            self._fields[name] = ""
        elif has.get("type") not in {"checkbox", "radio"} or "checked" in has:
            self._fields[name] = has.get("value", "")

    def handle_data(self, data: str) -> None:
        if self._is_open and self._area:
            self._fields[self._area] += data

    def handle_endtag(self, tag: str) -> None:
        self._is_open = self._is_open and tag != "form"
        self._select = "" if tag == "select" else self._select
        self._area = "" if tag == "textarea" else self._area

    @property
    def _fields(self) -> dict[str, str]:
        return self.found[-1][1]


def forms() -> dict[tuple[str, tuple[str, ...]], dict[str, str]]:
    """Return what each form would send, by its URL and the names of its fields: pages share some."""
    client, found = knocking("superuser"), {}
    for path in pages():
        if not path.startswith("/admin/"):
            continue
        page = client.get(path)
        if page.status_code != 200 or page.streaming or "html" not in page["Content-Type"]:
            continue
        for action, fields in Forms(page.content.decode()).found:
            url = path if action in {"", "."} else action if action.startswith("/") else ""
            if url and not any(other in url for other in OTHERS):
                found.setdefault((url, tuple(sorted(fields))), fields)
    return found


def sent(client: Client, url: str, fields: dict[str, str]) -> Any:
    with transaction.atomic():
        answer = client.post(url, fields)
        transaction.set_rollback(True)
    return answer


@pytest.mark.parametrize("field", [NamesField(), ManagedField()])
def test_a_field_of_names_takes_so_many_and_says_so(field: Field) -> None:
    assert len(field.clean("a," * 1_000)) == 1_000
    with pytest.raises(ValidationError, match="at most 1,000"):
        field.clean("a," * 1_001)


@pytest.mark.skipif(not WHOLE, reason="minutes; SECURITY=whole asks for it")
def test_no_field_of_a_form_is_answered_by_a_fault(db: None) -> None:
    make_rows()
    client, found = knocking("superuser"), []
    for (url, _), fields in forms().items():
        for name in fields:
            for value in VALUES:
                answer = sent(client, url, {**fields, name: value})
                if answer.status_code >= 500:
                    found.append(f"{url} {name}={value[:40]!a}: {fault_of(answer)}")
    assert found == []
