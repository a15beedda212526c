"""A real API server gets the PriorityClasses that are published, refuses what it refuses, and keeps what isn't Berth's."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from scheduler.cluster.client import MERGE_PATCH
from scheduler.cluster.errors import APIError, APINotFoundError
from scheduler.priority_classes.execute import LABEL, PATH
from scheduler.priority_classes.plan import ORIGIN
from tests.builders import priority_class_document
from tests.stack import BASE_DIR, Stack, eventually, make_node

pytestmark = pytest.mark.e2e
SYSTEM = ["system-cluster-critical", "system-node-critical"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("priority"), nodes=[make_node("n1")]) as stack:
        yield stack


def there(stack: Stack, name: str) -> dict[str, Any]:
    """Return the cluster's class; empty when there is none."""
    try:
        found: dict[str, Any] = json.loads(stack.client.get(path=f"{PATH}/{name}"))
    except APINotFoundError:
        return {}
    return found


def make_by_hand(stack: Stack, name: str, value: int, **fields: Any) -> dict[str, Any]:
    body = {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, **fields,
    }  # fmt: skip
    made: dict[str, Any] = json.loads(stack.client.post(path=PATH, body=json.dumps(body).encode()))
    return made


def state(stack: Stack, name: str) -> tuple[str, str]:
    """Return what the admin shows of a live class: its state, and why. Pending as long as nobody looked."""
    found = stack.sql(f"SELECT state, message, version FROM policies_clusterpriorityclass WHERE name = '{name}'")
    live = stack.sql(f"SELECT number FROM policies_priorityclassversion WHERE name = '{name}' AND state = 'published'")
    if not found or not live or found[0][2] != live[0][0]:
        return "pending", ""
    return str(found[0][0]), str(found[0][1])


def wait_for(stack: Stack, name: str, wanted: str, *, seconds: float = 30) -> str:
    """Wait until a live class is in a state; give the words that stand beside it."""
    eventually(lambda: state(stack, name)[0] == wanted, seconds=seconds, what=f"{name} is {wanted}")
    return state(stack, name)[1]


def apply_file(stack: Stack, *documents: dict[str, Any], code: int = 0) -> str:
    path = stack.folder / "classes.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return stack.manage("apply", "--publish", str(path), code=code)


def take_default(stack: Stack, name: str, value: int) -> None:
    """Publish a class as the global default, in the place of the one of the first test."""
    batch = priority_class_document("shop.batch", -10, "Batch", preemptionPolicy="Never")
    apply_file(stack, batch, priority_class_document(name, value, globalDefault=True))
    wait_for(stack, name, "applied")


def look_again(stack: Stack) -> None:
    """Publish something, so that the next look isn't a minute away."""
    number = stack.newest_revision()
    apply_file(stack, priority_class_document("tick", 1, f"after Revision {number}"))
    wait_for(stack, "tick", "applied")


def test_published_classes_are_made_and_the_system_classes_stay(stack: Stack) -> None:
    before = {name: there(stack, name)["metadata"]["resourceVersion"] for name in SYSTEM}
    apply_file(
        stack,
        priority_class_document("web", 1_000_000_000, "Pages"),
        priority_class_document("shop.batch", -10, "Batch", preemptionPolicy="Never", globalDefault=True),
    )
    wait_for(stack, "web", "applied")
    wait_for(stack, "shop.batch", "applied")
    batch = there(stack, "shop.batch")
    assert (batch["value"], batch["preemptionPolicy"], batch["globalDefault"]) == (-10, "Never", True)
    assert batch["description"] == "Batch"
    assert batch["metadata"]["labels"][LABEL] == "berth"
    assert {name: there(stack, name)["metadata"]["resourceVersion"] for name in SYSTEM} == before
    rows = stack.sql("SELECT name FROM policies_clusterpriorityclass WHERE state = 'system' ORDER BY name")
    assert [row[0] for row in rows] == SYSTEM


def test_a_pod_gets_the_priority_that_was_published(stack: Stack) -> None:
    apply_file(stack, priority_class_document("pod-class", 4321))
    wait_for(stack, "pod-class", "applied")
    stack.create_pod("first", priorityClassName="pod-class")
    assert stack.pods()["first"]["spec"]["priority"] == 4321


def test_a_class_gets_another_value_by_being_made_anew_and_its_pods_keep_theirs(stack: Stack) -> None:
    apply_file(stack, priority_class_document("valued", 100))
    wait_for(stack, "valued", "applied")
    stack.create_pod("of-before", priorityClassName="valued")
    patch = json.dumps({"value": 200}).encode()
    with pytest.raises(APIError, match="may not be changed in an update"):
        stack.client.patch(path=f"{PATH}/valued", body=patch, content_type=MERGE_PATCH)
    apply_file(stack, priority_class_document("valued", 200))
    wait_for(stack, "valued", "applied")
    stack.create_pod("of-after", priorityClassName="valued")
    priorities = {name: pod["spec"]["priority"] for name, pod in stack.pods().items() if name.startswith("of-")}
    assert priorities == {"of-before": 100, "of-after": 200}
    assert stack.sql("SELECT state, value_before, value FROM policies_priorityclassreplacement") == [("done", 100, 200)]


