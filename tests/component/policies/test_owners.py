"""Owners: two repositories and the people in the admin don't undo each other's work unseen."""

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from policies import manifests, publishing
from policies.management.commands.lint import lint_files
from policies.models import AuditEvent, Change, OwnerMark, Revision, RuleSet, RuleSetVersion
from policies.publishing import Edit, Keeper, OnBehalf, PublishingError
from policies.scopes import Reach
from tests.builders import assignment_document, make_assignment, make_rule_set, pause_document, rule_set_document
from tests.component.pages import opened, publish, publish_all
from tests.component.policies.test_commands import _run as run
from tests.component.rest.asking import ask

pytestmark = pytest.mark.django_db

SHOP = ("--publish", "--owner", "shop-rules", "--no-cluster")
BANK = ("--publish", "--owner", "bank-rules", "--no-cluster")
FIRST = {"filters": [{"builtin": "PodFitsResources"}]}
SECOND = {"filters": [{"builtin": "MatchNodeSelector"}]}
NOTHING = "The files hold nothing, and nothing is pruned: nothing is removed."


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(*documents: dict[str, Any]) -> str:
        path = tmp_path / "rules.yaml"
        path.write_text("---\n".join(manifests.to_yaml(document) for document in documents))
        return str(path)

    return write


def owners() -> dict[str, str]:
    return {f"{row.kind}/{row.name}": row.owner for row in OwnerMark.objects.all()}


def plan(*arguments: str) -> dict[str, Any]:
    """Return what a plan says; it ends with 2 where anything would change."""
    out = io.StringIO()
    with contextlib.suppress(SystemExit):
        call_command("plan", "--no-cluster", "--output", "json", *arguments, stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_an_empty_owner_is_refused_before_anything_is_pruned(command: str, write: Any) -> None:
    with pytest.raises(CommandError, match="--owner: is empty"):
        call_command(command, "--owner=", "--prune=*", write(rule_set_document()))


def test_what_a_repository_brings_in_is_its_own_once_it_is_live(write: Any) -> None:
    run("apply", "--owner", "shop-rules", write(rule_set_document(**FIRST), assignment_document()))
    assert owners() == {}

    change = Change.objects.get()
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)

    assert owners() == {"RuleSet/web": "shop-rules", "Assignment/all-web": "shop-rules"}


def test_a_second_repository_is_told_whose_it_is_and_what_to_do(write: Any) -> None:
    run("apply", *SHOP, write(rule_set_document(**FIRST)))

    with pytest.raises(CommandError) as refused:
        run("apply", *BANK, write(rule_set_document(**SECOND), rule_set_document("bank", **FIRST)))

    assert "rule set web is kept by shop-rules, not by bank-rules" in str(refused.value)
    assert "--take-over" in str(refused.value)
    assert Revision.objects.count() == 1, "nothing of it is live, not even what is its own"
    with pytest.raises(CommandError, match="kept by shop-rules"):
        run("plan", "--no-cluster", "--owner", "bank-rules", write(rule_set_document(**SECOND)))


def test_it_is_told_as_well_where_both_hold_the_same(write: Any) -> None:
    files = write(rule_set_document(**FIRST))
    run("apply", *SHOP, files)

    with pytest.raises(CommandError, match="kept by shop-rules"):
        run("apply", *BANK, files)


def test_what_somebody_asks_to_take_over_is_taken_over(write: Any) -> None:
    run("apply", *SHOP, write(rule_set_document(**FIRST)))
    run("apply", *BANK, "--take-over", write(rule_set_document(**SECOND)))
    assert owners() == {"RuleSet/web": "bank-rules"}

    with pytest.raises(CommandError, match="kept by bank-rules"):
        run("apply", *SHOP, write(rule_set_document(**FIRST)))


def test_whose_it_is_is_asked_again_when_a_change_is_published(write: Any) -> None:
    publish(make_rule_set(**FIRST))
    run("apply", "--owner", "shop-rules", write(rule_set_document(**SECOND)))
    first = Change.objects.get(owner="shop-rules")
    run("apply", *BANK, write(rule_set_document(**FIRST)))

    with pytest.raises(PublishingError, match="kept by bank-rules"):
        publishing.publish_change(change=first, by="ops", expected_digest=first.digest)


