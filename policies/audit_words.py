"""AuditEvents in words."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from policies.engine.pauses import Target
from policies.models import AuditEvent

# The names of acts in lists, and in sentences with the thing concerned.
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "change.open": ("opened a Change", "opened {change}"),
    "change.edit": ("edited a Change", "edited {change}"),
    "change.describe": ("changed a Change's description", "changed the description of {change}"),
    "change.rebase": ("rebased a Change", "rebased {change} on what is live"),
    "change.submit": ("sent a Change to review", "sent {change} to review"),
    "change.ask": ("asked for a review", "asked {whom} to review {change}"),
    "change.comment": ("commented on a Change", "commented on {change}"),
    "change.approve": ("approved a Change", "approved {change}"),
    "change.reject": ("rejected a Change", "rejected {change}"),
    "change.reopen": ("reopened a Change", "reopened {change}"),
    "change.withdraw": ("withdrew a Change", "withdrew {change}"),
    "change.publish": ("published a Change", "published {change}{made}"),
    "change.urgent": (
        "published without approval",
        "published {change} without the approvals that it needs, in an emergency{made}",
    ),
    "change.schedule": ("scheduled a Change", "set the time at which {change} goes live"),
    "change.hold": ("held back a scheduled Change", "held back the scheduled publish of {change}"),
    "change.expire": ("reverted an expired Change", "reverted {change}, which expired"),
    "change.overtake": ("published over a Change", "published over {change}, which dropped its approvals"),
    "gate.ask": ("requested a gate run", "requested a gate run for {change}"),
    "gate.set": ("changed a gate setting", "changed the gate settings for {thing}"),
    "review.set": ("changed a review setting", "changed the review settings for {thing}"),
    "pause": ("paused", "paused {thing}{by_change}"),
    "resume": ("resumed", "resumed {thing}{by_change}"),
    "exempt": ("exempted Pods", "exempted Pods from {thing}{by_change}"),
    "exemption.end": ("ended an Exemption", "ended an Exemption from {thing}{by_change}"),
    "go-back": ("went back to a version", "went back to version {version} of {thing}{by_change}"),
    "roll-back": ("rolled back", "rolled back to {thing}{by_change}"),
    "adopt": ("took over a PriorityClass", "took over {thing} as the cluster has it{by_change}"),
    "archive": ("archived a rule set", "archived {thing}{by_change}"),
    "put-back": ("put a PriorityClass back", "had {thing} put back in the cluster"),
    "hold.make": ("placed a legal hold", "placed {thing}{holds}"),
    "hold.lift": ("lifted a legal hold", "lifted {thing}{holds}"),
    "backtest.start": ("started a backtest", "started {thing}"),
    "backtest.cancel": ("cancelled a backtest", "cancelled {thing}"),
    "canary.ask": ("ran a canary", "had doctor run a canary Pod"),
    "wake": ("woke Pods", "had {thing} retried at once"),
    "verify": ("requested a verification", "requested a verification of the ledger"),
    "export": ("exported", "exported {thing}"),
    "claim": ("marked objects as a repository's", "marked live objects as owned by a repository"),
    "login": ("signed in", "signed in"),
    "login.failed": ("failed to sign in", "failed to sign in as {thing}{times}"),
    "logout": ("signed out", "signed out"),
    "lockout": ("was locked out", "was locked out as {thing}{times}"),
    "session.end": ("ended sessions", "ended {sessions} of {thing}"),
    "account.make": ("created an account", "created {thing}"),
    "account.change": ("changed an account", "changed {thing}: {changed}"),
    "account.password": ("set a password", "set the password of {thing}"),
    "account.delete": ("deleted an account", "deleted {thing}"),
    "role.make": ("created a role", "created {thing}"),
    "role.change": ("changed a role", "changed {thing}: {changed}"),
    "role.delete": ("deleted a role", "deleted {thing}"),
    "token.make": ("created a token", "created {thing}"),
    "token.revoke": ("revoked a token", "revoked {thing}"),
    "token.refuse": ("was refused access with a token", "was refused access with {thing}: it {why}"),
    "webhook.make": ("created a webhook", "created {thing}"),
    "webhook.change": ("changed a webhook", "changed {thing}: {changed}"),
    "webhook.secret": ("generated a new secret", "generated a new secret for {thing}"),
    "webhook.delete": ("removed a webhook", "removed {thing}"),
    "webhook.test": ("tested a webhook", "sent a test to {thing}"),
    "webhook.again": ("resent a delivery", "resent a delivery to {thing}"),
    "prune": ("pruned old records", "pruned old records from {thing}"),
    "prune.begin": ("began to sign deletions", "began to sign what retention deletes from {thing}"),
    "loss": ("recorded a loss", "recorded as lost or unreadable: {thing}"),
    "loss.begin": ("began to record losses", "began to record losses in {thing}"),
    "process.start": ("a process started", "{thing} started, version {version}"),
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
    "admin": "in the admin",
    "rest": "over REST",
    "command": "by a command",
    "beat": "by a schedule",
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
    # A kind of a newer Berth, or of a row that was tampered with, is no format: it may have braces.
    said = _WORDS[row.kind][1].format_map(words) if row.kind in _WORDS else f"did {row.kind} to {words['thing']}"
    return said if row.kind == "process.start" else f"{who_of(row)} {said}"


def thing_of(row: AuditEvent, more: Mapping[str, Any]) -> str:
    """Return the thing concerned; `more` as in `sentence_of`."""
    if row.thing_kind == "everything":
        return "everything"
    # A Pause or an Exemption may concern one rule of the rule set that the columns name.
    if rule := Target.parse(str(more.get("target", ""))).rule:
        return f"rule {rule} of rule set {row.thing_name}"
    if row.thing_kind == "Account" and not row.thing_name:
        return "an account that doesn't exist"
    named = f"{_THINGS.get(row.thing_kind, row.thing_kind)} {row.thing_name}".strip()
    return named or "all rule sets"


def how_of(row: AuditEvent) -> str:
    """Return the door by which it was done, in words."""
    return _DOORS.get(row.door, row.door)


def _changed(more: Mapping[str, Any]) -> str:
    # A newer Berth may write these members in another form.
    if changed := more.get("changed"):
        values = more.get("values")
        became = values if isinstance(values, Mapping) else {}
        return ", ".join(f"{name}{_became(became.get(name))}" for name in map(str, _listed(changed)))
    for word in ("added", "removed"):
        if word in more:
            return f"{word} {', '.join(map(str, _listed(more[word])))} ({more.get('of', 'rights')})"
    return "something"


def _listed(names: Any) -> Sequence[Any]:
    return names if isinstance(names, list | tuple) else (names,)


def _became(values: Any) -> str:
    match values:
        case [before, after]:
            return f" {before} → {after}"
    return ""
