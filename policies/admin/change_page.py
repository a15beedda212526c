"""What the page of a Change shows: what it does, who has to approve it, its history, and the buttons for its acts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec
from django import forms
from django.db.models import prefetch_related_objects
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminTextareaWidget

from policies import publishing
from policies.admin.base import edit_urls_for, marked, person, revision_url, rows_of, thing_urls
from policies.admin.differences import whole
from policies.admin.edit_into import Offer
from policies.admin.fields import LinesField
from policies.admin.gate import shown
from policies.admin.panels import panels_of
from policies.admin.times import MomentField
from policies.changes_in_words import look_alikes, part_changes
from policies.engine.ruleset import PriorityClass, Revision
from policies.models import Change, ChangeEvent, RevisionPart
from policies.publishing import Kind, lifecycle
from policies.sentences import ending_sentence


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
    # The time that was shown, with its fractions of seconds; empty for none.
    shown_at = MomentField(required=False, widget=forms.HiddenInput)
    expires_at = MomentField(label="Expires at", required=False)
    digest = forms.CharField(widget=forms.HiddenInput)
    revision = forms.IntegerField(min_value=0, widget=forms.HiddenInput)


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


def context_of(
    row: Change,
    request: HttpRequest,
    faults: Iterable[str] = (),
    text: str = "",
    asked_thing: str = "",
    chosen: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return what the template shows of a Change, and again what was typed and chosen before a refusal."""
    prefetch_related_objects([row], "edits", "events")
    live = publishing.current_revision()
    gate = publishing.gate_of(row)
    standing = publishing.standing_of(row, gate)
    may_edit = not lifecycle.refusal("edit", publishing.actor_of(person(request)), standing)
    effects, unread = _effects(row, live, request, chosen)
    return {
        **_head(row, standing),
        **effects,
        **_acts(row, request, standing),
        "faults": list(faults),
        "unread": unread,
        "review": _review(request, row, standing),
        "whom": chosen.get("whom", ""),
        "time": _time(request, row, standing, chosen),
        "gate": shown(row, gate),
        "may_edit": may_edit,
        "edit_into": Offer(row, live, request) if may_edit and row.rolls_back_to is None else None,
        "asked_thing": asked_thing,
        "events": row.events.all(),
        "given": publishing.approvals_given(row, list(row.events.all())),
        "form": ActForm(initial={"digest": row.digest, "revision": live.number, "text": text}),
        "panels": panels_of(row, request),
    }


def _head(row: Change, standing: lifecycle.Standing) -> dict[str, Any]:
    """Return its state, and what it came from and made."""
    return {
        "title": f"{row}: {row.title}",
        "change": row,
        "is_open": row.state in lifecycle.OPEN,
        "standing": standing,
        "approved_by": sorted(standing.counting),
        "authors": sorted(standing.authors),
        "revision_url": revision_url(row.revision.number) if row.revision else "",
        "base_url": revision_url(row.base) if row.base else "",
        "rejection": _rejection(row),
    }


def _effects(
    row: Change, live: Revision, request: HttpRequest, chosen: Mapping[str, Any]
) -> tuple[dict[str, Any], Sequence[str]]:
    """Return what it changes, and the faults of edits that can't be read."""
    is_open = row.state in lifecycle.OPEN
    edits, unread = publishing.readable_edits(row)
    effects = {
        "things": _things(row, edits, request, chosen),
        "look_twice": _look_twice(row, edits, live) if is_open else [],
        "orders": publishing.orders_of(row) if is_open else None,
        "order_side": chosen.get(choice_of(publishing.ORDER), "mine"),
        "lines": [marked(line) for line in row.revision.summary.splitlines()] if row.revision else [],
    }
    return effects, list(unread.values())


def _acts(row: Change, request: HttpRequest, standing: lifecycle.Standing) -> dict[str, Any]:
    """Return the buttons, and the names of those that aren't refused."""
    buttons = _buttons(request, row, standing)
    return {
        "buttons": buttons,
        "offered": [button.text for button in buttons if not button.refusal],
        "act_url": reverse("admin:policies_change_act", args=[row.pk]),
    }


def _look_twice(row: Change, edits: Sequence[publishing.Edit], live: Revision) -> list[str]:
    """Return what those who review an open Change should look at twice."""
    classes = [edit.value for edit in edits if isinstance(edit.value, PriorityClass)]
    removed = [edit.name for edit in edits if edit.kind == Kind.PRIORITY_CLASS and edit.value is None]
    return [
        *look_alikes(live, publishing.with_edits(live, edits)),
        *publishing.cluster_warnings(classes, removed),
        *publishing.replaced_in_cluster(classes),
        *publishing.owner_notes([edit.key for edit in edits], row.owner),
        *(ending_sentence(each, row.expires_at) for each in publishing.endings_of(row)),
        *publishing.past_ends(edits),
    ]