def test_what_is_live_already_is_marked_without_a_change(write: Any) -> None:
    publish(make_rule_set(**FIRST))
    files = write(rule_set_document(**FIRST))

    assert "Nothing to publish" in run("apply", *SHOP, files)
    run("apply", *SHOP, files)

    assert owners() == {"RuleSet/web": "shop-rules"}
    assert Change.objects.count() == 1, "the one of the admin"
    event = AuditEvent.objects.get(kind="claim")
    assert publishing.said_by(event).more == {"owner": "shop-rules", "things": ["RuleSet/web"], "before": {}}


def test_nobody_without_the_right_to_edit_marks_anything() -> None:
    publish(make_rule_set(**FIRST))
    reader = User.objects.create(username="reader")

    with pytest.raises(publishing.ForbiddenError):
        publishing.claim(keys=[("RuleSet", "web")], keeper=Keeper("shop-rules"), by=reader)
    assert owners() == {}


def test_a_token_marks_only_what_it_reaches(admin_user: User) -> None:
    publish(make_rule_set(**FIRST))
    token = OnBehalf(admin_user, "shop's pipeline", frozenset({"edit"}), Reach(rule_sets=("shop-*",)))

    with pytest.raises(publishing.ForbiddenError, match="Out of reach of shop's pipeline"):
        publishing.claim(keys=[("RuleSet", "web")], keeper=Keeper("shop-rules"), by=token)
    assert owners() == {}


def test_pruning_takes_what_is_the_repositorys_own_and_nothing_else(write: Any) -> None:
    run("apply", *SHOP, write(rule_set_document("shop-a", **FIRST), rule_set_document("shop-b", **FIRST)))
    run("apply", *BANK, write(rule_set_document("bank", **FIRST)))
    publish(make_rule_set("of-a-person", **FIRST))

    run("apply", *SHOP, "--prune", "*", write(rule_set_document("shop-a", **FIRST)))

    assert [each.name for each in publishing.current_revision().rule_sets] == ["bank", "of-a-person", "shop-a"]
    assert owners() == {"RuleSet/bank": "bank-rules", "RuleSet/shop-a": "shop-rules"}


def test_an_empty_list_and_a_scope_remove_the_last_thing_that_a_repository_keeps(write: Any) -> None:
    run("apply", *SHOP, write(rule_set_document("shop-a", **FIRST)))
    run("apply", *BANK, write(rule_set_document("bank", **FIRST)))
    before = publishing.current_revision().number
    nothing = write({"apiVersion": "v1", "kind": "List", "items": []})

    assert run("lint", nothing) == "no faults\n"
    assert plan("--owner", "shop-rules", nothing)["notes"] == [NOTHING]
    said = run("apply", *SHOP, nothing)
    assert said == f"! {NOTHING}\nNothing to publish: Revision {before} already has all of it\n"
    assert publishing.current_revision().number == before
    assert plan("--owner", "shop-rules", "--prune", "*", nothing)["changes"] == ["rule set shop-a archived"]
    run("apply", *SHOP, "--prune", "*", nothing)

    assert [each.name for each in publishing.current_revision().rule_sets] == ["bank"]
    assert owners() == {"RuleSet/bank": "bank-rules"}


@pytest.mark.parametrize("text", ["", "# rules\n", "---\n---\n"])
def test_a_file_that_holds_nothing_and_does_not_say_so_removes_nothing(text: str, write: Any) -> None:
    run("apply", *SHOP, write(rule_set_document("shop-a", **FIRST)))
    path = Path(write())
    path.write_text(text)
    remedy = r"holds no document: if it is to hold nothing, write \{apiVersion: v1, kind: List, items: \[\]\} in it"
    for command in (("plan", "--owner", "shop-rules"), ("apply", *SHOP)):
        with pytest.raises(CommandError, match=remedy):
            run(*command, "--prune", "*", str(path))
    (line,) = lint_files([path], [])
    assert re.search(remedy, line)
    assert [each.name for each in publishing.current_revision().rule_sets] == ["shop-a"]


