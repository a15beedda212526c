"""Forms edit Changes: which one an edit goes into, two people at one thing, what a save makes and what it leaves."""

from collections.abc import Callable
from contextvars import Context
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client

from policies import publishing
from policies.admin.editing import EditForm
from policies.models import Assignment, Change, PriorityClass, Revision, RuleSet, RuleSetVersion
from policies.publishing import PublishingError, current_revision
from tests.builders import make_assignment, make_priority_class, make_rule_set
from tests.component.pages import confirmed, edit_page, form_data, get, new_row, opened, publish_all, text_of
from tests.conftest import HTTPSClient

pytestmark = pytest.mark.django_db

A = {"filters": [{"builtin": "PodFitsHost"}]}
B = {"filters": [{"builtin": "MatchNodeSelector"}]}


@pytest.fixture
def live(db: None) -> None:
    publish_all(make_rule_set("web", **A), make_assignment("all", "web"), make_priority_class("high", value=10))


def another(name: str, *roles: str) -> Client:
    user = User.objects.create_user(name, is_staff=True)
    user.groups.set(Group.objects.filter(name__in=roles or ["Operator"]))
    client = HTTPSClient()
    client.force_login(user)
    return client


def once(act: Callable[[], object]) -> Callable[[], list[Change]]:
    """Return a function that acts when it is first called, as another request does; it finds no Change to choose."""
    left = [act]

    def do() -> list[Change]:
        if left:
            Context().run(left.pop())
        return []

    return do


