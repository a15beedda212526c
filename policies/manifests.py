"""Rule documents as text: YAML or JSON with several documents a file, and the line that each path stands on."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import yaml

from policies.engine.errors import Fault, RuleSetError

# Of a file. Nothing of it is looked at when it has more.
MAX_CHARACTERS = 16 * 2**20
# Values in one document, each repetition of an anchor counted: a small file can stand for more than memory holds.
MAX_VALUES = 100_000
# Characters of texts and paths in one document, counted likewise: 120 kB of anchors and long names stood for 1.9 GB.
MAX_WRITTEN = 32 * 2**20
# Lists and objects inside each other.
MAX_NESTING = 100

_TAG = "tag:yaml.org,2002:"
_JSON_TAGS = frozenset(_TAG + name for name in ("map", "seq", "str", "int", "float", "bool", "null"))
_MERGE = _TAG + "merge"


class Located:
    """One document of a file, and where its members stand.

    Attributes:
        document: what was written.
        source: names the file.
        lines: the line of each path.
        head: where the document stands inside the one that was read.
    """

    def __init__(self, document: Any, source: str, lines: dict[str, int], head: str = "") -> None:
        self.document = document
        self.source = source
        self.lines = lines
        self.head = head

    def line_of(self, path: str) -> int:
        """Return the line (from 1) of the member at `path`, or of the nearest one above it that is there."""
        path = f"{self.head}.{path}".strip(".")
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 1)

    def items(self) -> list["Located"]:
        """Return the documents of a List as Kubernetes writes it, one for each profile of a configuration, or this one alone."""
        kind = self.document.get("kind") if isinstance(self.document, dict) else None
        if kind in _LISTS and isinstance(found := self.document.get("items"), list):
            said = {"apiVersion": self.document.get("apiVersion"), "kind": _KIND_OF_ITEMS} if kind != "List" else {}
            items = [said | item if isinstance(item, dict) else item for item in found]
            return [Located(item, self.source, self.lines, f"items[{index}]") for index, item in enumerate(items)]
        profiles = self.document.get("profiles") if kind == CONFIGURATION else None
        if not isinstance(profiles, list) or not 1 < len(profiles) <= _MAX_PROFILES:
            return [self]
        # Empty places before a profile, so that its path is the one in the file.
        alone = [self.document | {"profiles": [*[None] * index, each]} for index, each in enumerate(profiles)]
        return [Located(each, self.source, self.lines) for each in alone]

    @property
    def is_empty_list(self) -> bool:
        """Whether this is a List as Kubernetes writes it, that says of itself that it holds nothing."""
        document = self.document
        return isinstance(document, dict) and document.get("kind") == "List" and document.get("items") == []

    @property
    def made_by_kubernetes(self) -> str:
        """The name of a PriorityClass that Kubernetes makes itself, as `kubectl get -o yaml` has it; empty for everything else."""
        document = self.document if isinstance(self.document, dict) else {}
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        is_class = document.get("kind") == _KIND_OF_ITEMS and document.get("apiVersion") == "scheduling.k8s.io/v1"
        return name if is_class and isinstance(name, str) and name in _MADE_BY_KUBERNETES else ""

    def describe(self, fault: Fault) -> str:
        """Write a fault as people and editors read it: file:line: path: message."""
        return f"{self.source}:{self.line_of(fault.path)}: {fault}"


class Held(NamedTuple):
    """What a file holds.

    Attributes:
        documents: those of its Lists among them.
        note: which of them are passed over, and why; empty where none is.
    """

    documents: list[Located]
    note: str


def documents_in(read: Sequence[Located]) -> Held:
    """Return what a file holds; PriorityClasses that Kubernetes makes itself, and nobody else can, are passed over.

    Raises:
        RuleSetError: there is nothing, and no List says so: with --prune a slip in a file would remove all that it held.
    """
    found = [item for each in read for item in each.items()]
    kept = [each for each in found if not each.made_by_kubernetes]
    passed = ", ".join(each.made_by_kubernetes for each in found if each.made_by_kubernetes)
    if not kept and not any(each.is_empty_list for each in read):
        besides = f" besides {passed}, which Kubernetes makes itself" if passed else ""
        raise RuleSetError(
            [Fault("", f"holds no document{besides}: if it is to hold nothing, write {EMPTY_LIST} in it")]
        )
    return Held(kept, f"{passed} passed over: Kubernetes makes such PriorityClasses itself" if passed else "")


# What a file says that is to hold nothing.
EMPTY_LIST = "{apiVersion: v1, kind: List, items: []}"
CONFIGURATION = "KubeSchedulerConfiguration"
# Kinds of kube-scheduler's own files that rule sets are made of. No sets: a kind can be a list in a file, which none can be asked for.
KUBE_SCHEDULERS = ("Policy", CONFIGURATION)
_LISTS = ("List", "PriorityClassList")
# As the API server writes a list of one kind, the items don't say it.
_KIND_OF_ITEMS = "PriorityClass"
# Which every cluster has. Source: Kubernetes v1.36.3 pkg/apis/scheduling/v1/helpers.go.
_MADE_BY_KUBERNETES = frozenset({"system-cluster-critical", "system-node-critical"})
# Of a configuration that is taken apart.
_MAX_PROFILES = 100


class _Loader(yaml.SafeLoader):
    """Reads YAML as JSON's types: a date stays the text that was written, and so do a time, `off`, `on`, `yes` and `no`."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Make a node; not more of them, nor deeper inside each other, than a document may have."""
        self._depth = getattr(self, "_depth", -1) + 1
        self._nodes = getattr(self, "_nodes", 0) + 1 if self._depth else 1
        _check_bounds(self._nodes, self._depth, self.peek_event())  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001,FBT002 - PyYAML's
        """Make a value of a node; a text that isn't what its tag says is told with its line."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError) as error:
            kind = _KINDS.get(node.tag, "what its tag says")
            raise _fault(node, f"this can't be read as {kind}: put it in quotes if it is a text") from error

    def scan_flow_scalar_non_spaces(self, double: bool, start_mark: Any) -> Any:  # noqa: FBT001 - PyYAML's
        """Read a piece of a text in quotes; an escape beyond the last character is told with its line."""
        try:
            return super().scan_flow_scalar_non_spaces(double, start_mark)
        except (ValueError, OverflowError) as error:
            mark: Any = self.get_mark()
            raise yaml.MarkedYAMLError(problem="no character has this number", problem_mark=mark) from error

    def construct_whole_number(self, node: yaml.ScalarNode) -> int:
        """Read what is said to be a whole number, in base 60 neither: a plain 22:30 is a text."""
        _check_base(node)
        return int(self.construct_yaml_int(node))

    def construct_number(self, node: yaml.ScalarNode) -> float:
        """Read what is said to be a number, likewise."""
        _check_base(node)
        return float(self.construct_yaml_float(node))

    def construct_text(self, node: yaml.ScalarNode) -> str:
        """Read a text. JSON writes rare characters as two escapes, which YAML takes for two characters."""
        text = str(self.construct_scalar(node))
        return _SURROGATES.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)


_KINDS = {_TAG + "int": "a whole number", _TAG + "float": "a number", _TAG + "bool": "true or false"}
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_Loader.add_constructor(_TAG + "str", _Loader.construct_text)
_Loader.add_constructor(_TAG + "int", _Loader.construct_whole_number)
_Loader.add_constructor(_TAG + "float", _Loader.construct_number)
_NUMBERS = {_TAG + "int", _TAG + "float"}


def _check_base(node: yaml.ScalarNode) -> None:
    """Refuse a number of base 60.

    Raises:
        ValueError: it is one; `construct_object` tells where it stands.
    """
    if isinstance(node.value, str) and ":" in node.value:
        message = "a number of base 60"
        raise ValueError(message)


def _without_times(tag: str, pattern: re.Pattern[str]) -> tuple[str, re.Pattern[str]]:
    """Return what makes a plain text a value, but no number of base 60: 22:30 would be 1,350, as only YAML 1.1 has it."""
    return tag, re.compile(f"(?!.*:)(?:{pattern.pattern})", pattern.flags) if tag in _NUMBERS else pattern


_Loader.yaml_implicit_resolvers = {
    first: [_without_times(*each) for each in resolvers if each[0] not in {_TAG + "timestamp", _TAG + "bool"}]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_TAG + "bool", re.compile("(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


class _Dumper(yaml.SafeDumper):
    """Writes YAML that reads back as the same JSON, here and elsewhere."""

    def ignore_aliases(self, data: object) -> bool:
        """Write out what stands in several places: the bytes must not depend on which parts are one object."""
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Write a text. PyYAML breaks lines at rare line ends, which then read back as others."""
        return self.represent_scalar(_TAG + "str", text, style='"' if _RARE_LINE_ENDS.search(text) else None)


