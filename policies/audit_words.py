"""AuditEvents in words."""

from collections.abc import Mapping
from typing import Any, Final

from policies.engine.pauses import Target
from policies.models import AuditEvent

# The names of acts in lists, and in sentences with the thing concerned.
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "change.open": ("opened a Change", "opened {change}"),
    "change.edit": ("edited a Change", "edited {change}"),
    "change.describe": ("described a Change anew", "described {change} anew"),
    "change.rebase": ("rebased a Change", "rebased {change} on what is live"),
    "change.submit": ("sent a Change to review", "sent {change} to review"),
    "change.ask": ("asked for a review", "asked {whom} to review {change}"),
    "change.comment": ("commented on a Change", "commented on {change}"),
    "change.approve": ("approved a Change", "approved {change}"),
    "change.reject": ("rejected a Change", "rejected {change}"),
    "change.reopen": ("opened a Change again", "opened {change} again"),
    "change.withdraw": ("withdrew a Change", "withdrew {change}"),
    "change.publish": ("published a Change", "published {change}{made}"),
    "change.urgent": (
        "published without approval",
        "published {change} without the approvals that it needs, in an emergency{made}",
    ),
    "change.schedule": ("set a Change's time", "set the time at which {change} goes live"),
    "change.hold": ("held a Change back", "held {change} back at its time"),
    "change.expire": ("took back what expired", "took back what {change} had made"),
    "change.overtake": ("overtook a Change", "overtook {change}, and so dropped its approvals"),
    "gate.ask": ("had the gate look", "had the gate look at {change}"),
    "gate.set": ("set the gate", "set what the gate's checks count for {thing}"),
    "review.set": ("set how Changes are reviewed", "set how Changes of {thing} are reviewed"),
    "pause": ("paused", "paused {thing}{by_change}"),
    "resume": ("resumed", "put {thing} back in force{by_change}"),
    "exempt": ("exempted Pods", "exempted Pods from {thing}{by_change}"),
    "exemption.end": ("ended an Exemption", "ended an Exemption from {thing}{by_change}"),
    "go-back": ("went back to a version", "went back to version {version} of {thing}{by_change}"),
    "roll-back": ("rolled back", "rolled back to {thing}{by_change}"),
    "adopt": ("took over a PriorityClass", "took over {thing} as the cluster has it{by_change}"),
    "archive": ("archived a rule set", "archived {thing}{by_change}"),
    "put-back": ("put a PriorityClass back", "had {thing} put back in the cluster"),
    "hold.make": ("made a legal hold", "made {thing}{holds}"),
    "hold.lift": ("lifted a legal hold", "lifted {thing}{holds}"),
    "backtest.start": ("started a backtest", "started {thing}"),
    "backtest.cancel": ("cancelled a backtest", "cancelled {thing}"),
    "canary.ask": ("asked for a canary", "had doctor send a canary Pod"),
    "wake": ("woke Pods", "had {thing} tried at once"),
    "verify": ("asked for a verification", "had the ledger verified"),
    "export": ("exported", "exported {thing}"),
    "claim": ("marked as a repository's", "marked what is live as a repository's"),
    "login": ("signed in", "signed in"),
    "login.failed": ("failed to sign in", "failed to sign in as {thing}{times}"),
    "logout": ("signed out", "signed out"),
    "lockout": ("was locked out", "was locked out as {thing}{times}"),
    "session.end": ("ended sessions", "ended {sessions} of {thing}"),
    "account.make": ("made an account", "made {thing}"),
    "account.change": ("changed an account", "changed {thing}: {changed}"),
    "account.password": ("set a password", "set the password of {thing}"),
    "account.delete": ("deleted an account", "deleted {thing}"),
    "role.make": ("made a role", "made {thing}"),
    "role.change": ("changed a role", "changed {thing}: {changed}"),
    "role.delete": ("deleted a role", "deleted {thing}"),
    "token.make": ("made a token", "made {thing}"),
    "token.revoke": ("revoked a token", "revoked {thing}"),
    "token.refuse": ("was refused with a token", "was refused with {thing}: it {why}"),
    "webhook.make": ("made a webhook", "made {thing}"),
    "webhook.change": ("changed a webhook", "changed {thing}: {changed}"),
    "webhook.secret": ("made a new secret", "made a new secret for {thing}"),
    "webhook.delete": ("removed a webhook", "removed {thing}"),
    "webhook.test": ("tested a webhook", "had a test sent to {thing}"),
    "webhook.again": ("sent again", "had a delivery sent to {thing} again"),
    "prune": ("deleted what is past its time", "deleted what is past its time from {thing}"),
    "prune.begin": ("began to sign deletions", "began to sign what retention deletes from {thing}"),
    "loss": ("noted what is lost", "noted as lost or unread: {thing}"),
    "loss.begin": ("began to note losses", "began to note what is lost in {thing}"),
    "process.start": ("a process began", "{thing} began, version {version}"),
}
KINDS: Final[Mapping[str, str]] = {kind: title for kind, (title, _) in _WORDS.items()}
_THINGS: Final = {
    "RuleSet": "rule set",
    "Account": "account",
    "Role": "role",
    "Token": "token",
    "Process": "process",
    "LegalHold": "legal hold",
    "Webhook": "webhook",
    "Backtest": "backtest",
    "Ledger": "the log",
    "Documents": "documents",
    "evidence": "evidence of",
    "DecisionGap": "Decisions of",
    "DeadLetter": "record of",
}
_DOORS: Final = {
    "admin": "on the pages",
    "rest": "over REST",
    "command": "by a command",
    "beat": "by the clock",
    "process": "by a process",
}


