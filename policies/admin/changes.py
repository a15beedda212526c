"""The pages of Changes, and the acts of their buttons."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import prefetch_related_objects
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST, require_safe

from policies import publishing
from policies.admin.base import change_url, person
from policies.admin.change_list import ListOfChanges
from policies.admin.change_page import ActForm, choice_of, context_of, shown_in_field
from policies.admin.edit_into import BeginForm, Offer
from policies.admin.gate import shown
from policies.models import Change, ChangeEvent
from policies.publishing import PublishingError, lifecycle

# Acts that record no words: a text typed with one is kept as a comment.
_WORDLESS = {"gate", "rebase", "discard", "schedule", "expire"}


@admin.register(Change)
class ChangeAdmin(ListOfChanges):
    """The pages of Changes."""

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
        if object_id is None:
            return self._begin(request)
        self.check_may_view(request)
        row = get_object_or_404(Change, pk=self.key_of(str(object_id)))
        return self._page(request, context_of(row, request))

    def _begin(self, request: HttpRequest) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form, faults = BeginForm(request.POST or None), []
        if request.method == "POST" and form.is_valid():
            try:
                made = publishing.begin_once(**form.cleaned_data, by=person(request))
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
        """Go to the form of a thing, in this Change; if that isn't possible, say why on the Change's page."""
        self.check_may_view(request)
        row = get_object_or_404(Change, pk=number)
        prefetch_related_objects([row], "edits")
        asked = request.GET.get("thing", "")
        try:
            url = Offer(row, publishing.current_revision(), request).form_of(asked)
        except PublishingError as error:
            return self._page(request, context_of(row, request, error.messages, asked_thing=asked))
        if refused := lifecycle.refusal("edit", publishing.actor_of(person(request)), publishing.standing_of(row)):
            return self._page(request, context_of(row, request, [refused]))
        return HttpResponseRedirect(url)

    def act(self, request: HttpRequest, number: int) -> HttpResponse:
        """Do the act of a button. A refusal shows the page again, with the typed text."""
        self.check_may_view(request)
        row = get_object_or_404(Change, pk=number)
        form = ActForm(request.POST)
        act, _, what = request.POST.get("act", "").partition(" ")
        if act not in _ACTS or not form.is_valid():
            text = request.POST.get("text", "")
            return self._page(request, context_of(row, request, _unread(form), text=text, chosen=request.POST))
        try:
            said = _done(act, row, request, form.cleaned_data | {"what": what})
        except PublishingError as error:
            row.refresh_from_db()
            text = form.cleaned_data["text"]
            return self._page(request, context_of(row, request, error.messages, text=text, chosen=request.POST))
        messages.success(request, said)
        return HttpResponseRedirect(change_url(number))

    def gate(self, request: HttpRequest, number: int) -> HttpResponse:
        """Show only the gate's part of the page."""
        self.check_may_view(request)
        row = get_object_or_404(Change, pk=number)
        context = {"change": row, "gate": shown(row, publishing.gate_of(row)), "was_polled": True}
        return TemplateResponse(request, "policies/change_gate.html", context)

    def _page(self, request: HttpRequest, of_row: Mapping[str, Any]) -> TemplateResponse:
        context = {**self.admin_site.each_context(request), "opts": self.opts, **of_row}
        return TemplateResponse(request, "policies/change.html", context)


def _unread(form: ActForm) -> list[str]:
    """Return the faults of the fields that people fill in, else the message that the form isn't this page's."""
    wrong = [(form[name], errors) for name, errors in form.errors.items() if name in form.fields]
    said = [f"{field.label}: {error}" for field, errors in wrong if not field.is_hidden for error in errors]
    return said or ["The form was incomplete. Reload the page."]


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


def _with_text(act: Callable[..., object], said: str) -> _Act:
    """Return the act that takes the typed text, and whose outcome is always the same."""

    def do(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
        act(change=row, by=person(request), expected_digest=typed["digest"], text=typed["text"])
        return said

    return do


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


def _gate(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    del typed
    publishing.run_gate(change=row, by=person(request))
    return "The gate runs as soon as a worker is free."


def _rebase(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    chosen = {edit.key: request.POST.get(choice_of(edit.key), "mine") for edit in publishing.edits_of(row)}
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
    return {publishing.ORDER: request.POST.get(choice_of(publishing.ORDER), "mine")}


def _parts_chosen(request: HttpRequest, key: publishing.Key) -> dict[str, str]:
    """Return whose side was chosen for each part that both sides changed."""
    before = f"{choice_of(key)} "
    return {name.removeprefix(before): request.POST[name] for name in request.POST if name.startswith(before)}


def _ask(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    publishing.ask_for_review(change=row, by=person(request), whom=typed["whom"], text=typed["text"])
    return f"{typed['whom']} was asked for a review."


def _schedule(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    at = _unless_as_shown(typed["publish_at"], typed["shown_at"])
    publishing.schedule_change(
        change=row, by=person(request), publish_at=at, expected_digest=typed["digest"], expected_at=typed["shown_at"]
    )
    return (
        f"The Change goes live at {publishing.said_at(at)}, as it is now."
        if at
        else "The Change goes live when somebody publishes it."
    )


def _expire(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    at = _unless_as_shown(typed["expires_at"], row.expires_at)
    publishing.set_expiry(change=row, by=person(request), expires_at=at, expected_digest=typed["digest"])
    return f"The Change expires at {publishing.said_at(at)}." if at else "The Change doesn't expire."


def _unless_as_shown(typed: datetime | None, held: datetime | None) -> datetime | None:
    """Return the typed time; the one that is set, with its fractions of seconds, if the field shows the same."""
    return held if shown_in_field(typed) == shown_in_field(held) else typed


def _comment(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    publishing.comment_on_change(change=row, by=person(request), text=typed["text"])
    return "Your comment was added."


def _describe(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    if not typed["text"].strip():
        raise PublishingError(["Enter the reason below."])
    publishing.describe_change(
        change=row, by=person(request), expected_digest=typed["digest"], reason=typed["text"], expected_reason=""
    )
    return "Your text is now the reason of the Change. Approvals stay."


def _discard(row: Change, request: HttpRequest, typed: dict[str, Any]) -> str:
    kind, _, name = typed["what"].partition("/")
    publishing.discard_edits(change=row, keys=[(kind, name)], by=person(request), expected_digest=typed["digest"])
    return f"The edit of {name} is discarded."


_ACTS: dict[str, _Act] = {
    "publish": _publish,
    "urgent": _urgent,
    "approve": _approve,
    "submit": _with_text(publishing.submit_change, "The Change is in review."),
    "gate": _gate,
    "ask": _ask,
    "schedule": _schedule,
    "expire": _expire,
    "rebase": _rebase,
    ChangeEvent.Act.COMMENT: _comment,
    "describe": _describe,
    "reject": _with_text(publishing.reject_change, "The Change is rejected."),
    "reopen": _with_text(publishing.reopen_change, "The Change is a draft again."),
    "withdraw": _with_text(publishing.withdraw_change, "The Change is withdrawn."),
    "discard": _discard,
}
