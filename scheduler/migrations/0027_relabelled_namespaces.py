"""Namespaces whose labels changed, for the Pods that wait in them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0026_where_the_scheduler_stands")]

    operations = [
        migrations.CreateModel(
            name="RelabelledNamespace",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("relabelled_at", models.DateTimeField()),
            ],
            options={"ordering": ["name"], "default_permissions": ()},
        ),
        migrations.AlterField(
            model_name="requeue",
            name="cause",
            field=models.TextField(default="revision", help_text="revision, time or namespace"),
        ),
    ]
