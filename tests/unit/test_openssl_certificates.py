"""When certificates end, read from certificates that openssl made."""

import base64
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from scheduler.certificates import CertificateError, expires_at


def ends_at(pem: str) -> datetime:
    return datetime.fromtimestamp(expires_at(pem.encode()), UTC)


def make(folder: Path, end: str, *, subject: str = "/CN=any") -> str:
    """Make a certificate that ends at a time (YYYYMMDDHHMMSSZ)."""
    key, request = folder / "key.pem", folder / "request.pem"
    new = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run([*new, "-subj", subject, "-keyout", key, "-out", request], check=True, capture_output=True)
    (folder / "index").write_text("")
    (folder / "ca.cnf").write_text(
        f"[ca]\ndefault_ca=it\n[it]\ndatabase={folder}/index\nnew_certs_dir={folder}\nrand_serial=yes\ndefault_md=sha256\n"
        "policy=any\nunique_subject=no\n[any]\ncommonName=optional\norganizationName=optional\n"
    )
    sign = ["openssl", "ca", "-batch", "-selfsign", "-config", folder / "ca.cnf", "-keyfile", key, "-in", request]
    made = folder / "made.pem"
    dates = ["-startdate", "19900101000000Z", "-enddate", end]
    subprocess.run([*sign, *dates, "-out", made, "-notext"], check=True, capture_output=True)
    return made.read_text()


@pytest.mark.parametrize("end", ["20300102030405Z", "20491231235959Z", "20500101000000Z", "19991231000000Z"])
def test_the_end_is_read_in_both_forms_of_time(tmp_path: Path, end: str) -> None:
    assert ends_at(make(tmp_path, end)) == datetime.strptime(end, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def test_a_long_name_changes_nothing(tmp_path: Path) -> None:
    pem = make(tmp_path, "20300102030405Z", subject="/CN=" + "n" * 60 + "".join(f"/O={i}" * 1 for i in range(40)))
    assert ends_at(pem).year == 2030


def test_of_several_the_first_to_end_counts(tmp_path: Path) -> None:
    text = "a comment\n" + make(tmp_path, "20400101000000Z") + make(tmp_path, "20300101000000Z")
    assert ends_at(text).year == 2030


def test_every_way_to_cut_a_certificate_short_is_refused(tmp_path: Path) -> None:
    pem = make(tmp_path, "20300102030405Z")
    der = base64.b64decode("".join(pem.splitlines()[1:-1]))
    for length in range(0, len(der), 7):
        body = base64.b64encode(der[:length]).decode()
        with pytest.raises(CertificateError):
            ends_at(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")


@pytest.mark.parametrize(
    "text", ["", "word", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----", "-----BEGIN PRIVATE KEY-----"]
)
def test_what_is_no_certificate_is_refused(text: str) -> None:
    with pytest.raises(CertificateError):
        ends_at(text)
