"""The benefit of each cache in a call: the processor time of calls with it and without it.

`python -m bench.memories` answers calls as kube-scheduler makes them, from the request's view to the parts of the answer: /filter and
/prioritize of the same Pod. Each time the Pod is another one, of few owners, and the nodes are in another order; between two Pods one
per cent of the nodes get a newer version. Bodies with full nodes have these versions before the watch shows them. Two extenders in this
process take turns; for one of them a cache is removed during a call. The bench prints the medians of this thread's time, and the ratio
of the time without the cache to that with it. The first row of each table removes nothing: its ratio is the noise.

`--steps` prints instead the whole time of a call with names, over a socket of this machine: first a server that does nearly nothing,
then one more step in each row, up to a whole call of the classic default set. Beside them is the time of an echo of names in Go. All
take turns, with the given numbers of one cluster's nodes, in random order. The time for deciding nothing is the floor.
"""

import argparse
import gc
import os
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BytesIO
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from time import thread_time
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import numpy as np

SIZES = (10, 1_000, 5_000)
PODS_PER_NODE = 10
ASSIGNMENTS = 1_000
# So many that a namespace has more distinct Pods of a tier than are summed each time.
APPS = 6_000
# How many pairs of calls are measured, by kind of body and number of nodes.
TIMES = {"names": {10: 100, 1_000: 60, 5_000: 30}, "full": {10: 60, 1_000: 16, 5_000: 6}}

Json = dict[str, Any]
# A replacement of an attribute, as `patch.object` takes it: holder, attribute, new value.
Change = tuple[Any, str, Any]


class Memory(NamedTuple):
    """A cache, the replacements that remove it (holder, attribute, new value), and the calls that it may affect."""

    name: str
    without: Sequence[Change]
    calls: Sequence[str] = ("names", "full")
    rules: str = "classic"


def forget_first(peer_of: Any) -> Any:
    """Return a function that reads a connection's peer each time, without a cache."""

    def read(connection: Any) -> Any:
        connection.kept.pop("peer", None)
        return peer_of(connection)

    return read


def memories() -> list[Memory]:
    """Return all caches that are measured with calls."""
    from policies.engine import quantity, status
    from policies.engine.assignments import MatchIndex
    from policies.engine.cel import expressions
    from policies.engine.objects import affinity, node, pod
    from policies.engine.objects import columns as counting
    from scheduler.decisions import node_names
    from scheduler.extender import identity
    from scheduler.extender.request import node_names as extender_names
    from scheduler.extender.request.full_nodes import FullNodes
    from scheduler.extender.request.node_bytes import InternedNodes, KnownNodes
    from scheduler.extender.request.node_names import ByName, RecentPods
    from scheduler.extender.request.objects import NodeCache, _read_node, read_pod
    from scheduler.extender.verbs import handlers

    def turn_to(self: Any, texts: list[bytes]) -> None:
        self._texts = texts
        self._row_of = np.full(len(texts), -1, dtype=np.intp)
        self._number_at.fill(-1)

    def answer(self: Any, *given: Any, known: Any = ByName.answer) -> list[bytes]:
        pieces: list[bytes] = known(self, *given)
        self._answered = ()
        return pieces

    def read_all(*given: Any) -> Any:
        return [_read_node(item, index) for index, item in enumerate(given[-1])]

    forget_texts = [(KnownNodes, "texts", lambda *_: InternedNodes())]
    forget_nodes = [(NodeCache, "read_one", lambda *given: _read_node(*given[1:])), (NodeCache, "read", read_all)]
    return [
        Memory("nothing is taken away", ()),
        Memory("the same, no Assignment", forget_nodes, ["full"], "none"),
        Memory("Pods read a moment ago", [(RecentPods, "read", lambda *given: read_pod(given[-1]))]),
        Memory("names answered last", [(ByName, "answer", answer)], ["names"]),
        Memory("names looked up as bytes", [(ByName, "read", lambda *_: None)], ["names"]),
        Memory("names of the same length", [(extender_names, "find", lambda *_: None)], ["names"]),
        Memory("names of a table", [(node_names, "_KEPT", 0)]),
        Memory("lines of /prioritize", [(handlers, "lines_of", lambda _: None)]),
        Memory("a client's certificate", [(identity, "_peer_of", forget_first(identity._peer_of))], ["names"], "tls"),  # noqa: SLF001
        Memory("verdicts that all pass", [uncached(status, "_success")]),
        Memory("quantities", [uncached(quantity, name) for name in ("_parse", "_value", "_milli")]),
        Memory("affinity of Pods alike", [uncached(affinity, "_terms")]),
        Memory("looks of Pods alike", [(pod, "_traits", pod.Traits)]),
        Memory("images of nodes alike", [(node, "_SHARED_IMAGES", Forgetful())]),
        Memory(
            "which Assignments may take", [(MatchIndex, "candidates", lambda *_: range(ASSIGNMENTS))], ["names"], "many"
        ),
        Memory("values of expressions", [(expressions, "_MAX_REMEMBERED", 0)], ["names"], "ten"),
        Memory("counts kept as columns", [(counting, "_MAX_ADDED", 1 << 30)], ["names"], "counts"),
        Memory("nodes as they were sent", forget_texts, ["full"]),
        Memory("rows of nodes' texts", [(FullNodes, "_turn_to", turn_to)], ["full"]),
        Memory("Nodes by their texts", forget_nodes, ["full"]),
        Memory("what versions of a Node share", [(node.Node, "after_heartbeat", lambda *_: None)], ["full"]),
        Memory("counts added up each time", [(counting, "_MAX_ADDED", 0)], ["names"], "counts"),
    ]


