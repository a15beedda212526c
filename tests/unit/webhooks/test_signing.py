"""The signature, against a vector that another program made."""

from scheduler.webhooks.signing import signature


def test_it_is_the_hmac_over_the_moment_and_the_bytes() -> None:
    # printf '1492774577.{"number":7}' | openssl dgst -sha256 -hmac whsec_test
    expected = "da670936a9b3519f3a08828b0402fbab8fbfb92f7615f0c53cb9e1050ba5d41b"
    assert signature("whsec_test", 1492774577, b'{"number":7}') == f"t=1492774577,v1={expected}"


def test_another_moment_another_body_and_another_secret_are_signed_otherwise() -> None:
    made = {
        signature(secret, moment, body).partition("v1=")[2]
        for secret in ("a", "b")
        for moment in (1, 2)
        for body in (b"x", b"y")
    }
    assert len(made) == 8
