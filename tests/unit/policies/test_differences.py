"""Two documents line by line: nothing is cut, the words that differ are marked, what is far from a difference is left out."""

from policies.differences import unified, yaml_of
from tests.builders import make_assignment, make_rule_set
from tests.fuzz.bounds import no_hang

LONG = " && ".join(f"node.metadata.labels[?'team-{number}'].orValue('') != 'x'" for number in range(12))


def shown(before: str, after: str) -> list[str]:
    signs = {"same": " ", "added": "+", "removed": "-", "gap": "."}
    return [signs[line.kind] + "".join(piece.text for piece in line.pieces) for line in unified(before, after)]


def marked(before: str, after: str, kind: str) -> list[str]:
    return [
        piece.text for line in unified(before, after) if line.kind == kind for piece in line.pieces if piece.differs
    ]


def rules(expression: str) -> str:
    return yaml_of(make_rule_set(filters=[{"name": "team", "expression": expression, "reason": "no"}]))


def test_the_end_of_a_long_expression_is_there_and_marked() -> None:
    lines = shown(rules(LONG), rules(f"{LONG} || true"))
    assert any(line.startswith("+") and line.rstrip("'\"").endswith("|| true") for line in lines)
    assert "".join(marked(rules(LONG), rules(f"{LONG} || true"), "added")).strip() == "|| true"
    assert marked(rules(LONG), rules(f"{LONG} || true"), "removed") == []


def test_what_is_alike_and_far_away_is_counted() -> None:
    before = "\n".join(map(str, range(20)))
    assert shown(before, before.replace("10\n", "ten\n")) == [
        ".… 7 lines the same", " 7", " 8", " 9", "-10", "+ten", " 11", " 12", " 13", ".… 6 lines the same",
    ]  # fmt: skip


def test_nothing_differs_in_the_same_text() -> None:
    assert unified("a\nb", "a\nb") == []


def test_a_thing_that_comes_or_goes_is_all_there() -> None:
    text = yaml_of(make_assignment())
    assert shown("", text) == [f"+{line}" for line in text.splitlines()]
    assert shown(text, "") == [f"-{line}" for line in text.splitlines()]
    assert yaml_of(None) == ""


def test_thousands_of_lines_and_words_lose_none() -> None:
    before, after = ("\n".join(f"{word} {number}" for number in range(3_000)) for word in ("a", "b"))
    lines = shown(before, after)
    assert [line for line in lines if line[0] == "-"] == [f"-{line}" for line in before.splitlines()]
    assert [line for line in lines if line[0] == "+"] == [f"+{line}" for line in after.splitlines()]
    words = " ".join(map(str, range(3_000)))
    assert shown(words, f"{words} x") == [f"-{words}", f"+{words} x"]


def test_the_same_words_in_other_places_are_compared_in_bounds() -> None:
    """Which took the cube of their number: a Change of such lines held up the admin for minutes."""
    before, after = ("\n".join([" ".join(f"{mark}{number} (" for number in range(124))] * 50) for mark in "vw")
    with no_hang():
        lines = shown(before, after)
    assert [line for line in lines if line[0] == "+"] == [f"+{line}" for line in after.splitlines()]
