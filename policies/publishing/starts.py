"""What a process is set to is written down at its start: without its secrets."""

from typing import Any

import msgspec
from django.conf import settings

from policies import VERSION
from policies.publishing import audit
from policies.publishing.gates import engine_version


def shown_settings() -> dict[str, Any]:
    """Return what BERTH_* variables say, in JSON's terms, without secrets."""
    configured = msgspec.to_builtins(settings.BERTH, enc_hook=str)
    return {name: value for name, value in configured.items() if name not in settings.BERTH.secrets}


def record_start(process: str, role: str) -> None:
    """Write down that a process began: which version, set to what. The digest of its settings tells whether they are those of another."""
    shown = shown_settings()
    audit.record_event(
        audit.Kind.PROCESS_START,
        by="",
        thing=("Process", process),
        digests=("", audit.digest_of(shown)),
        more={"role": role, "version": VERSION, "engine": engine_version(), "settings": shown},
    )
