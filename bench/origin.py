"""The cost of checking whether a call comes from a web page: `python -m bench.origin`. CPU time, median of 21 runs."""

import os
import statistics
import time

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
os.environ.setdefault("BERTH_ROLE", "extender")
os.environ.setdefault("BERTH_LOCAL", "true")

import django

from bench.arguments import parse_no_arguments

CALLS = 20_000


def main() -> None:
    """Print microseconds a call."""
    parse_no_arguments(__doc__)
    django.setup()
    from rest_framework.request import Request
    from rest_framework.views import APIView

    from scheduler.extender.origin import FromNoPage

    class Call:
        META = {
            "HTTP_HOST": "127.0.0.1:8010",
            "CONTENT_TYPE": "application/json",
            "HTTP_USER_AGENT": "Go-http-client/1.1",
        }

    request, view = Request.__new__(Request), APIView()
    request._request = Call()  # type: ignore[assignment] # noqa: SLF001 - only META is read
    runs = []
    for _ in range(21):
        began = time.thread_time()
        for _ in range(CALLS):
            FromNoPage().has_permission(request, view)
        runs.append((time.thread_time() - began) / CALLS * 1e6)
    print(f"origin of a call: {statistics.median(runs):.2f} us (from {min(runs):.2f} to {max(runs):.2f})")


if __name__ == "__main__":
    main()
