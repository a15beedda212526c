"""Reads files: all their documents by kind and name, or all their faults."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from policies import checking, publishing
from policies.engine import ruleset as engine
from policies.engine.errors import MOST_FAULTS, Fault, RuleSetError
from policies.manifests import Located, documents_in
from policies.models import RuleSet

# The most documents that are read at once. One in a List takes two bytes, and to tell its faults up to 60 µs and 500 bytes.
MOST_DOCUMENTS: Final = 10_000
_TOO_MANY = f"there are more than {MOST_DOCUMENTS:,} documents: give fewer at once"


class FileFault(msgspec.Struct, frozen=True):
    """A fault, its place, and its text for people.

    Attributes:
        file: the file, or the document of a request.
        path: the place inside the document; empty if it concerns the whole.
        message: what is wrong.
        line: in the file, from 1; 0 if it isn't known.
        text: the whole fault in one line.
    """

    file: str
    path: str
    message: str
    line: int
    text: str


_SAYS_MORE = "there may be more faults: correct these first"
_MORE = FileFault("", "", _SAYS_MORE, 0, _SAYS_MORE)


class DocumentsError(Exception):
    """Documents have faults: none of them is applied, and all faults are reported, or the first `MOST_FAULTS`."""

    def __init__(self, faults: list[FileFault]) -> None:
        self.faults = faults
        super().__init__("\n".join(each.text for each in faults))


class Documents(msgspec.Struct):
    """The documents of files, by name."""

    rule_sets: dict[str, engine.RuleSet] = {}
    assignments: dict[str, engine.Assignment] = {}
    priority_classes: dict[str, engine.PriorityClass] = {}
    pauses: dict[str, engine.Pause] = {}
    exemptions: dict[str, engine.Exemption] = {}
    # Patterns of live objects that are removed if the files don't contain them.
    prune: list[str] = []
    # The objects to remove, by kind and name.
    removed: list[publishing.Key] = []
    # Ignored documents, and why.
    passed_over: list[str] = []
    # The files' repository.
    keeper: publishing.Keeper = publishing.NOBODY

    def edits(self, live: engine.Revision) -> list[publishing.Edit]:
        """Return the edits that make all documents live, and remove the live objects of the scopes that aren't among them.

        Raises:
            PublishingError: a scope is invalid, for instance by a typo, which would prune nothing; or the files contain a Pause or an
                Exemption, which pruning would end.
        """
        if wrong := faults_of_scopes(self.prune):
            raise publishing.PublishingError(wrong)
        values: list[publishing.Value] = [*self.rule_sets.values(), *self.assignments.values()]
        values += [*self.priority_classes.values(), *self.pauses.values(), *self.exemptions.values()]
        edits = [publishing.Edit.of(value) for value in values]
        kept = {edit.key for edit in edits}
        gone = [key for key in publishing.values_of(live) if key not in kept and self._is_in_scope(*key)]
        if self.keeper.owner:
            # Objects with another keeper, or none, aren't this repository's to remove.
            marks = publishing.owner_marks(gone)
            gone = [key for key in gone if key in marks and marks[key].owner == self.keeper.owner]
        edits += [publishing.Edit(*key, None) for key in [*gone, *self.removed]]
        publishing.check_held(edits, live)
        return edits

    def notes(self) -> list[str]:
        """Return notes for the user about the documents."""
        kinds = (self.rule_sets, self.assignments, self.priority_classes, self.pauses, self.exemptions, self.removed)
        if self.prune or any(kinds):
            return self.passed_over
        return [*self.passed_over, "The files hold nothing, and nothing is pruned: nothing is removed."]

    def _is_in_scope(self, kind: str, name: str) -> bool:
        return any(fnmatchcase(f"{kind}/{name}" if "/" in scope else name, scope) for scope in self.prune)

    def of_kind(self, value: engine.Document) -> dict[str, Any]:
        """Return the documents of the same kind."""
        match value:
            case engine.RuleSet():
                return self.rule_sets
            case engine.Assignment():
                return self.assignments
            case engine.PriorityClass():
                return self.priority_classes
            case engine.Pause():
                return self.pauses
            case engine.Exemption():
                return self.exemptions


def faults_of_scopes(scopes: Iterable[str]) -> list[str]:
    """Return what is wrong with scopes to prune in."""
    kinds = ", ".join(publishing.Kind)
    return [
        f"{scope!r} is no scope to prune in: team-a-*, or Assignment/team-a-* of one kind; kinds are {kinds}."
        for scope in scopes
        if not _is_scope(scope)
    ]


def _is_scope(text: str) -> bool:
    kind, slash, name = text.rpartition("/")
    return bool(name) and (not slash or any(fnmatchcase(each, kind) for each in publishing.Kind))


class _Given(NamedTuple):
    """A parsed document, and its file, or its number in a request."""

    file: str
    located: Located
    is_of_file: bool = True

    @property
    def rule_set(self) -> str:
        """The name of the rule set, even if the document has faults; empty for documents of other kinds."""
        document = self.located.document
        is_one = isinstance(document, dict) and document.get("kind") == "RuleSet"
        metadata = document.get("metadata") if is_one else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        return name if isinstance(name, str) else ""

    def fault(self, fault: Fault) -> FileFault:
        line = self.located.line_of(fault.path) if self.located.lines else 0
        text = self.located.describe(fault) if line else f"{self.file}: {fault}"
        return FileFault(self.file, fault.path, fault.message, line, text)


def read_files(
    texts: Iterable[tuple[str, str]] = (), objects: Iterable[Mapping[str, Any]] = (), faults: Iterable[FileFault] = ()
) -> Documents:
    """Return the documents of files, and of objects that are parsed already.

    Args:
        texts: name and text of each file, YAML or JSON.
        objects: parsed documents.
        faults: those of files that couldn't be opened.

    Raises:
        DocumentsError: with every fault in them, or the first `MOST_FAULTS`; or there are more than MOST_DOCUMENTS.
    """
    found, documents = list(faults), Documents()
    given = _given(texts, objects, found, documents.passed_over)
    objects_given = ((each.located.document, each.file if each.is_of_file else "") for each in given)
    read = checking.read_until(objects_given, MOST_FAULTS)
    faulty = set[str]()
    # Nothing is read of the documents after very many faults.
    for each, value, beside in zip(given, read, checking.faults_beside(read), strict=False):
        if isinstance(value, RuleSetError):
            found += [each.fault(fault) for fault in value.faults]
            faulty.add(each.rule_set)
            continue
        found += [each.fault(fault) for fault in beside]
        documents.of_kind(value)[value.name] = value
    is_all = len(read) == len(given)
    found += unknown_rule_sets(documents, faulty) if is_all else []
    if found:
        raise DocumentsError(_told(found, is_all=is_all))
    return documents


def lint_files(texts: Iterable[tuple[str, str]]) -> tuple[list[FileFault], list[str]]:
    """Return the faults of files that belong together, `MOST_FAULTS` at most, including those of their documents' own tests; and the ignored documents.

    Needs no database.
    """
    found: list[FileFault] = []
    notes: list[str] = []
    try:
        given = _given(texts, (), found, notes)
    except DocumentsError as error:
        return error.faults, notes
    checked = checking.faults_together(((each.located.document, each.file) for each in given), MOST_FAULTS)
    found += [each.fault(fault) for each, faults in zip(given, checked, strict=False) for fault in faults]
    return _told(found, is_all=len(checked) == len(given)), notes


def _told(faults: Iterable[FileFault], *, is_all: bool) -> list[FileFault]:
    """Return the first faults, each once: a fault at the head of a configuration appears in each of its profiles."""
    once = list(dict.fromkeys(faults))
    return once if is_all and len(once) <= MOST_FAULTS else [*once[: MOST_FAULTS - 1], _MORE]


def _given(
    texts: Iterable[tuple[str, str]],
    objects: Iterable[Mapping[str, Any]],
    faults: list[FileFault],
    notes: list[str],
) -> list[_Given]:
    """Return the documents of files, and objects that are parsed already; further files aren't read once there are too many.

    Raises:
        DocumentsError: there are more than MOST_DOCUMENTS.
    """
    of_files = (_documents_of(name, text, faults, notes) for name, text in texts)
    of_objects = (_objects_of(f"documents[{number}]", each, faults, notes) for number, each in enumerate(objects))
    given: list[_Given] = []
    for found in chain(of_files, of_objects):
        given += found
        if len(given) > MOST_DOCUMENTS:
            raise DocumentsError([FileFault("", "", _TOO_MANY, 0, _TOO_MANY)])
    return given


def _documents_of(name: str, text: str, faults: list[FileFault], notes: list[str]) -> list[_Given]:
    try:
        read = checking.read_documents(text, name)
    except RuleSetError as error:
        faults += [_of_syntax(name, each) for each in error.faults]
        return []
    return [_Given(name, each) for each in _taken_apart(name, read, faults, notes)]


def _of_syntax(name: str, fault: Fault) -> FileFault:
    """Return a fault of a file that can't be read. Its message begins with its place: the file, and mostly the line."""
    place = _PLACE.match(fault.message, len(name)) if fault.message.startswith(name) else None
    if place is None:
        return FileFault(name, fault.path, fault.message, 0, f"{name}: {fault}")
    return FileFault(name, fault.path, fault.message[place.end() :], int(place["line"] or 0), fault.message)


