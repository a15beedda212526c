"""The environment, decoded once: every `BERTH_*` variable, its type, its default and its purpose.

Nothing else in Berth reads the environment. A secret may come from a file: `BERTH_SECRET_KEY_FILE=/run/secrets/key`.
Variables that the real environment lacks are read from `STATE_DIR/env` (KEY=VALUE lines, written by `make up`), so that
commands in a second shell use the same settings as the running processes.
"""

import difflib
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from controlplane.env_values import (
    GATE_CHECKS,
    MIN_SECRET_LENGTH,
    READERS,
    GateLevel,
    LogFormat,
    LogLevel,
    OptionError,
    Role,
    SpoolFull,
    WithoutRevision,
    is_loopback,
)

BASE_DIR = Path(__file__).resolve().parent.parent


class ConfigurationError(Exception):
    """The environment is invalid. The message names every wrong variable with its accepted form."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("Berth's environment is wrong:\n" + "\n".join(f"  - {fault}" for fault in faults))


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The operators' settings. A variable's name is `BERTH_` and the field name in upper case."""

    # The role of this process. Default `command`: a management command. The admin and extender are servers; the worker, beat
    # and the binder are Celery processes. The extender gets its own URLs and no middleware.
    role: Role = "command"

    # The local default (`make up`): cookies over plain HTTP on 127.0.0.1, a generated secret key, no HTTPS redirect.
    # Default false, so that a deployment with incomplete settings is refused rather than open.
    local: bool = False

    # The folder for files: SQLite database, generated secret key, beat's schedule, cluster status. Default `.berth` in the
    # checkout.
    state_dir: Path = BASE_DIR / ".berth"

    # Signs sessions and forms; at least 32 characters. Default: in local mode a key is generated and stored in
    # `STATE_DIR/secret_key`; a command without a key uses a temporary one; other processes refuse to start.
    secret_key: str = ""

    # `sqlite:///PATH`, `postgresql://USER:PASSWORD@HOST:PORT/NAME` or `postgresql:///NAME?host=/SOCKET/DIR`.
    # Default: SQLite at `STATE_DIR/berth.sqlite3`.
    database_url: str = ""

    # Celery's broker and the stream of Decisions: `redis://…` or `rediss://…`.
    # Default: Redis on its usual local port.
    redis_url: str = "redis://127.0.0.1:6379/0"

    # Path of the kubeconfig of the cluster to schedule. Default empty: inside a Pod its own service account,
    # otherwise no cluster.
    kubeconfig: str = ""

    # Path of kube-scheduler's configuration file, used only by `doctor`. Default empty: `doctor` skips it.
    scheduler_config: str = ""

    # Host names, separated by commas, that the admin serves. Default: this machine only.
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")

    # Origins, separated by commas (`https://berth.example.org`), whose forms are accepted behind a proxy. Default none.
    trusted_origins: tuple[str, ...] = ()

    # True when a proxy terminates TLS and always sets X-Forwarded-Proto itself. Default false, because a client could
    # otherwise claim HTTPS.
    behind_tls_proxy: bool = False

    # Largest extender request, in bytes; a larger one gets 413. Default 95 MiB: 20,000 full nodes of 4.6 kB each.
    extender_max_body_bytes: int = 99_614_720

    # Address of the extender's listener, `HOST:PORT`. Default: loopback, port 8010. Another address than loopback needs
    # the three TLS settings.
    extender_bind: str = "127.0.0.1:8010"

    # Address of a second listener of the extender, plain HTTP with the probes only: a kubelet can't show a client
    # certificate. Default none.
    extender_health_bind: str = ""

    # PEM file of the extender's server certificate, followed by intermediates. Default none: plain HTTP.
    extender_tls_cert_file: str = ""

    # PEM file of the certificate's key, without a passphrase. Default none.
    extender_tls_key_file: str = ""

    # PEM file of the authorities whose client certificates are accepted. Default none.
    extender_client_ca_file: str = ""

    # Names, separated by commas, of allowed callers: exactly the CN or a SAN (DNS, URI, e-mail) of the client certificate.
    # Default: the name in kube-scheduler's own certificate.
    extender_clients: tuple[str, ...] = ("system:kube-scheduler",)

    # Host names, separated by commas, that callers may have in urlPrefix besides those of loopback and this machine. Default
    # none: without TLS only this machine calls; with TLS the client compares the host with the server's certificate.
    extender_hosts: tuple[str, ...] = ()

    # A secret path before the verbs that callers have to know (`http://127.0.0.1:8010/PATH`), for machines and Pods that
    # share loopback with others; 32 to 128 letters, digits, `-` or `_`. Default none.
    extender_secret_path: str = ""

    # How many calls each caller may make in a second, and at once; more get 429. Default 2000: ten times what
    # kube-scheduler reaches.
    extender_calls_per_second: float = 2000.0

    # How often the extender looks for a new Revision, in seconds. Default 0.5: a publish takes effect within a second.
    extender_revision_poll_seconds: float = 0.5

    # How long an answer may take, in seconds; the rule set's spec.failures.deadline decides the nodes that aren't decided by
    # then. Default 1.5: half of the httpTimeout in deploy/kube-scheduler/config.yaml.
    extender_deadline_seconds: float = 1.5

    # The extender's answer until it has read a Revision for the first time: `refuse` fails the call, so that
    # kube-scheduler tries again; `pass` lets every Pod pass. Default refuse.
    extender_without_revision: WithoutRevision = "refuse"

    # Namespace of the Leases by which replicas coordinate. Default kube-system, where kube-scheduler's own is.
    lease_namespace: str = "kube-system"

    # Values, separated by commas, of spec.schedulerName of the Pods that Berth binds itself. Default `berth`.
    scheduler_names: tuple[str, ...] = ("berth",)

    # `KEY=VALUE`: Berth's own scheduler uses only nodes with this label, so that another scheduler can use the others
    # exclusively. Default none: it uses all nodes.
    scheduler_node_label: tuple[str, str] | None = None

    # Address `HOST:PORT` of a listener of the binder, plain HTTP with the probes and metrics only. Default none.
    binder_bind: str = ""

    # Address `HOST:PORT` of a listener of the worker, plain HTTP with the probes and metrics only. Default none.
    worker_bind: str = ""

    # Address `HOST:PORT` of a listener of beat, plain HTTP with the probes and metrics only. Default none.
    beat_bind: str = ""

    # The most waiting Pods that are requeued in a second. Default 50: each one costs the API server a patch and
    # kube-scheduler a cycle.
    requeues_per_second: int = 50

    # What happens to a Decision when the disk is full. `lose`: the answer is sent, and lost Decisions are counted.
    # `refuse`: kube-scheduler gets an error and tries again. Default `lose`: a full disk must not stop all scheduling.
    spool_full: SpoolFull = "lose"

    # The most disk space for Decisions that aren't in the database yet, in bytes, at least 1 MiB. Default 2 GiB.
    spool_max_bytes: int = 2 << 30

    # Names, separated by commas, of environment variables whose values are masked in the history: case-insensitive, with `*` for
    # any text at the beginning or the end; `none` for none. Rules still see the values. Default `*`: rules hardly ever read them,
    # and they contain passwords.
    mask_env: tuple[str, ...] = ("*",)

    # The annotations to mask, in the same form. Default: the one in which `kubectl apply` stores a copy of the whole object.
    mask_annotations: tuple[str, ...] = ("kubectl.kubernetes.io/last-applied-configuration",)

    # The labels to mask, also in selectors, in the same form. Default none: rules read labels, so Decisions with masked labels
    # can't be replayed.
    mask_labels: tuple[str, ...] = ()

    # True: edits go live only as a Change that others have approved. Default false.
    review_required: bool = False

    # How many people who didn't edit a Change have to approve it, where review is required. Default 1.
    review_approvals: int = 1

    # False: a Change that only rolls back to an older Revision needs no approvals. Default true.
    review_roll_backs: bool = True

    # False: a Change that only adds Pauses needs no approvals. Default true.
    review_pauses: bool = True

    # How many days before its end an Exemption is announced: on Home, by doctor, in a log line. Default 7.
    exemption_notice_days: int = 7

    # True: a Change goes live only after a recent run of the gate for its current content. Default false: the gate's
    # findings count only where it has run.
    gate_required: bool = False

    # The level of each check of the gate, `CHECK=off|warning|blocking` separated by commas; checks that aren't named keep
    # their default. A rule set may require more.
    gate_checks: dict[str, GateLevel] = msgspec.field(default_factory=lambda: dict(GATE_CHECKS))

    # How old the gate's results may be, in seconds, where the gate is required. Default one hour.
    gate_max_age_seconds: int = 3600

    # How many writes a minute REST accepts from an account's sessions, and as many from all its tokens, in each process.
    # Default 600.
    rest_writes_per_minute: int = 600

    # After how many days without a Pod the list of Assignments and doctor report an Assignment. Default 30.
    assignment_idle_days: int = 30

    # The OpenID Connect provider where people sign in: its issuer, `https://…`. Default none: accounts of Berth's own.
    oidc_issuer: str = ""

    # Berth's client ID at the provider. Default none; needed with an issuer.
    oidc_client_id: str = ""

    # Berth's client secret at the provider. Default none; needed with an issuer.
    oidc_client_secret: str = ""

    # The provider's name on the sign-in button. Default `single sign-on`.
    oidc_name: str = "single sign-on"

    # The scopes requested from the provider, separated by spaces. Default `openid profile email`; some need `groups` too.
    oidc_scopes: str = "openid profile email"

    # The provider's signing algorithm: RS256, RS384, RS512, ES256, ES384 or ES512. Default RS256.
    oidc_signing_algorithm: str = "RS256"

    # The claim from which roles are derived. Default `groups`.
    oidc_role_claim: str = "groups"

    # `VALUE=ROLE` separated by commas: people whose claim contains VALUE get ROLE, one of Operator, Approver, Emergency, Auditor
    # and Administrator. A VALUE may appear with several roles. People without any role can't sign in.
    oidc_roles: tuple[tuple[str, str], ...] = ()

    # After how many wrong passwords in a row an account is locked out for the client's address. Default 5.
    sign_in_failures: int = 5

    # For how many minutes it is locked out, from the last wrong password on. Default 15.
    lock_out_minutes: int = 15

    # For how many hours somebody stays signed in. Default 8.
    session_hours: int = 8

    # The longest lifetime of a token, in days. Default 366: a forgotten token expires by itself.
    token_max_days: int = 366

    # How many REST requests all tokens of an account may make together in a minute, in each process; more get 429. Default 600.
    token_requests_per_minute: int = 600

    # The audience required of tokens of Kubernetes ServiceAccounts; the API server reviews each token.
    # Default none: such tokens aren't accepted.
    token_review_audience: str = ""

    # The roles of ServiceAccounts: NAMESPACE/NAME=ROLE separated by commas, with * in namespace or name. Default none.
    token_review_roles: tuple[tuple[str, str], ...] = ()

    # For how many days Decisions and Outcomes are kept. Default: for ever.
    retention_days: int = 0

    # For how many days the details of Decisions are kept: the Pod, each rule's result for each node, and Snapshots. After
    # that a Decision can't be replayed. Default: as long as Decisions.
    retention_details_days: int = 0

    # The budget for the history in the database, in bytes. If the forecast exceeds it, doctor and the page Storage warn.
    # Default: no budget.
    history_budget_bytes: int = 0

    # A replica of the database, from which pages and REST read the history. Default: the database itself.
    history_database_url: str = ""

    # File with the private key that signs the ledger's checkpoints; the public keys are in `FILE.pub` beside it.
    # Default: in local mode a key is generated and stored in `STATE_DIR/ledger_key`; otherwise nothing is signed.
    ledger_key_file: str = ""

    # Directory to which each checkpoint is also written: on a disk to which the database's administrators can't write.
    # Default: in local mode `STATE_DIR/checkpoints`; otherwise they are only in the log.
    ledger_checkpoint_dir: str = ""

    # The URL to which each checkpoint is also sent, by POST: `https://…`. Default none.
    ledger_webhook_url: str = ""

    # Networks, separated by commas (`10.1.0.0/16`), to which webhooks may be sent although they are private, loopback or similar;
    # plain http:// is allowed there, too. Default none.
    webhook_allow: tuple[str, ...] = ()

    # PEM file of authorities for the certificates of webhook receivers, besides the system's own. Default none.
    webhook_ca_file: str = ""

    # How long the receiver of a webhook may take to answer, in seconds, at most 30. Default 5.
    webhook_seconds: float = 5.0

    # For how many days notices and their deliveries are kept. Default 90.
    notice_days: int = 90

    # The format of log lines: `text`, key=value pairs, or `json`. Default text.
    log_format: LogFormat = "text"

    # The lowest level of log lines that are written to stderr. Default INFO.
    log_level: LogLevel = "INFO"

    @property
    def secrets(self) -> frozenset[str]:
        """The names of the fields that are shown to nobody."""
        return _SECRETS

    def __repr__(self) -> str:
        """Return it without its secrets: `diffsettings`, debuggers and reports of faults show it."""
        said = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return f"Environment({', '.join(f'{name}=…' if name in _SECRETS and text else f'{name}={text!r}' for name, text in said)})"


