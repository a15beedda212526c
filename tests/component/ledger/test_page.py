"""The ledger's page: what an auditor sees of it without a shell, and the proof of one row, which is checked here by other means."""

import base64
import hashlib
import html
import json
import re
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec
import pytest
from django.conf import settings
from django.test import Client

from policies.models import AuditEvent, Revision
from policies.publishing import audit
from scheduler.ledger.events import append_events
from scheduler.ledger.note import Signer, TreeHead, open_note
from scheduler.ledger.tree import check_inclusion
from scheduler.models import Decision, DecisionGap, LedgerHead, Outcome
from tests.builders import make_rule_set
from tests.component.pages import get, publish_all, text_of
from tests.ledgers import AT, SIGNER, Ledgered, resign, without_triggers

pytestmark = pytest.mark.django_db
PAGE = "/admin/scheduler/ledger/"


def shown(client: Client, query: str = "") -> Any:
    answer = client.get(PAGE + query)
    assert answer.status_code == 200
    return answer


def asked(log: str, key: object) -> str:
    return f"?log={log}&key={quote(str(key))}"


def test_it_shows_how_far_each_log_goes_and_who_signed_it(ledgered: Ledgered, auditor: Client) -> None:
    ledgered.record(300)
    ledgered.sign()
    ledgered.record(2)
    decisions, outcomes, events = shown(auditor).context["logs"]
    assert (decisions.size, decisions.signed_size, decisions.unsigned) == (302, 300, 2)
    assert decisions.key == f"berth+{SIGNER.verifier.id.hex()}"
    assert base64.b64decode(decisions.root) == bytes(LedgerHead.objects.get(log="decisions").root)
    assert (outcomes.size, outcomes.fault) == (100, "")
    assert (events.log, events.since) == ("events", None)


def test_a_log_of_one_row_has_one_leaf(ledgered: Ledgered, auditor: Client) -> None:
    ledgered.record(1)
    ledgered.sign()
    text = text_of(shown(auditor, asked("decisions", Decision.objects.get().pk)))
    assert "1 leaf at " in text
    assert "to the root of 1 leaf, signed by" in text


def test_an_empty_ledger_says_so(ledgered: Ledgered, auditor: Client) -> None:
    text = shown(auditor).content.decode()
    assert text.count("Nothing is logged yet.") == 3
    assert "No Decision is missing" in text


def test_the_trees_are_checked_when_somebody_asks(ledgered: Ledgered, auditor: Client) -> None:
    ledgered.record(300)
    ledgered.sign()
    ledgered.record(20)
    assert (
        "Each log is a consistent continuation of its last signed tree" in shown(auditor, "?check=1").content.decode()
    )
    LedgerHead.objects.filter(log="decisions").update(root=bytes(32))
    assert "the checkpoint of 300 leaves" in shown(auditor, "?check=1").content.decode()


def test_a_checkpoint_of_a_strange_key_is_named(ledgered: Ledgered, auditor: Client) -> None:
    ledgered.record(3)
    ledgered.sign()
    resign("decisions", Signer("berth", bytes(range(1, 33))))
    decisions, *_ = shown(auditor).context["logs"]
    assert "The checkpoint of 3 leaves doesn't count" in decisions.fault


def test_a_root_that_was_not_signed_is_named_at_once(ledgered: Ledgered, auditor: Client) -> None:
    ledgered.record(3)
    ledgered.sign()
    LedgerHead.objects.filter(log="decisions").update(root=bytes(32))
    assert "Its root isn&#x27;t the one that was signed." in shown(auditor).content.decode()


@pytest.mark.parametrize("number", [0, 1, 255, 256, 299])
def test_a_decisions_proof_leads_from_its_bytes_to_what_was_signed(
    ledgered: Ledgered, auditor: Client, number: int
) -> None:
    ledgered.record(299)
    ledgered.sign()
    ledgered.record(1)
    ledgered.sign()
    row = Decision.objects.get(ledger_index=number)
    answer = shown(auditor, asked("decisions", row.pk))
    assert f"is leaf {number} of decisions, as it was recorded" in answer.content.decode()
    proof = json.loads(answer.context["proof_json"])
    assert proof["size"] == (299 if number < 299 else 300)
    text, _ = open_note(proof["checkpoint"], [SIGNER.verifier])
    said = TreeHead.parse(text)
    hashes = [base64.b64decode(each) for each in proof["hashes"]]
    leaf = base64.b64decode(proof["leaf"])
    check_inclusion(leaf=leaf, index=proof["index"], size=proof["size"], root=said.root, proof=hashes)


def test_outcomes_and_acts_are_proved_too(ledgered: Ledgered, auditor: Client) -> None:
    ledgered.record(3)
    audit.record_event("export", by="anna")
    append_events(AT)
    ledgered.sign()
    assert (
        "of outcomes, as it was recorded"
        in shown(auditor, asked("outcomes", Outcome.objects.get().pk)).content.decode()
    )
    event = AuditEvent.objects.order_by("id")[0]
    answer = shown(auditor, asked("events", event.pk))
    assert answer.context["proof"].leaf == base64.b64encode(hashlib.sha256(b"\0" + bytes(event.body)).digest()).decode()


