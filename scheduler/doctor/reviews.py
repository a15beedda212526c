"""Which rights the accounts of Berth's processes lack, asked of the API server."""

from collections.abc import Collection, Mapping

import msgspec

from scheduler.cluster.client import Client
from scheduler.doctor.rights import COMPONENTS, account_of, questions, rights_of

_PATH = "/apis/authorization.k8s.io/v1"


class Lack(msgspec.Struct, frozen=True):
    """A right that a process needs and its account hasn't."""

    component: str
    verb: str
    resource: str
    reason: str


def may(client: Client, attributes: Mapping[str, str], account: str = "") -> bool:
    """Return whether an account may do something.

    Args:
        client: who asks.
        attributes: `resourceAttributes` of an access review.
        account: by the API server's name for it; who asks where it is empty. Asking about others is a right of its own.

    Raises:
        APIError: the API server is away, or refuses to be asked.
    """
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    spec = {"resourceAttributes": attributes} | ({"user": account, "groups": _GROUPS} if account else {})
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = msgspec.json.decode(client.post(path=f"{_PATH}/{kind.lower()}s", body=msgspec.json.encode(review)))
    return bool((answer.get("status") or {}).get("allowed"))


def account_asking(client: Client) -> str:
    """Return the API server's name for the account that asks.

    Raises:
        APIError: the API server is away.
    """
    body = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}'
    answer = msgspec.json.decode(client.post(path="/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body))
    return str(((answer.get("status") or {}).get("userInfo") or {}).get("username", ""))


# What the API server counts every ServiceAccount to.
_GROUPS = ["system:serviceaccounts", "system:authenticated"]


def lacking(client: Client, namespace: str, read: Collection[str], *, reviews_tokens: bool = False) -> list[Lack]:
    """Return what the accounts of all processes lack.

    Args:
        client: an account that may create SubjectAccessReviews.
        namespace: where Berth's processes run.
        read: kinds that the live rules read.
        reviews_tokens: whether REST takes tokens of ServiceAccounts.

    Raises:
        APIError: the API server is away, or refuses to be asked.
    """
    return [
        Lack(component, asked["verb"], right.resource, right.reason)
        for component in COMPONENTS
        for right in rights_of(component, read, reviews_tokens=reviews_tokens)
        for asked in questions(right, namespace)
        if not may(client, asked, account_of(component, namespace))
    ]
