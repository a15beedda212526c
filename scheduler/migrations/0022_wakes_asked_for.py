"""Pods of Berth's own scheduler that people want tried at once."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0021_found_by_name")]

    operations = [
        migrations.CreateModel(
            name="Wake",
            fields=[
                ("uid", models.TextField(primary_key=True, serialize=False)),
                ("asked_at", models.DateTimeField()),
            ],
            options={
                "ordering": ["asked_at", "uid"],
                "permissions": [("wake_pod", "Can have waiting Pods tried at once")],
                "default_permissions": (),
            },
        ),
    ]
