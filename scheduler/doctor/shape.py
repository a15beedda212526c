"""KubeSchedulerConfiguration as values: its members with their types, and a reader that reports all faults at once.

Names and types are those of k8s.io/kube-scheduler v0.36.3 config/v1/types.go and k8s.io/component-base v0.36.3
config/v1alpha1/types.go. kube-scheduler decodes strictly: a member that it doesn't know ends its start.
"""

import base64
import difflib
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import inspect

from policies.engine.objects.metadata import Int32, Int64

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"

Duration = Annotated[str, msgspec.Meta(extra={"form": "duration"})]
Bytes = Annotated[str, msgspec.Meta(extra={"form": "base64"})]


class Members(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A part of the configuration. A missing member has Go's zero value or kube-scheduler's default."""


class TLSConfig(Members, frozen=True, kw_only=True):
    """An extender's TLS settings. `…_data` is PEM in base64 and takes precedence over `…_file`."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: Bytes = ""
    key_data: Bytes = ""
    ca_data: Bytes = ""

    @property
    def has_ca(self) -> bool:
        """Whether there is a CA to verify the server."""
        return bool(self.ca_file or self.ca_data)

    @property
    def has_certificate(self) -> bool:
        """Whether there is a client certificate, with or without its key."""
        return bool(self.cert_file or self.cert_data)

    @property
    def has_key(self) -> bool:
        """Whether there is a key for the client certificate."""
        return bool(self.key_file or self.key_data)


class ManagedResource(Members, frozen=True, kw_only=True):
    """An extended resource that makes an extender interested in a Pod."""

    name: str = ""
    ignored_by_scheduler: bool = False


class Extender(Members, frozen=True, kw_only=True):
    """One extender."""

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: Int64 = 0
    bind_verb: str = ""
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    tls_config: TLSConfig = TLSConfig()
    http_timeout: Duration = ""
    node_cache_capable: bool = False
    managed_resources: list[ManagedResource] = []
    ignorable: bool = False

    @property
    def verbs(self) -> dict[str, str]:
        """The configured path of each of kube-scheduler's four verbs; empty: it isn't called."""
        return {
            "filter": self.filter_verb,
            "prioritize": self.prioritize_verb,
            "bind": self.bind_verb,
            "preempt": self.preempt_verb,
        }


class Plugin(Members, frozen=True, kw_only=True):
    """A plugin of kube-scheduler's, and its weight if it scores. Weight 0 counts as 1."""

    name: str = ""
    weight: Int32 = 0


class PluginSet(Members, frozen=True, kw_only=True):
    """The plugins that are enabled in addition to an extension point's defaults, and the disabled defaults; `*` is all."""

    enabled: list[Plugin] = []
    disabled: list[Plugin] = []


class Plugins(Members, frozen=True, kw_only=True):
    """The extension points."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()


class PluginConfig(Members, frozen=True, kw_only=True):
    """Arguments of a plugin, None without any. Only the plugin knows their form (`arguments`)."""

    name: str = ""
    args: Any = None


class Profile(Members, frozen=True, kw_only=True):
    """The scheduling of Pods with one schedulerName. Only a missing name has a default, an empty one doesn't."""

    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    plugins: Plugins = Plugins()
    plugin_config: list[PluginConfig] = []


class LeaderElection(Members, frozen=True, kw_only=True):
    """The election of the active kube-scheduler among several."""

    leader_elect: bool = True
    lease_duration: Duration = ""
    renew_deadline: Duration = ""
    retry_period: Duration = ""
    resource_lock: str = ""
    resource_name: str = ""
    resource_namespace: str = ""


class ClientConnection(Members, frozen=True, kw_only=True):
    """The connection to the API server."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 0.0
    burst: Int32 = 0


class Configuration(Members, frozen=True, kw_only=True):
    """The whole file."""

    api_version: str = ""
    kind: str = ""
    parallelism: Int32 = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: Int32 | None = None
    pod_initial_backoff_seconds: Int64 = 1
    pod_max_backoff_seconds: Int64 = 10
    profiles: list[Profile] = []
    extenders: list[Extender] = []
    delay_cache_until_active: bool = False


class Misfit(msgspec.Struct, frozen=True):
    """A member that kube-scheduler wouldn't accept."""

    path: str
    kind: Literal["unknown-member", "wrong-type"]
    detail: str


def read(document: dict[str, Any]) -> tuple[Configuration, list[Misfit]]:
    """Read a decoded document. Members that don't fit are reported and treated as missing, so that the rest can be read."""
    return read_part(Configuration, document, "")


_Kind = TypeVar("_Kind", bound=msgspec.Struct)


def read_part(kind: type[_Kind], value: Any, path: str) -> tuple[_Kind, list[Misfit]]:
    """Read a part of a document, as `read` does, with its place for the paths of what doesn't fit."""
    misfits: list[Misfit] = []
    fit = _value(value, inspect.type_info(kind), path, misfits)
    return msgspec.convert({} if fit is _UNFIT else fit, kind), misfits


_NUMBER_AND_UNIT = re.compile("([0-9]+(?:[.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h)")
# Longer than any real duration; the search through digits without a unit takes time quadratic in their number.
_LONGEST_DURATION = 100
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(duration: str) -> float | None:
    """Return the seconds of a duration in Go's form ("1m30s", "250ms", "0"); None if it is invalid.

    Source: Go 1.26 time.ParseDuration.
    """
    if len(duration) > _LONGEST_DURATION:
        return None
    sign, rest = (-1.0 if duration[:1] == "-" else 1.0), duration.removeprefix("-" if duration[:1] == "-" else "+")
    if rest == "0":
        return 0.0
    parts = _NUMBER_AND_UNIT.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        return None
    return sign * sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)


