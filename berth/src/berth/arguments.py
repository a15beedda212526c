"""The command's arguments: for `berth --help`, and for docs/command.md, which is generated from them."""

from argparse import Action, ArgumentParser, ArgumentTypeError, HelpFormatter, Namespace
from collections.abc import Callable
from typing import Any, NoReturn

from berth import VERSION
from berth.errors import REFUSED

_ENDS = """exit codes: 0 done; 1 refused or faulty; 2 (plan, diff) something would change; 3 the server wasn't reached
environment: BERTH_SERVER, BERTH_TOKEN or BERTH_TOKEN_FILE, BERTH_CA_FILE, NO_COLOR; `berth login` keeps them"""

KINDS = ["RuleSet", "Assignment", "PriorityClass", "Pause", "Exemption"]
_MOST = 1_000
_LEAST_SECONDS, _MOST_SECONDS = 0.1, 3_600

# Adds a sub-command, from its name and its description.
_Add = Callable[..., ArgumentParser]


class _Parser(ArgumentParser):
    """Exits with 1 for invalid arguments, because `plan` exits with 2 if there are changes."""

    scope = ""

    def error(self, message: str) -> NoReturn:
        """Print the error, and exit."""
        if self.scope and "FILE" in message:
            message += f". {self.scope!r} was taken for the scope of --prune: put FILE before it"
        self.exit(REFUSED, f"{self.prog}: {message}\n{self.prog} --help says what it takes.\n")


class _Prune(Action):
    """Appends a scope, and remembers the argument that was read as one: a FILE after --prune is."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: Any = None) -> None:
        """Take the option's argument, if there is one."""
        del option_string
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), values])
        if isinstance(parser, _Parser):
            parser.scope = values


class _Wide(HelpFormatter):
    """Uses the same width on every terminal, so that the generated reference is always the same."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=110)


def build_parser(prog: str = "berth") -> ArgumentParser:
    """Return the parser of the command's arguments."""
    from argparse import RawDescriptionHelpFormatter

    class _Top(_Wide, RawDescriptionHelpFormatter):
        pass

    whole = _Parser(
        prog=prog,
        description="Rules of scheduling, their reviews and what they did to Pods, from wherever the server can be reached.",
        epilog=_ENDS,
        formatter_class=_Top,
    )
    whole.add_argument("--version", action="version", version=f"{prog} {VERSION}", help="say which version this is")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, says: str, *, asks_server: bool = True) -> ArgumentParser:
        made = commands.add_parser(name, help=says, description=says, formatter_class=_Wide)
        made.add_argument(
            "--output", "-o", choices=["text", "json", "yaml"], default="text", help="text is the default"
        )
        if asks_server:
            made.add_argument("--server", default="", metavar="URL", help="in place of BERTH_SERVER")
            made.add_argument(
                "--from-kubeconfig", action="store_true", help="the server that the kubeconfig's context names"
            )
            made.add_argument("--context", default="", help="which context, in place of the current one")
        return made

    _add_documents(add)
    _add_changes(add)
    _add_pods(add)
    _add_account(add)
    return whole


def _add_documents(add: _Add) -> None:
    made = add("lint", "Check files of documents, and run the tests inside them.")
    _files(made)
    made = add("plan", "Say what applying files would change; nothing is changed.")
    _files(made)
    _scope(made)
    made.add_argument(
        "--gate",
        action="store_true",
        help="run the gate, too: documents, tests, the Pods that are there; else no test runs",
    )
    made.add_argument("--markdown", action="store_true", help="as a comment of a pull request")
    made.add_argument("--title", default="", help="the comment's heading, with --markdown")
    made = add("apply", "Bring files into the system, by way of a Change.")
    _files(made)
    _scope(made)
    made.add_argument("--publish", action="store_true", help="make it live at once; refused where review is required")
    made.add_argument("--submit", action="store_true", help="to review where that is required, live at once where not")
    made.add_argument(
        "--title", default="", help="the Change's title, of several lines the first; else the files' names"
    )
    made.add_argument("--reason", default="", help="why, kept with the Change and its Revision")
    made = add("diff", "Show how files differ from what is live, as diff -u does.")
    _files(made)
    _scope(made)
    made = add("export", "Write what is live as documents that apply reads.")
    made.add_argument("names", nargs="*", metavar="NAME", help="only these; without any, everything")
    made.add_argument("--kind", default="", choices=KINDS, help="only this kind")
    made.add_argument("--change", type=_number, metavar="N", help="what this Change makes of things, not what is live")
    made.add_argument("--directory", default="", metavar="FOLDER", help="a file each: FOLDER/KIND/NAME.yaml")


