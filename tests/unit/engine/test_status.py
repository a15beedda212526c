"""Verdicts: a code a node, each status once."""

import numpy as np

from policies.engine.status import Code, Status, Verdicts

FULL = Status(Code.UNSCHEDULABLE, "full")
WRONG = Status(Code.UNRESOLVABLE, "wrong")


class TestVerdicts:
    def test_success_lets_all_nodes_pass(self) -> None:
        verdicts = Verdicts.success(3)
        assert [verdicts.at(place) for place in range(3)] == [None, None, None]
        assert verdicts.codes.dtype == np.int32

    def test_refusing_gives_the_refused_nodes_one_status(self) -> None:
        verdicts = Verdicts.refusing(np.array([True, False]), FULL)
        assert [verdicts.at(place) for place in range(2)] == [FULL, None]
        assert verdicts.codes.dtype == np.int32

    def test_listed_keeps_each_status_once(self) -> None:
        verdicts = Verdicts.listed([FULL, None, WRONG, Status(Code.UNSCHEDULABLE, "full")])
        assert verdicts.statuses == [FULL, WRONG]
        assert verdicts.codes.tolist() == [0, -1, 1, 0]

    def test_no_nodes_are_no_verdicts(self) -> None:
        assert Verdicts.listed([]).codes.dtype == np.int32
        assert len(Verdicts.success(0).codes) == 0


def test_codes_are_spelled_as_kube_scheduler_spells_them() -> None:
    assert [code.value for code in Code] == ["Success", "Unschedulable", "UnschedulableAndUnresolvable", "Error"]
