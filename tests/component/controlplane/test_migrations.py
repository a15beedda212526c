"""What an older version left in the database is kept by the migrations."""

from datetime import UTC, datetime
from importlib import import_module

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from scheduler.decisions.reading import body_of
from scheduler.models import Decision

NOW = import_module("scheduler.migrations.0021_found_by_name").NOW
AT = datetime(2026, 1, 1, tzinfo=UTC)
BODY = {"pod": {"metadata": {"name": "wéb"}}, "nodes": ["n1"], "filters": [], "scores": [], "totals": []}


def migrate(name: str) -> MigrationExecutor:
    executor = MigrationExecutor(connection)
    executor.migrate([("scheduler", name)])
    return MigrationExecutor(connection)


@pytest.mark.django_db(transaction=True)
def test_bodies_of_version_0_1_0_are_compressed_and_come_back() -> None:
    try:
        executor = migrate("0001_initial")
        old = executor.loader.project_state([("scheduler", "0001_initial")]).apps.get_model("scheduler", "Decision")
        old.objects.create(
            at=AT, process="p", sequence=1, verb="filter", pod_namespace="d", pod_name="p", pod_uid="u", revision=1,
            body=BODY,
        )  # fmt: skip
        migrate("0002_recording")
        # Columns that came later aren't there yet.
        assert body_of(Decision.objects.only("body").get()) == BODY

        executor = migrate("0001_initial")
        old = executor.loader.project_state([("scheduler", "0001_initial")]).apps.get_model("scheduler", "Decision")
        assert old.objects.get().body == BODY
    finally:
        newest = MigrationExecutor(connection).loader.graph.leaf_nodes("scheduler")
        migrate(newest[0][1])


@pytest.mark.django_db(transaction=True)
def test_a_migration_that_was_killed_between_its_indexes_goes_on_when_it_is_run_again() -> None:
    try:
        executor = migrate("0020_evidence")
        model = executor.loader.project_state([("scheduler", "0020_evidence")]).apps.get_model("scheduler", "Decision")
        with connection.schema_editor() as editor:
            editor.add_index(model, NOW[0])
        migrate("0021_found_by_name")
        with connection.cursor() as cursor:
            found = connection.introspection.get_constraints(cursor, "scheduler_decision")
        assert {index.name for index in NOW} <= found.keys()
    finally:
        newest = MigrationExecutor(connection).loader.graph.leaf_nodes("scheduler")
        migrate(newest[0][1])
