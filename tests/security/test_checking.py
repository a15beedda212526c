"""Checking a document ends within limits, in a process of its own, whatever the document; and says so in words."""

import io
import os
import pickle
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from policies import checking
from policies.checking import limits, pool, worker
from policies.checking.limits import BUSY, CROWDED, LONG_AT_ONCE, LONG_SECONDS, TOO_DEEP, TOO_LONG, TOO_MUCH
from policies.engine.cel.functions import FORM_LENGTH
from policies.engine.documents import document_of
from policies.engine.errors import MOST_FAULTS, Fault, RuleSetError
from policies.engine.ruleset import RuleSet, encode
from policies.engine.validation import read_rule_set
from tests.builders import make_node, make_pod, rule_set_document

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def with_test(expression: str, **pod: Any) -> dict[str, Any]:
    """A document whose test makes the checker evaluate an expression."""
    test = {"name": "t", "pod": make_pod(**pod), "nodes": [make_node()], "expect": {"feasible": ["n1"]}}
    rule = {"name": "f", "expression": expression, "reason": "no"}
    return rule_set_document(filters=[rule], tests=[test])


class Expanding:
    """A document of a few bytes, of which more memory is taken where it is read than may be."""

    def __reduce__(self) -> tuple[type[bytearray], tuple[int]]:
        return bytearray, (2 * limits.MEMORY_BYTES,)


EVASION = f"{{'1e60000000': {[0.0] * FORM_LENGTH}}}.isGreaterThan(quantity('1'))"


@pytest.fixture(autouse=True)
def own_pool() -> Iterator[None]:
    """Each test begins and ends without processes: what it changes of the limits holds for its own."""
    pool.end()
    yield
    pool.end()


def children() -> set[int]:
    """The checking processes of this one."""
    found = {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}
    return {int(pid) for pid in found if b"policies.checking.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def test_the_expression_that_took_a_minute_is_a_fault_of_its_own_test() -> None:
    (fault,) = checking.faults_of(with_test(EVASION))
    assert fault.path == "spec.tests[0].expect.feasible"


def test_a_check_that_takes_too_much_time_ends_and_the_next_one_goes_on() -> None:
    # Each alone is within the bounds of a test; together they are more than one process may take.
    endless = "[" + ",".join(["0"] * 2_000) + "].all(a, pod.metadata.name.size() >= a)"
    document = with_test("true") | {"kind": "RuleSet"}
    document["spec"]["tests"] = [document["spec"]["tests"][0] | {"name": f"t{i}"} for i in range(20_000)]
    document["spec"]["filters"] = [
        {"name": f"f{i}", "expression": endless, "reason": "no", "mode": "shadow"} for i in range(50)
    ]
    assert checking.faults_of(document) == [Fault("", TOO_MUCH)]
    assert checking.faults_of(rule_set_document()) == []


def test_of_many_documents_only_the_one_that_takes_too_much_is_refused() -> None:
    fine, wrong = rule_set_document(), rule_set_document()
    wrong["spec"]["oder"] = 1
    found = checking.faults_together((each, "") for each in (fine, Expanding(), wrong))
    assert found[:2] == [[], [Fault("", TOO_MUCH)]]
    assert [fault.path for fault in found[2]] == ["spec.oder"]


def test_of_many_documents_only_the_one_that_is_too_deep_is_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert checking.faults_together([(deep, ""), (rule_set_document(), "")]) == [[Fault("", TOO_DEEP)], []]


def test_many_documents_are_checked_in_turns_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "BATCH_DOCUMENTS", 2)
    asked: list[int] = []
    ask = pool._Worker.ask

    def counted(self: Any, name: str, batch: list[bytes]) -> Any:
        asked.append(len(batch))
        return ask(self, name, batch)

    monkeypatch.setattr(pool._Worker, "ask", counted)
    found = checking.read_each([(rule_set_document(f"r{number}"), "") for number in range(5)])
    assert [each.name for each in found if isinstance(each, RuleSet)] == [f"r{number}" for number in range(5)]
    assert asked == [2, 2, 1]


