"""The environment, decoded once: every `BERTH_*` variable, its type, its default and why it exists.

Nothing else in Berth reads the environment. A secret may come from a file: `BERTH_SECRET_KEY_FILE=/run/secrets/key`.
Beneath the real environment lies `STATE_DIR/env` (KEY=VALUE lines, written by `make up`), so that commands in a second
shell use the same settings as the running processes.
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
    """The environment can't be used. Names every wrong variable with its accepted form."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("Berth's environment is wrong:\n" + "\n".join(f"  - {fault}" for fault in faults))


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What operators set. `BERTH_` and the upper-case field name make the variable's name."""

    # What this process is. Default `command`: a management command. The admin and extender are servers, the worker, beat
    # and the binder are Celery's. The extender gets its own URLs and no middleware.
    role: Role = "command"

    # The local default (`make up`): cookies over plain HTTP on 127.0.0.1, a generated secret key, no HTTPS redirect.
    # Default false, so that a deployment that forgets it is refused rather than open.
    local: bool = False

    # Where files live: SQLite database, kept secret key, beat's schedule, cluster status. Default `.berth` in the
    # checkout.
    state_dir: Path = BASE_DIR / ".berth"

    # Signs sessions and forms; at least 32 characters. Default: in local mode one is made and kept in
    # `STATE_DIR/secret_key`; a command without one uses a throw-away key; otherwise the start is refused.
    secret_key: str = ""

    # `sqlite:///PATH`, `postgresql://USER:PASSWORD@HOST:PORT/NAME` or `postgresql:///NAME?host=/SOCKET/DIR`.
    # Default: SQLite at `STATE_DIR/berth.sqlite3`.
    database_url: str = ""

    # Celery's broker and the stream of Decisions: `redis://…` or `rediss://…`.
    # Default: Redis on its usual local port.
    redis_url: str = "redis://127.0.0.1:6379/0"

    # Path of the kubeconfig of the cluster that is scheduled. Default empty: inside a Pod its own service account,
    # otherwise no cluster.
    kubeconfig: str = ""

    # Path of kube-scheduler's configuration file, for `doctor` alone. Default empty: it isn't looked at.
    scheduler_config: str = ""

    # Host names, by commas, that the admin answers for. Default: this machine only.
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")

    # Origins, by commas (`https://berth.example.org`), whose forms are accepted behind a proxy. Default none.
    trusted_origins: tuple[str, ...] = ()

    # True when a proxy ends TLS and always sets X-Forwarded-Proto itself. Default false, because a client could
    # otherwise claim HTTPS.
    behind_tls_proxy: bool = False

    # Largest extender request, in bytes; more is answered 413. Default 95 MiB: 20,000 full nodes of 4.6 kB each.
    extender_max_body_bytes: int = 99_614_720

    # Address of the extender's listener, `HOST:PORT`. Default: loopback, port 8010. Another address than loopback needs
    # the three TLS settings.
    extender_bind: str = "127.0.0.1:8010"

    # Address of a second listener of the extender, plain HTTP with the probes only: a kubelet can't show a client
    # certificate. Default none.
    extender_health_bind: str = ""

    # PEM file of the extender's server certificate, intermediates behind it. Default none: plain HTTP.
    extender_tls_cert_file: str = ""

    # PEM file of the certificate's key, without a passphrase. Default none.
    extender_tls_key_file: str = ""

    # PEM file of the authorities whose client certificates are taken. Default none.
    extender_client_ca_file: str = ""

    # Names, by commas, of who may call: the CN or a SAN (DNS, URI, e-mail) of the client certificate, exactly.
    # Default: the name in kube-scheduler's own certificate.
    extender_clients: tuple[str, ...] = ("system:kube-scheduler",)

    # Host names, by commas, that callers may have in urlPrefix besides loopback's and this machine's own. Default none:
    # without TLS only this machine calls; with TLS the client compares the host with the server's certificate.
    extender_hosts: tuple[str, ...] = ()

    # A path before the verbs that callers have to know (`http://127.0.0.1:8010/PATH`), for machines and Pods whose
    # loopback others share; 32 to 128 letters, digits, `-` or `_`. Default none.
    extender_secret_path: str = ""

    # Calls that each caller may make, in calls a second and at once; more are answered 429. Default 2000: ten times what
    # kube-scheduler reaches.
    extender_calls_per_second: float = 2000.0

    # How often the extender looks for a new Revision, in seconds. Default 0.5: a publish is served within a second.
    extender_revision_poll_seconds: float = 0.5

    # How long an answer may take, in seconds; what isn't decided by then is answered by the rule set's own choice
    # (spec.failures.deadline). Default 1.5: half of the httpTimeout in deploy/kube-scheduler/config.yaml.
    extender_deadline_seconds: float = 1.5

    # What the extender answers as long as it has never read any Revision: `refuse` fails the call, so that
    # kube-scheduler tries again, `pass` lets every Pod pass. Default refuse.
    extender_without_revision: WithoutRevision = "refuse"

    # Namespace of the Leases by which replicas agree. Default kube-system, where kube-scheduler's own is.
    lease_namespace: str = "kube-system"

    # Names, by commas, that Pods carry in spec.schedulerName to be bound by Berth itself. Default `berth`.
    scheduler_names: tuple[str, ...] = ("berth",)

    # `KEY=VALUE`: Berth's own scheduler uses only nodes with this label, so that another one can have the others to
    # itself. Default none: it uses all nodes.
    scheduler_node_label: tuple[str, str] | None = None

    # Address `HOST:PORT` of a listener of the binder, plain HTTP with the probes and metrics only. Default none.
    binder_bind: str = ""

    # The same of the worker, and of beat.
    worker_bind: str = ""
    beat_bind: str = ""

    # How many waiting Pods are requeued in a second at most. Default 50: each one is a patch for the API server and a
    # cycle of kube-scheduler.
    requeues_per_second: int = 50

    # What happens to a Decision that finds no room on disk. `lose`: the answer goes out, and what is lost is counted.
    # `refuse`: kube-scheduler gets an error and tries again. Default `lose`: a full disk must not stop all scheduling.
    spool_full: SpoolFull = "lose"

    # How much Decisions that aren't in the database yet may take up on disk, in bytes. Default 2 GiB.
    spool_max_bytes: int = 2 << 30

    # Names, by commas, of environment variables whose values are masked in the history: without regard to case, `*` for any
    # text at the beginning or the end; `none` for none. Rules see them all the same. Default `*`: rules hardly ever read them, and
    # passwords stand in them.
    mask_env: tuple[str, ...] = ("*",)

    # The same of annotations. Default: the one in which `kubectl apply` writes the whole object once more.
    mask_annotations: tuple[str, ...] = ("kubectl.kubernetes.io/last-applied-configuration",)

    # The same of labels, and of what selectors of such labels name. Default none: rules go by labels, so that Decisions about
    # them can't be replayed.
    mask_labels: tuple[str, ...] = ()

    # True: what operators edit goes live as a Change that others approved, and no other way. Default false.
    review_required: bool = False

    # How many people who didn't edit a Change have to approve it, where review is required. Default 1.
    review_approvals: int = 1

    # False: a Change that rolls back to an older Revision, and does nothing else, needs no approvals. Default true.
    review_roll_backs: bool = True

    # False: a Change that adds Pauses, and does nothing else, needs no approvals. Default true.
    review_pauses: bool = True

    # How many days before an Exemption ends it is announced: on the first page, by doctor, in a line of the log. Default 7.
    exemption_notice_days: int = 7

    # True: a Change goes live only where the gate has looked at it, at what it makes now and not too long ago. Default
    # false: what the gate finds counts where it has run.
    gate_required: bool = False

    # What comes of what each check of the gate finds, `CHECK=off|warning|blocking` by commas; those that aren't named keep
    # their default. A rule set may ask for more.
    gate_checks: dict[str, GateLevel] = msgspec.field(default_factory=lambda: dict(GATE_CHECKS))

    # How old what the gate has found may be, in seconds, where it is required. Default one hour.
    gate_max_age_seconds: int = 3600

    # How many writes a minute REST takes from an account, or from one of its tokens, in each process. Default 600.
    rest_writes_per_minute: int = 600

    # For how many days an Assignment may take no Pod before the list of Assignments and doctor name it. Default 30.
    assignment_idle_days: int = 30

    # The OpenID Connect provider where people sign in: its issuer, `https://…`. Default none: accounts of Berth's own.
    oidc_issuer: str = ""

    # What Berth is called there, and the secret that it was given.
    oidc_client_id: str = ""
    oidc_client_secret: str = ""

    # What the provider is called on the button. Default `single sign-on`.
    oidc_name: str = "single sign-on"

    # What is asked of the provider, by spaces. Default `openid profile email`; some need `groups` too.
    oidc_scopes: str = "openid profile email"

    # How the provider signs: RS256, RS384, RS512, ES256, ES384 or ES512. Default RS256.
    oidc_signing_algorithm: str = "RS256"

    # The claim that says what somebody may do. Default `groups`.
    oidc_role_claim: str = "groups"

    # `VALUE=ROLE` by commas: whose claim holds VALUE gets ROLE, one of Operator, Approver, Emergency, Auditor and Administrator.
    # A VALUE may stand with several. Somebody without any of them isn't let in.
    oidc_roles: tuple[tuple[str, str], ...] = ()

    # After how many wrong passwords in a row an account is locked out at the address that they came from. Default 5.
    sign_in_failures: int = 5

    # For how many minutes, from the last of them on. Default 15.
    lock_out_minutes: int = 15

    # For how many hours somebody stays signed in. Default 8.
    session_hours: int = 8

    # For how many days a token may be made at most. Default 366: a token that nobody looks at any more ends by itself.
    token_max_days: int = 366

    # Requests that each token may make of REST, in a minute and each process; more are answered 429. Default 600.
    token_requests_per_minute: int = 600

    # The audience that tokens of Kubernetes' ServiceAccounts have to be for; each is reviewed by the API server.
    # Default none: they aren't taken.
    token_review_audience: str = ""

    # Which ServiceAccount has which role here: NAMESPACE/NAME=ROLE by commas, with * in either. Default none.
    token_review_roles: tuple[tuple[str, str], ...] = ()

    # For how many days Decisions and Outcomes are kept. Default: for ever.
    retention_days: int = 0

    # For how many days the details of Decisions are kept: the Pod, what each rule said of each node, and Snapshots. After
    # that a Decision can't be replayed. Default: as long as Decisions.
    retention_details_days: int = 0

    # What the history may take up in the database, in bytes. Where the forecast passes it, doctor and the page Storage warn.
    # Default: no budget.
    history_budget_bytes: int = 0

    # Where pages and REST read the history from: a replica of the database. Default: the database itself.
    history_database_url: str = ""

    # File with the private key that signs the ledger's checkpoints; the public keys stand beside it in `FILE.pub`.
    # Default: in local mode one is made and kept in `STATE_DIR/ledger_key`; otherwise nothing is signed.
    ledger_key_file: str = ""

    # Directory in which each checkpoint is written too: on a disk that whoever administers the database can't write.
    # Default: in local mode `STATE_DIR/checkpoints`; otherwise they are only in the log.
    ledger_checkpoint_dir: str = ""

    # Where each checkpoint is sent too, by POST: `https://…`. Default none.
    ledger_webhook_url: str = ""

    # Networks, by commas (`10.1.0.0/16`), that webhooks may be sent to though they are private, loopback or the like; there by
    # http:// too. Default none.
    webhook_allow: tuple[str, ...] = ()

    # PEM file of authorities that may have signed certificates of webhooks' receivers, beside the system's own. Default none.
    webhook_ca_file: str = ""

    # How long a webhook's receiver may take for its answer, in seconds, at most 30. Default 5.
    webhook_seconds: float = 5.0

    # For how many days notices, and what was sent of them, are kept. Default 90.
    notice_days: int = 90

    # How a line of the log is written: `text`, key=value pairs, or `json`. Default text.
    log_format: LogFormat = "text"

    # Least severe lines written to stderr. Default INFO.
    log_level: LogLevel = "INFO"

    @property
    def secrets(self) -> frozenset[str]:
        """The names of the fields that are shown to nobody."""
        return _SECRETS


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
# Read by deploy/localcluster, which stands in the same environment.
_OF_LOCALCLUSTER = frozenset({"BERTH_CACHE_DIR", "BERTH_GO", "BERTH_KUBE_ASSETS"})
# Read by the command `berth`, which is used in the same shell.
_OF_COMMAND = frozenset({"BERTH_SERVER", "BERTH_TOKEN", "BERTH_TOKEN_FILE", "BERTH_CA_FILE", "BERTH_ALLOW_HTTP"})

