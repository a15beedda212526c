#!/usr/bin/env python
"""Berth's commands: `python manage.py help`."""

import errno
import os
import sys
from io import TextIOWrapper

from django.core.management import execute_from_command_line
from django.db import DatabaseError

_INTERRUPTED = 130
# PostgreSQL's insufficient_privilege.
_NO_RIGHT = "42501"
# Its classes of errors of a connection that was refused or ended; one that was never made has no code.
_LOST = ("08", "57P")
# Those of limits that an administrator or Berth sets: lock_timeout, statement_timeout (and pg_cancel_backend),
# idle_in_transaction_session_timeout, transaction_timeout.
_LIMITS = ("55P03", "57014", "25P03", "25P04")


def _why(error: DatabaseError) -> str:
    """Return in a line why the database fails every command; nothing where it is this command's own fault."""
    import psycopg

    from controlplane.health import missing_migrations

    said = str(error).strip().partition("\n")[0]
    if sys.argv[1:2] == ["migrate"]:  # what it meets, and not that migrations are missing, is why it ends
        return f"migrate broke off: {said}"
    if getattr(error.__cause__, "sqlstate", "") == _NO_RIGHT:
        # As of tables that another role than berth_owner made, or by a URL that names the wrong role.
        return f"{said}. Run deploy/postgres/roles.sql as a superuser, and migrate as berth_owner"
    try:
        missing = missing_migrations()
    except DatabaseError:
        return f"the database can't be asked: {said}"
    cause = error.__cause__
    if not missing and isinstance(cause, psycopg.OperationalError) and (cause.sqlstate or _LOST[0]).startswith(_LOST):
        # As of a failover: it ended this command's connection, and is back already.
        return f"the database was away: {said}. It answers again: see what the command has done, and run it again"
    if not missing and getattr(cause, "sqlstate", "") in _LIMITS:
        return f"the database broke it off: {said}. See what the command has done, and run it again"
    return missing


def _use_utf8() -> None:
    """Read and write UTF-8 whatever the locale is, as files of documents are; a terminal is shown what it has characters for."""
    if isinstance(sys.stdin, TextIOWrapper) and not sys.stdin.isatty():
        sys.stdin.reconfigure(encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="backslashreplace")


if __name__ == "__main__":
    if sys.stdout is None:  # closed, as by `>&-`
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    _use_utf8()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    try:
        execute_from_command_line(sys.argv)
        sys.stdout.flush()
    except DatabaseError as error:
        if "--traceback" in sys.argv or not (said := _why(error)):
            raise
        sys.exit(f"manage.py: {said}")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        # Who read has gone, as `head` does, or the disk is full: what is left unwritten is nobody's.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1 if error.errno == errno.EPIPE else f"manage.py: {error.filename or 'the output'}: {error.strerror}")
