"""The watching thread against servers that misbehave."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest
from prometheus_client import REGISTRY

from policies.engine.objects.pod import Pod
from scheduler.cluster import watch
from scheduler.cluster.client import Client
from scheduler.cluster.kinds import PODS
from scheduler.cluster.reflection import Changes
from scheduler.cluster.watch import Reflector
from tests.unit.cluster.kubernetes_json import event_json, list_json, pod_json, status_json
from tests.unit.cluster.scripted_server import Answer, Request, ScriptedServer, serving, write_kubeconfig

OPEN_SECONDS = 30.0


def line(type_: str, name: str, version: int) -> bytes:
    """Return a line of a watch."""
    return event_json(type_, pod_json(name, version=str(version))) + b"\n"


class Counts:
    """What the metrics of the watch of Pods count from here on."""

    def __init__(self) -> None:
        self._before = {name: self._now(name) for name in ("silent", "ended", "gone", "refused", "failed", "lists")}
        self._before |= {name: self._now(name) for name in ("unreachable", "unreadable", "broken", "lag")}

    @staticmethod
    def _now(name: str) -> float:
        if name == "lists":
            return REGISTRY.get_sample_value("berth_watch_lists_total", {"kind": "pods"}) or 0.0
        if name == "lag":
            return REGISTRY.get_sample_value("berth_watch_lag_seconds_count", {"kind": "pods"}) or 0.0
        return REGISTRY.get_sample_value("berth_watch_restarts_total", {"kind": "pods", "why": name}) or 0.0

    def __getitem__(self, name: str) -> float:
        return self._now(name) - self._before[name]


class Watching:
    """A server that follows a script, and what the reflector told."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.told: list[tuple[str, str]] = []
        self.lists = 0
        self.heard = 0
        self.reflector: Reflector[Pod]

    def take(self, changes: Changes[Pod]) -> None:
        """Note the changes."""
        self.told += [(change.kind, change.object.name) for change in changes.changes]
        self.lists += changes.replaced

    def hear(self) -> None:
        """Note that something was heard."""
        self.heard += 1

    @property
    def versions_watched(self) -> list[str]:
        """The versions that watches began at."""
        return [request.query["resourceVersion"] for request in self.server.requests if request.is_watch]


class Hasty(Random):
    """Always draws the shortest pause."""

    def uniform(self, a: float, b: float) -> float:
        return a


@contextmanager
def watching(
    folder: Path, script: Callable[[Request], Answer], *, silence_seconds: float = 20.0, jitter: Random | None = None
) -> Iterator[Watching]:
    """Run a reflector for Pods against a script."""
    with serving(script) as server:
        client = Client.connect(write_kubeconfig(folder, server.url))
        seen = Watching(server)
        seen.reflector = Reflector(
            client=client,
            kind=PODS,
            handler=seen.take,
            heard=seen.hear,
            jitter=jitter,
            silence_seconds=silence_seconds,
        )
        seen.reflector.start()
        try:
            yield seen
        finally:
            seen.reflector.stop()


def eventually(condition: Callable[[], bool], *, seconds: float = 10.0) -> bool:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def in_turn(*answers: Answer) -> Callable[[], Answer]:
    """Return one answer after the other, and the last one again and again."""
    left = list(answers)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def lists_and_watches(lists: Callable[[], Answer], watches: Callable[[], Answer]) -> Callable[[Request], Answer]:
    """Answer lists by one order, watches by another."""
    return lambda request: watches() if request.is_watch else lists()


def test_watch_follows_the_list(tmp_path: Path) -> None:
    """With what the server must be told: bookmarks wanted, the list's version, an end."""
    script = lists_and_watches(
        in_turn(Answer(body=list_json([pod_json("a")], version="10"))),
        in_turn(Answer(stream=[line("ADDED", "b", 11), line("DELETED", "a", 12), OPEN_SECONDS])),
    )
    with watching(tmp_path, script) as seen:
        assert eventually(lambda: len(seen.told) == 3)
        assert seen.told == [("added", "a"), ("added", "b"), ("deleted", "a")]
        query = seen.server.requests[1].query
        assert query["allowWatchBookmarks"] == "true"
        assert query["resourceVersion"] == "10"
        assert 290 <= int(query["timeoutSeconds"]) <= 590
        assert query["fieldSelector"] == "status.phase!=Succeeded,status.phase!=Failed"
        assert seen.reflector.age_seconds() < 10.0


