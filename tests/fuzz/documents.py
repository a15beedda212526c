"""What reads heads, bodies, documents and forms of strangers, for the fuzzers: each reads a text as far as its door would, or refuses it."""

from collections.abc import Callable
from io import BytesIO
from typing import NamedTuple

from django.core.exceptions import SuspiciousOperation
from django.core.handlers.wsgi import WSGIRequest
from django.http import QueryDict
from django.http.multipartparser import MultiPartParserError
from rest_framework.exceptions import APIException

from policies.api.parsers import StrictJSONParser
from policies.checking.jobs import JOBS
from policies.engine import quantity
from policies.engine.errors import QuantityError, RuleSetError
from policies.manifests import read_documents
from scheduler.http_server.body import Budget, Chunks, WholeBody
from scheduler.http_server.head import END, HeadLimits, RefusedError, parse, refuse_unfinished

YAML = b"""apiVersion: berth/v1
kind: RuleSet
metadata: {name: web}
spec:
  params: &a {teams: [x, y]}
  filters:
  - {name: team, expression: "node.metadata.name != 'x'", reason: no, onError: pass}
  - builtin: PodFitsResources
  scores: [{name: s, expression: "1", bounds: [0, 2.5]}]
"""
JSON = b'{"apiVersion":"berth/v1","kind":"Assignment","metadata":{"name":"a"},"spec":{"ruleSet":"web","order":1}}'

HEAD = (
    b"POST /filter?a=%41 HTTP/1.1\r\nHost: [::1]:8010\r\nContent-Type: application/json\r\nContent-Length: 12\r\n"
    b"Connection: keep-alive\r\nExpect: 100-continue\r\n\r\n"
)
CHUNKS = b"5;a=b\r\nhello\r\n00a\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
FORM = b"csrfmiddlewaretoken=x&filters-TOTAL_FORMS=1&filters-INITIAL_FORMS=0&filters-0-name=team&reason=a+%C3%A4"
PARTS = (
    b'--b\r\nContent-Disposition: form-data; name="reason"\r\n\r\nbecause\r\n'
    b'--b\r\nContent-Disposition: form-data; name="n"\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ==\r\n--b--\r\n'
)
# As the extender's process is started (scheduler.extender.server.gunicorn_conf).
LIMITS = HeadLimits(line=2_048, fields=32, field=4_096)
MOST_BODY_BYTES = 1_000_000


class TextReader(NamedTuple):
    """A name, what reads, texts that it reads, and the most bytes of memory for each byte of a text.

    A node of PyYAML takes 900, JSON's dearest value a fifth of it, a form's field of two bytes 300.
    """

    name: str
    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    bytes_for_each: int = 150


def _read_file(text: bytes) -> object:
    return [found.document for found in read_documents(text.decode(errors="replace"), "file")]


def _check_json(text: bytes) -> object:
    return JOBS["faults_of"](StrictJSONParser().parse(BytesIO(text)))


def _read_quantity(text: bytes) -> object:
    return quantity.parse(text.decode(errors="replace"))


def _read_query(text: bytes) -> object:
    return QueryDict(text).dict()


def _read_head(text: bytes) -> object:
    head, end, _ = text.partition(END)
    refuse_unfinished(head, LIMITS)
    return parse(head, LIMITS) if end else None


def _read_chunks(text: bytes) -> object:
    chunks, body = Chunks(), WholeBody(Budget(2 * MOST_BODY_BYTES), None, most=MOST_BODY_BYTES)
    # As bytes come: what may be read at once, and a cut anywhere.
    for start in range(0, len(text), 16_384):
        if chunks.take(text[start : start + 16_384], body):
            break
    environ: dict[str, object] = {}
    body.end(environ)
    body.close()
    return environ


def _read_form(text: bytes) -> object:
    is_parts = text.startswith(b"--")
    request = WSGIRequest(
        {
            "REQUEST_METHOD": "POST",
            "CONTENT_TYPE": "multipart/form-data; boundary=b" if is_parts else "application/x-www-form-urlencoded",
            "CONTENT_LENGTH": str(len(text)),
            "wsgi.input": BytesIO(text),
        }
    )
    return request.POST.dict(), request.FILES


READERS = (
    TextReader("head", _read_head, (HEAD,)),
    TextReader("body in chunks", _read_chunks, (CHUNKS,)),
    TextReader("form", _read_form, (FORM, PARTS)),
    TextReader("file", _read_file, (YAML, JSON), 900),
    TextReader("JSON body", _check_json, (JSON,), 900),
    TextReader("quantity", _read_quantity, (b"1.5Gi", b"-250m", b"2e3")),
    TextReader("query string", _read_query, (b"verb=bind&pod_name=web&limit=20&refused=true",)),
)


REFUSALS = (RuleSetError, QuantityError, SuspiciousOperation, RefusedError, MultiPartParserError, APIException)


def read_or_refuse(reader: TextReader, text: bytes) -> str:
    """Read a text; returns the refusal, empty when it was read. Any other exception is a fault."""
    try:
        reader.read(text)
    except REFUSALS as error:
        return str(error)
    return ""
