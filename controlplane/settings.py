"""Django's settings, all of them, from the decoded environment (`controlplane.env`)."""

import contextlib
import os
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from csp.constants import NONE, SELF, UNSAFE_EVAL

from controlplane.env import BASE_DIR, ConfigurationError, read_environment
from controlplane.statics import digest_of_statics

try:
    BERTH = read_environment(os.environ)
except ConfigurationError as error:
    # Every process loads its settings first: it exits with the message, without a traceback.
    sys.exit(str(error))

# Hashes of inline style sheets: Unfold's colours from UNFOLD["COLORS"], and htmx's rules for its indicators.
# A test compares them with the pages.
STYLE_HASHES = [
    "'sha256-QXZByHWmLFjwcDpxguAEfvCz7LG4rZfvi2kgvsmOGVA='",
    "'sha256-bsV5JivYxvGywDAZ22EZJKBFip65Ng9xoJVLbBg7bdo='",
]
PROVIDER_ORIGIN = ["{0.scheme}://{0.netloc}".format(urlsplit(BERTH.oidc_issuer))] if BERTH.oidc_issuer else []
SERVES_EXTENDER = BERTH.role == "extender"

SECRET_KEY = BERTH.secret_key
DEBUG = False
# kube-scheduler calls the extender by any host name, as its configuration says; it authenticates by certificate.
ALLOWED_HOSTS = ["*"] if SERVES_EXTENDER else list(BERTH.allowed_hosts)

INSTALLED_APPS = [
    "unfold",
    # Without autodiscover: controlplane.urls calls it, because commands, workers and the extender have no pages.
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "axes",
    "policies",
    "scheduler",
    "controlplane",
]
if BERTH.role == "binder":
    # It has no pages. Fewer apps also let a process that replaces a killed one start faster.
    INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "policies", "scheduler", "controlplane"]
MIDDLEWARE = (
    []
    if SERVES_EXTENDER
    else [
        "controlplane.origins.Origins",
        "django.middleware.security.SecurityMiddleware",
        "csp.middleware.CSPMiddleware",
        "controlplane.compression.Gzip",
        "whitenoise.middleware.WhiteNoiseMiddleware",
        "controlplane.doors.Doors",
        "controlplane.health.Probes",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.auth.middleware.LoginRequiredMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
        "controlplane.one_revision.OneRevision",
        # Last, as django-axes requires: it sees who was locked out while the request was answered.
        "axes.middleware.AxesMiddleware",
    ]
)
# Nobody signs in to an extender: commands in it (`kubectl exec`) needn't warn of a missing middleware.
SILENCED_SYSTEM_CHECKS = ["axes.W002"] if SERVES_EXTENDER else []
ROOT_URLCONF = "scheduler.extender.urls" if SERVES_EXTENDER else "controlplane.urls"
WSGI_APPLICATION = "controlplane.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "controlplane" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            # Thousands separators are for counts in sentences only: numbers of Revisions and ids aren't counts.
            "builtins": [
                "django.contrib.humanize.templatetags.humanize",
                "policies.admin.times",
                "policies.admin.person_links",
            ],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "policies.admin.pauses.suspensions",
                "controlplane.site.keys",
                "controlplane.provider.button",
            ],
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"


# A machine that fails suddenly closes no connection. The kernel's own timeouts are a quarter of an hour for sent data, and
# two hours for an answer.
_WAITS = {
    "connect_timeout": 5,
    "tcp_user_timeout": 20_000,  # milliseconds
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}


def _database(url: str) -> dict[str, object]:
    """Return Django's form of a database's URL."""
    if url.startswith("sqlite:///"):
        return {
            "ENGINE": "controlplane.sqlite3",
            "NAME": url.removeprefix("sqlite:///"),
            "CONN_MAX_AGE": 600,  # opening a file takes 2.4 ms, most of it for Django's functions
            "OPTIONS": {
                # IMMEDIATE: a transaction that will write waits for the others at its start, where waiting is possible.
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                # auto_vacuum comes first: it applies only to a new file. With it, pruning returns disk space.
                "init_command": "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
            },
        }
    parts = urlsplit(url)
    options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", unquote(parts.hostname or "")),  # %2Frun%2Fpg is a folder of sockets
        "PORT": options.pop("port", str(parts.port or "")),
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": _WAITS | options,
    }


DATABASES = {"default": _database(BERTH.database_url or f"sqlite:///{BERTH.state_dir / 'berth.sqlite3'}")}
# The database from which pages and REST read Decisions. Nothing is written there.
HISTORY_DATABASE = "default"
if BERTH.history_database_url:
    HISTORY_DATABASE = "history"
    DATABASES[HISTORY_DATABASE] = _database(BERTH.history_database_url) | {"TEST": {"MIRROR": "default"}}
if DATABASES["default"]["ENGINE"] == "controlplane.sqlite3":
    # A directory that can't be made is reported by the first query; commands that need no database go on.
    with contextlib.suppress(OSError):
        BERTH.state_dir.mkdir(parents=True, exist_ok=True)
        # Sessions and password hashes are in it; SQLite gives its -wal and -shm files the same mode.
        Path(str(DATABASES["default"]["NAME"])).touch(mode=0o600)

