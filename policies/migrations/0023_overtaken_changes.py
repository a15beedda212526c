from django.db import migrations, models


class Migration(migrations.Migration):
    """What was done with a Change may be that somebody overtook it: its approvals are dropped. Nothing in the database changes."""

    dependencies = [("policies", "0022_names_in_title_case")]

    operations = [
        migrations.AlterField(
            model_name="changeevent",
            name="act",
            field=models.CharField(
                choices=[
                    ("open", "opened"),
                    ("edit", "edited"),
                    ("describe", "described anew"),
                    ("rebase", "rebased"),
                    ("submit", "sent to review"),
                    ("ask", "asked for a review"),
                    ("comment", "commented"),
                    ("approve", "approved"),
                    ("reject", "rejected"),
                    ("reopen", "opened again"),
                    ("withdraw", "withdrew"),
                    ("publish", "published"),
                    ("urgent", "published without approval, in an emergency"),
                    ("schedule", "scheduled"),
                    ("hold", "held it back"),
                    ("expire", "took back"),
                    ("overtake", "overtook it, which ends approvals"),
                ],
                max_length=8,
            ),
        ),
    ]
