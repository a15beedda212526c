from django.conf import settings
from django.db import migrations, models
from django.db.models import OuterRef, Subquery
from django.db.models.deletion import SET_NULL


def find_accounts(apps, schema_editor):  # type: ignore[no-untyped-def] # historical models have no types
    """Write down the accounts of those who were asked, as they are called now."""
    event_model = apps.get_model("policies", "ChangeEvent")
    user_model = apps.get_model(*settings.AUTH_USER_MODEL.split("."))
    account = user_model.objects.filter(username=OuterRef("whom")).values("pk")[:1]
    event_model.objects.filter(act="ask").update(whom_user=Subquery(account))


class Migration(migrations.Migration):
    """A request for a review names an account: who is renamed is asked still."""

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("policies", "0019_describing_changes"),
    ]

    operations = [
        migrations.AddField(
            model_name="changeevent",
            name="whom_user",
            field=models.ForeignKey(
                blank=True, null=True, on_delete=SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AlterField(
            model_name="changeevent",
            name="whom",
            field=models.CharField(
                blank=True, default="", help_text="Who was asked for a review, as text.", max_length=150
            ),
        ),
        migrations.RunPython(find_accounts, migrations.RunPython.noop),
    ]