def test_many_documents_of_one_request_are_checked_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "BATCH_DOCUMENTS", 2)
    clock, ask = [0.0], pool._Worker.ask
    monkeypatch.setattr(pool.time, "monotonic", lambda: clock[0])

    def slow(self: Any, name: str, batch: list[bytes]) -> Any:
        clock[0] += limits.REQUEST_SECONDS / 2
        return ask(self, name, batch)

    monkeypatch.setattr(pool._Worker, "ask", slow)
    documents = [(rule_set_document(f"r{number}"), "") for number in range(6)]
    with checking.for_one_request():
        found = checking.read_each(documents)
        assert checking.faults_of(rule_set_document()) == [Fault("", TOO_LONG)]
    assert [isinstance(each, RuleSet) for each in found] == [True] * 4 + [False] * 2
    assert [each.faults for each in found if isinstance(each, RuleSetError)] == [[Fault("", TOO_LONG)]] * 2
    # A command, or a task, takes the time that it needs, and so does the next request begin anew.
    assert all(isinstance(each, RuleSet) for each in checking.read_each(documents))
    with checking.for_one_request():
        assert checking.faults_of(rule_set_document()) == []


def test_some_of_the_admins_threads_are_always_for_requests_whose_checks_take_moments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else as many requests with thousands of documents as there are threads, by one account, hold up everybody and /livez for a minute."""
    monkeypatch.setattr(pool, "BATCH_DOCUMENTS", 1)
    clock, ask = [0.0], pool._Worker.ask
    monkeypatch.setattr(pool.time, "monotonic", lambda: clock[0])

    def slow(self: Any, name: str, batch: list[bytes]) -> Any:
        clock[0] += LONG_SECONDS
        return ask(self, name, batch)

    monkeypatch.setattr(pool._Worker, "ask", slow)
    documents = [(rule_set_document(f"r{number}"), "") for number in range(2)]
    with ExitStack() as others:
        for _ in range(LONG_AT_ONCE):
            others.enter_context(checking.for_one_request())
            assert all(isinstance(each, RuleSet) for each in checking.read_each(documents))
        with checking.for_one_request():
            first, second = checking.read_each(documents)
        assert isinstance(first, RuleSet)
        assert isinstance(second, RuleSetError)
        assert second.faults == [Fault("", CROWDED)]
        with checking.for_one_request():
            assert checking.faults_of(rule_set_document()) == []
    with checking.for_one_request():
        assert all(isinstance(each, RuleSet) for each in checking.read_each(documents))


def test_a_check_that_takes_too_much_memory_ends_and_the_next_one_goes_on() -> None:
    assert checking.faults_of(Expanding()) == [Fault("", TOO_MUCH)]
    assert checking.faults_of(rule_set_document()) == []


def test_a_process_that_was_ended_from_outside_is_replaced_without_a_word() -> None:
    checking.faults_of(rule_set_document())
    (pid,) = children()
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert checking.faults_of(rule_set_document()) == []
    assert pid not in children()


def killed(process: Any) -> None:
    os.kill(process._process.pid, signal.SIGKILL)


def told_to_end(process: Any) -> None:
    os.kill(process._process.pid, signal.SIGTERM)


def idle_for_too_long(process: Any) -> None:
    """It ends at the moment at which it is asked."""
    with socket.socket(fileno=os.dup(process._connection.fileno())) as ours:
        ours.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("ended", [killed, told_to_end, idle_for_too_long], ids=lambda ended: ended.__name__)
def test_a_process_ended_from_outside_during_a_check_says_nothing_about_the_document(
    ended: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, ask = [1], pool._Worker.ask

    def asked_as_it_ends(self: Any, name: str, asked: list[bytes]) -> Any:
        if left[0]:
            left[0] -= 1
            ended(self)
        return ask(self, name, asked)

    assert checking.faults_of(rule_set_document()) == []
    monkeypatch.setattr(pool._Worker, "ask", asked_as_it_ends)
    assert checking.faults_of(rule_set_document()) == []
    left[0] = 2
    assert checking.faults_of(rule_set_document()) == [Fault("", TOO_MUCH)]  # on a small machine it may be the document
    assert checking.faults_of(rule_set_document()) == []


def test_no_more_processes_are_started_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "WAIT_SECONDS", 0.01)
    going, release = threading.Barrier(limits.PROCESSES + 1), threading.Event()
    ask = pool._Worker.ask

    def slow(self: Any, name: str, asked: list[bytes]) -> Any:
        going.wait(30)
        release.wait(30)
        return ask(self, name, asked)

    monkeypatch.setattr(pool._Worker, "ask", slow)
    threads = [
        threading.Thread(target=checking.faults_of, args=(rule_set_document(),)) for _ in range(limits.PROCESSES)
    ]
    for thread in threads:
        thread.start()
    going.wait(30)
    assert checking.faults_of(rule_set_document()) == [Fault("", BUSY)]
    assert len(children()) == limits.PROCESSES
    release.set()
    for thread in threads:
        thread.join()


def test_the_process_has_nothing_of_its_parents_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_SECRET_KEY", "hunter2")
    checking.faults_of(rule_set_document())
    (pid,) = children()
    assert b"hunter2" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_the_process_cannot_make_objects_of_classes_in_its_parent() -> None:
    with pytest.raises(pickle.UnpicklingError, match="is no part of an answer"):
        pool._Unpickler(io.BytesIO(pickle.dumps(Path("/")))).load()


def test_a_checked_value_is_the_same_as_one_that_was_read_here() -> None:
    """To the byte: digests are taken over it, and what equals a default is left out by identity."""
    document = rule_set_document(
        filters=[{"name": "f", "expression": "true", "onError": "reject", "mode": "enforce"}],
        scores=[{"name": "s", "expression": "1", "bounds": [0, 20.5], "weight": 1}],
        failures={"deadline": "refuse"},
    )
    mine, theirs = read_rule_set(document), checking.read_rule_set(document)
    assert theirs == mine
    assert encode(theirs) == encode(mine)
    assert document_of(theirs) == document_of(mine)


def test_faults_come_through_with_paths_and_positions() -> None:
    document = rule_set_document(filters=[{"name": "f", "expression": "pod.metadata.nme == ''", "reason": "no"}])
    with pytest.raises(RuleSetError) as here:
        read_rule_set(document)
    with pytest.raises(RuleSetError) as there:
        checking.read_rule_set(document)
    assert there.value.faults == here.value.faults != []


def test_a_file_comes_through_with_the_lines_of_its_members() -> None:
    (found,) = checking.read_documents("kind: RuleSet\nspec:\n  filters:\n  - name: a\n", "rules.yaml")
    assert found.document == {"kind": "RuleSet", "spec": {"filters": [{"name": "a"}]}}
    assert found.describe(Fault("spec.filters[0].name", "x")) == "rules.yaml:4: spec.filters[0].name: x"


def test_a_fault_of_our_own_is_no_fault_of_the_document() -> None:
    with pytest.raises(pool.CheckingError, match="TypeError"):
        pool.run("read_documents", 7, "x")
    assert checking.faults_of(rule_set_document()) == []


def test_limits_are_set_before_anything_is_read() -> None:
    """Stated where docs/security.md states them."""
    assert (limits.CPU_SECONDS, limits.MEMORY_BYTES, limits.PROCESSES) == (5, 512 * 2**20, 2)
    assert worker.CPU_SECONDS == limits.CPU_SECONDS


def test_of_very_many_faults_of_a_document_the_first_are_told_and_the_rest_counted() -> None:
    document = rule_set_document() | {f"m{number}": 1 for number in range(MOST_FAULTS + 500)}
    found = checking.faults_of(document)
    assert len(found) == MOST_FAULTS
    assert found[-1] == Fault("", "501 more faults are left out here: correct these first")


def test_documents_after_very_many_faults_are_not_read() -> None:
    wrong, fine = ({"a": 1}, ""), (rule_set_document(), "")
    read = checking.read_until([wrong] * 1_000 + [fine], 2_000)
    assert 400 <= len(read) < 1_000
    assert len(checking.read_until([fine, wrong, fine], 2_000)) == 3


@pytest.mark.parametrize("name", ["admin", "worker"])
def test_a_pod_has_room_for_all_checks_at_once(name: str) -> None:
    """Else the kernel ends its container, all processes of it, before a check reaches its own limit."""
    at_rest, fresh_check = 256 * 2**20, 80 * 2**20
    manifest = next(yaml.safe_load_all((DEPLOY / "kubernetes" / "base" / f"{name}.yaml").read_text()))
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    room = int(container["resources"]["limits"]["memory"].removesuffix("Gi")) * 2**30
    assert at_rest + limits.PROCESSES * (fresh_check + limits.MEMORY_BYTES) <= room
