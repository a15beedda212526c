"""Archives of evidence: berth-verify proves what is untouched, and finds and names whatever was changed."""

import base64
import io
import json
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from policies import publishing
from policies.models import AuditEvent
from scheduler.decisions.record import Head
from scheduler.decisions.record import Outcome as OutcomeRecord
from scheduler.evidence import export as exporting
from scheduler.evidence.csv_text import line
from scheduler.evidence.export import DamagedError, export, note_export
from scheduler.evidence.selection import COLUMNS, Case
from scheduler.history.pruning import Retention, prune
from scheduler.ledger.checkpoints import sign_checkpoints
from scheduler.ledger.deletions import Deletion, note_deleted
from scheduler.ledger.events import append_events
from scheduler.ledger.keys import read_signer
from scheduler.ledger.logs import DECISIONS, EVENTS, LOGS, OUTCOMES
from scheduler.ledger.note import Signer
from scheduler.models import Decision, LedgerCheckpoint, LedgerLeaf, LedgerPruned, LedgerTile
from scheduler.models import Outcome as OutcomeRow
from tests.archives import (
    BERTH_VERIFY,
    SEED,
    TRIALS,
    Files,
    asked,
    berth_verify,
    check,
    exported,
    give_key,
    packed,
    signed_anew,
    unpacked,
)
from tests.builders import TEAM_FILTER, make_rule_set
from tests.component.pages import opened
from tests.component.policies.people import person
from tests.ledgers import AT, SIGNER, Ledgered, hidden_beginning, rebuild, resign, without_triggers
from tests.ledgers import faults as named

pytestmark = pytest.mark.django_db

# What zstd would take a petabyte of memory for.
VAST = b"\x28\xb5\x2f\xfd\xe0" + (1 << 50).to_bytes(8, "little") + b"\x01\x00\x00"


@pytest.mark.parametrize("seed", range(10))
def test_it_writes_a_record_as_berth_does_so_that_it_need_not_read_what_is_sound(seed: int) -> None:
    random = Random(seed)
    texts = [
        "",
        "web",
        "é" * 20,
        "x" * 31,
        "x" * 32,
        "x" * 255,
        "x" * 256,
        '"',
        "a,b",
        "=1",
        "-",
        "two\nlines",
        "\r",
        "\t",
        "'",
    ]
    numbers = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63 - 1]
    for log, kind in (("decisions", Head), ("outcomes", OutcomeRecord)) * 20:
        values = {
            field.name: random.choice(
                numbers
                if field.type is int
                else [None, True, False]
                if field.name == "best" and kind is OutcomeRecord
                else texts
            )
            for field in msgspec.structs.fields(kind)
        }
        values["at"] = AT + timedelta(seconds=random.randrange(10**6), microseconds=random.choice([0, 1, 999_999]))
        record = kind(**values).encode()
        if log == "decisions":
            record = len(record).to_bytes(4, "little") + record + b"the rest"
        said = berth_verify.said_by(log, record)
        assert (b"the rest" not in record) == (log == "outcomes")
        assert record.removesuffix(b"the rest").endswith(berth_verify.packed(log, said))
        assert berth_verify.says(log, record, said)
        changed = random.choice([name for name in said if name != "best"])
        for other in ("other", -1, 2**70, None, 1.5, ["x"]):
            assert not berth_verify.says(log, record, {**said, changed: other})
        assert not berth_verify.says(log, record, {**said, "more": 1})
        assert not berth_verify.says(log, record, {**said, "at": said["at"].replace("T", " ")})
        columns = [said[name] for name in berth_verify.columns_of(log)]
        assert berth_verify.csv_line(columns) == line(columns)


def test_what_is_untouched_is_proved(history: Ledgered, tmp_path: Path) -> None:
    files = exported()
    faults, logs = check(packed(files, tmp_path / "e.tar"), kept=berth_verify.read_kept([str(history.outside)]))
    assert faults == []
    assert [(log["log"], log["rows"], log["proved"], log["size"]) for log in logs] == [
        ("decisions", 300, 300, 300),
        ("outcomes", 100, 100, 100),
        ("events", 3, 3, 3),
    ]
    assert set(AuditEvent.objects.values_list("kind", flat=True)) == {"export", "prune.begin", "loss.begin"}


def test_it_needs_nothing_of_berth_and_says_how_much_is_proved(history: Ledgered, tmp_path: Path) -> None:
    path, keys = packed(exported(), tmp_path / "e.tar"), tmp_path / "keys.pub"
    keys.write_text(f"{SIGNER.verifier}\n")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", str(BERTH_VERIFY), str(path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env={})

    done = run("--keys", str(keys), "--checkpoints", str(history.outside))
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "decisions: 300 of 300 rows proved, of 300 that were logged; 3 checkpoints agree, and 3 of those kept elsewhere"
        in done.stdout
    )
    assert run().returncode == 2
    assert "the keys are the archive's own" in run("--keys-of-archive").stdout
    path.write_bytes(path.read_bytes().replace(b"pod-7", b"pod-8"))
    broken = run("--keys", str(keys), "--output", "json")
    assert broken.returncode == 1
    assert json.loads(broken.stdout)["ok"] is False


@pytest.mark.parametrize("keys", ["before", "since", "others"])
def test_with_keys_of_one_side_of_a_rotation_it_says_which_are_missing(
    history: Ledgered, tmp_path: Path, keys: str
) -> None:
    call_command("ledger", "rotate")
    path, new = packed(exported(), tmp_path / "e.tar"), read_signer()
    only = {"before": SIGNER, "since": new, "others": Signer("others", bytes(32))}[keys]
    other = SIGNER if keys == "since" else new
    faults = check(path, signer=only)[0]
    assert f"it is signed by none of the keys that are trusted, but by berth+{other.verifier.id.hex()}" in faults[0]
    assert all("give --keys the whole .pub file" in fault for fault in faults if "signed by none" in fault) == (
        keys != "others"
    )
    both = berth_verify.read_keys(f"{SIGNER.verifier}\n{new.verifier}\n")
    with berth_verify.Archive(str(path)) as archive:
        found = berth_verify.Check(archive, both, berth_verify.read_kept([str(history.outside)]))
        found.run()
    assert found.faults == []


