"""Watches the cluster's PriorityClasses, so that a look follows changes by others within seconds.

It decides nothing: each event makes a look due, and a look reads all classes again.
"""

from typing import Any

import msgspec
from django.db import connection

from policies import publishing
from policies.engine.objects.cluster_kinds import NamedMetadata
from policies.engine.objects.metadata import decode_object
from scheduler.cluster.client import Client
from scheduler.cluster.kinds import Kind
from scheduler.cluster.reflection import Changes
from scheduler.cluster.watch import Reflector
from scheduler.priority_classes.execute import PATH


class _Named(msgspec.Struct, frozen=True, gc=False):
    """A PriorityClass, reduced to its name."""

    metadata: NamedMetadata = NamedMetadata()


_NAMED = msgspec.json.Decoder(_Named)
_PRIORITY_CLASSES: Kind[_Named] = Kind(
    name="priorityclasses",
    path=PATH,
    read=lambda raw: decode_object(raw, _NAMED),
    key=lambda metadata: str(metadata.name),
)


def watch_priority_classes(client: Client) -> Reflector[_Named]:
    """Return the watch, not yet started."""
    return Reflector(client=client, kind=_PRIORITY_CLASSES, handler=_ask_for_look)


def _ask_for_look(_changes: Changes[Any]) -> None:
    """Make a look due. If the database is unavailable this raises, and the list that follows makes it due."""
    try:
        publishing.ask_for_look()
    finally:
        connection.close()  # changes are rare: no connection is kept for them
