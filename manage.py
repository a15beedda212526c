#!/usr/bin/env python
"""Berth's commands: `python manage.py help`."""

import errno
import os
import sys

from django.core.management import execute_from_command_line
from django.db import DatabaseError


def _why(error: DatabaseError) -> str:
    """Return in a line why the database fails every command; nothing where it is this command's own fault."""
    from controlplane.health import missing_migrations

    try:
        return missing_migrations()
    except DatabaseError:
        return f"the database can't be asked: {str(error).strip().partition(chr(10))[0]}"


if __name__ == "__main__":
    if sys.stdout is None:  # closed, as by `>&-`
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    try:
        execute_from_command_line(sys.argv)
        sys.stdout.flush()
    except DatabaseError as error:
        if not (said := _why(error)):
            raise
        sys.exit(f"manage.py: {said}")
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        # Who read has gone, as `head` does, or the disk is full: what is left unwritten is nobody's.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1 if error.errno == errno.EPIPE else f"manage.py: {error.filename or 'the output'}: {error.strerror}")
