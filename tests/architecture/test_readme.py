"""README's commands: those that need nothing that runs print what it says. tests/e2e/test_readme.py runs the others.

And that no command of a tutorial or how-to goes without a test that runs it.
"""

import re
from pathlib import Path

import pytest

from tests.readme import ROOT, Command, blocks, consoles, run, steady, write_files

OFFLINE, *_ONLINE = consoles()
ONLINE = [command for block in _ONLINE for command in block]
DOCS = ROOT / "docs"
PAGES = [DOCS / "tutorial.md", DOCS / "kubernetes.md", *sorted((DOCS / "howto").glob("*.md"))]
# Blocks of a shell that aren't consoles, by page, and the tests that run them. What prints nothing worth showing is one of these.
RUN_BY = {
    "kubernetes.md": "tests/e2e/cluster/test_install_commands.py",
    "howto/kubeadm.md": "tests/e2e/test_mutual_tls.py",
    "howto/backup.md": "tests/e2e/test_restore.py",
}
SHELLS = ("sh", "bash", "shell", "sql")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    write_files(folder)
    return folder


@pytest.mark.parametrize("command", OFFLINE, ids=lambda command: command.text[:60])
def test_commands_that_need_nothing_print_what_readme_says(command: Command, checkout: Path) -> None:
    printed = run(command.text, checkout, {"BERTH_STATE_DIR": str(checkout / "nothing-runs-here")})

    assert printed.strip() == command.output.strip()


def test_the_shell_commands_are_targets_that_make_help_lists() -> None:
    listed = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    typed = [line for block in blocks("sh") for line in block.splitlines()]

    assert typed == ["make up", "make test"]
    assert {line.removeprefix("make ") for line in typed} <= listed


def test_what_the_commands_need_stands_among_what_is_needed() -> None:
    needed = (ROOT / "README.md").read_text().split("Needed: ")[1].split("\n\n")[0]
    programs = {command.text.split()[0] for command in ONLINE} - {"export", ".venv/bin/python"}

    assert programs == {"kubectl"}
    assert {name for name in (*programs, "git", "make") if name not in needed} == set()


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_no_pod_is_made_in_the_block_that_publishes_the_rules_for_it(page: Path) -> None:
    """Processes take a Revision up a moment later: in a block that is pasted, the Pod would be decided on by the one before."""
    for block in consoles(page):
        texts = [command.text for command in block]
        published = next((place for place, text in enumerate(texts) if "apply --publish" in text), len(texts))
        assert not [text for text in texts[published:] if text.startswith("kubectl run")]


def test_every_block_of_commands_is_run_by_a_test() -> None:
    """Consoles by tests/e2e/test_readme.py, where the list of how-tos has a mark; others by the test that reads their page."""
    marked = re.findall(r"\(([a-z-]+)\.md\) ✓", (DOCS / "howto" / "index.md").read_text())
    by_console = {"tutorial.md", *(f"howto/{name}.md" for name in marked)}
    pages = {page.relative_to(DOCS).as_posix(): page for page in PAGES}
    assert {name for name, page in pages.items() if consoles(page)} == by_console
    assert {name for name, page in pages.items() if any(blocks(each, page) for each in SHELLS)} == set(RUN_BY)
    for name, test in RUN_BY.items():
        assert name in (ROOT / test).read_text(), f"{test} doesn't read {name}"
    # One that is indented would be overlooked here, and isn't drawn as a block in the site.
    indented = [name for name, page in pages.items() if re.search(r"^ +```", page.read_text(), re.MULTILINE)]
    assert indented == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("mine    1/1     Running   0          3s\n", "mine  1/1  Running  0  1m2s", True),
        ("mine    1/1     Running   0          3s", "mine    0/1     Pending   0          3s", False),
        ("0/10 nodes are available", "0/9 nodes are available", False),
        ("pod/mine created", "pod/mine created\npod/ghost created", False),
    ],
)
def test_outputs_are_the_same_but_for_ages_and_columns(one: str, other: str, *, same: bool) -> None:
    assert (steady(one) == steady(other)) is same
