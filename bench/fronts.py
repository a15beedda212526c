"""A comparison of servers for the extender's calls: our own, and gunicorn's threaded worker behind HAProxy.

`python -m bench.fronts` starts both with the same application, without a cluster and with client certificates: our own server as it is
shipped, and gunicorn's stock gthread worker on loopback behind HAProxy, which terminates TLS, verifies the certificate, and limits slow
clients. It prints the time of filter calls over a kept-alive connection, in turns, and the times of an honest caller during each
flood of `bench.floods`. `--plain` leaves the certificates out. `--former CHECKOUT` measures the server of another checkout as
well: the one before ours is in commit `f51a37f^`. Without the program haproxy, that server is left out with a message.

`python -m bench.fronts --former CHECKOUT --calls` makes ten times as many calls of only these two, and no floods. It prints the ratio of
our server's time to the former server's, the median over rounds, and whether it is within the tenth that was allowed.

`python -m bench.fronts --count COMMIT…` prints instead the lines of each commit's server, and how many of gunicorn's internal names it
depends on; without commits, those of the former and the present server. docs/adr/0037-a-server-of-our-own.md has the decision.
"""

import argparse
import ast
import http.client
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import gunicorn
import msgspec

from bench.extender import percentile
from bench.floods import ATTACKS, beside
from bench.nodes import make_node, make_pod
from bench.running import BASE_DIR, eventually, free_port, machine, process, process_seconds
from tests.certificates import Files
from tests.extender import Extender, client_context

OURS, STOCK, FORMER = "ours", "gthread behind HAProxy", "former"
HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
# Names of bodies of filter calls, and how many calls a block has.
CALLS = {"1 name": 100, "1,000 names": 50, "1,000 nodes": 10}
# With `--calls`, because processor time is counted in hundredths of a second.
TIMES_AS_MANY = 10
MOST_BESIDE_FORMER = 1.1
THREADS = 32
_PAUSE_SECONDS = 0.3

# The limits of docs/security.md that HAProxy supports.
CONFIGURATION = """
global
    maxconn 1024
    log stderr local0 err
defaults
    mode http
    timeout connect 2s
    timeout client 20s
    timeout client-fin 2s
    timeout http-request 5s
    timeout http-keep-alive 120s
    timeout queue 5s
    timeout server 60s
    option http-buffer-request
    option http-keep-alive
    http-reuse always
frontend kube-scheduler
    bind 127.0.0.1:{port} backlog 4096{tls}
    maxconn 512
    default_backend berth
backend berth
    server extender 127.0.0.1:{behind} maxconn {threads}
"""


class Front(NamedTuple):
    """A started server: its port, whether all its processes still run, and the processor time that they used."""

    port: int
    lives: Callable[[], bool]
    worked: Callable[[], float]


class Block(NamedTuple):
    """The times of one block of calls: the seconds of each, and the processor seconds of one."""

    seconds: list[float]
    worked: float


@contextmanager
def served(name: str, folder: Path, files: Files | None, former: Path | None) -> Iterator[Front]:
    """Start a server, and end it afterwards."""
    if name == STOCK:
        with behind_haproxy(folder, files) as front:
            yield front
        return
    checkout = former if name == FORMER and former else BASE_DIR
    with Extender(folder, files.environment() if files else None, checkout=checkout) as extender:
        yield Front(extender.port, lambda: _lives(extender), lambda: process_seconds(_worker_of(extender)))


@contextmanager
def behind_haproxy(folder: Path, files: Files | None) -> Iterator[Front]:
    """Start gunicorn's threaded worker behind HAProxy."""
    assert HAPROXY is not None  # noqa: S101 - who calls has looked
    extender = Extender(folder, {"BERTH_EXTENDER_HEALTH_BIND": ""}, "-k", "gthread")
    extender.probes_port = extender.port
    configuration, log, port = folder / "haproxy.cfg", folder / "haproxy.log", free_port()
    tls = ""
    if files:
        # HAProxy requires certificate and key in one file.
        both = folder / "both.pem"
        both.write_bytes(files.cert.read_bytes() + files.key.read_bytes())
        tls = f" ssl crt {both} ca-file {files.client_ca} verify required ssl-min-ver TLSv1.2 alpn http/1.1"
    configuration.write_text(CONFIGURATION.format(port=port, tls=tls, behind=extender.port, threads=THREADS))
    with extender, process([HAPROXY, "-db", "-f", configuration], log) as haproxy:

        def listens() -> bool:
            if haproxy.poll() is not None:
                message = f"HAProxy ended: {log.read_text()}"
                raise RuntimeError(message)
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        eventually(listens, "HAProxy listens")
        yield Front(
            port,
            lambda: haproxy.poll() is None and _lives(extender),
            lambda: process_seconds(_worker_of(extender)) + process_seconds(haproxy.pid),
        )


