"""A plan as a comment on a pull request, in Markdown that GitHub and GitLab render in the same way."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

# GitHub accepts comments of up to 65,536 characters.
_MOST_CHARACTERS = 60_000
_MOST_LINES = 200


def plan_in_markdown(found: dict[str, Any], title: str = "") -> str:
    """Return a plan as a comment, which begins with a mark by which a pipeline finds its earlier comment."""
    lines = ["<!-- berth-plan -->", f"### {_plain(title) or 'Berth: what this would change'}", "", _verdict(found), ""]
    lines += _section("Changes", found.get("changes", ()))
    lines += _section("Notes on the files", found.get("notes", ()))
    lines += _section("Drift: changed outside of these files", found.get("drift", ()))
    lines += _section("Others are changing the same objects", found.get("beside", ()))
    cluster = [
        f"PriorityClass {each['name']}: {each['act']}. {each.get('message', '')}" for each in found.get("cluster", ())
    ]
    lines += _section("In the cluster", [*cluster, *map(user_line, found.get("users", ()))])
    lines += _section("The cluster can't be read", [found["error"]] if found.get("error") else [])
    lines += _gate(found)
    return _bounded("\n".join(lines).rstrip() + "\n", list(map(_diff, found.get("documents", ()))))


def user_line(user: dict[str, Any]) -> str:
    """Return a line about Pods that keep their priority when a PriorityClass is replaced."""
    pods, keep = ("1 Pod", "keeps") if user["pods"] == 1 else (f"{user['pods']} Pods", "keep")
    return f"{user['priority_class']}: {pods} of {user['kind']} {user['namespace']}/{user['name']} {keep} {user['priority']}"


def _bounded(head: str, diffs: Sequence[str]) -> str:
    """Return a comment with as many whole differences as fit: a folded part would hide that it is cut off."""
    if len(head) > _MOST_CHARACTERS:
        head = (
            head[:_MOST_CHARACTERS].rpartition("\n")[0]
            + "\n\n… and more, too long for a comment: `berth plan` shows all of it.\n"
        )
    shown, room = [head], _MOST_CHARACTERS - len(head)
    for each in diffs:
        if len(each) <= room:
            shown.append(each)
            room -= len(each)
    if left := len(diffs) - len(shown) + 1:
        shown.append(
            f"\n… and {left} more {'is' if left == 1 else 'are'} too long for a comment: `berth diff` shows all of it.\n"
        )
    return "".join(shown)


def _verdict(found: dict[str, Any]) -> str:
    if found.get("blocked"):
        return f"❌ **The gate blocks publishing:** {_plain(found['blocked'])}"
    if found.get("revision"):
        count = len(found.get("documents", ())) or len(found.get("changes", ()))
        return f"⚠️ **Revision {found['revision']} would be made**: {count} {'change' if count == 1 else 'changes'}."
    if found.get("cluster"):
        return "⚠️ **Nothing would be published, but the cluster differs.**"
    return "✅ **Nothing would change:** all of it is live."


def _section(head: str, lines: Iterable[str]) -> list[str]:
    found = list(lines)
    more = [f"- … and {len(found) - _MOST_LINES} more"] if len(found) > _MOST_LINES else []
    return ["", f"**{head}**", "", *(f"- {_plain(line)}" for line in found[:_MOST_LINES]), *more] if found else []


def _gate(found: dict[str, Any]) -> list[str]:
    if not found.get("gate"):
        return []
    marks = {"passed": "✅", "found": "⚠️", "unknown": "❔"}
    rows = []
    for each in found["gate"]:
        is_blocking = each["verdict"] != "passed" and found.get("levels", {}).get(each["check"]) == "blocking"
        mark = "❌" if is_blocking else marks.get(each["verdict"], "⚠️")
        rows.append(f"| {mark} | {_plain(each['check'])} | {_plain(each['says'])} |")
    return ["", "**Gate**", "", "| | check | result |", "|---|---|---|", *rows]


def _diff(document: dict[str, str]) -> str:
    from difflib import unified_diff

    named = f"{document['kind']}/{document['name']}"
    before, after = document["live"].splitlines(), document["files"].splitlines()
    body = list(unified_diff(before, after, "live", "files", lineterm=""))
    # Longer than any run of ` inside, so that no document ends the block.
    fence = "`" * (1 + max([2, *map(len, re.findall("`+", "\n".join(body)))]))
    summary = f"<details><summary><code>{named}</code></summary>"
    return "\n".join(["", summary, "", f"{fence}diff", *body, fence, "", "</details>", ""])


def _plain(text: str) -> str:
    """Return a text escaped for Markdown, without mentions: names and reasons come from other people."""
    # First: &commat; and &#64; would be read as @.
    text = " ".join(str(text).split()).replace("&", "&amp;")
    for each in "\\`*_{}[]<>|#~":
        text = text.replace(each, f"\\{each}")
    # Prevents that @name is notified, and #1 linked.
    return text.replace("@", "@\u200b").replace("\\<", "&lt;").replace("\\>", "&gt;")
