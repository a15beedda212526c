"""Rule documents as text: what is read, what is refused, and on which line."""

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policies import manifests
from policies.engine.documents import document_of
from policies.engine.errors import RuleSetError
from policies.engine.validation import read_rule_set
from policies.manifests import Located, read_documents, to_json, to_yaml
from tests.builders import TEAM_FILTER, make_rule_set, rule_set_document


def read(text: str) -> Any:
    (found,) = read_documents(text, "rules.yaml")
    return found.document


def refusal(text: str) -> str:
    with pytest.raises(RuleSetError) as caught:
        read_documents(text, "rules.yaml")
    (fault,) = caught.value.faults
    assert "\n" not in fault.message
    return fault.message


class TestReadDocuments:
    def test_several_documents_stand_in_one_file_and_empty_ones_are_passed_over(self) -> None:
        found = read_documents("# nothing\n---\na: 1\n---\n---\nnull\n---\nb: 2\n", "rules.yaml")
        assert [one.document for one in found] == [{"a": 1}, {"b": 2}]
        assert [one.line_of("") for one in found] == [3, 8]

    @pytest.mark.parametrize("text", ["", "\n", "# only words\n", "---\n", "null", "\ufeff"])
    def test_a_file_without_documents_gives_none(self, text: str) -> None:
        assert read_documents(text, "rules.yaml") == []

    @pytest.mark.parametrize(
        "rare", ["\x7f", "\x85", "\x9f", "\u2028", "\u2029", "\ufeff", "\ud800", "\ufffe", "\uffff"]
    )
    def test_json_is_read_as_json_where_yaml_takes_a_character_otherwise(self, rare: str) -> None:
        document = {f"a{rare}b": [f"{rare}x", f"\\{rare}", rare]}
        text = json.dumps(document, ensure_ascii=False, indent=1)
        assert read(text) == read(f"\ufeff{text}") == document
        (found,) = read_documents(text.replace(": [", ":\n["), "rules.json")
        assert found.line_of(f"a{rare}b[2]") == 6

    def test_json_is_read_too(self) -> None:
        document = rule_set_document(scores=[{"name": "x", "expression": "1", "bounds": [-1e3, 1.5e-1]}])
        assert read(json.dumps(document)) == document
        assert read(json.dumps(document, indent=2)) == document
        assert read('{"a": [1e3, 1E+2, -1.5e-2, 12e0], "b": "1e3"}') == {"a": [1000, 100, -0.015, 12], "b": "1e3"}

    def test_json_may_write_characters_as_two_escapes(self) -> None:
        assert read(json.dumps({"a": "\U0001f600 x"})) == {"a": "\U0001f600 x"}
        assert read(r'{"\ud83d\ude00": 1, "half": "\ud83d"}') == {"\U0001f600": 1, "half": "\ud83d"}

    @pytest.mark.parametrize(
        ("written", "value"),
        [
            pytest.param("2026-03-29", "2026-03-29", id="a date"),
            pytest.param("2026-03-29T01:30:00Z", "2026-03-29T01:30:00Z", id="a time"),
            pytest.param("22:30", "22:30", id="a time of day"),
            pytest.param("1:30:45.5", "1:30:45.5", id="a duration"),
            pytest.param("-190:20", "-190:20", id="a number of base 60"),
            pytest.param("1_000", 1000, id="a number in groups"),
            pytest.param("off", "off", id="off, a mode of a rule"),
            pytest.param("yes", "yes", id="yes"),
            pytest.param("true", True, id="true"),
            pytest.param("False", False, id="False"),
            pytest.param("'true'", "true", id="true in quotes"),
            pytest.param("~", None, id="null"),
            pytest.param("5", 5, id="a whole number"),
            pytest.param("5.5", 5.5, id="a fraction"),
            pytest.param("1.36.3", "1.36.3", id="a version"),
            pytest.param("100m", "100m", id="a quantity"),
            pytest.param("text", "text", id="a text"),
        ],
    )
    def test_a_value_has_jsons_types(self, written: str, value: object) -> None:
        found = read(f"a: {written}")["a"]
        assert found == value
        assert type(found) is type(value)

    def test_anchors_are_repeated_where_they_are_named(self) -> None:
        document = read("a: &x {k: 1}\nb: *x\nc:\n  <<: *x\n  k: 2\n  l: 3\n")
        assert document == {"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 2, "l": 3}}


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            pytest.param("a: 1\nb: [1,\nc: 2", "rules.yaml:3: not readable as YAML or JSON: ", id="no YAML"),
            pytest.param('{"a": 1,\n "b" 2}', "rules.yaml:2: ", id="no JSON"),
            pytest.param("a: 1\nb: \x07\n", "rules.yaml:2: ", id="a control character"),
            pytest.param("a: 1\n\tb: 2\n", "rules.yaml:2: ", id="a tab"),
            pytest.param("a: *nothing\n", "rules.yaml:1: ", id="an anchor that isn't there"),
            pytest.param("a: 1\nb: 2\na: 3\n", "rules.yaml:3: not readable as YAML or JSON: the member a stands", id="a member twice"),
            pytest.param('{"a": {"b": 1,\n"b": 2}}', "rules.yaml:2: ", id="a member twice, in JSON"),
            pytest.param("a:\n  1: x\n", "rules.yaml:2: not readable as YAML or JSON: a member's name must be a text", id="a number as name"),
            pytest.param("a:\n  ? [b]\n  : x\n", "rules.yaml:2: ", id="a list as name"),
            pytest.param("null: x", "rules.yaml:1: ", id="null as name"),
            pytest.param("a: !!binary eA==", "rules.yaml:1: not readable as YAML or JSON: tag:yaml.org,2002:binary", id="bytes"),
            pytest.param("a: !!set {b}", "rules.yaml:1: ", id="a set"),
            pytest.param("a: 1\nb: !has(c)", "rules.yaml:2: not readable as YAML or JSON: !has(c) isn't a type that JSON has: put it in quotes", id="an expression that begins with !"),
            pytest.param("a: {operator: =}", "rules.yaml:1: not readable as YAML or JSON: tag:yaml.org,2002:value isn't a type that JSON has: put it in quotes", id="an equals sign"),
            pytest.param("a: !!python/object/apply:os.system [ls]", "rules.yaml:1: ", id="code"),
            pytest.param("a: !!timestamp 2026-01-01", "rules.yaml:1: ", id="a time that insists"),
            pytest.param("a: !!bool x", "rules.yaml:1: not readable", id="no boolean"),
            pytest.param("a: !!int ''", "rules.yaml:1: not readable", id="no number"),
            pytest.param("a: !!float x", "rules.yaml:1: not readable", id="no fraction"),
            pytest.param("a: 1\nb: !!int 22:30", "rules.yaml:2: not readable as YAML or JSON: this can't be read as a whole number", id="a number of base 60 that insists"),
            pytest.param("a: 0x" + "f" * 4_000, "rules.yaml:1: not readable as YAML or JSON: this can't be read as a whole number", id="more digits than Python writes"),
            pytest.param("a: !!float '1:30.5'", "rules.yaml:1: not readable as YAML or JSON: this can't be read as a number", id="a fraction of base 60 that insists"),
            pytest.param("a: !!map [1]", "rules.yaml:1: ", id="no object"),
            pytest.param("a: " + "9" * 5000, "rules.yaml:1: not readable", id="thousands of digits"),
            pytest.param("[" * 20_000, "rules.yaml:1: not readable as YAML or JSON: too deeply nested", id="too deep"),
            pytest.param("a: &x\n- 1\n- *x\n", "rules.yaml:1: not readable as YAML or JSON: this anchor contains itself", id="an anchor in itself"),
            pytest.param("[" * 200_000, "rules.yaml:1: not readable as YAML or JSON: too deeply nested", id="far too deep"),
            pytest.param("{a: " * 200_000, "rules.yaml:1: not readable as YAML or JSON: too deeply nested", id="objects far too deep"),
            pytest.param("- " * 20_000, "rules.yaml:1: not readable as YAML or JSON: too deeply nested", id="lists in one line"),
            pytest.param("".join(" " * depth + "a:\n" for depth in range(1_500)), "rules.yaml:101: not readable as YAML or JSON: too deeply nested", id="a staircase"),
            pytest.param("&x\na: {<<: *x}\n", "rules.yaml:1: ", id="an anchor merged into itself"),
            pytest.param("%TAG\n", "rules.yaml:1: ", id="a directive cut off"),
        ],
    )  # fmt: skip
    def test_what_json_cannot_hold_is_refused_with_its_line(self, text: str, message: str) -> None:
        assert refusal(text).startswith(message)

    @pytest.mark.parametrize("form", ["[{0}]", "{{k: [{0}]}}", "{{<<: [{0}]}}"], ids=["lists", "objects", "merges"])
    def test_few_lines_that_stand_for_billions_of_values_are_refused(self, form: str) -> None:
        lines = ["a0: &a0 {x: 1}"]
        lines += [f"a{i}: &a{i} " + form.format(", ".join([f"*a{i - 1}"] * 9)) for i in range(1, 12)]
        assert "at most 100000 values, repeated anchors counted each time" in refusal("\n".join(lines))

    @pytest.mark.parametrize("expression", ["!has(a) && b", "'a' in b", "[1].exists(x, x == 1)", "a ? 'b: c' : d"])
    def test_an_expression_that_yaml_reads_otherwise_is_told_with_the_remedy(self, expression: str) -> None:
        text = f"spec:\n  filters:\n  - name: a\n    expression: {expression}\n    reason: b\n"
        said = refusal(text)
        assert said.startswith("rules.yaml:4: not readable as YAML or JSON: ")
        assert said.endswith("write the expression after >-")

    def test_a_fault_of_another_kind_on_an_expressions_line_is_told_alone(self) -> None:
        assert refusal("expression: a\nexpression: b\n").endswith("the member expression stands here twice")

    def test_values_are_taken_up_to_the_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(manifests, "MAX_VALUES", 10)
        assert len(read(json.dumps([0] * 9))) == 9
        assert "at most 10 values" in refusal(json.dumps([0] * 10))

    @settings(max_examples=300)
    @given(st.text() | st.text("ab:-&*!{}[]<,'\"|>#%? \n\t10.~\\", max_size=40))
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        try:
            found = read_documents(text, "rules.yaml")
        except RuleSetError:
            return
        for one in found:
            json.dumps(one.document)
            assert one.line_of("spec.filters[0]") >= 1


