"""The house as its imports draw it: folders, the rooms in them, and which room imports which.

    python -m tests.architecture.drawing [--of CHECKOUT] [--figures] [--write] [FOLDER ...]

A room is a module or package directly inside a folder, an arrow is that one room imports another, however often. A room
stands one floor above the highest room that it imports; rooms of a circle share a floor. An arrow runs up when it goes
against the folder's list of layers in pyproject.toml. The graph is grimp's, on which import-linter stands.
"""

import argparse
import re
import sys
import textwrap
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PACKAGES = ("controlplane", "policies", "scheduler")
# The product is these and the command, which nothing in them imports.
PRODUCT = (*PACKAGES, "berth")
WHOLE = "."
# Django finds these by their names, and nobody imports them.
NOT_ROOMS = frozenset({"apps", "migrations"})
# What is drawn when no folder is named: folders that are too large to be seen at once.
FEWEST_ROOMS = 5
# Folders of the drawing before that have another name in the one after.
NOW = {"scheduler.binding": "scheduler.binder"}

_BLOCK = r"(?<=\n### {}\n)(.*?```text\n)(.*?)(?=\n```)"
_TABLE = re.compile(r"\| folder \|.*?\n\n", re.DOTALL)
_HEAD = re.compile(
    r"^(\S.*?): (\d+) rooms, (\d+) floors, (\d+) arrows, (\d+) up, (\d+) circles, ([\d,]+) lines$", re.MULTILINE
)

# Tokens after which a statement begins, and those that are no code.
_BETWEEN = frozenset({tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT})
_NO_CODE = frozenset({tokenize.NL, tokenize.COMMENT, tokenize.ENCODING, tokenize.ENDMARKER})

Arrow = tuple[str, str]


@dataclass(frozen=True)
class Plan:
    """A folder: its rooms with their lines, by floor from the top, and the arrows between them."""

    folder: str
    floors: tuple[dict[str, int], ...]
    arrows: frozenset[Arrow]
    up: frozenset[Arrow]
    circles: tuple[frozenset[str], ...]

    @property
    def rooms(self) -> dict[str, int]:
        """Return the lines of each room."""
        return {room: lines for floor in self.floors for room, lines in floor.items()}


def read_graph(root: Path = ROOT) -> grimp.ImportGraph:
    """Return the imports of the product in a checkout."""
    sys.path.insert(0, str(root))
    try:
        return grimp.build_graph(*PACKAGES, exclude_type_checking_imports=False, cache_dir=None)
    finally:
        sys.path.remove(str(root))


def draw(graph: grimp.ImportGraph, folder: str, root: Path = ROOT) -> Plan:
    """Return the plan of a folder, named as in an import; `.` is the whole."""
    inside = set(PACKAGES) if folder == WHOLE else graph.find_children(folder)
    names = {each: each.rpartition(".")[2] for each in inside}
    rooms = {each: name for each, name in names.items() if name not in NOT_ROOMS}
    arrows = frozenset(
        (rooms[here], rooms[there])
        for module in graph.modules
        if (here := _room(module, rooms))
        for imported in graph.find_modules_directly_imported_by(module)
        if (there := _room(imported, rooms)) and here != there
    )
    heights = _heights(set(rooms.values()), arrows)
    lines = {name: _lines(root / each.replace(".", "/")) for each, name in rooms.items()}
    floors = tuple(
        {name: lines[name] for name in sorted(heights) if heights[name] == height}
        for height in sorted(set(heights.values()), reverse=True)
    )
    circles = tuple(_circles(set(rooms.values()), arrows))
    return Plan(folder, floors, arrows, frozenset(_up(arrows, circles, layers_of(folder, root))), circles)


