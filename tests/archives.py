"""Archives of evidence for tests: making, writing, and checking with berth-verify as auditors do."""

import importlib.machinery
import importlib.util
import io
import os
import resource
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.utils import timezone

from scheduler.evidence.export import export, note_export
from scheduler.evidence.selection import Case
from scheduler.ledger.note import Signer
from tests.ledgers import SIGNER

BERTH_VERIFY = Path(__file__).parents[1] / "deploy" / "berth-verify"
TRIALS = int(os.environ.get("VERIFY_TRIALS", "40"))
SEED = int(os.environ.get("VERIFY_SEED", "0"))
Files = dict[str, bytes]


def load() -> Any:
    loader = importlib.machinery.SourceFileLoader("berth_verify", str(BERTH_VERIFY))
    spec = importlib.util.spec_from_loader("berth_verify", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


berth_verify = load()


def give_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = folder / "key"
    key.write_text(SIGNER.private_text())
    key.chmod(0o600)
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, ledger_key_file=str(key)))


def exported(case: Case | None = None, *, by: str = "auditor") -> Files:
    file = io.BytesIO()
    note_export(case or Case(), by=by)
    export(case or Case(), file, by=by, now=timezone.now())
    return unpacked(file)


def unpacked(file: io.BytesIO) -> Files:
    file.seek(0)
    with tarfile.open(fileobj=file) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def packed(files: Files, path: Path) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def check(path: Path, *, kept: list[Any] | None = None, signer: Signer = SIGNER) -> Any:
    keys = berth_verify.read_keys(f"{signer.verifier}\n")
    try:
        with berth_verify.Archive(str(path)) as archive:
            found = berth_verify.Check(archive, keys, kept or [])
            found.run()
    except berth_verify.WrongError as error:
        return [str(error)], []
    return found.faults, found.logs


def asked(path: Path, *arguments: str, limit: int = 1 << 30) -> subprocess.CompletedProcess[str]:
    """Run berth-verify as auditors do, with at most `limit` bytes of memory."""
    keys = path.with_name("keys.pub")
    keys.write_text(f"{SIGNER.verifier}\n")
    command = [sys.executable, "-I", str(BERTH_VERIFY), str(path), "--keys", str(keys), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=path.parent, env={}, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip


def signed_anew(files: Files, signer: Signer) -> None:
    """Write the manifest again, as anybody with a key can."""
    import hashlib

    text = files.pop("manifest").decode().rpartition("\n\n")[0].split("\n")
    named = [f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in sorted(files.items())]
    files["manifest"] = signer.sign("\n".join([*text[:2], *named, ""])).encode()
