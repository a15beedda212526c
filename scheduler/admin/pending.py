"""The page of Pods without a node, of all schedulers: grouped by what holds them or by owner; one group can be expanded."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

import msgspec
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.decorators import permission_required
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from policies.admin.base import decisions_url, person
from policies.parameters import one_of, read_parameters
from policies.wording import ago, duration, passed
from scheduler.admin.links import decision_url, node_url, pod_url, preview_url, workload_url
from scheduler.models import PendingPod
from scheduler.pending.holding import GATED, GATES_LEFT, NOT_TRIED
from scheduler.pending.listing import (
    Group,
    OwnerGroup,
    Summary,
    Waiting,
    by_owner,
    by_reason,
    group_of,
    has_leader,
    owner_of,
    pending,
    summary_of_pending,
    waiting_of,
)
from scheduler.pending.waking import MOST, Woken, is_any_to_wake, wake, why_not

SEE, WAKE = "scheduler.view_decision", "scheduler.wake_pod"
# Filters in the URL: those that identify a group, and those that narrow the whole list.
_UNFOLDS = ("rule", "reason", "namespace", "owner_kind", "owner_name")
_NARROWS = ("scheduler_name",)
_WAYS = {"reason": "by reason", "owner": "by owner"}
_ASKS: Mapping[str, Callable[[str], str]] = {
    **dict.fromkeys((*_UNFOLDS, *_NARROWS, "p"), str),
    "by": partial(one_of, list(_WAYS)),
}
_GROUPS, _PODS = 50, 50
_BADLY_ASKED = 400
_LONGEST = 500
# Reasons that no scheduler gives, as the end of "held by".
_SAID_BY_NOBODY = {
    GATES_LEFT: "scheduling gates that haven't been removed",
    NOT_TRIED: "an unknown reason: no scheduler has tried yet",
}


class Says(msgspec.Struct, frozen=True, kw_only=True):
    """The summary in sentences, also for the first page."""

    summary: Summary
    lead: str
    held: str
    group: str
    url: str
    as_of: str


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Show the waiting Pods; `by` selects the grouping, and a group's columns expand it."""
    now = timezone.now()
    asked = _asked(request.GET)
    narrowed = {name: value for name, value in asked.items() if name in _NARROWS}
    known, faults = read_parameters(request.GET.dict(), _ASKS, what="Pending Pods")
    is_unfolded = not faults and any(name in asked for name in _UNFOLDS)
    by = known.get("by", "reason")
    context = {
        **admin.site.each_context(request),
        "title": "Pending Pods",
        "says": says_of_pending(now),
        "by": by,
        "faults": faults,
        "ways": [(way, words, _url(by=way, **narrowed), way == by) for way, words in _WAYS.items()],
        "schedulers": _schedulers(by, narrowed),
        "is_unfolded": is_unfolded,
        **(_unfolded(request, asked, now) if is_unfolded else _groups(request, by, narrowed, now)),
    }  # fmt: skip
    return TemplateResponse(request, "scheduler/pending.html", context, status=_BADLY_ASKED if faults else None)


@admin.site.admin_view
@permission_required((SEE, WAKE), raise_exception=True)
@require_POST
def wake_group(request: HttpRequest) -> HttpResponse:
    """Wake the Pods of a group: they are tried at once."""
    asked = _asked(request.POST)
    of = ", ".join(f"{name.replace('_', ' ')} {value or 'none'}" for name, value in asked.items())
    _wake(request, pending(**asked)[:MOST], ("Pods", of or "of all groups"))
    return HttpResponseRedirect(_url(**asked))


