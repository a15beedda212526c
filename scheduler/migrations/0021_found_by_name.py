"""Decisions are found by a Pod's name alone, and by a namespace.

On PostgreSQL each partition's index is built while others write; nothing waits for the largest one.
"""

from collections.abc import Callable
from typing import Any

from django.db import migrations, models

TABLE = "scheduler_decision"
BEFORE = models.Index(fields=["pod_namespace", "pod_name", "-at"], name="decision_pod")
NOW = (
    models.Index(fields=["pod_name", "pod_namespace", "-at"], name="decision_pod_name"),
    models.Index(fields=["pod_namespace", "-at"], name="decision_namespace"),
)


def build(*indexes: models.Index) -> Callable[[Any, Any], None]:
    """Return what builds indexes; what an interrupted run left is built anew."""

    def run(apps: Any, editor: Any) -> None:
        model = apps.get_model("scheduler", "Decision")
        for index in indexes:
            if editor.connection.vendor != "postgresql":
                editor.execute(f"DROP INDEX IF EXISTS {index.name}")
                editor.add_index(model, index)
                continue
            columns = ", ".join(f"{name} {order}".strip() for name, order in index.fields_orders)
            with editor.connection.cursor() as cursor:
                _build(cursor, index.name, columns)

    return run


def _build(cursor: Any, name: str, columns: str) -> None:
    # Partitions that are made from here on have it.
    cursor.execute(f"CREATE INDEX IF NOT EXISTS {name} ON ONLY {TABLE} ({columns})")
    cursor.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass AND NOT EXISTS ("
        "SELECT FROM pg_index JOIN pg_inherits AS attached ON attached.inhrelid = indexrelid "
        "WHERE indrelid = pg_inherits.inhrelid AND attached.inhparent = %s::regclass)",
        [TABLE, name],
    )
    for (partition,) in cursor.fetchall():
        own = f"{partition}_{name.removeprefix('decision_')}"
        cursor.execute(f"DROP INDEX IF EXISTS {own}")
        cursor.execute(f"CREATE INDEX CONCURRENTLY {own} ON {partition} ({columns})")
        cursor.execute(f"ALTER INDEX {name} ATTACH PARTITION {own}")


def drop(*indexes: models.Index) -> Callable[[Any, Any], None]:
    """Return what drops indexes."""

    def run(_apps: Any, editor: Any) -> None:
        for index in indexes:
            editor.execute(f"DROP INDEX IF EXISTS {index.name}")

    return run


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("scheduler", "0020_evidence"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunPython(build(*NOW), drop(*NOW)),
                migrations.RunPython(drop(BEFORE), build(BEFORE)),
            ],
            state_operations=[
                migrations.RemoveIndex(model_name="decision", name="decision_pod"),
                *(migrations.AddIndex(model_name="decision", index=index) for index in NOW),
            ],
        ),
    ]
