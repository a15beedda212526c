"""REST endpoint for Pods without a node, and why they wait: the content of the page of Pending Pods."""

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

_MOST_GROUPS = 100
# Names of parameters, and the columns that they filter.
_NARROWS = {
    "namespace": "namespace",
    "scheduler": "scheduler_name",
    "rule": "rule",
    "reason": "reason",
    "owner_kind": "owner_kind",
    "owner_name": "owner_name",
}
# Lists of other rows have no page of 0.
_LIMITS = f"must be a whole number; 0 returns only groups, more than {MAX_LIMIT} counts as {MAX_LIMIT}"
_PARAMETERS = [
    *(OpenApiParameter(name, str, description="Only Pods with exactly this value.") for name in _NARROWS),
    OpenApiParameter("by", str, enum=["reason", "owner"], description="Group Pods by this."),
    OpenApiParameter(
        "limit",
        {"type": "integer", "minimum": 0},
        description=f"The most Pods of a page, 100 by default; 0 returns only groups, more than {MAX_LIMIT} counts as {MAX_LIMIT}.",
    ),
    RowPages.parameters[1],
]


class PendingView(Door):
    """The number of Pods without a node, the main reason, groups of them, and a page of the Pods."""

    needs = ("scheduler.view_decision",)
    parameters = {"get": _PARAMETERS}
    # Pods that no rule refused, or that nothing owns.
    may_be_empty = _NARROWS

    @extend_schema(responses={200: OpenApiTypes.OBJECT})
    def get(self, request: Request) -> Response:
        """Return the Pending Pods of the cluster when a worker last listed them, without Pods whose outcome was seen since."""
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
                    msgspec.to_builtins(owner_of(row) if by_owners else group_of(row)) for row in groups[:_MOST_GROUPS]
                ],
                "pods": [shown_pending(each) for each in waiting_of(page, now)],
                **links,
            }
        )


def _page(rows: QuerySet[PendingPod], request: Request) -> tuple[list[PendingPod], dict[str, str | None]]:
    """Return the Pods of the requested page, and links to the next and the previous page.

    Raises:
        ValidationError: with every invalid value.
    """
    faults: dict[str, Any] = {}
    if request.query_params.get("by", "reason") not in {"reason", "owner"}:
        faults["by"] = "must be reason or owner"
    pages = RowPages()
    page: list[PendingPod] = []
    links: dict[str, str | None] = {"next": None, "previous": None}
    if request.query_params.get("limit") != "0":
        try:
            page = pages.paginate_queryset(rows, request)
            links = pages.links()
        except ValidationError as error:
            said: Any = error.detail
            faults |= said | ({"limit": _LIMITS} if "limit" in said else {})
    if faults:
        raise ValidationError(faults)
    return page, links
