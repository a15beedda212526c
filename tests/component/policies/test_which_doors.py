"""Which Assignment takes a Pod, by page and by REST, with what the command says."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client

from scheduler.cluster.client import Client as ClusterClient
from scheduler.cluster.errors import APINotFoundError, APIUnavailableError
from tests.builders import TEAM_FILTER, make_assignment, make_pod, make_rule_set
from tests.component.pages import get, publish_all, text_of
from tests.conftest import HTTPSClient

pytestmark = pytest.mark.django_db

PAGE, REST = "/admin/scheduler/which/", "/api/v1/assignments/which"
POD = make_pod("web-1", namespace="shop", labels={"team": "a"})
YAML = "metadata:\n  name: new\n  namespace: shop\n"


class Server:
    """An API server that has a Pod and its namespace."""

    asked = 0

    def get(self, *, path: str, timeout_seconds: float) -> bytes:
        import json

        assert timeout_seconds <= 5
        self.asked += 1
        if path.endswith("/gone"):
            message = 'pods "gone" not found'
            raise APINotFoundError(message)
        if path.endswith("/away"):
            message = "connection refused"
            raise APIUnavailableError(message)
        return json.dumps(POD if "/pods/" in path else {"metadata": {"labels": {"env": "live"}}}).encode()


@pytest.fixture
def outsider() -> Client:
    """Somebody with an account and no role."""
    client = HTTPSClient()
    client.force_login(User.objects.create_user("outsider", is_staff=True))
    return client


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Stand in for the cluster; publish what is asked."""
    server = Server()
    monkeypatch.setattr(ClusterClient, "connect", lambda _kubeconfig: server)
    live = {"namespaceSelector": {"matchLabels": {"env": "live"}}}
    publish_all(
        make_rule_set("web", filters=[TEAM_FILTER], params={"team": "x"}),
        make_assignment("batch", "web", order=1, match={"ownerKinds": ["Job"]}),
        make_assignment("of-live", "web", order=3, match=live, params={"team": "shop"}),
        make_assignment("rest", "web", order=4),
    )
    return server


class TestThePage:
    def test_is_reached_from_the_list_of_assignments(self, auditor: Client) -> None:
        assert "Which one takes this Pod?" in text_of(get(auditor, "/admin/policies/assignment/"))
        response = auditor.get("/admin/policies/assignment/which/")
        assert (response.status_code, response["Location"]) == (302, PAGE)

    def test_says_of_a_pod_of_the_cluster_what_it_gets_and_why(self, auditor: Client) -> None:
        said = text_of(get(auditor, f"{PAGE}?pod=shop/web-1"))
        assert "shop/web-1 gets rule set web by Assignment of-live" in said
        assert "with param team: shop" in said
        assert "batch the kind of its owner is none, not Job" in said
        assert "These Assignments match the Pod too, but come later in the order: rest" in said

    def test_says_of_a_pod_that_is_pasted_with_its_namespaces_labels(self, auditor: Client, server: Server) -> None:
        plain = text_of(auditor.post(PAGE, {"document": YAML}))
        assert "shop/new gets rule set web by Assignment rest" in plain
        assert "of-live it has no namespace label env, which must be live" in plain
        labelled = text_of(auditor.post(PAGE, {"document": YAML, "namespace_labels": "env=live"}))
        assert "by Assignment of-live" in labelled
        assert server.asked == 0

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            ({}, "Name a Pod in the cluster, or paste one."),
            ({"pod": "shop/web-1", "document": YAML}, "Name a Pod in the cluster, or paste one."),
            ({"pod": "shop/gone"}, "the cluster has no Pod shop/gone"),
            (
                {"pod": "shop/away"},
                "the cluster can't be asked: connection refused. Give the Pod's manifest instead of its name",
            ),
            ({"pod": "shop/../../nodes"}, "name a Pod as NAMESPACE/NAME"),
            ({"document": "metadata: 5"}, "Pod:"),
            (
                {"document": f"kind: Deployment\n{YAML}spec: {{template: {{metadata: {{labels: {{team: a}}}}}}}}"},
                "this is a Deployment, not a Pod: give a Pod that it makes, or name one of those in the cluster",
            ),
            ({"document": YAML, "namespace_labels": "env in (a, b)"}, "Write labels as name=value"),
            ({"document": 'metadata: {name: "a\\ud800"}'}, "metadata.name: holds half of a character"),
            ({"document": 'kind: "a\\ud800"'}, "kind: holds half of a character"),
        ],
    )
    def test_says_what_is_wrong(self, auditor: Client, data: dict[str, str], said: str) -> None:
        page = text_of(auditor.post(PAGE, data))
        assert said in page
        assert "by Revision" not in page

    def test_says_where_none_takes_it(self, auditor: Client) -> None:
        publish_all(make_assignment("rest", "web", order=4, match={"namespaces": ["bank"]}))
        assert "No Assignment takes shop/new" in text_of(auditor.post(PAGE, {"document": YAML}))

    def test_is_for_who_may_see_assignments(self, client: Client, outsider: Client) -> None:
        assert client.get(PAGE).status_code == 302
        assert outsider.get(PAGE).status_code == 403


