"""`manage.py explain POD`: why a Pod may use its allowed nodes, and why not the others, from recorded Decisions.

The node values that a rule read come from the Decision's Snapshot, which is rebuilt. If that isn't
available any more, the value is named as unknown.
"""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

import msgspec
from django.core.management.base import CommandError
from django.utils import timezone

from policies.management.command import BerthCommand
from policies.manifests import to_json
from policies.wording import passed
from scheduler.decisions.explaining import explain_decision, named
from scheduler.decisions.remedies import Remedies, remedies_of
from scheduler.decisions.story import Story, story_of
from scheduler.models import OPENING_VERBS, Decision, PendingPod
from scheduler.pending.listing import shown_pending, waiting_of
from scheduler.pending.telling import story_without_decisions, told

_AFTER_FILTER = ("prioritize", "preempt", "bind")
_WHAT_TO_DO = (
    "Is the Pod there (kubectl get pod)? Only Pods that kube-scheduler has asked about, or that Berth places, have "
    "Decisions; they reach the database a few seconds later, if the worker runs (doctor says so)."
)


class Command(BerthCommand):
    """Explains a Pod's newest Decision; if it gave scores, also the refusals before it. Also reports a waiting Pod without Decisions."""

    help = "Explain the newest recorded Decision about a Pod, rule by rule; for a Pod without one, what it waits for. Exit 1 if nothing is known about the Pod."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("pod", metavar="POD", help="name, or namespace/name")
        parser.add_argument("--namespace", default="default", help="the namespace, if POD is only a name (default)")
        parser.add_argument(
            "--node", default="", help="show only this node: what each rule said, and what the rule reads"
        )
        parser.add_argument(
            "--story", action="store_true", help="show every attempt, what changed between attempts, and the outcome"
        )
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Find the Decisions, explain, write."""
        del args
        namespace, _, name = options["pod"].rpartition("/")
        namespace = namespace or options["namespace"]
        meant = told(namespace, name)
        if meant.story is None and meant.waiting is not None:
            self._tell(meant.waiting, story_without_decisions(meant.waiting, meant.others), options)
            return
        found = _decisions(namespace, name)
        explained: list[dict[str, Any]] = []
        try:
            explained += [explain_decision(decision, options["node"]) for decision in found]
            fault = _fault(f"{namespace}/{name}", explained, options["node"])
        except ValueError as error:
            fault = f"what is recorded about {namespace}/{name} is damaged: {error}. `manage.py verify` says more"
        helping = _remedies(found) if not options["node"] and not fault else None
        story = story_of(namespace, name, with_causes=True) if options["story"] and not fault else None
        if options["output"] == "json":
            report: dict[str, Any] = {"ok": not fault, "pod": f"{namespace}/{name}", "decisions": explained}
            if helping is not None:
                report["remedies"] = msgspec.to_builtins(helping)
            if story is not None:
                report["story"] = msgspec.to_builtins(story)
            self.stdout.write(to_json(report | ({"error": fault} if fault else {})))
        elif not fault:
            stories = [_told(story)] if story is not None else []
            helped = [_helping(helping)] if helping is not None else []
            self.stdout.write("\n\n".join([*stories, *(_text(each) for each in explained), *helped]))
        if fault:
            raise CommandError(fault, returncode=1)

    def _tell(self, waiting: PendingPod, story: Story, options: dict[str, Any]) -> None:
        (found,) = waiting_of([waiting], timezone.now())
        if options["output"] == "text":
            self.stdout.write(f"{_told(story)}\nTried next: {found.next_try}.")
            return
        report: dict[str, Any] = {"ok": True, "pod": f"{story.namespace}/{story.name}", "decisions": []}
        report |= {"story": story} if options["story"] else {}
        self.stdout.write(to_json(msgspec.to_builtins(report | {"pending": shown_pending(found)})))


def _fault(pod: str, explained: list[dict[str, Any]], node: str) -> str:
    if not explained:
        return f"no Decision about {pod} is recorded. {_WHAT_TO_DO}"
    if node and (missing := next((each["missing"] for each in explained if "missing" in each), "")):
        return f"what rules said about {node} for {pod} isn't known: {missing}"
    if node and all(node not in each["asked"] for each in explained):
        return (
            f"nobody asked about {node} for {pod}: kube-scheduler's own filters had refused it, or it wasn't there. "
            f"`kubectl describe pod` says more."
        )
    return ""


def _decisions(namespace: str, name: str) -> list[Decision]:
    """Return the newest enforced Decision, preceded by the filter's Decision if it refused no node itself."""
    mine = Decision.objects.filter(pod_namespace=namespace, pod_name=name)
    newest = mine.filter(mode="enforce").first() or mine.first()
    if newest is None:
        return []
    if newest.verb not in _AFTER_FILTER:
        return [newest]
    filtered = mine.filter(pod_uid=newest.pod_uid, verb="filter", mode=newest.mode, at__lte=newest.at).first()
    return [filtered, newest] if filtered is not None else [newest]


