"""`apply` beside colleagues: whose edit it touches is said, nothing of theirs is lost or published."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.utils import timezone

from policies import manifests, publishing
from policies.engine.ruleset import Revision
from policies.models import Assignment, Change
from policies.publishing import current_revision
from tests.builders import (
    assignment_document,
    exemption_document,
    make_assignment,
    make_priority_class,
    make_rule_set,
    priority_class_document,
    rule_set_document,
)
from tests.component.pages import opened, publish, publish_all
from tests.component.policies.people import person
from tests.component.policies.test_commands import _run as run

pytestmark = pytest.mark.django_db

FIRST = {"filters": [{"builtin": "PodFitsResources"}]}
ALICES = {"filters": [{"builtin": "MatchNodeSelector"}]}
MINE = {"filters": [{"builtin": "PodToleratesNodeTaints"}]}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(*documents: dict[str, Any]) -> str:
        path = tmp_path / "mine.yaml"
        path.write_text("---\n".join(manifests.to_yaml(document) for document in documents))
        return str(path)

    return write


def live() -> Revision:
    return current_revision()


class TestChanges:
    def test_a_colleagues_change_stays_and_has_to_look_at_what_was_published(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        theirs = opened(make_rule_set(**ALICES), by="alice")
        said = run("apply", "--publish", write(rule_set_document(**MINE)))
        assert f"! Change {theirs.pk}, which is open, edits rule set web as well" in said
        assert [rule.key for rule in live().rule_sets[0].spec.filters] == ["PodToleratesNodeTaints"]
        with pytest.raises(publishing.PublishingError, match="published another RuleSet web since"):
            publishing.publish_change(change=theirs, by="alice", expected_digest=theirs.digest)
        assert publishing.edits_of(theirs) == [publishing.Edit.of(make_rule_set(**ALICES))]

    def test_what_is_live_is_unchanged_and_opens_nothing(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        assert "rule set web is unchanged" in run("apply", "--publish", write(rule_set_document(**FIRST)))
        assert live().number == 1

    def test_who_applies_the_same_again_has_the_change_that_is_open(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        file = write(rule_set_document(**MINE))
        run("apply", file)
        said = run("apply", file, "--reason", "the pipeline ran once more")
        change = Change.objects.exclude(state="published").get()
        assert f"Change {change.pk} is open already, and makes the same: apply mine.yaml" in said
        assert "rule set web changed, compared with version 1" in said
        assert "edits rule set web as well" not in said
        run("apply", write(rule_set_document(**MINE), rule_set_document("other")))
        assert Change.objects.exclude(state="published").count() == 2

    def test_a_change_that_others_opened_or_moved_is_not_that_of_who_applies_the_same(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        theirs = opened(make_rule_set(**MINE), by="alice")
        file = write(rule_set_document(**MINE))
        assert f"! Change {theirs.pk}, which is open, edits rule set web as well" in run("apply", file)
        publish(make_rule_set(**ALICES))
        assert "was opened" in run("apply", file)

    def test_a_change_stays_that_of_an_account_that_is_renamed(self) -> None:
        alice, wanted = person("alice", "Operator"), publishing.Edit.of(make_rule_set(**MINE))
        change = publishing.open_change(title="mine", edits=[wanted], by=alice)
        User.objects.filter(pk=alice.pk).update(username="alicia")
        alice.refresh_from_db()
        again = {"wanted": {wanted.key: wanted}}
        assert publishing.open_already(**again, by=alice) == change
        assert publishing.open_already(**again, by=person("alice", "Operator")) is None

    @pytest.mark.parametrize("field", ["publish_at", "expires_at"])
    def test_a_change_that_has_a_time_is_another_than_that_of_who_applies_the_same(self, field: str) -> None:
        alice, wanted = person("alice", "Operator"), publishing.Edit.of(make_rule_set(**MINE))
        change = publishing.open_change(title="mine", edits=[wanted], by=alice)
        act = {"publish_at": publishing.schedule_change, "expires_at": publishing.set_expiry}[field]
        act(change=change, by=alice, expected_digest=change.digest, **{field: timezone.now() + timedelta(hours=1)})
        assert publishing.open_already(wanted={wanted.key: wanted}, by=alice) is None

    def test_a_repository_has_its_own_change_beside_the_same_one_of_its_account(self) -> None:
        alice, wanted = person("alice", "Operator"), publishing.Edit.of(make_rule_set(**MINE))
        publishing.open_change(title="mine", edits=[wanted], by=alice)
        again, shop = {wanted.key: wanted}, publishing.Keeper("shop-rules")
        assert publishing.open_already(wanted=again, by=alice, keeper=shop) is None
        theirs = publishing.open_change(title="the pipeline's", edits=[wanted], by=alice, keeper=shop)
        assert publishing.open_already(wanted=again, by=alice, keeper=shop) == theirs

    def test_open_changes_that_touch_the_same_are_named(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        run("apply", write(rule_set_document(**ALICES)))
        number = Change.objects.get(state="draft").pk
        said = run("apply", write(rule_set_document(**MINE), rule_set_document("other")))
        assert f"! Change {number}, which is open, edits rule set web as well" in said


def test_only_what_is_in_the_files_is_published(write: Any) -> None:
    publish(make_rule_set(**FIRST))
    publish_all(*(make_assignment(name) for name in ("alices", "mine", "gone")))
    opened(make_assignment("alices", order=7), make_assignment("new", order=1), by="alice")
    said = run("apply", "--publish", write(assignment_document("mine", order=5)))
    assert {each.name: each.order for each in live().assignments} == {"alices": 100, "mine": 5, "gone": 100}
    assert "Assignment mine changed" in said
    assert "Assignment alices changed" not in said
    assert "Assignment alices is never reached: mine before it takes every Pod" in said
    assert Assignment.objects.get(name="mine").order == 5


def test_an_assignment_of_an_unpublished_rule_set_is_refused_still(write: Any) -> None:
    opened(make_rule_set("unpublished"), by="alice")
    with pytest.raises(CommandError, match="rule set unpublished has no published version"):
        run("apply", "--publish", write(assignment_document("mine", "unpublished")))


def test_two_global_defaults_never_go_live_together(write: Any) -> None:
    publish_all(make_priority_class("alices", globalDefault=True))
    with pytest.raises(CommandError, match="alices, mine: each would be the global default"):
        run("apply", "--publish", write(priority_class_document("mine", globalDefault=True)))
    both = write(priority_class_document("mine", globalDefault=True), priority_class_document("alices"))
    run("apply", "--publish", both)
    assert [each.name for each in live().priority_classes if each.global_default] == ["mine"]


@pytest.mark.parametrize("command", [["plan", "--no-cluster"], ["apply"], ["apply", "--publish"]])
def test_files_that_hold_an_exemption_and_take_away_its_rule_are_refused(write: Any, command: list[str]) -> None:
    """Applied, they would end the Exemption, and be refused the next time."""
    held = exemption_document("cart", "RuleSet/web/PodFitsResources", until="9000-01-01T00:00:00Z")
    run("apply", "--publish", write(rule_set_document(**FIRST), held))
    with pytest.raises(
        CommandError, match=r"cart: spec\.target: rule set web has no rule PodFitsResources; it has Match"
    ):
        run(*command, write(rule_set_document(**ALICES), held))
    assert live().number == 1
    assert Change.objects.count() == 1
    run("apply", "--publish", write(rule_set_document(**ALICES)))
    assert live().exemptions == []
