"""Publishing: what becomes live, what stays, and what happens when two people publish at once."""

import threading
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection

from policies import compiler, publishing
from policies.models import Assignment, Revision, Rule, RuleSet, RuleSetVersion
from tests.builders import TEAM_FILTER, make_assignment, make_node, make_pod, make_rule_set
from tests.component.pages import draft_of, publish

pytestmark = pytest.mark.django_db
BATCH = {"filters": [{"builtin": "MatchNodeSelector"}]}


def _live() -> dict[str, int]:
    return {rule_set.name: rule_set.version for rule_set in publishing.current_revision().rule_sets}


def _states(name: str) -> list[str]:
    return list(RuleSetVersion.objects.filter(rule_set__name=name).order_by("number").values_list("state", flat=True))


def _assign(name: str = "all-web", rule_set: str = "web", **spec: object) -> Assignment:
    return publishing.save_assignment(assignment=make_assignment(name, rule_set, **spec), by="ops")[0]


def test_nothing_published_is_revision_0() -> None:
    assert publishing.current_revision().number == 0


def test_a_new_rule_set_has_an_empty_draft() -> None:
    version = publishing.create_rule_set(name="web", description="For the web", by="ops")
    assert (version.number, version.state, version.author) == (1, "draft", "ops")
    assert version.digest == compiler.digest_of(make_rule_set_of(version))


def make_rule_set_of(version: RuleSetVersion) -> object:
    from policies.engine.ruleset import RuleSet as Value

    return Value(name=version.rule_set.name, description=version.description, version=version.number)


def test_a_taken_name_is_refused() -> None:
    publishing.create_rule_set(name="web", description="", by="ops")
    with pytest.raises(publishing.PublishingError, match="exists already"):
        publishing.create_rule_set(name="web", description="", by="ops")


def test_publishing_makes_a_revision_that_holds_the_rule_set() -> None:
    made = publish(make_rule_set(filters=[TEAM_FILTER]))
    assert made.number == 1
    assert publishing.current_revision().rule_sets[0].spec.filters[0].name == "team"
    assert made.digest == publishing.current_revision().digest
    assert "rule set web version 1 published" in made.summary
    assert _states("web") == ["published"]


def test_publishing_again_supersedes_the_former_version() -> None:
    publish(make_rule_set())
    publish(make_rule_set(**BATCH))
    assert _states("web") == ["superseded", "published"]
    assert _live() == {"web": 2}


def test_a_draft_that_equals_what_is_live_makes_nothing() -> None:
    publish(make_rule_set())
    draft = publishing.new_draft(rule_set=RuleSet.objects.get(), by="ops")
    assert publishing.publish(version=draft, by="ops", reason="") is None
    assert Revision.objects.count() == 1
    assert _states("web") == ["published", "draft"]


def test_a_new_draft_is_a_copy_of_what_is_published() -> None:
    publish(make_rule_set(filters=[TEAM_FILTER]))
    draft = publishing.new_draft(rule_set=RuleSet.objects.get(), by="ops")
    assert [str(rule) for rule in draft.rules.all()] == ["team"]
    with pytest.raises(publishing.PublishingError, match="has a draft already"):
        publishing.new_draft(rule_set=RuleSet.objects.get(), by="ops")


def test_a_draft_without_a_rule_is_refused() -> None:
    version = publishing.create_rule_set(name="web", description="", by="ops")
    with pytest.raises(publishing.PublishingError, match="has no rule"):
        publishing.publish(version=version, by="ops", reason="")


def test_failed_tests_are_refused_with_their_faults() -> None:
    test = {"name": "wrong", "pod": make_pod(), "nodes": [make_node()], "expect": {"feasible": []}}
    with pytest.raises(publishing.PublishingError) as caught:
        publish(make_rule_set(filters=[{"builtin": "PodFitsResources"}], tests=[test]))
    assert "spec.tests[0]" in caught.value.faults[0].path
    assert _states("web") == ["draft"]


def test_rows_changed_behind_the_engine_are_refused() -> None:
    publish(make_rule_set())
    draft = publishing.new_draft(rule_set=RuleSet.objects.get(), by="ops")
    Rule.objects.filter(version=draft).update(builtin="NoSuchThing")
    with pytest.raises(publishing.PublishingError, match="no built-in is called NoSuchThing"):
        publishing.publish(version=draft, by="ops", reason="")


