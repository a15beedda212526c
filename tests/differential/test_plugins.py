"""Berth's built-ins say what kube-scheduler v1.36.3's own plugins say: of random clusters, to the last digit.

`DIFFERENTIAL_CASES` (20,000) and `DIFFERENTIAL_SEED` choose the cases. Needs the programs of deploy/localcluster,
which are built when they are missing.
"""

import os
from pathlib import Path
from random import Random

import pytest

from policies.engine.errors import QuantityError
from policies.engine.quantity import to_milli, to_value
from tests.differential.comparison import PLUGINS, compare, compare_many, report
from tests.differential.golden import VECTORS
from tests.differential.making.quantities import generate_quantity
from tests.differential.plugins import answer_all, build

CASES = int(os.environ.get("DIFFERENTIAL_CASES", "20000"))
SEED = int(os.environ.get("DIFFERENTIAL_SEED", "20260"))
SHOWN = 5

# Seconds: a case takes some 5 ms of two processors, and longer where other work has them.
pytestmark = pytest.mark.timeout(max(1800, CASES // 25))


@pytest.fixture(scope="module")
def program() -> Path:
    return build()


def test_every_builtin_and_every_plugin_agree_on_every_node(program: Path) -> None:
    outcome = compare_many(program, SEED, range(CASES))

    shown, kinds = [], set()
    for finding in outcome.findings:
        new = {(difference.builtin, difference.what) for difference in finding.differences} - kinds
        if new and len(shown) < SHOWN:
            kinds |= new
            shown.append(report(program, SEED, finding))
    text = "\n\n".join(shown)
    assert not outcome.findings, f"{len(outcome.findings)} of {CASES} cases differ, for example:\n\n{text}"


def test_the_cases_are_mixed(program: Path) -> None:
    verdicts = compare_many(program, SEED, range(3000)).verdicts

    for plugin in PLUGINS.values():
        passed = verdicts[plugin, "Success"]
        refused = verdicts[plugin, "Unschedulable"] + verdicts[plugin, "UnschedulableAndUnresolvable"]
        assert passed > 100, plugin
        assert refused > 40, plugin


def test_quantities_are_read_alike(program: Path) -> None:
    random = Random(SEED)
    texts = [generate_quantity(random) for _ in range(20_000)]

    differing = []
    for text, expected in zip(texts, answer_all(program, texts, "quantities"), strict=True):
        theirs = (expected["value"], expected["milli"]) if expected["ok"] else None
        try:
            ours = to_value(text), to_milli(text)
        except QuantityError:
            ours = None
        if ours != theirs:
            differing.append((text, theirs, ours))

    assert not differing


@pytest.mark.parametrize("name", VECTORS)
def test_the_program_gives_what_a_real_kube_scheduler_gave(program: Path, name: str) -> None:
    case, expected = VECTORS[name]

    [answer] = answer_all(program, [case])

    given = {plugin: answer["scores"][plugin] for plugin in expected}
    assert {plugin: None if said["skip"] else said["nodes"] for plugin, said in given.items()} == expected
    assert compare(case, answer) == []
