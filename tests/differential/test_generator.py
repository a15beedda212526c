"""The clusters that are compared are those that their seed and number name."""

import subprocess
import sys

import pytest

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
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(digests) == 1