def test_publishing_a_rule_set_leaves_unpublished_assignments_behind() -> None:
    publish(make_rule_set())
    _assign()
    publish(make_rule_set(**BATCH))
    assert publishing.current_revision().assignments == []
    assert publishing.unpublished_assignments() == {"all-web": "new"}


def test_publishing_assignments_leaves_drafts_behind() -> None:
    publish(make_rule_set())
    publishing.new_draft(rule_set=RuleSet.objects.get(), by="ops")
    _assign()
    made = publishing.publish_assignments(by="ops", reason="")
    assert made is not None
    assert [each.name for each in publishing.current_revision().assignments] == ["all-web"]
    assert _live() == {"web": 1}
    assert publishing.unpublished_assignments() == {}
    assert publishing.publish_assignments(by="ops", reason="") is None


def test_an_assignment_of_an_unpublished_rule_set_is_refused() -> None:
    publishing.create_rule_set(name="web", description="", by="ops")
    _assign()
    with pytest.raises(publishing.PublishingError, match="no published version"):
        publishing.publish_assignments(by="ops", reason="")


def test_an_assignment_of_no_rule_set_is_refused() -> None:
    with pytest.raises(publishing.PublishingError, match="no rule set is called web"):
        _assign()


def test_saving_an_unchanged_assignment_says_so() -> None:
    publishing.create_rule_set(name="web", description="", by="ops")
    _assign()
    _row, changed = publishing.save_assignment(assignment=make_assignment(), by="ops")
    assert not changed


def test_rolling_back_restores_content_and_states() -> None:
    publish(make_rule_set())
    publish(make_rule_set("batch"))
    publish(make_rule_set(**BATCH))
    made = publishing.roll_back(to_number=1, by="ops", reason="broke the shop")
    assert made is not None
    assert (made.number, made.reason) == (4, "broke the shop")
    assert _live() == {"web": 1}
    assert _states("web") == ["published", "superseded"]
    assert _states("batch") == ["superseded"]


def test_rolling_back_to_what_is_live_makes_nothing() -> None:
    publish(make_rule_set())
    assert publishing.roll_back(to_number=1, by="ops", reason="") is None
    with pytest.raises(publishing.PublishingError, match="no Revision 9"):
        publishing.roll_back(to_number=9, by="ops", reason="")


def test_assignment_rows_follow_a_roll_back() -> None:
    publish(make_rule_set())
    _assign("first")
    publishing.publish_assignments(by="ops", reason="")
    _assign("first", order=7)
    _assign("second")
    publishing.publish_assignments(by="ops", reason="")
    publishing.roll_back(to_number=2, by="ops", reason="")
    assert list(Assignment.objects.values_list("name", "order")) == [("first", 100)]
    assert publishing.unpublished_assignments() == {}


def test_unpublished_edits_of_assignments_survive_a_roll_back() -> None:
    publish(make_rule_set())
    _assign("first")
    publishing.publish_assignments(by="ops", reason="")
    _assign("first", order=5)
    publishing.roll_back(to_number=1, by="ops", reason="")
    assert Assignment.objects.get().order == 5
    assert publishing.unpublished_assignments() == {"first": "new"}


def test_withdrawing_takes_a_rule_set_out() -> None:
    publish(make_rule_set())
    made = publishing.withdraw(rule_set=RuleSet.objects.get(), by="ops", reason="")
    assert made is not None
    assert made.summary == "rule set web withdrawn"
    assert _states("web") == ["superseded"]
    assert publishing.withdraw(rule_set=RuleSet.objects.get(), by="ops", reason="") is None


def test_a_rule_set_in_use_is_not_withdrawn() -> None:
    publish(make_rule_set())
    _assign()
    with pytest.raises(publishing.PublishingError, match="in use: give all-web"):
        publishing.withdraw(rule_set=RuleSet.objects.get(), by="ops", reason="")
    publishing.publish_assignments(by="ops", reason="")
    Assignment.objects.all().delete()
    with pytest.raises(publishing.PublishingError, match="in use"):
        publishing.withdraw(rule_set=RuleSet.objects.get(), by="ops", reason="")


