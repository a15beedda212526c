"""The pages of Changes: the list, the effects and approvals of each, and the buttons for its acts."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec
from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Count, Q, QuerySet, prefetch_related_objects
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST, require_safe
from unfold.widgets import UnfoldAdminTextareaWidget

from policies import publishing, wording
from policies.admin.base import (
    ReadOnlyAdmin,
    change_url,
    edit_urls_for,
    link,
    marked,
    named,
    person,
    revision_url,
    rows_of,
    thing_urls,
)
from policies.admin.differences import whole
from policies.admin.edit_into import BeginForm, Offer, begun
from policies.admin.fields import LinesField
from policies.admin.frame import ChangeList, display
from policies.admin.gate import shown
from policies.admin.panels import panels_of
from policies.admin.times import MomentField, time_ago
from policies.engine.ruleset import PriorityClass, Revision
from policies.models import Change, ChangeEdit, ChangeEvent, RevisionPart
from policies.publishing import Kind, PublishingError, lifecycle
from policies.wording import counted

_OPEN = sorted(lifecycle.OPEN)
# How many things a line of the list names; of more it shows the number.
_NAMED = 3
# Acts that record no words: a text typed with one is kept as a comment.
_WORDLESS = {"gate", "rebase", "discard", "schedule", "expire"}


class ActForm(forms.Form):
    """The form beside the buttons: a text, and the digest of what its author was looking at."""

    text = LinesField(
        label="Reason or comment",
        required=False,
        max_length=2000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3, "placeholder": "What should others know?"}),
        help_text="Kept with the Change; auditors read it. Required for rejections and comments.",
    )
    whom = forms.CharField(required=False, max_length=150)
    publish_at = MomentField(label="Goes live at", required=False)
    expires_at = MomentField(label="Expires at", required=False)
    digest = forms.CharField(widget=forms.HiddenInput)
    revision = forms.IntegerField(min_value=0, widget=forms.HiddenInput)


def _unread(form: ActForm) -> list[str]:
    """Return the faults of the fields that people fill in, else the message that the form isn't this page's."""
    wrong = [(form[name], errors) for name, errors in form.errors.items() if name in form.fields]
    said = [f"{field.label}: {error}" for field, errors in wrong if not field.is_hidden for error in errors]
    return said or ["The form was incomplete. Reload the page."]


class Button(msgspec.Struct, frozen=True):
    """A button of the page; with a refusal it is disabled, and says why."""

    act: str
    text: str
    style: str = ""
    refusal: str = ""


class Thing(msgspec.Struct, frozen=True):
    """One thing that a Change touches: the Change's edit, and what others have published since."""

    key: str
    name: str
    author: str
    lines: Sequence[SafeString]
    # The comparison of its whole documents; the same for what others have published.
    whole: SafeString = SafeString("")
    their_whole: SafeString = SafeString("")
    theirs: Sequence[SafeString] = ()
    is_moved: bool = False
    # The Change that made live what others have published; None where none is known.
    overtaken_by: Change | None = None
    # Of a thing that moved: the side that is chosen.
    side: str = ""
    # For a rule set that moved: the changes of both edits merged, and the conflicts: the part's name, the words, the
    # chosen side.
    merged_lines: Sequence[SafeString] = ()
    conflicts: Sequence[tuple[str, str, str]] = ()
    may_be_merged: bool = False
    # The URL of its form, in this Change; empty where it has none.
    edit_url: str = ""
    # The URL of the thing's own page; empty where it was never live.
    url: str = ""


_GATE_MARKS = {
    publishing.GateMark.NONE: "",
    publishing.GateMark.MOVES: "…",
    publishing.GateMark.FAILED: "✗",
    publishing.GateMark.OLD: "!",
    publishing.GateMark.PASSED: "✓",
    publishing.GateMark.WARNS: "!",
    publishing.GateMark.BLOCKS: "✗",
}


