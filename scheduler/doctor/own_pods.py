"""Checks whether Berth's own Pods depend on Berth: if Berth is down, they couldn't be placed, and it would stay down."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from django.conf import settings

from policies.engine.assignments import DEFAULT_SCHEDULER
from policies.engine.objects.pod import Pod
from policies.engine.ruleset import Revision
from policies.engine.selectors import Labels
from policies.engine.which import which
from policies.wording import listed
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError, APIForbiddenError
from scheduler.cluster.kinds import NAMESPACES
from scheduler.cluster.listing import list_all
from scheduler.cluster.waiting import whole_pods
from scheduler.doctor.findings import Linted
from scheduler.doctor.parts import Part
from scheduler.doctor.shape import Profile
from scheduler.models import Decision

_NAME = "own Pods"
# All manifests of deploy/kubernetes give their Pods this label.
_OURS = {"labelSelector": "app.kubernetes.io/part-of=berth"}
_NAMED = 3


def own_pods(client: Client, linted: Linted | None, revision: Revision, now: datetime) -> Iterator[Part]:
    """Check which schedulers place the Pods with Berth's label; yield nothing without such Pods or without an API server.

    Args:
        client: with doctor's account; it has to list Pods and Namespaces, as all of Berth's accounts may.
        linted: kube-scheduler's file, if it is known.
        revision: the live Revision.
        now: the current time; Pauses end.
    """
    kind = whole_pods()
    try:
        pages = client.list_pages(path=kind.path, query={**kind.query, **_OURS})
        pods = [pod for page in pages for pod in kind.read_page(page).objects.values() if pod.is_live]
        namespaces = list_all(client, NAMESPACES) if pods else {}
    except APIForbiddenError:
        remedy = "Run doctor as an account that may list Pods and Namespaces, as the admin's and the worker's may."
        yield Part(_NAME, "unknown", "can't be seen: this account may not list them", remedy)
        return
    except APIError:
        return  # the part about the API server reports this
    if pods:
        labels = {name: found.metadata.labels or {} for name, found in namespaces.items()}
        yield _part(pods, labels, linted, revision, now)


def _part(
    pods: list[Pod], labels: Mapping[str, Labels], linted: Linted | None, revision: Revision, now: datetime
) -> Part:  # fmt: skip
    by_file, ignorable = _by_file(linted)
    # A Pod's scheduler may have another file than the known one: a Decision about the Pod proves that Berth was asked.
    about = Decision.objects.filter(pod_uid__in=[pod.uid for pod in pods])
    answered = set(about.order_by().values_list("pod_uid", flat=True).distinct())  # one that waits has thousands
    own = [pod for pod in pods if pod.spec.scheduler_name in settings.BERTH.scheduler_names]
    asked = [
        pod for pod in pods if pod not in own and (pod.spec.scheduler_name in by_file or pod.uid in answered)
    ]  # fmt: skip
    waiting = [pod for pod in asked if pod.spec.scheduler_name not in ignorable]
    taken = [
        (chosen.assignment, pod)
        for pod in (*own, *asked)
        if (chosen := which(revision, pod, labels.get(pod.namespace, {}), now)).assignment
    ]
    found = [*_own(own), *_waiting(waiting), *_taken(taken)]
    if not found:
        return Part(_NAME, "ok", "none of them is known to wait for Berth")
    return Part(_NAME, "warning", "; ".join(says for says, _ in found), " ".join(remedy for _, remedy in found))


def _own(pods: list[Pod]) -> Iterator[tuple[str, str]]:
    if pods:
        yield (
            f"Berth's own scheduler has to place {_named(pods)}",
            "Remove schedulerName from their templates, and the label berth/scheduler-name from their namespace.",
        )


def _waiting(pods: list[Pod]) -> Iterator[tuple[str, str]]:
    if pods:
        yield (
            f"kube-scheduler asks Berth about {_named(pods)}: when recreated, they wait while no extender answers",
            "Run the extender beside kube-scheduler (docs/kubernetes.md), or use a scheduler for them that doesn't ask Berth.",
        )


def _taken(taken: list[tuple[str, Pod]]) -> Iterator[tuple[str, str]]:
    if taken:
        assignments, namespace = sorted({name for name, _ in taken}), taken[0][1].namespace
        says = f"rules decide on {_named(pod for _, pod in taken)} by {listed(assignments)}, and may refuse every node"
        term = f"{{key: kubernetes.io/metadata.name, operator: NotIn, values: [{namespace}]}}"
        yield says, f"Leave them out by the Assignment's namespaceSelector, matchExpressions: [{term}]."


def _by_file(linted: Linted | None) -> tuple[set[str], set[str]]:
    """Return the schedulers that call Berth for such Pods, by kube-scheduler's file, and those of them that continue without an answer."""
    if linted is None or linted.configuration is None:
        return set(), set()
    berths = [linted.configuration.extenders[index] for index in linted.berths]
    # With managedResources kube-scheduler calls only for Pods that request one of them, and Berth's own don't.
    berths = [each for each in berths if not each.managed_resources]
    if not berths:
        return set(), set()
    profiles = linted.configuration.profiles or [Profile()]
    names = {profile.scheduler_name or DEFAULT_SCHEDULER for profile in profiles}
    return names, names if all(each.ignorable for each in berths) else set()


def _named(pods: Iterable[Pod]) -> str:
    names = sorted({f"{pod.namespace}/{pod.name}" for pod in pods})
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