def test_a_clean_end_is_followed_by_a_watch_from_the_last_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Events and bookmarks both move the version, and nobody is alarmed."""
    bookmark = event_json("BOOKMARK", {"metadata": {"resourceVersion": "17"}}) + b"\n"
    script = lists_and_watches(
        in_turn(Answer(body=list_json([], version="10"))),
        in_turn(Answer(stream=[line("ADDED", "a", 11)]), Answer(stream=[bookmark]), Answer(stream=[OPEN_SECONDS])),
    )
    with watching(tmp_path, script) as seen:
        assert eventually(lambda: len(seen.versions_watched) == 3)
        assert seen.versions_watched == ["10", "11", "17"]
        assert seen.lists == 1
    assert "watch_lost" not in caplog.text


@pytest.mark.parametrize("inside", [True, False], ids=["as an ERROR event", "as the HTTP status"])
def test_a_410_leads_to_a_list_and_its_differences(tmp_path: Path, inside: bool) -> None:
    """What vanished meanwhile is told as deleted."""
    status = status_json(410, "Expired")
    error = event_json("ERROR", status) + b"\n"
    gone = Answer(stream=[error, OPEN_SECONDS]) if inside else Answer(410, msgspec.json.encode(status))
    script = lists_and_watches(
        in_turn(
            Answer(body=list_json([pod_json("a"), pod_json("b")], version="10")),
            Answer(body=list_json([pod_json("b"), pod_json("c")], version="50")),
        ),
        in_turn(gone, Answer(stream=[OPEN_SECONDS])),
    )
    with watching(tmp_path, script) as seen:
        assert eventually(lambda: len(seen.versions_watched) == 2)
        assert seen.told == [("added", "a"), ("added", "b"), ("deleted", "a"), ("added", "c")]
        assert seen.versions_watched == ["10", "50"]


def test_an_error_inside_the_watch_that_passes_is_waited_out(tmp_path: Path) -> None:
    """An internal error costs no list."""
    error = event_json("ERROR", status_json(500, "InternalError")) + b"\n"
    script = lists_and_watches(
        in_turn(Answer(body=list_json([], version="10"))),
        in_turn(Answer(stream=[line("ADDED", "a", 11), error]), Answer(stream=[OPEN_SECONDS])),
    )
    with watching(tmp_path, script) as seen:
        assert eventually(lambda: len(seen.versions_watched) == 2)
        assert seen.versions_watched == ["10", "11"]
        assert seen.lists == 1


def test_a_line_cut_short_is_read_again(tmp_path: Path) -> None:
    """The connection broke: the event isn't lost."""
    whole = line("ADDED", "b", 12)
    script = lists_and_watches(
        in_turn(Answer(body=list_json([], version="10"))),
        in_turn(
            Answer(stream=[line("ADDED", "a", 11), whole[:40], None]),
            Answer(stream=[whole, OPEN_SECONDS]),
        ),
    )
    with watching(tmp_path, script) as seen:
        assert eventually(lambda: len(seen.told) == 2)
        assert seen.told == [("added", "a"), ("added", "b")]
        assert seen.versions_watched == ["10", "11"]
        assert seen.lists == 1


def test_a_whole_line_that_is_no_event_leads_to_a_list(tmp_path: Path) -> None:
    """Watched from the same version it would come again and again."""
    counts = Counts()
    script = lists_and_watches(
        in_turn(Answer(body=list_json([], version="10")), Answer(body=list_json([pod_json("b")], version="13"))),
        in_turn(
            Answer(stream=[b'{"type":"ADDED","obj\n', OPEN_SECONDS]),
            Answer(stream=[line("ADDED", "c", 14), OPEN_SECONDS]),
        ),
    )
    with watching(tmp_path, script) as seen:
        assert eventually(lambda: len(seen.told) == 2)
        assert seen.told == [("added", "b"), ("added", "c")]
        assert (seen.versions_watched, seen.lists, counts["unreadable"]) == (["10", "13"], 2, 1.0)


def test_an_object_nested_without_end_keeps_no_other_from_being_seen(tmp_path: Path) -> None:
    """kube-apiserver takes managedFields of thousands of levels from whoever may create a Pod."""
    deep = b'[{"manager":"x","fieldsV1":' + b'{"f:a":' * 5000 + b"{}" + b"}" * 5000 + b"}]"
    listed, added = (pod_json(name, version=version) for name, version in (("a", "10"), ("b", "11")))
    for pod in (listed, added):
        pod["metadata"]["managedFields"] = "deep"
    page, event = list_json([listed, pod_json("c")], version="10"), event_json("ADDED", added) + b"\n"
    script = lists_and_watches(
        in_turn(Answer(body=page.replace(b'"deep"', deep))),
        in_turn(Answer(stream=[event.replace(b'"deep"', deep), line("ADDED", "d", 12), OPEN_SECONDS])),
    )
    with watching(tmp_path, script) as seen:
        assert eventually(lambda: len(seen.told) == 4)
        assert [name for _, name in seen.told] == ["a", "c", "b", "d"]


