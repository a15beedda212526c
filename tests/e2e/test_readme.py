"""README, the tutorial and how-tos as a new user follows them: `make up`, then each command, which prints what they show."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from scheduler.doctor.dashboard import ROWS
from tests.readme import README, ROOT, blocks, consoles, link_checkout, run, steady, write_files
from tests.stack import Stack, eventually, free_port

pytestmark = pytest.mark.e2e
DOCS = ROOT / "docs"
NODES = ROOT / "deploy" / "local" / "nodes.yaml"
# kube-scheduler and kwok have done their work by then.
SECONDS = 30.0


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    nodes = list(yaml.safe_load_all(NODES.read_text()))
    with Stack(tmp_path_factory.mktemp("readme"), nodes=nodes, bare=False) as stack:
        yield stack


def test_make_up_prints_what_readme_shows(stack: Stack) -> None:
    def unlike(text: str) -> list[str]:
        printed = {_without_numbers(line) for line in text.splitlines()}
        examples = next((line for line in text.splitlines() if "example rule sets" in line), "")
        shown = [line for line in blocks("text")[0].splitlines() if not line.startswith("password")]
        return [
            line
            for line in shown
            if not (
                examples.startswith(line.rstrip("…, "))
                if "example rule sets" in line
                else _without_numbers(line) in printed
            )
        ]

    log = stack.folder / "up.log"
    eventually(lambda: not unlike(log.read_text()), seconds=SECONDS, what=f"make up prints {unlike(log.read_text())}")
    assert len(re.findall(r"^password: \S{12,}$", log.read_text(), re.MULTILINE)) == 1


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl isn't installed; README says how to get it")
def test_every_command_prints_what_readme_shows(stack: Stack, tmp_path: Path) -> None:
    write_files(tmp_path)
    type_commands(README, stack, tmp_path)


# What a document tells its reader to write, and the name it gives to it.
WRITTEN = {
    "tutorial.md": ("yaml", "blue.yaml"),
    "howto/policy-json.md": ("json", "policy.json"),
    "howto/beside-an-extender.md": ("yaml", "kube-scheduler.yaml"),
}
PAGES = [
    "tutorial.md",
    *(f"howto/{name}.md" for name in re.findall(r"\(([a-z-]+)\.md\) ✓", (DOCS / "howto/index.md").read_text())),
]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl isn't installed; README says how to get it")
@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_prints_what_it_shows(page: str, stack: Stack, tmp_path: Path) -> None:
    link_checkout(tmp_path)
    if page in WRITTEN:
        language, name = WRITTEN[page]
        (tmp_path / name).write_text(blocks(language, DOCS / page)[0])
    type_commands(DOCS / page, stack, tmp_path)


def type_commands(document: Path, stack: Stack, folder: Path) -> None:
    """Type a document's commands in a folder, one after the other; the stack has ports of its own."""
    (folder / ".berth").symlink_to(stack.state)
    exports = ""
    commands = [(not place, each) for block in consoles(document) for place, each in enumerate(block)]
    assert commands, f"{document} shows no command"
    for is_first, command in commands:
        if is_first:
            stack.wait_until_served()  # who reads what is between two blocks takes longer
        if command.text.startswith("export "):
            exports += command.text.replace("http://127.0.0.1:8000", stack.admin_url) + "\n"
            continue

        def printed(text: str = exports + command.text) -> str:
            said = run(text, folder, {"BERTH_STATE_DIR": str(stack.state)})
            return steady(said.replace(stack.extender_url, "http://127.0.0.1:8010"))

        if command.text.startswith("kubectl get"):
            eventually(
                lambda shown=command.output: printed() == steady(shown), seconds=SECONDS, every=1.0, what=command.text
            )
        else:
            assert printed() == steady(command.output), command.text


@pytest.fixture(scope="module")
def prometheus(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that scrapes each process each second, with Berth's rules."""
    folder = tmp_path_factory.mktemp("prometheus")
    kept = dict(line.split("=", 1) for line in (stack.state / "env").read_text().splitlines() if "=" in line)
    listeners = [kept[f"BERTH_{name}_BIND"] for name in ("BINDER", "WORKER", "BEAT")]
    targets = [f"127.0.0.1:{stack.admin_port}", f"127.0.0.1:{stack.extender_port}", *listeners]
    configuration = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yaml").read_text())
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(ROOT / "deploy/prometheus/rules.yaml")]
    configuration["scrape_configs"][0]["static_configs"] = [{"targets": targets}]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    address = f"127.0.0.1:{free_port()}"
    program = shutil.which("prometheus")
    assert program, "no prometheus: install it (apt-get install prometheus)"
    options = [f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, *options, f"--web.listen-address={address}"], stdout=log, stderr=log)
        try:
            yield f"http://{address}"
        finally:
            process.kill()
            process.wait()


def test_every_query_of_the_dashboard_finds_data_and_nothing_rings(stack: Stack, prometheus: str) -> None:
    def asked(query: str) -> list[dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"{prometheus}/api/v1/query?{urlencode({'query': query})}") as answer:
                return list(json.load(answer)["data"]["result"])
        except OSError:
            return []

    stack.create_pod("seen", labels={"policy": "shortest-name"})
    stack.wait_for_node("seen")
    # The binder counts from its first Pod on.
    stack.create_pod("own", schedulerName="berth")
    stack.wait_for_node("own")
    for row in ROWS.values():
        for panel in row:
            for query in panel.queries.values():
                eventually(lambda query=query: asked(query), what=f"{panel.title}: {query}")
    eventually(lambda: len(asked("up == 1")) == 5, what="all five processes are scraped")
    assert not asked('ALERTS{alertstate="firing", severity="page"}')


def _without_numbers(line: str) -> str:
    return re.sub(r"\d[\d.]*", "N", re.sub(r"kubeconfig \S+", "kubeconfig …", line)).strip()
