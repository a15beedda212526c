"""Whole files over REST: what `manage.py apply` and `plan` do, with every fault at its place."""

import json
from typing import Any

import pytest
from django.test import Client

from policies import manifests
from policies.engine.errors import MOST_FAULTS
from policies.models import AuditEvent, Change, Revision
from scheduler.applying.documents import MOST_DOCUMENTS
from tests.builders import (
    TEAM_FILTER,
    assignment_document,
    exemption_document,
    pause_document,
    priority_class_document,
    rule_set_document,
)
from tests.component.rest.asking import ask, told

pytestmark = pytest.mark.django_db

DOCUMENTS = [rule_set_document("web", filters=[TEAM_FILTER]), assignment_document()]


def test_documents_are_applied_and_then_are_live(operator: Client) -> None:
    body = {"documents": DOCUMENTS, "title": "teams", "publish": True, "asks_cluster": False}
    applied = told(ask(operator, "post", "/changes/apply", body), 201)
    assert (applied["ok"], applied["revision"]) == (True, Revision.objects.get().number)
    assert Change.objects.get(pk=applied["change"]).opened_by == "operator"
    again = told(ask(operator, "post", "/changes/apply", body))
    assert (again["change"], again["unchanged"]) == (None, ["rule set web", "Assignment all-web"])


def test_a_list_is_taken_apart_as_in_a_file(operator: Client) -> None:
    def body(*items: Any) -> dict[str, Any]:
        return {
            "documents": [{"apiVersion": "v1", "kind": "List", "items": items}],
            "asks_cluster": False,
            "prune": ["*"],
        }

    applied = told(ask(operator, "post", "/changes/apply", body(*DOCUMENTS)), 201)
    assert set(Change.objects.get(pk=applied["change"]).edits.values_list("name", flat=True)) == {"web", "all-web"}
    again = told(ask(operator, "post", "/changes/apply", body(*DOCUMENTS)), 200)
    assert (applied["is_new"], again["is_new"], again["change"]) == (True, False, applied["change"])
    refused = told(ask(operator, "post", "/changes/apply", body(DOCUMENTS[0], {"kind": "Pod"}, 7)), 422)
    assert [each["file"] for each in refused["faults"]] == ["documents[0].items[1]", "documents[0].items[2]"]


def test_an_empty_list_holds_nothing_and_a_list_of_another_kind_is_no_document(operator: Client) -> None:
    told(ask(operator, "post", "/changes/apply", {"documents": DOCUMENTS, "publish": True, "asks_cluster": False}), 201)

    def body(kind: str, *prune: str) -> dict[str, Any]:
        return {"documents": [{"apiVersion": "v1", "kind": kind, "items": []}], "asks_cluster": False, "prune": prune}

    for door in ("apply", "plan"):
        kept = told(ask(operator, "post", f"/changes/{door}", body("List")))
        assert kept["notes"] == ["The files hold nothing, and nothing is pruned: nothing is removed."]
        assert not kept.get("changes")
    refused = told(ask(operator, "post", "/changes/apply", body("PriorityClassList", "*")), 422)
    assert [each["text"] for each in refused["faults"]] == [
        "documents[0]: holds no document: if it is to hold nothing, write {apiVersion: v1, kind: List, items: []} in it"
    ]
    pruned = told(ask(operator, "post", "/changes/apply", body("List", "*")), 201)
    assert (pruned["notes"], len(pruned["changes"])) == ([], 2)


def test_what_is_exported_is_applied_without_a_change(operator: Client) -> None:
    told(ask(operator, "post", "/changes/apply", {"documents": DOCUMENTS, "publish": True, "asks_cluster": False}), 201)
    exported = ask(operator, "get", "/export")
    assert exported["Content-Type"].startswith("application/yaml")
    files = [{"name": "live.yaml", "text": exported.content.decode()}]
    assert told(ask(operator, "post", "/changes/apply", {"files": files}))["change"] is None
    asked = ask(operator, "head", "/export")
    assert (asked.status_code, asked["Content-Type"]) == (200, exported["Content-Type"])
    assert AuditEvent.objects.filter(kind="export", by="operator", door="rest").count() == 1, "HEAD hands nothing out"
    assert ask(operator, "get", "/export?name=web").content.decode().count("kind:") == 1
    assert "called nobody" in told(ask(operator, "get", "/export?name=nobody"), 404)["detail"]


def test_things_of_several_names_are_exported_at_once(operator: Client) -> None:
    told(ask(operator, "post", "/changes/apply", {"documents": DOCUMENTS, "publish": True, "asks_cluster": False}), 201)
    exported = ask(operator, "get", "/export?name=web&name=all-web")
    assert exported.status_code == 200, exported.content
    assert exported.content == ask(operator, "get", "/export").content
    twice = told(ask(operator, "get", "/export?name=web&kind=RuleSet&kind=Assignment"), 400)
    assert [each["path"] for each in twice["faults"]] == ["kind"]


