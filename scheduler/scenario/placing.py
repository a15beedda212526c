"""Places the Pods of a template by the live rules, and by those of a Change, and says where they land."""

import logging
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
from django.conf import settings

from policies import publishing
from policies.engine.decision import CompiledRevision
from policies.engine.errors import DeadlineError, ExpressionError
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import go_on
from policies.engine.scenario import Placed, place_pods
from policies.engine.scheduling import default_profile
from policies.models import Change
from policies.publishing import PublishingError
from policies.wording import counted
from scheduler.decisions.rebuilding import ReplayError, recorded_body_of
from scheduler.decisions.time_limit import TimeLimit
from scheduler.models import BinderState, Decision
from scheduler.scenario.errors import ScenarioError
from scheduler.scenario.template import Template

logger = logging.getLogger("berth.scenario")
MOST_PODS = 5000
# A scheduler without heartbeat for this long has ended, and the next one begins with the first node.
_SILENT = timedelta(seconds=60)
# The most of the newest Decisions that are searched for one that allowed a node.
_LOOKED_THROUGH = 1000
# The time limit of a scenario for a page and REST.
SECONDS = 60.0
NOT_MODELLED = (
    "Preemption, other schedulers, the claims that a StatefulSet makes for its Pods, and what changes meanwhile aren't in it; nor is "
    "what admission adds to a Pod besides requests made of limits, ports of the host's network, and keys of labels in affinity"
)