_RARE_LINE_ENDS = re.compile("[\x85\u2028\u2029]")
_Dumper.add_representer(str, _Dumper.represent_text)

for _kind in (_Loader, _Dumper):  # what JSON takes for a number: YAML 1.1 wants a point and a sign in it
    _kind.add_implicit_resolver(
        _TAG + "float", re.compile(r"-?[0-9]+(?:\.[0-9]+)?[eE][-+]?[0-9]+$"), list("-0123456789")
    )


class _FastLoader(yaml.CSafeLoader):
    """Reads as _Loader does, by libyaml: in a sixteenth of the time, but with other words for what is wrong."""

    yaml_constructors = _Loader.yaml_constructors
    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


# What libyaml reads otherwise than PyYAML, or places on another line: tabs, byte order marks, rare line ends, directives,
# `?` before a member's name, a `!` alone, and a comment without a space before it.
_READ_OTHERWISE = re.compile(
    r"[\t\ufeff\x85\u2028\u2029]|^%|^[\s-]*\?|(?:^|[\s,\[{])!(?=[\s,\]}]|\Z)|[|>]#", re.MULTILINE
)


def read_documents(text: str, source: str) -> list[Located]:
    """Read the documents of a file. Empty documents are passed over.

    Raises:
        RuleSetError: the text isn't YAML or JSON, or stands for what JSON can't hold; the message has the line.
    """
    if len(text) > MAX_CHARACTERS:
        raise RuleSetError([Fault("", f"{source}:1: has more than {MAX_CHARACTERS:,} characters: split it")])
    try:
        is_read = _is_read_by_libyaml(text.replace("\t", " "))
    except _BeyondError as error:
        raise RuleSetError([Fault("", _explain(error, text, source))]) from error
    wrong = _json_fault(text)
    if wrong is None:
        text = _as_yaml(text)
    if is_read and not _READ_OTHERWISE.search(text):
        with suppress(*_UNREADABLE):
            return list(_read(_FastLoader(text), source))
    # What is wrong, and where, is told in PyYAML's own words.
    try:
        return list(_read(_Loader(text), source))
    except _UNREADABLE as error:
        if isinstance(wrong, json.JSONDecodeError) and _LOOKS_LIKE_JSON.match(text):
            said = f"{source}:{wrong.lineno}: not readable as YAML or JSON: column {wrong.colno}: {wrong.msg}"
            raise RuleSetError([Fault("", said)]) from error
        raise RuleSetError([Fault("", _explain(error, text, source))]) from error


