"""The page of a Decision: explained in sentences, as a matrix, node by node, beside another one, and replayed."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from policies.admin.base import decisions_url, revision_url
from policies.admin.panels import panels_of
from policies.wording import counted
from scheduler.admin.links import (
    assignment_url,
    decision_url,
    node_url,
    pod_url,
    preview_url,
    version_url,
    workload_url,
)
from scheduler.decisions.beside import Pair, compared
from scheduler.decisions.explaining import explain_decision, sentences_of
from scheduler.decisions.masking import NOTE as MASKED_NOTE
from scheduler.decisions.matrix import Matrix, Row, matrix_of
from scheduler.decisions.reading import Read, body_of, chosen_by, preemption_of, read_both, recorded, unreadable
from scheduler.decisions.rebuilding import ReplayError
from scheduler.decisions.remedies import remedies_of
from scheduler.decisions.replay import replay
from scheduler.decisions.replica import history_behind
from scheduler.decisions.time_limit import TimeLimit
from scheduler.models import OPENING_VERBS, Decision

SEE = "scheduler.view_decision"
# The most groups of nodes, and names, on a page.
_ROWS, _NAMES = 50, 200
_MOST_SENTENCES = 60
_EVERY_ROW = 1_000_000


def decision_page(request: HttpRequest, row: Decision, *, replayed: dict[str, Any] | None = None) -> HttpResponse:
    """Show a Decision.

    Args:
        request: its query filters the matrix (`rule`, `reason`, `least`, `columns`, `p`) and selects a node (`why`).
        row: the Decision.
        replayed: the result of a replay, if requested.
    """
    read, body, fault = _read(row)
    matrix = matrix_of(read.answer, best=row.best, placed=row.placed_on, most=_EVERY_ROW)
    why = request.GET.get("why", "").strip()
    context = {
        **admin.site.each_context(request),
        "behind": history_behind(),
        "title": f"Decision about {row.pod_namespace}/{row.pod_name}",
        "row": row,
        "fault": fault,
        "answer": answer_of(row),
        "outcome": outcome_of(row),
        "ties": _ties(matrix),
        "pod": pod_url(row.pod_namespace, row.pod_name, row.pod_uid),
        "attempts": f"{pod_url(row.pod_namespace, row.pod_name, row.pod_uid, pin=str(row.pk))}#attempts",
        "of_pod": decisions_url(pod_uid=row.pod_uid),
        "owner": workload_url(row.pod_namespace, row.owner_kind, row.owner_name) if row.owner_name else "",
        "revision": revision_url(row.revision) if row.revision else "",
        "assignment": assignment_url(row.assignment) if row.assignment else "",
        "version": version_url(row.rule_set, row.rule_set_version) if row.rule_set_version else "",
        "alike": decisions_url(rule_set=row.rule_set, rule_set_version=row.rule_set_version) if row.rule_set else "",
        "best": node_url(row.best) if row.best else "",
        "placed": node_url(row.placed_on) if row.placed_on else "",
        "chosen": chosen_by(body),
        "preemption": preemption_of(body),
        "masked": (body.get("notes") or {}).get(MASKED_NOTE, ()),
        "took": f"{row.duration_microseconds:,} µs",
        **_sentences(row, body),
        "why": why,
        "explained": _explained(row, why, read) if why else None,
        "replayed": replayed,
        "replay_url": reverse("decision_replay", args=[row.pk]),
        "preview_url": preview_url(row.rule_set, decision=str(row.pk)),
        "raw_url": reverse("decision_raw", args=[row.pk]),
        "refuses": _may_be_helped(row),
        "panels": panels_of(row, request),
        **_matrix(request.GET, row, matrix),
    }
    return TemplateResponse(request, "scheduler/decision.html", context)


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_POST
def replay_page(request: HttpRequest, key: UUID) -> HttpResponse:
    """Replay a Decision and show whether the answer is the same. Nothing is written."""
    row = get_object_or_404(recorded(), pk=key)
    replayed: dict[str, Any]
    try:
        found = replay(row, TimeLimit())
    except ReplayError as error:
        replayed = {"mark": "!", "kind": "bad", "says": f"The Decision can't be replayed: {error}."}
    else:
        differences = list(found.differences)
        replayed = (
            {"mark": "✓", "kind": "good", "says": "Replayed: the answer is the same, byte for byte."}
            if found.ok
            else {"mark": "✗", "kind": "bad", "says": "Replayed: the answer differs.", "lines": differences}
        )
    return decision_page(request, row, replayed=replayed)


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def remedies(request: HttpRequest, key: UUID) -> HttpResponse:
    """Show what would let a Decision's Pod run: a fragment of its page, of its Pod's page and of the list of waiting Pods."""
    row = get_object_or_404(recorded(), pk=key)
    found = remedies_of(row)
    nearest = [(name, node_url(name), decision_url(row.pk, name)) for name in found.nearest]
    context = {"remedies": found, "nearest": nearest}
    return TemplateResponse(request, "scheduler/remedies.html", context)


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def raw(request: HttpRequest, key: UUID) -> HttpResponse:
    """Show a Decision's body as JSON: a fragment of its page, or a page of its own."""
    row = get_object_or_404(recorded(), pk=key)
    try:
        text = json.dumps(body_of(row), indent=1, ensure_ascii=False)
    except ValueError as error:
        text = f"The body can't be read: {error}"
    return TemplateResponse(request, "scheduler/decision_raw.html", {"text": text})


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def nodes(request: HttpRequest, key: UUID) -> HttpResponse:
    """Show the names of the nodes that every rule treated like a given one, in pages."""
    row = get_object_or_404(recorded(), pk=key)
    read, _, fault = _read(row)
    asked = request.GET.get("node", "")
    matrix = matrix_of(read.answer, best=row.best, placed=row.placed_on, most=_EVERY_ROW)
    group = next((each for each in matrix.rows if asked in each.nodes), None)
    names = group.nodes if group else []
    lead = ""
    if group:
        points = f", {group.total} points" if group.total else ""
        alike = f"{counted(len(names), 'node')} {'was' if len(names) == 1 else 'were'} treated alike by every rule"
        lead = f"{alike}: {'allowed' if group.feasible else 'refused'}{points}."
    said = [(rule, cell.kind, f"{cell.text} {cell.reason}") for rule, cell in _said(matrix, group)] if group else []
    return _names_page(
        request,
        names,
        {
            "lead": lead,
            "fault": fault,
            "said": said,
            "decision": row.pk,
            "back": ("The Decision", decision_url(row.pk)),
        },
    )


