"""The read-only page of a person: the reviews that wait for them, their open Changes, their acts."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.models import User
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from policies import publishing
from policies.admin.audit import audit_url, line_of
from policies.admin.base import change_url
from policies.admin.person_links import SEE
from policies.models import AuditEvent, Change
from policies.publishing import lifecycle

# How many of the newest events and Changes are shown; links lead to all of them.
_SHOWN = 20


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Show a person by the name in AuditEvents; the account may be gone, or may never have existed."""
    account = User.objects.filter(username=name).prefetch_related("groups").first()
    sees_account = request.user.has_perm("auth.view_user")
    events = list(AuditEvent.objects.filter(by=name).order_by("-pk")[: _SHOWN + 1])
    context = {
        **admin.site.each_context(request),
        "title": f"Person {name}",
        "name": name,
        "about": _about(account),
        "events": [line_of(row) for row in events[:_SHOWN]],
        "all_events": audit_url(by=name) if len(events) > _SHOWN else "",
        "account": reverse("admin:auth_user_change", args=[account.pk]) if account and sees_account else "",
        "of_account": audit_url(thing=f"Account/{name}"),
        **(_changes(name) if request.user.has_perm("policies.view_change") else {}),
    }
    return TemplateResponse(request, "policies/person.html", context)


def _about(account: User | None) -> str:
    if account is None:
        return "There is no account of this name: it was deleted or renamed, or it is the user of a command."
    roles = ", ".join(sorted(group.name for group in account.groups.all()))
    state = "An account" if account.is_active else "An inactive account"
    role = f", {'roles' if ',' in roles else 'role'} {roles}" if roles else ", without a role"
    return f"{state}{role}{', a superuser' * account.is_superuser}."


def _changes(name: str) -> dict[str, Any]:
    """Return the reviews requested from somebody, and the open Changes that they opened or edited."""
    mine = Q(opened_by=name) | Q(edits__author=name)
    opened = list(Change.objects.filter(mine, state__in=lifecycle.OPEN).distinct().order_by("-pk")[: _SHOWN + 1])
    query = f"?{urlencode({'q': name, 'which': 'open'})}"
    return {
        "sees_changes": True,
        "waiting": [(change_url(change.pk), change, each) for change, each in publishing.changes_waiting_for(name)],
        "opened": [(change_url(change.pk), change) for change in opened[:_SHOWN]],
        "all_changes": reverse("admin:policies_change_changelist") + query if len(opened) > _SHOWN else "",
    }
