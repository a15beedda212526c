"""A history with a ledger."""

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.ledgers import Ledgered


@pytest.fixture
def ledgered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: None) -> Any:
    import msgspec

    folder = str(tmp_path / "checkpoints")
    environment = msgspec.structs.replace(settings.BERTH, ledger_checkpoint_dir=folder, ledger_webhook_url="")
    monkeypatch.setattr(settings, "BERTH", environment)
    return Ledgered(tmp_path)
