"""Whole documents in bodies: one of the kind and the name that the URL says."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers

from policies import checking
from policies.api.problems import FaultsError
from policies.engine.errors import Fault, RuleSetError
from policies.engine.ruleset import API_VERSION, Document
from policies.models import Change
from policies.publishing import Kind

# Kinds as they stand in URLs.
KINDS = {"rule-sets": Kind.RULE_SET, "assignments": Kind.ASSIGNMENT, "priority-classes": Kind.PRIORITY_CLASS}


class MadeSerializer(serializers.Serializer[Any]):
    """What came of a single act."""

    changed = serializers.BooleanField(help_text="false where it was so already")
    change = serializers.IntegerField(allow_null=True, help_text="the Change of its own that it made")
    state = serializers.CharField(allow_blank=True, help_text="of that Change: published, or in_review")
    revision = serializers.IntegerField(allow_null=True, help_text="the Revision, once it is published")


def made_of(change: Change | None) -> dict[str, Any]:
    """Return what came of a single act."""
    return {
        "changed": change is not None,
        "change": change.pk if change else None,
        "state": change.state if change else "",
        "revision": change.revision_id if change else None,
    }


EXAMPLES = [
    OpenApiExample(
        "a rule set",
        value={
            "apiVersion": API_VERSION,
            "kind": "RuleSet",
            "metadata": {"name": "web"},
            "spec": {
                "filters": [
                    {"name": "team", "expression": "node.metadata.labels['team'] == pod.metadata.labels['team']"}
                ]
            },
        },
        request_only=True,
    ),
    OpenApiExample(
        "an Assignment",
        value={
            "apiVersion": API_VERSION,
            "kind": "Assignment",
            "metadata": {"name": "all-web"},
            "spec": {"order": 10, "ruleSet": "web", "match": {"namespaces": ["shop"]}},
        },
        request_only=True,
    ),
]


def read_whole(body: Any, kind: str, name: str = "") -> Document:
    """Return what a document says that is put under a URL.

    Raises:
        FaultsError: with every fault in it; or it is of another kind or name than the URL says.
    """
    faults = _misplaced(body, kind, name) if isinstance(body, dict) else []
    if faults and body.get("kind") not in (None, kind):
        raise FaultsError(faults)  # its members are those of another kind
    try:
        value = checking.read_document({**body, "kind": str(kind)} if isinstance(body, dict) else body)
    except RuleSetError as error:
        raise FaultsError([*faults, *error.faults]) from error
    if faults:
        raise FaultsError(faults)
    return value


def _misplaced(body: Mapping[str, Any], kind: str, name: str) -> list[Fault]:
    """Return what of a document says something else than the URL."""
    faults = []
    if body.get("kind") != kind:
        faults.append(Fault("kind", f"must be {kind}: this URL takes no other"))
    metadata = body.get("metadata")
    says = metadata.get("name") if isinstance(metadata, Mapping) else None
    if name and isinstance(says, str) and says != name:
        faults.append(Fault("metadata.name", f"is {says[:80]}; the URL says {name}"))
    return faults