STATICFILES_DIRS = [BASE_DIR / "controlplane" / "static"]
# With a digest of all static files: browsers cache each for a year, and fetch the next version's by another URL.
STATIC_URL = (
    f"static/{digest_of_statics([BASE_DIR / part / 'static' for part in ('controlplane', 'policies', 'scheduler')])}/"
)
WHITENOISE_MAX_AGE = 31_536_000
# Served from the packages themselves, so that no collectstatic is needed before a start.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False

LANGUAGE_CODE = "en-us"
USE_I18N = False
# Django's own times in the format of all pages.
FORMAT_MODULE_PATH = ["controlplane.formats"]
TIME_ZONE = "UTC"
USE_TZ = True

LOGIN_URL = "admin:login"
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "controlplane.accounts.LocalAccounts"]
if BERTH.oidc_issuer:
    AUTHENTICATION_BACKENDS.append("controlplane.provider.Provider")
    LOGOUT_REDIRECT_URL = "admin:login"
OIDC_RP_CLIENT_ID = BERTH.oidc_client_id
OIDC_RP_CLIENT_SECRET = BERTH.oidc_client_secret
OIDC_RP_SIGN_ALGO = BERTH.oidc_signing_algorithm
OIDC_RP_SCOPES = BERTH.oidc_scopes
OIDC_USE_PKCE = True
OIDC_TIMEOUT = 10.0
# For the provider's sign-out page, which needs to know whose session it is.
OIDC_STORE_ID_TOKEN = True
OIDC_OP_LOGOUT_URL_METHOD = "controlplane.provider.signed_out_url"
OIDC_CALLBACK_CLASS = "controlplane.provider.Return"
OIDC_AUTHENTICATE_CLASS = "controlplane.provider.SignIn"
LOGIN_REDIRECT_URL = "admin:index"
AUTH_PASSWORD_VALIDATORS: list[dict[str, object]] = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    # NIST SP 800-63B requires 15 characters if a password is the only factor, and no rules about digits.
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 15}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# After this many wrong passwords, this account and address are refused together for a while. A lock-out by account only
# would let anybody lock out the one person who can help.
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_FAILURE_LIMIT = BERTH.sign_in_failures
AXES_COOLOFF_TIME = timedelta(minutes=BERTH.lock_out_minutes)
AXES_RESET_ON_SUCCESS = True
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_CLIENT_IP_CALLABLE = "controlplane.accounts.lock_out_address"
AXES_LOCKOUT_CALLABLE = "controlplane.accounts.locked_out"
AXES_WHITELIST_CALLABLE = "controlplane.accounts.is_from_provider"
# Attempts are logged; rows are kept for counting only.
AXES_DISABLE_ACCESS_LOG = True
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False
# axes keeps what was posted with a wrong password, masking only `password` by itself: these are the fields of one's own new password.
AXES_SENSITIVE_PARAMETERS = ["username", "ip_address", "old_password", "new_password1", "new_password2"]

# Unfold's pages: everything from this server, except for two inline style sheets (Unfold's colours and htmx's), by hash.
# Alpine evaluates its expressions with Function(), which needs unsafe-eval; they come only from our pages.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, UNSAFE_EVAL],
        "style-src": [SELF, *STYLE_HASHES],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        # Signing out redirects to the provider's sign-out page.
        "form-action": [SELF, *PROVIDER_ORIGIN],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}

SECURE_HTTPS = not BERTH.local
SECURE_SSL_REDIRECT = SECURE_HTTPS and not SERVES_EXTENDER
SECURE_REDIRECT_EXEMPT = [r"^livez$", r"^readyz$", r"^metrics$"]  # probes and Prometheus use plain HTTP
SECURE_HSTS_SECONDS = 31_536_000 if SECURE_HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HTTPS
SECURE_HSTS_PRELOAD = SECURE_HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BERTH.behind_tls_proxy else None
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_HTTPS
# Browsers refuse a `__Host-` cookie that isn't Secure, path / and without a domain.
SESSION_COOKIE_NAME = "__Host-berth_session" if SECURE_HTTPS else "berth_session"
CSRF_COOKIE_NAME = "__Host-berth_csrf" if SECURE_HTTPS else "berth_csrf"
CSRF_TRUSTED_ORIGINS = list(BERTH.trusted_origins)
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_ENGINE = "controlplane.session_store"
# From sign-in on, even for an active session; a closed browser forgets it at once.
SESSION_COOKIE_AGE = BERTH.session_hours * 3600
SESSION_EXPIRE_AT_BROWSER_CLOSE = True
X_FRAME_OPTIONS = "DENY"
CSRF_FAILURE_VIEW = "controlplane.errors.csrf_failed"
SECURE_REFERRER_POLICY = "same-origin"
# The limits of forms (docs/security.md#what-a-door-takes). A draft's page of 300 rows of each kind has 9,300 fields.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000
DATA_UPLOAD_MAX_MEMORY_SIZE = 2_621_440
# No form accepts files.
DATA_UPLOAD_MAX_NUMBER_FILES = 0

