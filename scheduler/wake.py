"""Makes waiting Pods be tried again after a publish.

kube-scheduler tries a Pod that an extender refused again only when something in the cluster changes, else after five
minutes. An annotation on the waiting Pod is such a change, and touches nobody else. It is written once every extender
process serves the new Revision: a Pod that is tried earlier would be refused by the old one.
"""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings

from policies.engine.decision import CompiledRevision
from policies.engine.errors import ObjectError
from policies.engine.objects.pod import Pod
from policies.engine.ruleset import decode_revision
from policies.models import Revision
from scheduler.cluster.client import Client, pending_pods
from scheduler.cluster.errors import APIConflictError, APIError, APIInvalidError, APINotFoundError
from scheduler.models import Process, Wake

logger = logging.getLogger("berth.wake")

ANNOTATION = "berth/woken-for"
"""Its value names the Revision and the time, so that it differs from whatever was there."""

ALIVE_SECONDS = 5.0
"""A process that hasn't beaten for this long isn't waited for."""


def wake_after_publish(client: Client | None = None) -> int:
    """Wake the Pods that the newest Revision may treat differently, once; give the number of Pods woken.

    Does nothing while an extender process serves an older Revision, and while the API server is away: the next tick
    tries again.
    """
    newest = Revision.objects.order_by("-number").values_list("number", flat=True).first() or 0
    last = Wake.objects.order_by("-revision").values_list("revision", flat=True).first() or 0
    if newest <= last or not _is_served(newest):
        return 0
    client = client or Client.connect(Path(settings.BERTH.kubeconfig) if settings.BERTH.kubeconfig else None)
    try:
        woken = _annotate(client, waiting_pods(pending_pods(client), _compiled({last, newest})), newest)
    except APIError as error:
        logger.warning("can't wake Pods for Revision %s yet: %s", newest, error)
        return 0
    _, made = Wake.objects.get_or_create(revision=newest, defaults={"woken_at": datetime.now(UTC), "pods": woken})
    if made:
        logger.info("Revision %s: %s waiting Pods woken", newest, woken)
    return woken


def _is_served(number: int) -> bool:
    alive = Process.objects.filter(role="extender", beat_at__gt=datetime.now(UTC) - timedelta(seconds=ALIVE_SECONDS))
    served = list(alive.values_list("revision", flat=True))
    return bool(served) and min(served) >= number


def _compiled(numbers: Iterable[int]) -> list[CompiledRevision]:
    documents = Revision.objects.filter(number__in=numbers).values_list("document", flat=True)
    return [CompiledRevision(decode_revision(document.encode())) for document in documents]


def waiting_pods(pods: Iterable[dict[str, Any]], revisions: Iterable[CompiledRevision]) -> list[Pod]:
    """Give the Pods that wait after a refusal and that an Assignment of the old or the new Revision takes."""
    known = list(revisions)
    read = (found for pod in pods if _was_refused(pod) and (found := _read(pod)) is not None)
    # Labels of namespaces aren't read here: that wakes a Pod too many at worst.
    return [pod for pod in read if any(revision.may_take(pod) for revision in known)]


def _read(pod: dict[str, Any]) -> Pod | None:
    try:
        return Pod.from_json(pod)
    except ObjectError as error:
        logger.warning("a waiting Pod can't be read and isn't woken: %s", error)
        return None


def _was_refused(pod: dict[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(
        condition.get("type") == "PodScheduled" and condition.get("status") == "False" for condition in conditions
    )


def _annotate(client: Client, pods: Iterable[Pod], number: int) -> int:
    woken = 0
    value = f"Revision {number} at {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    for pod in pods:
        try:
            client.patch_pod_annotations(
                namespace=pod.namespace, name=pod.name, uid=pod.uid, annotations={ANNOTATION: value}
            )
        except (APINotFoundError, APIConflictError):
            continue  # gone, or another Pod has its name now
        except APIInvalidError as error:
            logger.warning("%s/%s can't be woken: %s", pod.namespace, pod.name, error)
            continue
        woken += 1
    return woken
