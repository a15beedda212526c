"""Keys and checkpoints: what is signed, where it is kept, and what is never signed."""

import fcntl
import json
import logging
import socket
import stat
import threading
from contextlib import suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import transaction
from django.test import Client
from django.utils import timezone

from policies.models import AuditEvent
from scheduler.ledger import losses, outside
from scheduler.ledger.append import Appender
from scheduler.ledger.checkpoints import sign_checkpoints
from scheduler.ledger.keys import KeyFileError, known_verifiers, make_key, public_path, read_public, read_signer, rotate
from scheduler.ledger.logs import DECISIONS, OUTCOMES
from scheduler.ledger.note import TreeHead, open_note
from scheduler.ledger.tree import Edge, leaf_hash
from scheduler.metrics import LEDGER_REFUSED, LEDGER_UNSIGNED
from scheduler.models import Decision, DecisionGap, LedgerCheckpoint, LedgerHead, LedgerTile
from tests.http_answers import answering
from tests.ledgers import AT, Ledgered, faults

pytestmark = pytest.mark.django_db


@pytest.fixture
def environment(ledgered: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def change(**fields: Any) -> None:
        monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, **fields))

    change(local=True, state_dir=tmp_path / "state", ledger_key_file="")
    return change


def test_the_local_default_makes_its_key_once_and_for_its_owner_alone(environment: Any, tmp_path: Path) -> None:
    first, second = read_signer(), read_signer()
    path = tmp_path / "state" / "ledger_key"
    assert first.verifier == second.verifier
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert known_verifiers() == read_public(public_path(path)) == [first.verifier]


def test_a_new_key_stands_in_a_line_of_its_own_behind_one_that_was_edited_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "key"
    first = make_key(path, "berth")
    public_path(path).write_text(f"# of 2026\n{first}")
    second = rotate(path)
    assert read_public(public_path(path)) == [first, second]


def test_elsewhere_nothing_is_signed_without_a_key(
    environment: Any, ledgered: Ledgered, caplog: pytest.LogCaptureFixture
) -> None:
    environment(local=False)
    ledgered.record(1)
    assert sign_checkpoints(AT) == 0
    assert "set BERTH_LEDGER_KEY_FILE" in caplog.text
    assert known_verifiers() == []


def test_of_two_processes_that_make_the_key_the_first_ones_counts(environment: Any, tmp_path: Path) -> None:
    first, second = (make_key(tmp_path / "keys" / "key", "berth") for _ in range(2))
    assert first == second
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == ["key", "key.pub"]