def layers_of(folder: str, root: Path = ROOT) -> list[set[str]]:
    """Return the list of layers that pyproject.toml has for a folder, from the top; empty when it has none."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    for each in contracts:
        if each["type"] == "layers" and folder in (each.get("containers") or [WHOLE]):
            return [{name.strip() for name in layer.split("|")} for layer in each["layers"]]
    return []


def folders(graph: grimp.ImportGraph) -> list[str]:
    """Return the folders that are drawn when none is named: the whole, then those with many rooms."""
    large = (
        module
        for module in graph.modules
        if len([each for each in graph.find_children(module) if each.rpartition(".")[2] not in NOT_ROOMS])
        >= FEWEST_ROOMS
    )
    return [WHOLE, *sorted(each for each in large if each.rpartition(".")[2] not in NOT_ROOMS)]


def text(plan: Plan) -> str:
    """Return a plan as it is printed: the figures, then a line a floor."""
    head = (
        f"{'the whole' if plan.folder == WHOLE else plan.folder}: {len(plan.rooms)} rooms, {len(plan.floors)} floors, "
        f"{len(plan.arrows)} arrows, {len(plan.up)} up, {len(plan.circles)} circles, {sum(plan.rooms.values()):,} lines"
    )
    lines = [head]
    for floor in plan.floors:
        # A room isn't parted from its lines where a line is broken.
        shown = "  ".join(f"{room}\N{NO-BREAK SPACE}{count}" for room, count in floor.items())
        lines += textwrap.wrap(shown, 116, initial_indent="  | ", subsequent_indent="    ", break_on_hyphens=False)
    lines += [f"  up: {here} -> {there}" for here, there in sorted(plan.up)]
    lines += [f"  circle: {', '.join(sorted(circle))}" for circle in plan.circles]
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def figures(root: Path = ROOT) -> str:
    """Return the lines of code of the product and of its tests, and how many of the second come on one of the first.

    Counted are lines of Python that aren't empty and hold more than a comment or a docstring.
    """
    files = [file for package in PRODUCT for file in sorted((root / package).rglob("*.py"))]
    made = sum(_lines_of_code(file) for file in files if "migrations" in file.parts)
    ours = sum(map(_lines_of_code, files)) - made
    tests = sum(map(_lines_of_code, sorted((root / "tests").rglob("*.py"))))
    return (
        f"product {ours:,} lines of code and {made:,} of migrations, tests {tests:,}; "
        f"tests : code {tests / ours:.2f}, with migrations {tests / (ours + made):.2f}"
    )


def drawing_in(document: str, heading: str) -> str:
    """Return the drawing below a heading of docs/architecture.md."""
    found = re.search(_BLOCK.format(heading), document, re.DOTALL)
    assert found, f"docs/architecture.md has no drawing below {heading!r}"
    return found[2]


def written(document: str, graph: grimp.ImportGraph, root: Path = ROOT) -> str:
    """Return docs/architecture.md with the drawing after, and the table of figures, as they are now."""
    # Once each: two branches that both brought it up to date are merged with some folders twice.
    names = dict.fromkeys(head[1] for head in _HEAD.finditer(drawing_in(document, "After")))
    drawn = "\n\n".join(text(draw(graph, WHOLE if name == "the whole" else name, root)) for name in names)
    document = re.sub(_BLOCK.format("After"), lambda found: found[1] + drawn, document, count=1, flags=re.DOTALL)
    document = _TABLE.sub(lambda _: _table(drawing_in(document, "Before"), drawn) + "\n\n", document, count=1)
    return re.sub(r"(?<=\n- After: ).*", figures(root), document, count=1)


def _table(before: str, after: str) -> str:
    """Return the figures of two drawings side by side."""
    then = {NOW.get(head[1], head[1]): head.groups()[1:] for head in _HEAD.finditer(before)}
    lines = ["| folder | rooms | floors | arrows | up | circles | lines |", "|---|---|---|---|---|---|---|"]
    for head in _HEAD.finditer(after):
        pairs = zip(then.get(head[1], ("",) * 6), head.groups()[1:], strict=True)
        lines.append(f"| {head[1]} | " + " | ".join(f"{old} → {new}" if old else new for old, new in pairs) + " |")
    return "\n".join(lines)


def _room(module: str, rooms: dict[str, str]) -> str:
    """Return the room that a module is in; empty for one elsewhere."""
    while module and module not in rooms:
        module = module.rpartition(".")[0]
    return module


def _lines(path: Path) -> int:
    """Return how many lines with text a module or a package has. Migrations are made by a command, and don't count."""
    files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
    ours = [file for file in files if "migrations" not in file.parts]
    return sum(1 for file in ours for line in file.read_text().splitlines() if line.strip())


