"""Marks of the repositories that keep things."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('policies', '0017_audit_events'),
    ]

    operations = [
        migrations.AddField(
            model_name='change',
            name='owner',
            field=models.CharField(blank=True, default='', help_text='The repository whose files it brings in, as its pipeline names itself: what it makes live is kept there.', max_length=100),
        ),
        migrations.AddField(
            model_name='change',
            name='takes_over',
            field=models.BooleanField(default=False, help_text='Whether it may take what another repository keeps.'),
        ),
        migrations.CreateModel(
            name='OwnerMark',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('RuleSet', 'Rule Set'), ('Assignment', 'Assignment'), ('PriorityClass', 'Priority Class'), ('Pause', 'Pause'), ('Exemption', 'Exemption')], max_length=13)),
                ('name', models.TextField()),
                ('owner', models.CharField(help_text='The repository, as its pipeline names itself.', max_length=100)),
                ('by', models.CharField(help_text='Who left the mark, as text that outlives the account.', max_length=150)),
                ('marked_at', models.DateTimeField()),
                ('change', models.ForeignKey(blank=True, help_text='The Change that it last brought the thing in with; empty where it was live already.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='policies.change')),
            ],
            options={
                'ordering': ['kind', 'name'],
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('kind', 'name'), name='one_owner_of_a_thing'), models.CheckConstraint(condition=models.Q(('owner', ''), _negated=True), name='owners_have_names')],
            },
        ),
    ]
