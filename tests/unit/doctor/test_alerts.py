"""Alerts and the dashboard: made from one table, understood by promtool, each one fires in its fault and is silent without."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.doctor.alerts import ALERTS, RECORDS, prometheus_rule, rule_file
from scheduler.doctor.dashboard import ROWS, dashboard, dashboard_file

ROOT = Path(__file__).resolve().parents[3]
PROMTOOL = shutil.which("promtool")

# All is well: every series that an alert asks about, for an hour.
EXTENDER, BINDER = 'job="berth", instance="extender"', 'job="berth", instance="binder"'
WELL = {
    f"up{{{EXTENDER}}}": "1x60",
    f'berth_process{{{EXTENDER}, role="extender"}}': "1x60",
    f'berth_process{{{BINDER}, role="binder"}}': "1x60",
    f'berth_extender_calls_total{{{EXTENDER}, verb="filter", outcome="answered"}}': "0+600x60",
    f'berth_extender_calls_total{{{EXTENDER}, verb="filter", outcome="failed"}}': "0x60",
    f'berth_extender_seconds_bucket{{{EXTENDER}, verb="filter", le="0.01"}}': "0+600x60",
    f'berth_extender_seconds_bucket{{{EXTENDER}, verb="filter", le="2"}}': "0+600x60",
    f'berth_extender_seconds_bucket{{{EXTENDER}, verb="filter", le="+Inf"}}': "0+600x60",
    f'berth_fallbacks_total{{{EXTENDER}, rule_set="a", cause="redis", action="pass"}}': "5x60",
    f'berth_deadline_misses_total{{{EXTENDER}, rule_set="a"}}': "5x60",
    f"berth_revision{{{EXTENDER}}}": "7x60",
    f"berth_revision{{{BINDER}}}": "7x60",
    # A process that has no cluster to schedule serves none.
    'berth_revision{job="berth", instance="worker"}': "0x60",
    f'berth_publish_to_served_seconds_bucket{{{EXTENDER}, le="1"}}': "0+1x60",
    f'berth_publish_to_served_seconds_bucket{{{EXTENDER}, le="10"}}': "0+1x60",
    f'berth_publish_to_served_seconds_bucket{{{EXTENDER}, le="+Inf"}}': "0+1x60",
    f"berth_snapshot_age_seconds{{{EXTENDER}}}": "80x60",
    f'berth_watch_age_seconds{{{EXTENDER}, kind="pods"}}': "80x60",
    f'berth_watch_restarts_total{{{EXTENDER}, kind="pods", why="ended"}}': "0+1x60",
    f'berth_watch_restarts_total{{{EXTENDER}, kind="pods", why="refused"}}': "1x60",
    'berth_decisions_lost_total{instance="worker"}': "7x60",
    'berth_decisions_missing{instance="worker"}': "0x60",
    f"berth_decisions_unwritten_total{{{EXTENDER}}}": "3x60",
    f"berth_decisions_waiting{{{EXTENDER}}}": "20000-100x60",
    f"berth_spool_corrupt_total{{{EXTENDER}}}": "1x60",
    'berth_dead_letters{instance="worker"}': "3x60",
    f'berth_tls_expires_at_seconds{{{EXTENDER}, file="certificate"}}': "5000000x60",
    f"berth_tls_reload_failures_total{{{EXTENDER}}}": "1x60",
    'berth_ledger_refused_total{instance="worker", log="events"}': "1x60",
    'berth_ledger_unsigned_total{instance="worker"}': "1x60",
    'berth_ledger_unpublished_total{instance="worker", where="file"}': "1x60",
    # It failed once, and what waits isn't old; another is slow, and doesn't fail.
    'berth_webhook_failures{instance="worker", webhook="ci"}': "1x60",
    'berth_webhook_oldest_waiting_seconds{instance="worker", webhook="ci"}': "60x60",
    'berth_webhook_failures{instance="worker", webhook="slow"}': "0x60",
    'berth_webhook_oldest_waiting_seconds{instance="worker", webhook="slow"}': "0+60x60",
    f"berth_binder_leader{{{BINDER}}}": "1x60",
    'berth_binder_leader{job="berth", instance="other"}': "0x60",
    f"berth_binder_overcommitted_nodes{{{BINDER}}}": "0x60",
}
# What each fault makes of them.
FAULTS: dict[str, dict[str, str]] = {
    "BerthProcessDown": {f"up{{{EXTENDER}}}": "0x60"},
    "BerthNoExtender": {f'berth_process{{{EXTENDER}, role="extender"}}': "_x60"},
    "BerthCallsFail": {f'berth_extender_calls_total{{{EXTENDER}, verb="filter", outcome="failed"}}': "0+1x60"},
    "BerthCallsSlow": {f'berth_extender_seconds_bucket{{{EXTENDER}, verb="filter", le="0.01"}}': "0+500x60"},
    "BerthAnswersWithoutDeciding": {
        f'berth_fallbacks_total{{{EXTENDER}, rule_set="a", cause="redis", action="pass"}}': "0+1x60"
    },
    "BerthDeadlineMissed": {f'berth_deadline_misses_total{{{EXTENDER}, rule_set="a"}}': "0+1x60"},
    "BerthRevisionsDiffer": {f"berth_revision{{{BINDER}}}": "6x60"},
    "BerthPublishIsSlow": {f'berth_publish_to_served_seconds_bucket{{{EXTENDER}, le="1"}}': "0x60"},
    "BerthWatchSilent": {f"berth_snapshot_age_seconds{{{EXTENDER}}}": "0+60x60"},
    "BerthWatchRefused": {f'berth_watch_restarts_total{{{EXTENDER}, kind="pods", why="refused"}}': "0+1x60"},
    "BerthDecisionsLost": {'berth_decisions_lost_total{instance="worker"}': "0+1x60"},
    "BerthDecisionsMissing": {'berth_decisions_missing{instance="worker"}': "3x60"},
    "BerthDecisionsUnwritten": {f"berth_decisions_unwritten_total{{{EXTENDER}}}": "0+1x60"},
    "BerthDecisionsWait": {f"berth_decisions_waiting{{{EXTENDER}}}": "0+100x60"},
    "BerthSpoolCorrupt": {f"berth_spool_corrupt_total{{{EXTENDER}}}": "0+1x60"},
    "BerthDeadLetters": {'berth_dead_letters{instance="worker"}': "0+1x60"},
    "BerthLedgerRefused": {'berth_ledger_refused_total{instance="worker", log="events"}': "0+1x60"},
    "BerthLedgerUnsigned": {'berth_ledger_unsigned_total{instance="worker"}': "0+1x60"},
    "BerthCheckpointsUnpublished": {'berth_ledger_unpublished_total{instance="worker", where="file"}': "0+1x60"},
    "BerthWebhookFails": {'berth_webhook_oldest_waiting_seconds{instance="worker", webhook="ci"}': "0+60x60"},
    "BerthCertificateEnds": {f'berth_tls_expires_at_seconds{{{EXTENDER}, file="certificate"}}': "900000x60"},
    "BerthCertificateUnusable": {f"berth_tls_reload_failures_total{{{EXTENDER}}}": "0+1x60"},
    "BerthNobodySchedules": {f"berth_binder_leader{{{BINDER}}}": "0x60"},
    "BerthTwoSchedule": {'berth_binder_leader{job="berth", instance="other"}': "1x60"},
    "BerthNodeOvercommitted": {f"berth_binder_overcommitted_nodes{{{BINDER}}}": "2x60"},
}


def promtool(*arguments: str) -> None:
    assert PROMTOOL, "no promtool: install it (apt-get install prometheus)"
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("deploy/prometheus/rules.yaml", rule_file()),
        ("deploy/kubernetes/components/prometheus-operator/rules.yaml", prometheus_rule("berth")),
        ("deploy/grafana/berth.json", dashboard_file() + "\n"),
    ],
    ids=["rules", "PrometheusRule", "dashboard"],
)
def test_files_are_what_doctor_prints(path: str, text: str) -> None:
    assert (ROOT / path).read_text() == text


def test_promtool_takes_the_rules_and_the_configuration() -> None:
    promtool("check", "rules", str(ROOT / "deploy/prometheus/rules.yaml"))
    promtool("check", "config", str(ROOT / "deploy/prometheus/prometheus.yaml"))


def test_every_alert_has_a_fault_here_and_a_section_in_the_runbook() -> None:
    names = [alert.name for alert in ALERTS]
    assert list(FAULTS) == names
    headings = re.findall(r"^### (Berth\w+)$", (ROOT / "docs/howto/on-call.md").read_text(), re.MULTILINE)
    assert headings == names


def test_each_alert_rings_in_its_fault_alone_and_none_while_all_is_well(tmp_path: Path) -> None:
    """promtool plays an hour of each fault."""
    cases = [_case({}, ""), *(_case(changed, name) for name, changed in FAULTS.items())]
    # Prometheus reads no binder at all.
    cases.append(
        _case(dict.fromkeys((name for name in WELL if "binder_leader" in name), "_x60"), "BerthNobodySchedules")
    )
    document = {"rule_files": [str(ROOT / "deploy/prometheus/rules.yaml")], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document))
    promtool("test", "rules", str(tmp_path / "tests.yaml"))


def _case(changed: dict[str, str], firing: str) -> dict[str, Any]:
    series = [{"series": name, "values": values} for name, values in {**WELL, **changed}.items()]
    asked = "count by (alertname) (ALERTS{alertstate='firing'})"
    samples = [{"labels": f"{{alertname={firing!r}}}".replace("'", '"'), "value": 1}] if firing else []
    return {
        "name": firing or "all is well",
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [{"expr": asked, "eval_time": "45m", "exp_samples": samples}],
    }


def test_the_dashboard_asks_for_series_that_there_are() -> None:
    asked = " ".join(query for row in ROWS.values() for panel in row for query in panel.queries.values())
    assert set(re.findall(r"\bberth:[a-z0-9:_]+", asked)) <= set(RECORDS)
    panels = [panel for panel in dashboard()["panels"] if panel["type"] == "timeseries"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(places) == len(set(places))
    assert json.loads(dashboard_file())["uid"] == "berth"
