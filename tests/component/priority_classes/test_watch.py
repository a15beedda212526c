"""What the watch of PriorityClasses hears makes a look due, whatever it is."""

import json
from typing import Any

import pytest
from django.db.models.functions import Now

from policies.models import PriorityClassLook
from scheduler.priority_classes.reconcile import look
from scheduler.priority_classes.watch import watch_priority_classes
from tests.priority_server import PriorityServer
from tests.stack import eventually

pytestmark = pytest.mark.django_db(transaction=True)


class WatchedServer(PriorityServer):
    """A PriorityServer whose watches give one event and end."""

    def stream(self, **_: Any) -> Any:
        found = {"metadata": {"name": "batch", "resourceVersion": "7"}, "value": 1}
        return _Stream(json.dumps({"type": "MODIFIED", "object": found}).encode())


class _Stream:
    received_at = 0.0

    def __init__(self, *lines: bytes) -> None:
        self._lines = lines

    def __iter__(self) -> Any:
        return iter(self._lines)

    def abort(self) -> None:
        """End it."""

    def close(self) -> None:
        """Close it."""


def is_due() -> bool:
    return PriorityClassLook.objects.filter(next_at__lte=Now()).exists()


def test_a_list_and_each_event_make_a_look_due() -> None:
    server = WatchedServer()
    look(server)
    assert not is_due()
    watch = watch_priority_classes(server)
    watch.start()
    try:
        eventually(is_due, seconds=20, what="the list made a look due")
        eventually(lambda: PriorityClassLook.objects.get().asked >= 2, seconds=20, what="the event did, too")
    finally:
        watch.stop()
