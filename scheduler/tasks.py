"""Celery tasks: each makes one call."""

from datetime import UTC, datetime
from uuid import UUID

from celery import shared_task
from celery.utils.log import get_task_logger

from policies.publishing import publish_due
from scheduler.backtest.runs import run_waiting as run_waiting_backtests
from scheduler.broker import celery_app
from scheduler.decisions.ingest import ingest as ingest_decisions
from scheduler.decisions.missing import database_now
from scheduler.decisions.missing import note_missing as note_missing_decisions
from scheduler.decisions.outcomes import find_outcomes as find_open_outcomes
from scheduler.decisions.stream import StreamError
from scheduler.doctor.runs import carry_out
from scheduler.doctor.suspensions import announce
from scheduler.evidence.runs import run_waiting as run_waiting_evidence
from scheduler.evidence.verifications import run_waiting as run_waiting_verifications
from scheduler.gate.runs import run_waiting
from scheduler.history.partitions import make_ahead
from scheduler.history.pruning import prune
from scheduler.history.storage import retention, sample
from scheduler.ledger.checkpoints import sign_checkpoints as sign_ledger
from scheduler.ledger.events import append_events as append_to_ledger
from scheduler.notices.collect import note_acts as make_notices_of_acts
from scheduler.notices.collect import note_conditions as make_notices_of_conditions
from scheduler.notices.pruning import prune_notices
from scheduler.pending.following import follow_pending as follow
from scheduler.priority_classes.reconcile import look_after_priority_classes as look_after
from scheduler.requeue.requeuer import requeue_waiting_pods
from scheduler.webhooks.queue import deliver

# The app of these tasks, also in a process that only sends them.
celery_app()

logger = get_task_logger(__name__)


@shared_task
def ingest() -> None:
    """Move Decisions from Redis to the database."""
    try:
        ingest_decisions()
    except StreamError as error:
        logger.warning("Redis unreachable, the next tick tries again: %s", error)


@shared_task
def find_outcomes() -> None:
    """Find the outcomes of Pods that nobody recorded."""
    find_open_outcomes()


@shared_task
def note_missing() -> None:
    """Record a gap for Decisions whose process ended before they were stored."""
    note_missing_decisions(database_now())


@shared_task
def requeue() -> None:
    """Requeue waiting Pods that a new Revision, time, or labels of their Namespace may let pass."""
    requeue_waiting_pods()


@shared_task
def follow_pending() -> None:
    """Keep the rows of Pods without a node, and what holds them."""
    follow()


@shared_task
def look_after_priority_classes() -> None:
    """Bring the cluster's PriorityClasses in line with the Revision, if a look is due."""
    look_after()


@shared_task
def run_gates() -> None:
    """Run the gate of the Change that has waited longest."""
    run_waiting()


@shared_task
def run_backtests() -> None:
    """Take part in the backtest that has waited longest."""
    run_waiting_backtests()


@shared_task
def run_evidence() -> None:
    """Write the archive of evidence that has waited longest."""
    run_waiting_evidence()


@shared_task
def run_verifications() -> None:
    """Continue the requested verification of the ledger."""
    run_waiting_verifications()


@shared_task
def run_canary(*, number: str) -> None:
    """Carry out the requested canary."""
    carry_out(UUID(number))


@shared_task
def announce_exemptions() -> None:
    """Log which Exemptions end soon."""
    announce(datetime.now(UTC))


@shared_task
def append_events() -> None:
    """Append the AuditEvents that the ledger doesn't have yet."""
    append_to_ledger(datetime.now(UTC))


@shared_task
def sign_checkpoints() -> None:
    """Sign checkpoints of the ledger, and copy them outside the database."""
    sign_ledger(datetime.now(UTC))


@shared_task
def publish_scheduled() -> None:
    """Publish the Changes whose time has come, and take back expired ones."""
    for said in publish_due(now=datetime.now(UTC)):
        logger.info("%s", said)


@shared_task
def make_partitions() -> None:
    """Make the partitions of Decisions for the next weeks."""
    make_ahead(datetime.now(UTC))


@shared_task
def prune_history() -> None:
    """Prune what is older than the settings allow. Of two clocks the earlier one counts, so that a fast clock deletes no history."""
    now = min(datetime.now(UTC), database_now())
    prune_notices(now)
    prune(retention(), now)


@shared_task
def note_acts() -> None:
    """Make the Notices of acts."""
    make_notices_of_acts(datetime.now(UTC))


@shared_task
def note_conditions() -> None:
    """Make the Notices of conditions that began: drift, lost Decisions, diverging shadows, approaching ends."""
    make_notices_of_conditions(datetime.now(UTC))


@shared_task
def deliver_notices() -> None:
    """Send due deliveries to webhooks."""
    deliver()


@shared_task
def sample_storage() -> None:
    """Measure the history's size, once an hour."""
    sample(datetime.now(UTC))
