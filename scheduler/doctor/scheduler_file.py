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
from scheduler.certificates import CertificateError, validities
from scheduler.doctor.addresses import split, without_secrets
from scheduler.doctor.catalogue import Finding, is_ok
from scheduler.doctor.findings import Linted, lint
from scheduler.doctor.parts import Part
from scheduler.doctor.published import Known
from scheduler.doctor.shape import Extender, TLSConfig
from scheduler.redirects import NoRedirects

_ENDS_SOON = timedelta(days=21)
_REACH_SECONDS = 3.0
_AUTHORITIES = frozenset({"BERTH_EXTENDER_CLIENT_CA_FILE", "tlsConfig.caFile", "tlsConfig.caData"})
_PEM_IS_NEEDED = "It must be a certificate in PEM format."


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
    """Check Berth's own certificates, and those in kube-scheduler's file, or that it names if they are on this machine."""
    names = ("extender_tls_cert_file", "extender_client_ca_file")
    given = {("", getattr(settings.BERTH, name, "")): f"BERTH_{name.upper()}" for name in names}
    for tls in _tls_of(linted):
        # Data in the file take precedence, as in Go.
        for name, data, path in (("ca", tls.ca_data, tls.ca_file), ("cert", tls.cert_data, tls.cert_file)):
            given[(data, "" if data else path)] = f"tlsConfig.{name}{'Data' if data else 'File'}"
    for (data, path), what in given.items():
        if data:
            yield _certificate(base64.b64decode(data), what, "what stands in kube-scheduler's file")
        elif path:
            yield _certificate_in(Path(path), what)


def _tls_of(linted: Linted | None) -> list[TLSConfig]:
    if linted is None or linted.configuration is None:
        return []
    return [linted.configuration.extenders[index].tls_config for index in linted.berths]


def _certificate_in(path: Path, what: str) -> Part:
    try:
        return _certificate(path.read_bytes(), what, str(path))
    except FileNotFoundError:
        return Part(f"certificate {what}", "unknown", f"{path} isn't on this machine")
    except OSError as error:
        return Part(f"certificate {what}", "error", f"{path}: {error}", _PEM_IS_NEEDED)


def _certificate(pem: bytes, what: str, shown: str) -> Part:
    """Check a certificate with its intermediates, all of which have to be valid, or authorities, one of which has to be."""
    name = f"certificate {what}"
    try:
        found = validities(pem)
    except CertificateError as error:
        return Part(name, "error", f"{shown}: {error}", _PEM_IS_NEEDED)
    now = datetime.now(UTC)
    valid = [each for each in found if each.begins_at <= now <= each.ends_at]
    end, begin = min(each.ends_at for each in found), max(each.begins_at for each in found)
    may_lack = what in _AUTHORITIES and valid
    if end < now:
        says = f"{shown} expired at {end:%Y-%m-%d %H:%M} UTC"
        if may_lack:
            says = f"{shown} holds an authority that expired at {end:%Y-%m-%d %H:%M} UTC, beside a valid one"
            return Part(name, "warning", says, "Take it out of the file: whatever it signed is refused.")
        return Part(name, "error", says, "Renew it: every call fails.")
    if begin > now and not may_lack:
        says = f"{shown} is valid only from {begin:%Y-%m-%d %H:%M} UTC on"
        return Part(name, "error", says, "Every call fails until then. Is the clock of this machine right?")
    left = end - now
    says = f"{shown} expires on {end:%Y-%m-%d}, in {counted(left.days, 'day')}"
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
        context = _context(extender)
    except OSError as error:
        return _not_tried(shown, error)
    try:
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), NoRedirects)
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


def _not_tried(shown: str, error: OSError) -> Part:
    reason = "no PEM, or locked by a passphrase" if isinstance(error, ssl.SSLError) else error.strerror
    remedy = "Are the files on this machine, too? A key may have no passphrase: kube-scheduler doesn't start with one that has."
    says = f"{shown} wasn't called from this machine: a certificate or key of tlsConfig can't be used: {reason}"
    return Part("address", "warning", says, remedy)


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
        # Without a password argument, OpenSSL would ask the terminal for one.
        context.load_cert_chain(certificate, key, password="")
