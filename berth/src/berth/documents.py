"""Files of documents and the live state: lint, plan, apply, export, diff."""

import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

from berth.answer import Answer
from berth.arguments import KINDS
from berth.errors import WOULD_CHANGE, CommandError
from berth.gate import gate_lines
from berth.markdown import plan_in_markdown, user_line
from berth.server import Server, fault_line
from berth.texts import documents_of, printable

_NOT_DOCUMENTS = {".git", "node_modules", ".venv"}
_MOST_TITLE = 200
# How many files a Change's title names.
_NAMED_IN_TITLE = 3
# The text of a file without documents.
_EMPTY_LIST = "{apiVersion: v1, kind: List, items: []}"
_ENDINGS = {".yaml", ".yml", ".json"}
# Steps of a plan that change the cluster's PriorityClasses.
_SENT = {"create", "update", "adopt", "replace", "put back", "delete"}


def read_files(names: Iterable[str]) -> list[dict[str, str]]:
    """Return name and text of each file; for a folder, of all YAML and JSON files in it; - is standard input.

    Raises:
        CommandError: with every file that can't be read.
    """
    found: list[dict[str, str]] = []
    wrong: list[str] = []
    for name in names:
        for path in _files_of(name, wrong):
            try:
                text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                wrong.append(f"{path}:1: can't be read: {error}")
                continue
            if "\0" in text:
                wrong.append(f"{path}:1: can't be read: it has null characters, as UTF-16 has; save it as UTF-8")
                continue
            found.append({"name": printable(path), "text": text})
    if wrong:
        raise CommandError(*wrong)
    return found


def _files_of(name: str, wrong: list[str]) -> list[str]:
    if name == "-" or not os.path.isdir(name):  # noqa: PTH112 - no error where it can't be asked
        return [name]
    paths: list[str] = []
    unread: list[str] = []

    def note(error: OSError) -> None:
        unread.append(f"{printable(str(error.filename))}: can't be read: {error.strerror}")

    seen = {os.path.realpath(name)}
    for folder, folders, files in os.walk(name, onerror=note, followlinks=True):
        # The kubelet keeps a mounted ConfigMap's files in folders that begin with two dots, and makes symlinks to them.
        kept = [each for each in sorted(folders) if each not in _NOT_DOCUMENTS and not each.startswith("..")]
        folders[:] = [each for each in kept if _is_new(Path(folder, each), seen)]
        paths += [path for each in files if _is_document(path := str(Path(folder, each)))]
    wrong += unread
    if not (paths or unread):
        said = f"if it should hold nothing, put a file there with {_EMPTY_LIST}"
        wrong.append(f"{name}: there is no YAML or JSON file in this folder: {said}")
    return sorted(paths)


def _is_new(folder: Path, seen: set[str]) -> bool:
    """Return whether a folder wasn't read yet, by any path: symlinks may form a loop."""
    real = os.path.realpath(folder)
    is_new = real not in seen
    seen.add(real)
    return is_new


def _is_document(path: str) -> bool:
    """Return whether a path is a file of documents. So is a dangling symlink: with --prune its documents would be removed."""
    return Path(path).suffix.lower() in _ENDINGS and (os.path.isfile(path) or not os.path.exists(path))  # noqa: PTH110,PTH113 - no error where it can't be asked


def lint(server: Server, given: Namespace) -> Answer:
    """Check files, and run the tests inside them."""
    found = server.post("/lint", {"files": read_files(given.files)})
    faults, notes = found["faults"], found.get("notes", [])
    said = [f"! {line}" for line in notes]
    if not faults:
        return Answer({"faults": [], "notes": notes}, [*said, "no faults"])
    count = f"{len(faults)} {'fault' if len(faults) == 1 else 'faults'}"
    raise CommandError(*said, *map(fault_line, faults), count, faults=faults)


def _asked(given: Namespace) -> dict[str, Any]:
    """Return the request members that plan and apply share."""
    prune = [given.owner and "*" if scope == "" else scope for scope in given.prune]
    if "" in prune:
        message = (
            "--prune without a scope needs --owner NAME: it removes that owner's objects that aren't in the files."
        )
        raise CommandError(message)
    return {
        "files": read_files(given.files),
        "prune": prune,
        "owner": given.owner,
        "take_over": given.take_over,
        "asks_cluster": not given.no_cluster,
    }


def plan(server: Server, given: Namespace) -> Answer:
    """Return the changes that apply would make."""
    found = server.post("/changes/plan", {**_asked(given), "gate": given.gate})
    if given.markdown:
        return Answer(found, raw=plan_in_markdown(found, given.title), ok=found["ok"], exit_code=_code_of(found))
    return Answer(found, list(_plan_lines(found)), ok=found["ok"], exit_code=_code_of(found))


def _code_of(found: dict[str, Any]) -> int:
    if not found["ok"]:
        return 1
    return WOULD_CHANGE if would_change(found) else 0


def would_change(found: dict[str, Any]) -> bool:
    """Return whether a plan has any changes."""
    return (
        bool(found.get("would_change"))
        or bool(found.get("revision"))
        or any(step["act"] in _SENT for step in found.get("cluster", ()))
    )


