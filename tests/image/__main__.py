"""Builds Berth's image and runs docker-compose.yml, without a daemon and without a registry of images: `python -m tests.image`.

Needs root, and Debian's buildah, podman, runc and mmdebstrap. The images that the Dockerfile and the Compose file name are made on the
spot from Debian's packages, under their names (`stand_ins`); so what is tried is Berth's own layers and what the Compose file
gives to whom, not what is in the images of a registry. All runs in a network of its own: no port of the machine is taken.
"""

import argparse
import http.client
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from scheduler.ledger.note import Signer

if TYPE_CHECKING:
    from bench.running import Cluster

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("buildah", "podman", "runc", "mmdebstrap", "unshare", "ip")
COMPOSE_VERSION = "1.5.0"
MIRROR_CA = "/etc/ssl/certs/ca-certificates.crt"
BERTHS, STORES = ("admin", "extender", "worker", "binder", "beat"), ("postgres", "redis")
USERS = {"berth": 10001, "stores": 999}
START_SECONDS = 300.0
# Of all layers above Python's, as they are unpacked on a node.
MOST_BYTES = 250_000_000
PYTHON, BERTH = "docker.io/library/python:3.11-slim", "localhost/berth:local"


class StandIn(NamedTuple):
    """An image made of Debian's packages: its name, and what stands in it besides."""

    name: str
    packages: Sequence[str]
    hooks: Sequence[str]
    changes: Sequence[str]


def stand_ins() -> list[StandIn]:
    """Return the images that the Dockerfile and the Compose file name."""
    ca = f"copy-in {MIRROR_CA} /etc/ssl/certs"
    entrypoint = ROOT / "tests" / "image" / "postgres"
    return [
        StandIn(
            PYTHON,
            ("python3", "python3-venv", "python3-pip", "ca-certificates"),
            ('ln -s python3 "$1/usr/bin/python"', ca),
            ("ENV PIP_BREAK_SYSTEM_PACKAGES=1", f"ENV SSL_CERT_FILE={MIRROR_CA}"),
        ),
        StandIn(
            "docker.io/library/postgres:15",
            ("postgresql-15",),
            (
                'chroot "$1" usermod -u 999 postgres',
                'chroot "$1" groupmod -g 999 postgres',
                'install -d -o 999 -g 999 -m 0700 "$1/var/lib/postgresql/data"',
                'install -d "$1/docker-entrypoint-initdb.d"',
                f'install -m 0755 {entrypoint} "$1/usr/local/bin/postgres-stand-in"',
            ),
            (
                "ENV PATH=/usr/lib/postgresql/15/bin:/usr/local/bin:/usr/bin:/bin",
                "ENV PGDATA=/var/lib/postgresql/data",
                'ENTRYPOINT ["postgres-stand-in"]',
                "VOLUME /var/lib/postgresql/data",
            ),
        ),
        StandIn(
            "docker.io/library/redis:7",
            ("redis-server",),
            (
                'chroot "$1" usermod -u 999 redis',
                'chroot "$1" groupmod -g 999 redis',
                'install -d -o 999 -g 999 "$1/data"',
            ),
            ("WORKDIR /data", "VOLUME /data"),
        ),
    ]


def missing() -> list[str]:
    """Return what this machine lacks."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    lacks = [name for name in NEEDED if shutil.which(name, path=path) is None]
    return [*lacks, *([] if os.geteuid() == 0 else ["root's rights"])]


def say(text: str) -> None:
    """Print what is done now."""
    print(f"image: {text}", flush=True)


def run(*command: str | Path, **more: Any) -> str:
    """Run a program to its end; returns what it printed.

    Raises:
        SystemExit: it failed; what it said is printed.
    """
    done = subprocess.run(command, text=True, capture_output=True, check=False, **more)
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-6000:])
        sys.exit(f"image: this ended with {done.returncode}: {' '.join(map(str, command))}")
    return str(done.stdout)


def driver() -> str:
    """Return how layers are kept: overlay where the kernel has it for this file system; vfs copies them all for each container."""
    with tempfile.TemporaryDirectory() as name:
        parts = [f"{name}/{part}" for part in ("lower", "upper", "work", "merged")]
        for part in parts:
            Path(part).mkdir()
        options = "lowerdir={},upperdir={},workdir={}".format(*parts)
        mount = ["mount", "-t", "overlay", "overlay", "-o", options, parts[-1]]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            return "vfs"
        subprocess.run(["umount", parts[-1]], check=True)
    return "overlay"


def configure(folder: Path) -> dict[str, str]:
    """Write the settings of buildah and podman; returns the environment that names them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "{driver()}"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
    )
    (folder / "containers.conf").write_text(
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n'
    )
    (folder / "registries.conf").write_text('unqualified-search-registries = ["docker.io"]\n')
    return {
        **os.environ,
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(folder / "registries.conf"),
        "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin",
    }


