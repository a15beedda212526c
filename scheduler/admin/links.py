"""Where the pages of Pods, workloads, nodes and rule sets' versions are."""

from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse

from policies.admin.base import decisions_url


def pod_url(namespace: str, name: str, uid: str = "", **query: str) -> str:
    """Return the story of a Pod; of a name that can't stand in a path the list of its Decisions.

    Whoever calls Berth says the names, so they may be anything.
    """
    asked = {"uid": uid, **query} if uid else query
    try:
        url = reverse("pod_story", args=[namespace, name])
    except NoReverseMatch:
        return decisions_url(pod_uid=uid) if uid else decisions_url(pod_namespace=namespace, pod_name=name)
    return f"{url}?{urlencode(asked)}" if asked else url


def node_url(name: str) -> str:
    """Return the page of a node; of a name that can't stand in a path the list of Decisions about it."""
    try:
        return reverse("node", args=[name])
    except NoReverseMatch:
        return decisions_url(node=name)


def workload_url(namespace: str, kind: str, name: str) -> str:
    """Return the page of a workload; of a name that can't stand in a path the list of its Decisions."""
    try:
        return reverse("workload", args=[namespace, kind, name])
    except NoReverseMatch:
        return decisions_url(owner=f"{kind}/{name}", pod_namespace=namespace)


def decision_url(key: object, node: str = "") -> str:
    """Return the page of a Decision; with a node, where it says why not that one."""
    url = reverse("admin:scheduler_decision_change", args=[key])
    return f"{url}?{urlencode({'why': node})}#why" if node else url


def version_url(name: str, number: int) -> str:
    """Return where the page of a rule set's version is found by its name and number; of an odd name the list of rule sets."""
    try:
        return reverse("rule_set_version", args=[name, number])
    except NoReverseMatch:
        return reverse("admin:policies_ruleset_changelist")


def preview_url(rule_set: str = "", **asked: str) -> str:
    """Return where a Pod is tried on a draft: one of the cluster (`pod`), or that of a Decision (`decision`)."""
    given = {name: value for name, value in {"rule_set": rule_set, **asked}.items() if value}
    return f"{reverse('preview')}?{urlencode(given)}" if given else reverse("preview")


def assignment_url(name: str) -> str:
    """Return where an Assignment is found by its name, also one that isn't live any more."""
    return f"{reverse('admin:policies_assignment_changelist')}?{urlencode({'q': name})}"
