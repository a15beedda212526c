"""REST's answer to which Pods have no node, and why: what the page of Pending Pods shows."""

from typing import Literal

import msgspec
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from policies.api.base import Door
from scheduler.pending.listing import (
    by_owner,
    by_reason,
    group_of,
    owner_of,
    pending,
    shown_pending,
    summary_of_pending,
    waiting_of,
)

MOST_GROUPS, MAX_LIMIT, LIMIT = 100, 1_000, 100
# Names of parameters, and the columns that they narrow by.
_NARROWS = {
    "namespace": "namespace",
    "scheduler": "scheduler_name",
    "rule": "rule",
    "reason": "reason",
    "owner_kind": "owner_kind",
    "owner_name": "owner_name",
}
_LARGEST = 1_000_000
By = Literal["reason", "owner"]
_PARAMETERS = [
    *(OpenApiParameter(name, str, description="Only Pods of which this is so, whole.") for name in _NARROWS),
    OpenApiParameter("by", str, enum=["reason", "owner"], description="What groups are of."),
    OpenApiParameter("limit", int, description=f"Pods of a page: 0 to {MAX_LIMIT}; {LIMIT} unless it is said."),
    OpenApiParameter("offset", int, description="Pods before the page; see `next`."),
]


class PendingView(Door):
    """How many Pods have no node, what holds most of them, the groups of them, and a page of the Pods themselves."""

    needs = ("scheduler.view_decision",)
    parameters = {"get": _PARAMETERS}

    @extend_schema(responses={200: OpenApiTypes.OBJECT})
    def get(self, request: Request) -> Response:
        """Return it as a worker last saw the cluster, without the Pods whose outcome was seen since."""
        asked = request.query_params.dict()
        by, limit, offset = _read(asked)
        now = timezone.now()
        rows = pending(**{column: asked[name] for name, column in _NARROWS.items() if name in asked})
        summary = summary_of_pending(now)
        waiting = waiting_of(rows[offset : offset + limit + 1], now) if limit else []
        groups = by_owner(rows) if by == "owner" else by_reason(rows)
        return Response(
            {
                "total": summary.total,
                "since": summary.since,
                "schedulers": summary.schedulers,
                "held_most_by": msgspec.to_builtins(summary.most),
                "looked_at": summary.looked_at,
                "is_old": summary.is_old,
                "fault": summary.fault,
                "groups": [
                    msgspec.to_builtins(owner_of(row) if by == "owner" else group_of(row))
                    for row in groups[:MOST_GROUPS]
                ],
                "pods": [shown_pending(each) for each in waiting[:limit]],
                "next": offset + limit if len(waiting) > limit else None,
            }
        )


def _read(asked: dict[str, str]) -> tuple[By, int, int]:
    """Read the parameters that narrow nothing.

    Raises:
        ValidationError: with every value that is none.
    """
    faults = {}
    if asked.get("by", "reason") not in {"reason", "owner"}:
        faults["by"] = "is reason or owner"
    numbers = {}
    for name, unless, most in (("limit", LIMIT, MAX_LIMIT), ("offset", 0, _LARGEST)):
        text = asked.get(name, str(unless))
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most
        if not is_number:
            faults[name] = f"is a whole number from 0 to {most}"
        numbers[name] = int(text) if is_number else unless
    if faults:
        raise ValidationError(faults)
    return "owner" if asked.get("by") == "owner" else "reason", numbers["limit"], numbers["offset"]
