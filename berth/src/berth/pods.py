"""Pods: why a Pod is on its node or Pending, which Assignment matches it, where it would go, and its Decisions."""

import json
import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from berth.answer import Answer, table, write_lines
from berth.errors import AwayError, CommandError, NotReachedError
from berth.server import Server, path_of
from berth.story import lines_of_story

_DEFAULT_NAMESPACE = "default"
_AT_ONCE = 100
# How late a Decision may be stored: processes ship at their own pace, and a shadow waits for its turn.
_LATE = timedelta(seconds=15)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_TAG = "tag:yaml.org,2002:"
_NUMBERS = {f"{_TAG}int", f"{_TAG}float"}


def named(pod: str, namespace: str = "") -> tuple[str, str]:
    """Return namespace and name from NAME, NAMESPACE/NAME or kubectl's pod/NAME.

    Raises:
        CommandError: it is none of them.
    """
    parts = pod.removeprefix("pod/").split("/")
    if not all(parts) or len(parts) not in (1, 2):
        message = f"{pod!r} isn't the name of a Pod: write NAMESPACE/NAME, or NAME with --namespace."
        raise CommandError(message)
    return (parts[0], parts[1]) if len(parts) > 1 else (namespace or _DEFAULT_NAMESPACE, parts[0])


def why(server: Server, given: Namespace) -> Answer:
    """Return a Pod's story: each attempt to place it, the changes between two attempts, the outcome."""
    namespace, name = named(given.pod, given.namespace)
    found = server.get(path_of("pods", namespace, name), uid=given.uid)
    return Answer({"story": found}, list(lines_of_story(found)))


def which(server: Server, given: Namespace) -> Answer:
    """Return which Assignment matches a Pod of the cluster or of a file."""
    if given.pod.lower().endswith((".json", ".yaml", ".yml")):
        found = server.post("/assignments/which", {"pod": read_manifest(given.pod)})
    else:
        found = server.get("/assignments/which", pod="/".join(named(given.pod, given.namespace)))
    return Answer(found, list(_which_lines(found)))


def _which_lines(found: dict[str, Any]) -> Iterator[str]:
    if found["assignment"]:
        yield f"{found['pod']}: Assignment {found['assignment']} matches, with rule set {found['rule_set']} (Revision {found['revision']})."
    else:
        yield f"{found['pod']}: no Assignment matches (Revision {found['revision']})."
    yield from (
        f"  {name} = {json.dumps(value, ensure_ascii=False)}" for name, value in found.get("params", {}).items()
    )
    yield from (f"  {line}" for line in found.get("because", ()))
    for each in found.get("passed_over", ()):
        yield f"- {each['name']} doesn't: {'; '.join(each['why'])}"
    if found.get("hidden"):
        yield f"! Match too, but come later in the order: {', '.join(found['hidden'])}"
    if found.get("shadows"):
        yield f"? Also evaluated, as shadows: {', '.join(found['shadows'])}"


def read_manifest(name: str) -> Any:
    """Return the only manifest of a file, or of standard input for the name -.

    Raises:
        CommandError: it can't be read, or doesn't have exactly one manifest.
    """
    import yaml

    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        documents = _json_of(text) or _yaml_of(text)
        # What no request can hold: .nan and .inf, halves of characters.
        json.dumps(documents, allow_nan=False, ensure_ascii=False).encode()
    # YAMLError covers only the syntax: an impossible date, or a value that doesn't match its tag, raises others.
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, yaml.YAMLError) as error:
        message = f"{name}:1: can't be read as a manifest: {error}"
        raise CommandError(message) from error
    if len(documents) != 1:
        message = f"{name}:1: holds {len(documents)} documents; it must hold one"
        raise CommandError(message)
    return documents[0]


def _json_of(text: str) -> list[Any]:
    """Return the document of a JSON text; none for other texts. YAML refuses tabs, with which JSON may be indented."""
    try:
        return [json.loads(text)]
    except ValueError:
        return []


