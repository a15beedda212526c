"""Preemption carried out: what the API server is told, in which order, and when it is broken off."""

import json
from typing import Any

import pytest

from policies.engine.objects.pod import Pod
from policies.engine.preemption.dry_run import Preemption, Search
from policies.engine.preemption.vetoes import Candidate, Veto
from policies.engine.victims import Victim
from scheduler.binder.actions import Event
from scheduler.binder.preemption_executor import MOST_NOTED, BindingRefusedError, RemovalRefusedError, act, notes_of
from scheduler.cluster.errors import (
    APIConflictError,
    APIError,
    APIForbiddenError,
    APIInvalidError,
    APINotFoundError,
    APIUnavailableError,
)
from tests.builders import make_pod

PODS = "/api/v1/namespaces/default/pods"


class Server:
    """Notes what it is asked, and fails where it is told to."""

    def __init__(self, **failing: APIError) -> None:
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self._failing = failing

    def patch(self, *, path: str, body: bytes, content_type: str, timeout_seconds: float) -> bytes:
        assert content_type == "application/strategic-merge-patch+json"
        return self._note("PATCH", path, body)

    def post(self, *, path: str, body: bytes, query: dict[str, str], timeout_seconds: float) -> bytes:
        assert (path, query) == (f"{PODS}/urgent/binding", {"dryRun": "All"})
        assert json.loads(body)["target"]["name"] == "n1"
        return self._answer("try_binding")

    def delete(self, *, path: str, body: bytes, timeout_seconds: float) -> bytes:
        if "dryRun" in json.loads(body):
            assert json.loads(body)["dryRun"] == ["All"]
            return self._answer(f"try_{path.removeprefix(f'{PODS}/')}")
        return self._note("DELETE", path, body)

    def _note(self, verb: str, path: str, body: bytes) -> bytes:
        self.asked.append((verb, path, json.loads(body)))
        name = path.removeprefix(f"{PODS}/").partition("/")[0]
        return self._answer(f"{verb.lower()}_{name}")

    def _answer(self, asked: str) -> bytes:
        if error := self._failing.get(asked):
            raise error
        return b""

    @property
    def calls(self) -> list[str]:
        return [f"{verb} {path.removeprefix(PODS)}" for verb, path, _ in self.asked]


def pod(name: str, **metadata: Any) -> Pod:
    document = make_pod(name)
    return Pod.from_json({**document, "metadata": {**document["metadata"], **metadata}})


def preemption(*victims: Pod, yielding: tuple[Pod, ...] = ()) -> Preemption:
    return Preemption("n1", list(victims), 0, list(yielding), [])


def acted(server: Server, made: Preemption, **more: Any) -> tuple[bool, list[Event]]:
    told: list[Event] = []
    client: Any = server
    more = {"expect": lambda _: None, "leads": lambda: True, "is_there": lambda _: True, **more}
    return act(client, made, pod("urgent"), post=told.append, **more), told


def test_each_victim_is_marked_and_then_deleted_and_the_event_names_both() -> None:
    server = Server()
    done, told = acted(server, preemption(pod("a"), pod("b")))

    assert done
    assert server.calls == ["PATCH /a/status", "DELETE /a", "PATCH /b/status", "DELETE /b"]
    (_, _, patch), (_, _, options), *_ = server.asked
    assert patch["metadata"] == {"uid": "uid-a"}
    (condition,) = patch["status"]["conditions"]
    assert {key: condition[key] for key in ("type", "status", "reason", "message")} == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "berth: preempting to accommodate a higher priority pod",
    }
    assert options["preconditions"] == {"uid": "uid-a"}
    assert "gracePeriodSeconds" not in options
    first = told[0]
    assert (first.regarding.name, first.related.name if first.related else "") == ("a", "urgent")
    assert (first.type, first.reason, first.action, first.controller) == ("Normal", "Preempted", "Preempting", "berth")
    assert first.note == "Preempted by pod uid-urgent on node n1"