class Forgetful(dict[Any, Any]):
    """Keeps nothing."""

    def __setitem__(self, key: object, value: object) -> None: ...


def uncached(module: Any, name: str) -> Change:
    """Return the replacement of a cached function by the uncached one."""
    return module, name, getattr(module, name).__wrapped__


class Cluster:
    """A cluster in which one per cent of the nodes repeatedly get a newer version."""

    synced = True

    def __init__(self, size: int) -> None:
        from bench.engine import make_pod
        from bench.nodes import make_node
        from policies.engine.objects.node import Node, NodeInfo
        from policies.engine.objects.pod import Pod
        from policies.engine.objects.snapshot import Snapshot

        self._random = Random(size)
        self._json = [make_node(number) for number in range(size)]
        for number, json in enumerate(self._json):
            json["metadata"] |= {"uid": f"{number:036d}", "resourceVersion": "1000000"}
        self.texts = [msgspec.json.encode(json) for json in self._json]
        self.names = [json["metadata"]["name"] for json in self._json]
        infos = {}
        for number, (name, text) in enumerate(zip(self.names, self.texts, strict=True)):
            pods = [
                make_pod(at, at % APPS, node=name) for at in range(number * PODS_PER_NODE, (number + 1) * PODS_PER_NODE)
            ]
            infos[name] = NodeInfo(Node.from_text(text), tuple(map(Pod.from_json, pods)))
        self._snapshots = [Snapshot(infos), Snapshot(infos)]
        self.turn = 0

    def snapshot(self) -> Any:
        """Return the Snapshot of the extender whose turn it is."""
        return self._snapshots[self.turn]

    def wait_for_nodes(self, names: object, seconds: float) -> bool:
        """Return True: all nodes are known."""
        return True

    def subscribe(self, callback: object) -> None:
        """Do nothing: there are no notifications."""

    def go_on(self, number: int) -> None:
        """Let the watch show the latest versions and a Pod on a node, then give other nodes newer versions."""
        from policies.engine.objects.node import Node, NodeInfo

        for turn, snapshot in enumerate(self._snapshots):
            shown = {
                name: NodeInfo(Node.from_text(self.texts[at]), info.pods)
                for at, name in enumerate(self.names)
                if at in self._moving and (info := snapshot.node(name))
            }
            self._snapshots[turn] = snapshot.changed(shown)
        self._renew(number)

    _moving: frozenset[int] = frozenset()

    def _renew(self, number: int) -> None:
        self._moving = frozenset(self._random.sample(range(len(self.texts)), max(len(self.texts) // 100, 1)))
        for at in self._moving:
            json = self._json[at]
            json["metadata"]["resourceVersion"] = str(1_000_001 + number)
            json["status"]["conditions"][0]["lastHeartbeatTime"] = (
                f"2026-01-01T{number // 60 % 24:02d}:{number % 60:02d}:30Z"
            )
            self.texts[at] = msgspec.json.encode(json)

    def ask(self, kind: str, pod: Json) -> bytes:
        """Return a body with all nodes, in an order as kube-scheduler sends them."""
        from bench.nodes import as_kube_scheduler_asks

        before, order = (
            b'{"Pod":' + msgspec.json.encode(pod),
            as_kube_scheduler_asks(range(len(self.names)), self._random),
        )
        if kind == "full":
            return (
                before
                + b',"Nodes":{"metadata":{},"items":['
                + b",".join(self.texts[at] for at in order)
                + b']},"NodeNames":null}'
            )
        return before + b',"Nodes":null,"NodeNames":' + msgspec.json.encode([self.names[at] for at in order]) + b"}"


class Extender:
    """The extender in this process: everything except the sockets."""

    def __init__(self, cluster: Cluster, revision: Any, folder: Path) -> None:
        from scheduler.decisions.recorder import Recorder
        from scheduler.extender.callers import Callers
        from scheduler.extender.verbs.context import RequestContexts
        from scheduler.extender.verbs.handlers import VerbHandlers
        from scheduler.extender.verbs.in_flight import InFlight
        from scheduler.extender.views import VerbView
        from scheduler.serving.shadows import Shadows
        from tests.recording import PLENTY, MemoryStream
        from tests.unit.extender.verbs.test_handlers import ALL_WELL, Holder, NoBinding

        live: Any = cluster
        holder: Any = Holder(revision)
        stream: Any = MemoryStream()
        self._in_flight = InFlight()
        self._recorder = Recorder(
            root=folder, writer=folder.name, stream=stream, max_bytes=PLENTY, checkpoints=lambda _: {}
        )  # fmt: skip
        self._recorder.spool.open()
        handlers = VerbHandlers(
            contexts=RequestContexts(
                revisions=holder, live=live, in_flight=self._in_flight, conditions=lambda: ALL_WELL, deadline_seconds=60.0
            ),
            live=live,
            in_flight=self._in_flight,
            binder=NoBinding(live.snapshot),
            client=None,  # type: ignore[arg-type] # nothing is bound
            recorder=self._recorder,
            shadows=Shadows(self._recorder.record),
        )  # fmt: skip
        callers = Callers()
        self._views = {
            f"/{verb}": VerbView.as_view(answers=handlers, callers=callers, verb=verb)
            for verb in ("filter", "prioritize")
        }
        self.connection: Any = None

    def call(self, verb: str, body: bytes) -> tuple[float, bytes]:
        """Answer a call; returns this thread's seconds, and the body."""
        from scheduler.extender.request.body_limit import BODY
        from scheduler.extender.request.wire import receive
        from scheduler.extender.views import request_of
        from scheduler.http_server.connection import CONNECTION

        started = thread_time()
        environ = _ENVIRON | {"PATH_INFO": f"/{verb}", "wsgi.input": BytesIO(), CONNECTION: self.connection}
        answered = self._views[f"/{verb}"](request_of(environ | {BODY: receive(body)}))
        pieces = list(answered)
        seconds = thread_time() - started
        if answered.status_code != 200:  # noqa: PLR2004 - all went well
            message = f"/{verb} answers {answered.status_code}: {b''.join(pieces)[:300]!r}"
            raise RuntimeError(message)
        return seconds, b"".join(pieces)

    def settle(self, pod: Json) -> None:
        """Forget a Pod that is on its node now, and wait for background writes."""
        self._in_flight.refused(pod["metadata"]["uid"])
        self._recorder._journal.join(60)  # noqa: SLF001 - a bench may look inside


_ENVIRON = {
    "REQUEST_METHOD": "POST", "SERVER_NAME": "127.0.0.1", "SERVER_PORT": "8010", "HTTP_HOST": "127.0.0.1:8010",
    "REMOTE_ADDR": "127.0.0.1", "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": "2", "wsgi.url_scheme": "http",
}  # fmt: skip


class Turns:
    """Two extenders of one cluster that take turns; one of them may lack a cache."""

    def __init__(self, cluster: Cluster, kind: str, rules: str, folder: Path) -> None:
        self._cluster, self._kind = cluster, kind
        revision = _revision(rules)
        self._extenders = []
        for turn in range(2):
            (at := folder / f"{kind}-{rules}-{len(cluster.names)}-{turn}").mkdir()
            self._extenders.append(Extender(cluster, revision, at))
        self._numbers = count()
        for _ in range(3):
            self.pair(())

    def use(self, connection: Any) -> None:
        """Use a connection for calls."""
        for extender in self._extenders:
            extender.connection = connection

    def pair(self, without: Sequence[Change]) -> tuple[float, float]:
        """Let both answer about a Pod; returns the seconds of each, the second one's without a cache."""
        from bench.live import make_pod_json

        cluster, number = self._cluster, next(self._numbers)
        cluster.go_on(number)
        pod = make_pod_json(1_000_000 + number, "")
        body, seconds = cluster.ask(self._kind, pod), [0.0, 0.0]
        bodies: dict[str, bytes] = {}
        for turn in (0, 1) if number % 2 else (1, 0):
            cluster.turn = turn
            extender = self._extenders[turn]
            with patched(without if turn else ()):
                for verb in ("filter", "prioritize"):
                    asked = bodies.get(verb, body)
                    spent, answer = extender.call(verb, asked)
                    seconds[turn] += spent
                    if verb == "filter":
                        bodies["prioritize"] = _follow(self._kind, body, answer)
            extender.settle(pod)
        return seconds[0], seconds[1]

    def measure(self, memory: Memory, times: int) -> tuple[float, float]:
        """Return the median seconds with a cache, and the median ratio of the pairs' times without it."""
        gc.collect()
        gc.disable()
        try:
            self.pair(memory.without)
            pairs = [self.pair(memory.without) for _ in range(times)]
        finally:
            gc.enable()
        return median(kept for kept, _ in pairs), median(without / kept for kept, without in pairs)


class _Passed(msgspec.Struct):
    NodeNames: msgspec.Raw = msgspec.Raw(b"null")
    Nodes: msgspec.Raw = msgspec.Raw(b"null")


def _follow(kind: str, body: bytes, answer: bytes) -> bytes:
    """Return the body of /prioritize: the same Pod, and the nodes that passed."""
    passed = msgspec.json.decode(answer, type=_Passed)
    pod = body[: body.index(b',"Nodes":')]
    if kind == "names":
        return pod + b',"Nodes":null,"NodeNames":' + bytes(passed.NodeNames) + b"}"
    return (
        pod
        + b',"Nodes":'
        + bytes(passed.Nodes).replace(b'{"items"', b'{"metadata":{},"items"', 1)
        + b',"NodeNames":null}'
    )


def _revision(rules: str) -> Any:
    from bench.rule_sets import _TEN_FILTERS, _TEN_SCORES
    from policies.engine.decision import CompiledRevision
    from policies.engine.default_set import FILTERS, SCORES
    from policies.engine.documents import read_assignment
    from policies.engine.ruleset import Revision
    from policies.engine.validation import read_rule_set

    spec: Json = {
        "filters": [{"builtin": name} for name in FILTERS],
        "scores": [{"builtin": name, "weight": weight} for name, weight in SCORES.items()],
    }
    if rules == "nothing":
        spec = {"filters": [], "scores": []}
    elif rules == "ten":
        # Without filters that count Pods, because these wait for Pods in flight.
        filters = [text for text in _TEN_FILTERS if ".count(" not in text]
        spec = {
            "filters": [{"name": f"f{at}", "expression": text} for at, text in enumerate(filters)],
            "scores": [{"name": f"s{at}", "expression": text} for at, text in enumerate(_TEN_SCORES)],
        }
    elif rules == "counts":
        counted = ("{'app': pod.metadata.labels.app}", "{'tier': pod.metadata.labels.tier}")
        spec = {
            "filters": [
                {"name": f"f{at}", "expression": f"node.count({labels}) < 100"} for at, labels in enumerate(counted)
            ]
        }
    matches: list[Json] = [{}]
    if rules == "none":
        matches = [{"namespaces": ["elsewhere"]}]
    elif rules == "many":
        matches = [{"podSelector": {"matchLabels": {"app": f"other-{at}"}}} for at in range(ASSIGNMENTS - 1)] + [{}]
    envelope = {"apiVersion": "berth/v1", "metadata": {"name": "bench"}}
    assignments = [
        read_assignment(
            {
                "apiVersion": "berth/v1", "kind": "Assignment", "metadata": {"name": f"a{at:04d}"},
                "spec": {"ruleSet": "bench", "match": match},
            }
        )
        for at, match in enumerate(matches)
    ]  # fmt: skip
    rule_set = read_rule_set({**envelope, "kind": "RuleSet", "spec": spec})
    return CompiledRevision(Revision(number=1, digest="0" * 64, rule_sets=[rule_set], assignments=assignments))


@contextmanager
def tls_connection(folder: Path) -> Iterator[Any]:
    """Yield the server's side of a TLS connection from a client with an authorised certificate."""
    from django.conf import settings

    from tests.certificates import Files

    files = Files(folder)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(files.cert, files.key)
    server.load_verify_locations(files.client_ca)
    server.verify_mode = ssl.CERT_REQUIRED
    client.load_verify_locations(files.server_ca)
    client.load_cert_chain(files.client())
    one, other = socket.socketpair()
    thread = threading.Thread(target=lambda: client.wrap_socket(other, server_hostname="localhost").recv(1))
    thread.start()
    connection = server.wrap_socket(one, server_side=True)
    secured = msgspec.structs.replace(
        settings.BERTH, extender_tls_cert_file=str(files.cert), extender_clients=("system:kube-scheduler",)
    )
    with connection, socket.create_server(("127.0.0.1", 0)) as listening, patch.object(settings, "BERTH", secured):
        yield _served(connection, listening.getsockname(), listening)
    thread.join()


def measure_calls(sizes: Sequence[int], only: str, folder: Path) -> None:
    """Print the benefit of caches in calls."""
    print(f"{'memory':>27} {'body':>6} {'nodes':>6} {'with, ms':>9} {'without':>9} {'times':>6}")
    wanted = [memory for memory in memories() if only in memory.name or not memory.without]
    for size in sizes:
        cluster = Cluster(size)
        for kind, rules in dict.fromkeys((kind, memory.rules) for memory in wanted for kind in memory.calls):
            with ExitStack() as stack:
                turns = Turns(cluster, kind, rules, folder)
                if rules == "tls":
                    turns.use(stack.enter_context(tls_connection(folder / f"tls-{size}")))
                for memory in wanted:
                    if kind in memory.calls and memory.rules == rules:
                        kept, more = turns.measure(memory, TIMES[kind].get(size, 20))
                        print(
                            f"{memory.name:>27} {kind:>6} {size:>6} {kept * 1e3:>9.3f} {kept * more * 1e3:>9.3f} {more:>6.2f}",
                            flush=True,
                        )


def _served(connection: socket.socket, address: Any, listening: socket.socket) -> Any:
    """Return a connection of the extender's server."""
    from scheduler.extender.identity import ONLY_PROBES
    from scheduler.extender.request.body_limit import IncomingBody
    from scheduler.http_server.body import Budget
    from scheduler.http_server.connection import Connection, Listener
    from scheduler.http_server.head import HeadLimits
    from scheduler.http_server.listeners import base_environ

    room = Budget(_WIRE_BYTES)

    def body(_: Json, length: int | None) -> IncomingBody:
        return IncomingBody(room, length, limit_bytes=_WIRE_BYTES, keep=True)

    environ = base_environ(listening) | {ONLY_PROBES: False}
    return Connection(connection, address, Listener(listening, body, HeadLimits(2048, 32, 4096), environ))


class Wire:
    """A connection to the extender's server, with both ends in this thread."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self._client = _connect(listening.getsockname()[1])
            served, address = listening.accept()
            served.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WIRE_BYTES)
            self._served = _served(served, address, listening)

    def call(self, application: Any, verb: str, body: bytes) -> float:
        """Let an application answer; returns this thread's seconds without those of the client."""
        from scheduler.http_server.connection import Wants

        said: list[Any] = []
        self._client.sendall(_head(verb, body) + body)
        started = thread_time()
        while self._served.go_on() is not Wants.ANSWER:
            pass
        pieces = list(application(self._served.environ, lambda *given: said.extend(given)))
        self._served.note(is_good=True)
        status, headers = said
        self._served.answer(status, headers, pieces, is_last=False)
        self._served.go_on()
        seconds = thread_time() - started
        read_answer(self._client)
        return seconds


_WIRE_BYTES = 8 << 20


def _connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    # The buffers hold whole bodies and answers: neither end reads while the other one writes.
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        client.setsockopt(socket.SOL_SOCKET, option, _WIRE_BYTES)
    return client


def _head(verb: str, body: bytes) -> bytes:
    # The headers that Go's net/http sends.
    return (
        f"POST /{verb} HTTP/1.1\r\nHost: 127.0.0.1:8010\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: {len(body)}\r\n"
        "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    ).encode()


def read_answer(client: socket.socket) -> None:
    """Read an answer of known length.

    Raises:
        RuntimeError: its status isn't 200.
    """
    came = client.recv(_WIRE_BYTES)
    while (end := came.find(b"\r\n\r\n")) < 0:
        came += client.recv(_WIRE_BYTES)
    head = came[:end].decode()
    if " 200 " not in head.partition("\r\n")[0]:
        raise RuntimeError(head)
    left = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0]) - (len(came) - end - 4)
    while left > 0:
        left -= len(client.recv(_WIRE_BYTES))


def _plain_answer(body: list[bytes], start_response: Any) -> list[bytes]:
    fields = [("Content-Type", "application/json"), ("Content-Length", str(sum(map(len, body))))]
    start_response("200 OK", fields)
    return body


def _echo_bytes(environ: Json, start_response: Any) -> list[bytes]:
    from scheduler.extender.request.body_limit import BODY

    body = environ[BODY]
    return _plain_answer([b"{", body[body.index(b'"NodeNames":') :]], start_response)


def _echo_names(environ: Json, start_response: Any) -> list[bytes]:
    from scheduler.extender.request.body_limit import BODY
    from scheduler.extender.request.wire import decode_args, encode_filter_result, encode_names, encode_priorities

    names = decode_args(environ[BODY]).node_names or []
    if environ["PATH_INFO"] == "/prioritize":
        return _plain_answer([encode_priorities(names, [0] * len(names))], start_response)
    pieces = encode_filter_result(nodes=None, names=encode_names(names), failed={}, unresolvable={})
    return _plain_answer(pieces, start_response)


def _by_views(views: Any) -> Any:
    def application(environ: Json, start_response: Any) -> Any:
        from scheduler.extender.views import request_of

        response = views[environ["PATH_INFO"]](request_of(environ))
        start_response(f"{response.status_code} {response.reason_phrase}", list(response.items()))
        return response

    return application


class _Nothing:
    """Answers with a constant."""

    def answer(self, body: object) -> Any:
        from scheduler.extender.verbs.handlers import Reply

        del body
        return Reply(b"{}")

    filter = prioritize = answer


def measure_steps(sizes: Sequence[int], times: int, folder: Path) -> None:
    """Print the times of the steps of a call, and of the echo in Go."""
    from bench.live import make_pod_json
    from bench.running import answers, build_go_programs, eventually, free_port, process
    from scheduler.extender.callers import Callers
    from scheduler.extender.views import VerbView

    build_go_programs(folder)
    cluster = Cluster(max(sizes))
    extenders = {}
    for name, rules in _EXTENDERS.items():
        (folder / name).mkdir()
        extenders[name] = Extender(cluster, _revision(rules), folder / name)
    extenders["unrecorded"]._recorder.record = lambda entry: None  # type: ignore[method-assign]  # noqa: ARG005, SLF001
    nothing: Any = _Nothing()
    steps = {
        "a server that echoes bytes": _echo_bytes,
        "names decoded, written": _echo_names,
        "bytes, by Django's view": _by_views(
            {f"/{verb}": VerbView.as_view(answers=nothing, callers=Callers(), verb=verb) for verb in VERBS}
        ),
        "no rules, not recorded": _by_views(extenders["unrecorded"]._views),  # noqa: SLF001
        "no rules, recorded": _by_views(extenders["nothing"]._views),  # noqa: SLF001
        "classic set, recorded": _by_views(extenders["classic"]._views),  # noqa: SLF001
    }
    wire, random, numbers = Wire(), Random(1), count()
    print(f"{'microseconds of':>27} {'nodes':>6} {'filter':>8} {'prioritize':>11}")
    port = free_port()
    with process([folder / "extender-names", "-port", str(port)], folder / "echo.log") as echo:
        eventually(lambda: answers(f"http://127.0.0.1:{port}/readyz"), "the echo is ready")
        go = _connect(port)
        for size in sizes:
            spent: dict[tuple[str, str], list[float]] = {}
            for _ in range(times):
                pod = make_pod_json(1_000_000 + next(numbers), "")
                for verb in VERBS:
                    names = random.sample(cluster.names[:size], size)
                    body = b'{"Pod":%b,"Nodes":null,"NodeNames":%b}' % (
                        msgspec.json.encode(pod),
                        msgspec.json.encode(names),
                    )
                    spent.setdefault(("the echo in Go, its process", verb), []).append(
                        _ask_go(go, echo.pid, verb, body)
                    )
                    for name, application in steps.items():
                        spent.setdefault((name, verb), []).append(wire.call(application, verb, body))
                for extender in extenders.values():
                    extender.settle(pod)
            for name in dict.fromkeys(name for name, _ in spent):
                filtering, scoring = (median(spent[name, verb]) * 1e6 for verb in VERBS)
                print(f"{name:>27} {size:>6} {filtering:>8.0f} {scoring:>11.0f}", flush=True)


VERBS = ("filter", "prioritize")
_EXTENDERS = {"unrecorded": "nothing", "nothing": "nothing", "classic": "classic"}


def _ask_go(client: socket.socket, pid: int, verb: str, body: bytes) -> float:
    """Call the echo; returns the processor seconds of its process."""
    before = _seconds_of(pid)
    client.sendall(_head(verb, body) + body)
    read_answer(client)
    return _seconds_of(pid) - before


def _seconds_of(pid: int) -> float:
    """Return a process's processor seconds, more exactly than in clock ticks."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


@contextmanager
def patched(changes: Sequence[Change]) -> Iterator[None]:
    """Apply the replacements while the block runs."""
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(patch.object(*change))
        yield


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--only", default="", help="a part of the names of memories to measure")
    parser.add_argument(
        "--steps", action="store_true", help="what the steps of a call with names take, and nothing else"
    )
    parser.add_argument("--times", type=int, default=200, help="Pods asked about for --steps")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as name:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "BERTH_LOCAL": "true",
            "BERTH_STATE_DIR": name,
        }
        os.environ["BERTH_EXTENDER_CALLS_PER_SECOND"] = "1000000"
        import django

        django.setup()
        from bench.running import machine

        if asked.steps:
            print(f"{machine()}; calls with names, processor time, medians")
            measure_steps(asked.sizes, asked.times, Path(name))
            return
        print(f"{machine()}; /filter and /prioritize of a Pod together, this thread's time, medians")
        measure_calls(asked.sizes, asked.only, Path(name))


if __name__ == "__main__":
    main()
