"""What fails in a lane is run once more, and no more than that."""

from pathlib import Path

import pytest

from tests.again import MOST_MODULES, main

# Fails in as many runs as the first line says.
LATE = """
from pathlib import Path
def test_late():
    runs = Path(__file__).with_suffix(".runs")
    so_far = len(runs.read_text()) if runs.exists() else 0
    runs.write_text("x" * (so_far + 1))
    assert so_far >= {failures}
def test_steady():
    pass
"""


def lane(folder: Path, content: str) -> tuple[int, Path]:
    """Run a lane of one file with nothing of the project's; returns its exit code and the file."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    file = folder / "test_lane.py"
    file.write_text(content)
    arguments = ["-q", "-c", str(folder / "pytest.ini"), "-p", "no:django", "-p", "no:cov", str(folder)]
    return main("lane", arguments, folder / "cache"), file


def runs(file: Path) -> int:
    return len(file.with_suffix(".runs").read_text())


def test_a_test_that_passes_at_the_second_run_passes_and_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, file = lane(tmp_path, LATE.format(failures=1))
    assert (code, runs(file)) == (0, 2)
    said = capfd.readouterr().out
    assert "passed at the second run only" in said.splitlines()[-2]
    assert said.splitlines()[-1].endswith("test_lane.py::test_late")
    assert "\n1 passed in" in said  # the steady one isn't run again


def test_a_test_that_fails_twice_fails_the_lane(tmp_path: Path) -> None:
    code, file = lane(tmp_path, LATE.format(failures=2))
    assert (code, runs(file)) == (1, 2)


def test_what_passes_is_run_once(tmp_path: Path) -> None:
    code, file = lane(tmp_path, LATE.format(failures=0))
    assert (code, runs(file)) == (0, 1)


def test_failures_of_many_modules_are_not_run_again(tmp_path: Path) -> None:
    for number in range(MOST_MODULES):
        (tmp_path / f"test_also_{number}.py").write_text("def test_one():\n    raise AssertionError\n")
    code, file = lane(tmp_path, LATE.format(failures=1))
    assert (code, runs(file)) == (1, 1)


def test_many_failures_of_one_module_are_run_again(tmp_path: Path) -> None:
    """A cluster that doesn't come up in time fails all tests that share it."""
    shared = "import pytest\n@pytest.fixture(scope='module', autouse=True)\ndef _shared():\n    test_late()\n"
    many = "@pytest.mark.parametrize('number', range(20))\ndef test_one(number):\n    pass\n"
    code, file = lane(tmp_path, LATE.format(failures=1) + shared + many)
    assert (code, runs(file)) == (0, 3)


def test_a_lane_that_collects_nothing_fails(tmp_path: Path) -> None:
    code, _ = lane(tmp_path, "")
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_fault_outside_of_tests_is_not_run_again(tmp_path: Path) -> None:
    code, _ = lane(tmp_path, "import nothing_of_this_name\n")
    assert code == pytest.ExitCode.INTERRUPTED
