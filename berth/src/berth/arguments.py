"""The command's arguments: for `berth --help`, and for docs/command.md, which is generated from them."""

from argparse import (
    SUPPRESS,
    Action,
    ArgumentError,
    ArgumentParser,
    ArgumentTypeError,
    HelpFormatter,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Callable
from typing import Any, NoReturn

from berth import VERSION
from berth.errors import REFUSED

_ENDS = """exit codes: 0 success; 1 refused, or faults; 2 (plan, diff) something would change; 3 the server wasn't reached
environment: BERTH_SERVER, BERTH_TOKEN or BERTH_TOKEN_FILE, BERTH_CA_FILE, NO_COLOR; `berth login` stores server and token"""

KINDS = ["RuleSet", "Assignment", "PriorityClass", "Pause", "Exemption"]
_MOST = 1_000
# Of a Change's or a Revision's number.
_MOST_DIGITS = 18
_LEAST_SECONDS, _MOST_SECONDS = 0.1, 3_600

# Adds a sub-command, from its name and its description.
_Add = Callable[..., ArgumentParser]


class _Parser(ArgumentParser):
    """Exits with 1 for invalid arguments, because `plan` exits with 2 if there are changes."""

    scope = ""

    def error(self, message: str) -> NoReturn:
        """Print the error, and exit."""
        if self.scope and "FILE" in message:
            message += f". {self.scope!r} was read as the scope of --prune: put FILE before --prune"
        self.exit(REFUSED, f"{self.prog}: {message}\n{self.prog} --help lists the arguments.\n")


class _Prune(Action):
    """Appends a scope, and remembers the argument that was read as one: a FILE after --prune is."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: Any = None) -> None:
        """Take the option's argument, if there is one."""
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), values])
        if isinstance(parser, _Parser):
            parser.scope = values


class _NotEmpty(Action):
    """Stores a value, and refuses an empty one, as from an unset shell variable: it would count as if the option weren't there."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: Any = None) -> None:
        """Store it.

        Raises:
            ArgumentError: it is empty.
        """
        if not values:
            message = "is empty, as from an unset shell variable: give it a value, or leave the option out"
            raise ArgumentError(self, message)
        setattr(namespace, self.dest, values)


class _Misplaced(Action):
    """Refuses an option before the command: else argparse takes its argument for the command."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: Any = None) -> None:
        """Refuse it.

        Raises:
            ArgumentError: always.
        """
        message = f"stands after the command, such as: {parser.prog} status {option_string}"
        raise ArgumentError(self, f"{message} {self.metavar}" if self.metavar else message)


class _Wide(HelpFormatter):
    """Uses the same width on every terminal, so that the generated reference is always the same."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=110)


class _Top(_Wide, RawDescriptionHelpFormatter):
    """Keeps the lines of the text below the commands."""


def build_parser(prog: str = "berth") -> ArgumentParser:
    """Return the parser of the command's arguments."""
    whole = _Parser(
        prog=prog,
        description="Scheduling rules, their reviews, and their effects on Pods, from any machine that reaches the server.",
        epilog=_ENDS,
        formatter_class=_Top,
    )
    whole.add_argument("--version", action="version", version=f"{prog} {VERSION}", help="print the version")
    for names, metavar in ((("--output", "-o"), "FORMAT"), (("--server",), "URL"), (("--context",), "CONTEXT")):
        whole.add_argument(*names, action=_Misplaced, default=SUPPRESS, metavar=metavar, help=SUPPRESS)
    whole.add_argument("--from-kubeconfig", action=_Misplaced, nargs=0, default=SUPPRESS, help=SUPPRESS)
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, says: str, *, asks_server: bool = True) -> ArgumentParser:
        made = commands.add_parser(name, help=says, description=says, formatter_class=_Wide)
        made.add_argument(
            "--output", "-o", choices=["text", "json", "yaml"], default="text", help="the output format; default text"
        )
        if asks_server:
            made.add_argument(
                "--server", action=_NotEmpty, default="", metavar="URL", help="the server, instead of BERTH_SERVER"
            )
            made.add_argument(
                "--from-kubeconfig", action="store_true", help="use the server that the kubeconfig's context names"
            )
            made.add_argument("--context", action=_NotEmpty, default="", help="the context, instead of the current one")
        return made

    _add_documents(add)
    _add_changes(add)
    _add_pods(add)
    _add_account(add)
    return whole


