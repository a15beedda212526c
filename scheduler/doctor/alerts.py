"""Prometheus' alert and recording rules, made from one table. Each alert has a section in docs/howto/on-call.md."""

from typing import Any, Final, Literal

import msgspec
import yaml

_RUNBOOK: Final = "docs/howto/on-call.md"
Severity = Literal["page", "ticket"]


class Alert(msgspec.Struct, frozen=True):
    """A condition that operators have to know about.

    Attributes:
        name: the alert's name.
        expression: PromQL; each series that it returns fires.
        lasts: how long the condition has to hold before the alert fires.
        severity: `page` if Pods aren't placed or Decisions are lost, `ticket` if it can wait until morning.
        summary: one sentence; `{{ $labels.x }}` and `{{ $value }}` are Prometheus' own.
    """

    name: str
    expression: str
    lasts: str
    severity: Severity
    summary: str


# The service levels as recorded series, which dashboards and alerts query.
RECORDS: Final = {
    "berth:call_seconds:p99": "histogram_quantile(0.99, sum by (le, verb) (rate(berth_extender_seconds_bucket[5m])))",
    "berth:calls:answered": (
        'sum(rate(berth_extender_calls_total{outcome="answered"}[5m])) / sum(rate(berth_extender_calls_total[5m]))'
    ),
    # Admin, worker and beat export the same number, because each reads the table.
    "berth:decisions:lost": "max(berth_decisions_lost_total)",
    "berth:publish_to_served_seconds:p99": (
        "histogram_quantile(0.99, sum by (le) (rate(berth_publish_to_served_seconds_bucket[1h])))"
    ),
}

