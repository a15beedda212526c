"""What shadows would have done, as operators and auditors read it."""

import html
import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from policies import publishing
from policies.models import Assignment, Change, RuleSet
from policies.publishing import Edit
from scheduler.decisions.divergence import Divergence, Subject
from scheduler.decisions.shadow_counts import add
from scheduler.models import Decision
from tests.builders import make_assignment, make_rule_set
from tests.component.controlplane.test_pages import make_decision
from tests.component.decisions.test_divergence import ONLY_N1, Extender
from tests.component.pages import change_url, opened, text_of

pytestmark = pytest.mark.django_db
PAGE = "/admin/scheduler/shadows/"


def subject(assignment: str = "try", *, revision: int = 3, rule_set: str = "team", verb: str = "filter") -> Subject:
    return Subject(revision, assignment, rule_set, 2, verb)


def count(**numbers: int) -> None:
    """Count some of the shadow `try`."""
    add({(subject(), how.replace("_", " ")): number for how, number in numbers.items()})


def test_the_page_counts_each_way_to_diverge_with_its_share_and_examples(auditor: Client) -> None:
    count(agreed=17, refused_the_node=2, another_node=1, dropped=4)
    shown = text_of(auditor.get(PAGE))
    assert "try team v2 filter 3 17 85.0 % 2 10.0 % 0 1 5.0 % 0 0 4 0" in shown
    examples = auditor.get(PAGE).content.decode()
    assert "mode=shadow&amp;divergence=refused+the+node" in examples


def test_large_numbers_have_separators_and_one_of_many_is_not_said_to_be_none(auditor: Client) -> None:
    count(agreed=2_999, refused_the_node=1, dropped=1_200)
    shown = text_of(auditor.get(PAGE))
    assert "try team v2 filter 3 2,999 above 99.9 % 1 below 0.1 % 0 0 0 0 1,200 0" in shown


def test_on_a_phone_each_cell_says_its_column(auditor: Client) -> None:
    count(agreed=17, dropped=4)
    page = auditor.get(PAGE).content.decode()
    assert 'class="berth-table berth-counts berth-stacks"' in page
    row = page.partition("<tbody>")[2].partition("</tr>")[0]
    labels = [part.partition('"')[0] for part in row.split('data-label="')[1:]]
    assert labels[:5] == ["Assignment", "Rule set", "Asked by", "Revisions", "Agreed"]
    assert len(labels) == row.count("<td") == 12


def test_a_number_leads_to_its_decisions_and_to_no_others(auditor: Client, tmp_path: Path) -> None:
    extender = Extender(tmp_path, ONLY_N1)
    for name in ("stays", "goes"):
        extender.ask("filter", name)
    extender.decide()
    extender.seen_on("stays", "n1")
    extender.seen_on("goes", "n2")
    page = auditor.get(PAGE).content.decode()
    url = next(part.split('"')[0] for part in page.split('href="') if "refused+the+node" in part.split('"')[0])
    listed = text_of(auditor.get(url.replace("&amp;", "&")))
    assert "default/goes" in listed
    assert "default/stays" not in listed


def test_a_number_leads_to_decisions_of_its_rule_set_alone_where_the_assignment_had_another_one(
    auditor: Client,
) -> None:
    for name in ("team", "rest"):
        add({(subject(rule_set=name), Divergence.LET_PASS): 1})
        asked = {
            "assignment": "try",
            "rule_set": name,
            "rule_set_version": 2,
            "mode": "shadow",
            "divergence": "let pass",
        }
        make_decision(verb="filter", pod_name=f"of-{name}", **asked)
    page = auditor.get(PAGE).content.decode()
    first, second = (part.split('"')[0] for part in page.split('href="') if "let+pass" in part.split('"')[0])
    for url, name, other in ((first, "rest", "team"), (second, "team", "rest")):
        listed = text_of(auditor.get(url.replace("&amp;", "&")))
        assert f"/of-{name}" in listed
        assert f"/of-{other}" not in listed


def test_a_number_of_a_change_leads_to_decisions_since_it_went_live(auditor: Client) -> None:
    made = opened(make_rule_set("team"), make_assignment("try", "team", mode="shadow"))
    live = publishing.publish_change(change=made, by="ops", expected_digest=made.digest)
    add({(subject(revision=number), Divergence.LET_PASS): 1 for number in (live.number - 1, live.number)})
    shadow = {
        "assignment": "try",
        "rule_set": "team",
        "rule_set_version": 2,
        "mode": "shadow",
        "divergence": "let pass",
    }
    for name, seconds in (("before", -1), ("since", 1)):
        make_decision(verb="filter", pod_name=name, at=live.created_at + timedelta(seconds=seconds), **shadow)
    for page in (f"{PAGE}?change={made.pk}", change_url("change", made.pk)):
        (url,) = re.findall(r'href="([^"]*let\+pass[^"]*)"', auditor.get(page).content.decode())
        listed = text_of(auditor.get(html.unescape(url)))
        assert "shop/since" in listed
        assert "shop/before" not in listed