def test_a_half_open_connection_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A watch that says nothing, not even a bookmark, is opened again."""
    script = lists_and_watches(
        in_turn(Answer(body=list_json([], version="10"))),
        in_turn(Answer(stream=[OPEN_SECONDS]), Answer(stream=[line("ADDED", "a", 11), OPEN_SECONDS])),
    )
    with watching(tmp_path, script, silence_seconds=0.3) as seen:
        assert eventually(lambda: seen.told == [("added", "a")])
    assert "watch_lost" not in caplog.text


def test_a_server_that_is_away_is_asked_seldom_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line when it goes, one when it is back, and pauses that grow."""
    caplog.set_level(logging.INFO, "berth.cluster")
    back = threading.Event()

    def script(request: Request) -> Answer:
        if not back.is_set():
            return Answer(503, b"starting")
        return Answer(stream=[OPEN_SECONDS]) if request.is_watch else Answer(body=list_json([pod_json("a")]))

    with watching(tmp_path, script) as seen:
        assert seen.reflector.age_seconds() == float("inf")
        assert eventually(lambda: len(seen.server.requests) >= 4)
        pauses = [
            later - earlier for earlier, later in zip(seen.server.asked_at, seen.server.asked_at[1:], strict=False)
        ]
        assert min(pauses) >= 0.19
        back.set()
        assert eventually(lambda: seen.told == [("added", "a")])
        messages = [record.getMessage() for record in caplog.records]
    assert [message.split(" error=")[0] for message in messages] == [
        "watch_lost kind=pods",
        "watch_recovered kind=pods",
    ]


def test_stopping_does_not_wait_for_the_server(tmp_path: Path) -> None:
    """A watch may stay open for ten minutes; stopping takes no time."""
    script = lists_and_watches(in_turn(Answer(body=list_json([]))), in_turn(Answer(stream=[OPEN_SECONDS])))
    with watching(tmp_path, script) as seen:
        assert eventually(lambda: len(seen.versions_watched) == 1)
        started = time.monotonic()
        seen.reflector.stop()
        assert time.monotonic() - started < 1.0


def resting(*lines: bytes) -> Callable[[Request], Answer]:
    """Answer with a watch whose first line has to be waited for, so that what follows gathers."""
    return lists_and_watches(in_turn(Answer(body=list_json([]))), in_turn(Answer(stream=[0.5, *lines, OPEN_SECONDS])))


def test_events_that_gathered_are_told_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rest behind each of them they would take a minute."""
    monkeypatch.setattr(watch, "REST_SECONDS", 0.4)
    names = [f"p{number}" for number in range(150)]
    lines = [line("ADDED", name, number) for number, name in enumerate(names, 2)]
    with watching(tmp_path, resting(*lines)) as seen:
        assert eventually(lambda: len(seen.told) == len(names), seconds=20.0)
        assert [name for _, name in seen.told] == names


@pytest.mark.parametrize(("few", "waits"), [(2, False), (1, True)], ids=["few", "many"])
def test_the_event_that_follows_another_is_told_at_once_unless_many_came(
    few: int, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a Pod that goes kube-scheduler asks at once whether its room can be had."""
    monkeypatch.setattr(watch, "REST_SECONDS", 1.0)
    monkeypatch.setattr(watch, "FEW_EVENTS", few)
    gone = line("DELETED", "a", 4)
    lines = [line("ADDED", "a", 2), 0.3, line("MODIFIED", "a", 3), 0.05, gone, OPEN_SECONDS]
    answers = lists_and_watches(in_turn(Answer(body=list_json([]))), in_turn(Answer(stream=[1.2, *lines])))
    with watching(tmp_path, answers) as seen:
        # With few, the third may come before the second is looked at.
        assert eventually(lambda: len(seen.told) >= 2)
        started = time.monotonic()
        assert eventually(lambda: len(seen.told) >= 3)

        assert (time.monotonic() - started > 0.5) is waits
        assert seen.told[-1] == ("deleted", "a")