class Scenario(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Where the Pods land by the live rules, and by those of a Change; None without a Change.

    `unknown` are the kinds of objects that rules read, and that a recorded Snapshot lacks.
    """

    pods: int
    running: int
    snapshot_at: datetime
    revision: int
    live: Placed
    change: int | None = None
    drafted: Placed | None = None
    unknown: list[str] = []

    @property
    def sentences(self) -> list[str]:
        """The findings, for people."""
        sides = [("what is live", self.live)]
        if self.drafted is not None:
            sides.append((f"Change {self.change}", self.drafted))
        said = [says for name, placed in sides for says in _sentences(name, placed)]
        if self.unknown:
            said.append(f"What rules read of {', '.join(self.unknown)} was not recorded: by that they refuse no node")
        return said


def _sentences(name: str, placed: Placed) -> list[str]:
    said = [
        f"By {name} ({_by(placed)}), {placed.fits:,} of {placed.asked:,} fit, on {counted(len(placed.nodes), 'node')}"
    ]
    if placed.stop is not None:
        refusals = ", ".join(
            f"{counted(each.nodes, 'node')} by {each.rule} ({each.reason})" for each in placed.stop.refusals
        )
        said.append(f"The {_th(placed.stop.pod)} gets none: {refusals or placed.stop.sentence}")
        if refusals:
            said.append(placed.stop.sentence.removesuffix("."))
    return said


def _by(placed: Placed) -> str:
    """Return the rule set that decides; if there are several, how many Pods each decides."""
    names = {name: f"rule set {name}" if name else "the default set" for name in placed.decided}
    if len(names) == 1:
        return names[placed.rule_set]
    each = ", ".join(f"{counted(number, 'Pod')} by {names[name]}" for name, number in placed.decided.items())
    return f"{each}: a canary draws for each Pod"


def _th(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    ending = "th" if 10 <= number % 100 <= 20 else endings.get(number % 10, "th")  # noqa: PLR2004 - 11th to 13th
    return f"{number:,}{ending}"


class Rules(msgspec.Struct, frozen=True):
    """The deciding rules: the live ones, and the same with a Change applied."""

    live: CompiledRevision
    drafted: CompiledRevision | None = None
    change: int | None = None

    @property
    def reads(self) -> frozenset[str]:
        """The kinds of objects that they read."""
        return default_profile().reads | self.live.reads | (self.drafted.reads if self.drafted else frozenset())


def rules_of(change: int | None) -> Rules:
    """Return the live rules, and those with a Change.

    Raises:
        ScenarioError: the Change doesn't exist, or its documents have faults.
    """
    before = publishing.current_revision()
    live = CompiledRevision(before)
    if change is None:
        return Rules(live)
    row = Change.objects.filter(pk=change).first()
    if row is None:
        message = f"there is no Change {change}"
        raise ScenarioError(message)
    try:
        after = publishing.with_edits(before, publishing.edits_of(row))
        return Rules(live, CompiledRevision(after, former=live), change)
    except (PublishingError, ExpressionError, msgspec.DecodeError, KeyError) as error:
        message = f"{row} has faults: {error}"
        raise ScenarioError(message) from error


def work_out(
    template: Template,
    number: int,
    rules: Rules,
    snapshot: Snapshot,
    at: datetime | None = None,
    *,
    limit: TimeLimit | None = None,
) -> Scenario:
    """Return where the Pods would land; for a template with running Pods, only the missing ones are placed.

    Args:
        template: the Pods' template.
        number: the total number of Pods.
        rules: the deciding rules.
        snapshot: the cluster.
        at: the time that rules see; by default now.
        limit: the time limit; None for no limit.

    Raises:
        ScenarioError: there are too many Pods, or none, or time is up.
    """
    missing = number - template.running
    if not 0 < missing <= MOST_PODS:
        raise ScenarioError(_out_of_bounds(number, template.running))
    now = at or datetime.now(UTC)
    pods = template.pods(missing)
    give_way = limit.give_way if limit else go_on
    try:
        place = partial(
            place_pods,
            pods=pods,
            now=now,
            after=_stands_at(now) if at is None else _picked_last(at),
            node_label=settings.BERTH.scheduler_node_label,
            give_way=give_way,
        )
        live = place(rules.live, snapshot)
        # Each side on a branch of its own, so that its placements don't affect the other.
        branch = snapshot.branched({})
        drafted = place(rules.drafted, branch) if rules.drafted else None
    except DeadlineError as error:
        message = f"{limit.over if limit else error}: ask for fewer Pods"
        raise ScenarioError(message) from error
    return Scenario(
        pods=missing,
        running=template.running,
        snapshot_at=now,
        revision=rules.live.number,
        live=live,
        change=rules.change,
        drafted=drafted,
        unknown=sorted(rules.reads - (snapshot.objects.known if snapshot.objects is not None else frozenset())),
    )


def _stands_at(now: datetime) -> str:
    """Return the node that Berth's own scheduler reports to have picked last: among equal nodes it continues behind it. "" for none.

    By its heartbeat, not by Decisions: after a restart it begins with the first node again, and Decisions are stored later.
    """
    leading = BinderState.objects.filter(leads=True, heartbeat_at__gt=now - _SILENT).first()
    return leading.last_node if leading else ""


def _picked_last(before: datetime) -> str:
    """Return the recorded node that it picked last before a time."""
    newest = Decision.objects.filter(verb="schedule", mode="enforce", at__lt=before).order_by("-at", "-sequence")
    # Decisions without an allowed node are skipped: one Pod may have any number of them.
    heads = newest.values_list("pk", "feasible")[:_LOOKED_THROUGH]
    found = next((key for key, feasible in heads if feasible), None)
    decision = Decision.objects.filter(pk=found).first() if found else None
    if decision is None:
        return ""
    try:
        return str(recorded_body_of(decision).notes.get("node") or "")
    except ReplayError as error:
        logger.warning("of equal nodes the first is chosen: Decision %s can't be read: %s", found, error)
        return ""


def _out_of_bounds(number: int, running: int) -> str:
    """Return why this number of Pods can't be placed."""
    bounds = f"ask for {running + 1:,} to {running + MOST_PODS:,}"
    refused = f"{counted(number, 'Pod')} can't be placed"
    if not running:
        return f"{refused}: {bounds}"
    return f"{refused}, because {running:,} {'runs' if running == 1 else 'run'} already: {bounds} in all"
