"""What is masked stands nowhere in the history; a record says what was, and a replay where that may have mattered."""

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.apps import apps
from django.core.management import CommandError, call_command

from policies import publishing
from policies.engine.decision import CompiledRevision, CompiledRuleSet, decide
from policies.engine.objects.cluster_kinds import CLAIMS, CSI_NODES, REPLICA_SETS, SERVICES, TYPES
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.namespace import Namespace
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod, PodObject
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.narrowing import narrowing
from policies.engine.rule import Cycle
from policies.engine.ruleset import Assignment
from policies.engine.scores.node_labels import AVOID_PODS
from scheduler.cluster.building import SnapshotBuilder
from scheduler.cluster.reflection import Change
from scheduler.decisions.candidates import (
    SentCandidate,
    SentVictim,
    candidates_on,
    notes_of_candidates,
    notes_of_narrowing,
)
from scheduler.decisions.masking import FAULT, MASKED, Masks, is_same_but_masked
from scheduler.decisions.reading import body_of
from scheduler.decisions.rebuilding import ReplayError
from scheduler.decisions.record import Entry, NodesEntry, SnapshotEntry, decompress
from scheduler.decisions.replay import replay
from scheduler.models import Decision
from tests.builders import make_assignment, make_node, make_pod, make_rule_set
from tests.component.pages import publish_all
from tests.recording import History

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 1, tzinfo=UTC)
MASKS = Masks(env=["*"], annotations=["*token*"], labels=["secret/*"])
# Of each, all that is masked somewhere below.
SECRETS = ("env-hunter2", "annotation-hunter2", "label-hunter2")
NAMED = {"example.org/token": "annotation-hunter2", "example.org/kind": "plain"}
LABELLED = {"secret/who": "label-hunter2", "app": "web"}

RULE_SETS: dict[str, dict[str, Any]] = {
    "none": {"filters": [{"builtin": "PodFitsResources"}]},
    "env": {
        "filters": [
            {"name": "env", "expression": "!pod.spec.containers.exists(c, c.?env.orValue([]).exists(e, e.?value.orValue('') == 'env-hunter2'))"}
        ]
    },
    "annotation": {
        "filters": [
            {"name": "annotation", "expression": "pod.metadata.annotations['example.org/token'] != 'annotation-hunter2'"}
        ]
    },
    "fault": {
        "filters": [{"name": "fault", "expression": "params.of[pod.metadata.annotations['example.org/token']] == 'x'"}],
        "params": {"of": {"a": "x"}},
        "victims": [{"name": "spared", "expression": "victim.metadata.annotations['example.org/token'] == 'x'"}],
    },
}  # fmt: skip


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path / "spool", masks=MASKS)
    yield made
    made.spool.close()


