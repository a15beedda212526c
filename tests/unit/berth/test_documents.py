"""lint, plan, apply, export, diff: what they send, print and end with."""

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.berth.conftest import Berth, Stub

NOTHING = {"ok": True, "revision": 0, "changes": [], "cluster": [], "documents": []}
CHANGED = {
    "ok": True,
    "revision": 7,
    "changes": ["rule set web: score shortest-name: weight 1 → 2"],
    "drift": ["rule set web was changed outside of shop-rules by Change 4 of an operator"],
    "documents": [{"kind": "RuleSet", "name": "web", "live": "a: 1\nb: 2\n", "files": "a: 1\nb: 3\n"}],
}

APPLIED = {
    "ok": True,
    "change": 5,
    "is_new": True,
    "revision": None,
    "changes": ["rule set web: new"],
    "beside": [],
    "gate": [],
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "web.yaml"
    path.write_text("kind: RuleSet\n")
    return str(path)


def test_lint_sends_files_as_they_are_and_prints_faults_as_editors_read_them(
    berth: Berth, stub: Stub, file: str
) -> None:
    fault = {"file": file, "line": 3, "path": "spec.filters[0]", "message": "unknown member x"}
    stub.answer("POST", "/lint", {"ok": False, "faults": [fault]})

    ran = berth("lint", file)

    assert stub.asked[0]["body"] == {"files": [{"name": file, "text": "kind: RuleSet\n"}]}
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"{file}:3: spec.filters[0]: unknown member x\n1 fault\n"
    assert berth("lint", file, "-o", "json").json["faults"] == [fault]


def test_lint_of_right_files_ends_with_0(berth: Berth, stub: Stub, file: str) -> None:
    stub.answer("POST", "/lint", {"ok": True, "faults": []})

    ran = berth("lint", file, "--output", "json")

    assert (ran.code, ran.json) == (0, {"ok": True, "faults": [], "notes": []})


def test_what_was_passed_over_is_said_before_there_are_no_faults(berth: Berth, stub: Stub, file: str) -> None:
    stub.answer("POST", "/lint", {"ok": True, "faults": [], "notes": ["a.yaml: x passed over"]})

    assert berth("lint", file).out == "! a.yaml: x passed over\nno faults\n"


def test_a_folder_is_all_its_documents_and_standard_input_is_a_file(
    berth: Berth, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b" / ".git").mkdir(parents=True)
    for name in ("b/one.yaml", "b/two.json", "b/README.md", "b/.git/three.yaml"):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
    stub.answer("POST", "/lint", {"ok": True, "faults": []})

    berth("lint", str(tmp_path), "-")

    assert [each["text"] for each in stub.asked[0]["body"]["files"]] == ["b/one.yaml", "b/two.json", "from a pipe"]


def test_files_that_are_not_there_are_all_named_before_anything_is_asked(
    berth: Berth, stub: Stub, tmp_path: Path
) -> None:
    ran = berth("plan", "no-such.yaml", str(tmp_path))

    assert ran.code == 1
    assert "no-such.yaml:1: can't be read" in ran.err
    assert (
        "no YAML or JSON file in this folder: if it should hold nothing, put a file there with {apiVersion: v1"
        in ran.err
    )
    assert stub.asked == []


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (NOTHING, 0),
        (CHANGED, 2),
        ({**NOTHING, "cluster": [{"name": "high", "act": "replace"}]}, 2),
        ({**NOTHING, "cluster": [{"name": "high", "act": "foreign"}]}, 0),
        ({**CHANGED, "ok": False, "blocked": "3 Pods would have no node"}, 1),
    ],
)
def test_a_plan_ends_with_2_where_it_would_change_anything(
    berth: Berth, stub: Stub, file: str, answer: dict[str, object], code: int
) -> None:
    stub.answer("POST", "/changes/plan", answer)

    ran = berth("plan", file, "--gate", "--owner", "shop-rules", "--prune")

    assert ran.code == code
    sent = stub.asked[0]["body"]
    assert (sent["gate"], sent["owner"], sent["prune"]) == (True, "shop-rules", ["*"])


@pytest.mark.parametrize("command", ["plan", "apply", "diff"])
def test_an_empty_owner_is_refused_before_anything_is_pruned(command: str, berth: Berth, stub: Stub, file: str) -> None:
    ran = berth(command, file, "--owner", "", "--prune", "*")

    assert ran.code == 1
    assert "--owner: is empty" in ran.err
    assert not stub.asked


def test_pruning_without_a_scope_needs_an_owner(berth: Berth, stub: Stub, file: str) -> None:
    ran = berth("plan", file, "--prune")

    assert (ran.code, stub.asked) == (1, [])
    assert "--owner NAME" in ran.err


