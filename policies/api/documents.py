"""Whole documents as request bodies, whose kind and name must agree with the URL."""

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
    """The result of an act that makes a Change of its own."""

    changed = serializers.BooleanField(help_text="false if there was nothing to change")
    change = serializers.IntegerField(allow_null=True, help_text="the Change that the act made")
    state = serializers.CharField(allow_blank=True, help_text="the state of that Change: published, or in_review")
    revision = serializers.IntegerField(allow_null=True, help_text="the Revision, if the Change is published")


def made_of(change: Change | None) -> dict[str, Any]:
    """Return the result of an act that makes a Change of its own."""
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
    """Return the document in the body of a PUT.

    Raises:
        FaultsError: with every fault in it; or its kind or name differs from the URL's.
    """
    faults = _misplaced(body, kind, name) if isinstance(body, dict) else []
    if faults and body.get("kind") not in (None, kind):
        raise FaultsError(faults)  # the members of another kind would only give misleading faults
    try:
        value = checking.read_document({**body, "kind": str(kind)} if isinstance(body, dict) else body)
    except RuleSetError as error:
        raise FaultsError([*faults, *error.faults]) from error
    if faults:
        raise FaultsError(faults)
    return value


def _misplaced(body: Mapping[str, Any], kind: str, name: str) -> list[Fault]:
    """Return where a document's kind or name differs from the URL's."""
    faults = []
    if body.get("kind") != kind:
        faults.append(Fault("kind", f"must be {kind} at this URL"))
    metadata = body.get("metadata")
    says = metadata.get("name") if isinstance(metadata, Mapping) else None
    if name and isinstance(says, str) and says != name:
        faults.append(Fault("metadata.name", f"is {says[:80]}, but the URL has {name}"))
    return faults
