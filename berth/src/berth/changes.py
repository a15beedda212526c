"""Changes and Revisions: review, publishing, going back; and pauses."""

from argparse import Namespace
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from berth.answer import Answer, table
from berth.errors import CommandError
from berth.gate import gate_lines
from berth.server import Server, path_of

# How many characters of a digest are shown.
_SHORT_DIGEST = 12
_OPEN = ("draft", "in_review", "approved")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def changes(server: Server, given: Namespace) -> Answer:
    """List Changes, or show one."""
    if given.number is not None:
        if given.state:
            message = f"--state narrows the list, and Change {given.number} is one: give one or the other."
            raise CommandError(message)
        found = server.get(path_of("changes", str(given.number)))
        return Answer({"change": found}, list(_change_lines(found)))
    limit = given.limit
    rows = []
    for row in server.pages("/changes", state=given.state, limit=min(limit, 100)):
        rows.append(row)
        if len(rows) == limit:
            break
    cells = [(row["number"], row["state"] + _short(row), row["opened_by"], row["title"]) for row in rows]
    return Answer({"changes": rows}, table(("CHANGE", "STATE", "BY", "TITLE"), cells) if rows else ["none"])


def _short(found: dict[str, Any]) -> str:
    return ", but approvals are missing again" if found.get("is_short") else ""


