"""The rights of each of Berth's processes in the cluster: the table behind the manifests, `doctor rbac` and `doctor rights`."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from policies.engine.objects import cluster_kinds as kinds
from policies.engine.scheduling import default_profile


class Right(msgspec.Struct, frozen=True):
    """Verbs on a resource, and their purpose.

    Attributes:
        group: the API group; "" for the core one.
        resource: in the plural, with its subresource behind a slash.
        verbs: as RBAC spells them.
        reason: why a process needs them.
        own_namespace: whether they are needed in Berth's own namespace only.
        names: the objects to which they apply; all if empty. RBAC can't restrict `create` by name.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    reason: str
    own_namespace: bool = False
    names: tuple[str, ...] = ()


# The API group of each kind that may be read besides Nodes, Pods and Namespaces, and the reason. Rules declare which kinds
# they read, see policies.engine.rule.
_VOLUMES, _OWNERS = "rules about volumes", "rules about Services and the owners of Pods"
_GROUPS: Final = {
    kinds.CLAIMS: ("", _VOLUMES),
    kinds.VOLUMES: ("", _VOLUMES),
    kinds.SERVICES: ("", _OWNERS),
    kinds.REPLICATION_CONTROLLERS: ("", _OWNERS),
    kinds.REPLICA_SETS: ("apps", _OWNERS),
    kinds.STATEFUL_SETS: ("apps", _OWNERS),
    kinds.STORAGE_CLASSES: ("storage.k8s.io", _VOLUMES),
    kinds.CSI_NODES: ("storage.k8s.io", _VOLUMES),
    kinds.ATTACHMENTS: ("storage.k8s.io", _VOLUMES),
}
READABLE_KINDS: Final = frozenset(_GROUPS)

_FOLLOW: Final = ("list", "watch")
_IN_TURN: Final = "processes take turns to bind by rules that count, so that limits hold"
_CLUSTER: Final = tuple(
    Right("", resource, _FOLLOW, f"the Snapshot: {what}")
    for resource, what in (
        ("nodes", "the nodes to place Pods on"),
        ("pods", "Pods on nodes, and Pending Pods"),
        ("namespaces", "labels that Assignments match"),
    )
)


def _reads(read: Collection[str], verbs: tuple[str, ...] = _FOLLOW) -> Iterator[Right]:
    for kind, (group, reason) in _GROUPS.items():
        if kind in read:
            yield Right(group, kind, verbs, reason)


def _leases(whats: dict[str, str]) -> Iterator[Right]:
    group = "coordination.k8s.io"
    said = "; ".join(whats.values())
    yield Right(group, "leases", ("create",), f"{said}, for the first time", own_namespace=True)
    for name, what in whats.items():
        yield Right(group, "leases", ("get", "update"), what, own_namespace=True, names=(name,))


def rights_of(component: str, read: Collection[str] = READABLE_KINDS, *, reviews_tokens: bool = False) -> list[Right]:
    """Return a process's rights, given the kinds that the live rules read.

    Args:
        component: one of `COMPONENTS`.
        read: kinds that published rules read, by the names of `policies.engine.objects.cluster_kinds`.
        reviews_tokens: whether REST accepts tokens of ServiceAccounts.
    """
    more = [_TOKEN_REVIEW] if reviews_tokens and component == "admin" else []
    return [*COMPONENTS[component](read), *more]


def _extender(read: Collection[str]) -> Iterator[Right]:
    yield from _CLUSTER
    yield from _reads(read)
    yield Right("", "pods", ("get",), "the bind verb: the Pod as it is now")
    yield Right("", "pods/binding", ("create",), "the bind verb")
    yield from _leases({"berth-binding": _IN_TURN})


def _binder(_: Collection[str]) -> Iterator[Right]:
    yield from _CLUSTER
    # The default rule set, for Pods that no Assignment takes, reads all of them.
    yield from _reads(READABLE_KINDS)
    yield Right("policy", kinds.DISRUPTION_BUDGETS, _FOLLOW, "preemption")
    yield Right("", "pods", ("get", "delete"), "the outcome of a binding; deleting the victims of a preemption")
    yield Right("", "pods/binding", ("create",), "binding")
    yield Right("", "pods/status", ("patch",), "the condition PodScheduled and nominatedNodeName")
    yield Right("events.k8s.io", "events", ("create",), "Scheduled, FailedScheduling, Preempted")
    yield from _leases({"berth-binder": "one binder schedules, the others stand by", "berth-binding": _IN_TURN})


