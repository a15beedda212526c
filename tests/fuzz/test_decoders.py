"""Whatever comes over the wire is read, or refused in words: no other exception, no hang, no more memory than in proportion."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.bounds import BASE_BYTES, BYTES_FOR_EACH, no_hang, peak_bytes
from tests.fuzz.decoders import DECODERS, SECRET, Decoder, refused
from tests.fuzz.mutations import FRAGMENTS, damaged, everywhere

each_decoder = pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)


@each_decoder
def test_bodies_as_kube_scheduler_sends_them_are_read(decoder: Decoder) -> None:
    assert [refused(decoder, body) for body in decoder.seeds] == [""] * len(decoder.seeds)


@each_decoder
@settings(max_examples=max(600, settings().max_examples), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_bodies_are_read_or_refused_without_being_quoted(decoder: Decoder, data: st.DataObject) -> None:
    body = data.draw(damaged(decoder.seeds))
    with no_hang():
        message = refused(decoder, body)
    assert message.isprintable()
    assert SECRET not in message
    assert len(message) < 500


@each_decoder
@settings(max_examples=max(100, settings().max_examples // 10), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_memory_is_in_proportion_to_the_body(decoder: Decoder, data: st.DataObject) -> None:
    body = data.draw(damaged(decoder.seeds))
    assert peak_bytes(lambda: refused(decoder, body)) < BASE_BYTES + BYTES_FOR_EACH * len(body)


@each_decoder
@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda fragment: repr(fragment[:30]))
def test_each_fragment_alone_is_read_or_refused(decoder: Decoder, fragment: bytes) -> None:
    with no_hang():
        message = refused(decoder, fragment)
    assert SECRET not in message


@each_decoder
def test_no_value_is_quoted_wherever_it_stands(decoder: Decoder) -> None:
    for body in everywhere(decoder.seeds, f'"{SECRET}"'.encode()):
        assert SECRET not in refused(decoder, body)


LARGE = {
    "numbers": b"[" + b"0," * 100_000 + b"0]",
    "objects": b"[" + b'{"":0},' * 30_000 + b"{}]",
    "members": b"{" + b",".join(b'"%d":0' % index for index in range(20_000)) + b"}",
    "nesting": b"[" * 200_000,
    "closed nesting": b'{"a":' * 40_000 + b"1" + b"}" * 40_000,
    "a number": b"9" * 200_000,
    "an exponent": b"1e" + b"9" * 200_000,
    "a text": b'"' + b"x" * 200_000 + b'"',
    "escapes": b'"' + b"\\u0041" * 40_000 + b'"',
}
PLACES = {
    "args": (
        b'{"Pod":%b,"NodeNames":[]}',
        b'{"Pod":{"metadata":{"labels":%b}},"NodeNames":[]}',
        b'{"Pod":{},"NodeNames":%b}',
        b'{"Pod":{},"Nodes":{"items":%b}}',
        b'{"Pod":{"spec":{"containers":%b}},"NodeNames":[]}',
    ),
    "pod": (b'{"spec":{"tolerations":%b}}', b'{"x":%b}', b'{"spec":{"overhead":{"cpu":%b}}}'),
    "binding": (b'{"PodName":%b,"PodNamespace":"d","PodUID":"u","Node":"n"}', b'{"x":%b}'),
    "preemption": (
        b'{"Pod":{},"NodeNameToMetaVictims":{"n":{"Pods":%b}}}',
        b'{"Pod":{},"NodeNameToMetaVictims":%b}',
        b'{"Pod":{},"NodeNameToVictims":{"n":{"Pods":[{"metadata":{"uid":"u"},"spec":%b}]}}}',
    ),
    "node": (b'{"metadata":{"name":"n"},"status":{"allocatable":%b}}', b'{"metadata":{"name":"n"},"x":%b}'),
}


@each_decoder
@pytest.mark.parametrize("large", LARGE)
def test_much_of_what_parsers_find_hard_is_read_or_refused_in_bounds(decoder: Decoder, large: str) -> None:
    for place in PLACES[decoder.name]:
        body = place % LARGE[large]
        with no_hang():
            refused(decoder, body)
        # Apart from the clock: counting memory makes it many times slower.
        peak = peak_bytes(lambda: refused(decoder, body))  # noqa: B023 - called at once
        assert peak < BASE_BYTES + BYTES_FOR_EACH * len(body), place