def test_versions_of_a_rule_set_and_verbs_have_rows_of_their_own(auditor: Client) -> None:
    add({(subject(revision=3), Divergence.AGREED): 1, (subject(revision=9), Divergence.AGREED): 2})
    add({(subject(verb="prioritize"), Divergence.AGREED): 5})
    shown = text_of(auditor.get(PAGE))
    assert "try team v2 filter 3 to 9 3 100.0 %" in shown
    assert "try team v2 prioritize 3 5 100.0 %" in shown


def test_the_page_narrows_to_an_assignment_or_a_rule_set(auditor: Client) -> None:
    add({(subject("mine"), "agreed"): 1, (subject("yours", rule_set="rest"), "agreed"): 1})
    assert "yours" not in text_of(auditor.get(f"{PAGE}?assignment=mine"))
    narrowed = text_of(auditor.get(f"{PAGE}?rule_set=rest"))
    assert "yours rest v2" in narrowed
    assert "mine" not in narrowed


def test_what_is_no_filter_of_the_page_is_refused_and_shows_no_counts(auditor: Client) -> None:
    add({(subject("mine"), "agreed"): 1})
    answer = auditor.get(f"{PAGE}?asignment=yours")
    assert answer.status_code == 400
    assert "isn't a filter of shadows; there are assignment, rule_set, change, p" in html.unescape(text_of(answer))
    assert "team v2" not in text_of(answer)


def test_a_change_narrows_together_with_an_assignment(auditor: Client) -> None:
    value = make_rule_set("team", **ONLY_N1)
    made = publishing.open_change(title="tries", edits=[Edit.of(value)], by="ops")
    number = publishing.publish_change(change=made, by="ops", expected_digest=made.digest).number
    add({(subject(each, revision=number), "agreed"): 1 for each in ("mine", "yours")})
    assert "yours" in text_of(auditor.get(f"{PAGE}?change={made.pk}"))
    assert "yours" not in text_of(auditor.get(f"{PAGE}?change={made.pk}&assignment=mine"))


def test_the_page_says_so_where_nothing_is_in_shadow_and_how_something_comes_there(auditor: Client) -> None:
    assert "No Decision yet" in text_of(auditor.get(PAGE))
    assert "choose the mode shadow in an Assignment" in text_of(auditor.get(PAGE))
    assert "choose the mode shadow" not in text_of(auditor.get(f"{PAGE}?rule_set=team"))
    count(agreed=1)
    assert "choose the mode shadow" not in text_of(auditor.get(PAGE))


@pytest.mark.parametrize("query", ["?change=77", "?change=77&p=3", "?change=0", "?change=%237", "?change=none"])
def test_a_change_that_isnt_there_is_not_found(auditor: Client, query: str) -> None:
    assert auditor.get(PAGE + query).status_code == 404