_SECRETS = frozenset(
    {
        "secret_key",
        "database_url",
        "history_database_url",
        "redis_url",
        "extender_secret_path",
        "oidc_client_secret",
        "ledger_webhook_url",
    }
)
# Read by deploy/localcluster, which runs in the same environment.
_OF_LOCALCLUSTER = frozenset({"BERTH_CACHE_DIR", "BERTH_GO", "BERTH_KUBE_ASSETS"})
# Read by the command `berth`, which is used in the same shell.
_OF_COMMAND = frozenset({"BERTH_SERVER", "BERTH_TOKEN", "BERTH_TOKEN_FILE", "BERTH_CA_FILE", "BERTH_ALLOW_HTTP"})

# Variables that a kubelet sets for the Services in the namespace, unless the Pod has enableServiceLinks: false: a Service
# berth-redis gives BERTH_REDIS_PORT. Kubernetes 1.36, pkg/kubelet/envvars/envvars.go.
_OF_A_SERVICE = re.compile(r"_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|_PORT(_[0-9]+_[A-Z]+(_(PROTO|PORT|ADDR))?)?")

# Former names of settings. If one is still set, the start fails with its new name.
_RENAMED = {"BERTH_WAKES_PER_SECOND": "BERTH_REQUEUES_PER_SECOND"}

