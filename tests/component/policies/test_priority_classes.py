"""PriorityClasses in the database: publishing, versions, rolling back, files."""

import contextlib
import random
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from policies import manifests, publishing
from policies.engine.ruleset import PriorityClass as PriorityClassValue
from policies.engine.ruleset import decode_priority_class
from policies.models import Change, ClusterPriorityClass, PriorityClass, PriorityClassVersion, Revision
from scheduler.priority_classes.reconcile import look
from tests.builders import make_priority_class, make_rule_set, priority_class_document
from tests.component.pages import opened, publish, publish_staged, stage
from tests.component.threads import at_once
from tests.priority_server import PriorityServer

pytestmark = pytest.mark.django_db


def save(name: str = "batch", value: int = 1000, **spec: Any) -> None:
    stage(publishing.Edit.of(make_priority_class(name, value, **spec)))


def remove(name: str = "batch") -> None:
    stage(publishing.Edit("PriorityClass", name, None))


def publish_all() -> Revision | None:
    return publish_staged()


def live() -> dict[str, tuple[int, int]]:
    return {name: (each.version, each.value) for name, each in publishing.live_priority_classes().items()}


def states(name: str = "batch") -> list[str]:
    return list(PriorityClassVersion.objects.filter(name=name).order_by("number").values_list("state", flat=True))


def seen(name: str = "batch", value: int = 1000, *, managed: bool = True, **fields: Any) -> ClusterPriorityClass:
    """Put a class into the cluster, as the last look saw it."""
    now = timezone.now()
    defaults = {"state": "applied", "present": True, "preemption_policy": "PreemptLowerPriority", "version": 1}
    defaults |= {"value": value, "managed": managed, "made_by_berth": managed, "looked_at": now, "changed_at": now}
    return ClusterPriorityClass.objects.create(name=name, **defaults | fields)


def run(command: str, *arguments: str, **options: Any) -> str:
    import io

    out = io.StringIO()
    call_command(command, *arguments, stdout=out, **options)
    return out.getvalue()


class TestPublishing:
    def test_saving_makes_nothing_live(self) -> None:
        save()
        assert live() == {}
        assert not PriorityClass.objects.exists()

    def test_publishing_makes_version_1_and_a_revision_that_holds_it(self) -> None:
        save(preemptionPolicy="Never")
        made = publish_all()
        assert made is not None
        assert made.summary == "PriorityClass batch version 1 added: value 1,000, never preempts other Pods"
        assert publishing.current_revision().priority_classes[0].preemption_policy == "Never"
        version = PriorityClassVersion.objects.get()
        assert (version.number, version.state, version.revision, version.published_by) == (1, "published", 1, "ops")
        assert PriorityClass.objects.get().preemption_policy == "Never"

    def test_publishing_again_makes_nothing(self) -> None:
        save()
        publish_all()
        assert publish_all() is None
        assert states() == ["published"]

    def test_what_is_changed_gets_the_next_version_and_the_others_keep_theirs(self) -> None:
        save("batch")
        save("web", 5000)
        publish_all()
        save("batch", globalDefault=True)
        made = publish_all()
        assert made is not None
        assert made.summary == "PriorityClass batch version 2 in place of 1: globalDefault false → true"
        assert live() == {"batch": (2, 1000), "web": (1, 5000)}
        assert states() == ["superseded", "published"]

    def test_publishing_a_rule_set_leaves_classes_as_they_are_live(self) -> None:
        save()
        publish_all()
        save("web", 5000)
        publish(make_rule_set())
        assert live() == {"batch": (1, 1000)}

    def test_a_class_that_is_taken_out_is_remembered_as_it_was_live_last(self) -> None:
        save(deletionPolicy="Delete")
        publish_all()
        remove()
        made = publish_all()
        assert made is not None
        assert made.summary == "PriorityClass batch removed: deleted from the cluster, if Berth made it"
        assert [(each.name, each.deletion_policy) for each in publishing.withdrawn_priority_classes()] == [
            ("batch", "Delete")
        ]
        assert states() == ["withdrawn"]

    def test_a_class_that_comes_back_goes_on_counting_its_versions(self) -> None:
        save()
        publish_all()
        remove()
        publish_all()
        save(value=2000)
        publish_all()
        assert live() == {"batch": (2, 2000)}
        assert states() == ["superseded", "published"]
        assert publishing.withdrawn_priority_classes() == []


class TestRollingBack:
    def test_classes_and_rows_go_back_and_versions_follow(self) -> None:
        save()
        publish_all()
        save(description="new words")
        save("web", 5000)
        publish_all()
        made = publishing.roll_back(to_number=1, by="ops", reason="")
        assert made is not None
        assert live() == {"batch": (1, 1000)}
        assert PriorityClass.objects.get().description == ""
        assert (states(), states("web")) == (["published", "superseded"], ["withdrawn"])
        publishing.roll_back(to_number=2, by="ops", reason="")
        assert live() == {"batch": (2, 1000), "web": (1, 5000)}
        assert (states(), states("web")) == (["superseded", "published"], ["published"])

    def test_the_global_default_moves_back(self) -> None:
        save("a", globalDefault=True)
        save("b")
        publish_all()
        save("a")
        save("b", globalDefault=True)
        publish_all()
        publishing.roll_back(to_number=1, by="ops", reason="")
        assert list(PriorityClass.objects.filter(global_default=True).values_list("name", flat=True)) == ["a"]


