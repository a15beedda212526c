"""Which Pods of the cluster an Assignment in a form would take, and which Assignment takes each of them now."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from policies import publishing
from policies.engine.conflicts import conflicts
from policies.engine.decision import FiledAssignments
from policies.engine.objects.owners import draw
from policies.engine.objects.pod import Pod
from policies.engine.pauses import Suspensions, paused_assignments
from policies.engine.ruleset import Assignment, Revision
from policies.engine.selectors import Labels
from scheduler.cluster.client import Client, connect
from scheduler.cluster.kinds import NAMESPACES
from scheduler.cluster.listing import list_all
from scheduler.cluster.waiting import whole_pods

# The most Pods that are named for each Assignment.
_NAMED = 5

# By mode, what an Assignment with an empty match does.
_EMPTY = {
    "enforce": "it takes every Pod",
    "shadow": "it shadows every Pod",
    "canary": "it takes its share of all workloads",
}


class Group(msgspec.Struct, frozen=True):
    """Pods that one Assignment takes now ("" for none), and some of their names."""

    before: str
    pods: int
    names: list[str]


class Takes(msgspec.Struct, frozen=True):
    """The number of examined Pods, the groups that it would take, and the number of its present Pods that it would lose."""

    looked_at: int
    groups: list[Group]
    left: int = 0

    @property
    def pods(self) -> int:
        """The number of Pods that it would take."""
        return sum(each.pods for each in self.groups)


def takes(name: str, before: Revision, after: Revision, pods: Iterable[tuple[Pod, Labels]], now: datetime) -> Takes:
    """Return which Pods an Assignment would take, grouped by the Assignment that takes each now. Pure.

    Args:
        name: the Assignment's.
        before: the live Revision.
        after: the Revision with the form's Assignment.
        pods: all Pods, each with the labels of its namespace; ended ones are skipped.
        now: the current time; Pauses end.
    """
    was, will = _taker(before, now), _taker(after, now)
    counted: Counter[str] = Counter()
    named: dict[str, list[str]] = {}
    looked_at = left = 0
    for pod, labels in pods:
        if not pod.is_live:
            continue
        looked_at += 1
        one, other = was(pod, labels), will(pod, labels)
        if other == name:
            counted[one] += 1
            if len(names := named.setdefault(one, [])) < _NAMED:
                names.append(f"{pod.namespace}/{pod.name}")
        elif one == name:
            left += 1
    return Takes(looked_at, [Group(each, number, named[each]) for each, number in counted.most_common()], left)


def _taker(revision: Revision, now: datetime) -> Callable[[Pod, Labels], str]:
    """Return a function that returns the Assignment that takes a Pod for its answer: shadows take none; "" if none does."""
    filed = FiledAssignments(publishing.asked_in_order(revision.assignments), lambda: None)
    suspensions = Suspensions(revision.pauses, revision.exemptions)

    def take(pod: Pod, labels: Labels) -> str:
        out = suspensions.of(pod, now)
        if out is not None and out.everything() is not None:
            return ""
        for each in filed.taking(pod, labels):
            is_out = out is not None and out.assignment(each.name) is not None
            if not is_out and each.mode != "shadow" and (each.mode != "canary" or draw(each.name, pod) < each.percent):
                return each.name
        return ""

    return take


def takes_of_cluster(name: str, before: Revision, after: Revision) -> Takes:
    """Return which Pods of the cluster, in its present state, an Assignment would take.

    Raises:
        APIError: the API server is unavailable, or refuses.
    """
    client = connect()
    labels = {key: found.metadata.labels or {} for key, found in list_all(client, NAMESPACES).items()}
    return takes(name, before, after, _pods(client, labels), datetime.now(UTC))


def _pods(client: Client, labels: Mapping[str, Labels]) -> Iterable[tuple[Pod, Labels]]:
    kind = whole_pods()
    for page in client.list_pages(path=kind.path, query=kind.query):
        for pod in kind.read_page(page).objects.values():
            yield pod, labels.get(pod.namespace, {})


def warnings_of(assignment: Assignment, revision: Revision, now: datetime) -> list[str]:
    """Return what prevents an Assignment from taking Pods, by its text alone, in sentences: Assignments that hide it, equal orders."""
    paused = paused_assignments(revision.pauses, now)
    beside = [*(each for each in revision.assignments if each.name != assignment.name), assignment]
    found = [each.sentence(paused) for each in conflicts(beside, {assignment.name}) if each.kind != "same order"]
    equal = sorted(each.name for each in beside if each.order == assignment.order and each.name != assignment.name)
    if equal:
        more = f" and {len(equal) - _NAMED} more" if len(equal) > _NAMED else ""
        named = f"{', '.join(equal[:_NAMED])}{more}"
        found.append(f"Order {assignment.order} is that of {named}, too: of Pods that both can take, the name decides")
    if assignment.match == type(assignment.match)():
        found.append(f"Its match is empty: {_EMPTY[assignment.mode]} that none before it takes")
    return found
