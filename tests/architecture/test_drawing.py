"""The drawing of the house: what it counts, and that the one in the docs is the house that stands."""

import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from tests.architecture.drawing import (
    ARCHITECTURE,
    ROOT,
    Plan,
    draw,
    drawing_in,
    figures,
    folders,
    layers_of,
    read_graph,
    text,
    written,
)

LAYERS = """
[tool.importlinter]
[[tool.importlinter.contracts]]
type = "layers"
containers = ["policies"]
layers = ["roof", "left | right", "cellar"]
"""


def house(tmp_path: Path, *imports: str) -> tuple[grimp.ImportGraph, Path]:
    """Return a graph with `policies` and what `a.b -> c.d` in imports names, and a folder with its files."""
    graph = grimp.ImportGraph()
    for package in ("controlplane", "policies", "scheduler"):
        graph.add_module(package)
    for each in imports:
        here, _, there = (f"policies.{part.strip()}" if part.strip() else "" for part in each.partition("->"))
        for module in filter(None, (here, there)):
            parts = module.split(".")
            for count in range(2, len(parts) + 1):
                graph.add_module(".".join(parts[:count]))
            path = tmp_path / f"{module.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("first = 1\n\n\nsecond = 2\n")
        if there:
            graph.add_import(importer=here, imported=there)
    (tmp_path / "pyproject.toml").write_text(LAYERS)
    return graph, tmp_path


def plan_of(tmp_path: Path, *imports: str) -> Plan:
    graph, root = house(tmp_path, *imports)
    return draw(graph, "policies", root)


def floors(plan: Plan) -> list[list[str]]:
    return [sorted(floor) for floor in plan.floors]


class TestDraw:
    def test_a_room_stands_above_the_highest_room_that_it_imports(self, tmp_path: Path) -> None:
        plan = plan_of(tmp_path, "roof -> left", "roof -> cellar", "left -> cellar", "right -> cellar", "shed ->")

        assert floors(plan) == [["roof"], ["left", "right"], ["cellar", "shed"]]

    def test_an_arrow_counts_once_however_many_modules_of_a_room_import_the_other(self, tmp_path: Path) -> None:
        plan = plan_of(tmp_path, "roof.a -> cellar.x", "roof.b -> cellar.x", "roof.b -> cellar.y", "roof.a -> roof.b")

        assert plan.arrows == {("roof", "cellar")}
        assert set(plan.rooms) == {"roof", "cellar"}

    def test_rooms_of_a_circle_share_a_floor_and_are_named(self, tmp_path: Path) -> None:
        plan = plan_of(tmp_path, "a -> b", "b -> c", "c -> a", "above -> a", "c -> below")

        assert plan.circles == (frozenset("abc"),)
        assert floors(plan) == [["above"], ["a", "b", "c"], ["below"]]
        assert "circle: a, b, c" in text(plan)

    def test_two_circles_are_two(self, tmp_path: Path) -> None:
        plan = plan_of(tmp_path, "a -> b", "b -> a", "b -> c", "c -> d", "d -> c")

        assert set(plan.circles) == {frozenset("ab"), frozenset("cd")}

    def test_an_arrow_against_the_list_of_layers_runs_up(self, tmp_path: Path) -> None:
        plan = plan_of(tmp_path, "cellar -> roof", "roof -> left")

        assert plan.up == {("cellar", "roof")}
        assert "up: cellar -> roof" in text(plan)

    def test_an_arrow_between_neighbours_of_a_layer_does_not_go_down_either(self, tmp_path: Path) -> None:
        assert plan_of(tmp_path, "left -> right").up == {("left", "right")}

    def test_without_a_list_the_arrows_of_circles_run_up(self, tmp_path: Path) -> None:
        plan = plan_of(tmp_path, "a -> b", "b -> a", "b -> c")

        assert plan.up == {("a", "b"), ("b", "a")}

    def test_what_django_finds_by_its_name_is_no_room(self, tmp_path: Path) -> None:
        assert set(plan_of(tmp_path, "apps -> models", "migrations.a -> models").rooms) == {"models"}

    def test_lines_are_those_with_text_and_a_rooms_are_those_of_its_modules(self, tmp_path: Path) -> None:
        plan = plan_of(tmp_path, "roof.a -> cellar", "roof.b -> cellar")

        assert plan.rooms == {"roof": 4, "cellar": 2}

    def test_the_head_has_the_figures(self, tmp_path: Path) -> None:
        plan = plan_of(tmp_path, "roof -> left", "left -> cellar", "cellar -> left")

        assert text(plan).splitlines()[0] == "policies: 3 rooms, 2 floors, 3 arrows, 1 up, 1 circles, 6 lines"


