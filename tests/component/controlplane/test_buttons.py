"""Every link and every button of every page, followed and pressed as each role: no fault, and no dead end.

A page that offers something to somebody who may not have it is a fault of the page: nothing it shows is answered by 403 or 404, and
whoever presses a button that is refused reads what to do. The short form looks at two pages of each kind of URL as the Operator and
the Auditor; `SECURITY=whole` at more of them as everybody.
"""

import re
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import transaction
from django.test import Client

from tests.component.pages import text_of
from tests.lived_in import lived_in
from tests.security.people import ROLES, WHOLE, knocking
from tests.walk import Button, kind_of, pattern_of, read, walk

pytestmark = pytest.mark.django_db
WHO = (*ROLES, "superuser", "no role") if WHOLE else ("Operator", "Auditor")
# So many pages of a kind are looked at, and so many times is one button pressed.
MOST = 4 if WHOLE else 1
# What a button that was refused has to show: what is wrong, or a way on.
_REMEDY = re.compile(
    r'class="[^"]*errorlist|id="remedy"|berth-error|berth-notice|id="messages"|border-red|role="alert"'
)
# Pages that only bring along what others show: they are read there, not walked to.
_PIECES = ("/admin/jsi18n/", "/admin/autocomplete/")


class Walker:
    """Somebody who follows every link and presses every button."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.faults: list[str] = []
        self._pressed: Counter[object] = Counter()

    def walk(self) -> None:
        """Do it, from Home on."""
        kind: Any = kind_of if WHOLE else lambda url: pattern_of(urlsplit(url).path)
        for url, status, text in walk(self._get, ["/admin/"], MOST, kind):
            if status >= 400:
                self.faults.append(f"a link leads to {status}: {url}")
                continue
            for button in read(url, text).buttons:
                self._press(url, button)

    def _get(self, url: str) -> tuple[int, str]:
        if url.startswith(_PIECES):
            return 200, ""
        response: Any = self._client.get(url, follow=True)
        is_page = response["Content-Type"].startswith("text/html")
        return response.status_code, response.content.decode() if is_page and not response.streaming else ""

    def _press(self, page: str, button: Button) -> None:
        path = urlsplit(button.action).path
        names = tuple(sorted({name for name, _ in button.data}))
        kind = (pattern_of(urlsplit(page).path), button.method, pattern_of(path), button.text, names if WHOLE else ())
        self._pressed[kind] += 1
        if self._pressed[kind] > 1 or path == "/admin/logout/":
            return
        data: dict[str, list[str]] = {}
        for name, value in button.data:
            data.setdefault(name, []).append(value)
        # What one button does is undone before the next is pressed.
        with transaction.atomic():
            send = self._client.post if button.method == "post" else self._client.get
            response: Any = send(button.action, data, follow=True)
            transaction.set_rollback(True)
        self._judge(f"{button.text} of {page} ({button.method} {button.action})", button, response)

    def _judge(self, where: str, button: Button, response: Any) -> None:
        status = response.status_code
        if status >= 500:
            kind, error, _trace = getattr(response, "exc_info", None) or (None, "", None)
            self.faults.append(f"{status} {getattr(kind, '__name__', '')} {str(error)[:200]}: {where}")
        elif status in {403, 404, 405}:
            self.faults.append(f"a button is answered by {status}: {where}")
        elif status >= 400 and button.method == "post" and not _REMEDY.search(response.content.decode()):
            self.faults.append(f"{status} without a word on what to do: {where}: {text_of(response)[-200:]}")


@pytest.mark.parametrize("who", WHO)
def test_no_link_and_no_button_is_a_fault_or_a_dead_end(who: str) -> None:
    lived_in()
    walker = Walker(knocking(who))
    walker.walk()
    assert not walker.faults, "\n".join(walker.faults)
