"""Triggers: Revisions never change and follow each other without a gap; a version's content is frozen after draft.

SQLite drops a table's triggers when a later migration rebuilds the table (most AlterField and RemoveField): such a
migration has to run `install` again. `tests/component/policies/test_frozen_rows.py` fails when it doesn't.
"""

from typing import Any

from django.db import migrations

REVISION_FROZEN = "berth: a Revision never changes and is never deleted"
REVISION_GAP = "berth: Revision numbers follow each other without a gap"
VERSION_FROZEN = "berth: a rule set version is frozen once it leaves draft"
RULE_FROZEN = "berth: the rules of a version are frozen once it leaves draft"

REVISION_COLUMNS = ("number", "document", "digest", "made_by", "reason", "summary", "created_at")
VERSION_COLUMNS = (
    *("rule_set_id", "number", "description", "note", "params", "tests"),
    *("author", "created_at", "saved_at", "digest"),
)


def _differs(columns: tuple[str, ...], operator: str) -> str:
    return " OR ".join(f"OLD.{column} {operator} NEW.{column}" for column in columns)


def _changes_revision(operator: str, columns: tuple[str, ...]) -> str:
    # Deleting an account empties made_by_user_id; the name in made_by stays.
    account = f"(NEW.made_by_user_id IS NOT NULL AND OLD.made_by_user_id {operator} NEW.made_by_user_id)"
    return f"{_differs(columns, operator)} OR {account}"


def _changes_version(operator: str, columns: tuple[str, ...]) -> str:
    published = (
        f"(OLD.published_at IS NOT NULL AND OLD.published_at {operator} NEW.published_at)"
        f" OR (OLD.published_by <> '' AND OLD.published_by {operator} NEW.published_by)"
    )
    return (
        "OLD.state <> 'draft' AND "
        f"(NEW.state = 'draft' OR {_differs(columns, operator)} OR {published})"
    )


def _sqlite_trigger(name: str, event: str, table: str, when: str, message: str) -> str:
    return (
        f"CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW WHEN {when} "
        f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
    )


def _not_draft(row: str) -> str:
    return f"(SELECT state FROM policies_rulesetversion WHERE id = {row}.version_id) IS NOT 'draft'"


def sqlite_statements(
    version_columns: tuple[str, ...] = VERSION_COLUMNS, revision_columns: tuple[str, ...] = REVISION_COLUMNS
) -> list[str]:
    """Give the statements that install the triggers on SQLite. Later migrations have more columns to freeze."""
    revision, version, rule = "policies_revision", "policies_rulesetversion", "policies_rule"
    next_number = f"NEW.number <> (SELECT COALESCE(MAX(number), 0) + 1 FROM {revision})"
    left_draft = "OLD.state <> 'draft'"
    moved = f"{_not_draft('OLD')} OR {_not_draft('NEW')}"
    triggers = [
        ("berth_revision_next", "INSERT", revision, next_number, REVISION_GAP),
        ("berth_revision_update", "UPDATE", revision, _changes_revision("IS NOT", revision_columns), REVISION_FROZEN),
        ("berth_revision_delete", "DELETE", revision, "1", REVISION_FROZEN),
        ("berth_version_update", "UPDATE", version, _changes_version("IS NOT", version_columns), VERSION_FROZEN),
        ("berth_version_delete", "DELETE", version, left_draft, VERSION_FROZEN),
        ("berth_rule_insert", "INSERT", rule, _not_draft("NEW"), RULE_FROZEN),
        ("berth_rule_update", "UPDATE", rule, moved, RULE_FROZEN),
        ("berth_rule_delete", "DELETE", rule, _not_draft("OLD"), RULE_FROZEN),
    ]
    return [_sqlite_trigger(*trigger) for trigger in triggers]


def _postgresql_trigger(name: str, event: str, table: str, body: str) -> list[str]:
    return [
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$",
        f"CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()",
    ]


def _refuse_if(condition: str, message: str) -> str:
    return (
        f"IF {condition} THEN RAISE EXCEPTION '{message}' USING ERRCODE = 'integrity_constraint_violation'; END IF;"
    )


