"""Texts that aren't in the locale's characters, or are none: what comes in, and what goes out."""

import io
import json
from pathlib import Path

import pytest

from tests.unit.berth.conftest import Berth, Stub

LINE = "web: filter added: team: refuse nodes as “belongs to Zoë 😀” unless true"


def _output(monkeypatch: pytest.MonkeyPatch, encoding: str, *, is_terminal: bool) -> io.BytesIO:
    """Put an output of an encoding in standard output's place, and return what is written to it."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding)
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("NO_COLOR", "1")
    return written


@pytest.fixture
def applied(stub: Stub, tmp_path: Path) -> str:
    found = {"ok": True, "change": 7, "revision": 8, "changes": [LINE]}
    stub.answer("POST", "/changes/apply", found, 201)
    (tmp_path / "a.yaml").write_text("a: b\n")
    return str(tmp_path / "a.yaml")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252"])
def test_what_is_piped_is_utf_8_in_every_locale(
    berth: Berth, applied: str, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    for output in ("text", "json"):
        written = _output(monkeypatch, encoding, is_terminal=False)
        assert berth("apply", applied, "--publish", "-o", output).code == 0
        assert LINE in written.getvalue().decode("utf-8")
    assert json.loads(written.getvalue())["changes"] == [LINE]


def test_a_terminal_is_shown_what_it_has_no_characters_for_as_their_numbers(
    berth: Berth, applied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = _output(monkeypatch, "latin-1", is_terminal=True)

    assert berth("apply", applied, "--publish").code == 0

    assert r"refuse nodes as \u201cbelongs to Zoë \U0001f600\u201d" in written.getvalue().decode("latin-1")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_standard_input_is_utf_8_in_every_locale(
    berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    stub.answer("POST", "/lint", {"ok": True, "faults": []})
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("reason: “Zoë”\n".encode()), encoding=encoding))

    assert berth("lint", "-").code == 0

    assert stub.asked[0]["body"]["files"] == [{"name": "-", "text": "reason: “Zoë”\n"}]


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_standard_input_that_is_no_text_is_said_to_be_none(
    berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch, errors: str
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"reason: \xff\n"), encoding="utf-8", errors=errors)
    monkeypatch.setattr("sys.stdin", stdin)

    ran = berth("lint", "-")

    assert (ran.code, stub.asked) == (1, [])
    assert ran.err.startswith("-:1: can't be read")


@pytest.mark.parametrize(
    "command",
    [
        ("rollback", "1", "--reason", "\udcff"),
        ("reject", "7", "--reason", "\udcff"),
        ("resume", "\udcff"),
        ("why", "\udcff"),
        ("export", "web", "\udcff"),
    ],
)
def test_an_argument_that_is_no_text_is_refused_before_anything_is_asked(
    berth: Berth, stub: Stub, command: tuple[str, ...]
) -> None:
    ran = berth(*command)

    assert (ran.code, stub.asked) == (1, [])
    assert "isn't UTF-8" in ran.err
