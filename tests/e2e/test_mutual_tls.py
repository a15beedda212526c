"""The real kube-scheduler and Berth, each with a certificate: who is let in places Pods, who isn't doesn't."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cluster.errors import APIError
from tests.certificates import Authority, Files, write
from tests.e2e.conftest import NODES
from tests.extender import free_port
from tests.readme import blocks
from tests.scheduler_files import Host, at_rest, kubeconfig, started
from tests.stack import BASE_DIR, Stack, eventually

pytestmark = pytest.mark.e2e

SCHEDULER = "kube-scheduler"
KUBERNETES = BASE_DIR / "deploy" / "kubernetes"


class Secured(Stack):
    """A stack with TLS between kube-scheduler and the extender."""

    def __init__(self, folder: Path) -> None:
        self.files = Files(folder / "tls")
        self.client_cert, self.client_key = folder / "tls" / "scheduler.crt", folder / "tls" / "scheduler.key"
        self.give(self.files.clients.sign(f"system:{SCHEDULER}", client=True))
        # kube-scheduler reads its authority once and the pair for each handshake (kube-scheduler v1.36.3, client-go
        # transport.TLSConfigFor).
        tls = {
            "caFile": str(self.files.server_ca),
            "certFile": str(self.client_cert),
            "keyFile": str(self.client_key),
        }
        probes = {"BERTH_EXTENDER_HEALTH_BIND": f"127.0.0.1:{free_port()}"}
        super().__init__(folder, nodes=NODES, environment=self.files.environment() | probes, tlsConfig=tls)

    def give(self, pair: tuple[bytes, bytes]) -> None:
        """Put a certificate and its key where kube-scheduler reads them."""
        write(self.client_cert, pair[0])
        write(self.client_key, pair[1])

    def restart_scheduler(self) -> None:
        """End kube-scheduler, and so its connections."""
        before = self.cluster_status()["components"][SCHEDULER]["pid"]
        self.kill_component(SCHEDULER)
        eventually(lambda: self.cluster_status()["components"][SCHEDULER]["pid"] not in {0, before}, what="it is back")

    def last_error(self, pod: str) -> str:
        """What kube-scheduler said last of a Pod whose scheduling failed with an error, not with a refusal."""
        conditions = self.pods()[pod]["status"].get("conditions") or []
        return next((str(found["message"]) for found in conditions if found.get("reason") == "SchedulerError"), "")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("secured")) as stack:
        stack.publish(BASE_DIR / "examples" / "shortest-name.yaml", BASE_DIR / "examples" / "policy-by-label.yaml")
        yield stack


def good_pair(stack: Secured) -> tuple[bytes, bytes]:
    return stack.files.clients.sign(f"system:{SCHEDULER}", client=True)


def test_a_scheduler_with_a_good_certificate_places_pods_by_berth_s_rules(stack: Secured) -> None:
    stack.create_pod("tiny", labels={"policy": "shortest-name"})
    stack.create_pod("much-too-long", labels={"policy": "shortest-name"})

    assert stack.wait_for_node("tiny") == "n1"
    eventually(
        lambda: "the Pod's name has 5 characters or more" in stack.scheduled_message("much-too-long"), what="refused"
    )
    eventually(lambda: stack.sql("SELECT COUNT(*) FROM scheduler_decision")[0][0] >= 2, what="Decisions")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(lambda _: Authority("clients").sign(f"system:{SCHEDULER}", client=True), "", id="wrong authority"),
        pytest.param(
            lambda stack: stack.files.clients.sign(f"system:{SCHEDULER}", client=True, days=-1),
            "expired certificate",
            id="expired",
        ),
        pytest.param(
            lambda stack: stack.files.clients.sign("system:kube-proxy", client=True), "code 403", id="wrong name"
        ),
    ],
)
def test_a_scheduler_with_a_bad_certificate_places_nothing_until_it_has_a_good_one(
    stack: Secured, request: pytest.FixtureRequest, make: Any, said: str
) -> None:
    name = f"waits-{request.node.callspec.id.replace(' ', '-')}"
    stack.give(make(stack))
    stack.restart_scheduler()
    stack.create_pod(name)

    message = eventually(lambda: stack.last_error(name), what="the Pod has an error")
    assert said in message
    assert stack.node_of(name) == ""

    stack.give(good_pair(stack))
    assert stack.wait_for_node(name, seconds=60)


def test_a_scheduler_without_a_certificate_places_nothing(stack: Secured) -> None:
    """Its configuration names none: the local cluster's copy of it is changed, and put back."""
    copies = [path for path in (stack.state / "cluster").rglob("*.yaml") if b"tlsConfig" in path.read_bytes()]
    assert len(copies) == 1
    given = copies[0].read_bytes()
    pair = {b"certFile: " + str(stack.client_cert).encode(), b"keyFile: " + str(stack.client_key).encode()}
    lines = given.splitlines()
    without = [line for line in lines if line.strip() not in pair]
    assert len(without) == len(lines) - len(pair)
    copies[0].write_bytes(b"\n".join(without) + b"\n")
    stack.restart_scheduler()
    stack.create_pod("waits-without")

    message = eventually(lambda: stack.last_error("waits-without"), what="the Pod has an error")
    assert "certificate required" in message
    assert stack.node_of("waits-without") == ""

    copies[0].write_bytes(given)
    stack.restart_scheduler()
    assert stack.wait_for_node("waits-without", seconds=60)