def _names_page(request: HttpRequest, names: Sequence[str], more: dict[str, Any]) -> HttpResponse:
    asked = request.GET.get("node", "")
    page = Paginator(names, _NAMES).get_page(request.GET.get("p"))
    context = {
        **admin.site.each_context(request),
        "title": f"Nodes treated as {asked}" if names or more.get("fault") else "Berth wasn't asked about that node",
        "asked": asked,
        "page": page,
        "names": [(name, node_url(name), decision_url(more["decision"], name)) for name in page],
        **more,
    }
    return TemplateResponse(request, "scheduler/decision_nodes.html", context)


@admin.site.admin_view
@permission_required(SEE, raise_exception=True)
@require_safe
def beside(request: HttpRequest, key: UUID, other: UUID) -> HttpResponse:
    """Show two Decisions beside each other: an answer and its shadow, or two attempts. Differences come first."""
    rows = [get_object_or_404(recorded(), pk=each) for each in (key, other)]
    reads = [_read(row) for row in rows]
    groups = compared(*(read.answer for read, _, _ in reads))
    faults = [f"{side}: {fault}" for side, (_, _, fault) in zip(("Left", "Right"), reads, strict=True) if fault]
    if "node" in request.GET:
        return _alike(request, rows, [] if faults else groups, " ".join(faults))
    page = Paginator(groups, _ROWS).get_page(request.GET.get("p"))
    differing = sum(len(group.nodes) for group in groups if group.differs)
    context = {
        **admin.site.each_context(request),
        "title": "Compare two Decisions",
        "sides": [{"row": row, "url": decision_url(row.pk), "answer": answer_of(row)} for row in rows],
        "differing": differing,
        "faults": faults,
        "groups": [{"group": group, "url": node_url(group.nodes[0]), "more": len(group.nodes) - 1} for group in page],
        "page": page,
    }  # fmt: skip
    return TemplateResponse(request, "scheduler/decision_beside.html", context)


