"""kube-scheduler started from one of our manifests: with its command line, and each file at the manifest's mount."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.stack import Stack, free_port

SCHEDULER = "kube-scheduler"
_PATH = re.compile(r"(?<![\w/])/etc/[\w./-]+")


class Host:
    """A folder in place of the root of a node, or of a container."""

    def __init__(self, root: Path, spec: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        """Write the files of the manifest's mounts.

        Args:
            root: an empty folder.
            spec: the Pod's spec.
            files: the contents by path in the container. Each has to be within a mount.
        """
        self.root = root
        (self.container,) = spec["containers"]
        self._mounts = {each["mountPath"]: each["name"] for each in self.container["volumeMounts"]}
        volumes = {each["name"]: each for each in spec["volumes"]}
        for mounted, name in self._mounts.items():
            # A host path has the same path in the container, because kubeadm's own files refer to it.
            assert volumes[name].get("hostPath", {"path": mounted})["path"] == mounted
        for path, content in files.items():
            assert self._is_mounted(path), f"no mount of the manifest holds {path}"
            place = self.place(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            # Configurations refer to other paths.
            place.write_bytes(self.mapped(content.decode()).encode() if path.endswith(".yaml") else content)

    def _is_mounted(self, path: str) -> bool:
        return any(path == mounted or path.startswith(f"{mounted}/") for mounted in self._mounts)

    def place(self, path: str) -> Path:
        """Return the local path for a path in the container."""
        return self.root / path.removeprefix("/")

    def mapped(self, text: str) -> str:
        """Return a text with local paths for the container's; each has to exist already, or be one of the files."""
        return _PATH.sub(lambda found: str(self.place(found[0])), text)

    def command(self) -> list[str]:
        """Return the manifest's command line, with a port of its own."""
        line = [str(each) for each in self.container["command"]]
        named = [path for each in line for path in _PATH.findall(each)]
        missing = [path for path in named if not self.place(path).is_file()]
        assert missing == [], "the command line names what isn't there"
        return [*map(self.mapped, line), f"--secure-port={free_port()}"]


@contextmanager
def started(stack: Stack, host: Host) -> Iterator[Path]:
    """Run the local cluster's kube-scheduler with a manifest's command line; yields its log."""
    program = Path(f"/proc/{stack.cluster_status()['components'][SCHEDULER]['pid']}/exe").readlink()
    log = host.root / "kube-scheduler.log"
    with log.open("wb") as output:
        # The multi-call binary takes its role from argv[0].
        process = subprocess.Popen(host.command(), executable=program, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield log
        assert process.poll() is None, log.read_text()[-4000:]
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def at_rest(stack: Stack) -> Iterator[None]:
    """Stop the stack's own kube-scheduler meanwhile, as a failure of its node would; it continues afterwards."""
    pid = int(stack.cluster_status()["components"][SCHEDULER]["pid"])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def kubeconfig(stack: Stack, **user: Any) -> bytes:
    """Return the stack's kubeconfig with another `user`: with a `token`, or impersonating the user in `as`."""
    document = yaml.safe_load((stack.state / "kubeconfig").read_text())
    document["users"][0]["user"] |= user
    return yaml.safe_dump(document).encode()