def test_a_file_that_was_taken_for_the_scope_of_prune_is_named(berth: Berth, stub: Stub, file: str) -> None:
    said = berth("plan", "--owner", "shop", "--prune", file)
    assert (said.code, stub.asked) == (1, [])
    assert f"FILE. {file!r} was read as the scope of --prune: put FILE before --prune\n" in said.err
    assert "taken" not in berth("plan", "--owner", "shop", "--prune").err
    assert "taken" not in berth("plan", "--prune", "team-a-*", "--nope", file).err


def test_a_plan_says_what_would_change_and_who_changed_it_outside_of_git(berth: Berth, stub: Stub, file: str) -> None:
    stub.answer("POST", "/changes/plan", CHANGED)

    assert berth("plan", file).out.splitlines() == [
        "Revision 7 would be made:",
        "  rule set web: score shortest-name: weight 1 → 2",
        "! rule set web was changed outside of shop-rules by Change 4 of an operator",
    ]


def test_apply_tells_the_change_and_what_to_do_next(berth: Berth, stub: Stub, file: str) -> None:
    stub.answer("POST", "/changes/apply", APPLIED)

    ran = berth("apply", file, "--reason", "asked for")

    assert ran.code == 0
    assert ran.out.splitlines()[0] == "Change 5 was opened:"
    assert ran.out.splitlines()[-1] == (
        "Nothing is live yet: `berth publish 5`, or `berth submit 5` where somebody else has to approve it first."
    )
    sent = stub.asked[0]["body"]
    assert (sent["title"], sent["reason"], sent["publish"]) == ("apply web.yaml", "asked for", False)
    assert yaml.safe_load(berth("apply", file, "-o", "yaml").out) == APPLIED


def test_apply_of_the_same_again_tells_of_the_change_that_is_open(berth: Berth, stub: Stub, file: str) -> None:
    stub.answer("POST", "/changes/apply", {**APPLIED, "is_new": False})
    assert berth("apply", file).out.startswith("Change 5 is open already, with the same edits:\n")


def test_apply_with_submit_tells_nobody_to_submit_once_more(berth: Berth, stub: Stub, file: str) -> None:
    stub.answer("POST", "/changes/apply", APPLIED)

    ran = berth("apply", file, "--submit")

    assert ran.out.splitlines()[-1] == (
        "Nothing is live yet: somebody else has to read `berth changes 5` and approve it."
    )


def test_apply_with_submit_of_the_same_again_claims_no_approval_is_missing_that_may_be_there(
    berth: Berth, stub: Stub, file: str
) -> None:
    stub.answer("POST", "/changes/apply", {**APPLIED, "is_new": False})

    assert berth("apply", file, "--submit").out.splitlines()[-1] == (
        "Nothing is live yet: `berth changes 5` says which approvals are missing; if none is, run `berth publish 5`."
    )


@pytest.mark.parametrize(
    ("name", "called"),
    [
        (b"caf\xe9.yaml", "caf\\udce9.yaml"),
        (b"\x1b[2J.yaml", "\\x1b[2J.yaml"),
        ("é\u202e.yaml".encode(), "é\\u202e.yaml"),
    ],
)
def test_a_file_is_applied_whatever_bytes_its_name_has(
    berth: Berth, stub: Stub, name: bytes, called: str, tmp_path: Path
) -> None:
    stub.answer("POST", "/changes/apply", {"ok": True, "change": None, "revision": None, "changes": []})
    file = tmp_path / os.fsdecode(name)
    file.write_text("kind: RuleSet\n")
    berth("apply", str(file))
    sent = stub.asked[0]["body"]
    assert (sent["title"], sent["files"][0]["name"]) == (f"apply {called}", f"{tmp_path}/{called}")


def test_of_a_commits_message_the_subject_is_the_title(berth: Berth, stub: Stub, file: str) -> None:
    stub.answer("POST", "/changes/apply", {"ok": True, "change": None, "revision": None, "changes": []})

    berth("apply", file, "--title", f"Web Pods fit{'!' * 188}\n\nBecause they have to.\n")

    assert stub.asked[0]["body"]["title"] == f"Web Pods fit{'!' * 188}"


def test_the_folder_where_one_is_gives_a_title(
    berth: Berth, stub: Stub, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(file).parent)
    stub.answer("POST", "/changes/apply", {"ok": True, "change": None, "revision": None, "changes": []})

    berth("apply", ".")

    assert stub.asked[0]["body"]["title"] == "apply ."


