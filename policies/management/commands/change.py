"""`manage.py change ACT [N]`: the acts of the Changes' pages, without a browser."""

import getpass
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser
from django.http import HttpRequest

from policies import manifests, publishing
from policies.changes_in_words import part_changes
from policies.management.command import BerthCommand, NotEmpty, moment, moment_to_come
from policies.models import Change
from policies.origin import system_user
from policies.publishing import By, Key, OnBehalf, PublishingError, lifecycle
from policies.sentences import ending_sentence
from policies.wording import visible

# How many characters of a digest are shown.
_SHORT_DIGEST = 12
_LONGEST_ACCOUNT = 150
_ALL_SCOPES = frozenset({"edit", "review", "publish"})
# Whose side is taken: for things that moved by KIND/NAME, for parts that both sides changed by KIND/NAME/PART.
_SIDES = {
    "merge": "merge this rule set with the live one, rule by rule: RuleSet/web",
    "mine": "of a part that both sides changed, keep this Change's edit: RuleSet/web/filters/team",
    "theirs": "use the live side of an object (Assignment/all), of a part that both sides changed, or of Assignments/order",
}


class Shown(msgspec.Struct, kw_only=True):
    """A Change as JSON."""

    number: int
    title: str
    state: str
    # The digest that an approval covers.
    digest: str
    opened_by: str
    authors: list[str]
    changes: list[str]
    # The conditions that it lacks for publishing, a sentence each.
    missing: list[str]
    # The things that it touches and that somebody else has published meanwhile.
    moved: list[str]
    # The others' changes, in sentences, and the parts that both sides changed.
    theirs: list[str]
    # The live Revision with which these were compared, for rebase.
    live: int
    # Pauses and Exemptions that end because it removes their target, in sentences.
    ends: list[str]
    # The things of it that a repository manages, in sentences.
    kept: list[str]
    # The people whose review it waits for, and since when.
    waiting: list[dict[str, str]]
    held: str = ""
    publish_at: datetime | None = None
    expires_at: datetime | None = None
    revision: int | None = None


