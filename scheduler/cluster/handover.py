"""What a holder of the lock for rules that count Pods leaves to the next one: the version of the Pod that it bound last.

The next holder, in whichever process, waits until its own watch has reached that version. So it counts every Pod that was bound
under the lock.
"""

from scheduler.cluster.bind import Target, bound_version, version_if_possible
from scheduler.cluster.client import Client
from scheduler.cluster.lease_lock import Held
from scheduler.cluster.live import LiveSnapshot
from scheduler.cluster.versions import later

LOCK_WAIT_SECONDS = 1.2
# For each API call while a Pod is bound.
CALL_TIMEOUT_SECONDS = 1.0


def sees_former_pods(client: Client, live: LiveSnapshot, held: Held) -> bool:
    """Wait until the watch has shown the Pods that were bound under the lock before; return whether it has."""
    if not held.note or live.wait_for_pods_version(held.note, LOCK_WAIT_SECONDS / 2):
        return True
    held.note = version_if_possible(client, held.note, timeout_seconds=CALL_TIMEOUT_SECONDS)
    return not held.note


def leave_version(client: Client, target: Target, held: Held) -> None:
    """Let the next holder wait for the Pod that was just bound, and for those that were bound before."""
    held.note = later(held.note, bound_version(client, target, timeout_seconds=CALL_TIMEOUT_SECONDS))