def test_what_was_changed_is_not_proved(ledgered: Ledgered, auditor: Client) -> None:
    ledgered.record(5)
    ledgered.sign()
    first, second = Decision.objects.order_by("ledger_index")[:2]
    without_triggers()
    Decision.objects.filter(pk=first.pk).update(best="node-9")
    Decision.objects.filter(pk=second.pk).update(body=Decision.objects.get(ledger_index=3).body)
    assert (
        "Leaf 0 of decisions is WRONG: its column best" in shown(auditor, asked("decisions", first.pk)).content.decode()
    )
    answer = shown(auditor, asked("decisions", second.pk))
    assert answer.context["proof"] is None
    assert "Leaf 1 of decisions is WRONG" in answer.context["unproved"]


def test_a_row_that_claims_anothers_leaf_is_not_proved_by_it(ledgered: Ledgered, auditor: Client) -> None:
    ledgered.record(5)
    ledgered.sign()
    forged = Decision.objects.get(ledger_index=2)
    forged.pk, forged.sequence, forged.best = uuid4(), 999, "node-9"
    forged.save(force_insert=True)
    for key in (forged.pk, Decision.objects.filter(ledger_index=2).exclude(pk=forged.pk).get().pk):
        answer = shown(auditor, asked("decisions", key))
        assert answer.context["proof"] is None
        assert "Leaf 2 of decisions is WRONG" in answer.context["unproved"]


def test_a_log_that_was_cut_off_is_named_at_once(ledgered: Ledgered, auditor: Client) -> None:
    ledgered.record(5)
    ledgered.sign()
    LedgerHead.objects.filter(log="decisions").update(size=3)
    decisions, *_ = shown(auditor).context["logs"]
    assert decisions.fault == "It has fewer leaves than were signed: it was cut off or rolled back."


def test_what_is_not_signed_yet_says_so(ledgered: Ledgered, auditor: Client) -> None:
    ledgered.record(1)
    said = shown(auditor, asked("decisions", Decision.objects.get().pk)).context["unproved"]
    assert "isn't signed yet" in said


@pytest.mark.parametrize("key", ["x", "0", "00000000-0000-0000-0000-000000000000", "9" * 64, "\u00e9"])
@pytest.mark.parametrize("log", ["decisions", "outcomes", "events"])
def test_an_id_that_nothing_has_is_answered_in_a_sentence(
    ledgered: Ledgered, auditor: Client, log: str, key: str
) -> None:
    ledgered.record(1)
    said = shown(auditor, asked(log, key)).context["unproved"]
    assert said.startswith((f"{key} is no id of {log}", f"There is no {key} among the {log}"))


def test_missing_decisions_are_counted_beside_it(ledgered: Ledgered, auditor: Client) -> None:
    DecisionGap.objects.create(process="extender@a", first=7, last=9, reason="x", at=AT)
    assert "3 Decisions were numbered but never arrived" in shown(auditor).content.decode()


def test_without_a_public_key_nothing_is_called_right(
    ledgered: Ledgered, auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledgered.record(1)
    ledgered.sign()
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, ledger_key_file="", local=False))
    text = shown(auditor, "?check=1").content.decode()
    assert "This process knows no public key" in text
    assert "✓" not in text.partition('id="ledger-lead"')[2].partition("</section>")[0]
    assert shown(auditor, asked("decisions", Decision.objects.get().pk)).context["proof"] is None


def test_nobody_without_a_role_sees_it(ledgered: Ledgered, client: Client) -> None:
    assert client.get(PAGE).status_code == 302


REVISIONS = "/admin/policies/revision/"


def signed_section(client: Client) -> str:
    page = text_of(client.get(f"{REVISIONS}1/change/"))
    return page.partition(" Signed ")[2]


def test_a_revision_says_in_which_checkpoint_it_is_signed_and_leads_to_the_proof(
    ledgered: Ledgered, auditor: Client
) -> None:
    publish_all(make_rule_set("web"))
    assert "not yet" in text_of(get(auditor, REVISIONS))
    assert signed_section(auditor).startswith("Not yet: the worker signs once a minute.")
    append_events(AT)
    ledgered.sign()
    size = LedgerHead.objects.get(log="events").size
    audit.record_event("export", by="anna")
    append_events(AT)
    ledgered.sign()
    said = f"✓ with {size} events, {AT:%Y-%m-%d %H:%M:%S} UTC"
    assert said in text_of(get(auditor, REVISIONS))
    assert said in signed_section(auditor)
    page = auditor.get(f"{REVISIONS}1/change/").content.decode()
    assert f'<span class="berth-nowrap">{AT:%Y-%m-%d}</span>' in page
    (proof,) = re.findall(r'href="([^"]+)">The proof<', page)
    assert shown(auditor, html.unescape(proof).removeprefix(PAGE)).context["proof"] is not None


def test_a_revision_that_is_not_what_was_recorded_says_so(ledgered: Ledgered, auditor: Client) -> None:
    publish_all(make_rule_set("web"))
    append_events(AT)
    ledgered.sign()
    without_triggers()
    Revision.objects.update(digest="0" * 64)
    assert "! its digest isn't the one that was recorded" in signed_section(auditor)


def test_signed_is_asked_once_for_all_revisions_of_a_page(
    ledgered: Ledgered, auditor: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(12):
        publish_all(make_rule_set(f"web-{number}"))
    append_events(AT)
    ledgered.sign()
    with django_assert_max_num_queries(20):
        assert text_of(get(auditor, REVISIONS)).count("✓ with") == 12
