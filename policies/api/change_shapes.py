"""Serializers of Changes in REST: their edits, their state, and the bodies of their acts."""

from collections import Counter
from typing import Any

import msgspec
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from policies import publishing
from policies.api.asked import Asked, FewMembersField, MomentField, SeveralField
from policies.api.base import by_of
from policies.changes_in_words import part_changes
from policies.engine.documents import document_of
from policies.models import Change, ChangeEvent
from policies.publishing import lifecycle
from policies.sentences import ending_sentence

_MOST_TEXT = 2_000


class _WholePage(serializers.ListSerializer[Any]):
    """A page of Changes, for which the database is queried once, not once for each Change."""

    def to_representation(self, data: Any) -> Any:
        """Mark the Changes whose approvals no longer suffice."""
        rows = list(data)
        short = publishing.short_of_approvals(rows)
        for row in rows:
            row.is_short = row.pk in short
        return super().to_representation(rows)


class ChangeSerializer(serializers.ModelSerializer[Change]):
    """A Change without its edits."""

    is_short = serializers.SerializerMethodField(
        help_text="true if it was approved, but the approvals no longer suffice: an approver has lost the permission, or more approvals are required now"
    )
    is_scheduled = serializers.SerializerMethodField(
        help_text="true if it goes live by itself at `publish_at`: not if it was edited after that was set, or was held back at that time"
    )
    number = serializers.IntegerField(source="pk", read_only=True)
    revision = serializers.IntegerField(source="revision_id", read_only=True, allow_null=True)

    class Meta:
        model = Change
        list_serializer_class = _WholePage
        fields = [
            *(
                "number",
                "title",
                "reason",
                "state",
                "is_short",
                "digest",
                "base",
                "revision",
                "rolls_back_to",
                "publish_at",
                "is_scheduled",
                "held",
            ),
            *("expires_at", "opened_by", "opened_at", "moved_at"),
        ]

    def get_is_short(self, row: Change) -> bool:
        """Return whether its approvals no longer suffice."""
        noted: bool | None = getattr(row, "is_short", None)
        return bool(publishing.short_of_approvals([row])) if noted is None else noted

    def get_is_scheduled(self, row: Change) -> bool:
        """Return whether it will be published by schedule."""
        waits = row.state in lifecycle.OPEN and row.publish_at is not None and not row.held
        return waits and publishing.holds_schedule(row)


class ChangeEventSerializer(serializers.ModelSerializer[ChangeEvent]):
    """An event of a Change: an act, its author and its time."""

    class Meta:
        model = ChangeEvent
        fields = ["act", "by", "via", "whom", "at", "text", "digest"]


class EditSerializer(serializers.Serializer[Any]):
    """A Change's edit of one object."""

    kind = serializers.CharField()
    name = serializers.CharField()
    author = serializers.CharField()
    edited_at = serializers.DateTimeField()
    document = serializers.JSONField(
        allow_null=True,
        help_text="the new content; null if the object is removed, or if it can't be read: `changes` says which",
    )
    changes = serializers.ListField(child=serializers.CharField(), help_text="the differences, in sentences")


class WaitingSerializer(serializers.Serializer[Any]):
    """A reviewer whose review was requested."""

    name = serializers.CharField()
    asked_by = serializers.CharField()
    since = serializers.DateTimeField()


class ConflictSerializer(serializers.Serializer[Any]):
    """An object that somebody else has published since the Change was made."""

    kind = serializers.CharField()
    name = serializers.CharField()
    theirs = serializers.ListField(child=serializers.CharField(), help_text="their changes, in sentences")
    parts = serializers.ListField(
        child=serializers.CharField(), help_text="the parts of a rule set that both sides changed, such as filters/team"
    )


class ResultSerializer(serializers.Serializer[Any]):
    """The result of one check of the gate."""

    check = serializers.CharField()
    verdict = serializers.CharField()
    says = serializers.CharField()
    lines = serializers.ListField(child=serializers.CharField(), required=False)
    found = serializers.ListField(child=serializers.DictField(), required=False)
    count = serializers.IntegerField(required=False)


class GateSerializer(serializers.Serializer[Any]):
    """The gate's state and results for a Change."""

    state = serializers.CharField(allow_blank=True, help_text="state of the newest run; empty if there was none")
    phase = serializers.CharField(allow_blank=True)
    done = serializers.IntegerField()
    total = serializers.IntegerField()
    fault = serializers.CharField(allow_blank=True)
    results = ResultSerializer(many=True)
    levels = serializers.DictField(
        child=serializers.CharField(), help_text="the level of each check, which says what a finding leads to"
    )
    stale = serializers.CharField(allow_blank=True, help_text="why the results are out of date")
    refusal = serializers.CharField(allow_blank=True, help_text="why the Change can't be published")