def _alike(request: HttpRequest, rows: Sequence[Decision], groups: Sequence[Pair], fault: str) -> HttpResponse:
    """Show the names of the nodes that two Decisions treated like a given one; or the fault of one that can't be read."""
    pair = next((each for each in groups if request.GET["node"] in each.nodes), None)
    names = pair.nodes if pair else []
    sides = (("Left", pair.first), ("Right", pair.second)) if pair else ()
    said = [
        (side, each.kind, each.verdict + ("" if each.points is None else f", {each.points} points"))
        for side, each in sides
    ]  # fmt: skip
    lead = f"Of {len(names):,} node{'s' if len(names) > 1 else ''} both said the same." if pair else ""
    back = ("Compare both", reverse("decision_beside", args=[row.pk for row in rows]))
    more = {"lead": lead, "fault": fault, "said": said, "decision": rows[0].pk, "back": back}
    return _names_page(request, names, more)


def _read(row: Decision) -> tuple[Read, dict[str, Any], str]:
    """Return the body in both forms, and the fault of one that can't be read."""
    try:
        read, body = read_both(row)
    except ValueError as error:
        fault = f"The body of this Decision can't be read: {error}"
        return unreadable(fault), {}, fault
    return read, body, f"Its Pod, its nodes and each rule's result are unknown: {read.missing}." if read.missing else ""


def _sentences(row: Decision, body: dict[str, Any]) -> dict[str, Any]:
    """Return explain's sentences: refusals first, the others after them."""
    said = sentences_of(row, body)
    refusing = [each.sentence for each in said if each.kind == "filter" and each.reason]
    others = [each.sentence for each in said if not (each.kind == "filter" and each.reason)]
    return {
        "refusing": refusing[:_MOST_SENTENCES],
        "others": others[:_MOST_SENTENCES],
        "unsaid": max(len(refusing) - _MOST_SENTENCES, 0) + max(len(others) - _MOST_SENTENCES, 0),
    }


def _explained(row: Decision, node: str, read: Read) -> dict[str, Any]:
    """Return the result of every rule for one node, and what would change it."""
    if read.missing:
        return {"says": f"The Decision can't be explained: {read.missing}."}
    try:
        found = explain_decision(row, node)
    except ValueError as error:
        return {"says": f"The Decision can't be explained: {error}"}
    of_node = found.get("node")
    rules = [rule["sentence"] for rule in (of_node["rules"] if of_node else found["rules"])]
    if node in read.names or node in read.unknown:
        return {"rules": rules, "url": node_url(node), "is_whole": bool(of_node), "fault": found.get("nodeFault")}
    unasked = f"Berth wasn't asked about {node}: the scheduler's own filters had refused it"
    if fault := found.get("nodeFault"):
        return {"says": f"{unasked}. What Berth's rules would have decided couldn't be computed: {fault}."}
    if of_node is None:
        return {"says": f"{unasked}, or it didn't exist. kubectl describe pod says more."}
    return {
        "unasked": f"{unasked}; kubectl describe pod shows its reason. Berth's rules would have decided:",
        "rules": rules,
    }


def _may_be_helped(row: Decision) -> bool:
    """Return whether the page offers remedies: for a placed Pod only if this answer left it no node."""
    refuses = row.verb in OPENING_VERBS and row.mode == "enforce" and row.feasible < row.nodes
    return refuses and not (row.placed_on and row.feasible)


def _ties(matrix: Matrix) -> str:
    """Return which nodes tied with the best one; "" if none did."""
    best = next((each for each in matrix.rows if each.best), None)
    if best is None or not best.total:
        return ""
    others = sum(len(each.nodes) for each in matrix.rows if each.feasible and each.total == best.total) - 1
    if not others:
        return ""
    return f"{others:,} other node{'s have' if others > 1 else ' has'} {best.total} points too."


def _matrix(query: QueryDict, row: Decision, matrix: Matrix) -> dict[str, Any]:
    """Return the requested rows of the matrix, and its columns: those in which all nodes pass are folded."""
    rule, reason, least = (query.get(name, "") for name in ("rule", "reason", "least"))
    found = [each for each in matrix.rows if _fits(each, matrix, rule, reason, least)]
    unfolds = query.get("columns") == "all"
    folded = set() if unfolds else _folded(matrix)
    columns = [index for index in range(len(matrix.filters) + len(matrix.scores)) if index not in folded]
    names = [*matrix.filters, *matrix.scores]
    page = Paginator(found, _ROWS).get_page(query.get("p"))
    return {
        "has_matrix": bool(matrix.rows),
        "columns": [names[index] for index in columns],
        "folded": [names[index] for index in sorted(folded)],
        "unfold_url": _link(query, columns="all"),
        "rows": [_shown(row, each, columns) for each in page],
        "page": page,
        "pages": {name: _link(query, p=str(number)) for name, number in _neighbours(page)},
        "rules": matrix.filters,
        "reasons": sorted({cell.reason for each in matrix.rows for cell in each.cells if cell.kind == "bad"}),
        "wanted": {"rule": rule, "reason": reason, "least": least},
        "is_filtered": bool(rule or reason or least),
        "counts": _counts(matrix),
    }


