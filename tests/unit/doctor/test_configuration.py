"""The configuration that doctor writes: what the lint says of it, and what stands in it for people."""

import json
from pathlib import Path

import pytest
import yaml

from scheduler.doctor.configuration import VERBS, Answers, Managed, added_to, document_of, to_yaml
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


HEAD = "# Ours.\napiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
OURS = """extenders:
  - urlPrefix: https://ours.example:9000/x
    bindVerb: bind # ours binds
    managedResources:
      - name: a.b/c # the last
# About what follows.
parallelism: 8
"""
BERTHS = document_of(Answers())["extenders"][0]


@pytest.mark.parametrize(
    ("text", "others"),
    [
        pytest.param(HEAD, 0, id="none"),
        pytest.param(HEAD.rstrip(), 0, id="without an end of its last line"),
        pytest.param(
            f"{HEAD}profiles:\n- schedulerName: a\n- schedulerName: b\n# the end\n...\n", 0, id="profiles, and an end"
        ),
        pytest.param(f"{HEAD}extenders:\n# none yet\n", 0, id="null"),
        pytest.param(f"{HEAD}extenders: []\n", 0, id="an empty list"),
        pytest.param(f'{HEAD}extenders: [{{urlPrefix: "http://a:1"}}]\n', 1, id="in brackets"),
        pytest.param(
            f"{HEAD}extenders:\n- urlPrefix: http://a:1\n  filterVerb: |\n    check\n\nparallelism: 2",
            1,
            id="a text of lines",
        ),
        pytest.param('{"extenders": [{"urlPrefix": "http://a:1"}]}', 1, id="JSON"),
        pytest.param('{\n\t"extenders": [\n\t\t{"urlPrefix": "http://a:1"}\n\t]\n}\n', 1, id="JSON with tabs"),
        pytest.param("--- &all\nextenders:\n- &a {urlPrefix: http://a:1}\n- *a\n", 2, id="an alias"),
    ],
)
def test_berth_comes_behind_the_extenders_of_an_existing_configuration(text: str, others: int) -> None:
    before, after = yaml.safe_load(text.replace("\t", " ")), yaml.safe_load(added_to(text, Answers()))
    theirs = before.pop("extenders", None) or []
    assert after.pop("extenders") == [*theirs, BERTHS]
    assert others == len(theirs)
    assert after == before | {"percentageOfNodesToScore": 100}


def test_a_text_of_an_existing_configuration_in_json_stays_a_text_for_kube_scheduler() -> None:
    profile = {"schedulerName": "y", "pluginConfig": [{"name": "Theirs", "args": {"zone": "08"}}]}
    lines = added_to(json.dumps({"kind": "KubeSchedulerConfiguration", "profiles": [profile]}), Answers()).splitlines()
    assert "- schedulerName: 'y'" in lines
    assert "      zone: '08'" in lines


def test_comments_and_values_of_an_existing_configuration_stay_and_berth_binds_only_where_nobody_does() -> None:
    text = f"{HEAD}percentageOfNodesToScore: 70\n{OURS}"
    made = added_to(text, Answers())
    added = made.splitlines()
    assert [line for line in text.splitlines() if line not in added] == []
    assert added.index("      - name: a.b/c # the last") < added.index("  - urlPrefix: http://127.0.0.1:8010")
    assert added.index("    ignorable: false") < added.index("# About what follows.")
    document = yaml.safe_load(made)
    assert document["percentageOfNodesToScore"] == 70
    assert document["extenders"][1] == {name: value for name, value in BERTHS.items() if name != "bindVerb"}