def _plan_lines(found: dict[str, Any]) -> Iterable[str]:
    if found.get("revision"):
        yield f"Revision {found['revision']} would be made:"
        yield from (f"  {line}" for line in found.get("changes", ()))
    else:
        yield "Nothing would be published: all of it is live."
    yield from _warnings(found)
    if found.get("cluster"):
        yield "In the cluster:"
        yield from (f"  {_step_line(step)}" for step in found["cluster"])
    yield from (f"  {user_line(each)}" for each in found.get("users", ()))
    yield from gate_lines(found.get("gate", ()), found.get("levels", {}))
    if found.get("error"):
        yield f"? The cluster can't be read: {found['error']}"
    if found.get("blocked"):
        yield f"✗ {found['blocked']}"


def _warnings(found: dict[str, Any]) -> Iterator[str]:
    """Yield lines about the files, about what changed outside of them, and about others' edits of the same objects."""
    for member in ("notes", "drift", "beside"):
        yield from (f"! {line}" for line in found.get(member, ()))


def _step_line(step: dict[str, str]) -> str:
    """Return the line about a plan's step for a PriorityClass of the cluster."""
    word = step["act"] if step["act"] in _SENT else f"left, {step['act']}"
    return f"PriorityClass {step['name']}: {word}" + (f". {step['message']}" if step.get("message") else "")


def apply(server: Server, given: Namespace) -> Answer:
    """Apply files with a Change."""
    # The subject of a commit's message.
    subject = (given.title.strip() or _title_of(given.files)).splitlines()[0]
    # Cut rather than refused: a pipeline doesn't write its commits' messages.
    title = subject if len(subject) <= _MOST_TITLE else f"{subject[: _MOST_TITLE - 1]}…"
    asked = {
        **_asked(given),
        "title": title,
        "reason": given.reason,
        "publish": given.publish,
        "submit": given.submit,
    }
    found = server.post("/changes/apply", asked)
    if title != subject and found["change"] is not None:
        said = f"The title is longer than {_MOST_TITLE} characters, and was cut: `berth rename {found['change']} --title TITLE`"
        found["notes"] = [said, *found.get("notes", ())]
    return Answer(found, list(_applied_lines(found, is_submitted=given.submit)), ok=found["ok"])


def _title_of(files: list[str]) -> str:
    """Return the title of a Change of these files."""
    names = [printable(Path(name).name or name) for name in files]
    if len(names) <= _NAMED_IN_TITLE:
        return f"apply {' '.join(names)}"
    return f"apply {len(names)} files: {', '.join(names[:_NAMED_IN_TITLE])} and {len(names) - _NAMED_IN_TITLE} more"


def _applied_lines(found: dict[str, Any], *, is_submitted: bool) -> Iterable[str]:
    yield from _warnings(found)
    if found["change"] is None:
        yield "Nothing to publish: all of it is live."
    elif found["revision"] is None:
        opened = "was opened" if found["is_new"] else "is open already, with the same edits"
        yield f"Change {found['change']} {opened}:"
        yield from (f"  {line}" for line in found["changes"])
        number = found["change"]
        if is_submitted and not found["is_new"]:
            # It may be approved already.
            then = (
                f"`berth changes {number}` says which approvals are missing; if none is, run `berth publish {number}`"
            )
        elif is_submitted:
            then = f"somebody else has to read `berth changes {number}` and approve it"
        else:
            then = f"`berth publish {number}`, or `berth submit {number}` where somebody else has to approve it first"
        yield f"Nothing is live yet: {then}."
    else:
        yield f"Revision {found['revision']} was made by Change {found['change']}:"
        yield from (f"  {line}" for line in found["changes"])
    yield from gate_lines([each for each in found.get("gate", ()) if each["verdict"] == "found"], {})


def export(server: Server, given: Namespace) -> Answer:
    """Write the live state as documents that apply reads."""
    text = server.text("/export", kind=given.kind, name=given.names, change=given.change)
    if given.directory:
        # An export of some names, or of a Change, says nothing about other live things.
        is_whole = not given.names and given.change is None
        kinds = [given.kind] if given.kind else KINDS
        return _export_into(Path(given.directory), text, kinds if is_whole else [])
    return Answer({"documents": text}, raw=text)


def _export_into(folder: Path, text: str, kinds: Iterable[str]) -> Answer:
    """Write a file for each document, KIND/NAME.yaml; the text has all live things of these kinds."""
    written = []
    for kind, name, body in documents_of(text):
        path = folder / kind / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, encoding="utf-8")
        written.append(str(path))
    left = sorted({str(path) for kind in kinds for path in (folder / kind).glob("*.yaml")} - {*written})
    lines = [f"{len(written)} {'file was' if len(written) == 1 else 'files were'} written under {folder}{os.sep}"]
    lines += [
        f"! {printable(path)} describes an object that isn't live: delete the file, or the next apply creates the object"
        for path in left
    ]
    return Answer({"files": written, "left": left}, lines)


def diff(server: Server, given: Namespace) -> Answer:
    """Show how files differ from the live state, as diff -u does: - is live, + is in the files."""
    found = server.post("/changes/plan", {**_asked(given), "gate": False, "asks_cluster": False})
    lines = [f"! {line}" for line in (*found.get("notes", ()), *found.get("drift", ()))]
    for each in found.get("documents", ()):
        named = f"{each['kind']}/{each['name']}"
        before, after = each["live"].splitlines(), each["files"].splitlines()
        lines += unified_diff(before, after, f"live/{named}", f"files/{named}", lineterm="")
    differs = bool(found.get("documents"))
    return Answer(
        {"differs": differs, "drift": found.get("drift", []), "documents": found.get("documents", [])},
        lines or ["The files agree with what is live."],
        ok=found["ok"],
        exit_code=WOULD_CHANGE if differs else 0,
    )