# What YAML reads otherwise unless it is quoted, what it folds, and what it may not hold as it is.
NAMES = ["on", "null", "012", "1e3", "0x1f", "2026-01-01", "no"]
TEXTS = [
    "naïve 配置 🚢",
    "two\nlines \n",
    " # no comment: 'a' \"b\" \\",
    "tab\tnel\u0085ls\u2028end",
    "~",
    "- a",
    "word " * 60,
]
PARAMS = {"points": {"on": 1, "12": -1, "ä: b": 2}, "share": 1.0, "tiny": 1e-7, "whole": 10**15, "list": [True, "1"]}
LONG = " || ".join(f"node.metadata.name == 'a{number}{'-' * 30}'" for number in range(30))


def odd_documents() -> list[dict[str, Any]]:
    found = [rule_set_document(name, filters=[TEAM_FILTER]) for name in NAMES]
    for each, text in zip(found, TEXTS, strict=True):
        each["metadata"]["description"] = text
    rules = [{"name": "long", "expression": LONG}, {"name": "lines", "expression": "true\n  && // why\n  true\n"}]
    rules.append({"name": "params", "expression": "params.share > 0.5 && 'on' in params.points", "reason": TEXTS[0]})
    found += [rule_set_document("odd", params=PARAMS, filters=rules), assignment_document("null", "on", order=3)]
    pods = [{"namespace": "default", "name": "012"}]
    found += [priority_class_document("1e3", -2147483648, TEXTS[1]), pause_document("yes", "RuleSet/odd/long")]
    return [*found, exemption_document("0", "RuleSet/on", pods=pods, owner="ünî", until="2126-02-01T00:00:00Z")]


def test_odd_documents_are_exported_and_applied_byte_for_byte(operator: Client) -> None:
    def apply(**more: Any) -> Any:
        return ask(operator, "post", "/changes/apply", {"publish": True, "asks_cluster": False, **more})

    told(apply(documents=odd_documents()), 201)
    exported = ask(operator, "get", "/export").content.decode()
    assert told(apply(files=[{"name": "live.yaml", "text": exported}]))["change"] is None
    told(apply(prune=["*"]), 201)
    assert ask(operator, "get", "/export").content == b""
    told(apply(files=[{"name": "live.yaml", "text": exported}]), 201)
    assert ask(operator, "get", "/export").content.decode() == exported


def test_each_fault_is_told_with_its_file_and_line(operator: Client) -> None:
    text = manifests.to_yaml(rule_set_document("web", filters=[{"builtin": "Nope"}]))
    body = {"files": [{"name": "a.yaml", "text": text}], "documents": [assignment_document(order=-1)]}
    found = told(ask(operator, "post", "/changes/apply", body), 422)["faults"]
    assert [(each["file"], each["path"]) for each in found] == [
        ("a.yaml", "spec.filters[0].builtin"),
        ("documents[0]", "spec.order"),
    ]
    assert found[0]["text"].startswith("a.yaml:")
    assert found[0]["line"] > 1
    assert not Change.objects.exists()


def test_a_plan_says_what_would_be_and_keeps_nothing(auditor: Client, operator: Client) -> None:
    body = {"documents": DOCUMENTS, "asks_cluster": False}
    before = AuditEvent.objects.count()
    planned = told(ask(auditor, "post", "/changes/plan", body))
    assert (planned["ok"], planned["would_change"]) == (True, True)
    assert any("rule set web" in line for line in planned["changes"])
    assert (Change.objects.count(), Revision.objects.count(), AuditEvent.objects.count()) == (0, 0, before)
    told(ask(operator, "post", "/changes/apply", {**body, "publish": True}), 201)
    assert not told(ask(auditor, "post", "/changes/plan", body))["would_change"]


def test_what_is_not_among_them_is_pruned_in_its_scope(operator: Client) -> None:
    told(ask(operator, "post", "/changes/apply", {"documents": DOCUMENTS, "publish": True, "asks_cluster": False}), 201)
    planned = told(ask(operator, "post", "/changes/plan", {"prune": ["*"], "asks_cluster": False}))
    assert planned["would_change"]
    refused = told(ask(operator, "post", "/changes/apply", {"asks_cluster": False}), 400)
    assert refused["faults"][0]["path"] == "documents"


@pytest.mark.parametrize("door", ["apply", "plan"])
def test_what_is_no_scope_to_prune_in_is_a_fault_of_the_request(operator: Client, door: str) -> None:
    body = {"documents": DOCUMENTS, "prune": ["team-*", "rulesets/*", "Pod/web"], "asks_cluster": False}
    faults = told(ask(operator, "post", f"/changes/{door}", body), 400)["faults"]
    assert [(each["path"], each["message"].partition(" to prune")[0]) for each in faults] == [
        ("prune", "'rulesets/*' is no scope"),
        ("prune", "'Pod/web' is no scope"),
    ]
    assert not Change.objects.exists()


def test_who_only_reads_applies_nothing(auditor: Client) -> None:
    refused = ask(auditor, "post", "/changes/apply", {"documents": DOCUMENTS, "asks_cluster": False})
    assert told(refused, 403)["detail"].startswith("auditor may not edit")


