"""What Revisions hold: stored once, read back whole or by what changed, under a digest that chains them."""

import hashlib
import json
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from policies import compiler, publishing
from policies.engine import ruleset as engine
from policies.engine.validation import read_rule_set
from policies.models import Part, Revision, RevisionPart, RuleSet, RuleSetVersion
from tests.builders import TEAM_FILTER, make_assignment, make_rule_set
from tests.component.pages import opened, publish, publish_all

pytestmark = pytest.mark.django_db
BATCH = {"filters": [{"builtin": "MatchNodeSelector"}]}


def publish_many(count: int) -> None:
    rule_sets = [make_rule_set(f"set-{number}", filters=[TEAM_FILTER]) for number in range(count)]
    publish_all(*rule_sets, *(make_assignment(f"of-{number}", f"set-{number}") for number in range(count)))


def stored_bytes() -> int:
    """Bytes of all texts that Revisions keep."""
    total = 0
    for model in (Revision, Part, RevisionPart):
        for row in model.objects.values_list():
            total += sum(len(str(value)) for value in row)
    return total


def test_a_small_change_of_many_parts_costs_few_bytes() -> None:
    publish_many(60)
    before = stored_bytes()
    publish(make_rule_set("set-7", **BATCH))
    assert stored_bytes() - before < 2_000
    assert len(publishing.current_revision().rule_sets) == 60


def test_content_that_comes_back_is_stored_once() -> None:
    publish(make_rule_set())
    publish(make_rule_set(**BATCH))
    parts = Part.objects.count()
    publishing.roll_back(to_number=1, by="ops", reason="back")
    assert Part.objects.count() == parts


def test_every_revision_reads_back_as_it_was() -> None:
    seen = [publishing.current_revision()]
    publish(make_rule_set(filters=[TEAM_FILTER]))
    seen.append(publishing.current_revision())
    publish_all(make_assignment("second", order=5), make_assignment("first"))
    seen.append(publishing.current_revision())
    publish(make_rule_set(**BATCH))
    seen.append(publishing.current_revision())
    publishing.roll_back(to_number=2, by="ops", reason="")
    seen.append(publishing.current_revision())
    assert [each.number for each in seen] == [0, 1, 2, 3, 4]
    assert [publishing.load_revision(each.number) for each in seen[1:]] == seen[1:]
    assert [each.name for each in seen[3].assignments] == ["second", "first"]


def test_a_revision_that_is_not_there_is_none() -> None:
    assert publishing.load_revision(1) is None


def test_a_revision_read_by_what_changed_is_the_same_as_read_whole() -> None:
    publish(make_rule_set("a"))
    base = publishing.stored_revision(1)
    publish(make_rule_set("b"))
    publish(make_rule_set("a", **BATCH))
    publishing.archive(rule_set=RuleSet.objects.get(name="b"), by="ops", reason="")
    publish(make_rule_set("c"))
    assert base is not None
    for number in (2, 3, 4, 5):
        by_changes, whole = publishing.stored_revision(number, base), publishing.stored_revision(number)
        assert by_changes is not None
        assert whole is not None
        assert by_changes.parts == whole.parts
        assert by_changes.revision == whole.revision


def test_only_changed_parts_are_fetched_and_the_others_stay_the_same_objects(
    django_assert_max_num_queries: Any,
) -> None:
    publish_many(30)
    base = publishing.stored_revision(1)
    publish(make_rule_set("set-3", **BATCH))
    assert base is not None
    with django_assert_max_num_queries(4) as asked:
        found = publishing.stored_revision(2, base)
    assert found is not None
    assert sum("policies_part" in query["sql"] for query in asked.captured_queries) == 1
    changed = [key for key, part in found.parts.items() if part is not base.parts.get(key)]
    assert changed == [("RuleSet", "set-3")]


def test_a_base_of_another_database_is_not_built_upon() -> None:
    publish(make_rule_set("a"))
    foreign = publishing.StoredRevision(1, "another digest", "", {("RuleSet", "foreign"): Any})  # type: ignore[dict-item]
    publish(make_rule_set("b"))
    found = publishing.stored_revision(2, foreign)
    assert found is not None
    assert set(found.parts) == {("RuleSet", "a"), ("RuleSet", "b")}


def test_the_digest_covers_the_parts_and_the_former_digest() -> None:
    first = publish(make_rule_set())
    second = publish(make_rule_set(**BATCH))
    covered = json.loads(publishing.digest_text(second))
    assert covered["former"] == first.digest
    (part,) = covered["parts"]
    assert part == ["RuleSet", "web", compiler.digest_of(publishing.current_revision().rule_sets[0])]
    assert hashlib.sha256(publishing.digest_text(second).encode()).hexdigest() == second.digest
    assert hashlib.sha256(Part.objects.get(digest=part[2]).document.encode()).hexdigest() == part[2]


def test_the_same_content_later_has_another_digest() -> None:
    publish(make_rule_set())
    publish(make_rule_set(**BATCH))
    back = publishing.roll_back(to_number=1, by="ops", reason="")
    assert back is not None
    assert back.digest != Revision.objects.get(number=1).digest


