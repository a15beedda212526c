"""Serializers of REST's responses: the engine's documents, with members from the database."""

from collections import defaultdict
from functools import cached_property
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from policies import compiler, publishing
from policies.audit_words import sentence_of
from policies.engine import ruleset as engine
from policies.engine.documents import document_of
from policies.models import (
    Assignment,
    AuditEvent,
    ClusterPriorityClass,
    PriorityClass,
    PriorityClassVersion,
    Revision,
    RuleSet,
    RuleSetVersion,
)

_DOCUMENT = {"type": "object", "additionalProperties": True}


class VersionSerializer(serializers.ModelSerializer[RuleSetVersion]):
    """One version, without its document."""

    class Meta:
        model = RuleSetVersion
        fields = ["number", "state", "note", "author", "saved_at", "published_at", "published_by", "digest"]


class RuleSetSerializer(serializers.ModelSerializer[RuleSet]):
    """A rule set with its versions."""

    versions = VersionSerializer(many=True, read_only=True)

    class Meta:
        model = RuleSet
        fields = ["name", "description", "created_at", "updated_at", "versions"]


class RuleSetDetailSerializer(RuleSetSerializer):
    """A rule set with the document of its published version."""

    published = serializers.SerializerMethodField()

    class Meta(RuleSetSerializer.Meta):
        fields = [*RuleSetSerializer.Meta.fields, "published"]

    @extend_schema_field(_DOCUMENT | {"nullable": True})
    def get_published(self, row: RuleSet) -> dict[str, Any] | None:
        """Return the published document."""
        version = next((each for each in row.versions.all() if each.state == RuleSetVersion.State.PUBLISHED), None)
        return publishing.version_document(version) if version else None


class KnownOfAssignments:
    """The live Assignments, read once for a response."""

    @cached_property
    def live(self) -> dict[str, engine.Assignment]:
        """The Assignments of the live Revision."""
        return {each.name: each for each in publishing.current_revision().assignments}


class AssignmentSerializer(serializers.ModelSerializer[Assignment]):
    """An Assignment as its document."""

    document = serializers.SerializerMethodField()

    class Meta:
        model = Assignment
        fields = ["name", "order", "mode", "updated_at", "document"]

    @extend_schema_field(_DOCUMENT)
    def get_document(self, row: Assignment) -> dict[str, Any]:
        """Return the live document: in the row's column of jsonb 1e16 is a whole number, and it may be of another Revision."""
        known: KnownOfAssignments = self.context["known"]
        live = known.live.get(row.name)
        return document_of(live) if live else compiler.assignment_document(row)


class AuditEventSerializer(serializers.ModelSerializer[AuditEvent]):
    """An AuditEvent as a sentence, in columns, and with further members of its record."""

    sentence = serializers.SerializerMethodField(help_text="the event as a sentence")
    address = serializers.SerializerMethodField(help_text="null without the permission to see addresses")
    more = serializers.SerializerMethodField()
    is_as_written = serializers.SerializerMethodField(help_text="true if the columns agree with the record")

    class Meta:
        model = AuditEvent
        fields = [
            *("id", "at", "kind", "sentence", "by", "via", "door", "address", "thing_kind", "thing_name", "change"),
            *("revision", "before", "after", "reason", "request_id", "more", "is_as_written"),
        ]

    def get_sentence(self, row: AuditEvent) -> str:
        """Return the event as a sentence."""
        return sentence_of(row, self.get_more(row))

    def get_address(self, row: AuditEvent) -> str | None:
        """Return the address, for callers who may see addresses."""
        return row.address if self.context["request"].user.has_perm("policies.see_addresses") else None

    @extend_schema_field(_DOCUMENT)
    def get_more(self, row: AuditEvent) -> dict[str, Any]:
        """Return the record's further members; none if the record can't be read."""
        return publishing.more_of(row)

    def get_is_as_written(self, row: AuditEvent) -> bool:
        """Return whether the columns agree with the record."""
        return publishing.is_as_written(row)


class HeldSerializer(serializers.Serializer[Any]):
    """The Revisions in which a version was live, and the account and Change that published it."""

    since = serializers.IntegerField()
    until = serializers.IntegerField(allow_null=True)
    by = serializers.CharField()
    at = serializers.DateTimeField()
    reason = serializers.CharField()
    change = serializers.IntegerField(allow_null=True)


class AssignmentVersionSerializer(serializers.Serializer[Any]):
    """One published content of an Assignment."""

    number = serializers.IntegerField()
    digest = serializers.CharField()
    is_live = serializers.BooleanField()
    held = HeldSerializer(many=True)
    document = serializers.SerializerMethodField(help_text="null if a newer version of Berth wrote it")

    @extend_schema_field(_DOCUMENT | {"nullable": True})
    def get_document(self, version: publishing.AssignmentVersion) -> dict[str, Any] | None:
        """Return the document."""
        try:
            return document_of(version.value)
        except publishing.PublishingError:
            return None


