"""The pages of Revisions: what was live when, who published it and why; and rolling back to one."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import msgspec
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import QuerySet, Sum
from django.db.models.functions import Length
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from policies import publishing
from policies.admin.base import (
    Confirmation,
    ReadOnlyAdmin,
    change_url,
    confirm,
    decisions_url,
    link,
    marked,
    may_publish,
    named,
    number_in,
    person,
    revision_url,
)
from policies.admin.differences import whole
from policies.admin.frame import ActionVariant, ChangeList, action, display, once
from policies.admin.panels import revision_words
from policies.admin.versions import copyable
from policies.changes_in_words import revision_changes
from policies.models import Change, Revision, RevisionPart
from policies.publishing import Difference, ListedPart, PublishingError
from policies.sentences import assignment_sentence, priority_class_sentence, suspension_sentence

# How many lines of a list a page shows before a link to the whole list, and lines on a page of the whole list.
_FIRST, _ON_A_PAGE = 20, 200
# How many things a line of the list of Revisions names, and the prefixes of lines that name a thing.
_IN_LIST = 3
_HEADS = ("rule set ", "Assignment ", "PriorityClass ", "Pause ", "Exemption ")
# The largest document, in bytes, that its Revision's page shows.
_SHOWN_BYTES = 20_000

_Kind = RevisionPart.Kind

_SHOWN = (
    "what_changed",
    "documents_compared",
    "made_by_change",
    "who",
    "reason",
    "rule_sets",
    "assignments",
    "priority_classes",
    "pauses",
    "exemptions",
    "decisions",
    "full_digest",
    "document",
)


def _head(line: str) -> str:
    """Return the thing that a line of changes names; for a Pause, whose name is a digest, its target."""
    name, _, rest = line.partition(": ")
    return rest.partition(": ")[0] if name.startswith("Pause ") and name.endswith((" added", " removed")) else name


class _RevisionList(ChangeList):
    """Adds to the rows of a page what other modules show about each Revision."""

    def get_results(self, request: HttpRequest) -> None:
        """Read this for all rows with a few queries."""
        super().get_results(request)
        made = {row.change.pk: row.digest for row in self.result_list if hasattr(row, "change")}
        words = revision_words(made) if made else {}
        for row in self.result_list:
            row.words = words


@admin.register(Revision)
class RevisionAdmin(ReadOnlyAdmin):
    """The pages of Revisions."""

    list_display = ("revision", "made_at", "maker", "in_a_line", "short_reason", "short_digest", "signed")
    search_fields = ("summary", "reason", "made_by", "digest")
    date_hierarchy = "created_at"
    fieldsets = ((None, {"fields": _SHOWN}),)
    readonly_fields = _SHOWN
    actions_detail = ("roll_back",)
    empty_title = "Nothing is published yet"
    empty_text = "Publishing a Change makes Revision 1. Until then kube-scheduler decides on its own."

    def has_roll_back_permission(self, request: HttpRequest, object_id: object = None) -> bool:
        """Return whether this person may publish, and this Revision isn't the live one."""
        newest = Revision.objects.values_list("number", flat=True).first()
        return may_publish(request) and (object_id is None or str(object_id) != str(newest))

    def get_urls(self) -> list[URLPattern]:
        """Add the pages of the long lists, and the document."""
        view = self.admin_site.admin_view
        return [
            path("<int:number>/list/<str:which>/", view(self.listed), name="policies_revision_list"),
            path("<int:number>/document/", view(self.whole_document), name="policies_revision_document"),
            *super().get_urls(),
        ]

    def listed(self, request: HttpRequest, number: int, which: str) -> HttpResponse:
        """Show one list of a Revision, page by page."""
        row = self._visible(request, number)
        if which not in {"changes", *_LISTS}:
            raise Http404
        page = number_in(request.GET.get("page", "")) or 1
        lines, total = _lines(row, which, (page - 1) * _ON_A_PAGE, page * _ON_A_PAGE)
        context = {
            **self.admin_site.each_context(request),
            "title": f"{row}: {_LISTS[which].title if which in _LISTS else 'what changed'}",
            "lines": lines,
            "first": (page - 1) * _ON_A_PAGE + 1,
            "last": (page - 1) * _ON_A_PAGE + len(lines),
            "total": total,
            "former": page - 1,
            "next": page + 1 if page * _ON_A_PAGE < total else 0,
            "back": revision_url(number),
            "opts": self.opts,
        }
        return TemplateResponse(request, "policies/revision_list.html", context)

    def whole_document(self, request: HttpRequest, number: int) -> HttpResponse:
        """Return the document as a file of JSON."""
        row = self._visible(request, number)
        headers = {"Content-Disposition": f'attachment; filename="revision-{number}.json"'}
        return HttpResponse(publishing.document_text(row), content_type="application/json", headers=headers)

    def _visible(self, request: HttpRequest, number: int) -> Revision:
        self.check_may_view(request)
        return get_object_or_404(Revision, pk=number)

    @action(description="Roll back to this", permissions=["roll_back"], variant=ActionVariant.DANGER, icon="undo")
    def roll_back(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what rolling back would do, and do it."""
        row = get_object_or_404(Revision, pk=object_id)
        return confirm(
            self,
            request,
            lambda: _roll_back_page(row),
            lambda reason, digest: publishing.roll_back(
                to_number=row.number, by=person(request), reason=reason, expected_digest=digest
            ),
            propose=lambda reason, digest: publishing.propose_roll_back(
                to_number=row.number, by=person(request), reason=reason, expected_digest=digest
            ),
        )

    @display(description="Revision", ordering="number")
    def revision(self, row: Revision) -> str:
        """Return the title."""
        return str(row)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Revision]:
        """Select the Change that made each Revision in the same query."""
        found: QuerySet[Revision] = super().get_queryset(request)
        return found.select_related("change")

    @display(description="Made at (UTC)", ordering="created_at")
    def made_at(self, row: Revision) -> SafeString:
        """Return when it was made."""
        return format_html('<span class="berth-nowrap">{}</span>', f"{row.created_at:%Y-%m-%d %H:%M:%S}")

    @display(description="Made by", ordering="made_by")
    def maker(self, row: Revision) -> SafeString | str:
        """Return who made it."""
        return named(row, row.made_by)

    @display(description="What changed")
    def in_a_line(self, row: Revision) -> str:
        """Return the things that it touched, in a line; a roll-back is called that. Its own page has the diff."""
        change = getattr(row, "change", None)
        heads = [_head(line) for line in row.summary.splitlines() if line.startswith(_HEADS)]
        said = "; ".join(heads[:_IN_LIST]) + (f"; and {len(heads) - _IN_LIST} more" if len(heads) > _IN_LIST else "")
        if change is None or change.rolls_back_to is None:
            return said
        return f"Roll back to Revision {change.rolls_back_to}: {said}"

    @display(description="What changed")
    @once
    def what_changed(self, row: Revision) -> SafeString:
        """Return the changes since the previous Revision, a line each."""
        return _first_lines(row, "changes")

    @display(description="Compared")
    @once
    def documents_compared(self, row: Revision) -> SafeString:
        """Return the whole documents of the things that changed, compared with those of the previous Revision."""
        found, number = publishing.revision_differences(row.number - 1, row.number, 0, _FIRST)
        shown = format_html_join(
            "", '<h2 class="berth-thing">{} {}</h2>{}', ((*each.key, _compared(each)) for each in found)
        )
        if number <= _FIRST:
            return shown or SafeString("none")
        both = reverse("compare", query={"kind": "Revision", "before": row.number - 1, "after": row.number})
        return format_html("{}{}", shown, link(both, f"All {number:,}"))

    @display(description="Reason")
    def short_reason(self, row: Revision) -> str:
        """Return the reason."""
        return row.reason or "none given"

    @display(description="Digest")
    def short_digest(self, row: Revision) -> SafeString:
        """Return the first characters of the digest."""
        return format_html('<code title="{}">{}</code>', row.digest, row.digest[:12])

    @display(description="Signed")
    def signed(self, row: Any) -> str:
        """Return the checkpoint of the ledger that signs it."""
        change = getattr(row, "change", None)
        return (
            row.words.get(change.pk, "none: made before the ledger existed")
            if change
            else "none: made before Changes existed"
        )

    def get_changelist(self, request: HttpRequest, **_: Any) -> type[ChangeList]:
        """Use the list that shows what is signed."""
        return _RevisionList

    @display(description="SHA-256")
    def full_digest(self, row: Revision) -> SafeString:
        """Return the digest."""
        return format_html("<code>{}</code>", row.digest)

    @display(description="Change")
    @once
    def made_by_change(self, row: Revision) -> SafeString | str:
        """Link to the Change that made it; Revisions of older versions of Berth have none."""
        found: Change | None = getattr(row, "change", None)
        return link(change_url(found.pk), f"{found}: {found.title}") if found else "none: made before Changes existed"

    @display(description="Who and when")
    def who(self, row: Revision) -> SafeString:
        """Return who made it, and when."""
        return format_html("{} at {} UTC", named(row, row.made_by), f"{row.created_at:%Y-%m-%d %H:%M:%S}")

    @display(description="Rule sets")
    @once
    def rule_sets(self, row: Revision) -> SafeString:
        """Return the rule sets that it holds."""
        return _first_lines(row, "rule-sets")

    @display(description="Assignments")
    @once
    def assignments(self, row: Revision) -> SafeString:
        """Return the Assignments that it holds, in their order."""
        return _first_lines(row, "assignments")

    @display(description="PriorityClasses")
    @once
    def priority_classes(self, row: Revision) -> SafeString:
        """Return the PriorityClasses that it holds, the highest value first."""
        return _first_lines(row, "priority-classes")

    @display(description="Pauses")
    @once
    def pauses(self, row: Revision) -> SafeString:
        """Return what is paused in it."""
        return _first_lines(row, "pauses")

    @display(description="Exemptions")
    @once
    def exemptions(self, row: Revision) -> SafeString:
        """Return its Exemptions: Pods to which rules don't apply."""
        return _first_lines(row, "exemptions")

    @display(description="Decisions")
    def decisions(self, row: Revision) -> SafeString:
        """Link to the Decisions that it made."""
        return link(decisions_url(revision=row.number), f"Decisions by Revision {row.number}")

    @display(description="Document")
    @once
    def document(self, row: Revision) -> SafeString:
        """Return the indented document if it is short, and a link to the whole document."""
        url = reverse("admin:policies_revision_document", args=[row.number])
        download = link(url, "The whole document (JSON)")
        size = publishing.held_by(row.number).aggregate(size=Sum(Length("part__document")))["size"] or 0
        if size > _SHOWN_BYTES:
            return download
        text = json.dumps(json.loads(publishing.document_text(row)), indent=2, ensure_ascii=False)
        folded = '<details class="berth-details"><summary>Show it here</summary>{}</details>{}'
        return format_html(folded, copyable(text), download)


def _compared(each: Difference) -> SafeString:
    return format_html("<p>Not compared: {}</p>", each.unread) if each.unread else whole(each.before, each.after)


class _List(msgspec.Struct, frozen=True):
    """A list of a Revision's parts: its title, the parts, a part in words, and the URL of a part's own page."""

    title: str
    kind: str
    line: Callable[[Any], str]
    # Must not query the database: a list may have 200 lines.
    page: Callable[[Any], str] | None = None


_LISTS = {
    "rule-sets": _List(
        "rule sets",
        _Kind.RULE_SET,
        lambda each: f"{each.name} version {each.version}",
        lambda each: reverse("rule_set_version", args=[each.name, each.version]),
    ),
    "assignments": _List(
        "Assignments",
        _Kind.ASSIGNMENT,
        lambda each: f"{each.name}: {assignment_sentence(each)}",
        lambda each: f"{reverse('admin:policies_assignment_changelist')}?{urlencode({'q': each.name})}",
    ),
    "priority-classes": _List(
        "PriorityClasses",
        _Kind.PRIORITY_CLASS,
        lambda each: f"{each.name} version {each.version}: {priority_class_sentence(each)}",
        lambda each: reverse("cluster_priority_class", args=[quote(each.name)]),
    ),
    "pauses": _List("Pauses", _Kind.PAUSE, lambda each: f"{each.name}: {suspension_sentence(each)}"),
    "exemptions": _List(
        "Exemptions",
        _Kind.EXEMPTION,
        lambda each: f"{each.name}: {suspension_sentence(each)}",
    ),
}


def _lines(row: Revision, which: str, start: int, stop: int) -> tuple[list[SafeString | str], int]:
    """Return some lines of a list, and the number of all."""
    if which == "changes":
        changes = row.summary.splitlines()
        return [marked(line) for line in changes[start:stop]], len(changes)
    found = _LISTS[which]
    number = _numbers(row).get(found.kind, 0)
    values = publishing.parts_of(row.number, found.kind, start, stop) if start < number else []
    return [_line(found, each) for each in values], number


def _line(found: _List, part: ListedPart) -> SafeString | str:
    """Return a part in words, with its name linked to its page unless the name doesn't fit into a URL."""
    if part.value is None:
        return f"{part.name}: can't be read: a newer version of Berth wrote it"
    said = found.line(part.value)
    try:
        page = found.page(part.value) if found.page else ""
    except NoReverseMatch:
        return said
    return format_html("{}{}", link(page, part.name), said.removeprefix(part.name)) if page else said


def _numbers(row: Revision) -> dict[str, int]:
    """Return how many things of each kind a Revision holds."""
    found: dict[str, int] = vars(row).setdefault("numbers", {}) or publishing.numbers_of(row.number)
    vars(row)["numbers"] = found
    return found


def _first_lines(row: Revision, which: str) -> SafeString:
    """Return the first lines of a list, and a link to the whole list if there are more."""
    lines, number = _lines(row, which, 0, _FIRST)
    if not lines:
        return SafeString("none")
    items = format_html_join("", "<li>{}</li>", ((line,) for line in lines))
    shown = format_html('<ul class="berth-sentences">{}</ul>', items)
    if number == len(lines):
        return shown
    url = reverse("admin:policies_revision_list", args=[row.number, which])
    return format_html("{}{}", shown, link(url, f"All {number:,} lines"))


def _roll_back_page(row: Revision) -> Confirmation:
    current = publishing.current_revision()
    page = Confirmation(
        title=f"Roll back to Revision {row.number}",
        effect=(
            f"Makes Revision {current.number + 1} with the content of Revision {row.number}. "
            "Open Changes stay as they are."
        ),
        button="Roll back",
        back=revision_url(row.number),
        digest=publishing.digest_of_shown(current.number),
        danger=True,
    )
    try:
        target = publishing.former_revision(row.number)
    except PublishingError as error:
        page.faults = error.messages
        return page
    page.changes, page.edits = revision_changes(current, target), publishing.edits_between(current, target)
    if not page.changes:
        page.faults = [f"Nothing to roll back: the live Revision has the same content as Revision {row.number}."]
    page.is_reviewed = publishing.needs_review(page.edits, rolls_back=True)
    return page
