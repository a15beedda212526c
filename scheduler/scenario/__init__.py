"""Scenarios: where Pods of a template would land, by the live rules and by those of a Change, side by side."""

from scheduler.scenario.cluster import live_snapshot, pod_of_cluster, recorded_snapshot, template_of_deployment
from scheduler.scenario.errors import ClusterAwayError, ScenarioError
from scheduler.scenario.placing import MOST_PODS, NOT_MODELLED, SECONDS, Rules, Scenario, rules_of, work_out
from scheduler.scenario.template import Template, template_of

__all__ = [
    "MOST_PODS",
    "NOT_MODELLED",
    "SECONDS",
    "ClusterAwayError",
    "Rules",
    "Scenario",
    "ScenarioError",
    "Template",
    "live_snapshot",
    "pod_of_cluster",
    "recorded_snapshot",
    "rules_of",
    "template_of",
    "template_of_deployment",
    "work_out",
]
