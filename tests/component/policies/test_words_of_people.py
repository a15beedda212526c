"""What people say of their acts: nothing that others read in another order than it was written."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from policies import publishing
from policies.models import AuditEvent, Change
from scheduler.history.holds import HoldError, lift_hold, make_hold
from scheduler.webhooks.keeping import Wanted, WebhookError, make_webhook
from tests.builders import make_rule_set
from tests.component.pages import opened, publish_all, text_of

pytestmark = pytest.mark.django_db

DECEIVING = "Allow \u202enimda\u202c to pass"


def changed(before: Change, act: Any) -> None:
    was = Change.objects.values().get(pk=before.pk), before.events.count()
    with pytest.raises(publishing.PublishingError, match=r"U\+202E"):
        act()
    assert (Change.objects.values().get(pk=before.pk), before.events.count()) == was


def test_no_change_is_opened_under_a_title_or_for_a_reason_that_deceives() -> None:
    for said in ({"title": DECEIVING}, {"title": "a", "reason": DECEIVING}):
        with pytest.raises(publishing.PublishingError, match=r"U\+202E"):
            publishing.begin_change(by="sam", **said)
    assert not Change.objects.exists()


@pytest.mark.parametrize("what", ["title", "reason"])
def test_no_change_gets_one_afterwards(what: str) -> None:
    made = opened(make_rule_set(), title="a")
    changed(made, lambda: publishing.describe_change(change=made, by="sam", expected_digest="", **{what: DECEIVING}))


def test_no_comment_and_no_reason_of_an_act_deceives() -> None:
    made = opened(make_rule_set(), title="a")
    changed(made, lambda: publishing.comment_on_change(change=made, by="sam", text=DECEIVING))
    changed(
        made, lambda: publishing.publish_change(change=made, by="sam", expected_digest=made.digest, reason=DECEIVING)
    )


@pytest.mark.parametrize("unseen", ["\x1b[2J", "\x9b2J", "\x07", "\u200b", "\u2028", "\ufeff", "\U000e0041"])
def test_no_words_hold_what_nobody_sees_or_terminals_obey(unseen: str) -> None:
    with pytest.raises(publishing.PublishingError, match=f"U\\+{ord(unseen[0]):04X}, which is invisible"):
        publishing.begin_change(by="sam", title=f"Allow {unseen}web")
    made = opened(make_rule_set(), title="a")
    with pytest.raises(publishing.PublishingError, match="is invisible"):
        publishing.comment_on_change(change=made, by="sam", text=f"web{unseen}")


def test_words_may_have_lines_and_letters_of_any_script() -> None:
    said = "Für Köln\r\n\tund Łódź: 東京, می\u200cخواهم, 👩\u200d🔧"
    assert publishing.begin_change(by="sam", title="a", reason=said).reason == said


def test_a_title_is_one_line_that_has_room() -> None:
    lines = "Teams \n Change 9 approved:\tnodes "
    made = publishing.begin_change(by="sam", title=lines)
    assert made.title == "Teams Change 9 approved: nodes"
    made = publishing.describe_change(change=made, by="sam", expected_digest="", title=f"b{lines}")
    assert made.title == "bTeams Change 9 approved: nodes"
    for title, says in (("x" * 201, "200 characters at most; this one has 201"), (" \n", "needs its title")):
        with pytest.raises(publishing.PublishingError, match=says):
            publishing.describe_change(change=made, by="sam", expected_digest="", title=title)
    with pytest.raises(publishing.PublishingError, match="needs its title"):
        publishing.begin_change(by="sam", title=" ")


def test_what_deceived_before_can_be_put_right() -> None:
    made = opened(make_rule_set(), title="a")
    Change.objects.filter(pk=made.pk).update(title=DECEIVING)
    assert publishing.describe_change(change=made, by="sam", expected_digest="", title="b").title == "b"


@pytest.mark.parametrize(
    "act",
    [
        lambda: publishing.set_review(approvals=1, by="sam", reason=DECEIVING),
        lambda: publishing.set_gate_level(rule_set="web", check="cost", level="off", by="sam", reason=DECEIVING),
        lambda: publishing.put_back(name="batch", by="sam", reason=DECEIVING),
        lambda: publishing.claim(keys=[], keeper=publishing.Keeper("shop"), by="sam", reason=DECEIVING),
    ],
)
def test_no_setting_no_mark_and_no_class_put_back_has_a_reason_that_deceives(act: Any) -> None:
    with pytest.raises(publishing.PublishingError, match=r"U\+202E"):
        act()
    assert not AuditEvent.objects.exists()


@pytest.mark.parametrize("page", ["reviewsetting", "gatesetting"])
def test_a_page_of_settings_says_so_beside_the_field(admin_client: Client, page: str) -> None:
    publish_all(make_rule_set("web"))
    typed = {"rule_set": "web", "approvals": "1", "check_name": "cost", "level": "warning", "reason": DECEIVING}
    answer = admin_client.post(f"/admin/policies/{page}/add/", typed, secure=True)
    assert "The text holds U+202E" in text_of(answer)
    assert not AuditEvent.objects.filter(kind__endswith=".set").exists()


def test_no_legal_hold_is_made_or_lifted_with_words_that_deceive() -> None:
    with pytest.raises(HoldError, match=r"U\+202E"):
        make_hold(by="sam", now=timezone.now(), reason=DECEIVING, pod_namespace="shop")
    made = make_hold(by="sam", now=timezone.now(), reason="a", pod_namespace="shop")
    with pytest.raises(HoldError, match=r"U\+202E"):
        lift_hold(number=made.pk, by="sam", now=timezone.now(), reason=DECEIVING)


@pytest.mark.parametrize("name", [DECEIVING, "chat\u200b", "a\nb"])
def test_no_webhook_has_a_name_with_what_nobody_sees(name: str) -> None:
    by = User.objects.create_user("root", is_superuser=True)
    wanted = Wanted(name=name, url="https://example.org/hook", kinds=[])
    with pytest.raises(WebhookError, match="unseen"):
        make_webhook(wanted, by=by, now=timezone.now())