class TestREST:
    def post(self, client: Client, body: Any) -> Any:
        return client.post(REST, body, content_type="application/json")

    def test_answers_of_a_pod_of_the_cluster(self, auditor: Client) -> None:
        found = auditor.get(f"{REST}?pod=shop/web-1").json()
        assert (found["pod"], found["assignment"], found["rule_set"]) == ("shop/web-1", "of-live", "web")
        assert found["params"] == {"team": "shop"}
        assert found["passed_over"] == [{"name": "batch", "why": ["the kind of its owner is none, not Job"]}]
        assert found["hidden"] == ["rest"]

    def test_answers_of_a_pod_in_the_body_with_and_without_its_namespaces_labels(self, auditor: Client) -> None:
        assert self.post(auditor, POD).json()["assignment"] == "rest"
        body = {"pod": POD, "namespace_labels": {"env": "live"}}
        assert self.post(auditor, body).json()["assignment"] == "of-live"

    @pytest.mark.parametrize(
        ("query", "status"), [("", 400), ("?pod=shop/gone", 404), ("?pod=shop/away", 503), ("?pod=a/b/c", 400)]
    )
    def test_says_why_a_pod_can_not_be_had(self, auditor: Client, query: str, status: int) -> None:
        assert auditor.get(f"{REST}{query}").status_code == status

    @pytest.mark.parametrize("body", [[], {"metadata": 5}, {"pod": POD, "namespace_labels": {"env": 1}}])
    def test_refuses_what_is_no_pod(self, auditor: Client, body: Any) -> None:
        assert self.post(auditor, body).status_code == 400

    @pytest.mark.parametrize(
        ("body", "path"),
        [
            ({"pod": "shop/web-1"}, "pod"),
            ({"pod": None}, "pod"),
            ({"pod": POD, "namespaceLabels": {}}, "namespaceLabels"),
        ],
    )
    def test_takes_neither_a_name_for_a_pod_nor_a_member_that_it_does_not_know(
        self, auditor: Client, body: Any, path: str
    ) -> None:
        response = self.post(auditor, body)
        assert response.status_code == 400
        assert [each["path"] for each in response.json()["faults"]] == [path]

    def test_is_for_who_may_see_assignments(self, client: Client, outsider: Client) -> None:
        for nobody in (client, outsider):
            assert nobody.get(f"{REST}?pod=shop/web-1").status_code in {401, 403}
            assert self.post(nobody, POD).status_code in {401, 403}

    def test_is_described_and_hides_no_other_path(self, auditor: Client) -> None:
        schema = auditor.get("/api/schema/", HTTP_ACCEPT="application/json").json()
        assert set(schema["paths"]["/api/v1/assignments/which"]) == {"get", "post"}
        assert auditor.get("/api/v1/assignments/rest").json()["name"] == "rest"

    def test_is_not_asked_without_end(self, auditor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("policies.api.throttles.CheckThrottle.rate", "2/min", raising=False)
        cache.clear()  # what other tests asked
        assert [auditor.get(f"{REST}?pod=shop/gone").status_code for _ in range(3)] == [404, 404, 429]
