"""`berth COMMAND …`: reads the arguments, calls the server, prints the result, returns an exit code for pipelines."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from berth.answer import Answer, visible, write
from berth.arguments import build_parser
from berth.errors import REFUSED, CommandError

_INTERRUPTED = 130
# Arguments that are paths of local files, which may have any bytes.
_NAMES_OF_FILES = {"files", "file", "directory", "ca_file"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    _open_streams()
    name = Path(sys.argv[0]).name
    parser = build_parser("kubectl berth" if name.startswith("kubectl") else "berth")
    _use_utf8()
    try:
        try:
            code = _answered(parser.parse_args(arguments))
        finally:
            # --help exits in this way, too.
            sys.stdout.flush()
    except OSError as error:
        # The reader closed the pipe, or the disk is full; don't flush there at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"{parser.prog}: {error.filename or 'the output'}: {error.strerror or error}\n")
        return REFUSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _open_streams() -> None:
    """Open closed streams (`>&-`) on /dev/null: else a connection would get the stream's number, and its output."""
    for name, flags in (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), "w" if flags else "r"))


def _use_utf8() -> None:
    """Read and write UTF-8 in every locale, as in files of documents; on a terminal, replace characters that it lacks."""
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def _check_arguments(given: Namespace) -> None:
    """Refuse an argument that isn't text.

    Raises:
        CommandError: it has bytes that aren't UTF-8.
    """
    for name, value in vars(given).items():
        texts = [] if name in _NAMES_OF_FILES else value if isinstance(value, list) else [value]
        for text in texts:
            try:
                str(text).encode()
            except UnicodeEncodeError as error:
                message = f"The argument {name.replace('_', '-')} isn't UTF-8: {str(text)!a}."
                raise CommandError(message) from error


def _answered(given: Namespace) -> int:
    """Write the command's result, or why it was refused; returns its exit code."""
    try:
        _check_arguments(given)
        answer = _run(given)
    except CommandError as error:
        _write_refusal(error, given.output)
        return error.exit_code
    except OSError as error:
        # An error without a file is one of the output's.
        if error.filename is None:
            raise
        _write_refusal(CommandError(f"{error.filename}: {error.strerror or error}"), given.output)
        return REFUSED
    write(answer, given.output)
    return answer.exit_code or (0 if answer.ok else REFUSED)


def _run(given: Namespace) -> Answer:
    # Import only what a command needs, so that it starts in 0.3 s.
    if given.command == "completion":
        from berth.completion import completion

        return completion(given, build_parser())
    from berth import account

    if given.command in {"login", "logout"}:
        return account.login(given) if given.command == "login" else account.logout(given)
    from berth.commands import COMMANDS
    from berth.places import find_place
    from berth.server import Server

    place = find_place(
        given.server, from_kubeconfig=given.from_kubeconfig or bool(given.context), context=given.context
    )
    server = Server(place)
    try:
        with server.reading():
            return COMMANDS[given.command](server, given)
    finally:
        server.close()


def _write_refusal(error: CommandError, output: str) -> None:
    if output == "text":
        sys.stderr.writelines(f"{visible(line)}\n" for line in error.lines)
        return
    found = {"error": "\n".join(error.lines), "faults": error.faults, "reached": error.exit_code == REFUSED}
    write(Answer(found, ok=False), output)
