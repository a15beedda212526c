"""A disk that is really full: 2 MB of memory, mounted for one process of the tests."""

import subprocess
import sys
from pathlib import Path

import pytest

BASE_DIR = Path(__file__).resolve().parents[2]
MOUNT = 'mount -t tmpfs -o size=2m none "$1" && exec "$2" -c "$3" "$1" "$4"'

PROGRAM = """
import os, sys, time
from datetime import UTC, datetime
from pathlib import Path
import django
os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
django.setup()
import msgspec
from scheduler.decisions.frames import Kind
from scheduler.decisions.record import split
from scheduler.decisions.recorder import Gap, Recorder
from scheduler.decisions.segments import Position
from scheduler.decisions.spool import SpoolFullError
from scheduler.metrics import DECISIONS_UNWRITTEN
from policies.engine.objects.pod import Pod
from tests.recording import MemoryStream, Prepared

def entry(size):
    return Prepared(now=datetime.now(UTC), verb="filter", pod=Pod.from_json({}), body=bytes(size))

def frames():
    for number in recorder.spool.segments.numbers():
        at = Position(number)
        while (batch := recorder.spool.segments.read(at)).frames:
            yield from batch.frames
            at = batch.end
        assert not batch.broken, "something stands in the spool that nobody can read"

root, when_full = Path(sys.argv[1]), sys.argv[2]
assert os.statvfs(root).f_blocks * os.statvfs(root).f_frsize == 2 << 20
recorder = Recorder(root=root / "spool", writer="w", stream=MemoryStream(), when_full=when_full, max_bytes=1 << 40)
recorder.spool._segment_bytes = 300_000
recorder.spool.open()
answered = refused = 0
for number in range(300):
    try:
        recorder._full_until = 0
        recorder.record(entry(7_000 + number))
        answered += 1
    except SpoolFullError as error:
        assert "No space left" in str(error), error
        refused += 1
kept = [split(each.payload)[0].sequence for each in frames() if each.kind == Kind.DECISION]
assert 200 < len(kept) < 300, len(kept)
lost = answered - len(kept)
assert (refused > 0, lost > 0) == ((True, False) if when_full == "refuse" else (False, True)), (refused, lost)
assert DECISIONS_UNWRITTEN._value.get() == lost

time.sleep(0.5)  # a closed segment is synced, and its room given back, in the background
recorder.spool.forget(1)  # the database has the first segment
recorder._full_until = 0
recorder.record(entry(7_000))
found = list(frames())
sequences = [split(each.payload)[0].sequence for each in found if each.kind == Kind.DECISION]
gaps = [msgspec.msgpack.decode(each.payload, type=Gap) for each in found if each.kind == Kind.GAP]
counted = sum(gap.last - gap.first + 1 for gap in gaps)
assert counted == lost, (counted, lost)
known = set(kept) | set(sequences) | {number for gap in gaps for number in range(gap.first, gap.last + 1)}
assert known == set(range(1, max(sequences) + 1)), "a number is neither stored nor said to be lost"
recorder.spool.close()
print(f"{len(kept)} kept, {lost} lost and counted, {refused} refused")
"""


@pytest.mark.parametrize("when_full", ["lose", "refuse"])
def test_a_full_disk_does_what_the_setting_says_and_every_number_is_accounted_for(
    tmp_path: Path, when_full: str
) -> None:
    command = ["unshare", "-Urm", "sh", "-c", MOUNT, "sh", str(tmp_path), sys.executable, PROGRAM, when_full]
    done = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, check=False)
    if "unshare failed" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"this system allows no mounts of one's own: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    kept, lost, refused = (int(part.split()[0]) for part in done.stdout.split(", "))
    assert kept > 200
    assert (lost > 0, refused > 0) == (when_full == "lose", when_full == "refuse")
