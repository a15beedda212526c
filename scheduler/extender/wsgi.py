"""The extender's WSGI application. Importing it starts the process's runtime, so it is imported in the worker only."""

import atexit
import os
from collections.abc import Callable, Iterable
from functools import partial
from http.client import responses
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
os.environ.setdefault("BERTH_ROLE", "extender")

from django.core import signals
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, reset_queries

# Status lines, by their numbers.
_STATUS = {number: f"{number} {phrase}" for number, phrase in responses.items()}

_django = get_wsgi_application()
# Calls never use the database; threads that do look after their connection. What Django does about connections around
# each request takes a fifth of its time for a call.
for receiver in (close_old_connections, reset_queries):
    signals.request_started.disconnect(receiver)
signals.request_finished.disconnect(close_old_connections)

from scheduler.extender.request.body_limit import BODY  # noqa: E402 - needs the apps that were just loaded
from scheduler.extender.urls import runtime, verb_prefix, verbs  # noqa: E402 - as above

_verbs = {f"/{verb_prefix}{verb.name}": verb for verb in verbs}


class _Pieces(list[bytes]):
    """The pieces of an answer. The server closes it when they are sent: shadows are decided from then on."""

    def __init__(self, pieces: Iterable[bytes], end: Callable[[], None]) -> None:
        super().__init__(pieces)
        self.close = end


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request: a verb's at once, where the server has read its body, and any other by Django's handler.

    A verb needs nothing of what the handler does around a view: there is no middleware, no path to be resolved, and
    nobody listens to its signals.
    """
    verb = _verbs.get(environ["PATH_INFO"])
    if verb is None or BODY not in environ:
        answer: Iterable[bytes] = _django(environ, start_response)
        return answer
    call = runtime.shadows.begin()
    end = partial(runtime.shadows.end, call)
    try:
        status, fields, pieces = verb.answer(environ, environ["wsgi.input"].read)
    except BaseException:
        end()
        raise
    start_response(_STATUS[status], fields)
    return _Pieces(pieces, end)


runtime.start()
atexit.register(runtime.stop)