def _change_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield lines about a Change and its state."""
    state = str(found["state"]).replace("_", " ") + _short(found)
    yield f"Change {found['number']} {state}: {found['title']}"
    if found.get("digest"):
        yield f"digest {str(found['digest'])[:_SHORT_DIGEST]}"
    for edit in found.get("edits", ()):
        yield from (f"  {line}" for line in edit["changes"])
    for each in found.get("conflicts", ()):
        again = f"berth rebase {found['number']} --revision {found.get('live', 'M')}"
        yield f"! Somebody else has since changed {each['kind']} {each['name']}: `{again}`"
        yield from (f"    {line}" for line in each["theirs"])
        yield from (f"    both sides changed {each['kind']}/{each['name']}/{part}" for part in each.get("parts", ()))
    yield from (f"! {line}" for line in (*found.get("ends", ()), *found.get("kept", ()), *found.get("missing", ())))
    yield from _gate(found.get("gate") or {})
    yield from _times(found)
    if found.get("held"):
        yield f"! {found['held']}"
    if found.get("revision"):
        yield f"made Revision {found['revision']}"


def _times(found: dict[str, Any]) -> Iterator[str]:
    if found.get("publish_at"):
        if found["is_scheduled"]:
            yield f"goes live at {found['publish_at']}"
        elif found["state"] in _OPEN and not found.get("held"):
            yield f"! It was scheduled for {found['publish_at']}, and was edited since: set the time again."
    # The end is a part of the approval.
    if found.get("expires_at"):
        yield f"goes back at {found['expires_at']}"


def _gate(gate: dict[str, Any]) -> Iterator[str]:
    yield from gate_lines(gate.get("results", ()), gate.get("levels", {}))
    if gate.get("refusal"):
        yield f"! {gate['refusal']}"


def act(server: Server, given: Namespace) -> Answer:
    """Submit, approve, reject, withdraw, publish or rebase a Change, in its present state or that of --digest."""
    path = path_of("changes", str(given.number))
    found, tag = server.tagged(path)
    _check_digest(found, given)
    body: dict[str, Any] = {"reason": given.reason} if given.reason else {}
    if given.act == "rebase":
        body = {"revision": found["live"] if given.revision is None else given.revision, "sides": list(_sides(given))}
    # The state that was read: if somebody edits it between the two calls, the act is refused.
    done = server.post(f"{path}/{given.act}", body, headers={"If-Match": tag} if tag else None)
    return Answer({"change": done}, list(_change_lines(done)))


def rename(server: Server, given: Namespace) -> Answer:
    """Change the title or the reason of a Change; its edits stay the same."""
    body = {name: value for name in ("title", "reason") if (value := getattr(given, name)) is not None}
    if not body:
        message = "Give the new title with --title TITLE, or the new reason with --reason REASON."
        raise CommandError(message)
    path = path_of("changes", str(given.number))
    _, tag = server.tagged(path)
    done = server.patch(path, body, headers={"If-Match": tag} if tag else None)
    return Answer({"change": done}, list(_change_lines(done)))


def _sides(given: Namespace) -> Iterator[dict[str, Any]]:
    """Yield the choice for each object with a conflict; choices for parts are joined with those of their object.

    Raises:
        CommandError: a choice names no object, or two contradict each other.
    """
    parts: dict[tuple[str, str], dict[str, str]] = {}
    named = [(side, what) for side in ("merge", "mine", "theirs") for what in getattr(given, side)]
    for take, what in named:
        kind, name, part = [*what.split("/", 2), "", ""][:3]
        if not name:
            message = f"--{take} {what!r} names no object: write RuleSet/web, or for a part that both sides changed RuleSet/web/filters/team."
            raise CommandError(message)
        if part and parts.setdefault((kind, name), {}).setdefault(part, take) != take:
            message = f"--{take} {what!r} contradicts another choice for {kind}/{name}: give one of them."
            raise CommandError(message)
        if part or take == "merge":
            parts.setdefault((kind, name), {})
        else:
            yield {"kind": kind, "name": name, "take": take}
    for (kind, name), chosen in parts.items():
        yield {"kind": kind, "name": name, "take": "merge", "parts": chosen}


def _check_digest(found: dict[str, Any], given: Namespace) -> None:
    digest = str(found["digest"])
    if 0 < len(given.digest) < _SHORT_DIGEST:
        message = f"--digest takes at least the {_SHORT_DIGEST} characters that `berth changes {given.number}` shows: fewer are ambiguous."
        raise CommandError(message)
    if given.digest and not digest.startswith(given.digest):
        message = f"Change {given.number} changed since you looked at it: its digest is {digest[:_SHORT_DIGEST]} now. `berth changes {given.number}` shows it."
        raise CommandError(message)
    if given.act == "approve" and not given.digest:
        message = f"Name the digest that you looked at: `berth changes {given.number}` shows the Change, and --digest {digest[:_SHORT_DIGEST]} approves exactly that state."
        raise CommandError(message)


def rollback(server: Server, given: Namespace) -> Answer:
    """Roll back to a Revision."""
    done = server.post(path_of("revisions", str(given.revision), "rollback"), {"reason": given.reason})
    return Answer(done, [_outcome(done, f"The content of Revision {given.revision} is live already.")])


def pause(server: Server, given: Namespace) -> Answer:
    """Pause a target."""
    body = {"target": given.target, "reason": given.reason, **({"until": until(given.until)} if given.until else {})}
    return _done(server.post("/pauses", body))


def resume(server: Server, given: Namespace) -> Answer:
    """Resume a target."""
    # In the body: a long reason doesn't fit into a URL, which proxies also log.
    return _done(server.delete(path_of("pauses", *given.target.lstrip("/").split("/")), {"reason": given.reason}))


def _done(found: dict[str, Any]) -> Answer:
    return Answer(found, [_outcome(found, "There was nothing to do.")])


def _outcome(found: dict[str, Any], nothing: str) -> str:
    # If these members are missing, the answer isn't Berth's: it mustn't be read as "nothing to do".
    change, revision = found["change"], found["revision"]
    number = change.get("number") if isinstance(change, dict) else change
    if revision:
        made = revision.get("number") if isinstance(revision, dict) else revision
        return f"Revision {made} was made" + (f" by Change {number}." if number else ".")
    if number:
        return f"Change {number} is in review: `berth changes {number}` says what it waits for, somebody else's approval or the gate; then run `berth publish {number}`."
    return nothing


def until(text: str, now: datetime | None = None) -> str:
    """Return a time as RFC 3339, from a time in that format, or from minutes, hours or days from now: 90m, 2h, 3d.

    Raises:
        CommandError: it is neither.
    """
    try:
        if text[-1:] in _UNITS and text[:-1].isdigit():
            at = (now or datetime.now(UTC)) + timedelta(**{_UNITS[text[-1]]: int(text[:-1])})
        else:
            at = datetime.fromisoformat(text)
        at = (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        message = f"--until {text!r} isn't a time: use 2026-12-31T18:00:00Z, or 90m, 2h, 3d from now."
        raise CommandError(message) from error
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
