"""Masks values that must not be in the history: of environment variables, annotations and labels, by their names. Pure.

Rules see these values. Records have MASKED in their place, and list the masked names: `env NAME`, `annotation NAME`, `label NAME`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import is_
from typing import Any

import msgspec

from policies.engine.decision import CompiledRuleSet
from policies.engine.objects.cluster_kinds import ClaimAnnotations, CSINodeAnnotations
from policies.engine.objects.metadata import AnnotatedMetadata
from policies.engine.objects.node import Path, spelled
from policies.engine.objects.pod import Pod
from policies.engine.preemption.vetoes import Veto, sentence_of
from policies.engine.scores.node_labels import AVOID_PODS

# A valid label value too, so that masked objects can be decoded again.
MASKED = "masked"
# The key of the masked names in a Decision's notes.
NOTE = "masked"
# The text that is recorded in place of a fault: CEL's own message may contain a value.
FAULT = "its words are masked: the rule reads what is"

# The annotations that built-in rules read, of claims, CSINodes and Nodes.
_READ_BY_BUILT_INS = frozenset(
    f"annotation {name}"
    for name in (
        *(
            field.encode_name
            for kind in (ClaimAnnotations, CSINodeAnnotations)
            for field in msgspec.structs.fields(kind)
        ),
        AVOID_PODS,
    )
)

_METADATA = ("metadata",)
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
# Members that contain labels, or values that labels are compared with.
_LABELS = frozenset({"labels", "matchLabels", "nodeSelector", "selector"})
# Deeper than Kubernetes' own objects: values at this depth aren't written.
_DEEPEST = 40
_MOST_NAMES = 4_096
# Longer names are matched each time instead of being cached.
_LONGEST_KEPT = 400
# A larger Pod's text isn't kept for the next call.
_LARGEST_KEPT = 64 << 10

Found = set[str]


class _Names:
    """Patterns of names: without regard to case, with `*` for any text at a pattern's begin, its end, or both."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [(each.lower().strip("*"), each.startswith("*"), each.endswith("*")) for each in patterns]
        self.has_all = ("", True, True) in self._patterns
        self._kept = lru_cache(_MOST_NAMES)(self._matches)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def __contains__(self, name: str) -> bool:
        return self._matches(name) if len(name) > _LONGEST_KEPT else self._kept(name)

    def _matches(self, name: str) -> bool:
        return any(_fits(name.lower(), *pattern) for pattern in self._patterns)


def _fits(name: str, text: str, any_before: bool, any_behind: bool) -> bool:  # noqa: FBT001 - a pattern, unpacked
    if any_before and any_behind:
        return text in name
    if any_before:
        return name.endswith(text)
    return name.startswith(text) if any_behind else name == text


class _Named(msgspec.Struct):
    annotations: dict[str, Any] | None = None
    labels: dict[str, Any] | None = None


class _Object(msgspec.Struct):
    metadata: _Named = msgspec.field(default_factory=_Named)


_decode_names = msgspec.json.Decoder(_Object).decode
_encode = msgspec.json.Encoder().encode