def test_empty_lines_comments_and_docstrings_are_no_code_and_migrations_are_counted_apart(tmp_path: Path) -> None:
    text = '"""What it is.\n\nMore.\n"""\n\n# Why.\ndef f():\n    """Return it."""\n    return (\n        """a\nb"""\n    )\n'
    files = {
        "policies/a.py": text,
        "policies/migrations/0001_initial.py": "x = 1\n" * 5,
        "tests/test_a.py": "x = 1\n\n" * 6,
    }
    for name, content in files.items():
        (path := tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    found = figures(tmp_path)

    assert found.startswith("product 5 lines of code and 5 of migrations, tests 6;")
    assert found.endswith("tests : code 1.20, with migrations 0.60")


def test_the_command_draws_another_checkout(tmp_path: Path) -> None:
    for name in ("controlplane", "policies", "scheduler", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "policies" / "only_here.py").write_text("import scheduler\n")
    (tmp_path / "pyproject.toml").write_text(LAYERS)

    done = subprocess.run(
        [sys.executable, "-m", "tests.architecture.drawing", "--of", tmp_path, ".", "policies"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )

    assert "the whole: 3 rooms, 2 floors, 1 arrows" in done.stdout
    assert "only_here 1" in done.stdout
    assert "product 1 lines of code and 0 of migrations, tests 0" in done.stdout


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return read_graph()


class TestTheHouse:
    def test_nothing_runs_up_or_round(self, graph: grimp.ImportGraph) -> None:
        plans = [draw(graph, folder) for folder in folders(graph)]
        assert {plan.folder: (set(plan.up), plan.circles) for plan in plans if plan.up or plan.circles} == {}

    def test_every_large_folder_is_drawn(self, graph: grimp.ImportGraph) -> None:
        assert {".", "scheduler", "scheduler.extender", "scheduler.binder", "policies", "policies.engine"} <= set(
            folders(graph)
        )

    def test_the_lists_of_layers_are_read(self) -> None:
        assert layers_of(".") == [{"controlplane"}, {"scheduler"}, {"policies"}]
        assert any({"extender", "binder"} <= floor for floor in layers_of("scheduler"))
        assert layers_of("no.such.folder") == []


def drawings(heading: str) -> dict[str, list[list[str]]]:
    """Return the drawings below a heading of docs/architecture.md: the rooms of each floor, by folder."""
    found: dict[str, list[list[str]]] = {}
    for drawing in drawing_in(ARCHITECTURE.read_text(), heading).split("\n\n"):
        head, *lines = drawing.splitlines()
        on_floors = re.sub(r"\n {4}", "  ", "\n".join(lines)).splitlines()
        folder = head.partition(":")[0].replace("the whole", ".")
        found[folder] = [re.findall(r"(\w+) \d+", line) for line in on_floors]
    return found


class TestTheDrawingInTheDocs:
    """Lines change with each commit; rooms and their order are what a reader looks for."""

    STALE = "`make drawing WRITE=yes` brings docs/architecture.md up to date"

    def test_it_has_the_rooms_that_there_are(self, graph: grimp.ImportGraph) -> None:
        drawn = {folder: {room for floor in found for room in floor} for folder, found in drawings("After").items()}

        true = {folder: set(draw(graph, folder).rooms) for folder in drawn if folder in {".", *graph.modules}}
        assert drawn == true, self.STALE
        assert {".", "scheduler", "scheduler.extender", "scheduler.binder", "policies", "policies.engine"} <= set(true)

    def test_every_arrow_goes_down_in_it(self, graph: grimp.ImportGraph) -> None:
        against = set()
        for folder, found in drawings("After").items():
            floor = {room: place for place, rooms in enumerate(found) for room in rooms}
            against |= {(folder, a, b) for a, b in draw(graph, folder).arrows if floor.get(a, 0) >= floor.get(b, 99)}

        assert against == set(), self.STALE

    def test_the_drawing_before_is_the_house_before(self) -> None:
        before = drawings("Before")
        assert {"answers", "ledger", "questions"} <= {room for floor in before["scheduler.extender"] for room in floor}
        assert len(before["policies.engine"]) == 13

    def test_writing_brings_a_stale_drawing_and_its_figures_up_to_date(self, tmp_path: Path) -> None:
        graph, root = house(tmp_path, "roof -> cellar")
        stale = (
            "| folder | rooms |\n|---|---|\n| policies | 9 |\n\nKept.\n\n"
            "### Before\n```text\npolicies: 7 rooms, 3 floors, 8 arrows, 1 up, 0 circles, 1,234 lines\n  | x 1\n```\n"
            "### After\nKept too.\n```text\npolicies: 9 rooms, 9 floors, 9 arrows, 9 up, 9 circles, 9 lines\n  | gone 9\n```\n"
        )

        fresh = written(stale, graph, root)

        assert drawing_in(fresh, "After") == text(draw(graph, "policies", root))
        assert drawing_in(fresh, "Before") == drawing_in(stale, "Before")
        assert "| policies | 7 → 2 | 3 → 2 | 8 → 1 | 1 → 0 | 0 → 0 | 1,234 → 4 |\n\nKept." in fresh
        assert "Kept too." in fresh
        assert written(fresh, graph, root) == fresh
        twice = fresh.replace("\n```\n", f"\n\n{text(draw(graph, 'policies', root))}\n```\n")
        assert drawing_in(written(twice, graph, root), "After") == drawing_in(fresh, "After")


def test_the_house_on_the_architecture_page_names_every_room_of_the_apps(graph: grimp.ImportGraph) -> None:
    """The tree with a line on each room is written by hand; a room that it leaves out is one that nobody explained."""
    tree = ARCHITECTURE.read_text().split("## The house\n")[1].split("```text\n")[1].split("```")[0]
    words = set(re.findall(r"\w+", tree))
    rooms = {room for folder in ("scheduler", "policies", "policies.engine") for room in draw(graph, folder).rooms}

    assert rooms - words == set()
