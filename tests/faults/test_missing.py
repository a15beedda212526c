"""What becomes of Pods and Decisions when who answered is killed in between: real processes, a real cluster."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler.decisions.frames import Kind
from scheduler.decisions.segments import Position, Segments
from tests.extender import Extender, post
from tests.stack import BASE_DIR, Stack, eventually, free_port, make_node

pytestmark = pytest.mark.e2e
NAMES = ["n1", "n2", "n3"]
RULES = (
    {
        "apiVersion": "berth/v1",
        "kind": "RuleSet",
        "metadata": {"name": "all"},
        "spec": {"filters": [{"builtin": "PodFitsResources"}]},
    },
    {"apiVersion": "berth/v1", "kind": "Assignment", "metadata": {"name": "all"}, "spec": {"ruleSet": "all"}},
)
# Young for 10 s, then a look every 2 s; the rest is for a slow machine.
FOUND_SECONDS = 40.0


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("missing"), nodes=[make_node(name) for name in NAMES]) as made:
        made.publish(*RULES)
        yield made


@contextmanager
def nobody_restarted(stack: Stack) -> Iterator[None]:
    """`make up` starts nothing again meanwhile."""
    assert stack._process is not None
    os.kill(stack._process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(stack._process.pid, signal.SIGCONT)


def ask(stack: Stack, name: str) -> str:
    """Create a Pod that no scheduler takes, and ask about it as kube-scheduler does; returns the UID."""
    uid = stack.create_pod(name, schedulerName="a-person")
    body = json.dumps({"Pod": stack.pods()[name], "NodeNames": NAMES}).encode()
    status, answer = stack.call("filter", body)
    assert (status, answer["NodeNames"]) == (200, NAMES)
    return uid


def bind(stack: Stack, name: str, node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    stack.client.post(path=f"/api/v1/namespaces/default/pods/{name}/binding", body=json.dumps(body).encode())


def placed(stack: Stack, uid: str) -> list[tuple[str, bool]]:
    """The outcome of each Decision about a Pod: the node, and whether anything was found."""
    rows = stack.sql(f"SELECT placed_on, placed_at FROM scheduler_decision WHERE pod_uid = '{uid}'")
    return [(node, at is not None) for node, at in rows]


def wait_for(stack: Stack, uid: str, node: str) -> None:
    eventually(lambda: set(placed(stack, uid)) == {(node, True)}, seconds=FOUND_SECONDS, what=f"{uid} on {node!r}")


def test_a_pod_bound_while_no_extender_runs_has_its_node(stack: Stack) -> None:
    with nobody_restarted(stack):
        uid = ask(stack, "bound-meanwhile")
        stack.kill("extender")
        bind(stack, "bound-meanwhile", "n2")
        wait_for(stack, uid, "n2")


def test_a_pod_bound_before_the_next_extender_is_there_has_its_node(stack: Stack) -> None:
    eventually(lambda: stack.is_up(stack.extender_url), what="the extender is back")
    uid = ask(stack, "bound-before-the-next")
    stack.kill("extender")
    bind(stack, "bound-before-the-next", "n3")
    wait_for(stack, uid, "n3")


def test_a_pod_deleted_unbound_meanwhile_is_said_to_be_gone(stack: Stack) -> None:
    eventually(lambda: stack.is_up(stack.extender_url), what="the extender is back")
    with nobody_restarted(stack):
        uid = ask(stack, "deleted-meanwhile")
        stack.kill("extender")
        stack.client.delete(path="/api/v1/namespaces/default/pods/deleted-meanwhile")
        wait_for(stack, uid, "")


def test_every_pod_of_berths_own_scheduler_has_its_node_when_that_is_killed_while_it_binds(stack: Stack) -> None:
    uids = {f"own-{number}": stack.create_pod(f"own-{number}", schedulerName="berth") for number in range(20)}
    eventually(lambda: any(stack.node_of(name) for name in uids), every=0.01, what="the first is bound")
    stack.kill("binder")
    for name, uid in uids.items():
        wait_for(stack, uid, stack.wait_for_node(name, seconds=60))


def metrics(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(number) for name, _, number in (line.rpartition(" ") for line in lines) if name[:1] != "#"}


def listeners(stack: Stack) -> dict[str, str]:
    settings = dict(line.split("=", 1) for line in (stack.state / "env").read_text().splitlines())
    names = {"worker": "BERTH_WORKER_BIND", "beat": "BERTH_BEAT_BIND"}
    return {name: settings[variable] for name, variable in names.items()} | {
        "admin": stack.admin_url.removeprefix("http://")
    }


def doctor(stack: Stack) -> dict[str, Any]:
    """What `doctor` says of Decisions."""
    environment = {**stack._environment, "BERTH_STATE_DIR": str(stack.state)}
    command = [sys.executable, "manage.py", "doctor", "--output", "json"]
    done = subprocess.run(command, cwd=BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    said = next(part for part in report["parts"] if part["name"] == "Decisions")
    return {"code": done.returncode, "ok": report["ok"], **said}


def kill(extender: Extender) -> None:
    """Kill -9 all its processes, the master last: it would start another worker, which would end in order."""
    assert extender.process is not None
    extender.process.send_signal(signal.SIGSTOP)
    children = Path(f"/proc/{extender.process.pid}/task/{extender.process.pid}/children").read_text().split()
    for pid in children:
        os.kill(int(pid), signal.SIGKILL)
    extender.stop(signal.SIGKILL)


def gaps(stack: Stack) -> list[tuple[Any, ...]]:
    return stack.sql("SELECT first, last FROM scheduler_decisiongap")


def test_a_writer_that_vanished_with_what_it_had_is_noticed_within_a_minute_and_found_again(
    stack: Stack, tmp_path: Path
) -> None:
    folder = tmp_path / "other"
    settings = {**stack.settings_of_another(folder / "state"), "BERTH_ROLE": "extender"}
    alone = {**settings, "BERTH_REDIS_URL": f"redis://127.0.0.1:{free_port()}/0"}
    other = Extender(folder, alone).start("readyz")
    pod = {"metadata": {"name": "x", "namespace": "default", "uid": "of-another"}, "spec": {"containers": []}}
    body = json.dumps({"Pod": pod, "NodeNames": NAMES}).encode()
    for _ in range(49):
        assert post(other.connect(), body=body)[0] == 200
    eventually(
        lambda: stack.sql("SELECT 1 FROM scheduler_checkpoint WHERE numbered = 49"), what="the heartbeat says how many"
    )

    # Its machine is gone, with its disk.
    kill(other)
    shutil.move(folder / "state", tmp_path / "aside")
    started = time.monotonic()
    eventually(lambda: gaps(stack) == [(1, 49)], seconds=60, what="the gap is noticed")
    print(f"noticed after {time.monotonic() - started:.1f} s")
    for name, address in listeners(stack).items():
        found = metrics(address)
        assert (found["berth_decisions_missing"], found["berth_decisions_lost_total"]) == (49, 0), name
    said = doctor(stack)
    assert (said["state"], said["code"], said["ok"]) == ("error", 1, False)
    assert said["says"] == "49 of processes that are gone are not stored"

    # The disk is found, and a process started on it.
    shutil.move(tmp_path / "aside", folder / "state")
    back = Extender(folder, settings).start()
    try:
        eventually(lambda: gaps(stack) == [], seconds=60, what="the gap is gone")
        rows = stack.sql("SELECT COUNT(*) FROM scheduler_decision WHERE pod_uid = 'of-another'")
        assert rows == [(49,)]
        assert metrics(listeners(stack)["worker"])["berth_decisions_missing"] == 0
        assert doctor(stack)["state"] == "ok"
    finally:
        back.stop()


@contextmanager
def an_extender_alone(stack: Stack, folder: Path) -> Iterator[tuple[Extender, dict[str, str]]]:
    """Start an extender that can't reach Redis, so that what it records waits on its disk; with settings by which it can."""
    settings = {**stack.settings_of_another(folder / "state"), "BERTH_ROLE": "extender"}
    alone = {**settings, "BERTH_REDIS_URL": f"redis://127.0.0.1:{free_port()}/0"}
    with Extender(folder, alone) as other:
        eventually(lambda: other.says_yes("readyz"), what="it is ready")
        yield other, settings


