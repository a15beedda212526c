"""Names that look like others, texts that read in another order than they are, letters that aren't what they seem."""

from typing import Any

import pytest

from policies.changes_in_words import part_changes, revision_changes, rule_set_changes
from policies.engine.documents import read_assignment
from policies.engine.errors import RuleSetError
from policies.engine.ruleset import Revision
from policies.engine.validation import read_rule_set
from policies.sentences import assignment_sentence
from tests.builders import assignment_document, make_rule_set, rule_set_document

CYRILLIC_A = "\u0430"


def faults_of(document: dict[str, Any], read: Any = read_assignment) -> dict[str, str]:
    with pytest.raises(RuleSetError) as raised:
        read(document)
    return {fault.path: fault.message for fault in raised.value.faults}


@pytest.mark.parametrize(
    ("match", "place"),
    [
        ({"namespaces": ["<script>"]}, "namespaces[0]"),
        ({"namespaces": ["shop", f"p{CYRILLIC_A}yments"]}, "namespaces[1]"),
        ({"namespaces": ["Shop"]}, "namespaces[0]"),
        ({"namespaces": ["a" * 64]}, "namespaces[0]"),
        ({"namespaces": [""]}, "namespaces[0]"),
        ({"priorityClassNames": ["high_prio"]}, "priorityClassNames[0]"),
        ({"priorityClassNames": ["a" * 254]}, "priorityClassNames[0]"),
        ({"schedulerNames": ["my scheduler"]}, "schedulerNames[0]"),
        ({"podSelector": {"matchLabels": {f"te{CYRILLIC_A}m": "web"}}}, "podSelector.matchLabels"),
        ({"podSelector": {"matchLabels": {"team": "web!"}}}, "podSelector.matchLabels"),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a b", "operator": "Exists"}]}},
            "namespaceSelector.matchExpressions[0].key",
        ),
        (
            {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "<c>"]}]}},
            "podSelector.matchExpressions[0].values",
        ),
    ],
)
def test_what_kubernetes_does_not_take_for_a_name_is_refused_with_its_place(match: dict[str, Any], place: str) -> None:
    found = faults_of(assignment_document(match=match))
    assert list(found) == [f"spec.match.{place}"]
    assert found[f"spec.match.{place}"].replace("…", "").isascii()


@pytest.mark.parametrize(
    "match",
    [
        {"namespaces": ["kube-system", "a", "0"]},
        {"schedulerNames": ["default-scheduler", "team/Fast_2.0"]},
        {"priorityClassNames": ["system-node-critical", "a.b"]},
        {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "web_1.2", "empty": ""}}},
        {"podSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": [""]}]}},
    ],
)
def test_names_of_kubernetes_are_taken(match: dict[str, Any]) -> None:
    read_assignment(assignment_document(match=match))


@pytest.mark.parametrize(
    "control", ["\u061c", "\u200e", "\u200f", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))]
)
def test_controls_of_direction_are_refused_in_every_text(control: str) -> None:
    rule = {"name": "a", "expression": f"'x{control}' != ''", "reason": "b"}
    found = faults_of(rule_set_document(filters=[rule]), read_rule_set)
    assert f"U+{ord(control):04X}" in found["spec.filters[0].expression"]
    assert f"\\u{ord(control):04x}" in found["spec.filters[0].expression"]
    found = faults_of(rule_set_document(params={f"x{control}": 1}), read_rule_set)
    assert all(control not in message for message in found.values())


def test_the_escape_that_the_message_names_is_taken() -> None:
    read_rule_set(rule_set_document(filters=[{"name": "a", "expression": "'x\\u202e' != ''", "reason": "b"}]))


def test_letters_that_are_not_ascii_are_named_in_the_changes() -> None:
    rule = {"name": "team", "expression": f"pod.metadata.name == 'p{CYRILLIC_A}y\u200b'", "reason": "b"}
    after = make_rule_set(filters=[rule])
    (line,) = [line for line in rule_set_changes(None, after) if "look twice" in line]
    assert "team" in line
    assert "U+0430 CYRILLIC SMALL LETTER A" in line
    assert "U+200B ZERO WIDTH SPACE" in line
    assert not any("look twice" in line for line in rule_set_changes(after, after))


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"params": {"team": f"p{CYRILLIC_A}y"}}, "param team: it"),
        ({"params": {"team": {"a": ["b", f"p{CYRILLIC_A}y"]}}}, "param team: it"),
        ({"params": {f"p{CYRILLIC_A}y": 1}}, f"param p{CYRILLIC_A}y: it"),
        ({"filters": [{"name": "a", "expression": "true", "reason": f"p{CYRILLIC_A}y"}]}, "filter a: its reason"),
        ({"tests": [{"name": f"p{CYRILLIC_A}y", "pod": {}, "expect": {"feasible": []}}]}, f"test p{CYRILLIC_A}y: it"),
    ],
)
def test_letters_that_are_not_ascii_are_named_in_every_text_that_decides(spec: dict[str, Any], place: str) -> None:
    after = make_rule_set(**spec)
    (line,) = [line for line in rule_set_changes(None, after) if "look twice" in line]
    assert line.startswith(f"! look twice at {place} holds “{CYRILLIC_A}” (U+0430 CYRILLIC SMALL LETTER A)")
    assert not any("look twice" in line for line in rule_set_changes(after, after))