TEXTS = st.lists(
    st.sampled_from(
        [
            *(
                "a: ",
                "b:\n",
                "- ",
                "  ",
                "\n",
                "? ",
                ": ",
                "{",
                "}",
                "[",
                "]",
                ", ",
                "---\n",
                "...\n",
                "# c\n",
                "\t",
                "\r\n",
            ),
            *(
                '"x\\n"',
                "'it''s'",
                "|\n  text\n",
                ">-\n  folded\n  text\n",
                "&n ",
                "*n",
                "<<: *n",
                "!!str ",
                "! ",
                "!x ",
            ),
            *(
                "1e3",
                "0x1F",
                "1_000",
                "~",
                "off",
                "true",
                "2026-03-29",
                "!has(x) || node.?labels",
                "x ? 1 : 2",
                "\u00e9",
                "\ufeff",
            ),
            *('{"a": [1, "b"]}', "%YAML 1.1\n", "\u2028", ">#\n", "k: v\n"),
        ]
    ),
    max_size=14,
).map("".join)


class TestFastReading:
    """libyaml reads plain texts. What it makes of them is what PyYAML makes, each value on the same line."""

    @pytest.fixture
    def without_pyyaml(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any) -> None:
            pytest.fail("PyYAML's own scanner, which takes sixteen times as long, reads this")

        monkeypatch.setattr(yaml.scanner.Scanner, "fetch_more_tokens", refuse)

    @pytest.mark.usefixtures("without_pyyaml")
    @pytest.mark.parametrize("write", [to_yaml, to_json, json.dumps])
    def test_what_berth_and_others_write_is_read_by_libyaml(self, write: Any) -> None:
        expression = "node.metadata.?labels.team.orValue('') != 'a' ? !has(pod.spec.x) : true"
        document = rule_set_document(filters=[{"name": "a", "expression": expression}])
        text = "\n---\n".join([write(document)] * 300)
        found = read_documents(text, "rules.yaml")
        assert [one.document for one in found] == [document] * 300
        lines = 1 + write(document).rstrip().count("\n")
        assert found[-1].line_of("") > 299 * lines

    @settings(max_examples=1_000, deadline=None)
    @given(TEXTS)
    def test_both_readers_find_the_same_values_on_the_same_lines(self, text: str) -> None:
        def outcome(read: Any) -> Any:
            try:
                return [(one.document, one.lines) for one in read(text, "rules.yaml")]
            except RuleSetError as error:
                return error.faults

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(manifests, "_READ_OTHERWISE", re.compile(""))
            slowly = outcome(read_documents)
        quickly = outcome(read_documents)
        # A `?` inside brackets, which PyYAML refuses wrongly, may be read.
        assert quickly == slowly or ("?" in text and "got '?'" in str(slowly))