REST_FRAMEWORK = {
    # Tokens first, so that a request without credentials gets 401. kube-scheduler has its certificate.
    "DEFAULT_AUTHENTICATION_CLASSES": [
        *([] if SERVES_EXTENDER else ["controlplane.bearer.BearerAuthentication"]),
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_THROTTLE_CLASSES": []
    if SERVES_EXTENDER
    else ["controlplane.bearer.TokenThrottle", "policies.api.throttles.WriteThrottle"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.DjangoModelPermissions"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["policies.api.parsers.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "policies.api.schema.Schema",
    "DEFAULT_METADATA_CLASS": "policies.api.metadata.Metadata",
    "DEFAULT_PAGINATION_CLASS": "policies.api.pagination.RowPages",
    "DEFAULT_THROTTLE_RATES": {"check": "120/min"},
    "EXCEPTION_HANDLER": "policies.api.problems.problem_handler",
    # `format` in a URL would be a parameter that no endpoint declares.
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Berth",
    "DESCRIPTION": "Scheduling rules, the Changes that edit them, and what they decided about Pods.",
    "VERSION": "v1",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_NAME_OVERRIDES": {
        "BacktestStateEnum": "scheduler.models.Backtest.State",
        "ChangeStateEnum": "policies.models.Change.State",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "policies.api.schema.loosen_selected",
        "policies.api.links.link_answers",
    ],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
}

_FORMATTERS = {"text": "controlplane.logs.KeyValueFormatter", "json": "controlplane.logs.JSONFormatter"}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": _FORMATTERS[BERTH.log_format], "role": BERTH.role}},
    "filters": {
        "without_path": {"()": "controlplane.logs.WithoutPath"},
        "once_per_minute": {"()": "controlplane.logs.OncePerMinute"},
        "any_once_per_minute": {"()": "controlplane.logs.OncePerMinute", "of": Exception},
        "few_refusals": {"()": "controlplane.logs.FewRefusals"},
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["few_refusals"]}},
    "root": {"handlers": ["stderr"], "level": BERTH.log_level},
    # Django's own handlers would write a second line, or a mail.
    "loggers": {
        "django": {"handlers": [], "level": BERTH.log_level, "propagate": True},
        **({"django.request": {"filters": ["without_path"]}} if SERVES_EXTENDER else {}),
        # gunicorn uses these settings in place of its own (logconfig_dict), in its master process too.
        "gunicorn.error": {"handlers": [], "level": BERTH.log_level, "propagate": True},
        # Two ticks a second, three lines a tick.
        "celery.worker.strategy": {"level": "WARNING"},
        # Each tick that expired unread: 38,000 after an hour without a worker.
        "celery.worker.request": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING", "filters": ["once_per_minute"]},
        "celery.beat": {"level": "WARNING"},
        # The worker's watches write rows: while the database is away, they list the cluster anew every few seconds.
        "berth.cluster": {"filters": ["once_per_minute"]},
        # They repeat a traceback each second or few while Redis is full.
        "kombu.asynchronous.hub": {"filters": ["any_once_per_minute"]},
        "kombu.transport.redis": {"filters": ["any_once_per_minute"]},
        # It repeats what controlplane.accounts logs.
        "axes": {"level": "ERROR"},
        "django.server": {"handlers": [], "level": BERTH.log_level, "propagate": True},
    },
}

UNFOLD = {
    "SITE_TITLE": "Berth",
    "SITE_HEADER": "Berth",
    "SITE_SUBHEADER": "Scheduling control plane",
    "SITE_SYMBOL": "anchor",
    "SITE_URL": None,
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "controlplane.site.icon"}],
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "DASHBOARD_CALLBACK": "controlplane.home.dashboard",
    "LOGIN": {"form": "controlplane.sign_in_form.SignInForm"},
    "STYLES": ["controlplane.site.stylesheet"],
    "SCRIPTS": ["controlplane.site.script"],
    "COMMAND": {"search_models": False},
    "SIDEBAR": {
        "show_search": False,
        "command_search": True,
        "show_all_applications": False,
        "navigation": "controlplane.site.navigation",
    },
    "COLORS": {
        "primary": {
            "50": "oklch(97.1% .014 233)",
            "100": "oklch(94.1% .03 233)",
            "200": "oklch(89% .058 233)",
            "300": "oklch(81.5% .1 234)",
            "400": "oklch(72% .14 237)",
            "500": "oklch(63% .145 240)",
            "600": "oklch(53.5% .137 243)",
            "700": "oklch(46.5% .12 244)",
            "800": "oklch(40.5% .1 243)",
            "900": "oklch(36% .083 243)",
            "950": "oklch(27% .06 245)",
        },
    },
}

# Celery reads the text after a ; as the URL of another server.
CELERY_BROKER_URL = BERTH.redis_url.replace(";", "%3B")
# Loaded by processes that send tasks (scheduler.broker), and by those that run them.
CELERY_APP = "controlplane.celery.app"