class AssignmentDetailSerializer(AssignmentSerializer):
    """An Assignment with its versions, the first one first."""

    versions = serializers.SerializerMethodField()

    class Meta(AssignmentSerializer.Meta):
        fields = [*AssignmentSerializer.Meta.fields, "versions"]

    @extend_schema_field(AssignmentVersionSerializer(many=True))
    def get_versions(self, row: Assignment) -> Any:
        """Return the published versions of this name."""
        return AssignmentVersionSerializer(publishing.assignment_versions(row.name), many=True).data


class PriorityClassVersionSerializer(serializers.ModelSerializer[PriorityClassVersion]):
    """One published state of a PriorityClass."""

    class Meta:
        model = PriorityClassVersion
        fields = ["number", "state", "revision", "published_by", "published_at", "digest"]


class ClusterPriorityClassSerializer(serializers.ModelSerializer[ClusterPriorityClass]):
    """What the API server had at the last look, and what became of what is live."""

    class Meta:
        model = ClusterPriorityClass
        fields = [
            *("state", "message", "version", "present", "value", "global_default", "preemption_policy", "description"),
            *("managed", "made_by_berth", "looked_at", "changed_at"),
        ]


class KnownOfPriorityClasses:
    """The state of all PriorityClasses, read once for a response."""

    @cached_property
    def live(self) -> dict[str, engine.PriorityClass]:
        """The PriorityClasses of the live Revision."""
        return publishing.live_priority_classes()

    @cached_property
    def cluster(self) -> dict[str, ClusterPriorityClass]:
        """The PriorityClasses of the cluster."""
        return ClusterPriorityClass.objects.in_bulk()

    @cached_property
    def versions(self) -> defaultdict[str, list[PriorityClassVersion]]:
        """The published versions by name, the newest first."""
        versions = defaultdict(list)
        for version in PriorityClassVersion.objects.all():
            versions[version.name].append(version)
        return versions


class PriorityClassSerializer(serializers.ModelSerializer[PriorityClass]):
    """A PriorityClass: its document, its versions, and its state in the cluster. `state` is empty if it isn't live."""

    document = serializers.SerializerMethodField()
    live_version = serializers.SerializerMethodField(help_text="the version that is live; null for none")
    state = serializers.SerializerMethodField(help_text="the state of the live version in the cluster")
    versions = serializers.SerializerMethodField()
    cluster = serializers.SerializerMethodField()

    class Meta:
        model = PriorityClass
        fields = ["name", "value", "updated_at", "live_version", "state", "document", "versions", "cluster"]

    @extend_schema_field(_DOCUMENT)
    def get_document(self, row: PriorityClass) -> dict[str, Any]:
        """Return the document."""
        return compiler.priority_class_document(row)

    def get_live_version(self, row: PriorityClass) -> int | None:
        """Return the version that is live."""
        live = self._known.live.get(row.name)
        return live.version if live else None

    def get_state(self, row: PriorityClass) -> str:
        """Return the live version's state in the cluster."""
        live = self._known.live.get(row.name)
        return publishing.priority_class_state(live, self._known.cluster.get(row.name)).state if live else ""

    @extend_schema_field(PriorityClassVersionSerializer(many=True))
    def get_versions(self, row: PriorityClass) -> Any:
        """Return the published versions of this name."""
        return PriorityClassVersionSerializer(self._known.versions[row.name], many=True).data

    @extend_schema_field(ClusterPriorityClassSerializer(allow_null=True))
    def get_cluster(self, row: PriorityClass) -> Any:
        """Return the cluster's PriorityClass; null before the cluster was read."""
        found = self._known.cluster.get(row.name)
        return ClusterPriorityClassSerializer(found).data if found else None

    @property
    def _known(self) -> KnownOfPriorityClasses:
        known: KnownOfPriorityClasses = self.context["known"]
        return known


class RevisionSerializer(serializers.ModelSerializer[Revision]):
    """A Revision without its document."""

    class Meta:
        model = Revision
        fields = ["number", "digest", "made_by", "reason", "summary", "created_at"]


class RevisionDetailSerializer(RevisionSerializer):
    """A Revision with its whole document, and the exact text that its digest is computed from."""

    document = serializers.SerializerMethodField(help_text="canonical JSON, as a string")
    digest_text = serializers.SerializerMethodField(
        help_text="the digests of the Revision's parts and of the previous Revision; for an early Revision, its document"
    )

    class Meta(RevisionSerializer.Meta):
        fields = [*RevisionSerializer.Meta.fields, "document", "digest_text"]

    def get_document(self, row: Revision) -> str:
        """Return the document: canonical JSON, as a string."""
        return publishing.document_text(row)

    def get_digest_text(self, row: Revision) -> str:
        """Return the digests of the Revision's parts and of the previous Revision; for an early Revision, its document."""
        return publishing.digest_text(row)


class FaultSerializer(serializers.Serializer[Any]):
    """One fault of a document."""

    path = serializers.CharField()
    message = serializers.CharField()
    line = serializers.IntegerField()
    column = serializers.IntegerField()


class ValidationSerializer(serializers.Serializer[Any]):
    """The faults of a document; none if `ok`."""

    ok = serializers.BooleanField()
    faults = FaultSerializer(many=True)
