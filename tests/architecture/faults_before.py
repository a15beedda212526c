"""Tries the tests of decision 104 on the code before each fault was mended.

    python -m tests.architecture.faults_before [FAULT ...]

For each fault, the commit that mended it and the commit before are checked out in a folder that is removed afterwards.
The commit before gets the tests of the one that mended: they have to fail there, and to pass on the other. Where those
tests import what was new, they would fail for that alone. Then a file of tests/architecture/before/ asks in words that
both commits know, beside the tests that each of them had. Needs the history of git and the cluster's programs.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
OWN = Path(__file__).parent / "before"
# Has the fixtures of tests/component.
PLACE = "tests/component/test_before.py"
# What differs from run to run: folders, and addresses in memory.
ELSEWHERE = re.compile(r"/tmp/\S+/| object at 0x\w+")
MESSAGE_CHARACTERS = 90


class Fault(NamedTuple):
    """What was found, the commit that mended it, and that commit's tests, or a file of `before/`."""

    name: str
    commit: str
    file: str
    tests: tuple[str, ...] = ()


FAULTS = (
    Fault("shadows", "86f7178", "shadows.py"),
    Fault(
        "revisions",
        "24866f6",
        "tests/unit/serving/test_revisions.py",
        ("TestWhatAPinKeeps::test_a_revision_goes_with_its_last_pin_when_the_next_pod_comes",),
    ),
    Fault(
        "replay",
        "79ffa90",
        "tests/component/decisions/test_replay.py",
        ("test_what_can_not_be_decided_again_is_never_called_the_same",),
    ),
    Fault(
        "outcomes",
        "66707d2",
        "tests/faults/test_missing.py",
        ("test_a_pod_bound_while_no_extender_runs_has_its_node",),
    ),
    Fault("lost", "66707d2", "lost.py"),
    Fault("vanished", "66707d2", "vanished.py"),
    Fault(
        "apply",
        "29444b5",
        "tests/component/policies/test_apply_beside_colleagues.py",
        (
            "TestDrafts::test_a_colleagues_draft_is_not_overwritten_and_the_refusal_names_it",
            "TestAssignments::test_only_those_in_the_files_are_published",
            "TestPriorityClasses::test_a_colleagues_faulty_row_stands_against_nobody_elses",
        ),
    ),
    Fault(
        "forms",
        "48c34ec",
        "tests/component/policies/test_pages_beside_colleagues.py",
        (
            "TestPublishing::test_what_a_colleague_saved_since_is_not_and_the_page_comes_anew",
            "TestForms::test_a_save_over_a_colleagues_is_refused_and_names_who_and_when",
        ),
    ),
    Fault("diffs", "aa66f4a", "diffs.py"),
    Fault(
        "files",
        "26a471e",
        "tests/unit/policies/test_official_policies.py",
        (
            "TestTabs::test_the_official_policy_is_imported_as_published",
            "TestNames::test_pod_selector_matches_is_the_node_selector",
            "TestNames::test_a_rule_over_volume_binding_is_told_who_checks_it",
            "TestExtendersAlone::test_it_is_exported_as_it_came",
            "TestKubernetesPriorityClass::test_it_is_the_same_class_as_berths_own_document",
        ),
    ),
    Fault(
        "plan",
        "cd2a43f",
        "tests/component/priority_classes/test_plan_command.py",
        ("TestExitCode::test_it_is_2_when_a_revision_would_be_made_and_0_when_all_is_live",),
    ),
    Fault(
        "extenders",
        "13c344c",
        "tests/component/doctor/test_doctor_command.py",
        ("TestFromPolicy::test_the_official_policys_extender_becomes_a_configuration",),
    ),
    Fault("parts", "4c4ca3e", "parts.py"),
    Fault(
        "pages",
        "4c4ca3e",
        "tests/component/policies/test_revision_pages.py",
        ("test_the_list_of_revisions_shows_a_few_changes_of_each",),
    ),
    Fault(
        "taking up",
        "0fd1f39",
        "tests/component/serving/test_revisions.py",
        ("test_what_a_publish_did_not_change_stays_the_same_compiled_object",),
    ),
    Fault(
        "spellings",
        "0299fe7",
        "tests/unit/extender/request/test_node_bytes.py",
        ("TestKnownNodes::test_nodes_are_recognised_in_other_spellings_too",),
    ),
    Fault(
        "last byte",
        "fabb446",
        "tests/unit/http_server/test_connection.py",
        ("test_a_body_is_whole_after_whichever_step_its_last_byte_comes",),
    ),
    # What strangers and insiders may send; docs/security.md has more of it.
    Fault("connections", "f51a37f", "connections.py"),
    Fault("quantities", "457d843", "quantities.py"),
    Fault("annotation", "457d843", "annotation.py"),
    Fault(
        "terms",
        "562010b",
        "tests/security/test_oversize.py",
        ("test_a_pod_that_asks_something_of_each_node_without_end_is_decided_in_time",),
    ),
    Fault("form rows", "457d843", "form_rows.py"),
    Fault(
        "pods that stay",
        "9250600",
        "tests/security/test_kept_bytes.py",
        ("test_nothing_stays_of_a_large_pod_when_it_has_been_decided",),
    ),
    Fault("web pages", "5eb86b6", "web_pages.py"),
    Fault(
        "keys",
        "d16cdac",
        "tests/security/test_crawler.py",
        ("test_no_key_in_a_path_is_answered_by_a_fault",),
    ),
    Fault(
        "readyz",
        "d16cdac",
        "tests/component/policies/test_api.py",
        ("test_readyz_names_the_part_that_is_not_ready_and_no_address",),
    ),
    Fault("sign-ins", "d16cdac", "sign_ins.py"),
    Fault(
        "names",
        "9451420",
        "tests/unit/policies/test_deceiving_words.py",
        (
            "test_what_kubernetes_does_not_take_for_a_name_is_refused_with_its_place",
            "test_controls_of_direction_are_refused_in_every_text",
        ),
    ),
    Fault("wire", "f51a37f", "wire.py"),
    Fault(
        "compose",
        "2ac9efa",
        "tests/security/test_compose.py",
        (
            "test_every_service_is_confined",
            "test_every_service_has_limits",
            "test_every_service_has_the_secrets_that_it_needs_and_no_other",
            "test_an_image_comes_by_digest_or_not_at_all",
            "test_uv_comes_by_the_hashes_of_the_lock",
        ),
    ),
)


