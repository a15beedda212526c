"""Whatever strangers send as heads, bodies in chunks, forms, queries, documents and quantities is read or refused: no other exception, time and memory in proportion.

Memory is bounded by 2 MB and so many bytes for each byte of the text as the reader says.
A text of a megabyte is never read so far: see the bounds in `policies.manifests`, and the process in `policies.checking`.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.bounds import BASE_BYTES, no_hang, peak_bytes
from tests.fuzz.documents import READERS, TextReader, read_or_refuse

each_reader = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
PIECES = st.sampled_from(
    [
        *(
            b"&a ",
            b"*a ",
            b"[*a,*a,*a]",
            b"<<: *a\n",
            b"[",
            b"]",
            b"{",
            b"}",
            b"- ",
            b"? ",
            b": ",
            b"\n---\n",
            b"%YAML 9\n",
        ),
        *(
            b"!!python/object ",
            b"!!int ",
            b"|\n ",
            b"9" * 300,
            b"1e999999999",
            b"0x" + b"f" * 400,
            b"'",
            b'"',
            b"\t",
            b"\xff",
        ),
        *(
            b"\r\n",
            b"\n",
            b"\r",
            b"\0",
            b" ",
            b"HTTP/1.1",
            b"Host: a\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"chunked, ",
        ),
        *(
            b"Content-Length: 18446744073709551616\r\n",
            b"ffffffffffffffff\r\n",
            b"-1\r\n",
            b";a=b",
            b"0\r\n\r\n",
            b"a: b\r\n",
        ),
        *(
            b"--b\r\n",
            b"--b--",
            b"--",
            b'; name="',
            b"; filename*=utf-8''%ff",
            b"Content-Transfer-Encoding: base64\r\n",
        ),
        *(b"&a=b", b"%", b"-TOTAL_FORMS=99999999999", b"Content-Disposition: form-data\r\n", b"_charset_=utf-7&"),
        *(b"\\ud800", b"\xef\xbb\xbf", b"~", b".inf", b"2001-01-01", b"k" * 1_100, b"%00", b"&", b"=", b"+", b"%F0"),
    ]
)


@st.composite
def texts(draw: st.DrawFn, reader: TextReader) -> bytes:
    """A text that is read, with pieces put in, cut out and repeated."""
    text = draw(st.sampled_from(reader.seeds))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from((0, 1, 5, 40))))
        piece = draw(PIECES | st.binary(max_size=6)) * draw(st.sampled_from((1, 1, 2, 30, 400)))
        text = text[:start] + piece + text[end:]
    return text


@each_reader
def test_what_readers_are_for_is_read(reader: TextReader) -> None:
    assert [read_or_refuse(reader, text) for text in reader.seeds] == [""] * len(reader.seeds)


@each_reader
@settings(max_examples=max(60, settings().max_examples), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_texts_are_read_or_refused_in_bounds(reader: TextReader, data: st.DataObject) -> None:
    text = data.draw(texts(reader))
    with no_hang():
        read_or_refuse(reader, text)
    peak = peak_bytes(lambda: read_or_refuse(reader, text))
    assert peak < BASE_BYTES + reader.bytes_for_each * len(text)


LARGE = {
    "texts by an anchor": b"a: &a " + b"x" * 100_000 + b"\nb: [" + b"*a," * 40_000 + b"]",
    "anchors in anchors": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(
        b"%c: &%c [%s]\n" % (after, after, b"*%c," % before * 9)
        for before, after in zip(b"abcdefgh", b"bcdefghi", strict=True)
    ),
    "nesting": b"[" * 100_000,
    "closed nesting": b"[" * 60_000 + b"]" * 60_000,
    "nested maps": b"".join(b" " * depth + b"a:\n" for depth in range(480)),
    "values": b"[" + b"[]," * 40_000 + b"]",
    "values and tabs": b"[\t" + b"[],\t" * 30_000 + b"]",
    "values that libyaml doesn't reach": b"# \x01\n[" + b"[]," * 40_000 + b"]",
    "digits": b"9" * 200_000,
    "members": b"{" + b",".join(b'"%d":0' % index for index in range(10_000)) + b"}",
    "fields": b"a=1&" * 100_000,
    "few fields": b"a=1&" * 9_000,
    "escapes": b"%41" * 100_000,
    "fields of a head": b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 60_000 + b"\r\n",
    "a field of a head": b"GET / HTTP/1.1\r\nHost: " + b"a" * 300_000 + b"\r\n\r\n",
    "a line of a head": b"GET /" + b"a" * 300_000,
    "chunks of one byte": b"1\r\na\r\n" * 60_000 + b"0\r\n\r\n",
    "a chunk's line": b"1;" + b"a" * 300_000,
    "fields behind chunks": b"0\r\n" + b"a: b\r\n" * 60_000,
    "parts": b"--b\r\n" + b'Content-Disposition: form-data; name="a"\r\n\r\nx\r\n--b\r\n' * 7_000,
    "fields of a part": b"--b\r\n" + b"a: b\r\n" * 50_000 + b"\r\nx\r\n--b--",
    "boundaries": b"--b" * 100_000,
}


@each_reader
@pytest.mark.parametrize("large", LARGE)
def test_much_of_what_parsers_find_hard_is_read_or_refused_in_bounds(reader: TextReader, large: str) -> None:
    text = LARGE[large]
    with no_hang():
        read_or_refuse(reader, text)
    # Apart from the clock: counting memory makes it many times slower.
    peak = peak_bytes(lambda: read_or_refuse(reader, text))
    # 12 MB are the tree of as many values as an anchor may stand for, with their paths.
    assert peak < 12_000_000 + BASE_BYTES + reader.bytes_for_each * len(text)
    assert peak < 150_000_000