def make_stand_in(image: StandIn, cache: Path, env: Mapping[str, str]) -> str:
    """Make an image under the name that is asked for; returns its digest."""
    told = json.dumps([*image.packages, *image.hooks, (ROOT / "tests" / "image" / "postgres").read_text()])
    archive = cache / f"{image.name.rpartition('/')[2].replace(':', '-')}-{zlib.crc32(told.encode()):x}.tar"
    if not archive.exists():
        cache.mkdir(parents=True, exist_ok=True)
        hooks = [f"--customize-hook={hook}" for hook in image.hooks]
        fresh = archive.with_suffix(".new.tar")
        run("mmdebstrap", "--variant=minbase", f"--include={','.join(image.packages)}", *hooks, "bookworm", fresh)
        fresh.rename(archive)
    changes = [argument for change in image.changes for argument in ("--change", change)]
    run("podman", "import", *changes, archive, image.name, env=env)
    return run("podman", "image", "inspect", "--format", "{{.Digest}}", image.name, env=env).strip()


def build(digest: str, env: Mapping[str, str]) -> None:
    """Build Berth's image as the Compose file does."""
    run(
        *("buildah", "bud", "--isolation", "chroot", "--network", "host", "--pull=false", "--format", "docker"),
        *("--build-arg", f"PYTHON_IMAGE={PYTHON}@{digest}"),
        *("-f", "deploy/Dockerfile", "-t", BERTH, "."),
        cwd=ROOT,
        env=env,
    )


def measure(env: Mapping[str, str]) -> None:
    """Print how much Berth's own layers hold; too much is a fault."""
    size = {
        name: int(run("podman", "image", "inspect", "--format", "{{.Size}}", name, env=env)) for name in (PYTHON, BERTH)
    }
    own = size[BERTH] - size[PYTHON]
    expect(own <= MOST_BYTES, f"Berth's own layers hold {own / 1e6:.0f} MB, of {MOST_BYTES / 1e6:.0f} at most")


CONFINED = (
    "--network",
    "host",
    "--read-only",
    "--cap-drop",
    "ALL",
    "--security-opt",
    "no-new-privileges",
    "--tmpfs",
    "/tmp",
)
PROOF = "import os; print(os.getuid(), [l.split()[1] for l in open('/proc/self/status') if l.startswith('CapEff')][0])"


def try_alone(env: Mapping[str, str]) -> None:
    """Run commands in the image as the Compose file confines it: nobody's user, no capability, nothing to be written."""

    def inside(*command: str) -> str:
        return run("podman", "run", "--rm", *CONFINED, "-e", "BERTH_LOCAL=true", BERTH, *command, env=env)

    said = inside("python", "-c", PROOF).split()
    expect(said == ["10001", "0" * 16], f"the process is user 10001 without capabilities: {said}")
    examples = sorted(f"examples/{path.name}" for path in (ROOT / "examples").glob("*.yaml"))
    for command in (("check",), ("migrate", "--no-input"), ("lint", *examples)):
        inside("python", "manage.py", *command)
        say(f"manage.py {command[0]} runs on a file system that can't be written")


def expect(holds: object, what: str) -> None:
    """Print what holds.

    Raises:
        SystemExit: it doesn't.
    """
    if not holds:
        sys.exit(f"image: DOESN'T HOLD: {what}")
    say(what)