def _add_documents(add: _Add) -> None:
    made = add("lint", "Check files of documents, and run the tests inside them.")
    _files(made)
    made = add("plan", "Print what applying files would change, without changing anything.")
    _files(made)
    _scope(made)
    made.add_argument(
        "--gate",
        action="store_true",
        help="also run the gate: documents, tests, the cluster's Pods; without it no test runs",
    )
    made.add_argument("--markdown", action="store_true", help="print the plan as a comment for a pull request")
    made.add_argument("--title", default="", help="the comment's heading, with --markdown")
    made = add("apply", "Apply files, with a Change.")
    _files(made)
    _scope(made)
    made.add_argument(
        "--publish", action="store_true", help="publish the Change at once; refused where review is required"
    )
    made.add_argument(
        "--submit", action="store_true", help="send the Change to review if review is required, else publish it"
    )
    made.add_argument(
        "--title",
        default="",
        help="the Change's title: the first line of this text, cut to 200 characters; default: the files' names",
    )
    made.add_argument("--reason", default="", help="the reason, stored with the Change and its Revision")
    made = add("diff", "Show how files differ from what is live, as diff -u does.")
    _files(made)
    _scope(made)
    made = add("export", "Write the live state as documents that apply reads.")
    made.add_argument("names", nargs="*", metavar="NAME", help="export only these; default: everything")
    made.add_argument("--kind", default="", choices=KINDS, help="export only this kind")
    made.add_argument(
        "--change", type=_number, metavar="N", help="export what this Change would make live, not what is live now"
    )
    made.add_argument(
        "--directory", default="", metavar="FOLDER", help="write a file for each document: FOLDER/KIND/NAME.yaml"
    )


def _files(made: ArgumentParser) -> None:
    made.add_argument("files", nargs="+", metavar="FILE", help="a file, a folder of files, or - for standard input")


def _scope(made: ArgumentParser) -> None:
    made.add_argument(
        "--prune",
        metavar="SCOPE",
        action=_Prune,
        nargs="?",
        const="",
        default=[],
        help="remove live objects that aren't in the files and have such a name: team-a-*, or Assignment/team-a-*; "
        "with --owner only the owner's objects, and without a scope all of those",
    )
    made.add_argument(
        "--owner", default="", action=_NotEmpty, metavar="NAME", help="the repository that holds these files"
    )
    made.add_argument("--take-over", action="store_true", help="also apply to objects of another owner")
    made.add_argument("--no-cluster", action="store_true", help="don't read the cluster's Pods")


def _add_changes(add: _Add) -> None:
    made = add("changes", "List Changes, or show one.")
    made.add_argument("number", nargs="?", type=_number, metavar="N", help="show this Change; default: list Changes")
    made.add_argument(
        "--state",
        default="",
        choices=["draft", "in_review", "approved", "published", "rejected", "withdrawn"],
        help="list only those in this state",
    )
    made.add_argument("--limit", type=_count, default=20, help="the most rows to list (20)")
    for act, says in _ACTS.items():
        made = add(act, says)
        made.add_argument("number", type=_number, metavar="N", help="the number of the Change")
        made.add_argument(
            "--digest",
            action=_NotEmpty,
            default="",
            help="the digest that `berth changes N` printed, or the whole digest; approve needs it",
        )
        made.add_argument("--reason", default="", help="the reason, stored with the Change", required=act == "reject")
        if act == "rebase":
            made.add_argument(
                "--revision",
                type=_number,
                metavar="M",
                help="the live Revision that `berth changes N` printed; default: the current one",
            )
            _sides(made)
    made = add("rename", "Give a Change another title or another reason; its approvals stay.")
    made.add_argument("number", type=_number, metavar="N", help="the number of the Change")
    made.add_argument("--title", help="the new title")
    made.add_argument("--reason", help="the new reason")
    made = add("rollback", "Roll back to an older Revision: its content becomes live again.")
    made.add_argument("revision", type=_number, metavar="M", help="the number of the Revision")
    made.add_argument("--reason", action=_NotEmpty, required=True, help="the reason, stored with the Revision")
    made = add("pause", "Pause rules.")
    made.add_argument("target", metavar="TARGET", help="everything, Assignment/NAME, RuleSet/NAME or RuleSet/NAME/RULE")
    made.add_argument(
        "--reason", action=_NotEmpty, required=True, help="the reason, stored with the Change and its Revision"
    )
    made.add_argument(
        "--until",
        action=_NotEmpty,
        default="",
        metavar="TIME",
        help="when the Pause ends: 2026-12-31T18:00:00Z, or 90m, 2h, 3d from now",
    )
    made = add("resume", "End a Pause.")
    made.add_argument("target", metavar="TARGET", help="as in pause")
    made.add_argument("--reason", default="", help="the reason, stored with the Change and its Revision")


