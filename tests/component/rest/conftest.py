"""Berth as a WSGI application inside the test's own transaction, for clients that aren't Django's."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections


@pytest.fixture
def application(db: None) -> Iterator[Callable[..., Any]]:
    """Return it, as behind a proxy with HTTPS. The connection stays: Django's own test client keeps it likewise."""
    handler = WSGIHandler()
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield lambda environ, start_response: handler({**environ, "wsgi.url_scheme": "https"}, start_response)
    for signal in signals:
        signal.connect(close_old_connections)
