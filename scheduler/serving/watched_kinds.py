"""Which kinds of objects are watched for the Revision that is served, the one before it, and the one that comes."""

import logging
import math
import threading
import time
from collections.abc import Callable

from policies.engine.decision import CompiledRevision
from scheduler.cluster.live import LiveSnapshot
from scheduler.serving.revisions import PIN_SECONDS

logger = logging.getLogger("berth.revisions")

# How long a Revision waits for the first lists of what its rules read. Then it is served all the same: rules let pass
# what they don't know, and the rest of what was published shouldn't wait for a kind that may be forbidden to Berth.
LISTED_WITHIN_SECONDS = 3.0


class WatchedKinds:
    """Has watched what rules read.

    What only the former Revision reads is watched on while Pods may be pinned to it (see `revisions.Pins`).
    """

    def __init__(self, live: LiveSnapshot, clock: Callable[[], float] = time.monotonic) -> None:
        self._live = live
        self._clock = clock
        self._lock = threading.Lock()
        self._coming: frozenset[str] = frozenset()
        self._former: frozenset[str] = frozenset()
        self._former_until = math.inf

    def prepare(self, revision: CompiledRevision) -> None:
        """Watch what a Revision reads that will be served, and wait a moment until it is listed."""
        with self._lock:
            self._former |= self._coming
            self._coming = revision.reads
            self._former_until = math.inf
            self._live.require(self._former | self._coming)
        missing = self._live.wait_until_listed(revision.reads, LISTED_WITHIN_SECONDS)
        if missing:
            logger.warning("Revision %s reads what isn't listed yet: %s", revision.number, ", ".join(sorted(missing)))

    def served(self) -> None:
        """Note that the Revision that was prepared last is served from now on."""
        with self._lock:
            self._former_until = self._clock() + PIN_SECONDS

    def let_go(self) -> None:
        """Watch no more what nobody needs any more. To be called now and then."""
        with self._lock:
            if self._clock() > self._former_until:
                self._former, self._former_until = frozenset(), math.inf
                self._live.require(self._coming)
