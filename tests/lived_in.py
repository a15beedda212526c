"""A Berth with rows of every kind, so that every page has contents; and the pages that somebody may see."""

from typing import Any, NamedTuple

from django.apps import apps
from django.contrib.auth.models import Group, User
from django.test import Client

from policies import publishing
from tests.builders import TEAM_FILTER, make_assignment, make_rule_set
from tests.component.pages import opened, publish, publish_all
from tests.security.crawl import places
from tests.security.rows import make_rows
from tests.walk import pattern_of, walk


def lived_in() -> None:
    """Make rows of every kind: drafts, a Change in review, something paused, something archived."""
    publish(make_rule_set("web", filters=[{**TEAM_FILTER, "reason": "as it was"}]))
    for name, order in (("early", 10), ("middle", 20)):
        publish_all(make_assignment(name, "web", order=order, match={"namespaces": [name]}))
    make_rows()
    anna = User.objects.create(username="anna", is_staff=True)
    anna.groups.add(Group.objects.get(name="Operator"))
    review = opened(make_rule_set("reviewed", filters=[TEAM_FILTER]), by=anna, title="waits for a look")
    publishing.submit_change(change=review, by=anna, expected_digest=review.digest)


def key_of(pattern: str) -> str:
    """Return a key for the placeholders of a URL: that of a row, if the URL names its model."""
    _admin, _, rest = pattern.removeprefix("/").partition("/")
    app, _, rest = rest.partition("/")
    model = rest.partition("/")[0]
    if app not in {"auth", "policies", "scheduler"} or model not in apps.all_models[app]:
        return "1"
    row: Any = apps.get_model(app, model)._default_manager.first()
    return str(row.pk) if row else "1"


class Seen(NamedTuple):
    """A page: its URL, and its templates if the process records them."""

    url: str
    templates: str


def pages_of(client: Client) -> dict[str, Seen]:
    """Return a page for each URL pattern of the admin that gives this client one: a linked URL, else an invented one."""
    found: dict[str, Seen] = {}

    def get(url: str) -> tuple[int, str]:
        response: Any = client.get(url)
        is_html = response.status_code == 200 and response["Content-Type"].startswith("text/html")
        text = response.content.decode() if is_html else ""
        # A fragment is checked as a part of its page.
        if "<html" in text:
            found.setdefault(pattern_of(url.partition("?")[0]), Seen(url, _kind(response)))
        return response.status_code, text

    for _url, _status, _text in walk(get, ["/admin/"], 1):
        pass
    for place in places():
        pattern = "*".join(place.parts)
        if pattern.startswith("/admin/") and pattern not in found and "logout" not in pattern:
            get(place.path(key_of(pattern)))
    return found


def _kind(response: Any) -> str:
    """Return the key of a page's kind: the outermost template, and Berth's own."""
    names = [template.name or "" for template in getattr(response, "templates", ())]
    ours = {name for name in names if name.startswith(("policies/", "scheduler/"))}
    return " ".join([*names[:1], *sorted(ours)])