# What a kubelet tells each container of the Services in its namespace, where its Pod doesn't say enableServiceLinks: false: a Service
# berth-redis makes BERTH_REDIS_PORT. Kubernetes 1.36, pkg/kubelet/envvars/envvars.go.
_OF_A_SERVICE = re.compile(r"_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|_PORT(_[0-9]+_[A-Z]+(_(PROTO|PORT|ADDR))?)?")

# Former names of settings. One that is still set ends the start, and its new name is given.
_RENAMED = {"BERTH_WAKES_PER_SECOND": "BERTH_REQUEUES_PER_SECOND"}

_TLS_FIELDS = ("extender_tls_cert_file", "extender_tls_key_file", "extender_client_ca_file")


def read_environment(environ: Mapping[str, str]) -> Environment:
    """Decode the environment, with `STATE_DIR/env` beneath it, and settle the secret key.

    Raises:
        ConfigurationError: variables are wrong or unknown; all of them are named.
    """
    state_dir = Path(environ.get("BERTH_STATE_DIR") or BASE_DIR / ".berth").resolve()
    beneath = _read_file(state_dir / "env")
    for secret in _SECRETS:
        # Either way of giving a secret beats both ways in the file beneath.
        names = {f"BERTH_{secret.upper()}", f"BERTH_{secret.upper()}_FILE"}
        if any(environ.get(name) for name in names):
            beneath = {name: text for name, text in beneath.items() if name not in names}
    return _settle_secret_key(decode({**beneath, **environ}))


