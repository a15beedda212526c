"""What is written: links that lead somewhere, and no path that only one machine has."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.architecture.faults_before import FAULTS, OWN
from tests.architecture.tracked import ROOT, named, tracked_files

FENCE = re.compile(r"^( *)(```+|~~~+).*?^ *\2", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)|^\s*\[[^\]]+\]:\s*<?([^\s>]+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)
# Links to sections, a line each, and what the headings of these begin with.
CONTENTS = re.compile(r"((?:^- \[[^\]]+\]\(#[^)]+\)\n){3,})(?:.*\n)*?(#+) ", re.MULTILINE)
ANCHOR = re.compile(r"<a\s+(?:id|name)=[\"']([^\"']+)")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
# What a module has, as docstrings and comments name it: `revisions.PIN_SECONDS`.
OF_MODULE = re.compile(r"`(?:\w+\.)*([a-z_]+)\.(_?[A-Z]\w*)`")
# What docs/performance.md keeps in memory: a row for each.
KEPT = re.compile(r"^\| .*?`(?:\w+\.)*([a-z_]+)\.(\w+)`.* \| kept", re.MULTILINE)
# A test's file, and a part of the name of a test in it.
OF_A_TEST = re.compile(r"`(?:\w+/)*test_\w+\.py`")
PART_OF_A_NAME = re.compile(r"`[a-z]+(?:_[a-z0-9]+)+`")
ONE_MACHINE = re.compile(r"(?<![\w.:/}~-])/(?:" + "|".join(("root", "work", "home")) + r")/[\w.]")


def slug(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", "")).strip().lower()
    return re.sub(r"[^\w\- ]", "", re.sub(r"[*]", "", text)).replace(" ", "-")


@cache
def anchors(path: Path) -> frozenset[str]:
    """Return the anchors of a Markdown file; a heading that comes again is numbered."""
    text = FENCE.sub("", path.read_text())
    found: set[str] = set(ANCHOR.findall(text))
    for heading in HEADING.findall(text):
        name = numbered = slug(heading)
        count = 0
        while numbered in found:
            count += 1
            numbered = f"{name}-{count}"
        found.add(numbered)
    return frozenset(found)


def dead_links(path: Path) -> list[str]:
    """Return the relative links of a Markdown file that lead nowhere."""
    text = CODE.sub("", FENCE.sub("", path.read_text()))
    dead = []
    for target in (inline or reference for inline, reference in LINK.findall(text)):
        if ELSEWHERE.match(target):
            continue
        place, _, anchor = unquote(target).partition("#")
        there = (ROOT / place.lstrip("/") if place.startswith("/") else path.parent / place) if place else path
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            dead.append(target)
    return dead


def test_every_relative_link_leads_somewhere() -> None:
    texts = [path for path in tracked_files() if path.suffix == ".md"]
    assert {named(path): dead for path in texts if (dead := dead_links(path))} == {}


def test_each_attack_that_is_described_names_tests_that_exist() -> None:
    tests = [path for path in tracked_files() if path.is_relative_to(ROOT / "tests") and path.suffix == ".py"]
    gone = []
    for row in (ROOT / "docs" / "security.md").read_text().splitlines():
        text = ""
        for name in CODE.findall(row):
            if OF_A_TEST.fullmatch(name):
                text = "".join(path.read_text() for path in tests if str(path).endswith(f"/{name[1:-1]}"))
                gone += [] if text else [name]
            elif text and PART_OF_A_NAME.fullmatch(name) and name[1:-1] not in text:
                gone.append(name)

    assert gone == []


def test_a_page_that_lists_its_sections_lists_all_of_them_in_their_order() -> None:
    lists = {}
    for path in (ROOT / "docs").glob("*.md"):
        text = FENCE.sub("", path.read_text())
        if listed := CONTENTS.search(text):
            sections = [
                slug(heading) for heading in re.findall(rf"^{listed[2]} (.+)$", text[listed.start(2) :], re.MULTILINE)
            ]
            lists[path.name] = (re.findall(r"\(#(.+)\)$", listed[1], re.MULTILINE), sections)

    assert "rules.md" in lists
    assert {name: both for name, both in lists.items() if both[0] != both[1]} == {}


def test_the_index_of_design_decisions_lists_each_by_its_title() -> None:
    folder = ROOT / "docs" / "adr"
    titles = {
        (path.name, *path.read_text().partition("\n")[0].removeprefix("# ").split(". ", 1))
        for path in folder.glob("0*.md")
    }
    listed = re.findall(r"^- (\d+)\. \[(.+)\]\((.+)\)$", (folder / "README.md").read_text(), re.MULTILINE)

    assert len(listed) == len(titles)
    assert {(name, number, title) for number, title, name in listed} == titles


def test_each_test_that_holds_a_fault_stands_in_the_file_that_is_linked() -> None:
    record = ROOT / "docs" / "adr" / "0104-faults-keep-their-tests.md"
    held = re.findall(r"\]\((\S+\.py)\): ((?:`test_\w+`(?:, )?)+)", record.read_text())
    named_there = [(path, name) for path, names in held for name in re.findall(r"\w+", names)]

    assert len(named_there) > len(held)
    assert [name for path, name in named_there if f"def {name}(" not in (record.parent / path).read_text()] == []


def test_each_fault_is_tried_on_the_commit_before() -> None:
    record = (ROOT / "docs" / "adr" / "0104-faults-keep-their-tests.md").read_text()
    own = {path.name for path in OWN.glob("*.py")}

    assert {fault.commit for fault in FAULTS} == set(re.findall(r"`([0-9a-f]{7})`", record))
    assert {fault.file for fault in FAULTS if not fault.tests} == own
    assert [name for name in own if f"architecture/before/{name})" not in record] == []


@cache
def has(module: str, name: str) -> bool:
    """Return whether a module of this name, or a module of a package of this name, has something of that name."""
    known = re.compile(rf"\b{name}\b(?!`)")
    modules = [path for path in tracked_files() if path.suffix == ".py" and module in (path.stem, path.parent.name)]
    return any(known.search(path.read_text()) for path in modules)


def test_what_docstrings_say_that_a_module_has_is_there() -> None:
    found = {
        (named(path), *hit)
        for path in tracked_files()
        if path.suffix == ".py" and path != Path(__file__)
        for hit in OF_MODULE.findall(path.read_text())
    }

    assert len(found) > 10
    assert [(where, module, name) for where, module, name in sorted(found) if not has(module, name)] == []


def test_memories_that_are_kept_are_there() -> None:
    kept = KEPT.findall((ROOT / "docs" / "performance.md").read_text())

    assert len(kept) > 10
    assert [(module, name) for module, name in kept if not has(module, name)] == []


def test_no_file_names_a_path_of_one_machine() -> None:
    found = []
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # a picture, an archive
        found += [f"{named(path)}:{text.count(chr(10), 0, hit.start()) + 1}" for hit in ONE_MACHINE.finditer(text)]
    assert found == []


def test_no_file_holds_both_sides_of_a_merge() -> None:
    # Put together, or this file would be one of them.
    sides = re.compile("^(" + "<" * 7 + "|" + ">" * 7 + ") ", re.MULTILINE)
    texts = [path for path in tracked_files() if path.suffix in {".py", ".md", ".toml", ".html", ".yaml", ".go"}]
    assert [named(path) for path in texts if sides.search(path.read_text())] == []


class TestDeadLinks:
    """The check itself: a check that finds nothing because it looks at nothing is worse than none."""

    @pytest.mark.parametrize(
        ("text", "dead"),
        [
            ("[a](other.md) ![b](picture.png) [c](other.md#two-words) [d](#here-we-are) [e](folder/)", []),
            ("[a](missing.md)", ["missing.md"]),
            ("[a](other.md#nowhere)", ["other.md#nowhere"]),
            ("[a](#nowhere)", ["#nowhere"]),
            ("[a]\n\n[a]: missing.md", ["missing.md"]),
            ("[a](https://example.org/x) <mailto:a@example.org> [b](mailto:a@example.org)", []),
            ("`[a](missing.md)`\n\n```\n[a](missing.md)\n```\n", []),
            ('[a](missing.md "title") [b](<missing too.md>)', ["missing.md"]),
            ("[a](other.md#again-1) [b](other.md#again) [c](other.md#set)", []),
            ("[a](other.md#again-2)", ["other.md#again-2"]),
        ],
    )
    def test_finds_links_that_lead_nowhere(self, tmp_path: Path, text: str, dead: list[str]) -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "picture.png").write_bytes(b"")
        (tmp_path / "other.md").write_text('# Two `words`!\n\n## Again\n\n## Again\n\n<a id="set"></a>\n')
        (tmp_path / "page.md").write_text(f"# Here, we are\n\n{text}\n")
        assert dead_links(tmp_path / "page.md") == dead

    @pytest.mark.parametrize("start", ["", "cd ", '"', "=", "("])
    def test_finds_paths_of_one_machine(self, start: str) -> None:
        assert ONE_MACHINE.search(start + "/" + "home/me/x")
        assert not ONE_MACHINE.search("https://example.org/" + "home/x")
