"""Records the settings of a process when it starts, without secrets."""

from typing import Any

import msgspec
from django.conf import settings

from policies import VERSION
from policies.publishing import audit
from policies.publishing.gates import engine_version


def shown_settings() -> dict[str, Any]:
    """Return the values of BERTH_* variables as JSON values, without secrets."""
    configured = msgspec.to_builtins(settings.BERTH, enc_hook=str)
    return {name: value for name, value in configured.items() if name not in settings.BERTH.secrets}


def record_start(process: str, role: str) -> None:
    """Record that a process started, its version and settings. A digest of the settings shows whether two processes have the same ones."""
    shown = shown_settings()
    audit.record_event(
        audit.Kind.PROCESS_START,
        by="",
        thing=("Process", process),
        digests=("", audit.digest_of(shown)),
        more={"role": role, "version": VERSION, "engine": engine_version(), "settings": shown},
    )