class TestAnyHistory:
    @pytest.mark.parametrize("seed", range(12))
    def test_versions_say_what_is_live_and_what_was_live_last(self, seed: int) -> None:
        chance = random.Random(seed)
        last_live: dict[str, PriorityClassValue] = {}
        for _ in range(25):
            act_at_random(chance)
            now = publishing.live_priority_classes()
            last_live |= now
            versions = PriorityClassVersion.objects.all()
            kept = {
                each.name: decode_priority_class(each.document.encode())
                for each in versions
                if each.state != "superseded"
            }
            assert kept == last_live
            assert {each.name for each in versions if each.state == "published"} == set(now)
            assert sum(each.global_default for each in now.values()) <= 1
            assert {each.name for each in publishing.withdrawn_priority_classes()} == set(last_live) - set(now)


def act_at_random(chance: random.Random) -> None:
    """Save, delete, publish or roll back; what is refused changes nothing."""
    name = chance.choice("abc")
    with contextlib.suppress(publishing.PublishingError):
        match chance.randrange(5):
            case 0 | 1:
                policy = chance.choice(["Keep", "Delete"])
                save(name, chance.randrange(3), globalDefault=chance.random() < 0.4, deletionPolicy=policy)
            case 2:
                remove(name)
            case 3:
                try:
                    publish_all()
                except publishing.PublishingError:
                    publishing.withdraw_change(change=Change.objects.get(state="draft"), by="ops")
            case _ if newest := publishing.current_revision().number:
                publishing.roll_back(to_number=chance.randint(1, newest), by="ops", reason="")


class TestWhatKubernetesNeverChanges:
    def test_the_value_of_a_class_that_is_to_be_taken_over_stays(self) -> None:
        seen(managed=False)
        save(value=2000, preemptionPolicy="Never", adopt=True)
        with pytest.raises(
            publishing.PublishingError, match=r"spec.value: is 1000 in the cluster's batch.*new name"
        ) as caught:
            publish_all()
        assert [fault.path for fault in caught.value.faults] == ["batch: spec.value", "batch: spec.preemptionPolicy"]

    def test_the_value_of_a_class_that_is_there_may_change(self) -> None:
        save()
        publish_all()
        seen()
        save(value=2000)
        publish_all()
        assert live() == {"batch": (2, 2000)}

    def test_the_value_of_a_class_that_isnt_there_yet_may_change(self) -> None:
        save()
        publish_all()
        save(value=2000)
        publish_all()
        assert live() == {"batch": (2, 2000)}

    def test_a_class_of_others_counts_when_it_is_to_be_adopted(self) -> None:
        seen(managed=False, value=7)
        save(value=1000, adopt=True)
        with pytest.raises(publishing.PublishingError, match="is 7 in the cluster's batch"):
            publish_all()
        save(value=7, adopt=True)
        assert publish_all() is not None

    def test_what_reached_the_cluster_since_saving_is_refused_when_publishing(self) -> None:
        save(value=2000, adopt=True)
        seen(value=1000, managed=False)
        with pytest.raises(publishing.PublishingError, match=r"batch: spec\.value: is 1000 in the cluster"):
            publish_all()

    def test_a_live_class_that_differs_from_the_cluster_doesnt_hold_up_the_others(self) -> None:
        save()
        publish_all()
        seen(value=7, state="conflict")
        save("web", 5000)
        assert publish_all() is not None


class TestGlobalDefault:
    def test_a_second_one_is_refused_by_name(self) -> None:
        save("a", globalDefault=True)
        save("b", globalDefault=True)
        with pytest.raises(publishing.PublishingError, match="a is the global default as well, and Kubernetes allows"):
            publish_all()
        assert not PriorityClass.objects.exists()

    def test_the_database_itself_refuses_a_second_one(self) -> None:
        PriorityClass.objects.create(name="a", value=1, global_default=True)
        with pytest.raises(IntegrityError), transaction.atomic():
            PriorityClass.objects.create(name="b", value=2, global_default=True)


class TestFrozenVersions:
    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE policies_priorityclassversion SET document = '{}'",
            "UPDATE policies_priorityclassversion SET published_by = 'mallory'",
            "UPDATE policies_priorityclassversion SET number = 7",
            "UPDATE policies_priorityclassversion SET state = 'live'",
            "DELETE FROM policies_priorityclassversion",
        ],
    )
    def test_the_database_refuses_to_change_a_published_version(self, statement: str) -> None:
        save()
        publish_all()
        with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)

    @pytest.mark.parametrize(
        "fields", [{"value": 10**9 + 1}, {"preemption_policy": "Always"}, {"deletion_policy": "Orphan"}]
    )
    def test_the_database_refuses_what_kubernetes_does(self, fields: dict[str, Any]) -> None:
        with pytest.raises(IntegrityError), transaction.atomic():
            PriorityClass.objects.create(**{"name": "a", "value": 1, **fields})


