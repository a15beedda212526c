"""Tried on `66707d2` and the commit before: what a writer had when it vanished with its disk is a gap."""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.extender import Extender, post
from tests.stack import Stack, eventually, free_port, make_node

pytestmark = pytest.mark.e2e
CALLS = 49


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    folder = tmp_path / "stack"
    folder.mkdir()
    made = Stack(folder, nodes=[make_node("n1")])
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_a_writer_that_vanished_with_its_disk_leaves_a_gap(stack: Stack, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    settings = {**stack.settings_of_another(folder / "state"), "BERTH_ROLE": "extender"}
    alone = {**settings, "BERTH_REDIS_URL": f"redis://127.0.0.1:{free_port()}/0"}
    other = Extender(folder, {**alone, "BERTH_EXTENDER_WITHOUT_REVISION": "pass"}).start()
    pod = {"metadata": {"name": "x", "namespace": "default", "uid": "of-another"}, "spec": {"containers": []}}
    body = json.dumps({"Pod": pod, "NodeNames": ["n1"]}).encode()
    for _ in range(CALLS):
        assert post(other.connect(), body=body)[0] == 200
    time.sleep(10)  # some heartbeats: the commits don't share a word for what they say

    assert other.process is not None
    other.process.send_signal(signal.SIGSTOP)
    for pid in Path(f"/proc/{other.process.pid}/task/{other.process.pid}/children").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    other.stop(signal.SIGKILL)
    shutil.move(folder / "state", tmp_path / "aside")

    eventually(lambda: stack.sql("SELECT first, last FROM scheduler_decisiongap") == [(1, CALLS)], seconds=60)