def test_a_title_that_is_too_long_is_cut_and_that_is_said(berth: Berth, stub: Stub, file: str) -> None:
    done = {"ok": True, "change": 4, "is_new": True, "revision": None, "changes": [], "notes": ["as it was"]}
    stub.answer("POST", "/changes/apply", done)
    asked = ("apply", file, "--title", f"Web Pods fit{'!' * 189}")

    ran = berth(*asked)

    assert stub.asked[0]["body"]["title"] == f"Web Pods fit{'!' * 187}…"
    assert ran.out.startswith(
        "! The title is longer than 200 characters, and was cut: `berth rename 4 --title TITLE`\n"
    )
    assert berth(*asked, "-o", "json").json["notes"][1:] == ["as it was"]


def test_an_owner_who_stands_against_it_is_named_and_so_is_the_remedy(berth: Berth, stub: Stub, file: str) -> None:
    said = "rule set web is kept by other-rules: take it out of those files first, or add --take-over."
    stub.answer("POST", "/changes/apply", {"title": "Conflict", "status": 409, "detail": said, "faults": []}, 409)

    ran = berth("apply", file, "--owner", "shop-rules", "-o", "json")

    assert ran.code == 1
    assert ran.json["ok"] is False
    assert said in ran.json["error"]


def test_an_export_is_the_servers_bytes(berth: Berth, stub: Stub, tmp_path: Path) -> None:
    text = "kind: RuleSet\nmetadata:\n  name: web\n  description: 'at 22:30  '\n---\nkind: Assignment\nmetadata: {name: all}\n"
    stub.answer("GET", "/export", text, Content_Type="application/yaml; charset=utf-8")

    assert berth("export").out == text

    folder = tmp_path / "a new one" / "live"
    ran = berth("export", "--directory", str(folder))
    assert ran.code == 0
    files = [folder / "RuleSet" / "web.yaml", folder / "Assignment" / "all.yaml"]
    assert "---\n".join(each.read_text() for each in files) == text


def test_a_folders_file_that_leads_nowhere_is_not_taken_for_one_that_isnt_there(
    berth: Berth, stub: Stub, tmp_path: Path
) -> None:
    (tmp_path / "web.yaml").write_text("a: b\n")
    (tmp_path / "shared.yaml").symlink_to(tmp_path / "submodule" / "shared.yaml")

    ran = berth("apply", "--prune", "shop-*", str(tmp_path))

    assert (ran.code, stub.asked) == (1, [])
    assert f"{tmp_path}/shared.yaml:1: can't be read" in ran.err


def test_a_folders_file_with_an_ending_in_capitals_isnt_left_out(berth: Berth, stub: Stub, tmp_path: Path) -> None:
    for name in ("a.YAML", "b.yaml", "c.Yml", "d.JSON"):
        (tmp_path / name).write_text(name)
    stub.answer("POST", "/lint", {"ok": True, "faults": []})

    berth("lint", str(tmp_path))

    assert [each["text"] for each in stub.asked[0]["body"]["files"]] == ["a.YAML", "b.yaml", "c.Yml", "d.JSON"]