@pytest.mark.parametrize("how", ["edit", "rebase"])
def test_what_a_person_brings_into_its_change_is_not_the_repositorys_to_prune(write: Any, how: str) -> None:
    publish_all(
        make_rule_set(), *(make_assignment(name, order=order) for name, order in (("a", 10), ("b", 20), ("c", 30)))
    )
    files = write(assignment_document("a", order=25))
    run("apply", "--owner", "shop-rules", files)
    change = Change.objects.get(owner="shop-rules")
    if how == "edit":
        edits = [Edit.of(make_assignment("c", order=40))]
        publishing.edit_change(change=change, edits=edits, by="alice", expected_digest=change.digest)
    else:
        publish_all(make_assignment("c", order=15))
        live = publishing.current_revision().number
        publishing.rebase_change(change=change, by="alice", expected_digest=change.digest, expected_revision=live)
    change.refresh_from_db()
    assert [edit.name for edit in publishing.edits_of(change)] == ["a", "c"]
    publishing.publish_change(change=change, by="alice", expected_digest=change.digest)

    run("apply", *SHOP, "--prune", "*", files)

    assert owners() == {"Assignment/a": "shop-rules"}
    assert {each.name for each in publishing.current_revision().assignments} == {"a", "b", "c"}


def test_what_is_taken_over_is_said_also_of_what_stays_as_it_is(write: Any) -> None:
    files = write(rule_set_document(**FIRST))
    run("apply", *SHOP, files)

    said = "rule set web is kept by shop-rules, and is taken over"
    assert plan("--owner", "bank-rules", "--take-over", files)["beside"] == [said]
    assert f"! {said}" in run("apply", *BANK, "--take-over", files)
    assert owners() == {"RuleSet/web": "bank-rules"}
    assert "beside" not in plan("--owner", "bank-rules", files)


def test_what_was_removed_is_nobodys(write: Any) -> None:
    run("apply", *SHOP, write(rule_set_document(**FIRST)))
    gone = publishing.open_change(title="gone", edits=[Edit("RuleSet", "web", None)], by="ops")
    publishing.publish_change(change=gone, by="ops", expected_digest=gone.digest)

    run("apply", *BANK, write(rule_set_document(**SECOND)))

    assert owners() == {"RuleSet/web": "bank-rules"}


def test_a_pause_that_ended_with_its_target_is_nobodys_so_that_one_of_its_name_is_not_pruned(write: Any) -> None:
    run("apply", *SHOP, write(rule_set_document(**FIRST), pause_document(name="ruleset-web")))
    gone = publishing.open_change(title="gone", edits=[Edit("RuleSet", "web", None)], by="ops")
    publishing.publish_change(change=gone, by="ops", expected_digest=gone.digest)
    assert owners() == {}
    publish_all(make_rule_set(**SECOND))
    publishing.pause(target="RuleSet/web", by="ops", reason="an incident")

    run("apply", *SHOP, "--prune", "*", write(rule_set_document("shop", **FIRST)))

    assert [each.name for each in publishing.current_revision().pauses] == ["ruleset-web"]


@pytest.mark.parametrize("act", ["archive", "go back", "roll back"])
def test_who_archives_or_goes_back_is_told_whose_it_is(operator: Client, write: Any, act: str) -> None:
    for content in (FIRST, SECOND):
        run("apply", *SHOP, write(rule_set_document(**content)))
    rule_set = RuleSet.objects.get()
    pages = {
        "archive": reverse("admin:policies_ruleset_archive", args=[rule_set.pk]),
        "go back": reverse("admin:policies_rulesetversion_go_back", args=[rule_set.versions.get(number=1).pk]),
        "roll back": reverse("admin:policies_revision_roll_back", args=[1]),
    }
    assert "rule set web is kept by shop-rules: bring this into" in operator.get(pages[act]).content.decode()


def test_every_door_says_of_an_open_change_whose_it_is(operator: Client, write: Any) -> None:
    run("apply", *SHOP, write(rule_set_document(**FIRST)))
    theirs = opened(make_rule_set(**SECOND), by="operator")
    said = "rule set web is kept by shop-rules: bring this into that repository, too, or its next apply undoes it."

    assert said in operator.get(f"/admin/policies/change/{theirs.pk}/change/").content.decode()
    assert ask(operator, "get", f"/changes/{theirs.pk}").json()["kept"] == [said]
    assert said in run("change", "show", theirs.pk)
    publishing.publish_change(change=theirs, by="operator", expected_digest=theirs.digest)
    assert ask(operator, "get", f"/changes/{theirs.pk}").json()["kept"] == []
    assert said not in run("change", "show", theirs.pk)


