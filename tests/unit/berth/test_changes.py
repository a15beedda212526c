"""Changes, roll-backs, pauses: what is asked, and how it is said."""

from datetime import UTC, datetime
from urllib.parse import unquote

import pytest
from berth.changes import until
from berth.errors import CommandError

from tests.unit.berth.conftest import Berth, Stub

DRAFT = {
    "number": 4,
    "state": "draft",
    "title": "apply web.yaml",
    "digest": "abcdef012345678",
    "changes": ["rule set web: new"],
}


def test_an_act_is_bound_to_what_was_looked_at(berth: Berth, stub: Stub) -> None:
    stub.answer("GET", "/changes/4", DRAFT, ETag='"abcdef012345678"')
    stub.answer("POST", "/changes/4/approve", {**DRAFT, "state": "approved"})

    ran = berth("approve", "4", "--digest", "abcdef012345", "--reason", "looks right")

    assert ran.code == 0
    assert ran.out.splitlines()[0] == "Change 4 approved: apply web.yaml"
    assert stub.asked[1]["headers"]["If-Match"] == '"abcdef012345678"'
    assert stub.asked[1]["body"] == {"reason": "looks right"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("approve", "4"), "--digest abcdef012345 approves exactly that state"),
        (("approve", "4", "--digest", "000000000000"), "changed since you looked at it"),
        (("approve", "4", "--digest", "a"), "at least the 12 characters"),
        (("publish", "4", "--digest", "000000000000"), "changed since you looked at it"),
    ],
)
def test_nothing_is_done_with_another_content_than_was_looked_at(
    berth: Berth, stub: Stub, arguments: tuple[str, ...], said: str
) -> None:
    stub.answer("GET", "/changes/4", DRAFT, ETag='"abcdef012345678"')

    ran = berth(*arguments)

    assert ran.code == 1
    assert said in ran.err
    assert [each["method"] for each in stub.asked] == ["GET"]


def test_a_rebase_says_whose_is_taken_of_each_thing_and_part(berth: Berth, stub: Stub) -> None:
    moved = [{"kind": "RuleSet", "name": "web", "theirs": ["rule set web: x"], "parts": ["filters/team"]}]
    stub.answer("GET", "/changes/4", {**DRAFT, "conflicts": moved, "live": 7}, ETag='"abcdef012345678"')
    stub.answer("POST", "/changes/4/rebase", DRAFT)

    shown = berth("changes", "4").out
    assert "both sides changed RuleSet/web/filters/team" in shown
    assert "`berth rebase 4 --revision 7`" in shown
    assert berth("rebase", "4", "--theirs", "Assignment/all", "--theirs", "RuleSet/web/filters/team").code == 0
    assert stub.asked[-1]["body"] == {
        "revision": 7,
        "sides": [
            {"kind": "Assignment", "name": "all", "take": "theirs"},
            {"kind": "RuleSet", "name": "web", "take": "merge", "parts": {"filters/team": "theirs"}},
        ],
    }
    assert "--merge 'web' names no object" in berth("rebase", "4", "--merge", "web").err
    part = "RuleSet/web/filters/team"
    assert "contradicts another choice for RuleSet/web" in berth("rebase", "4", "--mine", part, "--theirs", part).err


def test_a_rebase_is_on_the_revision_that_was_looked_at(berth: Berth, stub: Stub) -> None:
    stub.answer("GET", "/changes/4", {**DRAFT, "live": 8}, ETag='"abcdef012345678"')
    stub.answer("POST", "/changes/4/rebase", DRAFT)

    assert berth("rebase", "4", "--revision", "7").code == 0
    assert stub.asked[-1]["body"]["revision"] == 7


def test_a_list_says_which_approvals_no_longer_suffice(berth: Berth, stub: Stub) -> None:
    row = {"number": 4, "state": "approved", "is_short": True, "opened_by": "ann", "title": "Teams"}
    stub.answer("GET", "/changes", {"results": [row], "next": None})

    assert "approved, but approvals are missing again" in berth("changes").out


