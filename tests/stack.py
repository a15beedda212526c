"""All of Berth with a real control plane, for tests: `controlplane.up` with its own ports, folder and database."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import psycopg
import yaml

from controlplane.up import free_port
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError

BASE_DIR = Path(__file__).resolve().parent.parent
# `make cluster` has built the cluster's programs. Three times this is below pytest's own limit, which reports no cause.
READY_SECONDS = 150.0
# Time limits are for an idle machine; but three lanes of tests share two processors.
PATIENCE = 3

T = TypeVar("T")


def eventually(
    read: Callable[[], T],
    *,
    seconds: float = 60.0,
    every: float = 0.1,
    what: str = "",
    until: Callable[[T], bool] = bool,
) -> T:
    """Call `read` until its result satisfies `until`, at most for `PATIENCE` times `seconds`; returns the result."""
    limit = seconds * PATIENCE
    deadline = time.monotonic() + limit
    while True:
        found = read()
        if until(found):
            return found
        assert time.monotonic() < deadline, f"not within {limit} s: {what or read}; last: {found!r}"
        time.sleep(every)


def make_node(name: str, **labels: str) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


@cache
def _migrated(server: str) -> str:
    """Make a database with Berth's tables and return its name, for `CREATE DATABASE … TEMPLATE`."""
    url = _new_database(server, "template1")
    kept = {name: text for name, text in os.environ.items() if not name.startswith("BERTH_")}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**kept, "BERTH_STATE_DIR": folder, "BERTH_DATABASE_URL": url, "BERTH_LOCAL": "true"}
        command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(command, cwd=BASE_DIR, env=environment, check=True)
    return urlsplit(url).path.removeprefix("/")


def _new_database(server: str, template: str) -> str:
    """Make a database and return its URL."""
    name = f"stack_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    return urlsplit(server)._replace(path=f"/{name}").geturl()


