"""Pages as their readers use them: what a form holds, what a page says."""

import html
import re
from typing import Any

from django.http import HttpResponse
from django.test import Client

from policies import publishing
from policies.engine.ruleset import Assignment, PriorityClass, RuleSet
from policies.models import Change, Revision


def form_data(response: Any) -> dict[str, Any]:
    """Return what a browser would send back from a change page, untouched."""
    forms = [response.context["adminform"].form]
    for inline in response.context["inline_admin_formsets"]:
        forms += [inline.formset.management_form, *inline.formset.forms]
    data: dict[str, Any] = {}
    for form in forms:
        for name, field in form.fields.items():
            value = field.prepare_value(form[name].value())
            if value is not None and value is not False:
                data[form[name].html_name] = value
    return data


def confirmed(client: Client, page: str, reason: str) -> str:
    """Look at a page that asks before it acts, confirm it with a reason, and return what is said of it."""
    digest = get(client, page).context["form"]["digest"].value()
    return text_of(client.post(page, {"reason": reason, "digest": digest}, follow=True))


def new_row(data: dict[str, Any], prefix: str, **fields: Any) -> int:
    """Add a row to a form's data, as "Add another" does; returns its index."""
    index = int(data[f"{prefix}-TOTAL_FORMS"])
    data[f"{prefix}-TOTAL_FORMS"] = index + 1
    defaults = {"mode": "enforce"} | ({"on_error": "reject"} if prefix == "filters" else {"weight": 1})
    data |= {f"{prefix}-{index}-{name}": value for name, value in (defaults | fields).items()}
    return index


def rows(response: Any, prefix: str) -> Any:
    """Return the formset of a prefix."""
    found = (inline.formset for inline in response.context["inline_admin_formsets"])
    return next(formset for formset in found if formset.prefix == prefix)


def text_of(response: HttpResponse) -> str:
    """Return what a page says, without tags."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", response.content.decode(), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def change_url(model: str, key: object) -> str:
    """Return a change page's path."""
    app = "scheduler" if model in {"decision", "process"} else "policies"
    return f"/admin/{app}/{model}/{key}/change/"


def edit_page(name: str, change: Change | None = None) -> str:
    """Return the page of the form of a rule set."""
    return f"/admin/policies/rulesetversion/edit:{name}/change/" + (f"?change={change.pk}" if change else "")


def publish(rule_set: RuleSet, *, by: str = "ops") -> Revision:
    """Publish a rule set, new or again."""
    return publish_all(rule_set, by=by)


def opened(*values: RuleSet | Assignment | PriorityClass, by: Any = "ops", title: str = "tested") -> Change:
    """Open a Change with several things."""
    return publishing.open_change(title=title, edits=map(publishing.Edit.of, values), by=by)


def stage(*edits: publishing.Edit) -> None:
    """Put edits into the one Change that is being put together."""
    change = Change.objects.filter(state="draft", title="staged").first()
    if change is None:
        publishing.open_change(title="staged", edits=edits, by="ops")
    else:
        publishing.edit_change(change=change, edits=edits, by="ops", expected_digest=change.digest)


def publish_staged() -> Revision | None:
    """Publish that Change; None where there is none, or nothing is left in it."""
    change = Change.objects.filter(state="draft", title="staged").first()
    if change is None or not change.edits.exists():
        return None
    return publishing.publish_change(change=change, by="ops", expected_digest=change.digest, reason="tested")


def publish_all(*values: RuleSet | Assignment | PriorityClass, by: Any = "ops") -> Revision:
    """Publish several things in one Change."""
    change = publishing.open_change(title="all", edits=map(publishing.Edit.of, values), by=by, reason="tested")
    return publishing.publish_change(change=change, by=by, expected_digest=change.digest)


def get(client: Client, path: str) -> Any:
    """Get a page that has to be there."""
    response = client.get(path)
    assert response.status_code == 200, (path, response.status_code)
    return response
