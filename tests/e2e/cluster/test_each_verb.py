"""No verb of base/rbac.yaml is superfluous: taken away, `doctor` names it with its reason, and the act that it is for is refused.

Every verb of the file is a row, so one that is added tomorrow is taken away tomorrow. A round takes one from each account, and
gives it back afterwards. Run with -s, it prints the table.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from scheduler.cluster.client import MERGE_PATCH, Client
from scheduler.cluster.errors import APIConflictError, APIForbiddenError
from scheduler.doctor.reviews import Lack, lacking
from scheduler.doctor.rights import COMPONENTS, READABLE_KINDS
from scheduler.node_now import node_now
from scheduler.priority_classes.execute import read_classes
from tests.e2e.cluster.conftest import Cluster
from tests.e2e.cluster.test_manifests import MANIFESTS, kubectl
from tests.e2e.cluster.waiting import eventually

pytestmark = pytest.mark.e2e
RBAC = MANIFESTS / "base" / "rbac.yaml"

_OF_THE_CLUSTER = {
    *("nodes", "namespaces", "persistentvolumes", "storageclasses", "csinodes", "volumeattachments", "priorityclasses"),
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "tried"},
    "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "busybox"}]},
}
LABELS = {"app": "tried"}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "tried"},
    "spec": {
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": POD["spec"]},
        "replicas": 0,
    },
}
CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "tried"},
    "value": 7,
}
EVENT = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "tried", "namespace": "default"},
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "action": "Binding",
    "reason": "Scheduled",
    "type": "Normal",
    "reportingController": "berth",
    "reportingInstance": "berth-0",
    "regarding": {"kind": "Pod", "name": "tried", "namespace": "default"},
}
BINDING = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "tried"},
    "target": {"kind": "Node", "name": "tried"},
}


def lease(name: str) -> dict[str, Any]:
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": "berth"}}
    return head | {"spec": {"holderIdentity": "nobody", "leaseDurationSeconds": 1}}


class Verb(NamedTuple):
    """One verb of one rule of one role in the file."""

    component: str
    role: str
    rule: int
    group: str
    resource: str
    verb: str
    name: str

    @property
    def path_of_role(self) -> str:
        place = "clusterroles" if self.role == "ClusterRole" else "namespaces/berth/roles"
        return f"/apis/rbac.authorization.k8s.io/v1/{place}/berth-{self.component}"


def documents() -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    for each in yaml.safe_load_all(RBAC.read_text(encoding="utf-8")):
        if each["kind"] in {"ClusterRole", "Role"}:
            yield each["kind"], each["metadata"]["name"].removeprefix("berth-"), each["rules"]


def verbs() -> list[Verb]:
    return [
        Verb(component, role, number, group, resource, verb, (rule.get("resourceNames") or [""])[0])
        for role, component, rules in documents()
        for number, rule in enumerate(rules)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def rounds() -> list[list[Verb]]:
    """Return what is taken away together: of each account one verb."""
    of_each = [[each for each in verbs() if each.component == component] for component in COMPONENTS]
    return [[each for each in taken if each] for taken in zip_longest(*of_each)]


def set_rules(cluster: Cluster, verb: Verb, *, without: bool) -> None:
    """Write the role of a verb as the file has it, or without the verb."""
    rules = next(rules for role, component, rules in documents() if (role, component) == (verb.role, verb.component))
    if without:
        rule = rules[verb.rule]
        rules[verb.rule] = rule | {"verbs": [each for each in rule["verbs"] if each != verb.verb]}
    role = json.loads(cluster.client.get(path=verb.path_of_role))
    # RBAC takes no rule without verbs.
    changed = role | {"rules": [rule for rule in rules if rule["verbs"]]}
    cluster.client.put(path=verb.path_of_role, body=json.dumps(changed).encode())


def act(client: Client, verb: Verb) -> None:
    """Do what the verb is for; the API server changes nothing by it.

    Raises:
        APIForbiddenError: the account may not.
    """
    root = f"/apis/{verb.group}/v1" if verb.group else "/api/v1"
    resource, _, part = verb.resource.partition("/")
    place = {"leases": "namespaces/berth/"}.get(resource, "" if resource in _OF_THE_CLUSTER else "namespaces/default/")
    name = {"namespaces": "default"}.get(resource, verb.name or "tried")
    thing = f"{root}/{place}{resource}/{name}" + (f"/{part}" if part else "")
    dry = "dryRun=All"
    match verb.verb:
        case "list":
            client.get(path=f"{root}/{resource}", query={"limit": "1"})
        case "watch":
            client.stream(
                path=f"{root}/{resource}", query={"watch": "1", "timeoutSeconds": "1"}, read_timeout=5
            ).close()
        case "get":
            client.get(path=thing)
        case "create":
            new = {"pods": POD, "leases": lease("tried"), "events": EVENT, "priorityclasses": CLASS}
            body = BINDING if part else with_another_name(new[resource])
            client.post(path=f"{thing if part else f'{root}/{place}{resource}'}?{dry}", body=json.dumps(body).encode())
        case "update":
            client.put(path=f"{thing}?{dry}", body=json.dumps(json.loads(client.get(path=thing))).encode())
        case "patch":
            body = {"metadata": {"annotations": {"tried": "yes"}}}
            client.patch(path=f"{thing}?{dry}", body=json.dumps(body).encode(), content_type=MERGE_PATCH)
        case "delete":
            client.delete(path=f"{thing}?{dry}")


def with_another_name(document: dict[str, Any]) -> dict[str, Any]:
    return document | {"metadata": document["metadata"] | {"name": "another"}}


def is_refused(client: Client, verb: Verb) -> bool:
    try:
        act(client, verb)
    except APIForbiddenError:
        return True
    return False


@pytest.fixture(scope="module")
def accounts(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    """Apply the accounts with their rights, make what is asked about, and return a client by each account's own token."""
    for name in ("namespace", "accounts", "rbac"):
        kubectl(cluster, "apply", "--server-side", "--namespace=berth", "-f", str(MANIFESTS / "base" / f"{name}.yaml"))
    made = {
        "/api/v1/namespaces/default/pods": [POD],
        "/apis/apps/v1/namespaces/default/deployments": [DEPLOYMENT],
        "/apis/scheduling.k8s.io/v1/priorityclasses": [CLASS],
        "/apis/coordination.k8s.io/v1/namespaces/berth/leases": [lease("berth-binding"), lease("berth-binder")],
    }
    for path, objects in made.items():
        for each in objects:
            with suppress(APIConflictError):
                cluster.client.post(path=path, body=json.dumps(each).encode())
    with suppress(APIConflictError):
        cluster.create_node("tried")
    folder = tmp_path_factory.mktemp("accounts")
    yield {component: client_of(cluster, component, folder) for component in COMPONENTS}
    for path, objects in made.items():
        for each in objects:
            cluster.client.delete(path=f"{path}/{each['metadata']['name']}", body=b'{"gracePeriodSeconds": 0}')
    cluster.delete_node("tried")
    kubectl(cluster, "delete", "-f", str(RBAC))


