"""The extender's side of TLS: its certificate and its clients' CA, from files that are read again when they change.

A connection keeps the context with which it was made. So a new file applies to new handshakes; existing connections go on.
"""

import logging
import ssl
import threading
from pathlib import Path

from scheduler.certificates import CertificateError, expires_at
from scheduler.metrics import TLS_EXPIRES_AT, TLS_RELOAD_FAILURES

logger = logging.getLogger("berth.tls")

# How often the files are checked without a handshake, so that metrics and log report a bad file in time.
WATCH_SECONDS = 5.0

_Stamp = tuple[tuple[int, ...] | None, ...]


class CredentialsError(RuntimeError):
    """The TLS files can't be used. The message names the files and the reason, never their content."""


class Credentials:
    """Certificate, key and client CA. The newest usable files are in use."""

    def __init__(self, *, certificate: Path, key: Path, clients: Path) -> None:
        """Load the files.

        Raises:
            CredentialsError: the files can't be used.
        """
        self._certificate, self._key, self._clients = certificate, key, clients
        self._lock = threading.Lock()
        self._seen = self._stamp()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """Return the context for the next handshake. Checks whether the files changed, which takes three system calls."""
        with self._lock:
            self._refresh()
            return self._context

    def watch(self) -> None:
        """Watch the files from now on, in a daemon thread."""
        threading.Thread(target=self._run, name="berth-tls", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(WATCH_SECONDS):
            self.context()

    def _refresh(self) -> None:
        # Taken before the files are read: the next check notices a change that happens meanwhile.
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._context = self._load()
        except CredentialsError as error:
            TLS_RELOAD_FAILURES.inc()
            logger.error("%s; the previous ones stay in use", error)  # noqa: TRY400 - the reason is in the message
        else:
            logger.info("the TLS files changed and are in use for new connections")

    def _stamp(self) -> _Stamp:
        """Return a stamp of the files' versions. Follows links: Kubernetes swaps the link `..data` of a mounted Secret."""
        return tuple(_stamp_of(path) for path in (self._certificate, self._key, self._clients))

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        # A resumed session isn't checked against the CA again; kube-scheduler keeps its connections anyway.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        context.set_alpn_protocols(["http/1.1"])
        step = f"BERTH_EXTENDER_CLIENT_CA_FILE {str(self._clients)!r}"
        try:
            context.load_verify_locations(cafile=self._clients)
            client_ca_expires_at = expires_at(self._clients.read_bytes())
            step = f"BERTH_EXTENDER_TLS_CERT_FILE {str(self._certificate)!r} or BERTH_EXTENDER_TLS_KEY_FILE {str(self._key)!r}"
            # Without a password argument, OpenSSL would ask the terminal for one.
            context.load_cert_chain(self._certificate, self._key, password="")
            certificate_expires_at = expires_at(self._certificate.read_bytes())
        except (OSError, CertificateError) as error:
            message = f"{step} can't be used: {_reason(error)}"
            raise CredentialsError(message) from error
        TLS_EXPIRES_AT.labels("certificate").set(certificate_expires_at)
        TLS_EXPIRES_AT.labels("client_ca").set(client_ca_expires_at)
        return context


def _stamp_of(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    # ctime: a key that this process may not read becomes readable by a chown or chmod, which changes nothing else.
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").lower().replace("_", " ")
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error)