def act_after_a_refusal(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let somebody act once, between the next refusal of a form and the page that shows it."""
    clean, do = EditForm.clean, once(act)

    def clean_late(form: EditForm) -> dict[str, Any]:
        if form.refusal:
            do()
        return clean(form)

    monkeypatch.setattr(EditForm, "clean", clean_late)


class Thing:
    """A thing that forms edit, as a test treats all kinds alike: its page, a field of it, and what it says elsewhere."""

    def __init__(self, kind: str, name: str, field: str, texts: tuple[str, str, str]) -> None:
        self.kind, self.name, self.field, self.texts = kind, name, field, texts

    def page(self, change: Change | None = None) -> str:
        query = f"?change={change.pk}" if change else ""
        if self.kind == "RuleSet":
            return edit_page(self.name, change)
        model: Any = {"Assignment": Assignment, "PriorityClass": PriorityClass}[self.kind]
        return f"/admin/policies/{self.kind.lower()}/{model.objects.get(name=self.name).pk}/change/{query}"

    def in_change(self, change: Change) -> Any:
        found = [edit.value for edit in publishing.edits_of(change) if edit.key == (self.kind, self.name)]
        return getattr(found[0], "description", None) if found else None


@pytest.fixture(params=["RuleSet", "Assignment", "PriorityClass"])
def thing(request: pytest.FixtureRequest, live: None) -> Thing:
    name = {"RuleSet": "web", "Assignment": "all", "PriorityClass": "high"}[request.param]
    return Thing(request.param, name, "description", ("one", "two", "three"))


class TestWhereAnEditGoes:
    def test_saving_opens_a_change_and_nothing_is_live_by_it(self, operator: Client, thing: Thing) -> None:
        data = form_data(get(operator, thing.page())) | {"description": "one", "new_title": "Licences for team B"}
        said = text_of(operator.post(thing.page(), data, follow=True))
        change = Change.objects.get(state="draft")
        assert f"{thing.name} is in {change}. It isn't live until that Change is published." in said
        assert (change.title, change.opened_by, thing.in_change(change)) == ("Licences for team B", "operator", "one")
        assert current_revision().number == 1

    def test_a_form_that_is_sent_twice_opens_one_change(self, operator: Client, thing: Thing) -> None:
        data = form_data(get(operator, thing.page())) | {"description": "one"}
        first, again = (operator.post(thing.page(), data) for _ in range(2))
        assert first["Location"] == again["Location"]
        assert Change.objects.filter(state="draft").count() == 1
        operator.post(thing.page(), data | {"new_title": "Licences for team B"})
        assert Change.objects.filter(state="draft").count() == 2

    def test_a_rule_an_assignment_and_a_class_go_into_one_change(self, operator: Client, live: None) -> None:
        things = [
            Thing(k, n, "", ("", "", ""))
            for k, n in (("RuleSet", "web"), ("Assignment", "all"), ("PriorityClass", "high"))
        ]
        for each in things:
            change = Change.objects.filter(state="draft").first()
            data = form_data(get(operator, each.page(change))) | {"description": "new"}
            assert data.get("goes_into", "") == (str(change.pk) if change else "")
            assert operator.post(each.page(change), data).status_code == 302
        change = Change.objects.get(state="draft")
        assert [each.in_change(change) for each in things] == ["new"] * 3
        publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        assert Revision.objects.count() == 2
        assert RuleSetVersion.objects.get(state="published").author == "operator"
        assert (Assignment.objects.get().author, PriorityClass.objects.get().author) == ("operator", "operator")

    def test_the_form_begins_with_what_its_change_makes_of_the_thing(self, operator: Client, thing: Thing) -> None:
        operator.post(thing.page(), form_data(get(operator, thing.page())) | {"description": "one"})
        change = Change.objects.get(state="draft")
        assert form_data(get(operator, thing.page(change)))["description"] == "one"
        assert form_data(get(operator, thing.page())).get("description", "") == ""
        operator.post(thing.page(change), form_data(get(operator, thing.page(change))) | {"description": "two"})
        assert thing.in_change(Change.objects.get(state="draft")) == "two"

    def test_an_untouched_form_saves_nothing(self, operator: Client, thing: Thing) -> None:
        said = text_of(operator.post(thing.page(), form_data(get(operator, thing.page())), follow=True))
        assert "there was nothing to save" in said
        assert not Change.objects.filter(state="draft").exists()

    def test_save_and_publish_is_one_go_where_no_review_is_required(self, operator: Client, thing: Thing) -> None:
        model = {"RuleSet": "rulesetversion", "Assignment": "assignment", "PriorityClass": "priorityclass"}[thing.kind]
        data = form_data(get(operator, thing.page())) | {
            "description": "one",
            f"policies_{model}_save_and_publish": "1",
        }
        assert "Revision 2 was made" in text_of(operator.post(thing.page(), data, follow=True))
        values = publishing.values_of(current_revision())
        assert values[thing.kind, thing.name].description == "one"

    def test_save_and_publish_never_takes_others_edits_along(self, operator: Client, thing: Thing) -> None:
        change = opened(make_rule_set("others"), by="alice")
        model = {"RuleSet": "rulesetversion", "Assignment": "assignment", "PriorityClass": "priorityclass"}[thing.kind]
        data = form_data(get(operator, thing.page(change)))
        data |= {"description": "one", f"policies_{model}_save_and_publish": "1"}
        said = text_of(operator.post(thing.page(change), data, follow=True))
        assert f"{thing.name} is in {change}" in said
        assert current_revision().number == 1

    def test_where_review_is_required_it_says_so_and_keeps_the_edit(
        self, operator: Client, thing: Thing, reviewed: None
    ) -> None:
        model = {"RuleSet": "rulesetversion", "Assignment": "assignment", "PriorityClass": "priorityclass"}[thing.kind]
        data = form_data(get(operator, thing.page())) | {
            "description": "one",
            f"policies_{model}_save_and_publish": "1",
        }
        said = text_of(operator.post(thing.page(), data, follow=True))
        assert "but not published: It needs 1 more approval" in said
        assert thing.in_change(Change.objects.get(state="draft")) == "one"
        assert current_revision().number == 1

    def test_a_closed_change_takes_nothing(self, operator: Client, thing: Thing) -> None:
        change = opened(make_rule_set("others"))
        data = form_data(get(operator, thing.page(change))) | {"description": "one"}
        publishing.withdraw_change(change=change, by="ops")
        response = operator.post(thing.page(change), data)
        assert "This Change can no longer be edited" in text_of(response)
        assert response.context["adminform"].form["description"].value() == "one"

    @pytest.mark.parametrize("number", ["x", "0", "9" * 40, "-1"])
    def test_a_change_that_is_none_is_a_new_one(self, operator: Client, thing: Thing, number: str) -> None:
        assert form_data(get(operator, f"{thing.page()}?change={number}"))["goes_into"] == ""

    def test_who_only_reads_gets_no_form(self, auditor: Client, thing: Thing) -> None:
        page = auditor.get(thing.page())
        assert page.status_code in {200, 403}
        assert b"loaded_digest" not in page.content


class TestNewThings:
    def test_a_new_rule_set_is_a_form_until_it_is_saved(self, operator: Client) -> None:
        response = operator.post("/admin/policies/ruleset/add/", {"name": "batch", "description": "Nights only"})
        page = response["Location"]
        assert not RuleSet.objects.exists()
        data = form_data(get(operator, page))
        assert data["description"] == "Nights only"
        new_row(data, "filters", builtin="PodFitsHost")
        operator.post(page, data)
        change = Change.objects.get()
        assert [each.name for each in publishing.edits_of(change)] == ["batch"]
        assert "batch" in text_of(get(operator, "/admin/policies/ruleset/"))

    def test_a_new_rule_set_and_its_assignment_go_live_together(self, operator: Client) -> None:
        change = opened(make_rule_set("batch", **A))
        page = f"/admin/policies/assignment/add/?change={change.pk}"
        data = form_data(get(operator, page)) | {"name": "nights", "rule_set": RuleSet.objects.get().pk, "order": "3"}
        operator.post(page, data)
        again = f"/admin/policies/assignment/add/?change={change.pk}&name=nights"
        data = form_data(get(operator, again))
        assert data["order"] == 3
        assert operator.post(again, data | {"order": "4"}).status_code == 302
        change.refresh_from_db()
        publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        assert [(each.name, each.order) for each in current_revision().assignments] == [("nights", 4)]
        assert Assignment.objects.get().order == 4

    def test_a_removal_goes_into_a_change_too(self, operator: Client, live: None) -> None:
        row = Assignment.objects.get()
        confirmed(operator, f"/admin/policies/assignment/{row.pk}/delete/", "nobody needs it")
        change = Change.objects.get(state="draft")
        assert publishing.edits_of(change) == [publishing.Edit("Assignment", "all", None)]
        assert Assignment.objects.exists()
        publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        assert not Assignment.objects.exists()

    def test_the_global_default_moves_within_one_change(self, operator: Client, live: None) -> None:
        publish_all(make_priority_class("old", value=1, globalDefault=True))
        page = f"/admin/policies/priorityclass/{PriorityClass.objects.get(name='high').pk}/change/"
        data = form_data(get(operator, page)) | {"global_default": "on"}
        assert "old is the global default" in text_of(operator.post(page, data))
        change = opened(make_priority_class("old", value=1))
        data = form_data(get(operator, f"{page}?change={change.pk}")) | {"global_default": "on"}
        assert operator.post(f"{page}?change={change.pk}", data).status_code == 302
        change.refresh_from_db()
        publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        assert PriorityClass.objects.get(global_default=True).name == "high"


class TestTwoPeople:
    def test_in_one_change_the_second_is_told_what_the_first_made(self, operator: Client, thing: Thing) -> None:
        change = opened(make_rule_set("others"))
        alice = another("alice")
        mine, hers = (form_data(get(each, thing.page(change))) for each in (operator, alice))
        alice.post(thing.page(change), hers | {"description": "hers"})
        response = operator.post(thing.page(change), mine | {"description": "mine"})
        said = text_of(response)
        assert "Somebody was faster: alice edited it in" in said
        assert "hers" in said
        assert response.context["adminform"].form["description"].value() == "mine"
        assert thing.in_change(change) == "hers"
        assert operator.post(thing.page(change), form_data(response)).status_code == 302
        assert thing.in_change(change) == "mine"

    def test_an_edit_saved_while_the_form_is_made_is_not_overwritten(
        self, operator: Client, thing: Thing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change, alice = opened(make_rule_set("others")), another("alice")
        hers = form_data(get(alice, thing.page(change))) | {"description": "hers"}
        with monkeypatch.context() as patched:
            patched.setattr(publishing, "changes_to_edit", once(lambda: alice.post(thing.page(change), hers)))
            mine = form_data(get(operator, thing.page(change))) | {"description": "mine"}
        assert thing.in_change(change) == "hers"
        assert "Somebody was faster: alice edited it in" in text_of(operator.post(thing.page(change), mine))
        assert thing.in_change(change) == "hers"

    def test_who_overwrites_one_edit_does_not_overwrite_another_that_came_meanwhile(
        self, operator: Client, thing: Thing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change, alice = opened(make_rule_set("others")), another("alice")
        mine, hers = (form_data(get(each, thing.page(change))) for each in (operator, alice))
        alice.post(thing.page(change), hers | {"description": "hers"})
        later = form_data(get(alice, thing.page(change))) | {"description": "later"}

        act_after_a_refusal(monkeypatch, lambda: alice.post(thing.page(change), later))
        refused = operator.post(thing.page(change), mine | {"description": "mine"})
        assert "hers" in text_of(refused)
        assert thing.in_change(change) == "later"
        assert "later" in text_of(operator.post(thing.page(change), form_data(refused)))
        assert thing.in_change(change) == "later"

    def test_a_save_refused_for_another_reason_has_seen_nothing_new(
        self, operator: Client, thing: Thing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def publish_hers() -> None:
            alice = another("alice")
            alice.post(thing.page(), form_data(get(alice, thing.page())) | {"description": "hers"})
            change = Change.objects.get(state="draft")
            publishing.publish_change(change=change, by="ops", expected_digest=change.digest)

        mine = form_data(get(operator, thing.page())) | {"description": "mine"}
        act_after_a_refusal(monkeypatch, publish_hers)
        refused = operator.post(thing.page(), mine | {"new_title": "reversed \u202e"})
        assert "U+202E" in text_of(refused)
        assert "overwrite" not in text_of(refused)
        again = operator.post(thing.page(), form_data(refused) | {"new_title": "mine"})
        assert "Somebody was faster: Revision 2 by ops made it live" in text_of(again)

    def test_in_two_changes_both_are_kept_and_who_publishes_second_rebases(
        self, operator: Client, thing: Thing
    ) -> None:
        alice = another("alice")
        mine, hers = (form_data(get(each, thing.page())) for each in (operator, alice))
        alice.post(thing.page(), hers | {"description": "hers"})
        operator.post(thing.page(), mine | {"description": "mine"})
        first, second = Change.objects.filter(state="draft").order_by("pk")
        publishing.publish_change(change=first, by="ops", expected_digest=first.digest)
        with pytest.raises(PublishingError, match="published another"):
            publishing.publish_change(change=second, by="ops", expected_digest=second.digest)
        assert thing.in_change(second) == "mine"

    def test_what_went_live_since_the_form_was_opened_is_not_undone(self, operator: Client, thing: Thing) -> None:
        mine = form_data(get(operator, thing.page()))
        alice = another("alice")
        alice.post(thing.page(), form_data(get(alice, thing.page())) | {"description": "hers"})
        change = Change.objects.get(state="draft")
        publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        response = operator.post(thing.page(), mine | {"description": "mine"})
        assert "Somebody was faster: Revision 2 by ops made it live" in text_of(response)
        assert not Change.objects.filter(state="draft").exists()

    def test_the_same_edit_by_both_is_no_conflict(self, operator: Client, thing: Thing) -> None:
        change = opened(make_rule_set("others"))
        alice = another("alice")
        mine, hers = (form_data(get(each, thing.page(change))) for each in (operator, alice))
        alice.post(thing.page(change), hers | {"description": "same"})
        assert operator.post(thing.page(change), mine | {"description": "same"}).status_code == 302

    def test_of_what_was_never_live_it_is_said_who_discarded_its_edit(self, operator: Client, thing: Thing) -> None:
        change = opened(make_rule_set("new", **A))
        page = "/admin/policies/rulesetversion/edit:new/change/"
        mine = form_data(get(operator, f"{page}?change={change.pk}")) | {"description": "mine"}
        publishing.discard_edits(change=change, keys=[("RuleSet", "new")], by="ops", expected_digest=change.digest)
        said = text_of(operator.post(f"{page}?change={change.pk}", mine))
        assert f"Somebody was faster: ops discarded the edit in {change}" in said

    def test_what_was_discarded_since_the_form_was_opened_is_not_put_back(self, operator: Client, thing: Thing) -> None:
        alice = another("alice")
        alice.post(thing.page(), form_data(get(alice, thing.page())) | {"description": "hers"})
        change = Change.objects.get(state="draft")
        mine = form_data(get(operator, thing.page(change))) | {"description": "mine"}
        publishing.discard_edits(
            change=change, keys=[(thing.kind, thing.name)], by="ops", expected_digest=change.digest
        )
        response = operator.post(thing.page(change), mine)
        assert f"Somebody was faster: ops discarded the edit in {change}, after you opened this." in text_of(response)
        assert thing.in_change(change) is None
        assert operator.post(thing.page(change), form_data(response)).status_code == 302
        assert thing.in_change(change) == "mine"

    def test_a_form_of_an_edit_goes_into_another_change_as_well(self, operator: Client, thing: Thing) -> None:
        operator.post(thing.page(), form_data(get(operator, thing.page())) | {"description": "one"})
        change, other = Change.objects.get(state="draft"), opened(make_rule_set("others"))
        mine = form_data(get(operator, thing.page(change))) | {"description": "two", "goes_into": str(other.pk)}
        assert operator.post(thing.page(change), mine).status_code == 302
        assert (thing.in_change(change), thing.in_change(other)) == ("one", "two")

    def test_an_edit_of_an_older_version_goes_into_no_other_change_unseen(self, operator: Client, thing: Thing) -> None:
        alice = another("alice")
        operator.post(thing.page(), form_data(get(operator, thing.page())) | {"description": "mine"})
        change = Change.objects.get(state="draft")
        alice.post(thing.page(), form_data(get(alice, thing.page())) | {"description": "hers"})
        hers = Change.objects.exclude(pk=change.pk).get(state="draft")
        publishing.publish_change(change=hers, by="ops", expected_digest=hers.digest)
        mine = form_data(get(operator, thing.page(change))) | {"goes_into": ""}
        response = operator.post(thing.page(change), mine)
        assert "Somebody was faster: Revision 2 by ops made it live" in text_of(response)
        assert operator.post(thing.page(change), form_data(response)).status_code == 302

    def test_a_refusal_shows_what_a_change_has_and_not_what_is_live(self, operator: Client, thing: Thing) -> None:
        alice = another("alice")
        mine = form_data(get(operator, thing.page()))
        alice.post(thing.page(), form_data(get(alice, thing.page())) | {"description": "hers"})
        change = Change.objects.get(state="draft")
        alice.post(thing.page(), form_data(get(alice, thing.page())) | {"description": "live", "goes_into": ""})
        live = Change.objects.exclude(pk=change.pk).get(state="draft")
        publishing.publish_change(change=live, by="ops", expected_digest=live.digest)
        refused = operator.post(thing.page(), mine | {"description": "mine", "goes_into": str(change.pk)})
        assert "alice edited it in" in text_of(refused)
        again = operator.post(thing.page(), form_data(refused) | {"goes_into": ""})
        assert "Somebody was faster: Revision 2 by ops made it live" in text_of(again)

    def test_a_form_without_the_digest_overwrites_nothing(self, operator: Client, thing: Thing) -> None:
        data = form_data(get(operator, thing.page())) | {"description": "one"}
        del data["loaded_digest"]
        assert operator.post(thing.page(), data).status_code == 200
        assert not Change.objects.filter(state="draft").exists()

    def test_every_saver_is_an_author_and_approves_nothing(self, thing: Thing, reviewed: None) -> None:
        alice, bob, carol = (another(name, "Operator", "Approver") for name in ("alice", "bob", "carol"))
        alice.post(thing.page(), form_data(get(alice, thing.page())) | {"description": "hers"})
        change = Change.objects.get(state="draft")
        bob.post(thing.page(change), form_data(get(bob, thing.page(change))) | {"description": "his"})
        carol.post(thing.page(change), form_data(get(carol, thing.page(change))) | {"description": "late"})
        change.refresh_from_db()
        assert publishing.standing_of(change).authors == {"alice", "bob", "carol"}
        publishing.submit_change(change=change, by="ops", expected_digest=change.digest)
        for name in ("alice", "bob", "carol"):
            with pytest.raises(PublishingError, match="nobody can approve what they edited"):
                publishing.approve_change(
                    change=change, by=User.objects.get(username=name), expected_digest=change.digest
                )


class TestDiscarding:
    def test_one_edit_is_discarded_and_the_others_stay(self, operator: Client) -> None:
        change = opened(make_rule_set("web", **A), make_rule_set("batch", **A))
        page = f"/admin/policies/change/{change.pk}/"
        form = get(operator, f"{page}change/").context["form"]
        data = {name: form[name].value() for name in ("digest", "revision")} | {"act": "discard RuleSet/web"}
        assert "The edit of web is discarded" in text_of(operator.post(f"{page}act/", data, follow=True))
        assert [each.name for each in publishing.edits_of(change)] == ["batch"]
        assert "changed since you looked at it" in text_of(operator.post(f"{page}act/", data))

    def test_a_draft_is_discarded(self, operator: Client) -> None:
        change = opened(make_rule_set("web", **A))
        page = get(operator, f"/admin/policies/change/{change.pk}/change/")
        assert "Discard draft" in text_of(page)
        form = page.context["form"]
        data = {name: form[name].value() for name in ("digest", "revision")} | {"act": "withdraw"}
        operator.post(f"/admin/policies/change/{change.pk}/act/", data)
        assert Change.objects.get().state == "withdrawn"
        assert "web" not in [row.name for row in get(operator, "/admin/policies/ruleset/").context["cl"].result_list]

    def test_who_only_reads_discards_nothing(self, auditor: Client) -> None:
        change = opened(make_rule_set("web", **A))
        page = get(auditor, f"/admin/policies/change/{change.pk}/change/")
        assert b"discard" not in page.content
        data = {"digest": change.digest, "revision": 0, "act": "discard RuleSet/web"}
        assert "may not edit" in text_of(auditor.post(f"/admin/policies/change/{change.pk}/act/", data))


class TestArchive:
    def test_an_archived_rule_set_leaves_the_lists_and_comes_back(self, operator: Client) -> None:
        publish_all(make_rule_set("web", **A))
        rule_set = RuleSet.objects.get()
        pages = f"/admin/policies/ruleset/{rule_set.pk}"
        assert "Revision 2 was made" in confirmed(operator, f"{pages}/archive/", "unused")
        assert current_revision().rule_sets == []

        def listed(which: str = "") -> list[str]:
            page = get(operator, f"/admin/policies/ruleset/{which}")
            return [row.name for row in page.context["cl"].result_list]

        assert (listed(), listed("?which=archived"), listed("?which=all")) == ([], ["web"], ["web"])
        offered = get(operator, "/admin/policies/assignment/add/").context["adminform"].form.fields["rule_set"].queryset
        assert not offered.exists()
        assert "Nothing to do: web isn't live." in text_of(get(operator, f"{pages}/archive/"))
        page = get(operator, f"{pages}/change/").content.decode()
        assert ("/archive/" in page, "/bring-back/" in page) == (False, True)
        back = operator.get(f"{pages}/bring-back/")["Location"]
        assert "Revision 3 was made" in confirmed(operator, back, "needed")
        assert [(each.name, each.version) for each in current_revision().rule_sets] == [("web", 1)]
        assert listed() == ["web"]
        too_late = operator.get(f"{pages}/bring-back/", follow=True)
        assert "Nothing to do: web v1 is already live." in text_of(too_late)
        page = get(operator, f"{pages}/change/").content.decode()
        assert ("/archive/" in page, "/bring-back/" in page) == (True, False)
        assert Change.objects.filter(state="published").count() == 3

    def test_one_that_is_assigned_is_not_archived(self, operator: Client, live: None) -> None:
        page = f"/admin/policies/ruleset/{RuleSet.objects.get().pk}/archive/"
        assert "These Assignments use it: all" in text_of(get(operator, page))
        with pytest.raises(PublishingError, match="would no longer be live"):
            publishing.archive(rule_set=RuleSet.objects.get(), by="ops", reason="unused")

    def test_an_archived_rule_set_cannot_be_assigned(self) -> None:
        publish_all(make_rule_set("web", **A))
        publishing.archive(rule_set=RuleSet.objects.get(), by="ops", reason="unused")
        with pytest.raises(PublishingError, match="has no published version"):
            publish_all(make_assignment("all", "web"))

    def test_it_is_reviewed_where_that_is_required(self, operator: Client, reviewed: None) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
            publish_all(make_rule_set("web", **A))
        rule_set = RuleSet.objects.get()
        said = confirmed(operator, f"/admin/policies/ruleset/{rule_set.pk}/archive/", "unused")
        assert "is in review" in said
        with pytest.raises(PublishingError, match="approval"):
            publishing.archive(rule_set=rule_set, by="ops", reason="unused")
