"""How long commands take to start: `berth`, with and without asking a server, and `manage.py`.

python -m bench.starts
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = 7
BERTH = [sys.executable, "-m", "berth"]
MANAGE = [sys.executable, str(ROOT / "manage.py")]
# What is started, and the seconds that it is to take.
COMMANDS = [
    ("berth --help", [*BERTH, "--help"], 0.3),
    ("berth status, nobody listens", [*BERTH, "status", "--server", "http://127.0.0.1:1"], 0.3),
    ("manage.py lint", [*MANAGE, "lint", str(ROOT / "examples" / "shortest-name.yaml")], 1.0),
]


def main() -> None:
    """Print the median of each beside its aim."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "berth" / "src")}
    print(f"{'command':<32} {'median s':>9} {'aim s':>6}")
    for name, command, aim in COMMANDS:
        print(f"{name:<32} {statistics.median(_seconds(command, environment) for _ in range(RUNS)):>9.2f} {aim:>6.1f}")


def _seconds(command: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)  # noqa: S603 - our own
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
