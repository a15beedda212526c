"""REST's answer to who asks, and what they may do."""

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
    """What this account may do, through what it came by."""

    read = serializers.BooleanField(help_text="which each call takes beside others")
    edit = serializers.BooleanField()
    publish = serializers.BooleanField()
    approve = serializers.BooleanField()
    break_glass = serializers.BooleanField()


class WhoamiSerializer(serializers.Serializer[Any]):
    """Who asks."""

    account = serializers.CharField()
    roles = serializers.ListField(child=serializers.CharField())
    token = serializers.CharField(allow_blank=True, help_text="its name; empty for a person's own session")
    scopes = serializers.ListField(child=serializers.CharField(), help_text="of the token")
    may = MaySerializer()


class WhoamiView(Door):
    """For whoever is signed in: those without a role see that they have none."""

    permission_classes = [IsAuthenticated]

    @extend_schema(responses=WhoamiSerializer)
    def get(self, request: Request) -> Response:
        """Return the account, the token that acts for it, and what both together may do."""
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
