"""What the real kube-scheduler makes of an extender's answers: the facts that Berth's answers rest on.

Each test is a fact. Where one changes with a new kube-scheduler, the answer that rests on it must be looked at.
"""

import itertools
import re
import time
from typing import Any

import pytest

from tests.e2e.contract.conftest import TIMEOUT_SECONDS, Contract, ok, passing
from tests.stack import eventually, make_node
from tests.unit.cluster.scripted_server import Answer

pytestmark = pytest.mark.e2e

# What a message begins with that names no node's reason. The second half speaks of devices, whatever the Pod asks for.
NO_REASON = "0/3 nodes are available: (no new claims to deallocate, )?"

EVERY_MODE = pytest.mark.parametrize("extender", ["names", "full"])


class TestFilterReplies:
    @pytest.mark.parametrize("spelling", ["NodeNames", "nodeNames", "nodenames", "NODENAMES"])
    def test_members_are_read_whatever_their_case(self, contract: Contract, spelling: str) -> None:
        contract.scripts["filter"] = lambda _: ok({spelling: ["n2"]})

        assert contract.wait_for_node(contract.create_pod("names")) == "n2"

    @pytest.mark.parametrize(
        "reply",
        [{"node_names": ["n2"]}, {}, None, {"NodeNames": []}],
        ids=["snake_case is no spelling", "an empty object", "null", "an empty list"],
    )
    def test_without_a_list_that_it_reads_no_node_passes_and_that_is_no_error(
        self, contract: Contract, reply: Any
    ) -> None:
        contract.scripts["filter"] = lambda _: ok(reply)

        refusal = contract.wait_for_refusal(contract.create_pod("names"))
        assert refusal["reason"] == "Unschedulable"
        assert re.match(NO_REASON + "preemption: ", refusal["message"])

    def test_a_list_in_place_of_an_object_is_an_error(self, contract: Contract) -> None:
        contract.scripts["filter"] = lambda _: ok([])

        assert contract.wait_for_refusal(contract.create_pod("names"))["reason"] == "SchedulerError"

    def test_a_name_that_was_not_asked_about_is_an_error(self, contract: Contract) -> None:
        contract.scripts["filter"] = lambda _: ok({"NodeNames": ["ghost"]})

        refusal = contract.wait_for_refusal(contract.create_pod("names"))
        assert refusal["reason"] == "SchedulerError"
        assert "claims a filtered node" in refusal["message"]

    def test_a_full_node_that_was_not_asked_about_is_taken_and_chosen(self, contract: Contract) -> None:
        contract.scripts["filter"] = lambda _: ok({"Nodes": {"items": [make_node("ghost")]}})

        assert contract.wait_for_node(contract.create_pod("full")) == "ghost"

    def test_names_are_not_read_where_full_nodes_were_sent(self, contract: Contract) -> None:
        contract.scripts["filter"] = lambda _: ok({"NodeNames": ["n1"]})

        assert contract.wait_for_refusal(contract.create_pod("full"))["reason"] == "Unschedulable"


class TestRefusals:
    def test_reasons_are_counted_by_their_text(self, contract: Contract) -> None:
        contract.scripts["filter"] = lambda _: ok(
            {"NodeNames": [], "FailedAndUnresolvableNodes": {"n1": "too red", "n2": "too red", "n3": "too blue"}}
        )

        message = contract.wait_for_refusal(contract.create_pod("names"))["message"]
        assert message.startswith("0/3 nodes are available: 1 too blue, 2 too red.")

    def test_a_node_named_nowhere_is_refused_without_a_reason(self, contract: Contract) -> None:
        contract.scripts["filter"] = lambda _: ok({"NodeNames": [], "FailedAndUnresolvableNodes": {"n1": "too red"}})

        message = contract.wait_for_refusal(contract.create_pod("names"))["message"]
        assert re.match(NO_REASON.replace("(", "1 too red[.,] (") + "preemption:", message)

    def test_a_failed_node_with_a_less_important_pod_becomes_a_fault_of_preemption(self, contract: Contract) -> None:
        """The dry run asks no extender, finds room, and so finds no victim: an internal error in the Pod's condition."""
        self._occupy_with_low_priority(contract)
        contract.scripts["filter"] = lambda _: ok({"NodeNames": [], "FailedNodes": dict.fromkeys(["n1"], "too red")})

        message = contract.wait_for_refusal(contract.create_pod("names", priorityClassName="important"))["message"]
        assert "expected at least one victim pod" in message

    def test_an_unresolvable_node_with_a_less_important_pod_is_left_alone(self, contract: Contract) -> None:
        victim = self._occupy_with_low_priority(contract)
        contract.scripts["filter"] = lambda _: ok(
            {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(["n1"], "too red")}
        )

        message = contract.wait_for_refusal(contract.create_pod("names", priorityClassName="important"))["message"]
        assert "expected at least one victim pod" not in message
        assert "Preemption is not helpful for scheduling" in message
        assert contract.node_of(victim) == "n1"

    @staticmethod
    def _occupy_with_low_priority(contract: Contract) -> str:
        _make_priority_class(contract)
        return contract.create_pod(nodeName="n1")