def _sides(made: ArgumentParser) -> None:
    for side, says in (
        ("merge", "merge this rule set with the live one, rule by rule: RuleSet/web"),
        ("mine", "of a part that both sides changed, keep this Change's edit: RuleSet/web/filters/team"),
        (
            "theirs",
            "use the live side of an object (Assignment/all), of a part that both sides changed, or of Assignments/order",
        ),
    ):
        made.add_argument(f"--{side}", action="append", default=[], metavar="WHAT", help=says)


_ACTS = {
    "submit": "Send a Change to review.",
    "approve": "Approve a Change with the digest that you looked at.",
    "reject": "Reject a Change.",
    "withdraw": "Withdraw a Change: it never goes live.",
    "rebase": "Rebase a Change's edits on the live Revision.",
    "publish": "Make a Change live.",
}


def _add_pods(add: _Add) -> None:
    made = add("why", "Explain why a Pod is on its node, or Pending.")
    made.add_argument("pod", metavar="POD", help="NAME or NAMESPACE/NAME")
    _add_namespace(made)
    made.add_argument("--uid", action=_NotEmpty, default="", help="the Pod's UID, if several Pods had the name")
    made = add("which", "Print which Assignment matches a Pod, and why earlier ones don't.")
    made.add_argument("pod", metavar="POD", help="NAME, NAMESPACE/NAME, or a file with the Pod: pod.yaml")
    _add_namespace(made)
    made = add("simulate", "Print where Pods would be placed on the cluster as it is now, without changing anything.")
    made.add_argument("file", nargs="?", metavar="FILE", help="the manifest of a Pod, a Deployment or the like")
    made.add_argument("--live", default="", metavar="POD", help="a Pod in the cluster: NAME or NAMESPACE/NAME")
    _add_namespace(made)
    made.add_argument("--pods", type=_count, default=1, metavar="N", help="the number of Pods (1)")
    made.add_argument(
        "--change", type=_number, metavar="N", help="also evaluate the rules that this Change would make live"
    )
    made = add("decisions", "List the newest Decisions, the newest last.")
    made.add_argument(
        "filters", nargs="*", metavar="NAME=VALUE", help="filters, as in the admin's list: pod_namespace=shop node=n1"
    )
    made.add_argument("--limit", type=_count, default=20, help="the most rows to list (20)")
    made.add_argument("--follow", "-f", action="store_true", help="also print later Decisions, until Ctrl-C")
    made.add_argument("--every", type=_seconds, default=2.0, metavar="SECONDS", help="how often to ask (2)")


def _add_namespace(made: ArgumentParser) -> None:
    made.add_argument(
        "--namespace", "-n", action=_NotEmpty, default="", help="the namespace, if POD is only a name (default)"
    )


def _add_account(add: _Add) -> None:
    add("status", "Show the live Revision, the processes that serve it, Pending Pods, open Changes and lost Decisions.")
    add("whoami", "Show your account on the server, and its permissions.")
    made = add(
        "login",
        "Store a server and a token; the token is read from the terminal or from standard input.",
        asks_server=False,
    )
    made.add_argument("url", nargs="?", default="", metavar="URL", help="https://berth.example.org (BERTH_SERVER)")
    made.add_argument("--ca-file", default="", metavar="FILE", help="the CA certificates for the server's certificate")
    add("logout", "Delete the server and the token that login stored.", asks_server=False)
    made = add("completion", "Print a shell's completion script: source <(berth completion bash)", asks_server=False)
    made.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell")


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
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        message = f"{text[:40]!a} isn't a number of a Change or Revision: write a whole number, such as 12"
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
