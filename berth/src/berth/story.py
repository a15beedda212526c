"""The story of a Pod in sentences, the oldest first."""

from collections.abc import Iterator, Sequence
from typing import Any

_MOST_NAMES = 5


def lines_of_story(story: dict[str, Any]) -> Iterator[str]:
    """Yield the lines: its state, each attempt, the outcome, the owners of the rules."""
    owner = f", of {story['owner']}" if story.get("owner") else ""
    yield f"{story['namespace']}/{story['name']}{owner}: {story['now']}"
    if story.get("pending"):
        yield _waiting(story["pending"])
    if story.get("hasEarlier"):
        yield "Earlier Decisions aren't shown: these are the newest 200."
    for attempt in reversed(story.get("attempts", ())):
        yield from _attempt(attempt)
    yield from (f"{_moment(end['at'])} {end['says']}" for end in story.get("ends", ()))
    yield from (_provenance(each) for each in story.get("provenance", ()))


def _waiting(pending: dict[str, Any]) -> str:
    """Return why a Pod has no node, and when it is tried next; a rule is Berth's, any other reason its scheduler's."""
    reason = pending["reason"]
    held = f"rule {pending['rule']}: {reason}" if pending["rule"] else reason
    return f"Pending since {_moment(pending['since'])} for {pending['scheduler_name']}, held by: {held}. Tried next: {pending['next_try']}."


def _attempt(attempt: dict[str, Any]) -> Iterator[str]:
    times = f", {attempt['times']} times since {_moment(attempt['firstAt'])}" if attempt["times"] > 1 else ""
    version = f" version {attempt['ruleSetVersion']}" if attempt["ruleSetVersion"] else ""
    rules = f"rule set {attempt['ruleSet']}{version}" if attempt["ruleSet"] else "no rule set"
    by = f" by Assignment {attempt['assignment']}" if attempt.get("assignment") else ""
    best = f"; the best is {attempt['best']}" if attempt["best"] else ""
    answer = (
        f"no answer: {attempt['error']}"
        if attempt.get("error")
        else f"{_passed(attempt)} {rules}{by}, Revision {attempt['revision']}{best}"
    )
    yield f"{_moment(attempt['lastAt'])} {attempt['verb']}{times}: {answer}."
    yield from (f"  {said}" for said in attempt.get("changed", ()))
    if attempt.get("newlyAllowed"):
        yield f"  Nodes it may use now: {names(attempt['newlyAllowed'])}."
    if attempt.get("newlyRefused"):
        yield f"  Nodes it may no longer use: {names(attempt['newlyRefused'])}."
    causes = attempt.get("causes")
    if causes:
        yield f"  {causes.get('sentence') or 'The reason for the difference is unknown: ' + str(causes.get('fault', ''))}"
    for each in attempt.get("refusals", ()):
        yield f"  - {each['rule']} refused {names(each['nodes'])}: {each['reason'] or each['code']}"


def _passed(attempt: dict[str, Any]) -> str:
    if not attempt["nodes"]:
        return "there were no nodes to decide on by"
    return f"{attempt['feasible']} of {attempt['nodes']} nodes passed"


def _provenance(held: dict[str, Any]) -> str:
    approved = held.get("approved_by") or ()
    by = f"approved by {', '.join(approved)}" if approved else "no approval is recorded"
    change = f" by Change {held['change']}" if held.get("change") else ""
    return f"{held['kind']} {held['name']} is live since Revision {held['since']}, published by {held['published_by']}{change}, {by}."


def names(found: Sequence[str]) -> str:
    """Return a few names, and how many more there are."""
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return ", ".join(found[:_MOST_NAMES]) + more


def _moment(at: str) -> str:
    """Return a time to the second, in UTC as on the server."""
    return f"{str(at)[:19]}Z"
