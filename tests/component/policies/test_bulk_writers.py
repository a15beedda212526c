"""Publishing many things at once: all of it is written or nothing, under the right numbers, and once."""

import pytest

from policies import publishing
from policies.models import Assignment, Change, Revision, RuleSet, RuleSetVersion
from policies.publishing import PublishingError, parts
from tests.builders import make_assignment, make_rule_set
from tests.component.pages import opened, publish, publish_all
from tests.component.threads import at_once

pytestmark = pytest.mark.django_db

OTHER = {"filters": [{"builtin": "MatchNodeSelector"}, {"builtin": "PodFitsHost"}]}


class TestNumbers:
    def test_a_new_rule_set_begins_at_1_and_a_published_one_goes_on(self) -> None:
        publish(make_rule_set("old"))
        publish_all(make_rule_set("old", **OTHER), make_rule_set("new"))
        assert {each.name: each.version for each in publishing.current_revision().rule_sets} == {"old": 2, "new": 1}
        states = RuleSetVersion.objects.order_by("rule_set__name", "number").values_list("number", "state")
        assert list(states) == [(1, "published"), (1, "superseded"), (2, "published")]

    def test_a_number_is_not_used_again_after_archiving(self) -> None:
        publish(make_rule_set())
        publishing.archive(rule_set=RuleSet.objects.get(), by="ops", reason="")
        publish(make_rule_set(**OTHER))
        assert publishing.current_revision().rule_sets[0].version == 2

    def test_the_rows_hold_what_went_live(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The digest is taken over what the rows give back; in statements of one row each, too."""
        monkeypatch.setattr(parts, "_BATCH", 1)
        publish_all(*(make_rule_set(name, **OTHER) for name in ("a", "b", "c")))
        live = {each.name: each for each in publishing.current_revision().rule_sets}
        for version in RuleSetVersion.objects.select_related("rule_set"):
            assert publishing.check_version(version) == live[version.rule_set.name]
            assert version.state == "published"


class TestAllOrNothing:
    def test_an_assignment_of_a_rule_set_that_isnt_there_takes_back_the_others(self) -> None:
        with pytest.raises(PublishingError, match="late: rule set nope has no published version; publish it first"):
            publish_all(make_rule_set("mine"), make_assignment("late", "nope"))
        assert not RuleSetVersion.objects.exists()
        assert not Revision.objects.exists()
        assert not Assignment.objects.exists()
        assert Change.objects.get().state == "draft"

    def test_only_rows_that_differ_are_written(self) -> None:
        publish_all(make_rule_set(), make_assignment("a", order=1), make_assignment("b", order=2))
        before = Assignment.objects.get(name="a")
        publish_all(make_assignment("b", order=3), make_assignment("c", order=4), by="bob")
        found = {row.name: (row.order, row.author) for row in Assignment.objects.all()}
        assert found == {"a": (1, "ops"), "b": (3, "bob"), "c": (4, "bob")}
        assert Assignment.objects.get(name="a").updated_at == before.updated_at

    def test_a_member_that_is_left_out_goes_back_to_its_default(self) -> None:
        publish_all(make_rule_set(), make_assignment("a", order=1, match={"namespaces": ["x"]}, mode="shadow"))
        publish_all(make_assignment("a"))
        row = Assignment.objects.get()
        assert (row.namespaces, row.mode, row.order) == ([], "enforce", 100)


@pytest.mark.django_db(transaction=True)
class TestAtOnce:
    def test_many_who_open_changes_of_the_same_new_rule_sets_all_do(self) -> None:
        names = [f"set-{index}" for index in range(12)]

        def act(index: int) -> object:
            ordered = names if index % 2 else names[::-1]
            return opened(*(make_rule_set(name) for name in ordered), by=f"ops-{index}")

        results = at_once(4, act)
        assert all(isinstance(result, Change) for result in results), results
        assert sorted(RuleSet.objects.values_list("name", flat=True)) == sorted(names)

    def test_one_change_published_by_many_at_once_is_published_once(self) -> None:
        edits = [publishing.Edit.of(make_rule_set(name)) for name in ("a", "b", "c")]
        change = publishing.open_change(title="all", edits=edits, by="ops")
        results = at_once(
            4,
            lambda index: publishing.publish_change(change=change, by=f"ops-{index}", expected_digest=change.digest),
        )
        made = [result for result in results if isinstance(result, Revision)]
        refused = [result for result in results if isinstance(result, PublishingError)]
        assert (len(made), len(refused)) == (1, 3)
        assert {str(error) for error in refused} == {"It is published. Open another Change to go on from there."}
        assert {each.name: each.version for each in publishing.current_revision().rule_sets} == {"a": 1, "b": 1, "c": 1}
