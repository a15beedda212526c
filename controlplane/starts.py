"""Records the start of a process without a heartbeat as soon as the database can be reached, and logs what prevents it."""

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
    """Record the start in a separate thread, so that a process starts without waiting for the database."""
    threading.Thread(target=_until_written, args=[role], name="berth-start", daemon=True).start()


def _until_written(role: str) -> None:
    name, is_told = f"{role}@{socket.gethostname()}:{os.getpid()}", False
    while not written(name, role):
        if not is_told:
            logger.warning("the start of %s can't be recorded yet: the database is unreachable", name)
            is_told = True
        time.sleep(_AGAIN_SECONDS)
    if is_shared(connection):
        logger.error("%s. %s", *POOLED)
    connection.close()


def written(name: str, role: str) -> bool:
    """Record that a process started; False if the database doesn't accept it now."""
    # Imported here: Django's apps are loaded now, and aren't when wsgi and celery import this module.
    from policies import publishing

    try:
        publishing.record_start(name, role)
    except DatabaseError:
        return False
    finally:
        connection.close()
    return True
