"""Decisions on a cluster of every kind of object replay to the same answers, and are explained as they were answered."""

import os
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policies import publishing
from policies.engine.decision import CompiledRevision, decide
from policies.engine.objects.cluster_kinds import ALL_KINDS, TYPES
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from scheduler.binder.cycle import Profile
from scheduler.binder.recording import cycle_entry, shadow_entry
from scheduler.cluster.reflection import Change
from scheduler.decisions import journal
from scheduler.decisions.explaining import explain_decision
from scheduler.decisions.masking import Masks
from scheduler.decisions.reading import body_of
from scheduler.decisions.rebuilding import ReplayError
from scheduler.decisions.record import NodesEntry
from scheduler.decisions.replay import Replays
from scheduler.models import Decision
from tests.builders import make_assignment, make_node, make_pod, make_rule_set
from tests.component.decisions.test_replay import AT, Cluster
from tests.component.pages import publish_all
from tests.recording import History

pytestmark = pytest.mark.django_db

CYCLES = int(os.environ.get("RICH_CYCLES", "40"))
SEED = int(os.environ.get("RICH_SEED", "1"))
TRIALS = int(os.environ.get("RICH_TRIALS", "1"))
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
RULE_SETS: dict[str, dict[str, Any]] = {
    "disks": {
        "filters": [
            {"builtin": "NoVolumeZoneConflict"}, {"builtin": "MaxVolumeCount"}, {"builtin": "NoDiskConflict"},
            {"name": "dry", "expression": "size(node.metadata.name) > 99", "mode": "shadow"},
        ],
        "scores": [{"builtin": "ImageLocalityPriority"}, {"builtin": "MostRequestedPriority", "weight": 3}],
    },
    "around": {
        "filters": [
            {"builtin": "MatchInterPodAffinity"}, {"builtin": "EvenPodsSpread"}, {"builtin": "PodToleratesNodeTaints"},
            {"name": "few", "expression": "node.count({'app': pod.metadata.labels.app}) < params.most"},
            {"name": "kind", "expression": "pod.metadata.annotations['kind'] != node.metadata.annotations.?kind.orValue('')"},
        ],
        "scores": [
            {"builtin": "InterPodAffinityPriority"}, {"builtin": "EvenPodsSpreadPriority"}, {"builtin": "SelectorSpreadPriority"},
            {"builtin": "TaintTolerationPriority"}, {"builtin": "NodeAffinityPriority"},
            {"name": "room", "expression": "node.status.allocatable.?cpu.orValue('0') == '4' ? 7 : usage.requested.?cpu.orValue(0)"},
        ],
        "params": {"most": 2},
    },
}  # fmt: skip


@pytest.fixture
def revision() -> CompiledRevision:
    for order, (name, spec) in enumerate(RULE_SETS.items()):
        match = {"podSelector": {"matchLabels": {"policy": name}}}
        publish_all(make_rule_set(name, **spec), make_assignment(f"by-{name}", name, order=order + 10, match=match))
    publish_all(make_assignment("shadow", "around", order=1, mode="shadow", match={"namespaces": ["shop"]}))
    return CompiledRevision(publishing.current_revision())