# Texts that dumpers write in different styles and break in different places.
ODD_TEXTS = st.text() | st.text(
    "ab0.-: #'\"|>&*!?%@`{}[],~=\\\n\t\r\x07\x7f\x85\xa0é中\u2028\ufeff\U0001f600", max_size=200
)


class TestFastWriting:
    """libyaml writes plain texts. What it writes are the bytes that PyYAML writes."""

    @settings(max_examples=1_000, deadline=None)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | ODD_TEXTS,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXTS, inner, max_size=3),
        ),
        st.sampled_from([40, 110, 1 << 30]),
    )
    @example(["half a character: \ud800"], 110)
    @example([{"a" * size: 1, "é" * size: "x"} for size in (60, 65, 110, 118, 122, 123, 124, 128, 129)], 110)
    @example([[{"a" * 123: {"b" * 127: [{"c" * 128: 1}]}}]], 1 << 30)
    def test_both_writers_write_the_same(self, value: Any, width: int) -> None:
        document = {"value": value, "list": [value]}
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(manifests, "_WRITTEN_OTHERWISE", re.compile(""))
            slowly = to_yaml(document, width=width)
        assert to_yaml(document, width=width) == slowly

    def test_what_berth_writes_is_written_by_libyaml(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any) -> None:
            pytest.fail("PyYAML's own emitter, which is slow, writes this")

        monkeypatch.setattr(yaml.emitter.Emitter, "emit", refuse)
        expression = "node.metadata.?labels.team.orValue('') != 'a' ? !has(pod.spec.x) : true"
        document = rule_set_document(filters=[{"name": "é", "expression": expression}])
        assert read(to_yaml(document)) == document


