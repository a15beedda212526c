"""The extenders of a classic Policy in a KubeSchedulerConfiguration: spelled, typed and refused as kube-scheduler would."""

import json
from typing import Any

import pytest
import yaml

from policies.classic import import_policy
from policies.engine.errors import RuleSetError
from scheduler.doctor.catalogue import KINDS
from scheduler.doctor.configuration import Answers, document_of, extenders_of_policy, to_yaml
from scheduler.doctor.findings import lint
from tests.upstream_policies import EVERY_MEMBER, WITH_EXTENDER


def policy(*extenders: Any) -> dict[str, Any]:
    return {"kind": "Policy", "apiVersion": "v1", "extenders": list(extenders)}


def faults_of(document: object) -> dict[str, str]:
    with pytest.raises(RuleSetError) as caught:
        extenders_of_policy(document)
    return {fault.path: fault.message for fault in caught.value.faults}


def test_the_official_policy_gives_its_extender_in_todays_spelling() -> None:
    assert extenders_of_policy(json.loads(WITH_EXTENDER)) == [
        {
            "urlPrefix": "http://127.0.0.1:12346/scheduler", "filterVerb": "filter", "prioritizeVerb": "prioritize",
            "bindVerb": "bind", "weight": 5, "enableHTTPS": False, "nodeCacheCapable": False,
        }
    ]  # fmt: skip


def test_every_member_has_its_place() -> None:
    first, second = extenders_of_policy(json.loads(EVERY_MEMBER))
    assert first == {
        "urlPrefix": "https://127.0.0.1:12346/scheduler", "filterVerb": "filter", "prioritizeVerb": "prioritize",
        "bindVerb": "bind", "preemptVerb": "preempt", "weight": 5, "enableHTTPS": True, "nodeCacheCapable": True,
        "ignorable": True, "httpTimeout": "1500ms",
        "tlsConfig": {"insecure": False, "serverName": "extender", "certFile": "ca.pem", "keyFile": "ca.pem", "caFile": "ca.pem"},
        "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": True}, {"name": "example.com/fpga"}],
    }  # fmt: skip
    assert second == {"urlPrefix": "http://127.0.0.1:12347", "filterVerb": "filter", "httpTimeout": "0s"}


@pytest.mark.parametrize(
    ("nanoseconds", "written"),
    [(5_000_000_000, "5s"), (100_000_000, "100ms"), (1_500, "1500ns"), (2_000, "2us"), (1, "1ns"), (60 * 10**9, "60s")],
)
def test_nanoseconds_become_a_duration_as_go_reads_it(nanoseconds: int, written: str) -> None:
    (made,) = extenders_of_policy(policy({"urlPrefix": "http://x", "httpTimeout": nanoseconds}))
    assert made["httpTimeout"] == written


def test_every_fault_is_said_at_once_with_its_path() -> None:
    broken = policy(
        {"urlPrefx": "http://x"},
        {"urlPrefix": "http://x", "prioritizeVerb": "p"},
        {"urlPrefix": "http://x", "httpTimeout": "5s", "weight": -1, "ignorable": "no"},
        {"urlPrefix": "http://x", "tlsConfig": {"cafile": 5, "caFiles": ""}, "managedResources": [{"nam": "a"}]},
        "http://x",
    )
    assert faults_of(broken) == {
        "extenders[0].urlPrefx": "unknown member; did you mean urlPrefix?",
        "extenders[0].urlPrefix": "is needed",
        "extenders[1].weight": "is needed, from 1 on: kube-scheduler doesn't start with a prioritizeVerb without it",
        "extenders[2].httpTimeout": "must be a whole number of nanoseconds, such as 5000000000 for 5 s, not a text",
        "extenders[2].weight": "must be 0 to 9223372036854775807, not -1",
        "extenders[2].ignorable": "must be true or false, not a text",
        "extenders[3].tlsConfig.caFile": "must be a text, not a number",
        "extenders[3].tlsConfig.caFiles": "unknown member; did you mean caFile?",
        "extenders[3].managedResources[0].nam": "unknown member; did you mean name?",
        "extenders[3].managedResources[0].name": "is needed",
        "extenders[4]": "must be an object, not a text",
        "extenders[4].urlPrefix": "is needed",
    }


def test_two_that_bind_are_refused_as_kube_scheduler_refuses_them() -> None:
    one = {"urlPrefix": "http://x", "bindVerb": "bind"}
    assert "takes one that does" in faults_of(policy(one, one))["extenders[1].bindVerb"]


@pytest.mark.parametrize("document", [None, [], {}, {"kind": "RuleSet"}])
def test_what_is_no_policy_is_refused(document: object) -> None:
    assert "must be Policy" in faults_of(document)["kind"]


def test_a_policy_without_extenders_is_said_to_have_none() -> None:
    assert "has no extender" in faults_of({"kind": "Policy", "apiVersion": "v1"})["extenders"]


@pytest.mark.parametrize(
    ("change", "path", "said"),
    [
        ({"extender": []}, "extender", "did you mean extenders?"),
        ({"apiVersion": "v2"}, "apiVersion", "must be v1"),
        ({"extenders": [{"urlPrefix": "http://x\0"}]}, "extenders[0].urlPrefix", "holds NUL"),
        ({"extenders": [{"urlPrefix": "http://\u202ex"}]}, "extenders[0].urlPrefix", "holds U+202E"),
    ],
)
def test_the_faults_of_a_policy_are_those_that_its_import_finds(change: dict[str, Any], path: str, said: str) -> None:
    document = policy({"urlPrefix": "http://x"}) | change
    assert said in faults_of(document)[path]
    with pytest.raises(RuleSetError) as caught:
        import_policy(document, name="x")
    assert faults_of(document)[path] in [fault.message for fault in caught.value.faults if fault.path == path]


@pytest.mark.parametrize("with_berth", [True, False])
def test_the_text_holds_the_document(with_berth: bool) -> None:
    others = extenders_of_policy(json.loads(EVERY_MEMBER))
    made = document_of(Answers(), others, with_berth=with_berth)
    assert yaml.safe_load(to_yaml(Answers(), others, with_berth=with_berth)) == made
    assert made["extenders"][:2] == others
    assert len(made["extenders"]) == 2 + with_berth


def test_without_berth_kube_scheduler_samples_as_it_did() -> None:
    others = extenders_of_policy(json.loads(WITH_EXTENDER))
    assert "percentageOfNodesToScore" not in document_of(Answers(), others, with_berth=False)
    half = document_of(Answers(percentage_of_nodes_to_score=50), others, with_berth=False)
    assert half["percentageOfNodesToScore"] == 50


def test_the_comments_about_berth_stand_at_berths_extender_only() -> None:
    others = extenders_of_policy(json.loads(WITH_EXTENDER))
    assert "Berth" not in to_yaml(Answers(), others, with_berth=False)


@pytest.mark.parametrize("text", [WITH_EXTENDER, EVERY_MEMBER])
def test_nothing_in_the_official_ones_stops_kube_scheduler(text: str) -> None:
    made = to_yaml(Answers(), extenders_of_policy(json.loads(text)), with_berth=False)
    assert not [finding.id for finding in lint(made).findings if KINDS[finding.id].stops]
