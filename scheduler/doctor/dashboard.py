"""Grafana's dashboard of Berth, made from one table: rows of panels, each with its queries."""

from typing import Any, Final

import msgspec

from policies.manifests import to_json

# Grafana's grid is 24 wide.
_WIDTH, _HEIGHT, _IN_A_ROW = 8, 8, 3


class Panel(msgspec.Struct, frozen=True):
    """A graph.

    Attributes:
        title: the label for people.
        unit: Grafana's name: `s`, `reqps`, `percentunit`, `short`, `bytes`.
        queries: PromQL by legend; `{{label}}` is Grafana's own.
    """

    title: str
    unit: str
    queries: dict[str, str]


ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Service levels": (
        Panel("Time to answer, p99", "s", {"{{verb}}": "berth:call_seconds:p99"}),
        Panel("Calls answered", "percentunit", {"answered": "berth:calls:answered"}),
        Panel("Decisions lost", "short", {"lost": "berth:decisions:lost", "missing": "max(berth_decisions_missing)"}),
    ),
    "kube-scheduler's calls": (
        Panel(
            "Calls", "reqps", {"{{verb}} {{outcome}}": "sum by (verb, outcome) (rate(berth_extender_calls_total[5m]))"}
        ),
        Panel(
            "Time to answer, median",
            "s",
            {"{{verb}}": "histogram_quantile(0.5, sum by (le, verb) (rate(berth_extender_seconds_bucket[5m])))"},
        ),
        Panel(
            "Nodes refused by rule",
            "reqps",
            {"{{rule_set}} {{rule}}": 'sum by (rule_set, rule) (rate(berth_verdicts_total{verdict="refuse"}[5m]))'},
        ),
    ),
    "State that answers are based on": (
        Panel("Revision served", "short", {"{{instance}}": "berth_revision"}),
        Panel("Age of the Snapshot", "s", {"{{instance}}": "berth_snapshot_age_seconds"}),
        Panel("Complete lists read", "reqps", {"{{kind}}": "sum by (kind) (rate(berth_watch_lists_total[5m]))"}),
    ),
    "Berth's own scheduler": (
        Panel("Pods decided on", "reqps", {"{{result}}": "sum by (result) (rate(berth_binder_attempts_total[5m]))"}),
        Panel("Pods in the queue", "short", {"{{state}}": "sum by (state) (berth_binder_queue)"}),
        Panel(
            "Time from queue to binding, p99",
            "s",
            {"p99": "histogram_quantile(0.99, sum by (le) (rate(berth_binder_created_to_bound_seconds_bucket[5m])))"},
        ),
    ),
    "History": (
        Panel("Decisions on disk, not yet shipped", "short", {"{{instance}}": "berth_decisions_waiting"}),
        Panel("Spool", "bytes", {"{{instance}}": "berth_spool_bytes"}),
        Panel("Waiting Pods requeued", "reqps", {"{{cause}}": "max by (cause) (rate(berth_requeues_total[5m]))"}),
    ),
}


def dashboard() -> dict[str, Any]:
    """Return the dashboard for Grafana's import, which asks for the data source."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append({"type": "row", "title": title, "gridPos": {"h": 1, "w": 24, "x": 0, "y": top}, "panels": []})
        for index, panel in enumerate(row):
            panels.append(_graph(panel, x=index % _IN_A_ROW * _WIDTH, y=top + 1))
        top += 1 + _HEIGHT
    for number, each in enumerate(panels, 1):
        each["id"] = number
    return {
        "uid": "berth",
        "title": "Berth",
        "tags": ["kubernetes", "scheduling"],
        "schemaVersion": 39,
        "timezone": "utc",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
        },
        "panels": panels,
    }


def _graph(panel: Panel, *, x: int, y: int) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    targets = [
        {"refId": chr(ord("A") + index), "datasource": source, "expr": query, "legendFormat": legend}
        for index, (legend, query) in enumerate(panel.queries.items())
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }


def dashboard_file() -> str:
    """Return the dashboard as JSON."""
    return to_json(dashboard())
