"""Whoever confirms what somebody else has changed meanwhile is told, sees it anew, and has typed nothing in vain: on every page that asks."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from policies import publishing
from policies.models import Assignment, AuditEvent, Change, ClusterPriorityClass, PriorityClass, RuleSet
from tests.builders import make_assignment, make_priority_class, make_rule_set
from tests.component.controlplane.test_admin_writes import key_of, pattern
from tests.component.pages import change_url, get, opened, publish, publish_all, text_of
from tests.conftest import HTTPSClient
from tests.security.crawl import places
from tests.security.rows import make_rows

pytestmark = pytest.mark.django_db

# What nobody has looked at: another digest than any.
STALE = "0" * 64
REASON = "typed with care"
# Pages that ask before they act, by what else their forms need.
PAUSES: dict[str, dict[str, str]] = {
    "/admin/policies/pauses/end-exemption/": {},
    "/admin/policies/pauses/exempt/": {
        "name": "night", "owner": "ops", "target": "RuleSet/web", "pods": "shop/cart-0", "until": "2999-01-01T00:00",
    },
    "/admin/policies/pauses/pause/": {},
    "/admin/policies/pauses/resume/": {},
}  # fmt: skip
CONFIRMATIONS = {
    "/admin/policies/assignment/*/delete/",
    "/admin/policies/assignment/versions/*/*/go-back/",
    "/admin/policies/priorityclass/*/delete/",
    "/admin/policies/priorityclass/*/put-back/",
    "/admin/policies/revision/*/roll_back/",
    "/admin/policies/ruleset/*/archive/",
    "/admin/policies/rulesetversion/*/go-back/",
    "/admin/scheduler/priority-classes/*/go-back/*/",
    "/admin/scheduler/priority-classes/*/put-back/",
    "/admin/scheduler/priority-classes/adopt/",
}


@pytest.fixture
def root(db: None) -> Client:
    client = HTTPSClient()
    client.force_login(User.objects.create(username="root", is_superuser=True, is_staff=True))
    return client


@pytest.fixture
def rows() -> None:
    """Two versions of each kind, what is in use and what isn't, and a class that others have changed in the cluster."""
    publish(make_rule_set())
    publish_all(make_assignment(), make_priority_class())
    publish_all(make_rule_set("spare"), make_assignment(order=7), make_priority_class(description="second"))
    publish(make_rule_set("spare", filters=[{"builtin": "PodFitsHost"}]))
    publishing.pause(target="everything", by="ops", reason="tested")
    now = timezone.now()
    for name, state in ((PriorityClass.objects.get().name, "drifted"), ("of-others", "foreign")):
        ClusterPriorityClass.objects.update_or_create(
            name=name,
            defaults={
                "state": state,
                "message": f"{name} is another",
                "present": True,
                "value": 5,
                "managed": False,
                "looked_at": now,
                "changed_at": now,
            },
        )


def asking() -> dict[str, str]:
    """Return the pages that ask before they act, each at a row that it can be asked about."""
    assignment, priority_class = Assignment.objects.get(), PriorityClass.objects.get()
    rule_set = RuleSet.objects.get(name="spare")
    first = rule_set.versions.get(number=1)
    return {
        "/admin/policies/assignment/*/delete/": f"/admin/policies/assignment/{assignment.pk}/delete/",
        "/admin/policies/assignment/versions/*/*/go-back/": f"/admin/policies/assignment/versions/{assignment.name}/1/go-back/",
        "/admin/policies/priorityclass/*/delete/": f"/admin/policies/priorityclass/{priority_class.pk}/delete/",
        "/admin/policies/priorityclass/*/put-back/": f"/admin/policies/priorityclass/{priority_class.pk}/put-back/",
        "/admin/policies/revision/*/roll_back/": "/admin/policies/revision/1/roll_back/",
        "/admin/policies/ruleset/*/archive/": f"/admin/policies/ruleset/{rule_set.pk}/archive/",
        "/admin/policies/rulesetversion/*/go-back/": f"/admin/policies/rulesetversion/{first.pk}/go-back/",
        "/admin/scheduler/priority-classes/*/go-back/*/": f"/admin/scheduler/priority-classes/{priority_class.name}/go-back/1/",
        "/admin/scheduler/priority-classes/*/put-back/": f"/admin/scheduler/priority-classes/{priority_class.name}/put-back/",
        "/admin/scheduler/priority-classes/adopt/": "/admin/scheduler/priority-classes/adopt/?name=of-others",
    }


@pytest.mark.usefixtures("rows")
def test_every_page_that_asks_carries_the_digest_of_what_it_shows_and_is_refused_with_another(root: Client) -> None:
    pages = asking()
    assert pages.keys() == CONFIRMATIONS
    for page in pages.values():
        shown = get(root, page)
        assert list(shown.context["faults"]) == [], page
        digest = shown.context["form"]["digest"].value()
        assert digest, page
        before = AuditEvent.objects.count()
        refused = root.post(page, {"reason": REASON, "digest": STALE})
        assert refused.status_code == 200, page
        assert refused.context["faults"], page
        assert refused.context["form"]["digest"].value() == digest, page
        assert REASON in refused.content.decode(), page
        assert AuditEvent.objects.count() == before, page
        assert root.post(page, {"reason": REASON}).context["faults"], page


