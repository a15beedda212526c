"""The comment of a pull request."""

from berth.markdown import plan_in_markdown, user_line

FOUND = {
    "ok": True,
    "revision": 7,
    "changes": ["rule set web: reason *now* <b>@everyone</b> #12"],
    "gate": [{"check": "tests", "verdict": "found", "says": "one | fails", "lines": []}],
    "levels": {"tests": "blocking"},
    "documents": [{"kind": "RuleSet", "name": "web", "live": "a: 1", "files": "a: ```\n</details>"}],
}


def test_a_comment_has_a_mark_a_verdict_the_changes_the_gate_and_the_diffs() -> None:
    text = plan_in_markdown(FOUND, "Shop")

    assert text.startswith("<!-- berth-plan -->\n### Shop\n")
    assert "Revision 7 would be made**: 1 change." in text
    assert "| ❌ | tests | one \\| fails |" in text
    assert "-a: 1" in text
    assert "+a: ```" in text


def test_other_peoples_words_mention_nobody_and_end_no_block() -> None:
    text = plan_in_markdown(FOUND)

    assert "@everyone" not in text
    assert "<b>" not in text
    assert "\n````diff\n" in text


def test_other_peoples_words_are_shown_as_they_are_written() -> None:
    text = plan_in_markdown({**FOUND, "changes": ["&commat;everyone says a &lt; b && c"]})

    assert "- &amp;commat;everyone says a &amp;lt; b &amp;&amp; c\n" in text


def test_a_comment_fits_into_a_comment() -> None:
    long = {**FOUND, "documents": [{"kind": "RuleSet", "name": "web", "live": "", "files": "x\n" * 100_000}]}

    assert len(plan_in_markdown(long)) < 65_536


def test_a_comment_that_is_cut_says_so_outside_of_what_is_folded_away() -> None:
    documents = [
        {"kind": "RuleSet", "name": f"web-{number}", "live": "", "files": f"x{number}\n" * 500} for number in range(100)
    ]
    text = plan_in_markdown({**FOUND, "documents": documents})

    shown = text.count("<details>")
    assert len(text) < 65_536
    assert shown > 10
    assert text.count("</details>") == shown
    assert text.count("\n```") == 2 * shown
    assert text.rstrip().rpartition("</details>")[2].strip() == (
        f"… and {100 - shown} more are too long for a comment: `berth diff` shows all of it."
    )


def test_a_long_list_of_changes_fits_into_a_comment() -> None:
    text = plan_in_markdown({**FOUND, "changes": ["x" * 1_000] * 500})

    assert len(text) < 65_536
    assert "too long for a comment" in text


def test_a_comment_says_that_the_cluster_cant_be_asked_and_whose_pods_keep_a_number() -> None:
    user = {
        "priority_class": "high",
        "pods": 3,
        "kind": "Deployment",
        "namespace": "shop",
        "name": "web",
        "priority": 5,
    }
    text = plan_in_markdown({**FOUND, "error": "no usable configuration", "users": [user]})

    assert "**The cluster can't be read**\n\n- no usable configuration" in text
    assert "high: 3 Pods of Deployment shop/web keep 5" in text


def test_nothing_is_said_as_nothing() -> None:
    assert "Nothing would change" in plan_in_markdown({"ok": True})
    assert "The gate blocks publishing:** 3 Pods" in plan_in_markdown({"ok": False, "blocked": "3 Pods"})


def test_one_pod_is_no_pods() -> None:
    user = {"priority_class": "high", "kind": "Job", "namespace": "shop", "name": "nightly", "pods": 1, "priority": 5}

    assert user_line(user) == "high: 1 Pod of Job shop/nightly keeps 5"
