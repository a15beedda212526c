"""What a command writes for programs: YAML that every parser reads as the JSON that the server sent."""

import io
from typing import Any

import pytest
import yaml
from berth.answer import Answer, write


def _written(data: dict[str, Any]) -> str:
    stream = io.StringIO()
    write(Answer(data), "yaml", stream)
    return stream.getvalue()


@pytest.mark.parametrize("text", ["y", "N", "08", "-0888", "0o12", "0X1F", "1.e3", "+.5", "1_2e3", "1e5"])
def test_a_text_that_kubernetes_tools_would_read_otherwise_stands_in_quotes(text: str) -> None:
    assert _written({"a": text, text: "b"}) == f"ok: true\na: '{text}'\n'{text}': b\n"


@pytest.mark.parametrize("text", ["100m", "1.36.3", "web-08", "yard", "2Gi"])
def test_a_text_that_every_tool_reads_alike_stands_without_quotes(text: str) -> None:
    assert _written({"a": text}) == f"ok: true\na: {text}\n"


@pytest.mark.parametrize(("text", "written"), [("a\x85b", r"a\Nb"), ("a\u2028b", r"a\Lb"), ("a\u2029b", r"a\Pb")])
def test_a_rare_line_end_is_written_as_an_escape(text: str, written: str) -> None:
    assert _written({"a": text}) == f'ok: true\na: "{written}"\n'
    assert yaml.safe_load(_written({"a": text}))["a"] == text
