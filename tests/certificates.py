"""Certificates for tests, generated when they are needed."""

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

DAY = datetime.timedelta(days=1)
_MAY_SIGN = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write(path: Path, content: bytes) -> Path:
    """Write a file as tools that renew certificates do: atomically, with a rename."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(content)
    fresh.replace(path)
    return path


class Authority:
    """An authority that signs certificates.

    Args:
        name: its common name.
        says_keys: whether certificates have an authority key identifier, and the authority's a key usage (RFC 5280). Those of
            many clusters don't: Go requires neither.
    """

    def __init__(self, name: str = "an authority", *, says_keys: bool = True) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._says_keys = says_keys
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        builder = self._builder(self._name, self._key.public_key(), now - DAY, now + 30 * DAY).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        if says_keys:
            builder = builder.add_extension(_MAY_SIGN, critical=True)
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        begins_at: datetime.datetime,
        ends_at: datetime.datetime,
    ) -> x509.CertificateBuilder:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins_at)
            .not_valid_after(ends_at)
        )
        if not self._says_keys:
            return builder
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False).add_extension(
            signer, critical=False
        )

    def sign(
        self,
        name: str = "",
        *,
        client: bool = False,
        days: float = 1,
        ends_at: datetime.datetime | None = None,
        dns: tuple[str, ...] = (),
        uris: tuple[str, ...] = (),
        emails: tuple[str, ...] = (),
        says_purpose: bool = True,
        written_alternatives: bytes = b"",
    ) -> tuple[bytes, bytes]:
        """Return a certificate and its key as PEM. It expires in `days`; with a negative number it is expired.

        `written_alternatives` are alternative names in DER, for such as no library writes.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        ends_at = ends_at or datetime.datetime.now(datetime.UTC) + days * DAY
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])
        alternatives: list[x509.GeneralName] = [x509.DNSName(found) for found in dns]
        alternatives += [x509.UniformResourceIdentifier(found) for found in uris]
        alternatives += [x509.RFC822Name(found) for found in emails]
        if not client:
            alternatives += [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = self._builder(subject, key.public_key(), ends_at - 20 * DAY, ends_at)
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        if says_purpose:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        if written_alternatives:
            written = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, written_alternatives)
            builder = builder.add_extension(written, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM), _pem(key)


class Files:
    """The TLS files of an extender and of its clients, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.servers, self.clients = Authority("servers"), Authority("clients")
        self.server_ca = write(folder / "server-ca.pem", self.servers.pem)
        self.client_ca = write(folder / "client-ca.pem", self.clients.pem)
        self.cert, self.key = folder / "tls.crt", folder / "tls.key"
        self.renew_server()

    def renew_server(self) -> None:
        """Replace the extender's certificate and key."""
        certificate, key = self.servers.sign("extender", dns=("berth-extender.berth.svc",))
        write(self.cert, certificate)
        write(self.key, key)

    def client(self, name: str = "system:kube-scheduler", *, by: Authority | None = None, **options: object) -> Path:
        """Make a client certificate; returns the path of a file with certificate and key."""
        certificate, key = (by or self.clients).sign(name, client=True, **options)  # type: ignore[arg-type]
        return write(self.folder / f"client-{os.urandom(4).hex()}.pem", certificate + key)

    def environment(self) -> dict[str, str]:
        """Return the extender's settings."""
        return {
            "BERTH_EXTENDER_TLS_CERT_FILE": str(self.cert),
            "BERTH_EXTENDER_TLS_KEY_FILE": str(self.key),
            "BERTH_EXTENDER_CLIENT_CA_FILE": str(self.client_ca),
        }
