"""What is sent of a Notice."""

import json
from datetime import UTC, datetime

import pytest

from scheduler.webhooks.formats import Payload, body_of

HOSTILE = "<!channel> & <https://evil.example|here> [x](https://evil.example) *bold*"
PAYLOAD = Payload(
    number=7,
    kind="published",
    at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    sentence=f"ann published Change 3 ({HOSTILE})",
    text="because",
    thing={"kind": "Change", "name": "3"},
    by="ann",
    link="https://berth.example.org/admin/policies/change/3/change/",
)


def test_json_says_it_member_by_member() -> None:
    assert json.loads(body_of(PAYLOAD, "json")) == {
        "schema": 1, "number": 7, "kind": "published", "at": "2026-01-02T03:04:05Z", "sentence": PAYLOAD.sentence,
        "text": "because", "thing": {"kind": "Change", "name": "3"}, "by": "ann", "link": PAYLOAD.link,
    }  # fmt: skip


def test_slack_takes_peoples_words_as_plain_text_and_is_told_the_number() -> None:
    said = json.loads(body_of(PAYLOAD, "slack"))
    assert "<" not in said["text"]
    sections = [block["text"] for block in said["blocks"] if block["type"] == "section"]
    assert [text["type"] for text in sections] == ["plain_text", "plain_text"]
    assert said["blocks"][-1]["elements"][0]["text"].startswith("Berth, Notice 7: published")
    assert said["blocks"][-2]["elements"][0]["url"] == PAYLOAD.link


def test_teams_gets_a_card_whose_lines_are_no_markdown() -> None:
    (attachment,) = json.loads(body_of(PAYLOAD, "teams"))["attachments"]
    card = attachment["content"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert {line["type"] for line in card["body"]} == {"RichTextBlock"}
    assert card["actions"][0]["url"] == PAYLOAD.link


@pytest.mark.parametrize("form", ["slack", "teams"])
def test_without_a_url_of_its_own_there_is_no_button(form: str) -> None:
    path = Payload(number=1, kind="drift", at=PAYLOAD.at, sentence="x" * 10_000, link="/admin/")
    said = body_of(path, form)
    assert "Open in Berth" not in said
    assert len(said) < 8_000, "a chat takes no more"
