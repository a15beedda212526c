"""REST: read what is there, for who may; check a document; probes."""

import hashlib
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.test import Client

from policies.checking import pool
from policies.checking.limits import TOO_LONG
from policies.engine.cel.functions import FORM_LENGTH
from policies.models import Revision
from tests.builders import (
    TEAM_FILTER,
    assignment_document,
    make_assignment,
    make_node,
    make_pod,
    make_rule_set,
    rule_set_document,
)
from tests.component.controlplane.test_pages import make_decision
from tests.component.pages import publish_all
from tests.fuzz.bounds import no_hang


@pytest.fixture
def published(db: None) -> Revision:
    return publish_all(make_rule_set(filters=[TEAM_FILTER]), make_assignment())


def _json(client: Client, path: str) -> Any:
    response = client.get(path)
    assert response.status_code == 200, response.content
    return response.json()


def test_rule_sets_come_with_their_documents(auditor: Client, published: Revision) -> None:
    assert _json(auditor, "/api/v1/rule-sets")["results"][0]["name"] == "web"
    detail = _json(auditor, "/api/v1/rule-sets/web")
    assert detail["published"]["spec"]["filters"][0]["name"] == "team"


def test_a_revision_comes_with_the_text_of_its_digest(auditor: Client, published: Revision) -> None:
    assert [each["number"] for each in _json(auditor, "/api/v1/revisions")["results"]] == [1]
    detail = _json(auditor, "/api/v1/revisions/1")
    assert hashlib.sha256(detail["digest_text"].encode()).hexdigest() == detail["digest"] == published.digest
    covered = json.loads(detail["digest_text"])
    assert (covered["number"], covered["former"]) == (1, "")
    assert [part[:2] for part in covered["parts"]] == [["Assignment", "all-web"], ["RuleSet", "web"]]
    (rule_set,) = json.loads(detail["document"])["ruleSets"]
    assert rule_set["spec"]["filters"][0]["name"] == "team"
    assert auditor.get("/api/v1/revisions/2").status_code == 404


def test_assignments_come_as_documents(auditor: Client, published: Revision) -> None:
    (found,) = _json(auditor, "/api/v1/assignments")["results"]
    assert found["document"]["spec"]["ruleSet"] == "web"


@pytest.mark.parametrize(
    ("query", "count"),
    [("", 2), ("verb=bind", 1), ("refused=true", 1), ("refused=false", 1), ("revision=1", 2), ("pod_name=x", 0)],
)
def test_decisions_are_filtered_by_the_parameters_of_the_url(auditor: Client, query: str, count: int) -> None:
    make_decision()
    make_decision(verb="bind", feasible=0)
    assert len(_json(auditor, f"/api/v1/decisions?{query}")["results"]) == count


def test_a_decision_comes_with_its_body(auditor: Client) -> None:
    row = make_decision()
    assert _json(auditor, f"/api/v1/decisions/{row.pk}")["body"]["nodes"] == ["n1", "n2", "n3"]
    assert "body" not in _json(auditor, "/api/v1/decisions")["results"][0]


def test_a_filter_that_is_no_number_is_refused(auditor: Client) -> None:
    response = auditor.get("/api/v1/decisions?revision=two")
    assert (response.status_code, response.json()["faults"]) == (
        400,
        [{"path": "revision", "message": "'two' is not a whole number from 0 to 2147483647"}],
    )


@pytest.mark.parametrize("path", ["rule-sets", "assignments", "revisions", "decisions"])
@pytest.mark.django_db
def test_nobody_reads_without_logging_in(client: Client, path: str) -> None:
    assert client.get(f"/api/v1/{path}").status_code == 401


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        pytest.param(rule_set_document(filters=[TEAM_FILTER]), [], id="a right rule set"),
        pytest.param(assignment_document(), [], id="a right Assignment"),
        pytest.param(
            rule_set_document(filters=[{"builtin": "Nope"}, {"name": "a", "expression": "1 +"}]),
            ["spec.filters[0].builtin", "spec.filters[1].expression"],
            id="two faults",
        ),
        pytest.param(assignment_document(order=-1), ["spec.order"], id="a faulty Assignment"),
    ],
)
def test_a_document_is_checked(auditor: Client, document: dict[str, Any], paths: list[str]) -> None:
    answer = auditor.post("/api/v1/validate", document, content_type="application/json").json()
    assert [fault["path"] for fault in answer["faults"]] == paths
    assert answer["ok"] is not paths or not paths


@pytest.mark.parametrize("document", [[], "text", 7, None, {"kind": 7}])
def test_what_is_no_document_is_a_fault_not_an_error(auditor: Client, document: Any) -> None:
    answer = auditor.post("/api/v1/validate", json.dumps(document), content_type="application/json")
    assert answer.status_code == 200
    assert not answer.json()["ok"]