def decode(variables: Mapping[str, str]) -> Environment:
    """Decode variables without touching the file system, but for `*_FILE` secrets.

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
    """Return the names that are Kubernetes' own, of a Service whose name begins with "berth"."""
    services = {name.removesuffix("_SERVICE_HOST") for name in variables if name.endswith("_SERVICE_HOST")}
    names = [(service, name) for service in services for name in variables if name.startswith(service)]
    return {name for service, name in names if _OF_A_SERVICE.fullmatch(name.removeprefix(service))}


def _listener_faults(environment: Environment) -> list[str]:
    """Return what is wrong between the settings of the extender's listeners."""
    names = {field: f"BERTH_{field.upper()}" for field in _TLS_FIELDS}
    missing = [name for field, name in names.items() if not getattr(environment, field)]
    host, _, port = environment.extender_bind.rpartition(":")
    faults = []
    if missing and len(missing) < len(names):
        faults.append(f"{' and '.join(missing)} must be set too: TLS needs all of {', '.join(names.values())}")
    elif missing and not is_loopback(host):
        faults.append(
            f"BERTH_EXTENDER_BIND={environment.extender_bind!r} is reached from other machines, which needs TLS with "
            f"client certificates: set {', '.join(missing)}, or bind to 127.0.0.1"
        )
    if not missing and not environment.extender_clients:
        faults.append("BERTH_EXTENDER_CLIENTS names nobody who may call; unset it for system:kube-scheduler")
    if environment.extender_health_bind.rpartition(":")[2] == port:
        faults.append("BERTH_EXTENDER_HEALTH_BIND has the port of BERTH_EXTENDER_BIND; give it a port of its own")
    return faults


