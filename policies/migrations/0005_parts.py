"""What Revisions hold is stored once a part, under its digest, in place of a whole document a Revision.

Digests of the Revisions that are there stay as they are: over the whole document, which can be put together again from
its parts to the byte. Backwards, the documents are; that of a Revision made since has a digest over something else.
"""

from hashlib import sha256
from importlib import import_module

import django.db.models.deletion
import msgspec
from django.db import migrations, models

_triggers = import_module("policies.migrations.0002_frozen_rows")
_VERSION_COLUMNS = import_module("policies.migrations.0003_victims_and_failures").VERSION_COLUMNS
_REVISION_COLUMNS = (*(column for column in _triggers.REVISION_COLUMNS if column != "document"), "chained")

PART_FROZEN = "berth: a part of Revisions never changes and is never deleted"
HELD_FROZEN = "berth: what a Revision holds is written together with it and never changes"
_PART, _HELD = "policies_part", "policies_revisionpart"
_NEXT = "(SELECT COALESCE(MAX(number), 0) + 1 FROM policies_revision)"


class _Document(msgspec.Struct, rename="camel", omit_defaults=True):
    """A Revision's document, each part as it is written."""

    number: int
    published_at: str = ""
    rule_sets: list[msgspec.Raw] = []
    assignments: list[msgspec.Raw] = []
    priority_classes: list[msgspec.Raw] = []


class _Named(msgspec.Struct):
    name: str
    order: int = 100


_KINDS = {"RuleSet": "rule_sets", "Assignment": "assignments", "PriorityClass": "priority_classes"}


def _published_at(row):
    return row.created_at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def fill(apps, schema_editor):
    """Take the documents apart."""
    revisions, parts, held = (apps.get_model("policies", name) for name in ("Revision", "Part", "RevisionPart"))
    database = schema_editor.connection.alias
    live = {}
    for row in revisions.objects.using(database).order_by("number").iterator(chunk_size=1):
        document = msgspec.json.decode(row.document, type=_Document)
        if document.published_at not in ("", _published_at(row)):
            raise ValueError(f"Revision {row.number} says another time in its document than in its row")
        found = {}
        for kind, member in _KINDS.items():
            for raw in getattr(document, member):
                name = msgspec.json.decode(raw, type=_Named).name
                found[kind, name] = (sha256(raw).hexdigest(), bytes(raw).decode())
        parts.objects.using(database).bulk_create(
            [parts(digest=digest, document=text) for digest, text in found.values()], ignore_conflicts=True
        )
        for key in [key for key, (digest, _) in live.items() if key not in found or found[key][0] != digest]:
            held.objects.using(database).filter(pk=live.pop(key)[1]).update(until_id=row.number)
        for key in [key for key in found if key not in live]:
            made = held.objects.using(database).create(
                kind=key[0], name=key[1], part_id=found[key][0], since_id=row.number
            )
            live[key] = (found[key][0], made.pk)
    revisions.objects.using(database).update(chained=False)
    _check_references(schema_editor)


def put_together(apps, schema_editor):
    """Write the documents again."""
    revisions, held = (apps.get_model("policies", name) for name in ("Revision", "RevisionPart"))
    database = schema_editor.connection.alias
    for row in revisions.objects.using(database).order_by("number").iterator(chunk_size=1):
        of_it = held.objects.using(database).filter(since__lte=row.number)
        of_it = of_it.filter(models.Q(until=None) | models.Q(until__gt=row.number)).select_related("part")
        found = {kind: [] for kind in _KINDS}
        for each in of_it:
            raw = each.part.document.encode()
            named = msgspec.json.decode(raw, type=_Named)
            order = named.order if each.kind == "Assignment" else 0
            found[each.kind].append((order, named.name, msgspec.Raw(raw)))
        members = {_KINDS[kind]: [raw for _, _, raw in sorted(listed, key=lambda each: each[:2])] for kind, listed in found.items()}
        document = _Document(number=row.number, published_at=_published_at(row), **members)
        row.document = msgspec.json.encode(document, order="sorted").decode()
        row.save(update_fields=["document"])
    _check_references(schema_editor)


