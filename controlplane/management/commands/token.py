"""`manage.py token create|list|revoke`: API tokens, with which programs use REST on behalf of an account."""

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser
from django.utils import timezone

from controlplane.models import Token
from controlplane.tokens import DEFAULT_DAYS, TokenError, comma_separated, make_token, revoke_token
from policies import manifests
from policies.management.command import BerthCommand, NotEmpty
from policies.origin import system_user
from policies.scopes import SCOPES


class Command(BerthCommand):
    """Creates a token and prints its secret once; lists and revokes tokens."""

    help = "Create a token for an account, list tokens, or revoke one. The secret is printed once and stored nowhere."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        acts = parser.add_subparsers(dest="act", required=True, metavar="create|list|revoke")
        create = acts.add_parser("create", help="create a token and print its secret to standard output")
        create.add_argument(
            "--owner",
            required=True,
            help="the account that it acts for; a token never has more permissions than its account",
        )
        create.add_argument("--scopes", required=True, help=f"its scopes, separated by commas; of {','.join(SCOPES)}")
        create.add_argument(
            "--name", default="", help="a name that says what it is for; default: a name made from the date"
        )
        create.add_argument("--days", type=int, default=DEFAULT_DAYS, help="how long it is valid (default %(default)s)")
        create.add_argument(
            "--rule-sets",
            help="limits the token to objects with such names: patterns, separated by commas, such as team-a-*",
        )
        create.add_argument(
            "--namespaces", help="limits its Assignments to Pods of these namespaces: patterns, separated by commas"
        )
        shown = acts.add_parser("list", help="list tokens, without their secrets")
        shown.add_argument("--owner", action=NotEmpty, default="", help="only the tokens of this account")
        revoked = acts.add_parser("revoke", help="revoke a token at once")
        revoked.add_argument("prefix", help="the 8 characters after berth_ in its secret, as `token list` shows them")
        for each in (create, shown, revoked):
            each.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the sub-command."""
        try:
            told, text = _ACTS[options["act"]](options)
            if options["act"] == "create":
                kept = f"{told['token']['name']} of {told['token']['owner']} until {told['token']['expires_at']}"
                self.stderr.write(f"The token {kept}. Its secret is shown this once:")
        except TokenError as error:
            raise self.refused("\n".join(error.messages), options["output"]) from error
        self.stdout.write(manifests.to_json({"ok": True, **told}) if options["output"] == "json" else text)


def _create(options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    owner = _owner(options["owner"])
    now = timezone.now()
    token, secret = make_token(
        name=options["name"] or f"made {now:%Y-%m-%d %H:%M:%S.%f}",
        owner=owner,
        scopes=comma_separated(options["scopes"]),
        days=options["days"],
        by=system_user(),
        now=now,
        rule_sets=_patterns("--rule-sets", options["rule_sets"]),
        namespaces=_patterns("--namespaces", options["namespaces"]),
    )
    return {"token": _told(token), "secret": secret}, secret


def _owner(name: str) -> User:
    owner = User.objects.filter(username=name).first()
    if owner is None:
        raise TokenError([f"There is no account {name}."])
    return owner


def _list(options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    rows = Token.objects.select_related("owner")
    if options["owner"]:
        rows = rows.filter(owner=_owner(options["owner"]))
    told = [_told(row) for row in rows]
    return {"tokens": told}, "\n".join(_line(each) for each in told) or "none"


def _revoke(options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    token = Token.objects.select_related("owner").filter(prefix=options["prefix"].removeprefix("berth_")[:8]).first()
    if token is None:
        raise TokenError(
            [f"No token is called {options['prefix'][:20]}: give the 8 characters that `token list` shows of each."]
        )
    if not revoke_token(token=token, by=system_user(), now=timezone.now()):
        raise TokenError([f"The token {token} was already revoked."])
    token.refresh_from_db()
    return {"token": _told(token)}, f"The token {token} of {token.owner} is revoked."


_ACTS = {"create": _create, "list": _list, "revoke": _revoke}


def _patterns(option: str, text: str | None) -> list[str]:
    """Return an option's patterns; none if the option is absent.

    Raises:
        TokenError: the option is empty, as with an unset shell variable: the token would reach everything.
    """
    found = comma_separated(text or "")
    if text is not None and not found:
        raise TokenError([f"{option} names no pattern: leave it out for a token that reaches all that its owner does."])
    return found


def _told(row: Token) -> dict[str, Any]:
    return {
        "name": row.name,
        "prefix": row.prefix,
        "owner": row.owner.get_username(),
        "state": row.state(timezone.now()),
        "scopes": row.scopes,
        "rule_sets": row.rule_sets,
        "namespaces": row.namespaces,
        "made_by": row.made_by,
        "expires_at": f"{row.expires_at:%Y-%m-%dT%H:%M:%SZ}",
        "last_used_at": f"{row.last_used_at:%Y-%m-%dT%H:%M:%SZ}" if row.last_used_at else None,
        "last_used_from": row.last_used_from,
    }


def _line(told: dict[str, Any]) -> str:
    reach = [f"rule sets {','.join(told['rule_sets'])}"] if told["rule_sets"] else []
    reach += [f"namespaces {','.join(told['namespaces'])}"] if told["namespaces"] else []
    used = f"used {told['last_used_at']} from {told['last_used_from'] or 'here'}" if told["last_used_at"] else "unused"
    parts = (told["prefix"], told["owner"], told["name"], told["state"], ",".join(told["scopes"]), *reach)
    return "  ".join([*parts, f"until {told['expires_at']}", used])
