"""How soon after the act a Pause takes effect, and how soon it ends: in the extender, and in the binder.

`python -m bench.pauses` pauses a rule, a rule set, an Assignment and everything with `manage.py pause`, on Berth as `make up` starts it
with a real cluster. The rule refuses each node. The extender is called about a Pod all the time; for the binder, a Pod waits for each
act. Seconds count from the Revision's time in the database until nodes pass, and until a watch shows the Pod as bound; after
`manage.py resume` until nodes are refused again, and until the binder serves that Revision.
"""

import argparse
import http.client
import json
import os
import time
from collections.abc import Callable
from datetime import datetime
from statistics import median
from threading import Event, Thread
from typing import Any

from bench.nodes import make_node, make_pod
from bench.running import Berth, Cluster, berth, cluster, eventually, machine, scratch
from bench.timeline import timeline

AIM_SECONDS = 2.0
TARGETS = ("RuleSet/web/closed", "RuleSet/web", "Assignment/all", "everything")
_NODES = 100
_EVERY_SECONDS = 0.01

Json = dict[str, Any]


def documents() -> list[Json]:
    """Return a rule set that refuses each node, for all Pods."""
    closed = {"name": "closed", "expression": "false", "reason": "closed"}
    metadata = {"apiVersion": "berth/v1", "kind": "RuleSet", "metadata": {"name": "web"}}
    return [
        metadata | {"spec": {"filters": [closed]}},
        metadata | {"kind": "Assignment", "metadata": {"name": "all"}, "spec": {"ruleSet": "web", "match": {}}},
    ]


class Asking(Thread):
    """Calls the extender about a Pod repeatedly; records when its answer changed."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        names = [make_node(number)["metadata"]["name"] for number in range(_NODES)]
        self._body = json.dumps({"Pod": make_pod("asked", labels={}), "NodeNames": names}).encode()
        self.enough = Event()
        self.passes = False
        self.since = 0.0

    def run(self) -> None:
        """Call until the end is requested."""
        while not self.enough.wait(_EVERY_SECONDS):
            self._connection.request("POST", "/filter", self._body, {"Content-Type": "application/json"})
            passes = bool(json.loads(self._connection.getresponse().read())["NodeNames"])
            if passes != self.passes:
                self.passes, self.since = passes, time.time()


def published_at(serving: Berth) -> float:
    """Return when the newest Revision was published."""
    code = "from policies.models import Revision; print(Revision.objects.latest('number').created_at.isoformat())"
    return datetime.fromisoformat(serving.manage("shell", "--no-imports", "-c", code).split()[-1]).timestamp()


def measure(running: Cluster, serving: Berth, asking: Asking, target: str) -> dict[str, float]:
    """Return the seconds until a Pause took effect, and until it ended."""
    binder = int(serving.setting("BERTH_BINDER_BIND").rpartition(":")[2])

    def serves(number: float) -> Callable[[], bool]:
        return lambda: sum(value for _, value in serving.lines("berth_revision", binder)) >= number

    found: dict[str, float] = {}
    pod = make_pod("waiting", labels={})
    pod["spec"]["schedulerName"] = "berth"

    def refused() -> float:
        lines = serving.lines("berth_binder_attempts_total", binder)
        return sum(value for labels, value in lines if "unschedulable" in labels)

    before = refused()
    with timeline(running) as seen:
        running.create_pods([pod])
        eventually(lambda: refused() > before, "the binder refuses the Pod")
        serving.manage("pause", target, "--reason", "bench")
        eventually(lambda: asking.passes and seen.bound, f"the Pause of {target} is in force", every=_EVERY_SECONDS)
        at = published_at(serving)
        (bound,) = seen.bound.values()
        found["extender"], found["binder"] = asking.since - at, bound + time.time() - time.monotonic() - at
    running.delete_pods()
    number = serving.metric("berth_revision") + 1
    serving.manage("resume", target, "--reason", "bench")
    eventually(serves(number), "the binder has heard of its end", every=_EVERY_SECONDS)
    served = time.time()
    eventually(lambda: not asking.passes, "its end is in force", every=_EVERY_SECONDS)
    at = published_at(serving)
    return found | {"extender again": asking.since - at, "binder again": served - at}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print(f"seconds from the Revision to its being in force, median and most; aim {AIM_SECONDS}; {machine()}")
    with scratch() as folder, cluster(folder / "cluster") as running:
        running.create_nodes(map(make_node, range(_NODES)))
        with berth(folder / "berth", running.kubeconfig) as serving:
            serving.publish(documents())
            asking = Asking(serving.port)
            asking.start()
            for target in TARGETS:
                made = [measure(running, serving, asking, target) for _ in range(asked.rounds)]
                figures = {where: [each[where] for each in made] for where in made[0]}
                told = [f"{where} {median(all_of):.2f} ({max(all_of):.2f})" for where, all_of in figures.items()]
                missed = "  MISSED" if max(map(max, figures.values())) > AIM_SECONDS else ""
                print(f"{target:>20}  {', '.join(told)}{missed}", flush=True)
            asking.enough.set()
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
