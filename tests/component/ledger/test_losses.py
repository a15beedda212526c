"""Gaps and dead letters are proved by what was noted when they came: changed, planted and removed ones are named."""

import io
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from policies.models import AuditEvent
from policies.publishing.audit import said_by
from scheduler.evidence.export import export
from scheduler.evidence.selection import Case
from scheduler.ledger import losses
from scheduler.ledger.events import append_events
from scheduler.ledger.logs import EVENTS
from scheduler.models import DeadLetter, DecisionGap
from tests.archives import check, packed, signed_anew, unpacked
from tests.component.threads import at_once
from tests.ledgers import AT, SIGNER, Ledgered, faults, log_of, plant_event, unnoticed

pytestmark = pytest.mark.django_db


@pytest.fixture
def damaged(ledgered: Ledgered) -> Ledgered:
    """Three gaps and seven dead letters, two and one of them of before anything noted them, and three that came at once."""
    ledgered.record(8)
    for first in (11, 21):
        DecisionGap.objects.create(process="old", first=first, last=first + 2, reason="no room", at=AT)
    DeadLetter.objects.create(writer="old", sequence=7, reason="of before", data=b"old", at=AT)
    losses.begin()
    for number in range(3):
        ledgered.garble(b"\x00 is no record %d" % number)
    ledgered.garble_many(3)
    ledgered.lose(4)
    append_events(timezone.now())
    ledgered.sign()
    return ledgered


