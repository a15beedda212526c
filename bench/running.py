"""The programs that benches over the network run: an API server with nodes, Berth as `make up` starts it, Go extenders, kube-scheduler."""

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from policies.engine.default_set import FILTERS, SCORES
from scheduler.cluster.client import Client

BASE_DIR = Path(__file__).resolve().parent.parent
GO_MODULE = BASE_DIR / "deploy" / "localcluster"
LOCALCLUSTER = GO_MODULE / "localcluster"
EXTENDER_CALLER = "extender-caller"
GO_PROGRAMS = ("extender-typed", "extender-names", EXTENDER_CALLER)
# Long enough to build the cluster's programs on a new machine.
READY_SECONDS = 1200.0

# Shares of one core: the use of all idle processes of Berth, and the most that they use when idle on a busy machine.
_IDLE_SHARE, _REST_SHARE = 0.05, 0.25
_STEADY_SECONDS = 10
_AT_ONCE = 16
_SAYS = "binaries in "
_TICKS = os.sysconf("SC_CLK_TCK")

Json = dict[str, Any]


def machine() -> str:
    """Return a description of the machine and of Python, whose build makes a difference of a quarter."""
    return f"Python {platform.python_version()} of {sys.base_prefix}; {os.cpu_count()} cores"


def cpu_of_server() -> float:
    """Return the processor seconds of the PostgreSQL process behind Django's connection; it runs on this machine."""
    from django.db import connection

    connection.ensure_connection()
    process: int = connection.connection.info.backend_pid
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


def server_version() -> int:
    """Return the major version of the PostgreSQL behind Django's connection."""
    from django.db import connection

    connection.ensure_connection()
    version: int = connection.connection.info.server_version
    return version // 10_000


def free_port() -> int:
    """Return an unused TCP port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(holds: Callable[[], object], what: str, *, seconds: float = 120.0, every: float = 0.05) -> None:
    """Wait until something holds.

    Raises:
        TimeoutError: it didn't in time.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            message = f"not within {seconds:.0f} s: {what}"
            raise TimeoutError(message)
        time.sleep(every)


def answers(url: str) -> bool:
    """Return whether a server says that it is ready."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - our own servers
            return bool(answer.status == 200)  # noqa: PLR2004
    except OSError:
        return False


@contextmanager
def process(command: Sequence[str | Path], log: Path, *, stop: int = signal.SIGTERM, **more: Any) -> Iterator[Any]:
    """Run a program with its output in a file, and end it afterwards.

    All programs run in one session, as with `make up`: with autogroups, Linux first divides a processor between sessions.
    """
    with log.open("ab") as output:
        running = subprocess.Popen(  # noqa: S603 - programs of our own
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0, **more
        )
        try:
            yield running
        finally:
            running.send_signal(stop)
            try:
                running.wait(timeout=60)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


class Cluster:
    """An API server with nodes. It has no scheduler and no kubelets: no load that isn't measured."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.client = Client.connect(self.kubeconfig)

    def create(self, path: str, objects: Iterable[Json]) -> None:
        """Create objects, several concurrently."""
        encoded = map(msgspec.json.encode, objects)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(lambda body: self.client.post(path=path, body=body), encoded):
                pass

    def create_nodes(self, nodes: Iterable[Json]) -> None:
        """Create nodes."""
        self.create("/api/v1/nodes", nodes)

    def create_pods(self, pods: Iterable[Json]) -> None:
        """Create Pods of the namespace default."""
        self.create("/api/v1/namespaces/default/pods", pods)

    def delete_pods(self, selector: str = "") -> None:
        """Delete the Pods of the namespace default, at once."""
        query = f"?labelSelector={selector}" if selector else ""
        body = b'{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}'
        self.client.delete(path=f"/api/v1/namespaces/default/pods{query}", body=body, timeout_seconds=300)

    def items(self, path: str) -> list[bytes]:
        """Return the objects of a list, each as the API server wrote it."""
        found: list[bytes] = []
        for page in self.client.list_pages(path=path):
            found += [bytes(item) for item in msgspec.json.decode(page, type=_Items).items]
        return found


class _Items(msgspec.Struct):
    items: list[msgspec.Raw]


@contextmanager
def cluster(
    folder: Path,
    options: Sequence[str | Path] = ("--no-scheduler", "--no-controller-manager", "--no-kwok"),
    *,
    behind: bool = False,
) -> Iterator[Cluster]:
    """Start etcd and kube-apiserver, and build them if they are missing; options add components, by default none.

    `behind`: they get the lowest priority for processors, as if they had processors of their own.
    """
    folder.mkdir(parents=True)
    command: list[str | Path] = [LOCALCLUSTER, "up", "--dir", folder, *options]
    status = folder / "status.json"

    niced = [*(["nice", "-n", "10"] if behind else []), *command]
    with process(niced, folder / "up.log") as running:

        def is_ready() -> bool:
            if running.poll() is not None:
                message = f"the cluster ended:\n{(folder / 'up.log').read_text()[-2000:]}"
                raise RuntimeError(message)
            return status.exists() and json.loads(status.read_text())["phase"] == "ready"

        eventually(is_ready, "the cluster is ready", seconds=READY_SECONDS)
        yield Cluster(folder)


