"""The verbs over HTTP: who may call, one call of a handler, encode. And the probes, which are views of Django's."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views import View
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from scheduler.decisions.spool import SpoolFullError
from scheduler.extender.callers import Callers
from scheduler.extender.identity import ONLY_PROBES, caller_of, is_within_rate
from scheduler.extender.origin import refusal_of
from scheduler.extender.request.body_limit import BODY
from scheduler.extender.request.wire import Sent, WireError, encode_error, receive
from scheduler.extender.runtime import Runtime
from scheduler.extender.verbs.context import NotReadyError
from scheduler.extender.verbs.handlers import Reply, VerbHandlers
from scheduler.http_server.hosts import NOT_OURS, may_probe
from scheduler.metrics import CALLS, SECONDS
from scheduler.serving.pace import CALLS_IN_HAND

logger = logging.getLogger("berth.extender")

FAULT = "Berth could not decide because of a fault of its own; its log says more"
NO_ROOM = "Berth has no room to record its Decisions"
NO_CALLER = "the client certificate is not one that may call"
NOT_HERE = "only callers on this machine are allowed without a client certificate"
TOO_MANY = "too many calls; BERTH_EXTENDER_CALLS_PER_SECOND sets the limit"
# Names the Decision in the history. It isn't in `Error`: a text that varies makes kube-scheduler try again at once.
DECISION_HEADER = "Berth-Decision"

# The verbs whose result has a member for an error. kube-scheduler takes any other status than 200 for one as well.
HAS_ERROR = frozenset({"filter", "bind"})
_JSON = "application/json"
_CHUNK = 1 << 20
_INGEST_FACTOR = 4


class Answer(NamedTuple):
    """What is sent back: the fields of the head with `Content-Length` among them, and the body in pieces.

    Without its length kube-scheduler's transport can't tell where an answer ends.
    """

    status: int
    fields: list[tuple[str, str]]
    pieces: list[bytes]


class _Refusal(NamedTuple):
    """Why a call isn't answered: the status, and a text that is for whoever tries by hand."""

    status: int
    message: str


def _refusal_of(environ: Mapping[str, Any], caller: str | None) -> _Refusal | None:
    """Return why a call isn't even read; None for one that is. `caller` is as `caller_of` names it."""
    if environ.get(ONLY_PROBES):
        return _Refusal(404, "only probes are served here")
    if caller is None:
        return _Refusal(403, NO_CALLER if settings.BERTH.extender_tls_cert_file else NOT_HERE)
    if message := refusal_of(environ):
        return _Refusal(403, message)
    if not is_within_rate(caller, environ):
        return _Refusal(429, TOO_MANY)
    if (method := environ["REQUEST_METHOD"]) != "POST":
        return _Refusal(405, f'Method "{method}" not allowed.')
    # Any other type, or none, is what a web page can send.
    content_type = environ.get("CONTENT_TYPE", "")
    if content_type != _JSON and content_type.partition(";")[0].strip().lower() != _JSON:
        return _Refusal(415, f'Unsupported media type "{content_type}" in request.')
    return None


def _read(environ: Mapping[str, Any], read: Callable[[int], bytes]) -> Sent | None:
    """Return the body; None for one that is over the limit.

    The extender's worker has read it already. Elsewhere it is read here: one over the limit is thrown away first,
    within reason, for a client that is still writing would see a broken connection and not the answer.
    """
    if BODY in environ:
        sent: Sent | None = environ[BODY]
        return sent
    limit = settings.BERTH.extender_max_body_bytes
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length <= limit and len(body := read(limit + 1)) <= limit:
        return receive(body)
    left = _INGEST_FACTOR * limit
    while left > 0 and (chunk := read(_CHUNK)):
        left -= len(chunk)
    return None


