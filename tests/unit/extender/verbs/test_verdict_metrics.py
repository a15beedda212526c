"""Verdicts as Prometheus sees them."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry

from policies.engine.decision import Answer, CompiledRevision, CompiledRuleSet, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import Revision
from scheduler.extender.verbs.verdict_metrics import Verdicts
from tests.builders import make_assignment, make_node, make_pod, make_rule_set

RULES = CompiledRuleSet(
    make_rule_set(
        "web",
        filters=[
            {"builtin": "CheckNodeUnschedulable"},
            {"name": "big", "expression": "node.metadata.labels.size == 'big'", "reason": "too small"},
            {"name": "looking", "mode": "shadow", "expression": "node.metadata.name != 'n1'", "reason": "not n1"},
        ],
    )
)


def answered(rules: CompiledRuleSet = RULES) -> Answer:
    """Four nodes: one is cordoned, one is small, one has no size at all, one passes."""
    nodes = [
        make_node("n0", unschedulable=True),
        make_node("n1", labels={"size": "big"}),
        make_node("n2", labels={"size": "small"}),
        make_node("n3"),
    ]
    snapshot = Snapshot.of(map(Node.from_json, nodes))
    cycle = Cycle(pod=Pod.from_json(make_pod()), snapshot=snapshot, now=datetime(2026, 1, 1, tzinfo=UTC))
    return decide(rules, cycle, snapshot.table.all_rows())


def counts(verdicts: Verdicts) -> dict[tuple[str, str], float]:
    registry = CollectorRegistry()
    registry.register(verdicts)
    return {
        (sample.labels["rule"], sample.labels["verdict"]): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "berth_verdicts_total" and sample.labels["rule_set"] == "web"
    }


class TestVerdicts:
    def test_each_rule_counts_the_nodes_that_it_was_asked_about(self) -> None:
        verdicts = Verdicts()
        verdicts.count(RULES, answered())
        assert counts(verdicts) == {
            ("CheckNodeUnschedulable", "pass"): 3,
            ("CheckNodeUnschedulable", "refuse"): 1,
            ("CheckNodeUnschedulable", "fault"): 0,
            ("big", "pass"): 1,
            ("big", "refuse"): 2,
            ("big", "fault"): 1,
            ("looking", "pass"): 0,
            ("looking", "refuse"): 1,
            ("looking", "fault"): 0,
        }

    def test_rules_that_refuse_nobody_count_the_nodes_that_are_left(self) -> None:
        filters = [
            {"builtin": "PodFitsHost"},
            {"builtin": "CheckNodeUnschedulable"},
            {"builtin": "NoDiskConflict"},
            {"name": "looking", "mode": "shadow", "expression": "node.metadata.name != 'n1'", "reason": "not n1"},
            {"builtin": "PodFitsHostPorts"},
        ]
        verdicts = Verdicts()
        verdicts.count(RULES, answered(CompiledRuleSet(make_rule_set("web", filters=filters))))
        assert {key: number for key, number in counts(verdicts).items() if number} == {
            ("PodFitsHost", "pass"): 4,
            ("CheckNodeUnschedulable", "pass"): 3,
            ("CheckNodeUnschedulable", "refuse"): 1,
            ("NoDiskConflict", "pass"): 3,
            ("looking", "pass"): 2,
            ("looking", "refuse"): 1,
            ("PodFitsHostPorts", "pass"): 3,
        }

    def test_threads_lose_no_count(self) -> None:
        verdicts, answer = Verdicts(), answered()
        with ThreadPoolExecutor(8) as pool:
            for _ in range(400):
                pool.submit(verdicts.count, RULES, answer)
        assert counts(verdicts)["CheckNodeUnschedulable", "pass"] == 1200

    def test_a_rule_that_is_no_longer_published_is_dropped(self) -> None:
        verdicts = Verdicts()
        verdicts.count(RULES, answered())
        kept = make_rule_set("web", filters=[{"builtin": "CheckNodeUnschedulable"}])
        revision = Revision(number=2, rule_sets=[kept], assignments=[make_assignment()])
        verdicts.forget_others(CompiledRevision(revision))
        assert {rule for rule, _ in counts(verdicts)} == {"CheckNodeUnschedulable"}

    def test_a_shadow_of_the_revision_before_does_not_bring_back_a_rule_that_is_no_longer_published(self) -> None:
        verdicts = Verdicts()
        kept = make_rule_set("web", filters=[{"builtin": "CheckNodeUnschedulable"}])
        verdicts.forget_others(CompiledRevision(Revision(number=2, rule_sets=[kept], assignments=[make_assignment()])))
        verdicts.count(RULES, answered())
        assert {rule for rule, _ in counts(verdicts)} == {"CheckNodeUnschedulable"}