def test_both_read_records_alike(history: Ledgered) -> None:
    assert {"decisions": Head.__struct_fields__, "outcomes": OutcomeRecord.__struct_fields__} == berth_verify.FIELDS
    for log in (DECISIONS, OUTCOMES, EVENTS):
        assert tuple(berth_verify.columns_of(log)) == tuple(COLUMNS[log])


def test_a_case_has_what_concerns_its_pod_or_its_time(history: Ledgered, tmp_path: Path) -> None:
    files = exported(Case(pod_namespace="default", pod_name="pod-9"))
    faults, logs = check(packed(files, tmp_path / "e.tar"))
    assert faults == []
    assert [(log["log"], log["proved"], log["size"]) for log in logs][:2] == [
        ("decisions", 1, 300),
        ("outcomes", 1, 100),
    ]
    assert [name for name in files if name.startswith("ledger/decisions/tile/0/")] == [
        "ledger/decisions/tile/0/0",
        "ledger/decisions/tile/0/1",
    ]
    part = exported(Case(first=AT + timedelta(seconds=100), until=AT + timedelta(seconds=111)))
    assert len(part["decisions.jsonl"].splitlines()) == 11
    assert check(packed(part, tmp_path / "p.tar"))[0] == []


def test_what_an_archive_is_about_is_said_also_of_a_namespace_or_a_name_alone() -> None:
    assert Case(pod_name="web-1").words() == "Pods named web-1"
    note_export(Case(pod_namespace="shop"), by="auditor")
    assert AuditEvent.objects.get(kind="export").thing_name == "namespace shop"


def test_of_a_decision_whose_details_were_deleted_what_is_kept_is_there_as_unproved(
    history: Ledgered, tmp_path: Path
) -> None:
    row = Decision.objects.get(ledger_index=8)
    before = json.loads(exported()["decisions.jsonl"].splitlines()[8])
    Decision.objects.filter(pk=row.pk).update(body=b"")
    LedgerPruned.objects.create(log=DECISIONS, first=8, until=9, what="details", rule="details of 7 days", at=AT)
    case = Case(pod_namespace=row.pod_namespace, pod_name=row.pod_name)
    files = exported(case)
    (kept,) = map(json.loads, files["decisions.jsonl"].splitlines())
    assert (kept["record"], kept["said"]) == (None, {})
    assert kept["unproved"] == {name: before["said"][name] for name in COLUMNS[DECISIONS]}
    page = files["index.html"].decode()
    assert f"<td>{row.pk}</td>" in page
    assert "<th>proved</th>" in page
    assert "no: it has no details any more" in page
    _faults, [decisions, *_] = check(packed(files, tmp_path / "e.tar"))
    assert (decisions["rows"], decisions["proved"]) == (1, 0)


def test_who_approved_the_rules_is_proved_and_said_whenever_that_was(history: Ledgered, tmp_path: Path) -> None:
    change = opened(make_rule_set("web", filters=[TEAM_FILTER]), by="alice")
    publishing.submit_change(change=change, by="alice", expected_digest=change.digest)
    carol = person("carol", "Approver")
    publishing.approve_change(change=change, by=carol, text="seen", expected_digest=change.digest)
    revision = publishing.publish_change(change=change, by="alice", expected_digest=change.digest)
    assert revision is not None
    publishing.pause(target="RuleSet/web", reason="INC-1", by="alice")
    paused = publishing.current_revision().number
    for number, served in ((3, revision.number), (4, paused)):
        Decision.objects.filter(ledger_index=number).update(revision=served, body=b"")
    files = exported(Case(first=AT, until=AT + timedelta(days=1)))
    kinds = [json.loads(text)["said"]["kind"] for text in files["events.jsonl"].splitlines()]
    assert {"change.approve", "change.publish"} <= set(kinds)
    page, rules = files["index.html"].decode(), files["rules.txt"].decode()
    assert f"<h2>Change {change.pk}</h2>" in page
    assert "carol approved: seen" in page
    assert "opened by alice\n" in page
    assert "\n    filter team: refuse nodes as" in rules
    assert "Pause" in rules
    assert "rule set web is paused until it is resumed: INC-1" in rules


