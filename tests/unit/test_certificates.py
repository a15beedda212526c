"""Names and ends of certificates."""

import datetime
import ssl

import pytest

from scheduler.certificates import CertificateError, expires_at, is_for_clients, names_in, peer_expires_at
from tests.certificates import Authority

PEER = {
    "subject": ((("organizationName", "system:masters"),), (("commonName", "system:kube-scheduler"),)),
    "subjectAltName": (
        ("DNS", "scheduler.example.org"),
        ("URI", "spiffe://example.org/kube-scheduler"),
        ("email", "ops@example.org"),
        ("IP Address", "10.0.0.1"),
    ),
    "notAfter": "Jan  5 09:34:43 2018 GMT",
}


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.mark.parametrize(
    ("client", "says_purpose", "expected"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_certificate_is_for_clients_when_it_says_so(
    authority: Authority, client: bool, says_purpose: bool, expected: bool
) -> None:
    pem, _ = authority.sign("a", client=client, dns=("b",), says_purpose=says_purpose)
    assert is_for_clients(ssl.PEM_cert_to_DER_cert(pem.decode())) is expected


def test_a_certificate_whose_extensions_cannot_be_read_is_refused(authority: Authority) -> None:
    x400_address = bytes.fromhex("3002a300")
    pem, _ = authority.sign("a", client=True, written_alternatives=x400_address)
    with pytest.raises(CertificateError, match="extensions can't be read"):
        is_for_clients(ssl.PEM_cert_to_DER_cert(pem.decode()))


def test_a_peer_goes_by_its_common_name_and_its_alternative_names() -> None:
    names = {"system:kube-scheduler", "scheduler.example.org", "spiffe://example.org/kube-scheduler", "ops@example.org"}
    assert names_in(PEER) == names


def test_a_peer_without_subject_and_alternatives_has_no_name() -> None:
    assert names_in({"subject": ()}) == frozenset()


def test_the_end_of_a_peer_s_certificate_is_in_utc() -> None:
    assert peer_expires_at(PEER) == datetime.datetime(2018, 1, 5, 9, 34, 43, tzinfo=datetime.UTC).timestamp()


@pytest.mark.parametrize(
    "ends_at",
    [
        pytest.param(datetime.datetime(2049, 12, 31, 23, 59, 59, tzinfo=datetime.UTC), id="the last of UTCTime"),
        pytest.param(datetime.datetime(2050, 1, 1, tzinfo=datetime.UTC), id="the first of GeneralizedTime"),
        pytest.param(datetime.datetime(1999, 6, 1, 12, tzinfo=datetime.UTC), id="the last century"),
    ],
)
def test_the_end_of_a_certificate_is_read_in_both_forms_of_time(
    authority: Authority, ends_at: datetime.datetime
) -> None:
    certificate, _ = authority.sign("a", ends_at=ends_at)
    assert expires_at(certificate) == ends_at.timestamp()


def test_of_several_certificates_the_first_end_counts(authority: Authority) -> None:
    soon, later = (authority.sign("a", days=days)[0] for days in (2, 9))
    assert expires_at(later + b"text between\n" + soon) == expires_at(soon) < expires_at(later)


@pytest.mark.parametrize("pem", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\n"])
def test_a_file_without_a_certificate_is_refused(pem: bytes) -> None:
    with pytest.raises(CertificateError, match="holds no certificate"):
        expires_at(pem)


def test_a_certificate_that_is_cut_off_in_its_head_is_refused(authority: Authority) -> None:
    lines = authority.pem.splitlines()
    for end in range(0, 60, 4):
        with pytest.raises(CertificateError, match="holds a certificate that can't be read"):
            expires_at(b"\n".join([lines[0], lines[1][:end], lines[-1]]))