class StateFilter(admin.SimpleListFilter):
    """Filters the list: open ones, those that wait for me, mine, done ones."""

    title = "which"
    parameter_name = "which"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices."""
        del request, model_admin
        return [
            ("open", "open"),
            ("waiting", "waiting for approval"),
            ("asked", "waiting for me"),
            ("timed", "at a set time"),
            ("mine", "opened by me"),
            ("done", "done"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Change]) -> QuerySet[Change]:
        """Return the Changes of the choice."""
        match self.value():
            case "open":
                return queryset.filter(state__in=_OPEN)
            case "waiting":
                return queryset.filter(Q(state=lifecycle.IN_REVIEW) | Q(pk__in=publishing.unapproved_changes()))
            case "asked":
                asked = publishing.changes_waiting_for(person(request).get_username())
                return queryset.filter(pk__in=[change.pk for change, _ in asked])
            case "timed":
                return queryset.filter(state__in=_OPEN, publish_at__isnull=False)
            case "mine":
                return queryset.filter(opened_by=person(request).get_username())
            case "done":
                return queryset.exclude(state__in=_OPEN)
            case _:
                return queryset


class _ChangeList(ChangeList):
    """Adds to the rows of a page the state of each open Change, and which approvals no longer suffice."""

    def get_results(self, request: HttpRequest) -> None:
        """Read the state of all rows with a few queries."""
        super().get_results(request)
        overview = publishing.overview_of(self.result_list)
        reviewers = publishing.reviewers_among(self.result_list)
        touched = _touched([row.pk for row in self.result_list if 0 < row.edit_count <= _NAMED])
        for row in self.result_list:
            row.overview = overview.get(row.pk)
            row.reviewers = reviewers
            lacks = row.overview is not None and row.overview.lacks_approvals
            row.is_short = lacks and row.state == lifecycle.APPROVED
            row.touched = touched.get(row.pk)


def _touched(numbers: Sequence[int]) -> dict[int, SafeString]:
    """Return the things that each of some Changes touches, with links to the pages of existing ones."""
    edits = list(ChangeEdit.objects.filter(change__in=numbers).order_by("kind", "name")) if numbers else []
    pages = thing_urls(rows_of(edit.key for edit in edits))
    lines: dict[int, list[SafeString | str]] = {}
    for edit in edits:
        said = f"{'rule set' if edit.kind == Kind.RULE_SET else edit.kind} {edit.name}"
        url = pages.get(edit.key)
        lines.setdefault(edit.change_id, []).append(link(url, said) if url else said)
    return {number: format_html_join(", ", "{}", ((line,) for line in found)) for number, found in lines.items()}


@admin.register(Change)
class ChangeAdmin(ReadOnlyAdmin):
    """The pages of Changes."""

    list_display = (
        "number",
        "title",
        "state_label",
        "approvals",
        "gate_mark",
        "waits",
        "touches",
        "opener",
        "since",
    )
    list_display_links = ("number", "title")
    list_filter = (StateFilter, ("state", admin.ChoicesFieldListFilter))
    search_fields = ("title", "opened_by")
    search_help_text = "Title, who opened or edited it, or what it changes"
    empty_title = "No Change yet"
    empty_text = "Open one here. Saving a rule set, an Assignment or a PriorityClass also opens one, and so does manage.py apply FILE…."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Change]:
        """Add the number of things that each touches, and its events."""
        found: QuerySet[Change] = super().get_queryset(request)
        return found.annotate(edit_count=Count("edits")).prefetch_related("events")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Change], search_term: str
    ) -> tuple[QuerySet[Change], bool]:
        """Search by title, by the things that they touch, and by all authors."""
        found, may_repeat = super().get_search_results(request, queryset, search_term)
        if not search_term.strip():
            return found, may_repeat
        edits = ChangeEdit.objects.all()
        for term in search_term.split():
            edits = edits.filter(Q(name__icontains=term) | Q(author__icontains=term))
        either = Q(pk__in=found.order_by().values("pk")) | Q(pk__in=edits.order_by().values("change"))
        return queryset.filter(either), False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Use the list that knows whose approvals count."""
        del request, kwargs
        return _ChangeList

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of acts."""
        act = self.admin_site.admin_view(require_POST(self.act))
        gate = self.admin_site.admin_view(require_safe(self.gate))
        edit = self.admin_site.admin_view(require_safe(self.edit))
        return [
            path("<int:number>/act/", act, name="policies_change_act"),
            path("<int:number>/gate/", gate, name="policies_change_gate"),
            path("<int:number>/edit/", edit, name="policies_change_edit"),
            *super().get_urls(),
        ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return whether this person may begin one."""
        return request.user.has_perm("policies.change_ruleset")

    def changeform_view(self, request: HttpRequest, object_id: str | None = None, *more: Any, **named: Any) -> Any:
        """Show a Change: what it does first. Without one, ask for the title of a new one."""
        del more, named
        if object_id is None:
            return self._begin(request)
        self.check_may_view(request)
        row = get_object_or_404(Change, pk=self.key_of(str(object_id)))
        return self._page(request, row)

    def _begin(self, request: HttpRequest) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form, faults = BeginForm(request.POST or None), []
        if request.method == "POST" and form.is_valid():
            try:
                made = begun(form, person(request))
            except PublishingError as error:
                faults = list(error.messages)
            else:
                messages.success(request, f"{made} was opened. It has no edits yet: choose what to edit.")
                return HttpResponseRedirect(f"{change_url(made.pk)}#edit-into")
        context = {
            **self.admin_site.each_context(request),
            "title": "New Change",
            "form": form,
            "faults": faults,
            "opts": self.opts,
        }
        return TemplateResponse(request, "policies/change_begin.html", context)

    def edit(self, request: HttpRequest, number: int) -> HttpResponse:
        """Go to the form of a thing, in this Change; if there is no such thing, say so on the Change's page."""
        self.check_may_view(request)
        row = get_object_or_404(Change, pk=number)
        prefetch_related_objects([row], "edits")
        try:
            url = Offer(row, publishing.current_revision(), request).form_of(request.GET.get("thing", ""))
        except PublishingError as error:
            return self._page(request, row, error.messages, asked_thing=request.GET.get("thing", ""))
        return HttpResponseRedirect(url or change_url(number))

    def act(self, request: HttpRequest, number: int) -> HttpResponse:
        """Do the act of a button. A refusal shows the page again, with the typed text."""
        self.check_may_view(request)
        row = get_object_or_404(Change, pk=number)
        form = ActForm(request.POST)
        act, _, what = request.POST.get("act", "").partition(" ")
        if act not in _ACTS or not form.is_valid():
            return self._page(request, row, _unread(form), text=request.POST.get("text", ""), chosen=request.POST)
        try:
            said = _done(act, row, request, form.cleaned_data | {"what": what})
        except PublishingError as error:
            row.refresh_from_db()
            return self._page(request, row, error.messages, text=form.cleaned_data["text"], chosen=request.POST)
        messages.success(request, said)
        return HttpResponseRedirect(change_url(number))

    def gate(self, request: HttpRequest, number: int) -> HttpResponse:
        """Show only the gate's part of the page."""
        self.check_may_view(request)
        row = get_object_or_404(Change, pk=number)
        context = {"change": row, "gate": shown(row, publishing.gate_of(row)), "was_polled": True}
        return TemplateResponse(request, "policies/change_gate.html", context)

    def _page(
        self,
        request: HttpRequest,
        row: Change,
        faults: Iterable[str] = (),
        text: str = "",
        asked_thing: str = "",
        chosen: Mapping[str, Any] = MappingProxyType({}),
    ) -> TemplateResponse:
        prefetch_related_objects([row], "edits", "events")
        live = publishing.current_revision()
        gate = publishing.gate_of(row)
        standing = publishing.standing_of(row, gate)
        may_edit = not lifecycle.refusal("edit", publishing.actor_of(person(request)), standing)
        faults, things, look_twice = list(faults), [], []
        try:
            things = _things(row, request, chosen)
            look_twice = _look_twice(row, live) if row.state in lifecycle.OPEN else []
        except PublishingError as error:
            faults += error.messages
        buttons = _buttons(request, standing)
        context = {
            **self.admin_site.each_context(request),
            "title": f"{row}: {row.title}",
            "change": row,
            "is_open": row.state in lifecycle.OPEN,
            "standing": standing,
            "approved_by": sorted(standing.counting),
            "review": _review(request, row, standing),
            "whom": chosen.get("whom", ""),
            "time": _time(request, row, standing, chosen),
            "authors": sorted(standing.authors),
            "things": things,
            "orders": publishing.orders_of(row) if row.state in lifecycle.OPEN else None,
            "order_side": chosen.get(_choice(publishing.ORDER), "mine"),
            "look_twice": look_twice,
            "lines": [marked(line) for line in row.revision.summary.splitlines()] if row.revision else [],
            "revision_url": revision_url(row.revision.number) if row.revision else "",
            "base_url": revision_url(row.base) if row.base else "",
            "events": row.events.all(),
            "rejection": _rejection(row),
            "given": publishing.approvals_given(row, list(row.events.all())),
            "buttons": buttons,
            "offered": [button.text for button in buttons if not button.refusal],
            "gate": shown(row, gate),
            "may_edit": may_edit,
            "edit_into": Offer(row, live, request) if may_edit and row.rolls_back_to is None else None,
            "asked_thing": asked_thing,
            "faults": faults,
            "form": ActForm(initial={"digest": row.digest, "revision": live.number, "text": text}),
            "act_url": reverse("admin:policies_change_act", args=[row.pk]),
            "opts": self.opts,
            "panels": panels_of(row, request),
        }
        return TemplateResponse(request, "policies/change.html", context)

    @display(description="Change", ordering="pk")
    def number(self, row: Change) -> str:
        """Name it."""
        return str(row)

    @display(
        description="State",
        label={"in review": "warning", "approved": "info", "published": "success", "rejected": "danger"}
        | {publishing.SHORT_OF_APPROVALS: "warning"},
        ordering="state",
    )
    def state_label(self, row: Any) -> str:
        """Return the state."""
        return publishing.SHORT_OF_APPROVALS if row.is_short else str(row.get_state_display())

    @display(description="Approvals")
    def approvals(self, row: Any) -> str:
        """Return how many of the needed approvals are given, for each group."""
        overview: publishing.Overview | None = row.overview
        if overview is None:
            return ""
        said = [f"{there} of {needed}{f' of {group}' * bool(group)}" for there, needed, group in overview.approvals]
        return "; ".join(said) or "none needed"

    @display(description="Gate")
    def gate_mark(self, row: Any) -> SafeString | str:
        """Return the gate's result, with a mark before it."""
        overview: publishing.Overview | None = row.overview
        if overview is None:
            return ""
        return format_html('<span class="berth-nowrap">{} {}</span>', _GATE_MARKS[overview.gate], overview.gate)

    @display(description="Waiting for")
    def waits(self, row: Any) -> str:
        """Return what it waits for: a reviewer, an approval afterwards, its time, or somebody to act after it was held back."""
        if row.held:
            return "! somebody: its scheduled publish was held back"
        if row.overview and row.overview.moved and row.state != lifecycle.DRAFT:
            return "! an author, to rebase it"  # until then nobody can approve or publish it
        if waiting := publishing.waiting_for(row, row.reviewers):
            return ", ".join(each.name for each in waiting)
        if publishing.waits_for_approval_afterwards(row):
            return "! an approval after the fact"
        if row.state in lifecycle.OPEN and row.publish_at:
            is_set = publishing.holds_schedule(row)
            return publishing.said_at(row.publish_at) if is_set else "! somebody: edited since it was scheduled"
        if row.state == lifecycle.IN_REVIEW and row.overview and not row.overview.approvals:
            return "somebody to publish it"
        return "anybody who may approve" if row.state == lifecycle.IN_REVIEW or row.is_short else ""

    @display(description="Opened by", ordering="opened_by")
    def opener(self, row: Change) -> SafeString | str:
        """Return who opened it."""
        return named(row, row.opened_by)

    @display(description="Since", ordering="moved_at")
    def since(self, row: Change) -> SafeString:
        """Return how long ago its state became this one."""
        return time_ago(row.moved_at)

    @display(description="Touches")
    def touches(self, row: Any) -> SafeString | str:
        """Return the things that it touches, or how many, and how many of them somebody else has published meanwhile."""
        if row.state == lifecycle.PUBLISHED and not row.edit_count:
            return "see its Revision"
        moved = f", ! {row.overview.moved} changed meanwhile" if row.overview and row.overview.moved else ""
        return format_html("<span>{}{}</span>", row.touched or counted(row.edit_count, "thing"), moved)


