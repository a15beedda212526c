"""The configuration that doctor writes: what the lint says of it, and what stands in it for people."""

from pathlib import Path

import pytest
import yaml

from scheduler.doctor.configuration import VERBS, Answers, Managed, document_of, to_yaml
from scheduler.doctor.findings import lint
from scheduler.doctor.published import Known

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "deploy" / "kube-scheduler" / "config.yaml"
EVERYTHING = Known(refuses=True, scores=True, counts_pods=True, protects_victims=True)
MUTUAL = Answers(
    url_prefix="https://berth.example:8010", verbs=VERBS, ca_file="/a/ca", cert_file="/a/cert", key_file="/a/key"
)


def bad(text: str, known: Known) -> list[str]:
    return [finding.id for finding in lint(text, known).findings if finding.severity != "note"]


def test_nothing_but_notes_is_found_in_what_the_defaults_give() -> None:
    assert bad(to_yaml(Answers()), Known(refuses=True, scores=True)) == []


def test_nothing_but_notes_is_found_with_mutual_tls_and_all_verbs() -> None:
    assert bad(to_yaml(MUTUAL), EVERYTHING) == []


def test_nothing_but_notes_is_found_in_the_shipped_configuration() -> None:
    assert bad(SHIPPED.read_text(), Known(refuses=True, scores=True)) == []


def test_the_shipped_configuration_is_what_the_defaults_give() -> None:
    shipped = yaml.safe_load(SHIPPED.read_text())
    made = document_of(Answers())
    assert made.pop("profiles") == [{"schedulerName": "default-scheduler"}]  # what upstream takes without profiles
    assert made == shipped


@pytest.mark.parametrize(
    "answers",
    [
        Answers(),
        MUTUAL,
        Answers(verbs=(), kubeconfig="/etc/k", managed_resources=(Managed("a.b/c", ignored_by_scheduler=True),)),
        Answers(url_prefix="http://x: #'\"\n- y", server_name="{a: b}", scheduler_name="yes"),
    ],
)
def test_the_text_holds_the_document_whatever_is_answered(answers: Answers) -> None:
    assert yaml.safe_load(to_yaml(answers)) == document_of(answers)


def test_a_setting_that_can_do_harm_says_why_it_is_as_it_is() -> None:
    lines = to_yaml(Answers()).splitlines()
    for name in ("percentageOfNodesToScore", "weight", "nodeCacheCapable", "httpTimeout", "ignorable"):
        place = next(index for index, line in enumerate(lines) if line.strip().startswith(f"{name}:"))
        assert lines[place - 1].strip().startswith("# ")


def test_a_weight_is_left_out_without_the_verb_that_it_is_for() -> None:
    assert "weight" not in document_of(Answers(verbs=("filter",)))["extenders"][0]


@pytest.mark.parametrize(("seconds", "text"), [(3.0, "3s"), (2, "2s"), (2.5, "2500ms"), (0.25, "250ms")])
def test_a_timeout_is_written_as_go_reads_it(seconds: float, text: str) -> None:
    assert document_of(Answers(http_timeout_seconds=seconds))["extenders"][0]["httpTimeout"] == text