def test_a_preemptor_is_noted_for_each_victim_just_before_its_removal_and_not_for_one_that_is_leaving() -> None:
    """A process that watches writes for which Pod they ended, and one that leaves already does so for another."""
    server = Server()
    expected: list[tuple[str, int]] = []
    leaving = pod("b", deletionTimestamp="2026-01-01T00:00:00Z")
    acted(
        server,
        preemption(pod("a"), leaving, pod("c")),
        expect=lambda victim: expected.append((victim.name, len(server.calls))),
    )
    assert expected == [("a", 0), ("c", 2)]


def test_a_victim_that_is_leaving_already_is_left_alone() -> None:
    server = Server()
    done, told = acted(server, preemption(pod("going", deletionTimestamp="2026-01-01T00:00:00Z"), pod("b")))
    assert done
    assert server.calls == ["PATCH /b/status", "DELETE /b"]
    assert [event.regarding.name for event in told] == ["b"]


def test_a_victim_that_takes_no_room_on_the_node_any_more_is_left_alone() -> None:
    """It completed by itself, or waits again because its binding was refused."""
    server = Server()
    expected: list[Pod] = []
    a, b = pod("a"), pod("b")
    done, told = acted(server, preemption(a, b), expect=expected.append, is_there=lambda victim: victim is b)
    assert done
    assert server.calls == ["PATCH /b/status", "DELETE /b"]
    assert expected == [b]
    assert [event.regarding.name for event in told] == ["b"]


@pytest.mark.parametrize("error", [APINotFoundError("gone"), APIConflictError("another uid")])
@pytest.mark.parametrize("verb", ["patch", "delete"])
def test_a_victim_that_is_gone_or_another_pod_by_now_is_passed_over(verb: str, error: APIError) -> None:
    server = Server(**{f"{verb}_a": error})
    done, told = acted(server, preemption(pod("a"), pod("b")))
    assert done
    assert server.calls[-2:] == ["PATCH /b/status", "DELETE /b"]
    assert [event.regarding.name for event in told] == ["b"]


def test_when_one_cannot_be_deleted_those_after_it_are_left_alone() -> None:
    server = Server(delete_a=APIUnavailableError("away"))
    with pytest.raises(APIUnavailableError):
        acted(server, preemption(pod("a"), pod("b")))
    assert server.calls == ["PATCH /a/status", "DELETE /a"]


REFUSALS = [
    APIForbiddenError("a policy", status=403),
    APIInvalidError("a policy", status=422),
    # A webhook chooses the status; without one it is 400.
    APIInvalidError('admission webhook "a policy" denied the request: it stays', status=400),
    APIConflictError('admission webhook "a policy" denied the request: it stays', status=409),
    APIUnavailableError('admission webhook "a policy" denied the request: it stays', status=429),
]
NO_DRY_RUN = APIInvalidError('admission webhook "a policy" does not support dry run', status=400)


@pytest.mark.parametrize("error", REFUSALS)
def test_nobody_is_touched_where_one_of_them_may_not_be_deleted(error: APIError) -> None:
    server, expected = Server(try_b=error), list[Pod]()
    with pytest.raises(RemovalRefusedError, match="a policy") as refused:
        acted(server, preemption(pod("a"), pod("b"), yielding=(pod("late"),)), expect=expected.append)
    assert (server.calls, refused.value.uid, expected) == ([], "uid-b", [])


@pytest.mark.parametrize("error", REFUSALS)
def test_nobody_is_touched_where_the_pod_may_not_be_bound_to_the_node(error: APIError) -> None:
    """Else all of them would be deleted in vain."""
    server, expected = Server(try_binding=error), list[Pod]()
    with pytest.raises(BindingRefusedError, match="a policy"):
        acted(server, preemption(pod("a"), yielding=(pod("late"),)), expect=expected.append)
    assert (server.calls, expected) == ([], [])


