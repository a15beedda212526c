"""The errors that end a command, each with its exit code."""

REFUSED = 1
WOULD_CHANGE = 2
_NOT_REACHED = 3


class CommandError(Exception):
    """The command was refused, or its arguments are faulty. Each line is a sentence that says what to do."""

    exit_code = REFUSED

    def __init__(self, *lines: str, faults: list[dict[str, object]] | None = None) -> None:
        self.lines = list(lines)
        self.faults = faults or []
        super().__init__("\n".join(lines))


class NotReachedError(CommandError):
    """The server didn't answer, or something else answered in its place."""

    exit_code = _NOT_REACHED


class AwayError(CommandError):
    """The server can't answer this now, but may later."""
