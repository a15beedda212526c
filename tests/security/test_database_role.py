"""What Berth's processes may do in PostgreSQL as the role berth_app: all that they need, and nothing to what guards history."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict

from tests.postgres import binaries, running
from tests.readme import blocks, link_checkout

ROOT = Path(__file__).resolve().parents[2]
SERVER = os.environ.get("BERTH_DATABASE_URL", "")
# Parts of the component suite. Tests of threads (`at_once`) are left out: they end with a TRUNCATE, which isn't berth_app's.
SUITE = ["tests/component/policies/test_publishing.py", "tests/component/policies/test_api.py"]

pytestmark = pytest.mark.skipif(not SERVER.startswith("postgres"), reason="roles are PostgreSQL's")


def url(database: str, role: str = "") -> str:
    parts = urlsplit(SERVER)
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{role}@{place}" if role else parts.netloc, path=f"/{database}").geturl()


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """A migrated database with the two roles; its name. pytest-django would take it for the tests of NAME without `test_`."""
    name = f"test_roles_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(SERVER, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    script = (ROOT / "deploy" / "postgres" / "roles.sql").read_text()
    with psycopg.connect(url(name), autocommit=True) as admin:
        admin.execute(script)
        admin.execute(script)
    migrate(name)
    yield name
    with psycopg.connect(SERVER, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def migrate(name: str) -> None:
    environment = {**os.environ, "BERTH_DATABASE_URL": url(name, "berth_owner")}
    command = [sys.executable, "manage.py", "migrate", "--no-input", "--verbosity", "0"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=300)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER {trigger} ON {table}",
        "ALTER TABLE {table} DISABLE TRIGGER ALL",
        "ALTER TABLE {table} DISABLE TRIGGER {trigger}",
        "ALTER TABLE {table} ADD COLUMN more int",
        "ALTER TABLE {table} OWNER TO berth_app",
        "DROP TABLE {table}",
        "TRUNCATE {table} CASCADE",
        "DROP FUNCTION {function} CASCADE",
        "CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "CREATE TABLE mine (a int)",
        "CREATE TEMPORARY TABLE mine (a int)",
        "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE SCHEMA mine",
        "SET session_replication_role = replica",
        "SET ROLE berth_owner",
        "GRANT berth_owner TO berth_app",
        "CREATE ROLE mine",
        "COPY {table} TO PROGRAM 'id'",
        "COPY {table} TO '/tmp/berth-rows'",
        "SELECT pg_read_file('/etc/passwd')",
        "CREATE DATABASE mine",
        "ALTER SYSTEM SET fsync = off",
        "CREATE TRIGGER mine BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION {function}",
        "CREATE RULE mine AS ON INSERT TO {table} DO INSTEAD NOTHING",
        "CREATE EVENT TRIGGER mine ON sql_drop EXECUTE FUNCTION {function}",
        "CREATE INDEX mine ON {table} ((1))",
        "ALTER FUNCTION {function} SET search_path = pg_temp",
        "ALTER DEFAULT PRIVILEGES FOR ROLE berth_owner GRANT ALL ON TABLES TO berth_app",
        "ALTER ROLE berth_owner PASSWORD 'mine'",
        "ALTER ROLE berth_app SUPERUSER",
        "CREATE EXTENSION dblink",
        "CREATE PUBLICATION mine FOR TABLE {table}",
        "SELECT lo_import('/etc/passwd')",
    ],
)
def test_the_role_that_berth_runs_as_cannot_change_what_guards_history(database: str, statement: str) -> None:
    with psycopg.connect(url(database, "berth_app"), autocommit=True) as connection:
        found = connection.execute(
            "SELECT tgname, tgrelid::regclass::text, tgfoid::regprocedure::text FROM pg_trigger WHERE NOT tgisinternal"
        ).fetchall()
        assert found
        for trigger, table, function in found:
            with pytest.raises((errors.InsufficientPrivilege, errors.DuplicateColumn)):
                connection.execute(statement.format(trigger=trigger, table=table, function=function))


def test_what_runs_with_the_owners_rights_looks_up_no_name_that_its_caller_chose(database: str) -> None:
    with psycopg.connect(url(database, "berth_app")) as connection:
        found = connection.execute("SELECT proname, proconfig FROM pg_proc WHERE prosecdef").fetchall()
    paths = {name: [text for text in of or [] if text.startswith("search_path=")] for name, of in found}
    assert {"berth_make_partition", "berth_drop_partition"} <= paths.keys()
    assert {name for name, of in paths.items() if not of or not of[0].endswith(", pg_temp")} == set()


def test_the_triggers_hold_for_it(database: str) -> None:
    with psycopg.connect(url(database, "berth_app"), autocommit=True) as connection:
        connection.execute("INSERT INTO policies_part (digest, document) VALUES ('x', '{}')")
        with pytest.raises(errors.DatabaseError):
            connection.execute("UPDATE policies_part SET document = '[]'")


def test_it_makes_and_drops_weeks_of_decisions_and_nothing_else(database: str) -> None:
    with psycopg.connect(url(database, "berth_app"), autocommit=True) as connection:
        connection.execute("SELECT berth_make_partition('2031-01-06 00:00+00', '2031-01-13 00:00+00')")
        connection.execute("SELECT berth_drop_partition('scheduler_decision_20310106')")
        for table in ("scheduler_decision_default", "scheduler_outcome", "policies_revision"):
            with pytest.raises(errors.RaiseException):
                connection.execute("SELECT berth_drop_partition(%s)", [table])


def test_it_does_all_that_the_application_needs(database: str) -> None:
    environment = {**os.environ, "BERTH_DATABASE_URL": url(database.removeprefix("test_"), "berth_app")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--reuse-db",
        "-p",
        "no:cacheprovider",
        "-k",
        "not at_once",
        *SUITE,
    ]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_command_of_a_role_that_may_not_read_a_table_says_what_to_do(database: str) -> None:
    with psycopg.connect(url(database), autocommit=True) as admin:
        admin.execute("REVOKE SELECT ON policies_change FROM berth_app")
    environment = {**os.environ, "BERTH_DATABASE_URL": url(database, "berth_app")}
    command = [sys.executable, "manage.py", "change", "list"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    with psycopg.connect(url(database), autocommit=True) as admin:
        admin.execute("GRANT SELECT ON policies_change TO berth_app")
    remedy = "Run deploy/postgres/roles.sql as a superuser, and migrate as berth_owner"
    assert (done.returncode, done.stderr) == (
        1,
        f"manage.py: permission denied for table policies_change. {remedy}\n",
    )


def test_tables_of_an_older_berth_become_the_owners(database: str) -> None:
    name = f"test_older_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(SERVER, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    with psycopg.connect(url(name), autocommit=True) as admin:
        admin.execute("CREATE TABLE policies_old (id bigint GENERATED BY DEFAULT AS IDENTITY, a int)")
        admin.execute((ROOT / "deploy" / "postgres" / "roles.sql").read_text())
    with psycopg.connect(url(name, "berth_owner"), autocommit=True) as owner:
        owner.execute("ALTER TABLE policies_old ADD COLUMN b int")
    with psycopg.connect(url(name, "berth_app"), autocommit=True) as app:
        app.execute("INSERT INTO policies_old (a) VALUES (1)")
    with psycopg.connect(SERVER, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_a_dump_is_restored_on_a_server_that_never_had_the_roles(database: str, tmp_path: Path) -> None:
    """By the how-to's own commands, as after the loss of the first server."""
    _, restore = blocks("sh", ROOT / "docs" / "howto" / "backup.md")
    path = f"{binaries()}:{os.environ['PATH']}"
    link_checkout(tmp_path)
    dump = ["pg_dump", "--format=custom", "--file=berth.dump", url(database, "berth_app")]
    subprocess.run(dump, cwd=tmp_path, env=os.environ | {"PATH": path}, check=True)
    with running() as another:
        server = conninfo_to_dict(another)
        given = {f"PG{key.upper()}": str(server[key]) for key in ("host", "user") if server.get(key)}
        # What follows verifies the ledger, which this database doesn't have.
        typed = restore.partition("BERTH_DATABASE_URL=")[0]
        done = subprocess.run(
            ["bash", "-e", "-c", typed], cwd=tmp_path, env=os.environ | given | {"PATH": path},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        with psycopg.connect(host=server["host"], user="berth_app", dbname="berth_restored") as connection:
            assert connection.execute("SELECT count(*) FROM policies_revision").fetchone() == (0,)
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute("DELETE FROM policies_auditevent")
