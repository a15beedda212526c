"""The lint of a KubeSchedulerConfiguration: kube-scheduler's behaviour with it, as findings. Pure."""

import base64
import re
from collections.abc import Callable, Iterator

import msgspec

from policies import checking
from policies.engine.assignments import DEFAULT_SCHEDULER
from policies.engine.errors import RuleSetError
from policies.manifests import Located
from scheduler.doctor import catalogue
from scheduler.doctor.addresses import BERTHS_PORT, is_loopback, secret_in, split, target, without_secrets
from scheduler.doctor.arguments import Told
from scheduler.doctor.catalogue import CODE_ORDER, KINDS, Finding
from scheduler.doctor.plugins import EXTENDER_POINTS, most_points, points_of
from scheduler.doctor.published import Known
from scheduler.doctor.shape import API_VERSION, KIND, Configuration, Extender, Profile, TLSConfig, read, seconds_of
from scheduler.doctor.starting import starting

_DEFAULT_TIMEOUT_SECONDS = 5.0
_MAX_PERCENTAGE = 100
_REDIRECTED = re.compile(r"//|/\.\.?(?:/|$)")
_QUALIFIED = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
_MAX_NAME, _MAX_PREFIX = 63, 253
_REQUESTS = "requests."


class Linted(msgspec.Struct, frozen=True):
    """The result of reading a file. Without a configuration, the file isn't one."""

    findings: list[Finding]
    configuration: Configuration | None = None
    # The indexes of Berth's extenders in `extenders`.
    berths: list[int] = []


def lint(text: str, known: Known | None = None, *, source: str = "file") -> Linted:
    """Return the findings about a configuration.

    Args:
        text: the file, YAML or JSON.
        known: facts about Berth's side; without them some findings are omitted.
        source: the file's name, for the message if it can't be read.
    """
    known = known or Known()
    try:
        documents = checking.read_documents(text, source)
    except RuleSetError as error:
        told = [("not-readable", "", fault.message) for fault in error.faults]
        return Linted(_findings(told, None))
    if not documents or not isinstance(documents[0].document, dict):
        return Linted(_findings([("wrong-kind", "", "There is no object in the file.")], None))
    located = documents[0]
    configuration, misfits = read(located.document)
    told = [(misfit.kind, misfit.path, misfit.detail) for misfit in misfits]
    if len(documents) > 1:
        told.append(("several-documents", "", f"It has {len(documents)}."))
    if (configuration.api_version, configuration.kind) != (API_VERSION, KIND):
        detail = f"It has apiVersion {configuration.api_version or '(none)'} and kind {configuration.kind or '(none)'}."
        return Linted(_findings([("wrong-kind", "apiVersion", detail)], located))
    berths = _berths_of(configuration.extenders, known.urls)
    told += _of_configuration(configuration, berths, known)
    return Linted(_findings(told, located), configuration, berths)


def _findings(told: list[Told], located: Located | None) -> list[Finding]:
    """Return the findings: first those that stop kube-scheduler, then by severity, each in the file's order."""
    made = [
        catalogue.make(name, place, line=located.line_of(place) if located else 0, detail=detail)
        for name, place, detail in told
    ]
    return sorted(made, key=lambda found: (not KINDS[found.id].stops, CODE_ORDER[found.severity], found.line))


def _berths_of(extenders: list[Extender], urls: tuple[str, ...]) -> list[int]:
    """Return which extenders are Berth's: by its known addresses, else the only extender, else by name and port."""
    targets = [target(extender.url_prefix) for extender in extenders]
    named = {target(url) for url in urls}
    if found := [index for index, each in enumerate(targets) if each in named and each[0]]:
        return found
    if len(extenders) == 1:
        return [0]
    return [index for index, (host, port) in enumerate(targets) if "berth" in host or port == BERTHS_PORT]


