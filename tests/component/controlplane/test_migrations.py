"""What an older version left in the database is kept by the migrations."""

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from scheduler.decisions.reading import body_of
from scheduler.models import Decision

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