_PLACE = re.compile(r"(?::(?P<line>\d+))?: ")


def _taken_apart(name: str, read: Sequence[Located], faults: list[FileFault], notes: list[str]) -> list[Located]:
    try:
        held = documents_in(read)
    except RuleSetError as error:
        faults += [FileFault(name, "", each.message, 0, f"{name}: {each.message}") for each in error.faults]
        return []
    notes += [f"{name}: {held.note}"] if held.note else []
    return held.documents


def _objects_of(source: str, document: Mapping[str, Any], faults: list[FileFault], notes: list[str]) -> list[_Given]:
    """Return an object, or the objects of a List, as from a file."""
    found = _taken_apart(source, [Located(document, source, {})], faults, notes)
    return [_Given(f"{source}.{each.head}".rstrip("."), each, is_of_file=False) for each in found]


def unknown_rule_sets(documents: Documents, faulty: Collection[str] = ()) -> Iterator[FileFault]:
    """Iterate over Assignments' unknown rule sets: neither live, nor among the documents, nor among those with faults."""
    known = {*RuleSet.objects.values_list("name", flat=True), *documents.rule_sets, *faulty}
    for each in documents.assignments.values():
        if each.rule_set not in known:
            message = f"no rule set is called {each.rule_set}, here or in these files"
            named = f"Assignment {each.name}"
            yield FileFault(named, "spec.ruleSet", message, 0, f"{named}: {message}")
