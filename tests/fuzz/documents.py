"""What reads documents and forms of people, for the fuzzers: each reads a text as far as checking would, or refuses it."""

from collections.abc import Callable
from typing import NamedTuple

from django.core.exceptions import SuspiciousOperation
from django.http import QueryDict

from policies.checking.jobs import JOBS
from policies.engine.errors import QuantityError, RuleSetError
from policies.engine.quantity import parse
from policies.manifests import read_documents

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


class TextReader(NamedTuple):
    """A name, what reads, and texts that it reads."""

    name: str
    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def _read_file(text: bytes) -> object:
    return [found.document for found in read_documents(text.decode(errors="replace"), "file")]


def _check_json(text: bytes) -> object:
    return JOBS["faults_of_json"](text)


def _read_quantity(text: bytes) -> object:
    return parse(text.decode(errors="replace"))


def _read_query(text: bytes) -> object:
    return QueryDict(text).dict()


READERS = (
    TextReader("file", _read_file, (YAML, JSON)),
    TextReader("JSON body", _check_json, (JSON,)),
    TextReader("quantity", _read_quantity, (b"1.5Gi", b"-250m", b"2e3")),
    TextReader("query string", _read_query, (b"verb=bind&pod_name=web&limit=20&refused=true",)),
)


def read_or_refuse(reader: TextReader, text: bytes) -> str:
    """Read a text; returns the refusal, empty when it was read. Any other exception is a fault."""
    try:
        reader.read(text)
    except (RuleSetError, QuantityError, SuspiciousOperation) as error:
        return str(error)
    return ""
