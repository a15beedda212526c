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
# The response header with the Decision's id. The id isn't in `Error`: a text that varies makes kube-scheduler retry at once.
DECISION_HEADER = "Berth-Decision"

# The verbs whose result has a field for an error. kube-scheduler treats any status but 200 as an error as well.
HAS_ERROR = frozenset({"filter", "bind"})
_SECONDS = {verb: SECONDS.labels(verb) for verb in ("filter", "prioritize", "bind", "preempt")}
# Exported from 0 on, so that an alert fires at the first one: Prometheus sees no increase in a counter that begins above 0.
_OUTCOMES = ("answered", "refused", "not_ready", "failed")
_CALLS = {(verb, outcome): CALLS.labels(verb, outcome) for verb in _SECONDS for outcome in _OUTCOMES}
_JSON = "application/json"
_NOT_COMPRESSED = frozenset({"", "identity"})
_CHUNK = 1 << 20
_INGEST_FACTOR = 4


class BodyTooLarge(exceptions.APIException):
    """The body is over the limit."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = "the body is too large"


def _body_of(request: HttpRequest) -> Sent:
    """Return the body, refusing one that is over the limit.

    The extender's worker has read the body already. Under other servers it is read here: a body over the limit is first read
    and discarded, up to a bound, because a client that is still writing would see a broken connection and not the answer.

    Raises:
        UnsupportedMediaType: the Content-Type isn't JSON, because a web page can send any other type, or none; or the body is compressed.
        BodyTooLarge: the body is over the limit.
    """
    content_type = request.META.get("CONTENT_TYPE", "")
    if content_type != _JSON and content_type.partition(";")[0].strip().lower() != _JSON:
        raise exceptions.UnsupportedMediaType(content_type)
    if request.META.get("HTTP_CONTENT_ENCODING", "").lower() not in _NOT_COMPRESSED:
        message = "a body with Content-Encoding isn't read: send it without compression"
        raise exceptions.UnsupportedMediaType(content_type, message)
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


class VerbView(APIView):
    """A verb. `answers` is the process's VerbHandlers; `verb` names its method."""

    # To OPTIONS, REST framework would answer with a description of the class.
    http_method_names = ("post",)
    permission_classes = (AllowedCaller, FromNoPage)
    throttle_classes = (CallRate,)
    answers: VerbHandlers | None = None
    callers: Callers | None = None
    verb = ""

    @property
    def default_response_headers(self) -> dict[str, str]:
        """None: for each answer, DRF would look through the view's methods to list the allowed ones."""
        return {}

    def initialize_request(self, request: HttpRequest, *_: Any, **__: Any) -> Any:
        """Return Django's request: the users, parsers and renderers of DRF's own Request are of no use here."""
        return request

    def initial(self, request: Any, *_: Any, **__: Any) -> None:
        """Check permissions and throttles only: there is nothing to negotiate, and the connection identifies the caller."""
        self.check_permissions(request)
        self.check_throttles(request)

    def permission_denied(self, request: Any, message: str | None = None, code: str | None = None) -> NoReturn:
        """Refuse any caller in the same way."""
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
            more = {"decision": error.decision, "outcome": "not_ready"}
            logger.warning("%s not answered: %s", self.verb, error, extra=more)
            return (
                (200 if self.verb in HAS_ERROR else 503),
                Reply(encode_error(str(error)), error.decision),
                "not_ready",
            )
        except SpoolFullError as error:
            # An error, but no fault of the code, which would need a traceback.
            logger.error(  # noqa: TRY400
                "%s answers an error: the Decision can't be recorded: %s",
                self.verb,
                error,
                extra={"outcome": "not_ready"},
            )
            return (200 if self.verb in HAS_ERROR else 503), Reply(encode_error(NO_ROOM)), "not_ready"
        except Exception:
            logger.exception("%s failed", self.verb)
            return (200 if self.verb in HAS_ERROR else 500), Reply(encode_error(FAULT)), "failed"

    def handle_exception(self, exc: Exception) -> Any:
        """Count what DRF refuses (method, content type, size, caller) before it answers."""
        _CALLS[self.verb, "refused"].inc()
        refused = super().handle_exception(exc)
        answer = _json(encode_error(str(refused.data["detail"])), refused.status_code)
        if isinstance(exc, exceptions.MethodNotAllowed):
            answer["Allow"] = ", ".join(self.allowed_methods)
        return answer


class _Call(WSGIRequest):
    """The request of a call, without the attributes that Django derives from an environ for other views."""

    def __init__(self, environ: dict[str, Any]) -> None:
        self.environ = self.META = environ
        self.method = environ["REQUEST_METHOD"]
        self.path = self.path_info = environ["PATH_INFO"]


def request_of(environ: dict[str, Any]) -> WSGIRequest:
    """Return the request to a verb; the environ is from the extender's worker or another server."""
    return _Call(environ) if BODY in environ else WSGIRequest(environ)


class Pieces(HttpResponse):
    """An answer in pieces that are joined only when its `content` is read."""

    def __init__(self, pieces: list[bytes], **more: Any) -> None:
        self._pieces = pieces
        super().__init__(**more)

    @property
    def content(self) -> bytes:
        """The whole body."""
        return b"".join(self._pieces)

    @content.setter
    def content(self, value: object) -> None:
        """Ignore the empty content that HttpResponse begins with."""

    def __iter__(self) -> Iterator[bytes]:
        """Return the pieces."""
        return iter(self._pieces)


def _json(body: bytes | list[bytes], code: int) -> HttpResponse:
    """Make an answer of known length: without it kube-scheduler's transport can't tell where the answer ends."""
    pieces = [body] if isinstance(body, bytes) else body
    length = sum(map(len, pieces))
    return Pieces(pieces, status=code, content_type=_JSON, headers={"Content-Length": str(length)})


class HealthView(View):
    """Liveness, readiness and metrics."""

    runtime: Runtime | None = None
    probe = ""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Answer the probe, unless its Host is a name that a web page can have."""
        if not may_probe(request.META.get("HTTP_HOST"), settings.BERTH.extender_hosts):
            return HttpResponse(NOT_OURS, status=403, content_type="text/plain")
        if self.probe == "metrics":
            return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)
        missing = self.runtime.unready() if self.probe == "readyz" and self.runtime else []
        if missing:
            return HttpResponse(f"waiting for: {', '.join(missing)}\n", status=503, content_type="text/plain")
        return HttpResponse("ok\n", content_type="text/plain")
