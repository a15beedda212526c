"""Where the pages of Pods, nodes and rule sets' versions are."""

from collections.abc import Iterable
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse

from policies.admin.base import decisions_url
from policies.models import RuleSetVersion


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


def decision_url(key: object, node: str = "") -> str:
    """Return the page of a Decision; with a node, where it says why not that one."""
    url = reverse("admin:scheduler_decision_change", args=[key])
    return f"{url}?{urlencode({'why': node})}#why" if node else url


def version_urls(versions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """Return the pages of rule sets' versions, by name and number; of those that are here."""
    names = {name for name, number in versions if number}
    if not names:
        return {}
    numbers = {number for _, number in versions}
    rows = RuleSetVersion.objects.filter(rule_set__name__in=names, number__in=numbers)
    return {
        (name, number): reverse("admin:policies_rulesetversion_change", args=[key])
        for key, name, number in rows.values_list("pk", "rule_set__name", "number")
    }