class ChangeDetailSerializer(ChangeSerializer):
    """A Change with its edits, its state and its events."""

    edits = serializers.SerializerMethodField()
    changes = serializers.SerializerMethodField(help_text="what it changes, in sentences")
    authors = serializers.SerializerMethodField(help_text="everybody who edited it")
    approved_by = serializers.SerializerMethodField(help_text="the approvers whose approvals count")
    missing = serializers.SerializerMethodField(help_text="the missing approvals, one sentence each")
    waiting = serializers.SerializerMethodField(help_text="the reviewers whose review was requested")
    conflicts = serializers.SerializerMethodField(help_text="objects that changed since the Change was made: rebase it")
    live = serializers.SerializerMethodField(
        help_text="the live Revision with which the conflicts were found, for rebase"
    )
    ends = serializers.SerializerMethodField(
        help_text="the Pauses and Exemptions that end because their objects are removed, in sentences"
    )
    kept = serializers.SerializerMethodField(
        help_text="the edited objects that a repository owns: its next apply reverts the edits"
    )
    gate = serializers.SerializerMethodField()
    events = ChangeEventSerializer(many=True, read_only=True)

    class Meta(ChangeSerializer.Meta):
        fields = [
            *ChangeSerializer.Meta.fields,
            *(
                "edits",
                "changes",
                "authors",
                "approved_by",
                "missing",
                "waiting",
                "conflicts",
                "live",
                "ends",
                "kept",
                "gate",
                "events",
            ),
        ]

    @extend_schema_field(EditSerializer(many=True))
    def get_edits(self, row: Change) -> Any:
        """Return the edits."""
        return EditSerializer(self._edits(row), many=True).data

    @staticmethod
    def _edits(row: Change) -> list[dict[str, Any]]:
        bases = publishing.bases_of(row)
        edits, faults = publishing.readable_edits(row)
        values = {edit.key: edit.value for edit in edits}
        return [
            {
                "kind": each.kind,
                "name": each.name,
                "author": each.author,
                "edited_at": each.edited_at,
                "document": document_of(value) if (value := values.get(each.key)) else None,
                "changes": [faults[each.key]] if each.key in faults else part_changes(bases.get(each.key), value),
            }
            for each in row.edits.all()
        ]

    def get_changes(self, row: Change) -> list[str]:
        """Return what it changes, and the edits that would have ended already."""
        past = publishing.past_ends(publishing.readable_edits(row)[0]) if row.state in lifecycle.OPEN else []
        return [*(line for edit in self._edits(row) for line in edit["changes"]), *past]

    def get_authors(self, row: Change) -> list[str]:
        """Return everybody who edited it."""
        return sorted(self._standing(row).authors)

    def get_approved_by(self, row: Change) -> list[str]:
        """Return the approvers whose approvals count."""
        return sorted(self._standing(row).counting)

    def get_missing(self, row: Change) -> list[str]:
        """Return which approvals are missing, with the caller's way to them."""
        standing = self._standing(row)
        if row.state not in lifecycle.OPEN and not standing.waits_for_approval_afterwards:
            return []
        return standing.missing_for(publishing.actor_of(by_of(self.context["request"])))

    @extend_schema_field(WaitingSerializer(many=True))
    def get_waiting(self, row: Change) -> Any:
        """Return the reviewers whose review was requested."""
        return WaitingSerializer(publishing.waiting_for(row), many=True).data

    @extend_schema_field(ConflictSerializer(many=True))
    def get_conflicts(self, row: Change) -> Any:
        """Return the objects that somebody else has published since."""
        moved = publishing.readable_moved(row) if row.state in lifecycle.OPEN else []
        found = [
            {
                "kind": each.kind,
                "name": each.name,
                "theirs": part_changes(each.base, each.live),
                "parts": list(merged.conflicts) if (merged := publishing.merged_of(each)) else [],
            }
            for each in moved
        ]
        if orders := publishing.orders_of(row) if row.state in lifecycle.OPEN else None:
            kind, name = publishing.ORDER
            found.append({"kind": kind, "name": name, "theirs": orders.sentences, "parts": []})
        return ConflictSerializer(found, many=True).data

    def get_live(self, row: Change) -> int:
        """Return which Revision is live."""
        return publishing.current_revision().number

    def get_ends(self, row: Change) -> list[str]:
        """Return the Pauses and Exemptions that end with it."""
        return [ending_sentence(each, row.expires_at) for each in publishing.endings_of(row)]

    def get_kept(self, row: Change) -> list[str]:
        """Return which edited objects a repository owns."""
        keys = [each.key for each in row.edits.all()]
        return publishing.owner_notes(keys, row.owner) if row.state in lifecycle.OPEN else []

    @extend_schema_field(GateSerializer())
    def get_gate(self, row: Change) -> Any:
        """Return what the gate found."""
        gate = publishing.gate_of(row)
        run = gate.run
        results = publishing.results_of(gate.result) if gate.result else []
        return GateSerializer(
            {
                "state": run.state if run else "",
                "phase": run.phase if run else "",
                "done": run.done if run else 0,
                "total": run.total if run else 0,
                "fault": run.fault if run else "",
                "results": msgspec.to_builtins(publishing.in_order(results, gate.levels)),
                "levels": gate.levels,
                "stale": gate.stale,
                "refusal": gate.refusal if row.state in lifecycle.OPEN else "",
            }
        ).data

    def _standing(self, row: Change) -> lifecycle.Standing:
        # Three members use it, and it queries the database.
        found: lifecycle.Standing | None = getattr(row, "_standing", None)
        if found is None:
            found = publishing.standing_of(row)
            row._standing = found  # type: ignore[attr-defined]  # noqa: SLF001
        return found


