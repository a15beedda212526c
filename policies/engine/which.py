"""Which Assignment takes a Pod, and why earlier ones don't: the choice of `CompiledRevision.choose`, with its reasons. Pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from policies.engine.assignments import unmet
from policies.engine.objects.owners import draw, has_drawn
from policies.engine.objects.pod import Pod
from policies.engine.pauses import OutOfForce, Suspension, Suspensions
from policies.engine.ruleset import Assignment, Revision
from policies.engine.selectors import Labels


class PassedOver(msgspec.Struct, frozen=True):
    """An Assignment that doesn't take the Pod, and why."""

    name: str
    why: list[str]


class Which(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What applies to a Pod. `assignment` and `rule_set` are empty where none takes it.

    Attributes:
        params: the params that the Assignment sets.
        because: why a canary takes the Pod, and what is out of force.
        shadows: the shadow Assignments, whose rule sets are evaluated and recorded, but don't decide.
        passed_over: earlier Assignments that don't take the Pod, with the reasons.
        hidden: later Assignments, shadow ones among them, that match the Pod too.
    """

    pod: str
    revision: int
    assignment: str = ""
    rule_set: str = ""
    params: dict[str, Any] = {}
    because: list[str] = []
    shadows: list[str] = []
    passed_over: list[PassedOver] = []
    hidden: list[str] = []


def which(revision: Revision, pod: Pod, namespace_labels: Labels, now: datetime) -> Which:
    """Return what applies to a Pod: the first Assignment in order that takes it; shadow ones don't end the search.

    Args:
        revision: what is live.
        pod: the Pod.
        namespace_labels: of its namespace.
        now: the moment, on which Pauses and Exemptions depend.
    """
    named = f"{pod.namespace}/{pod.name or _unnamed(pod)}"
    out = Suspensions(revision.pauses, revision.exemptions).of(pod, now)
    everything = out.everything() if out else None
    if everything is not None:
        return Which(pod=named, revision=revision.number, because=[_suspended("everything", everything)])
    chosen: Assignment | None = None
    shadows: list[str] = []
    passed: list[PassedOver] = []
    hidden: list[str] = []
    for each in sorted(revision.assignments, key=lambda assignment: (assignment.order, assignment.name)):
        why = list(_why_not(each, pod, namespace_labels, out))
        if chosen is not None:
            hidden += [] if why else [each.name]
        elif why:
            passed.append(PassedOver(each.name, why))
        elif each.mode == "shadow":
            if out is not None and (paused := out.rule_set(each.rule_set)) is not None:
                passed.append(PassedOver(each.name, [f"{_suspended('its rule set', paused)}: it isn't evaluated"]))
            else:
                shadows.append(each.name)
        else:
            chosen = each
    found = Which(pod=named, revision=revision.number, shadows=shadows, passed_over=passed, hidden=hidden)
    if chosen is None:
        return found
    return msgspec.structs.replace(
        found,
        assignment=chosen.name,
        rule_set=chosen.rule_set,
        params=chosen.params,
        because=list(_because(chosen, pod, out)),
    )


def lines_of(found: Which) -> Iterator[str]:
    """Iterate over the lines that explain it to people."""
    if found.assignment:
        yield f"{found.pod} gets rule set {found.rule_set} by Assignment {found.assignment}"
    else:
        yield f"no Assignment takes {found.pod}: kube-scheduler decides by its own rules, Berth by its default set"
    if found.params:
        yield f"  with params {msgspec.json.encode(found.params, order='sorted').decode()}"
    yield from (f"  {said}" for said in found.because)
    yield from (f"  beside it, in shadow: {name}" for name in found.shadows)
    yield from (f"  not {each.name}: {'; '.join(each.why)}" for each in found.passed_over)
    yield from (f"  {name} matches it too, but comes later in the order" for name in found.hidden)


def _why_not(
    assignment: Assignment, pod: Pod, namespace_labels: Mapping[str, str], out: OutOfForce | None
) -> Iterator[str]:
    """Iterate over the reasons why an Assignment doesn't take a Pod; over nothing where it would take it."""
    found = unmet(assignment.match, pod, namespace_labels)
    yield from found
    if not found and out is not None and (paused := out.assignment(assignment.name)) is not None:
        yield _suspended("it", paused)
    elif not found and assignment.mode == "canary" and draw(assignment.name, pod) >= assignment.percent:
        yield _drawn(assignment, pod)


def _because(assignment: Assignment, pod: Pod, out: OutOfForce | None) -> Iterator[str]:
    if assignment.mode == "canary":
        yield f"as a canary: {_drawn(assignment, pod)}"
    if out is None:
        return
    if (whole := out.rule_set(assignment.rule_set)) is not None:
        yield f"{_suspended('its rule set', whole)}: it decides nothing"
    for rule, each in out.rules(assignment.rule_set).items():
        yield _suspended(f"its rule {rule}", each)


def _unnamed(pod: Pod) -> str:
    """Return what is shown instead of a name for a Pod that has none yet; the API server makes one of generateName."""
    metadata = pod.json.get("metadata") or {}
    return f"{metadata.get('generateName') or ''}(no name yet)"


def _drawn(assignment: Assignment, pod: Pod) -> str:
    drew = f"the Pod's workload drew {draw(assignment.name, pod)}, and {assignment.percent} % are those below"
    return (
        drew
        if has_drawn(pod)
        else f"{drew}; this is by its name, since it has no UID yet: in the cluster it draws again"
    )


def _suspended(what: str, by: Suspension) -> str:
    until = f" until {by.until.isoformat().replace('+00:00', 'Z')}" if by.until else ""
    return f"{what} is out of force by {by.kind} {by.name}{until}"