def test_a_published_version_cannot_be_saved_or_published_again() -> None:
    publish(make_rule_set())
    version = RuleSetVersion.objects.get()
    with pytest.raises(publishing.PublishingError, match="was published by ops"):
        publishing.save_draft(version=version, rule_set=make_rule_set(**BATCH), by="late")
    version.rule_set.refresh_from_db()
    with pytest.raises(publishing.PublishingError, match="Someone else was first"):
        publishing.publish(version=version, by="late", reason="")
    assert _states("web") == ["published"]


def test_a_save_over_a_later_save_is_refused() -> None:
    draft = publishing.create_rule_set(name="web", description="", by="ops")
    publishing.save_draft(version=draft, rule_set=make_rule_set(), by="alice")
    with pytest.raises(publishing.PublishingError, match="alice saved"):
        publishing.save_draft(version=draft, rule_set=make_rule_set(**BATCH), by="bob", expected_digest=draft.digest)
    assert [str(rule) for rule in draft_of("web").rules.all()] == ["PodFitsResources"]


def test_a_revision_names_its_maker_after_the_account_is_gone() -> None:
    user = User.objects.create(username="alice")
    draft = publishing.create_rule_set(name="web", description="", by=user)
    draft = publishing.save_draft(version=draft, rule_set=make_rule_set(), by=user)
    publishing.publish(version=draft, by=user, reason="")
    user.delete()
    made = Revision.objects.get()
    assert (made.made_by, made.made_by_user) == ("alice", None)


def _at_once(count: int, act: Callable[[int], object]) -> list[object]:
    """Run `act(index)` in threads that begin together; give their results, refusals among them."""
    barrier, results = threading.Barrier(count), [None] * count

    def run(index: int) -> None:
        barrier.wait()
        try:
            results[index] = act(index)
        except publishing.PublishingError as error:
            results[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


@pytest.mark.django_db(transaction=True)
def test_publishing_different_rule_sets_at_once_loses_none_and_leaves_no_gap() -> None:
    drafts = []
    for index in range(8):
        draft = publishing.create_rule_set(name=f"set-{index}", description="", by="ops")
        drafts.append(publishing.save_draft(version=draft, rule_set=make_rule_set(f"set-{index}"), by="ops"))
    made = _at_once(8, lambda index: publishing.publish(version=drafts[index], by=f"ops-{index}", reason=""))
    assert sorted(each.number for each in made if isinstance(each, Revision)) == list(range(1, 9))
    assert sorted(_live()) == [f"set-{index}" for index in range(8)]
    rows = list(Revision.objects.order_by("number"))
    assert [row.number for row in rows] == list(range(1, 9))
    sizes = [len(publishing.load_revision(row.number).rule_sets) for row in rows]
    assert sizes == list(range(1, 9))


@pytest.mark.django_db(transaction=True)
def test_one_draft_published_by_many_at_once_is_published_once() -> None:
    draft = publishing.create_rule_set(name="web", description="", by="ops")
    draft = publishing.save_draft(version=draft, rule_set=make_rule_set(), by="ops")
    made = _at_once(6, lambda index: publishing.publish(version=draft, by=f"ops-{index}", reason=""))
    refused = [each for each in made if isinstance(each, publishing.PublishingError)]
    assert Revision.objects.count() == 1
    assert len(refused) == 5
    assert all("Someone else was first" in str(each) for each in refused)


@pytest.mark.django_db(transaction=True)
def test_saving_and_publishing_at_once_never_publishes_a_mix() -> None:
    for round_number in range(6):
        name = f"set-{round_number}"
        draft = publishing.create_rule_set(name=name, description="", by="ops")
        draft = publishing.save_draft(version=draft, rule_set=make_rule_set(name), by="ops")

        def act(index: int, draft: RuleSetVersion = draft, name: str = name) -> object:
            if index:
                return publishing.save_draft(version=draft, rule_set=make_rule_set(name, **BATCH), by="bob")
            return publishing.publish(version=draft, by="ops", reason="")

        _at_once(2, act)
        draft.refresh_from_db()
        live = {each.name: each for each in publishing.current_revision().rule_sets}
        if draft.state == "published":
            assert draft.digest == compiler.digest_of(live[name])
            assert [str(rule) for rule in draft.rules.all()] == [rule.key for rule in live[name].spec.filters]
        else:
            assert name not in live
            assert [str(rule) for rule in draft.rules.all()] == ["MatchNodeSelector"]
