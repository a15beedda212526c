"""Binds Pods whose rules count Pods: under the lock that /bind holds, after counting once more.

kube-scheduler and Berth's own scheduler see each other's Pods only after the watch's lag. Without the lock both could give away the last
place of a limit, such as a licence. See `scheduler.cluster.handover` for what the holder leaves to the next one.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from scheduler.binder.cycle import Placement
from scheduler.cluster.bind import Outcome, Target, bind, look_up
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError
from scheduler.cluster.handover import CALL_TIMEOUT_SECONDS, LOCK_WAIT_SECONDS, leave_version, sees_former_pods
from scheduler.cluster.lease_lock import Held, LeaseLock, LockBusyError
from scheduler.cluster.live import LiveSnapshot
from scheduler.trouble import Trouble

logger = logging.getLogger("berth.binding")


class Recount(StrEnum):
    """Why a Pod wasn't bound, though its binding was never sent.

    BUSY: the lock couldn't be acquired, or this process no longer leads. BEHIND: the Pods that the former holder bound aren't seen
    yet. NO_LONGER: counted once more, a rule refuses the node.
    """

    BUSY = "busy"
    BEHIND = "behind"
    NO_LONGER = "no_longer"


MESSAGES = {
    Recount.BUSY: "Berth could not get the lock for rules that count Pods, and tries again",
    Recount.BEHIND: "Berth has not seen the Pods that were bound last, and tries again",
    Recount.NO_LONGER: "a rule that counts Pods no longer allows the node; Berth tries again",
}


def counting_rules(placement: Placement) -> CompiledRuleSet | None:
    """Return the enforced filters by which a Pod was placed that count Pods; None where none does."""
    enforced = placement.enforced
    if enforced is None or not enforced.rule_set.counts_pods:
        return None
    counting = enforced.rule_set.only_counting()
    return counting if counting.filters else None


class CountedBindings:
    """Binds one Pod at a time in each process and, by the lock, among all processes that bind Pods by rules that count."""

    def __init__(self, *, client: Client, live: LiveSnapshot, lock: LeaseLock, leads: Callable[[], bool]) -> None:
        self._client = client
        self._live = live
        self._lock = lock
        self._leads = leads
        # Logged once, not for each Pod that waits.
        self._trouble = Trouble()

    def bind(self, pod: Pod, target: Target, counting: CompiledRuleSet, *, may_be_done: bool) -> Outcome | Recount:
        """Bind a Pod that is assumed on the target's node, or return why not.

        Args:
            pod: the Pod.
            target: what to bind.
            counting: the rules that count Pods, as by `counting_rules`.
            may_be_done: whether the binding was sent before, and its outcome isn't known.
        """
        try:
            with self._lock.hold(LOCK_WAIT_SECONDS) as held:
                found = self._bind_held(pod, target, counting, held, may_be_done=may_be_done)
        except (LockBusyError, APIError) as error:
            # One text for both: who has the lock changes from Pod to Pod, and each change would be logged.
            if self._trouble.is_news("busy" if isinstance(error, LockBusyError) else str(error)):
                logger.warning("the lock for rules that count Pods can't be acquired: %s", error)
            found = Recount.BUSY
        else:
            self._trouble.end()
        # A binding that may be done is sent again, to the same node.
        return Outcome.UNKNOWN if may_be_done and found in {Recount.BUSY, Recount.BEHIND} else found

    def _bind_held(
        self, pod: Pod, target: Target, counting: CompiledRuleSet, held: Held, *, may_be_done: bool
    ) -> Outcome | Recount:
        if may_be_done:
            outcome = look_up(self._client, target, timeout_seconds=CALL_TIMEOUT_SECONDS)
            if outcome is Outcome.BOUND:
                leave_version(self._client, target, held)
            if outcome is not Outcome.UNKNOWN:
                return outcome
        if not sees_former_pods(self._client, self._live, held):
            return Recount.BEHIND
        if not _still_passes(pod, target.node_name, counting, self._live.snapshot()):
            return Recount.NO_LONGER
        if not (self._lock.is_valid(held) and self._leads()):
            return Recount.BUSY
        outcome = bind(self._client, target, timeout_seconds=CALL_TIMEOUT_SECONDS)
        if outcome is Outcome.BOUND:
            leave_version(self._client, target, held)
        return outcome


def _still_passes(pod: Pod, node_name: str, counting: CompiledRuleSet, snapshot: Snapshot) -> bool:
    """Return whether the rules allow a Pod's node, with all other Pods that are there or being bound, and without itself."""
    info = snapshot.node(node_name)
    if info is None:
        return False
    others = [each for each in info.pods if each.uid != pod.uid]
    alone = snapshot.branched({node_name: NodeInfo(info.node, others)})
    cycle = Cycle(pod=pod, snapshot=alone, now=datetime.now(UTC), params=counting.params)
    return bool(decide(counting, cycle, alone.table.rows([node_name]), scoring=False).feasible_count)