def _counts(matrix: Matrix) -> str:
    refused = sum(len(each.nodes) for each in matrix.rows if not each.feasible)
    passed = sum(len(each.nodes) for each in matrix.rows if each.feasible)
    return f"{refused:,} refused, {passed:,} allowed, in {counted(len(matrix.rows), 'group')} of equal nodes"


def _neighbours(page: Any) -> list[tuple[str, int]]:
    found = [("former", page.previous_page_number())] if page.has_previous() else []
    return [*found, ("next", page.next_page_number())] if page.has_next() else found


def _fits(each: Row, matrix: Matrix, rule: str, reason: str, least: str) -> bool:
    refusing = [
        (name, cell.reason) for name, cell in zip(matrix.filters, each.cells, strict=False) if cell.kind == "bad"
    ]
    if rule and rule not in {name for name, _ in refusing}:
        return False
    if reason and reason not in {said for _, said in refusing}:
        return False
    is_number = least.isascii() and least.isdigit() and len(least) <= len("100")
    return not is_number or (bool(each.total) and int(each.total) >= int(least))


def _folded(matrix: Matrix) -> set[int]:
    """Return the columns of filters that let every evaluated node pass."""
    return {
        index
        for index in range(len(matrix.filters))
        if all(each.cells[index].kind in {"good", "none"} for each in matrix.rows)
    }


def _shown(row: Decision, each: Row, columns: Sequence[int]) -> dict[str, Any]:
    first = each.nodes[0]
    return {
        "row": each,
        "first": first,
        "url": node_url(first),
        "why": decision_url(row.pk, first),
        "more": len(each.nodes) - 1,
        "all": f"{reverse('decision_nodes', args=[row.pk])}?{_encoded(node=first)}",
        "cells": [each.cells[index] for index in columns],
    }


def _said(matrix: Matrix, group: Row) -> list[tuple[str, Any]]:
    return list(zip([*matrix.filters, *matrix.scores], group.cells, strict=False))


def _link(query: QueryDict, **values: str) -> str:
    asked = query.copy()
    asked.pop("p", None)
    for name, value in values.items():
        asked[name] = value
    return f"?{asked.urlencode()}#matrix"


def _encoded(**values: str) -> str:
    asked = QueryDict(mutable=True)
    asked.update(values)
    return asked.urlencode()


def answer_of(row: Decision) -> str:
    """Return a Decision's answer in a sentence, which says of a shadow that it is one."""
    said = _answer(row)
    return f"A shadow, which decides nothing: {said[0].lower()}{said[1:]}" if row.mode == "shadow" else said


def _answer(row: Decision) -> str:
    pod = f"{row.pod_namespace}/{row.pod_name}"
    if row.error:
        return f"The question about {pod} couldn't be answered: {row.error}"
    if not row.nodes:
        return f"There was no node to ask about for {pod}."
    if not row.feasible:
        return f"{pod} may use none of {row.nodes:,} nodes; most often: {row.top_reason or 'no reason given'}."
    best = f" The best is {row.best}." if row.best else ""
    refused = f" Most were refused because: {row.top_reason}." if row.feasible < row.nodes and row.top_reason else ""
    return f"{pod} may use {row.feasible:,} of {row.nodes:,} nodes.{best}{refused}"


def outcome_of(row: Decision) -> str:
    """Return the final node or outcome of a Pod."""
    if not row.placed_on:
        return (
            f"the Pod is gone and was never seen on a node; noticed {row.placed_at:%Y-%m-%d %H:%M:%S} UTC"
            if row.placed_at
            else "not known yet"
        )
    best = {True: ", one of the best by the last answer", False: ", not one of the best by the last answer", None: ""}
    return f"{row.placed_on}{best[row.placed_best]}"
