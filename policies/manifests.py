"""Rule documents as text: YAML or JSON with several documents a file, and the line that each path stands on."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import yaml

from policies.engine.errors import Fault, RuleSetError
from policies.engine.reading import HALF_CHARACTER, not_json

# The longest file. A longer one isn't parsed at all.
MAX_CHARACTERS = 16 * 2**20
# Values in one document, counting each use of an anchor: a small file can expand to more than memory holds.
MAX_VALUES = 100_000
# Characters of texts and paths in one document, counted in the same way: 120 kB of anchors and long names made 1.9 GB.
MAX_WRITTEN = 32 * 2**20
# The depth of lists and objects.
MAX_NESTING = 100

_TAG = "tag:yaml.org,2002:"
_JSON_TAGS = frozenset(_TAG + name for name in ("map", "seq", "str", "int", "float", "bool", "null"))
_MERGE = _TAG + "merge"
# The types of a plain = and of a plain << that names no member.
_UNQUOTED = frozenset({_TAG + "value", _MERGE})


class Located:
    """One document of a file, with the places of its members.

    Attributes:
        document: its decoded content.
        source: the name of the file.
        lines: the line of each path.
        head: the path of the document inside the one that was read.
    """

    def __init__(self, document: Any, source: str, lines: dict[str, int], head: str = "") -> None:
        self.document = document
        self.source = source
        self.lines = lines
        self.head = head

    def line_of(self, path: str) -> int:
        """Return the line (from 1) of the member at `path`, or of its nearest existing parent."""
        path = f"{self.head}.{path}".strip(".")
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 1)

    def items(self) -> list["Located"]:
        """Return the documents of a Kubernetes List, one for each profile of a configuration, or only this one."""
        kind = self.document.get("kind") if isinstance(self.document, dict) else None
        if kind in _LISTS and isinstance(found := self.document.get("items"), list):
            said = {"apiVersion": self.document.get("apiVersion"), "kind": _KIND_OF_ITEMS} if kind != "List" else {}
            items = [said | item if isinstance(item, dict) else item for item in found]
            return [Located(item, self.source, self.lines, f"items[{index}]") for index, item in enumerate(items)]
        profiles = self.document.get("profiles") if kind == CONFIGURATION else None
        if not isinstance(profiles, list) or not 1 < len(profiles) <= _MAX_PROFILES:
            return [self]
        # None in place of the other profiles, so that a profile keeps its path in the file.
        alone = [self.document | {"profiles": [*[None] * index, each]} for index, each in enumerate(profiles)]
        return [Located(each, self.source, self.lines) for each in alone]

    @property
    def is_empty_list(self) -> bool:
        """Whether this is a Kubernetes List that is explicitly empty."""
        document = self.document
        return isinstance(document, dict) and document.get("kind") == "List" and document.get("items") == []

    @property
    def made_by_kubernetes(self) -> str:
        """The name of a PriorityClass that Kubernetes makes itself, as in `kubectl get -o yaml`; empty for all else."""
        document = self.document if isinstance(self.document, dict) else {}
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        is_class = document.get("kind") == _KIND_OF_ITEMS and document.get("apiVersion") == "scheduling.k8s.io/v1"
        return name if is_class and isinstance(name, str) and name in _MADE_BY_KUBERNETES else ""

    def describe(self, fault: Fault) -> str:
        """Write a fault as people and editors read it: file:line: path: message."""
        return f"{self.source}:{self.line_of(fault.path)}: {fault}"


class Held(NamedTuple):
    """The contents of a file.

    Attributes:
        documents: including those inside Lists.
        note: which documents are skipped, and why; empty for none.
    """

    documents: list[Located]
    note: str


def documents_in(read: Sequence[Located]) -> Held:
    """Return the contents of a file. PriorityClasses that only Kubernetes itself can make are skipped.

    Raises:
        RuleSetError: it has neither a document nor an empty List: with --prune a slip would remove all of its documents.
    """
    found = [item for each in read for item in each.items()]
    kept = [each for each in found if not each.made_by_kubernetes]
    passed = ", ".join(each.made_by_kubernetes for each in found if each.made_by_kubernetes)
    if not kept and not any(each.is_empty_list for each in read):
        besides = f" besides {passed}, which Kubernetes makes itself" if passed else ""
        raise RuleSetError(
            [Fault("", f"holds no document{besides}: if it is to hold nothing, write {_EMPTY_LIST} in it")]
        )
    return Held(kept, f"{passed} passed over: Kubernetes makes such PriorityClasses itself" if passed else "")


# The text of a file without documents.
_EMPTY_LIST = "{apiVersion: v1, kind: List, items: []}"
CONFIGURATION = "KubeSchedulerConfiguration"
# Kinds of kube-scheduler's own files that are converted to rule sets. Not a set: a file's `kind` may be unhashable.
KUBE_SCHEDULERS = ("Policy", CONFIGURATION)
_LISTS = ("List", "PriorityClassList")
# In the API server's list of one kind, the items have no `kind`.
_KIND_OF_ITEMS = "PriorityClass"
# Every cluster has them. Source: Kubernetes v1.36.3 pkg/apis/scheduling/v1/helpers.go.
_MADE_BY_KUBERNETES = frozenset({"system-cluster-critical", "system-node-critical"})
# The most profiles of a configuration that is split.
_MAX_PROFILES = 100


class _Loader(yaml.SafeLoader):
    """Reads YAML as JSON's types: dates, times, `off`, `on`, `yes` and `no` stay texts."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Make a node, within the limits of number and depth."""
        self._depth = getattr(self, "_depth", -1) + 1
        self._nodes = getattr(self, "_nodes", 0) + 1 if self._depth else 1
        _check_bounds(self._nodes, self._depth, self.peek_event())  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001,FBT002 - PyYAML's
        """Make a value of a node; a text that doesn't match its tag is reported with its line."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError) as error:
            kind = _KINDS.get(node.tag, "what its tag says")
            raise _fault(node, f"this can't be read as {kind}: put it in quotes if it is a text") from error

    def scan_flow_scalar_non_spaces(self, double: bool, start_mark: Any) -> Any:  # noqa: FBT001 - PyYAML's
        """Read a part of a quoted text; an escape beyond Unicode's last character is reported with its line."""
        try:
            return super().scan_flow_scalar_non_spaces(double, start_mark)
        except (ValueError, OverflowError) as error:
            mark: Any = self.get_mark()
            raise yaml.MarkedYAMLError(problem="no character has this number", problem_mark=mark) from error

    def construct_whole_number(self, node: yaml.ScalarNode) -> int:
        """Read an integer, but not in base 60: a plain 22:30 is a text."""
        _check_base(node)
        number = int(self.construct_yaml_int(node))
        # As for one in base 10, Python refuses to write one with more than 4,300 digits.
        str(number)
        return number

    def construct_number(self, node: yaml.ScalarNode) -> float:
        """Read a float, but not in base 60."""
        _check_base(node)
        return float(self.construct_yaml_float(node))

    def construct_text(self, node: yaml.ScalarNode) -> str:
        """Read a text. JSON writes characters beyond U+FFFF as two escapes, which YAML reads as two characters."""
        text = str(self.construct_scalar(node))
        return _SURROGATES.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)


