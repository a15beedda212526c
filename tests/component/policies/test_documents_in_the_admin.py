"""Documents in and out of the admin, copies of a rule set, and what stands at each rule."""

import json

import pytest
from django.test import Client

from policies import checking, manifests, publishing
from policies.admin import panels
from policies.engine.documents import document_of
from policies.models import AuditEvent, Change, RuleSet
from tests.builders import TEAM_FILTER, assignment_document, make_rule_set, rule_set_document
from tests.component.pages import edit_page, get, publish, rows, text_of

pytestmark = pytest.mark.django_db

IN, OUT = "/admin/scheduler/import/", "/admin/scheduler/export/"
POLICY = {"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "HostName"}], "priorities": []}

CONFIGURATION = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: "
ALONE = "a file of kube-scheduler's is imported by itself"


def edits() -> list[str]:
    return [f"{edit.kind}/{edit.name}" for edit in publishing.edits_of(Change.objects.get(state="draft"))]


def test_a_file_of_documents_opens_a_change(operator: Client) -> None:
    text = "---\n".join(map(manifests.to_yaml, (rule_set_document("web"), assignment_document("all", "web"))))
    said = text_of(operator.post(IN, {"text": text, "title": "from a file"}, follow=True))
    assert "was opened. It isn't live until that Change is published." in said
    assert edits() == ["Assignment/all", "RuleSet/web"]


def test_what_is_said_without_a_line_does_not_begin_with_the_word(operator: Client) -> None:
    refused = operator.post(IN, {"text": "---\n---\n", "title": "Import"}).content.decode()
    assert "<li>holds no document" in refused
    kubernetes = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\n"
    classes = [("system-node-critical", 2_000_001_000), ("batch", 5)]
    text = "---\n".join(f"{kubernetes}metadata: {{name: {name}}}\nvalue: {value}\n" for name, value in classes)
    said = operator.post(IN, {"text": text, "title": "Import"}, follow=True)
    assert "system-node-critical passed over" in text_of(said)
    assert "line:" not in text_of(said)


def test_a_classic_policy_opens_a_change(operator: Client) -> None:
    operator.post(IN, {"text": json.dumps(POLICY), "name": "classic", "title": "Import"})
    assert edits() == ["RuleSet/classic"]


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({"text": "kind: [RuleSet]"}, "must be RuleSet, Assignment, PriorityClass, Pause or Exemption"),
        ({}, "This field is required."),
        ({"text": "a: [1"}, "not readable as YAML"),
        (
            {"text": "kind: Policy\napiVersion: v1\npredicates: [{name: Nothing}]\npriorities: []"},
            "line:3: predicates[0].name",
        ),
        ({"text": f"{manifests.to_yaml(POLICY)}---\n{manifests.to_yaml(assignment_document())}"}, ALONE),
        ({"text": manifests.to_yaml({"kind": "List", "items": [assignment_document(), POLICY]})}, ALONE),
        (
            {"text": f"{CONFIGURATION}[{{schedulerName: a, x: 1}}, {{schedulerName: b, y: 1}}]"},
            "profiles[1].y: unknown",
        ),
        ({"text": manifests.to_yaml(rule_set_document(filters=[{"builtin": "PodFitsNothing"}]))}, "line:7: "),
    ],
)
def test_what_cannot_be_taken_in_says_why_and_makes_nothing(
    operator: Client, sent: dict[str, object], says: str
) -> None:
    assert says in text_of(operator.post(IN, {"title": "Import", **sent}))
    assert not Change.objects.exists()


def test_what_is_live_already_changes_nothing(operator: Client) -> None:
    publish(make_rule_set())
    text = manifests.to_yaml(document_of(make_rule_set()))
    assert "there was nothing to change" in text_of(operator.post(IN, {"text": text, "title": "x"}, follow=True))


def test_what_is_live_goes_out_as_yaml_and_the_trail_says_who_took_it(auditor: Client) -> None:
    publish(make_rule_set())
    sent = auditor.post(OUT, {"what": "web", "form": "yaml"})
    assert sent["Content-Disposition"] == 'attachment; filename="web.yaml"'
    (located,) = checking.read_documents(sent.content.decode(), "web.yaml")
    assert checking.read_rule_set(located.document) == make_rule_set()
    assert AuditEvent.objects.filter(kind="export", by="auditor").exists()


def test_a_rule_set_goes_out_as_a_classic_policy_where_one_can_say_it(operator: Client) -> None:
    publish(make_rule_set("plain"))
    publish(make_rule_set("own", filters=[TEAM_FILTER]))
    found = operator.post(OUT, {"what": "plain", "form": "policy"})
    assert (found["Content-Type"], json.loads(found.content)["kind"]) == ("application/json", "Policy")
    assert "A classic Policy can't express" in text_of(operator.post(OUT, {"what": "own", "form": "policy"}))
    assert "A classic Policy holds one rule set" in text_of(operator.post(OUT, {"what": "", "form": "policy"}))


def test_roles_have_the_ways_that_they_may_go(operator: Client, auditor: Client) -> None:
    listed = "/admin/policies/ruleset/"
    assert "Import… Export…" in text_of(get(operator, listed))
    assert "Import…" not in text_of(get(auditor, listed))
    assert auditor.post(IN, {"text": "x", "title": "x"}).status_code == 403


def test_a_copy_begins_with_the_rules_of_its_original(operator: Client) -> None:
    publish(make_rule_set(filters=[TEAM_FILTER]))
    row = RuleSet.objects.get(name="web")
    asked = operator.post(f"/admin/policies/ruleset/{row.pk}/duplicate/")["Location"]
    assert get(operator, asked).context["adminform"].form["name"].value() == "web-copy"
    form = operator.post(asked, {"name": "web-copy"})["Location"]
    assert form == f"{edit_page('web-copy')}?from=web"
    assert [each["name"].value() for each in rows(get(operator, form), "filters").forms] == ["team"]


def test_each_rule_says_what_it_reads_costs_and_refused(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "_RULE_COUNTS", [lambda name: {"team": f"refused 12 of {name}"}])
    victim = {"name": "kept", "expression": "victim.metadata.?labels.env.orValue('') != 'prod'", "reason": "prod"}
    counting = {"name": "few", "expression": "node.count({'app': 'x'}) < 2 && now.getHours() < 5", "reason": "full"}
    filters = [TEAM_FILTER, {"builtin": "PodFitsResources"}, counting]
    publish(make_rule_set(filters=filters, victims=[victim]))
    page = get(operator, edit_page("web"))
    team, fits, few = (form.instance.chips for form in rows(page, "filters").forms)
    assert team[0] == "reads node.metadata.labels.team, pod.metadata.labels.team"
    assert team[1].startswith("costs ")
    assert team[2] == "refused 12 of web"
    assert fits == ["reads its node and the Pods on it"]
    assert few[0] == "reads now, its node and the Pods on it"
    assert "a preemption of" in rows(page, "victims").forms[0].instance.chips[1]
    assert "refused 12 of web" in text_of(page)