class TestPrioritize:
    def test_the_highest_score_wins(self, contract: Contract) -> None:
        contract.scripts["prioritize"] = lambda _: ok([{"Host": "n3", "Score": 10}, {"Host": "n1", "Score": 1}])

        assert {contract.wait_for_node(contract.create_pod("names")) for _ in range(4)} == {"n3"}

    def test_it_is_not_asked_where_one_node_is_left(self, contract: Contract) -> None:
        contract.scripts["filter"] = passing(["n2"])

        assert contract.wait_for_node(contract.create_pod("names")) == "n2"
        assert (contract.count("filter"), contract.count("prioritize")) == (1, 0)

    @pytest.mark.parametrize(
        "reply",
        [
            ok([{"Host": "n3", "Score": 10}, {"Host": "n1", "Score": 0.5}]),
            ok([{"Host": "n3", "Score": 10}, {"Host": "n1", "Score": "1"}]),
            ok({"Error": "no"}),
            Answer(500),
            Answer(200, stream=[2 * TIMEOUT_SECONDS, b"[]"]),
        ],
        ids=["a float", "a text", "an object", "status 500", "too late"],
    )
    def test_a_fault_throws_the_whole_list_away_without_a_word(self, contract: Contract, reply: Answer) -> None:
        """Fillers make n1 and n2 the better ones for kube-scheduler, so n3 is only chosen by the extender's list."""
        contract.create_pod(nodeName="n3", cpu="6")
        contract.scripts["prioritize"] = lambda _: reply

        name = contract.create_pod("names", cpu="1")
        assert contract.wait_for_node(name) in {"n1", "n2"}
        assert contract.condition(name)["status"] == "True"


class TestFaults:
    @pytest.mark.parametrize(
        "reply",
        [Answer(500), Answer(204), ok({"Error": "no"}), Answer(200, stream=[2 * TIMEOUT_SECONDS, b"{}"]), Answer(200)],
        ids=["status 500", "status 204", "Error", "too late", "an empty body"],
    )
    def test_a_failed_filter_fails_the_pod_unless_the_extender_is_ignorable(
        self, contract: Contract, reply: Answer
    ) -> None:
        contract.scripts["filter"] = lambda _: reply

        assert contract.wait_for_refusal(contract.create_pod("names"))["reason"] == "SchedulerError"
        assert contract.wait_for_node(contract.create_pod("ignorable"))

    def test_a_failed_pod_is_tried_again_by_itself(self, contract: Contract) -> None:
        contract.scripts["filter"] = lambda _: Answer(500)
        name = contract.create_pod("names")
        contract.wait_for_refusal(name)
        contract.scripts.clear()

        assert contract.wait_for_node(name)

    def test_a_redirect_of_the_usual_kind_arrives_as_a_get_and_fails(self, contract: Contract) -> None:
        contract.scripts["filter"] = lambda _: Answer(301, headers={"Location": f"{contract.server.url}/x/filter"})

        assert contract.wait_for_refusal(contract.create_pod("names"))["reason"] == "SchedulerError"
        assert ("GET", "/x/filter") in contract.methods

    def test_a_redirect_that_keeps_the_method_is_followed(self, contract: Contract) -> None:
        answers = itertools.chain(
            [Answer(307, headers={"Location": f"{contract.server.url}/x/filter"})], itertools.repeat(None)
        )
        contract.scripts["filter"] = lambda args: next(answers) or passing(["n2"])(args)

        assert contract.wait_for_node(contract.create_pod("names")) == "n2"


class TestTryingAgain:
    def test_a_refused_pod_waits_until_something_changes_and_an_annotation_of_it_is_enough(
        self, contract: Contract
    ) -> None:
        contract.scripts["filter"] = lambda _: ok(
            {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(["n1", "n2", "n3"], "too red")}
        )
        name = contract.create_pod("names")
        contract.wait_for_refusal(name)
        time.sleep(1.0)  # its own condition makes it be tried once more
        contract.scripts.clear()
        asked = contract.count("filter")
        time.sleep(3.0)
        assert (contract.count("filter"), contract.node_of(name)) == (asked, "")

        contract.annotate(name)

        assert contract.wait_for_node(name)

    def test_a_constant_reason_ends_the_tries_and_a_varying_one_never_does(self, contract: Contract) -> None:
        numbers = itertools.count()
        constant = self._tries(contract, lambda: "too red")
        varying = self._tries(contract, lambda: f"too red by {next(numbers)}")

        print(f"tries within 2 s: {constant} with a constant reason, {varying} with a varying one")
        assert constant <= 4
        assert varying > 3 * constant

    @staticmethod
    def _tries(contract: Contract, reason: Any) -> int:
        contract.reset()
        contract.scripts["filter"] = lambda _: ok(
            {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(["n1", "n2", "n3"], reason())}
        )
        contract.create_pod("names")
        time.sleep(2.0)
        return contract.count("filter")


