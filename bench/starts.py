"""How long commands take to start: `berth`, with and without a call to a server, and `manage.py`.

python -m bench.starts

Beside the elapsed seconds it prints processor seconds, which are the same on a busy machine: those of the command and of the
process that checks documents for it. `manage.py` gets an empty database of its own, and no cluster.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.arguments import parse_no_arguments

ROOT = Path(__file__).resolve().parents[1]
RUNS = 7
BERTH = [sys.executable, "-m", "berth"]
MANAGE = [sys.executable, str(ROOT / "manage.py")]
# A bench mustn't use a database or a cluster that somebody works with.
OF_OTHERS = ("BERTH_DATABASE_URL", "BERTH_KUBECONFIG")
EXAMPLE = str(ROOT / "examples" / "shortest-name.yaml")
# The commands, and the aim of each in seconds.
OF_BERTH = [
    ("berth --help", ["--help"]),
    ("berth status, nobody listens", ["status", "--server", "http://127.0.0.1:1"]),
]
OF_MANAGE = [
    ["lint", EXAMPLE],
    ["plan", EXAMPLE],
    ["apply", EXAMPLE],
    ["export"],
    ["change", "list"],
    ["events"],
    ["token", "list"],
    ["which", "--help"],
    ["explain", "web-0"],
    ["replay", "1"],
    ["verify"],
    ["backtest", "--help"],
    ["gate", "--help"],
    ["simulate", "--help"],
    ["scenario", "--help"],
    ["doctor", "--help"],
]
COMMANDS = [
    *((name, [*BERTH, *words], 0.3) for name, words in OF_BERTH),
    *(
        (" ".join(["manage.py", words[0], *words[1:]]).replace(f"{ROOT}/", ""), [*MANAGE, *words], 1.0)
        for words in OF_MANAGE
    ),
]


def main() -> None:
    """Print the medians of each beside its aim."""
    parse_no_arguments(__doc__)
    with tempfile.TemporaryDirectory() as state:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "berth" / "src"), "BERTH_STATE_DIR": state}
        environment = {name: value for name, value in environment.items() if name not in OF_OTHERS}
        subprocess.run([*MANAGE, "migrate", "-v0"], cwd=ROOT, env=environment, check=True)  # noqa: S603 - our own
        print(f"{'command':<46} {'median s':>9} {'processor s':>12} {'aim s':>6}")
        for name, command, aim in COMMANDS:
            took = [_seconds(command, environment) for _ in range(RUNS)]
            passed, used = (statistics.median(each) for each in zip(*took, strict=True))
            print(f"{name:<46} {passed:>9.2f} {used:>12.2f} {aim:>6.1f}", flush=True)


def _seconds(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the elapsed and the processor seconds of the command and its child processes."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)  # noqa: S603 - our own
    passed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return passed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
