"""Bodies as version 0.1.0 stored them: what is damaged is said to be, and breaks no page."""

from typing import Any

import pytest

from scheduler.decisions.reading import body_of, chosen_by, read_both, read_decision
from scheduler.decisions.record import store_json
from scheduler.models import Decision

SOUND: dict[str, Any] = {
    "pod": {"metadata": {"name": "web-0"}},
    "nodes": ["n1", "n2"],
    "filters": [{"rule": "room", "statuses": [{"code": "Unschedulable", "reason": "full"}], "verdicts": [0, -1]}],
    "scores": [{"rule": "spread", "weight": 2, "raw": [None, 50]}],
}


def stored(body: Any) -> Decision:
    return Decision(body=store_json(body))


def test_a_sound_one_is_read() -> None:
    answer = read_decision(stored(SOUND)).answer
    assert (answer.names, answer.scored.tolist()) == (["n1", "n2"], [1])
    assert body_of(stored(SOUND)) == SOUND


@pytest.mark.parametrize(
    "body",
    [
        [],
        "text",
        None,
        {**SOUND, "filters": [[]]},
        {**SOUND, "filters": [{"statuses": [{"code": "Unschedulable"}], "verdicts": [0, 0]}]},
        {**SOUND, "filters": [{"statuses": [{"code": "Other", "reason": ""}], "verdicts": [0, 0]}]},
        {**SOUND, "scores": [{"raw": [1, 2]}, {"raw": [1]}]},
        {**SOUND, "scores": [{"raw": [1, 2], "weight": None}]},
        {**SOUND, "nodes": 7},
    ],
)
def test_a_damaged_one_is_said_to_be(body: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - what is wrong is msgspec's to say, or Python's
        read_decision(stored(body))


@pytest.mark.parametrize("body", [[], "text", None])
def test_pages_say_it_too(body: Any) -> None:
    for read in (body_of, read_both):
        with pytest.raises(ValueError, match="Expected `object`"):
            read(stored(body))


def test_the_nodes_that_were_left_out_for_denying_the_binding_are_named() -> None:
    said = "left out, since the API server had refused the Pod's binding there: n1, n2"
    assert chosen_by({"notes": {"node": "n3", "denied": ["n1", "n2"]}}) == [said]


def test_a_node_that_had_denied_the_binding_and_was_taken_all_the_same_is_not_said_to_be_left_out() -> None:
    said = "asked about again, for no other node would do, though the API server had refused the Pod's binding there: n1, n2"
    assert chosen_by({"notes": {"node": "n2", "denied": ["n1", "n2"]}}) == [said]
