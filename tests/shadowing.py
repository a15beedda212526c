"""The extender's own application, with a test view that submits shadows. For `Extender(application=…)`.

A shadow ends when the file `release` is in the state folder; the file `begun` means that one is being decided. The headers of a call
to `/filter` set the number of bytes in the answer and the number of shadows.
"""

from datetime import UTC, datetime
from time import sleep

from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpResponse

from scheduler.extender import wsgi  # loads the apps, which the other imports need

# isort: split
from policies.engine.objects.pod import Pod
from scheduler.decisions.divergence import Subject
from scheduler.decisions.record import Entry
from scheduler.serving.shadows import GiveWay


def _decide(give_way: GiveWay) -> Entry:
    folder = settings.BERTH.state_dir
    (folder / "begun").touch()
    while not (folder / "release").exists():
        give_way()
        sleep(0.01)
    return Entry(verb="filter", mode="shadow", pod=Pod.from_json({}), now=datetime.now(UTC))


def _filter(request: WSGIRequest) -> HttpResponse:
    for _ in range(int(request.headers.get("X-Shadows", "1"))):
        wsgi.runtime.shadows.offer(Subject(0, "tested", "tested", 0, "filter"), _decide)
    if "X-Fails" in request.headers:
        return HttpResponse(b"{}", status=503)
    return HttpResponse(b'"' + b"x" * int(request.headers.get("X-Bytes", "0")) + b'"', content_type="application/json")


wsgi._views["/filter"] = _filter
application = wsgi.application