ALERTS: Final = (
    Alert(
        "BerthProcessDown",
        'up{job="berth"} == 0',
        "1m",
        "page",
        "{{ $labels.instance }} doesn't answer; while an extender is down, kube-scheduler can't place the Pods that need it",
    ),
    Alert(
        "BerthNoExtender",
        'absent(berth_process{role="extender"})',
        "1m",
        "page",
        "Prometheus scrapes no extender; without one, kube-scheduler can't place the Pods that need it",
    ),
    Alert(
        "BerthCallsFail",
        'sum by (verb) (rate(berth_extender_calls_total{outcome=~"failed|not_ready"}[5m])) > 0',
        "2m",
        "page",
        "calls of {{ $labels.verb }} fail {{ $value | humanize }} times a second, and their Pods stay Pending",
    ),
    Alert(
        "BerthCallsSlow",
        "berth:call_seconds:p99 > 0.5",
        "5m",
        "page",
        "the p99 of {{ $labels.verb }} is {{ $value | humanizeDuration }}; kube-scheduler gives up after httpTimeout",
    ),
    Alert(
        "BerthAnswersWithoutDeciding",
        "sum by (rule_set, cause, action) (increase(berth_fallbacks_total[5m])) > 0",
        "5m",
        "ticket",
        "rule set {{ $labels.rule_set }} answers “{{ $labels.action }}” without evaluating its rules: {{ $labels.cause }}",
    ),
    Alert(
        "BerthDeadlineMissed",
        "sum by (rule_set) (increase(berth_deadline_misses_total[10m])) > 0",
        "0m",
        "ticket",
        "rule set {{ $labels.rule_set }} missed its deadline {{ $value | humanize }} times",
    ),
    Alert(
        "BerthRevisionsDiffer",
        "max(berth_revision) - min(berth_revision > 0) > 0",
        "2m",
        "page",
        "processes serve different Revisions: the slowest process is {{ $value }} Revisions behind",
    ),
    Alert(
        "BerthPublishIsSlow",
        "berth:publish_to_served_seconds:p99 > 5",
        "10m",
        "ticket",
        "a published Revision is served only after {{ $value | humanizeDuration }}",
    ),
    Alert(
        "BerthWatchSilent",
        "berth_snapshot_age_seconds > 120 or berth_watch_age_seconds > 120",
        "1m",
        "page",
        "{{ $labels.instance }} decides on a Snapshot of the cluster that is {{ $value | humanizeDuration }} old",
    ),
    Alert(
        "BerthWatchRefused",
        'sum by (kind, why) (increase(berth_watch_restarts_total{why=~"refused|broken|unreadable"}[10m])) > 0',
        "5m",
        "ticket",
        "the watch of {{ $labels.kind }} keeps ending: {{ $labels.why }}",
    ),
    Alert(
        "BerthDecisionsLost",
        "increase(berth:decisions:lost[15m]) > 0",
        "0m",
        "page",
        "{{ $value | humanize }} Decisions were lost",
    ),
    Alert(
        "BerthDecisionsMissing",
        "max(berth_decisions_missing) > 0",
        "5m",
        "page",
        "{{ $value | humanize }} Decisions of a process that has ended aren't stored",
    ),
    Alert(
        "BerthDecisionsUnwritten",
        "increase(berth_decisions_unwritten_total[10m]) > 0",
        "0m",
        "page",
        "{{ $labels.instance }} has no room on disk for Decisions",
    ),
    Alert(
        "BerthDecisionsWait",
        "berth_decisions_waiting > 1000 and deriv(berth_decisions_waiting[10m]) > 0",
        "10m",
        "ticket",
        "{{ $value | humanize }} Decisions wait on the disk of {{ $labels.instance }}, and the number grows",
    ),
    Alert(
        "BerthSpoolCorrupt",
        "increase(berth_spool_corrupt_total[15m]) > 0",
        "0m",
        "ticket",
        "records on the disk of {{ $labels.instance }} can't be read; the admin lists them under Dead letters",
    ),
    # Admin, worker and beat export the same number, because each reads the table.
    Alert(
        "BerthDeadLetters",
        "max(delta(berth_dead_letters[15m])) > 0",
        "0m",
        "ticket",
        "records couldn't be stored; the admin lists them under Dead letters",
    ),
    Alert(
        "BerthLedgerRefused",
        "sum by (log) (increase(berth_ledger_refused_total[15m])) > 0",
        "0m",
        "ticket",
        "the ledger of {{ $labels.log }} contradicts its last signed checkpoint and isn't signed any more",
    ),
    Alert(
        "BerthLedgerUnsigned",
        "increase(berth_ledger_unsigned_total[15m]) > 0",
        "0m",
        "ticket",
        "{{ $labels.instance }} can't use the ledger's key: it signs no log, and deletes nothing by its age",
    ),
    Alert(
        "BerthCheckpointsUnpublished",
        "sum by (where) (increase(berth_ledger_unpublished_total[15m])) > 0",
        "0m",
        "ticket",
        "signed checkpoints of the ledger aren't copied out of the database: {{ $labels.where }} fails",
    ),
    # Admin, worker and beat export the same numbers, because each reads the table.
    Alert(
        "BerthWebhookFails",
        "max by (webhook) (berth_webhook_failures) > 0 and max by (webhook) (berth_webhook_oldest_waiting_seconds) > 1800",
        "5m",
        "ticket",
        "webhook {{ $labels.webhook }} failed {{ $value | humanize }} times in a row; its oldest message has waited for half an hour",
    ),
    Alert(
        "BerthCertificateEnds",
        "berth_tls_expires_at_seconds - time() < 14 * 86400",
        "10m",
        "ticket",
        "the {{ $labels.file }} of {{ $labels.instance }} expires in {{ $value | humanizeDuration }}",
    ),
    Alert(
        "BerthCertificateUnusable",
        "increase(berth_tls_reload_failures_total[15m]) > 0",
        "0m",
        "page",
        "{{ $labels.instance }} can't load the changed TLS files and still uses the previous ones",
    ),
    Alert(
        "BerthNobodySchedules",
        # A sum over no series is empty: without a binder's series the first part wouldn't fire.
        "sum(berth_binder_leader) < 1 or absent(berth_binder_leader)",
        "1m",
        "page",
        "no binder holds the Lease: Pods with Berth's schedulerName stay Pending",
    ),
    Alert(
        "BerthTwoSchedule",
        "sum(berth_binder_leader) > 1",
        "1m",
        "page",
        "{{ $value }} binders report that they hold the Lease",
    ),
    Alert(
        "BerthNodeOvercommitted",
        "max(berth_binder_overcommitted_nodes) > 0",
        "5m",
        "ticket",
        "{{ $value }} nodes are overcommitted: two schedulers bind Pods to the same nodes",
    ),
)


def rules() -> dict[str, Any]:
    """Return Prometheus' rule file as a document."""
    records = [{"record": name, "expr": expression} for name, expression in RECORDS.items()]
    alerts = [
        {
            "alert": each.name,
            "expr": each.expression,
            "for": each.lasts,
            "labels": {"severity": each.severity},
            "annotations": {"summary": each.summary, "runbook": f"{_RUNBOOK}#{each.name.lower()}"},
        }
        for each in ALERTS
    ]
    return {"groups": [{"name": "berth-promises", "rules": records}, {"name": "berth", "rules": alerts}]}


def rule_file() -> str:
    """Return the rules as YAML, for Prometheus' `rule_files`."""
    return yaml.safe_dump(rules(), sort_keys=False, width=1000, allow_unicode=True)


def prometheus_rule(namespace: str) -> str:
    """Return the rules as a PrometheusRule of the Prometheus operator."""
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "berth", "namespace": namespace},
        "spec": rules(),
    }
    return yaml.safe_dump(document, sort_keys=False, width=1000, allow_unicode=True)