def group_seconds(group: int) -> float:
    """Return the CPU seconds of a process group."""
    used = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if fields[2] == str(group):
            used += int(fields[11]) + int(fields[12])
    return used / _TICKS


def process_seconds(pid: int) -> float:
    """Return the CPU seconds of a process; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def pid_of(state: Path, name: str) -> int:
    """Return the id of a process of Berth, which is also its group's; 0 while there is none."""
    try:
        return int((state / "pids" / name).read_text() or 0)
    except FileNotFoundError:
        return 0


def component(folder: Path, name: str) -> int:
    """Return the process id of a component of the cluster."""
    status = json.loads((folder / "status.json").read_text())
    return int(status["components"][name]["pid"])


class Berth:
    """Berth as `make up` starts it, on an existing cluster."""

    def __init__(self, state: Path, port: int, environment: dict[str, str]) -> None:
        self.port = port
        self._state = state
        self.environment = environment

    def publish(self, documents: Sequence[Json]) -> None:
        """Publish documents, and wait until the extender serves them."""
        path = self._state / "bench.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        before = self.metric("berth_revision")
        command = [sys.executable, "manage.py", "apply", "--publish", str(path)]
        subprocess.run(  # noqa: S603 - our own
            command, cwd=BASE_DIR, env=self.environment, check=True, stdout=subprocess.DEVNULL
        )
        # Two Revisions: one for the rule sets, then one for the Assignments.
        eventually(lambda: self.metric("berth_revision") > before, "the Revision is served")
        self.settle()

    def manage(self, *arguments: str) -> str:
        """Run a command of Berth, and return its output."""
        command = [sys.executable, "manage.py", *arguments]
        found = subprocess.run(  # noqa: S603 - our own
            command, cwd=BASE_DIR, env=self.environment, check=True, capture_output=True, text=True
        )
        return found.stdout

    def metric(self, name: str) -> float:
        """Return the sum of a metric of the extender."""
        return sum(value for _, value in self.lines(name))

    def setting(self, name: str) -> str:
        """Return a setting of all of Berth's processes."""
        lines = (self._state / "env").read_text().splitlines()
        return next(value for key, _, value in (line.partition("=") for line in lines) if key == name)

    def lines(self, name: str, port: int = 0) -> list[tuple[str, float]]:
        """Return a metric's labels, as text, and values, from the extender or from the process on another port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port or self.port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found = (line.rpartition(" ") for line in lines if line.startswith((f"{name} ", f"{name}{{")))
        return [(labels, float(value)) for labels, _, value in found]

    def settle(self) -> None:
        """Wait until all of Berth's processes are idle: Decisions shipped, ingested and stored.

        Idle processes use more CPU time on a busy machine: there they are idle when they use little, and no less from
        second to second.
        """
        lately = [self._share_used()]

        def is_idle() -> bool:
            lately.append(self._share_used())
            *before, now = lately[-_STEADY_SECONDS:]
            is_steady = len(lately) > _STEADY_SECONDS and now < _REST_SHARE and now > 0.8 * min(before)
            return now < _IDLE_SHARE or is_steady

        eventually(is_idle, "Berth is idle", seconds=300)

    def _share_used(self) -> float:
        before = sum(self.processor_seconds().values())
        time.sleep(1.0)
        return sum(self.processor_seconds().values()) - before

    def processor_seconds(self) -> dict[str, float]:
        """Return the CPU seconds of each of Berth's processes."""
        names = [path.name for path in (self._state / "pids").iterdir()]
        return {name: group_seconds(pid_of(self._state, name)) for name in sorted(names)}


@contextmanager
def berth(folder: Path, kubeconfig: Path, *, binder: bool = True) -> Iterator[Berth]:
    """Start Redis, the admin, the extender, a worker, beat and the binder; on PostgreSQL if BERTH_DATABASE_URL names one."""
    folder.mkdir(parents=True)
    admin, extender = free_port(), free_port()
    environment = {name: text for name, text in os.environ.items() if not name.startswith("BERTH_")}
    for name in ("BERTH_DATABASE_URL", "BERTH_CACHE_DIR", "BERTH_GO", "BERTH_KUBE_ASSETS"):
        if name in os.environ:
            environment[name] = os.environ[name]
    environment |= {"BERTH_STATE_DIR": str(folder), "BERTH_KUBECONFIG": str(kubeconfig)}
    command = [sys.executable, "-m", "controlplane.up", "--bare"]
    command += ["--admin-port", str(admin), "--extender-port", str(extender)]
    command += [] if binder else ["--without-binder"]
    with process(command, folder / "up.log", stop=signal.SIGINT, cwd=BASE_DIR, env=environment):
        eventually(lambda: answers(f"http://127.0.0.1:{extender}/readyz"), "Berth's extender is ready")
        yield Berth(folder, extender, environment)