def test_the_global_default_gets_another_value_and_stays_it(stack: Stack) -> None:
    take_default(stack, "usual", 5)
    apply_file(stack, priority_class_document("usual", 6, globalDefault=True))
    wait_for(stack, "usual", "applied")
    found = there(stack, "usual")
    assert (found["value"], found["globalDefault"]) == (6, True)
    apply_file(stack, priority_class_document("usual", 6))
    wait_for(stack, "usual", "applied")


# Where the executor is killed: once the API server would take the new class, once it is written down, once the former one is
# deleted, once the new one is there, and once it is the global default again.
TICK_EXPIRES_SECONDS = 6.0  # a tick that beat has sent is done by then, or dropped
KILLS = ("after POST 1", "before DELETE", "after DELETE", "after POST 2", "after PATCH")


def test_an_executor_that_is_killed_at_any_step_leaves_a_class_that_is_made_anew_once(stack: Stack) -> None:
    take_default(stack, "killed", 10)
    for value, kill in enumerate(KILLS, start=11):
        before = there(stack, "killed")["metadata"]["uid"]
        # The worker itself isn't stopped: it may be in the middle of a write, which would hold up everybody's.
        stack.kill("beat", signal.SIGSTOP)
        time.sleep(TICK_EXPIRES_SECONDS)
        try:
            apply_file(stack, priority_class_document("killed", value, globalDefault=True))
            killed = subprocess.run(
                [sys.executable, "-c", KILLED, kill],
                cwd=BASE_DIR,
                env=stack.environment,
                capture_output=True,
                check=False,
            )
            assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
            left = there(stack, "killed")
        finally:
            stack.kill("beat", signal.SIGCONT)
        wait_for(stack, "killed", "applied")
        found = there(stack, "killed")
        assert (found["value"], found["globalDefault"]) == (value, True)
        assert found["metadata"]["uid"] != before
        # Nobody made it a second time.
        assert not left or left["metadata"]["uid"] in {before, found["metadata"]["uid"]}
    rows = stack.sql("SELECT state, value FROM policies_priorityclassreplacement WHERE name = 'killed' ORDER BY id")
    assert rows == [("done", value) for value, _ in enumerate(KILLS, start=11)]
    apply_file(stack, priority_class_document("killed", value))
    wait_for(stack, "killed", "applied")


# An executor of its own, beside the stack's: it kills itself as `kill -9` would.
KILLED = """
import os, signal, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
import django
django.setup()
from pathlib import Path
from django.conf import settings
from scheduler.cluster.client import Client
from scheduler.priority_classes.reconcile import look

when, method, *which = sys.argv[1].split()

class Killed(Client):
    seen = 0

    def _send(self, sent, path, **options):
        if sent == method:
            self.seen += 1
        is_it = sent == method and self.seen == int(which[0] if which else 1)
        if is_it and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = None
        try:
            answer = super()._send(sent, path, **options)
        finally:
            if is_it:
                os.kill(os.getpid(), signal.SIGKILL)
        return answer

look(Killed.connect(Path(settings.BERTH.kubeconfig)))
"""


def test_a_class_that_others_made_anew_without_a_label_is_foreign_until_it_is_deleted(stack: Stack) -> None:
    apply_file(stack, priority_class_document("remade", 100))
    wait_for(stack, "remade", "applied")
    stack.client.delete(path=f"{PATH}/remade")
    make_by_hand(stack, "remade", 7)
    look_again(stack)
    wait_for(stack, "remade", "foreign")
    apply_file(stack, priority_class_document("remade", 100, adopt=True), code=1)
    stack.client.delete(path=f"{PATH}/remade")
    look_again(stack)
    wait_for(stack, "remade", "applied")
    assert there(stack, "remade")["value"] == 100


