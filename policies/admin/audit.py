"""Read-only pages of AuditEvents: the list, and each event."""

from collections.abc import Mapping
from typing import Any

import msgspec
from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from policies import publishing
from policies.admin.base import change_url, link, revision_url
from policies.admin.narrowing import Chip, Narrowing, fields_of, given_of, with_values, without
from policies.admin.panels import add_panel, panels_of
from policies.admin.versions import copyable
from policies.audit_search import BY_NAME, FILTERS, Page, Search, parse_search
from policies.audit_words import KINDS, how_of, sentence_of, thing_of, title_of, who_of
from policies.models import Assignment, AuditEvent, Change, PriorityClass, Revision, RuleSet
from policies.origin import Door
from policies.parameters import SearchError

SEE, _SEE_ADDRESSES = "policies.view_auditevent", "policies.see_addresses"
_BADLY_ASKED = 400
# Groups of kinds that people look for together.
_GROUPS = {
    "change.": "any event about a Change",
    "account.": "any change of an account",
    "role.": "any change of a role",
}
# How many of a Change's things are shown; the record has all of them.
_MOST_THINGS = 200
_WITHOUT_FIELD = frozenset({"from", "to"})


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """List events, newest first, filtered by the URL's query."""
    faults: dict[str, str] = {}
    search, found = Search(), Page([], None, None)
    sees_addresses = request.user.has_perm(_SEE_ADDRESSES)
    try:
        search = parse_search(request.GET.dict(), sees_addresses=sees_addresses)
        found = search.page()
    except SearchError as error:
        faults = error.faults
    context = {
        **admin.site.each_context(request),
        "title": "Audit",
        "rows": [line_of(row) for row in found.rows],
        "narrowing": Narrowing(
            id="audit-search",
            label="Audit",
            summary="Filter by person, event, object, Change and more",
            faults=faults,
            fields=_fields(request.GET, sees_addresses=sees_addresses),
            chips=[
                Chip(BY_NAME[name].title, _words(name, value), with_values(without(request.GET, name)))
                for name, value in search.values.items()
            ],
            given=given_of(request.GET),
        ),
        "older": with_values(request.GET, before=found.older) if found.older else "",
        "newer": with_values(request.GET, after=found.newer) if found.newer else "",
        "sees_addresses": sees_addresses,
    }
    return TemplateResponse(request, "policies/audit.html", context, status=_BADLY_ASKED if faults else None)


def _fields(query: QueryDict, *, sees_addresses: bool) -> list[dict[str, Any]]:
    choices = {"kind": {**_GROUPS, **KINDS}, "door": {door: door for door in map(str, Door)}}
    hidden = _WITHOUT_FIELD if sees_addresses else _WITHOUT_FIELD | {"address"}
    return fields_of(FILTERS, query, choices, hidden)


def _words(name: str, value: str) -> str:
    return {**KINDS, **_GROUPS}.get(value, value) if name == "kind" else value


def line_of(row: AuditEvent) -> dict[str, Any]:
    """Return an event as a row of a list."""
    return {
        "row": row,
        "url": reverse("audit_event", args=[row.pk]),
        "title": title_of(row.kind),
        **_who(row),
        "thing": _thing(row),
        "change": change_url(row.change) if row.change else "",
        "revision": revision_url(row.revision) if row.revision else "",
    }


def _who(row: AuditEvent) -> dict[str, str]:
    """Return who did it, and the text after the name."""
    said = who_of(row)
    by = row.by if row.by and said.startswith(row.by) else ""
    return {"by": by, "through": said.removeprefix(by)}


def _thing(row: AuditEvent) -> str:
    # Events about a Change alone show it in a column of its own.
    return "" if row.thing_kind in {"Change", ""} else thing_of(row, _more_of(_said(row)))


def _said(row: AuditEvent) -> publishing.Said | None:
    try:
        return publishing.said_by(row)
    except msgspec.DecodeError:
        return None


