"""Scenarios: where Pods of a template would land, by the live rules and by those of a Change, side by side."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from django.conf import settings
from django.core.exceptions import ValidationError

from policies import publishing
from policies.engine.assignments import DEFAULT_SCHEDULER
from policies.engine.decision import CompiledRevision
from policies.engine.errors import DeadlineError, ExpressionError, ObjectError
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import go_on
from policies.engine.scenario import Placed, place_pods
from policies.engine.scheduling import default_profile
from policies.models import Change
from policies.publishing import PublishingError
from policies.wording import counted
from scheduler.cluster.bind import is_name
from scheduler.cluster.building import SnapshotBuilder
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError
from scheduler.cluster.kinds import NAMESPACES, NODES, OBJECTS, PODS
from scheduler.cluster.listing import T, list_all
from scheduler.cluster.reflection import Change as Seen
from scheduler.decisions.replay import ReplayError, recorded_body_of, snapshot_of
from scheduler.decisions.time_limit import TimeLimit
from scheduler.models import BinderState, Decision

logger = logging.getLogger("berth.scenario")

_ASK_SECONDS = 5.0
_DEPLOYMENT_REVISION = "deployment.kubernetes.io/revision"
_LONGEST_NUMBER = 19
# Pods without a node.
_WAITING = {"fieldSelector": "spec.nodeName=,status.phase=Pending"}
MOST_PODS = 5000
# A scheduler without heartbeat for this long has ended, and the next one begins with the first node.
_SILENT = timedelta(seconds=60)
# The most of the newest Decisions that are searched for one that allowed a node.
_LOOKED_THROUGH = 1000
# The time limit of a scenario for a page and REST.
SECONDS = 60.0
_TEMPLATED = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "DaemonSet", "Job")
_HASH = "pod-template-hash"
# The API server's defaults for members that a spec omits.
_SET: Mapping[str, Any] = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "restartPolicy": "Always",
    "schedulerName": DEFAULT_SCHEDULER,
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_HUGE_PAGES = "hugepages-"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED, _TERM = "preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm"

NOT_MODELLED = (
    "Preemption, other schedulers, the claims that a StatefulSet makes for its Pods, and what changes meanwhile aren't in it; nor is "
    "what admission adds to a Pod besides requests made of limits, ports of the host's network, and keys of labels in affinity"
)


class ScenarioError(Exception):
    """The scenario can't be computed; the message says why, and what to do."""


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """The template of Pods: the JSON of one, and a prefix for names. `running` of them have a node already.

    With `is_pod` it is for a single Pod under its own name, which rules may read.
    """

    name: str
    pod: Mapping[str, Any]
    running: int = 0
    is_pod: bool = False

    def pods(self, number: int) -> list[Pod]:
        """Make this many Pods.

        Raises:
            ScenarioError: they would be no valid Pods.
        """
        try:
            pods = [Pod.from_json(self._json(index, number)) for index in range(1, number + 1)]
        except ObjectError as error:
            message = f"the template makes no Pod: {error}"
            raise ScenarioError(message) from error
        # The API server refuses negative requests; counted, they would make room on a node.
        for name, amount in pods[0].requests.amounts.items() if pods else ():
            if amount < 0:
                message = f"the template makes no Pod: it requests less than nothing of {name}"
                raise ScenarioError(message)
        return pods

    def _json(self, index: int, number: int) -> dict[str, Any]:
        numbered = f"{self.name}-scenario-{index}"
        name = self.name if self.is_pod and number == 1 else numbered
        metadata = {**self.pod["metadata"], "name": name, "uid": numbered}
        return {**self.pod, "metadata": metadata}


