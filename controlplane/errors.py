"""Error pages in the admin's frame, with what to do and who may do it. REST and probes get a line of text."""

import re
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.auth.models import Group
from django.core.exceptions import BadRequest, DisallowedHost
from django.db import Error, OperationalError
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import REASON_BAD_ORIGIN
from django.template import loader
from django.template.response import TemplateResponse
from django.urls import resolve, reverse

from controlplane.roles import ROLES
from policies.wording import listed
from scheduler.decisions.replica import history_behind

_PAGES = "/admin/"
_HISTORY = f"{_PAGES}scheduler/"
_BAD_ORIGIN = REASON_BAD_ORIGIN.partition("%")[0]
# The attribute of a request's account with the last refused permission.
REFUSED = "refused_permission"
# Form fields that nobody typed: buttons and hidden fields.
_NOT_TYPED = re.compile(
    r"csrfmiddlewaretoken|_.*|act|move|save|.*digest|revision|uid|number|back|replaces|seen"
    r"|.*-(id|position|(TOTAL|INITIAL|MIN_NUM|MAX_NUM)_FORMS)|.*__prefix__.*",
    re.DOTALL,
)
# The URL of a webhook is a secret, too.
_SECRET = re.compile(r"password|secret|url", re.IGNORECASE)
_ANOTHER_HOST = (
    "Berth doesn't accept requests for this host name: whoever runs Berth can add it to BERTH_ALLOWED_HOSTS."
)


class _Typed(NamedTuple):
    name: str
    value: str
    rows: int


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer a malformed request; for an unknown filter of a list, name it."""
    if isinstance(exception, DisallowedHost):
        # No page: its links would lead to that host. This type is also the detail of a REST answer.
        return HttpResponse(_ANOTHER_HOST, status=400, content_type="text/plain")
    if isinstance(exception, DisallowedModelAdminLookup):
        text = f"This list has no filter {_refused_filter(request, exception)}."
        return _page(request, 400, "Invalid request", text, "Remove it from the URL, or choose a filter on the page.")
    if isinstance(exception, BadRequest):
        return _page(request, 400, "Invalid request", str(exception), "Go back, and request less.")
    text = "The link or the form that led here asks for something invalid, such as a malformed number or an unknown column."
    return _page(request, 400, "Invalid request", text, "Go back, and try again from the page itself.")


def _refused_filter(request: HttpRequest, exception: Exception) -> str:
    """Return the parameter that Django's message names, with its value. Invisible and reordering characters are escaped."""
    found = [name for name in request.GET if f" {name} " in str(exception)]
    return (
        " or ".join(f"{name[:80]!r} that takes {request.GET[name][:80]!r}" for name in found)
        or "such as the one in its URL"
    )


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer somebody without the permission, and name the roles that have it."""
    refused = getattr(request.user, REFUSED, "") if hasattr(request, "user") else ""
    said = str(exception or "")
    text = said or f"Your account may not do this{_whose(request)}."
    return _page(request, 403, "Permission denied", text, _who_may(refused), typed=_typed_here(request))


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer an unknown URL."""
    del exception
    text = "There is nothing at this URL: it never existed, was deleted, or was pruned with the history of its time."
    behind = history_behind() if request.path.startswith(_HISTORY) else ""
    if behind:
        text += f" Or it isn't there yet: the history database is {behind} behind."
    remedy = "Look for it by its name or its number: press Ctrl-K, or go to Home."
    return _page(request, 404, "Not found", text, remedy, typed=_typed_here(request))


def refused(request: HttpRequest, messages: Iterable[str]) -> HttpResponse:
    """Answer a request for something that can't be shown or done as it is, such as an edit that a newer Berth wrote."""
    remedy = "Nothing was changed. Go back; the page of a Change says what can be done with it."
    return _page(request, 409, "This can't be done", " ".join(messages), remedy, typed=_typed_here(request))


def not_a_page(request: HttpRequest) -> HttpResponse:
    """Answer a GET of a URL that only accepts POST: the result of a form was reloaded, or opened after signing in."""
    text = "This URL only accepts a submitted form. Opening it has changed nothing."
    return _page(
        request, 405, "There is no page here", text, "Go to the page that has the form.", above=_above(request.path)
    )


