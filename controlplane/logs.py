"""One line for each log record: key=value pairs, or JSON."""

import contextlib
import datetime
import json
import logging
import os
import re
import threading
import time
from http import HTTPStatus
from http.client import responses

from django.db import Error

from policies.origin import current_origin

_PLAIN = re.compile(r"[A-Za-z0-9_./:@+,-]+")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PRIMITIVE = (str, int, float, bool)
_MINUTE = 60.0
# Lines that each second may have about refused requests, and about those that can't be answered for now; one line counts the rest.
REFUSALS_A_SECOND = 10

logger = logging.getLogger("berth.refusals")


class _Formatter(logging.Formatter):
    """Collects the fields of a log record's line."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self.role = role

    def fields(self, record: logging.LogRecord) -> dict[str, str | int | float | bool]:
        """Return when, how severe, by which process and logger, what, and the record's extra fields."""
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        fields: dict[str, str | int | float | bool] = {
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "role": self.role,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := current_origin().request_id:
            fields["request"] = request_id
        extra = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        fields |= {key: value for key, value in extra.items() if isinstance(value, _PRIMITIVE)}
        if record.exc_info and not _is_refusal(record):
            fields["traceback"] = self.formatException(record.exc_info)
        return fields


def _is_refusal(record: logging.LogRecord) -> bool:
    """Return whether a request was answered 4xx: Django adds a traceback of 8 kB to these, too."""
    return 400 <= getattr(record, "status_code", 0) < 500  # noqa: PLR2004


def _is_unready(record: logging.LogRecord) -> bool:
    """Return whether a request couldn't be answered for now: with 503, or with metrics that lack those of the database."""
    return getattr(record, "status_code", 0) == HTTPStatus.SERVICE_UNAVAILABLE or (
        getattr(record, "outcome", "") == "not_ready"
    )


class KeyValueFormatter(_Formatter):
    """Writes `at=… level=… role=… logger=… message="…"` and the record's extra fields, always on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line. Values are quoted so that no input can forge a line or a field."""
        return " ".join(f"{key}={_quote(str(value))}" for key, value in self.fields(record).items())


class JSONFormatter(_Formatter):
    """Writes the same fields as a JSON object, always on one line, numbers and booleans as such."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        return json.dumps(self.fields(record))


class WithoutPath(logging.Filter):
    """Removes what clients sent from the records of `django.request`: the path, which may contain a secret, and the method."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the record, with only the reason phrase of its status."""
        if status := getattr(record, "status_code", 0):
            record.msg, record.args = responses.get(status, "refused"), ()
        return True


class FewRefusals(logging.Filter):
    """Passes so many lines a second about requests that are refused, or that can't be answered for now, and counts the others.

    Anybody can cause them. Each kind has its own lines: a flood of unknown URLs doesn't hide that the database is away.
    """

    def __init__(self) -> None:
        super().__init__()
        self._refused, self._not_ready = _Few("refused requests"), _Few("requests that couldn't be answered for now")

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the record unless it is about such a request, and the second has had its lines."""
        if _is_refusal(record):
            return self._refused.passes()
        return not _is_unready(record) or self._not_ready.passes()


class _Few:
    """Lines about one thing, of which each second passes so many."""

    def __init__(self, about: str) -> None:
        self._about, self._lock = about, threading.Lock()
        self._until, self._passed, self._left_out = 0.0, 0, 0

    def passes(self) -> bool:
        """Return whether one more line passes; the others are counted, and a line says how many there were."""
        now = time.monotonic()
        with self._lock:
            if now >= self._until:
                self._until, self._passed = now + 1, 0
            self._passed += 1
            if self._passed <= REFUSALS_A_SECOND:
                return True
            self._left_out += 1
            is_first = self._left_out == 1
        if is_first:
            self._say_later()
        return False

    def _say_later(self) -> None:
        # By a clock and not with the next line, which may never come.
        timer = threading.Timer(1.0, self._say)
        timer.daemon = True
        timer.start()

    def _say(self) -> None:
        with self._lock:
            number, self._left_out = self._left_out, 0
        logger.warning("%d more lines about %s were left out", number, self._about)


class OncePerMinute(logging.Filter):
    """Passes one line a minute about an error, whichever tasks hit it: in an outage a dozen do so each second.

    Args:
        of: the type of these errors; lines about others all pass.
    """

    def __init__(self, of: type[Exception] = Error) -> None:
        super().__init__()
        self._of = of
        self._passed: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the record unless the same error was logged within the last minute."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, self._of):
            return True
        # The lines after the first one, such as the row for which a full disk had no room, differ each time.
        fault = record.name, str(error).partition("\n")[0]
        now = time.monotonic()
        self._passed = {said: at for said, at in self._passed.items() if at > now - _MINUTE}
        if fault in self._passed:
            return False
        self._passed[fault] = now
        return True


def say_at_once(message: str, *_: object) -> None:
    """Log a line from within a signal's handler: by one write, as the log's own stream may be in the middle of another."""
    logger = logging.getLogger("celery.worker")
    if not logger.isEnabledFor(logging.INFO):
        return
    record = logger.makeRecord(logger.name, logging.INFO, __file__, 0, message, (), None)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            # A log that can't be written mustn't keep a worker from ending.
            with contextlib.suppress(OSError, ValueError):
                os.write(handler.stream.fileno(), f"{handler.format(record)}\n".encode())


def _quote(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"' + "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in escaped) + '"'
    )
