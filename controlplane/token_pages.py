"""The page of tokens: the user's own, and for administrators all; making a token, whose secret is shown once, and revoking."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminTextInputWidget,
)

from controlplane.models import Token
from controlplane.tokens import DEFAULT_DAYS, TokenError, comma_separated, make_token, revoke_token
from policies.admin.base import person
from policies.scopes import EDIT, PUBLISH, READ, REVIEW

# Of those that let nobody in any more, the newest.
_MOST_OVER = 500
_SCOPES = [
    (READ, "read: see what its owner sees"),
    (EDIT, "edit: open Changes, edit them, send them to review"),
    (REVIEW, "review: approve and reject Changes"),
    (PUBLISH, "publish: publish, pause, roll back"),
]


class TokenForm(forms.Form):
    """The purpose of a token, and its permissions."""

    name = forms.CharField(
        max_length=50, widget=UnfoldAdminTextInputWidget(), help_text="What the token is for, such as a pipeline."
    )
    scopes = forms.MultipleChoiceField(
        label="Scopes", choices=_SCOPES, widget=UnfoldAdminCheckboxSelectMultipleWidget(), initial=[READ]
    )
    rule_sets = forms.CharField(
        label="Limit to names",
        required=False,
        max_length=4000,
        widget=UnfoldAdminTextInputWidget(),
        help_text="Names of rule sets and Assignments, separated by commas: team-a-*. Empty: all names.",
    )
    namespaces = forms.CharField(
        label="Limit to namespaces",
        required=False,
        max_length=4000,
        widget=UnfoldAdminTextInputWidget(),
        help_text="Separated by commas. A token that is limited to names and has no namespaces can't change Assignments.",
    )
    days = forms.IntegerField(
        label="Valid for (days)", initial=DEFAULT_DAYS, min_value=1, widget=UnfoldAdminIntegerFieldWidget()
    )

    def clean_rule_sets(self) -> list[str]:
        """Read patterns."""
        return comma_separated(self.cleaned_data["rule_sets"])

    def clean_namespaces(self) -> list[str]:
        """Read patterns."""
        return comma_separated(self.cleaned_data["namespaces"])


@admin.site.admin_view
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Show tokens, active ones first."""
    return _page(request, TokenForm())


@admin.site.admin_view
@require_POST
def make(request: HttpRequest) -> HttpResponse:
    """Make a token for the user. Only this answer contains its secret, which isn't stored."""
    form = TokenForm(request.POST)
    if form.is_valid():
        owner = person(request)
        try:
            token, secret = make_token(owner=owner, by=owner, now=timezone.now(), **form.cleaned_data)
        except TokenError as error:
            for message in error.messages:
                form.add_error(None, message)
        else:
            return _page(request, TokenForm(), made=token, secret=secret)
    return _page(request, form)


@admin.site.admin_view
@require_POST
def revoke(request: HttpRequest, number: int) -> HttpResponse:
    """Revoke one of the user's tokens; an administrator may revoke any."""
    token = _visible(request).filter(pk=number).first()
    if token is None:
        raise Http404
    if revoke_token(token=token, by=person(request), now=timezone.now()):
        messages.success(request, f"The token {token} is revoked and no longer accepted.")
    else:
        messages.warning(request, f"The token {token} was already revoked.")
    return HttpResponseRedirect(reverse("tokens"))


def _visible(request: HttpRequest) -> QuerySet[Token]:
    rows = Token.objects.select_related("owner")
    asking = person(request)
    return rows if asking.is_superuser else rows.filter(owner=asking)


def _page(request: HttpRequest, form: TokenForm, *, made: Token | None = None, secret: str = "") -> HttpResponse:
    now = timezone.now()
    rows = _visible(request)
    # Each that lets somebody in is shown: behind others, whose number is anybody's choice, nobody would find it to revoke it.
    active = rows.filter(revoked_at=None, expires_at__gt=now)
    over = list(rows.filter(~Q(revoked_at=None) | Q(expires_at__lte=now))[: _MOST_OVER + 1])
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": "Tokens",
        "rows": [{"row": row, "state": row.state(now)} for row in (*active, *over[:_MOST_OVER])],
        "has_more": len(over) > _MOST_OVER,
        "form": form,
        "made": made,
        "secret": secret,
        "sees_all": person(request).is_superuser,
        "most_days": settings.BERTH.token_max_days,
    }
    return TemplateResponse(request, "controlplane/tokens.html", context)
