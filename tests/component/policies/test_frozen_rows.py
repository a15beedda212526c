"""What the database itself refuses, whoever asks: changed Revisions, gaps, changed content after draft."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.db import IntegrityError, connection, transaction

from policies.models import Part, Revision, RevisionPart, Rule, RuleSet, RuleSetVersion
from tests.builders import TEAM_FILTER, make_rule_set
from tests.component.pages import publish

pytestmark = pytest.mark.django_db


@pytest.fixture
def version() -> RuleSetVersion:
    publish(make_rule_set(filters=[TEAM_FILTER]))
    return RuleSetVersion.objects.get()


def _sql(statement: str) -> Callable[[RuleSetVersion], object]:
    def run(_version: RuleSetVersion) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    return run


def _revision(number: int) -> Revision:
    return Revision(number=number, digest="", made_by="x", summary="", created_at=datetime.now(UTC))


def _hold(since: int, **fields: object) -> Callable[[RuleSetVersion], object]:
    def run(_version: RuleSetVersion) -> None:
        RevisionPart.objects.create(kind="RuleSet", name="more", part=Part.objects.get(), since_id=since, **fields)

    return run


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(_sql("UPDATE policies_revision SET digest = 'x'"), id="a Revision's digest"),
        pytest.param(lambda _: Revision.objects.update(chained=False), id="what a Revision's digest is over"),
        pytest.param(_sql("UPDATE policies_part SET document = '{}'"), id="a part's document"),
        pytest.param(_sql("UPDATE policies_part SET digest = 'x'"), id="a part's digest"),
        pytest.param(_sql("DELETE FROM policies_part"), id="a part is deleted"),
        pytest.param(_sql("DELETE FROM policies_revisionpart"), id="a Revision holds no part any more"),
        pytest.param(_sql("UPDATE policies_revisionpart SET name = 'x'"), id="a part gets another name"),
        pytest.param(
            _sql("UPDATE policies_revisionpart SET until_id = 1"), id="a part ends in a Revision that is there"
        ),
        pytest.param(_hold(1), id="a part is added to a Revision that is there"),
        pytest.param(_hold(3), id="a part is added to a Revision after the next"),
        pytest.param(_hold(2, until_id=2), id="a part begins and ends at once"),
        pytest.param(_sql("UPDATE policies_revision SET made_by = 'mallory'"), id="a Revision's maker"),
        pytest.param(_sql("DELETE FROM policies_revision"), id="a Revision is deleted"),
        pytest.param(lambda _: _revision(3).save(force_insert=True), id="a number is left out"),
        pytest.param(lambda _: _revision(1).save(force_insert=True), id="a number comes twice"),
        pytest.param(_sql("UPDATE policies_auditevent SET reason = 'x'"), id="why something was done"),
        pytest.param(_sql("UPDATE policies_auditevent SET body = NULL"), id="what was done"),
        pytest.param(_sql("DELETE FROM policies_auditevent"), id="that something was done is deleted"),
        pytest.param(_sql("UPDATE policies_rule SET expression = 'true'"), id="a rule of a published version"),
        pytest.param(_sql("DELETE FROM policies_rule"), id="a rule is deleted"),
        pytest.param(lambda v: Rule.objects.create(version=v, builtin="X"), id="a rule is added"),
        pytest.param(_sql("UPDATE policies_rulesetversion SET params = '{\"a\": 1}'"), id="a version's params"),
        pytest.param(_sql('UPDATE policies_rulesetversion SET failures = \'{"redis": "pass"}\''), id="its failures"),
        pytest.param(_sql("UPDATE policies_rulesetversion SET digest = 'x'"), id="a version's digest"),
        pytest.param(_sql("UPDATE policies_rulesetversion SET published_by = 'x'"), id="who published"),
        pytest.param(_sql("UPDATE policies_rulesetversion SET state = 'draft'"), id="back to draft"),
        pytest.param(lambda v: v.delete(), id="a published version is deleted"),
        pytest.param(lambda v: v.rule_set.delete(), id="a rule set with history is deleted"),
        pytest.param(
            lambda v: RuleSetVersion.objects.create(rule_set=v.rule_set, number=2, author="x", state="published"),
            id="two published versions",
        ),
        pytest.param(
            lambda v: RuleSetVersion.objects.create(rule_set=v.rule_set, number=1, author="x"), id="one number twice"
        ),
        pytest.param(lambda v: RuleSetVersion.objects.update(state="live"), id="an unknown state"),
    ],
)
def test_the_database_refuses_what_would_change_history(
    version: RuleSetVersion, act: Callable[[RuleSetVersion], object]
) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        act(version)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "act", [_hold(2), _sql("UPDATE policies_revisionpart SET until_id = 2")], ids=["a part begins", "a part ends"]
)
def test_what_a_revision_holds_is_not_written_without_the_revision(
    version: RuleSetVersion, act: Callable[[RuleSetVersion], object]
) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        act(version)
    assert [(each.since_id, each.until_id) for each in RevisionPart.objects.all()] == [(1, None)]


def draft_of(version: RuleSetVersion) -> RuleSetVersion:
    """Make the draft that publishing makes for a moment, with its rule."""
    draft = RuleSetVersion.objects.create(rule_set=version.rule_set, number=2, author="x")
    Rule.objects.create(version=draft, builtin="PodFitsHost")
    return draft


def test_a_second_draft_is_refused(version: RuleSetVersion) -> None:
    draft_of(version)
    with pytest.raises(IntegrityError), transaction.atomic():
        RuleSetVersion.objects.create(rule_set=version.rule_set, number=3, author="x")


def test_a_rule_cannot_move_into_a_published_version(version: RuleSetVersion) -> None:
    draft = draft_of(version)
    with pytest.raises(IntegrityError), transaction.atomic():
        Rule.objects.filter(version=draft).update(version=version)


def test_an_unknown_kind_of_rule_is_refused(version: RuleSetVersion) -> None:
    draft = draft_of(version)
    with pytest.raises(IntegrityError, match="known_rule_kind"), transaction.atomic():
        Rule.objects.create(version=draft, kind="other", builtin="X")


def test_a_draft_and_its_rule_set_can_be_deleted() -> None:
    rule_set = RuleSet.objects.create(name="web")
    draft = RuleSetVersion.objects.create(rule_set=rule_set, number=1, author="x")
    Rule.objects.create(version=draft, builtin="PodFitsHost")
    rule_set.delete()
    assert not RuleSet.objects.exists()


def test_a_published_version_may_be_superseded(version: RuleSetVersion) -> None:
    assert RuleSetVersion.objects.update(state="superseded") == 1
