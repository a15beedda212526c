"""A history with a ledger."""

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.archives import give_key
from tests.ledgers import SIGNER, Ledgered


@pytest.fixture
def ledgered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: None) -> Any:
    import msgspec

    folder = str(tmp_path / "checkpoints")
    key = tmp_path / "ledger_key"
    key.write_text(SIGNER.private_text())
    key.chmod(0o600)
    environment = msgspec.structs.replace(
        settings.BERTH, ledger_checkpoint_dir=folder, ledger_webhook_url="", ledger_key_file=str(key)
    )
    monkeypatch.setattr(settings, "BERTH", environment)
    return Ledgered(tmp_path)


@pytest.fixture
def history(ledgered: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledgered:
    give_key(tmp_path, monkeypatch)
    for count in (10, 250, 40):
        ledgered.record(count)
        ledgered.sign()
    return ledgered
