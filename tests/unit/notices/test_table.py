"""Which act makes which Notice, and whom it concerns."""

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from policies.models import AuditEvent
from scheduler.notices import table
from scheduler.notices.table import Kind

AT = datetime(2026, 1, 2, tzinfo=UTC)
PAUSE = {"things": [{"kind": "Pause", "name": "web", "before": "", "after": "d"}]}
RESUME = {"things": [{"kind": "Pause", "name": "web", "before": "d", "after": ""}]}

# The act, what its body says besides, whether its Change rolls back; the kind, and who is told.
ROWS: list[tuple[str, dict[str, Any], bool, Kind | None, dict[str, Any]]] = [
    ("change.submit", {}, False, Kind.REVIEW_ASKED, {"permission": "policies.approve"}),
    ("change.overtake", {}, False, Kind.REVIEW_ASKED, {"permission": "policies.approve", "authors": True}),
    ("change.ask", {"whom": "carol"}, False, Kind.REVIEW_ASKED, {"names": ("carol",)}),
    ("change.approve", {}, False, Kind.APPROVED, {"authors": True}),
    ("change.reject", {}, False, Kind.REJECTED, {"authors": True}),
    ("change.hold", {}, False, Kind.HELD_BACK, {"permission": "policies.publish", "authors": True}),
    ("change.publish", {}, False, Kind.PUBLISHED, {"authors": True}),
    ("change.urgent", {}, False, Kind.PUBLISHED, {"authors": True}),
    ("change.publish", {}, True, Kind.ROLLED_BACK, {"authors": True, "permission": "policies.publish"}),
    ("change.publish", PAUSE, False, Kind.PAUSED, {"authors": True, "permission": "policies.publish"}),
    ("change.publish", RESUME, False, Kind.PUBLISHED, {"authors": True}),
    ("change.open", {}, False, None, {}),
    ("change.edit", {}, False, None, {}),
    ("change.describe", {}, False, None, {}),
    ("change.comment", {}, False, None, {}),
    ("pause", {}, False, None, {}),
    ("login", {}, False, None, {}),
    ("webhook.test", {}, False, None, {}),
]


def event(kind: str) -> AuditEvent:
    return AuditEvent(
        id=uuid.uuid4(), at=AT, kind=kind, by="ann", change=7, thing_kind="Change", thing_name="7", reason="why"
    )


@pytest.mark.parametrize(("act", "more", "rolls_back", "kind", "to"), ROWS)
def test_an_act_makes_its_notice(act: str, more: dict[str, Any], rolls_back: bool, kind: Kind | None, to: Any) -> None:
    made = table.of_act(event(act), {"title": "Cap web", **more}, rolls_back=rolls_back)
    assert (made.kind if made else None) == kind
    assert (act in table.ACTS) == (kind is not None), "what has no Notice isn't read"
    if made:
        assert made.to == table.Audience(**to)
        assert made.sentence.startswith("ann ")
        assert "Change 7 (Cap web)" in made.sentence
        assert (made.by, made.text, made.thing, made.change) == ("ann", "why", ("Change", "7"), 7)


@pytest.mark.parametrize("things", [None, 3, "web", ["Pause/web"], [None, *PAUSE["things"]], {"kind": "Pause"}])
def test_things_of_a_form_that_a_newer_berth_wrote_are_passed_over(things: Any) -> None:
    """Otherwise this act would stop all later Notices."""
    made = table.of_act(event("change.publish"), {"things": things}, rolls_back=False)
    assert made is not None
    assert made.kind == (Kind.PAUSED if isinstance(things, list) and things[0] is None else Kind.PUBLISHED)


def test_each_kind_has_its_words_and_is_made_by_something() -> None:
    assert set(table.WORDS) == set(Kind)
    conditions = [
        table.drift("batch", "drifted", "value", AT),
        table.decisions_lost("extender@a:1:2", 3, "gone", AT),
        table.shadow_diverges("all", "web", 2, 1, AT),
        table.change_expires(7, "Cap web", AT, AT),
        table.exemption_ends("cart", "team-shop", "rule set web", AT, AT),
    ]
    made = {row[3] for row in ROWS if row[3]} | {draft.kind for draft in conditions}
    assert made == set(Kind)
    assert all(draft.sentence and draft.link.startswith("/admin/") for draft in conditions)
    assert conditions[-1].link == "/admin/policies/pauses/?q=cart", "the Exemption may be on a later page of the list"
