"""The URLs of Pods, workloads, nodes and rule sets' versions."""

from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse

from policies.admin.base import decisions_url


def pod_url(namespace: str, name: str, uid: str = "", **query: str) -> str:
    """Return the URL of a Pod's story; for a name that can't be in a path, of the list of its Decisions.

    The names come from the callers of Berth, so they may be anything.
    """
    asked = {"uid": uid, **query} if uid else query
    try:
        url = reverse("pod_story", args=[namespace, name])
    except NoReverseMatch:
        return decisions_url(pod_uid=uid) if uid else decisions_url(pod_namespace=namespace, pod_name=name)
    return f"{url}?{urlencode(asked)}" if asked else url


def node_url(name: str) -> str:
    """Return the URL of a node; for a name that can't be in a path, of the list of Decisions about it."""
    try:
        return reverse("node", args=[name])
    except NoReverseMatch:
        return decisions_url(node=name)


def workload_url(namespace: str, kind: str, name: str) -> str:
    """Return the URL of a workload; for a name that can't be in a path, of the list of its Decisions."""
    try:
        return reverse("workload", args=[namespace, kind, name])
    except NoReverseMatch:
        return decisions_url(owner=f"{kind}/{name}", pod_namespace=namespace)


def decision_url(key: object, node: str = "") -> str:
    """Return the URL of a Decision; with a node, of its explanation for that node."""
    url = reverse("admin:scheduler_decision_change", args=[key])
    return f"{url}?{urlencode({'why': node})}#why" if node else url


def version_url(name: str, number: int) -> str:
    """Return the URL of a rule set's version by name and number; for an odd name, of the list of rule sets."""
    try:
        return reverse("rule_set_version", args=[name, number])
    except NoReverseMatch:
        return reverse("admin:policies_ruleset_changelist")


def preview_url(rule_set: str = "", **asked: str) -> str:
    """Return the URL that previews a draft for a Pod: one of the cluster (`pod`), or a Decision's (`decision`)."""
    given = {name: value for name, value in {"rule_set": rule_set, **asked}.items() if value}
    return f"{reverse('preview')}?{urlencode(given)}" if given else reverse("preview")


def assignment_url(name: str) -> str:
    """Return the URL that finds an Assignment by its name, even if it isn't live any more."""
    return f"{reverse('admin:policies_assignment_changelist')}?{urlencode({'q': name})}"
