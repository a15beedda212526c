"""The verbs over HTTP: decode, one call, encode. DRF with one parser, one renderer, and nothing in between."""

import logging
import time
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views import View
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from rest_framework import exceptions, status
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
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
from scheduler.metrics import CALLS, SECONDS
from scheduler.serving.pace import CALLS_IN_HAND

logger = logging.getLogger("berth.extender")

FAULT = "Berth could not decide because of a fault of its own; its log says more"
NO_ROOM = "Berth has no room to record its Decisions"
# Names the Decision in the history. It isn't in `Error`: a text that varies makes kube-scheduler try again at once.
DECISION_HEADER = "Berth-Decision"

# The verbs whose result has a member for an error. kube-scheduler takes any other status than 200 for one as well.
HAS_ERROR = frozenset({"filter", "bind"})
_CHUNK = 1 << 20
_INGEST_FACTOR = 4


class BodyTooLarge(exceptions.APIException):
    """The body is over the limit."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = "the body is too large"


class RawJSONParser(BaseParser):
    """Takes the body as it is. The verbs decode it themselves, once."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the body, refusing one that is over the limit.

        The extender's worker has read it already. Elsewhere it is read here: one over the limit is thrown away first,
        within reason, for a client that is still writing would see a broken connection and not the answer.
        """
        del media_type, parser_context
        limit = settings.BERTH.extender_max_body_bytes
        if BODY in stream.META:
            sent = stream.META[BODY]
            if sent is not None:
                return sent
        else:
            length = int(stream.META.get("CONTENT_LENGTH") or 0)
            if length <= limit and len(body := stream.read(limit + 1)) <= limit:
                return receive(body)
            _throw_away(stream, _INGEST_FACTOR * limit)
        message = f"the body is larger than {limit} bytes; BERTH_EXTENDER_MAX_BODY_BYTES sets the limit"
        raise BodyTooLarge(message)


def _throw_away(stream: Any, most: int) -> None:
    while most > 0 and (chunk := stream.read(_CHUNK)):
        most -= len(chunk)


class RawJSONRenderer(BaseRenderer):
    """Names the format. The verbs write their answers themselves."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """Write an error."""
        return encode_error(_message(data))


def _message(data: Any) -> str:
    detail = data.get("detail", data) if isinstance(data, dict) else data
    return str(detail)


class FixedNegotiation(BaseContentNegotiation):
    """One parser by content type, one renderer whatever is asked for: kube-scheduler sends no Accept."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        """Return the parser for JSON, and for nothing else: any other type, or none, is what a web page can send."""
        content_type = (request.content_type or "").partition(";")[0].strip().lower()
        return parsers[0] if content_type == parsers[0].media_type else None

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        """Return the renderer."""
        del request, format_suffix
        return renderers[0], renderers[0].media_type


class VerbView(APIView):
    """A verb. `answers` is the process's; `verb` names the method of it."""

    authentication_classes = ()
    permission_classes = (AllowedCaller, FromNoPage)
    throttle_classes = (CallRate,)
    parser_classes = (RawJSONParser,)
    renderer_classes = (RawJSONRenderer,)
    content_negotiation_class = FixedNegotiation
    answers: VerbHandlers | None = None
    callers: Callers | None = None
    verb = ""

    @property
    def default_response_headers(self) -> dict[str, str]:
        """None: DRF would look at all methods of the view for each answer, to say which it has."""
        return {}

    def perform_authentication(self, request: Request) -> None:
        """Do nothing: the connection says who calls, see `caller_of`."""

    def post(self, request: Request) -> HttpResponse:
        """Answer the call."""
        started = time.perf_counter()
        if self.callers is not None:
            address = str(request.META.get("REMOTE_ADDR", ""))
            identity = caller_of(request.META) if settings.BERTH.extender_tls_cert_file else ""
            self.callers.note(self.verb, identity or address, address)
        code, reply, outcome = self._answer(request.data)
        SECONDS.labels(self.verb).observe(time.perf_counter() - started)
        CALLS.labels(self.verb, outcome).inc()
        answer = _json(reply.body, code)
        if reply.decision:
            answer[DECISION_HEADER] = reply.decision
        return answer

    def _answer(self, body: Any) -> tuple[int, Reply, str]:
        try:
            with CALLS_IN_HAND:
                return 200, getattr(self.answers, self.verb)(body if isinstance(body, Sent) else b""), "answered"
        except WireError as error:
            return 400, Reply(encode_error(str(error))), "refused"
        except NotReadyError as error:
            logger.warning("%s not answered, Decision %s: %s", self.verb, error.decision or "none", error)
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
        CALLS.labels(self.verb, "refused").inc()
        refused = super().handle_exception(exc)
        answer = _json(encode_error(_message(refused.data)), refused.status_code)
        if isinstance(exc, exceptions.MethodNotAllowed):
            answer["Allow"] = ", ".join(self.allowed_methods)
        return answer


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
        """Answer the probe."""
        del request
        if self.probe == "metrics":
            return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)
        missing = self.runtime.unready() if self.probe == "readyz" and self.runtime else []
        if missing:
            return HttpResponse(f"waiting for: {', '.join(missing)}\n", status=503, content_type="text/plain")
        return HttpResponse("ok\n", content_type="text/plain")
