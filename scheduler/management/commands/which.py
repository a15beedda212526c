"""`manage.py which POD`: which Assignment takes a Pod, and why not those before it."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import msgspec
from django.core.management.base import CommandError

from policies.engine.which import Which, lines_of
from policies.management.command import BerthCommand
from policies.management.files import documents_of, only_document
from policies.manifests import to_json
from scheduler.which import AskedError, which_of_cluster, which_of_document

_FILES = (".json", ".yaml", ".yml")


class Command(BerthCommand):
    """Evaluates the live Assignments in their order, as every answer does."""

    help = "Print which live Assignment matches a Pod, and why earlier ones don't. The Pod is read from the cluster, or from a file."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument(
            "pod", metavar="POD", help="name or namespace/name in the cluster, or the path of a file: ./pod.yaml"
        )
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Find the Pod and its namespace, evaluate, write."""
        del args
        asked: str = options["pod"]
        try:
            found = _of_file(Path(asked)) if asked.lower().endswith(_FILES) else which_of_cluster(asked)
        except CommandError as error:
            raise self.refused(str(error), options["output"]) from error
        except (OSError, ValueError, AskedError) as error:
            message = f"{asked}: {error}"
            raise self.refused(message, options["output"]) from error
        if options["output"] == "json":
            self.stdout.write(to_json({"ok": True, **msgspec.to_builtins(found)}))
        else:
            self.stdout.write("\n".join(lines_of(found)))


def _of_file(path: Path) -> Which:
    return which_of_document(only_document(documents_of(path), path).document)
