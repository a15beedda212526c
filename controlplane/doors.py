"""Middleware for every request to the admin server, and the time limit of its database statements."""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote_plus

from django.conf import settings
from django.db import DatabaseError, DataError, InterfaceError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.utils.cache import add_never_cache_headers

from controlplane.errors import bad_request, not_a_page, refused, sent_signed_out, signed_out
from policies import checking
from policies.api.details import MEDIA_TYPE, problem_response
from scheduler.decisions.replica import is_history_away
from scheduler.http_server.connection import OF_AN_ACCOUNT

# A page's statement that takes longer is cancelled; gunicorn would kill the whole worker at three times this.
STATEMENT_SECONDS = 20.0
_NUL = "\0"
_NO_NUL = "The URL holds a NUL (%00), which no name and no text here has."
_ONLY_UTF8 = "Content-Type names another encoding than UTF-8: send the form in UTF-8."
_TOO_LONG = (
    "The database took longer than {:g} s to find this, and was stopped. Ask for less: a filter, a shorter time."
)
_HISTORY_AWAY = (
    "The database that the history is read from (BERTH_HISTORY_DATABASE_URL) can't be reached. Bring it back, or take that "
    "setting away and start the admin again: then the history is read from the database itself. Pods are placed as before."
)
_WITHOUT_VIEW = {
    403: "The token of the session (X-CSRFToken) is missing or wrong.",
    404: "There is no such path; /api/schema/ names those that there are.",
    500: "A fault of Berth's own. The log has it, by the request's id.",
}
# SQLite's virtual machine calls the progress handler after this many steps: some thousand times a second.
_STEPS = 20_000


class Doors:
    """Middleware: refuses NUL, which databases can't store, and forms that aren't UTF-8, keeps answers out of caches, and reports timeouts.

    It limits how long the documents of a request are checked.
    It tells the server which requests are an account's: those have priority. A URL that only accepts forms answers with an
    explanation. After the end of a session, a request of htmx is answered with a sentence in the page, and a submitted form with
    the values that were typed into it.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer a request."""
        with checking.for_one_request():
            response = self._refused_or_answered(request)
        if response.status_code < HTTPStatus.BAD_REQUEST and hasattr(request, "user") and request.user.is_authenticated:
            request.META[OF_AN_ACCOUNT] = True
        if not response.has_header("Cache-Control"):
            add_never_cache_headers(response)
        return response

    def _refused_or_answered(self, request: HttpRequest) -> HttpResponse:
        refusal = _refusal(request)
        if refusal and request.path.startswith("/api/"):
            return problem_response(400, refusal)
        if refusal:
            return HttpResponseBadRequest(f"{refusal}\n", content_type="text/plain")
        response = self._get_response(request)
        if request.path.startswith("/api/"):
            response = _as_problem(response)
        elif response.status_code == HTTPStatus.METHOD_NOT_ALLOWED and request.method == "GET":
            allowed, response = response["Allow"], not_a_page(request)
            response["Allow"] = allowed
        return signed_out(response) if "HX-Request" in request.headers else sent_signed_out(request, response)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Return the answer to an exception that no view handled; None for one that is a fault of Berth's.

        It is 503 for a cancelled statement or an unavailable replica, 400 for a number out of range or too many words, 409 for a
        refusal.
        """
        # Imported here: every process loads this module, and publishing loads the engine and numpy.
        from policies.publishing import PublishingError

        if isinstance(exception, PublishingError):
            return refused(request, exception.messages)
        if _is_no_rows_number(exception) or _is_too_complex(exception):
            return bad_request(request)
        if isinstance(exception, OperationalError) and _was_stopped(exception):
            return HttpResponse(_TOO_LONG.format(STATEMENT_SECONDS), status=503, content_type="text/plain")
        if isinstance(exception, DatabaseError | InterfaceError) and is_history_away():
            return HttpResponse(_HISTORY_AWAY, status=503, content_type="text/plain")
        return None


def _refusal(request: HttpRequest) -> str:
    """Return why a request is refused before anything reads it; empty where it isn't."""
    if _has_nul(request):
        return _NO_NUL
    # Requests are read as UTF-8 (scheduler.http_server.application): a form in another encoding would be misread.
    is_form = request.content_type in {"multipart/form-data", "application/x-www-form-urlencoded"}
    is_utf8 = (request.content_params or {}).get("charset", "utf-8").lower() in {"utf-8", "utf8"}
    return _ONLY_UTF8 if is_form and not is_utf8 else ""


def _has_nul(request: HttpRequest) -> bool:
    return _NUL in request.path or _NUL in unquote_plus(request.META.get("QUERY_STRING", ""))


def _as_problem(response: HttpResponse) -> HttpResponse:
    """Return a problem document for programs, in place of an error page."""
    if response.status_code < HTTPStatus.BAD_REQUEST or response.get("Content-Type") == MEDIA_TYPE:
        return response
    said = response.content.decode(errors="replace") if response.get("Content-Type") == "text/plain" else ""
    return problem_response(response.status_code, said or _WITHOUT_VIEW.get(response.status_code, ""))


def _is_no_rows_number(error: Exception) -> bool:
    # sqlite3's own error is passed on as it is; psycopg's NumericValueOutOfRange.
    is_sqlites = isinstance(error, OverflowError) and "SQLite" in str(error)
    return is_sqlites or (isinstance(error, DataError) and getattr(error.__cause__, "sqlstate", "") == "22003")


def _is_too_complex(error: Exception) -> bool:
    # SQLite allows 1,000 nested conditions, PostgreSQL as many as fit its stack (statement_too_complex): a search has one for each word.
    if not isinstance(error, OperationalError):
        return False
    return "Expression tree is too large" in str(error) or getattr(error.__cause__, "sqlstate", "") == "54001"


def _was_stopped(error: OperationalError) -> bool:
    # psycopg's QueryCanceled, sqlite3's SQLITE_INTERRUPT.
    cause = error.__cause__
    return getattr(cause, "sqlstate", "") == "57014" or getattr(cause, "sqlite_errorname", "") == "SQLITE_INTERRUPT"


def bound_statements(connection: BaseDatabaseWrapper, seconds: float = STATEMENT_SECONDS, **_: Any) -> None:
    """Limit statements on a new connection to `seconds`, and switch off PostgreSQL's JIT."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            # jit: the queries of pages finish before they are compiled (docs/adr/0078).
            cursor.execute(
                "SELECT set_config('statement_timeout', %s, false), set_config('jit', 'off', false)",
                [str(int(seconds * 1000))],
            )
        return
    limit = _Limit(seconds)
    # Django keeps the wrappers when it makes a connection anew, every ten minutes: more and more would end in a RecursionError.
    others = (each for each in connection.execute_wrappers if not isinstance(each, _Limit))
    connection.execute_wrappers[:] = [limit, *others]
    connection.connection.set_progress_handler(limit.is_over, _STEPS)


class _Limit:
    """The time limit of a connection's statements on SQLite: Django calls it around each of them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds

    def __call__(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        """Execute a statement, whose time begins now."""
        self._until = time.monotonic() + self._seconds
        return execute(*arguments)

    def is_over(self) -> bool:
        """Return whether the statement's time is up: then SQLite ends it."""
        return time.monotonic() > self._until


def watch_statements() -> None:
    """Limit the statements of this process if it serves pages: tasks and commands have no limit."""
    if settings.BERTH.role == "admin":
        connection_created.connect(bound_statements)