def _check_references(schema_editor):
    # PostgreSQL alters no table that has checks left for the end of the transaction.
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def _conditions(differs):
    same = " OR ".join(f"OLD.{column} {differs} NEW.{column}" for column in ("id", "kind", "name", "part_id", "since_id"))
    return {
        "berth_part_update": (_PART, "UPDATE", "1 = 1", PART_FROZEN),
        "berth_part_delete": (_PART, "DELETE", "1 = 1", PART_FROZEN),
        "berth_held_insert": (_HELD, "INSERT", f"NEW.since_id <> {_NEXT} OR NEW.until_id IS NOT NULL", HELD_FROZEN),
        "berth_held_update": (
            *(_HELD, "UPDATE"),
            f"{same} OR OLD.until_id IS NOT NULL OR NEW.until_id {differs} {_NEXT}",
            HELD_FROZEN,
        ),
        "berth_held_delete": (_HELD, "DELETE", "1 = 1", HELD_FROZEN),
    }


def install(apps, schema_editor):
    """Create the triggers, those of Revisions and versions too: SQLite made the table anew."""
    _triggers.install(apps, schema_editor, _VERSION_COLUMNS, _REVISION_COLUMNS)
    postgresql = schema_editor.connection.vendor == "postgresql"
    for name, (table, event, condition, message) in _conditions("IS DISTINCT FROM" if postgresql else "IS NOT").items():
        if not postgresql:
            act = f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
            trigger = f"CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW WHEN {condition} {act}"
            schema_editor.execute(trigger, params=None)
            continue
        refuse = f"RAISE EXCEPTION '{message}' USING ERRCODE = 'integrity_constraint_violation';"
        body = f"IF {condition} THEN {refuse} END IF; RETURN {'OLD' if event == 'DELETE' else 'NEW'};"
        function = f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"
        trigger = f"CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()"
        schema_editor.execute(function, params=None)
        schema_editor.execute(trigger, params=None)


def remove(apps, schema_editor):
    """Drop the triggers."""
    _triggers.remove(apps, schema_editor)
    postgresql = schema_editor.connection.vendor == "postgresql"
    for name, (table, *_) in _conditions("").items():
        schema_editor.execute(f"DROP TRIGGER IF EXISTS {name}" + (f" ON {table}" if postgresql else ""), params=None)
        if postgresql:
            schema_editor.execute(f"DROP FUNCTION IF EXISTS {name}()", params=None)


def remove_former(apps, schema_editor):
    """Drop the triggers that were there before this migration."""
    _triggers.remove(apps, schema_editor)


def install_former(apps, schema_editor):
    """Create the triggers that were there before this migration."""
    _triggers.install(apps, schema_editor, _VERSION_COLUMNS)


class Migration(migrations.Migration):
    """Make the tables, fill them, and let the documents go."""

    dependencies = [("policies", "0004_priority_classes")]
    operations = [
        migrations.RunPython(remove_former, install_former),
        migrations.CreateModel(
            name="Part",
            fields=[
                ("digest", models.CharField(help_text="SHA-256 of the document, in hex.", max_length=64, primary_key=True, serialize=False)),
                ("document", models.TextField(help_text="The exact canonical JSON that the digest is taken over.")),
            ],
            options={"default_permissions": ()},
        ),
        migrations.AddField(
            model_name="revision",
            name="chained",
            field=models.BooleanField(
                default=True,
                help_text="Not for early Revisions: their digest is the SHA-256 of the whole document.",
            ),
        ),
        migrations.AlterField(
            model_name="revision",
            name="digest",
            field=models.CharField(
                help_text="SHA-256 over the digests of its parts and of the Revision before, in hex.", max_length=64
            ),
        ),
        migrations.CreateModel(
            name="RevisionPart",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(choices=[("RuleSet", "Rule Set"), ("Assignment", "Assignment"), ("PriorityClass", "Priority Class")], max_length=13)),
                ("name", models.TextField()),
                ("part", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="policies.part")),
                ("since", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="policies.revision")),
                ("until", models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="policies.revision")),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(condition=models.Q(("until", None)), fields=("kind", "name"), name="one_live_part_of_a_name"),
                    models.CheckConstraint(condition=models.Q(("kind__in", ["RuleSet", "Assignment", "PriorityClass"])), name="known_kind_of_part"),
                ],
            },
        ),
        migrations.RunPython(fill, put_together),
        # Backwards, the column comes back empty before it is filled.
        migrations.AlterField(model_name="revision", name="document", field=models.TextField(default="")),
        migrations.RemoveField(model_name="revision", name="document"),
        migrations.RunPython(install, remove),
    ]
