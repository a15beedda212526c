"""Connections leave a process the file descriptors that it needs for its other work."""

import logging
import resource

import pytest

from scheduler.http_server.descriptors import FOR_OTHERS, connections_within

ALL = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "raised", "connections"),
    [
        pytest.param((ALL, ALL), None, 512, id="no limit"),
        pytest.param((1024, 4096), None, 512, id="enough"),
        pytest.param((256, ALL), (512 + FOR_OTHERS, ALL), 512, id="few, and more if asked"),
        pytest.param((256, 4096), (512 + FOR_OTHERS, 4096), 512, id="few, and more up to a limit"),
        pytest.param((256, 400), (400, 400), 400 - FOR_OTHERS, id="some more"),
        pytest.param((256, 256), (256, 256), 256 - FOR_OTHERS, id="no more"),
        pytest.param((96, 96), (96, 96), 24, id="very few"),
    ],
)
def test_a_process_holds_no_more_connections_than_leave_it_files(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limits: tuple[int, int],
    raised: tuple[int, int] | None,
    connections: int,
) -> None:
    made: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda *said: made.append(said))
    with caplog.at_level(logging.WARNING, "berth.server"):
        assert connections_within(512) == connections
    assert made == ([] if raised is None else [(resource.RLIMIT_NOFILE, raised)])
    assert len(caplog.records) == (connections < 512)
