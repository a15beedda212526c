"""Pauses and Exemptions among what Revisions hold and Changes edit.

SQLite makes the tables anew, and with them the triggers go: they are taken off before and put back after.
"""

from importlib import import_module

from django.db import migrations, models

_parts = import_module("policies.migrations.0005_parts")


class Migration(migrations.Migration):

    dependencies = [
        ('policies', '0012_canaries_and_params'),
    ]

    operations = [
        migrations.RunPython(_parts.remove, _parts.install),
        migrations.RemoveConstraint(
            model_name='changeedit',
            name='known_kind_of_edit',
        ),
        migrations.RemoveConstraint(
            model_name='revisionpart',
            name='known_kind_of_part',
        ),
        migrations.AlterField(
            model_name='changeedit',
            name='kind',
            field=models.CharField(choices=[('RuleSet', 'Rule Set'), ('Assignment', 'Assignment'), ('PriorityClass', 'Priority Class'), ('Pause', 'Pause'), ('Exemption', 'Exemption')], max_length=13),
        ),
        migrations.AlterField(
            model_name='revisionpart',
            name='kind',
            field=models.CharField(choices=[('RuleSet', 'Rule Set'), ('Assignment', 'Assignment'), ('PriorityClass', 'Priority Class'), ('Pause', 'Pause'), ('Exemption', 'Exemption')], max_length=13),
        ),
        migrations.AddConstraint(
            model_name='changeedit',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['RuleSet', 'Assignment', 'PriorityClass', 'Pause', 'Exemption'])), name='known_kind_of_edit'),
        ),
        migrations.AddConstraint(
            model_name='revisionpart',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['RuleSet', 'Assignment', 'PriorityClass', 'Pause', 'Exemption'])), name='known_kind_of_part'),
        ),
        migrations.RunPython(_parts.install, _parts.remove),
    ]
