"""docs/operations.md has each metric that a process counts, with its type and labels."""

import re

from prometheus_client.metrics import MetricWrapperBase

from scheduler import metrics
from tests.architecture.tracked import ROOT

_ROW = re.compile(r"^\| `(berth_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)


def test_each_metric_of_a_process_is_in_the_tables_of_operations() -> None:
    rows = _ROW.findall((ROOT / "docs" / "operations.md").read_text())
    said = {name: (kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in rows}
    there = {
        each._name + ("_total" if each._type == "counter" else ""): (each._type, list(each._labelnames))
        for each in vars(metrics).values()
        if isinstance(each, MetricWrapperBase)
    }

    assert "berth_revision" in there
    assert {name: what for name, what in there.items() if said.get(name) != what} == {}
