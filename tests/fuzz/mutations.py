"""Bodies as kube-scheduler sends them, damaged: values replaced by what a parser may stumble over, and bytes changed."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.decoders import SECRET

# Stands for a fragment until the document is bytes: fragments needn't be JSON. Of the private use area.
_MARK = "\ue000{}\ue000"

Path = tuple[str | int, ...]

FRAGMENTS = (
    *(b"null", b"true", b"false", b"{}", b"[]", b'""', b"[null]", b'{"":null}', b"[[]]", b'[{"":[]}]', b""),
    *(b"0", b"-0", b"-1", b"1.0", b"0.1", b"1e5", b"1e308", b"1e309", b"-1e309", b"1e999999", b"-1e-999999", b"1E+400"),
    *(b"2147483648", b"-9223372036854775809", b"18446744073709551616", b"9" * 500, b"0." + b"3" * 500, b"01", b".5"),
    *(b"NaN", b"Infinity", b"-", b"1e", b"0x10", b"1_000", b"'x'", b"undefined", b"/**/1", b"1,", b"]", b"}", b'"'),
    *(b'"1e999999"', b'"1e-999999"', b'"9e400"', b'"' + b"9" * 256 + b'"', b'"0.' + b"3" * 250 + b'"', b'"1.5Ei"'),
    *(
        b'"-1"',
        b'"+1"',
        b'"1 "',
        b'" 1"',
        b'"1e"',
        b'"Ki"',
        b'"m"',
        b'"1e1e1"',
        b'"9223372036854775807n"',
        b'"\xd9\xa1"',
    ),
    *(
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\\ud83d\\ude00"',
        b'"\\u0000"',
        b'"\x00"',
        b'"\xff"',
        b'"\xc3"',
        b'"\xed\xa0\x80"',
    ),
    *(b'"\xf4\x90\x80\x80"', b'"\\x"', b'"\\u12"', b'"\xef\xbb\xbf"', b'"\n"', b'"%s%n{}"', b'"' + b"a" * 5000 + b'"'),
    *(b"[" * 60 + b"]" * 60, b"[" * 1100 + b"]" * 1100, b'{"a":' * 900 + b"1" + b"}" * 900, b"[" * 200_000),
    *(
        b"[" + b"0," * 5000 + b"0]",
        b"[" + b"{}," * 2000 + b"{}]",
        b"{" + b",".join(b'"%d":0' % i for i in range(2000)) + b"}",
    ),
    *(b'1,"metadata":{"name":7}', b'{},"Pod":{}', b'null,"Pod":null', b'{},"items":[{}]', b'[],"NodeNames":[""]'),
    f'"{SECRET}"'.encode(),
    f'{{"{SECRET}":"{SECRET}"}}'.encode(),
    f'["{SECRET}"]'.encode(),
)


def _paths(value: Any, path: Path = ()) -> list[Path]:
    found: list[Path] = [path]
    if isinstance(value, dict):
        for name, member in value.items():
            found += _paths(member, (*path, name))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            found += _paths(member, (*path, index))
    return found


def _replace(value: Any, path: Path, by: str) -> Any:
    if not path or not isinstance(value, dict | list):
        return by
    head, *rest = path
    if isinstance(value, dict):
        return value | {head: _replace(value.get(head), tuple(rest), by)}
    if not isinstance(head, int) or head >= len(value):
        return by
    return [_replace(member, tuple(rest), by) if index == head else member for index, member in enumerate(value)]


def _encode(value: Any, fragments: list[bytes]) -> bytes:
    body = json.dumps(value, ensure_ascii=False).encode()
    for index, fragment in enumerate(fragments):
        body = body.replace(f'"{_MARK.format(index)}"'.encode(), fragment)
    return body


def everywhere(seeds: tuple[bytes, ...], fragment: bytes) -> Iterator[bytes]:
    """Iterate over each document with the fragment in the place of each of its values."""
    for value in map(json.loads, seeds):
        for path in _paths(value):
            yield _encode(_replace(value, path, _MARK.format(0)), [fragment])


@st.composite
def damaged_documents(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """A document in which one to three values are fragments."""
    value = json.loads(draw(st.sampled_from(seeds)))
    paths = _paths(value)
    fragments = draw(st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=20), min_size=1, max_size=3))
    for index in range(len(fragments)):
        value = _replace(value, draw(st.sampled_from(paths)), _MARK.format(index))
    return _encode(value, fragments)


@st.composite
def damaged_bytes(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """A document with bytes cut out, put in, changed or doubled."""
    body = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(body)))
        end = min(len(body), start + draw(st.sampled_from((0, 1, 2, 8, 64))))
        doubled = bytes(body[start:end]) * 2
        body[start:end] = draw(st.binary(max_size=4) | st.sampled_from((b"", doubled, *FRAGMENTS[:40])))
    return bytes(body[: draw(st.sampled_from((None, None, None, len(body) // 2)))])


def damaged(seeds: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """Damaged bodies of either kind, and any bytes."""
    return damaged_documents(seeds) | damaged_documents(seeds) | damaged_bytes(seeds) | st.binary(max_size=200)