class Verb:
    """A verb of the extender, from a request's environ to what is sent back. `name` is the method of `handlers` that answers.

    There is no view around it: what Django and DRF do for each request is a fifth of what a call of few nodes takes.
    """

    def __init__(self, name: str, handlers: VerbHandlers, callers: Callers | None = None) -> None:
        self.name = name
        self._handle: Callable[[Sent], Reply] = getattr(handlers, name)
        self._callers = callers
        self._seconds = SECONDS.labels(name)
        self._answered = CALLS.labels(name, "answered")

    def answer(self, environ: Mapping[str, Any], read: Callable[[int], bytes]) -> Answer:
        """Answer a call. `read` gives so many bytes of its body, where the server hasn't read it."""
        caller = caller_of(environ)
        if refusal := _refusal_of(environ, caller):
            return self._refuse(*refusal)
        body = _read(environ, read)
        if body is None:
            limit = settings.BERTH.extender_max_body_bytes
            message = f"the body is larger than {limit} bytes; BERTH_EXTENDER_MAX_BODY_BYTES sets the limit"
            return self._refuse(413, message)
        started = time.perf_counter()
        if self._callers is not None:
            address = str(environ.get("REMOTE_ADDR", ""))
            self._callers.note(
                self.name, caller if caller and settings.BERTH.extender_tls_cert_file else address, address
            )
        code, reply, outcome = self._ask(body)
        seconds = time.perf_counter() - started
        self._seconds.observe(seconds)
        (self._answered if outcome == "answered" else CALLS.labels(self.name, outcome)).inc()
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s %s in %.6f s", self.name, outcome, seconds, extra={"decision": reply.decision})
        return _answer(code, reply.body, ((DECISION_HEADER, reply.decision),) if reply.decision else ())

    def _ask(self, body: Sent) -> tuple[int, Reply, str]:
        try:
            with CALLS_IN_HAND:
                return 200, self._handle(body), "answered"
        except WireError as error:
            return 400, Reply(encode_error(str(error))), "refused"
        except NotReadyError as error:
            logger.warning("%s not answered: %s", self.name, error, extra={"decision": error.decision})
            return self._fault_status(503), Reply(encode_error(str(error)), error.decision), "not_ready"
        except SpoolFullError as error:
            logger.error("%s is refused: the Decision can't be recorded: %s", self.name, error)  # noqa: TRY400 - no fault
            return self._fault_status(503), Reply(encode_error(NO_ROOM)), "not_ready"
        except Exception:
            logger.exception("%s failed", self.name)
            return self._fault_status(500), Reply(encode_error(FAULT)), "failed"

    def _fault_status(self, status: int) -> int:
        return 200 if self.name in HAS_ERROR else status

    def _refuse(self, status: int, message: str) -> Answer:
        CALLS.labels(self.name, "refused").inc()
        more = (("Allow", "POST"),) if status == HTTPStatus.METHOD_NOT_ALLOWED else ()
        return _answer(status, encode_error(message), more)


def _answer(status: int, body: bytes | list[bytes], more: Iterable[tuple[str, str]]) -> Answer:
    pieces = [body] if isinstance(body, bytes) else body
    return Answer(status, [("Content-Type", _JSON), ("Content-Length", str(sum(map(len, pieces)))), *more], pieces)


def view_of(verb: Verb) -> Callable[[HttpRequest], HttpResponse]:
    """Return the verb as a view, for what comes by Django's handler: a path with a slash at its end, or another server."""

    def view(request: HttpRequest) -> HttpResponse:
        status, fields, pieces = verb.answer(request.META, request.read)
        return HttpResponse(b"".join(pieces), status=status, headers=dict(fields))

    return view


class HealthView(View):
    """Liveness, readiness and metrics."""

    runtime: Runtime | None = None
    probe = ""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Answer the probe, but under no name that a web page can have."""
        if not may_probe(request.META.get("HTTP_HOST"), settings.BERTH.extender_hosts):
            return HttpResponse(NOT_OURS, status=403, content_type="text/plain")
        if self.probe == "metrics":
            return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)
        missing = self.runtime.unready() if self.probe == "readyz" and self.runtime else []
        if missing:
            return HttpResponse(f"waiting for: {', '.join(missing)}\n", status=503, content_type="text/plain")
        return HttpResponse("ok\n", content_type="text/plain")
