"""What `make up` keeps from others on the machine: Redis asks for a password, which no process's arguments show, and files are the owner's."""

import socket
import subprocess
from pathlib import Path

from controlplane.up import Up, read_options, wait_for_port


def test_redis_answers_nobody_without_the_password(tmp_path: Path) -> None:
    up = Up(tmp_path, read_options([]))
    command = up._redis_command()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as redis:
        try:
            assert wait_for_port(up.redis_port, 60)
            with socket.create_connection(("127.0.0.1", up.redis_port), timeout=60) as stranger:
                stranger.sendall(b"PING\r\n")
                assert stranger.recv(100).startswith(b"-NOAUTH")
        finally:
            redis.terminate()
    (configuration,) = map(Path, command[1:])
    assert configuration.stat().st_mode & 0o077 == 0
    password = configuration.read_text().rpartition("requirepass ")[2].strip()
    assert len(password) >= 32
    assert password not in " ".join(command)