class TestLocated:
    TEXT = """
apiVersion: berth/v1
kind: RuleSet
metadata: {name: web}
spec:
  filters:
  - name: first
    expression: "true"
  - name: second
    expresion: "true"
"""

    def test_a_fault_is_told_with_file_line_and_path(self) -> None:
        (found,) = read_documents(self.TEXT, "rules.yaml")
        with pytest.raises(RuleSetError) as caught:
            read_rule_set(found.document)
        assert sorted(found.describe(fault) for fault in caught.value.faults) == [
            "rules.yaml:10: spec.filters[1].expresion: unknown member; did you mean expression?",
            "rules.yaml:9: spec.filters[1]: needs a builtin or an expression",
        ]

    @pytest.mark.parametrize("written", [".inf", "-.INF", ".nan", "1e999"])
    def test_a_number_that_json_cannot_write_is_told_with_its_line_and_the_remedy(self, written: str) -> None:
        (found,) = read_documents(f"{self.TEXT}  params:\n    most: {written}\n", "rules.yaml")
        with pytest.raises(RuleSetError) as caught:
            read_rule_set(found.document)
        (said,) = (found.describe(fault) for fault in caught.value.faults if "number" in fault.message)
        assert said.startswith("rules.yaml:12: spec.params.most: must be a number that JSON can write, not ")
        assert said.endswith(": put it in quotes if it is a text")

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            ("", 2),
            ("spec.filters", 7),
            ("spec.filters[0].name", 7),
            ("spec.filters[1].reason", 9),
            ("spec.filters[7].name", 7),
            ("spec.scores[0].name", 6),
            ("nothing.at.all", 2),
        ],
    )
    def test_a_path_that_is_not_there_has_the_line_of_the_nearest_above(self, path: str, line: int) -> None:
        (found,) = read_documents(self.TEXT, "rules.yaml")
        assert found.line_of(path) == line

    def test_a_document_without_lines_is_on_the_first(self) -> None:
        assert Located({}, "x", {}).line_of("spec") == 1


class TestWriting:
    @pytest.mark.parametrize("write", [to_yaml, to_json])
    def test_what_is_written_reads_back_the_same(self, write: Any) -> None:
        rule_set = make_rule_set(
            filters=[{**TEAM_FILTER, "mode": "off"}],
            scores=[{"name": "x", "expression": "1", "bounds": [0, 1e30 if write is to_json else 20.5]}],
            params={
                "date": "2026-03-29",
                "yes": "no",
                "number": "12e3",
                "null": "null",
                "emoji": "\U0001f600",
                "": " x ",
            },
        )
        assert read_rule_set(read(write(document_of(rule_set)))) == rule_set

    def test_the_same_document_gives_the_same_text(self) -> None:
        assert to_yaml(rule_set_document()) == to_yaml(rule_set_document())
        assert to_yaml({"b": 1, "a": "é"}) == "b: 1\na: é\n"
        shared = ["x"]
        assert to_yaml({"a": shared, "b": shared}) == to_yaml({"a": ["x"], "b": ["x"]})
        assert to_json({"b": 1, "a": "é"}) == '{\n  "b": 1,\n  "a": "é"\n}'

    @pytest.mark.parametrize("text", ["y", "N", "08", "-0888", "0o12", "0X1F", "1.e3", "+.5", "1_2e3"])
    def test_a_text_that_kubernetes_tools_would_read_otherwise_stands_in_quotes(self, text: str) -> None:
        assert to_yaml({"a": text, text: "b"}) == f"a: '{text}'\n'{text}': b\n"

    @pytest.mark.parametrize("text", ["100m", "1.36.3", "web-08", "yard", "2Gi"])
    def test_a_text_that_every_tool_reads_alike_stands_without_quotes(self, text: str) -> None:
        assert to_yaml({"a": text}) == f"a: {text}\n"

    @settings(max_examples=150)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=8,
        )
    )
    def test_any_json_reads_back_from_yaml(self, value: Any) -> None:
        assert read(to_yaml({"a": value})) == {"a": value}
