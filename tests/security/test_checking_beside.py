"""Checking in a process of its own gives what checking here gives, for every example; and who asks beside a check that ends isn't met."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from policies import checking, manifests
from policies.checking import pool
from policies.checking.jobs import JOBS
from policies.checking.limits import TOO_MUCH
from policies.checking.wire import read_faults
from policies.engine import validation
from policies.engine.errors import Fault, RuleSetError
from policies.engine.ruleset import encode
from tests.builders import rule_set_document
from tests.security.test_checking import Expanding, children, own_pool

__all__ = ["own_pool"]
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def outcome(read: Any, document: object) -> Any:
    try:
        return encode(read(document))
    except RuleSetError as error:
        return error.faults


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_the_same_there_and_here(path: Path) -> None:
    text = path.read_text()
    here, there = manifests.read_documents(text, path.name), checking.read_documents(text, path.name)
    assert [vars(found) for found in there] == [vars(found) for found in here] != []
    for found in here:
        document: Any = found.document
        damaged = document | {"spec": {**document.get("spec", {}), "oder": 1}, "kind": document["kind"]}
        for each in (document, damaged):
            assert outcome(checking.read_document, each) == outcome(validation.read_document, each)
            assert checking.faults_of(each) == read_faults(JOBS["faults_of"](each))
        assert [fault.path for fault in checking.faults_of(damaged)] == ["spec.oder"]


def test_a_check_that_doesnt_end_is_ended_and_said_and_the_next_one_has_a_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert checking.faults_of(rule_set_document()) == []
    (pid,) = children()
    os.kill(pid, signal.SIGSTOP)
    with monkeypatch.context() as patched:
        patched.setattr(pool, "WALL_SECONDS", 0.01)
        assert checking.faults_of(rule_set_document()) == [Fault("", TOO_MUCH)]
    assert pid not in children()
    assert checking.faults_of(rule_set_document()) == []


def test_of_two_who_ask_at_once_only_the_one_whose_check_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    both, ask = threading.Barrier(2), pool._Worker.ask

    def asked_beside(self: Any, name: str, asked: list[bytes]) -> Any:
        both.wait(60)  # both have a process of their own by now
        return ask(self, name, asked)

    monkeypatch.setattr(pool._Worker, "ask", asked_beside)
    found: dict[str, Any] = {}
    documents = {"large": Expanding(), "small": {"kind": "RuleSett"}}
    threads = [
        threading.Thread(target=lambda name=name: found.update({name: checking.faults_of(documents[name])}))
        for name in documents
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found["large"] == [Fault("", TOO_MUCH)]
    assert found["small"] == read_faults(JOBS["faults_of"](documents["small"])) != []