def test_people_may_and_the_next_plan_says_what_they_did(write: Any) -> None:
    files = write(rule_set_document(**FIRST))
    run("apply", *SHOP, files)
    theirs = opened(make_rule_set(**SECOND), by="operator", title="at night")
    assert publishing.owner_notes([("RuleSet", "web")]) == [
        "rule set web is kept by shop-rules: bring this into that repository, too, or its next apply undoes it."
    ]
    publishing.publish_change(change=theirs, by="operator", expected_digest=theirs.digest)

    found = plan("--owner", "shop-rules", files)

    said = f"rule set web was changed outside of shop-rules, by Change {theirs.pk} of operator: at night"
    assert found["drift"] == [said]
    assert said in run("apply", *SHOP, files)
    assert "drift" not in plan("--owner", "shop-rules", files)


def test_what_the_repository_has_taken_in_since_is_no_drift_any_more(write: Any) -> None:
    run("apply", *SHOP, write(rule_set_document(**FIRST)))
    publish(make_rule_set(**SECOND))
    assert plan("--owner", "shop-rules", write(rule_set_document(**FIRST)))["drift"] != []
    run("apply", *SHOP, write(rule_set_document(**SECOND)))

    assert "drift" not in plan("--owner", "shop-rules", write(rule_set_document(**FIRST)))


def test_what_a_person_edited_within_its_change_is_drift(write: Any) -> None:
    run("apply", *SHOP, write(rule_set_document(**FIRST)))
    files = write(rule_set_document(**SECOND))
    run("apply", "--owner", "shop-rules", "--title", "from the files", files)
    change = Change.objects.get(state="draft")
    edits = [Edit.of(make_rule_set(filters=[{"builtin": "PodFitsHost"}]))]
    publishing.edit_change(change=change, edits=edits, by="alice", expected_digest=change.digest)
    change.refresh_from_db()
    assert plan("--owner", "shop-rules", files).get("drift") is None
    publishing.publish_change(change=change, by="alice", expected_digest=change.digest)

    (said,) = plan("--owner", "shop-rules", files)["drift"]

    assert said.startswith(f"rule set web was changed outside of shop-rules, by Change {change.pk} of ")


def merge_and_publish(change: Change) -> None:
    """Merge the rule set web with the live one as alice, and publish the Change as bob."""
    live = publishing.current_revision().number
    sides = {("RuleSet", "web"): dict[str, str]()}
    publishing.rebase_change(
        change=change, by="alice", expected_digest=change.digest, expected_revision=live, merge=sides
    )
    change.refresh_from_db()
    publishing.publish_change(change=change, by="bob", expected_digest=change.digest)


def test_what_a_person_merged_within_its_change_is_drift_and_that_persons_version(write: Any) -> None:
    run("apply", *SHOP, write(rule_set_document(**FIRST)))
    files = write(rule_set_document(**FIRST, scores=[{"builtin": "LeastRequestedPriority"}]))
    run("apply", "--owner", "shop-rules", "--title", "from the files", files)
    change = Change.objects.get(state="draft")
    publish(make_rule_set(filters=[*FIRST["filters"], *SECOND["filters"]]))
    merge_and_publish(change)

    # The files lack the second filter: their next apply would take it out.
    (said,) = plan("--owner", "shop-rules", files)["drift"]

    assert said.startswith(f"rule set web was changed outside of shop-rules, by Change {change.pk} of ")
    assert RuleSetVersion.objects.get(state="published").author == "alice"


def test_a_merge_that_leaves_its_edit_as_it_was_leaves_it_to_the_repository(write: Any) -> None:
    run("apply", *SHOP, write(rule_set_document(**FIRST)))
    both = {"filters": [*FIRST["filters"], *SECOND["filters"]]}
    files = write(rule_set_document(**both, scores=[{"builtin": "LeastRequestedPriority"}]))
    run("apply", "--owner", "shop-rules", "--title", "from the files", files)
    change = Change.objects.get(state="draft")
    publish(make_rule_set(**both))  # somebody needed the second filter earlier
    merge_and_publish(change)

    next_files = write(rule_set_document(**both))

    assert "drift" not in plan("--owner", "shop-rules", next_files)
    assert RuleSetVersion.objects.get(state="published").author != "alice"