def answer(extender: Extender, uid: str, times: int) -> None:
    pod = {"metadata": {"name": "x", "namespace": "default", "uid": uid}, "spec": {"containers": []}}
    body = json.dumps({"Pod": pod, "NodeNames": NAMES}).encode()
    for _ in range(times):
        assert post(extender.connect(), body=body)[0] == 200


def stored(stack: Stack, uid: str) -> list[int]:
    return [
        number for (number,) in stack.sql(f"SELECT sequence FROM scheduler_decision WHERE pod_uid = '{uid}' ORDER BY 1")
    ]


def folder_of_writer(folder: Path) -> Path:
    (found,) = [path.parent for path in (folder / "state" / "spool").glob("*/*.seg")]
    return found


def test_a_record_that_is_torn_costs_itself_and_becomes_a_dead_letter(stack: Stack, tmp_path: Path) -> None:
    with an_extender_alone(stack, tmp_path / "torn") as (other, settings):
        answer(other, "torn", 20)
        eventually(lambda: stack.sql("SELECT 1 FROM scheduler_checkpoint WHERE numbered = 20"), what="20 are numbered")
        kill(other)
        # As a loss of power may leave it: the last page never came to the disk.
        segments = Segments(folder_of_writer(tmp_path / "torn"))
        frames = segments.read(Position(1)).frames
        last = max(frame.end for frame in frames if frame.kind == Kind.DECISION)
        os.truncate(segments.path(1), last - 9)
        with Extender(tmp_path / "torn", settings):
            eventually(lambda: len(stored(stack, "torn")) >= 19, seconds=60, what="what is whole is stored")
            assert stored(stack, "torn") == [*range(1, 20)]
            letters = eventually(lambda: stack.sql("SELECT reason FROM scheduler_deadletter"), what="the rest is kept")
            assert "corrupt" in letters[0][0]


