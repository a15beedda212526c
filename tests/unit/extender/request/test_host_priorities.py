"""/prioritize's answer from rows: the same list as one written name by name."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.objects.node import Node
from policies.engine.objects.snapshot import Snapshot
from scheduler.extender.request import host_priorities
from scheduler.extender.request.host_priorities import PriorityLines, lines_of
from scheduler.extender.request.wire import encode_priorities
from tests.builders import make_node

NAMES = st.lists(st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?", fullmatch=True), min_size=1, unique=True)


@given(NAMES, st.data())
def test_says_the_same_as_a_list_written_name_by_name(names: list[str], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(names) - 1), max_size=20))
    points = data.draw(st.lists(st.integers(0, 10), min_size=len(rows), max_size=len(rows)))
    written = PriorityLines(names).encode(np.array(rows, dtype=np.intp), np.array(points, dtype=np.int64))
    assert json.loads(b"".join(written)) == json.loads(encode_priorities([names[row] for row in rows], points))


def test_a_cluster_without_nodes_has_an_empty_list() -> None:
    nothing = np.array([], dtype=np.intp)
    assert PriorityLines([]).encode(nothing, nothing) == [b"[]"]


def test_the_lines_are_written_once_for_the_same_nodes() -> None:
    snapshot = Snapshot.of(Node.from_json(make_node(name)) for name in ("a", "b"))
    assert lines_of(snapshot.table) is lines_of(snapshot.changed({}).table)


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "né", "n\x7fé"])
def test_names_that_need_escaping_are_not_written_as_lines(name: str) -> None:
    snapshot = Snapshot.of(Node.from_json(make_node(each)) for each in ("a", name))
    assert lines_of(snapshot.table) is None


def test_lines_that_would_take_too_much_memory_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Snapshot.of(Node.from_json(make_node("n" * 200)) for _ in range(1))
    monkeypatch.setattr(host_priorities, "_MOST_BYTES", 100)
    assert lines_of(snapshot.table) is None