def test_the_document_is_what_the_engine_writes() -> None:
    publish(make_rule_set("b", filters=[TEAM_FILTER]))
    publish(make_rule_set("a"))
    orders = (("y", 7), ("x", 7), ("z", 1))
    made = publish_all(*(make_assignment(name, "a", order=order) for name, order in orders))
    document = publishing.document_text(made)
    assert document.encode() == engine.encode(_without_digest(publishing.current_revision()))


def _without_digest(revision: engine.Revision) -> engine.Revision:
    return msgspec.structs.replace(revision, digest="")


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time")
@pytest.mark.django_db(transaction=True)
def test_revisions_published_at_once_follow_each_other_without_a_gap() -> None:
    changes = [opened(make_rule_set(f"set-{number}")) for number in range(20)]
    barrier = threading.Barrier(len(changes))

    def run(change: Any) -> None:
        barrier.wait()
        try:
            publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[change]) for change in changes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = list(Revision.objects.order_by("number"))
    assert [row.number for row in rows] == list(range(1, 21))
    for row in rows:
        found = publishing.load_revision(row.number)
        assert found is not None
        assert len(found.rule_sets) == row.number
        assert hashlib.sha256(publishing.digest_text(row).encode()).hexdigest() == row.digest


class TestMigration:
    """From whole documents to parts and back, on a database of the version before."""

    @pytest.fixture
    def former(self, transactional_db: None) -> Any:
        executor = MigrationExecutor(connection)
        executor.migrate([("policies", "0004_priority_classes")])
        yield executor.loader.project_state([("policies", "0004_priority_classes")]).apps
        executor = MigrationExecutor(connection)
        executor.migrate(executor.loader.graph.leaf_nodes())

    def _write(self, former: Any) -> list[tuple[str, str]]:
        """Three Revisions as the version before wrote them."""
        web, data = make_rule_set("web", filters=[TEAM_FILTER]), make_rule_set("data")
        late, early = make_assignment("a", "web", order=9), make_assignment("b", "data", order=2)
        priority_class = engine.PriorityClass(name="high", value=7, version=1)
        contents = [([web], [], []), ([data, web], [early, late], [priority_class]), ([data], [early], [])]
        written = []
        for number, (rule_sets, assignments, classes) in enumerate(contents, 1):
            at = datetime(2026, 1, number, 10, 0, 0, number, tzinfo=UTC)
            document = engine.encode(
                engine.Revision(
                    number=number,
                    published_at=at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
                    rule_sets=rule_sets,
                    assignments=assignments,
                    priority_classes=classes,
                )
            )
            digest = hashlib.sha256(document).hexdigest()
            former.get_model("policies", "Revision").objects.create(
                number=number, document=document.decode(), digest=digest, made_by="ops", summary="s", created_at=at
            )
            written.append((document.decode(), digest))
        return written

    def test_documents_and_digests_stay_what_they_were(self, former: Any) -> None:
        written = self._write(former)
        executor = MigrationExecutor(connection)
        executor.migrate([("policies", "0005_parts")])
        rows = list(Revision.objects.order_by("number"))
        assert [(publishing.document_text(row), row.digest) for row in rows] == written
        assert [publishing.digest_text(row) for row in rows] == [document for document, _ in written]
        third = publishing.load_revision(3)
        assert third is not None
        assert ([each.name for each in third.rule_sets], third.digest) == (["data"], written[2][1])
        assert Part.objects.count() == 5

    def test_the_next_revision_chains_to_the_last_one_before(self, former: Any) -> None:
        written = self._write(former)
        executor = MigrationExecutor(connection)
        executor.migrate(executor.loader.graph.leaf_nodes())
        made = publish(make_rule_set("more"))
        covered = json.loads(publishing.digest_text(made))
        assert (covered["number"], covered["former"]) == (4, written[2][1])
        assert hashlib.sha256(publishing.digest_text(made).encode()).hexdigest() == made.digest

    def test_it_goes_back_to_the_same_documents(self, former: Any) -> None:
        written = self._write(former)
        MigrationExecutor(connection).migrate([("policies", "0005_parts")])
        MigrationExecutor(connection).migrate([("policies", "0004_priority_classes")])
        rows = former.get_model("policies", "Revision").objects.order_by("number")
        assert [(row.document, row.digest) for row in rows] == written


def test_what_was_checked_when_it_was_opened_is_not_checked_again_to_publish_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filters = [{"name": "f", "expression": "node.metadata.name != 'checked once'"}]
    change = opened(make_rule_set("web", filters=filters))
    checked: list[object] = []

    def read(documents: Iterable[tuple[object, str]]) -> list[engine.RuleSet]:
        asked = [document for document, _ in documents]
        checked.extend(asked)
        return [read_rule_set(document) for document in asked]

    monkeypatch.setattr("policies.checking.read_each", read)
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    assert publishing.check_version(RuleSetVersion.objects.get()) == publishing.current_revision().rule_sets[0]
    assert not checked