def test_a_spool_deleted_under_a_living_process_is_noticed_and_followed_by_another(
    stack: Stack, tmp_path: Path
) -> None:
    before = gaps(stack)
    with an_extender_alone(stack, tmp_path / "deleted") as (other, settings):
        answer(other, "deleted", 10)
        shutil.rmtree(folder_of_writer(tmp_path / "deleted"))
        eventually(lambda: other.metric("berth_spool_lost_total") == 1, seconds=60, what="it is noticed")
        answer(other, "deleted", 5)
        kill(other)
        with Extender(tmp_path / "deleted", settings):
            eventually(
                lambda: stored(stack, "deleted") == [*range(11, 16)], seconds=60, what="the later ones are stored"
            )
            assert set(gaps(stack)) - {*before, (20, 20)} == {(1, 10)}


def test_what_redis_forgets_is_sent_again_and_stored_once(stack: Stack) -> None:
    import redis

    url = dict(line.split("=", 1) for line in (stack.state / "env").read_text().splitlines())["BERTH_REDIS_URL"]
    uids = []
    with redis.Redis.from_url(url) as broker:
        for number in range(60):
            uids.append(ask(stack, f"forgotten-{number}"))
            if number % 10 == 9:
                broker.flushall()
    eventually(lambda: all(len(stored(stack, uid)) == 1 for uid in uids), seconds=60, what="each is stored")
    assert [row for row in gaps(stack) if row not in {(20, 20), (1, 10)}] == []


def test_worker_and_beat_answer_probes(stack: Stack) -> None:
    for name, address in listeners(stack).items():
        for probe in ("livez", "readyz"):
            with urllib.request.urlopen(f"http://{address}/{probe}", timeout=5) as answer:
                assert answer.status == 200, (name, probe)


# What counts losses: of a process in its own, what stands in tables where no process has to live for it.
OF_WRITERS = {
    "berth_decisions_unwritten_total",
    "berth_outcomes_unwritten_total",
    "berth_spool_lost_total",
    "berth_spool_corrupt_total",
    "berth_inflight_forgotten_total",
}
OF_TABLES = {"berth_decisions_lost_total", "berth_decisions_missing", "berth_dead_letters"}


def test_every_count_of_what_is_lost_can_be_scraped(stack: Stack) -> None:
    binder = dict(line.split("=", 1) for line in (stack.state / "env").read_text().splitlines())["BERTH_BINDER_BIND"]
    for address in (binder, stack.probes_url.removeprefix("http://")):
        assert metrics(address).keys() >= OF_WRITERS, address
    for name, address in listeners(stack).items():
        assert metrics(address).keys() >= OF_TABLES, name
