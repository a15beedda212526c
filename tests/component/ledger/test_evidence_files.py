"""The bytes of archives of evidence: whatever stands in a head, between or behind files is found and named."""

import hashlib
import io
import itertools
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from scheduler.evidence.selection import Case
from scheduler.ledger.note import Signer
from tests.archives import BERTH_VERIFY, SEED, TRIALS, asked, berth_verify, check, exported, packed, signed_anew
from tests.ledgers import SIGNER, Ledgered

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("wrong", [lambda row: row[:-1], lambda row: row.replace('"verb": "bind"', '"verb": "bound"')])
def test_a_wrong_row_is_named_and_no_row_of_the_table_behind_it(
    history: Ledgered, tmp_path: Path, wrong: Callable[[str], str]
) -> None:
    files = exported()
    rows = files["decisions.jsonl"].decode().splitlines()
    rows[3] = wrong(rows[3])
    files["decisions.jsonl"] = "".join(f"{row}\n" for row in rows).encode()
    signed_anew(files, SIGNER)
    faults, _logs = check(packed(files, tmp_path / "e.tar"))
    assert [fault.partition(": ")[0] for fault in faults] == ["decisions.jsonl, line 4"]


@pytest.mark.parametrize("name", ["approvals.html", "Manifest", "../../tmp/decisions.csv", "ledger/others/checkpoint"])
def test_a_file_that_berth_does_not_write_is_named_though_it_is_signed(
    history: Ledgered, tmp_path: Path, name: str
) -> None:
    files = exported() | {name: b"nothing is compared with it"}
    signed_anew(files, SIGNER)
    assert check(packed(files, tmp_path / "e.tar"))[0] == [f"{name}: Berth writes no such file"]


@pytest.mark.parametrize("leaf", [300, 10**4000])
def test_a_leaf_beyond_the_log_is_named_where_it_stands(history: Ledgered, tmp_path: Path, leaf: int) -> None:
    files = exported()
    files["decisions.jsonl"] = files["decisions.jsonl"].replace(b'{"leaf": 3,', b'{"leaf": %d,' % leaf)
    signed_anew(files, SIGNER)
    assert check(packed(files, tmp_path / "e.tar"))[0] == [
        f"decisions.jsonl, line 4: leaf {leaf} is none of the 300 that were logged"
    ]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("", "is no time as Berth writes it"),
        ("x by auditor", "is no time as Berth writes it"),
        ("2026-11-30T00:00:00+02:00 by auditor", "is no time as Berth writes it"),
        ("2026-13-01T00:00:00Z by a", "month must be in 1..12"),
    ],
)
def test_a_manifest_without_a_time_is_named_because_the_time_decides_what_must_be_there(
    history: Ledgered, tmp_path: Path, made: str, said: str
) -> None:
    files = exported()
    name, _made, *named = files["manifest"].decode().rpartition("\n\n")[0].split("\n")
    files["manifest"] = SIGNER.sign("\n".join([name, f"made {made}", *named, ""])).encode()
    (fault,), _logs = check(packed(files, tmp_path / "e.tar"))
    assert fault.startswith("manifest: ")
    assert said in fault


def test_each_of_many_flipped_bits_of_the_file_is_found(history: Ledgered, tmp_path: Path) -> None:
    path, missed = packed(exported(Case(pod_namespace="default", pod_name="pod-9")), tmp_path / "e.tar"), []
    data = path.read_bytes()
    for seed in range(SEED, SEED + 5 * TRIALS):
        random, changed = Random(seed), bytearray(data)
        at = random.randrange(len(data))
        changed[at] ^= 1 << random.randrange(8)
        path.write_bytes(changed)
        if not check(path)[0]:
            missed.append((seed, at))
    assert missed == []


def test_each_flipped_bit_of_the_checksum_of_a_head_is_found(history: Ledgered, tmp_path: Path) -> None:
    """A tar's readers take blanks for zeros there, and pass over the last byte."""
    path = packed(exported(Case(pod_namespace="default", pod_name="pod-9")), tmp_path / "e.tar")
    data = path.read_bytes()
    with tarfile.open(path) as tar:
        head = tar.getmember("changes.jsonl").offset
    for at, bit in itertools.product(range(148, 156), range(8)):
        changed = bytearray(data)
        changed[head + at] ^= 1 << bit
        path.write_bytes(changed)
        assert check(path)[0], (at, bit)


