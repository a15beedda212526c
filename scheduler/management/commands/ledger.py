"""`manage.py ledger …`: make and show the ledger's keys, and sign a checkpoint now."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from policies.management.command import BerthCommand
from policies.wording import counted
from scheduler.ledger.checkpoints import sign_checkpoints
from scheduler.ledger.keys import NAME, KeyFileError, key_path, known_verifiers, make_key, read_signer, rotate


class Command(BerthCommand):
    """Manages the ledger's keys."""

    help = "Manage the ledger's keys: print the public keys, make or rotate a key; or sign a checkpoint now."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        acts = parser.add_subparsers(dest="act", required=True)
        acts.add_parser("keys", help="print the public keys, the newest last")
        make = acts.add_parser("new-key", help="make a key pair, for a Secret that is mounted")
        make.add_argument("file", type=Path, help="the file for the private key; the public key is written to FILE.pub")
        make.add_argument("--name", default=NAME, help="the ledger's name; each installation should have its own")
        acts.add_parser("rotate", help="replace the key with a new one")
        acts.add_parser("checkpoint", help="sign the logs that have grown since the last checkpoint")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the requested action."""
        del args
        try:
            match options["act"]:
                case "keys":
                    self.stdout.write(_keys())
                case "new-key":
                    self.stdout.write(str(_new_key(options["file"], options["name"])))
                case "rotate":
                    self.stdout.write(str(rotate(_path())))
                case _:
                    read_signer()
                    self.stdout.write(f"{counted(sign_checkpoints(datetime.now(UTC)), 'checkpoint')} signed")
        except KeyFileError as error:
            raise CommandError(str(error)) from error


def _keys() -> str:
    found = known_verifiers()
    if not found:
        message = f"{_path()} isn't there, nor are public keys beside it: make them by `manage.py ledger new-key FILE`"
        raise CommandError(message)
    return "\n".join(map(str, found))


def _new_key(path: Path, name: str) -> object:
    if path.exists():
        message = f"{path} exists already; `manage.py ledger rotate` replaces the key"
        raise CommandError(message)
    return make_key(path, name)


def _path() -> Path:
    path = key_path()
    if path is None:
        message = "no key is set: BERTH_LEDGER_KEY_FILE"
        raise CommandError(message)
    return path
