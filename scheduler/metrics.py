"""What Berth counts and measures for Prometheus. Label values come from small fixed sets or from published names."""

from prometheus_client import Counter, Gauge, Histogram

CALLS = Counter("berth_extender_calls", "Calls of kube-scheduler", ["verb", "outcome"])
SECONDS = Histogram(
    "berth_extender_seconds",
    "Time to answer a call",
    ["verb"],
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)
NODES_REFUSED = Counter("berth_nodes_refused", "Nodes refused", ["rule_set", "rule"])
REVISION = Gauge("berth_revision", "Number of the Revision that is served")
SNAPSHOT_AGE = Gauge("berth_snapshot_age_seconds", "Age of the live Snapshot")
UNSETTLED = Counter("berth_inflight_unsettled", "Times that a Pod in flight was not seen settled in time")
DECISIONS_WAITING = Gauge("berth_decisions_waiting", "Records that wait on disk to be shipped")
DECISIONS_LOST = Counter("berth_decisions_lost", "Decisions that were answered and are not in the history")
SPOOL_BYTES = Gauge("berth_spool_bytes", "What the spool takes up on disk")
SPOOL_TORN = Counter("berth_spool_torn", "Times that records on disk could not be read")
