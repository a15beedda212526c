"""The bodies for a Notice: Berth's own JSON, Slack's blocks, a Teams card. Pure.

Users' texts are plain text in Slack and Teams: markup in them makes no link or mention.
"""

from datetime import datetime
from typing import Any, Final

import msgspec

# The JSON's version; it changes if the meaning of a member changes.
SCHEMA: Final = 1
# The length limit of Slack's blocks.
_MAX_TEXT: Final = 2_900


class Payload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A Notice as JSON.

    Attributes:
        schema: the version of this format.
        number: the Notice's, in their order. 0 for a test.
        kind: the kind of event.
        at: its time, in UTC.
        sentence: the event in a sentence.
        text: the reason, as its author wrote it.
        thing: kind and name of the object.
        by: the account; empty if nobody did it.
        link: its page: a URL if Berth knows its own, else a path.
    """

    schema: int = SCHEMA
    number: int
    kind: str
    at: datetime
    sentence: str
    text: str = ""
    thing: dict[str, str] = {}
    by: str = ""
    link: str = ""


def body_of(payload: Payload, form: str) -> str:
    """Return the body in a format of `Webhook.Format`."""
    match form:
        case "slack":
            return msgspec.json.encode(_slack(payload)).decode()
        case "teams":
            return msgspec.json.encode(_teams(payload)).decode()
        case _:
            return msgspec.json.encode(payload).decode()


def _footer(payload: Payload) -> str:
    return f"Berth, Notice {payload.number}: {payload.kind}, {payload.at:%Y-%m-%d %H:%M:%S} UTC"


def _is_url(link: str) -> bool:
    return link.startswith(("https://", "http://"))


def _slack(payload: Payload) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [_plain(each) for each in (payload.sentence, payload.text) if each]
    if _is_url(payload.link):
        button = {"type": "button", "text": {"type": "plain_text", "text": "Open in Berth"}, "url": payload.link}
        blocks.append({"type": "actions", "elements": [button]})
    footer = {"type": "plain_text", "text": _footer(payload), "emoji": False}
    blocks.append({"type": "context", "elements": [footer]})
    return {"text": _escaped(payload.sentence), "blocks": blocks}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "plain_text", "text": text[:_MAX_TEXT], "emoji": False}}


def _escaped(text: str) -> str:
    return text[:_MAX_TEXT].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _teams(payload: Payload) -> dict[str, Any]:
    lines = [_runs(payload.sentence, weight="Bolder")]
    if payload.text:
        lines.append(_runs(payload.text))
    lines.append(_runs(_footer(payload), isSubtle=True, size="Small"))
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": lines,
    }
    if _is_url(payload.link):
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open in Berth", "url": payload.link}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _runs(text: str, **how: Any) -> dict[str, Any]:
    """Return a line of a card. A TextRun isn't parsed as Markdown; a TextBlock is."""
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text[:_MAX_TEXT], **how}]}