class Masks:
    """Masks values, by patterns of names. Each method adds the names that it masked to `found`."""

    def __init__(self, *, env: Iterable[str] = (), annotations: Iterable[str] = (), labels: Iterable[str] = ()) -> None:
        self._env, self._annotations, self._labels = _Names(env), _Names(annotations), _Names(labels)
        # The last Pod's JSON, its masked form, and the masked names.
        self._last: tuple[bytes, bytes, frozenset[str]] = (b"", b"", frozenset())

    def __bool__(self) -> bool:
        return bool(self._env or self._annotations or self._labels)

    def json(self, json: dict[str, Any], found: Found) -> dict[str, Any]:
        """Return the masked JSON of a Kubernetes object; the same dict if nothing is masked."""
        metadata, spec = self._metadata(json.get("metadata"), found), self._spec(json.get("spec"), found)
        if metadata is json.get("metadata") and spec is json.get("spec"):
            return json
        return {**json, "metadata": metadata, "spec": spec}

    def change(self, metadata: AnnotatedMetadata | _Named) -> bool:
        """Return whether a label or an annotation of an object is masked."""
        return _has(metadata.annotations, self._annotations) or _has(metadata.labels, self._labels)

    def text(self, text: bytes, found: Found) -> bytes:
        """Return the masked text of a Kubernetes object's JSON; the same bytes if nothing is masked."""
        if not self._annotations and not self._labels:
            return text
        if not self.change(_decode_names(text).metadata):
            return text
        return msgspec.json.encode(self.json(msgspec.json.decode(text), found))

    def pod_text(self, pod: Pod, sent: bytes | msgspec.Raw) -> tuple[bytes, frozenset[str]]:
        """Return the masked JSON of a Pod, which is `sent` if nothing is to be masked; and the masked names.

        The text is written anew also if no name matches: of a member that was sent twice, `sent` has both values.
        /prioritize has the same Pod as the /filter before it, so the last result is cached.
        """
        if not self:
            return bytes(sent), frozenset()
        sent, last = bytes(sent), self._last
        if last[0] != sent:
            found: Found = set()
            text = _encode(self.json(pod.json or msgspec.json.decode(sent), found))
            last = (sent, text, frozenset(found))
            if len(sent) <= _LARGEST_KEPT:
                self._last = last
        return last[1], last[2]

    def pod(self, pod: Pod, found: Found) -> Any:
        """Return a masked Pod for an encoder: its JSON, or the typed part of a Pod that is only counted."""
        return self.json(pod.json, found) if pod.json else self.typed(pod.parsed, found)

    def typed(self, found_object: msgspec.Struct, found: Found) -> Any:
        """Return a masked typed object for an encoder. There are very many of them, and few have anything to mask."""
        if not self._labels and not self._has_masked(getattr(found_object, "metadata", None)):
            return found_object
        return self.json(msgspec.to_builtins(found_object), found)

    def labels(self, labels: Mapping[str, str], found: Found) -> dict[str, str]:
        """Return masked labels."""
        written: dict[str, str] = self._map(dict(labels), self._labels, "label", found)
        return written

    def reaches(self, path: Path) -> bool:
        """Return whether the value that an expression reads at a path may be masked, or contain a masked value."""
        if path[:1] == _METADATA or not path:
            of_names = {"annotations": self._annotations, "labels": self._labels}
            return any(
                path[1:2] in {(), (member,)} and (path[2] in names if len(path) > 2 else bool(names))  # noqa: PLR2004
                for member, names in of_names.items()
            ) or (not path and bool(self))
        if path[0] != "spec":
            return False
        if bool(self._annotations) and path[1:2] in {(), ("volumes",)}:
            return True
        return bool(self._labels) or (bool(self._env) and (len(path) == 1 or path[1] in _CONTAINERS))

    def hidden_reads(self, rule_set: CompiledRuleSet | None) -> dict[str, set[str]]:
        """Return the possibly masked paths that rules read, as written in expressions, by the rule's key."""
        hidden = {}
        for key, reads in _reads_of(rule_set):
            names = {spelled(root, path) for root, paths in reads.items() for path in paths if self.reaches(path)}
            if names:
                hidden[key] = names
        return hidden

    def notes(self, notes: dict[str, Any], rule_set: CompiledRuleSet | None, found: Found) -> dict[str, Any]:
        """Return masked notes of a Decision: the values that rules about victims read, and victims that were sent whole."""
        if vetoes := notes.get("vetoes"):
            hidden = self.hidden_reads(rule_set)
            notes = {**notes, "vetoes": [_masked_veto(veto, hidden.get(veto["rule"], ())) for veto in vetoes]}
        if candidates := notes.get("candidates"):
            notes = {**notes, "candidates": [self._candidate(each, found) for each in candidates]}
        return notes

    def _candidate(self, candidate: dict[str, Any], found: Found) -> dict[str, Any]:
        victims = [
            {**each, "json": self._sent(each["json"], found)} if each.get("json") else each
            for each in candidate.get("victims") or ()
        ]
        return {**candidate, "victims": victims}

    def _sent(self, json: str, found: Found) -> str:
        if not self:
            return json
        return _encode(self.json(msgspec.json.decode(json), found)).decode()

    def _has_masked(self, metadata: Any) -> bool:
        annotations = getattr(metadata, "annotations", None)
        if isinstance(annotations, msgspec.Struct):
            annotations = msgspec.to_builtins(annotations)
        return _has(annotations, self._annotations)

    def _metadata(self, metadata: Any, found: Found) -> Any:
        if not isinstance(metadata, dict):
            return metadata
        annotations = self._map(metadata.get("annotations"), self._annotations, "annotation", found)
        labels = self._map(metadata.get("labels"), self._labels, "label", found)
        if annotations is metadata.get("annotations") and labels is metadata.get("labels"):
            return metadata
        changed = {"annotations": annotations, "labels": labels}
        return {**metadata, **{member: value for member, value in changed.items() if member in metadata}}

    def _map(self, values: Any, names: _Names, kind: str, found: Found) -> Any:
        if not isinstance(values, dict) or not _has(values, names):
            return values
        masked = [name for name, value in values.items() if value is not None and name in names]
        found.update(f"{kind} {name}" for name in masked)
        return {**values, **dict.fromkeys(masked, MASKED)}

    def _spec(self, spec: Any, found: Found) -> Any:
        if not isinstance(spec, dict):
            return spec
        if self._env:
            for kind in _CONTAINERS:
                spec = self._each(self._container, spec, kind, found)
        if self._annotations:
            spec = self._each(self._volume, spec, "volumes", found)
        return self._selectors(spec, found, 0) if self._labels else spec

    @staticmethod
    def _each(mask: Callable[[Any, Found], Any], spec: dict[str, Any], member: str, found: Found) -> dict[str, Any]:
        listed = spec.get(member)
        if not isinstance(listed, list):
            return spec
        masked = [mask(each, found) for each in listed]
        return spec if all(map(is_, masked, listed)) else {**spec, member: masked}

    def _volume(self, volume: Any, found: Found) -> Any:
        """Return a volume; the claim that is made for an ephemeral one has annotations of its own."""
        ephemeral = volume.get("ephemeral") if isinstance(volume, dict) else None
        template = ephemeral.get("volumeClaimTemplate") if isinstance(ephemeral, dict) else None
        if ephemeral is None or not isinstance(template, dict):
            return volume
        masked = self._metadata(template.get("metadata"), found)
        if masked is template.get("metadata"):
            return volume
        return {**volume, "ephemeral": {**ephemeral, "volumeClaimTemplate": {**template, "metadata": masked}}}

    def _container(self, container: Any, found: Found) -> Any:
        env = container.get("env") if isinstance(container, dict) else None
        if not isinstance(env, list):
            return container
        masked, has_all = env, self._env.has_all
        # In one pass: most masked values are here, and each request waits for it.
        for at, variable in enumerate(env):
            if isinstance(variable, dict) and variable.get("value"):
                name = str(variable.get("name", ""))
                if has_all or name in self._env:
                    found.add(f"env {name}")
                    masked = env.copy() if masked is env else masked
                    masked[at] = {**variable, "value": MASKED}
        return container if masked is env else {**container, "env": masked}

    def _selectors(self, value: Any, found: Found, depth: int) -> Any:
        """Return a part of a spec in which values that labels are compared with are masked like the labels."""
        if depth > _DEEPEST:
            return MASKED
        if isinstance(value, list):
            return [self._selectors(each, found, depth + 1) for each in value]
        if not isinstance(value, dict):
            return value
        if isinstance(value.get("key"), str) and value["key"] in self._labels and "values" in value:
            found.add(f"label {value['key']}")
            return {**value, "values": [MASKED]}
        masked = {name: self._selectors(each, found, depth + 1) for name, each in value.items()}
        for name in _LABELS & masked.keys():
            masked[name] = self._map(masked[name], self._labels, "label", found)
        return masked