def test_each_is_an_event_and_proved_by_it(damaged: Ledgered, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (DecisionGap.objects.count(), DeadLetter.objects.count()) == (3, 7)
    noted = [said_by(row) for row in AuditEvent.objects.filter(kind="loss").order_by("pk")]
    assert sorted(said.thing_kind for said in noted) == [*["DeadLetter"] * 4, "DecisionGap"]
    (gap,) = [said.more["row"] for said in noted if said.thing_kind == "DecisionGap"]
    assert (gap["last"] - gap["first"] + 1, gap["reason"]) == (4, "no room in the spool")
    reports = damaged.verify()
    assert faults(reports) == []
    assert (log_of(reports, EVENTS).losses, log_of(reports, EVENTS).older_losses) == (10, 0)
    call_command("verify", "--keys", str(keys))
    assert "10 gaps and dead letters agree with their signed notes" in capsys.readouterr().out


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.pub"
    path.write_text(f"{SIGNER.verifier}\n")
    return path


def test_before_the_first_checkpoint_they_are_said_to_be_unproved(ledgered: Ledgered) -> None:
    DecisionGap.objects.create(process="old", first=1, last=2, reason="no room", at=AT)
    ledgered.garble(b"no record")
    report = log_of(ledgered.verify(), EVENTS)
    assert (report.losses, report.older_losses, report.faults) == (1, 1, [])


def test_what_may_return_is_noted_by_nothing_and_no_fault(damaged: Ledgered) -> None:
    DecisionGap.objects.create(process="gone", first=1, last=2, reason="gone", at=AT, may_return=True)
    assert faults(damaged.verify()) == []


def test_a_gap_that_only_an_unlogged_event_tells_of_is_named(damaged: Ledgered) -> None:
    gap = DecisionGap.objects.create(process="planted", first=1, last=2, reason="no room", at=AT)
    now = timezone.now()
    plant_event(
        "loss", made_at=now - timedelta(days=2), says_at=now + timedelta(days=36_500), more={"row": losses.said_of(gap)}
    )
    said = faults(damaged.verify())
    assert any("planted: 1 to 2) is not what was noted when it was lost" in each for each in said)


def test_they_are_taken_over_once(damaged: Ledgered) -> None:
    DecisionGap.objects.create(process="planted", first=1, last=2, reason="no room", at=AT)
    losses.begin()
    assert AuditEvent.objects.filter(kind="loss.begin").count() == 1
    assert "planted: 1 to 2) is not what was noted when it was lost" in faults(damaged.verify())[0]


@pytest.mark.django_db(transaction=True)
def test_two_processes_that_sign_first_at_once_take_each_row_over_once() -> None:
    DecisionGap.objects.create(process="old", first=1, last=2, reason="no room", at=AT)
    at_once(2, lambda _: losses.begin())
    assert AuditEvent.objects.filter(kind="loss.begin").count() == 1
    assert losses.compare().faults == []


def test_gaps_that_are_noted_together_are_named_from_their_first_number_to_their_last() -> None:
    gaps = [DecisionGap(process="p", first=first, last=first + 2, reason="no room", at=AT) for first in (21, 11, 31)]
    losses.note_losses([*DecisionGap.objects.bulk_create(gaps)])
    said = said_by(AuditEvent.objects.get(kind="loss"))
    assert (said.thing_name, said.reason) == ("p: 3 from 11 to 33", "no room")


def test_a_flood_of_what_cant_be_read_makes_few_events(ledgered: Ledgered) -> None:
    losses.begin()
    ledgered.garble_many(250)
    assert DeadLetter.objects.count() == 250
    noted = [said_by(row) for row in AuditEvent.objects.filter(kind="loss").order_by("pk")]
    assert [said.thing_name for said in noted] == [f"nobody: {number} from 0 to 0" for number in (100, 100, 50)]
    assert noted[0].reason == "it is no record: JSON is malformed: invalid character (byte 0)"
    append_events(timezone.now())
    assert faults(ledgered.verify()) == []
    row = DeadLetter.objects.order_by("pk")[120]
    DeadLetter.objects.filter(pk=row.pk).update(data=b"other")
    changed, missing = faults(ledgered.verify())
    assert f"row {row.pk} of DeadLetter" in changed
    assert "a row of DeadLetter was changed or removed: it was noted as record 0 of nobody" in missing


class Tampering:
    """Ways to change what is said to be lost, each of which returns what has to be named."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def row(self) -> Any:
        return self.random.choice([*DecisionGap.objects.all(), *DeadLetter.objects.all()])

    def change(self) -> str:
        row = self.row()
        values = {
            "first": 2, "last": 900, "process": "other", "reason": "nothing", "at": AT - timedelta(days=1), "data": b"other",
            "writer": "other", "sequence": 90, "offset": 90, "segment": 90, "kind": 9,
        }  # fmt: skip
        columns = [field.attname for field in row._meta.concrete_fields]
        name = self.random.choice([name for name in values if name in columns])
        type(row).objects.filter(pk=row.pk).update(**{name: values[name]})
        return f"row {row.pk} of {type(row).__name__}"

    def remove(self) -> str:
        row = self.row()
        row.delete()
        return f"a row of {type(row).__name__} was changed or removed"

    def plant(self) -> str:
        row = self.row()
        row.pk = None
        if isinstance(row, DecisionGap):
            row.first, row.last = 500, 600
        row.save(force_insert=True)
        return f"row {row.pk} of {type(row).__name__}"

    def hide_as_one_that_may_return(self) -> str:
        row = self.random.choice(list(DecisionGap.objects.all()))
        DecisionGap.objects.filter(pk=row.pk).update(may_return=True)
        return "a row of DecisionGap was changed or removed"

    def remove_with_its_note(self) -> str:
        event = self.random.choice(list(AuditEvent.objects.filter(kind="loss")))
        for said in losses.rows_in(json.loads(bytes(event.body))):
            DeadLetter.objects.filter(reason=said["reason"]).delete()
            DecisionGap.objects.filter(reason=said["reason"]).delete()
        AuditEvent.objects.filter(pk=event.pk).delete()
        return "events: leaf "

    @property
    def ways(self) -> list[Callable[[], str]]:
        return [self.change, self.remove, self.plant, self.hide_as_one_that_may_return, self.remove_with_its_note]


def test_each_of_many_random_changes_is_found_and_named(damaged: Ledgered) -> None:
    assert unnoticed(damaged, Tampering) == []
    assert faults(damaged.verify()) == []


@pytest.mark.parametrize("way", ["untouched", "changed", "removed", "planted"])
def test_an_archives_gaps_are_compared_with_their_events(damaged: Ledgered, tmp_path: Path, way: str) -> None:
    file = io.BytesIO()
    export(Case(pod_namespace="default", pod_name="pod-2"), file, by="auditor", now=timezone.now())
    files = unpacked(file)
    rows = [json.loads(text) for text in files["gaps.jsonl"].splitlines()]
    assert len(rows) == 10
    page = files["index.html"].decode()
    assert "<h2>Lost or unread</h2>" in page
    assert "<td>DecisionGap of old</td><td>11 to 13</td><td>no room</td>" in page
    named = {
        "untouched": "",
        "changed": "gaps.jsonl: line 3 is not what an event noted",
        "removed": "gaps.jsonl: what an event noted as lost is missing",
        "planted": "gaps.jsonl: line 11 is not what an event noted",
    }[way]
    if way == "changed":
        rows[2]["reason"] = "nothing"
    elif way == "removed":
        del rows[4]
    elif way == "planted":
        rows.append(rows[0])
    files["gaps.jsonl"] = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    signed_anew(files, SIGNER)
    found = check(packed(files, tmp_path / "e.tar"))[0]
    assert (found == []) if way == "untouched" else any(named in fault for fault in found)
