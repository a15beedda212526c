"""Checks the database: that it answers, has the newest schema, stores every text, and that this role may read and write."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from policies.wording import counted, duration
from scheduler.doctor.encoding import REMEDY, narrow_encoding
from scheduler.doctor.parts import Part
from scheduler.doctor.pooling import POOLED, is_shared

_CLOCKS_APART = timedelta(seconds=5)

_HIDDEN_TABLES = """
SELECT name FROM unnest(%s::text[]) AS name
WHERE to_regclass(quote_ident(name)) IS NOT NULL AND NOT has_table_privilege(quote_ident(name), 'SELECT') ORDER BY name
"""


def answering() -> Part:
    """Check that it answers."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        connection.close()
        says = f"{connection.vendor} can't be reached: {str(error).strip().splitlines()[0]}"
        return Part(
            "database",
            "error",
            says,
            "Start it, or correct BERTH_DATABASE_URL. Pods are still scheduled by the last Revision.",
        )
    return Part("database", "ok", f"{connection.vendor} answers")


def tables() -> Iterator[Part]:
    """Check that this role may read the tables: tables that belong to another role than berth_owner are closed to berth_app."""
    if connection.vendor != "postgresql":
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute(_HIDDEN_TABLES, [[*connection.introspection.django_table_names(), "django_migrations"]])
            hidden = [name for (name,) in cursor.fetchall()]
    except DatabaseError:
        connection.close()
        return
    if hidden:
        says = f"this role may not read {counted(len(hidden), 'table')}, {hidden[0]} among them"
        remedy = "Run deploy/postgres/roles.sql as a superuser, and migrate as berth_owner."
        yield Part("tables", "error", says, remedy)


def schema() -> Iterator[Part]:
    """Check that every migration ran."""
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        connection.close()
        return
    if missing:
        yield Part(
            "schema",
            "error",
            f"{len(missing)} {'migration is' if len(missing) == 1 else 'migrations are'} missing",
            "Run manage.py migrate.",
        )
    else:
        yield Part("schema", "ok", "is up to date")


def encoding() -> Iterator[Part]:
    """Check that PostgreSQL can store every text."""
    if says := narrow_encoding(connection):
        yield Part("encoding", "error", says, REMEDY)


def pooler() -> Iterator[Part]:
    """Check that no pooler shares a session among clients."""
    if is_shared(connection):
        yield Part("pooler", "error", POOLED.says, POOLED.remedy)


def writes() -> Iterator[Part]:
    """Check that PostgreSQL takes writes."""
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute("SHOW transaction_read_only")
        (is_read_only,) = cursor.fetchone()
    if is_read_only == "on":
        says = "PostgreSQL takes none: it is a standby, or default_transaction_read_only is on"
        remedy = "Promote it, or lead to the primary: target_session_attrs=read-write in BERTH_DATABASE_URL passes over others."
        yield Part("writes", "error", says, remedy)


def clock() -> Iterator[Part]:
    """Compare this machine's clock with PostgreSQL's; SQLite has this machine's."""
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (of_database,) = cursor.fetchone()
    ahead = datetime.now(UTC) - of_database
    if abs(ahead) > _CLOCKS_APART:
        side = "ahead of" if ahead > timedelta() else "behind"
        says = f"this machine's is {duration(abs(ahead).total_seconds())} {side} the database's"
        remedy = "Let NTP set both clocks. Until then doctor and pages may be wrong about ages, such as of a tick, and about when certificates end."
        yield Part("clock", "warning", says, remedy)
