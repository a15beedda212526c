"""On PostgreSQL, a partition of Decisions is made under a lock: nothing comes to the default one between moving and attaching.

What came in between failed the attaching, and with it the moving. On SQLite nothing happens.
"""

from importlib import import_module
from typing import Any

from django.db import migrations

BEFORE: str = import_module("scheduler.migrations.0015_partitions").MAKE
TABLE = "scheduler_decision"
# In the order in which a partition is dropped: the table, which writers don't wait for, then the default partition.
LOCK = f"""
    LOCK TABLE ONLY {TABLE} IN SHARE UPDATE EXCLUSIVE MODE;
    LOCK TABLE {TABLE}_default IN ACCESS EXCLUSIVE MODE;
"""
NOW = BEFORE.replace("\nBEGIN\n", f"\nBEGIN{LOCK}", 1)


def make_by(definition: str) -> Any:
    """Return the operation that gives the function a definition."""

    def replace(_apps: Any, editor: Any) -> None:
        if editor.connection.vendor != "postgresql":
            return
        with editor.connection.cursor() as cursor:
            cursor.execute("SELECT quote_ident(current_schema())")
            cursor.execute(definition.format(schema=cursor.fetchone()[0]))

    return replace


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0024_verifications")]

    operations = [migrations.RunPython(make_by(NOW), make_by(BEFORE))]