def test_rows_that_the_page_leaves_out_are_said(history: Ledgered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.evidence.export._MOST_SHOWN", 20)
    page = exported()["index.html"].decode()
    assert "300 rows here" in page
    assert "The first 20 of them:" in page


def test_pruned_details_are_said_to_be_unproved(history: Ledgered, tmp_path: Path) -> None:
    Decision.objects.filter(ledger_index__lt=5).update(body=b"")
    Decision.objects.filter(ledger_index__range=(5, 9)).delete()
    LedgerPruned.objects.create(log=DECISIONS, first=0, until=10, rule="of 30 days", at=AT)
    LedgerPruned.objects.create(log=DECISIONS, first=0, until=5, what="details", rule="of 7 days", at=AT)
    files = exported()
    faults, [decisions, *_] = check(packed(files, tmp_path / "e.tar"))
    assert faults == []
    assert (decisions["rows"], decisions["proved"], decisions["deleted"]) == (295, 290, {"of 7 days": 5})
    assert {json.loads(text)["rule"] for text in files["pruned.jsonl"].splitlines()} == {"of 30 days", "of 7 days"}


def plant(of: Decision, leaf: int) -> None:
    """Put a row without a body where one was that a rule deleted."""
    without_triggers()
    of.pk, of.body, of.sequence, of.pod_name, of.ledger_index = uuid.uuid4(), b"", 9_999, "invented", leaf
    of.save(force_insert=True)


@pytest.mark.parametrize("details_days", [0, 3])
def test_a_row_without_details_that_is_planted_where_a_rule_deleted_rows_is_named(
    history: Ledgered, tmp_path: Path, details_days: int
) -> None:
    row, file = Decision.objects.get(ledger_index=10), io.BytesIO()
    sign_checkpoints(AT)
    if details_days:
        prune(Retention(0, details_days), AT + timedelta(days=20))
    prune(Retention(30, 0), AT + timedelta(days=60))
    plant(row, 10)
    export(Case(pod_name="invented"), file, by="auditor", now=timezone.now() + timedelta(minutes=5))
    faults, [decisions, *_] = check(packed(unpacked(file), tmp_path / "e.tar"))
    why = "was planted: a signed event says" if details_days else "has no record, and no signed event says"
    assert len(faults) == 1
    assert faults[0].startswith(f"decisions.jsonl, line 1: leaf 10 {why}")
    assert decisions["proved"] == 0


def test_a_row_that_a_rule_deletes_while_an_archive_is_made_is_no_fault(
    history: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prune(Retention(0, 3), AT + timedelta(days=20))
    meanwhile(monkeypatch, OUTCOMES, lambda: prune(Retention(30, 0), AT + timedelta(days=60)) or None)
    faults, [decisions, *_] = check(packed(exported(), tmp_path / "e.tar"))
    assert faults == []
    assert decisions["deleted"] == {"details are kept for 3 days": 300}


def test_an_outcome_without_a_record_is_named_whatever_is_said_to_be_deleted(history: Ledgered, tmp_path: Path) -> None:
    without_triggers()
    OutcomeRow.objects.filter(ledger_index=7).update(body=b"")
    for what in ("details", "rows"):
        LedgerPruned.objects.create(log=OUTCOMES, first=0, until=10, what=what, rule="of 7 days", at=AT)
    faults, _logs = check(packed(exported(), tmp_path / "e.tar"))
    assert faults == ["outcomes.jsonl, line 8: leaf 7 has no record, and no signed event says that a rule deleted it"]


def leave_out(files: Files, *beginnings: str) -> Files:
    """Leave files out of an archive, and sign the rest anew."""
    left = {name: data for name, data in files.items() if not name.startswith(beginnings)}
    signed_anew(left, SIGNER)
    return left


@pytest.mark.parametrize(
    ("left_out", "missing"),
    [
        (["decisions.", "ledger/decisions/"], ["ledger/decisions/checkpoint", "decisions.csv"]),
        (["outcomes.jsonl"], ["outcomes.jsonl"]),
        (["changes.jsonl"], ["changes.jsonl"]),
        (
            ["changes", "revisions", "parts", "rules", "gaps", "pruned", "keys", "index", "ledger/", *LOGS],
            ["ledger/decisions/checkpoint", "ledger/outcomes/checkpoint", "ledger/events/checkpoint", "revisions.jsonl"],
        ),
    ],
)  # fmt: skip
def test_a_log_or_a_file_that_an_archive_lacks_is_named(
    history: Ledgered, tmp_path: Path, left_out: list[str], missing: list[str]
) -> None:
    done = asked(packed(leave_out(exported(), *left_out), tmp_path / "e.tar"))
    assert done.returncode == 1
    wrong = [text for text in done.stdout.splitlines() if text.startswith("WRONG ")]
    assert all(any(name in text and "is missing" in text for text in wrong) for name in missing)


def test_where_not_all_is_proved_it_says_how_much_is_not(history: Ledgered, tmp_path: Path) -> None:
    done = asked(packed(exported(), tmp_path / "e.tar"))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "proved")
    Decision.objects.filter(ledger_index__lt=5).update(body=b"")
    deletion = Deletion(DECISIONS, "details", 0, 5, "of 7 days", AT)
    note_deleted([deletion], {})
    done = asked(packed(exported(), tmp_path / "e.tar"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "nothing wrong was found; 5 of 405 aren't proved"
    assert json.loads(asked(tmp_path / "e.tar", "--output", "json").stdout)["proved"] == 400


def test_a_log_in_which_nothing_is_yet_is_proved_to_be_empty(
    ledgered: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_key(tmp_path, monkeypatch)
    ledgered.record(2)
    done = asked(packed(exported(), tmp_path / "e.tar"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "outcomes: 0 of 0 rows proved, of 0 that were logged" in done.stdout


def test_nothing_is_exported_of_a_log_that_no_checkpoint_can_be_signed_of(history: Ledgered) -> None:
    LedgerCheckpoint.objects.filter(log=OUTCOMES).delete()
    LedgerTile.objects.filter(log=OUTCOMES).delete()
    with pytest.raises(DamagedError, match="nothing is signed of the log outcomes, which has 100 leaves"):
        exported()


def last_words(files: Files, path: Path) -> tuple[int, str]:
    done = asked(packed(files, path))
    return done.returncode, done.stdout.splitlines()[-1]


def test_of_a_case_it_is_not_said_that_no_row_was_left_out(history: Ledgered, tmp_path: Path) -> None:
    row = Decision.objects.get(ledger_index=41)
    case = Case(pod_namespace=row.pod_namespace, pod_name=row.pod_name)
    Decision.objects.filter(pk=row.pk).update(pod_name="hidden")
    hidden = 0, "proved: what is here, and not that no row of decisions, outcomes was left out"
    assert last_words(exported(case), tmp_path / "e.tar") == hidden


def test_a_log_is_whole_where_all_is_there_that_no_rule_deleted(history: Ledgered, tmp_path: Path) -> None:
    sign_checkpoints(AT)
    prune(Retention(30, 0), AT + timedelta(days=60))
    files = exported()
    assert last_words(files, tmp_path / "e.tar") == (0, "proved")


@pytest.mark.parametrize("left_out", [0, 50, 99])
def test_a_log_is_not_called_whole_where_a_row_was_left_out(history: Ledgered, tmp_path: Path, left_out: int) -> None:
    tampering = Tampering(Random(0), exported())
    rows = tampering.rows(OUTCOMES)
    del rows[left_out]
    tampering.put(OUTCOMES, rows)
    signed_anew(tampering.files, SIGNER)
    said = 0, "proved: what is here, and not that no row of outcomes was left out"
    assert last_words(tampering.files, tmp_path / "e.tar") == said


@pytest.mark.parametrize(
    ("log", "column", "value"),
    [(DECISIONS, "pod_name", "other"), (DECISIONS, "revision", 7), (OUTCOMES, "at", AT), (EVENTS, "change", 7)],
)
def test_a_row_whose_columns_say_something_else_than_its_record_is_marked_and_named(
    history: Ledgered, tmp_path: Path, log: str, column: str, value: Any
) -> None:
    exported()
    without_triggers()
    if log == EVENTS:
        AuditEvent.objects.filter(pk=LedgerLeaf.objects.get(log=EVENTS, index=1).row).update(**{column: value})
    else:
        model = Decision if log == DECISIONS else OutcomeRow
        model.objects.filter(ledger_index=1).update(**{column: value})
    files = exported()
    assert f"NO: its column {column} says something else than its record" in files["index.html"].decode()
    (fault,), _logs = check(packed(files, tmp_path / "e.tar"))
    assert fault.startswith(f"{log}.jsonl, line 2: leaf 1 (")
    assert f"the database's column {column} said something else" in fault


def test_a_case_without_rows_and_one_whose_rows_are_all_pruned_are_proved(history: Ledgered, tmp_path: Path) -> None:
    nothing = exported(Case(first=AT - timedelta(days=9), until=AT - timedelta(days=8)))
    assert (nothing["decisions.jsonl"], check(packed(nothing, tmp_path / "n.tar"))[0]) == (b"", [])
    Decision.objects.all().delete()
    LedgerPruned.objects.create(log=DECISIONS, first=0, until=300, rule="of 30 days", at=AT)
    faults, [decisions, *_] = check(packed(exported(), tmp_path / "p.tar"))
    assert (faults, decisions["rows"], decisions["size"]) == ([], 0, 300)


def test_a_file_that_stands_in_an_archive_twice_is_named(history: Ledgered, tmp_path: Path) -> None:
    path = packed(exported(), tmp_path / "e.tar")
    with tarfile.open(path, "a") as tar:
        tar.addfile(tarfile.TarInfo("decisions.csv"))
    assert "decisions.csv is in the archive twice" in check(path)[0][0]


@pytest.mark.parametrize(
    "body",
    [
        b"x", b"\x02", b"[]", b'{"kind": "loss", "more": 1, "revision": 99999999999}', bytes(40), b"[" * 100_000,
        b"\x02" + VAST, b"\x00" + VAST,
    ],
    ids=lambda body: repr(body[:20]),
)  # fmt: skip
def test_rows_that_somebody_damaged_are_in_the_archive_and_named(
    history: Ledgered, tmp_path: Path, body: bytes
) -> None:
    exported()
    without_triggers()
    event = LedgerLeaf.objects.get(log=EVENTS, index=1).row
    AuditEvent.objects.filter(pk=event).update(body=body)
    for model in (Decision, OutcomeRow):
        model.objects.filter(ledger_index=7).update(body=body)
    said = " ".join(named(history.verify()))
    assert all(f"{log}: leaf" in said for log in (DECISIONS, OUTCOMES, EVENTS))
    files = exported()
    assert "NO: its record can" in files["index.html"].decode()
    faults = " ".join(check(packed(files, tmp_path / "e.tar"))[0])
    assert "decisions.jsonl, line 8: leaf 7" in faults
    assert "outcomes.jsonl, line 8: leaf 7" in faults
    assert "events.jsonl, line 2: leaf 1" in faults


def test_a_leaf_that_names_no_event_any_more_is_left_out_of_the_archive_and_named_by_verify(
    history: Ledgered, tmp_path: Path
) -> None:
    exported()
    without_triggers()
    LedgerLeaf.objects.filter(log=EVENTS, index=1).update(row="no id")
    assert "events: leaf 1: there is no row for it" in " ".join(named(history.verify()))
    files = exported()
    assert [json.loads(each)["leaf"] for each in files["events.jsonl"].splitlines()][:2] == [0, 2]
    assert "no row of events was left out" in last_words(files, tmp_path / "e.tar")[1]


def variants(row: Any) -> Iterator[Any]:
    """Iterate over a row of JSON with each of its members gone, or in place of each something else."""
    others = [None, True, -1, 1.5, "x", "\ud800", [1], {"a": 1}, int("9" * 4_000)]
    for name in row:
        yield {each: value for each, value in row.items() if each != name}
        yield from ({**row, name: other} for other in others)
    yield from others


@pytest.mark.parametrize(
    "name", ["decisions.jsonl", "events.jsonl", "ledger/decisions/checkpoints.jsonl", "pruned.jsonl", "gaps.jsonl"]
)
def test_whatever_stands_in_place_of_a_row_is_named(history: Ledgered, tmp_path: Path, name: str) -> None:
    LedgerPruned.objects.create(log=DECISIONS, first=0, until=10, rule="of 30 days", at=AT)
    files = exported()
    first, *rest = files[name].splitlines(keepends=True) or [b"{}\n"]
    deep = b'{"leaf": ' + b"[" * 100_000 + b"\n"
    for wrong in (*(json.dumps(each).encode() + b"\n" for each in variants(json.loads(first))), deep):
        changed = {**files, name: b"".join([wrong, *rest])}
        faults, _logs = check(packed(changed, tmp_path / "e.tar"))
        assert f"{name}: it was changed" in faults
        signed_anew(changed, SIGNER)
        faults, _logs = check(packed(changed, tmp_path / "e.tar"))
        # Gaps that may return aren't compared with anything.
        assert any(name in fault for fault in faults) or name == "gaps.jsonl"


def test_what_is_no_text_is_named_by_the_command_too(history: Ledgered, tmp_path: Path) -> None:
    files = exported()
    files["decisions.jsonl"] = files["decisions.jsonl"].replace(b'"pod-7"', b'"\\ud800"')
    done = asked(packed(files, tmp_path / "e.tar"))
    assert (done.returncode, done.stderr) == (1, "")
    assert "it says something else than its record" in done.stdout


def test_what_an_archive_says_moves_no_cursor_of_a_terminal(history: Ledgered, tmp_path: Path) -> None:
    files, clear = exported(), "\x1b[2J\x1b[Hproved\x1b[8m\x7f"
    done = asked(packed({f"{clear}\n": b"", **files}, tmp_path / "e.tar"))
    escaped = "\\x1b[2J\\x1b[Hproved\\x1b[8m\\x7f"
    assert f"WRONG {escaped}\\n: the manifest doesn't name it: it was added" in done.stdout.splitlines()
    files["decisions.jsonl"] = files["decisions.jsonl"].replace(b'"pod-7"', json.dumps(f"{clear}\x9b\u202e").encode())
    signed_anew(files, SIGNER)
    path = packed(files, tmp_path / "e.tar")
    assert f"{escaped}\\x9b\\u202e" in asked(path).stdout
    for said in (asked(path).stdout, asked(path, "--output", "json").stdout):
        assert said.replace("\n", "").isprintable()
    named = tmp_path / f"{clear}.pub"
    assert asked(path, "--keys", str(named)).stderr.rstrip("\n").isprintable()


def test_no_cell_is_a_formula(history: Ledgered) -> None:
    assert line(["=1+1", "+1", "-1", "@x", "\tx", "a", 5, None, "a,b"]) == "'=1+1,'+1,'-1,'@x,'\tx,a,5,,\"a,b\"\n"
    # So do the wide forms of these characters, which some spreadsheets read alike.
    for wide in ("\uff1d1+1", "\uff0b1", "\uff0d1", "\uff20x"):
        assert line(["a", wide]) == berth_verify.csv_line(["a", wide]) == f"a,'{wide}\n"
    # An open carriage return ends the row for a spreadsheet, and what follows begins a cell.
    for text in ("a\r=1+1", "\r=1"):
        assert line([text, "b"]) == berth_verify.csv_line([text, "b"])
        assert '"' in line([text, "b"]).partition("\r")[0]
    name = '=HYPERLINK("http://example.org")<script>'
    files = exported(by=name)
    assert f'"\'{name.replace(chr(34), chr(34) * 2)}"' in files["events.csv"].decode()
    assert "<script>" not in files["index.html"].decode()


def test_the_command_writes_an_archive_once_and_for_its_owner(history: Ledgered, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out.tar"
    call_command("evidence", "--out", str(out), "--pod", "default/pod-9", "--from", "2026-01-01")
    assert (
        "from 2026-01-01 00:00:00 UTC, Pod default/pod-9: 1 decisions, 1 outcomes, 3 events" in capsys.readouterr().out
    )
    assert out.stat().st_mode & 0o777 == 0o600
    assert check(out)[0] == []
    with pytest.raises(CommandError, match="exists already"):
        call_command("evidence", "--out", str(out))
    exports = AuditEvent.objects.filter(kind="export").count()
    for wrong in (
        ["--from", "today"],
        ["--from", "0001-01-01T00:00+05:00"],
        ["--pod", "web"],
        ["--pod", "default/web/main"],
        ["--change", "99"],
        ["--change", "9" * 30],
        ["--from", "2026-01-02", "--until", "2026-01-01"],
    ):
        with pytest.raises(CommandError):
            call_command("evidence", "--out", str(tmp_path / "other"), *wrong)
    with pytest.raises(CommandError, match=r"there is no folder .*gone for the archive"):
        call_command("evidence", "--out", str(tmp_path / "gone" / "out.tar"))
    # The first may be read and not written, as another account's folder; the second has a name that the temporary file's is too long for.
    for unwritable in ("/proc/out.tar", str(tmp_path / ("x" * 250)), str(tmp_path / ("x" * 300))):
        with pytest.raises(CommandError, match=r"No such file or directory|File name too long"):
            call_command("evidence", "--out", unwritable)
    assert AuditEvent.objects.filter(kind="export").count() == exports


def test_of_two_archives_of_one_name_at_once_one_is_whole_and_the_other_is_refused(
    history: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.tar"
    write_rest = exporting._Export.write_rest

    def other_first(first: Any) -> None:
        monkeypatch.setattr(exporting._Export, "write_rest", write_rest)
        call_command("evidence", "--out", str(out), "--pod", "default/pod-9")
        write_rest(first)

    monkeypatch.setattr(exporting._Export, "write_rest", other_first)
    with pytest.raises(CommandError, match="exists already"):
        call_command("evidence", "--out", str(out))
    faults, [decisions, *_] = check(out)
    assert (faults, decisions["rows"]) == ([], 1)
    assert list(tmp_path.glob("out.tar*")) == [out]


def test_a_time_of_another_zone_is_said_in_utc_in_the_archive_and_in_its_event(
    history: Ledgered, tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "out.tar"
    call_command("evidence", "--out", str(out), "--from", "2026-03-29T03:30+02:00", "--until", "2026-10-25T02:30+01:00")
    words = "from 2026-03-29 01:30:00 UTC, until 2026-10-25 01:30:00 UTC"
    assert words in capsys.readouterr().out
    assert AuditEvent.objects.get(kind="export").thing_name == words
    with tarfile.open(out) as archive:
        page = archive.extractfile("index.html")
        assert page is not None
        assert words in page.read().decode()


def test_without_a_key_nothing_is_exported(history: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = msgspec.structs.replace(settings.BERTH, ledger_key_file=str(tmp_path / "none"))
    monkeypatch.setattr(settings, "BERTH", environment)
    with pytest.raises(CommandError, match="can't be used as the ledger's key"):
        call_command("evidence", "--out", str(tmp_path / "out.tar"))
    assert not list(tmp_path.glob("out.tar*"))


class Tampering:
    """Ways to change an archive, each of which returns what has to be named. The insider's sign the manifest anew."""

    def __init__(self, random: Random, files: Files) -> None:
        self.random = random
        self.files = files
        self.signer = SIGNER

    def log(self) -> str:
        return self.random.choice([DECISIONS, OUTCOMES])

    def rows(self, log: str) -> list[Any]:
        return [json.loads(text) for text in self.files[f"{log}.jsonl"].splitlines()]

    def put(self, log: str, rows: list[Any]) -> None:
        self.files[f"{log}.jsonl"] = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        self.put_table(log, rows)

    def put_table(self, log: str, rows: list[Any]) -> None:
        columns = COLUMNS[log]
        table = [line(columns), *(line([row["said"].get(name) for name in columns]) for row in rows)]
        self.files[f"{log}.csv"] = "".join(table).encode()

    def flip(self) -> str:
        name = self.random.choice([name for name, data in self.files.items() if data])
        data = bytearray(self.files[name])
        data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(7)
        self.files[name] = bytes(data)
        return name

    def insert_a_file(self) -> str:
        self.files = {"added.txt": b"", **self.files}
        return "added.txt"

    def remove_a_file(self) -> str:
        name = self.random.choice(list(self.files))
        del self.files[name]
        return name.rpartition("/")[0] if "tile" in name else name

    def swap_files(self) -> str:
        one, other = self.random.sample([name for name in self.files if "tile" in name], 2)
        self.files[one], self.files[other] = self.files[other], self.files[one]
        return one

    def truncate(self) -> str:
        name = self.random.choice([name for name, data in self.files.items() if data and name != "manifest"])
        self.files[name] = self.files[name][: self.random.randrange(len(self.files[name]))]
        return name

    def insiders_flip(self) -> str:
        log = self.log()
        rows = self.rows(log)
        at = self.random.randrange(len(rows))
        rows[at]["said"]["pod_name"] = "other"
        self.put(log, rows)
        signed_anew(self.files, SIGNER)
        return f"{log}.jsonl, line {at + 1}"

    def insiders_record(self) -> str:
        log = self.log()
        rows = self.rows(log)
        at = self.random.randrange(len(rows))
        record = bytearray(base64.b64decode(rows[at]["record"]))
        record[self.random.randrange(len(record))] ^= 1
        rows[at]["record"] = base64.b64encode(bytes(record)).decode()
        self.put(log, rows)
        signed_anew(self.files, SIGNER)
        return f"{log}.jsonl, line {at + 1}"

    def insiders_row(self) -> str:
        log = self.log()
        rows = self.rows(log)
        at = self.random.randrange(len(rows))
        rows.insert(at, rows[self.random.randrange(len(rows))])
        self.put(log, rows)
        signed_anew(self.files, SIGNER)
        return f"{log}.jsonl, line "

    def insiders_swap(self) -> str:
        log = self.log()
        rows = self.rows(log)
        one, other = sorted(self.random.sample(range(len(rows)), 2))
        rows[one]["leaf"], rows[other]["leaf"] = rows[other]["leaf"], rows[one]["leaf"]
        self.put(log, rows)
        signed_anew(self.files, SIGNER)
        return f"{log}.jsonl, line {one + 1}"

    def insiders_blank(self) -> str:
        """Make a record look as if a rule had deleted it."""
        log = self.log()
        rows = self.rows(log)
        at = self.random.randrange(len(rows))
        rows[at] |= {"record": None, "said": {}}
        self.put(log, rows)
        signed_anew(self.files, SIGNER)
        return f"{log}.jsonl, line {at + 1}: leaf {rows[at]['leaf']} has no record, and no signed event"

    def insiders_time(self) -> str:
        """Move the time of a checkpoint to another year."""
        name = f"ledger/{self.log()}/checkpoints.jsonl"
        lines = self.files[name].decode().splitlines()
        at = self.random.randrange(len(lines))
        row = json.loads(lines[at])
        lines[at] = json.dumps(row | {"at": f"2025{row['at'][4:]}"})
        self.files[name] = "".join(f"{each}\n" for each in lines).encode()
        signed_anew(self.files, SIGNER)
        return f"{name}, line {at + 1}"

    def insiders_table(self) -> str:
        log = self.log()
        self.files[f"{log}.csv"] = self.files[f"{log}.csv"].replace(b"uid-", b"uid_", 1)
        signed_anew(self.files, SIGNER)
        return f"{log}.csv, row "

    def insiders_tile(self) -> str:
        name = self.random.choice([name for name in self.files if "tile" in name])
        data = bytearray(self.files[name])
        data[self.random.randrange(len(data))] ^= 1
        self.files[name] = bytes(data)
        signed_anew(self.files, SIGNER)
        return f"ledger/{name.split('/')[1]}/tile"

    def another_key(self) -> str:
        signed_anew(self.files, Signer("berth", self.random.randbytes(32)))
        return "manifest: it is signed by none"

    @property
    def ways(self) -> list[Callable[[], str]]:
        return [
            self.flip, self.insert_a_file, self.remove_a_file, self.swap_files, self.truncate, self.insiders_flip,
            self.insiders_record, self.insiders_blank, self.insiders_row, self.insiders_swap, self.insiders_time, self.insiders_table, self.insiders_tile, self.another_key,
        ]  # fmt: skip


def test_each_of_many_random_changes_is_found_and_named(history: Ledgered, tmp_path: Path) -> None:
    files, missed = exported(), []
    for seed in range(SEED, SEED + TRIALS):
        tampering = Tampering(Random(seed), dict(files))
        way = tampering.ways[seed % len(tampering.ways)]
        named = way()
        faults, _logs = check(packed(tampering.files, tmp_path / "e.tar"))
        if not any(named in fault for fault in faults):
            missed.append((seed, way.__name__, named, faults[:2]))
    assert missed == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"pod_name": ', '"pod_name": "other", "pod_name": '),
        ('"said": {', '"said": {"pod_name": "other"}, "said": {'),
        ('"said": {', '"unproved": {"pod_name": "other"}, "said": {'),
        ('"sequence": 1,', '"sequence": true,'),
        ('"sequence": 1,', '"sequence": 1.0,'),
    ],
)
def test_a_row_that_says_a_thing_twice_more_or_otherwise_than_its_record_is_named(
    history: Ledgered, tmp_path: Path, before: str, after: str
) -> None:
    """Readers of JSON differ in which of two members they take, and to Python true is 1."""
    files, name = exported(), "decisions.jsonl"
    first, rest = files[name].decode().split("\n", 1)
    assert before in first
    files[name] = f"{first.replace(before, after, 1)}\n{rest}".encode()
    tampering = Tampering(Random(0), files)
    tampering.put_table(DECISIONS, tampering.rows(DECISIONS))
    signed_anew(files, SIGNER)
    faults, _logs = check(packed(files, tmp_path / "e.tar"))
    assert any(fault.startswith("decisions.jsonl, line 1: ") for fault in faults)


@pytest.mark.parametrize("resized", [lambda tile: tile[:-32], lambda tile: tile + b"x"], ids=["shorter", "longer"])
def test_a_tile_of_another_length_proves_no_record(
    history: Ledgered, tmp_path: Path, resized: Callable[[bytes], bytes]
) -> None:
    """Neither the root, which the tree's right edge leads to, nor the tile above speaks for a tile that isn't whole."""
    files, name = exported(), "ledger/decisions/tile/0/0"
    assert check(packed(files, tmp_path / "e.tar"))[0] == []
    tampering = Tampering(Random(0), files)
    rows = [row for row in tampering.rows(DECISIONS) if row["leaf"] != 255]  # the shorter tile's missing one
    forged = base64.b64decode(rows[5]["record"]).replace(b"pod-", b"Pod-")
    rows[5] |= {"record": base64.b64encode(forged).decode(), "said": berth_verify.said_by(DECISIONS, forged)}
    tampering.put(DECISIONS, rows)
    tile = bytearray(files[name])
    tile[5 * 32 : 6 * 32] = berth_verify.leaf_hash(forged)
    files[name] = resized(bytes(tile))
    signed_anew(files, SIGNER)
    assert (
        "ledger/decisions/tile: tile 0/0 isn't the one that was signed" in check(packed(files, tmp_path / "e.tar"))[0]
    )


def test_rows_below_a_damaged_tile_or_without_a_checkpoint_are_not_called_wrong(
    history: Ledgered, tmp_path: Path
) -> None:
    files, damaged = exported(), "what leads from them to a signed checkpoint is missing or damaged"
    tile, note = "ledger/decisions/tile/0/0", "ledger/decisions/checkpoint"
    changed = {**files, tile: bytes([files[tile][0] ^ 1]) + files[tile][1:]}
    faults, [decisions, *_] = check(packed(changed, tmp_path / "e.tar"))
    assert faults == [
        f"{tile}: it was changed",
        "ledger/decisions/tile: tile 0/0 isn't the one that was signed",
        f"decisions.jsonl: 256 rows can't be checked: {damaged}",
    ]
    assert decisions["proved"] == 44  # of the tile beside
    changed = {**files, note: files[note].replace(b"300", b"301")}
    faults, [decisions, *_] = check(packed(changed, tmp_path / "e.tar"))
    assert faults == [
        f"{note}: it was changed",
        f"{note}: the signature of berth is wrong",
        f"decisions.jsonl: 300 rows can't be checked: {damaged}",
    ]
    assert decisions["proved"] == 0


def test_of_very_many_faults_the_first_are_said_and_how_many_more_there_are(history: Ledgered, tmp_path: Path) -> None:
    files = exported()
    files["decisions.jsonl"] = files["decisions.jsonl"].replace(b'"verb": "bind"', b'"verb": "bound"')
    signed_anew(files, SIGNER)
    done = asked(packed(files, tmp_path / "e.tar"))
    wrong = [text for text in done.stdout.splitlines() if text.startswith("WRONG ")]
    assert (len(wrong), wrong[-1]) == (101, "WRONG and 200 more")


@pytest.mark.parametrize("text", ["", "# a comment\n", "hello\n", "PRIVATE+KEY+x\n", "é\n"])
def test_a_file_of_keys_that_has_none_can_not_be_checked_by(history: Ledgered, tmp_path: Path, text: str) -> None:
    given = tmp_path / "given.pub"
    given.write_text(text)
    done = asked(packed(exported(), tmp_path / "e.tar"), "--keys", str(given))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"berth-verify: {given} can't be used as public keys: ")


def test_who_leaves_out_the_event_of_signed_deletions_gets_no_unsigned_one_believed(
    history: Ledgered, tmp_path: Path
) -> None:
    tampering = Tampering(Random(0), exported())
    named = tampering.insiders_blank()
    tampering.put(EVENTS, [row for row in tampering.rows(EVENTS) if row["said"]["kind"] != "prune.begin"])
    said = {"log": named.partition(".")[0], "what": "details", "first": 0, "until": 300, "rule": "of 30 days"}
    tampering.files["pruned.jsonl"] = f"{json.dumps(said)}\n".encode()
    signed_anew(tampering.files, SIGNER)
    faults, _logs = check(packed(tampering.files, tmp_path / "e.tar"))
    assert any(fault.startswith(named) for fault in faults)


def test_details_that_were_planted_while_the_first_signed_deletions_were_hidden_are_named(
    history: Ledgered, tmp_path: Path
) -> None:
    sign_checkpoints(AT)
    Decision.objects.filter(ledger_index=5).update(body=b"")
    note_deleted([Deletion(DECISIONS, "details", 5, 6, "of 7 days", AT)], {})
    append_events(timezone.now())
    with hidden_beginning():
        LedgerPruned.objects.create(log=DECISIONS, first=10, until=11, what="details", rule="of 7 days", at=AT)
        sign_checkpoints(AT)  # a worker takes over what was planted
        append_events(timezone.now())
        LedgerPruned.objects.all().delete()
        Decision.objects.filter(ledger_index=10).update(body=b"")
    faults, _logs = check(packed(exported(), tmp_path / "e.tar"))
    assert faults == [
        "events.jsonl: leaf 3: it takes over deletions a second time, as Berth never does: decisions details 10 11 of 7 days",
        "decisions.jsonl, line 11: leaf 10 has no record, and no signed event says that a rule deleted it",
    ]


def test_what_is_given_as_checkpoints_and_is_none_is_named(history: Ledgered, tmp_path: Path) -> None:
    path = packed(exported(), tmp_path / "e.tar")
    lines = (history.outside / "decisions.checkpoints").read_bytes().splitlines(keepends=True)
    given = tmp_path / "given"
    for data, where in [
        (b"", "given"),
        (b"words", "given"),
        (SIGNER.sign("berth/others\n0\n\n").encode(), "given"),
        (b"".join([*lines[:-1], lines[-1][:40]]), f"given, line {len(lines)}"),
        (lines[0] + b'{"note": "\xff"}\n', "given, line 2"),
        (lines[0] + b"{}\n", "given, line 2"),
    ]:
        given.write_bytes(data)
        assert check(path, kept=berth_verify.read_kept([str(given)]))[0] == [
            f"checkpoints: {tmp_path}/{where} is no checkpoint of Berth"
        ]
    (history.outside / "README").write_text("why these were kept")
    (history.outside / "lost+found").mkdir()
    assert check(path, kept=berth_verify.read_kept([str(history.outside)]))[0] == []


@pytest.mark.parametrize("first", ["\ufeff", "\n"])
def test_checkpoints_that_an_editor_wrote_again_are_read(history: Ledgered, tmp_path: Path, first: str) -> None:
    path, kept = packed(exported(), tmp_path / "e.tar"), tmp_path / "decisions.checkpoints"
    kept.write_text(first + (history.outside / kept.name).read_text())
    faults, [decisions, *_] = check(path, kept=berth_verify.read_kept([str(kept)]))
    assert (faults, decisions["kept"]) == ([], 3)


def test_where_no_checkpoints_were_kept_elsewhere_it_can_not_be_checked_by_them(
    history: Ledgered, tmp_path: Path
) -> None:
    path, folder = packed(exported(), tmp_path / "e.tar"), tmp_path / "kept"
    folder.mkdir()
    for text in (None, "why these were kept"):
        if text is not None:
            (folder / "README").write_text(text)
        done = asked(path, "--checkpoints", str(history.outside), str(folder))
        assert (done.returncode, done.stderr) == (2, f"berth-verify: there are no checkpoints in {folder}\n")
    done = asked(path, "--checkpoints", str(tmp_path / "none"))
    assert done.returncode == 2
    assert done.stderr.startswith(f"berth-verify: the checkpoints in {tmp_path / 'none'} can't be read: ")
    assert "kept elsewhere" not in asked(path).stdout


def meanwhile(monkeypatch: pytest.MonkeyPatch, log: str, act: Callable[[], None]) -> None:
    """Let something happen right before the rows of a log are read for an archive."""
    write_rows = exporting._Export._write_rows

    def acted_first(export: Any, of: str, *arguments: Any) -> None:
        if of == log:
            act()
        write_rows(export, of, *arguments)

    monkeypatch.setattr(exporting._Export, "_write_rows", acted_first)


@pytest.mark.parametrize("log", [DECISIONS, OUTCOMES])
def test_checkpoints_that_are_signed_while_an_archive_is_written_are_none_of_its_own(
    history: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str
) -> None:
    def recorded_and_signed() -> None:
        history.record(300)
        sign_checkpoints(timezone.now() + timedelta(seconds=2))

    meanwhile(monkeypatch, log, recorded_and_signed)
    files = exported()
    faults, logs = check(packed(files, tmp_path / "e.tar"), kept=berth_verify.read_kept([str(history.outside)]))
    assert faults == []
    assert [each["size"] for each in logs][:2] == [300, 100 if log == OUTCOMES else 200]


def test_details_that_retention_deletes_while_an_archive_is_begun_are_said_to_be_deleted(
    history: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, DECISIONS, lambda: prune(Retention(0, 3), AT + timedelta(days=20)) or None)
    faults, [decisions, *_] = check(packed(exported(), tmp_path / "e.tar"))
    assert faults == []
    assert decisions["deleted"] == {"details are kept for 3 days": 300}


def test_a_log_rolled_back_and_signed_by_the_key_is_found_by_checkpoints_kept_elsewhere(
    history: Ledgered, tmp_path: Path
) -> None:
    kept = berth_verify.read_kept([str(history.outside)])
    Decision.objects.filter(ledger_index__gte=260).delete()
    from scheduler.decisions.reading import exact_bytes

    rows = [exact_bytes(row) for row in Decision.objects.order_by("ledger_index")]
    rebuild(DECISIONS, rows)
    resign(DECISIONS, SIGNER)
    path = packed(exported(), tmp_path / "e.tar")
    assert check(path)[0] == []
    assert "it was signed over 300 rows, and the archive's log has only 260" in check(path, kept=kept)[0][-1]
    rebuild(DECISIONS, [*rows, *(b"other%d" % number for number in range(40))])
    resign(DECISIONS, SIGNER)
    path = packed(exported(), tmp_path / "f.tar")
    assert any("another root for the first 300 rows" in fault for fault in check(path, kept=kept)[0])


def test_a_checkpoint_that_is_signed_in_the_second_of_an_archive_but_after_it_is_no_fault(
    history: Ledgered, tmp_path: Path
) -> None:
    now, file = timezone.now().replace(microsecond=0), io.BytesIO()
    export(Case(), file, by="auditor", now=now)
    history.record(3)
    sign_checkpoints(now + timedelta(milliseconds=900))
    kept = berth_verify.read_kept([str(history.outside)])
    assert check(packed(unpacked(file), tmp_path / "e.tar"), kept=kept)[0] == []