# ValueError and LookupError: a value that isn't what its tag says, such as `!!bool x`.
_UNREADABLE = (yaml.YAMLError, RecursionError, ValueError, LookupError)


def _is_read_by_libyaml(text: str) -> bool:
    """Return whether libyaml reads a text to its end, by its events: before anything is made of them.

    What it doesn't read is left to PyYAML's reader, which has the same bounds. libyaml's own has none, and takes processor stack for
    each level.

    Raises:
        _BeyondError: a document in it has more than it may.
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
    except (yaml.YAMLError, UnicodeEncodeError):  # libyaml wants UTF-8, which half of a surrogate pair isn't
        return False
    return True


class _BeyondError(yaml.MarkedYAMLError):
    """A document has more than it may."""


def _check_bounds(nodes: int, depth: int, at: yaml.Event) -> None:
    mark: Any = at.start_mark  # libyaml has a class of its own for it
    if nodes > MAX_VALUES:
        raise _BeyondError(problem=f"a document holds at most {MAX_VALUES} values", problem_mark=mark)
    if depth > MAX_NESTING:
        message = f"too deeply nested: lists and objects stand at most {MAX_NESTING} deep inside each other"
        raise _BeyondError(problem=message, problem_mark=mark)


_LOOKS_LIKE_JSON = re.compile(r"\ufeff?\s*[\[{]\s*[\"{\[}\]]")


def _json_fault(text: str) -> Exception | None:
    """Return why a text isn't JSON; None when it is."""
    try:
        json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        return error
    return None


# What JSON has in its texts as it is, and YAML takes for the end of a line, or for no character at all.
_NO_YAML = re.compile("(?!\\A\ufeff)[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def _as_yaml(text: str) -> str:
    """Return JSON with what YAML reads otherwise written another way, each line where it was."""
    # In JSON a tab stands between tokens only, where YAML doesn't take it; and those characters in texts only.
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
    """Return why a manifest that stands for a Pod is none, by the kind that it names; empty where it may be one."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind in (None, "Pod"):
        return ""
    return f"this is a {str(kind)[:40]}, not a Pod: give a Pod that it makes, or name one of those in the cluster"


def to_yaml(document: dict[str, Any], *, width: int = 110) -> str:
    """Write a document as YAML, the same bytes for the same document; members keep their order."""
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width))


def to_json(document: dict[str, Any]) -> str:
    """Write a document as JSON for people."""
    return json.dumps(document, indent=2, ensure_ascii=False)


def _explain(error: Exception, text: str, source: str) -> str:
    line, problem = "", str(error)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        line, problem = f":{error.problem_mark.line + 1}", error.problem or problem
    elif isinstance(error, yaml.reader.ReaderError):
        line, problem = f":{text.count(chr(10), 0, error.position) + 1}", error.reason
    elif isinstance(error, RecursionError):
        problem = "too deeply nested"
    return f"{source}{line}: not readable as YAML or JSON: {problem}"


def _fault(node: yaml.Node, message: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)


def _names(node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node]]:
    """Iterate over the members. A name that stands twice is a slip of the author's: YAML would take the last one, silently."""
    seen: set[str] = set()
    for key, value in node.value:
        if key.tag not in {_TAG + "str", _MERGE}:
            raise _fault(key, "a member's name must be a text: put it in quotes")
        if key.value in seen:
            raise _fault(key, f"the member {key.value} stands here twice")
        seen.add(key.value)
        yield key.value, value


def _lines(node: yaml.Node, path: str, open_nodes: set[int]) -> Iterator[tuple[str, int, int]]:
    """Walk the tree, an anchor's each time that it is repeated, and refuse what JSON doesn't have.

    Gives the path of each value, its line, and the characters of a text.
    """
    if node.tag not in _JSON_TAGS:
        raise _fault(node, f"{node.tag} isn't a type that JSON has")
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
