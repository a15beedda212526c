"""Asks the API server which rights the accounts of Berth's processes lack."""

from collections.abc import Collection, Mapping

import msgspec

from scheduler.cluster.client import Client
from scheduler.doctor.rights import COMPONENTS, account_of, questions, rights_of

_PATH = "/apis/authorization.k8s.io/v1"


class Lack(msgspec.Struct, frozen=True):
    """A right that a process needs and its account lacks."""

    component: str
    verb: str
    resource: str
    reason: str


def may(client: Client, attributes: Mapping[str, str], account: str = "") -> bool:
    """Return whether an account may do something.

    Args:
        client: the client that asks.
        attributes: `resourceAttributes` of an access review.
        account: by the API server's name for it; if empty, the client's own. Asking about others needs a right of its own.

    Raises:
        APIError: the API server is unavailable, or refuses the review.
    """
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    spec = {"resourceAttributes": attributes} | ({"user": account, "groups": _GROUPS} if account else {})
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = msgspec.json.decode(client.post(path=f"{_PATH}/{kind.lower()}s", body=msgspec.json.encode(review)))
    return bool((answer.get("status") or {}).get("allowed"))


def account_asking(client: Client) -> str:
    """Return the API server's name for the client's own account.

    Raises:
        APIError: the API server is unavailable.
    """
    body = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}'
    answer = msgspec.json.decode(client.post(path="/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body))
    return str(((answer.get("status") or {}).get("userInfo") or {}).get("username", ""))


# The groups of every ServiceAccount.
_GROUPS = ["system:serviceaccounts", "system:authenticated"]


def lacking(client: Client, namespace: str, read: Collection[str], *, reviews_tokens: bool = False) -> list[Lack]:
    """Return the rights that the accounts of all processes lack.

    Args:
        client: of an account that may create SubjectAccessReviews.
        namespace: the namespace of Berth's processes.
        read: kinds that the live rules read.
        reviews_tokens: whether REST accepts tokens of ServiceAccounts.

    Raises:
        APIError: the API server is unavailable, or refuses the review.
    """
    return [
        Lack(component, asked["verb"], right.resource, right.reason)
        for component in COMPONENTS
        for right in rights_of(component, read, reviews_tokens=reviews_tokens)
        for asked in questions(right, namespace)
        if not may(client, asked, account_of(component, namespace))
    ]