def _of_configuration(configuration: Configuration, berths: list[int], known: Known) -> Iterator[Told]:
    extenders = configuration.extenders
    yield from starting(configuration)
    yield from _profiles(configuration, known)
    yield from _sampling(configuration, known)
    if not extenders:
        yield "no-extender", "extenders", ""
    elif not berths:
        yield "berth-not-found", "extenders", _listed(extenders)
    for index in berths[1:]:
        yield "two-berth-entries", f"extenders[{index}]", f"extenders[{berths[0]}] is Berth's, too."
    for index, extender in enumerate(extenders):
        for check in (*_EVERY, *(_BERTHS if index in berths else ())):
            for name, member, detail in check(extender, known):
                yield name, f"extenders[{index}].{member}".rstrip("."), detail
    if berths and known.counts_pods:
        yield from _counting(extenders, berths)
    for index in berths:
        yield from _weight(extenders[index], f"extenders[{index}].weight", configuration.profiles)
    yield from _across(configuration)


def _listed(extenders: list[Extender]) -> str:
    return "There are: " + ", ".join(without_secrets(extender.url_prefix) or "(none)" for extender in extenders) + "."


# Profiles


def _profiles(configuration: Configuration, known: Known) -> Iterator[Told]:
    seen: dict[str, int] = {}
    several = len(configuration.profiles) > 1
    for index, profile in enumerate(configuration.profiles):
        place = f"profiles[{index}].schedulerName"
        name = profile.scheduler_name
        if name == "" or (several and not name):
            yield "profile-name-missing", place, ""
        elif name in seen:
            yield "profile-name-twice", place, f"profiles[{seen[name]}] is called {name}, too."
        if name:
            seen.setdefault(name, index)
    if not several and all(profile.scheduler_name is None for profile in configuration.profiles):
        seen[DEFAULT_SCHEDULER] = 0
    for name, index in seen.items():
        if name in known.own_schedulers:
            place = f"profiles[{index}].schedulerName" if configuration.profiles else "profiles"
            yield "profile-name-is-berths", place, f"Pods with schedulerName {name} are Berth's own."


def _sampling(configuration: Configuration, known: Known) -> Iterator[Told]:
    places: list[tuple[str, int | None]] = [
        (f"profiles[{index}].percentageOfNodesToScore", profile.percentage_of_nodes_to_score)
        for index, profile in enumerate(configuration.profiles)
        if profile.percentage_of_nodes_to_score is not None
    ]
    # The file's value applies to profiles without one of their own; without any profile it applies to the default one.
    if not configuration.profiles or len(places) < len(configuration.profiles):
        places.append(("percentageOfNodesToScore", configuration.percentage_of_nodes_to_score))
    elif not 0 <= (configuration.percentage_of_nodes_to_score or 0) <= _MAX_PERCENTAGE:
        yield "percentage-out-of-range", "percentageOfNodesToScore", ""
    for place, percentage in places:
        if percentage is not None and not 0 <= percentage <= _MAX_PERCENTAGE:
            yield "percentage-out-of-range", place, f"It is {percentage}."
        elif known.refuses is not False and percentage != _MAX_PERCENTAGE and configuration.extenders:
            yield "sampling", place, _share(percentage) + _whether(known.refuses)


def _share(percentage: int | None) -> str:
    if not percentage:
        return "Without a value the share falls from 50 % at 100 nodes to 5 % at 5,600 and more."
    return f"It is {percentage} %."


def _whether(refuses: bool | None) -> str:  # noqa: FBT001 - three values
    return " The rules that are live refuse nodes." if refuses else " Whether live rules refuse nodes isn't known here."


# Any extender. Each check yields names, members and details.