def test_certificates_and_authorities_are_changed_while_pods_come(stack: Secured) -> None:
    started_at = stack.metric("process_start_time_seconds")
    files = stack.files
    new = Authority("new clients")

    def place(name: str) -> None:
        stack.create_pod(name)
        assert stack.wait_for_node(name)
        assert events_of(stack, name, "FailedScheduling") == []

    place("before")
    files.renew_server()
    place("after-the-server-s")
    write(files.client_ca, files.clients.pem + new.pem)
    place("with-both-authorities")
    stack.give(new.sign(f"system:{SCHEDULER}", client=True))
    stack.restart_scheduler()
    place("with-the-new-certificate")
    write(files.client_ca, new.pem)
    place("with-the-new-authority-alone")

    stack.give(good_pair(stack))
    stack.restart_scheduler()
    stack.create_pod("with-the-old-certificate")
    assert eventually(lambda: stack.last_error("with-the-old-certificate"), what="the Pod has an error")
    write(files.client_ca, files.clients.pem)
    assert stack.wait_for_node("with-the-old-certificate", seconds=60)
    assert stack.metric("process_start_time_seconds") == started_at
    assert stack.metric("berth_tls_reload_failures_total") == 0


def placed_by_rule(stack: Stack, prefix: str, **spec: Any) -> None:
    """Let one Pod be placed by a rule of Berth's, and one be refused by it."""
    stack.create_pod(prefix, labels={"policy": "shortest-name"}, **spec)
    stack.create_pod(f"{prefix}-much-too-long", labels={"policy": "shortest-name"}, **spec)
    assert stack.wait_for_node(prefix, seconds=60) == "n1"
    refused = "the Pod's name has 5 characters or more"
    eventually(lambda: refused in stack.scheduled_message(f"{prefix}-much-too-long"), what="refused")


def holder_of(stack: Stack, lease: str) -> str:
    found = json.loads(stack.client.get(path=f"/apis/coordination.k8s.io/v1/namespaces/{lease}"))
    return str(found["spec"]["holderIdentity"])


def test_kubeadms_static_pod_with_our_lines_leads_and_places_pods_by_rule(stack: Secured, tmp_path: Path) -> None:
    """Its command line as written, its files where its mounts say, and the rights of the user of kubeadm's scheduler.conf."""
    manifest = yaml.safe_load((KUBERNETES / "kubeadm" / "kube-scheduler.yaml").read_text())
    configuration = (KUBERNETES / "kubeadm" / "config.yaml").read_text()
    assert "https://10.96.80.10:8010" in configuration
    folder = "/etc/kubernetes/berth"
    files = {
        "/etc/kubernetes/scheduler.conf": kubeconfig(stack, **{"as": f"system:{SCHEDULER}"}),
        f"{folder}/config.yaml": configuration.replace("https://10.96.80.10:8010", stack.extender_url).encode(),
        f"{folder}/server-ca.crt": stack.files.server_ca.read_bytes(),
        f"{folder}/client.crt": stack.client_cert.read_bytes(),
        f"{folder}/client.key": stack.client_key.read_bytes(),
    }
    with at_rest(stack), started(stack, Host(tmp_path, manifest["spec"], files)) as log:
        placed_by_rule(stack, "kadm")
        assert holder_of(stack, "kube-system/leases/kube-scheduler")
        assert "forbidden" not in log.read_text()


