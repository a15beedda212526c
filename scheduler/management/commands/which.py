"""`manage.py which POD`: which Assignment takes a Pod, and why not those before it."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import msgspec
import yaml
from django.core.management.base import CommandError

from policies.engine.which import lines_of
from policies.management.command import BerthCommand
from policies.manifests import to_json
from scheduler.which import AskedError, which_of_cluster, which_of_document

_FILES = (".json", ".yaml", ".yml")


class Command(BerthCommand):
    """Asks the live Assignments in their order, as every answer does."""

    help = (
        "Say which live Assignment takes a Pod, and why those before it don't. The Pod is the cluster's, or a file's."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("pod", metavar="POD", help="name, or namespace/name; of a file its path: ./pod.yaml")
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Find the Pod and its namespace, ask, write."""
        del args
        asked: str = options["pod"]
        try:
            found = which_of_document(_read(asked)) if asked.endswith(_FILES) else which_of_cluster(asked)
        except (OSError, ValueError, yaml.YAMLError, AskedError) as error:
            message = f"{asked}: {error}"
            raise CommandError(message, returncode=1) from error
        if options["output"] == "json":
            self.stdout.write(to_json({"ok": True, **msgspec.to_builtins(found)}))
        else:
            self.stdout.write("\n".join(lines_of(found)))


def _read(file: str) -> Any:
    """Return the one manifest of a file. JSON is YAML, too."""
    documents = [each for each in yaml.safe_load_all(Path(file).read_text(encoding="utf-8")) if each is not None]
    if len(documents) != 1:
        message = f"holds {len(documents)} documents; one is wanted"
        raise ValueError(message)
    return documents[0]
