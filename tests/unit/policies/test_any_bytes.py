"""Whatever bytes a file holds, reading it gives documents or faults, each with file and line: no other exception, no silence."""

import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policies import manifests
from policies.engine.errors import RuleSetError
from policies.management.commands.lint import lint_files
from policies.manifests import MAX_CHARACTERS, read_documents, to_yaml
from tests.builders import assignment_document, priority_class_document, rule_set_document

SEEDS = [
    to_yaml(rule_set_document(scores=[{"name": "s", "expression": "1", "bounds": [0, 2.5]}])).encode(),
    json.dumps(rule_set_document(), indent="\t").encode(),
    to_yaml(assignment_document(match={"namespaces": ["a"]})).encode() + b"---\n" + to_yaml(priority_class_document()).encode(),
    b'{"kind": "List", "items": [' + json.dumps(assignment_document()).encode() + b"]}",
]  # fmt: skip
PIECES = st.sampled_from(
    [
        *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x00", b"\x85", b"\r", b"\n", b"\t", b"\x1b[31m"),
        *(b'"\\UFFFFFFFF"', b'"\\U00110000"', b'"\\ud83d"', b"!!int x", b"!!float y", b"!!bool 1", b"0x_", b"!!null z"),
        *(b"9" * 5_000, b".nan", b"1e999", b"22:30", b"&a [*a]", b"*b", b"<<: x", b"? ", b"- ", b": ", b"---\n"),
        *(b"[", b"]", b"{", b"}", b'"', b"'", b"|", b">", b"%", b"@", b"`", b"#", b","),
    ]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A file that is read, with pieces put in, cut out and repeated."""
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from((0, 1, 4, 30))))
        text = text[:start] + draw(PIECES | st.binary(max_size=4)) * draw(st.sampled_from((1, 1, 2, 120))) + text[end:]
    return text


def outcome(text: str) -> list[Any]:
    """Return the documents of a text; of one that is refused none, when each fault has a line of the text."""
    try:
        return [found.document for found in read_documents(text, "rules.yaml")]
    except RuleSetError as error:
        for fault in error.faults:
            place = re.match(r"rules\.yaml:([0-9]+): \S", fault.message)
            assert place, fault.message
            assert 1 <= int(place[1]) <= len(re.split("\r\n|[\n\r\x85\u2028\u2029]", text)), fault.message
        return []


@settings(max_examples=200)
@given(damaged() | st.binary(max_size=60))
@example(b'a: "\\UFFFFFFFF"')
@example(b"\xef\xbb\xbf")
def test_any_bytes_are_read_or_refused_with_a_line_of_the_file(data: bytes) -> None:
    for document in outcome(data.decode("utf-8", "surrogateescape")):
        json.dumps(document)


@settings(max_examples=60)
@given(data=damaged())
def test_lint_says_each_fault_of_any_bytes_with_file_and_line_in_words_that_can_be_printed(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(data)
    for line in lint_files([path], []):
        assert re.match(rf"{re.escape(str(path))}:[0-9]+: \S", line), line
        line.encode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a: 1\nb: !!bool x\n", "2: not readable as YAML or JSON: this can't be read as true or false", id="no boolean"),
        pytest.param("a:\n- 1\n- 0x_\n", "3: not readable as YAML or JSON: this can't be read as a whole number", id="no number"),
        pytest.param("a:\n\n  b: !!float x", "3: not readable as YAML or JSON: this can't be read as a number", id="no fraction"),
        pytest.param("a: 1\nb: " + "9" * 5_000, "2: not readable as YAML or JSON: this can't be read as a whole number", id="digits"),
        pytest.param('a: 1\nb: "\\UFFFFFFFF"', "2: not readable as YAML or JSON: no character has this number", id="an escape"),
        pytest.param('a: 1\nb: "\\U00110000"', "2: not readable as YAML or JSON: no character has this number", id="the first one"),
        pytest.param("a: 1\nb: \udcff", "2: not readable as YAML or JSON: special characters are not allowed", id="half a pair"),
        pytest.param('{\n\t"a": 1,\n\t"b": 2,\n\t"a": 3\n}', "4: not readable as YAML or JSON: the member a stands here twice", id="tabs"),
        pytest.param('[{"a": 1},\n\n {"b": [{"c": 1,\n "c": 2}]}]', "4: not readable as YAML or JSON: the member c stands here twice", id="deep"),
        pytest.param('{"\\u0061": 1,\n"a": 2}', "2: not readable as YAML or JSON: the member a stands here twice", id="an escaped name"),
        pytest.param("ok: 1\n---\nok: 2\n---\na: [\n", "6: not readable as YAML or JSON: ", id="the last document"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_line_of_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(RuleSetError) as caught:
        read_documents(text, "rules.yaml")
    (fault,) = caught.value.faults
    assert fault.message.startswith(f"rules.yaml:{said}")


class TestBounds:
    """What is allowed is read, and one more of it refused, in both forms and by both readers."""

    FORMS = pytest.mark.parametrize("form", ["{}", "\t{}", "# libyaml reads it otherwise: \u2028\n{}"], ids=["plain", "tabs", "slow"])  # fmt: skip

    @FORMS
    def test_a_document_nested_deeper_than_the_limit_is_refused(
        self, form: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(manifests, "MAX_NESTING", 5)
        assert outcome(form.format("[[[[[0]]]]]")) == [[[[[[0]]]]]]
        assert outcome(form.format('{"a": {"a": {"a": {"a": {"a": 0}}}}}'))
        for text in ("[[[[[[0]]]]]]", '{"a": {"a": {"a": {"a": {"a": {"a": 0}}}}}}'):
            with pytest.raises(RuleSetError, match="too deeply nested: lists and objects stand at most 5 deep"):
                read_documents(form.format(text), "rules.yaml")

    @pytest.mark.parametrize("form", ["{}", "# libyaml reads it otherwise: \u2028\n{}"], ids=["plain", "slow"])
    def test_values_are_counted_in_each_document_for_itself(self, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(manifests, "MAX_VALUES", 4)
        assert outcome(form.format("[1, 2, 3]\n---\n[1, 2, 3]")) == [[1, 2, 3], [1, 2, 3]]
        with pytest.raises(RuleSetError, match="at most 4 values"):
            read_documents(form.format("[1, 2, 3]\n---\n[1, 2, 3, 4]"), "rules.yaml")

    def test_texts_are_counted_each_time_that_an_anchor_repeats_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(manifests, "MAX_WRITTEN", 80)
        text = "a: &a " + "x" * 30
        assert outcome(text + "\nb: *a\n") == [{"a": "x" * 30, "b": "x" * 30}]
        with pytest.raises(RuleSetError, match=r"^rules\.yaml:1: .*at most 80 characters of texts and paths"):
            read_documents(text + "\nb: *a\nc: *a\n", "rules.yaml")

    def test_a_file_of_too_many_characters_is_not_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(manifests, "_is_read_by_libyaml", lambda _: pytest.fail("it was read"))
        with pytest.raises(RuleSetError, match=r"^rules\.yaml:1: has more than 16,777,216 characters: split it"):
            read_documents(" " * (MAX_CHARACTERS + 1), "rules.yaml")
