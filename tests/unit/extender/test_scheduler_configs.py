"""The configurations of kube-scheduler that are shipped."""

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[3] / "deploy" / "kube-scheduler"


def read(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((FOLDER / name).read_text()))


def test_the_one_with_tls_differs_from_the_plain_one_in_tls_alone() -> None:
    plain, secured = read("config.yaml"), read("mutual-tls.yaml")
    tls = secured["extenders"][0].pop("tlsConfig")
    assert secured["extenders"][0].pop("urlPrefix").startswith("https://")
    plain["extenders"][0].pop("urlPrefix")
    assert secured == plain
    assert set(tls) == {"caFile", "certFile", "keyFile"}
