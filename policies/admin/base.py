"""Shared code of Berth's admin pages: read-only pages, the confirmation page, the request's user, links."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminTextareaWidget

from policies import publishing
from policies.admin.differences import whole
from policies.admin.fields import LinesField
from policies.admin.frame import ModelAdmin
from policies.admin.person_links import person_link
from policies.changes_in_words import part_changes
from policies.differences import Opcode, opcodes
from policies.engine.ruleset import PriorityClass as PriorityClassDocument
from policies.models import Assignment, Change, PriorityClass, Revision, RuleSet
from policies.publishing import PublishingError, needs_of


class ReadOnlyAdmin(ModelAdmin):
    """Read-only pages."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes."""
        return False


# How many whole documents a confirmation shows; the sentences above them are complete.
_MOST_DOCUMENTS = 50


class ReasonForm(forms.Form):
    """The reason that an act needs, and the digest of what its author was looking at."""

    reason = LinesField(
        label="Reason",
        max_length=2000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3, "placeholder": "Why now? A ticket number helps."}),
        help_text="Kept with the Revision; auditors read it.",
    )
    digest = forms.CharField(required=False, widget=forms.HiddenInput)


class Confirmation(msgspec.Struct, kw_only=True):
    """The contents of a confirmation page."""

    title: str
    # The result of the act, in a sentence.
    effect: str
    button: str
    # The URL of the link back.
    back: str
    changes: Sequence[str] = ()
    # The edits, for the whole documents below the sentences.
    edits: Sequence[publishing.Edit] = ()
    # The checks that passed.
    proofs: Sequence[str] = ()
    # Reasons against the act. With any, there is no button.
    faults: Sequence[str] = ()
    digest: str = ""
    danger: bool = False
    # Whether it needs approvals; None for the same approvals as any Change.
    is_reviewed: bool | None = None
    # Whether it needs a run of the gate first.
    is_gated: bool = False


def confirm(
    model_admin: ModelAdmin,
    request: HttpRequest,
    look: Callable[[], Confirmation],
    act: Callable[[str, str], Revision | None],
    *,
    propose: Callable[[str, str], Change] | None = None,
    done: str = "",
    answer: Callable[[], HttpResponse] | None = None,
) -> HttpResponse:
    """Show what an act will do and ask for the reason; on POST call `act(reason, digest)` and show the outcome.

    A refused act shows the page again, with the present state and the reason that was typed.

    Args:
        model_admin: the ModelAdmin of the page.
        request: the request.
        look: returns what the act would do now.
        act: does it, if the digest still matches.
        propose: sends it to review instead, where review or a run of the gate is required.
        done: the message for an act that makes no Revision.
        answer: the response once it is done; None for the page of the result.
    """
    confirmation = look()
    is_reviewed = propose is not None and _is_reviewed(confirmation)
    is_gated = propose is not None and confirmation.is_gated
    faults = list(confirmation.faults)
    form = ReasonForm(request.POST or None, initial={"digest": confirmation.digest})
    if request.method == "POST" and not faults and form.is_valid():
        try:
            # A request without a digest matches no state.
            do = propose if propose is not None and (is_reviewed or is_gated) else act
            made = do(form.cleaned_data["reason"], form.cleaned_data["digest"] or "none")
        except PublishingError as error:
            with publishing.one_revision():  # the digest is that of what is shown
                confirmation = look()
            faults = [*error.messages, *confirmation.faults]
            form = ReasonForm(initial={"digest": confirmation.digest, "reason": form.cleaned_data["reason"]})
        else:
            if answer is not None:
                return answer()
            return HttpResponseRedirect(_say_what_came(request, made, done) or confirmation.back)
    notes = publishing.owner_notes([edit.key for edit in confirmation.edits])
    context = {
        "changes": [marked(line) for line in (*confirmation.changes, *notes)],
        "documents": _documents(confirmation.edits),
        "more_documents": max(0, len(confirmation.edits) - _MOST_DOCUMENTS),
        **model_admin.admin_site.each_context(request),
        "title": confirmation.title,
        "confirmation": confirmation,
        "is_reviewed": is_reviewed,
        "is_gated": is_gated,
        "faults": faults,
        "form": form,
        "opts": model_admin.opts,
    }
    return TemplateResponse(request, "policies/confirm.html", context)