def _more_of(said: publishing.Said | None) -> Mapping[str, Any]:
    return said.more if said else {}


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def event(request: HttpRequest, key: Any) -> HttpResponse:
    """Show one event: a sentence, the state before and after, and other events of the same thing."""
    row = get_object_or_404(AuditEvent, pk=key)
    sees_addresses = request.user.has_perm(_SEE_ADDRESSES)
    said = _said(row)
    more = _more_of(said)
    things = _thing_lines(more)
    change = Change.objects.filter(pk=row.change).first() if row.change else None
    context = {
        **admin.site.each_context(request),
        "title": title_of(row.kind),
        "row": row,
        "sentence": sentence_of(row, more),
        "how": how_of(row),
        **_who(row),
        "sees_addresses": sees_addresses,
        "change": change,
        "change_url": change_url(change.pk) if change else "",
        "sides": [
            (word, digest, _of_digest(digest))
            for word, digest in (("Before", row.before), ("After", row.after))
            if digest
        ],
        "things": things[:_MOST_THINGS],
        "more_things": max(0, len(things) - _MOST_THINGS),
        "same_request": audit_url(request=row.request_id) if row.request_id else "",
        "same_thing": audit_url(thing=f"{row.thing_kind}/{row.thing_name}") if row.thing_name else "",
        "is_as_written": publishing.is_as_written(row),
        "body": copyable(_body(said, sees_addresses=sees_addresses)) if said else "",
        "panels": panels_of(row, request),
    }
    return TemplateResponse(request, "policies/audit_event.html", context)


def _thing_lines(more: Mapping[str, Any]) -> list[dict[str, Any]]:
    things = more.get("things")
    lines = map(_thing_line, things) if isinstance(things, list) else ()
    return [line for line in lines if line]


def _thing_line(thing: Any) -> dict[str, Any]:
    """Return a thing of a record as a row; nothing for one of a form that only a newer Berth knows."""
    match thing:
        case {"kind": str(kind), "name": str(name)}:
            return {**thing, "stays": False, "url": audit_url(thing=f"{kind}/{name}")}
        case str() if "/" in thing:  # live things that were marked as a repository's
            kind, _, name = thing.partition("/")
            return {"kind": kind, "name": name, "stays": True, "url": audit_url(thing=thing)}
    return {}


def _of_digest(digest: str) -> SafeString | str:
    """Return a link to the Revision with this digest; empty if there is none."""
    made = Revision.objects.filter(digest=digest).first()
    return link(revision_url(made.number), made) if made else ""


def _body(said: publishing.Said, *, sees_addresses: bool) -> str:
    shown = said if sees_addresses else msgspec.structs.replace(said, address="(not shown)" if said.address else "")
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()


def audit_url(**asked: str) -> str:
    """Return the URL of the list of events, filtered."""
    return f"{reverse('audit')}?{urlencode(asked)}"


def _panel(url: str, text: str) -> SafeString:
    return format_html('<p class="berth-panel">{}</p>', link(url, text))


def _panel_of_thing(kind: str, name: str, text: str) -> SafeString:
    return _panel(audit_url(thing=f"{kind}/{name}"), text)


def _register_panels() -> None:
    """Link the events of a thing from its page."""
    add_panel(Change, lambda row, _: _panel_of_thing("Change", str(row.pk), "Audit trail of this Change"))
    add_panel(Revision, _panel_of_revision)
    for model in (RuleSet, Assignment, PriorityClass):
        add_panel(model, lambda row, _: _panel_of_thing(type(row).__name__, row.name, f"Audit trail of {row.name}"))


def _panel_of_revision(row: Revision, _: HttpRequest) -> SafeString:
    made = Change.objects.filter(revision=row).values_list("pk", flat=True).first()
    url = audit_url(change=str(made)) if made else audit_url(revision=str(row.number))
    return _panel(url, "Audit trail of this Revision")


_register_panels()
