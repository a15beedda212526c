"""Checks for contradictions between several settings: berth.E001 and up, berth.W001 and up."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.db import connections
from django.utils.text import capfirst

from controlplane.env import Environment
from scheduler.doctor.encoding import REMEDY, narrow_encoding
from scheduler.doctor.pooling import POOLED, is_shared

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "testserver"})


def _check_environment(**_: Any) -> list[checks.CheckMessage]:
    """Check the process's environment."""
    return faults_of(settings.BERTH)


def faults_of(environment: Environment) -> list[checks.CheckMessage]:
    """Return the contradictions between the fields of an environment."""
    faults: list[checks.CheckMessage] = []
    if environment.local and not set(environment.allowed_hosts) <= _LOOPBACK:
        faults.append(
            checks.Error(
                "BERTH_LOCAL=true sends cookies over plain HTTP, but BERTH_ALLOWED_HOSTS names other machines.",
                hint="Unset BERTH_LOCAL, or leave BERTH_ALLOWED_HOSTS at 127.0.0.1 and localhost.",
                id="berth.E001",
            )
        )
    if environment.local and environment.behind_tls_proxy:
        faults.append(
            checks.Error(
                "BERTH_LOCAL=true and BERTH_BEHIND_TLS_PROXY=true contradict each other.",
                hint="Unset BERTH_LOCAL behind a proxy.",
                id="berth.E002",
            )
        )
    if "*" in environment.allowed_hosts:
        faults.append(
            checks.Error(
                "BERTH_ALLOWED_HOSTS=* lets any host name through, which poisons links.",
                hint="Name the hosts by which people reach the admin.",
                id="berth.E003",
            )
        )
    if environment.role == "extender" and environment.database_url.startswith("sqlite") and not environment.local:
        faults.append(
            checks.Warning(
                "The extender reads Revisions from SQLite, which other machines can't share.",
                hint="Use PostgreSQL outside the local default.",
                id="berth.W001",
            )
        )
    return faults


def check_pooler(databases: Sequence[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    """Check the poolers in front of the databases; `migrate` checks the one of the database that it migrates."""
    return [
        checks.Error(f"{capfirst(POOLED.says)}.", hint=POOLED.remedy, id="berth.E004")
        for alias in databases or ()
        if is_shared(connections[alias])
    ]


def check_encoding(databases: Sequence[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    """Check that the databases can store every text; `migrate` checks the one that it migrates."""
    found = [narrow_encoding(connections[alias]) for alias in databases or ()]
    return [checks.Error(f"{capfirst(says)}.", hint=REMEDY, id="berth.E005") for says in found if says]


def register_all() -> None:
    """Register the checks with Django."""
    checks.register(check_encoding, checks.Tags.database)
    checks.register(check_pooler, checks.Tags.database)
    checks.register(_check_environment, checks.Tags.security)
