"""Answers that are nested deeper than reading by recursion can take."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.cluster.nesting import MOST_LEVELS, bounded, end_of
from tests.nesting import DEEP


def nested(levels: int, inside: str = "1", opening: str = '{"f:a":', closing: str = "}") -> str:
    return opening * levels + inside + closing * levels


def depth_of(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth_of, inner), default=0) if isinstance(value, dict | list) else 0


def test_what_is_nested_as_objects_are_is_the_text_that_came() -> None:
    text = f"[{nested(MOST_LEVELS)}{', {}' * 1000}]".encode()
    assert bounded(text) is text


@pytest.mark.parametrize(("opening", "closing"), [('{"f:a":', "}"), ("[", "]"), ('[{"a":[],"b":', ',"c":{}}]')])
def test_what_is_nested_too_deeply_is_emptied_and_all_else_stays(opening: str, closing: str) -> None:
    deep = nested(DEEP, "1", opening, closing)
    text = f'{{"before":[1,"a"],"deep":{deep},"behind":{{"b":[]}}}}'.encode()
    with pytest.raises(RecursionError):
        msgspec.json.decode(text)
    found = msgspec.json.decode(bounded(text))
    assert depth_of(found.pop("deep")) == MOST_LEVELS - 1
    assert found == {"before": [1, "a"], "behind": {"b": []}}


def test_brackets_within_texts_are_no_levels() -> None:
    texts = ["{" * DEEP, "]" * DEEP, '\\"{[' * DEEP, "\\"]
    text = json.dumps({"texts": texts, "deep": 0}).replace("0", nested(DEEP)).encode()
    assert msgspec.json.decode(bounded(text))["texts"] == texts


@pytest.mark.parametrize("cut", [1, DEEP, 7 * DEEP, 8 * DEEP - 1])
def test_a_deep_text_that_is_cut_short_is_still_refused(cut: int) -> None:
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        msgspec.json.decode(bounded(f"[{nested(DEEP)},{nested(400)}]".encode()[:-cut]))


def test_a_text_without_an_end_is_read_once_however_many_quotes_are_in_it() -> None:
    """Begun anew at each quote, a megabyte takes hours."""
    quotes = '\\"' * 500_000
    sent = f'{"[" * DEEP}"{quotes}'.encode()
    assert bounded(sent) == b"[" * MOST_LEVELS


@given(st.text(alphabet='{}[]"\\,:1', max_size=60))
def test_what_is_no_json_is_taken_by_no_reader(text: str) -> None:
    sent = f"{nested(DEEP)}{text}".encode()
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        msgspec.json.decode(bounded(sent + b"]"))


@pytest.mark.parametrize("inside", ["1", '"}]\\\\"', '{"a":[]},"b":"]"'])
def test_the_end_of_an_object_is_found_at_any_depth_once_it_is_there(inside: str) -> None:
    text = f'[{{"a":"}}","b":{nested(10_000, inside)}}}]'.encode()
    assert end_of(text + b',{"c":1}]') == len(text)
    assert not end_of(text[:-1])


def test_the_end_of_an_object_is_not_looked_for_without_end() -> None:
    assert not end_of(b"[" + b"{}," * 1_000_000 + b"1]")
