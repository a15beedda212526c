"""Names of people on pages: links to each person's acts for users who may see these, else plain names."""

from collections.abc import Mapping
from typing import Any, Final

from django import template
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

# The permission for a person's page, which shows AuditEvents.
SEE: Final = "policies.view_auditevent"


def sees_people(request: HttpRequest) -> bool:
    """Return whether names are links for the request's user."""
    return request.user.has_perm(SEE)


def person_link(name: str, *, is_link: bool) -> SafeString | str:
    """Return a name, as a link to its page if `is_link`. Names with a space aren't accounts: "the schedule" and others."""
    if not is_link or not name or " " in name:
        return name
    try:
        url = reverse("person", args=[name])
    except NoReverseMatch:
        return name
    return format_html('<a class="berth-link" href="{}">{}</a>', url, name)


@register.simple_tag(takes_context=True)
def who(context: Mapping[str, Any], name: str) -> SafeString | str:
    """Show a name: {% who change.opened_by %}."""
    request = context.get("request")
    return person_link(name or "", is_link=request is not None and sees_people(request))