def title_of(kind: str) -> str:
    """Return the act, in a few words; an unknown kind is returned unchanged."""
    return KINDS.get(kind, kind)


def who_of(row: AuditEvent) -> str:
    """Return who did it, and through which token or command."""
    if row.kind == "process.start":
        return "nobody"
    who = row.by or "somebody unknown"
    return f"{who}, through {row.via}" if row.via and row.via != row.by else who


def sentence_of(row: AuditEvent, more: Mapping[str, Any]) -> str:
    """Return the act as a sentence, without a full stop; `more` holds the further members of its body."""
    change = f"Change {row.change}" if row.change else "a Change"
    is_made = row.revision is not None
    words = {
        "change": f"{change} ({more['title']})" if more.get("title") else change,
        "made": f", which made Revision {row.revision}" if is_made else "",
        "by_change": f" by {change}" + (f", which made Revision {row.revision}" if is_made else ", sent to review"),
        "thing": thing_of(row, more),
        "whom": more.get("whom", "somebody"),
        "version": more.get("version", "unknown"),
        "changed": _changed(more),
        "why": more.get("why", "is over"),
        "times": f" ({times} times within a minute from there)" if (times := more.get("times")) else "",
        "sessions": "a session" if more.get("sessions") == 1 else f"{more.get('sessions', 'some')} sessions",
        "holds": f": {holds}" if (holds := more.get("holds") or more.get("held")) else "",
    }
    _, text = _WORDS.get(row.kind, ("", f"did {row.kind} to {{thing}}"))
    said = text.format_map(words)
    return said if row.kind == "process.start" else f"{who_of(row)} {said}"


def thing_of(row: AuditEvent, more: Mapping[str, Any]) -> str:
    """Return the thing concerned; `more` as in `sentence_of`."""
    if row.thing_kind == "everything":
        return "everything"
    # A Pause or an Exemption may concern one rule of the rule set that the columns name.
    if rule := Target.parse(str(more.get("target", ""))).rule:
        return f"rule {rule} of rule set {row.thing_name}"
    if row.thing_kind == "Account" and not row.thing_name:
        return "an account that there isn't"
    named = f"{_THINGS.get(row.thing_kind, row.thing_kind)} {row.thing_name}".strip()
    return named or "all rule sets"


def how_of(row: AuditEvent) -> str:
    """Return the door by which it was done, in words."""
    return _DOORS.get(row.door, row.door)


def _changed(more: Mapping[str, Any]) -> str:
    if changed := more.get("changed"):
        values = more.get("values") or {}
        return ", ".join(f"{name} {_became(values[name])}" if name in values else str(name) for name in changed)
    for word in ("added", "removed"):
        if word in more:
            names = more[word]
            return f"{word} {names if isinstance(names, str) else ', '.join(names)} ({more.get('of', 'rights')})"
    return "something"


def _became(values: Any) -> str:
    before, after = values
    return f"{before} → {after}"
