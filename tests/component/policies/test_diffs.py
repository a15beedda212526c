"""Changes as people read them before they publish: nothing is cut off, and the words that differ are marked."""

import contextlib
import html
import io
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from policies import manifests
from policies.admin import base
from policies.admin.base import marked
from policies.models import Revision
from policies.sentences import rule_sentence
from tests.builders import make_assignment, make_rule_set, rule_set_document
from tests.component.pages import change_url, get, opened, publish, publish_all, text_of
from tests.fuzz.bounds import no_hang

pytestmark = pytest.mark.django_db

BEFORE = " && ".join(f"node.metadata.labels[?'team-{number}'].orValue('') != 'x'" for number in range(6))
AFTER = f"{BEFORE} || true"


def filters(expression: str) -> dict[str, Any]:
    return {"filters": [{"name": "team", "expression": expression, "reason": "no"}]}


def draft(expression: str) -> str:
    """Open a Change of what is published; return its page's path."""
    return change_url("change", opened(make_rule_set(**filters(expression)), by="alice").pk)


def plain(line: Any) -> str:
    return html.unescape(re.sub(r"</?(ins|del)>", "", str(line)))


class TestPages:
    @pytest.fixture(autouse=True)
    def _published(self) -> None:
        assert len(BEFORE) > 300
        publish(make_rule_set(**filters(BEFORE)))

    def test_the_page_of_a_change_shows_the_end_of_a_long_expression_and_marks_it(self, operator: Client) -> None:
        page = get(operator, draft(AFTER))
        assert AFTER in text_of(page)
        assert "<ins> || true</ins>”" in page.content.decode()

    def test_the_revision_page_does_and_the_list_names_what_was_touched_in_a_line(self, auditor: Client) -> None:
        publish(make_rule_set(**filters(AFTER)))
        page = get(auditor, change_url("revision", 2))
        assert AFTER in text_of(page)
        assert "<ins> || true</ins>”" in page.content.decode()
        assert "rule set web version 2 published in place of 1" in text_of(get(auditor, "/admin/policies/revision/"))

    def test_the_roll_back_page_marks_what_goes(self, operator: Client) -> None:
        publish(make_rule_set(**filters(AFTER)))
        page = get(operator, "/admin/policies/revision/1/roll_back/")
        assert AFTER in text_of(page)
        assert "<del> || true</del>”" in page.content.decode()

    def test_plan_and_apply_print_it_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "web.yaml"
        path.write_text(manifests.to_yaml(rule_set_document(**filters(AFTER))))
        for command in (["plan", "--no-cluster"], ["apply", "--publish"]):
            out = io.StringIO()
            with contextlib.suppress(SystemExit):  # `plan` ends with 2: something would change
                call_command(*command, str(path), stdout=out)
            assert f"“{BEFORE}” → “{AFTER}”" in out.getvalue()

    def test_the_summary_that_is_kept_holds_it_whole(self) -> None:
        publish(make_rule_set(**filters(AFTER)))
        assert f"“{BEFORE}” → “{AFTER}”" in Revision.objects.get(pk=2).summary

    def test_an_added_and_a_removed_rule_are_shown_whole(self, operator: Client) -> None:
        publish(make_rule_set("other", **filters(AFTER)))
        assert AFTER in Revision.objects.get(pk=2).summary

    def test_tags_in_an_expression_stay_text(self, operator: Client) -> None:
        page = get(operator, draft("'<script>alert(1)</script>' != '</ins>'"))
        assert b"<script>alert(1)" not in page.content
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.content.decode()

    def test_an_assignments_sentences_are_marked(self, operator: Client) -> None:
        publish_all(make_assignment(order=1))
        page = get(operator, change_url("change", opened(make_assignment(order=2)).pk)).content.decode()
        assert "order <del>1,</del> every Pod gets web → order <ins>2,</ins> every Pod gets web" in page