class Stack:
    """A running Berth and its cluster, during a `with`."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: list[dict[str, Any]],
        node_cache_capable: bool = True,
        others: list[dict[str, Any]] | None = None,
        environment: dict[str, str] | None = None,
        bare: bool = True,
        checkout: Path = BASE_DIR,
        **extender: Any,
    ) -> None:
        """Prepare it. Unless `bare`, it has the operator, the examples and the Deployments of `make up`.

        `others` are extenders before Berth's, `environment` is added to that of Berth's processes, `extender` replaces
        members of Berth's entry in kube-scheduler's configuration, `checkout` is the folder of Berth's code.
        """
        self.folder, self._bare, self._checkout = folder, bare, checkout
        self.state = folder / "state"
        self.admin_port, self.extender_port = free_port(), free_port()
        self.admin_url = f"http://127.0.0.1:{self.admin_port}"
        more = environment or {}
        scheme = "https" if "BERTH_EXTENDER_TLS_CERT_FILE" in more else "http"
        self.extender_url = f"{scheme}://127.0.0.1:{self.extender_port}"
        probes = more.get("BERTH_EXTENDER_HEALTH_BIND", "")
        self.probes_url = f"http://{probes}" if probes else self.extender_url
        self._write_nodes(nodes)
        self._write_scheduler_config({"nodeCacheCapable": node_cache_capable, **extender}, others or [])
        self._environment = {name: text for name, text in os.environ.items() if not name.startswith("BERTH_")}
        self._environment |= {"BERTH_STATE_DIR": str(self.state), **more}
        for name in ("BERTH_CACHE_DIR", "BERTH_GO", "BERTH_KUBE_ASSETS"):
            if name in os.environ:
                self._environment[name] = os.environ[name]
        if database := self._make_database():
            self._environment["BERTH_DATABASE_URL"] = database
        self._process: subprocess.Popen[bytes] | None = None
        self._published: tuple[dict[str, Any] | Path, ...] = ()
        self._log = (folder / "up.log").open("ab")

    def _write_nodes(self, nodes: list[dict[str, Any]]) -> None:
        self._nodes_file = self.folder / "nodes.yaml"
        self._nodes_file.write_text(yaml.safe_dump_all(nodes))

    def _write_scheduler_config(self, extender: dict[str, Any], others: list[dict[str, Any]]) -> None:
        document = yaml.safe_load((BASE_DIR / "deploy" / "kube-scheduler" / "config.yaml").read_text())
        document["extenders"][0] |= {"urlPrefix": self.extender_url, **extender}
        document["extenders"] = others + document["extenders"]
        self._scheduler_config = self.folder / "scheduler.yaml"
        self._scheduler_config.write_text(yaml.safe_dump(document))

    def _make_database(self) -> str:
        """Make a database on the tests' PostgreSQL server; returns its URL, empty without a server, for SQLite.

        It is migrated already, except for an older checkout: migrations take 3 s of a processor at each start.
        """
        server = os.environ.get("BERTH_DATABASE_URL", "")
        if not server.startswith("postgres"):
            return ""
        return _new_database(server, _migrated(server) if self._checkout == BASE_DIR else "template1")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start, and wait until Pods can be scheduled."""
        command = [sys.executable, "-m", "controlplane.up", *(["--bare"] if self._bare else [])]
        command += ["--admin-port", str(self.admin_port), "--extender-port", str(self.extender_port)]
        command += ["--nodes-file", str(self._nodes_file), "--scheduler-config", str(self._scheduler_config)]
        self._process = subprocess.Popen(
            command,
            cwd=self._checkout,
            env=self._environment,
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
        )
        try:
            eventually(self._is_ready, seconds=READY_SECONDS, every=0.2, what="the stack is ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._state_of_parts()}") from error
        self.client = Client.connect(self.state / "kubeconfig")

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"ended:\n{(self.folder / 'up.log').read_text()[-4000:]}"
        return (
            self.cluster_status().get("phase") == "ready" and self.is_up(self.probes_url) and self.is_up(self.admin_url)
        )

    def _state_of_parts(self) -> str:
        """Return the diagnosis of a slow start: the running processes, and the end of each log."""
        up = f"admin {self.is_up(self.admin_url)}, extender {self.is_up(self.probes_url)}, {self.cluster_status()}"
        logs = (self.folder / "up.log", *sorted(self.state.glob("logs/*.log")))
        return "\n".join([up, *(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}" for log in logs)])

    def is_up(self, url: str) -> bool:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def cluster_status(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.state / "cluster" / "status.json").read_text()))
        except FileNotFoundError:
            return {}

    def stop(self) -> None:
        """End everything, as Ctrl-C does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(timeout=60)
        self._log.close()

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to a process of Berth and to its children, as in a crash; it is restarted.

        A process that isn't running at this moment is waited for: an earlier kill of Redis may have ended it.
        """
        return eventually(lambda: self._signalled(name, number), what=f"{name} is there")

    def _signalled(self, name: str, number: int) -> int:
        pid = self.pid(name)
        try:
            if pid:
                os.killpg(pid, number)
        except ProcessLookupError:
            return 0
        return pid

    def pid(self, name: str) -> int:
        """Return a process's id; 0 while it isn't running, or its file is being written."""
        try:
            return int((self.state / "pids" / name).read_text() or 0)
        except FileNotFoundError:
            return 0

    def kill_component(self, name: str) -> None:
        """Kill -9 a component of the cluster; it is restarted."""
        os.kill(int(self.cluster_status()["components"][name]["pid"]), signal.SIGKILL)

    def settings_of_another(self, folder: Path) -> dict[str, str]:
        """Return the environment of one more extender, with a state folder of its own, on the stack's database and cluster."""
        settings = self._settings()
        settings.setdefault("BERTH_DATABASE_URL", f"sqlite:///{self.state / 'berth.sqlite3'}")
        return {**settings, "BERTH_STATE_DIR": str(folder)}

    def _settings(self) -> dict[str, str]:
        """Return the settings that `controlplane.up` wrote for other shells, but for the address of its extender."""
        written = dict(line.split("=", 1) for line in (self.state / "env").read_text().splitlines())
        return {name: text for name, text in written.items() if name != "BERTH_EXTENDER_BIND"}

    @property
    def environment(self) -> dict[str, str]:
        """The environment of another shell."""
        return {**self._environment, "BERTH_STATE_DIR": str(self.state)}

    def manage(self, *arguments: str, code: int = 0) -> str:
        """Run a `manage.py` command as in another shell; returns its output."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=self._checkout,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def publish(self, *documents: dict[str, Any] | Path) -> None:
        """Apply and publish documents, and wait until the extender serves them; unchanged documents take no time."""
        if self._published == documents:
            return
        self._published = documents
        files = []
        for document in documents:
            if isinstance(document, Path):
                files.append(document)
                continue
            path = self.folder / f"{uuid.uuid4().hex}.yaml"
            path.write_text(yaml.safe_dump(document))
            files.append(path)
        self.manage("apply", "--publish", *map(str, files))
        self.wait_until_served()

    def publish_all(self, documents: list[dict[str, Any]]) -> None:
        """Apply and publish documents in one file."""
        path = self.folder / f"{uuid.uuid4().hex}.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        self.publish(path)

    def environment_of_a_replica(self, folder: Path) -> dict[str, str]:
        """Return the settings of one more extender of this Berth, with a state folder of its own."""
        settings = self._settings()
        settings |= {name: text for name, text in self._environment.items() if name.startswith("BERTH_")}
        return settings | {"BERTH_STATE_DIR": str(folder / "state"), "BERTH_ROLE": "extender"}

    def wait_until_served(self) -> float:
        """Wait until the extender, and a running binder, serve the newest Revision; returns the seconds."""
        started = time.monotonic()
        wanted = self.newest_revision()
        eventually(lambda: self.metric("berth_revision") >= wanted, seconds=10, every=0.02, what=f"Revision {wanted}")
        eventually(lambda: not 0 <= self.binder_metric("berth_revision") < wanted, seconds=10, every=0.02)
        return time.monotonic() - started

    def newest_revision(self) -> int:
        return int(self.sql("SELECT COALESCE(MAX(number), 0) FROM policies_revision")[0][0])

    def metric(self, name: str) -> float:
        """Return the sum of the extender's metric; -1 while it doesn't answer."""
        return self._metric_at(self.probes_url, name)

    def binder_metric(self, name: str) -> float:
        """Return the sum of the binder's metric; -1 while it doesn't answer, or without a binder."""
        binder = self._settings().get("BERTH_BINDER_BIND", "")
        return self._metric_at(f"http://{binder}", name) if binder else -1.0

    def _metric_at(self, url: str, name: str) -> float:
        try:
            with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return -1.0
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))

    @property
    def database_url(self) -> str:
        """The PostgreSQL database; empty with SQLite."""
        return self._environment.get("BERTH_DATABASE_URL", "")

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        """Run a query on Berth's database, PostgreSQL or SQLite."""
        if database := self._environment.get("BERTH_DATABASE_URL"):
            with psycopg.connect(database) as connection:
                return list(connection.execute(query).fetchall())
        import sqlite3

        with sqlite3.connect(self.state / "berth.sqlite3", timeout=20) as connection:
            return list(connection.execute(query).fetchall())

    def call(
        self, verb: str, body: bytes, *, content_type: str | None = "application/json", timeout: float = 60
    ) -> tuple[int, Any]:
        """POST to the extender; returns the status and the decoded answer."""
        headers = {} if content_type is None else {"Content-Type": content_type}
        request = urllib.request.Request(f"{self.extender_url}/{verb}", data=body, headers=headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def create_namespace(self, name: str) -> None:
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        eventually(lambda: self._post("/api/v1/namespaces", document), what=f"namespace {name} created")

    def create_pod(
        self, name: str, *, namespace: str = "default", labels: dict[str, str] | None = None, **spec: Any
    ) -> str:
        """Create a Pod; returns its UID."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "busybox"}], **spec},
        }
        made = eventually(lambda: self._post(f"/api/v1/namespaces/{namespace}/pods", pod), what=f"Pod {name} created")
        return str(made["metadata"]["uid"])

    def _post(self, path: str, document: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return dict(json.loads(self.client.post(path=path, body=json.dumps(document).encode())))
        except APIError:
            return None

    def pods(self, namespace: str = "default") -> dict[str, dict[str, Any]]:
        """All Pods of a namespace by name."""
        found = self.client.list_pods()
        return {pod["metadata"]["name"]: pod for pod in found if pod["metadata"]["namespace"] == namespace}

    def node_of(self, name: str) -> str:
        return str(self.pods()[name]["spec"].get("nodeName", ""))

    def wait_for_node(self, name: str, seconds: float = 30) -> str:
        """Wait until a Pod is on a node; returns the node."""
        return eventually(lambda: self.node_of(name), seconds=seconds, what=f"{name} on a node")

    def scheduled_message(self, name: str) -> str:
        """Return the message of the condition PodScheduled; empty while there is none."""
        conditions = self.pods()[name]["status"].get("conditions") or []
        return next((str(found.get("message", "")) for found in conditions if found["type"] == "PodScheduled"), "")

    def delete_all_pods(self, namespace: str = "default") -> None:
        for name in self.pods(namespace):
            self.client.delete(path=f"/api/v1/namespaces/{namespace}/pods/{name}")
        eventually(lambda: not self.pods(namespace), what="all Pods gone")
