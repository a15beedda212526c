"""Pauses and Exemptions go live as parts of a Revision, by the same path as all else."""

import pytest

from policies import publishing
from policies.engine import ruleset as engine
from policies.engine.ruleset import encode
from policies.models import Change, Revision
from policies.publishing import Edit, PublishingError
from tests.builders import TEAM_FILTER, make_assignment, make_exemption, make_pause, make_rule_set
from tests.component.pages import publish_all

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def published(db: None) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]), make_assignment("all", "web"))


def live() -> engine.Revision:
    return publishing.current_revision()


def publish(*edits: Edit) -> Revision:
    change = publishing.open_change(title="tested", edits=edits, by="ops", reason="why")
    return publishing.publish_change(change=change, by="ops", expected_digest=change.digest)


class TestPart:
    def test_goes_live_changes_and_leaves_with_a_change(self) -> None:
        pause, exemption = make_pause(target="RuleSet/web/team"), make_exemption()
        made = publish(Edit.of(pause), Edit.of(exemption))
        assert (live().pauses, live().exemptions) == ([pause], [exemption])
        passes = "rule set web passes over Pod cart in default until 2026-02-01T00:00:00Z, for team cart"
        assert made.summary.splitlines() == [
            f"Exemption cart added: {passes}: until the cart is moved",
            "Pause web-paused added: rule team of rule set web is paused until it is resumed: nodes are being moved",
        ]
        longer = make_pause(target="RuleSet/web/team", until="2026-05-01T00:00:00Z")
        made = publish(Edit.of(longer), Edit("Exemption", "cart", None))
        assert (live().pauses, live().exemptions) == ([longer], [])
        assert "Exemption cart removed: rule set web is in force for all again" in made.summary

    def test_the_document_of_a_revision_is_put_together_as_it_is_encoded(self) -> None:
        made = publish(Edit.of(make_pause("all", "everything")), Edit.of(make_exemption()))
        whole = encode(live()).decode().replace(f'"digest":"{made.digest}",', "")
        assert publishing.document_text(made) == whole

    def test_comes_back_with_a_roll_back_and_stays_with_other_changes(self) -> None:
        made = publish(Edit.of(make_pause()))
        publish(Edit.of(make_assignment("more", "web", order=7)))
        assert [each.name for each in live().pauses] == ["web-paused"]
        publishing.roll_back(to_number=made.number - 1, by="ops", reason="back")
        assert live().pauses == []
        publishing.roll_back(to_number=made.number, by="ops", reason="and forth")
        assert [each.name for each in live().pauses] == ["web-paused"]

    @pytest.mark.parametrize(
        ("target", "says"),
        [
            ("RuleSet/gone", "no rule set gone is live"),
            ("Assignment/gone", "no Assignment gone is live"),
            ("RuleSet/web/gone", "rule set web has no rule gone; it has team"),
        ],
    )
    def test_of_something_that_is_not_there_is_refused(self, target: str, says: str) -> None:
        with pytest.raises(PublishingError, match=says):
            publish(Edit.of(make_pause(target=target)))
        assert live().pauses == []

    def test_of_something_that_comes_with_the_same_change_is_right(self) -> None:
        publish(Edit.of(make_rule_set("new")), Edit.of(make_pause(target="RuleSet/new/PodFitsResources")))
        assert len(live().pauses) == 1

    def test_that_somebody_else_changed_meanwhile_has_to_be_looked_at(self) -> None:
        publish(Edit.of(make_pause()))
        change = publishing.open_change(title="end", edits=[Edit("Pause", "web-paused", None)], by="ops")
        publish(Edit.of(make_pause(reason="longer than thought")))
        with pytest.raises(PublishingError, match="published another Pause web-paused"):
            publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        moved = publishing.moved_of(Change.objects.get(pk=change.pk))
        assert [(each.kind, each.name, each.mine) for each in moved] == [("Pause", "web-paused", None)]
