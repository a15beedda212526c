"""The files of the extender's side of TLS, when they change."""

import ssl
from pathlib import Path
from typing import Any, NoReturn

import pytest

from scheduler.extender.server.tls import Credentials
from tests.certificates import Files


def test_a_renewed_key_that_could_not_be_read_is_in_use_once_its_mode_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(tmp_path)
    credentials = Credentials(certificate=files.cert, key=files.key, clients=files.client_ca)
    before = credentials.context()

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as another_owner:  # not by its mode, because root reads any file
        another_owner.setattr(ssl.SSLContext, "load_cert_chain", refuse)
        files.renew_server()
        assert credentials.context() is before

    files.key.chmod(0o640)

    assert credentials.context() is not before