class NewChangeSerializer(Asked):
    """The title and the reason of a new Change."""

    title = serializers.CharField(max_length=200)
    reason = serializers.CharField(max_length=_MOST_TEXT, required=False, allow_blank=True, default="")


class DescriptionSerializer(Asked):
    """The new title or reason of a Change; a member that is absent stays the same."""

    title = serializers.CharField(max_length=200, required=False)
    reason = serializers.CharField(max_length=_MOST_TEXT, required=False, allow_blank=True)


class ReasonSerializer(Asked):
    """The reason, which is stored with the Change."""

    reason = serializers.CharField(max_length=_MOST_TEXT, required=False, allow_blank=True, default="")


class CommentSerializer(Asked):
    """A comment."""

    comment = serializers.CharField(max_length=_MOST_TEXT)


class AskingSerializer(ReasonSerializer):
    """The requested reviewer."""

    whom = serializers.CharField(max_length=150, help_text="the account's name")


class RebasedSideSerializer(Asked):
    """The choice for one object with a conflict."""

    kind = serializers.ChoiceField(choices=[*(str(kind) for kind in publishing.Kind), publishing.ORDER[0]])
    name = serializers.CharField(max_length=253)
    take = serializers.ChoiceField(
        choices=["mine", "theirs", "merge"], help_text="merge combines rule sets, rule by rule"
    )
    parts = FewMembersField(
        child=serializers.ChoiceField(choices=["mine", "theirs"]),
        required=False,
        default=dict,
        help_text="for merge: whose side is used for each conflicting part",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Accept parts only with merge: with another choice they would be ignored, and an edit would be lost."""
        if attrs["parts"] and attrs["take"] != "merge":
            message = f"needs take: merge; {attrs['take']} is for the whole object"
            raise serializers.ValidationError({"parts": message})
        return attrs


class RebaseSerializer(Asked):
    """The Revision that was compared, and which side wins for each conflict. Objects that aren't named keep the Change's edit."""

    revision = serializers.IntegerField(
        min_value=0,
        required=False,
        help_text="the live Revision that the Change was compared with; default: the current one",
    )
    sides = SeveralField(child=RebasedSideSerializer(), required=False, default=list)

    def validate_sides(self, sides: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Accept only one choice for each object: of two, it isn't clear which one was meant."""
        named = Counter((each["kind"], each["name"]) for each in sides)
        for (kind, name), number in named.items():
            if number > 1:
                message = f"{kind}/{name} is given twice"
                raise serializers.ValidationError(message)
        return sides


class ScheduleSerializer(Asked):
    """The time at which the Change goes live by itself; null to publish it by hand."""

    publish_at = MomentField(allow_null=True)
    seen_publish_at = MomentField(
        allow_null=True,
        required=False,
        help_text="the `publish_at` of the Change as you read it, which its ETag doesn't cover; if it is another one now, the answer is 412",
    )


class ExpirySerializer(Asked):
    """The time at which the Change's edits are reverted; null for never."""

    expires_at = MomentField(allow_null=True)