_KINDS = {_TAG + "int": "a whole number", _TAG + "float": "a number", _TAG + "bool": "true or false"}
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_Loader.add_constructor(_TAG + "str", _Loader.construct_text)
_Loader.add_constructor(_TAG + "int", _Loader.construct_whole_number)
_Loader.add_constructor(_TAG + "float", _Loader.construct_number)
_NUMBERS = {_TAG + "int", _TAG + "float"}


def _check_base(node: yaml.ScalarNode) -> None:
    """Refuse a number in base 60.

    Raises:
        ValueError: it is one; `construct_object` adds the line.
    """
    if isinstance(node.value, str) and ":" in node.value:
        message = "a number of base 60"
        raise ValueError(message)


def _without_times(tag: str, pattern: re.Pattern[str]) -> tuple[str, re.Pattern[str]]:
    """Return a resolver's pattern without numbers in base 60, which only YAML 1.1 has: 22:30 would be 1,350."""
    return tag, re.compile(f"(?!.*:)(?:{pattern.pattern})", pattern.flags) if tag in _NUMBERS else pattern


_Loader.yaml_implicit_resolvers = {
    first: [_without_times(*each) for each in resolvers if each[0] not in {_TAG + "timestamp", _TAG + "bool"}]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_TAG + "bool", re.compile("(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


class _Written:
    """Writes YAML that every parser reads back as the same JSON."""

    def ignore_aliases(self, data: object) -> bool:
        """Write repeated values in full: the bytes must not depend on which parts are the same object."""
        return True


class _Dumper(_Written, yaml.SafeDumper):
    """Writes with PyYAML's own emitter."""


class _FastDumper(_Written, yaml.CSafeDumper):
    """Writes the same bytes with libyaml, in about a seventh of the time, except where _WRITTEN_OTHERWISE matches."""


# Marks of places at which libyaml writes other bytes than PyYAML: escapes, which it needs for other characters and around
# which it breaks lines elsewhere, an empty name, and a long one, of which it counts the bytes and PyYAML the characters.
_WRITTEN_OTHERWISE = re.compile(r"\\|'':|^[ -]*\? |^.{118,}:(?:\s|\Z)", re.MULTILINE)


def _represent_text(dumper: _Dumper | _FastDumper, text: str) -> yaml.ScalarNode:
    """Write a text. PyYAML breaks lines at rare line separators, which then read back differently."""
    return dumper.represent_scalar(_TAG + "str", text, style='"' if _RARE_LINE_ENDS.search(text) else None)


_RARE_LINE_ENDS = re.compile("[\x85\u2028\u2029]")
_DUMPERS: tuple[type[_Dumper | _FastDumper], ...] = (_Dumper, _FastDumper)
for _dumper in _DUMPERS:
    _dumper.add_representer(str, _represent_text)

# JSON's numbers with an exponent: YAML 1.1 requires a point and a sign in them.
for _kind in (_Loader, *_DUMPERS):
    _kind.add_implicit_resolver(
        _TAG + "float", re.compile(r"-?[0-9]+(?:\.[0-9]+)?[eE][-+]?[0-9]+$"), list("-0123456789")
    )


# Texts that Kubernetes' tools, which are in Go, read as a number or as true or false unless they stand in quotes: 08 and y,
# for instance. Source: go.yaml.in/yaml/v2 v2.4.3 resolve.go.
_GO_NUMBER = re.compile(
    r"[-+]?(?:0[xXoObB][0-9a-fA-F_]+|(?:\.[0-9_]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9_]+)?)$"
)
for _dumper in _DUMPERS:
    _dumper.add_implicit_resolver(_TAG + "float", _GO_NUMBER, list("-+.0123456789"))
    _dumper.add_implicit_resolver(_TAG + "bool", re.compile("[yYnN]$"), list("yYnN"))


class _FastLoader(yaml.CSafeLoader):
    """Reads the same as _Loader, with libyaml: in a sixteenth of the time, but with other error messages."""

    yaml_constructors = _Loader.yaml_constructors
    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


# Texts that libyaml reads differently from PyYAML, or places on another line: tabs, byte order marks, rare line
# separators, directives, `?` before a member's name, a `!` alone, and a comment without a space before it.
_READ_OTHERWISE = re.compile(
    r"[\t\ufeff\x85\u2028\u2029]|^%|^[\s-]*\?|(?:^|[\s,\[{])!(?=[\s,\]}]|\Z)|[|>]#", re.MULTILINE
)


def read_documents(text: str, source: str) -> list[Located]:
    """Return the documents of a file. Empty documents are skipped.

    Raises:
        RuleSetError: the text isn't YAML or JSON, or has values that JSON can't express; the message has the line.
    """
    if len(text) > MAX_CHARACTERS:
        raise RuleSetError([Fault("", f"{source}:1: has more than {MAX_CHARACTERS:,} characters: split it")])
    try:
        is_read = _is_read_by_libyaml(text.replace("\t", " "))
    except _BeyondError as error:
        raise RuleSetError([Fault("", _explain(error, text, source))]) from error
    wrong = _json_fault(text)
    if wrong is None:
        text = _escaped(text)
    if is_read and not _READ_OTHERWISE.search(text):
        with suppress(*_UNREADABLE):
            return list(_read(_FastLoader(text), source))
    # Error messages are PyYAML's own.
    try:
        return list(_read(_Loader(text), source))
    except _UNREADABLE as error:
        if isinstance(wrong, json.JSONDecodeError) and _LOOKS_LIKE_JSON.match(text):
            said = f"{source}:{wrong.lineno}: not readable as YAML or JSON: column {wrong.colno}: {wrong.msg}"
            raise RuleSetError([Fault("", said)]) from error
        raise RuleSetError([Fault("", _explain(error, text, source))]) from error


# ValueError and LookupError: a value that doesn't match its tag, such as `!!bool x`.
_UNREADABLE = (yaml.YAMLError, RecursionError, ValueError, LookupError)


def _is_read_by_libyaml(text: str) -> bool:
    """Return whether libyaml parses a text to its end; only its events are read, no values are made.

    Texts that it can't parse are left to PyYAML's parser, which has the same limits. libyaml itself has none, and uses
    C stack for each level.

    Raises:
        _BeyondError: a document in it exceeds a limit.
    """
    nodes = depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.DocumentStartEvent):
                nodes = depth = 0
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif isinstance(event, yaml.NodeEvent):
                nodes += 1
                _check_bounds(nodes, depth, event)
                depth += isinstance(event, yaml.CollectionStartEvent)
    except _BeyondError:
        raise
    except (yaml.YAMLError, UnicodeEncodeError):  # libyaml requires UTF-8, which can't encode half of a surrogate pair
        return False
    return True


class _BeyondError(yaml.MarkedYAMLError):
    """A document exceeds a limit."""


def _check_bounds(nodes: int, depth: int, at: yaml.Event) -> None:
    mark: Any = at.start_mark  # libyaml has its own class for marks
    if nodes > MAX_VALUES:
        raise _BeyondError(problem=f"a document holds at most {MAX_VALUES} values", problem_mark=mark)
    if depth > MAX_NESTING:
        message = f"too deeply nested: lists and objects stand at most {MAX_NESTING} deep inside each other"
        raise _BeyondError(problem=message, problem_mark=mark)


_LOOKS_LIKE_JSON = re.compile(r"\ufeff?\s*[\[{]\s*[\"{\[}\]]")


def _json_fault(text: str) -> Exception | None:
    """Return why a text isn't JSON; None if it is."""
    try:
        json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        return error
    return None


# Characters that JSON allows in its texts, and that YAML reads as a line break or refuses.
_NO_YAML = re.compile("(?!\\A\ufeff)[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def as_yaml(text: str) -> str:
    """Return a text of JSON in a form that every YAML reader takes; any other text as it is."""
    return _escaped(text) if _json_fault(text) is None else text


def _escaped(text: str) -> str:
    """Return JSON with the characters escaped that YAML would read differently; lines keep their numbers."""
    # In JSON a tab occurs only between tokens, where YAML refuses it; the other characters occur only in texts.
    return _NO_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text.replace("\t", " "))


def _read(loader: "_Loader | _FastLoader", source: str) -> Iterator[Located]:
    while loader.check_node():
        node: Any = loader.get_node()
        lines: dict[str, int] = {}
        written = 0
        for count, (path, line, characters) in enumerate(_lines(node, "", set())):
            if count == MAX_VALUES:
                message = f"a document holds at most {MAX_VALUES} values, repeated anchors counted each time"
                raise _fault(node, message)
            written += len(path) + characters
            if written > MAX_WRITTEN:
                message = f"a document holds at most {MAX_WRITTEN:,} characters of texts and paths, repeated anchors counted each time"
                raise _fault(node, message)
            lines[path] = line
        document = loader.construct_document(node)
        if document is not None:
            yield Located(document, source, lines)


def not_a_pod(document: object) -> str:
    """Return why a manifest isn't a Pod's, judging by its texts and its kind; empty where it may be one."""
    # YAML and JSON can write one; no page, answer or terminal can say it.
    if half := next((each for each in not_json(document) if each.message == HALF_CHARACTER), None):
        return str(half)
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind in (None, "Pod"):
        return ""
    return f"this is a {str(kind)[:40]}, not a Pod: give a Pod that it makes, or name one of those in the cluster"


def to_yaml(document: dict[str, Any] | list[Any], *, width: int = 110) -> str:
    """Return a document as YAML, the same bytes for the same document; members keep their order."""
    try:
        text = _dump(document, _FastDumper, width)
    except UnicodeEncodeError:  # half a character, as `"\ud800"` in JSON
        return _dump(document, _Dumper, width)
    return _dump(document, _Dumper, width) if _WRITTEN_OTHERWISE.search(text) else text


def _dump(document: dict[str, Any] | list[Any], dumper: type[_Dumper | _FastDumper], width: int) -> str:
    return str(yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=width))


