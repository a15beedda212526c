"""Victims rules, and a version's choices for failures, which are frozen with the rest of its content.

SQLite makes both tables anew, and with them the triggers go: they are taken off before and put back after.
"""

from importlib import import_module
from typing import Any

from django.db import migrations, models

_triggers = import_module("policies.migrations.0002_frozen_rows")
VERSION_COLUMNS = (*_triggers.VERSION_COLUMNS, "failures")


def install(apps: Any, schema_editor: Any) -> None:
    """Put the triggers back, with the new column."""
    _triggers.install(apps, schema_editor, VERSION_COLUMNS)


class Migration(migrations.Migration):
    """Add the column, and the kind of rule."""

    dependencies = [("policies", "0002_frozen_rows")]
    operations = [
        migrations.RunPython(_triggers.remove, _triggers.install),
        migrations.AddField(
            model_name="rulesetversion",
            name="failures",
            field=models.JSONField(
                blank=True, default=dict, help_text="What to answer in an outage, as spec.failures of a document."
            ),
        ),
        migrations.AlterField(
            model_name="rule",
            name="kind",
            field=models.CharField(
                choices=[
                    ("filter", "filter: may the Pod use the node?"),
                    ("score", "score: how good is the node?"),
                    ("victim", "victims rule: may preemption remove the Pod?"),
                ],
                default="filter",
                max_length=6,
            ),
        ),
        migrations.RemoveConstraint(model_name="rule", name="known_rule_kind"),
        migrations.AddConstraint(
            model_name="rule",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["filter", "score", "victim"])), name="known_rule_kind"
            ),
        ),
        migrations.RunPython(install, _triggers.remove),
    ]