@pytest.mark.parametrize("kind", ["[RuleSet]", "{RuleSet: web}"])
def test_a_kind_that_is_no_text_is_a_fault_with_its_line(operator: Client, kind: str) -> None:
    files = [{"name": "web.yaml", "text": f"apiVersion: berth/v1\nkind: {kind}\nmetadata: {{name: web}}\nspec: {{}}\n"}]
    (fault,) = told(ask(operator, "post", "/lint", {"files": files}))["faults"]
    assert (fault["path"], fault["line"]) == ("kind", 2)
    assert (
        "must be RuleSet" in told(ask(operator, "post", "/changes/apply", {"files": files}), 422)["faults"][0]["text"]
    )


@pytest.mark.parametrize(
    ("text", "line"), [("a: [", 1), ("kind: RuleSet\nmetadata: {name: x, name: y}", 2), ('{"a":\n\n', 3)]
)
def test_a_file_that_cannot_be_read_is_a_fault_with_its_line(operator: Client, text: str, line: int) -> None:
    body = {"files": [{"name": "rules/web.yaml", "text": text}]}
    (linted,) = told(ask(operator, "post", "/lint", body))["faults"]
    for path in ("/changes/plan", "/changes/apply"):
        assert told(ask(operator, "post", path, body), 422)["faults"] == [linted]
    assert (linted["file"], linted["path"], linted["line"]) == ("rules/web.yaml", "", line)
    assert linted["message"].startswith("not readable as YAML or JSON: ")
    assert linted["text"] == f"rules/web.yaml:{line}: {linted['message']}"


def test_very_many_faults_make_no_answer_of_many_megabytes(operator: Client) -> None:
    files = [{"name": "many.yaml", "text": "a: {b: 1}\n---\n" * 5_000}]
    for path, status in (("/lint", 200), ("/changes/plan", 422), ("/changes/apply", 422)):
        answer = ask(operator, "post", path, {"files": files})
        faults = told(answer, status)["faults"]
        assert len(faults) == MOST_FAULTS
        assert faults[0]["file"] == "many.yaml"
        assert faults[-1]["text"] == "there may be more faults: correct these first"
        assert len(answer.content) < 1_000_000


def test_that_a_document_has_more_faults_than_are_told_is_the_last_one(operator: Client) -> None:
    members = {f"m{number}": 1 for number in range(MOST_FAULTS + 500)}
    faults = told(ask(operator, "post", "/exemptions", DOCUMENTS[0] | {"kind": "Exemption"} | members), 422)["faults"]
    assert len(faults) == MOST_FAULTS
    assert faults[-1]["message"].endswith("more faults are left out here: correct these first")


def test_files_that_come_together_are_checked_together(operator: Client) -> None:
    text = json.dumps(DOCUMENTS[0])
    files = [{"name": name, "text": text} for name in ("one.json", "other.json")]
    faults = told(ask(operator, "post", "/lint", {"files": files}))["faults"]
    assert [(fault["file"], fault["path"]) for fault in faults] == [(each["name"], "metadata.name") for each in files]


_MANY = 60_000
_ITEMS = ",".join(["{}"] * _MANY)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/lint", f'{{"files": [{_ITEMS}]}}', 400),
        ("/changes/apply", f'{{"files": [{_ITEMS}]}}', 400),
        ("/changes/plan", f'{{"documents": [{_ITEMS}]}}', 400),
        ("/changes/plan", f'{{"documents": [{{"kind": "List", "items": [{_ITEMS}]}}]}}', 422),
        ("/changes/plan", f'{{"prune": [{_ITEMS}]}}', 400),
        ("/changes", f"{{{','.join(f'{number}:0' for number in map(json.dumps, map(str, range(_MANY))))}}}", 400),
        ("/assignments/which", f'{{"pod": 1, {",".join(f"{json.dumps(str(n))}:0" for n in range(_MANY))}}}', 400),
    ],
    ids=["files", "files to apply", "documents", "a list", "prune", "members", "members beside a Pod"],
)
def test_the_answer_to_very_many_faults_is_short(auditor: Client, path: str, body: str, status: int) -> None:
    answer = ask(auditor, "post", path, body)
    told(answer, status)
    # The answers had from 3 MB to 32 MB, and took up to 6 s to make, those about members alone half a second.
    assert len(answer.content) < 200_000


@pytest.mark.parametrize("files", [1, 3])
def test_more_documents_than_are_read_at_once_are_said_once(operator: Client, files: int) -> None:
    text = "---\n".join(["{}\n"] * (MOST_DOCUMENTS // files + 1))
    body = {"files": [{"name": f"{number}.yaml", "text": text} for number in range(files)]}
    (fault,) = told(ask(operator, "post", "/lint", body))["faults"]
    assert "more than 10,000 documents" in fault["message"]
    refused = told(ask(operator, "post", "/changes/apply", body), 422)
    assert refused["faults"] == [{"path": "", "file": "", **dict.fromkeys(("message", "text"), fault["message"])}]


def test_of_many_faulty_files_the_first_are_told(operator: Client) -> None:
    found = told(ask(operator, "post", "/lint", {"files": [{"name": "a"}] * 500}), 400)["faults"]
    assert [each["path"] for each in found] == [f"files.{number}.text" for number in range(100)]