def confirm_going_back(
    model_admin: ModelAdmin, request: HttpRequest, version: publishing.Version, back: str
) -> HttpResponse:
    """Show what making an older version live again would do, and do it; `back` is the URL of the link back."""
    return confirm(
        model_admin,
        request,
        lambda: _going_back_page(version, back),
        lambda reason, digest: publishing.go_back(
            version=version, by=person(request), reason=reason, expected_digest=digest
        ),
        propose=lambda reason, digest: publishing.propose_going_back(
            version=version, by=person(request), reason=reason, expected_digest=digest
        ),
    )


def _going_back_page(version: publishing.Version, back: str) -> Confirmation:
    current = publishing.current_revision()
    page = Confirmation(
        title=f"Go back to {version}",
        effect=f"Makes Revision {current.number + 1} with {version} as it was. Nothing else changes, and open Changes stay as they are.",
        button="Go back",
        back=back,
        digest=publishing.digest_of_shown(current.number),
        danger=True,
    )
    try:
        edit = publishing.Edit.of(publishing.content_of_version(version))
    except PublishingError as error:
        page.faults = error.messages
        return page
    classes = [edit.value] if isinstance(edit.value, PriorityClassDocument) else []
    changes = part_changes(publishing.values_of(current).get(edit.key), edit.value)
    page.changes = [*changes, *publishing.replaced_in_cluster(classes)] if changes else []
    page.faults = [] if changes else [f"Nothing to do: {version} is already live."]
    page.is_reviewed, page.is_gated = publishing.needs_review([edit]), publishing.needs_gate([edit])
    page.edits = [edit]
    return page


def _documents(edits: Sequence[publishing.Edit]) -> list[tuple[str, SafeString]]:
    """Return the whole documents of edits that differ from the live state."""
    live = publishing.values_of(publishing.current_revision()) if edits else {}
    return [(f"{edit.kind} {edit.name}", whole(live.get(edit.key), edit.value)) for edit in edits[:_MOST_DOCUMENTS]]


def _is_reviewed(confirmation: Confirmation) -> bool:
    return bool(needs_of(())) if confirmation.is_reviewed is None else confirmation.is_reviewed


def _say_what_came(request: HttpRequest, made: Revision | Change | None, done: str) -> str:
    """Show a message with the outcome, and return the page of the result."""
    if done:
        messages.success(request, done)
        return ""
    if made is None:
        messages.info(request, "Nothing was published: this is already live.")
        return ""
    if isinstance(made, Change):
        messages.success(request, f"{made} is in review. It goes live once {publishing.way_to_live(made)}.")
        return change_url(made.pk)
    text = format_html(
        "Revision {} was made. {}, or {}.",
        made.number,
        link(decisions_url(revision=made.number), "See its Decisions"),
        link(reverse("admin:scheduler_process_changelist"), "which processes serve it"),
    )
    messages.success(request, text)
    return revision_url(made.number)


# How `policies.wording` says that something became something else: texts in quotes, and whole sentences. People's own texts may
# have any of this in them, as often as they like: what is in quotes is looked for step by step, never again from the next quote on.
_OPENS, _BECAME, _CLOSES = "“", "” → “", re.compile(r"”(?=, \w+ |;|$)")
_SENTENCE = re.compile(
    r"(order \d+, [^“”]*?) → (order \d+, [^“”]*)$"
    r"|(?<= )([\w.-]+) → ([\w.-]+)(?=[,;]|$)"
)
# Of texts longer than this together, what differs stands in front.
_LONG = 240
# A database's numbers have as many, or one more.
_DIGITS = 9