def _worker_of(extender: Extender) -> int:
    assert extender.process is not None  # noqa: S101 - it was started
    master = extender.process.pid
    return int(Path(f"/proc/{master}/task/{master}/children").read_text().split()[0])


def _lives(extender: Extender) -> bool:
    return (
        extender.process is not None and extender.process.poll() is None and extender.log.count("Booting worker") == 1
    )


def bodies() -> dict[str, bytes]:
    """Return the bodies of filter calls."""
    pod, nodes = make_pod("asked", labels={}), list(map(make_node, range(1_000)))
    names = [node["metadata"]["name"] for node in nodes]
    contents: tuple[dict[str, Any], ...] = ({"NodeNames": names[:1]}, {"NodeNames": names}, {"Nodes": {"items": nodes}})
    return {name: msgspec.json.encode({"Pod": pod, **content}) for name, content in zip(CALLS, contents, strict=True)}


def measure_calls(
    fronts: Mapping[str, Front], context: ssl.SSLContext | None, rounds: int, times_as_many: int = 1
) -> None:
    """Print the time of filter calls for each server, over a kept-alive connection, in turns."""
    blocks: defaultdict[tuple[str, str], list[Block]] = defaultdict(list)
    for number in range(rounds):
        for form, body in bodies().items():
            order = list(fronts)
            for name in order[number % len(order) :] + order[: number % len(order)]:
                time.sleep(_PAUSE_SECONDS)
                blocks[form, name].append(_block(fronts[name], body, CALLS[form] * times_as_many, context))
    print(f"\n{'filter calls, ms':>24} | " + " | ".join(f"{name:^40}" for name in fronts))
    for form in CALLS:
        print(f"{form:>24} | " + " | ".join(_marks(blocks[form, name]) for name in fronts))
    if FORMER in fronts:
        print("\nours beside the former, the median over rounds")
        for form in CALLS:
            print(f"{form:>24} | {_beside(blocks[form, OURS], blocks[form, FORMER])}")


def _block(front: Front, body: bytes, calls: int, context: ssl.SSLContext | None) -> Block:
    before = front.worked()
    seconds = ask(front.port, body, calls, context)
    return Block(seconds, (front.worked() - before) / len(seconds))


def _marks(blocks: Sequence[Block]) -> str:
    seconds = [each for block in blocks for each in block.seconds]
    p50, p99 = median(seconds) * 1e3, percentile(seconds, 0.99) * 1e3
    worked = median(block.worked for block in blocks) * 1e3
    return f"p50 {p50:6.2f} p99 {p99:8.2f} processor {worked:6.2f}"


def _beside(ours: Sequence[Block], former: Sequence[Block]) -> str:
    p50 = median(median(one.seconds) / median(other.seconds) for one, other in zip(ours, former, strict=True))
    worked = median(one.worked / max(other.worked, 1e-9) for one, other in zip(ours, former, strict=True))
    judged = "within the tenth that was allowed" if max(p50, worked) <= MOST_BESIDE_FORMER else "MORE than was allowed"
    return f"p50 {p50:.2f} processor {worked:.2f}: {judged}"


