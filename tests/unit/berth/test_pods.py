"""Pods: their stories in sentences, which Assignment takes one, where one would land, Decisions as they come."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from berth import pods
from tests.unit.berth.conftest import Berth, Stub

ATTEMPT = {
    "id": "2",
    "firstId": "1",
    "firstAt": "2026-01-01T10:00:00.5Z",
    "lastAt": "2026-01-01T10:05:00.5Z",
    "times": 3,
    "verb": "filter",
    "revision": 7,
    "ruleSet": "web",
    "ruleSetVersion": 2,
    "assignment": "shop",
    "steps": [],
    "nodes": 8,
    "feasible": 0,
    "best": "",
    "newlyAllowed": [],
    "newlyRefused": ["n1"],
    "changed": [],
    "refusals": [
        {
            "rule": "team",
            "code": "Unschedulable",
            "reason": "node belongs to another team",
            "nodes": [f"n{n}" for n in range(8)],
        }
    ],
    "causes": {"sentence": "It is because node n1 has another label.", "fault": ""},
}
STORY: dict[str, Any] = {
    "namespace": "shop",
    "name": "web-1",
    "uid": "u",
    "uids": ["u"],
    "owner": "ReplicaSet web",
    "now": "it waits",
    "attempts": [ATTEMPT],
    "decidedBy": "",
    "hasEarlier": False,
    "ends": [{"kind": "deleted", "at": "2026-01-01T11:00:00Z", "says": "It was deleted."}],
    "provenance": [
        {
            "kind": "RuleSet",
            "name": "web",
            "since": 7,
            "published_by": "operator",
            "change": 4,
            "approved_by": ["approver"],
        }
    ],
}


def test_why_tells_the_story_in_sentences(berth: Berth, stub: Stub) -> None:
    stub.answer("GET", "/pods/shop/web-1", STORY)

    ran = berth("why", "web-1", "-n", "shop")

    assert ran.code == 0
    assert ran.out.splitlines() == [
        "shop/web-1, of ReplicaSet web: it waits",
        (
            "2026-01-01T10:05:00Z filter, 3 times since 2026-01-01T10:00:00Z: 0 of 8 nodes passed rule set web version 2 "
            "by Assignment shop, Revision 7."
        ),
        "  Nodes it may no longer use: n1.",
        "  It is because node n1 has another label.",
        "  - team refused n0, n1, n2, n3, n4 and 3 more: node belongs to another team",
        "2026-01-01T11:00:00Z It was deleted.",
        "RuleSet web is live since Revision 7, published by operator by Change 4, approved by approver.",
    ]


def test_why_says_of_a_pod_that_waits_what_holds_it_and_when_it_is_tried_next(berth: Berth, stub: Stub) -> None:
    pending = {
        "since": "2026-01-01T09:00:00Z",
        "scheduler_name": "default-scheduler",
        "rule": "",
        "reason": "its scheduling gates are not taken off",
        "next_try": "once its scheduling gates are taken off",
    }
    untried = STORY | {"attempts": [], "ends": [], "provenance": [], "pending": pending}
    stub.answer("GET", "/pods/shop/web-1", untried)
    assert berth("why", "shop/web-1").out.splitlines() == [
        "shop/web-1, of ReplicaSet web: it waits",
        (
            "Pending since 2026-01-01T09:00:00Z for default-scheduler, held by: its scheduling gates are not taken off. "
            "Tried next: once its scheduling gates are taken off."
        ),
    ]

    stub.answer("GET", "/pods/shop/web-1", untried | {"pending": pending | {"rule": "team", "reason": "another team"}})
    assert "held by: rule team: another team. Tried" in berth("why", "shop/web-1").out


def test_why_says_of_an_attempt_without_an_answer_why(berth: Berth, stub: Stub) -> None:
    attempt = ATTEMPT | {"nodes": 0, "error": "Berth has not seen the cluster yet", "refusals": []}
    stub.answer("GET", "/pods/shop/web-1", STORY | {"attempts": [attempt]})

    ran = berth("why", "web-1", "-n", "shop")

    said = "2026-01-01T10:05:00Z filter, 3 times since 2026-01-01T10:00:00Z: no answer: Berth has not seen the cluster yet."
    assert ran.out.splitlines()[1] == said


def test_where_there_was_no_node_nobody_says_that_none_of_them_passed(berth: Berth, stub: Stub) -> None:
    stub.answer("GET", "/pods/shop/web-1", STORY | {"attempts": [ATTEMPT | {"nodes": 0, "refusals": [], "times": 1}]})
    said = "2026-01-01T10:05:00Z filter: there were no nodes to decide on by rule set web version 2 by Assignment shop, Revision 7."
    assert berth("why", "shop/web-1").out.splitlines()[1] == said

    row = {"id": "1", "at": "2026-01-01T10:00:00Z", "verb": "schedule", "pod_namespace": "shop", "pod_name": "web-1"}
    stub.answer("GET", "/decisions", {"results": [row | {"feasible": 0, "nodes": 0, "rule_set": "web"}]})
    assert "shop/web-1 no nodes, web" in berth("decisions").out


def test_why_names_no_version_of_what_has_none(berth: Berth, stub: Stub) -> None:
    attempt = ATTEMPT | {"ruleSet": "classic-default", "ruleSetVersion": 0, "assignment": ""}
    stub.answer("GET", "/pods/shop/web-1", STORY | {"attempts": [attempt]})
    assert "passed rule set classic-default, Revision 7" in berth("why", "shop/web-1").out


@pytest.mark.parametrize("pod", ["shop/web-1", "pod/web-1", "web-1"])
def test_a_pod_is_named_as_kubectl_does(berth: Berth, stub: Stub, pod: str) -> None:
    berth("why", pod, "--namespace", "shop")

    assert stub.asked[0]["path"] == "/api/v1/pods/shop/web-1"


def test_what_names_no_pod_is_refused_here(berth: Berth, stub: Stub) -> None:
    assert berth("why", "a/b/c").code == 1
    assert berth("why", "a//b").code == 1
    assert stub.asked == []


def test_a_pod_cant_name_another_path(berth: Berth, stub: Stub) -> None:
    berth("why", "..%2f?x=1", "-n", "shop")

    assert stub.asked[0]["path"] == "/api/v1/pods/shop/..%252f%3Fx%3D1"


def test_which_says_who_takes_it_and_why_others_dont(berth: Berth, stub: Stub) -> None:
    found = {
        "pod": "shop/web-1",
        "revision": 7,
        "assignment": "shop",
        "rule_set": "web",
        "params": {"limit": 3},
        "because": [],
        "shadows": ["next"],
        "hidden": ["rest", "last"],
        "passed_over": [{"name": "night", "why": ["namespace shop"]}],
    }
    stub.answer("GET", "/assignments/which", found)

    assert berth("which", "shop/web-1").out.splitlines() == [
        "shop/web-1: Assignment shop matches, with rule set web (Revision 7).",
        "  limit = 3",
        "- night doesn't: namespace shop",
        "! Match too, but come later in the order: rest, last",
        "? Also evaluated, as shadows: next",
    ]


def test_simulate_says_where_they_land(berth: Berth, stub: Stub) -> None:
    found = {
        "says": ["2 of 3 fit"],
        "change": 4,
        "live": {"nodes": {"n1": 2}},
        "drafted": {"nodes": {"n1": 1, "n2": 2}},
    }
    stub.answer("POST", "/scenario", found)

    assert berth("simulate", "--live", "shop/web-1", "--pods", "3", "--change", "4").out.splitlines() == [
        *("2 of 3 fit.", "NODE  LIVE  CHANGE 4", "n1    2     1", "n2    0     2")
    ]
    assert stub.asked[0]["body"] == {"pods": 3, "change": 4, "pod": "shop/web-1"}
    assert berth("simulate").code == 1


def _row(number: int) -> dict[str, Any]:
    return {
        "id": str(number),
        "at": f"2026-01-01T10:00:{number:02}Z",
        "verb": "filter",
        "pod_namespace": "shop",
        "pod_name": f"web-{number}",
        "rule_set": "web",
        "feasible": 2,
        "nodes": 3,
        "best": "n1",
    }


def test_following_writes_each_decision_once_the_oldest_first(
    berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = iter([[_row(3), _row(2), _row(1)], [_row(3), _row(2)], []])
    stub.answer("GET", "/decisions", {"next": None, "results": [_row(1)]})

    def ended(_seconds: float) -> None:
        found = next(lists, None)
        if found is None:
            raise KeyboardInterrupt
        stub.answer("GET", "/decisions", {"next": None, "results": found})

    monkeypatch.setattr(pods.time, "sleep", ended)

    ran = berth("decisions", "--follow", "namespace=shop")

    assert ran.code == 130
    assert [line.split()[2] for line in ran.out.splitlines()] == ["shop/web-1", "shop/web-2", "shop/web-3"]
    assert stub.asked[1]["query"] == "limit=20&namespace=shop"
    assert berth("decisions", "no-filter").code == 1


def test_a_list_goes_on_where_the_server_stopped_searching(berth: Berth, stub: Stub) -> None:
    """A search without an index ends a page before its rows are found, and `next` goes on from there."""
    pages = {"": ([], "p2"), "p2": ([_row(3)], "p3"), "p3": ([_row(2), _row(1)], "p4")}
    for place, (rows, further) in pages.items():
        next_url = f"{stub.url}/api/v1/decisions{further}?before={further}"
        stub.answer("GET", f"/decisions{place}", {"next": next_url, "looked_until": "…", "results": rows})

    ran = berth("decisions", "reason=full", "--limit", "2")

    assert [line.split()[2] for line in ran.out.splitlines()] == ["shop/web-2", "shop/web-3"]
    assert [asked["path"].removeprefix("/api/v1/decisions") for asked in stub.asked] == ["", "p2", "p3"]


def test_behind_a_place_comes_no_page_of_older_decisions(berth: Berth, stub: Stub) -> None:
    further = f"{stub.url}/api/v1/decisions/older?before=x"
    stub.answer("GET", "/decisions", {"next": further, "results": [_row(3)]})

    assert berth("decisions", "after=2026-01-01T10:00:02Z").out.split()[2] == "shop/web-3"
    assert len(stub.asked) == 1


def _followed(berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch, *lists: list[int]) -> list[str]:
    """Return the Pods that --follow names while the list shows these rows, one list after the other."""
    shown = iter(lists)

    def show(_seconds: float = 0) -> None:
        if (numbers := next(shown, None)) is None:
            raise KeyboardInterrupt
        stub.answer("GET", "/decisions", {"next": None, "results": list(map(_row, numbers))})

    monkeypatch.setattr(pods.time, "sleep", show)
    show()
    ran = berth("decisions", "--follow", "--limit", "2")
    return [line.split()[2].removeprefix("shop/web-") for line in ran.out.splitlines()]


def test_following_writes_what_is_stored_late_behind_what_was_written(
    berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process ships later than another, and a shadow is decided behind its answer: both have a former time."""
    late = _followed(berth, stub, monkeypatch, [30, 25], [31, 30, 28, 25], [32, 31, 30, 28, 27, 25], [32, 31, 30])
    assert late == ["25", "30", "28", "31", "27", "32"]


