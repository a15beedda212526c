"""Berth's metrics for Prometheus. Label values come from small fixed sets or from published names."""

from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram

# For log lines about metrics that need the database, while it is away: each request of /metrics would leave some, and
# `controlplane.logs` limits lines with this outcome, as those of calls that can't be answered.
WITHOUT_DATABASE = {"outcome": "not_ready"}

CALLS = Counter("berth_extender_calls", "Calls of kube-scheduler", ["verb", "outcome"])
SECONDS = Histogram(
    "berth_extender_seconds",
    "Time to answer a call",
    ["verb"],
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)
LAST_CALL = Gauge("berth_last_call_timestamp_seconds", "When a caller used a verb last", ["caller", "verb"])
PROCESS = Gauge("berth_process", "1; the label has the role of this process", ["role"])
REVISION = Gauge("berth_revision", "Number of the Revision that this process serves")
PUBLISH_TO_SERVED = Histogram(
    "berth_publish_to_served_seconds",
    "Time from publishing a Revision until this process serves it",
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60),
)
SNAPSHOT_AGE = Gauge("berth_snapshot_age_seconds", "Age of the live Snapshot")
WATCH_AGE = Gauge("berth_watch_age_seconds", "Time since a watch last received anything; -1 before that", ["kind"])
WATCH_LISTS = Counter("berth_watch_lists", "Complete lists read", ["kind"])
WATCH_RESTARTS = Counter("berth_watch_restarts", "Times that a watch ended or a request of it failed", ["kind", "why"])
WATCH_LAG = Histogram(
    "berth_watch_lag_seconds",
    "Time from an event's arrival until the next Snapshot shows it",
    ["kind"],
    buckets=(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5),
)
UNSETTLED = Counter("berth_inflight_unsettled", "Times that a Pod in flight was not seen settled in time")
IN_FLIGHT_FORGOTTEN = Counter(
    "berth_inflight_forgotten", "Pods in flight that were dropped early, because the memory limit was reached"
)
BINDINGS = Counter("berth_bindings", "Bindings by /bind, by outcome", ["outcome"])
FALLBACKS = Counter(
    "berth_fallbacks",
    "Calls that a rule set answered without evaluating its rules, as its `failures` say",
    ["rule_set", "cause", "action"],
)
SHADOW_DECISIONS = Counter(
    "berth_shadow_decisions", "Decisions of rule sets in mode shadow, by result", ["rule_set", "result"]
)
SHADOW_DIVERGENCES = Counter(
    "berth_shadow_divergences",
    "Decisions of rule sets in mode shadow, by their difference from the answer; open: it depends on the Pod's node",
    ["assignment", "rule_set", "divergence"],
)
SHADOW_SECONDS = Counter("berth_shadow_seconds", "CPU seconds spent on rule sets in mode shadow", ["rule_set"])
DEADLINE_MISSES = Counter("berth_deadline_misses", "Decisions that were not finished in time", ["rule_set"])
TOO_LARGE = Counter(
    "berth_too_large",
    "Decisions in which a Pod or node was larger than the cost estimates of rules assume",
    ["rule_set"],
)
TLS_EXPIRES_AT = Gauge("berth_tls_expires_at_seconds", "When the first certificate of a file in use expires", ["file"])
TLS_RELOAD_FAILURES = Counter("berth_tls_reload_failures", "Changed TLS files that could not be used")
CONNECTIONS_REFUSED = Counter(
    "berth_extender_connections_refused", "Connections closed by this process's server", ["reason"]
)
DECISIONS_WAITING = Gauge("berth_decisions_waiting", "Records that wait on disk to be shipped")
DECISIONS_UNWRITTEN = Counter(
    "berth_decisions_unwritten", "Decisions that were answered, but not written because the disk had no room"
)
OUTCOMES_UNWRITTEN = Counter(
    "berth_outcomes_unwritten",
    "Outcomes of Pods that were not written at once because the disk had no room; they are written later",
)
SPOOL_BYTES = Gauge("berth_spool_bytes", "Bytes of the spool on disk")
LEDGER_SIGNED_AT = Gauge("berth_ledger_signed_timestamp_seconds", "When a log of the ledger was last signed", ["log"])
LEDGER_REFUSED = Counter(
    "berth_ledger_refused",
    "Times that a log was not signed, because it contradicts its last signed checkpoint",
    ["log"],
)
LEDGER_UNSIGNED = Counter("berth_ledger_unsigned", "Times that no log was signed, because the key could not be used")
LEDGER_UNPUBLISHED = Counter(
    "berth_ledger_unpublished", "Checkpoints that could not be written outside the database", ["where"]
)
WEBHOOK_ATTEMPTS = Counter(
    "berth_webhook_attempts", "Deliveries attempted to a webhook, by outcome", ["webhook", "outcome"]
)
SPOOL_LOST = Counter(
    "berth_spool_lost", "Times that the spool's folder was deleted while the process ran, and created again"
)
SPOOL_CORRUPT = Counter("berth_spool_corrupt", "Times that records on disk could not be read")
BINDER_ATTEMPTS = Counter("berth_binder_attempts", "Scheduling cycles of Berth's own scheduler, by result", ["result"])
BINDER_BINDINGS = Counter("berth_binder_bindings", "Bindings of Berth's own scheduler, by outcome", ["outcome"])
BINDER_SECONDS = Histogram(
    "berth_binder_created_to_bound_seconds",
    "Time from a Pod's arrival in the queue until the API server confirmed its binding",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300),
)
BINDER_CYCLE_SECONDS = Histogram(
    "berth_binder_cycle_seconds",
    "Time to decide on one Pod",
    buckets=(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1),
)
BINDER_PREEMPTIONS = Counter("berth_binder_preemptions", "Preemptions by Berth's own scheduler, by result", ["result"])
BINDER_VICTIMS = Counter("berth_binder_victims", "Victims that Berth's own scheduler chose to preempt")
BINDER_QUEUE = Gauge("berth_binder_queue", "Pods in the queue of Berth's own scheduler, by state", ["state"])
BINDER_LEADER = Gauge("berth_binder_leader", "Whether this process holds the Lease of Berth's own scheduler")
BINDER_OVERCOMMITS = Counter("berth_binder_overcommits", "Times that a node was found overcommitted")
BINDER_OVERCOMMITTED = Gauge("berth_binder_overcommitted_nodes", "Overcommitted nodes: those with more Pods than room")
BINDER_EVENTS_DROPPED = Counter(
    "berth_binder_events_dropped", "Events about Pods that were dropped, or refused by the API server"
)


def show_misses_of(rule_sets: Iterable[str]) -> None:
    """Export the misses of rule sets from 0 on: Prometheus sees no increase in a counter that begins above 0, and an alert needs it."""
    for name in rule_sets:
        DEADLINE_MISSES.labels(name)