def test_a_change_says_which_pauses_end_with_it(berth: Berth, stub: Stub) -> None:
    stub.answer("GET", "/changes/4", {**DRAFT, "ends": ["The Pause of RuleSet/web ends with it."]})

    assert "! The Pause of RuleSet/web ends with it." in berth("changes", "4").out


def test_a_change_says_whether_its_time_still_holds(berth: Berth, stub: Stub) -> None:
    timed = {**DRAFT, "publish_at": "2126-01-01T00:00:00Z"}
    stub.answer("GET", "/changes/4", {**timed, "is_scheduled": True})
    assert "goes live at 2126-01-01T00:00:00Z" in berth("changes", "4").out
    stub.answer("GET", "/changes/4", {**timed, "is_scheduled": False})
    assert "! It was scheduled for 2126-01-01T00:00:00Z, and was edited since" in berth("changes", "4").out


def test_a_change_says_when_it_goes_back(berth: Berth, stub: Stub) -> None:
    stub.answer("GET", "/changes/4", {**DRAFT, "expires_at": "2126-01-02T00:00:00Z"})
    assert "goes back at 2126-01-02T00:00:00Z" in berth("changes", "4").out


def test_a_change_says_what_of_it_a_repository_keeps(berth: Berth, stub: Stub) -> None:
    stub.answer("GET", "/changes/4", {**DRAFT, "kept": ["rule set web is kept by shop-rules: …"]})

    assert "! rule set web is kept by shop-rules: …" in berth("changes", "4").out


def test_a_change_is_renamed_as_it_was_looked_at(berth: Berth, stub: Stub) -> None:
    stub.answer("GET", "/changes/4", DRAFT, ETag='"abcdef012345678"')
    stub.answer("PATCH", "/changes/4", {**DRAFT, "title": "Teams"})

    assert "Teams" in berth("rename", "4", "--title", "Teams").out
    assert stub.asked[-1]["body"] == {"title": "Teams"}
    assert stub.asked[-1]["headers"]["If-Match"] == '"abcdef012345678"'
    assert "--title TITLE" in berth("rename", "4").err


def test_a_list_has_columns(berth: Berth, stub: Stub) -> None:
    rows = [{**DRAFT, "opened_by": "operator"}, {**DRAFT, "number": 13, "state": "in_review", "opened_by": "approver"}]
    stub.answer("GET", "/changes", {"next": None, "results": rows})

    assert berth("changes").out.splitlines() == [
        "CHANGE  STATE      BY        TITLE",
        "4       draft      operator  apply web.yaml",
        "13      in_review  approver  apply web.yaml",
    ]


def test_a_second_page_is_asked_of_the_same_server(berth: Berth, stub: Stub) -> None:
    elsewhere = "https://elsewhere.example.org/api/v1/changes/page-2?before=4"
    stub.answer("GET", "/changes", {"next": elsewhere, "results": [{**DRAFT, "opened_by": "operator"}]})
    stub.answer("GET", "/changes/page-2", {"next": None, "results": []})

    ran = berth("changes", "-o", "json")

    assert len(ran.json["changes"]) == 1
    assert [each["path"] for each in stub.asked] == ["/api/v1/changes", "/api/v1/changes/page-2"]


def test_a_roll_back_says_the_revision_or_who_is_waited_for(berth: Berth, stub: Stub) -> None:
    stub.answer("POST", "/revisions/3/rollback", {"change": 9, "revision": 12})
    assert berth("rollback", "3", "--reason", "Pods pend").out == "Revision 12 was made by Change 9.\n"

    stub.answer("POST", "/revisions/3/rollback", {"change": 9, "revision": None})
    # `berth approve 9` alone is refused: its digest is what was read.
    assert berth("rollback", "3", "--reason", "Pods pend").out == (
        "Change 9 is in review: `berth changes 9` says what it waits for, somebody else's approval or the gate; then run `berth publish 9`.\n"
    )


