"""The pages of one's own account: its permissions, sessions, last sign-ins and password."""

from functools import partial
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth import BACKEND_SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.auth.views import PasswordChangeView
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from controlplane.models import Token
from controlplane.roles import words_of
from controlplane.sessions import end_sessions, sessions_of
from controlplane.sign_in_form import OwnPasswordForm
from policies.admin.base import person
from policies.audit_words import title_of
from policies.models import AuditEvent
from policies.publishing import AuditKind

_SIGN_INS = (AuditKind.LOG_IN, AuditKind.LOG_IN_FAILED, AuditKind.LOCK_OUT)
_MOST_SIGN_INS = 10


@admin.site.admin_view
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Show the user's own account."""
    user, now = person(request), timezone.now()
    tokens = Token.objects.filter(owner=user, revoked_at=None, expires_at__gt=now)
    # Events outlive a name: those before this account was made are another's. (Those of whose name an older account took aren't told apart.)
    since = AuditEvent.objects.filter(at__gte=user.date_joined)
    signed_in = since.filter(thing_kind="Account", thing_name=user.get_username(), kind__in=_SIGN_INS)
    opened = sessions_of(user, request.session.session_key)
    context = {
        **admin.site.each_context(request),
        "title": "Profile",
        "account": user,
        "how": _how(request, user),
        "has_password": _has_password(user),
        "roles": _roles(user),
        "sessions": opened,
        "has_others": any(not each.is_this for each in opened),
        "sign_ins": [{"row": row, "title": title_of(row.kind)} for row in signed_in[:_MOST_SIGN_INS]],
        "tokens": tokens.count(),
        "hours": settings.BERTH.session_hours,
    }
    return TemplateResponse(request, "controlplane/profile.html", context)


@admin.site.admin_view
@require_POST
def end(request: HttpRequest, name: str) -> HttpResponse:
    """End one of the user's own sessions."""
    return _ended(request, end_sessions(person(request), this=request.session.session_key, name=name))


@admin.site.admin_view
@require_POST
def end_others(request: HttpRequest) -> HttpResponse:
    """End all of the user's own sessions except this one."""
    return _ended(request, end_sessions(person(request), this=request.session.session_key))


@transaction.atomic
@admin.site.admin_view
def change_password(request: HttpRequest) -> HttpResponseBase:
    """Change the user's own password, in one transaction with its AuditEvent; Django's page uses none."""
    view = PasswordChangeView.as_view(
        form_class=partial(OwnPasswordForm, request),
        success_url=reverse("admin:password_change_done"),
        extra_context=admin.site.each_context(request),
    )
    return view(request)


def _ended(request: HttpRequest, number: int) -> HttpResponse:
    if number:
        which = "1 session is" if number == 1 else f"{number} sessions are"
        messages.success(request, f"{which} ended. Whoever used it has to sign in again.")
    else:
        messages.warning(request, "There was no other session to end.")
    return HttpResponseRedirect(reverse("profile"))


def _how(request: HttpRequest, user: User) -> str:
    """Return the method by which somebody signed in."""
    if "provider" in request.session.get(BACKEND_SESSION_KEY, "") and hasattr(user, "identity"):
        return f"at {settings.BERTH.oidc_name} ({user.identity.issuer}), which provides your name and roles"
    return "with a password stored in Berth"


def _has_password(user: User) -> bool:
    return user.has_usable_password() and (not settings.BERTH.oidc_issuer or user.is_superuser)


def _roles(user: User) -> list[dict[str, Any]]:
    """Return somebody's roles, each with its permissions in words."""
    found = [
        {"name": group.name, "may": words_of({each.codename for each in group.permissions.all()})}
        for group in user.groups.prefetch_related("permissions").order_by("name")
    ]
    if user.is_superuser:
        found.insert(
            0, {"name": "Administrator", "may": ["do everything that any role may do", "create accounts and roles"]}
        )
    return found
