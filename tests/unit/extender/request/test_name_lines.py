"""Names of the same length are found and written as they would be one by one."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.objects.node import Node
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Table
from scheduler.extender.request import name_lines
from scheduler.extender.request.name_lines import BETWEEN, NameLines, find, lines_of
from scheduler.extender.request.node_bytes import MAX_NODES
from scheduler.extender.request.node_names import ByName
from tests.builders import make_node

# Pools' names as clouds make them: what tells two apart stands in the middle, at the end, or in several places.
POOLS = {
    "in the middle": [f"node-{number:05d}.eu-west-1.compute.internal" for number in range(300)],
    "at the end": [f"aks-pool{number % 3}-1234{number % 3:04d}-vmss{number:06x}" for number in range(300)],
    "in eight bytes": [f"{number:08d}" for number in range(300)],
}


def table_of(names: list[str]) -> Table:
    return Snapshot.of([Node.from_json(make_node(name)) for name in names]).table


TABLES = {what: table_of(names) for what, names in POOLS.items()}


def written(names: list[str]) -> bytes:
    """Return names as they stand in JSON between the first quote and the last."""
    return BETWEEN.join(name.encode() for name in names)


def lines(what: str) -> NameLines:
    (found,) = lines_of(TABLES[what]).values()
    return found


@given(st.sampled_from(sorted(POOLS)), st.data())
def test_each_name_leads_to_its_row_also_one_that_comes_twice(what: str, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, 299), min_size=64, max_size=400))
    names = [POOLS[what][row] for row in rows]
    found = lines(what).find(written(names))
    assert found is not None
    assert (found[0].written(), found[1].tolist()) == (written(names), rows)

    chosen = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    some = [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]
    assert found[0].chosen(np.array(chosen)).written() == written(some)


@given(st.sampled_from(sorted(POOLS)), st.data())
def test_a_text_of_which_any_byte_is_another_is_found_where_it_still_names_nodes_alone(
    what: str, data: st.DataObject
) -> None:
    names = POOLS[what][:100]
    text = bytearray(written(names))
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    texts = bytes(text).split(BETWEEN)
    known = {name.encode(): row for row, name in enumerate(POOLS[what])}
    found = lines(what).find(bytes(text))
    if set(texts) <= known.keys():
        assert found is not None
        assert found[1].tolist() == [known[each] for each in texts]
    else:
        assert found is None


@pytest.mark.parametrize("what", sorted(POOLS))
@pytest.mark.parametrize("cut", [1, 3, 5])
def test_a_text_that_is_cut_off_holds_no_names(what: str, cut: int) -> None:
    assert lines(what).find(written(POOLS[what][:100])[:-cut]) is None


def test_names_whose_place_another_one_has_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_lines, "_PLACES", 1)
    names = POOLS["at the end"]
    crowded = NameLines([name.encode() for name in names], np.arange(len(names)))
    assert len(crowded._others) > 30
    found = crowded.find(written(names[::-1]))
    assert found is not None
    assert found[1].tolist() == list(range(299, -1, -1))


def test_a_name_with_the_hash_of_a_node_is_none() -> None:
    names = POOLS["in the middle"]
    # What is the same in all names is in no hash.
    others = [name.replace("internal", "external") for name in names]
    assert lines("in the middle").find(written(others)) is None


def test_fewer_names_than_make_it_worth_it_and_more_than_a_body_may_have_are_left_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = POOLS["at the end"]
    assert lines("at the end").find(written(names[:63])) is None
    assert lines("at the end").find(written(names[:64])) is not None
    assert len(names) < MAX_NODES
    monkeypatch.setattr(name_lines, "MAX_NODES", 80)
    assert lines("at the end").find(written(names[:80])) is not None
    assert lines("at the end").find(written(names[:81])) is None


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([f"nodes-of-{number}" for number in range(300)], id="of several lengths"),
        pytest.param([f"nodes-of-{number:0{number}}" for number in range(1, 200)], id="each of another length"),
        pytest.param([f"n{number:03d}" for number in range(300)], id="short"),
        pytest.param([f"node-{number:05d}" for number in range(63)], id="few"),
        pytest.param([*(f"node-{number:05d}" for number in range(300)), 'node","123'], id="with quotes"),
        pytest.param([*(f"node-{number:05d}" for number in range(300)), "node-\\1234"[:10]], id="with a backslash"),
        pytest.param([*(f"node-{number:05d}" for number in range(300)), "node-ä123"], id="not ASCII"),
        pytest.param([], id="none"),
    ],
)
def test_names_that_are_not_that_much_alike_are_looked_up_one_by_one(names: list[str]) -> None:
    table = table_of(names)
    assert find(table, written(names)) is None
    body = json.dumps({"Pod": {}, "Nodes": None, "NodeNames": names[:200]}, separators=(",", ":")).encode()
    asked = ByName().read(body, table)
    plain = bool(names) and all(name.isascii() and not {'"', "\\"} & set(name) for name in names[:200])
    assert (asked is not None) == plain
    assert asked is None or asked.names.rows.tolist() == list(range(min(200, len(names))))


@pytest.mark.parametrize(
    "asked", [slice(0, 400, 2), slice(1, 400, 2), slice(401, None), slice(0, None), slice(399, None)]
)
def test_a_pool_of_one_length_is_found_beside_pools_of_others(asked: slice) -> None:
    pools = zip(POOLS["at the end"][:200], POOLS["in the middle"][:200], strict=True)
    names = [name for pair in pools for name in pair] + [
        "control-plane-1",
        *(f"plane-{number:08d}" for number in range(70)),
    ]
    table, sent = table_of(names), names[asked]
    found = find(table, written(sent))
    assert (found is not None) == (len(set(map(len, sent))) == 1)
    assert found is None or found[1].tolist() == [names.index(name) for name in sent]

    body = json.dumps({"Pod": {}, "Nodes": None, "NodeNames": sent}, separators=(",", ":")).encode()
    read = ByName().read(body, table)
    assert read is not None
    assert read.names.rows.tolist() == [names.index(name) for name in sent]


def test_tables_with_the_same_nodes_share_the_lines() -> None:
    snapshot = Snapshot.of([Node.from_json(make_node(name)) for name in POOLS["at the end"]])
    again = snapshot.assume_all([])
    assert lines_of(snapshot.table) is lines_of(again.table)


@given(st.sampled_from(sorted(POOLS)), st.data())
def test_a_call_reads_and_is_answered_as_one_by_one(what: str, data: st.DataObject) -> None:
    by_name = ByName()
    rows = data.draw(st.lists(st.integers(0, 299), min_size=60, max_size=250, unique=True))
    names = [POOLS[what][row] for row in rows]
    passed = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    answered = [name for name, has_passed in zip(names, passed, strict=True) if has_passed]
    for sent, mask in ((names, np.array(passed)), (answered, None)):
        if not sent:
            break
        body = json.dumps({"Pod": {"a": 1}, "Nodes": None, "NodeNames": sent}, separators=(",", ":")).encode()
        asked = by_name.read(body, TABLES[what])
        assert asked is not None
        assert list(asked.args.node_names or ()) == sent
        assert asked.names.rows.dtype == np.intp
        assert asked.names.rows.tolist() == [POOLS[what].index(name) for name in sent]
        assert json.loads(b"".join(by_name.answer(asked.names, mask))) == answered