_TLS_FIELDS = ("extender_tls_cert_file", "extender_tls_key_file", "extender_client_ca_file")


def read_environment(environ: Mapping[str, str]) -> Environment:
    """Decode the environment, with `STATE_DIR/env` as fallback, and determine the secret key.

    Raises:
        ConfigurationError: variables are wrong or unknown; all of them are named.
    """
    state_dir = Path(environ.get("BERTH_STATE_DIR") or BASE_DIR / ".berth").resolve()
    beneath = _read_file(state_dir / "env")
    for secret in _SECRETS:
        # A secret in the environment, in either form, overrides both forms in the fallback file.
        names = {f"BERTH_{secret.upper()}", f"BERTH_{secret.upper()}_FILE"}
        if any(environ.get(name) for name in names):
            beneath = {name: text for name, text in beneath.items() if name not in names}
    # An empty variable counts as not set: the file's is used.
    beneath = {name: text for name, text in beneath.items() if not environ.get(name)}
    environment = _settle_secret_key(decode({**environ, **beneath}))
    _try_webhook_authorities(environment)
    return environment


def given(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of Berth that an environment has, as lines of `STATE_DIR/env` can hold them, but for a process's role."""
    foreign = _OF_LOCALCLUSTER | _OF_COMMAND | _service_links(environ) | {"BERTH_ROLE"}
    named = {name: text.strip() for name, text in environ.items() if name.startswith("BERTH_") and name not in foreign}
    return {name: text for name, text in named.items() if text and len(text.splitlines()) == 1}


def decode(variables: Mapping[str, str]) -> Environment:
    """Decode variables without reading files, except for `*_FILE` secrets.

    Raises:
        ConfigurationError: variables are wrong or unknown; all of them are named.
    """
    faults: list[str] = []
    values: dict[str, Any] = {}
    foreign = _OF_LOCALCLUSTER | _OF_COMMAND | _service_links(variables)
    for name in sorted(variables):
        if not name.startswith("BERTH_") or name in foreign:
            continue
        field = name.removeprefix("BERTH_").lower()
        if field in READERS:
            _read_value(field, variables[name], values, faults)
        elif field.removesuffix("_file") in _SECRETS:
            _read_secret_file(name, variables, values, faults)
        else:
            faults.append(_unknown(name))
    if not faults:
        environment = Environment(**values)
        faults = [*_listener_faults(environment), *_provider_faults(environment), *_retention_faults(environment)]
        faults += _review_faults(environment)
    if faults:
        raise ConfigurationError(faults)
    return Environment(**values)


def _service_links(variables: Mapping[str, str]) -> set[str]:
    """Return the variables that Kubernetes set, for Services whose names begin with "berth"."""
    services = {name.removesuffix("_SERVICE_HOST") for name in variables if name.endswith("_SERVICE_HOST")}
    names = [(service, name) for service in services for name in variables if name.startswith(service)]
    return {name for service, name in names if _OF_A_SERVICE.fullmatch(name.removeprefix(service))}


def _listener_faults(environment: Environment) -> list[str]:
    """Return the contradictions between the settings of the extender's listeners."""
    names = {field: f"BERTH_{field.upper()}" for field in _TLS_FIELDS}
    missing = [name for field, name in names.items() if not getattr(environment, field)]
    host, _, port = environment.extender_bind.rpartition(":")
    faults = []
    if missing and len(missing) < len(names):
        faults.append(f"{' and '.join(missing)} must be set too: TLS needs all of {', '.join(names.values())}")
    elif missing and not is_loopback(host):
        faults.append(
            f"BERTH_EXTENDER_BIND={environment.extender_bind!r} is reachable from other machines, which requires TLS with "
            f"client certificates: set {', '.join(missing)}, or bind to 127.0.0.1"
        )
    if not missing and not environment.extender_clients:
        faults.append("BERTH_EXTENDER_CLIENTS names no allowed caller; unset it to allow system:kube-scheduler")
    if environment.extender_health_bind.rpartition(":")[2] == port:
        faults.append("BERTH_EXTENDER_HEALTH_BIND has the port of BERTH_EXTENDER_BIND; give it a port of its own")
    return faults


def _provider_faults(environment: Environment) -> list[str]:
    """Return which settings of the sign-in provider are missing: they are only valid together."""
    needed = ("oidc_issuer", "oidc_client_id", "oidc_client_secret", "oidc_roles")
    missing = [f"BERTH_{field.upper()}" for field in needed if not getattr(environment, field)]
    there = [f"BERTH_{field.upper()}" for field in needed if getattr(environment, field)]
    if not missing or not there:
        return []
    return [f"{' and '.join(missing)} must be set too: {there[0]} needs {'it' if len(missing) == 1 else 'them'}"]


def _review_faults(environment: Environment) -> list[str]:
    """Return which settings for Kubernetes tokens are missing: the two are only valid together."""
    if bool(environment.token_review_audience) == bool(environment.token_review_roles):
        return []
    return ["BERTH_TOKEN_REVIEW_AUDIENCE and BERTH_TOKEN_REVIEW_ROLES belong together: set both, or neither"]


def _retention_faults(environment: Environment) -> list[str]:
    """Return the contradictions between the settings of the history's retention."""
    days, details = environment.retention_days, environment.retention_details_days
    if days and details > days:
        return [
            f"BERTH_RETENTION_DETAILS_DAYS={details} is longer than BERTH_RETENTION_DAYS={days}: details are deleted with their Decision"
        ]
    return []


def _read_value(field: str, text: str, values: dict[str, Any], faults: list[str]) -> None:
    read, form = READERS[field]
    if text == "":
        return
    try:
        values[field] = read(text)
    except OptionError as error:
        faults.append(f"BERTH_{field.upper()} {error}")
    except ValueError:
        shown = "" if field in _SECRETS else f"={text!r}"
        faults.append(f"BERTH_{field.upper()}{shown} is not {form}")


def _read_secret_file(name: str, variables: Mapping[str, str], values: dict[str, Any], faults: list[str]) -> None:
    plain = name.removesuffix("_FILE")
    if not variables[name]:
        return
    if variables.get(plain):
        faults.append(f"{name} and {plain} are both set; keep one of them")
        return
    try:
        text = Path(variables[name]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        faults.append(f"{name}={variables[name]!r} is not a readable text file: {error}")
        return
    if text:
        _read_value(plain.removeprefix("BERTH_").lower(), text, values, faults)
    else:
        faults.append(f"{name}={variables[name]!r} is an empty file")


def _try_webhook_authorities(environment: Environment) -> None:
    """Refuse a worker whose file of authorities can't be used; no other process sends webhooks, or needs to have the file."""
    path = environment.webhook_ca_file
    if environment.role != "worker" or not path:
        return
    import ssl  # here: commands, which load this module too, shouldn't wait for OpenSSL

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except OSError as error:
        why = "it holds no certificate in PEM" if isinstance(error, ssl.SSLError) else error.strerror or error
        message = f"BERTH_WEBHOOK_CA_FILE={path!r} can't be used: {why}. Name a PEM file of certificates, or unset it"
        raise ConfigurationError([message]) from error


def _unknown(name: str) -> str:
    if name in _RENAMED:
        return f"{name} was renamed: use {_RENAMED[name]}"
    known = [f"BERTH_{field.upper()}" for field in READERS]
    known += [f"BERTH_{field.upper()}_FILE" for field in sorted(_SECRETS)]
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"{name} is not a setting of Berth; did you mean {nearest[0]}?"


def _read_file(path: Path) -> dict[str, str]:
    try:
        # Editors on Windows put a byte order mark before the first name.
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except PermissionError as error:
        message = (
            f"{path} can't be read by this account, uid {os.getuid()}: run Berth as the owner of BERTH_STATE_DIR, or give the "
            "folder to this account (chown; in a Pod fsGroup)"
        )
        raise ConfigurationError([message]) from error
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} is not a readable text file: {error}"
        raise ConfigurationError([message]) from error
    lines = {number: line.strip() for number, line in enumerate(text.splitlines(), 1)}
    lines = {number: line for number, line in lines.items() if line and not line.startswith("#")}
    # By their numbers: what they say may be a secret, as in `BERTH_SECRET_KEY: …`.
    if faulty := [number for number, line in lines.items() if not _is_key_value(line)]:
        raise ConfigurationError(
            [f"{path}: line {number} is not KEY=VALUE{_remedy(lines[number])}" for number in faulty]
        )
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines.values())}


