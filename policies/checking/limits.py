"""The limits for checking documents."""

# CPU time. The largest document that is accepted (100 rules with expressions, tests) takes a tenth of it.
CPU_SECONDS = 5
# In addition to the memory that the process needs without any document.
MEMORY_BYTES = 512 * 2**20
# Longer than any check on a busy machine; after this time the process is killed.
WALL_SECONDS = 30
# The checking processes of one calling process; further checks wait for them this long.
PROCESSES = 2
WAIT_SECONDS = 15
# For a call with many documents: how many, and of how many bytes, are sent at once; when other calls get a turn.
BATCH_DOCUMENTS = 200
BATCH_BYTES = 2**20
TURN_SECONDS = 2
# The time for the documents of one request to the admin together, whose threads are few: a check that has begun then is finished.
REQUEST_SECONDS = 60
# A request that goes on for longer than the first is one of the long ones. So many of them have their documents checked at once: each
# occupies one of the admin's eight threads, and the other half is kept for requests that take moments, such as probes.
LONG_SECONDS, LONG_AT_ONCE = 5, 4
# A process that is idle for this long ends, which frees its memory.
IDLE_SECONDS = 300

TOO_MUCH = (
    f"checking took more than it may, {CPU_SECONDS} s of one core and {MEMORY_BYTES >> 20} MiB: make the document smaller, "
    "or its tests fewer or cheaper"
)
MORE_FAULTS = "{:,} more faults are left out here: correct these first"
TOO_DEEP = "lists and objects are nested too deeply inside each other"
BUSY = f"{PROCESSES} other documents were being checked for {WAIT_SECONDS} s: try again"
CROWDED = (
    f"not checked: {LONG_AT_ONCE} other requests with documents that take longer than {LONG_SECONDS} s are under way; "
    "try again later, or send fewer documents at once"
)
TOO_LONG = f"not checked: checking what came before took {REQUEST_SECONDS} s, the most for one request; send fewer documents at once"
