"""What doctor says of the ledger: signed, late, refused, and of a key that isn't there."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings

from policies.models.audit import Kind
from policies.publishing.audit import record_event
from scheduler.doctor.parts import Part
from scheduler.doctor.signing import ledger_part
from scheduler.ledger.checkpoints import sign_checkpoints
from scheduler.ledger.events import append_events
from scheduler.models import LedgerCheckpoint, LedgerHead, LedgerLeaf, LedgerTile
from tests.component.ledger.conftest import ledgered  # noqa: F401 - a fixture
from tests.ledgers import AT, SIGNER, Ledgered

pytestmark = pytest.mark.django_db

SOON, LATER = AT + timedelta(minutes=2), AT + timedelta(minutes=20)


@pytest.fixture
def signed(ledgered: Ledgered) -> Ledgered:  # noqa: F811 - the fixture
    ledgered.record(12)
    ledgered.sign()
    return ledgered


def set_environment(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, **fields))


def words(part: Part) -> tuple[str, str]:
    assert bool(part.remedy) == (part.state != "ok")
    return part.state, part.says


@pytest.mark.usefixtures("signed")
def test_a_ledger_that_is_signed_is_well() -> None:
    assert words(ledger_part(SOON)) == ("ok", "all of it is signed, the last time 1 min ago")
    assert ledger_part(LATER).state == "ok"  # nothing came since


def test_leaves_that_wait_for_more_than_five_minutes_are_an_error(signed: Ledgered) -> None:
    signed.record(3)
    assert ledger_part(SOON).state == "ok"
    state, says = words(ledger_part(LATER))
    assert state == "error"
    assert "3 leaves of decisions without a signature, the last one is of 2026-01-01 00:00 UTC" in says


def test_what_comes_after_a_quiet_hour_is_not_late_at_once(signed: Ledgered) -> None:
    signed.record(1, at=AT + timedelta(hours=1))
    assert ledger_part(AT + timedelta(hours=1, minutes=1)).state == "ok"
    assert ledger_part(AT + timedelta(hours=1, minutes=6)).state == "error"


def test_a_ledger_that_nobody_ever_signed_is_a_warning(
    ledgered: Ledgered,  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_environment(monkeypatch, ledger_key_file="", local=False)
    ledgered.record(12)
    LedgerHead.objects.update(began_at=AT)
    assert words(ledger_part(LATER)) == ("warning", "nothing was ever signed of decisions, outcomes")
    assert "BERTH_LEDGER_KEY_FILE" in ledger_part(LATER).remedy


@pytest.mark.parametrize("has_key", [True, False])
def test_a_log_that_was_cut_off_is_an_error_with_and_without_a_key(
    signed: Ledgered, monkeypatch: pytest.MonkeyPatch, has_key: bool
) -> None:
    del signed
    if not has_key:
        set_environment(monkeypatch, ledger_key_file="", local=False)
    LedgerHead.objects.filter(log="decisions").update(size=3)
    state, says = words(ledger_part(SOON))
    assert (state, says.split(",")[0]) == ("error", "decisions: it has 3 leaves")
    assert "manage.py verify" in ledger_part(SOON).remedy


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize("has_key", [True, False])
def test_a_signed_log_onto_whose_tiles_nothing_can_be_appended_is_an_error(
    monkeypatch: pytest.MonkeyPatch, has_key: bool
) -> None:
    if not has_key:
        set_environment(monkeypatch, ledger_key_file="", local=False)
    LedgerTile.objects.filter(log="decisions").delete()
    state, says = words(ledger_part(SOON))
    assert (state, says) == (
        "error",
        "decisions: its tiles don't lead to the root of its 12 leaves: tile 0/0 is too short. It isn't signed any more",
    )


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize("has_key", [True, False])
def test_a_signed_log_whose_tiles_are_newer_than_its_head_is_an_error(
    monkeypatch: pytest.MonkeyPatch, has_key: bool
) -> None:
    if not has_key:
        set_environment(monkeypatch, ledger_key_file="", local=False)
    LedgerTile.objects.create(log="decisions", level=0, number=1, hashes=bytes(32))
    state, says = words(ledger_part(SOON))
    assert state == "error"
    assert says.startswith(
        "decisions: its tiles have 257 leaves, and its row in scheduler_ledgerhead, which is older, has 12"
    )


@pytest.mark.parametrize("has_key", [True, False])
def test_a_ledger_whose_tables_are_older_than_decisions_and_outcomes_is_an_error_and_refused(
    signed: Ledgered, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, has_key: bool
) -> None:
    older = [*LedgerHead.objects.all(), *LedgerTile.objects.all(), *LedgerCheckpoint.objects.all()]
    signed.record(3)
    signed.sign()
    for table in (LedgerHead, LedgerTile, LedgerCheckpoint):
        table.objects.all().delete()
    for row in older:
        row.save(force_insert=True)
    says = [
        "decisions: a row of scheduler_decision claims leaf 14, and the log decisions has only 12",
        "outcomes: a row of scheduler_outcome claims leaf 4, and the log outcomes has only 4",
    ]
    assert sign_checkpoints(SOON, ("decisions", "outcomes")) == 0
    assert all(words.partition(": ")[2] in caplog.text for words in says)
    if not has_key:
        set_environment(monkeypatch, ledger_key_file="", local=False)
    part = ledger_part(SOON)
    assert part.state == "error"
    assert all(words in part.says for words in says)


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize(
    ("index", "says"),
    [
        (1, "events: a row of scheduler_ledgerleaf claims leaf 1, and the log events has only 1"),
        (None, "events: leaf 0 of the log events has no row in scheduler_ledgerleaf"),
    ],
)
def test_a_signed_log_whose_rows_do_not_end_with_it_is_an_error_and_refused(
    caplog: pytest.LogCaptureFixture, index: int | None, says: str
) -> None:
    record_event(Kind.EXPORT, by="auditor")
    append_events(AT)
    sign_checkpoints(AT, ("events",))
    assert ledger_part(SOON).state == "ok"
    if index is None:
        LedgerLeaf.objects.all().delete()
    else:
        LedgerLeaf.objects.create(log="events", index=index, row="newer")
    part = ledger_part(SOON)
    assert part.state == "error"
    assert part.says.startswith(says)
    assert "Restore the whole database" in part.says
    assert sign_checkpoints(SOON, ("events",)) == 0
    assert says.partition(": ")[2] in caplog.text


@pytest.mark.usefixtures("signed")
def test_a_checkpoint_that_no_known_key_signed_is_an_error() -> None:
    LedgerCheckpoint.objects.filter(log="decisions").update(note="forged")
    state, says = words(ledger_part(SOON))
    assert state == "error"
    assert "the checkpoint of 12 leaves" in says


@pytest.mark.usefixtures("signed")
def test_a_pod_without_the_key_says_what_it_cannot_see(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, ledger_key_file="", local=False)
    state, says = words(ledger_part(SOON))
    assert state == "ok"
    assert says.endswith("; no public key is known here, so signatures weren't checked")


@pytest.mark.usefixtures("signed")
def test_a_key_that_is_missing_is_an_error_of_a_worker_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ledger_key").rename(tmp_path / "elsewhere")
    set_environment(monkeypatch, role="worker")
    state, says = words(ledger_part(SOON))
    assert (state, says.endswith("isn't there: this worker signs nothing")) == ("error", True)
    set_environment(monkeypatch, role="admin")
    assert ledger_part(SOON).state == "warning"
    (tmp_path / "ledger_key.pub").write_text("")
    assert ledger_part(SOON).state == "ok"


@pytest.mark.usefixtures("signed")
def test_a_key_that_a_worker_has_no_right_to_read_is_an_error_beside_its_public_key_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ledger_key.pub").write_text(f"{SIGNER.verifier}\n")
    read_text = Path.read_text

    def refuse(path: Path, **options: Any) -> str:
        if path.name == "ledger_key":
            raise PermissionError(13, "Permission denied", str(path))  # root has the right whatever the file's mode
        return read_text(path, **options)

    monkeypatch.setattr(Path, "read_text", refuse)
    for role, state in (("admin", "ok"), ("worker", "error")):
        set_environment(monkeypatch, role=role)
        assert ledger_part(SOON).state == state


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize("how", ["open to all", "no key"])
def test_a_key_that_cannot_be_used_is_an_error(tmp_path: Path, how: str) -> None:
    key = tmp_path / "ledger_key"
    if how == "no key":
        key.write_text("no key")
    else:
        key.chmod(0o644)
    state, says = words(ledger_part(SOON))
    assert (state, str(key) in says) == ("error", True)