def _worker(read: Collection[str]) -> Iterator[Right]:
    yield Right("", "nodes", ("list",), "which waiting Pods a new Revision helps; the gate's forecast")
    yield Right("", "namespaces", _FOLLOW, "labels that Assignments match and rules read; which Pods new ones help")
    yield Right("", "pods", ("list", "patch"), "requeueing Pods by the annotation berth/woken-for")
    yield Right(
        "", "pods", ("get", "create", "delete"), "outcomes of Decisions; canary Pods, when somebody asks for one"
    )
    # The gate evaluates the default rule set too: kube-scheduler's own filters beside the rules.
    yield from _reads(default_profile().reads | set(read), ("list",))
    yield Right(
        "scheduling.k8s.io",
        "priorityclasses",
        ("list", "watch", "create", "patch", "delete"),
        "applying published PriorityClasses to the cluster, and watching others' changes to them",
    )


def _admin(read: Collection[str]) -> Iterator[Right]:
    yield Right("", "pods", ("get",), "which Assignment matches a Pod; without it, users have to paste the Pod")
    yield Right("", "namespaces", ("get",), "labels that Assignments match, of that Pod's namespace")
    yield Right("", "nodes", ("get",), "a node's page: how full it is now, and what keeps Pods off it")
    for resource in ("nodes", "pods", "namespaces"):
        yield Right("", resource, ("list",), "scenarios: the cluster as it is")
    yield from _reads(default_profile().reads | set(read), ("list",))
    # Its ReplicaSets, which have the Pods' template, are among the kinds that the default profile reads.
    yield Right("apps", "deployments", ("get",), "scenarios: a Deployment that is scaled")
    yield Right(
        "scheduling.k8s.io", "priorityclasses", ("list",), "plans over REST: what would be done to PriorityClasses"
    )


_TOKEN_REVIEW: Final = Right(
    "authentication.k8s.io", "tokenreviews", ("create",), "tokens of ServiceAccounts (BERTH_TOKEN_REVIEW_AUDIENCE)"
)
COMPONENTS: Final = {"extender": _extender, "binder": _binder, "worker": _worker, "admin": _admin}


_ACCOUNT: Final = re.compile(r"system:serviceaccount:(?P<namespace>[^:]+):berth-(?P<component>[^:]+)")


def manifest(
    namespace: str,
    read: Collection[str] = READABLE_KINDS,
    components: Iterable[str] = COMPONENTS,
    *,
    reviews_tokens: bool = False,
) -> str:
    """Return ClusterRoles and Roles with their bindings, as YAML; the reason is above each rule."""
    documents: list[str] = []
    for component in components:
        rights = rights_of(component, read, reviews_tokens=reviews_tokens)
        wide = [each for each in rights if not each.own_namespace]
        narrow = [each for each in rights if each.own_namespace]
        if wide:
            documents += _role("ClusterRole", component, wide, namespace)
        if narrow:
            documents += _role("Role", component, narrow, namespace)
    return "---\n".join(documents)


def _role(kind: str, component: str, rights: Iterable[Right], namespace: str) -> Iterator[str]:
    name, inside = f"berth-{component}", f", namespace: {namespace}" if kind == "Role" else ""
    rules = "".join(f"# {right.reason}\n- {_rule(right)}\n" for right in rights)
    head = "apiVersion: rbac.authorization.k8s.io/v1\n"
    yield f"{head}kind: {kind}\nmetadata: {{name: {name}{inside}}}\nrules:\n{rules}"
    yield (
        f"{head}kind: {kind}Binding\nmetadata: {{name: {name}{inside}}}\n"
        f"roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {kind}, name: {name}}}\n"
        f"subjects:\n- {{kind: ServiceAccount, name: {name}, namespace: {namespace}}}\n"
    )


def _rule(right: Right) -> str:
    names = f", resourceNames: [{', '.join(right.names)}]" if right.names else ""
    group = right.group or '""'
    return f"{{apiGroups: [{group}], resources: [{right.resource}]{names}, verbs: [{', '.join(right.verbs)}]}}"


def account_of(component: str, namespace: str) -> str:
    """Return the API server's name for a process's account."""
    return f"system:serviceaccount:{namespace}:berth-{component}"


def component_of(account: str) -> tuple[str, str] | None:
    """Return an account's process and namespace; None for an account that isn't a single process's."""
    found = _ACCOUNT.fullmatch(account)
    return (found["component"], found["namespace"]) if found and found["component"] in COMPONENTS else None


def questions(right: Right, namespace: str) -> Iterator[dict[str, str]]:
    """Iterate over the `resourceAttributes` of access reviews for a right, verb by verb."""
    resource, _, part = right.resource.partition("/")
    for verb in right.verbs:
        for name in right.names or ("",):
            asked = {"group": right.group, "resource": resource, "subresource": part, "verb": verb, "name": name}
            yield asked | ({"namespace": namespace} if right.own_namespace else {})