def test_what_resumes_and_only_the_gate_has_to_examine_waits_for_nobodys_approval(berth: Berth, stub: Stub) -> None:
    stub.answer("DELETE", "/pauses/RuleSet/web", {"change": 9, "revision": None, "state": "in_review"})
    assert "somebody else has to" not in berth("resume", "RuleSet/web", "--reason", "done").out


def test_the_reason_for_resuming_may_be_long(berth: Berth, stub: Stub) -> None:
    stub.answer("DELETE", "/pauses/RuleSet/web", {"change": 9, "revision": 8, "state": "published"})
    reason = "再開" * 500
    assert berth("resume", "RuleSet/web", "--reason", reason).code == 0
    assert [(each["query"], each["body"]) for each in stub.asked] == [("", {"reason": reason})]


@pytest.mark.parametrize(
    "asked", [("rollback", "-1", "--reason", "x"), ("publish", "-3"), ("changes", "1.5"), ("changes", "1" * 5_000)]
)
def test_what_can_be_no_number_of_one_is_refused_before_anything_is_asked(
    berth: Berth, stub: Stub, asked: tuple[str, ...]
) -> None:
    ran = berth(*asked)
    assert (ran.code, stub.asked) == (1, [])
    assert f"'{asked[1][:40]}' isn't a number of a Change or Revision: write a whole number, such as 12" in ran.err


def test_a_pause_ends_at_a_time(berth: Berth, stub: Stub) -> None:
    stub.answer("POST", "/pauses", {"change": 9, "revision": 12})

    berth("pause", "RuleSet/web", "--reason", "too many refusals", "--until", "2030-01-01T20:00:00+02:00")

    assert stub.asked[0]["body"] == {
        "target": "RuleSet/web",
        "reason": "too many refusals",
        "until": "2030-01-01T18:00:00Z",
    }


@pytest.mark.parametrize(
    ("text", "at"), [("90m", "2030-01-01T13:30:00Z"), ("2h", "2030-01-01T14:00:00Z"), ("3d", "2030-01-04T12:00:00Z")]
)
def test_a_time_may_be_so_long_from_now(text: str, at: str) -> None:
    assert until(text, datetime(2030, 1, 1, 12, tzinfo=UTC)) == at


@pytest.mark.parametrize("text", ["tomorrow", "9999999999d", "5000000d", "²h", "0001-01-01T00:00:00+10:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="isn't a time"):
        until(text)


@pytest.mark.parametrize("target", ["../rule-sets/web", "RuleSet/./web", "RuleSet/web/a?b"])
def test_what_is_resumed_cant_name_another_path(berth: Berth, stub: Stub, target: str) -> None:
    assert berth("resume", target).code == 1

    asked = stub.asked[0]
    assert unquote(asked["path"]) == f"/api/v1/pauses/{target}"
    assert asked["query"] == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("publish", "4", "--digest", ""),
        ("pause", "everything", "--reason", "x", "--until", ""),
        ("pause", "everything", "--reason", ""),
        ("rollback", "3", "--reason", ""),
        ("changes", "--server", ""),
        ("changes", "--context="),
        ("why", "web-1", "--namespace", ""),
        ("why", "web-1", "--uid", ""),
    ],
)
def test_an_empty_option_is_refused_where_it_would_count_as_none(
    berth: Berth, stub: Stub, arguments: tuple[str, ...]
) -> None:
    ran = berth(*arguments)

    assert (ran.code, "is empty, as from an unset shell variable" in ran.err, stub.asked) == (1, True, [])


def test_a_state_and_a_number_are_refused_together(berth: Berth, stub: Stub) -> None:
    ran = berth("changes", "4", "--state", "draft")

    assert (ran.code, "give one or the other" in ran.err, stub.asked) == (1, True, [])