def _yaml_of(text: str) -> list[Any]:
    """Return the documents of a YAML text. Dates and times stay texts, as for the server and for Kubernetes' tools: 22:30 isn't 1,350."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads YAML as JSON's types."""

    Loader.yaml_implicit_resolvers = {
        first: [
            (tag, re.compile(f"(?!.*:)(?:{pattern.pattern})", pattern.flags) if tag in _NUMBERS else pattern)
            for tag, pattern in resolvers
            if tag != f"{_TAG}timestamp"
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return [each for each in yaml.load_all(text, Loader=Loader) if each is not None]


def simulate(server: Server, given: Namespace) -> Answer:
    """Return where Pods would be placed on the cluster as it is now; nothing is changed."""
    if bool(given.live) == bool(given.file):
        message = "Name the Pod to place: --live POD for a Pod in the cluster, or FILE with a manifest."
        raise CommandError(message)
    asked: dict[str, Any] = {"pods": given.pods, **({"change": given.change} if given.change else {})}
    if given.live:
        asked["pod"] = "/".join(named(given.live, given.namespace))
    else:
        asked["manifest"] = read_manifest(given.file)
    found = server.post("/scenario", asked)
    return Answer(found, list(_scenario_lines(found)))


def _scenario_lines(found: dict[str, Any]) -> Iterator[str]:
    yield from (f"{says}." for says in found["says"])
    sides = [("LIVE", found["live"])]
    if found.get("drafted"):
        sides.append((f"CHANGE {found['change']}", found["drafted"]))
    nodes = sorted({node for _, side in sides for node in side["nodes"]})
    if nodes:
        rows = [(node, *(side["nodes"].get(node, 0) for _, side in sides)) for node in nodes]
        yield from table(("NODE", *(head for head, _ in sides)), rows)


def decisions(server: Server, given: Namespace) -> Answer:
    """List the newest Decisions; with --follow, also later ones until Ctrl-C."""
    filters = _filters(given.filters)
    if "fields" in filters and (given.follow or given.output == "text"):
        message = "fields needs --output json or yaml, without --follow: the text output has fixed columns."
        raise CommandError(message)
    if given.follow and (places := {"before", "after"} & filters.keys()):
        message = f"{places.pop()} names a page of the list, and --follow has none: write from=TIME."
        raise CommandError(message)
    begins = _settled_at(server) if given.follow else _LONG_AGO
    rows = _newest(server, given.limit, filters)[::-1]
    if given.follow:
        _follow(server, given, rows, filters, begins)
    return Answer({"decisions": rows}, [_decision_line(row) for row in rows] or ["none"])


def _newest(server: Server, limit: int, filters: dict[str, str]) -> list[Any]:
    """Return the newest rows, the newest first. A page may end before its rows are found: a search without an index takes several."""
    if "after" in filters:
        # The next page of one that ends in front of a place begins behind that place.
        found: list[Any] = server.get("/decisions", limit=limit, **filters)["results"]
        return found
    return list(islice(server.pages("/decisions", limit=limit, **filters), limit))


def _filters(texts: Sequence[str]) -> dict[str, str]:
    """Return filters by name.

    Raises:
        CommandError: a text isn't a filter, or would be ignored.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, is_one, value = text.partition("=")
        if not (name and is_one):
            message = f"{text!r} isn't a filter: write NAME=VALUE, such as pod_namespace=shop or node=n1."
            raise CommandError(message)
        if name == "limit":
            message = f"limit isn't a filter: write --limit {value}."
            raise CommandError(message)
        if not value:
            message = f"The filter {name} has no value, and would be ignored: give it one, or leave the filter out."
            raise CommandError(message)
        if name in found:
            message = f"The filter {name} is given twice: keep one of them."
            raise CommandError(message)
        found[name] = value
    return found


def _settled_at(server: Server) -> datetime:
    """Return the moment before which no Decision is stored any more, whatever the filters."""
    newest = server.get("/decisions", limit=1, fields="at")["results"]
    return _at(newest[0]) - _LATE if newest else _LONG_AGO


def _follow(server: Server, given: Namespace, rows: list[Any], filters: dict[str, str], begins: datetime) -> None:
    """Write these rows and new ones, each once, until Ctrl-C. The rows have all those before `begins`, as far as they are wanted."""
    # Rows older than a full first list existed before.
    seen, begins = dict[str, datetime](), _at(rows[0]) if len(rows) == given.limit else begins
    while True:
        for row in rows:
            if str(row["id"]) not in seen:
                _write_row(row, given.output)
        sys.stdout.flush()
        seen |= {str(row["id"]): _at(row) for row in rows}
        since = max(begins, max(seen.values()) - _LATE) if seen else begins
        # Keep only rows that may be returned again: this may run for days.
        seen = {name: at for name, at in seen.items() if at >= since}
        time.sleep(given.every)
        rows = _newer_at_last(server, since, filters, given.every)


def _newer_at_last(server: Server, since: datetime, filters: dict[str, str], every: float) -> list[Any]:
    """Return the rows since a moment; waits however long the server is away."""
    is_said = False
    while True:
        try:
            return _newer(server, since, filters)
        except (NotReachedError, AwayError) as error:
            if not is_said:
                write_lines([*error.lines, "Berth retries until the server answers."], sys.stderr)
            is_said = True
        time.sleep(every)


def _newer(server: Server, since: datetime, filters: dict[str, str]) -> list[Any]:
    """Return the rows from a moment on, the oldest first; the newest few if no row was seen yet."""
    is_bounded = since == _LONG_AGO or "from" in filters or "span" in filters
    asked = filters if is_bounded else {**filters, "from": f"{since.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
    found: list[Any] = []
    for row in server.pages("/decisions", limit=_AT_ONCE, **asked):
        if _at(row) < since or (since == _LONG_AGO and len(found) == _AT_ONCE):
            break
        found.append(row)
    return found[::-1]


def _at(row: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(row["at"])


def _write_row(row: dict[str, Any], output: str) -> None:
    if output == "text":
        write_lines([_decision_line(row)], sys.stdout)
    else:
        sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")


def _decision_line(row: dict[str, Any]) -> str:
    """Return a Decision as a line."""
    pod = f"{row.get('pod_namespace', '')}/{row.get('pod_name', '')}"
    rule_set = f"{row.get('rule_set') or 'no rule set'}"
    nodes = f"{row.get('feasible', '?')} of {row.get('nodes', '?')} nodes" if row.get("nodes") != 0 else "no nodes"
    best = row.get("placed") or row.get("best") or row.get("node") or ""
    return f"{row.get('at', '')} {row.get('verb', ''):<10} {pod} {nodes}, {rule_set}" + (
        f", best {best}" if best else ""
    )
