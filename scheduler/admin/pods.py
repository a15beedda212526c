"""The page of a Pod: its story, and the causes of differences between two attempts."""

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from policies.admin.base import change_url, decisions_url, revision_url
from policies.wording import passed
from scheduler.admin.links import assignment_url, decision_url, node_url, pod_url, version_url, workload_url
from scheduler.admin.pending import group_url, shown_pod
from scheduler.decisions.causes import causes_of
from scheduler.decisions.matrix import Refusal
from scheduler.decisions.reading import recorded
from scheduler.decisions.replica import history_behind
from scheduler.decisions.story import Attempt, Story
from scheduler.decisions.time_limit import TimeLimit
from scheduler.models import PendingPod
from scheduler.pending.holding import reasons_in, rule_by_reason
from scheduler.pending.listing import waiting_of
from scheduler.pending.telling import told

SEE = "scheduler.view_decision"
_MOST_NAMED = 12
_LONGEST_ERROR = 120
# The most differences whose causes the page loads without a click: each decides on two Snapshots again.
_MOST_LOOKED_FOR = 5


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def page(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """Show the story of a Pod, by default of the newest one of that name."""
    known = told(namespace, name, request.GET.get("uid", ""))
    story = known.story
    waiting = _waiting(known.waiting, story.attempts[0].refusals if story and story.attempts else [])
    context = {
        **admin.site.each_context(request),
        "behind": history_behind(),
        "title": f"Pod {namespace}/{name}",
        "namespace": namespace,
        "name": name,
        "waiting": waiting,
        "others": [(uid, pod_url(namespace, name, uid)) for uid in known.others[:_MOST_NAMED]],
        "more_others": max(len(known.others) - _MOST_NAMED, 0),
        "of_name": decisions_url(pod_namespace=namespace, pod_name=name),
    }
    if story is None:
        context |= {"story": None, "search": decisions_url(q=name)}
        return TemplateResponse(request, "scheduler/pod.html", context, status=None if waiting else 404)
    deciding = story.attempts[0].id if story.attempts else ""
    context |= {
        "story": story,
        "all": decisions_url(pod_uid=story.uid),
        "owner": _workload(namespace, story.owner),
        "deciding": deciding,
        "deciding_url": decision_url(deciding) if deciding else "",
        "refuses": bool(story.attempts) and bool(story.attempts[0].refusals) and not story.ends,
        "placed": [
            {"end": end, "node": node_url(end.node) if end.node else "", "url": decision_url(end.decision) if end.decision else ""}
            for end in story.ends
        ],
        "answerable": [_answerable(story, each) for each in story.provenance],
        "decided_by": decision_url(story.decided_by) if story.decided_by else "",
        **_pinned(request.GET.get("pin", ""), story),
        "why": why_not(story.attempts[0].id, story.attempts[0].refusals) if story.attempts else [],
    }  # fmt: skip
    return TemplateResponse(request, "scheduler/pod.html", context)


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def difference(request: HttpRequest, before: UUID, after: UUID) -> HttpResponse:
    """Show the causes of the difference between two answers about a Pod: a fragment of its page."""
    old, new = get_object_or_404(recorded(), pk=before), get_object_or_404(recorded(), pk=after)
    if (old.pod_namespace, old.pod_name) != (new.pod_namespace, new.pod_name):
        raise Http404
    context = {"causes": causes_of(old, new, TimeLimit())}
    return TemplateResponse(request, "scheduler/difference.html", context)


def _waiting(row: PendingPod | None, refusals: list[Refusal]) -> dict[str, Any] | None:
    """Return a Pending Pod for the page, with the refusals of its last attempt; None for one that isn't Pending."""
    if row is None:
        return None
    now = timezone.now()
    (found,) = waiting_of([row], now)
    reasons = reasons_in(row.message, [row.reason, *rule_by_reason(refusals)])
    beside = [text for text, _ in reasons if text != row.reason]
    return {**shown_pod(found, now), "beside": beside, "group": group_url(row)}


def _workload(namespace: str, owner: str) -> str:
    kind, _, name = owner.partition("/")
    return workload_url(namespace, kind, name) if name else ""


def why_not(decision: str, refusals: list[Refusal]) -> list[dict[str, Any]]:
    """Return the refusals in sentences, one for the nodes that one rule refused for one reason."""
    return [
        {
            "refusal": refusal,
            "nodes": [(name, node_url(name), decision_url(decision, name)) for name in refusal.nodes[:_MOST_NAMED]],
            "more": max(len(refusal.nodes) - _MOST_NAMED, 0),
            "all": f"{reverse('decision_nodes', args=[decision])}?{urlencode({'node': refusal.nodes[0]})}",
        }
        for refusal in refusals
    ]


def _answerable(story: Story, held: Any) -> dict[str, Any]:
    version = (
        next((each for each in story.attempts if each.rule_set == held.name), None) if held.kind == "RuleSet" else None
    )
    key = (held.name, version.rule_set_version) if version else ("", 0)
    return {
        "held": held,
        "what": f"Rule set {held.name}{f' version {key[1]}' if key[1] else ''}" if held.kind == "RuleSet" else f"{held.kind} {held.name}",
        "url": version_url(*key) if key[1] else assignment_url(held.name) if held.kind == "Assignment" else "",
        "revision": revision_url(held.since),
        "change": change_url(held.change) if held.change else "",
    }  # fmt: skip


def _pinned(pin: str, story: Story) -> dict[str, Any]:
    """Return the attempts; if a Decision is pinned, each with a link that compares the two."""
    attempts = _attempts(story)
    pinned = _key(pin)
    for shown in attempts:
        each: Attempt = shown["attempt"]
        shown["is_pinned"] = bool(pinned) and pinned in {each.id, each.first_id, *(step.id for step in each.steps)}
        shown["pin"] = f"{pod_url(story.namespace, story.name, story.uid, pin=each.id)}#attempts"
        shown["against"] = (
            reverse("decision_beside", args=[pinned, each.id]) if pinned and not shown["is_pinned"] else ""
        )
    return {
        "attempts": attempts,
        "pinned": decision_url(pinned) if pinned else "",
        "unpinned": f"{pod_url(story.namespace, story.name, story.uid)}#attempts",
    }


def _key(text: str) -> str:
    """Return a Decision's key in its usual spelling; empty for an invalid one."""
    try:
        return str(UUID(text))
    except ValueError:
        return ""


def _attempts(story: Story) -> list[dict[str, Any]]:
    turns = [each.first_id for each in story.attempts if each.is_turn and each.former_id]
    return [_attempt(each, turns) for each in story.attempts]


def _verdict(each: Attempt) -> dict[str, str]:
    """Return the number of nodes that passed, with a sign before it."""
    if each.error:
        return {"mark": "!", "kind": "bad", "text": f"no answer: {each.error[:_LONGEST_ERROR]}"}
    mark, kind = ("–", "plain") if not each.nodes else ("✓", "good") if each.feasible else ("✗", "bad")
    return {"mark": mark, "kind": kind, "text": passed(each.feasible, each.nodes)}


def _attempt(each: Attempt, turns: list[str]) -> dict[str, Any]:
    is_looked_for = each.first_id in turns[:_MOST_LOOKED_FOR]
    return {
        "attempt": each,
        "verdict": _verdict(each),
        "since": f"{each.first_at:%H:%M:%S}"
        if each.first_at.date() == each.last_at.date()
        else f"{each.first_at:%Y-%m-%d %H:%M:%S}",
        "url": decision_url(each.id),
        "version": version_url(each.rule_set, each.rule_set_version) if each.rule_set_version else "",
        "revision": revision_url(each.revision) if each.revision else "",
        "best": node_url(each.best) if each.best else "",
        "steps": [(step, decision_url(step.id)) for step in each.steps],
        "before": each.former_id,
        "looks": is_looked_for,
        "may_look": each.first_id in turns and not is_looked_for,
        "allowed": [(name, node_url(name)) for name in each.newly_allowed[:_MOST_NAMED]],
        "refused": [(name, node_url(name)) for name in each.newly_refused[:_MOST_NAMED]],
        "more_allowed": max(len(each.newly_allowed) - _MOST_NAMED, 0),
        "more_refused": max(len(each.newly_refused) - _MOST_NAMED, 0),
        "beside": reverse("decision_beside", args=[each.former_id, each.first_id]) if each.former_id else "",
    }
