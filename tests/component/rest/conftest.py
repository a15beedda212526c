"""What tests of REST share: Berth as a WSGI application for clients that aren't Django's, and answers without limits."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.core.cache import cache
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

from scheduler.api import canaries
from scheduler.http_server.application import Application


@pytest.fixture
def application(db: None) -> Iterator[Callable[..., Any]]:
    """Yield it, as behind a proxy with HTTPS. The connection stays: Django's own test client keeps it likewise."""
    handler = Application()
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield lambda environ, start_response: handler({**environ, "wsgi.url_scheme": "https"}, start_response)
    for signal in signals:
        signal.connect(close_old_connections)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the cluster and Redis out, and the limits of how often: each answer is wanted, limits are other tests' matter."""
    cache.clear()
    monkeypatch.setattr("scheduler.api.applying.examine_documents", lambda *_, **__: None)
    monkeypatch.setattr("scheduler.api.things.examine_documents", lambda *_, **__: None)
    monkeypatch.setattr(canaries.run_canary, "apply_async", lambda **_: None)
    many = {"rest_writes_per_minute": 1_000_000, "token_requests_per_minute": 1_000_000}
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, **many))
    monkeypatch.setattr("policies.api.throttles.CheckThrottle.rate", "1000000/min", raising=False)
