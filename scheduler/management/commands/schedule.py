"""`manage.py schedule --once`: one pass of Berth's own scheduler without Celery."""

import time
from argparse import ArgumentParser
from typing import Any

from policies.management.command import BerthCommand, wait_seconds
from policies.manifests import to_json
from scheduler.binder.once import LeaseHeldError, NotReadyError, Passed, schedule_once


class Command(BerthCommand):
    """Schedules the waiting Pods, once."""

    help = "Decide once on each Pod that waits for Berth's own scheduler, and bind the Pods that fit a node; exit 1 on failure."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("--once", action="store_true", required=True, help="run one pass; required")
        parser.add_argument(
            "--wait-seconds", type=wait_seconds, default=60.0, help="the most time that the pass may take (default 60)"
        )
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Schedule, write."""
        del args
        started = time.monotonic()
        try:
            passed = schedule_once(options["wait_seconds"])
        except (LeaseHeldError, NotReadyError) as error:
            raise self.refused(str(error), options["output"]) from error
        if options["output"] == "json":
            self.stdout.write(to_json({"ok": True, "bound": passed.bound, "waiting": passed.waiting}))
        else:
            self._say(passed, time.monotonic() - started)

    def _say(self, passed: Passed, seconds: float) -> None:
        self.stdout.write(f"{passed.bound} Pods bound, {len(passed.waiting)} wait, in {seconds:.1f} s")
        for pod in passed.waiting:
            self.stdout.write(f"  {pod['namespace']}/{pod['name']}: {pod['message'] or pod['state']}")