def test_the_schema_describes_it(auditor: Client) -> None:
    text = auditor.get("/api/schema/").content.decode()
    for path in ("/api/v1/rule-sets/{name}", "/api/v1/revisions/{number}", "/api/v1/decisions", "/api/v1/validate"):
        assert f"{path}:" in text


@pytest.mark.django_db
def test_probes_answer_without_logging_in(client: Client) -> None:
    assert client.get("/livez").content == b"ok\n"
    assert client.get("/readyz").json() == {"ok": True, "parts": {"database": "ok", "migrations": "ok"}}
    assert b"python_info" in client.get("/metrics").content


@pytest.mark.django_db
def test_readyz_names_the_part_that_is_not_ready_and_no_address(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from django.db import OperationalError

    def refuse() -> None:
        raise OperationalError('connection to server at "10.1.2.3", port 5432 failed: role "berth" does not exist')

    monkeypatch.setattr(connection, "cursor", refuse)
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["parts"]["database"] == "can't be checked; the log of this process says why"
    assert b"10.1.2.3" not in response.content
    assert 'role "berth" does not exist' in caplog.text


class TestValidate:
    """Checking a document for whoever asks: for roles, within limits, not without end."""

    URL = "/api/v1/validate"

    @pytest.fixture(autouse=True)
    def forget(self) -> None:
        cache.clear()

    def test_an_account_without_a_role_is_refused(self, db: None) -> None:
        client = Client(headers={"X-Forwarded-Proto": "https"})
        client.force_login(User.objects.create(username="nobody", is_staff=True))
        answer = client.post(self.URL, rule_set_document(), content_type="application/json", secure=True)
        assert answer.status_code == 403

    def test_an_expression_that_multiplies_out_an_exponent_is_answered(self, auditor: Client) -> None:
        large = f"{{'1e60000000': {[0.0] * FORM_LENGTH}}}.isGreaterThan(quantity('1'))"
        rule = {"name": "f", "expression": large, "reason": "no"}
        test = {"name": "t", "pod": make_pod(), "nodes": [make_node()], "expect": {"feasible": ["n1"]}}
        document = rule_set_document(filters=[rule], tests=[test])
        answer = auditor.post(self.URL, document, content_type="application/json").json()
        assert [fault["path"] for fault in answer["faults"]] == ["spec.tests[0].expect.feasible"]

    def test_who_asks_too_often_waits(self, auditor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("policies.api.throttles.CheckThrottle.rate", "2/min", raising=False)
        codes = [
            auditor.post(self.URL, rule_set_document(), content_type="application/json").status_code for _ in range(3)
        ]
        assert codes == [200, 200, 429]

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (b"[" * 100_000, 400),
            (b'{"a":' * 100_000, 400),
            (b"9" * 10_000, 400),
            (b'"' + b"x" * 2_000_000 + b'"', 200),
        ],
        ids=["lists", "objects", "digits", "a text"],
    )
    def test_a_body_that_is_hard_to_read_is_refused_in_words(self, auditor: Client, body: bytes, code: int) -> None:
        answer = auditor.post(self.URL, body, content_type="application/json")
        assert answer.status_code == code
        assert answer.json()

    def test_what_a_request_has_no_time_to_check_is_refused(
        self, auditor: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pool, "REQUEST_SECONDS", 0)
        answer = auditor.post(self.URL, rule_set_document(), content_type="application/json").json()
        assert (answer["ok"], answer["faults"][0]["message"]) == (False, TOO_LONG)

    @pytest.mark.parametrize("body", ['{"kind": "RuleSet", "kind": "Assignment"}', '{"spec": {"a": 1, "\\u0061": 2}}'])
    def test_a_member_that_comes_twice_is_refused(self, auditor: Client, body: str) -> None:
        answer = auditor.post(self.URL, body, content_type="application/json")
        assert (answer.status_code, "appears twice" in answer.content.decode()) == (400, True)

    def test_it_is_found_among_very_many_members_at_once(self, auditor: Client) -> None:
        members = [f'"{number:x}":0' for number in range(200_000)]
        with no_hang():
            answer = auditor.post(self.URL, f"{{{','.join([*members, members[-1]])}}}", content_type="application/json")
        assert (answer.status_code, "'30d3f' appears twice" in answer.content.decode()) == (400, True)

    def test_a_body_of_too_many_bytes_is_not_read(self, auditor: Client) -> None:
        answer = auditor.post(self.URL, b" " * 2_621_441, content_type="application/json")
        assert answer.status_code == 413
        assert answer["Content-Type"] == "application/problem+json"
        assert "2,621,440 bytes" in answer.json()["detail"]

    def test_a_form_is_not_taken(self, auditor: Client) -> None:
        assert auditor.post(self.URL, {"kind": "RuleSet"}).status_code == 415
