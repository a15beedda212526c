"""The bootstep that runs a watch in a worker, as Celery ends it."""

from pathlib import Path

import pytest

from scheduler.cluster.watch_step import WatchStep
from tests.unit.cluster.kubernetes_json import list_json
from tests.unit.cluster.scripted_server import Answer
from tests.unit.cluster.test_watch import OPEN_SECONDS, lists_and_watches, watching


@pytest.mark.parametrize("shutdown", ["stop", "terminate"])
def test_a_shutdown_ends_the_watch_a_cold_one_too(tmp_path: Path, shutdown: str) -> None:
    script = lists_and_watches(lambda: Answer(body=list_json([], version="10")), lambda: Answer(stream=[OPEN_SECONDS]))
    with watching(tmp_path, script) as seen:
        step = WatchStep(None)
        step.obj = seen.reflector
        assert not seen.reflector.ended
        getattr(step, shutdown)(None)
        assert seen.reflector.ended
