"""REST endpoint for the caller's account and permissions."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from policies import publishing
from policies.api.base import Door, by_of
from policies.publishing import OnBehalf


class MaySerializer(serializers.Serializer[Any]):
    """The permissions of this account, with this session or token."""

    read = serializers.BooleanField(help_text="needed for each call, in addition to others")
    edit = serializers.BooleanField()
    publish = serializers.BooleanField()
    approve = serializers.BooleanField()
    break_glass = serializers.BooleanField()


class WhoamiSerializer(serializers.Serializer[Any]):
    """The caller."""

    account = serializers.CharField()
    roles = serializers.ListField(child=serializers.CharField())
    token = serializers.CharField(allow_blank=True, help_text="the token's name; empty for a session")
    scopes = serializers.ListField(child=serializers.CharField(), help_text="the token's scopes")
    may = MaySerializer()


class WhoamiView(Door):
    """For every account, also one without a role."""

    permission_classes = [IsAuthenticated]

    @extend_schema(responses=WhoamiSerializer)
    def get(self, request: Request) -> Response:
        """Return the account, its token, and the permissions of both together."""
        by = by_of(request)
        actor = publishing.actor_of(by)
        shown = {
            "account": actor.name,
            "roles": sorted(request.user.groups.values_list("name", flat=True)),
            "token": by.via if isinstance(by, OnBehalf) else "",
            "scopes": sorted(by.scopes) if isinstance(by, OnBehalf) else [],
            "may": {
                "read": request.user.has_perm("policies.view_ruleset"),
                "edit": actor.may_edit,
                "publish": actor.may_publish,
                "approve": actor.may_approve,
                "break_glass": actor.may_break_glass,
            },
        }
        return Response(WhoamiSerializer(shown).data)
