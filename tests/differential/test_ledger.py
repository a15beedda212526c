"""The ledger's trees, tiles, proofs, keys and notes, checked by Go's own implementation: golang.org/x/mod/sumdb."""

import base64
import hashlib
import itertools
import json
import os
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from scheduler.ledger.note import Signer, TreeHead
from scheduler.ledger.tree import Edge, leaf_hash, prove_consistency, prove_inclusion, root_at, subtrees_of
from tests.caller import go_command

SOURCE = Path(__file__).parents[1] / "gotlog"
LEAVES = 70_000  # so many that there is a third level of tiles


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("gotlog") / "gotlog"
    environment = os.environ | {"GOTOOLCHAIN": "local"}
    subprocess.run([go_command(), "build", "-o", str(built), "."], cwd=SOURCE, env=environment, check=True)
    return built


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    random = Random(54)
    leaves = [hashlib.sha256(b"%d" % number).digest()[: number % 33] for number in range(LEAVES)]
    edge, tiles = Edge(), {}
    edges = [0, 1, 2, 255, 256, 257, 511, 65_535, 65_536, 65_537, LEAVES]
    for start, end in itertools.pairwise(edges):
        for tile in edge.append(b"".join(map(leaf_hash, leaves[start:end]))):
            tiles[tile.level, tile.number] = tile
    read = subtrees_of(lambda level, number: tiles[level, number].hashes)
    pairs = [sorted(random.sample(range(1, LEAVES + 1), 2)) for _ in range(100)]
    pairs += [[old, new] for old in edges[1:] for new in edges if old <= new]
    sizes = {size for pair in pairs for size in pair}
    signer = Signer.make("berth.example.org")
    text = TreeHead("berth.example.org/decisions", LEAVES, root_at(read, LEAVES)).text()
    return {
        "Leaves": [encoded(leaf) for leaf in leaves],
        "Roots": {size: encoded(root_at(read, size)) for size in sizes},
        "Inclusion": [
            {"Index": index, "Size": size, "Proof": list(map(encoded, prove_inclusion(read, index, size)))}
            for size in sizes
            for index in {0, size - 1, random.randrange(size)}
        ],
        "Consistency": [
            {"Old": old, "New": new, "Proof": list(map(encoded, prove_consistency(read, old, new)))}
            for old, new in pairs
        ],
        "Tiles": [
            {"Level": tile.level, "Number": tile.number, "Width": tile.width, "Hashes": encoded(tile.hashes)}
            for tile in tiles.values()
        ],
        "Private": signer.private_text(),
        "Public": str(signer.verifier),
        "Text": text,
        "Note": signer.sign(text),
    }


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def said_of(program: Path, made: dict[str, Any]) -> str:
    return subprocess.run([program], input=json.dumps(made), capture_output=True, text=True, check=False).stdout.strip()


def test_go_finds_the_same_roots_tiles_proofs_and_notes(program: Path, made: dict[str, Any]) -> None:
    assert said_of(program, made) == "ok"


def test_go_would_say_what_differs(program: Path, made: dict[str, Any]) -> None:
    wrong = made["Inclusion"][-1] | {"Proof": [encoded(bytes(32))]}
    assert said_of(program, made | {"Inclusion": [wrong]}).startswith("inclusion of")
    assert said_of(program, made | {"Note": made["Note"].replace("70000", "70001")}) != "ok"