ODD_FILTER = {"name": "a", "expression": f"'{CYRILLIC_A}' == 'a'", "reason": "b"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"filters": [ODD_FILTER], "scores": [{"name": "a", "expression": "1"}]}),
        ({}, {"filters": [{**ODD_FILTER, "name": "param"}], "params": {"its expression": 1}}),
        (
            {},
            {
                "tests": [
                    {"name": "one", "pod": {}, "expect": {"best": CYRILLIC_A}},
                    {"name": "one", "pod": {}, "expect": {"best": "a"}},
                ]
            },
        ),
        (
            {"filters": [{**ODD_FILTER, "expression": "true", "reason": ODD_FILTER["expression"]}]},
            {"filters": [ODD_FILTER]},
        ),
    ],
    ids=["a score of the filter's name", "a param like a rule", "tests of one name", "what was a reason"],
)
def test_no_other_text_hides_where_such_letters_stand(before: dict[str, Any], after: dict[str, Any]) -> None:
    lines = rule_set_changes(make_rule_set(**before), make_rule_set(**after))
    assert len([line for line in lines if "look twice" in line]) == 1


def test_letters_of_an_assignments_params_are_named_once() -> None:
    plain, odd = revision({"params": {"team": "pay"}}), revision({"params": {"team": f"p{CYRILLIC_A}y"}})
    (line,) = looked_at_twice(plain, odd)
    assert "its param team holds “\u0430” (U+0430 CYRILLIC SMALL LETTER A)" in line
    more = revision({"params": {"team": f"p{CYRILLIC_A}y", "size": 2}})
    assert not looked_at_twice(odd, more)
    assert not looked_at_twice(odd, Revision(number=2))


UNPRINTED = ["\n", "\r", "\x1b", "\x07", "\x7f", "\x85", "\x9b", "\xa0", "\u200b", "\u2028", "\ufeff", "\U000e0041"]


@pytest.mark.parametrize("char", UNPRINTED)
def test_what_is_not_printed_stands_in_changes_as_its_number(char: str) -> None:
    text = f"a{char}b"
    rule_sets = [
        make_rule_set(params={text: 1}),
        make_rule_set(params={"team": text}),
        make_rule_set(params={"team": [text]}),
        make_rule_set(tests=[{"name": text, "pod": {}, "expect": {"best": text}}]),
        make_rule_set(filters=[{"name": "a", "expression": f"'''{text}''' != ''", "reason": "b"}]),
    ]
    lines = [line for each in rule_sets for line in part_changes(make_rule_set(params={"team": "a"}), each)]
    assignment = read_assignment(assignment_document(params={text: text}))
    lines += [*part_changes(None, assignment), assignment_sentence(assignment)]
    assert all(line.isprintable() for line in lines), lines
    assert any(f"{ord(char):04x}" in line for line in lines)


def test_of_many_such_letters_ten_are_named() -> None:
    rule = {
        "name": "team",
        "expression": f"pod.metadata.name == '{''.join(map(chr, range(0x430, 0x440)))}'",
        "reason": "b",
    }
    (line,) = [line for line in rule_set_changes(None, make_rule_set(filters=[rule])) if "look twice" in line]
    assert line.count("U+") == 10
    assert "and 6 more" in line


def revision(*assignments: dict[str, Any], rule_sets: tuple[str, ...] = ()) -> Revision:
    return Revision(
        number=1,
        rule_sets=[make_rule_set(name) for name in rule_sets],
        assignments=[read_assignment(assignment_document(**each)) for each in assignments],
    )


def looked_at_twice(before: Revision, after: Revision) -> list[str]:
    return [line for line in revision_changes(before, after) if "look twice" in line]


@pytest.mark.parametrize(
    ("there", "new"),
    [
        *(("payments-l", "payments-1"), ("pool", "p0ol"), ("modern", "rnodern"), ("ml", "rn1"), ("0", "o")),
        *(("aIl", "all"), ("MOD", "M0D")),
    ],
)
def test_a_new_name_that_can_be_taken_for_a_live_one_is_flagged(there: str, new: str) -> None:
    for before, after in ((there, new), (new, there)):
        live = {"matchLabels": {f"example.org/{before}": "x"}}
        alike = {"matchExpressions": [{"key": f"example.org/{after}", "operator": "Exists"}]}
        (line,) = looked_at_twice(
            revision({"match": {"podSelector": live}}), revision({"match": {"namespaceSelector": alike}})
        )
        assert line == f"! look twice at label “example.org/{after}”: it can be taken for “example.org/{before}”"


@pytest.mark.parametrize(
    ("live", "alike", "kind"),
    [
        ({"match": {"namespaces": ["shop"]}}, {"match": {"namespaces": ["shop", "sh0p"]}}, "namespace “sh0p”"),
        ({"match": {"schedulerNames": ["all"]}}, {"match": {"schedulerNames": ["a11"]}}, "scheduler “a11”"),
        ({"match": {"priorityClassNames": ["l"]}}, {"match": {"priorityClassNames": ["1"]}}, "PriorityClass “1”"),
        ({"name": "web1"}, {"name": "webl"}, "Assignment “webl”"),
    ],
)
def test_names_of_each_kind_are_compared_with_their_like(live: Any, alike: Any, kind: str) -> None:
    (line,) = looked_at_twice(revision(live), revision(alike))
    assert f"look twice at {kind}" in line


def test_a_rule_set_is_compared_with_those_that_stay_and_new_ones_with_each_other() -> None:
    after = revision(rule_sets=("team-1", "team-l", "m2", "rn2"))
    assert looked_at_twice(revision(rule_sets=("team-1",)), after) == [
        "! look twice at rule set “rn2”: it can be taken for “m2”",
        "! look twice at rule set “team-l”: it can be taken for “team-1”",
    ]


def test_names_that_are_live_already_or_differ_are_not_flagged() -> None:
    live = revision({"match": {"namespaces": ["shop", "sh0p"]}}, rule_sets=("team-1",))
    after = revision({"match": {"namespaces": ["shop", "sh0p"]}}, rule_sets=("team-1", "team-2"))
    assert looked_at_twice(live, after) == []
    assert looked_at_twice(after, live) == []