def _lines_of_code(file: Path) -> int:
    """Return how many lines hold code. A docstring is a text that makes a statement by itself."""
    found: set[int] = set()
    begins = True
    with tokenize.open(file) as lines:
        for token in tokenize.generate_tokens(lines.readline):
            if token.type in _BETWEEN:
                begins = True
            elif token.type not in _NO_CODE:
                if not (begins and token.type == tokenize.STRING):
                    found.update(range(token.start[0], token.end[0] + 1))
                begins = False
    return len(found)


def _reached(rooms: set[str], arrows: frozenset[Arrow]) -> dict[str, set[str]]:
    """Return what each room imports, directly or by way of others."""
    reached = {room: {there for here, there in arrows if here == room} for room in rooms}
    for between in rooms:
        for room in rooms:
            if between in reached[room]:
                reached[room] |= reached[between]
    return reached


def _circles(rooms: set[str], arrows: frozenset[Arrow]) -> Iterator[frozenset[str]]:
    """Iterate over the sets of rooms that import each other, directly or by way of others."""
    reached = _reached(rooms, arrows)
    in_circles = {room for room in rooms if room in reached[room]}
    while in_circles:
        room = min(in_circles)
        circle = frozenset(each for each in in_circles if each in reached[room] and room in reached[each])
        yield circle
        in_circles -= circle


def _heights(rooms: set[str], arrows: frozenset[Arrow]) -> dict[str, int]:
    """Return the floor of each room, 0 for those that import no other."""
    reached = _reached(rooms, arrows)
    below = {room: {there for there in reached[room] if room not in reached[there]} for room in rooms}
    heights: dict[str, int] = {}
    # Who reaches fewer rooms can't be above who reaches them too.
    for room in sorted(rooms, key=lambda room: len(below[room])):
        heights[room] = max((heights[there] + 1 for there in below[room]), default=0)
    return heights


def _up(arrows: frozenset[Arrow], circles: tuple[frozenset[str], ...], layers: list[set[str]]) -> Iterator[Arrow]:
    """Iterate over the arrows that don't go down the list of layers; without a list, over those in circles."""
    level = {room: place for place, layer in enumerate(layers) for room in layer}
    for here, there in arrows:
        if here in level and there in level:
            if level[there] <= level[here]:
                yield here, there
        elif any({here, there} <= circle for circle in circles):
            yield here, there


def main(arguments: list[str]) -> None:
    """Print the plans of folders, then the lines of code and tests."""
    parser = argparse.ArgumentParser(prog="python -m tests.architecture.drawing", description=__doc__.split("\n")[0])
    parser.add_argument(
        "folders", nargs="*", metavar="FOLDER", help="as in an import, `.` is the whole; else the large ones"
    )
    parser.add_argument(
        "--of", type=Path, default=ROOT, metavar="CHECKOUT", help="another checkout, such as one of an old commit"
    )
    parser.add_argument("--figures", action="store_true", help="the lines of code and tests alone")
    parser.add_argument("--write", action="store_true", help="bring docs/architecture.md up to date")
    options = parser.parse_args(arguments)
    if options.write:
        ARCHITECTURE.write_text(written(ARCHITECTURE.read_text(), read_graph()))
        return
    if not options.figures:
        graph = read_graph(options.of)
        found = [draw(graph, folder, options.of) for folder in options.folders or folders(graph)]
        print("\n\n".join(text(plan) for plan in found) + "\n")
    print(figures(options.of))


if __name__ == "__main__":
    main(sys.argv[1:])
