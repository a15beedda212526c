"""The verbs over HTTP: decode, one call, encode. DRF with one parser, one renderer, and nothing in between."""

import logging
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse
from django.views import View
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from rest_framework import exceptions, status
from rest_framework.views import APIView

from scheduler.decisions.spool import SpoolFullError
from scheduler.extender.callers import Callers
from scheduler.extender.identity import AllowedCaller, CallRate, caller_of
from scheduler.extender.origin import FromNoPage
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
# Names the Decision in the history. It isn't in `Error`: a text that varies makes kube-scheduler try again at once.
DECISION_HEADER = "Berth-Decision"

# The verbs whose result has a member for an error. kube-scheduler takes any other status than 200 for one as well.
HAS_ERROR = frozenset({"filter", "bind"})
_SECONDS = {verb: SECONDS.labels(verb) for verb in ("filter", "prioritize", "bind", "preempt")}
# Shown from 0 on, so that an alert rings at the first one: Prometheus sees no rise in a counter that begins above 0.
_OUTCOMES = ("answered", "refused", "not_ready", "failed")
_CALLS = {(verb, outcome): CALLS.labels(verb, outcome) for verb in _SECONDS for outcome in _OUTCOMES}
_JSON = "application/json"
_CHUNK = 1 << 20
_INGEST_FACTOR = 4


class BodyTooLarge(exceptions.APIException):
    """The body is over the limit."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = "the body is too large"


def _body_of(request: HttpRequest) -> Sent:
    """Return the body, refusing one that is over the limit.

    The extender's worker has read it already. Elsewhere it is read here: one over the limit is thrown away first,
    within reason, for a client that is still writing would see a broken connection and not the answer.

    Raises:
        UnsupportedMediaType: it isn't said to be JSON. Any other type, or none, is what a web page can send.
        BodyTooLarge: it is over the limit.
    """
    content_type = request.META.get("CONTENT_TYPE", "")
    if content_type != _JSON and content_type.partition(";")[0].strip().lower() != _JSON:
        raise exceptions.UnsupportedMediaType(content_type)
    limit = settings.BERTH.extender_max_body_bytes
    if BODY in request.META:
        sent: Sent | None = request.META[BODY]
        if sent is not None:
            return sent
    else:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
        if length <= limit and len(body := request.read(limit + 1)) <= limit:
            return receive(body)
        _throw_away(request, _INGEST_FACTOR * limit)
    message = f"the body is larger than {limit} bytes; BERTH_EXTENDER_MAX_BODY_BYTES sets the limit"
    raise BodyTooLarge(message)


def _throw_away(request: HttpRequest, most: int) -> None:
    while most > 0 and (chunk := request.read(_CHUNK)):
        most -= len(chunk)


def _message(data: Any) -> str:
    detail = data.get("detail", data) if isinstance(data, dict) else data
    return str(detail)


class VerbView(APIView):
    """A verb. `answers` is the process's; `verb` names the method of it."""

    # Of OPTIONS, REST framework would make an answer that describes the class.
    http_method_names = ("post",)
    permission_classes = (AllowedCaller, FromNoPage)
    throttle_classes = (CallRate,)
    answers: VerbHandlers | None = None
    callers: Callers | None = None
    verb = ""

    @property
    def default_response_headers(self) -> dict[str, str]:
        """None: DRF would look at all methods of the view for each answer, to say which it has."""
        return {}

    def initialize_request(self, request: HttpRequest, *_: Any, **__: Any) -> Any:
        """Return the request as it is: users, parsers to choose from and renderers, which DRF's own brings, are no use here."""
        return request

    def initial(self, request: Any, *_: Any, **__: Any) -> None:
        """Ask who calls and how often; there is nothing to negotiate, and the connection says who calls, see `caller_of`."""
        self.check_permissions(request)
        self.check_throttles(request)

    def permission_denied(self, request: Any, message: str | None = None, code: str | None = None) -> NoReturn:
        """Refuse, whoever calls."""
        raise exceptions.PermissionDenied(message, code)

    def post(self, request: HttpRequest) -> HttpResponse:
        """Answer the call."""
        started = time.perf_counter()
        if self.callers is not None:
            address = str(request.META.get("REMOTE_ADDR", ""))
            identity = caller_of(request.META) if settings.BERTH.extender_tls_cert_file else ""
            self.callers.note(self.verb, identity or address, address)
        code, reply, outcome = self._answer(_body_of(request))
        seconds = time.perf_counter() - started
        _SECONDS[self.verb].observe(seconds)
        _CALLS[self.verb, outcome].inc()
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s %s in %.6f s", self.verb, outcome, seconds, extra={"decision": reply.decision})
        answer = _json(reply.body, code)
        if reply.decision:
            answer[DECISION_HEADER] = reply.decision
        return answer

    def _answer(self, body: Sent) -> tuple[int, Reply, str]:
        try:
            with CALLS_IN_HAND:
                return 200, getattr(self.answers, self.verb)(body), "answered"
        except WireError as error:
            return 400, Reply(encode_error(str(error))), "refused"
        except NotReadyError as error:
            logger.warning("%s not answered: %s", self.verb, error, extra={"decision": error.decision})
            return (
                (200 if self.verb in HAS_ERROR else 503),
                Reply(encode_error(str(error)), error.decision),
                "not_ready",
            )
        except SpoolFullError as error:
            logger.error("%s is refused: the Decision can't be recorded: %s", self.verb, error)  # noqa: TRY400 - no fault
            return (200 if self.verb in HAS_ERROR else 503), Reply(encode_error(NO_ROOM)), "not_ready"
        except Exception:
            logger.exception("%s failed", self.verb)
            return (200 if self.verb in HAS_ERROR else 500), Reply(encode_error(FAULT)), "failed"

    def handle_exception(self, exc: Exception) -> Any:
        """Count what DRF refuses (method, content type, size, caller) before it answers."""
        _CALLS[self.verb, "refused"].inc()
        refused = super().handle_exception(exc)
        answer = _json(encode_error(_message(refused.data)), refused.status_code)
        if isinstance(exc, exceptions.MethodNotAllowed):
            answer["Allow"] = ", ".join(self.allowed_methods)
        return answer


class _Call(WSGIRequest):
    """The request of a call: nothing of what Django works out of an environ for other views."""

    def __init__(self, environ: dict[str, Any]) -> None:
        self.environ = self.META = environ
        self.method = environ["REQUEST_METHOD"]
        self.path = self.path_info = environ["PATH_INFO"]


def request_of(environ: dict[str, Any]) -> WSGIRequest:
    """Return what a verb is asked, with the environ as the extender's worker has made it, or another server."""
    return _Call(environ) if BODY in environ else WSGIRequest(environ)


class Pieces(HttpResponse):
    """An answer in pieces that nobody puts together, unless its `content` is asked for."""

    def __init__(self, pieces: list[bytes], **more: Any) -> None:
        self._pieces = pieces
        super().__init__(**more)

    @property
    def content(self) -> bytes:
        """The whole."""
        return b"".join(self._pieces)

    @content.setter
    def content(self, value: object) -> None:
        """Take no notice of the empty content that HttpResponse begins with."""

    def __iter__(self) -> Iterator[bytes]:
        """Return the pieces."""
        return iter(self._pieces)


def _json(body: bytes | list[bytes], code: int) -> HttpResponse:
    """Make an answer of known length: without it kube-scheduler's transport can't tell where the answer ends."""
    pieces = [body] if isinstance(body, bytes) else body
    length = sum(map(len, pieces))
    return Pieces(pieces, status=code, content_type="application/json", headers={"Content-Length": str(length)})


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