@pytest.mark.parametrize("asked", ["try_binding", "try_a"])
def test_refused_credentials_say_nothing_about_the_node_or_the_victims(asked: str) -> None:
    server = Server(**{asked: APIForbiddenError("Unauthorized", status=401)})
    with pytest.raises(APIForbiddenError, match="Unauthorized"):
        acted(server, preemption(pod("a")))
    assert server.calls == []


def test_nobody_is_touched_for_a_pod_that_is_gone() -> None:
    server = Server(try_binding=APINotFoundError("no Pod urgent", status=404))
    with pytest.raises(APINotFoundError):
        acted(server, preemption(pod("a")))
    assert server.calls == []


def test_a_binding_that_can_not_be_asked_about_before_keeps_nothing_from_being_done() -> None:
    server = Server(try_binding=NO_DRY_RUN)
    acted(server, preemption(pod("a")))
    assert server.calls == ["PATCH /a/status", "DELETE /a"]


def test_a_victim_that_is_gone_or_can_not_be_asked_about_before_keeps_nothing_from_being_done() -> None:
    server = Server(try_a=NO_DRY_RUN, try_b=APINotFoundError("gone"))
    acted(server, preemption(pod("a"), pod("b")))
    assert server.calls == ["PATCH /a/status", "DELETE /a", "PATCH /b/status", "DELETE /b"]


@pytest.mark.parametrize("error", REFUSALS)
@pytest.mark.parametrize("verb", ["patch", "delete"])
def test_a_refusal_that_comes_only_when_it_is_done_is_one_too(verb: str, error: APIError) -> None:
    server = Server(**{f"{verb}_a": error})
    with pytest.raises(RemovalRefusedError):
        acted(server, preemption(pod("a"), pod("b")))


def test_who_does_not_lead_any_more_deletes_nobody_else() -> None:
    server, moments = Server(), iter([True, False])
    done, _ = acted(server, preemption(pod("a"), pod("b")), leads=lambda: next(moments))
    assert not done
    assert server.calls == ["PATCH /a/status", "DELETE /a"]


def test_who_yields_loses_the_nomination_first_and_that_may_fail() -> None:
    server = Server(patch_late=APIUnavailableError("away"))
    done, _ = acted(server, preemption(pod("a"), yielding=(pod("late"), pod("later"))))
    assert done
    assert server.calls[:2] == ["PATCH /late/status", "PATCH /later/status"]
    assert server.asked[1][2] == {"metadata": {"uid": "uid-later"}, "status": {"nominatedNodeName": None}}
    assert "DELETE /a" in server.calls


class TestNotes:
    def test_they_name_the_victims_and_the_candidates_that_they_were_chosen_from(self) -> None:
        victim = pod("a")
        candidates = [Candidate(f"n{number}", [Victim("uid-a", victim)], number) for number in range(60)]
        made = Preemption("n1", [victim], 1, [pod("late")], candidates)
        said = notes_of(Search(made, candidates))["preemption"]
        assert said["node"] == "n1"
        assert said["victims"] == [{"name": "default/a", "uid": "uid-a", "priority": 0}]
        assert said["yielding"][0]["name"] == "default/late"
        assert said["pdbViolations"] == 1
        assert said["candidateCount"] == 60
        assert said["candidates"][2] == {"node": "n2", "victims": ["default/a"], "pdbViolations": 2}
        assert len(said["candidates"]) == MOST_NOTED

    def test_they_say_why_there_is_nobody_to_preempt(self) -> None:
        assert notes_of(Search(reason="nobody")) == {"preemption": {"reason": "nobody"}}

    def test_they_say_whom_a_victims_rule_protects(self) -> None:
        veto = Veto(
            rule="spared", mode="enforce", node="n1", victim="default/a", victim_uid="uid-a",
            code="UnschedulableAndUnresolvable", reason="it stays",
        )  # fmt: skip
        (said,) = notes_of(Search(vetoes=[veto], reason="nobody"))["vetoes"]
        assert (said["rule"], said["victim"], said["victimUid"], said["reason"]) == (
            "spared",
            "default/a",
            "uid-a",
            "it stays",
        )