def test_a_file_with_null_characters_is_named_before_anything_is_asked(
    berth: Berth, stub: Stub, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("a: b\n")
    (tmp_path / "b.yaml").write_bytes("a: b\n".encode("utf-16-le"))

    ran = berth("lint", str(tmp_path))

    assert (ran.code, stub.asked) == (1, [])
    assert f"{tmp_path}/b.yaml:1: can't be read: it has null characters" in ran.err


def test_a_folder_that_cant_be_looked_into_is_not_taken_for_empty(
    berth: Berth, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "web.yaml").write_text("a: b\n")
    (tmp_path / "locked").mkdir()
    scan = os.scandir

    def scandir(path: Any = ".") -> Any:
        if str(path).endswith("locked"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)

    ran = berth("apply", "--prune", "shop-*", str(tmp_path))

    assert (ran.code, stub.asked) == (1, [])
    assert f"{tmp_path}/locked: can't be read: Permission denied" in ran.err


def test_a_mounted_configmaps_files_are_read_once(berth: Berth, stub: Stub, tmp_path: Path) -> None:
    # As the kubelet writes it: a folder for each state, a link to the one that holds, and links to its files.
    (tmp_path / "..2026_11_26").mkdir()
    (tmp_path / "..2026_11_26" / "web.yaml").write_text("a: b\n")
    (tmp_path / "..data").symlink_to("..2026_11_26")
    (tmp_path / "web.yaml").symlink_to("..data/web.yaml")
    stub.answer("POST", "/lint", {"ok": True, "faults": []})

    assert berth("lint", str(tmp_path)).code == 0

    assert [each["name"] for each in stub.asked[0]["body"]["files"]] == [str(tmp_path / "web.yaml")]


def test_linked_folders_are_read_each_folder_once(berth: Berth, stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "team" / "own").mkdir(parents=True)
    (tmp_path / "shared" / "base.yaml").write_text("a: b\n")
    (tmp_path / "team" / "own" / "web.yaml").write_text("a: b\n")
    (tmp_path / "team" / "shared").symlink_to("../shared")
    (tmp_path / "team" / "again").symlink_to("own")
    (tmp_path / "team" / "upwards").symlink_to(".")
    stub.answer("POST", "/lint", {"ok": True, "faults": []})

    assert berth("lint", str(tmp_path / "team")).code == 0

    names = [Path(each["name"]).name for each in stub.asked[0]["body"]["files"]]
    assert sorted(names) == ["base.yaml", "web.yaml"]


def test_an_export_into_a_folder_names_files_of_what_is_no_longer_live(
    berth: Berth, stub: Stub, tmp_path: Path
) -> None:
    stub.answer("GET", "/export", "kind: RuleSet\nmetadata: {name: web}\n", Content_Type="application/yaml")
    for name in ("RuleSet/web", "RuleSet/gone", "Assignment/gone", "elsewhere/gone"):
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text("as it was\n")

    ran = berth("export", "--directory", str(tmp_path), "-o", "json")
    assert ran.json["left"] == [str(tmp_path / "Assignment" / "gone.yaml"), str(tmp_path / "RuleSet" / "gone.yaml")]
    assert (tmp_path / "RuleSet" / "gone.yaml").read_text() == "as it was\n"
    assert f"! {tmp_path}/RuleSet/gone.yaml" in berth("export", "--directory", str(tmp_path)).out

    of_kind = berth("export", "--directory", str(tmp_path), "--kind", "RuleSet", "-o", "json")
    assert of_kind.json["left"] == [str(tmp_path / "RuleSet" / "gone.yaml")]
    # What isn't asked for may be live.
    assert berth("export", "web", "--directory", str(tmp_path), "-o", "json").json["left"] == []
    assert berth("export", "--change", "7", "--directory", str(tmp_path), "-o", "json").json["left"] == []


def test_a_folder_that_cant_be_written_is_named_for_people_and_programs(
    berth: Berth, stub: Stub, tmp_path: Path
) -> None:
    stub.answer("GET", "/export", "kind: RuleSet\nmetadata: {name: web}\n", Content_Type="application/yaml")
    (tmp_path / "file").write_text("no folder")

    ran = berth("export", "--directory", str(tmp_path / "file"))
    assert (ran.code, ran.err) == (1, f"{tmp_path}/file/RuleSet: Not a directory\n")

    ran = berth("export", "--directory", str(tmp_path / "file"), "-o", "json")
    assert (ran.code, ran.json["ok"]) == (1, False)
    assert ran.json["error"] == f"{tmp_path}/file/RuleSet: Not a directory"


def test_an_export_writes_no_file_outside_of_its_folder(berth: Berth, stub: Stub, tmp_path: Path) -> None:
    text = "kind: RuleSet\nmetadata: {name: ../../web}\n"
    stub.answer("GET", "/export", text, Content_Type="application/yaml")

    ran = berth("export", "--directory", str(tmp_path / "in"))

    assert ran.code == 1
    assert list(tmp_path.rglob("*.yaml")) == []


@pytest.mark.parametrize("sent", ["text/html", "application/json"])
def test_a_page_of_something_else_is_no_export(berth: Berth, stub: Stub, tmp_path: Path, sent: str) -> None:
    stub.answer("GET", "/export", "<html>a portal</html>", Content_Type=sent)

    for arguments in ((), ("--directory", str(tmp_path))):
        ran = berth("export", *arguments)
        assert (ran.code, ran.out) == (3, "")
        assert f"isn't Berth: it sent {sent} instead of YAML" in ran.err


def test_diff_shows_live_against_files(berth: Berth, stub: Stub, file: str) -> None:
    stub.answer("POST", "/changes/plan", CHANGED)

    ran = berth("diff", file)

    assert ran.code == 2
    assert ran.out.splitlines()[1:] == [
        *("--- live/RuleSet/web", "+++ files/RuleSet/web", "@@ -1,2 +1,2 @@", " a: 1", "-b: 2", "+b: 3")
    ]
    stub.answer("POST", "/changes/plan", NOTHING)
    assert berth("diff", file).code == 0
