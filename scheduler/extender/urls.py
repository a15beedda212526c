"""The extender's own URLs: the verbs, with and without a trailing slash, and the health endpoints."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import re_path

from scheduler.extender.request.wire import encode_error
from scheduler.extender.runtime import Runtime
from scheduler.extender.views import HealthView, VerbView

# This process's runtime; started by `scheduler.extender.wsgi`.
runtime = Runtime()


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return a 404 that lists the paths served here. kube-scheduler shows no body, but a person who tries by hand sees it."""
    del request, exception
    message = "no such verb; Berth's extender serves /filter, /prioritize, /bind and /preempt"
    return HttpResponse(encode_error(message), status=404, content_type="application/json")


handler404 = not_found
verb_views = {
    verb: VerbView.as_view(answers=runtime.answers, callers=runtime.callers, verb=verb)
    for verb in ("filter", "prioritize", "bind", "preempt")
}
# The secret path in front of the verbs, where one is set.
verb_prefix = f"{settings.BERTH.extender_secret_path}/" if settings.BERTH.extender_secret_path else ""
urlpatterns = [
    *(re_path(rf"^{verb_prefix}{verb}/?$", view, name=verb) for verb, view in verb_views.items()),
    *(
        re_path(rf"^{probe}$", HealthView.as_view(runtime=runtime, probe=probe), name=probe)
        for probe in ("livez", "readyz", "metrics")
    ),
]