def to_json(document: dict[str, Any]) -> str:
    """Return a document as indented JSON."""
    return json.dumps(document, indent=2, ensure_ascii=False)


def _explain(error: Exception, text: str, source: str) -> str:
    line, problem = "", str(error)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        line, problem = f":{error.problem_mark.line + 1}", error.problem or problem
        there = "".join(text.split("\n")[error.problem_mark.line :][:1])
        if isinstance(error, yaml.scanner.ScannerError | yaml.parser.ParserError) and _EXPRESSION.search(there):
            problem += "; YAML reads !, &, |, quotes, brackets and ': ' as its own: write the expression after >-"
    elif isinstance(error, yaml.reader.ReaderError):
        line, problem = f":{text.count(chr(10), 0, error.position) + 1}", error.reason
    elif isinstance(error, RecursionError):
        problem = "too deeply nested"
    return f"{source}{line}: not readable as YAML or JSON: {problem}"


# An expression that begins on the line of its name.
_EXPRESSION = re.compile(r"\bexpression:\s+[^\s>|]")


def _fault(node: yaml.Node, message: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)


def _names(node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node]]:
    """Yield the members. A repeated name is refused as a mistake: YAML would silently take the last one."""
    seen: set[str] = set()
    for key, value in node.value:
        if key.tag not in {_TAG + "str", _MERGE}:
            raise _fault(key, "a member's name must be a text: put it in quotes")
        if key.value in seen:
            raise _fault(key, f"the member {key.value} stands here twice")
        seen.add(key.value)
        yield key.value, value


def _lines(node: yaml.Node, path: str, open_nodes: set[int]) -> Iterator[tuple[str, int, int]]:
    """Walk the tree, including an anchor at each of its uses, and refuse values that JSON doesn't have.

    Yields the path of each value, its line, and the number of a text's characters.
    """
    if node.tag not in _JSON_TAGS:
        hint = ": put it in quotes if it is a text" if node.tag.startswith("!") or node.tag in _UNQUOTED else ""
        raise _fault(node, f"{node.tag} isn't a type that JSON has{hint}")
    if id(node) in open_nodes:
        raise _fault(node, "this anchor contains itself")
    yield path, node.start_mark.line + 1, len(node.value) if isinstance(node, yaml.ScalarNode) else 0
    open_nodes.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for name, value in _names(node):
            yield from _lines(value, f"{path}.{name}".strip("."), open_nodes)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _lines(value, f"{path}[{index}]", open_nodes)
    open_nodes.discard(id(node))
