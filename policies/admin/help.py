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
    Helped("pod", "The Pod that wants a node, as Kubernetes JSON.", "has(pod.metadata.labels.team)"),
    Helped(
        "requests",
        "What the Pod requests in all: its containers, init containers and overhead; cpu in millicores, memory in bytes.",
        "usage.free.cpu - requests.cpu >= 2000",
    ),
    Helped(
        "namespaceObject",
        "The Pod's namespace: metadata.name and metadata.labels, which are there even where there are none.",
        "node.metadata.?labels.team.orValue('') == namespaceObject.metadata.labels.?team.orValue('')",
    ),
    Helped("node", "The node that is asked about, as Kubernetes JSON.", "!has(node.spec.unschedulable)"),
    Helped(
        "usage",
        "What the node has, and what is asked of it: allocatable, requested, free; cpu in millicores, memory in bytes, pods.",
        "usage.free.cpu >= 500",
    ),
    Helped("params", "The rule set's constants, or those that the Assignment gives.", "usage.free.pods > params.spare"),
    Helped("now", "The moment of the decision, in UTC.", "now.getHours('Europe/Berlin') < 6"),
    Helped(
        "node.count({labels})",
        "How many live Pods of the Pod's namespace on this node have all these labels.",
        "node.count({'app': 'web'}) < 2",
        "node",
    ),
    Helped(
        "topology.count(key, {labels})",
        "The same over all nodes whose label of that key is this node's: how many are in its zone.",
        "topology.count('topology.kubernetes.io/zone', {'app': 'web'}) < 5",
        "topology",
    ),
    Helped(
        "cluster.count({labels})",
        "The same over the whole cluster.",
        "cluster.count({'queue': 'nightly'}) < 10",
        "cluster",
    ),
    Helped(
        "cluster.countInAllNamespaces({labels})",
        "The same over the Pods of all namespaces, for what is bought or capped for the whole site. node and topology have it, too.",
        "cluster.countInAllNamespaces({'license': 'matlab'}) < 10",
        "cluster",
    ),
    Helped(
        "quantity(text)",
        "An amount as Kubernetes writes it; compare by isGreaterThan, isLessThan, compareTo, or ==.",
        "quantity(node.status.allocatable.memory).isGreaterThan(quantity('64Gi'))",
    ),
    Helped("has(path)", "Whether a member is there.", "has(node.metadata.labels.gpu)"),
    Helped(
        "[?'name'].orValue(other)",
        "A member that needn't be there, or else another value.",
        "node.metadata.labels[?'team'].orValue('') == 'web'",
    ),
    Helped(
        "list.exists(each, condition)",
        "Whether it holds of one element of a list; all() for each of them.",
        "node.spec.?taints.orValue([]).exists(taint, taint.key == 'gpu')",
    ),
]