def marked(line: str) -> SafeString:
    """Return a line of changes as HTML, with the words that differ marked; nothing is left out."""
    return format_html_join("", "{}", ((part,) for part in _marked_parts(line)))


def _marked_parts(line: str) -> Iterator[str]:
    end = 0
    for found in _changes_in(line):
        yield line[end : found.start]
        yield from _marked_pair(found.before, found.after, found.quotes)
        end = found.end
    yield line[end:]


class _Change(NamedTuple):
    """What became what, and where in a line."""

    start: int
    end: int
    before: str
    after: str
    quotes: str


def _changes_in(line: str) -> Iterator[_Change]:
    """Iterate over what a line says has become something else. It takes time in proportion to the line."""
    quoted, sentence = _quoted(line, 0), _sentence(line, 0)
    while found := min(filter(None, (quoted, sentence)), default=None):
        yield found
        if quoted is not None and quoted.start < found.end:
            quoted = _quoted(line, found.end)
        if sentence is not None and sentence.start < found.end:
            sentence = _sentence(line, found.end)


def _quoted(line: str, at: int) -> _Change | None:
    start = line.find(_OPENS, at)
    middle = line.find(_BECAME, start + 1) if start >= 0 else -1
    # Where nothing closes behind the first of several, nothing does behind the others.
    closes = _CLOSES.search(line, middle + len(_BECAME)) if middle >= 0 else None
    if closes is None:
        return None
    return _Change(start, closes.end(), line[start + 1 : middle], line[middle + len(_BECAME) : closes.start()], "“{}”")


def _sentence(line: str, at: int) -> _Change | None:
    found = _SENTENCE.search(line, at)
    if found is None:
        return None
    before, after = (side for side in found.groups() if side is not None)
    return _Change(found.start(), found.end(), before, after, "{}")


def _marked_pair(before: str, after: str, quotes: str) -> Iterator[str]:
    old, new = (re.findall(r"\s+|\S+", side) for side in (before, after))
    codes = opcodes(old, new)
    if not any(kind == "equal" and old[low:high] != [" "] for kind, low, high, _, _ in codes):
        yield from (_mark("del", quotes.format(before)), " → ", _mark("ins", quotes.format(after)))
        return
    left, right = quotes.split("{}")
    if len(before) + len(after) > _LONG:
        yield from _differing(old, new, codes)
    yield left
    yield from (_mark("" if kind == "equal" else "del", "".join(old[low:high])) for kind, low, high, _, _ in codes)
    yield f"{right} → {left}"
    yield from (_mark("" if kind == "equal" else "ins", "".join(new[low:high])) for kind, _, _, low, high in codes)
    yield right


def _differing(old: Sequence[str], new: Sequence[str], codes: Sequence[Opcode]) -> Iterator[str]:
    """Yield what differs of two long texts, to stand before them: their end may be far below; nothing if most of them does."""
    sides = [
        (tag, text)
        for kind, *places in codes
        if kind != "equal"
        for tag, text in (
            ("del", "".join(old[slice(*places[:2])]).strip()),
            ("ins", "".join(new[slice(*places[2:])]).strip()),
        )
        if text
    ]
    if 0 < sum(len(text) for _, text in sides) <= _LONG // 2:
        yield format_html_join(" ", "<{0}>{1}</{0}>", sides)
        yield " in "


def _mark(tag: str, text: str) -> str:
    return format_html("<{0}>{1}</{0}>", tag, text) if tag and text else text


def person(request: HttpRequest) -> User:
    """Return the request's account; the admin requires one."""
    if not request.user.is_authenticated:
        raise PermissionDenied
    return request.user


