"""What docker-compose.yml gives to whom. None of its services is started: a daemon isn't everywhere."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from controlplane.up import free_port
from tests.postgres import binaries, running

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
BERTHS = sorted(set(SERVICES) - {"postgres", "redis"})
NEEDED = {
    "postgres": {"database_admin_password", "database_owner_password", "database_password"},
    "redis": {"redis_password"},
    "migrate": {"database_owner_url"},
    "admin": {"secret_key", "database_url", "redis_url", "admin_kubeconfig", "ledger_key.pub"},
    "beat": {"secret_key", "database_url", "redis_url"},
    **{name: {"secret_key", "database_url", "redis_url", "kubeconfig"} for name in ("extender", "binder")},
    "worker": {"secret_key", "database_url", "redis_url", "kubeconfig", "ledger_key", "ledger_key.pub"},
}


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"] is True
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert "cap_add" not in service


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_limits(name: str) -> None:
    assert {"mem_limit", "cpus", "pids_limit"} <= set(SERVICES[name])


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_runs_as_root(name: str) -> None:
    if name in BERTHS:
        assert re.search(r"^USER berth$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    else:
        assert SERVICES[name]["user"] == "999:999"


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_the_secrets_that_it_needs_and_no_other(name: str) -> None:
    assert set(SERVICES[name]["secrets"]) == NEEDED[name]


def test_every_secret_is_a_file_that_somebody_needs() -> None:
    assert set(COMPOSE["secrets"]) == set().union(*NEEDED.values())
    assert all(set(secret) == {"file"} for secret in COMPOSE["secrets"].values())


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_stands_in_an_environment(name: str) -> None:
    for variable, text in SERVICES[name].get("environment", {}).items():
        assert not re.search("PASSWORD|SECRET|URL|TOKEN", variable) or variable.endswith("_FILE"), variable
        assert "://" not in text


@pytest.mark.parametrize("name", ["postgres", "redis"])
def test_an_image_comes_by_digest_or_not_at_all(name: str) -> None:
    asked = re.fullmatch(rf"({name}:\d+)@\$\{{BERTH_{name.upper()}_DIGEST:\?(.+)\}}", SERVICES[name]["image"])
    assert asked is not None
    image, says = asked.groups()
    assert says == f"write it into .env, docker pull {image} prints it"


@pytest.mark.parametrize("name", BERTHS)
def test_berths_image_is_built_on_one_by_digest(name: str) -> None:
    assert SERVICES[name]["image"] == "berth:local"
    assert re.fullmatch(
        r"python:3.11-slim@\$\{BERTH_PYTHON_DIGEST:\?.+\}", SERVICES[name]["build"]["args"]["PYTHON_IMAGE"]
    )
    froms = re.findall(r"^FROM (\S+)", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    assert set(froms) == {"${PYTHON_IMAGE}"}


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_listens_for_other_machines(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))
    addresses = [text for key, text in SERVICES[name].get("environment", {}).items() if key.endswith("_BIND")]
    assert all(address.startswith("127.0.0.1:") for address in addresses)


def test_postgresql_isnt_ready_while_its_image_fills_an_empty_volume(tmp_path: Path) -> None:
    """Until its scripts have run, the server there listens on its socket alone, where pg_isready looks unless it is told otherwise."""
    manifest = ROOT / "deploy" / "kubernetes" / "overlays" / "small" / "postgres.yaml"
    (container,) = next(yaml.safe_load_all(manifest.read_text()))["spec"]["template"]["spec"]["containers"]
    port = free_port()
    environment = os.environ | {
        "PATH": f"{binaries()}:{os.environ['PATH']}",
        "PGHOST": str(tmp_path),
        "PGPORT": str(port),
    }
    with running() as server:
        (tmp_path / f".s.PGSQL.{port}").symlink_to(Path(str(conninfo_to_dict(server)["host"])) / ".s.PGSQL.5432")
        assert subprocess.run(["pg_isready"], env=environment, check=False).returncode == 0
        for asked in (SERVICES["postgres"]["healthcheck"]["test"][1:], container["readinessProbe"]["exec"]["command"]):
            assert subprocess.run(asked, env=environment, check=False).returncode != 0, asked


def test_uv_comes_by_the_hashes_of_the_lock() -> None:
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    uv = next(package for package in packages if package["name"] == "uv")
    text = (ROOT / "deploy" / "uv.txt").read_text()
    assert f"uv=={uv['version']} " in text
    assert set(re.findall(r"--hash=(\S+)", text)) == {file["hash"] for file in [uv["sdist"], *uv["wheels"]]}
    assert f"UV_VERSION := {uv['version']}\n" in (ROOT / "Makefile").read_text()
    for place in ("deploy/setup", "deploy/Dockerfile"):
        installing = re.findall(r"pip install.*", (ROOT / place).read_text())
        assert installing
        assert all("--require-hashes" in line for line in installing), place