def _url(extender: Extender, known: Known) -> Iterator[Told]:
    url = extender.url_prefix
    parts = split(url)
    if secret_in(url) and not _has_secret_path(extender, known):
        yield "url-credentials", "urlPrefix", f"It stands in the {secret_in(url)}."
    if not url:
        yield "url-unusable", "urlPrefix", "There is none."
    elif parts is None or parts.scheme.lower() not in {"http", "https"} or not parts.hostname:
        yield "url-unusable", "urlPrefix", "It has to begin with http:// or https:// and name a host."
    elif parts.query or parts.fragment or url.endswith(("?", "#")):
        yield "url-query", "urlPrefix", ""
    elif _REDIRECTED.search(parts.path.rstrip("/")):
        yield "url-redirects", "urlPrefix", ""
    elif url.endswith("/"):
        yield "url-trailing-slash", "urlPrefix", ""


def _has_secret_path(extender: Extender, known: Known) -> bool:
    """Return whether a path precedes the verbs that Berth expects (BERTH_EXTENDER_SECRET_PATH)."""
    parts = split(extender.url_prefix)
    is_plain = parts is not None and not (parts.username or parts.password or parts.query)
    return bool(known.secret_path and is_plain and parts and parts.path.strip("/") == known.secret_path)


def _tls(extender: Extender, _known: Known) -> Iterator[Told]:
    tls = extender.tls_config
    if tls.has_ca and tls.insecure:
        yield "tls-insecure-with-ca", "tlsConfig.insecure", ""
    elif tls.insecure:
        yield "tls-insecure", "tlsConfig.insecure", ""
    elif extender.enable_https and not tls.has_ca:
        yield "tls-not-verified", "enableHTTPS", ""
    elif not tls.has_ca and _is_https(extender):
        yield "tls-system-roots", "tlsConfig", ""
    if tls.has_certificate != tls.has_key:
        missing = "keyFile" if tls.has_certificate else "certFile"
        yield "tls-half-a-certificate", "tlsConfig", f"{missing} is missing."
    for member, needed in _unreadable(tls):
        yield "tls-unreadable", f"tlsConfig.{member}", f"{needed} is missing."
    if tls.key_data:
        yield "tls-inline-key", "tlsConfig.keyData", ""
    if _scheme(extender) == "http" and (extender.enable_https or tls.has_ca or tls.has_certificate or tls.insecure):
        yield "tls-without-https", "urlPrefix", ""


def _unreadable(tls: TLSConfig) -> Iterator[tuple[str, str]]:
    """Yield the data without a PEM block of its kind. Go reads a certificate and a key only where both are given."""
    has_both = tls.has_certificate and tls.has_key
    for member, data, needed, block in (
        ("caData", tls.ca_data, True, _CERTIFICATE),
        ("certData", tls.cert_data, has_both, _CERTIFICATE),
        ("keyData", tls.key_data, has_both, _PRIVATE_KEY),
    ):
        if not data or not needed:
            continue
        pem = base64.b64decode(data)
        if block not in pem:
            yield member, block.decode()
        elif block == _PRIVATE_KEY and _ENCRYPTED in pem:
            yield member, f"{block.decode()} without a passphrase"


_CERTIFICATE, _PRIVATE_KEY, _ENCRYPTED = b"BEGIN CERTIFICATE", b"PRIVATE KEY", b"ENCRYPTED"


def _verbs(extender: Extender, _known: Known) -> Iterator[Told]:
    if not any(extender.verbs.values()):
        yield "no-verb", "", ""
    for verb, path in extender.verbs.items():
        if secret_in(f"http://any/{path}"):
            yield "url-credentials", f"{verb}Verb", "It stands in the verb."
        if "?" in path:
            yield "verb-query", f"{verb}Verb", ""


def _nodes(extender: Extender, _known: Known) -> Iterator[Told]:
    if not extender.node_cache_capable and extender.filter_verb:
        yield "node-cache-capable-false", "nodeCacheCapable", ""


def _positive_weight(extender: Extender, _known: Known) -> Iterator[Told]:
    if extender.prioritize_verb and extender.weight <= 0:
        yield "weight-not-positive", "weight", f"It is {extender.weight}."
    elif extender.weight and not extender.prioritize_verb:
        yield "weight-without-verb", "weight", ""


