"""The names and functions of expressions, with examples: for the editor's help and completion."""

import msgspec


class Helped(msgspec.Struct, frozen=True):
    """A name or a function: its syntax, a description, and an example expression. `after` is the text before its dot."""

    written: str
    says: str
    example: str
    after: str = ""

    @property
    def label(self) -> str:
        """The name itself."""
        return self.written.partition("(")[0].rpartition(".")[2]


HELP: list[Helped] = [
    Helped("pod", "The Pod to schedule, as Kubernetes JSON.", "has(pod.metadata.labels.team)"),
    Helped(
        "requests",
        "The Pod's total requests, including init containers and overhead; cpu in millicores, memory in bytes.",
        "usage.free.cpu - requests.cpu >= 2000",
    ),
    Helped(
        "namespaceObject",
        "The Pod's namespace: metadata.name and metadata.labels, which is present even if empty.",
        "node.metadata.?labels.team.orValue('') == namespaceObject.metadata.labels.?team.orValue('')",
    ),
    Helped("node", "The candidate node, as Kubernetes JSON.", "!has(node.spec.unschedulable)"),
    Helped(
        "usage",
        "The node's resources: allocatable, requested, free; cpu in millicores, memory in bytes, pods.",
        "usage.free.cpu >= 500",
    ),
    Helped("params", "The rule set's constants, or the Assignment's overrides.", "usage.free.pods > params.spare"),
    Helped("now", "The moment of the decision, in UTC.", "now.getHours('Europe/Berlin') < 6"),
    Helped(
        "node.count({labels})",
        "The number of live Pods on this node, in the Pod's namespace, with all these labels.",
        "node.count({'app': 'web'}) < 2",
        "node",
    ),
    Helped(
        "topology.count(key, {labels})",
        "The same for all nodes with the same value of that label as this node, such as its zone.",
        "topology.count('topology.kubernetes.io/zone', {'app': 'web'}) < 5",
        "topology",
    ),
    Helped(
        "cluster.count({labels})",
        "The same for the whole cluster.",
        "cluster.count({'queue': 'nightly'}) < 10",
        "cluster",
    ),
    Helped(
        "cluster.countInAllNamespaces({labels})",
        "The same for the Pods of all namespaces, for example for licences. node and topology have this function too.",
        "cluster.countInAllNamespaces({'license': 'matlab'}) < 10",
        "cluster",
    ),
    Helped(
        "quantity(text)",
        "A Kubernetes quantity; compare with isGreaterThan, isLessThan, compareTo or ==.",
        "quantity(node.status.allocatable.memory).isGreaterThan(quantity('64Gi'))",
    ),
    Helped("has(path)", "Whether a field is present.", "has(node.metadata.labels.gpu)"),
    Helped(
        "[?'name'].orValue(other)",
        "The value of an optional field, or a default.",
        "node.metadata.labels[?'team'].orValue('') == 'web'",
    ),
    Helped(
        "list.exists(each, condition)",
        "Whether the condition is true for at least one element of a list; all(): for every element.",
        "node.spec.?taints.orValue([]).exists(taint, taint.key == 'gpu')",
    ),
]