def test_a_class_of_others_is_adopted_only_when_the_document_says_so(stack: Stack) -> None:
    made = make_by_hand(stack, "theirs", 50, description="by hand")
    apply_file(stack, priority_class_document("theirs", 50, "Berth's words"))
    assert "doesn't manage" in wait_for(stack, "theirs", "foreign")
    assert there(stack, "theirs")["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    apply_file(stack, priority_class_document("theirs", 50, "Berth's words", adopt=True, deletionPolicy="Delete"))
    wait_for(stack, "theirs", "applied")
    found = there(stack, "theirs")
    assert (found["description"], found["metadata"]["annotations"][ORIGIN]) == ("Berth's words", "adopted")
    assert found["metadata"]["uid"] == made["metadata"]["uid"]


def test_the_global_default_moves_and_pods_get_it(stack: Stack) -> None:
    apply_file(stack, priority_class_document("shop.batch", -10, "Batch", preemptionPolicy="Never", globalDefault=True))
    wait_for(stack, "shop.batch", "applied")
    apply_file(
        stack,
        priority_class_document("default", 77, globalDefault=True),
        priority_class_document("shop.batch", -10, "Batch", preemptionPolicy="Never"),
    )
    wait_for(stack, "default", "applied")
    assert not there(stack, "shop.batch").get("globalDefault")
    stack.create_pod("unnamed")
    assert stack.pods()["unnamed"]["spec"]["priority"] == 77
    said = apply_file(stack, priority_class_document("second", 78, globalDefault=True), code=1)
    assert "PriorityClasses default, second: each would be the global default, and Kubernetes allows only one" in said
    apply_file(stack, priority_class_document("default", 77))
    wait_for(stack, "default", "applied")


def test_a_second_global_default_is_refused_in_the_api_servers_words_and_taken_once_it_may(stack: Stack) -> None:
    make_by_hand(stack, "by-hand", 5, globalDefault=True)
    apply_file(stack, priority_class_document("ours", 6, globalDefault=True))
    said = wait_for(stack, "ours", "refused")
    assert "by-hand is already marked as default. Only one default can exist" in said
    assert there(stack, "ours") == {}
    stack.client.delete(path=f"{PATH}/by-hand")
    wait_for(stack, "ours", "applied")
    apply_file(stack, priority_class_document("ours", 6))
    wait_for(stack, "ours", "applied")


def test_what_others_change_is_shown_and_a_new_version_goes_over_it(stack: Stack) -> None:
    apply_file(stack, priority_class_document("drifting", 300, "ours"))
    wait_for(stack, "drifting", "applied")
    patch = json.dumps({"description": "theirs"}).encode()
    stack.client.patch(path=f"{PATH}/drifting", body=patch, content_type=MERGE_PATCH)
    assert "description is “theirs”" in wait_for(stack, "drifting", "drifted", seconds=5)
    assert there(stack, "drifting")["description"] == "theirs"
    apply_file(stack, priority_class_document("drifting", 300, "ours, second"))
    wait_for(stack, "drifting", "applied")
    assert there(stack, "drifting")["description"] == "ours, second"


@pytest.mark.parametrize(("policy", "stays"), [("Keep", True), ("Delete", False)])
def test_what_is_rolled_back_is_deleted_only_if_its_document_said_so(stack: Stack, policy: str, stays: bool) -> None:
    before = stack.newest_revision()
    name = f"short-lived-{policy.lower()}"
    apply_file(stack, priority_class_document(name, 9, deletionPolicy=policy))
    wait_for(stack, name, "applied")
    roll_back(stack, before)
    eventually(lambda: _was_looked_at(stack), what="the rollback reached the cluster")
    assert bool(there(stack, name)) is stays


def roll_back(stack: Stack, number: int) -> None:
    code = f"from policies import publishing; publishing.roll_back(to_number={number}, by='ops', reason='')"
    stack.manage("shell", "-v", "0", "-c", code)


def _was_looked_at(stack: Stack) -> bool:
    return bool(
        stack.sql(
            "SELECT 1 FROM policies_priorityclasslook WHERE holder = '' AND error = ''"
            " AND revision = (SELECT MAX(number) FROM policies_revision)"
        )
    )


def test_a_class_that_is_published_while_the_api_server_is_away_is_made_once_it_is_back(stack: Stack) -> None:
    def fault() -> str:
        return str(stack.sql("SELECT error FROM policies_priorityclasslook")[0][0])

    server = int(stack.cluster_status()["components"]["kube-apiserver"]["pid"])
    os.kill(server, signal.SIGSTOP)
    try:
        apply_file(stack, priority_class_document("late", 10))
        eventually(fault, what="the fault is kept")
        assert state(stack, "late")[0] == "pending"
    finally:
        os.kill(server, signal.SIGCONT)
    wait_for(stack, "late", "applied")
    assert there(stack, "late")["value"] == 10
    assert fault() == ""


def test_killed_workers_redis_and_api_server_make_no_difference(stack: Stack) -> None:
    stack.kill("worker")
    stack.kill("redis")
    stack.kill_component("kube-apiserver")
    apply_file(stack, priority_class_document("after-kills", 11))
    wait_for(stack, "after-kills", "applied", seconds=60)
    assert there(stack, "after-kills")["value"] == 11


def test_what_is_exported_changes_nothing_when_it_is_applied(stack: Stack) -> None:
    exported = stack.manage("export", "--kind", "PriorityClass")
    path = stack.folder / "exported.yaml"
    path.write_text(exported)
    assert "Nothing to publish" in stack.manage("apply", "--publish", str(path))