def _timeout(extender: Extender, _known: Known) -> Iterator[Told]:
    seconds = seconds_of(extender.http_timeout) or 0.0
    if seconds < 0:
        yield "timeout-none", "httpTimeout", f"It is {extender.http_timeout}."
    elif not seconds:
        yield "timeout-missing", "httpTimeout", ""
    elif seconds >= _DEFAULT_TIMEOUT_SECONDS:
        yield "timeout-long", "httpTimeout", f"It is {extender.http_timeout}."


def _binder(extender: Extender, _known: Known) -> Iterator[Told]:
    if extender.ignorable and extender.bind_verb:
        yield "ignorable-binder", "ignorable", ""


def _ignored_resources(extender: Extender, _known: Known) -> Iterator[Told]:
    for index, resource in enumerate(extender.managed_resources):
        if resource.ignored_by_scheduler:
            yield (
                "managed-resources-ignored",
                f"managedResources[{index}].ignoredByScheduler",
                f"It is {resource.name}.",
            )


# Berth's own extender


def _place(extender: Extender, known: Known) -> Iterator[Told]:
    parts = split(extender.url_prefix)
    if parts is None or not parts.hostname:
        return
    if known.secret_path:
        yield ("secret-path" if _has_secret_path(extender, known) else "secret-path-missing"), "urlPrefix", ""
    elif parts.path.strip("/") and not _REDIRECTED.search(parts.path):
        yield "url-path", "urlPrefix", ""
    if _scheme(extender) != "http":
        return
    if not is_loopback(parts.hostname):
        yield "plain-http", "urlPrefix", ""
    elif not known.secret_path:
        yield "loopback-is-shared", "urlPrefix", ""


def _certificate(extender: Extender, _known: Known) -> Iterator[Told]:
    tls = extender.tls_config
    if _is_https(extender) and not tls.has_certificate and not tls.has_key:
        yield "tls-no-client-certificate", "tlsConfig", ""


def _served_verbs(extender: Extender, known: Known) -> Iterator[Told]:
    for verb, text in extender.verbs.items():
        path = text.partition("?")[0]
        if path.removesuffix("/") not in {"", verb} or path == "/":
            yield "verb-not-served", f"{verb}Verb", f"Berth's path is {verb}."
        elif path.endswith("/"):
            yield "verb-slash", f"{verb}Verb", ""
    wanted = {
        "filter": known.refuses is not False,
        "prioritize": known.scores is True,
        "preempt": known.protects_victims is True,
    }
    for verb, is_wanted in wanted.items():
        if is_wanted and not extender.verbs[verb] and any(extender.verbs.values()):
            yield f"{verb}-verb-missing", f"{verb}Verb", ""


def _counting(extenders: list[Extender], berths: list[int]) -> Iterator[Told]:
    """Yield a finding where rules that count Pods aren't checked again when a Pod is bound. Only one extender may bind."""
    binders = [index for index, extender in enumerate(extenders) if extender.bind_verb]
    if binders and binders[0] not in berths:
        yield "bound-elsewhere", f"extenders[{berths[0]}].bindVerb", f"extenders[{binders[0]}] binds."
    elif not binders:
        yield from (
            ("bind-verb-missing", f"extenders[{index}].bindVerb", "")
            for index in berths
            if any(extenders[index].verbs.values())
        )


def _deadline(extender: Extender, known: Known) -> Iterator[Told]:
    seconds = seconds_of(extender.http_timeout) or _DEFAULT_TIMEOUT_SECONDS
    if 0 < seconds <= known.deadline_seconds:
        detail = f"It is {seconds:g} s; Berth's deadline is {known.deadline_seconds:g} s."
        yield "timeout-short", "httpTimeout", detail


def _ignorable(extender: Extender, _known: Known) -> Iterator[Told]:
    yield ("ignorable-true" if extender.ignorable else "ignorable-false"), "ignorable", ""