def _refuse_unless_draft(row: str) -> str:
    # FOR SHARE waits for whoever is publishing the version at this moment, then sees that it left draft.
    return (
        f"PERFORM 1 FROM policies_rulesetversion WHERE id = {row}.version_id AND state = 'draft' FOR SHARE; "
        + _refuse_if("NOT FOUND", RULE_FROZEN)
    )


def postgresql_statements(
    version_columns: tuple[str, ...] = VERSION_COLUMNS, revision_columns: tuple[str, ...] = REVISION_COLUMNS
) -> list[str]:
    """Give the statements that install the triggers on PostgreSQL. Later migrations have more columns to freeze."""
    distinct = "IS DISTINCT FROM"
    next_number = _refuse_if(
        "NEW.number <> (SELECT COALESCE(MAX(number), 0) + 1 FROM policies_revision)", REVISION_GAP
    )
    update = _refuse_if(_changes_revision(distinct, revision_columns), REVISION_FROZEN)
    version_update = _refuse_if(_changes_version(distinct, version_columns), VERSION_FROZEN)
    version_delete = _refuse_if("OLD.state <> 'draft'", VERSION_FROZEN)
    moved = _refuse_unless_draft("OLD") + _refuse_unless_draft("NEW")
    triggers = [
        ("berth_revision_next", "INSERT", "policies_revision", f"{next_number} RETURN NEW;"),
        ("berth_revision_update", "UPDATE", "policies_revision", f"{update} RETURN NEW;"),
        ("berth_revision_delete", "DELETE", "policies_revision", f"{_refuse_if('TRUE', REVISION_FROZEN)} RETURN OLD;"),
        ("berth_version_update", "UPDATE", "policies_rulesetversion", f"{version_update} RETURN NEW;"),
        ("berth_version_delete", "DELETE", "policies_rulesetversion", f"{version_delete} RETURN OLD;"),
        ("berth_rule_insert", "INSERT", "policies_rule", f"{_refuse_unless_draft('NEW')} RETURN NEW;"),
        ("berth_rule_update", "UPDATE", "policies_rule", f"{moved} RETURN NEW;"),
        ("berth_rule_delete", "DELETE", "policies_rule", f"{_refuse_unless_draft('OLD')} RETURN OLD;"),
    ]
    return [statement for trigger in triggers for statement in _postgresql_trigger(*trigger)]


_TABLES = {
    "berth_revision_next": "policies_revision",
    "berth_revision_update": "policies_revision",
    "berth_revision_delete": "policies_revision",
    "berth_version_update": "policies_rulesetversion",
    "berth_version_delete": "policies_rulesetversion",
    "berth_rule_insert": "policies_rule",
    "berth_rule_update": "policies_rule",
    "berth_rule_delete": "policies_rule",
}


def install(
    apps: Any,
    schema_editor: Any,
    version_columns: tuple[str, ...] = VERSION_COLUMNS,
    revision_columns: tuple[str, ...] = REVISION_COLUMNS,
) -> None:
    """Create the triggers of the database at hand, replacing those that are there."""
    remove(apps, schema_editor)
    statements = postgresql_statements if schema_editor.connection.vendor == "postgresql" else sqlite_statements
    for statement in statements(version_columns, revision_columns):
        schema_editor.execute(statement, params=None)


def remove(_apps: Any, schema_editor: Any) -> None:
    """Drop the triggers of the database at hand."""
    postgresql = schema_editor.connection.vendor == "postgresql"
    for name, table in _TABLES.items():
        schema_editor.execute(f"DROP TRIGGER IF EXISTS {name}" + (f" ON {table}" if postgresql else ""), params=None)
        if postgresql:
            schema_editor.execute(f"DROP FUNCTION IF EXISTS {name}()", params=None)


class Migration(migrations.Migration):
    """Install the triggers."""

    dependencies = [("policies", "0001_initial")]
    operations = [migrations.RunPython(install, remove)]
