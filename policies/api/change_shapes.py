"""Shapes of Changes in REST: what one makes, how it stands, and what its acts take."""

from collections import Counter
from typing import Any

import msgspec
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from policies import publishing, wording
from policies.api.asked import Asked
from policies.engine.documents import document_of
from policies.models import Change, ChangeEvent
from policies.publishing import lifecycle

_MOST_TEXT = 2_000


class _WholePage(serializers.ListSerializer[Any]):
    """A page of Changes: what one of them needs of the database is asked for all of them at once."""

    def to_representation(self, data: Any) -> Any:
        """Note which approvals no longer suffice."""
        rows = list(data)
        short = publishing.short_of_approvals(rows)
        for row in rows:
            row.is_short = row.pk in short
        return super().to_representation(rows)


class ChangeSerializer(serializers.ModelSerializer[Change]):
    """A Change without what it makes."""

    is_short = serializers.SerializerMethodField(
        help_text="whether it was approved, and isn't any more: who approved it may not approve now, or more approvals are asked for since"
    )
    is_scheduled = serializers.SerializerMethodField(
        help_text="whether it goes live by itself at `publish_at`: not where it was edited since that was set, nor where it was held back then"
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
        """Return whether the clock publishes it."""
        waits = row.state in lifecycle.OPEN and row.publish_at is not None and not row.held
        return waits and publishing.holds_schedule(row)


class ChangeEventSerializer(serializers.ModelSerializer[ChangeEvent]):
    """What somebody did with a Change."""

    class Meta:
        model = ChangeEvent
        fields = ["act", "by", "via", "whom", "at", "text", "digest"]


class EditSerializer(serializers.Serializer[Any]):
    """What a Change makes of one thing."""

    kind = serializers.CharField()
    name = serializers.CharField()
    author = serializers.CharField()
    edited_at = serializers.DateTimeField()
    document = serializers.JSONField(allow_null=True, help_text="its new content; null where it is removed")
    changes = serializers.ListField(child=serializers.CharField(), help_text="in sentences")


class WaitingSerializer(serializers.Serializer[Any]):
    """Whose review is asked for."""

    name = serializers.CharField()
    asked_by = serializers.CharField()
    since = serializers.DateTimeField()


class ConflictSerializer(serializers.Serializer[Any]):
    """Something that somebody else has published meanwhile."""

    kind = serializers.CharField()
    name = serializers.CharField()
    theirs = serializers.ListField(child=serializers.CharField(), help_text="what they changed, in sentences")
    parts = serializers.ListField(
        child=serializers.CharField(), help_text="of a rule set, what both sides changed: filters/team"
    )


class ResultSerializer(serializers.Serializer[Any]):
    """What one check of the gate found."""

    check = serializers.CharField()
    verdict = serializers.CharField()
    says = serializers.CharField()
    lines = serializers.ListField(child=serializers.CharField(), required=False)
    found = serializers.ListField(child=serializers.DictField(), required=False)
    count = serializers.IntegerField(required=False)


class GateSerializer(serializers.Serializer[Any]):
    """How the gate stands to a Change."""

    state = serializers.CharField(allow_blank=True, help_text="of its newest run; empty where there was none")
    phase = serializers.CharField(allow_blank=True)
    done = serializers.IntegerField()
    total = serializers.IntegerField()
    fault = serializers.CharField(allow_blank=True)
    results = ResultSerializer(many=True)
    levels = serializers.DictField(child=serializers.CharField(), help_text="what comes of each check")
    stale = serializers.CharField(allow_blank=True, help_text="why the results are no longer of what would happen now")
    refusal = serializers.CharField(allow_blank=True, help_text="why it can't be published")


class ChangeDetailSerializer(ChangeSerializer):
    """A Change with what it makes, and how it stands."""

    edits = serializers.SerializerMethodField()
    changes = serializers.SerializerMethodField(help_text="what it makes another, in sentences")
    authors = serializers.SerializerMethodField()
    approved_by = serializers.SerializerMethodField(help_text="whose approvals count")
    missing = serializers.SerializerMethodField(help_text="which approvals are missing, a sentence each")
    waiting = serializers.SerializerMethodField(help_text="whose review it waits for")
    conflicts = serializers.SerializerMethodField(help_text="what moved since it was made: rebase it")
    live = serializers.SerializerMethodField(help_text="the live Revision that conflicts are told by, for rebase")
    ends = serializers.SerializerMethodField(
        help_text="Pauses and Exemptions that end with what it removes, in sentences"
    )
    kept = serializers.SerializerMethodField(help_text="what of it a repository keeps, whose next apply undoes it")
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
        """Return what it makes of each thing."""
        return EditSerializer(self._edits(row), many=True).data

    @staticmethod
    def _edits(row: Change) -> list[dict[str, Any]]:
        bases = publishing.bases_of(row)
        rows = {each.key: each for each in row.edits.all()}
        return [
            {
                "kind": edit.kind,
                "name": edit.name,
                "author": rows[edit.key].author,
                "edited_at": rows[edit.key].edited_at,
                "document": None if edit.value is None else document_of(edit.value),
                "changes": wording.part_changes(bases.get(edit.key), edit.value),
            }
            for edit in publishing.edits_of(row)
        ]

    def get_changes(self, row: Change) -> list[str]:
        """Return what it makes another, and what of it would be over already."""
        past = publishing.past_ends(publishing.edits_of(row)) if row.state in lifecycle.OPEN else []
        return [*(line for edit in self._edits(row) for line in edit["changes"]), *past]

    def get_authors(self, row: Change) -> list[str]:
        """Return who has ever edited it."""
        return sorted(self._standing(row).authors)

    def get_approved_by(self, row: Change) -> list[str]:
        """Return whose approvals count."""
        return sorted(self._standing(row).counting)

    def get_missing(self, row: Change) -> list[str]:
        """Return which approvals are missing."""
        standing = self._standing(row)
        return standing.missing if row.state in lifecycle.OPEN or standing.waits_for_approval_afterwards else []

    @extend_schema_field(WaitingSerializer(many=True))
    def get_waiting(self, row: Change) -> Any:
        """Return whose review it waits for."""
        return WaitingSerializer(publishing.waiting_for(row), many=True).data

    @extend_schema_field(ConflictSerializer(many=True))
    def get_conflicts(self, row: Change) -> Any:
        """Return what somebody else has published meanwhile."""
        moved = publishing.moved_of(row) if row.state in lifecycle.OPEN else []
        found = [
            {
                "kind": each.kind,
                "name": each.name,
                "theirs": wording.part_changes(each.base, each.live),
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
        del row
        return publishing.current_revision().number

    def get_ends(self, row: Change) -> list[str]:
        """Return what ends with it."""
        return [wording.ending_sentence(each) for each in publishing.endings_of(row)]

    def get_kept(self, row: Change) -> list[str]:
        """Return what of it a repository keeps."""
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
        # Three members are of it, and it asks the database.
        found: lifecycle.Standing | None = getattr(row, "_standing", None)
        if found is None:
            found = publishing.standing_of(row)
            row._standing = found  # type: ignore[attr-defined]  # noqa: SLF001
        return found


class NewChangeSerializer(Asked):
    """What a Change is for."""

    title = serializers.CharField(max_length=200)
    reason = serializers.CharField(max_length=_MOST_TEXT, required=False, allow_blank=True, default="")


class DescriptionSerializer(Asked):
    """What a Change is for, in other words; what isn't there stays."""

    title = serializers.CharField(max_length=200, required=False)
    reason = serializers.CharField(max_length=_MOST_TEXT, required=False, allow_blank=True)


class ReasonSerializer(Asked):
    """Why it is done; kept with the Change."""

    reason = serializers.CharField(max_length=_MOST_TEXT, required=False, allow_blank=True, default="")


class CommentSerializer(Asked):
    """What the others should know."""

    comment = serializers.CharField(max_length=_MOST_TEXT)


class AskingSerializer(ReasonSerializer):
    """Whose review is wanted."""

    whom = serializers.CharField(max_length=150, help_text="the account's name")


class RebasedSideSerializer(Asked):
    """What is to become of one thing that moved."""

    kind = serializers.ChoiceField(choices=[*(str(kind) for kind in publishing.Kind), publishing.ORDER[0]])
    name = serializers.CharField(max_length=253)
    take = serializers.ChoiceField(
        choices=["mine", "theirs", "merge"], help_text="merge puts rule sets together, rule by rule"
    )
    parts = serializers.DictField(
        child=serializers.ChoiceField(choices=["mine", "theirs"]),
        required=False,
        default=dict,
        help_text="of merge, whose is taken of each of the conflict's parts",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Take parts of what is put together alone: beside another choice they would be passed over, and with them an edit."""
        if attrs["parts"] and attrs["take"] != "merge":
            message = f"goes with take: merge; {attrs['take']} is of the whole"
            raise serializers.ValidationError({"parts": message})
        return attrs


class RebaseSerializer(Asked):
    """What was looked at, and which side wins where both have changed. What isn't named stays as it is edited."""

    revision = serializers.IntegerField(
        min_value=0,
        required=False,
        help_text="the live Revision that it was compared with; without it, whichever is live",
    )
    sides = RebasedSideSerializer(many=True, required=False, default=list)

    def validate_sides(self, sides: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Take one choice of each thing: of two, the one that was meant may be the other."""
        named = Counter((each["kind"], each["name"]) for each in sides)
        for (kind, name), number in named.items():
            if number > 1:
                message = f"{kind}/{name} stands here twice"
                raise serializers.ValidationError(message)
        return sides


class ScheduleSerializer(Asked):
    """When it goes live by itself; null for when somebody publishes it."""

    publish_at = serializers.DateTimeField(allow_null=True)


class ExpirySerializer(Asked):
    """When what it touches goes back; null for never."""

    expires_at = serializers.DateTimeField(allow_null=True)
