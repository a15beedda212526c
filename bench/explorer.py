"""CPU time, queries and bytes of the page of a Decision at 10, 1,200 and 5,000 nodes, on a database of its own.

`python -m bench.explorer`; the aim is 100 ms and 8 queries at 5,000 nodes. Half a minute, most of it migrating.
"""

import time
from typing import Any

import tests.environment  # noqa: F401 - settings of tests, before Django reads them
from bench.arguments import parse_no_arguments

REPEATS = 15
AIM_MILLISECONDS, AIM_QUERIES = 100, 8
SIZES = (10, 1_200, 5_000)


def main() -> None:
    """Measure and print."""
    parse_no_arguments(__doc__)
    import os

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    django.setup()
    from django.test.utils import setup_databases, setup_test_environment, teardown_databases

    setup_test_environment()
    made = setup_databases(verbosity=0, interactive=False)
    try:
        for size in SIZES:
            print(measured(size))
    finally:
        teardown_databases(made, verbosity=0)


def measured(size: int) -> str:
    """Return the line for a Decision with this number of nodes."""
    from django.contrib.auth.models import User
    from django.db import connection

    from tests.component.admin.test_decision_page import decided
    from tests.conftest import HTTPSClient

    row = decided(size, publishes=size == SIZES[0])
    client = HTTPSClient()
    client.force_login(User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)[0])
    url = f"/admin/scheduler/decision/{row.pk}/change/"
    client.get(url)
    asked = []

    def note(execute: Any, sql: str, *more: Any) -> Any:
        asked.append(sql)
        return execute(sql, *more)

    with connection.execute_wrapper(note):
        page = client.get(url)
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        client.get(url)
        times.append((time.process_time() - began) * 1000)
    times.sort()
    said = f"{times[len(times) // 2]:.0f} ms of CPU in the middle, {times[-1]:.0f} at most (aim {AIM_MILLISECONDS})"
    return f"{size:5,} nodes: {said}; {len(asked)} queries (aim {AIM_QUERIES}); {len(page.content):,} bytes"


if __name__ == "__main__":
    main()
