"""Asking REST as a program does: JSON in, JSON out, the ETag of the last answer along."""

from typing import Any

from django.test import Client

API = "/api/v1"


def ask(client: Client, method: str, path: str, body: Any = None, *, match: str = "", **headers: str) -> Any:
    """Send a request; `match` is the ETag of what was looked at."""
    if match:
        headers["If-Match"] = match
    options: dict[str, Any] = {} if body is None else {"data": body, "content_type": "application/json"}
    return getattr(client, method)(f"{API}{path}", headers=headers, **options)


# Acts of a Change whose path has another name.
_PATHS = {"ask": "request-review", "urgent": "publish-urgently"}


def act_on_change(client: Client, number: int, act: str, digest: str, *, at: str = "", whom: str = "") -> Any:
    """Do an act with a Change as it was looked at, and return the answer, whatever it is."""
    bodies: dict[str, dict[str, str]] = {
        "ask": {"whom": whom},
        "comment": {"comment": "because"},
        "expire": {"expires_at": at},
        "gate": {},
        "rebase": {},
        "schedule": {"publish_at": at},
    }
    body = bodies.get(act, {"reason": "because"})
    return ask(client, "post", f"/changes/{number}/{_PATHS.get(act, act)}", body, match=f'"{digest}"')


def told(response: Any, status: int = 200) -> Any:
    """Return what an answer says, of a status."""
    assert response.status_code == status, response.content
    return response.json()


def begun(client: Client, *documents: tuple[str, dict[str, Any]]) -> tuple[str, str]:
    """Open a Change with documents, each with its path; returns the Change's path and its ETag."""
    response = ask(client, "post", "/changes", {"title": "mine"})
    path, tag = f"/changes/{told(response, 201)['number']}", response["ETag"]
    for under, document in documents:
        response = ask(client, "put", f"{path}/{under}", document, match=tag)
        told(response)
        tag = response["ETag"]
    return path, tag
