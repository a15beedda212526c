"""REST's answer to which Pods have no node, and why: what the page of Pending Pods shows."""

from typing import Any

import msgspec
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from policies.api.base import Door
from policies.api.pagination import RowPages
from policies.parameters import MAX_LIMIT
from scheduler.models import PendingPod
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

MOST_GROUPS = 100
# Names of parameters, and the columns that they narrow by.
_NARROWS = {
    "namespace": "namespace",
    "scheduler": "scheduler_name",
    "rule": "rule",
    "reason": "reason",
    "owner_kind": "owner_kind",
    "owner_name": "owner_name",
}
_PARAMETERS = [
    *(OpenApiParameter(name, str, description="Only Pods of which this is so, whole.") for name in _NARROWS),
    OpenApiParameter("by", str, enum=["reason", "owner"], description="What groups are of."),
    OpenApiParameter(
        "limit",
        {"type": "integer", "minimum": 0},
        description=f"Pods of a page, 100 unless it is said; 0 for groups alone, more than {MAX_LIMIT} gives {MAX_LIMIT}.",
    ),
    RowPages.parameters[1],
]


class PendingView(Door):
    """How many Pods have no node, what holds most of them, the groups of them, and a page of the Pods themselves."""

    needs = ("scheduler.view_decision",)
    parameters = {"get": _PARAMETERS}

    @extend_schema(responses={200: OpenApiTypes.OBJECT})
    def get(self, request: Request) -> Response:
        """Return it as a worker last saw the cluster, without the Pods whose outcome was seen since."""
        asked = request.query_params.dict()
        now = timezone.now()
        rows = pending(**{column: asked[name] for name, column in _NARROWS.items() if name in asked})
        by_owners = asked.get("by") == "owner"
        page, links = _page(rows, request)
        summary = summary_of_pending(now)
        groups = by_owner(rows) if by_owners else by_reason(rows)
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
                    msgspec.to_builtins(owner_of(row) if by_owners else group_of(row)) for row in groups[:MOST_GROUPS]
                ],
                "pods": [shown_pending(each) for each in waiting_of(page, now)],
                **links,
            }
        )


def _page(rows: QuerySet[PendingPod], request: Request) -> tuple[list[PendingPod], dict[str, str | None]]:
    """Return the Pods of the page that is asked for, and where its neighbours are.

    Raises:
        ValidationError: with every value that is none.
    """
    faults: dict[str, Any] = {}
    if request.query_params.get("by", "reason") not in {"reason", "owner"}:
        faults["by"] = "is reason or owner"
    pages = RowPages()
    page: list[PendingPod] = []
    links: dict[str, str | None] = {"next": None, "previous": None}
    if request.query_params.get("limit") != "0":
        try:
            page = pages.paginate_queryset(rows, request)
            links = pages.links()
        except ValidationError as error:
            said: Any = error.detail
            faults |= said
    if faults:
        raise ValidationError(faults)
    return page, links
