"""Revisions: what was live when, who made it so and why; and the way back to one."""

import json

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from policies import publishing, wording
from policies.admin.base import Confirmation, ReadOnlyAdmin, confirm, decisions_url, link, person, revision_url
from policies.admin.frame import ActionVariant, action, display
from policies.admin.rule_sets import may_publish
from policies.admin.versions import copyable
from policies.engine import ruleset as engine
from policies.models import Revision

_SHOWN = (
    "what_changed",
    "who",
    "reason",
    "rule_sets",
    "assignments",
    "priority_classes",
    "decisions",
    "full_digest",
    "pretty_document",
)


@admin.register(Revision)
class RevisionAdmin(ReadOnlyAdmin):
    """The pages of Revisions."""

    list_display = ("revision", "created_at", "made_by", "what_changed", "short_reason", "short_digest")
    search_fields = ("summary", "reason", "made_by", "digest")
    date_hierarchy = "created_at"
    fieldsets = ((None, {"fields": _SHOWN}),)
    readonly_fields = _SHOWN
    actions_detail = ("roll_back",)
    empty_title = "Nothing is published yet"
    empty_text = "Publishing a rule set's draft makes Revision 1. Until then kube-scheduler decides alone."

    def has_roll_back_permission(self, request: HttpRequest, object_id: object = None) -> bool:
        """Return whether this person may publish, and this Revision isn't the live one."""
        newest = Revision.objects.values_list("number", flat=True).first()
        return may_publish(request) and (object_id is None or str(object_id) != str(newest))

    @action(description="Roll back to this", permissions=["roll_back"], variant=ActionVariant.DANGER, icon="undo")
    def roll_back(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what rolling back would do, and do it."""
        row = get_object_or_404(Revision, pk=object_id)
        current = publishing.current_revision()
        target = engine.decode_revision(row.document.encode())
        changes = wording.revision_changes(current, target)
        page = Confirmation(
            title=f"Roll back to Revision {row.number}",
            effect=(
                f"Makes Revision {current.number + 1} with the content of Revision {row.number}. "
                "Drafts stay; Assignments with unpublished edits keep them."
            ),
            changes=changes,
            faults=[] if changes else [f"Nothing to roll back: what is live has the content of Revision {row.number}."],
            button="Roll back",
            back=revision_url(row.number),
            danger=True,
        )
        return confirm(
            self,
            request,
            page,
            lambda reason, _digest: publishing.roll_back(to_number=row.number, by=person(request), reason=reason),
        )

    @display(description="Revision", ordering="number")
    def revision(self, row: Revision) -> str:
        """Name it."""
        return str(row)

    @display(description="What changed")
    def what_changed(self, row: Revision) -> SafeString:
        """Return the changes against the Revision before, a line each."""
        items = format_html_join("", "<li>{}</li>", ((line,) for line in row.summary.splitlines()))
        return format_html('<ul class="berth-sentences">{}</ul>', items)

    @display(description="Reason")
    def short_reason(self, row: Revision) -> str:
        """Return the reason."""
        return row.reason or "none given"

    @display(description="Digest")
    def short_digest(self, row: Revision) -> SafeString:
        """Return the first characters of the digest."""
        return format_html('<code title="{}">{}</code>', row.digest, row.digest[:12])

    @display(description="SHA-256")
    def full_digest(self, row: Revision) -> SafeString:
        """Return the digest."""
        return format_html("<code>{}</code>", row.digest)

    @display(description="Who and when")
    def who(self, row: Revision) -> str:
        """Return who made it, and when."""
        return f"{row.made_by} at {row.created_at:%Y-%m-%d %H:%M:%S} UTC"

    @display(description="Rule sets")
    def rule_sets(self, row: Revision) -> str:
        """Return the rule sets that it holds."""
        found = engine.decode_revision(row.document.encode()).rule_sets
        return ", ".join(f"{each.name} version {each.version}" for each in found) or "none"

    @display(description="Assignments")
    def assignments(self, row: Revision) -> SafeString | str:
        """Return the Assignments that it holds, in their order."""
        found = engine.decode_revision(row.document.encode()).assignments
        lines = ((f"{each.name}: {wording.assignment_sentence(each)}",) for each in found)
        items = format_html_join("", "<li>{}</li>", lines)
        return format_html('<ul class="berth-sentences">{}</ul>', items) if found else "none"

    @display(description="PriorityClasses")
    def priority_classes(self, row: Revision) -> SafeString | str:
        """Return the PriorityClasses that it holds, the highest value first."""
        found = engine.decode_revision(row.document.encode()).priority_classes
        ladder = sorted(found, key=lambda each: (-each.value, each.name))
        lines = ((f"{each.name} version {each.version}: {wording.priority_class_sentence(each)}",) for each in ladder)
        items = format_html_join("", "<li>{}</li>", lines)
        return format_html('<ul class="berth-sentences">{}</ul>', items) if found else "none"

    @display(description="Decisions")
    def decisions(self, row: Revision) -> SafeString:
        """Link to the Decisions that it made."""
        return link(decisions_url(revision=row.number), f"Decisions by Revision {row.number}")

    @display(description="Document")
    def pretty_document(self, row: Revision) -> SafeString:
        """Return the document for people; the digest is over the compact form."""
        return copyable(json.dumps(json.loads(row.document), indent=2, ensure_ascii=False))