def _interest(extender: Extender, _known: Known) -> Iterator[Told]:
    if extender.managed_resources:
        names = ", ".join(resource.name for resource in extender.managed_resources)
        yield "managed-resources-interest", "managedResources", f"They are: {names}."


_Check = Callable[[Extender, Known], Iterator[Told]]
_EVERY: tuple[_Check, ...] = (_url, _tls, _verbs, _nodes, _positive_weight, _timeout, _binder, _ignored_resources)
_BERTHS: tuple[_Check, ...] = (_place, _certificate, _served_verbs, _deadline, _ignorable, _interest)


def _weight(extender: Extender, place: str, profiles: list[Profile]) -> Iterator[Told]:
    if not extender.prioritize_verb or extender.weight <= 0:
        return
    profile = max(profiles or [Profile()], key=most_points)
    own, point = most_points(profile), points_of(extender.weight)
    name = profile.scheduler_name or DEFAULT_SCHEDULER
    detail = f"Weight {extender.weight}: a point counts {point:,}, ten {EXTENDER_POINTS * point:,}; profile {name} reaches {own:,}."
    if EXTENDER_POINTS * point <= own:
        yield "weight-outvoted", place, detail
    elif point <= own:
        yield "weight-partly-outvoted", place, detail


# Between extenders


def _across(configuration: Configuration) -> Iterator[Told]:
    extenders = configuration.extenders
    binders = [index for index, extender in enumerate(extenders) if extender.bind_verb]
    for index in binders[1:]:
        yield "two-binders", f"extenders[{index}].bindVerb", f"extenders[{binders[0]}] has one, too."
    firm = [index for index, extender in enumerate(extenders) if not extender.ignorable]
    for index, extender in enumerate(extenders):
        if extender.ignorable and firm and index < firm[-1]:
            yield "ignorable-order", f"extenders[{index}].ignorable", f"It is asked after extenders[{firm[-1]}]."
    yield from _managed_names(extenders)
    yield from _replaced(configuration)


def _managed_names(extenders: list[Extender]) -> Iterator[Told]:
    seen: set[str] = set()
    for index, extender in enumerate(extenders):
        for number, resource in enumerate(extender.managed_resources):
            place = f"extenders[{index}].managedResources[{number}].name"
            if not is_extended_resource(resource.name):
                yield "managed-resource-name", place, f"It is {resource.name or '(none)'}."
            elif resource.name in seen:
                yield "managed-resource-twice", place, f"It is {resource.name}."
            seen.add(resource.name)


def is_extended_resource(name: str) -> bool:
    """Return whether a name is an extended resource's.

    Source: k8s.io/kubernetes v1.36.3 pkg/apis/core/v1/helper/helpers.go IsExtendedResourceName.
    """
    prefix, _, rest = name.partition("/")
    if not _QUALIFIED.fullmatch(name) or "kubernetes.io/" in name or name.startswith(_REQUESTS):
        return False
    return len(rest) <= _MAX_NAME and len(_REQUESTS + prefix) <= _MAX_PREFIX


def _replaced(configuration: Configuration) -> Iterator[Told]:
    ignored = {
        resource.name
        for extender in configuration.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    }
    if not ignored:
        return
    for index, profile in enumerate(configuration.profiles):
        for number, plugin in enumerate(profile.plugin_config):
            given = plugin.args.get("ignoredResources") if isinstance(plugin.args, dict) else None
            names = [str(name) for name in given] if isinstance(given, list) else []
            lost = [name for name in names if name not in ignored]
            if plugin.name == "NodeResourcesFit" and lost:
                place = f"profiles[{index}].pluginConfig[{number}].args.ignoredResources"
                yield "managed-resources-replace-ignored", place, f"Checked again: {', '.join(lost)}."


def _scheme(extender: Extender) -> str:
    parts = split(extender.url_prefix)
    return parts.scheme.lower() if parts else ""


def _is_https(extender: Extender) -> bool:
    return _scheme(extender) == "https"