def _files(made: ArgumentParser) -> None:
    made.add_argument("files", nargs="+", metavar="FILE", help="a file, a folder of them, - for standard input")


def _scope(made: ArgumentParser) -> None:
    made.add_argument(
        "--prune",
        metavar="SCOPE",
        action=_Prune,
        nargs="?",
        const="",
        default=[],
        help="remove what is live, isn't in the files, and has such a name: team-a-*, or Assignment/team-a-*; "
        "with --owner only what is the owner's, without a scope all of that",
    )
    made.add_argument("--owner", default="", metavar="NAME", help="the repository that keeps these files")
    made.add_argument("--take-over", action="store_true", help="also what another owner keeps")
    made.add_argument("--no-cluster", action="store_true", help="without a look at the Pods that are there")


def _add_changes(add: _Add) -> None:
    made = add("changes", "List Changes, or show one.")
    made.add_argument("number", nargs="?", type=_number, metavar="N", help="show this one; without it, list them")
    made.add_argument(
        "--state",
        default="",
        choices=["draft", "in_review", "approved", "published", "rejected", "withdrawn"],
        help="list only those in this state",
    )
    made.add_argument("--limit", type=_count, default=20, help="how many (20)")
    for act, says in _ACTS.items():
        made = add(act, says)
        made.add_argument("number", type=_number, metavar="N", help="which Change")
        made.add_argument(
            "--digest", default="", help="what `berth changes N` printed, or the whole digest; approve needs it"
        )
        made.add_argument("--reason", default="", help="kept with the Change", required=act == "reject")
        if act == "rebase":
            made.add_argument(
                "--revision",
                type=_number,
                metavar="M",
                help="the live Revision that `berth changes N` printed; else the one that is live",
            )
            _sides(made)
    made = add("rename", "Give a Change another title or another reason; its approvals stay.")
    made.add_argument("number", type=_number, metavar="N", help="which Change")
    made.add_argument("--title", help="what it is called from now on")
    made.add_argument("--reason", help="why it is made")
    made = add("rollback", "Make what an older Revision held live again.")
    made.add_argument("revision", type=_number, metavar="M", help="which Revision")
    made.add_argument("--reason", required=True, help="kept with the Revision")
    made = add("pause", "Take something out of force.")
    made.add_argument("target", metavar="TARGET", help="everything, Assignment/NAME, RuleSet/NAME or RuleSet/NAME/RULE")
    made.add_argument("--reason", required=True, help="kept with the Change and its Revision")
    made.add_argument("--until", default="", metavar="TIME", help="2026-12-31T18:00:00Z, or 90m, 2h, 3d from now")
    made = add("resume", "Put back in force what was paused.")
    made.add_argument("target", metavar="TARGET", help="as of pause")
    made.add_argument("--reason", default="", help="kept with the Change and its Revision")


def _sides(made: ArgumentParser) -> None:
    for side, says in (
        ("merge", "put this rule set together with what is live, rule by rule: RuleSet/web"),
        ("mine", "keep the edit of a part that both changed: RuleSet/web/filters/team"),
        (
            "theirs",
            "take what is live: of a thing, Assignment/all, of a part that both changed, or of Assignments/order",
        ),
    ):
        made.add_argument(f"--{side}", action="append", default=[], metavar="WHAT", help=says)