_UNFIT = object()
# What YAML 1.1, and so kube-scheduler, reads as true and false beside these words themselves.
_TRUTHS = {"yes": True, "on": True, "y": True, "no": False, "off": False, "n": False}


def _value(value: Any, kind: inspect.Type, path: str, misfits: list[Misfit]) -> Any:
    """Return a value in the form that `msgspec.convert` accepts, or _UNFIT."""
    match kind:
        case inspect.Metadata(type=inner):
            return _formed(value, inner, _form_of(kind), path, misfits)
        case inspect.UnionType(types=(inner, inspect.NoneType())):
            return _value(value, inner, path, misfits)
        case inspect.StructType():
            return (
                _object(value, kind, path, misfits) if isinstance(value, dict) else _wrong(path, "an object", misfits)
            )
        case inspect.ListType(item_type=item):
            return _list(value, item, path, misfits) if isinstance(value, list) else _wrong(path, "a list", misfits)
        case inspect.DictType(value_type=item):
            return _dict(value, item, path, misfits) if isinstance(value, dict) else _wrong(path, "an object", misfits)
        case inspect.AnyType():
            return value
        case _:
            return _scalar(value, kind, path, misfits)


def _object(value: dict[str, Any], kind: inspect.Type, path: str, misfits: list[Misfit]) -> dict[str, Any]:
    fields = {field.encode_name: field.type for field in kind.fields} if isinstance(kind, inspect.StructType) else {}
    return dict(_members(value, fields, path, misfits))


def _members(
    value: dict[str, Any], fields: dict[str, inspect.Type], path: str, misfits: list[Misfit]
) -> Iterator[tuple[str, Any]]:
    for name, member in value.items():
        place = f"{path}.{name}".strip(".")
        if name not in fields:
            misfits.append(Misfit(place, "unknown-member", _nearest(name, list(fields))))
        elif member is None and _is_duration(fields[name]):
            # Go's Duration reads null as a text, and no text is a duration.
            _wrong(place, _DURATION, misfits)
        elif member is not None and (fit := _value(member, fields[name], place, misfits)) is not _UNFIT:
            yield name, fit


def _dict(value: dict[str, Any], item: inspect.Type, path: str, misfits: list[Misfit]) -> dict[str, Any]:
    made = {name: "" if each is None else _value(each, item, f"{path}.{name}", misfits) for name, each in value.items()}
    return {name: each for name, each in made.items() if each is not _UNFIT}


def _list(value: list[Any], item: inspect.Type, path: str, misfits: list[Misfit]) -> list[Any]:
    """Return all elements: one that doesn't fit becomes an empty one, so that the indexes of the others stay right."""
    empty: Any = {} if isinstance(item, inspect.StructType) else ""
    made = [empty if each is None else _value(each, item, f"{path}[{i}]", misfits) for i, each in enumerate(value)]
    return [empty if each is _UNFIT else each for each in made]


def _scalar(value: Any, kind: inspect.Type, path: str, misfits: list[Misfit]) -> Any:
    match kind:
        case inspect.BoolType():
            truth = _TRUTHS.get(value.lower(), value) if isinstance(value, str) else value
            return truth if isinstance(truth, bool) else _wrong(path, "true or false, without quotes", misfits)
        case inspect.IntType():
            whole = int(value) if isinstance(value, float) and value.is_integer() else value
            if not isinstance(whole, int) or isinstance(whole, bool):
                return _wrong(path, "a whole number, without quotes", misfits)
            low, high = kind.ge or 0, kind.le or 0
            return whole if low <= whole <= high else _wrong(path, f"a number from {low} to {high}", misfits)
        case inspect.FloatType():
            right = isinstance(value, int | float) and not isinstance(value, bool)
            return value if right else _wrong(path, "a number, without quotes", misfits)
        case _:
            return value if isinstance(value, str) else _wrong(path, "a text", misfits)


# Go's decoder of base64 skips them.
_BREAKS = re.compile(r"[\r\n]")
_DURATION = "a duration with its unit, such as 3s or 500ms"


def _is_duration(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.Metadata) and _form_of(kind) == "duration"


def _form_of(kind: inspect.Metadata) -> str:
    form: str = (kind.extra or {})["form"]
    return form


def _formed(value: Any, kind: inspect.Type, form: str, path: str, misfits: list[Misfit]) -> Any:
    text = _scalar(value, kind, path, []) if form == "base64" else value
    if form == "duration":
        right = isinstance(text, str) and seconds_of(text) is not None
        return text if right else _wrong(path, _DURATION, misfits)
    try:
        base64.b64decode(_BREAKS.sub("", text) if isinstance(text, str) else "!", validate=True)
    except ValueError:  # also for letters beyond ASCII
        return _wrong(path, "PEM, encoded as base64", misfits)
    return text


def _wrong(path: str, wanted: str, misfits: list[Misfit]) -> Any:
    """Record a wrong type. The value isn't repeated: it may be a key."""
    misfits.append(Misfit(path, "wrong-type", f"It has to be {wanted}."))
    return _UNFIT


def _nearest(name: str, known: list[str]) -> str:
    """Return the member that may be meant."""
    lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
    if found:
        return f"Did you mean {lower[found[0]]}?"
    return f"There are: {', '.join(sorted(known))}."
