"""The page on kubeadm writes an address that kube-scheduler can call, in a cluster of either family."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.readme import ROOT, blocks

# As the page asks it: for the Service's address, else for a Secret.
_KUBECTL = """#!/bin/sh
case "$*" in *clusterIP*) printf %s "$CLUSTER_IP" ;; *) printf eA== ;; esac
"""


@pytest.mark.parametrize(("address", "host"), [("10.96.0.7", "10.96.0.7"), ("fd00:10:96::7", "[fd00:10:96::7]")])
def test_the_url_of_the_extender_is_one_whatever_the_family_of_its_address(
    tmp_path: Path, address: str, host: str
) -> None:
    (tmp_path / "kubectl").write_text(_KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    copy, reach, *_ = blocks("sh", ROOT / "docs" / "howto" / "kubeadm.md")
    said = reach.replace("curl", "echo")
    given = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CLUSTER_IP": address}
    typed = f"{copy}\n{said}".replace("/etc/kubernetes", str(tmp_path / "etc"))
    done = subprocess.run(["bash", "-euc", typed], cwd=ROOT, env=given, capture_output=True, text=True, check=True)
    (extender,) = yaml.safe_load((tmp_path / "etc" / "berth" / "config.yaml").read_text())["extenders"]
    assert extender["urlPrefix"] == f"https://{host}:8010"
    assert f"--resolve berth-extender.berth.svc:8010:{host} " in done.stdout
