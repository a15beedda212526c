"""AuditEvents: rows that are only added, and that the role of Berth's processes may not even try to change."""

from django.db import migrations, models

FROZEN = "berth: an AuditEvent never changes and is never deleted"
_TABLE = "policies_auditevent"
_EVENTS = ("UPDATE", "DELETE")


def install(apps, schema_editor):
    """Create the triggers, and take from deploy/postgres/roles.sql's role what its default gives of every table."""
    for event in _EVENTS:
        name = f"berth_event_{event.lower()}"
        if schema_editor.connection.vendor != "postgresql":
            act = f"BEGIN SELECT RAISE(ABORT, '{FROZEN}'); END"
            schema_editor.execute(f"CREATE TRIGGER {name} BEFORE {event} ON {_TABLE} FOR EACH ROW {act}", params=None)
            continue
        body = f"RAISE EXCEPTION '{FROZEN}' USING ERRCODE = 'integrity_constraint_violation';"
        function = f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"
        trigger = f"CREATE TRIGGER {name} BEFORE {event} ON {_TABLE} FOR EACH ROW EXECUTE FUNCTION {name}()"
        schema_editor.execute(function, params=None)
        schema_editor.execute(trigger, params=None)
    if schema_editor.connection.vendor == "postgresql":
        revoke = f"REVOKE UPDATE, DELETE ON {_TABLE} FROM berth_app"
        there = "IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'berth_app')"
        schema_editor.execute(f"DO $$ BEGIN {there} THEN {revoke}; END IF; END $$", params=None)


def remove(apps, schema_editor):
    """Drop the triggers."""
    postgresql = schema_editor.connection.vendor == "postgresql"
    for event in _EVENTS:
        name = f"berth_event_{event.lower()}"
        schema_editor.execute(f"DROP TRIGGER IF EXISTS {name}" + (f" ON {_TABLE}" if postgresql else ""), params=None)
        if postgresql:
            schema_editor.execute(f"DROP FUNCTION IF EXISTS {name}()", params=None)


class Migration(migrations.Migration):

    dependencies = [
        ('policies', '0016_edits_of_forms'),
    ]

    operations = [
        migrations.CreateModel(
            name='AuditEvent',
            fields=[
                ('id', models.UUIDField(editable=False, help_text='Sorts by time.', primary_key=True, serialize=False)),
                ('at', models.DateTimeField()),
                ('kind', models.CharField(help_text='What was done, such as change.publish.', max_length=40)),
                ('by', models.CharField(blank=True, help_text='Who, as text that outlives the account.', max_length=150)),
                ('via', models.CharField(blank=True, default='', help_text="What acted on that person's behalf: a token, the schedule.", max_length=150)),
                ('door', models.CharField(help_text='admin, rest, command, beat or process.', max_length=10)),
                ('address', models.CharField(blank=True, default='', max_length=200)),
                ('thing_kind', models.CharField(blank=True, default='', help_text='Of what it was done to.', max_length=40)),
                ('thing_name', models.TextField(blank=True, default='')),
                ('change', models.BigIntegerField(blank=True, help_text='The number of the Change, where there is one.', null=True)),
                ('revision', models.BigIntegerField(blank=True, help_text='The number of the Revision that it made.', null=True)),
                ('before', models.CharField(blank=True, default='', help_text='Digest of what was there before.', max_length=64)),
                ('after', models.CharField(blank=True, default='', help_text='Digest of what it made.', max_length=64)),
                ('reason', models.TextField(blank=True, default='')),
                ('request_id', models.CharField(blank=True, default='', max_length=64)),
                ('body', models.BinaryField(help_text="The exact bytes of what it says: JSON with its schema's number.")),
            ],
            options={
                'ordering': ['-id'],
                'permissions': [('see_addresses', 'Can see from which addresses people came')],
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['kind', '-id'], name='events_by_kind'), models.Index(fields=['by', '-id'], name='events_by_person'), models.Index(fields=['door', '-id'], name='events_by_door'), models.Index(fields=['thing_kind', 'thing_name', '-id'], name='events_by_thing'), models.Index(condition=models.Q(('change__isnull', False)), fields=['change', '-id'], name='events_by_change'), models.Index(fields=['request_id', '-id'], name='events_by_request')],
                'constraints': [models.CheckConstraint(condition=models.Q(('door__in', ['admin', 'rest', 'command', 'beat', 'process'])), name='known_door')],
            },
        ),
        migrations.RunPython(install, remove),
    ]