def fault(request: HttpRequest) -> HttpResponse:
    """Answer an internal error, a database that can't write, or a live Revision that can't be read. The page needs no database."""
    failed, error = ("Berth failed here", ""), sys.exc_info()[1]
    title, remedy = _of_database(error) or _of_newer_berth(error) or failed
    status = 503 if remedy else 500
    if not request.path.startswith(_PAGES):
        text = f"{title}. {remedy or 'Its log says why.'}\n"
        return HttpResponse(text, status=status, content_type="text/plain")
    context = {"title": title, "remedy": remedy, "home": reverse("admin:index")}
    return HttpResponse(loader.render_to_string("admin/fault.html", context), status=status)


def _of_database(error: BaseException | None) -> tuple[str, str] | None:
    """Return what is wrong with the database, and what helps; None where something else failed."""
    # Django's own errors have the driver's as their cause.
    if not isinstance(error, Error) or error.__cause__ is None:
        return None
    code = getattr(error.__cause__, "sqlstate", None) or ""
    name = getattr(error.__cause__, "sqlite_errorname", "")
    if code == "53100" or name == "SQLITE_FULL":
        return "The database's disk is full", "Nothing can be written until its disk has room again."
    if code == "25006" or name == "SQLITE_READONLY":
        return (
            "The database is read-only",
            "It is a standby, or was made read-only: manage.py doctor says what to do.",
        )
    # No code: the connection failed or was lost. 57P: the server is shutting down or starting.
    if isinstance(error, OperationalError) and not name and (not code or code.startswith(("08", "57P"))):
        return "The database can't be reached", "manage.py doctor says why."
    return None


def _of_newer_berth(error: BaseException | None) -> tuple[str, str] | None:
    """Return what is wrong with the live Revision, and what helps; None where something else failed."""
    # Imported here: every process loads this module, and publishing loads the engine and numpy.
    from policies.publishing import UnreadableRevisionError

    if not isinstance(error, UnreadableRevisionError):
        return None
    return (
        "The live Revision can't be read",
        f"{error}: start that version again. To stay with this one, roll back there first.",
    )


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a form of another session: usually it was open while somebody signed in again."""
    title, text = (
        "The form has expired",
        "The form belongs to another session: you signed in again while it was open, or it came from another site.",
    )
    remedy = "Nothing was changed. Open the form again, enter your input, and submit it."
    is_own = _is_own(request)
    if is_own and reason.startswith(_BAD_ORIGIN):
        # The browser sent the form from this site: a proxy in between forwards to another address than it is called by.
        origin = request.headers["Origin"]
        title = "A proxy changes Berth's address"
        text = f"The browser is at {origin}, and Berth was asked for {request.scheme}://{request.get_host()}."
        remedy = (
            "Nothing was changed. Make the proxy pass on the Host header unchanged, with its port, and set X-Forwarded-Proto; "
            f"or add {origin} to BERTH_TRUSTED_ORIGINS."
        )
    typed = _typed_here(request)
    page = _sent_from(request)
    if not typed:
        return _page(request, 403, title, text, remedy, above=page)
    if not _may_see_pages(request):
        return _not_taken(f"{reverse('admin:login')}?{urlencode({'next': request.get_full_path()})}", typed)
    return _page(request, 403, title, text, remedy, above=page, typed=typed)


def _is_own(request: HttpRequest) -> bool:
    return request.headers.get("Sec-Fetch-Site") == "same-origin"


def _typed_here(request: HttpRequest) -> list[_Typed]:
    """Return the typed values of a form of this site: those that another site made somebody send aren't shown as theirs."""
    return _typed(request) if request.method == "POST" and _is_own(request) else []


def _sent_from(request: HttpRequest) -> str:
    """Return the page of the admin that had the form, by the browser's Referer; empty where there is none."""
    try:
        said = urlsplit(request.headers.get("Referer", ""))
    except ValueError:  # no URL, such as http://[
        return ""
    is_page = said.netloc == request.get_host() and said.path.startswith(_PAGES)
    return said._replace(scheme="", netloc="").geturl() if is_page else ""


