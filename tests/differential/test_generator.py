"""The clusters that are compared are those that their seed and number name, and some are of unusual shapes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from policies.engine.objects import inter_pod
from policies.engine.objects.columns import ANY_NAMESPACE, required_anti_terms, traits_in, weighed_terms
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from tests.differential.generator import Case
from tests.differential.making.words import Json

CASES_AS_TEXT = """
import hashlib
import msgspec
from tests.differential.generator import generate
from tests.differential.preemption_cases import generate_preemption
for make in (generate, generate_preemption):
    print(hashlib.sha256(msgspec.json.encode([make(1, number) for number in range(300)])).hexdigest())
"""


@pytest.mark.timeout(120)
def test_cases_are_the_same_in_each_process_so_that_one_that_differs_can_be_seen_again() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", CASES_AS_TEXT],
            cwd=Path(__file__).parents[2],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(digests) == 1


def test_crowds_have_more_terms_and_kinds_of_pods_than_the_engine_looks_at_one_by_one() -> None:
    crowds = [Snapshot.of(map(Node.from_json, case["nodes"]), map(Pod.from_json, case["pods"])) for case in _crowds(20)]

    assert max(len(traits_in(crowd.table, "default")) for crowd in crowds) > inter_pod._MAX_ASKED
    for terms in (required_anti_terms, weighed_terms):
        groups = [terms(crowd.table).group(group) for crowd in crowds for group in ("default", ANY_NAMESPACE)]
        assert sum(len(group) > inter_pod._MAX_LISTED for group in groups) > len(groups) / 2


def _crowds(number: int) -> Iterator[Json]:
    for index in range(number):
        maker = Case(Random(f"crowds/{index}"))
        maker.themes.add("crowd")
        yield maker.make()