def _provider_faults(environment: Environment) -> list[str]:
    """Return what is missing of how people sign in at a provider: each is nothing without the others."""
    needed = ("oidc_issuer", "oidc_client_id", "oidc_client_secret", "oidc_roles")
    missing = [f"BERTH_{field.upper()}" for field in needed if not getattr(environment, field)]
    there = [f"BERTH_{field.upper()}" for field in needed if getattr(environment, field)]
    if not missing or not there:
        return []
    return [f"{' and '.join(missing)} must be set too: {there[0]} needs {'it' if len(missing) == 1 else 'them'}"]


def _review_faults(environment: Environment) -> list[str]:
    """Return what is missing of how tokens of Kubernetes are taken: each of the two is nothing without the other."""
    if bool(environment.token_review_audience) == bool(environment.token_review_roles):
        return []
    return ["BERTH_TOKEN_REVIEW_AUDIENCE and BERTH_TOKEN_REVIEW_ROLES need each other: set both, or none"]


def _retention_faults(environment: Environment) -> list[str]:
    """Return what is wrong between the settings of how long the history is kept."""
    days, details = environment.retention_days, environment.retention_details_days
    if days and details > days:
        return [
            f"BERTH_RETENTION_DETAILS_DAYS={details} is longer than BERTH_RETENTION_DAYS={days}: details go with their Decision"
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


def _unknown(name: str) -> str:
    if name in _RENAMED:
        return f"{name} is {_RENAMED[name]} now"
    known = [f"BERTH_{field.upper()}" for field in READERS]
    known += [f"BERTH_{field.upper()}_FILE" for field in sorted(_SECRETS)]
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"{name} is not a setting of Berth; did you mean {nearest[0]}?"


def _read_file(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except PermissionError as error:
        message = (
            f"{path} can't be read by this account, uid {os.getuid()}: run it as the one that owns BERTH_STATE_DIR, or give the "
            "folder to it (chown; in a Pod fsGroup)"
        )
        raise ConfigurationError([message]) from error
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} is not a readable text file: {error}"
        raise ConfigurationError([message]) from error
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if faulty := [line.partition("=")[0] for line in lines if "=" not in line]:
        raise ConfigurationError([f"{path}: {line!r} is not KEY=VALUE" for line in faulty])
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


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
    """Return the key that is kept at `path`; the first process to come makes it, without a race."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
            fresh.touch(mode=0o600)
            fresh.write_text(secrets.token_urlsafe(50), encoding="utf-8")
            _link_once(fresh, path)
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        message = f"BERTH_STATE_DIR={str(path.parent)!r} is not a directory that can be written: {error}"
        raise ConfigurationError([message]) from error


def _link_once(fresh: Path, path: Path) -> None:
    try:
        path.hardlink_to(fresh)
    except FileExistsError:
        pass  # another process was first; its key is the one
    finally:
        fresh.unlink()
