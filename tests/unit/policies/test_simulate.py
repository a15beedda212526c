"""`manage.py simulate`: cases from a file, and what is wrong with them."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from policies.manifests import to_yaml
from tests.builders import make_node, make_pod, rule_set_document

GOOD = json.dumps({"pod": make_pod(), "nodes": [make_node("n1")]}).encode()


def simulate(cases: bytes | None, folder: Path, **spec: Any) -> list[dict[str, Any]]:
    """Return what is printed, a line for each case of the file `cases.jsonl`; None makes no such file."""
    policy, path = folder / "policy.yaml", folder / "cases.jsonl"
    policy.write_text(to_yaml(rule_set_document(**spec)))
    if cases is not None:
        path.write_bytes(cases)
    printed = io.StringIO()
    call_command("simulate", "--policy", str(policy), "--cases", str(path), stdout=printed)
    return [json.loads(line) for line in printed.getvalue().splitlines()]


def test_each_line_that_is_not_empty_is_a_case(tmp_path: Path) -> None:
    found = simulate(b"\xef\xbb\xbf" + GOOD + b"\r\n\n" + GOOD, tmp_path)
    assert [each["feasible"] for each in found] == [["n1"], ["n1"]]


@pytest.mark.parametrize("kind", ["Assignment", "PriorityClass", "Pause", "Exemption"])
def test_the_rule_set_is_found_among_documents_of_other_kinds(kind: str, tmp_path: Path) -> None:
    policy, cases = tmp_path / "policy.yaml", tmp_path / "cases.jsonl"
    policy.write_text(f"kind: {kind}\n---\n" + to_yaml(rule_set_document()))
    cases.write_bytes(GOOD)
    printed = io.StringIO()
    call_command("simulate", "--policy", str(policy), "--cases", str(cases), stdout=printed)
    assert json.loads(printed.getvalue())["feasible"] == ["n1"]


def test_a_case_brings_the_claims_and_volumes_that_rules_read(tmp_path: Path) -> None:
    zone = "topology.kubernetes.io/zone"
    case = {
        "pod": make_pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
        "nodes": [make_node(name, labels={zone: name}) for name in "ab"],
    }
    bound = {
        "persistentVolumeClaims": [{"metadata": {"name": "c"}, "spec": {"volumeName": "v"}}],
        "persistentVolumes": [{"metadata": {"name": "v", "labels": {zone: "b"}}}],
    }
    lines = [json.dumps(each).encode() for each in (case | bound, case)]
    found = simulate(b"\n".join(lines), tmp_path, filters=[{"builtin": "NoVolumeZoneConflict"}])
    assert [each["feasible"] for each in found] == [["b"], []]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"[]", "a case must be an object"),
        (b'{"nodes": []}', "a case must have a Pod"),
        (b'{"Pod": {}, "nodes": []}', "a case must have a Pod"),
        (b'{"pod": null}', "a case must have a Pod"),
        (b'{"pod": {"metadata": {"name": "\xff"}}}', "'utf-8' codec can't decode byte 0xff"),
        (b'{"pod": ' + b"[" * 100_000, "lists and objects are nested too deeply"),
        (b'{"pod": {}, "now": 5}', "now: must be a time with its zone, such as 2126-01-31T22:00:00Z"),
        (b'{"pod": {}, "now": "at noon"}', "now: must be a time with its zone, such as 2126-01-31T22:00:00Z"),
        (b'{"pod": {}, "now": "2026-03-29T01:30:00"}', "now: must be a time with its zone, such as"),
        (b'{"pod": {}, "node": []}', "node: unknown member; did you mean nodes?"),
        (b'{"pod": {}, "Nodes": [], "expect": {}}', "expect: unknown member; "),
        (b'{"pod": {}, "nodes": 5}', "nodes: must be a list, not a number"),
        (
            b'{"pod": {}, "nodes": {"a": {}}, "pods": false}',
            "nodes: must be a list, not an object; pods: must be a list, not ",
        ),
        (b'{"pod": {}, "persistentVolumeClaims": "a"}', "persistentVolumeClaims: must be a list, not a text"),
        (b"pod: {}", "not readable as JSON: column 1: Expecting value"),
        (b'{"pod": {},', "not readable as JSON: column 12: "),
    ],
)
def test_what_is_wrong_with_a_case_is_said_with_its_line(line: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        simulate(GOOD + b"\n" + line, tmp_path)
    place, _, fault = str(caught.value).partition(": ")
    assert (place, said in fault) == (f"{tmp_path / 'cases.jsonl'}:2", True)


def test_a_file_of_cases_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cases\.jsonl can't be read: "):
        simulate(None, tmp_path)