def _look_twice(row: Change, live: Revision) -> list[str]:
    """Return what those who review an open Change should look at twice."""
    edits = publishing.edits_of(row)
    classes = [edit.value for edit in edits if isinstance(edit.value, PriorityClass)]
    removed = [edit.name for edit in edits if edit.kind == Kind.PRIORITY_CLASS and edit.value is None]
    return [
        *wording.look_alikes(live, publishing.with_edits(live, edits)),
        *publishing.cluster_warnings(classes, removed),
        *publishing.replaced_in_cluster(classes),
        *publishing.owner_notes([edit.key for edit in edits], row.owner),
        *(wording.ending_sentence(each, row.expires_at) for each in publishing.endings_of(row)),
        *publishing.past_ends(edits),
    ]


def _review(request: HttpRequest, row: Change, standing: lifecycle.Standing) -> dict[str, Any]:
    """Return who has to approve, whose approvals don't count, who was asked, and who could be asked."""
    may_ask = not lifecycle.refusal("ask", publishing.actor_of(person(request)), standing)
    return {
        "needs": [(need, sorted(standing.counting & need.members)) for need in standing.needs],
        "outside": [(name, need) for need in standing.needs for name in sorted(standing.counting - need.members)],
        "waiting": publishing.waiting_for(row),
        "askable": publishing.askable(row) if may_ask else [],
        "may_ask": may_ask,
    }