class TestMarked:
    @pytest.mark.parametrize(
        ("line", "shown"),
        [
            ("score a changed: weight 1 → 2", "score a changed: weight <del>1</del> → <ins>2</ins>"),
            ("filter x added: y", "filter x added: y"),
            ("reason “old” → “new”", "reason <del>“old”</del> → <ins>“new”</ins>"),
            ("a “x y” → “x z”, b “1 2” → “1 3”", "a “x <del>y</del>” → “x <ins>z</ins>”, b “1 <del>2</del>” → “1 <ins>3</ins>”"),
            ("expression “” → “a b”", "expression <del>“”</del> → <ins>“a b”</ins>"),
            ("expression “a > 1” → “a > 2”", "expression “a &gt; <del>1</del>” → “a &gt; <ins>2</ins>”"),
        ],
    )  # fmt: skip
    def test_marks_the_words_that_differ(self, line: str, shown: str) -> None:
        assert str(marked(line)) == shown

    @pytest.mark.parametrize("word", ["→", "“", "”", "” → “", ", b “c” → “d”", "<ins>", "changed: a → b", "&amp;"])
    def test_loses_no_character_whatever_stands_in_the_texts(self, word: str) -> None:
        line = f"filter x changed: expression “a {word} b” → “a {word} {word} c”, reason “{word}” → “”"
        assert plain(marked(line)) == line

    def test_what_differs_of_long_texts_stands_before_them(self) -> None:
        said = str(marked(f"expression “{BEFORE}” → “{AFTER}”"))
        assert said.startswith("expression <ins>|| true</ins> in “node")
        other = " ".join(reversed(BEFORE.split(" ")))
        assert " in “" not in str(marked(f"expression “{BEFORE}” → “{other}”"))

    def test_thousands_of_words_are_compared_as_a_whole(self) -> None:
        before = " ".join(map(str, range(3000)))
        line = f"expression “{before}” → “{before} x”"
        assert plain(marked(line)) == line
        assert str(marked(line)).count("<ins>") == 1


def test_a_rules_sentence_is_whole_on_one_line() -> None:
    (rule,) = make_rule_set(**filters(AFTER.replace(" && ", "\n  && "))).spec.filters
    assert rule_sentence(rule).endswith(AFTER)
    assert "'a  b'" in rule_sentence(make_rule_set(**filters("'a  b' == ''")).spec.filters[0])


def test_a_text_full_of_what_looks_like_changes_is_marked_in_bounds() -> None:
    """Each of them was looked for again from each quote on: 1,600 characters took 0.4 s, and eight times that for twice as many."""
    with no_hang():
        assert "x" in marked("web: param text “" + "” → “" * 5_000 + "x")


@given(
    st.lists(
        st.sampled_from(["“", "”", " → ", "” → “", "a", " b ", ", c ", ";", " d → e", "order 1, x", "\n"]), max_size=14
    )
)
def test_what_became_something_else_is_found_as_one_expression_over_the_line_would(pieces: list[str]) -> None:
    """By that expression, which takes the cube of the line."""
    whole = re.compile(
        r"“(.*?)” → “(.*?)”(?=, \w+ |;|$)"
        r"|(order \d+, [^“”]*?) → (order \d+, [^“”]*)$"
        r"|(?<= )([\w.-]+) → ([\w.-]+)(?=[,;]|$)",
        re.DOTALL,
    )
    line = "".join(pieces)
    wanted = [(*found.span(), *(side for side in found.groups() if side is not None)) for found in whole.finditer(line)]
    assert [tuple(found)[:4] for found in base._changes_in(line)] == wanted


def test_a_line_of_the_changes_is_marked_in_bounds() -> None:
    before, after = (" ".join(f"{mark}{number}" for number in range(495)) for mark in "vw")
    with no_hang():
        for _ in range(8):
            assert "<ins>" in marked(f"web: expression “{before}” → “{after}”")