@pytest.mark.parametrize("content", [b"no key", b"\xff"])
def test_a_file_that_holds_no_key_is_said_to_hold_none(environment: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_bytes(content)
    environment(ledger_key_file=str(path))
    with pytest.raises(KeyFileError, match="can't be used as the ledger's key"):
        read_signer()


def test_a_key_that_is_named_is_not_made_where_it_is_missing(environment: Any, tmp_path: Path) -> None:
    environment(ledger_key_file=str(tmp_path / "missing"))
    with pytest.raises(KeyFileError, match="can't be used as the ledger's key"):
        read_signer()
    assert not (tmp_path / "missing").exists()


def test_a_key_that_everybody_can_read_is_refused(environment: Any, tmp_path: Path) -> None:
    make_key(tmp_path / "key", "berth")
    (tmp_path / "key").chmod(0o644)
    environment(ledger_key_file=str(tmp_path / "key"))
    with pytest.raises(KeyFileError, match="chmod 600"):
        read_signer()


def test_a_directory_in_the_place_of_the_key_is_said_to_be_one(environment: Any, tmp_path: Path) -> None:
    (tmp_path / "key").mkdir(mode=0o755)
    environment(ledger_key_file=str(tmp_path / "key"))
    with pytest.raises(KeyFileError, match=r"can't be used as the ledger's key: .*Is a directory"):
        read_signer()


def test_a_key_that_is_set_and_cannot_be_used_is_counted_for_the_alert_and_no_key_at_all_is_not(
    environment: Any, tmp_path: Path
) -> None:
    before = LEDGER_UNSIGNED._value.get()
    environment(local=False)
    sign_checkpoints(AT)
    assert LEDGER_UNSIGNED._value.get() == before
    environment(local=False, ledger_key_file=str(tmp_path / "missing"))
    sign_checkpoints(AT)
    assert LEDGER_UNSIGNED._value.get() == before + 1


def refusing(monkeypatch: pytest.MonkeyPatch, method: str, refused: Path) -> None:
    """Let a method of paths below one fail as for an account without the right, which root never lacks."""
    done = getattr(Path, method)

    def do(path: Path, **options: Any) -> Any:
        if refused in (path, path.parent):
            raise PermissionError(13, "Permission denied", str(path))
        return done(path, **options)

    monkeypatch.setattr(Path, method, do)


def test_public_keys_count_for_an_account_that_cannot_read_the_key_itself(
    environment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    public = make_key(key, "berth")
    environment(ledger_key_file=str(key))
    refusing(monkeypatch, "read_text", key)
    assert known_verifiers() == [public]
    public_path(key).unlink()
    with pytest.raises(KeyFileError, match=r"can't be used as the ledger's key: .*Permission denied"):
        known_verifiers()


def test_keys_in_a_folder_that_is_closed_to_the_account_are_said_to_be_out_of_reach(
    environment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auditor: Client
) -> None:
    key = tmp_path / "closed" / "key"
    make_key(key, "berth")
    environment(ledger_key_file=str(key))
    refusing(monkeypatch, "stat", key.parent)
    with pytest.raises(CommandError, match=r"key and its public keys can't be looked for: .*Permission denied"):
        call_command("verify")
    assert "its public keys can&#x27;t be looked for" in auditor.get("/admin/scheduler/ledger/").content.decode()


def test_what_has_grown_is_signed_once_and_kept_outside_too(
    environment: Any, ledgered: Ledgered, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "berth.ledger")
    ledgered.record(3)
    assert sign_checkpoints(AT) == 2
    assert sign_checkpoints(AT) == 0
    row = LedgerCheckpoint.objects.get(log=DECISIONS)
    text, [by] = open_note(row.note, known_verifiers())
    assert by == read_signer().verifier
    root, signed_at = bytes(LedgerHead.objects.get(log=DECISIONS).root), "signed at 2026-01-01T00:00:00+00:00"
    assert TreeHead.parse(text) == TreeHead("berth/decisions", 3, root, (signed_at,))
    [line] = (ledgered.outside / "decisions.checkpoints").read_text().splitlines()
    assert json.loads(line)["note"] == row.note
    assert f"checkpoint of decisions: {row.note.splitlines()[0]} | 3 | " in caplog.text


def test_a_webhook_gets_each_checkpoint(environment: Any, ledgered: Ledgered) -> None:
    got: list[bytes] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with answering(Hook) as server:
        environment(ledger_webhook_url=f"http://127.0.0.1:{server.server_port}/x")
        ledgered.record(1)
        assert sign_checkpoints(AT) == 1
    assert got == [LedgerCheckpoint.objects.get().note.encode()]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"no HTTP\r\n\r\n", "no HTTP"),
        (b"", "closed connection"),
        (b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", "302"),
        # What comes behind the status isn't read.
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", ""),
    ],
)
def test_whatever_a_webhook_answers_every_log_is_signed(
    answer: bytes, says: str, environment: Any, ledgered: Ledgered, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[bytes] = []

    def answers(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    asked.append(connection.recv(65_536).split(b" ")[0])
                    connection.sendall(answer)

    ledgered.record(3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answers, args=[server], daemon=True).start()
        environment(ledger_webhook_url=f"http://127.0.0.1:{server.getsockname()[1]}/x")
        assert sign_checkpoints(AT) == 2
        server.shutdown(socket.SHUT_RDWR)
    assert asked == [b"POST", b"POST"], "nothing follows a redirect"
    assert ("can't be sent" in caplog.text) is bool(says)
    assert says in caplog.text


def test_a_place_outside_that_fails_stops_nothing(
    environment: Any, ledgered: Ledgered, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    environment(ledger_checkpoint_dir=str(tmp_path / "file"), ledger_webhook_url="http://127.0.0.1:9/")
    ledgered.record(1)
    assert sign_checkpoints(AT) == 1
    assert "can't be written into" in caplog.text
    assert "can't be sent to BERTH_LEDGER_WEBHOOK_URL" in caplog.text


@pytest.mark.parametrize("lines", [0, 1])
def test_half_a_line_that_a_full_disk_left_outside_damages_no_later_checkpoint(
    environment: Any, ledgered: Ledgered, lines: int
) -> None:
    file = ledgered.outside / "decisions.checkpoints"
    for _ in range(2):
        ledgered.record(1)
        sign_checkpoints(AT)
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[:lines]) + whole[lines][:100])
    ledgered.record(1)
    sign_checkpoints(AT)
    assert file.read_bytes().startswith(b"".join(whole[:lines]) + b"{")
    assert len(file.read_bytes().splitlines()) == lines + 1
    assert faults(ledgered.verify(keys=known_verifiers())) == []


def test_a_whole_checkpoint_outside_that_lacks_its_end_of_line_is_kept(environment: Any, ledgered: Ledgered) -> None:
    file = ledgered.outside / "decisions.checkpoints"
    ledgered.record(1)
    sign_checkpoints(AT)
    before = file.read_bytes()
    file.write_bytes(before.removesuffix(b"\n"))
    ledgered.record(1)
    sign_checkpoints(AT)
    assert file.read_bytes().startswith(before)
    assert len(file.read_bytes().splitlines()) == 2
    assert faults(ledgered.verify(keys=known_verifiers())) == []


def test_whoever_holds_the_file_outside_keeps_nobody_from_signing(
    environment: Any, ledgered: Ledgered, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outside, "_SECONDS", 0.05)
    ledgered.record(1)
    sign_checkpoints(AT)
    with (ledgered.outside / "decisions.checkpoints").open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        ledgered.record(1)
        sign_checkpoints(AT)
    assert len((ledgered.outside / "decisions.checkpoints").read_bytes().splitlines()) == 2
    assert "is locked by another process" in caplog.text


def test_after_a_rotation_the_new_key_signs_and_the_old_one_still_counts(environment: Any, ledgered: Ledgered) -> None:
    ledgered.record(2)
    sign_checkpoints(AT)
    former = read_signer().verifier
    call_command("ledger", "rotate")
    assert known_verifiers() == [former, read_signer().verifier]
    assert sign_checkpoints(AT) == 1  # nothing has grown, but nobody has to believe the old key any more
    ledgered.record(2)
    sign_checkpoints(AT)
    assert [
        open_note(row.note, known_verifiers())[1]
        for row in LedgerCheckpoint.objects.filter(log=DECISIONS).order_by("pk")
    ] == [
        [former],
        [read_signer().verifier],
        [read_signer().verifier],
    ]
    assert faults(ledgered.verify(keys=known_verifiers())) == []


def test_after_a_rotation_the_new_key_signs_once_also_where_the_clock_is_set_back(
    environment: Any, ledgered: Ledgered, auditor: Client
) -> None:
    ledgered.record(2)
    sign_checkpoints(AT)
    call_command("ledger", "rotate")
    assert sign_checkpoints(AT - timedelta(hours=3)) == 1
    assert sign_checkpoints(AT - timedelta(hours=3) + timedelta(minutes=1)) == 0
    logs = auditor.get("/admin/scheduler/ledger/").context["logs"]
    assert logs[0].key == f"berth+{read_signer().verifier.id.hex()}"
    assert faults(ledgered.verify(keys=known_verifiers())) == []


def test_a_log_that_was_rewritten_is_not_signed(
    environment: Any, ledgered: Ledgered, caplog: pytest.LogCaptureFixture
) -> None:
    ledgered.record(4)
    sign_checkpoints(AT)
    LedgerTile.objects.filter(log=DECISIONS).update(hashes=bytes(128))
    LedgerHead.objects.filter(log=DECISIONS).update(size=5)
    assert sign_checkpoints(AT) == 0
    assert "the log decisions is not signed: the checkpoint of 4 leaves" in caplog.text
    LedgerHead.objects.filter(log=DECISIONS).update(size=2)
    caplog.clear()
    assert sign_checkpoints(AT) == 0
    assert "it has 2 leaves, and 4 were signed before" in caplog.text


@pytest.mark.parametrize("size", [4, 6])
def test_a_log_that_was_rewritten_as_a_whole_is_not_signed(
    environment: Any, ledgered: Ledgered, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    ledgered.record(4)
    sign_checkpoints(AT)
    other = Edge()
    [tile] = other.append(b"".join(leaf_hash(bytes([number])) for number in range(size)))
    LedgerTile.objects.filter(log=DECISIONS).update(hashes=tile.hashes)
    LedgerHead.objects.filter(log=DECISIONS).update(size=size, root=other.root())
    assert sign_checkpoints(AT) == 0
    assert "the log decisions is not signed: the checkpoint of 4 leaves: " in caplog.text
    assert LedgerCheckpoint.objects.filter(log=DECISIONS).count() == 1


def test_what_was_signed_last_is_gone_on_from_and_not_what_was_signed_first(
    environment: Any, ledgered: Ledgered
) -> None:
    for grown, signed in ((3, 1), (2, 1), (0, 0)):
        ledgered.record(grown)
        assert sign_checkpoints(AT, (DECISIONS,)) == signed
    assert set(LedgerCheckpoint.objects.values_list("log", "size")) == {(DECISIONS, 3), (DECISIONS, 5)}


def test_the_first_checkpoint_takes_over_what_was_deleted_and_lost_before(environment: Any, ledgered: Ledgered) -> None:
    DecisionGap.objects.create(process="old", first=1, last=2, reason="no room", at=AT)
    sign_checkpoints(AT)
    assert set(AuditEvent.objects.values_list("kind", flat=True)) == {"prune.begin", "loss.begin"}
    assert losses.compare() == losses.Losses(proved=1, older=0, faults=[])


def test_a_log_whose_tiles_are_not_its_roots_is_not_signed(
    environment: Any, ledgered: Ledgered, caplog: pytest.LogCaptureFixture
) -> None:
    ledgered.record(2)
    LedgerTile.objects.filter(log=DECISIONS).update(hashes=bytes(64))
    assert sign_checkpoints(AT) == 0
    assert "its tiles don't lead to the root of its 2 leaves" in caplog.text


@pytest.mark.parametrize("hashes", [b"", bytes(96)], ids=["gone", "changed"])
def test_a_signed_log_whose_last_tile_is_damaged_is_refused_though_it_did_not_grow(
    environment: Any, ledgered: Ledgered, caplog: pytest.LogCaptureFixture, hashes: bytes
) -> None:
    ledgered.record(3)
    sign_checkpoints(AT)
    refused = LEDGER_REFUSED.labels(DECISIONS)._value.get()
    LedgerTile.objects.filter(log=DECISIONS).update(hashes=hashes)
    assert sign_checkpoints(AT, (DECISIONS,)) == 0
    assert "its tiles don't lead to the root of its 3 leaves" in caplog.text
    assert LEDGER_REFUSED.labels(DECISIONS)._value.get() == refused + 1


def test_a_signed_log_whose_tiles_are_newer_is_refused_because_nothing_can_be_appended(
    environment: Any, ledgered: Ledgered, caplog: pytest.LogCaptureFixture
) -> None:
    ledgered.record(3)
    sign_checkpoints(AT)
    refused = LEDGER_REFUSED.labels(DECISIONS)._value.get()
    LedgerTile.objects.filter(log=DECISIONS).update(
        hashes=bytes(LedgerTile.objects.get(log=DECISIONS).hashes) + bytes(64)
    )
    assert sign_checkpoints(AT, (DECISIONS,)) == 0
    assert "its tiles have 5 leaves, and its row in scheduler_ledgerhead, which is older, has 3" in caplog.text
    assert LEDGER_REFUSED.labels(DECISIONS)._value.get() == refused + 1


def test_how_many_rows_are_older_than_the_log_is_signed_too(environment: Any, ledgered: Ledgered) -> None:
    Decision.objects.create(process="old", sequence=1, at=AT, verb="filter", revision=1)
    ledgered.record(1)
    sign_checkpoints(AT)
    assert "\nunlogged 1\n" in LedgerCheckpoint.objects.get(log=DECISIONS).note
    LedgerHead.objects.filter(log=DECISIONS).update(unlogged=2)
    assert (
        "says that 2 rows are older than it, and 1 were when it was signed"
        in faults(ledgered.verify(keys=known_verifiers()))[0]
    )


class TestCommand:
    def test_it_makes_keys_and_writes_them(self, environment: Any, tmp_path: Path, capsys: Any) -> None:
        path = tmp_path / "keys" / "key"
        call_command("ledger", "new-key", str(path), "--name", "prod.example.org")
        public = capsys.readouterr().out
        assert public.startswith("prod.example.org+")
        environment(ledger_key_file=str(path))
        call_command("ledger", "keys")
        assert capsys.readouterr().out == public
        with pytest.raises(CommandError, match="exists already"):
            call_command("ledger", "new-key", str(path))

    def test_keys_that_are_not_there_are_named(self, environment: Any, tmp_path: Path) -> None:
        environment(ledger_key_file=str(tmp_path / "none"))
        with pytest.raises(CommandError, match=r"none isn't there.*new-key"):
            call_command("ledger", "keys")

    @pytest.mark.parametrize("name", ["two words", "böhm", "a+b", ""])
    def test_a_name_that_no_key_can_have_is_refused_and_leaves_no_file(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(CommandError, match="is no name of a key"):
            call_command("ledger", "new-key", str(tmp_path / "key"), "--name", name)
        assert not [*tmp_path.iterdir()]

    def test_it_signs_at_once_and_names_the_setting_where_there_is_no_key(
        self, environment: Any, ledgered: Ledgered, capsys: Any
    ) -> None:
        ledgered.record(1)
        call_command("ledger", "checkpoint")
        assert capsys.readouterr().out == "1 checkpoint signed\n"
        environment(local=False)
        for act in ("keys", "checkpoint", "rotate"):
            with pytest.raises(CommandError, match="BERTH_LEDGER_KEY_FILE"):
                call_command("ledger", act)


@pytest.mark.parametrize("log", [DECISIONS, "outcomes"])
def test_a_log_whose_checkpoints_were_taken_away_is_not_signed_anew(
    ledgered: Ledgered, caplog: pytest.LogCaptureFixture, log: str
) -> None:
    ledgered.record(9)
    now = timezone.now()
    LedgerHead.objects.update(began_at=now - timedelta(hours=1))
    for minutes in (59, 30):
        ledgered.record(3)
        assert sign_checkpoints(now - timedelta(minutes=minutes), ["decisions", "outcomes"]) == 2
    LedgerCheckpoint.objects.filter(log=log).delete()
    assert "and no checkpoint any more: they were removed" in faults(ledgered.verify(outside=False))[0]
    ledgered.record(3)
    assert sign_checkpoints(now, [log]) == 0
    assert f"the log {log} is not signed: it has " in caplog.text


def test_a_ledger_whose_checkpoints_were_all_taken_away_is_not_signed_anew(ledgered: Ledgered) -> None:
    ledgered.record(9)
    now = timezone.now()
    assert sign_checkpoints(now, [DECISIONS]) == 1
    LedgerCheckpoint.objects.all().delete()
    assert sign_checkpoints(now + timedelta(minutes=20), [DECISIONS]) == 0


def test_a_log_that_began_while_nothing_was_signed_is_signed_with_the_others(ledgered: Ledgered) -> None:
    ledgered.record(2)
    now = timezone.now()
    assert sign_checkpoints(now, [DECISIONS]) == 1
    ledgered.record(3)
    assert sign_checkpoints(now + timedelta(days=1)) == 2


def test_a_log_is_signed_whose_first_leaf_came_late(ledgered: Ledgered) -> None:
    now = timezone.now()
    with transaction.atomic():
        Appender(OUTCOMES, now)  # whose first rows the database refused
    ledgered.record(2)
    assert sign_checkpoints(now + timedelta(minutes=20)) == 1
    with transaction.atomic():
        Appender(OUTCOMES, now + timedelta(minutes=30)).append([leaf_hash(b"x")])
    assert sign_checkpoints(now + timedelta(minutes=31), [OUTCOMES]) == 1


def test_a_kill_between_begin_and_the_first_signature_stops_no_log(
    ledgered: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledgered.record(2)
    now = timezone.now()
    with monkeypatch.context() as killed:
        killed.setattr("scheduler.ledger.checkpoints.sign", kill)
        with suppress(KeyboardInterrupt):
            sign_checkpoints(now)
    assert sign_checkpoints(now + timedelta(days=1), [DECISIONS]) == 1


def kill(*_: object) -> bool:
    raise KeyboardInterrupt