def test_the_commands_for_kubeadm_lay_what_its_manifest_mounts(stack: Secured, tmp_path: Path) -> None:
    """As typed on a control-plane node, whose /etc/kubernetes is a folder here; no kubelet looks at it."""
    copy, reach, edit, look, back = blocks("sh", BASE_DIR / "docs" / "howto/kubeadm.md")
    root, home = tmp_path / "etc", tmp_path / "home"
    for place in (root / "manifests", home):
        place.mkdir(parents=True)
    (root / "manifests" / "kube-scheduler.yaml").write_text("as kubeadm wrote it\n")
    apply(stack, _SERVICE)
    for name, files in {
        "berth-server-ca": {"tls.crt": stack.files.server_ca},
        "berth-client-tls": {"tls.crt": stack.client_cert, "tls.key": stack.client_key},
    }.items():
        data = {key: base64.b64encode(path.read_bytes()).decode() for key, path in files.items()}
        apply(
            stack,
            yaml.safe_dump(
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "berth"}, "data": data}
            ),
        )

    def typed(block: str) -> str:
        text = (
            block.replace("/etc/kubernetes", str(root))
            .replace(":8010", f":{stack.extender_port}")
            .replace(" --watch", "")
        )
        given = {
            "HOME": str(home),
            "EDITOR": "sed -i s/wrote/changed/",
            "KUBECONFIG": str(stack.state / "kubeconfig"),
            "address": "127.0.0.1",
        }
        done = subprocess.run(
            ["bash", "-e", "-c", text],
            cwd=BASE_DIR,
            env=os.environ | given,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, text + done.stderr
        return done.stdout

    typed(copy)
    configuration = yaml.safe_load((root / "berth" / "config.yaml").read_text())
    assert configuration["extenders"][0]["urlPrefix"] == "https://10.96.80.7:8010"
    assert (root / "berth" / "client.key").stat().st_mode & 0o77 == 0
    for own, given in {
        "server-ca.crt": stack.files.server_ca,
        "client.crt": stack.client_cert,
        "client.key": stack.client_key,
    }.items():
        assert (root / "berth" / own).read_bytes() == given.read_bytes()
    assert typed(reach) == "200\n"
    typed(edit)
    assert (root / "manifests" / "kube-scheduler.yaml").read_text() == "as kubeadm changed it\n"
    typed(look)
    typed(back)
    assert (root / "manifests" / "kube-scheduler.yaml").read_text() == "as kubeadm wrote it\n"


_SERVICE = """
apiVersion: v1
kind: Namespace
metadata: {name: berth}
---
apiVersion: v1
kind: Service
metadata: {name: berth-extender, namespace: berth}
spec: {clusterIP: 10.96.80.7, ports: [{port: 8010}]}
"""


def test_the_second_kube_scheduler_places_the_pods_that_name_it_with_the_rights_of_its_manifest(
    stack: Secured, tmp_path: Path
) -> None:
    """As the component's files say; but its kubeconfig is named, as this machine is no Pod."""
    component = KUBERNETES / "components" / "second-scheduler"
    documents = list(yaml.safe_load_all((component / "scheduler.yaml").read_text()))
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    apply(stack, yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "berth"}}))
    apply(stack, yaml.safe_dump_all(each for each in documents if each is not deployment))
    spec = deployment["spec"]["template"]["spec"]
    configuration = yaml.safe_load((component / "config.yaml").read_text())
    configuration["extenders"][0]["urlPrefix"] = stack.extender_url
    own = tmp_path / "kubeconfig"
    own.write_bytes(kubeconfig(stack, token=token_of(stack, spec["serviceAccountName"])))
    configuration["clientConnection"] = {"kubeconfig": str(own)}

    secrets = {
        ("berth-client-tls", "tls.crt"): stack.client_cert,
        ("berth-client-tls", "tls.key"): stack.client_key,
        ("berth-server-ca", "tls.crt"): stack.files.server_ca,
    }
    places = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    files = {
        f"{places[volume['name']]}/{item['path']}": secrets[source["secret"]["name"], item["key"]].read_bytes()
        for volume in spec["volumes"]
        for source in volume.get("projected", {}).get("sources", ())
        for item in source["secret"]["items"]
    }
    files[f"{places['configuration']}/config.yaml"] = yaml.safe_dump(configuration).encode()
    with started(stack, Host(tmp_path / "root", spec, files)) as log:
        placed_by_rule(stack, "scnd", schedulerName="berth-extended")
        assert holder_of(stack, "berth/leases/berth-scheduler")
        assert "forbidden" not in log.read_text()


def apply(stack: Stack, text: str) -> None:
    kubectl = shutil.which("kubectl")
    assert kubectl is not None
    command = [kubectl, "--kubeconfig", str(stack.state / "kubeconfig"), "apply", "-f", "-"]
    subprocess.run(command, input=text, check=True, capture_output=True, text=True)


def token_of(stack: Stack, account: str) -> str:
    path = f"/api/v1/namespaces/berth/serviceaccounts/{account}/token"
    wish = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    return str(json.loads(stack.client.post(path=path, body=json.dumps(wish).encode()))["status"]["token"])


def events_of(stack: Stack, pod: str, reason: str) -> list[str]:
    """Notes of the events with a reason about a Pod."""
    try:
        events = json.loads(stack.client.get(path="/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
    except APIError as error:
        pytest.fail(f"events can't be read: {error}")
    return [event["note"] for event in events if event["reason"] == reason and event["regarding"]["name"] == pod]
