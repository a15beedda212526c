"""An archive of evidence: files, and a manifest of their digests that is signed by the ledger's key.

Files are written one after another; none is ever in memory as a whole.
"""

import hashlib
import io
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Self

from scheduler.ledger.note import Signer

_MANIFEST = "manifest"
_KEPT_BYTES = 8 << 20


class Lines:
    """A file of lines that isn't complete yet."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.number = 0

    def write(self, text: str) -> None:
        """Write a line."""
        data = text.encode()
        self.digest.update(data)
        self._file.write(data)
        self.number += 1


class Archive:
    """Writes files into a tar.

    Args:
        file: the target; it need not be seekable.
        at: the time of the archive, and of all its files.
    """

    def __init__(self, file: IO[bytes], at: datetime) -> None:
        self._tar = tarfile.open(fileobj=file, mode="w|")  # noqa: SIM115 - closed by __exit__
        self._at = at
        self._digests: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tar.close()

    def add(self, name: str, data: bytes) -> None:
        """Write a file."""
        self._add(name, io.BytesIO(data), len(data), hashlib.sha256(data).hexdigest())

    @contextmanager
    def lines(self, name: str) -> Iterator["Lines"]:
        """Open a file of lines; it is written when it is closed. Several may be open at once."""
        with tempfile.SpooledTemporaryFile(_KEPT_BYTES) as file:
            lines = Lines(file)
            yield lines
            size = file.tell()
            file.seek(0)
            self._add(name, file, size, lines.digest.hexdigest())

    def add_lines(self, name: str, lines: Iterable[str]) -> None:
        """Write a file of lines, as they come."""
        with self.lines(name) as written:
            for text in lines:
                written.write(text)

    def _add(self, name: str, file: IO[bytes], size: int, digest: str) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o644, int(self._at.timestamp())
        self._tar.addfile(info, file)
        self._digests[name] = digest

    def sign(self, signer: Signer, made_by: str) -> None:
        """Write the signed manifest, which is the last file."""
        made = f"made {self._at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ} by {' '.join(made_by.split()) or 'nobody known'}"
        files = [f"{digest}  {name}" for name, digest in sorted(self._digests.items())]
        text = "\n".join([f"{signer.verifier.name}/evidence", made, *files, ""])
        self.add(_MANIFEST, signer.sign(text).encode())
