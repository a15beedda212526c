"""Tried on `86f7178` and the commit before: rule sets in mode shadow spend nothing of a call's time."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from policies.engine.decision import CompiledRevision
from policies.engine.ruleset import Revision
from tests.builders import make_assignment, make_pod, make_rule_set
from tests.unit.extender.verbs.test_handlers import Setting

NEVER: dict[str, Any] = {"filters": [{"name": "never", "expression": "pod.metadata.name == ''", "reason": "never"}]}
NOT_N3: dict[str, Any] = {
    "filters": [{"name": "not-n3", "expression": "node.metadata.name != 'n3'", "reason": "not here"}],
    "failures": {"deadline": "refuse"},
}


def slowly(decide: Callable[..., Any], *arguments: Any) -> Any:
    time.sleep(0.1)
    return decide(*arguments)


def test_four_slow_shadows_have_no_node_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shadows = [f"s{number}" for number in range(4)]
    revision = CompiledRevision(
        Revision(
            number=7,
            rule_sets=[make_rule_set("real", **NOT_N3), *(make_rule_set(name, **NEVER) for name in shadows)],
            assignments=[
                *(make_assignment(name, name, order=1, mode="shadow") for name in shadows),
                make_assignment("real", "real", order=2),
            ],
        )
    )
    for name in shadows:
        rule = revision.rule_sets[name].filters[0][1]
        monkeypatch.setattr(rule, "filter", partial(slowly, rule.filter))
    setting = Setting(deadline_seconds=0.2)
    setting.questions._revisions.current = revision

    assert setting.filter(make_pod(name="p", uid="uid-p"))["NodeNames"] == ["n1", "n2"]