def _go() -> str:
    """Return the go command with which the local cluster is built."""
    candidates = [os.environ.get("BERTH_GO", ""), "go", str(BASE_DIR / ".venv" / "bin" / "go")]
    for candidate in filter(None, candidates):
        try:
            subprocess.run([candidate, "version"], check=True, capture_output=True)  # noqa: S603
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    message = "no go command was found: put one on PATH, or name one with BERTH_GO"
    raise RuntimeError(message)


def build_go_programs(folder: Path) -> None:
    """Build the extenders in Go, and their caller.

    They are separate from the cluster's programs: they need few packages, so that a build takes seconds, and an edit
    doesn't rebuild Kubernetes.
    """
    command = [_go(), "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", f"{folder}/"]
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0"}
    packages = [f"./cmd/{name}" for name in GO_PROGRAMS]
    subprocess.run([*command, *packages], cwd=GO_MODULE, env=environment, check=True)  # noqa: S603


@contextmanager
def go_extender(folder: Path, name: str) -> Iterator[int]:
    """Start a Go extender that `build_go_programs` built; returns its port."""
    port = free_port()
    with process([folder / name, "-port", str(port)], folder / f"{name}.log"):
        eventually(lambda: answers(f"http://127.0.0.1:{port}/readyz"), f"{name} is ready")
        yield port


def kube_scheduler() -> Path:
    """Return the kube-scheduler that the local cluster runs."""
    built = subprocess.run([LOCALCLUSTER, "build"], capture_output=True, text=True, check=True)  # noqa: S603
    return Path(built.stdout.strip().rpartition(_SAYS)[2]) / "kube-scheduler"


def rule_sets(order: int = 0) -> list[Json]:
    """Return documents: a label rule and the classic default set, chosen by the Pod's label `rules`.

    `order` is that of the first Assignment.
    """
    label = {
        "filters": [
            {
                "name": "pool",
                "expression": "node.metadata.?labels.pool.orValue('') == 'general' || pod.metadata.labels.tier == 't0'",
                "reason": "node is of another pool",
            }
        ]
    }
    classic = {
        "filters": [{"builtin": name} for name in FILTERS],
        "scores": [{"builtin": name, "weight": weight} for name, weight in SCORES.items()],
    }
    return [
        document
        for number, (name, spec) in enumerate({"label": label, "classic": classic}.items(), order)
        for document in (
            {"apiVersion": "berth/v1", "kind": "RuleSet", "metadata": {"name": name}, "spec": spec},
            {
                "apiVersion": "berth/v1",
                "kind": "Assignment",
                "metadata": {"name": name},
                "spec": {
                    "order": number,
                    "ruleSet": name,
                    "match": {"podSelector": {"matchLabels": {"rules": name}}},
                },
            },
        )
    ]


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="berth-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def own_database() -> Iterator[Path]:
    """Set Django up in a temporary folder; the database is an SQLite there, or the one that BERTH_DATABASE_URL names."""
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as name:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
        os.environ.setdefault("BERTH_DATABASE_URL", f"sqlite:///{name}/berth.sqlite3")
        os.environ |= {"BERTH_STATE_DIR": name, "BERTH_ROLE": "command", "BERTH_LOCAL": "true"}
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        yield Path(name)


@contextmanager
def recorded_corpus(folder: Path, spec: Json, *, nodes: int) -> Iterator[Any]:
    """Publish a rule set for all Pods; its later Decisions in the corpus are recorded, and stored at the end."""
    from policies import publishing
    from policies.engine.decision import CompiledRevision
    from tests.builders import make_assignment, make_rule_set
    from tests.component.backtest.corpus import Corpus
    from tests.recording import History

    edits = [publishing.Edit.of(make_rule_set("web", **spec)), publishing.Edit.of(make_assignment("all", "web"))]
    opened = publishing.open_change(title="first", edits=edits, by="bench")
    publishing.publish_change(change=opened, by="bench", expected_digest=opened.digest)
    history = History(folder / "spool")
    yield Corpus(history, CompiledRevision(publishing.current_revision()), nodes=nodes, has_objects=True)
    history.settle()
    history.spool.close()
