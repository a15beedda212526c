"""The start of a process that has no heartbeat is written down as soon as the database can be reached, and what is wrong on the way there."""

import logging
import os
import socket
import threading
import time

from django.db import DatabaseError, connection

from scheduler.doctor.pooling import POOLED, is_shared

logger = logging.getLogger("berth.start")

_AGAIN_SECONDS = 5.0


def record_start_of(role: str) -> None:
    """Write it in a thread of its own: a start waits for no database."""
    threading.Thread(target=_until_written, args=[role], name="berth-start", daemon=True).start()


def _until_written(role: str) -> None:
    name, is_told = f"{role}@{socket.gethostname()}:{os.getpid()}", False
    while not written(name, role):
        if not is_told:
            logger.warning("the start of %s can't be written down yet: the database can't be reached", name)
            is_told = True
        time.sleep(_AGAIN_SECONDS)
    if is_shared(connection):
        logger.error("%s. %s", *POOLED)
    connection.close()


def written(name: str, role: str) -> bool:
    """Write down that a process began; False where the database doesn't take it now."""
    # Imported here: Django's apps are there by now, and aren't when wsgi and celery import this module.
    from policies import publishing

    try:
        publishing.record_start(name, role)
    except DatabaseError:
        return False
    finally:
        connection.close()
    return True
