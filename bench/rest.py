"""REST with 1,000 rule sets: applying all of them in one call, then GETs and PUTs of one document, one after the other.

`python -m tests.postgres python -m bench.rest` prints requests a second and the p95 of each, beside the aim of `apply`. Requests go
through all of Django, without an HTTP server, whose time is the same for every page. The cluster isn't read. The
database is SQLite, or the one that BERTH_DATABASE_URL names, which must be empty.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from time import perf_counter
from typing import Any

DOCUMENTS, AIM_SECONDS = 1_000, 10.0
_EXPRESSION = "node.metadata.labels['pool'] == 'pool-{}' || pod.metadata.namespace == 'shop-{}'"


def _document(number: int, turn: int = 0) -> dict[str, Any]:
    from tests.builders import rule_set_document

    rule = {"name": "pool", "expression": _EXPRESSION.format(number, turn)}
    return rule_set_document(f"rules-{number}", filters=[rule])


def _measure(name: str, times: int, ask: Callable[[int], Any]) -> None:
    taken = []
    for turn in range(times):
        began = perf_counter()
        response = ask(turn)
        taken.append(perf_counter() - began)
        if response.status_code >= 300:  # noqa: PLR2004
            message = f"{name}: {response.status_code} {response.content[:300]!r}"
            raise SystemExit(message)
    p95 = sorted(taken)[min(int(times * 0.95), times - 1)]
    print(f"{name:<46} {times / sum(taken):>8.1f} a second   p95 {p95 * 1000:>8.1f} ms")


def main() -> None:
    """Apply, GET, PUT, print."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--times", type=int, default=50, help="how often each is asked")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
        os.environ["BERTH_STATE_DIR"] = folder
        os.environ.setdefault("BERTH_DATABASE_URL", f"sqlite:///{folder}/berth.sqlite3")
        os.environ["BERTH_REST_WRITES_PER_MINUTE"] = "1000000"
        os.environ.setdefault("BERTH_LOG_LEVEL", "ERROR")
        import django
        from django.core.management import call_command
        from django.db import connection

        django.setup()
        from django.test.utils import setup_test_environment

        from bench.running import machine

        setup_test_environment()
        call_command("migrate", verbosity=0)
        print(f"{connection.vendor}; {machine()}; {given.documents:,} rule sets")
        _ask_all(given.documents, given.times)


def _ask_all(documents: int, times: int) -> None:
    from django.contrib.auth.models import Group, User
    from django.test import Client

    user = User.objects.create(username="operator", is_staff=True)
    user.groups.set(Group.objects.filter(name="Operator"))
    client = Client(headers={"Accept": "application/json"})
    client.force_login(user)

    def send(method: str, path: str, body: Any = None, match: str = "") -> Any:
        headers = {"If-Match": match} if match else {}
        options = {} if body is None else {"data": body, "content_type": "application/json"}
        return getattr(client, method)(f"/api/v1{path}", headers=headers, secure=True, **options)

    body = {"documents": [_document(number) for number in range(documents)], "publish": True, "asks_cluster": False}
    began = perf_counter()
    response = send("post", "/changes/apply", body)
    seconds = perf_counter() - began
    if response.status_code != 201:  # noqa: PLR2004
        raise SystemExit(response.content.decode())
    said = "" if documents > DOCUMENTS else f" (aim {AIM_SECONDS:.0f} s for {DOCUMENTS:,})"
    print(f"{'apply, published: ' + format(documents, ',') + ' documents in one call':<46} {seconds:>8.1f} s{said}")
    began = perf_counter()
    send("post", "/changes/apply", body)
    print(f"{'the same again, which changes nothing':<46} {perf_counter() - began:>8.1f} s")

    for path in (
        "/rule-sets",
        "/rule-sets?fields=name&limit=1000",
        "/rule-sets/rules-7",
        "/changes",
        "/status",
        "/whoami",
    ):
        _measure(f"GET {path}", times, lambda _, path=path: send("get", path))  # type: ignore[misc]
    _measure("GET /export", max(1, times // 10), lambda _: send("get", "/export"))

    opened = send("post", "/changes", {"title": "a bench"})
    change, tag = opened.json()["number"], opened["ETag"]

    def put_edit(turn: int) -> Any:
        nonlocal tag
        made = send("put", f"/changes/{change}/rule-sets/rules-7", _document(7, turn + 1), tag)
        tag = made.get("ETag", "")
        return made

    _measure("PUT of a document into a Change", times, put_edit)

    def put_live(turn: int) -> Any:
        seen = send("get", "/rule-sets/rules-9")["ETag"]
        return send("put", "/rule-sets/rules-9", _document(9, turn + 1), seen)

    _measure("GET and PUT of a live document, published", max(1, times // 5), put_live)
    _measure("PUT of the same document again", times, lambda _: send("put", "/rule-sets/rules-11", _document(11)))


if __name__ == "__main__":
    main()