def test_what_stands_between_and_behind_the_files_of_an_archive_is_named(history: Ledgered, tmp_path: Path) -> None:
    path = packed(exported(), tmp_path / "e.tar")
    data = path.read_bytes()
    for hidden in (b"hidden", data):
        path.write_bytes(data + hidden)
        assert check(path)[0] == ["archive: something was put behind manifest, or a file's head was changed"]
    with tarfile.open(path) as tar:
        table = tar.getmember("outcomes.csv")
    at = table.offset_data + table.size
    path.write_bytes(data[:at] + b"x" + data[at + 1 :])
    assert check(path)[0] == ["archive: something was put behind outcomes.csv, or a file's head was changed"]


@pytest.mark.parametrize("where", ["whole", "each", "name", "kind"])
def test_what_a_head_of_an_archive_says_beside_name_and_size_is_named(
    history: Ledgered, tmp_path: Path, where: str
) -> None:
    """Readers of tar differ in what they make of such, and nobody looks there."""
    path, files = tmp_path / "e.tar", exported(Case(pod_namespace="default", pod_name="pod-9"))
    first, said = next(iter(files)), {"comment": "hidden"}
    with tarfile.open(path, "w", pax_headers=said if where == "whole" else {}) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if where == "each":
                info.pax_headers = said
            if where == "name":
                info.name, info.pax_headers = f"other/{name}", {"path": name}
            if where == "kind":
                info.type = tarfile.CONTTYPE
            tar.addfile(info, io.BytesIO(data))
    said_of_it = {
        "whole": "././@PaxHeader is no plain file, but one of the kind 'g'",
        "each": "the head of ././@PaxHeader says more than a name and a size",
        "name": "the head of ././@PaxHeader says more than a name and a size",
        "kind": f"{first} is no plain file, but one of the kind '7'",
    }
    assert check(path)[0] == [f"{path} can't be read as an archive: {said_of_it[where]}"]


def head(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, put: dict[int, bytes] | None = None) -> bytes:
    """Return a head of a tar, with other bytes at some places, and the checksum that it has then."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    data = bytearray(info.tobuf(tarfile.GNU_FORMAT if kind == tarfile.GNUTYPE_SPARSE else tarfile.USTAR_FORMAT))
    for at, value in (put or {}).items():
        data[at : at + len(value)] = value
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data)
    return bytes(data)


def base_256(number: int) -> bytes:
    """Return a size as GNU tar writes one that is too large for digits."""
    return b"\x80" + number.to_bytes(11, "big")


@pytest.mark.parametrize(
    "heads",
    [
        (head("long", 2, b"L") + b"x".ljust(512, b"\0")) * 2_000,
        (head("more", 6, b"x") + b"6 a=b\n".ljust(512, b"\0")) * 2_000,
        head("long", 0, b"L", {124: base_256(1 << 40)}),
        head("more", 0, b"x", {124: base_256(1 << 40)}),
        head("more", 12, b"x") + b"12 size=abc\n".ljust(512, b"\0"),
        head("more", 25, b"x") + b"25 GNU.sparse.map=x,y,z\n".ljust(512, b"\0"),
        head("sparse", 0, tarfile.GNUTYPE_SPARSE, {386: bytes(96), 483: base_256(1 << 40)}),
        head("vast", 0, put={124: base_256(1 << 70)}),
        head("vast", 0, put={124: b"77777777777\0"}),
        head("negative", 0, put={124: b"\xff" * 12}),
        head("link", 0, tarfile.SYMTYPE),
        head("named", 0, put={265: b"hidden"}),
        head("", 0),
        b"x" * 512,
        head("cut")[:100],
    ],
    ids=[
        "long names", "heads of heads", "a vast name", "a vast head", "no size", "a sparse one of its own form", "a sparse one",
        "2^70 bytes", "8 GiB", "less than nothing", "a link", "more", "no name", "nothing of a tar", "cut off",
    ],
)  # fmt: skip
def test_what_no_archive_of_berth_has_in_a_head_is_refused_before_anything_of_it_is_read(
    tmp_path: Path, heads: bytes
) -> None:
    """Python's tarfile would read without end, or without memory, what nobody has signed."""
    path = tmp_path / "e.tar"
    path.write_bytes(head("decisions.jsonl", 1) + b"x".ljust(512, b"\0") + heads)
    done = asked(path, limit=256 << 20)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"WRONG {path} can't be read as an archive: " in done.stdout


