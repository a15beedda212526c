"""The reader of each setting, and its accepted form in words, for the message and for the docs."""

import difflib
import ipaddress
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, urlsplit


class OptionError(ValueError):
    """An option of a URL can't be used. The message names it, and quotes nothing that may be a secret."""


Role = Literal["admin", "extender", "worker", "beat", "binder", "command"]
WithoutRevision = Literal["refuse", "pass"]
SpoolFull = Literal["lose", "refuse"]
LogFormat = Literal["text", "json"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
GateLevel = Literal["off", "warning", "blocking"]

# The checks of the gate with their default levels, in the order in which their results are shown.
GATE_CHECKS: Mapping[str, GateLevel] = {
    "left-with-none": "warning",
    "refused": "warning",
    "taken": "warning",
    "best-node": "warning",
    "pauses": "warning",
    "assignments": "warning",
    "documents": "blocking",
    "tests": "blocking",
    "cost": "warning",
    "backtest": "off",
}

# The roles that a claim of a provider can give: `controlplane.roles`, and Django's superuser.
SIGN_IN_ROLES = ("Operator", "Approver", "Emergency", "Auditor", "Administrator")

MIN_SECRET_LENGTH = 32
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
_POSTGRES = re.compile(r"postgres(ql)?://([^@/]+@)?[^/@]*/[^/?]+(\?.*)?")
_SQLITE = re.compile(r"sqlite:///.+")
# Django's own options that a text can set; options of libpq are accepted, too.
_DJANGO_OPTIONS = ["assume_role", "server_side_binding"]
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL = re.compile(r"(?P<key>([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)=(?P<value>[-A-Za-z0-9_.]*)")
_ISSUER = re.compile(r"(?P<scheme>https?)://(?P<host>[^/:?#@\s]+|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?(/[^?#\s]*)?")
_SIGNING = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
_SECRET_PATH = re.compile(r"[A-Za-z0-9_-]{32,128}")
_REDIS = re.compile(r"rediss?://[^/?]+(/[0-9]*)?(\?.+)?")
# The URL options that both redis-py and kombu understand; each ignores, or fails on, options of the other.
_REDIS_TLS = {"ssl_ca_certs": ".+", "ssl_certfile": ".+", "ssl_keyfile": ".+"}
_REDIS_TLS |= {"ssl_cert_reqs": "none|optional|required", "ssl_check_hostname": "(?i:true|false)"}
_WEB = re.compile(r"https?://[^/\s@]+(/\S*)?")
# As long as a name in Kubernetes: a domain, a slash, and 63 characters.
_PATTERN = re.compile(r"\*?[^*\s]{1,317}\*?|\*")
_MOST_PATTERNS = 100
_AUDIENCE = re.compile(r"\S+")
_ACCOUNT = re.compile(r"[a-z0-9*][a-z0-9.*-]*/[a-z0-9*][a-z0-9.*-]*")
# The roles that a ServiceAccount may have: an administrator has to be a person.
_REVIEWED_ROLES = SIGN_IN_ROLES[:-1]
# As in a Host header, without the port. The admin uses Django's ALLOWED_HOSTS: a leading dot includes all names below it. The
# extender compares names as they are.
_ALLOWED_HOST = re.compile(r"\*|\.?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_EXTENDERS_HOST = re.compile(r"[^\s\[\]:@/?#*.]+(\.[^\s\[\]:@/?#*.]+)*")
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\[\]:/@\s]+):(?P<port>[0-9]{1,5})")
_PORTS = 65_536
# As browsers send it; Django reads *. as all names below one.
_ORIGIN = re.compile(r"https?://((\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?")
_LOOPBACK = re.compile(r"127\.[0-9.]+|::1|localhost")


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(text)


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise ValueError(text)
        return value

    return read


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _hosts(pattern: re.Pattern[str]) -> Callable[[str], tuple[str, ...]]:
    def host(name: str) -> str:
        if pattern.fullmatch(name):
            return name
        address = name.removeprefix("[").removesuffix("]")
        ipaddress.IPv6Address(address)  # raises ValueError if it isn't one
        return f"[{address}]"

    def read(text: str) -> tuple[str, ...]:
        if not (names := _names(text)):
            raise ValueError(text)
        return tuple(map(host, names))

    return read


def _patterns(text: str) -> tuple[str, ...]:
    names = _names(text)
    if names == ("none",):
        return ()
    if not names or len(names) > _MOST_PATTERNS or not all(map(_PATTERN.fullmatch, names)):
        raise ValueError(text)
    return names


def _at_most(most: float, kind: type[int] | type[float] = float, least: float = 0.0) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = _positive(kind)(text)
        if not least <= value <= most:
            raise ValueError(text)
        return value

    return read


def _at_least(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if value < least:
            raise ValueError(text)
        return value

    return read


def _networks(text: str) -> tuple[str, ...]:
    return tuple(str(ipaddress.ip_network(name)) for name in _names(text))


def _some_names(text: str) -> tuple[str, ...]:
    names = _names(text)
    if not names or not all(_DNS_NAME.fullmatch(name) for name in names) or "default-scheduler" in names:
        raise ValueError(text)
    return names


def _label(text: str) -> tuple[str, str]:
    found = _LABEL.fullmatch(text)
    if not found:
        raise ValueError(text)
    return found["key"], found["value"]


def _gate_checks(text: str) -> dict[str, str]:
    levels: dict[str, str] = dict(GATE_CHECKS)
    for pair in _names(text):
        check, _, level = (part.strip() for part in pair.partition("="))
        if check not in GATE_CHECKS or level not in get_args(GateLevel):
            raise ValueError(text)
        levels[check] = level
    return levels


def _issuer(text: str) -> str:
    found = _ISSUER.fullmatch(text)
    if not found or (found["scheme"] == "http" and not is_loopback(found["host"])):
        raise ValueError(text)
    return text


def _roles(text: str) -> tuple[tuple[str, str], ...]:
    roles = []
    for pair in _names(text):
        value, _, role = (part.strip() for part in pair.rpartition("="))
        if not value or role not in SIGN_IN_ROLES:
            raise ValueError(text)
        roles.append((value, role))
    return tuple(roles)


def _account_roles(text: str) -> tuple[tuple[str, str], ...]:
    roles = _roles(text)
    if not all(_ACCOUNT.fullmatch(account) and role in _REVIEWED_ROLES for account, role in roles):
        raise ValueError(text)
    return roles


def _origins(text: str) -> tuple[str, ...]:
    origins = _names(text)
    # Reading a wrong port raises a ValueError; so does a wrong address in brackets.
    if not all(_ORIGIN.fullmatch(origin) and urlsplit(origin).port != 0 for origin in origins):
        raise ValueError(text)
    return origins


def _address(text: str) -> str:
    found = _ADDRESS.fullmatch(text)
    if not found or not 0 < int(found["port"]) < _PORTS:
        raise ValueError(text)
    return text


def _one_of(choices: tuple[str, ...], change: Callable[[str], str] = str.lower) -> Callable[[str], str]:
    def read(text: str) -> str:
        if change(text) not in choices:
            raise ValueError(text)
        return change(text)

    return read


def _matching(*patterns: re.Pattern[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not any(pattern.fullmatch(text) for pattern in patterns):
            raise ValueError(text)
        return text

    return read


def _server(*patterns: re.Pattern[str], has_password: bool = True) -> Callable[[str], str]:
    """Return a reader of URLs that validates host and port: a / or # in a password would change them, and an error would quote the password."""

    def read(text: str) -> str:
        if _SQLITE.fullmatch(_matching(*patterns)(text)):
            return text
        parts = urlsplit(text)
        # A truncated password follows a colon. In URLs without passwords an @ may belong to the path, as in https://host/@team.
        may_be_cut = ":" in parts.netloc or (has_password and bool(parts.netloc))
        is_cut = may_be_cut and "@" in text and "@" not in parts.netloc
        # Reading a wrong port raises a ValueError, which quotes it.
        if parts.fragment or is_cut or parts.port == 0:
            raise ValueError(text)
        return text

    return read


def _database(text: str) -> str:
    if _SQLITE.fullmatch(_server(_SQLITE, _POSTGRES)(text)) or not (query := urlsplit(text).query):
        return text
    from psycopg.pq import Conninfo  # libpq's own options; slow, so for URLs with options only

    known = [each.keyword.decode() for each in Conninfo.get_defaults()] + _DJANGO_OPTIONS
    for number, (name, _) in enumerate(parse_qsl(query, keep_blank_values=True, strict_parsing=True), 1):
        if name not in known:
            # After an unencoded &, a part of a password looks like a name.
            which = f"the option number {number}" if "password" in query else f"the option {name!r}"
            (nearest,) = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.0)
            message = f"has {which}, which PostgreSQL's libpq doesn't know; did you mean {nearest}?"
            raise OptionError(message)
    return text


def _redis(text: str) -> str:
    parts = urlsplit(_server(_REDIS)(text))
    options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    known = _REDIS_TLS if parts.scheme == "rediss" else {}
    if not all(name in known and re.fullmatch(known[name], value) for name, value in options):
        raise ValueError(text)
    return text


def _whole(unit: str, most: int) -> tuple[Callable[[str], float], str]:
    """Return the reader of a whole number above 0, and its accepted form in words."""
    return _at_most(most, int), f"a whole number of {unit} above 0, at most {most:,}"


def _long_enough(text: str) -> str:
    if len(text) < MIN_SECRET_LENGTH:
        raise ValueError(text)
    return text


def _written_out(text: str) -> str:
    """Return the path of a folder that may be created. A shell expands ~, but systemd and Docker don't, and a folder named ~ would be created."""
    if text.startswith("~"):
        raise ValueError(text)
    return text


_DIRECTORY = "a directory; write its path without ~"
_ENCODED = "; in a password, encode @, /, ?, # and % as %40, %2F, %3F, %23 and %25"
_DATABASE = (
    _database,
    f"sqlite:///PATH, postgresql://USER:PASSWORD@HOST:PORT/NAME or postgresql:///NAME?host=/SOCKET/DIR{_ENCODED}",
)
_HOSTS = "host names, separated by commas, without https:// and port"
_PATTERNS = (
    f"none, or at most {_MOST_PATTERNS} names separated by commas, with * at the beginning or the end for any text"
)
# A hundred years, which is as good as for ever: longer times would be out of range for Python and databases.
_MOST_DAYS = 36_500
_DAYS = _whole("days", _MOST_DAYS)
# The longest time that a process may wait.
_MOST_WAITED = 86_400
_WAITED = (_at_most(_MOST_WAITED), f"a number of seconds above 0, at most {_MOST_WAITED:,}")
# A number of rows that a database is asked for at once: it refuses one of more than 64 bits.
_MOST_REQUEUES = 1_000_000
# With less, a process would do nothing but poll the database.
_LEAST_POLLED = 0.05
# A number of MiB or GiB without its unit would lose nearly all Decisions at the first outage of Redis or the database.
_LEAST_SPOOL = 1 << 20
# By the field of `Environment`: a reader, which raises a ValueError, and the accepted form in words.
READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "role": (_one_of(get_args(Role)), "one of " + ", ".join(get_args(Role))),
    "local": (_boolean, "true or false"),
    "state_dir": (lambda text: Path(_written_out(text)).resolve(), _DIRECTORY),
    "secret_key": (_long_enough, f"at least {MIN_SECRET_LENGTH} characters"),
    "database_url": _DATABASE,
    "redis_url": (
        _redis,
        f"redis://HOST:PORT/N or rediss://HOST:PORT/N, optionally with ?ssl_ca_certs=/PATH and {', '.join(list(_REDIS_TLS)[1:])}{_ENCODED}",
    ),
    "kubeconfig": (str, "a path"),
    "scheduler_config": (str, "a path"),
    "allowed_hosts": (_hosts(_ALLOWED_HOST), f"{_HOSTS}; .example.org includes all names below it"),
    "trusted_origins": (_origins, "origins like https://berth.example.org, separated by commas"),
    "behind_tls_proxy": (_boolean, "true or false"),
    "extender_max_body_bytes": (_positive(int), "a whole number of bytes above 0"),
    "extender_bind": (_address, "an address HOST:PORT"),
    "extender_health_bind": (_address, "an address HOST:PORT"),
    "extender_tls_cert_file": (str, "a path"),
    "extender_tls_key_file": (str, "a path"),
    "extender_client_ca_file": (str, "a path"),
    "extender_clients": (_names, "names, separated by commas"),
    "extender_hosts": (_hosts(_EXTENDERS_HOST), _HOSTS),
    "extender_secret_path": (_matching(_SECRET_PATH), "32 to 128 letters, digits, - or _"),
    "extender_calls_per_second": (_positive(float), "a number of calls above 0"),
    "extender_revision_poll_seconds": (
        _at_most(_MOST_WAITED, least=_LEAST_POLLED),
        f"a number of seconds from {_LEAST_POLLED} to {_MOST_WAITED:,}",
    ),
    "extender_deadline_seconds": _WAITED,
    "extender_without_revision": (_one_of(get_args(WithoutRevision)), "one of " + ", ".join(get_args(WithoutRevision))),
    "lease_namespace": (_matching(_DNS_LABEL), "the name of a namespace"),
    "scheduler_names": (
        _some_names,
        "names of schedulers, separated by commas; at least one, and not default-scheduler",
    ),
    "scheduler_node_label": (_label, "a label KEY=VALUE"),
    "binder_bind": (_address, "an address HOST:PORT"),
    "worker_bind": (_address, "an address HOST:PORT"),
    "beat_bind": (_address, "an address HOST:PORT"),
    "requeues_per_second": _whole("Pods", _MOST_REQUEUES),
    "spool_full": (_one_of(get_args(SpoolFull)), "one of " + ", ".join(get_args(SpoolFull))),
    "spool_max_bytes": (
        _at_least(_LEAST_SPOOL),
        f"a whole number of bytes, at least {_LEAST_SPOOL:,}",
    ),
    "mask_env": (_patterns, _PATTERNS),
    "mask_annotations": (_patterns, _PATTERNS),
    "mask_labels": (_patterns, _PATTERNS),
    "review_required": (_boolean, "true or false"),
    "review_roll_backs": (_boolean, "true or false"),
    "review_pauses": (_boolean, "true or false"),
    "exemption_notice_days": _DAYS,
    "review_approvals": (_positive(int), "a whole number above 0"),
    "gate_required": (_boolean, "true or false"),
    "gate_checks": (
        _gate_checks,
        f"CHECK=LEVEL separated by commas; checks are {', '.join(GATE_CHECKS)}; levels {', '.join(get_args(GateLevel))}",
    ),
    "gate_max_age_seconds": _whole("seconds", _MOST_DAYS * 86_400),
    "rest_writes_per_minute": (_positive(int), "a whole number above 0"),
    "assignment_idle_days": _DAYS,
    "oidc_issuer": (_issuer, "an https:// URL without query (http:// only on loopback)"),
    "oidc_client_id": (str, "a name"),
    "oidc_client_secret": (str, "a secret"),
    "oidc_name": (str, "a name"),
    "oidc_scopes": (str, "scopes, separated by spaces"),
    "oidc_signing_algorithm": (_one_of(_SIGNING, str.upper), "one of " + ", ".join(_SIGNING)),
    "oidc_role_claim": (str, "the name of a claim"),
    "oidc_roles": (_roles, f"VALUE=ROLE, separated by commas; roles are {', '.join(SIGN_IN_ROLES)}"),
    "sign_in_failures": (_positive(int), "a whole number above 0"),
    "lock_out_minutes": _whole("minutes", _MOST_DAYS * 1440),
    "session_hours": _whole("hours", _MOST_DAYS * 24),
    "token_max_days": _DAYS,
    "token_requests_per_minute": (_positive(int), "a whole number above 0"),
    "token_review_audience": (_matching(_AUDIENCE), "a name without spaces, such as berth"),
    "token_review_roles": (
        _account_roles,
        f"NAMESPACE/NAME=ROLE, separated by commas, with * for any text; roles are {', '.join(_REVIEWED_ROLES)}",
    ),
    "retention_days": _DAYS,
    "retention_details_days": _DAYS,
    "history_budget_bytes": (_positive(int), "a whole number of bytes above 0"),
    "history_database_url": _DATABASE,
    "ledger_key_file": (str, "a path"),
    "ledger_checkpoint_dir": (_written_out, _DIRECTORY),
    "ledger_webhook_url": (
        _server(_WEB, has_password=False),
        "https://… or http://…, without user and password; after a port, encode @ in the path as %40",
    ),
    "webhook_allow": (_networks, "networks like 10.1.0.0/16, separated by commas"),
    "webhook_ca_file": (str, "a path"),
    "webhook_seconds": (_at_most(30.0), "a number of seconds above 0, at most 30"),
    "notice_days": _DAYS,
    "log_format": (_one_of(get_args(LogFormat)), "one of " + ", ".join(get_args(LogFormat))),
    "log_level": (_one_of(get_args(LogLevel), str.upper), "one of " + ", ".join(get_args(LogLevel))),
}


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a listener on `host`."""
    return _LOOPBACK.fullmatch(host.strip("[]")) is not None
