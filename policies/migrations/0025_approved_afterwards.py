from django.db import migrations, models


class Migration(migrations.Migration):
    """A Change that was approved after an emergency stays approved. One from before has no time: its approvals are counted as they are now."""

    dependencies = [("policies", "0024_plain_help_texts")]

    operations = [
        migrations.AddField(
            model_name="change",
            name="approved_afterwards_at",
            field=models.DateTimeField(
                blank=True,
                help_text="When the last approval was given that was missing when it was published in an emergency.",
                null=True,
            ),
        ),
    ]