class TestFiles:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "classes.yaml"
        documents = [
            priority_class_document("web", 5000, globalDefault=True),
            priority_class_document(
                "batch", 10, "Batch", preemptionPolicy="Never", adopt=True, deletionPolicy="Delete"
            ),
        ]
        path.write_text("---\n".join(manifests.to_yaml(document) for document in documents))
        return path

    def test_what_is_applied_is_exported_and_applying_that_changes_nothing(self, file: Path) -> None:
        said = run("apply", "--publish", str(file))
        assert "PriorityClass batch version 1 added: value 10" in said
        assert "Revision 1 was made" in said
        exported = run("export", "--kind", "PriorityClass")
        assert exported == file.read_text()
        file.write_text(exported)
        again = run("apply", "--publish", str(file))
        assert "PriorityClass web is unchanged" in again
        assert "Nothing to publish: Revision 1 already has all of it" in again

    def test_the_default_moves_whichever_comes_first_in_the_file(self, file: Path) -> None:
        run("apply", "--publish", str(file))
        documents = [priority_class_document("batch", 10, globalDefault=True), priority_class_document("web", 5000)]
        file.write_text("---\n".join(manifests.to_yaml(document) for document in documents))
        run("apply", "--publish", str(file))
        assert [name for name, each in publishing.live_priority_classes().items() if each.global_default] == ["batch"]

    def test_one_that_is_refused_leaves_all_unapplied(self, file: Path) -> None:
        seen("web", 4000, managed=False)
        file.write_text(manifests.to_yaml(priority_class_document("web", 5000, adopt=True)))
        with pytest.raises(CommandError, match=r"Nothing was applied:\nweb: spec.value: is 4000 in the cluster's web"):
            run("apply", "--publish", str(file))
        assert not PriorityClass.objects.exists()

    def test_one_name_twice_is_refused(self, file: Path) -> None:
        with pytest.raises(CommandError, match="web is in these files more than once"):
            run("apply", str(file), str(file))

    def test_one_name_in_several_files_is_refused_with_each_place(self, file: Path, tmp_path: Path) -> None:
        files = [file, tmp_path / "other.yaml", tmp_path / "third.yaml"]
        for other in files[1:]:
            other.write_text("---\n" + file.read_text())
        with pytest.raises(CommandError) as caught:
            run("apply", *map(str, files))
        places = re.findall(r"(\S+):(\d+): metadata.name: web is in these files more than once", str(caught.value))
        assert [name for name, _ in places] == [str(each) for each in files]

    def test_applying_without_publishing_leaves_it_for_review(self, file: Path) -> None:
        run("apply", str(file))
        assert [edit.name for edit in publishing.edits_of(Change.objects.get())] == ["batch", "web"]
        assert not PriorityClass.objects.exists()

    def test_lint_says_what_kubernetes_would(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "x.yaml"
        path.write_text(manifests.to_yaml(priority_class_document("system-x", 2 * 10**9)))
        with pytest.raises(CommandError, match="2 faults"):
            run("lint", str(path))
        path.write_text(manifests.to_yaml(priority_class_document()))
        assert run("lint", str(path)) == "no faults\n"


@pytest.mark.django_db(transaction=True)
class TestAtOnce:
    def test_of_many_global_defaults_that_are_published_at_once_one_goes_live(self) -> None:
        changes = [opened(make_priority_class(f"c{index}", index, globalDefault=True)) for index in range(6)]
        made = at_once(
            6,
            lambda index: publishing.publish_change(
                change=changes[index], by="ops", expected_digest=changes[index].digest
            ),
        )
        assert sum(isinstance(each, Revision) for each in made) == 1
        assert all("global default" in str(each) for each in made if not isinstance(each, Revision))
        assert PriorityClass.objects.filter(global_default=True).count() == 1

    def test_publishing_and_rolling_back_at_once_leaves_no_gap_and_says_what_is_live(self) -> None:
        save()
        publish_all()

        def act(index: int) -> Any:
            if index % 2:
                return publishing.roll_back(to_number=1, by="ops", reason="")
            change = opened(make_priority_class(f"c{index}", index))
            return publishing.publish_change(change=change, by="ops", expected_digest=change.digest)

        at_once(6, act)
        assert sorted(Revision.objects.values_list("number", flat=True)) == list(range(1, Revision.objects.count() + 1))
        published = PriorityClassVersion.objects.filter(state="published").values_list("name", "number")
        assert dict(published) == {name: version for name, (version, _value) in live().items()}

    def test_one_of_many_ticks_looks(self) -> None:
        save()
        publish_all()
        server = PriorityServer()
        looked = at_once(6, lambda _index: look(server))
        assert sorted(looked) == [False] * 5 + [True]
        assert server.changes == ["POST"]