def ask(port: int, body: bytes, calls: int, context: ssl.SSLContext | None) -> list[float]:
    """Make calls over one connection, the first not measured; returns the seconds of each.

    Raises:
        RuntimeError: an answer's status wasn't 200.
    """
    connection = (
        http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
        if context
        else http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    )
    seconds = []
    for _ in range(calls + 1):
        began = time.perf_counter()
        connection.request("POST", "/filter", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
        seconds.append(time.perf_counter() - began)
        if answer.status != http.HTTPStatus.OK:
            message = f"answered {answer.status}: {said[:200]!r}"
            raise RuntimeError(message)
    connection.close()
    return seconds[1:]


def measure_floods(
    names: Sequence[str], folder: Path, files: Files | None, context: ssl.SSLContext | None, asked: argparse.Namespace
) -> None:
    """Print an honest caller's results for each server, without and during each flood; each flood gets a new process."""
    for attack in ("", *asked.only):
        for name in names:
            with served(name, folder / f"{attack or 'calm'}-{name}".replace(" ", "-"), files, asked.former) as front:
                kept, new = beside(attack, front.port, asked.seconds, context)
                ended = "" if front.lives() else " | A PROCESS ENDED"
                print(f"{attack or 'calm':>22} | {name:>22} | kept {kept} | new {new}{ended}", flush=True)


# The modules of our server and of the former ones, as named in commits.
MODULES = (
    *(f"scheduler/http_server/{name}.py" for name in ("body", "connection", "head", "listeners", "server", "worker")),
    *(f"scheduler/extender/server/{name}.py" for name in ("worker", "head_parser", "listeners", "sending")),
    "scheduler/extender/request/body_limit.py",
    *(f"scheduler/extender/{name}.py" for name in ("worker", "heads", "listeners", "sending", "admission")),
)
BEFORE = "63d2645"
_INNER = ("workers/gthread", "http/body", "http/parser", "http/unreader", "http/message", "http/wsgi")


def print_counts(commits: Sequence[str]) -> None:
    """Print the lines and the internal names of the servers of some commits."""
    known = set().union(*(members(f"{name}.py") for name in _INNER)) - members("workers/base.py")
    for commit in commits:
        texts = [text for path in MODULES if (text := _text_of(commit, path)) is not None]
        found: set[str] = set().union(*(inner_names(text, known) for text in texts))
        lines = sum(text.count("\n") for text in texts)
        print(
            f"{commit}: {len(texts)} modules, {lines:,} lines, {len(found)} inner names of gunicorn {' '.join(sorted(found))}"
        )
    lines = len(CONFIGURATION.strip().splitlines())
    print(
        f"gthread behind HAProxy: {lines} lines of configuration, 0 inner names; bodies are bounded by body_limit as before"
    )


def _text_of(commit: str, path: str) -> str | None:
    command = ["git", "show", f"{commit}:{path}"]
    found = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    return found.stdout if found.returncode == 0 else None


def members(path: str) -> set[str]:
    """Return the methods and attributes of the classes in a module of gunicorn."""
    tree = ast.parse((Path(gunicorn.__file__).parent / path).read_text())
    found: set[str] = set()
    for made in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for node in ast.walk(made):
            if isinstance(node, ast.FunctionDef):
                found.add(node.name)
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node.value) == "self"
            ):
                found.add(node.attr)
    return found


def inner_names(text: str, known: set[str]) -> set[str]:
    """Return the names of gunicorn that a module uses beyond its documented worker class.

    They are imported names, attributes of imported modules, and members that subclasses read or override.
    """
    tree = ast.parse(text)
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[0] == "gunicorn"
        and node.module != "gunicorn.workers.base"
        for alias in node.names
    }
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    found = set(imported.values())
    found |= {
        f"{imported[ast.unparse(node.value)]}.{node.attr}" for node in attributes if ast.unparse(node.value) in imported
    }
    for made in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        if {ast.unparse(base).split(".")[0] for base in made.bases} & set(imported):
            own = {node.name for node in made.body if isinstance(node, ast.FunctionDef)}
            read = {
                node.attr
                for node in ast.walk(made)
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"self", "super()"}
            }
            found |= {f".{name}" for name in (own | read) & known if not name.startswith("__")}
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", nargs="*", metavar="COMMIT", help="count lines and names instead")
    parser.add_argument("--plain", action="store_true", help="without client certificates")
    parser.add_argument("--former", type=Path, help="a checkout whose server is measured as well")
    parser.add_argument("--calls", action="store_true", help="measure calls of ours and the former alone")
    parser.add_argument("--rounds", type=int, default=6, help="of calls")
    parser.add_argument("--only", nargs="*", choices=ATTACKS, default=list(ATTACKS), help="floods")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each flood")
    asked = parser.parse_args()
    if asked.count is not None:
        print_counts(asked.count or [BEFORE, "HEAD"])
        return
    has_stock = HAPROXY and not asked.calls
    names = [OURS, *([STOCK] if has_stock else []), *([FORMER] if asked.former else [])]
    if not HAPROXY and not asked.calls:
        print("haproxy isn't installed (apt-get install haproxy): the server behind it is left out")
    print(f"{machine()}; load average {os.getloadavg()[0]:.1f}; {'plain' if asked.plain else 'client certificates'}")
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        files = None if asked.plain else Files(folder / "tls")
        context = client_context(files.server_ca, files.client()) if files else None
        fronts = {
            name: stack.enter_context(served(name, folder / name.replace(" ", "-"), files, asked.former))
            for name in names
        }
        measure_calls(fronts, context, asked.rounds, TIMES_AS_MANY if asked.calls else 1)
        stack.close()
        print()
        if not asked.calls:
            measure_floods(names, folder, files, context, asked)
        print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
