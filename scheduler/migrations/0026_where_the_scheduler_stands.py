"""Berth's own scheduler says which node it picked last."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0025_partitions_made_under_a_lock")]

    operations = [
        migrations.AddField(
            model_name="binderstate",
            name="last_node",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
    ]