def test_a_handler_that_fails_does_not_end_the_watch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The fault is in the log and a new list follows."""
    script = lists_and_watches(in_turn(Answer(body=list_json([pod_json("a")]))), in_turn(Answer(stream=[OPEN_SECONDS])))
    calls: list[Changes[Pod]] = []

    def handler(changes: Changes[Pod]) -> None:
        calls.append(changes)
        if len(calls) == 1:
            raise RuntimeError

    with serving(script) as server:
        client = Client.connect(write_kubeconfig(tmp_path, server.url))
        reflector = Reflector(client=client, kind=PODS, handler=handler)
        reflector.start()
        assert eventually(lambda: len(calls) == 2)
        reflector.stop()
    assert "watch_broken" in caplog.text


def test_the_version_follows_lists_events_and_bookmarks(tmp_path: Path) -> None:
    """Each is told once the handler has it."""
    bookmark = event_json("BOOKMARK", {"metadata": {"resourceVersion": "17"}}) + b"\n"
    go_on = threading.Event()

    def script(request: Request) -> Answer:
        if not request.is_watch:
            return Answer(body=list_json([pod_json("a")], version="10"))
        return Answer(stream=chunks())

    def chunks() -> Iterator[bytes | float]:
        yield line("ADDED", "b", 11)
        go_on.wait(10)
        yield bookmark
        yield OPEN_SECONDS

    with watching(tmp_path, script) as seen:
        assert eventually(lambda: seen.reflector.version == "11")
        assert ("added", "b") in seen.told
        heard = seen.heard
        go_on.set()
        assert eventually(lambda: seen.reflector.version == "17")
        assert eventually(lambda: seen.heard > heard)
        assert [pod.name for pod in seen.reflector.objects()] == ["a", "b"]


def test_a_watch_is_failing_until_the_server_takes_a_request_again(tmp_path: Path) -> None:
    """A quiet cluster says nothing for a minute, but the watch is open."""
    away = threading.Event()

    def script(request: Request) -> Answer:
        if away.is_set():
            return Answer(503)
        return Answer(stream=[0.3]) if request.is_watch else Answer(body=list_json([]))

    with watching(tmp_path, script) as seen:
        assert eventually(lambda: seen.lists == 1)
        assert not seen.reflector.failing
        away.set()
        assert eventually(lambda: seen.reflector.failing)
        away.clear()
        assert eventually(lambda: not seen.reflector.failing)
        assert seen.lists == 1


def test_ends_and_faults_of_watches_are_counted_by_their_reason(tmp_path: Path) -> None:
    """And so are lists, and how long events took to be seen."""
    counts = Counts()
    gone = event_json("ERROR", status_json(410, "Expired")) + b"\n"
    script = lists_and_watches(
        in_turn(Answer(403), Answer(body=list_json([], version="10"))),
        in_turn(
            Answer(stream=[line("ADDED", "a", 11)]),
            Answer(500),
            Answer(stream=[line("ADDED", "b", 12), b"{", None]),
            Answer(stream=[gone]),
            Answer(stream=[OPEN_SECONDS]),
            Answer(stream=[line("ADDED", "c", 13), OPEN_SECONDS]),
        ),
    )
    with watching(tmp_path, script, silence_seconds=0.5, jitter=Hasty()) as seen:
        assert eventually(lambda: ("added", "c") in seen.told, seconds=20.0)
        assert eventually(lambda: counts["lag"] == 3)
    found = {name: counts[name] for name in ("refused", "ended", "failed", "unreachable", "gone", "silent")}
    assert found == {"refused": 1, "ended": 1, "failed": 1, "unreachable": 1, "gone": 1, "silent": 1}
    assert counts["lists"] == 2


def test_a_handler_that_fails_is_counted(tmp_path: Path) -> None:
    """As what broke the watch."""
    counts = Counts()
    script = lists_and_watches(in_turn(Answer(body=list_json([pod_json("a")]))), in_turn(Answer(stream=[OPEN_SECONDS])))
    with serving(script) as server:
        client = Client.connect(write_kubeconfig(tmp_path, server.url))

        def handler(_: Changes[Pod]) -> None:
            raise RuntimeError

        reflector = Reflector(client=client, kind=PODS, handler=handler)
        assert reflector.ended
        reflector.start()
        try:
            assert eventually(lambda: counts["broken"] >= 1)
            assert reflector.version == ""
        finally:
            reflector.stop()
        assert reflector.ended