@admin.site.admin_view
@permission_required((SEE, WAKE), raise_exception=True)
@require_POST
def wake_pod(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """Wake one Pod: it is tried at once."""
    uid = request.POST.get("uid", "")
    _wake(request, pending(namespace=namespace, name=name, uid=uid), ("Pod", f"{namespace}/{name}"))
    return HttpResponseRedirect(pod_url(namespace, name, uid))


def _wake(request: HttpRequest, rows: QuerySet[PendingPod], what: tuple[str, str]) -> None:
    woken = wake(rows, what=what, by=person(request), now=timezone.now())
    say = messages.success if woken.pods else messages.warning
    say(request, _said_of(woken))


def _said_of(woken: Woken) -> str:
    said = []
    if woken.pods:
        one = woken.pods == 1
        when = (
            "within a second" if has_leader() else "as soon as a scheduler becomes leader: there is none now, see Queue"
        )
        said.append(f"{woken.pods:,} Pod{'' if one else 's'} {'is' if one else 'are'} retried {when}.")
    said += [f"{number:,} can't be woken: {why}." for why, number in woken.left.items()]
    return " ".join(said) or "Nothing to wake: none of these Pods is still Pending."


def _asked(given: Mapping[str, str]) -> dict[str, str]:
    return {name: given[name][:_LONGEST] for name in (*_UNFOLDS, *_NARROWS) if name in given}


def says_of_pending(now: datetime) -> Says:
    """Return in sentences how many Pods wait, since when, and what holds most of them."""
    summary = summary_of_pending(now)
    return Says(
        summary=summary,
        lead=_lead(summary, now),
        held=_held(summary),
        group=_of_group(summary.most) if summary.most else "",
        url=reverse("pending"),
        as_of=_as_of(summary, now),
    )


def _lead(summary: Summary, now: datetime) -> str:
    if summary.looked_at is None:
        return "It isn't known yet which Pods are Pending: no worker has listed the cluster's Pods."
    if not summary.total or summary.since is None:
        return "No Pod is Pending."
    waits = f"{duration((now - summary.since).total_seconds())}"
    if summary.total == 1:
        return f"1 Pod is Pending, for {waits}."
    return f"{summary.total:,} Pods are Pending, the longest for {waits}."


def _held(summary: Summary) -> str:
    """Return what holds most of them, as the end of a sentence that begins with a number."""
    if summary.most is None:
        return ""
    number = summary.most.pods
    if summary.total == 1:
        return f"It is held by {_said_of_hold(summary.most.rule, summary.most.reason)}"
    which = "All" if number == summary.total else f"{number:,}"
    return f"{which} of them {'is' if number == 1 else 'are'} held by {_said_of_hold(summary.most.rule, summary.most.reason)}"


def _said_of_hold(rule: str, reason: str, whose: str = "their scheduler") -> str:
    """Return what holds Pods, in words."""
    if rule:
        return f"rule {rule}: “{reason}”"
    return _SAID_BY_NOBODY.get(reason) or f"{whose}: “{reason}”"


def _as_of(summary: Summary, now: datetime) -> str:
    if summary.fault:
        seen = f"{summary.looked_at:%Y-%m-%d %H:%M:%S} UTC" if summary.looked_at else "never"
        return f"The cluster can't be listed ({summary.fault}); it was last seen: {seen}."
    if summary.looked_at is None:
        return "A worker lists them every few seconds: check that one is running, on the page Processes or with manage.py doctor."
    said = f"As of {ago((now - summary.looked_at).total_seconds())}."
    return f"{said} That is outdated: check on the page Doctor that a worker is running." if summary.is_old else said


def _of_group(group: Group) -> str:
    return _url(rule=group.rule, reason=group.reason)


def group_url(row: PendingPod) -> str:
    """Return the URL of the Pods that wait for the same reason."""
    return _url(rule=row.rule, reason=row.reason)


def _url(**asked: str) -> str:
    return f"{reverse('pending')}?{urlencode(asked)}"


def _schedulers(by: str, narrowed: dict[str, str]) -> list[tuple[str, str]]:
    """Return the removable filters, as chips."""
    return [(value, _url(by=by)) for value in narrowed.values()]


def _groups(request: HttpRequest, by: str, narrowed: dict[str, str], now: datetime) -> dict[str, Any]:
    rows: QuerySet[PendingPod] = pending(**narrowed)
    page = Paginator(by_owner(rows) if by == "owner" else by_reason(rows), _GROUPS).get_page(request.GET.get("p"))
    shown = [_owner(row, narrowed, now) if by == "owner" else _reason(row, narrowed, now) for row in page]
    return {"groups": shown, "page": page}


def _reason(row: Any, narrowed: dict[str, str], now: datetime) -> dict[str, Any]:
    group = group_of(row)
    return _waits(row, group, now) | {
        "url": _url(rule=group.rule, reason=group.reason, **narrowed),
        "refused": decisions_url(refused_by=group.rule, span="hour") if group.rule else "",
    }


def _owner(row: Any, narrowed: dict[str, str], now: datetime) -> dict[str, Any]:
    group = owner_of(row)
    return _waits(row, group, now) | {
        "url": _url(namespace=group.namespace, owner_kind=group.kind, owner_name=group.name, **narrowed),
        "workload": workload_url(group.namespace, group.kind, group.name) if group.name else "",
    }


def _waits(row: Any, group: Group | OwnerGroup, now: datetime) -> dict[str, Any]:
    """Return a group of Pods, how long the first of them has waited, for what, and when Berth was last asked."""
    return {
        "group": group,
        "waits": duration((now - group.since).total_seconds()),
        "held": _said_of_hold(group.rule, group.reason, whose="the scheduler"),
        "tried": _tried(row, group.tried_at, now),
    }


def _tried(row: Any, tried_at: datetime | None, now: datetime) -> str:
    """Return when Berth was last asked about Pods of a group; if it isn't known, what else is known."""
    if tried_at is not None:
        return ago((now - tried_at).total_seconds())
    if not row["tried"]:
        return "not yet"
    return "no Decision is in the history yet" if row["tried_by_us"] else "Berth wasn't asked"


def _unfolded(request: HttpRequest, asked: dict[str, str], now: datetime) -> dict[str, Any]:
    page = Paginator(pending(**asked), _PODS).get_page(request.GET.get("p"))
    waiting = waiting_of(page.object_list, now)
    first = next((each.row for each in waiting if each.row.decision), None)
    return {
        "pods": [shown_pod(each, now) for each in waiting],
        "page": page,
        "asked": [
            (name.replace("_", " "), value or "none", _url(**_without(asked, name))) for name, value in asked.items()
        ],
        "narrowed": asked,
        "unwoken": dict.fromkeys(why for each in waiting if (why := why_not(each.row))),
        "may_wake": is_any_to_wake(pending(**asked)),
        "back": _url(by="owner" if "owner_name" in asked else "reason", **_without(asked, *_UNFOLDS)),
        "example": first,
    }


def _without(asked: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in asked.items() if name not in names}


def _whose(row: PendingPod) -> str:
    return "Berth's own scheduler" if _is_ours(row) else "its scheduler"


def _undecided(row: PendingPod) -> str:
    """Return who last tried a Pod without a Decision."""
    if not row.message or row.condition == GATED:
        return "not yet"
    # The API server's condition is visible at once; a Decision first passes through spool and stream.
    why = "its Decision hasn't reached the history yet" if _is_ours(row) else "Berth wasn't asked"
    return f"by {_whose(row)}; {why}"


def _is_ours(row: PendingPod) -> bool:
    return row.scheduler_name in settings.BERTH.scheduler_names


def shown_pod(waiting: Waiting, now: datetime) -> dict[str, Any]:
    """Return a Pod for its row of a table, and for the head of its own page."""
    row = waiting.row
    return {
        "row": row,
        "url": pod_url(row.namespace, row.name, row.uid),
        "owner": workload_url(row.namespace, row.owner_kind, row.owner_name) if row.owner_name else "",
        "waits": duration((now - row.since).total_seconds()),
        "held": _said_of_hold(row.rule, row.reason, whose=_whose(row)),
        "tried": ago((now - row.tried_at).total_seconds()) if row.tried_at else "",
        "passed": passed(row.feasible, row.nodes),
        "decision": decision_url(row.decision) if row.decision else "",
        "undecided": _undecided(row),
        "is_ours": _is_ours(row),
        "next": waiting.next_try,
        "unwoken": why_not(row),
        "preview": preview_url(pod=f"{row.namespace}/{row.name}"),
        "nominated": node_url(row.nominated_node) if row.nominated_node else "",
    }
