"""REST's JSON parser: it refuses ambiguous and too deeply nested documents."""

import json
from collections import Counter
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import ParseError, UnsupportedMediaType
from rest_framework.parsers import JSONParser

from policies.manifests import MAX_NESTING

_TOO_DEEP = f"it is nested too deeply: lists and objects stand at most {MAX_NESTING} deep inside each other"


class StrictJSONParser(JSONParser):
    """Refuses what JSON parsers read in different ways: duplicate members, NaN and Infinity, lone surrogates."""

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the document.

        Raises:
            RequestDataTooBig: it is larger than DATA_UPLOAD_MAX_MEMORY_SIZE, which DRF's own parser reads past.
            ParseError: it can't be read, or is ambiguous; the text says why.
            UnsupportedMediaType: it is compressed.
        """
        coding = parser_context["request"].headers.get("Content-Encoding", "") if parser_context else ""
        if coding.lower() not in {"", "identity"}:
            message = f"A body with Content-Encoding: {coding[:40]} isn't read: send it without compression."
            raise UnsupportedMediaType(media_type or "", message)
        body = stream.read(settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)
        if len(body) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise RequestDataTooBig
        try:
            text = body.decode()
            found = json.loads(text, object_pairs_hook=_members, parse_constant=_no_constant)
            # A lone UTF-16 surrogate isn't a character, and databases refuse it.
            json.dumps(found, ensure_ascii=False).encode()
            _check_nesting(found)
        except RecursionError as error:
            message = f"JSON parse error - {_TOO_DEEP}"
            raise ParseError(message) from error
        except ValueError as error:
            message = f"JSON parse error - {error}"
            raise ParseError(message) from error
        return found


def _check_nesting(found: Any) -> None:
    """Refuse what is nested more deeply than documents in files may be: what goes through it needs more of Python's stack than its reader.

    Raises:
        ValueError: it is.
    """
    level = [found] if isinstance(found, dict | list) else []
    for _ in range(MAX_NESTING):
        parts = (part for each in level for part in (each.values() if isinstance(each, dict) else each))
        level = [part for part in parts if isinstance(part, dict | list)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        message = f"the member {twice[:80]!r} appears twice in one object: keep one of them"
        raise ValueError(message)
    return made


def _no_constant(name: str) -> Any:
    message = f"{name} isn't a JSON number"
    raise ValueError(message)