def _time(request: HttpRequest, row: Change, standing: lifecycle.Standing, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return when it goes live and expires, as the fields show it, and whether this person may set these times."""
    actor = publishing.actor_of(person(request))
    return {
        "publish_at": typed.get("publish_at", _shown_in_field(row.publish_at)),
        "expires_at": typed.get("expires_at", _shown_in_field(row.expires_at)),
        "may_schedule": not lifecycle.refusal("schedule", actor, standing),
        "may_expire": not lifecycle.refusal("edit", actor, standing),
        "holds": row.publish_at is None or publishing.holds_schedule(row),
        "expiry": Change.objects.filter(expiry_of=row).first() if row.expires_at else None,
    }


def _shown_in_field(at: datetime | None) -> str:
    """Return a time as its field shows it, which has no fractions of seconds; empty without one."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}" if at else ""


def _unless_as_shown(typed: datetime | None, held: datetime | None) -> datetime | None:
    """Return the typed time; the one that is set, with its fractions of seconds, if the field shows the same."""
    return held if _shown_in_field(typed) == _shown_in_field(held) else typed


def _rejection(row: Change) -> ChangeEvent | None:
    """Return the act that rejected a Change, if it is rejected."""
    if row.state != lifecycle.REJECTED:
        return None
    return next((each for each in reversed(row.events.all()) if each.act == ChangeEvent.Act.REJECT), None)


def _choice(key: publishing.Key) -> str:
    """Return the name of the form's choice between the sides of a thing."""
    return "of {}/{}".format(*key)


def _things(row: Change, request: HttpRequest, chosen: Mapping[str, Any]) -> list[Thing]:
    moved = {each.key: each for each in publishing.moved_of(row)} if row.state in lifecycle.OPEN else {}
    bases, overtaken = publishing.bases_of(row), _overtaken_by(moved)
    authors = {each.key: each.author for each in row.edits.all()}
    things = [
        _thing(edit, bases.get(edit.key), authors[edit.key], moved.get(edit.key), chosen)
        for edit in publishing.edits_of(row)
    ]
    keys = [(kind, name) for kind, _, name in (each.key.partition("/") for each in things)]
    rows = rows_of(keys)
    pages = thing_urls(rows)
    things = [
        msgspec.structs.replace(each, url=pages.get(key, ""), overtaken_by=overtaken.get(key))
        for each, key in zip(things, keys, strict=True)
    ]
    if row.state not in lifecycle.OPEN:
        return things
    urls = edit_urls_for(request, [(kind, name, row) for kind, name in keys], rows)
    return [msgspec.structs.replace(each, edit_url=url) for each, url in zip(things, urls, strict=True)]


def _overtaken_by(keys: Collection[publishing.Key]) -> dict[publishing.Key, Change]:
    """Return the Change that made the live state of each of these moved things, be it by removing the thing.

    The Revision that a Change stands on doesn't matter: edits may have been added to it since.
    """
    if not keys:
        return {}
    rows = RevisionPart.objects.filter(name__in=[name for _, name in keys])
    last: dict[publishing.Key, int] = {}
    for kind, name, since, until in rows.values_list("kind", "name", "since", "until"):
        if (kind, name) in keys:
            last[kind, name] = max(last.get((kind, name), 0), since, until or 0)
    changes = Change.objects.filter(revision__in=set(last.values())).select_related("revision")
    made = {change.revision_id: change for change in changes}
    return {key: made[number] for key, number in last.items() if number in made}


def _thing(
    edit: publishing.Edit, base: Any, author: str, moved: publishing.Moved | None, chosen: Mapping[str, Any]
) -> Thing:
    thing = Thing(
        key=f"{edit.kind}/{edit.name}",
        name=f"{'rule set' if edit.kind == 'RuleSet' else edit.kind} {edit.name}",
        author=author,
        lines=_lines(base, edit.value),
        whole=whole(base, edit.value),
    )
    if moved is None:
        return thing
    thing = msgspec.structs.replace(
        thing, theirs=_lines(moved.base, moved.live), their_whole=whole(moved.base, moved.live), is_moved=True
    )
    name = _choice(edit.key)
    merged = publishing.merged_of(moved)
    if merged is None:
        return msgspec.structs.replace(thing, side="theirs" if chosen.get(name) == "theirs" else "mine")
    return msgspec.structs.replace(
        thing,
        side=chosen.get(name, "merge"),
        merged_lines=_lines(moved.live, merged.rule_set),
        conflicts=[(part, said, chosen.get(f"{name} {part}", "")) for part, said in merged.conflicts.items()],
        may_be_merged=True,
    )


def _lines(before: Any, after: Any) -> list[SafeString]:
    return [marked(line) for line in wording.part_changes(before, after)]


def _buttons(request: HttpRequest, standing: lifecycle.Standing) -> list[Button]:
    """Return the acts that this person may do, and why others aren't possible yet."""
    actor = publishing.actor_of(person(request))
    buttons = []
    for act, text, style in _BUTTONS:
        if lifecycle.lack_of_permission(act, actor, standing.authors) or not (
            lifecycle.is_possible(act, standing.state) or (act == "approve" and standing.waits_for_approval_afterwards)
        ):
            continue
        if act == "rebase" and not standing.moved:
            continue
        if act == "approve" and actor.name in standing.approved_by and not standing.waits_for_approval_afterwards:
            continue  # it is noted; another one would change nothing
        if act == "urgent" and not (standing.missing or standing.gate):
            continue
        if act == "withdraw" and standing.state == lifecycle.DRAFT:
            text = "Discard draft"  # noqa: PLW2901 - the same act, by its usual name
        buttons.append(Button(act, text, style, lifecycle.refusal(act, actor, standing)))
    return buttons


_BUTTONS = (
    ("publish", "Publish", "primary"),
    ("approve", "Approve", "primary"),
    ("submit", "Send to review", "primary"),
    ("rebase", "Rebase", "primary"),
    ("gate", "Run gate", ""),
    ("comment", "Comment", ""),
    ("reopen", "Reopen", ""),
    ("reject", "Reject", "danger"),
    ("withdraw", "Withdraw", "danger"),
    ("urgent", "Publish without approval", "danger"),
)

_Act = Callable[[Change, HttpRequest, dict[str, Any]], str]


def _done(act: str, row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    """Do an act, keep what was typed with it, and return what was done, in words."""
    if act not in _WORDLESS or not typed["text"].strip():
        return _ACTS[act](row, request, typed)
    if lifecycle.lack_of_permission("comment", publishing.actor_of(person(request))):
        # The role Emergency may run the gate, but not comment.
        return f"{_ACTS[act](row, request, typed)} Your role can't comment, so this isn't kept: {typed['text']}"
    with transaction.atomic():
        said = _ACTS[act](row, request, typed)
        publishing.comment_on_change(change=row, by=person(request), text=typed["text"])
    return f"{said} Your comment is kept."


def _publish(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    made = publishing.publish_change(
        change=row, by=person(request), expected_digest=typed["digest"], reason=typed["text"]
    )
    return f"{made} was made."


def _urgent(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    made = publishing.publish_urgently(
        change=row, by=person(request), expected_digest=typed["digest"], reason=typed["text"]
    )
    return f"{made} was made, without approval. Somebody else has to approve it now."


def _approve(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    publishing.approve_change(change=row, by=person(request), expected_digest=typed["digest"], text=typed["text"])
    if row.state == lifecycle.PUBLISHED:
        return "Your approval of the emergency publish is recorded."
    return "Your approval is recorded. It applies to what you saw: any edit drops it, and so does another publish of the same objects."


def _submit(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    publishing.submit_change(change=row, by=person(request), expected_digest=typed["digest"], text=typed["text"])
    return "The Change is in review."


def _gate(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    del typed
    publishing.run_gate(change=row, by=person(request))
    return "The gate runs as soon as a worker is free."


def _rebase(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    chosen = {edit.key: request.POST.get(_choice(edit.key), "mine") for edit in publishing.edits_of(row)}
    publishing.rebase_change(
        change=row,
        by=person(request),
        expected_digest=typed["digest"],
        expected_revision=typed["revision"],
        take_theirs=[key for key, side in (chosen | _order_chosen(request)).items() if side == "theirs"],
        merge={key: _parts_chosen(request, key) for key, side in chosen.items() if side == "merge"},
    )
    return "The Change is now based on the live Revision. Earlier approvals are dropped."


def _order_chosen(request: HttpRequest) -> dict[publishing.Key, str]:
    """Return whose order of Assignments was chosen."""
    return {publishing.ORDER: request.POST.get(_choice(publishing.ORDER), "mine")}


def _parts_chosen(request: HttpRequest, key: publishing.Key) -> dict[str, str]:
    """Return whose side was chosen for each part that both sides changed."""
    before = f"{_choice(key)} "
    return {name.removeprefix(before): request.POST[name] for name in request.POST if name.startswith(before)}


def _ask(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    publishing.ask_for_review(change=row, by=person(request), whom=typed["whom"], text=typed["text"])
    return f"{typed['whom']} was asked for a review."


def _schedule(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    at = _unless_as_shown(typed["publish_at"], row.publish_at)
    publishing.schedule_change(change=row, by=person(request), publish_at=at, expected_digest=typed["digest"])
    return (
        f"The Change goes live at {publishing.said_at(at)}, as it is now."
        if at
        else "The Change goes live when somebody publishes it."
    )


def _expire(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    at = _unless_as_shown(typed["expires_at"], row.expires_at)
    publishing.set_expiry(change=row, by=person(request), expires_at=at, expected_digest=typed["digest"])
    return f"The Change expires at {publishing.said_at(at)}." if at else "The Change doesn't expire."


def _comment(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    publishing.comment_on_change(change=row, by=person(request), text=typed["text"])
    return "Your comment was added."


def _reject(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    publishing.reject_change(change=row, by=person(request), expected_digest=typed["digest"], text=typed["text"])
    return "The Change is rejected."


def _reopen(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    publishing.reopen_change(change=row, by=person(request), expected_digest=typed["digest"], text=typed["text"])
    return "The Change is a draft again."


def _discard(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    kind, _, name = typed["what"].partition("/")
    publishing.discard_edits(change=row, keys=[(kind, name)], by=person(request), expected_digest=typed["digest"])
    return f"The edit of {name} is discarded."


def _withdraw(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    publishing.withdraw_change(change=row, by=person(request), expected_digest=typed["digest"], text=typed["text"])
    return "The Change is withdrawn."


_ACTS: dict[str, _Act] = {
    "publish": _publish,
    "urgent": _urgent,
    "approve": _approve,
    "submit": _submit,
    "gate": _gate,
    "ask": _ask,
    "schedule": _schedule,
    "expire": _expire,
    "rebase": _rebase,
    ChangeEvent.Act.COMMENT: _comment,
    "reject": _reject,
    "reopen": _reopen,
    "withdraw": _withdraw,
    "discard": _discard,
}
