"""Rules in git, from a branch to a reverted commit, by `berth` alone: nobody has a shell on the server."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings

from policies import manifests, publishing
from policies.models import Change
from tests.builders import assignment_document, make_rule_set, rule_set_document
from tests.component.berth.conftest import ROOT, run, token_of
from tests.component.pages import opened

pytestmark = pytest.mark.django_db(transaction=True)

FIRST = [{"builtin": "PodFitsResources"}]
SECOND = [{"builtin": "MatchNodeSelector"}]
ROOM = {"cpu": "4", "memory": "8Gi", "pods": "110"}
TEST = {
    "name": "a node is enough",
    "pod": {"metadata": {"name": "p"}},
    "expect": {"feasible": ["n1"]},
    "nodes": [{"metadata": {"name": "n1"}, "status": {"allocatable": ROOM}}],
}


class Repository:
    """A bare repository whose hook is the pipeline, and somebody's checkout of it."""

    def __init__(self, name: str, folder: Path, author: dict[str, str], pipeline: dict[str, str]) -> None:
        self.bare, self.checkout = folder / f"{name}.git", folder / name
        self.author, self.pipeline = author, pipeline
        run(author, "git", "init", "--quiet", "--bare", "--initial-branch=main", str(self.bare))
        (self.bare / "hooks" / "post-receive").symlink_to(ROOT / "examples" / "ci" / "post-receive")
        run(author, "git", "clone", "--quiet", str(self.bare), str(self.checkout))
        (self.checkout / "rules").mkdir()

    def git(self, *arguments: str) -> str:
        return run(self.author, "git", *arguments, folder=self.checkout)

    def write(self, name: str, *documents: dict[str, Any]) -> None:
        text = "---\n".join(manifests.to_yaml(document) for document in documents)
        (self.checkout / "rules" / name).write_text(text)

    def commit(self, subject: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", subject)

    def push(self, branch: str) -> str:
        """Push to a branch; what its pipeline says."""
        said = run(self.pipeline, "git", "push", "--quiet", "origin", f"HEAD:{branch}", folder=self.checkout)
        return "\n".join(line.removeprefix("remote: ").rstrip() for line in said.splitlines())


def filters() -> list[str]:
    (live,) = publishing.current_revision().rule_sets
    return [rule.key for rule in live.spec.filters]


def test_rules_go_from_a_branch_to_two_people_and_back_by_a_revert(shell: Any, tmp_path: Path) -> None:
    operator = shell(token_of("Operator", "read", "edit", "publish"))
    approver = shell(token_of("Approver", "read", "review"))
    shop = Repository("shop-rules", tmp_path, operator, operator)

    def approve_and_publish() -> int:
        change = Change.objects.latest("pk")
        assert change.state == Change.State.IN_REVIEW
        run(operator, "berth", "publish", str(change.pk), code=1)
        shown = json.loads(run(approver, "berth", "changes", str(change.pk), "-o", "json"))["change"]
        run(approver, "berth", "approve", str(change.pk), "--digest", shown["digest"][:12])
        said = run(operator, "berth", "publish", str(change.pk))
        number = publishing.current_revision().number
        assert f"made Revision {number}" in said
        return number

    # A branch: faults are told with file and line, then what it would change.
    shop.write("web.yaml", rule_set_document(filters=[{"builtin": "PodFitsResorces"}]))
    shop.commit("Web Pods fit")
    assert "rules/web.yaml:7: spec.filters[0].builtin" in shop.push("web-fits")
    shop.write("web.yaml", rule_set_document(filters=FIRST, tests=[TEST]), assignment_document())
    shop.commit("Web Pods fit, spelled right")
    said = shop.push("web-fits")
    assert "### Web Pods fit, spelled right" in said
    assert "Revision 1 would be made" in said
    assert not Change.objects.exists()

    # main: a Change, which a second person approves.
    assert "was opened" in shop.push("main")
    first = approve_and_publish()
    assert filters() == ["PodFitsResources"]
    exported = run(operator, "berth", "export")

    # What is exported is applied without a Change, byte for byte.
    (tmp_path / "exported.yaml").write_text(exported)
    before = publishing.current_revision().digest
    assert json.loads(run(operator, "berth", "apply", "exported.yaml", "-o", "json", folder=tmp_path))["change"] is None
    assert run(operator, "berth", "plan", "exported.yaml", "--no-cluster", folder=tmp_path).startswith("Nothing would")
    assert (run(operator, "berth", "export"), publishing.current_revision().digest) == (exported, before)

    # The next commit, and its revert.
    shop.write("web.yaml", rule_set_document(filters=SECOND, tests=[TEST]), assignment_document())
    shop.commit("Web Pods have selectors")
    shop.push("main")
    approve_and_publish()
    assert filters() == ["MatchNodeSelector"]
    shop.git("revert", "--no-edit", "HEAD")
    assert "was opened" in shop.push("main")
    assert approve_and_publish() == first + 2
    assert run(operator, "berth", "export") == exported


def test_a_repositorys_last_thing_goes_by_a_file_that_says_that_it_holds_nothing(
    shell: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    operator = shell(token_of("Operator", "read", "edit", "publish"))
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
    file = tmp_path / "rules" / "web.yaml"
    file.parent.mkdir()
    file.write_text(manifests.to_yaml(rule_set_document(filters=FIRST)))
    asked = ("--owner", "shop-rules", "--no-cluster", "rules")
    run(operator, "berth", "apply", *asked, "--publish", folder=tmp_path)

    file.unlink()
    refused = run(operator, "berth", "apply", *asked, "--prune", code=1, folder=tmp_path)
    assert "if it should hold nothing, put a file there with {apiVersion: v1, kind: List, items: []}" in refused
    file.write_text("apiVersion: v1\nkind: List\nitems: []\n")

    assert run(operator, "berth", "lint", "rules", folder=tmp_path) == "no faults\n"
    kept = run(operator, "berth", "apply", *asked, folder=tmp_path)
    assert "! The files hold nothing, and nothing is pruned: nothing is removed.\nNothing to publish" in kept
    assert "**Notes on the files**" in run(operator, "berth", "plan", *asked, "--markdown", folder=tmp_path)
    assert "- name: web" not in run(operator, "berth", "diff", *asked, folder=tmp_path)
    planned = run(operator, "berth", "plan", *asked, "--prune", code=2, folder=tmp_path)
    assert "  rule set web archived" in planned
    assert "rule set web archived" in run(operator, "berth", "apply", *asked, "--prune", folder=tmp_path)


def test_several_branches_of_a_push_are_planned_and_no_checkout_stays(shell: Any, tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    operator = shell(token_of("Operator", "read")) | {"TMPDIR": str(left)}
    shop = Repository("shop-rules", tmp_path, operator, operator)
    shop.write("web.yaml", rule_set_document(filters=FIRST))
    shop.commit("Web Pods fit")
    shop.git("branch", "second")
    said = run(operator, "git", "push", "--quiet", "origin", "HEAD:first", "second", folder=shop.checkout)
    assert said.count("### Web Pods fit") == 2
    assert list(left.iterdir()) == []


def test_a_second_repository_is_told_and_drift_is_shown(shell: Any, tmp_path: Path, monkeypatch: Any) -> None:
    operator = shell(token_of("Operator", "read", "edit", "publish"))
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
    shop = Repository("shop-rules", tmp_path, operator, operator)
    bank = Repository("bank-rules", tmp_path, operator, operator)
    shop.write("web.yaml", rule_set_document(filters=FIRST))
    shop.commit("Web Pods fit")
    assert "Revision 1 was made" in shop.push("main")

    bank.write("web.yaml", rule_set_document(filters=SECOND))
    bank.commit("Web Pods have selectors")
    assert "rule set web is kept by shop-rules, not by bank-rules" in bank.push("main")
    assert filters() == ["PodFitsResources"]

    night = opened(make_rule_set(filters=SECOND), by="approver", title="at night")
    publishing.publish_change(change=night, by="approver", expected_digest=night.digest)
    said = run(operator, "berth", "diff", "--owner", "shop-rules", "rules", folder=shop.checkout, code=2)
    assert f"! rule set web was changed outside of shop-rules, by Change {night.pk} of approver: at night" in said
    assert "-  - builtin: MatchNodeSelector\n+  - builtin: PodFitsResources\n" in said


def test_a_token_goes_no_further_than_it_may(shell: Any, tmp_path: Path) -> None:
    reader = shell(token_of("Auditor", "read"))
    shop = shell(token_of("Operator", "read", "edit", rule_sets=["shop-*"]))
    file = tmp_path / "web.yaml"
    file.write_text(manifests.to_yaml(rule_set_document(filters=FIRST)))

    assert run(reader, "berth", "lint", str(file)) == "no faults\n"
    assert "may not" in run(reader, "berth", "apply", str(file), code=1)
    assert "Out of reach" in run(shop, "berth", "apply", str(file), code=1)
    assert "`berth login` with a new one" in run({**shop, "BERTH_TOKEN": "berth_x.y"}, "berth", "status", code=1)
    assert not Change.objects.exists()
