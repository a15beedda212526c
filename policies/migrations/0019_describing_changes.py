from django.db import migrations, models


class Migration(migrations.Migration):
    """What somebody did with a Change may be that they described it anew. Nothing in the database changes."""

    dependencies = [("policies", "0018_owner_marks")]

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
                ],
                max_length=8,
            ),
        ),
    ]