@pytest.mark.usefixtures("rows")
def test_so_does_every_page_that_pauses(root: Client) -> None:
    for page, more in PAUSES.items():
        query = "?target=everything" if "exempt" not in page else "?name=none"
        digest = get(root, page + query).context["form"]["digest"].value()
        refused = root.post(page + query, {"reason": REASON, "digest": STALE, **more})
        assert "Somebody was faster" in text_of(refused), page
        assert refused.context["form"]["digest"].value() == digest, page
        assert REASON in refused.content.decode(), page
        assert all(value in refused.content.decode() for value in more.values()), page


@pytest.mark.usefixtures("rows")
def test_no_page_that_asks_is_missing_here(root: Client) -> None:
    make_rows()
    found = set()
    for place in places():
        response = root.get(place.path(key_of(place)))
        names = {template.name for template in getattr(response, "templates", ())}
        if names & {"policies/confirm.html", "policies/pause.html"}:
            found.add(pattern(place))
    assert found - CONFIRMATIONS - PAUSES.keys() == set(), "add it above, with a row to ask about"


@pytest.mark.parametrize("act", ["publish", "submit", "withdraw", "approve", "discard RuleSet/new"])
def test_a_button_of_a_change_is_refused_when_somebody_else_edited_it(operator: Client, act: str) -> None:
    change = opened(make_rule_set("new"), by="alice")
    page = change_url("change", change.pk)
    form = get(operator, page).context["form"]
    typed = {name: form[name].value() for name in ("digest", "revision")} | {"act": act, "text": REASON}
    publishing.edit_change(
        change=change, edits=[publishing.Edit.of(make_rule_set("more"))], by="bob", expected_digest=change.digest
    )
    refused = operator.post(f"/admin/policies/change/{change.pk}/act/", typed)
    change.refresh_from_db()
    assert change.state == "draft"
    assert change.edits.count() == 2
    assert "bob edited it" in text_of(refused) or "may not" in text_of(refused)
    assert REASON in refused.content.decode()
    assert refused.context["form"]["digest"].value() == change.digest


def test_a_removal_is_refused_when_somebody_published_it_otherwise(operator: Client) -> None:
    publish(make_rule_set())
    publish_all(make_assignment(order=1))
    page = f"/admin/policies/assignment/{Assignment.objects.get().pk}/delete/"
    digest = get(operator, page).context["form"]["digest"].value()
    publish_all(make_assignment(order=2), by="bob")
    refused = operator.post(page, {"reason": REASON, "digest": digest})
    assert "Somebody was faster: Revision" in text_of(refused)
    assert not Change.objects.filter(state="draft").exists()
    fresh = refused.context["form"]["digest"].value()
    assert operator.post(page, {"reason": REASON, "digest": fresh}).status_code == 302
    assert Change.objects.get(state="draft").reason == REASON


def test_a_removal_in_a_change_that_is_there_leaves_its_reason_as_a_comment(operator: Client) -> None:
    publish(make_rule_set())
    publish_all(make_assignment())
    change = opened(make_rule_set("new"))
    page = f"/admin/policies/assignment/{Assignment.objects.get().pk}/delete/?change={change.pk}"
    digest = get(operator, page).context["form"]["digest"].value()
    operator.post(page, {"reason": REASON, "digest": digest})
    assert {edit.name for edit in change.edits.all()} == {"new", "all-web"}
    assert change.events.filter(act="comment", text=REASON).exists()


def test_a_removal_in_a_change_that_was_withdrawn_meanwhile_says_so_before_it_opens_another(operator: Client) -> None:
    publish(make_rule_set())
    publish_all(make_assignment())
    change = opened(make_rule_set("new"))
    page = f"/admin/policies/assignment/{Assignment.objects.get().pk}/delete/?change={change.pk}"
    digest = get(operator, page).context["form"]["digest"].value()
    publishing.withdraw_change(change=change, by="bob")
    refused = operator.post(page, {"reason": REASON, "digest": digest})
    assert "The Change that you looked at can no longer be edited" in text_of(refused)
    assert REASON in refused.content.decode()
    assert not Change.objects.filter(state="draft").exists()
    fresh = refused.context["form"]["digest"].value()
    assert operator.post(page, {"reason": REASON, "digest": fresh}).status_code == 302
    assert Change.objects.get(state="draft").reason == REASON


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("move", ["the cluster", "what is live"])
def test_putting_back_is_refused_when_either_side_moved(root: Client, move: str) -> None:
    row = PriorityClass.objects.get()
    page = f"/admin/scheduler/priority-classes/{row.name}/put-back/"
    digest = get(root, page).context["form"]["digest"].value()
    moves: dict[str, Callable[[], Any]] = {
        "the cluster": lambda: ClusterPriorityClass.objects.filter(pk=row.name).update(description="again another"),
        "what is live": lambda: publish_all(make_priority_class(row.name, description="third")),
    }
    moves[move]()
    assert "Somebody was faster" in text_of(root.post(page, {"reason": REASON, "digest": digest}))
    assert not ClusterPriorityClass.objects.get(pk=row.name).overwrite
