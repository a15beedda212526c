"""Checks the API server: that it answers, and what this account may do there."""

from collections.abc import Iterator

import msgspec
from django.conf import settings

from scheduler.cluster.client import Client, connect
from scheduler.cluster.errors import APIError
from scheduler.doctor.parts import Part
from scheduler.doctor.reviews import account_asking, may
from scheduler.doctor.rights import COMPONENTS, component_of, questions, rights_of

_REACH_SECONDS = 3.0
# Without these Berth can't answer; the others are for requeueing, canaries, binding and PriorityClasses.
_NEEDED = {(verb, resource) for resource in ("nodes", "pods", "namespaces") for verb in ("list", "watch")}


def answering(*, quick: bool) -> Iterator[Part]:
    """Check that it answers and, unless `quick`, the rights of this account."""
    client = connect()
    try:
        version = msgspec.json.decode(client.get(path="/version", timeout_seconds=_REACH_SECONDS))
        yield Part("API server", "ok", f"Kubernetes {version.get('gitVersion', 'of an unknown version')}")
        if not quick:
            yield _rights(client)
    except (APIError, msgspec.DecodeError) as error:
        remedy = "Is it up, and is BERTH_KUBECONFIG right? In a Pod, leave BERTH_KUBECONFIG empty."
        yield Part("API server", "error", f"can't be reached: {error}", remedy)


def _rights(client: Client) -> Part:
    """Check the rights of the present account: one of Berth's processes needs its own rights, any other account those of all processes."""
    own = component_of(account_asking(client))
    components, namespace = ([own[0]], own[1]) if own else (list(COMPONENTS), settings.BERTH.lease_namespace)
    asked = {
        (each["verb"], right.resource): each
        for component in components
        for right in rights_of(component, (), reviews_tokens=bool(settings.BERTH.token_review_audience))
        for each in questions(right, namespace)
    }
    refused = [key for key, attributes in asked.items() if not may(client, attributes)]
    if not refused:
        return Part(
            "rights", "ok", f"this account may do what {f'the {own[0]} needs' if own else 'all processes need'}"
        )
    says = f"this account may not {', '.join(f'{verb} {resource}' for verb, resource in refused)}"
    if _NEEDED.intersection(refused):
        return Part("rights", "error", says, "Apply what manage.py doctor rbac prints.")
    return Part(
        "rights", "warning", says, "Berth's processes need these rights: manage.py doctor rbac prints the manifest."
    )
