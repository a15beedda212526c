"""Checks kube-scheduler's file, the certificates that it and Berth name, and the address of Berth in it."""

import base64
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from django.conf import settings

from policies.wording import counted
from scheduler.certificates import CertificateError, expires_at
from scheduler.doctor.addresses import split, without_secrets
from scheduler.doctor.catalogue import Finding, is_ok
from scheduler.doctor.findings import Linted, lint
from scheduler.doctor.parts import Part
from scheduler.doctor.published import Known
from scheduler.doctor.shape import Extender, TLSConfig
from scheduler.redirects import NoRedirects

_ENDS_SOON = timedelta(days=21)
_REACH_SECONDS = 3.0


def configuration(path: Path | None, known_rules: Known) -> tuple[Linted | None, list[Part]]:
    """Lint the file at a path, by default that of BERTH_SCHEDULER_CONFIG; None where there is none to be read."""
    place = path or (Path(settings.BERTH.scheduler_config) if settings.BERTH.scheduler_config else None)
    if place is None:
        remedy = "Name kube-scheduler's file: --scheduler-config, or BERTH_SCHEDULER_CONFIG."
        return None, [Part("configuration", "unknown", "was not checked", remedy)]
    try:
        linted = lint(place.read_text(encoding="utf-8"), known_rules, source=str(place))
    except (OSError, UnicodeDecodeError) as error:
        says = f"{place} can't be read: {error}"
        return None, [Part("configuration", "error", says, "Is it the file of kube-scheduler's --config?")]
    return linted, [_part_of(linted.findings, place)]


def _part_of(findings: list[Finding], place: Path) -> Part:
    counts = {kind: sum(finding.severity == kind for finding in findings) for kind in ("error", "warning", "note")}
    says = ", ".join(counted(count, kind) for kind, count in counts.items() if count)
    says = f"{place}: {says or 'nothing found'}"
    if is_ok(findings, strict=True):
        return Part("configuration", "ok", says)
    names = ", ".join(dict.fromkeys(finding.id for finding in findings if finding.severity != "note"))
    return Part("configuration", "warning" if is_ok(findings) else "error", f"{says}: {names}", "See the findings.")


def certificates(linted: Linted | None) -> Iterator[Part]:
    """Check Berth's own certificates, and those that kube-scheduler's file names if they are on this machine."""
    names = ("extender_tls_cert_file", "extender_client_ca_file")
    files = {getattr(settings.BERTH, name, ""): f"BERTH_{name.upper()}" for name in names}
    for tls in _tls_of(linted):
        files |= {tls.ca_file: "tlsConfig.caFile", tls.cert_file: "tlsConfig.certFile"}
    for path, what in files.items():
        if path:
            yield _certificate(Path(path), what)


def _tls_of(linted: Linted | None) -> list[TLSConfig]:
    if linted is None or linted.configuration is None:
        return []
    return [linted.configuration.extenders[index].tls_config for index in linted.berths]


def _certificate(path: Path, what: str) -> Part:
    name = f"certificate {what}"
    try:
        end = datetime.fromtimestamp(expires_at(path.read_bytes()), UTC)
    except FileNotFoundError:
        return Part(name, "unknown", f"{path} isn't on this machine")
    except (OSError, CertificateError) as error:
        return Part(name, "error", f"{path}: {error}", "The file must be a certificate in PEM format.")
    left = end - datetime.now(UTC)
    if left < timedelta():
        return Part(name, "error", f"{path} expired at {end:%Y-%m-%d %H:%M} UTC", "Renew it: every call fails.")
    says = f"{path} expires on {end:%Y-%m-%d}, in {counted(left.days, 'day')}"
    return Part(name, "warning", says, "Renew it.") if left < _ENDS_SOON else Part(name, "ok", says)


def address(linted: Linted | None) -> Iterator[Part]:
    """Call Berth at the address in kube-scheduler's file, from this machine."""
    if linted is None or linted.configuration is None:
        return
    for index in linted.berths:
        extender = linted.configuration.extenders[index]
        parts = split(extender.url_prefix)
        if parts is not None and parts.scheme in {"http", "https"} and parts.hostname:
            yield _called(extender.url_prefix.rstrip("/"), extender)


def _called(url: str, extender: Extender) -> Part:
    shown = without_secrets(url)
    try:
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=_context(extender)), NoRedirects)
        with opener.open(f"{url}/livez", timeout=_REACH_SECONDS):
            return Part("address", "ok", f"{shown} answers this machine")
    except urllib.error.HTTPError as error:
        with error:
            if error.code in {301, 302, 303, 307, 308}:
                remedy = "Use the URL that it redirects to: kube-scheduler's call fails after a redirect."
                return Part("address", "error", f"{shown} answers with a redirect, {error.code}", remedy)
        return Part("address", "ok", f"{shown} answers this machine, with {error.code}")
    except (http.client.InvalidURL, UnicodeError):  # without the error's text, which quotes the path
        return _not_called(shown, "nobody can call a URL that is written like this")
    except http.client.HTTPException:
        return _not_called(shown, "what answers there speaks no HTTP; does it serve TLS?")
    except OSError as error:
        return _not_called(shown, getattr(error, "reason", error))


def _not_called(shown: str, reason: object) -> Part:
    remedy = "Is the extender up there? Other machines may still reach it."
    return Part("address", "warning", f"{shown} can't be reached from this machine: {reason}", remedy)


def _context(extender: Extender) -> ssl.SSLContext:
    """Return the TLS context that kube-scheduler would use, with the data in its file and those files that are on this machine.

    Raises:
        OSError: a file or its data can't be used.
    """
    tls = extender.tls_config
    data = base64.b64decode(tls.ca_data).decode("ascii", errors="ignore")
    context = ssl.create_default_context(cafile=None if data else tls.ca_file or None, cadata=data or None)
    # Go doesn't require the authority key identifier of a certificate; Python does from 3.13 on.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if tls.has_certificate and tls.has_key:
        _load_certificate(context, tls)
    is_unverified = tls.insecure or (extender.enable_https and not tls.has_ca)
    if tls.server_name or is_unverified:
        context.check_hostname = False  # the name to check can't be set here; the CA is checked
    if is_unverified:
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_certificate(context: ssl.SSLContext, tls: TLSConfig) -> None:
    """Load the client certificate: Python's ssl reads files only, so data go through a folder of this account alone."""
    with TemporaryDirectory() as folder:
        paths = []
        for name, data, file in (("cert", tls.cert_data, tls.cert_file), ("key", tls.key_data, tls.key_file)):
            if data:
                Path(folder, name).write_bytes(base64.b64decode(data))
            paths.append(Path(folder, name) if data else Path(file))
        certificate, key = paths
        context.load_cert_chain(certificate, key)