def write_project(folder: Path, kubeconfig: Path, digests: Mapping[str, str]) -> None:
    """Write a folder as an operator does who follows the head of docker-compose.yml."""
    (folder / "secrets").mkdir(parents=True)
    # podman's tmpfs knows no owner.
    text = (ROOT / "docker-compose.yml").read_text().replace(":uid=999,gid=999,mode=2775", ":mode=1777")
    (folder / "docker-compose.yml").write_text(text)
    shutil.copytree(ROOT / "deploy", folder / "deploy", ignore=shutil.ignore_patterns("localcluster"))
    signer = Signer.make("berth.example.org")
    words = {name: secrets.token_hex(16) for name in ("admin", "owner", "app", "redis")}
    given = {
        "secret_key": secrets.token_hex(40),
        "database_admin_password": words["admin"],
        "database_owner_password": words["owner"],
        "database_owner_url": f"postgresql://berth_owner:{words['owner']}@127.0.0.1:5432/berth",
        "database_password": words["app"],
        "database_url": f"postgresql://berth_app:{words['app']}@127.0.0.1:5432/berth",
        "redis_password": words["redis"],
        "redis_url": f"redis://:{words['redis']}@127.0.0.1:6379/0",
        "kubeconfig": kubeconfig.read_text(),
        "admin_kubeconfig": kubeconfig.read_text(),
        "ledger_key": f"{signer.private_text()}\n",
        "ledger_key.pub": f"{signer.verifier}\n",
    }
    for name, text in given.items():
        path = folder / "secrets" / name
        path.write_text(text)
        path.chmod(0o400)
        user = USERS["stores" if name.endswith("_password") else "berth"]
        os.chown(path, user, user)
    (folder / ".env").write_text("".join(f"BERTH_{name.upper()}_DIGEST={digest}\n" for name, digest in digests.items()))
    # The machine that tries this has no bridge to publish ports of: the two stores listen on this network's own loopback.
    (folder / "override.yml").write_text(
        "services:\n"
        "  postgres: {network_mode: host, environment: {LISTEN_ADDRESSES: 127.0.0.1}}\n"
        "  redis: {network_mode: host}\n"
    )


class Compose:
    """A project that podman-compose runs."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder, self._env = folder, env
        uv = str(Path(sys.executable).with_name("uv"))
        self._command = [
            uv,
            "tool",
            "run",
            "--offline",
            "--from",
            f"podman-compose=={COMPOSE_VERSION}",
            "podman-compose",
        ]
        self._command += ["-f", "docker-compose.yml", "-f", "override.yml", "--in-pod", "false"]

    def __call__(self, *command: str) -> str:
        return run(*self._command, *command, cwd=self._folder, env=self._env)

    def manage(self, *command: str) -> str:
        """Run a command in the admin's container; returns what it printed."""
        return run("podman", "exec", "berth_admin_1", "python", "manage.py", *command, env=self._env)

    def is_healthy(self, service: str) -> bool:
        """Whether the service's own health check passes. Without systemd nobody asks but us."""
        asked = ["podman", "healthcheck", "run", f"berth_{service}_1"]
        return subprocess.run(asked, env=self._env, capture_output=True, check=False).returncode == 0

    def wait_for(self, *services: str) -> None:
        """Wait until services are healthy.

        Raises:
            SystemExit: they didn't get so; their logs are printed.
        """
        deadline = time.monotonic() + START_SECONDS
        for service in services:
            while not self.is_healthy(service):
                if time.monotonic() > deadline:
                    print(self("logs", service)[-6000:])
                    sys.exit(f"image: {service} isn't healthy after {START_SECONDS:.0f} s")
                time.sleep(1)
            say(f"{service} is healthy")

    def inspect(self, service: str) -> Any:
        """Return what podman knows of a service's container."""
        return json.loads(run("podman", "inspect", f"berth_{service}_1", env=self._env))[0]


def try_compose(folder: Path, env: Mapping[str, str], digests: Mapping[str, str]) -> None:
    """Bring up docker-compose.yml beside a control plane of Kubernetes, ask each service, and take it down."""
    from bench.running import cluster

    given = ROOT / "deploy"
    options = ("--scheduler-config", given / "kube-scheduler/config.yaml", "--nodes-file", given / "local/nodes.yaml")
    with cluster(folder / "cluster", options) as running:
        write_project(folder / "berth", running.kubeconfig, digests)
        compose = Compose(folder / "berth", env)
        try:
            compose("up", "-d", "--no-build", *STORES)
            compose.wait_for(*STORES)
            compose("up", "-d", "--no-build", "--no-deps", "migrate")
            ended = run("podman", "wait", "berth_migrate_1", env=env).split()[-1]
            expect(
                ended == "0",
                f"migrate has ended with 0: {ended} {'' if ended == '0' else compose('logs', 'migrate')[-3000:]}",
            )
            compose("up", "-d", "--no-build", "--no-deps", *BERTHS)
            compose.wait_for(*BERTHS)
            look(compose)
            use(compose, running)
        finally:
            compose("down", "-v")
    say("all of it went down again")


