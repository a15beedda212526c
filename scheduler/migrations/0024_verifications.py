"""Verifications of the ledger that people ask for on its page."""

from django.db import migrations, models

STATES = ["queued", "running", "done", "failed"]


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0023_depth_of_spools")]

    operations = [
        migrations.CreateModel(
            name="Verification",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "state",
                    models.CharField(choices=[(state, state) for state in STATES], default="queued", max_length=7),
                ),
                (
                    "asked_by",
                    models.CharField(help_text="Who asked for it, as text that outlives the account.", max_length=150),
                ),
                ("asked_at", models.DateTimeField()),
                ("heartbeat_at", models.DateTimeField(help_text="Null while no worker has it in hand.", null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("holder", models.CharField(blank=True, default="", max_length=32)),
                (
                    "deaths",
                    models.PositiveSmallIntegerField(
                        default=0, help_text="Workers that ended while they had it in hand."
                    ),
                ),
                ("done", models.PositiveBigIntegerField(default=0, help_text="Leaves so far.")),
                ("total", models.PositiveBigIntegerField(default=0, help_text="Leaves of all logs.")),
                ("progress", models.JSONField(default=dict)),
                (
                    "reports",
                    models.JSONField(
                        default=list, help_text="What `manage.py verify --output json` writes of each log."
                    ),
                ),
                ("is_sound", models.BooleanField(help_text="Whether nothing was wrong.", null=True)),
                (
                    "fault",
                    models.TextField(blank=True, default="", help_text="Why it could not be done, and what to do."),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(condition=models.Q(state__in=STATES), name="known_verification_state")
                ],
            },
        ),
    ]
