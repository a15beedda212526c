"""Which kinds of objects are watched for the current, the previous and the next Revision."""

import logging
import math
import threading
import time
from collections.abc import Callable

from policies.engine.decision import CompiledRevision
from scheduler.cluster.live import LiveSnapshot
from scheduler.serving.revisions import PIN_SECONDS

logger = logging.getLogger("berth.revisions")

# How long a Revision waits for the first lists of the kinds its rules read. Then it is served anyway: rules let nodes pass
# if data is unknown, and the rest of the Revision shouldn't wait for a kind that RBAC may forbid.
LISTED_WITHIN_SECONDS = 3.0


class WatchedKinds:
    """Watches the kinds that rules read.

    Kinds that only the previous Revision reads stay watched while Pods may be pinned to it (see `revisions.Pins`).
    """

    def __init__(self, live: LiveSnapshot, clock: Callable[[], float] = time.monotonic) -> None:
        self._live = live
        self._clock = clock
        self._lock = threading.Lock()
        self._coming: frozenset[str] = frozenset()
        self._former: frozenset[str] = frozenset()
        self._former_until = math.inf

    def prepare(self, revision: CompiledRevision) -> None:
        """Watch the kinds that the next Revision reads, and wait a moment until they are listed."""
        with self._lock:
            self._former |= self._coming
            self._coming = revision.reads
            self._former_until = math.inf
            self._live.require(self._former | self._coming)
        missing = self._live.wait_until_listed(revision.reads, LISTED_WITHIN_SECONDS)
        if missing:
            logger.warning(
                "Revision %s reads kinds that aren't listed yet: %s", revision.number, ", ".join(sorted(missing))
            )

    def served(self) -> None:
        """Note that the last prepared Revision is served from now on."""
        with self._lock:
            self._former_until = self._clock() + PIN_SECONDS

    def let_go(self) -> None:
        """Stop watching kinds that are no longer needed. Call this now and then."""
        with self._lock:
            if self._clock() > self._former_until:
                self._former, self._former_until = frozenset(), math.inf
                self._live.require(self._coming)
