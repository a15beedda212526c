"""Reads bodies that name their nodes directly from their bytes: names of known nodes are looked up, not decoded.

Data that kube-scheduler sends a second time isn't even looked up: /prioritize has the same Pod as /filter, and the
names that /filter answered with. Only speed depends on that: a decoder reads whatever isn't recognised.
"""

from collections.abc import Mapping
from itertools import compress
from threading import Lock
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.objects.pod import Pod
from policies.engine.objects.table import Rows, Table
from scheduler.decisions.node_names import names_of
from scheduler.extender.request.full_nodes import NamesOfRows
from scheduler.extender.request.name_lines import BETWEEN, WrittenNames, find
from scheduler.extender.request.node_bytes import MAX_NODES
from scheduler.extender.request.objects import read_pod
from scheduler.extender.request.wire import ExtenderArgs, pod_before

_MOST_PODS = 64
# A larger Pod isn't kept: a caller could fill the memory with them.
_MOST_POD_BYTES = 64 << 10
_MOST_LISTS = 8
_START = b',"NodeNames":["'
_END = b'"]}'


class RecentPods:
    """Pods that were read a moment ago. Threads may share it."""

    def __init__(self) -> None:
        self._pods: dict[bytes, Pod] = {}
        self._lock = Lock()

    def read(self, raw: msgspec.Raw) -> Pod:
        """Return the Pod from its JSON.

        Raises:
            WireError: the JSON isn't a Pod.
        """
        if len(raw) > _MOST_POD_BYTES:
            return read_pod(raw)
        key = bytes(raw)
        found = self._pods.get(key)
        if found is None:
            found = read_pod(raw)
            with self._lock:
                if len(self._pods) >= _MOST_PODS:
                    del self._pods[next(iter(self._pods))]
                self._pods[key] = found
        return found


class Texts(list[bytes]):
    """Names one by one."""

    def chosen(self, are_chosen: npt.NDArray[np.bool_]) -> "Texts":
        """Return the chosen names."""
        return Texts(compress(self, are_chosen.tobytes()))

    def written(self) -> bytes:
        """Return the names as JSON text, from after the first quote to before the last."""
        return BETWEEN.join(self)


class Names(NamedTuple):
    """Names of nodes as they were sent, and their rows in a table. Tables with the same nodes share `row_of`."""

    texts: Texts | WrittenNames
    rows: Rows
    row_of: Mapping[str, int]


class Asked(NamedTuple):
    """A body and its names, each of which is a node's."""

    args: ExtenderArgs
    names: Names


class ByName:
    """Reads bodies with names, and remembers the last answered names. Threads may share it."""

    def __init__(self) -> None:
        # The names as they were written, without the surrounding JSON.
        self._answered: tuple[tuple[bytes, Names], ...] = ()

    def read(self, body: bytes, table: Table) -> Asked | None:
        """Read a body; None if it isn't spelled as kube-scheduler spells it, or a name isn't in the table."""
        start = body.find(_START)
        if start < 0 or not body.endswith(_END):
            return None
        written = body[start + len(_START) : -len(_END)]
        found = self._remembered(written, table) or _found(written, table)
        return None if found is None else _asked(pod_before(body, start), found, table)

    def _remembered(self, written: bytes, table: Table) -> Names | None:
        for answered, names in self._answered:
            if answered == written and names.row_of is table.row_of:
                return names
        return None

    def answer(self, names: Names, passed: npt.NDArray[np.bool_] | None) -> list[bytes]:
        """Return the names that passed, as JSON in pieces, and remember them.

        Args:
            names: the names in the call.
            passed: for each, whether it passed; None if all did.
        """
        if passed is not None:
            names = Names(names.texts.chosen(passed), names.rows[passed], names.row_of)
        if not len(names.rows):
            return [b"[]"]
        written = names.texts.written()
        if len(names.rows) <= len(names.row_of):  # else names repeat, and could do so any number of times
            self._answered = ((written, names), *self._answered[: _MOST_LISTS - 1])
        return [b'["', written, b'"]']


def _found(written: bytes, table: Table) -> Names | None:
    """Return the names between a first quote and a last; None if one isn't a node's."""
    # A text that is a node's name has no escapes and no quotes in it, so it is a name here too.
    if found := find(table, written):
        return Names(*found, table.row_of)
    # Beyond the limit, the rest is one text, which is no name: the decoder refuses it.
    texts = Texts(written.split(BETWEEN, MAX_NODES - 1))
    rows = names_of(table).rows_of(texts)
    return None if rows is None else Names(texts, rows, table.row_of)


def _asked(pod: msgspec.Raw | None, names: Names, table: Table) -> Asked | None:
    if pod is None:
        return None
    return Asked(ExtenderArgs(pod=pod, nodes=None, node_names=NamesOfRows(table.names, names.rows)), names)
