"""Makes the CustomResourceDefinitions of this folder from the Go modules of cert-manager and the Prometheus operator.

`python -m tests.e2e.cluster.crds` asks the Go module proxy, by `go`, and writes the files. What is only for people
to read, the descriptions, is left out: nine tenths of them.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
# Both are licensed under Apache-2.0, as Berth is.
SOURCES = {
    "github.com/cert-manager/cert-manager@v1.21.2": (
        "deploy/crds/cert-manager.io_certificates.yaml",
        "deploy/crds/cert-manager.io_issuers.yaml",
    ),
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": (
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ),
}


def without_descriptions(value: Any) -> Any:
    """Return a document without the texts that say what its fields mean; a field that is called so stays."""
    if isinstance(value, dict):
        return {
            key: without_descriptions(part)
            for key, part in value.items()
            if key != "description" or not isinstance(part, str)
        }
    return [without_descriptions(part) for part in value] if isinstance(value, list) else value


def write() -> None:
    """Download the modules and write the folder's files."""
    go = shutil.which("go") or str(Path(__file__).parents[4] / ".venv" / "bin" / "go")
    for module, paths in SOURCES.items():
        said = subprocess.run([go, "mod", "download", "-json", module], check=True, capture_output=True, text=True)
        root = Path(json.loads(said.stdout)["Dir"])
        for path in paths:
            document = without_descriptions(yaml.safe_load((root / path).read_text(encoding="utf-8")))
            made = json.dumps(document, separators=(",", ":"), sort_keys=True)
            (FOLDER / Path(path).with_suffix(".json").name).write_text(made + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
