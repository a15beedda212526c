"""The extender's WSGI application. Importing it starts the process's runtime, so it is imported in the worker only."""

import atexit
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
os.environ.setdefault("BERTH_ROLE", "extender")

from django.core import signals
from django.core.handlers.exception import convert_exception_to_response
from django.core.handlers.wsgi import WSGIRequest
from django.db import close_old_connections, reset_queries
from django.http.response import HttpResponseBase

from scheduler.http_server.application import make_application

_django = make_application()
# Calls never use the database; threads that do manage their own connection. Django's handling of connections around
# each request takes a fifth of its time for a call.
for receiver in (close_old_connections, reset_queries):
    signals.request_started.disconnect(receiver)
signals.request_finished.disconnect(close_old_connections)

from scheduler.extender.urls import runtime, verb_prefix, verb_views  # noqa: E402 - needs the apps that were just loaded
from scheduler.extender.views import request_of  # noqa: E402 - as above

_views: dict[str, Callable[[WSGIRequest], HttpResponseBase]] = {
    f"/{verb_prefix}{verb}": convert_exception_to_response(view)  # type: ignore[misc] # the views aren't asynchronous
    for verb, view in verb_views.items()
}


class _Answer(list[bytes]):
    """The pieces of an answer. The server closes it when they are sent: shadows are evaluated from then on."""

    def __init__(self, pieces: Iterable[bytes], end: Callable[[], None]) -> None:
        super().__init__(pieces)
        self.close = end


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request: a verb's directly by its view, any other by Django's handler.

    A verb needs nothing that the handler does around a view: there is no middleware and no path to resolve, and
    nothing listens to its signals.
    """
    view = _views.get(environ["PATH_INFO"])
    if view is None or environ["REQUEST_METHOD"] != "POST":
        answer: Iterable[bytes] = _django(environ, start_response)
        return answer
    call = runtime.shadows.begin()
    response = view(request_of(environ))
    start_response(f"{response.status_code} {response.reason_phrase}", list(response.items()))
    return _Answer(response, partial(runtime.shadows.end, call))


runtime.start()
atexit.register(runtime.stop)