class Scenario(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Where the Pods land by the live rules, and by those of a Change; None without a Change.

    `unknown` are the kinds of objects that rules read, and that a recorded Snapshot lacks.
    """

    pods: int
    running: int
    snapshot_at: datetime
    revision: int
    live: Placed
    change: int | None = None
    drafted: Placed | None = None
    unknown: list[str] = []

    @property
    def sentences(self) -> list[str]:
        """The findings, for people."""
        sides = [("what is live", self.live)]
        if self.drafted is not None:
            sides.append((f"Change {self.change}", self.drafted))
        said = [says for name, placed in sides for says in _sentences(name, placed)]
        if self.unknown:
            said.append(f"What rules read of {', '.join(self.unknown)} was not recorded: by that they refuse no node")
        return said


def _sentences(name: str, placed: Placed) -> list[str]:
    said = [
        f"By {name} ({_by(placed)}), {placed.fits:,} of {placed.asked:,} fit, on {counted(len(placed.nodes), 'node')}"
    ]
    if placed.stop is not None:
        refusals = ", ".join(
            f"{counted(each.nodes, 'node')} by {each.rule} ({each.reason})" for each in placed.stop.refusals
        )
        said.append(f"The {_th(placed.stop.pod)} gets none: {refusals or placed.stop.sentence}")
        if refusals:
            said.append(placed.stop.sentence.removesuffix("."))
    return said


def _by(placed: Placed) -> str:
    """Return the rule set that decides; if there are several, how many Pods each decides."""
    names = {name: f"rule set {name}" if name else "the default set" for name in placed.decided}
    if len(names) == 1:
        return names[placed.rule_set]
    each = ", ".join(f"{counted(number, 'Pod')} by {names[name]}" for name, number in placed.decided.items())
    return f"{each}: a canary draws for each Pod"


def _th(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    ending = "th" if 10 <= number % 100 <= 20 else endings.get(number % 10, "th")  # noqa: PLR2004 - 11th to 13th
    return f"{number:,}{ending}"


def template_of(document: object) -> Template:
    """Return the template in a manifest: of a Pod, or of a workload.

    Raises:
        ScenarioError: there is none.
    """
    if not isinstance(document, dict):
        message = "the manifest is no object: give a Pod, or a Deployment"
        raise ScenarioError(message)
    kind = document.get("kind", "Pod")
    metadata = _member(document, "metadata")
    namespace = str(metadata.get("namespace") or "default")
    if kind == "Pod":
        made = _template(str(metadata.get("name") or "pod"), namespace, document)
        return msgspec.structs.replace(made, is_pod=True)
    if kind not in _TEMPLATED:
        message = f"a {kind} makes no Pods: give a Pod, or one of {', '.join(_TEMPLATED)}"
        raise ScenarioError(message)
    name = str(metadata.get("name") or kind.lower())
    template = _member(_member(document, "spec"), "template")
    owner, labels = {"kind": kind, "name": name}, {}
    if kind == "Deployment":
        # A Deployment makes its Pods by a ReplicaSet, which is named after a hash that is also a label of the Pods.
        owner, labels = {"kind": "ReplicaSet", "name": f"{name}-scenario"}, {_HASH: "scenario"}
    uid = str(metadata.get("uid") or "scenario")
    return _template(name, namespace, template, labels, {"apiVersion": "apps/v1", "uid": uid, **owner})


def _member(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    if not isinstance(found, dict):
        message = f"{name} is missing from the manifest, or no object"
        raise ScenarioError(message)
    return found


def _template(
    name: str,
    namespace: str,
    document: Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
    owner: Mapping[str, Any] | None = None,
    running: int = 0,
) -> Template:
    metadata = document.get("metadata") or {}
    if not isinstance(metadata, dict):
        message = "metadata is no object"
        raise ScenarioError(message)
    made: dict[str, Any] = {"namespace": namespace, "labels": {**_labels(metadata), **(labels or {})}}
    if metadata.get("annotations"):
        made["annotations"] = metadata["annotations"]
    if owner is not None:
        made["ownerReferences"] = [{**owner, "controller": True}]
    elif metadata.get("ownerReferences"):
        made["ownerReferences"] = metadata["ownerReferences"]
    given = {key: value for key, value in _member(document, "spec").items() if key != "nodeName"}
    spec = _as_made(given, made["labels"])
    pod = {"metadata": made, "spec": spec}
    try:
        msgspec.msgpack.encode(pod)
    except (UnicodeEncodeError, OverflowError) as error:
        message = "the manifest holds half of a character (a lone surrogate), or a number of more than 64 bits"
        raise ScenarioError(message) from error
    return Template(name=name, pod=pod, running=running)


def _labels(metadata: Mapping[str, Any]) -> dict[str, Any]:
    found = metadata.get("labels") or {}
    if not isinstance(found, dict):
        message = "metadata.labels is no object"
        raise ScenarioError(message)
    return found


def _as_made(spec: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a spec with the API server's defaults for new Pods (not for templates), as far as rules read them.

    An invalid spec is returned unchanged. Source: k8s.io/kubernetes v1.36.3 pkg/apis/core/v1/defaults.go (SetDefaults_Pod) and
    pkg/registry/core/pod/strategy.go (mutatePodAffinity); for templates in manifests also its defaults for both (SetDefaults_PodSpec).
    """
    given = {name: value for name, value in spec.items() if name not in _SET or value not in (None, "")}
    found = {**_SET, **given}
    for kind in ("containers", "initContainers"):
        found[kind] = _mapped(found.get(kind), _container)
        if found.get("hostNetwork") is True:
            found[kind] = _mapped(found[kind], _with_host_ports)
    if isinstance(found.get("resources"), dict):
        containers = [*_list(found["containers"]), *_list(found["initContainers"])]
        found["resources"] = _of_pod(found["resources"], map(_object, containers))
    if isinstance(found.get("affinity"), dict):
        found["affinity"] = {kind: _with_keys(terms, labels) for kind, terms in found["affinity"].items()}
    return {key: value for key, value in found.items() if value is not None or key in spec}


def _object(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _set(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value}


def _mapped(found: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a list with a function applied to its objects."""
    if not isinstance(found, list):
        return found
    return [change(each) if isinstance(each, dict) else each for each in found]


def _container(container: dict[str, Any]) -> dict[str, Any]:
    """Return a container with its limits as the default of its requests."""
    resources = container.get("resources")
    if not isinstance(resources, dict) or not isinstance(resources.get("limits"), dict):
        return container
    requests = resources.get("requests") or {}
    if not isinstance(requests, dict):
        return container  # it makes no valid Pod
    requests = {**resources["limits"], **requests}
    return {**container, "resources": {**resources, "requests": requests}}


def _with_host_ports(container: dict[str, Any]) -> dict[str, Any]:
    """Return a container of a Pod on the host's network: its ports are the host's."""
    if "ports" not in container:
        return container
    return {
        **container,
        "ports": _mapped(container["ports"], lambda port: {"hostPort": port.get("containerPort", 0)} | _set(port)),
    }


def _of_pod(resources: dict[str, Any], containers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return a Pod's own resources with limits as the default of requests, except for those that its containers request themselves."""
    limits, requests = resources.get("limits"), resources.get("requests") or {}
    if not isinstance(limits, dict) or not isinstance(requests, dict):
        return resources
    of_each = (_object(_object(each.get("resources")).get("requests")) for each in containers)
    asked = {name for each in of_each for name in each}
    made = {name: limit for name, limit in limits.items() if name not in asked or str(name).startswith(_HUGE_PAGES)}
    return {**resources, "requests": made | requests}


def _with_keys(terms: Any, labels: Mapping[str, str]) -> Any:
    """Return one kind of affinity with matchLabelKeys and mismatchLabelKeys merged into its terms' selectors."""
    if not isinstance(terms, dict):
        return terms
    found = dict(terms)
    for name, change in ((_REQUIRED, _with_own_labels), (_PREFERRED, _preferred)):
        if name in found:
            found[name] = _mapped(found[name], partial(change, labels=labels))
    return found


def _preferred(preference: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    term = preference.get(_TERM)
    return {**preference, _TERM: _with_own_labels(term, labels)} if isinstance(term, dict) else preference


def _with_own_labels(term: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    selector = term.get("labelSelector")
    if not isinstance(selector, dict):
        return term  # it selects no Pod
    more = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in _list(term.get(name))
        if isinstance(key, str) and key in labels
    ]
    expressions = [*_list(selector.get("matchExpressions")), *more]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}} if more else term


class _Owner(msgspec.Struct, kw_only=True):
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel", kw_only=True):
    name: str = ""
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _WorkloadSpec(msgspec.Struct, kw_only=True):
    replicas: int | None = None
    template: dict[str, Any] = {}


class _Workload(msgspec.Struct, kw_only=True):
    metadata: _Metadata
    spec: _WorkloadSpec


class _Workloads(msgspec.Struct):
    items: list[_Workload] | None = None


class _Pod(msgspec.Struct, kw_only=True):
    metadata: _Metadata


class _Pods(msgspec.Struct):
    items: list[_Pod] | None = None


def template_of_deployment(client: Client, named: str) -> Template:
    """Return the template of a Deployment in the cluster, from its current ReplicaSet, with the number of its Pods on nodes.

    Raises:
        ScenarioError: the Deployment doesn't exist, or can't be read.
    """
    namespace, _, name = named.rpartition("/")
    namespace = namespace or "default"
    if not is_name(namespace) or not is_name(name):
        message = "name a Deployment as NAMESPACE/NAME"
        raise ScenarioError(message)
    path = f"/apis/apps/v1/namespaces/{namespace}"
    try:
        body = client.get(path=f"{path}/deployments/{name}", timeout_seconds=_ASK_SECONDS)
        deployment = msgspec.json.decode(body, type=_Workload)
        body = client.get(path=f"{path}/replicasets", timeout_seconds=_ASK_SECONDS)
        sets = msgspec.json.decode(body, type=_Workloads).items or []
        body = client.get(path=f"/api/v1/namespaces/{namespace}/pods", query=_WAITING, timeout_seconds=_ASK_SECONDS)
        pods = msgspec.json.decode(body, type=_Pods).items or []
    except (APIError, msgspec.DecodeError) as error:
        message = f"Deployment {named} can't be had: {error}. Give its manifest"
        raise ScenarioError(message) from error
    uid = deployment.metadata.uid
    own = [each for each in sets if _is_of(each.metadata, {uid})]
    newest = max(own, key=_age, default=None)
    if newest is None:
        return template_of({"kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
                            "spec": {"template": deployment.spec.template}})  # fmt: skip
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": newest.metadata.name, "uid": newest.metadata.uid}
    replicas = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    uids = {each.metadata.uid for each in own}
    waiting = sum(_is_of(each.metadata, uids) and not each.metadata.deletion_timestamp for each in pods)
    return _template(name, namespace, newest.spec.template, None, owner, max(0, replicas - waiting))


def _age(found: _Workload) -> tuple[int, str, str]:
    """Return the sort key by which a Deployment's current ReplicaSet is the last: after a rollback it is an older one."""
    metadata = found.metadata
    revision = (metadata.annotations or {}).get(_DEPLOYMENT_REVISION, "")
    number = int(revision) if revision.isdecimal() and len(revision) <= _LONGEST_NUMBER else 0
    return number, metadata.creation_timestamp or "", metadata.name


def _is_of(metadata: _Metadata, uids: Collection[str]) -> bool:
    return any(owner.uid in uids for owner in metadata.owner_references or ())


def pod_of_cluster(client: Client, named: str) -> dict[str, Any]:
    """Return a Pod of the cluster, by namespace/name, as Kubernetes JSON.

    Raises:
        ScenarioError: the Pod doesn't exist, or can't be read.
    """
    namespace, _, name = named.rpartition("/")
    namespace = namespace or "default"
    if not is_name(namespace) or not is_name(name):
        message = "name a Pod as NAMESPACE/NAME"
        raise ScenarioError(message)
    try:
        body = client.get(path=f"/api/v1/namespaces/{namespace}/pods/{name}", timeout_seconds=_ASK_SECONDS)
        return msgspec.json.decode(body, type=dict[str, Any])
    except (APIError, msgspec.DecodeError) as error:
        message = f"Pod {named} can't be had: {error}. Give its manifest"
        raise ScenarioError(message) from error


def connect() -> Client:
    """Return a client of the scheduled cluster."""
    return Client.connect(settings.BERTH.kubeconfig)


def live_snapshot(client: Client, reads: frozenset[str]) -> Snapshot:
    """Return the cluster as it is now, with these kinds of objects.

    Raises:
        ScenarioError: the API server is unavailable, or refuses.
    """
    builder = SnapshotBuilder()
    try:
        builder.on_nodes(_added(list_all(client, NODES)))
        builder.on_namespaces(_added(list_all(client, NAMESPACES)))
        for kind in sorted(reads):
            builder.on_objects(kind, _added(list_all(client, OBJECTS[kind])))
        builder.on_pods(_added(list_all(client, PODS)))
    except APIError as error:
        message = f"the cluster can't be listed: {error}"
        raise ScenarioError(message) from error
    return builder.build()


def _added(found: Mapping[str, T]) -> Sequence[Seen[T]]:
    return [Seen("added", key, each, None, "") for key, each in found.items()]


def recorded_snapshot(named: str) -> tuple[Snapshot, datetime]:
    """Return the Snapshot and the time of a recorded Decision.

    Raises:
        ScenarioError: the Decision doesn't exist (any more).
    """
    try:
        decision = Decision.objects.filter(pk=named).first()
    except ValidationError:
        decision = None
    if decision is None:
        message = f"no Decision has the id {named}"
        raise ScenarioError(message)
    try:
        return snapshot_of(decision), decision.at
    except ReplayError as error:
        message = f"Decision {named} can't be used: {error}"
        raise ScenarioError(message) from error


class Rules(msgspec.Struct, frozen=True):
    """The deciding rules: the live ones, and the same with a Change applied."""

    live: CompiledRevision
    drafted: CompiledRevision | None = None
    change: int | None = None

    @property
    def reads(self) -> frozenset[str]:
        """The kinds of objects that they read."""
        return default_profile().reads | self.live.reads | (self.drafted.reads if self.drafted else frozenset())


def rules_of(change: int | None) -> Rules:
    """Return the live rules, and those with a Change.

    Raises:
        ScenarioError: the Change doesn't exist, or its documents have faults.
    """
    before = publishing.current_revision()
    live = CompiledRevision(before)
    if change is None:
        return Rules(live)
    row = Change.objects.filter(pk=change).first()
    if row is None:
        message = f"there is no Change {change}"
        raise ScenarioError(message)
    try:
        after = publishing.with_edits(before, publishing.edits_of(row))
        return Rules(live, CompiledRevision(after, former=live), change)
    except (PublishingError, ExpressionError, msgspec.DecodeError, KeyError) as error:
        message = f"{row} has faults: {error}"
        raise ScenarioError(message) from error


def work_out(
    template: Template,
    number: int,
    rules: Rules,
    snapshot: Snapshot,
    at: datetime | None = None,
    *,
    limit: TimeLimit | None = None,
) -> Scenario:
    """Return where the Pods would land; for a template with running Pods, only the missing ones are placed.

    Args:
        template: the Pods' template.
        number: the total number of Pods.
        rules: the deciding rules.
        snapshot: the cluster.
        at: the time that rules see; by default now.
        limit: the time limit; None for no limit.

    Raises:
        ScenarioError: there are too many Pods, or none, or time is up.
    """
    missing = number - template.running
    if not 0 < missing <= MOST_PODS:
        raise ScenarioError(_out_of_bounds(number, template.running))
    now = at or datetime.now(UTC)
    pods = template.pods(missing)
    give_way = limit.give_way if limit else go_on
    try:
        place = partial(
            place_pods,
            pods=pods,
            now=now,
            after=_stands_at(now) if at is None else _picked_last(at),
            node_label=settings.BERTH.scheduler_node_label,
            give_way=give_way,
        )
        live = place(rules.live, snapshot)
        # Each side on a branch of its own, so that its placements don't affect the other.
        branch = snapshot.branched({})
        drafted = place(rules.drafted, branch) if rules.drafted else None
    except DeadlineError as error:
        message = f"{limit.over if limit else error}: ask for fewer Pods"
        raise ScenarioError(message) from error
    return Scenario(
        pods=missing,
        running=template.running,
        snapshot_at=now,
        revision=rules.live.number,
        live=live,
        change=rules.change,
        drafted=drafted,
        unknown=sorted(rules.reads - (snapshot.objects.known if snapshot.objects is not None else frozenset())),
    )


def _stands_at(now: datetime) -> str:
    """Return the node that Berth's own scheduler reports to have picked last: among equal nodes it continues behind it. "" for none.

    By its heartbeat, not by Decisions: after a restart it begins with the first node again, and Decisions are stored later.
    """
    leading = BinderState.objects.filter(leads=True, heartbeat_at__gt=now - _SILENT).first()
    return leading.last_node if leading else ""


def _picked_last(before: datetime) -> str:
    """Return the recorded node that it picked last before a time."""
    newest = Decision.objects.filter(verb="schedule", mode="enforce", at__lt=before).order_by("-at", "-sequence")
    # Decisions without an allowed node are skipped: one Pod may have any number of them.
    heads = newest.values_list("pk", "feasible")[:_LOOKED_THROUGH]
    found = next((key for key, feasible in heads if feasible), None)
    decision = Decision.objects.filter(pk=found).first() if found else None
    if decision is None:
        return ""
    try:
        return str(recorded_body_of(decision).notes.get("node") or "")
    except ReplayError as error:
        logger.warning("of equal nodes the first is chosen: Decision %s can't be read: %s", found, error)
        return ""


def _out_of_bounds(number: int, running: int) -> str:
    """Return why this number of Pods can't be placed."""
    bounds = f"ask for {running + 1:,} to {running + MOST_PODS:,}"
    refused = f"{counted(number, 'Pod')} can't be placed"
    if not running:
        return f"{refused}: {bounds}"
    return f"{refused}, for {running:,} {'runs' if running == 1 else 'run'} already: {bounds} in all"