def _has(values: Mapping[str, Any] | None, names: _Names) -> bool:
    # Null is a value that isn't there: decoded objects don't have it, and typed ones have it for what they don't hold.
    if not names or not values:
        return False
    return any(value is not None and name in names for name, value in values.items())


NO_MASKS = Masks()


def may_matter(masked: Iterable[str], rule_set: CompiledRuleSet | None) -> list[str]:
    """Return the masked names that a rule set's answer may depend on: labels, by selectors, and what built-ins or its expressions read."""
    paths = [path for _, reads in _reads_of(rule_set) for found in reads.values() for path in found]
    return [
        name
        for name in sorted(masked)
        if name.startswith("label ") or name in _READ_BY_BUILT_INS or any(map(_only(name).reaches, paths))
    ]


def is_same_but_masked(now: Any, then: Any) -> bool:
    """Return whether two notes on candidates are equal, ignoring the values that rules read from masked fields."""
    if now == then:
        return True
    if not isinstance(then, list) or len(now) != len(then) or not all(isinstance(each, dict) for each in then):
        return False
    return all(
        one == other or (_has_mask(other) and _without_values(one) == _without_values(other))
        for one, other in zip(now, then, strict=True)
    )


def masked_faults(faults: Mapping[str, int]) -> dict[str, int]:
    """Return the faults of a rule that reads masked values as they are recorded: the number of nodes, not the reasons."""
    return {FAULT: sum(faults.values())} if faults else {}


# Members of a Veto that may contain values that a rule read.
_OF_VALUES = frozenset({"seen", "sentence", "fault"})


def _has_mask(veto: Mapping[str, Any]) -> bool:
    return MASKED in veto.get("seen", {}).values() or veto.get("fault") == FAULT


def _without_values(veto: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in veto.items() if name not in _OF_VALUES}


def _only(masked: str) -> Masks:
    kind, _, name = masked.partition(" ")
    return Masks(env=[name]) if kind == "env" else Masks(annotations=[name])


def _reads_of(rule_set: CompiledRuleSet | None) -> Iterable[tuple[str, Mapping[str, Sequence[Path]]]]:
    """Iterate over the expressions of a rule set: the rule's key, and the paths that it reads by the object."""
    if rule_set is not None:
        for rule, made in (*rule_set.filters, *rule_set.scores, *rule_set.victims):
            expression = getattr(made, "expression", None)
            if expression is not None:
                yield rule.key, expression.reads


def _masked_veto(said: dict[str, Any], hidden: Iterable[str]) -> dict[str, Any]:
    if not hidden:
        return said
    veto = msgspec.convert(said, Veto)
    seen = {name: MASKED if name in hidden and value is not None else value for name, value in veto.seen.items()}
    veto = msgspec.structs.replace(veto, seen=seen, fault=FAULT if veto.fault else "")
    masked: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(veto, sentence=sentence_of(veto)))
    return masked