def number_in(text: str) -> int | None:
    """Return the number in a URL parameter; None where it isn't one, or is out of range."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def revision_url(number: int) -> str:
    """Return the page of a Revision."""
    return reverse("admin:policies_revision_change", args=[number])


def change_url(number: int) -> str:
    """Return the page of a Change."""
    return reverse("admin:policies_change_change", args=[number])


# Keys of the rows of things, by kind and name.
Rows = Mapping[tuple[str, str], int]


def rows_of(keys: Iterable[tuple[str, str]]) -> Rows:
    """Return the keys of the rows of things, with one query for each kind."""
    found, wanted = {}, set(keys)
    for kind, model in (("RuleSet", RuleSet), ("Assignment", Assignment), ("PriorityClass", PriorityClass)):
        names = [name for each, name in wanted if each == kind]
        for name, key in model.objects.filter(name__in=names).values_list("name", "pk") if names else ():
            found[kind, name] = key
    return found


def thing_urls(rows: Rows) -> dict[tuple[str, str], str]:
    """Return the page of each thing that has a row."""
    return {
        (kind, name): reverse(f"admin:policies_{kind.lower()}_change", args=[key]) for (kind, name), key in rows.items()
    }


def edit_url(kind: str, name: str, change: Change | None = None) -> str:
    """Return the URL of the form that edits a thing, in a Change or live; empty for a thing without a form."""
    return _edit_urls([(kind, name, change)])[0]


def _edit_urls(things: Sequence[tuple[str, str, Change | None]], rows: Rows | None = None) -> list[str]:
    """Return `edit_url` of each thing; the form of a rule set is found by its name."""
    if rows is None:
        rows = rows_of((kind, name) for kind, name, _ in things if kind != "RuleSet")
    return [_edit_url(kind, name, change, rows) for kind, name, change in things]


def _edit_url(kind: str, name: str, change: Change | None, rows: Rows) -> str:
    query = {"change": change.pk} if change else {}
    if kind == "RuleSet":
        return _with_query(reverse("admin:policies_rulesetversion_change", args=[f"edit:{name}"]), query)
    if kind not in _EDITS:
        return ""
    pages = f"admin:policies_{kind.lower()}"
    if (kind, name) not in rows:
        return _with_query(reverse(f"{pages}_add"), query | {"name": name})
    return _with_query(reverse(f"{pages}_change", args=[rows[kind, name]]), query)


# The permission for the form that edits a thing.
_EDITS = {
    "RuleSet": "policies.change_rulesetversion",
    "Assignment": "policies.change_assignment",
    "PriorityClass": "policies.change_priorityclass",
}


def edit_url_for(request: HttpRequest, kind: str, name: str, change: Change | None = None) -> str:
    """Return the URL of the form that edits a thing; empty for people who may not edit it."""
    return edit_urls_for(request, [(kind, name, change)])[0]


def edit_urls_for(
    request: HttpRequest, things: Sequence[tuple[str, str, Change | None]], rows: Rows | None = None
) -> list[str]:
    """Return `edit_url_for` of each thing; `rows` are those of the things, where they are known."""
    mine = [thing for thing in things if request.user.has_perm(_EDITS.get(thing[0], ""))]
    urls = dict(zip(mine, _edit_urls(mine, rows), strict=True))
    return [urls.get(thing, "") for thing in things]


def _with_query(url: str, query: Mapping[str, object]) -> str:
    return f"{url}?{urlencode(query)}" if query else url


def may_publish(request: HttpRequest) -> bool:
    """Return whether this person may publish, or send to review where that is required."""
    return request.user.has_perm("policies.publish")


def decisions_url(**filters: object) -> str:
    """Return the list of Decisions with filters (revision, rule_set, assignment)."""
    return f"{reverse('admin:scheduler_decision_changelist')}?{urlencode(filters)}"


def named(row: Any, name: str) -> SafeString | str:
    """Return a name on a row's page, as a link to that person's acts if the user may see these."""
    return person_link(name, is_link=getattr(row, "sees_people", False))


def link(url: str, text: object) -> SafeString:
    """Return a link."""
    return format_html('<a class="berth-link" href="{}">{}</a>', url, text)
