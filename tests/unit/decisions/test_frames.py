"""Frames: what was written is read back, and nothing else is."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler.decisions.frames import HEADER_BYTES, Kind, frame, length_at, read_frame

payloads = st.lists(st.binary(max_size=40), max_size=4)


def written(sequence: int, parts: list[bytes]) -> bytes:
    return b"".join(frame(Kind.DECISION, sequence, parts))


@given(st.lists(payloads, min_size=1, max_size=5))
def test_frames_are_read_back_one_behind_the_other(records: list[list[bytes]]) -> None:
    data = b"".join(written(number, parts) for number, parts in enumerate(records))
    at = 0
    for number, parts in enumerate(records):
        found = read_frame(data, at)
        assert found is not None
        assert (found.kind, found.sequence, found.payload) == (Kind.DECISION, number, b"".join(parts))
        at = found.end
    assert at == len(data)
    assert read_frame(data, at) is None


def test_a_frame_that_is_cut_off_anywhere_is_none() -> None:
    data = written(7, [b"some", b"thing"])
    assert all(read_frame(data[:end], 0) is None for end in range(len(data)))


def test_a_frame_with_any_bit_changed_is_none() -> None:
    data = written(7, [b"something"])
    for place in range(len(data) * 8):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        assert read_frame(changed, 0) is None, place


@given(st.binary(max_size=200))
def test_bytes_by_chance_are_no_frame(data: bytes) -> None:
    assert read_frame(data, 0) is None


def test_zeroes_are_no_frame() -> None:
    assert read_frame(bytes(100), 0) is None


def test_the_length_is_known_once_the_header_is_there() -> None:
    data = written(1, [b"12345"])
    assert length_at(data[: HEADER_BYTES - 1]) is None
    assert length_at(data[:HEADER_BYTES]) == len(data)