class Result(NamedTuple):
    """How many tests there were, and what those that failed said."""

    tests: int
    failed: tuple[str, ...]

    def __str__(self) -> str:
        said = f": {self.failed[0]}" if self.failed else ""
        return f"{len(self.failed)} of {self.tests} failed{said}"


def main(names: Sequence[str]) -> int:
    """Print a row for each fault; return 1 where a test passes before, or fails after."""
    wrong = 0
    print("| fault | commit | before | after |\n|---|---|---|---|")
    for fault in FAULTS:
        if names and fault.name not in names:
            continue
        before, after = try_fault(fault)
        wrong += not before.failed or bool(after.failed) or not after.tests
        print(f"| {fault.name} | `{fault.commit}` | {before} | {after} |", flush=True)
    return int(wrong > 0)


def try_fault(fault: Fault) -> tuple[Result, Result]:
    """Return what the fault's tests say on the commit before the one that mended it, and on that one."""
    with tempfile.TemporaryDirectory(prefix="berth-before-") as folder:
        checkout = Path(folder) / "berth"
        _git(ROOT, "worktree", "add", "--quiet", "--detach", str(checkout), f"{fault.commit}~")
        try:
            (checkout / ".venv").symlink_to(ROOT / ".venv")
            if fault.tests:
                _git(checkout, "checkout", "--quiet", fault.commit, "--", "tests")
            before = run(checkout, fault)
            _git(checkout, "checkout", "--quiet", "--force", fault.commit)
            return before, run(checkout, fault)
        finally:
            _git(ROOT, "worktree", "remove", "--force", str(checkout))


def run(checkout: Path, fault: Fault) -> Result:
    """Return what the tests of a fault say in a checkout."""
    report = checkout.parent / "report.xml"
    report.unlink(missing_ok=True)
    if fault.tests:
        asked = [f"{fault.file}::{test}" for test in fault.tests]
    else:
        shutil.copy(OWN / fault.file, checkout / PLACE)
        asked = [PLACE]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *asked]
    subprocess.run(command, cwd=checkout, capture_output=True, check=False)
    return read_report(report)


def read_report(report: Path) -> Result:
    """Return what pytest's report says; a test that couldn't be read or set up counts as failed, with its error."""
    cases = list(ET.parse(report).iter("testcase"))
    found = [bad for case in cases for kind in ("failure", "error") if (bad := case.find(kind)) is not None]
    return Result(len(cases), tuple(_first_line(bad.get("message", "")) for bad in found))


def _first_line(message: str) -> str:
    line = ELSEWHERE.sub("", next(filter(None, message.splitlines()), "")).replace("|", "\\|")
    return line if len(line) <= MESSAGE_CHARACTERS else f"{line[:MESSAGE_CHARACTERS]}…"


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
