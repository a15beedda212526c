"""Processes say what waits in their spools."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0022_wakes_asked_for")]

    operations = [
        migrations.AddField(
            model_name="process",
            name="spool_records",
            field=models.BigIntegerField(blank=True, help_text="that wait on disk to be sent to Redis", null=True),
        ),
        migrations.AddField(
            model_name="process",
            name="spool_bytes",
            field=models.BigIntegerField(blank=True, help_text="on disk, until the database has them", null=True),
        ),
    ]
