"""What is written about the repository itself: the commits that git blame passes over, and the targets of make."""

import re
import subprocess

import pytest

from tests.architecture.tracked import ROOT

IGNORED = (ROOT / ".git-blame-ignore-revs").read_text()


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False, text=True)


@pytest.fixture
def history() -> None:
    """Skip where the commits aren't there to be asked about."""
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("the history isn't there, or not whole")


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize(("subject", "commit"), re.findall(r"^# (.*)\n([0-9a-f]{40})$", IGNORED, re.MULTILINE))
def test_commits_that_blame_passes_over_are_in_the_history_under_their_subjects(subject: str, commit: str) -> None:
    assert git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0
    assert git("show", "-s", "--format=%s", commit).stdout.strip() == subject


def test_every_line_of_the_list_is_a_subject_or_a_commit() -> None:
    lines = [line for line in IGNORED.splitlines() if line]
    assert [line for line in lines if not re.fullmatch(r"# .+|[0-9a-f]{40}", line)] == []
    assert len(lines) == 2 * len(re.findall(r"^# .*\n[0-9a-f]{40}$", IGNORED, re.MULTILINE))


def test_contributing_lists_the_targets_of_make_help() -> None:
    helped = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    written = (ROOT / "CONTRIBUTING.md").read_text().split("```text\n")[1].split("```")[0]
    assert written == helped


def test_ci_runs_the_checks_before_the_tests() -> None:
    ran = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make ")]
    assert ran == ["make check", "make test"]


def test_ci_builds_and_runs_the_image_in_a_job_of_its_own() -> None:
    job = (ROOT / ".ci" / "image").read_text()
    assert [line for line in job.splitlines() if line.startswith("make ")] == ["make image-test"]
    assert [each for each in ("buildah", "podman", "runc", "mmdebstrap", "iproute2") if f" {each}" not in job] == []


def test_the_checks_cover_format_lint_types_layers_migrations_and_what_is_written() -> None:
    recipe = subprocess.run(["make", "-n", "check"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    wanted = (
        "ruff format --check",
        "ruff check",
        "mypy",
        "lint-imports",
        "makemigrations --check",
        "tests/architecture",
    )
    assert [each for each in wanted if each not in recipe] == []