def _remedies(found: list[Decision]) -> Remedies | None:
    """Return what would let the Pod run; None if it may use a node, or nothing is recorded."""
    refusing = [
        each
        for each in found
        if each.verb in OPENING_VERBS and each.mode == "enforce" and each.feasible < min(each.nodes, 1)
    ]
    return remedies_of(refusing[0]) if refusing else None


def _helping(remedies: Remedies) -> str:
    said = [*remedies.sentences, *([remedies.fault] if remedies.fault else [])]
    return "\n".join(["What would let the Pod run:", *(f"- {each}" for each in said)])


def _text(explained: dict[str, Any]) -> str:
    head = f"{explained['at']} {explained['verb']}, Revision {explained['revision']}: {explained['summary']}."
    lines = [head, *(f"- {said}" for said in explained.get("chosenBy", ()))]
    helped = [rule for rule in explained.get("node", {}).get("rules", ()) if rule.get("remedy")]
    # These say the same verdicts, and what would change them.
    said_again = {_verdict(rule) for rule in helped}
    lines += [f"- {rule['sentence']}" for rule in explained["rules"] if _verdict(rule) not in said_again]
    lines += [f"- {rule['sentence']}" for rule in helped]
    if "nodeFault" in explained:
        lines.append(f"- what would change the answer wasn't computed: {explained['nodeFault']}")
    if "missing" in explained:
        lines.append(f"- what each rule said isn't known: {explained['missing']}")
    if "preemption" in explained:
        lines.append(f"- preemption: {explained['preemption']}")
    if explained["ruleSet"] and not explained["ruleSetKnown"]:
        version = f"version {explained['ruleSetVersion']} of {explained['ruleSet']}"
        lines.append(f"- {version} isn't in this database, or this Berth can't evaluate it: no rule is shown.")
    return "\n".join([*lines, *_rows(explained["matrix"])])


def _verdict(rule: dict[str, Any]) -> tuple[str, str, str, int | None]:
    return rule["kind"], rule["rule"], rule.get("reason", ""), rule.get("raw")


def _told(story: Story) -> str:
    """Return a story as text, the oldest attempt first."""
    lines = [f"{story.namespace}/{story.name} {story.uid}: {story.now}"]
    for attempt in reversed(story.attempts):
        times = f", {attempt.times} times" if attempt.times > 1 else ""
        best = f", best {attempt.best}" if attempt.best else ""
        answer = f"no answer: {attempt.error}" if attempt.error else f"{passed(attempt.feasible, attempt.nodes)}{best}"
        lines.append(f"{attempt.last_at.isoformat()} {attempt.verb}{times}: {answer}")
        lines += [f"- {said}" for said in attempt.changed]
        if attempt.newly_allowed:
            lines.append(f"- may use now: {named(attempt.newly_allowed)}")
        if attempt.newly_refused:
            lines.append(f"- may not use any more: {named(attempt.newly_refused)}")
        if attempt.causes is not None:
            lines.append(
                f"- {attempt.causes.sentence or 'the reason for the difference is unknown: ' + attempt.causes.fault}"
            )
        lines += [f"- {each.rule} refused {named(each.nodes)}: {each.reason or each.code}" for each in attempt.refusals]
    lines += [f"{end.at.isoformat()} {end.says}" for end in story.ends]
    for held in story.provenance:
        approved = f", approved by {', '.join(held.approved_by)}" if held.approved_by else ", no approval is recorded"
        change = f", Change {held.change}" if held.change else ""
        lines.append(
            f"{held.kind} {held.name}: live since Revision {held.since}, published by {held.published_by}{change}{approved}"
        )
    return "\n".join(lines)


def _rows(matrix: dict[str, Any]) -> Iterator[str]:
    """Iterate over the lines of the table: one for nodes that every rule treats alike."""
    columns = [*matrix["filters"], *matrix["scores"]]
    if not columns or not matrix["rows"]:
        return
    yield f"  {' | '.join([*columns, 'points'])} | nodes"
    for row in matrix["rows"]:
        cells = [cell["text"] for cell in row["cells"]]
        yield f"  {' | '.join([*cells, row['total'] or '·'])} | {named(row['nodes'])}{' (best)' if row['best'] else ''}"
    if matrix["left_out"]:
        yield f"  and {matrix['left_out']} more groups of nodes"