def look(compose: Compose) -> None:
    """Look at what the services are given."""
    for service in (*BERTHS, *STORES):
        found = compose.inspect(service)
        host = found["HostConfig"]
        expect(
            host["ReadonlyRootfs"] and not found["EffectiveCaps"],
            f"{service} can't write its files and has no capability",
        )
        user = found["Config"]["User"]
        expect(user.partition(":")[0] in {"berth", "999"}, f"{service} runs as {user}")
        expect(host["Memory"] > 0 and host["PidsLimit"] > 0, f"{service} is limited in memory and processes")


def use(compose: Compose, running: "Cluster") -> None:
    """Make an account, log in, publish rules, and have kube-scheduler and the binder place Pods by them."""
    from bench.running import eventually

    made = compose.manage("createoperator", "anna", "--role", "Operator")
    expect(
        log_in("anna", made.partition("password: ")[2].partition("\n")[0]) == HTTPStatus.FOUND,
        "an account is made, and logs in at the admin",
    )
    compose.manage("apply", "--publish", "examples/shortest-name.yaml")
    labels = {"policy": "shortest-name"}
    for name, more in (("web1", {}), ("own1", {"schedulerName": "berth"})):
        containers = [{"name": "main", "image": "busybox"}]
        metadata = {"name": name, "labels": labels}
        running.create_pods(
            [{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **more}}]
        )

        def node(name: str = name) -> str:
            found = json.loads(running.client.get(path=f"/api/v1/namespaces/default/pods/{name}"))
            return str(found["spec"].get("nodeName", ""))

        eventually(node, f"{name} is on a node", seconds=START_SECONDS)
        expect(node() == "n1", f"the Pod {name} is on the node with the shortest name: {node()}")


def log_in(name: str, password: str) -> int:
    """Log in at the admin as a browser behind the proxy that ends TLS does; returns the status."""
    connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=30)
    headers = {"X-Forwarded-Proto": "https", "Host": "127.0.0.1"}
    connection.request("GET", "/admin/login/", headers=headers)
    shown = connection.getresponse()
    cookies = "; ".join(each.partition(";")[0] for each in shown.msg.get_all("Set-Cookie") or [])
    token = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', shown.read().decode())[0]
    form = urlencode({"csrfmiddlewaretoken": token, "username": name, "password": password, "next": "/admin/"})
    headers |= {
        "Cookie": cookies,
        "Referer": "https://127.0.0.1/admin/login/",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    connection.request("POST", "/admin/login/", form, headers)
    return connection.getresponse().status


def inside_own_network(arguments: Sequence[str]) -> int:
    """Run this module again, in a network where nobody else is; returns how it ended."""
    command = [
        "unshare",
        "--net",
        "sh",
        "-c",
        'ip link set lo up && exec "$@"',
        "sh",
        sys.executable,
        "-m",
        "tests.image",
    ]
    return subprocess.run([*command, *arguments], cwd=ROOT, check=False).returncode


def main() -> None:
    """Build, run, say what holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--if-possible", action="store_true", help="do nothing where the machine lacks what this needs")
    parser.add_argument("--compose", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.compose:
        given = json.loads((asked.compose / "digests.json").read_text())
        try_compose(asked.compose, configure(asked.compose / "containers"), given)
        return
    if lacks := missing():
        say(
            f"not tried: this machine lacks {', '.join(lacks)} (apt-get install buildah podman runc mmdebstrap iproute2)"
        )
        sys.exit(0 if asked.if_possible else 1)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "berth" / "images"
    with tempfile.TemporaryDirectory(prefix="berth-image-") as name:
        folder = Path(name)
        env = configure(folder / "containers")
        digests = {}
        for image in stand_ins():
            say(f"stand-in for {image.name}")
            digests[image.name.rpartition("/")[2].partition(":")[0]] = make_stand_in(image, cache, env)
        (folder / "digests.json").write_text(json.dumps(digests))
        say("building")
        build(digests["python"], env)
        measure(env)
        try_alone(env)
        # Its packages are fetched here, where there is a network.
        run(
            Path(sys.executable).with_name("uv"),
            "tool",
            "run",
            "--from",
            f"podman-compose=={COMPOSE_VERSION}",
            "podman-compose",
            "--version",
            env=env,
        )
        sys.exit(inside_own_network(["--compose", name]))


if __name__ == "__main__":
    main()