def secret_pod(name: str, policy: str = "none") -> dict[str, Any]:
    """A Pod that has a secret wherever one can stand; `masked` of it is only what is masked."""
    pod = make_pod(name, labels={**LABELLED, "policy": policy}, uid=f"uid-{name}")
    pod["metadata"]["annotations"] = NAMED
    env = [
        {"name": "PASSWORD", "value": "env-hunter2"},
        {"name": "PLACE", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
    ]
    pod["spec"]["containers"][0]["env"] = env
    pod["spec"]["initContainers"] = [{"name": "init", "env": env[:1]}]
    claim = {"metadata": {"annotations": NAMED, "labels": LABELLED}}
    pod["spec"]["volumes"] = [{"name": "v", "ephemeral": {"volumeClaimTemplate": claim}}]
    pod["spec"]["nodeSelector"] = {"secret/who": "label-hunter2"}
    terms = [{"matchExpressions": [{"key": "secret/who", "operator": "In", "values": ["label-hunter2"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod["spec"]["affinity"] = {"nodeAffinity": required}
    return pod


def cluster() -> tuple[SnapshotBuilder, ClusterObjects]:
    builder = SnapshotBuilder()
    for name in ("n0", "n1"):
        put_node(builder, name, "1")
    placed = Pod(msgspec.convert(secret_pod("placed") | {"status": {"phase": "Running"}}, PodObject))
    placed = Pod.counting(
        msgspec.structs.replace(placed.parsed, spec=msgspec.structs.replace(placed.spec, node_name="n0"))
    )
    builder.on_pods([Change("added", placed.uid, placed, None, "1")])
    namespace = msgspec.convert({"metadata": {"name": "default", "labels": LABELLED}}, Namespace)
    builder.on_namespaces([Change("added", "default", namespace, None, "1")])
    claim = {"metadata": {"name": "c", "annotations": {"volume.beta.kubernetes.io/storage-class": "fast"}}}
    owner = {"metadata": {"name": "r"}, "spec": {"selector": {"matchLabels": LABELLED}}}
    service = {"metadata": {"name": "s"}, "spec": {"selector": LABELLED}}
    sent = {CLAIMS: claim, REPLICA_SETS: owner, SERVICES: service}
    typed = {kind: [(None, msgspec.convert(json, TYPES[kind]))] for kind, json in sent.items()}
    return builder, ClusterObjects.unknown().changed(typed, known=frozenset(sent))  # type: ignore[arg-type]


def put_node(builder: SnapshotBuilder, name: str, version: str) -> None:
    node = make_node(name, labels=LABELLED)
    node["metadata"] |= {"annotations": NAMED, "resourceVersion": version}
    builder.on_nodes([Change("added", name, Node.from_text(msgspec.json.encode(node)), None, version)])


class Asked:
    """Decisions about Pods that have secrets, on a cluster that has them."""

    def __init__(self, history: History) -> None:
        self.history = history
        for order, (name, spec) in enumerate(RULE_SETS.items()):
            match = {"podSelector": {"matchLabels": {"policy": name}}}
            publish_all(make_rule_set(name, **spec), make_assignment(f"by-{name}", name, order=order, match=match))
        self.revision = CompiledRevision(publishing.current_revision())
        self.builder, self.objects = cluster()

    def snapshot(self) -> Snapshot:
        return self.builder.build().changed({}, objects=self.objects)

    def filter(self, policy: str, snapshot: Snapshot | None = None) -> Decision:
        json = secret_pod(f"asked-{policy}", policy)
        pod, snapshot = Pod.from_json(json), snapshot or self.snapshot()
        assignment, rule_set = self._choice(pod, snapshot)
        cycle = Cycle(pod=pod, snapshot=snapshot, now=AT, params=rule_set.params)
        entry = NodesEntry(
            verb="filter", pod=pod, pod_json=msgspec.json.encode(json), now=AT, revision=self.revision,
            assignment=assignment, rule_set=rule_set, snapshot=snapshot, names=list(snapshot.nodes),
            answer=decide(rule_set, cycle, snapshot.table.all_rows(), scoring=False),
            assumed=[(Pod.from_json(secret_pod("assumed")), "n1")],
        )  # fmt: skip
        return self.record(entry)

    def preempt(self, policy: str) -> Decision:
        pod, snapshot = Pod.from_json(secret_pod("strong", policy)), self.snapshot()
        assignment, rule_set = self._choice(pod, snapshot)
        whole = json.dumps(secret_pod("sent"))
        sent = [SentCandidate("n0", [SentVictim("uid-placed")]), SentCandidate("n1", [SentVictim("uid-sent", whole)])]
        found = narrowing(rule_set, pod, snapshot, candidates_on(snapshot, sent), AT)
        assert "annotation-hunter2" in str(found.vetoes)
        entry = SnapshotEntry(
            verb="preempt", pod=pod, now=AT, revision=self.revision, assignment=assignment, rule_set=rule_set,
            notes=notes_of_narrowing(found) | notes_of_candidates(sent), nodes=2, feasible=len(found.kept),
            top_reason=found.top_reason, snapshot=snapshot,
        )  # fmt: skip
        return self.record(entry)

    def record(self, entry: Entry) -> Decision:
        self.history.recorder.record(entry)
        self.history.settle()
        return Decision.objects.get(pk=entry.id)

    def _choice(self, pod: Pod, snapshot: Snapshot) -> tuple[Assignment, CompiledRuleSet]:
        choice = self.revision.choose(pod, snapshot, AT).enforced
        assert choice is not None
        return choice


def stored() -> bytes:
    """All that the database has of scheduling; what is compressed, as it was."""
    found = []
    for model in apps.get_app_config("scheduler").get_models():
        for row in model.objects.values():
            for value in row.values():
                if not isinstance(value, bytes | memoryview):
                    found.append(repr(value).encode())
                    continue
                data = bytes(value)
                found += [data, *(_unpacked(data[skipped:]) for skipped in (0, 1))]
    return b"\n".join(found)


def _unpacked(data: bytes) -> bytes:
    try:
        return decompress(data)
    except ValueError:
        return b""


def found_in(data: bytes) -> set[str]:
    return {secret for secret in SECRETS if secret.encode() in data}


def in_spool(folder: Path, monkeypatch: pytest.MonkeyPatch, masks: Masks) -> bytes:
    """What is on disk of Decisions and Snapshots, the bases uncompressed."""
    from scheduler.decisions import journal

    class AsItIs:
        def compress(self, data: bytes) -> bytes:
            return data

    monkeypatch.setattr(journal, "make_compressor", AsItIs)
    history = History(folder, masks=masks)
    asked = Asked(history)
    for change in range(2):
        snapshot = asked.snapshot()
        pod = Pod.from_json(secret_pod("asked"))
        history.recorder.record(NodesEntry(verb="filter", pod=pod, now=AT, snapshot=snapshot, names=["n0"]))
        cycle = Cycle(pod=pod, snapshot=snapshot, now=AT)
        rule_set = asked.revision.rule_sets["none"]
        answer = decide(rule_set, cycle, snapshot.table.all_rows(), scoring=False)
        names = list(snapshot.nodes)
        history.recorder.record(
            NodesEntry(verb="filter", pod=pod, now=AT, snapshot=snapshot, names=names, answer=answer)
        )
        put_node(asked.builder, "n1", str(change + 2))
    history.recorder._journal.join(60)
    data = b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    history.spool.close()
    return data


def test_a_secret_is_nowhere_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_in(in_spool(tmp_path / "spool", monkeypatch, MASKS)) == set()


def test_without_masks_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_in(in_spool(tmp_path / "spool", monkeypatch, Masks())) == set(SECRETS)


def test_a_secret_is_nowhere_in_the_database(history: History) -> None:
    asked = Asked(history)
    for policy in RULE_SETS:
        asked.filter(policy)
        put_node(asked.builder, "n1", policy)
    asked.preempt("fault")
    data = stored()
    assert found_in(data) == set()
    assert b"uid-placed" in data  # of a Snapshot
    assert b"uid-assumed" in data  # of a record


def test_a_record_says_what_was_masked(history: History) -> None:
    body = body_of(Asked(history).filter("none"))
    assert body["notes"]["masked"] == ["annotation example.org/token", "env PASSWORD", "label secret/who"]
    pod = body["pod"]
    assert pod["metadata"]["annotations"] == {"example.org/token": MASKED, "example.org/kind": "plain"}
    variables = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
    assert variables == {"PASSWORD": MASKED, "PLACE": None}


def test_what_was_masked_and_is_read_by_no_rule_is_no_hindrance_to_a_replay(history: History) -> None:
    assert replay(Asked(history).filter("none")).ok


@pytest.mark.parametrize(("policy", "named"), [("env", "env PASSWORD"), ("annotation", "annotation example.org/token")])
def test_a_replay_names_what_was_masked_where_it_may_have_mattered(history: History, policy: str, named: str) -> None:
    row = Asked(history).filter(policy)
    with pytest.raises(CommandError, match=r"not replayable: masked before it was stored: .*" + named):
        call_command("replay", str(row.pk), stdout=io.StringIO())


def test_a_replay_names_a_masked_annotation_that_a_built_in_read(tmp_path: Path) -> None:
    history = History(tmp_path / "spool", masks=Masks(annotations=["*"]))
    publish_all(make_rule_set("avoid", scores=[{"builtin": "NodePreferAvoidPods", "weight": 1}]))
    owner = {"kind": "ReplicaSet", "uid": "rs-1", "controller": True}
    avoided = {"preferAvoidPods": [{"podSignature": {"podController": owner}}]}
    nodes = [make_node("n0"), make_node("n1")]
    nodes[0]["metadata"]["annotations"] = {AVOID_PODS: json.dumps(avoided)}
    asked = make_pod("asked")
    asked["metadata"]["ownerReferences"] = [owner]
    pod, snapshot = Pod.from_json(asked), Snapshot.of(Node.from_text(msgspec.json.encode(each)) for each in nodes)
    revision = CompiledRevision(publishing.current_revision())
    rule_set = revision.rule_sets["avoid"]
    entry = NodesEntry(
        verb="prioritize", pod=pod, now=AT, revision=revision, assignment=Assignment(name="a", rule_set="avoid"),
        rule_set=rule_set, snapshot=snapshot, names=["n0", "n1"],
        answer=decide(rule_set, Cycle(pod=pod, snapshot=snapshot, now=AT), snapshot.table.all_rows(), filtering=False),
    )  # fmt: skip
    history.recorder.record(entry)
    history.settle()
    row = Decision.objects.get(pk=entry.id)
    history.spool.close()
    with pytest.raises(ReplayError, match=rf"masked before it was stored: annotation {AVOID_PODS}"):
        replay(row)


def test_a_replay_that_differs_for_another_reason_still_says_so(tmp_path: Path) -> None:
    history = History(tmp_path / "spool", masks=Masks(env=["*"]))
    row = Asked(history).filter("none")
    history.spool.close()
    Decision.objects.filter(pk=row.pk).update(feasible=1)
    found = replay(Decision.objects.get(pk=row.pk))
    assert found.differences == ["feasible was 1 and is 2"]


def test_a_fault_of_a_rule_that_reads_what_is_masked_says_only_on_how_many_nodes(history: History) -> None:
    row = Asked(history).filter("fault")
    assert body_of(row)["filters"][0]["faults"] == [{"message": FAULT, "nodes": 2}]
    assert replay(row).ok


def test_what_rules_read_of_victims_is_masked_and_the_preemption_replays(history: History) -> None:
    row = Asked(history).preempt("fault")
    (veto, _) = body_of(row)["notes"]["vetoes"]
    assert veto["seen"] == {"victim.metadata.annotations['example.org/token']": MASKED}
    assert f'= "{MASKED}"; it has to be true' in veto["sentence"]
    assert replay(row).ok


@pytest.mark.parametrize(
    ("masks", "reached"),
    [
        pytest.param(Masks(env=["*"]), {"", "spec", "spec.containers"}, id="env"),
        pytest.param(
            Masks(annotations=["token"]),
            {"", "metadata", "metadata.annotations", "metadata.annotations.token", "spec", "spec.volumes"},
            id="annotations, which templates of claims have too",
        ),
        pytest.param(
            Masks(labels=["secret"]),
            {"", "metadata", "metadata.labels", "metadata.labels.secret"}
            | {"spec", "spec.containers", "spec.nodeName", "spec.volumes"},
            id="labels, which selectors anywhere name",
        ),
        pytest.param(Masks(), set(), id="nothing"),
    ],
)
def test_an_expression_reads_what_may_be_masked_where_such_a_name_may_stand(masks: Masks, reached: set[str]) -> None:
    assert {path for path in PATHS if masks.reaches(tuple(path.split(".")) if path else ())} == reached


PATHS = (
    "", "status", "metadata", "metadata.name", "metadata.annotations", "metadata.annotations.token",
    "metadata.annotations.plain", "metadata.labels", "metadata.labels.secret", "metadata.labels.app", "spec",
    "spec.containers", "spec.nodeName", "spec.volumes",
)  # fmt: skip


def test_names_are_compared_without_regard_to_case_and_by_their_begin_or_end() -> None:
    masks = Masks(env=["db_*", "*PASSWORD", "*token*", "exact"])
    json = {"spec": {"containers": [{"env": [{"name": name, "value": "v"} for name in NAMES]}]}}
    found: set[str] = set()
    masks.json(json, found)
    assert found == {"env DB_HOST", "env MyPassword", "env a-Token-b", "env Exact"}


NAMES = ("DB_HOST", "A_DB_HOST", "MyPassword", "PASSWORDS", "a-Token-b", "Exact", "exactly")


def test_an_object_without_anything_masked_stays_as_it_came() -> None:
    pod, node = make_pod(), msgspec.json.encode(make_node())
    masks = Masks(env=["*"], annotations=["*"])
    found: set[str] = set()
    assert masks.json(pod, found) is pod
    assert masks.text(node, found) is node
    assert found == set()


@pytest.mark.parametrize(
    "twice",
    [
        b'{"metadata":{"annotations":{"a-token":"hunter2"}},"metadata":{"name":"a"}}',
        b'{"metadata":{"annotations":{"a-token":"hunter2"},"\\u0061nnotations":{"open":"w"}}}',
        b'{"metadata":{"annotations" : {"a-token":"hunter2","a-toke\\u006e":null}}}',
        b'{"metadata":{},"spec":{"containers":[{"env":[{"name":"A","value":"hunter2"}],"env":[]}]}}',
        b'{"metadata":{},"spec":{"containers":[{"env":[{"name":"A","value":"hunter2", "value":""}]}]}}',
        b'{"metadata":{},"spec":{"containers":[{"env":[{"name":"A","value":"hunter2"}]}],"containers":[]}}',
    ],
)
def test_the_first_value_of_a_member_that_was_sent_twice_is_not_recorded(twice: bytes) -> None:
    victims = {"candidates": [{"victims": [{"uid": "u", "json": twice.decode()}]}]}
    decoded = msgspec.json.decode(twice)
    text, _ = MASKS.pod_text(Pod.from_json(decoded), twice)
    ((candidate,),) = MASKS.notes(victims, None, set()).values()
    for written in (text.decode(), candidate["victims"][0]["json"]):
        assert "hunter2" not in written
        assert json.loads(written) == decoded


@pytest.mark.parametrize(
    ("kind", "annotations"),
    [
        (CLAIMS, {"pv.kubernetes.io/bind-completed": "yes"}),
        (CLAIMS, {"volume.beta.kubernetes.io/storage-class": "fast"}),
        (CLAIMS, {"example.org/token": "x"}),
        (CSI_NODES, {"example.org/token": "x"}),
    ],
)
def test_an_annotation_that_is_not_there_is_not_masked(kind: str, annotations: dict[str, str]) -> None:
    made = msgspec.convert({"metadata": {"name": "c", "annotations": annotations}}, TYPES[kind])
    found: set[str] = set()
    written = msgspec.json.decode(msgspec.json.encode(Masks(annotations=["*"]).typed(made, found)))
    held = {name: value for name, value in written["metadata"]["annotations"].items() if value is not None}
    read = {name for name in annotations if name != "example.org/token"}  # other annotations aren't kept
    assert held == dict.fromkeys(read, MASKED)
    assert found == {f"annotation {name}" for name in read}


@pytest.mark.parametrize(("kind", "member"), [("annotation", "annotations"), ("label", "labels")])
def test_one_kind_of_names_is_masked_in_a_nodes_text_without_the_other(kind: str, member: str) -> None:
    named = {"secret/key": "v", "open": "w"}
    node = make_node()
    node["metadata"] |= {"annotations": named, "labels": named}
    found: set[str] = set()
    written = msgspec.json.decode(Masks(**{member: ["secret/*"]}).text(msgspec.json.encode(node), found))
    assert found == {f"{kind} secret/key"}
    assert written["metadata"][member] == {"secret/key": MASKED, "open": "w"}
    node["metadata"][member] = written["metadata"][member]
    assert written == node


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"env": {"name": "A", "value": "x"}}]},
        {"containers": ["no container", {"env": ["no variable", {"value": "x"}, {"name": 7, "value": "x"}]}]},
        {"containers": "no list", "affinity": [[[[{"nodeSelector": "no map"}]]]]},
        {"volumes": ["no volume", {"ephemeral": "none"}, {"ephemeral": {"volumeClaimTemplate": []}}]},
        {"volumes": [{"ephemeral": {"volumeClaimTemplate": {"metadata": "none"}}}, {"ephemeral": None}]},
    ],
)
def test_what_is_not_of_kubernetes_shape_stops_nobody(spec: dict[str, Any]) -> None:
    found: set[str] = set()
    masked = MASKS.json({"metadata": "no object", "spec": spec}, found)
    assert set(masked) == {"metadata", "spec"}


@pytest.mark.parametrize("wrap", [lambda deep: [deep], lambda deep: {"a": deep}], ids=["lists", "objects"])
def test_what_is_nested_without_end_is_cut_off_rather_than_followed(wrap: Callable[[Any], Any]) -> None:
    deep: Any = "bottom"
    for _ in range(5_000):
        deep = wrap(deep)
    masked = MASKS.json({"spec": {"affinity": deep}}, set())
    assert MASKED in str(masked)


VETO: dict[str, Any] = {"rule": "keep", "seen": {"pod.metadata.name": "a"}, "sentence": "it is a", "fault": ""}
UNSEEN = VETO | {"seen": {"pod.metadata.name": MASKED}, "sentence": "it is masked"}


@pytest.mark.parametrize(
    ("now", "then", "is_same"),
    [
        ([VETO], [VETO], True),
        ([VETO], [VETO | {"sentence": "it is b", "seen": {"pod.metadata.name": "b"}}], False),
        ([VETO], [UNSEEN], True),
        ([VETO | {"fault": "no such key: b"}], [VETO | {"fault": FAULT}], True),
        ([VETO | {"rule": "other"}], [UNSEEN], False),
        ([VETO, VETO], [UNSEEN], False),
        ([VETO], ["no object"], False),
        ([VETO], None, False),
    ],
    ids=["same", "another value", "a masked value", "a masked fault", "another rule", "one more", "no objects", "none"],
)
def test_what_is_said_of_candidates_may_differ_in_what_was_masked_alone(now: Any, then: Any, is_same: bool) -> None:
    assert is_same_but_masked(now, then) is is_same
