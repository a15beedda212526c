"""What `apply` writes many of at once: drafts, Assignments and what goes live. All of it is written or nothing, and nobody's is lost."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from policies import publishing
from policies.models import Assignment, Change, Revision, Rule, RuleSet, RuleSetVersion
from policies.publishing import PublishingError, parts, rule_sets
from tests.builders import make_assignment, make_rule_set
from tests.component.pages import draft_of, publish, publish_all
from tests.component.policies.test_publishing import _at_once as at_once

pytestmark = pytest.mark.django_db
on_postgresql = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite lets one transaction write at a time"
)

OTHER = {"filters": [{"builtin": "MatchNodeSelector"}, {"builtin": "PodFitsHost"}]}


def save(*names: str, by: str = "ops", **spec: Any) -> dict[str, RuleSetVersion]:
    return publishing.save_drafts(rule_sets=[make_rule_set(name, **spec) for name in names], by=by)


def rules_of(version: RuleSetVersion) -> list[str]:
    return [str(rule) for rule in version.rules.all()]


def everything() -> list[list[tuple[Any, ...]]]:
    """Return all rows that publishing writes, but for when a rule set was touched."""
    models = (RuleSetVersion, Rule, Assignment, Revision)
    found = [list(model._default_manager.order_by("pk").values_list()) for model in models]
    return [*found, list(RuleSet.objects.order_by("pk").values_list("name", "description"))]


class TestNumbers:
    def test_a_new_rule_set_begins_at_1_and_a_published_one_goes_on(self) -> None:
        publish(make_rule_set("old"))
        publish(make_rule_set("old", **OTHER))
        saved = save("new", "old")
        assert {name: (draft.number, draft.state) for name, draft in saved.items()} == {
            "new": (1, "draft"),
            "old": (3, "draft"),
        }

    def test_a_draft_that_is_there_keeps_its_number_and_its_row(self) -> None:
        first = save("web", by="alice")["web"]
        again = save("web", by="bob", **OTHER)["web"]
        assert (again.pk, again.number, again.author) == (first.pk, 1, "bob")
        assert rules_of(again) == ["MatchNodeSelector", "PodFitsHost"]

    def test_a_number_is_not_used_again_after_a_withdrawal(self) -> None:
        publish(make_rule_set())
        publishing.withdraw(rule_set=RuleSet.objects.get(), by="ops", reason="")
        assert save("web")["web"].number == 2

    def test_the_rows_hold_what_the_drafts_say(self) -> None:
        """The digest is taken over what the rows give back: another one would refuse every publish."""
        for draft in save("a", "b", **OTHER).values():
            row = draft_of(draft.rule_set.name)
            content = publishing.check_version(row)
            assert (content.name, content.version) == (draft.rule_set.name, 1)
            assert publishing.holds(row, content)
            assert publishing.publish(version=row, by="ops", reason="", expected_digest=row.digest) is not None

    def test_drafts_become_published_under_their_numbers_in_one_revision(self) -> None:
        publish(make_rule_set("b"))
        save("a", "b", **OTHER)
        publish_all(make_rule_set("a", **OTHER), make_rule_set("b", **OTHER))
        assert {each.name: each.version for each in publishing.current_revision().rule_sets} == {"a": 1, "b": 2}
        states = RuleSetVersion.objects.order_by("rule_set__name", "number").values_list("number", "state")
        assert list(states) == [(1, "published"), (1, "superseded"), (2, "published")]


class TestAllOrNothing:
    """Each begins where another person's rows are there already, and ends with exactly these."""

    @pytest.fixture(autouse=True)
    def before(self) -> Iterator[None]:
        publish(make_rule_set("live"))
        save("live", "mine", by="alice")
        publishing.save_assignment(assignment=make_assignment("first", "live"), by="alice")
        before = everything()
        yield
        assert everything() == before

    def test_a_draft_that_cant_be_written_takes_back_all_the_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(**_: Any) -> None:
            raise PublishingError(["somebody saved it meanwhile"])

        monkeypatch.setattr(rule_sets, "save_draft", refuse)
        with pytest.raises(PublishingError, match="meanwhile"):
            save("new", "mine", **OTHER)

    def test_a_rule_set_that_somebody_makes_in_the_meantime_takes_back_all_of_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(RuleSet.objects, "in_bulk", lambda *_args, **_named: {})
        with pytest.raises(PublishingError, match="Somebody else has just made one of these") as caught:
            save("live", "new")
        assert "try again" in str(caught.value)

    def test_an_assignment_of_a_rule_set_that_isnt_there_takes_back_the_others(self) -> None:
        wanted = {name: make_assignment(name, of) for name, of in (("a", "live"), ("b", "nope"), ("c", "gone"))}
        with pytest.raises(PublishingError) as caught:
            publishing.save_assignments(assignments=wanted, by="bob")
        assert [(fault.path, fault.message) for fault in caught.value.faults] == [
            ("spec.ruleSet", "no rule set is called nope"),
            ("spec.ruleSet", "no rule set is called gone"),
        ]

    def test_one_draft_that_was_deleted_since_takes_back_those_that_were_published(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(parts, "_BATCH", 1)  # each in statements of its own: the first two are written by then
        seen = [draft_of("live"), draft_of("mine")]
        contents = [(version, publishing.check_version(version)) for version in seen]
        gone = RuleSetVersion(pk=10**6, rule_set=seen[1].rule_set, number=9)
        contents.append((gone, contents[1][1]))
        with pytest.raises(PublishingError, match="mine v9 was deleted meanwhile"), transaction.atomic():
            rule_sets.mark_published(contents, {}, by="bob")

    def test_an_assignment_of_an_unpublished_rule_set_keeps_the_rest_from_being_published(self) -> None:
        with pytest.raises(PublishingError, match="late: rule set nope has no published version; publish it first"):
            publish_all(make_rule_set("mine"), make_assignment("late", "nope"))
        Change.objects.all().delete()


class TestAssignments:
    @pytest.fixture(autouse=True)
    def rule_set(self) -> None:
        publish(make_rule_set())

    def save(self, by: str = "ops", **orders: int) -> frozenset[str]:
        wanted = {name: make_assignment(name, order=order) for name, order in orders.items()}
        return publishing.save_assignments(assignments=wanted, by=by)

    def test_only_those_that_differ_are_written_and_named(self) -> None:
        assert self.save(a=1, b=2) == {"a", "b"}
        before = Assignment.objects.get(name="a")
        assert self.save(by="bob", a=1, b=3, c=4) == {"b", "c"}
        found = {row.name: (row.order, row.author) for row in Assignment.objects.all()}
        assert found == {"a": (1, "ops"), "b": (3, "bob"), "c": (4, "bob")}
        assert Assignment.objects.get(name="a").updated_at == before.updated_at

    def test_a_member_that_is_left_out_goes_back_to_its_default(self) -> None:
        publishing.save_assignment(
            assignment=make_assignment("a", match={"namespaces": ["x"]}, mode="shadow"), by="ops"
        )
        assert self.save(a=100) == {"a"}
        row = Assignment.objects.get(name="a")
        assert (row.namespaces, row.mode, row.order) == ([], "enforce", 100)
        assert publishing.assignment_of_row(row) == make_assignment("a", order=100)

    def test_nothing_goes_live_by_saving(self) -> None:
        self.save(a=1)
        assert publishing.current_revision().assignments == []
        assert publishing.unpublished_assignments() == {"a": "new"}


def test_lock_versions_gives_draft_and_published_version_of_each_and_nothing_of_what_was() -> None:
    publish(make_rule_set("both"))
    publish(make_rule_set("both", **OTHER))
    save("both", "draft")
    publish(make_rule_set("live"))
    RuleSet.objects.create(name="none")
    with transaction.atomic():
        found = publishing.lock_versions(RuleSet.objects.all())
    numbers = {name: tuple(each and each.number for each in pair) for name, pair in found.items()}
    assert numbers == {"both": (3, 2), "draft": (1, None), "live": (None, 1)}


@pytest.mark.django_db(transaction=True)
class TestAtOnce:
    def test_many_who_make_the_same_rule_sets_make_each_once_and_mix_no_rules(self) -> None:
        names = [f"set-{index}" for index in range(12)]
        specs: list[Any] = [OTHER, {"filters": [{"builtin": "PodFitsResources"}]}]

        def act(index: int) -> object:
            ordered = names if index % 2 else names[::-1]
            return save(*ordered, by=f"ops-{index}", **specs[index % 2])

        results = at_once(4, act)
        assert any(isinstance(result, dict) for result in results)
        assert all(isinstance(result, dict | PublishingError) for result in results), results
        drafts = RuleSetVersion.objects.select_related("rule_set")
        assert sorted((draft.rule_set.name, draft.number) for draft in drafts) == sorted((name, 1) for name in names)
        for draft in drafts:
            assert publishing.holds(draft, publishing.check_version(draft))
        assert len({(draft.author, tuple(rules_of(draft))) for draft in drafts}) == 1

    def test_many_who_make_the_same_assignments_make_each_once(self) -> None:
        publish(make_rule_set())
        names = [f"a{index}" for index in range(12)]

        def act(index: int) -> object:
            ordered = names if index % 2 else names[::-1]
            wanted = {name: make_assignment(name, order=index) for name in ordered}
            return publishing.save_assignments(assignments=wanted, by="ops")

        results = at_once(4, act)
        assert any(isinstance(result, frozenset) for result in results)
        assert all(isinstance(result, frozenset | PublishingError) for result in results), results
        assert sorted(Assignment.objects.values_list("name", flat=True)) == sorted(names)
        assert len(set(Assignment.objects.values_list("order", flat=True))) == 1

    def test_one_change_published_by_many_at_once_is_published_once(self) -> None:
        edits = [publishing.Edit.of(make_rule_set(name)) for name in ("a", "b", "c")]
        change = publishing.open_change(title="all", edits=edits, by="ops")
        results = at_once(
            4,
            lambda index: publishing.publish_change(change=change, by=f"ops-{index}", expected_digest=change.digest),
        )
        made = [result for result in results if isinstance(result, Revision)]
        refused = [result for result in results if isinstance(result, PublishingError)]
        assert (len(made), len(refused)) == (1, 3)
        assert {str(error) for error in refused} == {"It is published. Open another Change to go on from there."}
        assert {each.name: each.version for each in publishing.current_revision().rule_sets} == {"a": 1, "b": 1, "c": 1}

    @on_postgresql
    def test_a_locked_version_is_changed_by_nobody_until_the_transaction_ends(self) -> None:
        draft = save("web", by="alice")["web"]
        with transaction.atomic():
            held = publishing.lock_versions([draft.rule_set])["web"][0]
            saving = Beside(lambda: publishing.save_draft(version=draft, rule_set=make_rule_set(**OTHER), by="bob"))
            saving.wait_until_it_waits()
            assert held is not None
            assert draft_of("web").author == "alice"
            assert publishing.publish(version=held, by="alice", reason="") is not None
        assert "was published by alice" in str(saving.result())
        assert [rule.key for rule in publishing.current_revision().rule_sets[0].spec.filters] == ["PodFitsResources"]

    @on_postgresql
    @pytest.mark.parametrize("made", ["rule set", "assignment"])
    def test_who_makes_the_same_rows_in_another_order_waits_and_is_told_so(self, made: str) -> None:
        """Rows that are made in the order of a file lock each other out: PostgreSQL ends one of them with an error of its own."""
        publish(make_rule_set())
        web = RuleSet.objects.get()

        def make(name: str) -> None:
            if made == "rule set":
                RuleSet.objects.create(name=name)
            else:
                Assignment.objects.create(name=name, rule_set=web, order=1)

        def save_both() -> object:
            if made == "rule set":
                return save("b", "a")
            wanted = {name: make_assignment(name) for name in ("b", "a")}
            return publishing.save_assignments(assignments=wanted, by="bob")

        with transaction.atomic():
            make("a")
            saving = Beside(save_both)
            saving.wait_until_it_waits()
            make("b")
        assert isinstance(saving.result(), PublishingError)
        assert "try again" in str(saving.result())


class Beside:
    """An act in a thread and a connection of its own, which waits for this one."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act, self._result = act, list[object]([None])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result[0] = self._act()
        except Exception as error:  # noqa: BLE001 - the result is looked at, whatever it is
            self._result[0] = error
        finally:
            connection.close()

    def wait_until_it_waits(self) -> None:
        """Wait for the database to say that somebody waits for a lock."""
        while self._thread.is_alive():
            with connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'")
                if cursor.fetchone()[0]:
                    return
            self._thread.join(0.01)

    def result(self) -> object:
        self._thread.join(60)
        return self._result[0]
