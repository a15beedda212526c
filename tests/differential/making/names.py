"""Names as clouds give them, in place of short ones."""

import re
from collections.abc import Callable
from random import Random

import msgspec

from tests.differential.making.words import Json

# Of a node by its number: one with dots, one of digits only, and others that sort otherwise than numbers do.
NODES = ["ip-10-0-0-{}.eu-west-1.compute.internal", "gke-pool-1-{:08x}-x{}", "{}", "a.b-{}", "n{}"]
# What the in-tree translation of persistent disks looks into: zones in the names of which the region is.
GCE = {"z1": "us-central1-a", "z2": "us-central1-b", "z3": "europe-west4-a", "r1": "us-central1", "r2": "europe-west4"}

_NODE = re.compile(r'"n(\d+)"')
_PLACE = re.compile(r"(?<![a-z0-9-])[zr][123](?![a-z0-9])")


def with_long_node_names(case: Json, random: Random) -> Json:
    """Rename each node, wherever it is named."""
    names: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        number = int(found[1])
        return f'"{names.setdefault(found[1], random.choice(NODES).format(number, number))}"'

    return _rewritten(case, lambda text: _NODE.sub(name, text))


def with_zones_of_gce(case: Json) -> Json:
    """Rename zones and regions as Google does, in lists of them too."""
    return _rewritten(case, lambda text: _PLACE.sub(lambda found: GCE.get(found[0], found[0]), text))


def _rewritten(case: Json, rewrite: Callable[[str], str]) -> Json:
    return msgspec.json.decode(rewrite(msgspec.json.encode(case).decode()))