class Command(BerthCommand):
    """Shows Changes, and carries out the acts that a person or the system's user may do."""

    help = (
        "List the open Changes, show one, or do something with it. With --as USER it is done by that account, whose password is "
        "asked for (one line of standard input where that is no terminal); else by the system's user, who may not approve."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("act", choices=["list", "show", *sorted(_ACTS)], help="the act")
        parser.add_argument("number", nargs="?", type=int, metavar="N", help="the number of the Change")
        parser.add_argument(
            "--as", dest="account", action=NotEmpty, default="", metavar="USER", help="act as this account"
        )
        parser.add_argument("--reason", default="", help="a reason or comment, stored with the Change")
        parser.add_argument(
            "--digest",
            action=NotEmpty,
            default="",
            help="the digest that `show` printed, or the whole digest; approve needs it",
        )
        parser.add_argument("--title", metavar="TITLE", help="rename: the new title")
        parser.add_argument("--whom", default="", metavar="USER", help="ask: who should review it")
        parser.add_argument(
            "--at",
            default="",
            metavar="TIME",
            help="schedule and expire: 2026-01-31T22:00Z; 90m, 2h, 3d from now; or never",
        )
        parser.add_argument(
            "--seen-at",
            action=NotEmpty,
            default="",
            metavar="TIME",
            help="schedule: the time that `show --output json` printed as publish_at, or never; refused if it is another one now",
        )
        parser.add_argument(
            "--revision",
            type=int,
            metavar="M",
            help="rebase: the live Revision that `show` printed; default: the current one",
        )
        for side, says in _SIDES.items():
            parser.add_argument(f"--{side}", action="append", default=[], metavar="WHAT", help=f"rebase: {says}")
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the act, and print the state of the Change afterwards."""
        try:
            found = self._do(options)
        except (CommandError, PublishingError) as error:
            said = str(error) if isinstance(error, CommandError) else "\n".join(error.messages)
            raise self.refused(said, options["output"]) from error
        with publishing.one_revision():  # the Revision to rebase on is the one that the edits are compared with
            self._print(options, found)

    def _print(self, options: dict[str, Any], found: list[Change]) -> None:
        if options["output"] == "json":
            shown = [msgspec.to_builtins(_shown(each)) for each in found]
            self.stdout.write(manifests.to_json({"ok": True, "changes": shown}))
        elif options["act"] == "list":
            self.stdout.write("\n".join(map(_line, found)) or "none")
        else:
            self.stdout.write("\n".join(_text(found[0])))

    def _do(self, options: dict[str, Any]) -> list[Change]:
        if options["seen_at"] and options["act"] != "schedule":
            message = f"{options['act']} compares no time: --seen-at is for schedule alone."
            raise CommandError(message)
        if options["act"] == "list":
            if options["number"] is not None:
                message = (
                    f"list shows all open Changes, and takes no number: change show {options['number']} shows that one."
                )
                raise CommandError(message)
            return list(Change.objects.filter(state__in=lifecycle.OPEN))
        change = Change.objects.filter(pk=options["number"]).first() if options["number"] else None
        if change is None:
            message = (
                f"There is no Change {options['number']}." if options["number"] else "Give the number of the Change."
            )
            raise CommandError(message)
        if options["act"] != "show":
            if 0 < len(options["digest"]) < _SHORT_DIGEST:
                message = (
                    f"--digest takes at least the {_SHORT_DIGEST} characters that `change show {change.pk}` prints."
                )
                raise CommandError(message)
            if options["digest"] and not change.digest.startswith(options["digest"]):
                message = f"{change} changed since you looked at it: its digest is {change.digest[:_SHORT_DIGEST]} now. Look at it again."
                raise CommandError(message)
            _ACTS[options["act"]](change, _who(options["account"]), options)
            change.refresh_from_db()
        return [change]


def _who(account: str) -> By:
    """Return who acts: the system's user, or an account that authenticates by its password.

    Raises:
        CommandError: there is no such account, or the password is wrong.
    """
    if not account:
        return system_user()
    password = getpass.getpass(f"Password of {account}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    # Failures lock out as those of the sign-in page on this machine do; axes needs a request to count them.
    request = HttpRequest()
    request.META["REMOTE_ADDR"] = "127.0.0.1"
    # The database can't be asked for every text.
    may_be_one = len(account) <= _LONGEST_ACCOUNT and not publishing.fault_of_words(account)
    user = authenticate(request, username=account, password=password) if may_be_one else None
    if not isinstance(user, User):
        message = f"There is no account {visible(account)} with this password."
        raise CommandError(message)
    return OnBehalf(user, "manage.py", _ALL_SCOPES)


_Act = Callable[[Change, By, dict[str, Any]], object]


def _simple(act: Callable[..., object], *, said_as: str = "text", looks_at_edits: bool = True) -> _Act:
    """Return an act that takes only a reason; `said_as` is the name that `act` has for it.

    `act` compares the digest again, under its lock; where the edits don't matter to it, only one that the user gave.
    """

    def do(change: Change, by: By, options: dict[str, Any]) -> None:
        digest = change.digest if looks_at_edits or options["digest"] else ""
        act(change=change, by=by, expected_digest=digest, **{said_as: options["reason"]})

    return do


def _ask(change: Change, by: By, options: dict[str, Any]) -> None:
    if not options["whom"]:
        message = "Give the account that should review it: --whom USER."
        raise CommandError(message)
    publishing.ask_for_review(change=change, by=by, whom=options["whom"], text=options["reason"])


def _approve(change: Change, by: By, options: dict[str, Any]) -> None:
    if not options["digest"]:
        message = f"Give the digest of what you looked at: --digest {change.digest[:_SHORT_DIGEST]} is what `change show {change.pk}` prints."
        raise CommandError(message)
    publishing.approve_change(change=change, by=by, expected_digest=change.digest, text=options["reason"])


def _rebase(change: Change, by: By, options: dict[str, Any]) -> None:
    take_theirs, merge = _sides(options)
    publishing.rebase_change(
        change=change,
        by=by,
        expected_digest=change.digest,
        expected_revision=publishing.current_revision().number if options["revision"] is None else options["revision"],
        take_theirs=take_theirs,
        merge=merge,
    )


def _sides(options: dict[str, Any]) -> tuple[list[Key], dict[Key, dict[str, str]]]:
    """Return the choices for objects with conflicts: those whose live side is used, and the side of each part of merged ones.

    Raises:
        CommandError: a choice names no object, or two contradict each other.
    """
    merge: dict[Key, dict[str, str]] = {}
    whole: dict[Key, str] = {}
    named = [(side, what) for side in _SIDES for what in options[side]]
    for take, what in named:
        kind, name, part = [*what.split("/", 2), "", ""][:3]
        if not name:
            message = f"--{take} {what!r} names no object: write RuleSet/web, or for a part that both sides changed RuleSet/web/filters/team."
            raise CommandError(message)
        # A side of a part means a merge. If the object's live side were given as well, its whole edit would be lost.
        of_object = "merge" if part else take
        parts = merge.setdefault((kind, name), {}) if of_object == "merge" else {}
        if whole.setdefault((kind, name), of_object) != of_object or (part and parts.setdefault(part, take) != take):
            message = f"--{take} {what!r} contradicts another choice for {kind}/{name}: give one of them."
            raise CommandError(message)
    return [key for key, side in whole.items() if side == "theirs"], merge


def _schedule(change: Change, by: By, options: dict[str, Any]) -> None:
    publishing.schedule_change(
        change=change,
        by=by,
        publish_at=_time(options["at"]),
        expected_digest=change.digest,
        expected_at=_time_seen(change, options["seen_at"]) if options["seen_at"] else msgspec.UNSET,
    )


def _expire(change: Change, by: By, options: dict[str, Any]) -> None:
    at = _time(options["at"])
    publishing.set_expiry(change=change, by=by, expires_at=at, expected_digest=change.digest)


def _rename(change: Change, by: By, options: dict[str, Any]) -> None:
    title, reason = options["title"], options["reason"] or None
    if title is None and reason is None:
        message = "Give the new title with --title TITLE, or the new reason with --reason REASON."
        raise CommandError(message)
    publishing.describe_change(change=change, by=by, expected_digest=change.digest, title=title, reason=reason)


def _gate(change: Change, by: By, options: dict[str, Any]) -> None:
    del options
    publishing.run_gate(change=change, by=by)


_ACTS: dict[str, _Act] = {
    "approve": _approve,
    "ask": _ask,
    "comment": lambda change, by, options: publishing.comment_on_change(change=change, by=by, text=options["reason"]),
    "expire": _expire,
    "gate": _gate,
    "publish": _simple(publishing.publish_change, said_as="reason"),
    "rebase": _rebase,
    "reject": _simple(publishing.reject_change),
    "rename": _rename,
    "reopen": _simple(publishing.reopen_change, looks_at_edits=False),
    "schedule": _schedule,
    "submit": _simple(publishing.submit_change),
    "urgent": _simple(publishing.publish_urgently, said_as="reason"),
    "withdraw": _simple(publishing.withdraw_change, looks_at_edits=False),
}


def _time_seen(change: Change, text: str) -> datetime | None:
    printed = f"`change show {change.pk} --output json` prints it as publish_at"
    return _decoded(text, moment, f"--seen-at {text!r} isn't a time: {printed}; never for null.")


def _time(text: str) -> datetime | None:
    advice = "use 2026-01-31T22:00Z; 90m, 2h, 3d from now; or never"
    return _decoded(text, moment_to_come, f"--at {text!r} isn't a time: {advice}.")


def _decoded(text: str, decode: Callable[[str], datetime], fault: str) -> datetime | None:
    """Decode a time; None for never.

    Raises:
        CommandError: with this fault; it isn't a time.
    """
    if text == "never":
        return None
    try:
        return decode(text)
    except ArgumentTypeError as error:
        raise CommandError(fault) from error


def _line(change: Change) -> str:
    state = publishing.SHORT_OF_APPROVALS if publishing.short_of_approvals([change]) else change.get_state_display()
    return f"{change} {state}: {change.title}"


def _shown(change: Change) -> Shown:
    standing, bases = publishing.standing_of(change), publishing.bases_of(change)
    edits, unread = publishing.readable_edits(change)
    is_open = change.state in lifecycle.OPEN
    return Shown(
        number=change.pk,
        title=change.title,
        state=change.state,
        digest=change.digest,
        opened_by=change.opened_by,
        authors=sorted(standing.authors),
        changes=[
            *(line for edit in edits for line in part_changes(bases.get(edit.key), edit.value)),
            *unread.values(),
            *(publishing.past_ends(edits) if is_open else []),
        ],
        # Whoever reads this may act as the system's user.
        missing=standing.missing_for(publishing.actor_of(system_user()))
        if is_open or standing.waits_for_approval_afterwards
        else [],
        moved=list(standing.moved),
        theirs=_all_theirs(change) if is_open else [],
        live=publishing.current_revision().number,
        ends=[ending_sentence(each, change.expires_at) for each in publishing.endings_of(change)],
        kept=publishing.owner_notes([edit.key for edit in change.edits.all()], change.owner) if is_open else [],
        waiting=[
            {"name": each.name, "askedBy": each.asked_by, "since": each.since.isoformat()}
            for each in publishing.waiting_for(change)
        ],
        held=change.held,
        publish_at=change.publish_at,
        expires_at=change.expires_at,
        revision=change.revision_id,
    )


def _all_theirs(change: Change) -> list[str]:
    orders = publishing.orders_of(change)
    return [line for each in publishing.readable_moved(change) for line in _theirs(each)] + (
        orders.sentences if orders else []
    )


def _theirs(moved: publishing.Moved) -> list[str]:
    merged = publishing.merged_of(moved)
    both = [f"{said}: {moved.kind}/{moved.name}/{part}" for part, said in merged.conflicts.items()] if merged else []
    return [*part_changes(moved.base, moved.live), *both]


def _text(change: Change) -> list[str]:
    shown = _shown(change)
    lines = [_line(change), f"digest {change.digest[:_SHORT_DIGEST]}"]
    lines += [f"  {line}" for line in shown.changes]
    lines += [f"edited by {', '.join(shown.authors)}"] if shown.authors else []
    lines += [*shown.ends, *shown.kept]
    again = f"rebase it, with --revision {shown.live} just on what is live here"
    lines += [f"somebody else has published another {each} since: {again}" for each in shown.moved]
    lines += [f"    {line}" for line in shown.theirs]
    lines += shown.missing
    lines += [f"waits for {each['name']} since {each['since'][:16]}" for each in shown.waiting]
    lines += [shown.held] if shown.held else []
    if shown.publish_at and not shown.held and change.state in lifecycle.OPEN:
        at = publishing.said_at(shown.publish_at)
        is_set = publishing.holds_schedule(change)
        lines.append(
            f"goes live at {at}" if is_set else f"was scheduled for {at}, and was edited since: set the time again"
        )
    if shown.expires_at and change.expired_at is None:
        lines.append(f"goes back at {publishing.said_at(shown.expires_at)}")
    if change.revision_id:
        lines.append(f"made Revision {change.revision_id}")
    return lines
