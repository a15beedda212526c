"""Seeds a fresh local default with the examples and Pods to schedule. Existing objects are left alone."""

import time
from argparse import ArgumentParser
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import yaml
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from policies.management.command import BerthCommand, wait_seconds
from policies.models import Change
from policies.publishing import current_revision
from scheduler.cluster.client import Client, connect
from scheduler.cluster.errors import APIConflictError, APIError
from scheduler.models import Process

_RETRY_SECONDS = 1.0
# How long the extender may take to see a cluster whose API server answers.
_EXTENDER_SECONDS = 30.0
_COLLECTIONS = {"Deployment": "apis/apps/v1/namespaces/{namespace}/deployments"}


class Command(BerthCommand):
    """Seeds the local default."""

    help = "Publish example rule sets where nothing is published yet, and create example Deployments in the cluster."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--examples", type=Path, help="a folder of rule documents")
        parser.add_argument("--workload", type=Path, help="a YAML file of Deployments")
        parser.add_argument(
            "--wait-seconds",
            type=wait_seconds,
            default=0,
            help="how long to wait for the API server, and then for the extender to see the cluster",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Seed what the options request."""
        del args
        if options["examples"]:
            self._seed_examples(options["examples"])
        if options["workload"]:
            self._seed_workload(options["workload"], options["wait_seconds"])

    def _seed_examples(self, folder: Path) -> None:
        if current_revision().number > 0 or Change.objects.exists():
            return
        files = [str(path) for path in sorted(folder.glob("*.yaml"))]
        said = ("--title", "Publish the examples", "--reason", "examples of the local default")
        if settings.BERTH.review_required:
            call_command("apply", *said, *files, stdout=StringIO())
            self.stdout.write(
                "the example rule sets wait in a Change: send it to review, and have it approved by somebody else"
            )
            return
        call_command("apply", "--publish", "--no-cluster", *said, *files, stdout=StringIO())
        published = current_revision()
        names = ", ".join(rule_set.name for rule_set in published.rule_sets)
        self.stdout.write(f"{len(published.rule_sets)} example rule sets are published: {names}")

    def _seed_workload(self, path: Path, wait_seconds: float) -> None:
        client = connect()
        deadline = time.monotonic() + wait_seconds
        if wait_seconds:
            _wait_for_api_server(client, deadline)
            _wait_for_extender(min(deadline, time.monotonic() + _EXTENDER_SECONDS))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            collection = _COLLECTIONS[document["kind"]].format(namespace=document["metadata"]["namespace"])
            self._create(client, f"/{collection}", msgspec.json.encode(document), deadline)
        # If the examples still wait for review, no rule refuses the Pod.
        waits = "; the Pod of refused stays Pending on purpose" if current_revision().number else ""
        self.stdout.write(f"example Deployments are in the cluster{waits}")

    def _create(self, client: Client, collection: str, body: bytes, deadline: float) -> None:
        while True:
            try:
                client.post(path=collection, body=body)
            except APIConflictError:
                return
            except APIError as error:
                if time.monotonic() > deadline:
                    message = f"the example Deployments can't be created: {error}"
                    raise CommandError(message) from error
                time.sleep(_RETRY_SECONDS)
            else:
                return


def _wait_for_api_server(client: Client, deadline: float) -> None:
    """Return once the API server is ready, or at the deadline: the next creation reports why it fails."""
    while time.monotonic() < deadline:
        try:
            client.get(path="/readyz")
        except APIError:
            time.sleep(_RETRY_SECONDS)
        else:
            return


def _wait_for_extender(deadline: float) -> None:
    """Return once an extender sees the cluster, or at the deadline: until then it answers errors, and kube-scheduler retries."""
    while time.monotonic() < deadline:
        alive = Process.objects.filter(role="extender", heartbeat_at__gt=timezone.now() - Process.STALE_AFTER)
        if alive.exclude(snapshot_age_seconds=None).exists():
            return
        time.sleep(_RETRY_SECONDS)