def _remedy(line: str) -> str:
    has_more = len(line.partition("=")[0].split()) > 1 and "=" in line
    return ": nothing may stand before KEY, such as export" if has_more else ""


def _is_key_value(line: str) -> bool:
    key, equals, _ = line.partition("=")
    # A secret in base64 ends with the sign itself; `export BERTH_…` would otherwise count as another program's variable.
    return bool(equals) and ("BERTH_" not in key or key.strip().isidentifier())


def _settle_secret_key(environment: Environment) -> Environment:
    if environment.secret_key:
        return environment
    if environment.local:
        return msgspec.structs.replace(environment, secret_key=_kept_key(environment.state_dir / "secret_key"))
    if environment.role == "command":
        return msgspec.structs.replace(environment, secret_key=secrets.token_urlsafe(50))
    message = (
        f"BERTH_SECRET_KEY or BERTH_SECRET_KEY_FILE is missing, which role {environment.role!r} needs: "
        f"at least {MIN_SECRET_LENGTH} characters"
    )
    raise ConfigurationError([message])


def _kept_key(path: Path) -> str:
    """Return the key stored at `path`; the first process creates it, without a race."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
            fresh.touch(mode=0o600)
            fresh.write_text(secrets.token_urlsafe(50), encoding="utf-8")
            _link_once(fresh, path)
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        message = f"BERTH_STATE_DIR={str(path.parent)!r} is not a writable directory: {error}"
        raise ConfigurationError([message]) from error


def _link_once(fresh: Path, path: Path) -> None:
    try:
        path.hardlink_to(fresh)
    except FileExistsError:
        pass  # another process was first; its key is used
    finally:
        fresh.unlink()
