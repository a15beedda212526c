"""Publishing: what becomes live, what stays, and what follows it."""

from collections import OrderedDict
from collections.abc import Iterable

import pytest
from django.contrib.auth.models import Group, User

from policies import checking, publishing
from policies.engine.documents import document_of
from policies.engine.ruleset import RuleSet
from policies.models import Assignment, PriorityClass, Revision, RuleSetVersion
from policies.publishing import rule_sets
from tests.builders import TEAM_FILTER, make_assignment, make_node, make_pod, make_priority_class, make_rule_set
from tests.component.pages import opened, publish, publish_all

pytestmark = pytest.mark.django_db
BATCH = {"filters": [{"builtin": "MatchNodeSelector"}]}


def _live() -> dict[str, int]:
    return {rule_set.name: rule_set.version for rule_set in publishing.current_revision().rule_sets}


def _states(name: str) -> list[str]:
    return list(RuleSetVersion.objects.filter(rule_set__name=name).order_by("number").values_list("state", flat=True))


def test_nothing_published_is_revision_0() -> None:
    assert publishing.current_revision().number == 0


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


def test_failed_tests_are_refused_with_their_faults() -> None:
    test = {"name": "wrong", "pod": make_pod(), "nodes": [make_node()], "expect": {"feasible": []}}
    with pytest.raises(publishing.PublishingError) as caught:
        publish(make_rule_set(filters=[{"builtin": "PodFitsResources"}], tests=[test]))
    assert "spec.tests[0]" in caught.value.faults[0].path
    assert _states("web") == []


def test_documents_are_checked_whatever_a_colleague_has_checked_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many results are kept as one process needs; a colleague's push out those that were kept longest."""
    monkeypatch.setattr(rule_sets, "_checked", OrderedDict())
    monkeypatch.setattr(rule_sets, "_MOST_CHECKED", 1)
    read_each = checking.read_each

    def beside_a_colleague(documents: Iterable[tuple[object, str]]) -> list[checking.Document | Exception]:
        publishing.remember_checked(make_rule_set("theirs"))
        return [*read_each(documents)]

    monkeypatch.setattr(checking, "read_each", beside_a_colleague)
    known, new = make_rule_set("known"), make_rule_set("new")
    publishing.remember_checked(known)
    found = publishing.checked_rule_sets([document_of(known), document_of(new)])
    assert [each.name for each in found if isinstance(each, RuleSet)] == ["known", "new"]


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


def test_rows_follow_a_roll_back() -> None:
    publish(make_rule_set())
    publish_all(make_assignment("first"), make_priority_class("high", 1))
    publish_all(make_assignment("first", order=7), make_assignment("second"), make_priority_class("high", 2))
    publishing.roll_back(to_number=2, by="bob", reason="")
    assert list(Assignment.objects.values_list("name", "order", "author")) == [("first", 100, "bob")]
    assert list(PriorityClass.objects.values_list("name", "value", "author")) == [("high", 1, "bob")]


def test_open_changes_survive_a_roll_back() -> None:
    publish_all(make_rule_set(), make_assignment("first"))
    change = opened(make_assignment("first", order=5))
    publish(make_rule_set("more"))
    publishing.roll_back(to_number=1, by="ops", reason="")
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    assert Assignment.objects.get().order == 5


def test_a_version_names_who_edited_it_and_why_it_was_published() -> None:
    change = opened(make_rule_set(), by="alice")
    publishing.publish_change(change=change, by="bob", expected_digest=change.digest, reason="ticket 7")
    version = RuleSetVersion.objects.get()
    assert (version.author, version.published_by, version.note) == ("alice", "bob", "ticket 7")


def test_a_revision_names_its_maker_after_the_account_is_gone() -> None:
    user = User.objects.create(username="alice")
    user.groups.add(Group.objects.get(name="Operator"))
    publish_all(make_rule_set(), by=user)
    user.delete()
    made = Revision.objects.get()
    assert (made.made_by, made.made_by_user) == ("alice", None)