def test_what_a_person_renumbered_within_its_change_is_drift(write: Any) -> None:
    publish_all(make_rule_set(), *(make_assignment(name, order=order) for name, order in (("b", 20), ("c", 30))))
    run("apply", *SHOP, write(assignment_document("a", order=10)))
    files = write(assignment_document("a", order=25, mode="shadow"))
    run("apply", "--owner", "shop-rules", "--title", "from the files", files)
    change = Change.objects.get(state="draft")
    publish_all(make_assignment("b", order=40))
    live = publishing.current_revision().number
    theirs = [publishing.ORDER]
    publishing.rebase_change(
        change=change, by="alice", expected_digest=change.digest, expected_revision=live, take_theirs=theirs
    )
    change.refresh_from_db()
    (edit,) = publishing.edits_of(change)
    assert edit == Edit.of(make_assignment("a", order=10, mode="shadow"))
    publishing.publish_change(change=change, by="bob", expected_digest=change.digest)

    (said,) = plan("--owner", "shop-rules", files)["drift"]

    assert said.startswith(f"Assignment a was changed outside of shop-rules, by Change {change.pk} of ")


def test_what_a_person_removed_is_drift_and_what_the_repository_removed_is_none(write: Any) -> None:
    both = rule_set_document(**FIRST), rule_set_document("other", **FIRST)
    run("apply", *SHOP, write(*both))
    theirs = publishing.open_change(title="at night", edits=[Edit("RuleSet", "web", None)], by="operator")
    publishing.publish_change(change=theirs, by="operator", expected_digest=theirs.digest)

    said = f"rule set web was removed outside of shop-rules, by Change {theirs.pk} of operator: at night"
    assert plan("--owner", "shop-rules", write(*both))["drift"] == [said]
    anew = opened(make_rule_set(**SECOND), by="operator", title="otherwise")
    publishing.publish_change(change=anew, by="operator", expected_digest=anew.digest)
    said = f"rule set web was changed outside of shop-rules, by Change {anew.pk} of operator: otherwise"
    assert plan("--owner", "shop-rules", write(*both))["drift"] == [said]
    assert "drift" not in plan("--owner", "bank-rules", write(rule_set_document(**FIRST)))
    run("apply", *SHOP, write(*both))
    run("apply", *SHOP, "--prune", "*", write(rule_set_document("other", **FIRST)))
    assert [each.name for each in publishing.current_revision().rule_sets] == ["other"]
    assert "drift" not in plan("--owner", "shop-rules", write(*both))


def test_only_what_others_have_published_of_just_these_things_is_drift(write: Any) -> None:
    files = write(rule_set_document(**FIRST), assignment_document(name="web"))
    run("apply", *SHOP, files)
    # Another thing of the name, another rule set, and a Change that nobody has published.
    publish(make_assignment("web", "web", order=7))
    publish(make_rule_set("other", **SECOND))
    opened(make_rule_set(**SECOND))

    (said,) = plan("--owner", "shop-rules", write(rule_set_document(**SECOND), assignment_document(name="web")))[
        "drift"
    ]

    assert said.startswith("Assignment web was changed outside of shop-rules, by Change ")


def test_who_claims_what_another_repository_keeps_is_refused(write: Any) -> None:
    run("apply", *SHOP, write(rule_set_document(**FIRST)))
    with pytest.raises(PublishingError, match="rule set web is kept by shop-rules, not by bank-rules"):
        publishing.claim(keys=[("RuleSet", "web")], keeper=Keeper("bank-rules"), by="ops")
    assert owners() == {"RuleSet/web": "shop-rules"}


def test_a_plan_holds_both_sides_as_they_would_be_exported(write: Any) -> None:
    publish(make_rule_set(**FIRST))

    (found,) = plan(write(rule_set_document(**SECOND)))["documents"]

    assert (found["kind"], found["name"]) == ("RuleSet", "web")
    assert found["live"] == run("export", "web")
    assert "MatchNodeSelector" in found["files"]


def test_an_owners_name_is_a_line(write: Any) -> None:
    for name in ("x" * 101, "two\nlines", " shop"):
        with pytest.raises(CommandError, match="is a line"):
            run("apply", "--owner", name, write(rule_set_document(**FIRST)))
    assert not Change.objects.exists()