def _review(request: HttpRequest, row: Change, standing: lifecycle.Standing) -> dict[str, Any]:
    """Return who has to approve, whose approvals don't count, who was asked, and who could be asked."""
    may_ask = not lifecycle.refusal("ask", publishing.actor_of(person(request)), standing)
    return {
        "needs": [(need, sorted(standing.counting & need.members)) for need in standing.needs],
        "outside": [(name, need) for need in standing.needs for name in sorted(standing.counting - need.members)],
        "waiting": publishing.waiting_for(row),
        "askable": publishing.askable(row, asking=person(request).get_username()) if may_ask else [],
        "may_ask": may_ask,
    }


def _time(request: HttpRequest, row: Change, standing: lifecycle.Standing, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return when it goes live and expires, as the fields show it, and whether this person may set these times."""
    actor = publishing.actor_of(person(request))
    return {
        "publish_at": typed.get("publish_at", shown_in_field(row.publish_at)),
        "shown_at": row.publish_at.isoformat() if row.publish_at else "",
        "expires_at": typed.get("expires_at", shown_in_field(row.expires_at)),
        "may_schedule": not lifecycle.refusal("schedule", actor, standing),
        "may_expire": not lifecycle.refusal("edit", actor, standing),
        "holds": row.publish_at is None or publishing.holds_schedule(row),
        "expiry": Change.objects.filter(expiry_of=row).first() if row.expires_at else None,
    }


def shown_in_field(at: datetime | None) -> str:
    """Return a time as its field shows it, which has no fractions of seconds; empty without one."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}" if at else ""


def _rejection(row: Change) -> ChangeEvent | None:
    """Return the act that rejected a Change, if it is rejected."""
    if row.state != lifecycle.REJECTED:
        return None
    return next((each for each in reversed(row.events.all()) if each.act == ChangeEvent.Act.REJECT), None)


def choice_of(key: publishing.Key) -> str:
    """Return the name of the form's choice between the sides of a thing."""
    return "of {}/{}".format(*key)


def _things(
    row: Change, edits: Iterable[publishing.Edit], request: HttpRequest, chosen: Mapping[str, Any]
) -> list[Thing]:
    moved = {each.key: each for each in publishing.readable_moved(row)} if row.state in lifecycle.OPEN else {}
    bases, overtaken = publishing.bases_of(row), _overtaken_by(moved)
    authors = {each.key: each.author for each in row.edits.all()}
    things = [_thing(edit, bases.get(edit.key), authors[edit.key], moved.get(edit.key), chosen) for edit in edits]
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
    name = choice_of(edit.key)
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
    return [marked(line) for line in part_changes(before, after)]


def _buttons(request: HttpRequest, row: Change, standing: lifecycle.Standing) -> list[Button]:
    """Return the acts that this person may do, and why others aren't possible yet."""
    actor = publishing.actor_of(person(request))
    buttons = []
    for act, text, style in _BUTTONS:
        ruled_as = "edit" if act == "describe" else act
        if lifecycle.lack_of_permission(ruled_as, actor, standing.authors) or not (
            lifecycle.is_possible(ruled_as, standing.state)
            or (act == "approve" and standing.waits_for_approval_afterwards)
        ):
            continue
        if act == "describe" and (row.reason or standing.state == lifecycle.DRAFT):
            continue  # a draft gets it when it is sent to review
        if act == "rebase" and not standing.moved:
            continue
        if act == "approve" and actor.name in standing.approved_by and not standing.waits_for_approval_afterwards:
            continue  # it is noted; another one would change nothing
        if act == "urgent" and not (standing.missing or standing.gate):
            continue
        if act == "withdraw" and standing.state == lifecycle.DRAFT:
            text = "Discard draft"  # noqa: PLW2901 - the same act, by its usual name
        buttons.append(Button(act, text, style, lifecycle.refusal(ruled_as, actor, standing)))
    return buttons


_BUTTONS = (
    ("publish", "Publish", "primary"),
    ("approve", "Approve", "primary"),
    ("submit", "Send to review", "primary"),
    ("rebase", "Rebase", "primary"),
    ("gate", "Run gate", ""),
    ("comment", "Comment", ""),
    ("describe", "Add as reason", ""),
    ("reopen", "Reopen", ""),
    ("reject", "Reject", "danger"),
    ("withdraw", "Withdraw", "danger"),
    ("urgent", "Publish without approval", "danger"),
)
