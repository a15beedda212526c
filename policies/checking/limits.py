"""What checking one document may take."""

# Of one core. The largest document that is accepted (100 rules of expressions, tests) takes a tenth of it.
CPU_SECONDS = 5
# Beside what the process needs without any document.
MEMORY_BYTES = 512 * 2**20
# Longer than any check on a machine that is busy: then the process is ended from outside.
WALL_SECONDS = 30
# Processes of one process that asks; further checks wait for them this long.
PROCESSES = 2
WAIT_SECONDS = 15
# Of many documents that one asks about: so many are sent at once, of so many bytes, and after so long others have their turn.
BATCH_DOCUMENTS = 200
BATCH_BYTES = 2**20
TURN_SECONDS = 2
# A process that nobody asked for so long ends, and gives its memory back.
IDLE_SECONDS = 300

TOO_MUCH = (
    f"checking took more than it may, {CPU_SECONDS} s of one core and {MEMORY_BYTES >> 20} MiB: make the document smaller, "
    "or its tests fewer or cheaper"
)
TOO_DEEP = "lists and objects are nested too deeply inside each other"
BUSY = f"{PROCESSES} other documents were being checked for {WAIT_SECONDS} s: try again"