def test_following_begins_with_no_more_than_was_asked_for_and_goes_on_from_nothing(
    berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _followed(berth, stub, monkeypatch, [30, 29], [30, 29, 28, 27, 1], [31, 30, 29, 28]) == ["29", "30", "31"]
    assert _followed(berth, stub, monkeypatch, [], [], [5, 4], [6, 5, 4]) == ["4", "5", "6"]
    # What was written is pruned, or leaves the filter: nothing older is new by that.
    assert _followed(berth, stub, monkeypatch, [50, 49], [20, 19, 18], [51, 20, 19]) == ["49", "50", "51"]


def test_following_what_never_was_asks_only_for_what_is_new(
    berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a filter without an index would have the server search its whole history, every two seconds."""
    lists = iter([[], [_row(50)]])

    def show(_seconds: float = 0) -> None:
        if (found := next(lists, None)) is None:
            raise KeyboardInterrupt
        stub.answer("GET", "/decisions", {"next": None, "results": found})

    ask = pods.Server.get

    def get(server: pods.Server, path: str, /, **query: Any) -> Any:
        found = ask(server, path, **query)
        if len(stub.asked) == 1:
            show()
        return found

    monkeypatch.setattr(pods.Server, "get", get)
    monkeypatch.setattr(pods.time, "sleep", show)
    stub.answer("GET", "/decisions", {"next": None, "results": [_row(40)]})
    ran = berth("decisions", "--follow", "reason=full")

    assert [line.split()[2] for line in ran.out.splitlines()] == ["shop/web-50"]
    newest, first, *later = [parse_qs(asked["query"]) for asked in stub.asked]
    assert newest == {"limit": ["1"], "fields": ["at"]}
    assert first == {"limit": ["20"], "reason": ["full"]}
    assert [asked["from"] for asked in later] == [["2026-01-01T10:00:25.000000Z"]]


def test_following_goes_on_once_the_server_answers_again(
    berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    away: tuple[int, Any] = (502, "<html>bad gateway</html>")
    later = iter(
        [
            away,
            (503, {"status": 503, "detail": "The database is away.", "faults": []}),
            (200, [_row(2), _row(1)]),
            (401, {"detail": "Unknown token.", "faults": []}),
            None,
        ]
    )
    stub.answer("GET", "/decisions", {"next": None, "results": [_row(1)]})

    def ended(_seconds: float) -> None:
        status, found = next(later)
        stub.answer("GET", "/decisions", {"next": None, "results": found} if status == 200 else found, status)

    monkeypatch.setattr(pods.time, "sleep", ended)

    ran = berth("decisions", "--follow")

    assert [line.split()[2] for line in ran.out.splitlines()] == ["shop/web-1", "shop/web-2"]
    assert ran.err.count("retries until the server answers") == 1
    assert ran.code == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["limit=5"], "--limit 5"),
        (["node=n1", "node=n2"], "The filter node is given twice"),
        (["=n1"], "'=n1' isn't a filter"),
        (["pod_namespace="], "The filter pod_namespace has no value"),
        (["--limit", "0"], "from 1 to 1,000"),
        (["--limit", "many"], "from 1 to 1,000"),
        (["fields=id"], "fields needs --output json or yaml"),
        (["fields=id", "--follow"], "without --follow"),
        (["before=2026-01-01", "--follow"], "from=TIME"),
        (["after=2026-01-01", "--follow"], "from=TIME"),
        (["--every", "-1"], "from 0.1 to 3,600"),
        (["--every", "nan"], "from 0.1 to 3,600"),
    ],
)
def test_a_list_of_decisions_says_which_of_its_arguments_is_wrong_and_what_it_takes(
    berth: Berth, stub: Stub, arguments: list[str], says: str
) -> None:
    ran = berth("decisions", *arguments)

    assert (ran.code, stub.asked) == (1, [])
    assert says in ran.err


@pytest.mark.parametrize("name", ["path", "self", "q"])
def test_a_filter_may_have_any_name(berth: Berth, stub: Stub, name: str) -> None:
    berth("decisions", f"{name}=x")

    assert stub.asked[0]["query"] == f"limit=20&{name}=x"


def test_a_file_with_an_ending_in_capitals_is_no_name_of_a_pod(berth: Berth, stub: Stub, tmp_path: Path) -> None:
    path = tmp_path / "pod.YAML"
    path.write_text("kind: Pod\n")

    berth("which", str(path))

    assert stub.asked[0]["body"] == {"pod": {"kind": "Pod"}}


def test_dates_and_times_of_a_manifest_are_texts_as_for_kubernetes(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("created: 2026-07-26T05:43:27Z\nday: 2026-02-30\nfrom: 22:30\nupTo: 6:30:00.5\nspare: 0.5\n")
    times = {"created": "2026-07-26T05:43:27Z", "day": "2026-02-30", "from": "22:30", "upTo": "6:30:00.5"}
    assert pods.read_manifest(str(path)) == times | {"spare": 0.5}


def test_a_manifest_of_json_may_be_indented_with_tabs_and_one_of_yaml_ends_with_a_line_of_dashes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pod"
    for text in ('{\n\t"kind": "Pod"\n}\n', "kind: Pod\n---\n"):
        path.write_text(text)
        assert pods.read_manifest(str(path)) == {"kind": "Pod"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("at: !!timestamp x\n", "can't be read as a manifest", id="no time"),
        pytest.param("a: !!bool x\n", "can't be read as a manifest", id="neither true nor false"),
        pytest.param("a: &a [*a]\n", "can't be read as a manifest", id="what holds itself"),
        pytest.param(f"a: {'1' * 5_000}\n", "can't be read as a manifest", id="a number without end"),
        pytest.param("[" * 100_000, "can't be read as a manifest", id="nested without end"),
        pytest.param("a: .inf\n", "can't be read as a manifest", id="infinity"),
        pytest.param('{"a": NaN}', "can't be read as a manifest", id="no number"),
        pytest.param('a: "\\ud800"\n', "can't be read as a manifest", id="half a character"),
        pytest.param("kind: Pod\n---\nkind: Pod\n", "holds 2 documents; it must hold one", id="two"),
        pytest.param("", "holds 0 documents; it must hold one", id="nothing"),
    ],
)
def test_what_is_not_one_manifest_is_refused_in_a_sentence(
    berth: Berth, stub: Stub, tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(text)

    ran = berth("simulate", str(path))

    assert (ran.code, stub.asked) == (1, [])
    assert f"{path}:1: {says}" in ran.err
