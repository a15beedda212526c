"""How many connections a process has file descriptors for, besides those that its other work needs."""

import logging
import resource

logger = logging.getLogger("berth.server")

# For the watches, calls of the API server, the database, Redis, the spool: connections that took these would stop all other work.
FOR_OTHERS = 160
# Of a limit that is smaller than that, connections may take one in this many.
_SHARE_OF_FEW = 4


def connections_within(wanted: int) -> int:
    """Return how many of the wanted connections a process may hold. Its limit of descriptors is raised as far as that needs and it may."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + FOR_OTHERS
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return wanted
    limit = needed if most == resource.RLIM_INFINITY else min(needed, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
    found = min(wanted, max(limit - FOR_OTHERS, limit // _SHARE_OF_FEW))
    if found < wanted:
        logger.warning("%d connections at most: this process may open only %d files; allow it %d", found, limit, needed)
    return found