def test_a_page_has_the_same_queries_however_many_shadows_there_are(auditor: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert auditor.get(PAGE).status_code == 200
        return len(captured)

    add({(subject("a-0"), "agreed"): 1})
    few = queries()
    add({(subject(f"a-{number}"), "agreed"): 1 for number in range(1, 400)})
    assert queries() == few
    assert "Page 1 of 8" in text_of(auditor.get(PAGE))
    assert "a-99 team" in text_of(auditor.get(f"{PAGE}?p=8"))


def test_who_may_not_see_it_doesnt(client: Client) -> None:
    assert client.get(PAGE).status_code == 302
    client.force_login(User.objects.create_user("guest", is_staff=True))
    assert client.get(PAGE).status_code == 403


class TestOtherPages:
    @pytest.fixture
    def change(self) -> Change:
        """A Change that tries a rule set in shadow."""
        values = (make_rule_set("team", **ONLY_N1), make_assignment("try", "team", order=1, mode="shadow"))
        made = publishing.open_change(title="tries it", edits=[Edit.of(value) for value in values], by="ops")
        publishing.publish_change(change=made, by="ops", expected_digest=made.digest)
        made.refresh_from_db()
        return made

    def test_the_change_that_brought_a_shadow_shows_what_came_of_it(self, auditor: Client, change: Change) -> None:
        page = f"/admin/policies/change/{change.pk}/change/"
        assert "Results of its shadows since" in text_of(auditor.get(page))
        assert change.revision is not None
        add({(subject(revision=change.revision.number), Divergence.REFUSED_ALL): 3})
        shown = auditor.get(page).content.decode()
        assert "3</a>" in shown
        assert f"{PAGE}?change={change.pk}" in shown
        assert f"of {change}" in text_of(auditor.get(f"{PAGE}?change={change.pk}"))

    def test_what_was_counted_before_the_change_isnt_its(self, auditor: Client, change: Change) -> None:
        assert change.revision is not None
        add({(subject(revision=change.revision.number - 1), Divergence.REFUSED_ALL): 3})
        assert "No Decision yet" in text_of(auditor.get(f"{PAGE}?change={change.pk}"))

    def test_an_assignment_shows_its_own(self, auditor: Client, change: Change) -> None:
        count(agreed=8)
        row = Assignment.objects.get(name="try")
        shown = text_of(auditor.get(change_url("assignment", row.pk)))
        assert "Its results in shadow mode" in shown
        assert "8 100.0 %" in shown

    def test_one_that_was_never_in_shadow_shows_none(self, auditor: Client) -> None:
        rule_set = RuleSet.objects.create(name="r")
        row = Assignment.objects.create(name="enforced", order=1, rule_set=rule_set)
        assert "in shadow" not in text_of(auditor.get(change_url("assignment", row.pk)))

    def test_a_shadow_leads_to_its_answer_and_the_answer_to_its_shadow(self, auditor: Client, tmp_path: Path) -> None:
        extender = Extender(tmp_path, ONLY_N1)
        for _ in range(2):
            extender.ask("filter", "a")
        extender.decide()
        extender.seen_on("a", "n2")
        first, second, shadow, _ = Decision.objects.order_by("sequence")

        page = auditor.get(change_url("decision", shadow.pk)).content.decode()
        assert "It would have refused the node that the Pod got." in page
        assert change_url("decision", first.pk) in page
        assert change_url("decision", second.pk) not in page
        piece = f"/admin/scheduler/decision/{first.pk}/shadows/"
        assert f'hx-get="{piece}"' in auditor.get(change_url("decision", first.pk)).content.decode()
        assert change_url("decision", shadow.pk) in auditor.get(piece).content.decode()
        both = f"/admin/scheduler/decision/{first.pk}/beside/{shadow.pk}/"
        assert both in page
        assert "They differ on 2 nodes." in text_of(auditor.get(both))
        over_rest = auditor.get(f"/api/v1/decisions/{first.pk}/sides").json()
        assert [each["id"] for each in over_rest["shadows"]] == [str(shadow.pk)]
        assert over_rest["shadows"][0]["divergence"] == "refused the node"
        of_shadow = auditor.get(f"/api/v1/decisions/{shadow.pk}/sides").json()
        assert of_shadow == {"answered": str(first.pk), "divergence": "refused the node", "shadows": [], "canaries": []}

    def test_a_decision_without_shadows_shows_none(self, auditor: Client, tmp_path: Path) -> None:
        extender = Extender(tmp_path)
        extender.ask("filter", "a")
        extender.decide()
        piece = auditor.get(f"/admin/scheduler/decision/{Decision.objects.get().pk}/shadows/")
        assert text_of(piece) == ""


def test_a_divergence_of_a_newer_version_is_shown_as_it_is(auditor: Client, tmp_path: Path) -> None:
    extender = Extender(tmp_path, ONLY_N1)
    extender.ask("filter", "a")
    extender.decide()
    answer, shadow = Decision.objects.order_by("sequence")
    Decision.objects.filter(pk=shadow.pk).update(divergence="a newer way")
    assert "a newer way" in text_of(auditor.get(change_url("decision", shadow.pk)))
    assert "a newer way" in text_of(auditor.get(f"/admin/scheduler/decision/{answer.pk}/shadows/"))


def test_rest_has_the_counts(auditor: Client) -> None:
    count(agreed=8, refused_all=1)
    found = auditor.get("/api/v1/shadows?divergence=refused all").json()["results"]
    assert [(each["assignment"], each["verb"], each["divergence"], each["number"]) for each in found] == [
        ("try", "filter", "refused all", 1)
    ]


def test_rest_refuses_a_divergence_that_there_is_none_of(auditor: Client) -> None:
    count(agreed=8)
    for how in ("nonsense", "refused_all"):
        answer = auditor.get("/api/v1/shadows", {"divergence": how})
        assert (answer.status_code, [each["path"] for each in answer.json()["faults"]]) == (400, ["divergence"])
    assert auditor.get("/api/v1/shadows?divergence=dropped").json()["results"] == []