class TestSampling:
    def test_an_extender_is_asked_about_a_sample_of_a_hundred_nodes_only(self, contract: Contract) -> None:
        for number in range(150):
            contract.post("/api/v1/nodes", make_node(f"sample-{number}", sample="yes"))
        try:
            eventually(lambda: self._asked(contract) == 100, what="100 of 150 nodes asked about")
        finally:
            for number in range(150):
                contract.client.delete(path=f"/api/v1/nodes/sample-{number}")

    @staticmethod
    def _asked(contract: Contract) -> int:
        """kube-scheduler sees all the nodes after a moment only."""
        name = contract.create_pod("names", nodeSelector={"sample": "yes"})
        contract.wait_for_node(name)
        return len([args for verb, args in contract.calls if verb == "filter"][-1]["NodeNames"])


class TestBind:
    def test_a_bound_pod_is_bound_by_the_extender_alone(self, contract: Contract) -> None:
        contract.wait_for_node(contract.create_pod("names"))

        assert contract.count("bind") == 1

    def test_a_pod_said_to_be_bound_that_is_not_is_never_tried_again(self, contract: Contract) -> None:
        contract.scripts["bind"] = lambda _: ok({})
        name = contract.create_pod("names")
        eventually(lambda: contract.count("bind") == 1, what="asked to bind")
        contract.annotate(name)
        time.sleep(3.0)

        assert (contract.node_of(name), contract.count("filter"), contract.count("bind")) == ("", 1, 1)

    def test_a_bind_that_is_answered_too_late_after_it_was_done_does_no_harm(self, contract: Contract) -> None:
        def late(args: dict[str, Any]) -> Answer:
            contract.bind(args)
            return Answer(200, stream=[2 * TIMEOUT_SECONDS, b"{}"])

        contract.scripts["bind"] = late
        name = contract.create_pod("names")
        contract.wait_for_node(name)
        time.sleep(3 * TIMEOUT_SECONDS)

        assert (contract.count("filter"), contract.count("bind")) == (1, 1)

    def test_a_bind_that_fails_is_tried_again_from_the_beginning(self, contract: Contract) -> None:
        contract.scripts["bind"] = lambda _: ok({"Error": "not now"})
        name = contract.create_pod("names")
        eventually(lambda: contract.count("bind") == 1, what="asked to bind")
        contract.scripts.clear()

        assert contract.wait_for_node(name)
        assert contract.count("filter") >= 2


class TestPreempt:
    def test_what_the_extender_keeps_is_preempted(self, contract: Contract) -> None:
        victim = self._fill(contract)

        name = self._preemptor(contract)

        assert contract.wait_for_node(name) == "n1"
        assert contract.pod(victim) is None

    def test_an_empty_map_is_a_veto(self, contract: Contract) -> None:
        victim = self._fill(contract)
        contract.scripts["preempt"] = lambda _: ok({"NodeNameToMetaVictims": {}})

        message = contract.wait_for_refusal(self._preemptor(contract))["message"]
        eventually(lambda: contract.count("preempt"), what="asked about the victims")
        assert "0/3 nodes are available" in message
        assert contract.node_of(victim) == "n1"

    def test_a_uid_that_is_not_on_the_node_is_an_error_and_preempts_nobody(self, contract: Contract) -> None:
        victim = self._fill(contract)
        contract.scripts["preempt"] = lambda _: ok({"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "foreign"}]}}})

        self._preemptor(contract)
        eventually(lambda: contract.count("preempt"), what="asked about the victims")
        time.sleep(1.0)
        assert contract.node_of(victim) == "n1"

    @EVERY_MODE
    def test_victims_are_sent_as_the_mode_says(self, contract: Contract, extender: str) -> None:
        self._fill(contract)
        contract.scripts["preempt"] = lambda _: ok({"NodeNameToMetaVictims": {}})
        self._preemptor(contract, extender)
        args = eventually(lambda: next((args for verb, args in contract.calls if verb == "preempt"), None))

        sent, other = ("NodeNameToMetaVictims", "NodeNameToVictims")[:: 1 if extender == "names" else -1]
        assert args[other] is None
        (victim,) = args[sent]["n1"]["Pods"]
        assert ("UID" in victim) == (extender == "names")

    @staticmethod
    def _fill(contract: Contract) -> str:
        """Put a Pod that takes all of n1 there."""
        _make_priority_class(contract)
        return contract.create_pod(nodeName="n1", cpu="8")

    @staticmethod
    def _preemptor(contract: Contract, extender: str = "names") -> str:
        return contract.create_pod(extender, cpu="8", priorityClassName="important", nodeSelector={"place": "n1"})


def _make_priority_class(contract: Contract) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    found = contract.client.get(path=path)
    if b'"important"' not in found:
        contract.post(
            path,
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "important"},
                "value": 1000,
            },
        )