def client_of(cluster: Cluster, component: str, folder: Path) -> Client:
    path = f"/api/v1/namespaces/berth/serviceaccounts/berth-{component}/token"
    wish = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = json.loads(cluster.client.post(path=path, body=json.dumps(wish).encode()))["status"]["token"]
    kubeconfig = yaml.safe_load((cluster.folder / "kubeconfig").read_text())
    kubeconfig["users"][0]["user"] = {"token": token}
    own = folder / component
    own.write_text(yaml.safe_dump(kubeconfig))
    return Client.connect(own)


def told(cluster: Cluster) -> list[Lack]:
    return lacking(cluster.client, "berth", READABLE_KINDS)


def test_a_verb_that_is_taken_away_is_named_by_doctor_and_its_act_is_refused(
    cluster: Cluster, accounts: dict[str, Client]
) -> None:
    assert eventually(lambda: told(cluster) == [])
    rows = []
    for taken in rounds():
        refused_before = [each for each in taken if is_refused(accounts[each.component], each)]
        assert refused_before == [], "their accounts have the right, and may not"
        for each in taken:
            set_rules(cluster, each, without=True)
        named = named_once_heard(cluster, {(each.component, each.verb, each.resource) for each in taken})
        not_refused = [each for each in taken if not is_refused(accounts[each.component], each)]
        assert not_refused == [], "the act goes on without its right"
        for each in taken:
            set_rules(cluster, each, without=False)
        assert eventually(lambda: told(cluster) == [])
        rows += [(*key, reason) for key, reason in named.items()]
    print(
        "\n".join(
            f"{component:<10}{verb:<8}{resource:<26}{reason}" for component, verb, resource, reason in sorted(rows)
        )
    )
    print(f"{len(rows)} of {len(verbs())} verbs: each named by doctor, each act refused")


def named_once_heard(cluster: Cluster, wanted: set[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """Return what doctor names, with its reasons, as soon as the API server has heard of changed roles: by a watch."""
    named: dict[tuple[str, str, str], str] = {}

    def is_named() -> bool:
        named.clear()
        named.update({(each.component, each.verb, each.resource): each.reason for each in told(cluster)})
        return named.keys() == wanted

    assert eventually(is_named), f"a right that is given twice, or is missing: {named.keys() ^ wanted}"
    return named


@pytest.mark.django_db
def test_the_admins_account_may_ask_for_what_pages_of_nodes_and_plans_show(accounts: dict[str, Client]) -> None:
    admin = accounts["admin"]
    assert node_now(admin, "tried").pods == 0
    assert "tried" in {found.name for found in read_classes(admin)}


def test_every_verb_of_the_file_is_one_of_a_process() -> None:
    assert {each.component for each in verbs()} == set(COMPONENTS)
    assert len(verbs()) > 90


def test_the_second_scheduler_leads_by_each_verb_of_its_own_role(cluster: Cluster, tmp_path: Path) -> None:
    """Kubernetes ships its other roles; `doctor` knows no account of kube-scheduler's."""
    component = MANIFESTS / "components" / "second-scheduler" / "scheduler.yaml"
    documents = [each for each in yaml.safe_load_all(component.read_text()) if each["kind"] != "Deployment"]
    (role,) = [each for each in documents if each["kind"] == "Role"]
    kubectl(cluster, "apply", "-f", str(MANIFESTS / "base" / "namespace.yaml"))
    kubectl(cluster, "apply", "-f", "-", given=yaml.safe_dump_all([*documents, lease("berth-scheduler")]))
    client = client_of(cluster, "scheduler", tmp_path)
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/berth/roles/berth-scheduler"
    for number, rule in enumerate(role["rules"]):
        for name in rule["verbs"]:
            verb = Verb(
                "scheduler", "Role", number, "coordination.k8s.io", "leases", name, *rule.get("resourceNames", [""])
            )
            assert eventually(lambda verb=verb: not is_refused(client, verb)), verb
            less = [*role["rules"]]
            less[number] = rule | {"verbs": [each for each in rule["verbs"] if each != name]}
            given = role | {"rules": [each for each in less if each["verbs"]]}
            cluster.client.put(path=path, body=json.dumps(given).encode())
            assert eventually(lambda verb=verb: is_refused(client, verb)), verb
            cluster.client.put(path=path, body=json.dumps(role).encode())
    kubectl(cluster, "delete", "-f", "-", given=yaml.safe_dump_all(documents))