class RichCluster(Cluster):
    """A cluster with volumes, owners, taints, images and annotations, whose kinds come and go."""

    def __init__(self, seed: int) -> None:
        self.held: dict[str, dict[str, Any]] = {kind: {} for kind in ALL_KINDS}
        self.known: set[str] = set()
        super().__init__(seed)
        for kind in sorted(ALL_KINDS):
            self.list_kind(kind)

    def list_kind(self, kind: str) -> None:
        self.known.add(kind)
        self.builder.on_objects(
            kind, [Change("added", name, each, None, "1") for name, each in self.held[kind].items()]
        )

    def one(self, *of: Any) -> Any:
        return self.random.choice(of)

    def put_node(self, name: str) -> None:
        labels = {ZONE: self.one("a", "b", "c"), "disk": self.one("ssd", "hdd")}
        spec: dict[str, Any] = {}
        if self.random.random() < 0.3:
            spec["taints"] = [
                {
                    "key": self.one("k", "l"),
                    "value": "v",
                    "effect": self.one("NoSchedule", "PreferNoSchedule", "NoExecute"),
                }
            ]
        if self.random.random() < 0.1:
            spec["unschedulable"] = True
        json = make_node(name, labels=labels, cpu=self.one("2", "4", "1500m"), **spec)
        json["metadata"]["annotations"] = {"kind": self.one("x", "y"), "n": "z" * self.random.randrange(40)}
        json["metadata"]["resourceVersion"] = str(self.random.randrange(10**6))
        json["status"]["images"] = [{"names": ["example.org/web:1"], "sizeBytes": 10**8 * self.random.randrange(1, 9)}][
            : self.random.randrange(2)
        ]
        before = self.nodes.get(name)
        node = self.nodes[name] = Node.from_json(json)
        self.builder.on_nodes([Change("modified" if before else "added", name, node, before, "1")])

    def new_pod(self, name: str, policy: str = "", **spec: Any) -> dict[str, Any]:
        labels = {"app": self.one("a", "b", "c"), "rank": self.one("1", "2"), **({"policy": policy} if policy else {})}
        if self.random.random() < 0.6:
            spec["affinity"] = self.affinity()
        if self.random.random() < 0.4:
            spec["topologySpreadConstraints"] = [self.constraint(labels["app"])]
        if self.random.random() < 0.4:
            spec["tolerations"] = [{"key": self.one("k", "l"), "operator": "Exists"}]
        if self.random.random() < 0.6:
            spec["volumes"] = [{"name": "v", **self.volume()}]
        if self.random.random() < 0.05:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "g"}]
        if self.random.random() < 0.2:
            init = {"name": "i", "restartPolicy": self.one("Always", None), "resources": {"requests": {"cpu": "350m"}}}
            spec |= {"overhead": {"cpu": "50m"}, "initContainers": [init]}
        requests = {"cpu": f"{self.random.randint(1, 6)}00m", "memory": "64Mi"}
        json = make_pod(name, labels=labels, namespace=self.one("default", "shop"), requests=requests, **spec)
        json["metadata"]["annotations"] = {"kind": self.one("x", "y"), "token": f"secret-{name}"}
        owner = {"apiVersion": "apps/v1", "kind": self.one("ReplicaSet", "StatefulSet"), "name": "o1", "uid": "u"}
        json["metadata"]["ownerReferences"] = self.one([], [owner | {"controller": True}])
        json["spec"]["containers"][0]["ports"] = self.one([], [{"hostPort": self.one(80, 81), "containerPort": 1}])
        return json

    def affinity(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for kind in ("podAffinity", "podAntiAffinity"):
            preferred = {"weight": self.random.randint(1, 100), "podAffinityTerm": self.term()}
            found[kind] = self.one(
                {},
                {"requiredDuringSchedulingIgnoredDuringExecution": [self.term()]},
                {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]},
            )
        preference = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
        preferred = {"weight": 9, "preference": preference}
        found["nodeAffinity"] = self.one({}, {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]})
        return found

    def term(self) -> dict[str, Any]:
        """Return other Pods, by their labels and namespaces, and a topology."""
        apps = {"key": "app", "operator": self.one("In", "NotIn"), "values": [self.one("a", "b")]}
        named = self.one(
            {}, {"namespaces": ["shop"]}, {"namespaceSelector": {"matchLabels": {"team": self.one("x", "y")}}}
        )
        return {"labelSelector": {"matchExpressions": [apps]}, "topologyKey": self.one(ZONE, HOST), **named}

    def constraint(self, app: str) -> dict[str, Any]:
        more = self.one(
            {}, {"nodeTaintsPolicy": "Honor"}, {"nodeAffinityPolicy": "Ignore"}, {"matchLabelKeys": ["rank"]}
        )
        counts = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": self.one(ZONE, HOST)}
        must = self.one("DoNotSchedule", "ScheduleAnyway")
        return {"maxSkew": self.one(1, 2), "whenUnsatisfiable": must, **counts, **more}

    def volume(self) -> dict[str, Any]:
        number = self.random.randrange(4)
        found: dict[str, Any] = self.one(
            {"persistentVolumeClaim": {"claimName": f"c{number}"}},
            {"ephemeral": {"volumeClaimTemplate": {}}},
            {"gcePersistentDisk": {"pdName": f"d{number}", "readOnly": self.one(True, False)}},
            {"awsElasticBlockStore": {"volumeID": f"vol-{number}"}},
        )
        return found

    def put_pod(self) -> None:
        super().put_pod()
        if self.random.random() < 0.5:  # as the live watch keeps it
            uid, pod = next(reversed(self.pods.items()))
            slim = Pod.counting(pod.parsed)
            self.pods[uid] = slim
            self.builder.on_pods([Change("modified", uid, slim, pod, "2")])

    def put_object(self) -> None:
        kind = self.one(*sorted(ALL_KINDS))
        number = self.random.randrange(4)
        labels = {"app": self.one("a", "b", "c")}
        space = {"namespace": self.one("default", "shop")}
        node = self.one(*self.nodes)
        meta, spec, more = {
            "persistentvolumeclaims": ({"name": f"c{number}", **space, "annotations": self.one({}, {"pv.kubernetes.io/bind-completed": "yes"})},
                {"volumeName": f"v{self.random.randrange(4)}", "accessModes": [self.one("ReadWriteOnce", "ReadWriteOncePod")], "storageClassName": "s1"},
                {"status": {"phase": self.one("Bound", "Bound", "Lost")}}),
            "persistentvolumes": ({"name": f"v{number}", "labels": self.one({}, {ZONE: self.one("a", "b", "a__b")})},
                {**self.one({}, {"csi": {"driver": "csi.x", "volumeHandle": f"h{number}"}}, {"gcePersistentDisk": {"pdName": f"d{number}"}}),
                 **self.one({}, {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]}}})}, {}),
            "storageclasses": ({"name": f"s{number}"}, None, {"provisioner": "csi.x", "volumeBindingMode": self.one("Immediate", "WaitForFirstConsumer")}),
            "csinodes": ({"name": node, "annotations": self.one({}, {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/gce-pd"})},
                {"drivers": [{"name": self.one("csi.x", "pd.csi.storage.gke.io"), "allocatable": {"count": self.one(0, 1, 2)}}]}, {}),
            "volumeattachments": ({"name": f"a{number}"}, {"attacher": "csi.x", "nodeName": node, "source": {"persistentVolumeName": f"v{number}"}}, {}),
            "services": ({"name": f"o{number}", **space}, {"selector": labels}, {}),
            "replicationcontrollers": ({"name": f"o{number}", **space}, {"selector": labels}, {}),
            "replicasets": ({"name": f"o{number}", **space}, {"selector": {"matchLabels": labels}}, {}),
            "statefulsets": ({"name": f"o{number}", **space}, {"selector": {"matchLabels": labels}}, {}),
            "poddisruptionbudgets": ({"name": f"o{number}", **space}, {"selector": {"matchLabels": labels}}, {"status": {"disruptionsAllowed": self.one(0, 1)}}),
        }[kind]  # fmt: skip
        key = f"{meta.get('namespace', '')}/{meta['name']}"
        made = msgspec.convert({"metadata": meta, **({"spec": spec} if spec else {}), **more}, TYPES[kind])
        before = self.held[kind].get(key)
        if before is not None and self.random.random() < 0.3:
            del self.held[kind][key]
            change = Change("deleted", key, before, before, "1")
        else:
            self.held[kind][key] = made
            change = Change("modified" if before else "added", key, made, before, "1")
        if kind in self.known:
            self.builder.on_objects(kind, [change])

    def change(self) -> None:
        match self.random.randrange(20):
            case 0:
                kind = self.one(*sorted(ALL_KINDS))
                if kind in self.known:
                    self.known.discard(kind)
                    self.builder.give_up(kind)
                else:
                    self.list_kind(kind)
            case 1:
                for kind in sorted(ALL_KINDS - self.known):
                    self.list_kind(kind)
            case 2:
                kind = self.one(*sorted(self.known))
                self.builder.give_up(kind)
                self.list_kind(kind)
            case number if number < 12:
                for _ in range(3):
                    self.put_object()
            case 13 if self.pods:  # a Pod changes where it is
                uid = self.one(*self.pods)
                pod = self.pods[uid]
                parsed = msgspec.structs.replace(
                    pod.parsed,
                    metadata=msgspec.structs.replace(pod.parsed.metadata, labels={"app": self.one("a", "b")}),
                )
                new = Pod.counting(parsed)
                self.pods[uid] = new
                self.builder.on_pods([Change("modified", uid, new, pod, "3")])
            case _:
                super().change()

    def live(self) -> Snapshot:
        return self.builder.build()


def fill(history: History, cluster: RichCluster, revision: CompiledRevision) -> None:
    book, last, waiting = Profile(revision), "", []
    draw = cluster.random
    for number in range(CYCLES):
        for _ in range(draw.randrange(4)):
            cluster.change()
        policy = draw.choice(["", *RULE_SETS])
        if draw.random() < 0.5:
            ask_once(history, cluster, revision, number, policy)
        snapshot = cluster.live()
        if draw.random() < 0.4:
            nominated = [
                Pod.from_json(cluster.new_pod(f"nominated-{number}-{each}", priority=draw.randrange(9)))
                for each in range(draw.randint(1, 2))
            ]
            names = draw.sample(list(cluster.nodes), len(nominated))
            snapshot = snapshot.changed({}, nominated={name: [pod] for name, pod in zip(names, nominated, strict=True)})
        rows = snapshot.table.all_rows()
        if draw.random() < 0.3:
            rows = rows[1::2]
        pod = Pod.from_json(cluster.new_pod(f"asked-{number}", policy=policy, priority=number % 7))
        placement = book.place(pod, snapshot, rows, now=AT + timedelta(seconds=number), after=last)
        last = placement.node
        if placement.row >= 0 and draw.random() < 0.5:
            cluster.builder.assume(pod, placement.node)
        entry = cycle_entry(placement, 0.001, {"node": placement.node})
        history.recorder.record(entry)
        waiting += [partial(shadow_entry, placement, *found, entry.id) for found in placement.shadows]
        while len(waiting) > draw.randrange(4):
            history.recorder.record(waiting.pop(0)(lambda: None))
        if number % 20 == 0:
            history.settle()
    history.settle()


def ask_once(history: History, cluster: RichCluster, revision: CompiledRevision, number: int, policy: str) -> None:
    draw = cluster.random
    pod = Pod.from_json(cluster.new_pod(f"sent-{number}", policy=policy))
    snapshot = cluster.snapshot()
    names = draw.sample(list(snapshot.nodes), draw.randint(1, len(snapshot.nodes)))
    now = AT + timedelta(seconds=number, microseconds=number)
    assumed = [
        (Pod.from_json(cluster.new_pod(f"promised-{number}-{each}")), draw.choice(list(snapshot.nodes)))
        for each in range(draw.randrange(3))
    ]
    seen = snapshot.assume_all(assumed)
    verb = draw.choice(["filter", "prioritize"])
    choice = revision.choose(pod, snapshot, now)
    common: dict[str, Any] = {
        "verb": verb,
        "pod": pod,
        "now": now,
        "revision": revision,
        "snapshot": snapshot,
        "names": names,
        "assumed": assumed,
        "draws": choice.draws,
    }
    for mode, found in [("shadow", each) for each in choice.shadows] + (
        [("enforce", choice.enforced)] if choice.enforced else []
    ):
        assignment, rule_set = found
        rule_set = rule_set if mode == "shadow" else rule_set.enforced
        rows = seen.table.rows(names)
        answer = decide(
            rule_set,
            Cycle(pod=pod, snapshot=seen, now=now, params=rule_set.params),
            rows[rows >= 0],
            scoring=verb == "prioritize",
            filtering=verb == "filter",
        )
        history.recorder.record(
            NodesEntry(**common, mode=mode, assignment=assignment, rule_set=rule_set, rows=rows, answer=answer)
        )


def unlike(row: Decision) -> list[str]:
    """Return where an explanation says something else than the answer."""
    body, found = body_of(row), []
    names = body["nodes"]
    for at, name in enumerate(names):
        report = explain_decision(row, name)
        told = report.get("node")
        if told is None:
            found.append(f"{name}: nothing is said: {report.get('nodeFault')}")
            continue
        said = {}
        for each in told["rules"]:
            said.setdefault((each["kind"], each["rule"]), []).append(each)
        refused = False
        for column in body["filters"]:
            code = column["verdicts"][at]
            rules = said.get(("filter", column["rule"]), [])
            if code == -2:
                continue
            wanted = (
                ("Success", "")
                if code == -1
                else (column["statuses"][code]["code"], column["statuses"][code]["reason"])
            )
            refused |= code >= 0 and column["mode"] == "enforce"
            if wanted not in [(each["code"], each.get("reason", "")) for each in rules]:
                found.append(
                    f"{name}: filter {column['rule']} said {wanted}, explained {[(each['code'], each.get('reason')) for each in rules]}"
                )
        for column in body["scores"]:
            raw = column["raw"][at]
            explained = [each.get("raw") for each in said.get(("score", column["rule"]), [{}])]
            if raw is not None and explained != [raw]:
                found.append(f"{name}: score {column['rule']} gave {raw}, explained {explained}")
        if row.verb != "prioritize" and told["feasible"] is refused:
            found.append(f"{name}: feasible {told['feasible']}, refused {refused}")
    return found


@pytest.mark.parametrize("seed", range(SEED, SEED + TRIALS))
def test_what_is_decided_on_a_rich_cluster_replays_and_is_explained_as_it_was(
    tmp_path: Path, revision: CompiledRevision, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(journal, "SHORTEST_CHAIN_BYTES", 20_000)
    history, cluster = History(tmp_path / "spool"), RichCluster(seed)
    fill(history, cluster, revision)
    replays, rows = Replays(), list(Decision.objects.order_by("sequence"))
    assert {row.sequence: found for row in rows if (found := replays.replay(row).differences)} == {}
    sampled = rows if os.environ.get("RICH_ALL") else cluster.random.sample(rows, 20)
    assert {
        (row.sequence, row.verb, row.mode, row.rule_set): found
        for row in sampled
        if row.names_number and row.rule_set and (found := unlike(row))
    } == {}


@pytest.mark.parametrize("seed", range(SEED, SEED + TRIALS))
def test_what_is_masked_is_never_called_different(tmp_path: Path, revision: CompiledRevision, seed: int) -> None:
    masks = Masks(
        annotations=["token", "kind"] if seed % 2 else ["token"], labels=["disk"] if seed % 3 == 0 else [], env=["*"]
    )
    history, cluster = History(tmp_path / "spool", masks=masks), RichCluster(seed)
    fill(history, cluster, revision)
    replays, different = Replays(), {}
    for row in Decision.objects.order_by("sequence"):
        try:
            found = replays.replay(row).differences
        except ReplayError as error:
            found = [] if "masked before it was stored" in str(error) else [str(error)]
        if found:
            different[row.sequence] = found
    assert different == {}