_ACTS = {
    "submit": "Send a Change to review.",
    "approve": "Approve a Change, as it was looked at.",
    "reject": "Reject a Change.",
    "withdraw": "Withdraw a Change: it never goes live.",
    "rebase": "Put a Change's edits on what is live now.",
    "publish": "Make a Change live.",
}


def _add_pods(add: _Add) -> None:
    made = add("why", "Tell why a Pod is where it is, or waits.")
    made.add_argument("pod", metavar="POD", help="NAME or NAMESPACE/NAME")
    made.add_argument("--namespace", "-n", default="", help="of a NAME (default)")
    made.add_argument("--uid", default="", help="of the Pod that is meant, where several had the name")
    made = add("which", "Say which Assignment takes a Pod, and why not those before it.")
    made.add_argument("pod", metavar="POD", help="NAME, NAMESPACE/NAME, or a file of one: pod.yaml")
    made.add_argument("--namespace", "-n", default="", help="of a NAME (default)")
    made = add("simulate", "Say where Pods would land on the cluster as it is now; nothing is touched.")
    made.add_argument("file", nargs="?", metavar="FILE", help="the manifest of a Pod, a Deployment or the like")
    made.add_argument("--live", default="", metavar="POD", help="a Pod of the cluster: NAME or NAMESPACE/NAME")
    made.add_argument("--namespace", "-n", default="", help="of a NAME (default)")
    made.add_argument("--pods", type=_count, default=1, metavar="N", help="how many (1)")
    made.add_argument("--change", type=_number, metavar="N", help="also by what this Change would make live")
    made = add("decisions", "List the newest Decisions, the newest last.")
    made.add_argument(
        "filters", nargs="*", metavar="NAME=VALUE", help="as of the admin's list: pod_namespace=shop node=n1"
    )
    made.add_argument("--limit", type=_count, default=20, help="how many (20)")
    made.add_argument("--follow", "-f", action="store_true", help="and what comes after them, until Ctrl-C")
    made.add_argument("--every", type=_seconds, default=2.0, metavar="SECONDS", help="how often to ask (2)")


def _add_account(add: _Add) -> None:
    add("status", "Say what is live, which processes serve it, what waits and what was lost.")
    add("whoami", "Say who the server takes you for, and what you may do.")
    made = add(
        "login", "Keep a server and a token; the token is asked for, or read from standard input.", asks_server=False
    )
    made.add_argument("url", nargs="?", default="", metavar="URL", help="https://berth.example.org (BERTH_SERVER)")
    made.add_argument("--ca-file", default="", metavar="FILE", help="certificates that the server's is checked by")
    add("logout", "Forget the server and the token that login kept.", asks_server=False)
    made = add("completion", "Write a shell's completion: source <(berth completion bash)", asks_server=False)
    made.add_argument("shell", choices=["bash", "zsh", "fish"], help="which shell")


def _count(text: str) -> int:
    """Return a count.

    Raises:
        ArgumentTypeError: it isn't a number, or is out of range; argparse shows the message of this exception only.
    """
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MOST):
        message = f"{text!a} isn't a number from 1 to {_MOST:,}"
        raise ArgumentTypeError(message)
    return int(text)


def _number(text: str) -> int:
    """Return the number of a Change or Revision. Both count from 1; Revision 0 is the state before the first.

    Raises:
        ArgumentTypeError: it can't be one.
    """
    if not (text.isascii() and text.isdigit()):
        message = f"{text!a} isn't the number of one: it is a whole number, such as 12"
        raise ArgumentTypeError(message)
    return int(text)


def _seconds(text: str) -> float:
    """Return a time to wait.

    Raises:
        ArgumentTypeError: it isn't a possible time to wait.
    """
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not _LEAST_SECONDS <= found <= _MOST_SECONDS:
        message = f"{text!a} isn't a number of seconds from {_LEAST_SECONDS} to {_MOST_SECONDS:,}"
        raise ArgumentTypeError(message)
    return found
