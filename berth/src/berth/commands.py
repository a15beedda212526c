"""The function of each sub-command that calls the server."""

from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Final

from berth import account, changes, documents, pods
from berth.answer import Answer
from berth.server import Server


def _act(server: Server, given: Namespace) -> Answer:
    given.act = given.command
    return changes.act(server, given)


COMMANDS: Final[Mapping[str, Callable[[Server, Namespace], Answer]]] = {
    "lint": documents.lint,
    "plan": documents.plan,
    "apply": documents.apply,
    "diff": documents.diff,
    "export": documents.export,
    "changes": changes.changes,
    "submit": _act,
    "approve": _act,
    "reject": _act,
    "withdraw": _act,
    "rename": changes.rename,
    "rebase": _act,
    "publish": _act,
    "rollback": changes.rollback,
    "pause": changes.pause,
    "resume": changes.resume,
    "why": pods.why,
    "which": pods.which,
    "simulate": pods.simulate,
    "decisions": pods.decisions,
    "status": account.status,
    "whoami": account.whoami,
}
