"""An OpenID Connect provider in another process: django-oauth-toolkit, with accounts that have fixed groups.

`python -m tests.provider FOLDER PORT REDIRECT_URI` prepares a database in FOLDER and serves on 127.0.0.1:PORT until it is
stopped. `Provider` starts it for a test.
"""

import os
import secrets
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

CLIENT_ID, CLIENT_SECRET = "berth", "a secret that the provider has given"
PASSWORD = "correct horse battery staple"
# Its accounts, and the groups in each one's claims.
GROUPS = {"ops": ["kube-ops", "football"], "lead": ["kube-leads"], "stranger": ["football"]}


def answers(url: str) -> bool:
    """Return whether a server answers at a URL."""
    try:
        with urllib.request.urlopen(url) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Provider:
    """A running provider."""

    def __init__(self, folder: Path, port: int, redirect_uri: str) -> None:
        self.issuer = f"http://127.0.0.1:{port}/o"
        folder.mkdir(parents=True, exist_ok=True)
        self._log = (folder / "log").open("wb")
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "", "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, "-m", "tests.provider", str(folder), str(port), redirect_uri]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, env=environment)

    def is_up(self) -> bool:
        """Whether it answers. A process that has ended fails the test."""
        assert self._process.poll() is None, "the provider has ended; its log says why"
        return answers(f"{self.issuer}/.well-known/openid-configuration")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def serve(folder: Path, port: int, redirect_uri: str) -> None:
    """Prepare the database, then serve."""
    _configure(folder)
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    _fill(redirect_uri)
    call_command("runserver", f"127.0.0.1:{port}", use_reloader=False)


def _configure(folder: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from django.conf import settings

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    settings.configure(
        DEBUG=True,
        SECRET_KEY=secrets.token_urlsafe(),
        ALLOWED_HOSTS=["127.0.0.1"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / "provider.sqlite3"}},
        INSTALLED_APPS=[
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            "oauth2_provider",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        ROOT_URLCONF="tests.provider_urls",
        LOGIN_URL="/admin/login/",
        SESSION_COOKIE_NAME="provider_session",
        CSRF_COOKIE_NAME="provider_csrf",
        USE_TZ=True,
        STATIC_URL="static/",
        OAUTH2_PROVIDER={
            "OIDC_ENABLED": True,
            "OIDC_RSA_PRIVATE_KEY": pem.decode(),
            "OIDC_RP_INITIATED_LOGOUT_ENABLED": True,
            "OIDC_RP_INITIATED_LOGOUT_ALWAYS_PROMPT": False,
            "PKCE_REQUIRED": True,
            "SCOPES": {"openid": "who", "profile": "name", "email": "address"},
            "OAUTH2_VALIDATOR_CLASS": "tests.provider_urls.Validator",
        },
    )


def _fill(redirect_uri: str) -> None:
    from django.contrib.auth.models import User
    from oauth2_provider.models import Application

    for name in GROUPS:
        # Staff, because its sign-in page is that of Django's admin.
        User.objects.create_user(name, f"{name}@example.org", PASSWORD, is_staff=True)
    kinds: dict[str, Any] = {
        "client_type": Application.CLIENT_CONFIDENTIAL,
        "authorization_grant_type": Application.GRANT_AUTHORIZATION_CODE,
        "algorithm": Application.RS256_ALGORITHM,
    }
    Application.objects.create(
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        redirect_uris=redirect_uri,
        post_logout_redirect_uris=redirect_uri.replace("/oidc/callback/", "/admin/login/"),
        skip_authorization=True,
        **kinds,
    )


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