def test_nothing_is_read_of_an_archive_whose_manifest_nobody_who_is_trusted_signed(
    history: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, read = exported(), []
    signed_anew(files, Signer("berth", bytes(32)))
    opened_at = berth_verify.Archive.open
    monkeypatch.setattr(berth_verify.Archive, "open", lambda self, name: read.append(name) or opened_at(self, name))
    (fault,), _logs = check(packed(files, tmp_path / "e.tar"))
    assert fault.startswith("manifest: it is signed by none")
    assert read == ["manifest"]


@pytest.mark.parametrize(
    ("name", "keys"), [("manifest", ["--keys", "keys.pub"]), ("keys.pub", ["--keys-of-archive", "--keys="])]
)
def test_a_vast_file_is_refused_before_it_is_read_where_nobody_has_signed_it_yet(
    tmp_path: Path, name: str, keys: list[str]
) -> None:
    path, vast = tmp_path / "e.tar", 4 << 30
    path.write_bytes(head(name, vast))
    os.truncate(path, 512 + vast)
    done = asked(path, *keys, limit=256 << 20)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"{name} has {vast} bytes, and here it can't have more than" in done.stdout


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("signatures", ["\u2014 berth AAAAAAAA\n" * 100_000, f"{'x' * 1_000_000}\n"])
def test_however_much_a_fault_quotes_its_beginning_is_said(tmp_path: Path, signatures: str, output: str) -> None:
    path = packed({"manifest": f"berth/evidence\n\n{signatures}".encode()}, tmp_path / "e.tar")
    done = asked(path, "--output", output)
    assert (done.returncode, done.stderr) == (1, "")
    assert "characters more" in done.stdout
    assert len(done.stdout) < 20_000


def test_an_archive_that_there_is_no_memory_for_can_not_be_checked(tmp_path: Path) -> None:
    path, vast = tmp_path / "e.tar", 300 << 20
    digest = hashlib.sha256(bytes(vast)).hexdigest()
    named = f"berth/evidence\nmade 2026-01-01T00:00:00Z by auditor\n{digest}  events.jsonl\n"
    first = packed({"manifest": SIGNER.sign(named).encode()}, path).read_bytes().rstrip(b"\0")
    first += bytes(-len(first) % 512) + head("events.jsonl", vast)
    path.write_bytes(first)
    os.truncate(path, len(first) + vast)
    done = asked(path, limit=256 << 20)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"berth-verify: {path} can't be read: MemoryError\n"


def test_a_file_that_is_too_large_for_a_plain_head_is_none_that_hides_something(tmp_path: Path) -> None:
    path, size = tmp_path / "large.tar", 8 << 30
    info = tarfile.TarInfo("large")
    info.size = size
    with path.open("wb") as file:
        file.write(info.tobuf())
        file.truncate(file.tell() + size)
    with berth_verify.Archive(str(path)) as archive:
        archive.check_rest()


def test_an_archive_cut_off_is_no_archive(history: Ledgered, tmp_path: Path) -> None:
    path = packed(exported(), tmp_path / "e.tar")
    data = path.read_bytes()
    for part in (0.2, 0.6, 0.9):
        path.write_bytes(data[: int(len(data) * part)])
        assert check(path)[0] != []


@pytest.mark.parametrize(
    ("streams", "archive", "code"),
    [
        pytest.param(">/dev/full", "cut-off.tar", 2, id="the disk is full"),
        pytest.param("--output json >/dev/full", "cut-off.tar", 2, id="the disk is full, and a program reads"),
        pytest.param(">&-", "cut-off.tar", 1, id="what is wrong, on a closed output"),
        pytest.param("2>&-", "not-there.tar", 2, id="why it can't check, on a closed output"),
        pytest.param("2>/dev/full", "not-there.tar", 2, id="why it can't check, on a full disk"),
        pytest.param(">/dev/full 2>/dev/full", "cut-off.tar", 2, id="both on a full disk"),
    ],
)
def test_an_exit_code_says_what_was_found_only_where_it_could_be_said(
    streams: str, archive: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "cut-off.tar").write_bytes(b"nothing")
    (tmp_path / "keys.pub").write_text(f"{SIGNER.verifier}\n")
    command = f'"{sys.executable}" -I "{BERTH_VERIFY}" {archive} --keys keys.pub {streams}'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert ("the result can't be written: [Errno 28]" in done.stderr) == (
        " >/dev/full" in f" {streams}" and "2>" not in streams
    )


def test_a_pipe_is_no_archive_that_was_cut_off() -> None:
    reads, writes = os.pipe()
    with pytest.raises(berth_verify.UnusableError, match="is no file, and an archive is read here and there"):
        berth_verify.Archive(f"/dev/fd/{reads}")
    os.close(reads)
    os.close(writes)


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "e.tar")
    done = asked(tmp_path / "e.tar")
    assert (done.returncode, "is no file, and an archive is read here and there" in done.stderr) == (2, True)