def sent_signed_out(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Return the answer to a form that was sent after its session ended: the typed values, and a link to the sign-in.

    Any other response is returned unchanged, and so is one to an empty form, or to a client that never got a form.
    """
    if request.method != "POST" or not _leads_to_sign_in(response) or not _was_shown_a_form(request):
        return response
    typed = _typed(request)
    return _not_taken(response.headers["Location"], typed) if typed else response


def _was_shown_a_form(request: HttpRequest) -> bool:
    """Return whether a signed-out client had a page: its form came with a cookie that outlives the session."""
    user = getattr(request, "user", None)
    return settings.CSRF_COOKIE_NAME in request.COOKIES and not (user and user.is_authenticated)


def _typed(request: HttpRequest) -> list[_Typed]:
    """Return the typed values, by the names of the fields, and how many rows they need. The sign-in form's values aren't kept."""
    if request.path == reverse("admin:login"):
        return []
    named = [(name, value) for name, values in request.POST.lists() for value in values if value.strip()]
    shown = [(name, value) for name, value in named if not _NOT_TYPED.fullmatch(name) and not _SECRET.search(name)]
    return [_Typed(name, value, min(20, value.count("\n") + len(value) // 60 + 1)) for name, value in shown]


def _not_taken(sign_in: str, typed: list[_Typed]) -> HttpResponse:
    context = {"title": "You are signed out", "sign_in": sign_in, "typed": typed}
    return HttpResponse(loader.render_to_string("admin/not_taken.html", context), status=403)


def _above(path: str) -> str:
    """Return the nearest page above a path, which has its form."""
    while len(path) > len(_PAGES):
        path = path.rstrip("/").rpartition("/")[0] + "/"
        # An unknown URL is handled by the admin's own catch-all view.
        if resolve(path).func.__name__ != "catch_all_view":
            return path
    return ""


def signed_out(response: HttpResponse) -> HttpResponse:
    """Return the answer to a partial request of a page, in place of a redirect to the sign-in, which would show inside the page.

    Any other response is returned unchanged.
    """
    if not _leads_to_sign_in(response):
        return response
    return HttpResponse(loader.render_to_string("admin/signed_out.html"), headers={"HX-Reselect": "#signed-out"})


def _leads_to_sign_in(response: HttpResponse) -> bool:
    return response.headers.get("Location", "").startswith(f"{reverse('admin:login')}?")


def _may_see_pages(request: HttpRequest) -> bool:
    user = getattr(request, "user", None)
    return user is not None and user.is_active and user.is_staff


def _page(
    request: HttpRequest,
    status: int,
    title: str,
    text: str,
    remedy: str,
    *,
    above: str = "",
    typed: Iterable[_Typed] = (),
) -> HttpResponse:
    if not request.path.startswith(_PAGES) or not _may_see_pages(request):
        return HttpResponse(f"{title}. {text} {remedy}\n", status=status, content_type="text/plain; charset=utf-8")
    context: dict[str, Any] = {**admin.site.each_context(request), "title": title, "text": text, "remedy": remedy}
    context |= {"above": above, "typed": typed}
    return TemplateResponse(request, "admin/error.html", context, status=status).render()


def _whose(request: HttpRequest) -> str:
    roles = sorted(request.user.groups.values_list("name", flat=True)) if hasattr(request, "user") else []
    return f" as {' and '.join(roles)}" if roles else ": it has no role"


def _who_may(permission: str) -> str:
    """Return whom to ask for the permission."""
    app, _, codename = permission.rpartition(".")
    holds = Q(permissions__content_type__app_label=app, permissions__codename=codename)
    found = set(Group.objects.filter(holds).values_list("name", flat=True)) if permission else set()
    names = [*(name for name in ROLES if name in found), *sorted(found - ROLES.keys())]
    if not names:
        return "An administrator can do it, or knows who can."
    return f"People with the role {listed(names)} can do it: ask one of them, or ask an administrator for the role."
