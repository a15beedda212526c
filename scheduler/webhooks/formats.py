"""What is sent of a Notice: JSON of our own, Slack's blocks, a card of Teams. Pure.

People's words stand in Slack and Teams as plain text: no markup of theirs makes a link or a mention.
"""

from datetime import datetime
from typing import Any, Final

import msgspec

# Of the JSON; another number where a member means something else.
SCHEMA: Final = 1
# Slack takes so much in a block.
_MAX_TEXT: Final = 2_900


class Payload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A Notice, as the JSON has it.

    Attributes:
        schema: the number of this form.
        number: of the Notice: it tells the order. 0 for a test.
        kind: what happened.
        at: when, in UTC.
        sentence: what happened, in a sentence.
        text: why, in the words of whoever did it.
        thing: kind and name of what it is about.
        by: who did it; empty for what came by itself.
        link: where it is looked at: a URL where Berth knows its own, else a path.
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
    """Return what is sent, in a format of `Webhook.Format`."""
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
    """Return a line of a card. A TextRun isn't read as Markdown; a TextBlock is."""
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text[:_MAX_TEXT], **how}]}
