"""Forms that save into a Change: the choice of the Change, and saves that somebody else overtook."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from policies import publishing
from policies.admin.base import (
    Confirmation,
    change_url,
    confirm,
    edit_url,
    edit_urls_for,
    link,
    may_publish,
    named,
    person,
)
from policies.admin.frame import ChangeList, ModelAdmin, RefusedForm, action, display, refusal_of
from policies.changes_in_words import part_changes
from policies.engine.errors import Fault, RuleSetError
from policies.models import Change
from policies.publishing import Key, PublishingError, Value, lifecycle
from policies.sentences import ending_sentence

# The request attribute with the Change that the form was saved into.
_SAVED = "berth.saved_in"
# In the notice of open edits; the list of open Changes has them all.
_MOST_EDITS_SHOWN = 10


def say_saved(request: HttpRequest, key: Key, saved: Change) -> None:
    """Add messages: which Change an edit is in, and which others edit the same thing."""
    name = key[1]
    messages.success(request, f"{name} is in {saved}. It isn't live until that Change is published.")
    for number in publishing.open_changes_of([key]):
        if number != saved.pk:
            said = f"Change {number} also edits {name}: whoever publishes second has to compare both and rebase."
            messages.warning(request, said)


def open_change_of(request: HttpRequest) -> Change | None:
    """Return the open Change that the address names, if it names one."""
    number = request.GET.get("change", "")
    if not number.isdecimal() or len(number) > 18:  # noqa: PLR2004 - more than any key has
        return None
    return Change.objects.filter(pk=int(number), state__in=lifecycle.OPEN).first()


class EditForm(RefusedForm):
    """A form for one thing, which saves into a Change."""

    seen_field = "loaded_digest"
    advice = "Save again to overwrite their edit, or open it in another tab first."
    # The Change whose edit is shown; None where the live thing is shown. `EditingAdmin.get_form` sets it.
    loaded_from: Change | None = None

    goes_into = forms.ChoiceField(
        label="Goes into",
        required=False,
        widget=UnfoldAdminSelectWidget,
        help_text="A Change is reviewed as a whole and goes live as one Revision. An edit drops its approvals.",
        error_messages={"invalid_choice": "This Change can no longer be edited. Choose another one, or a new one."},
    )
    new_title = forms.CharField(
        label="Title of the new Change",
        required=False,
        max_length=200,
        widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "Purpose, in one line"}),
        help_text="Empty: it is named after what is edited.",
    )
    # The digest of the content when the page was loaded: a save over somebody else's edit is refused.
    loaded_digest = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The page without change permission has none of the fields.
        if "description" in self.fields:
            self.fields["description"].widget.attrs["rows"] = 2
        if "goes_into" not in self.fields:
            return
        offered = {each.pk: each for each in ([self.loaded_from] if self.loaded_from else [])}
        offered |= {each.pk: each for each in publishing.changes_to_edit()}
        choices = [(str(each.pk), f"{each} ({each.get_state_display()}): {each.title}") for each in offered.values()]
        self.fields["goes_into"].choices = [("", "a new Change"), *choices]  # type: ignore[attr-defined] # as declared
        self.fields["goes_into"].initial = str(self.loaded_from.pk) if self.loaded_from else ""
        self.fields["loaded_digest"].initial = publishing.seen_of(self.loaded_from, self.key())

    def key(self) -> Key:
        """Return the kind and name of the thing; the name is empty until somebody types it."""
        raise NotImplementedError

    def chosen(self) -> Change | None:
        """Return the Change that the edit goes into; None for a new one."""
        number = self.cleaned_data.get("goes_into")
        return Change.objects.get(pk=number) if number else None


class RowForm(EditForm):
    """A form for a thing that is one row, checked by the engine. Each fault is shown at the field that it concerns."""

    kind: str
    # Prefix of a fault's path in the document -> the field; the first match counts.
    places: Mapping[str, str]

    def key(self) -> Key:
        """Return kind and name."""
        field = self.fields.get("name")
        return self.kind, self.instance.name or (field.initial if field else "") or ""

    def check_row(self) -> Sequence[Fault]:
        """Return the faults of the row as the form has filled it.

        Raises:
            RuleSetError: its document is faulty.
        """
        raise NotImplementedError

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # ModelForm's hook: the instance has the typed values after it
        # All faults are shown at once. The row lacks the typed value of a field that is already faulty, so the engine's
        # faults about that field, and about the row as a whole, would be wrong.
        faulty = {*self.errors}
        try:
            faults = self.check_row()
        except RuleSetError as error:
            faults = error.faults
        except PublishingError as error:
            # The chosen Change has an edit that a newer Berth wrote.
            self.add_error("goes_into", error.messages)
            return
        for fault in faults:
            place = next((name for path, name in self.places.items() if fault.path.startswith(path)), None)
            if not faulty or (place is not None and place not in faulty):
                self.add_error(place, fault.message)


class EditedChangeList(ChangeList):
    """A list whose rows carry their open edits."""

    model_admin: "EditingAdmin"

    def get_results(self, request: HttpRequest) -> None:
        """Attach the open edits to each row."""
        super().get_results(request)
        edits: dict[str, list[Change]] = {}
        names = [self.model_admin.name_of(row) for row in self.result_list]
        for edit in publishing.open_edits(self.model_admin.kind, names) if names else ():
            edits.setdefault(edit.name, []).append(edit.change)
        for row in self.result_list:
            row.open_in = edits.get(self.model_admin.name_of(row), [])


class EditingAdmin(ModelAdmin):
    """Pages of things that are edited through Changes. They show the live thing, or the edit of `?change=N`."""

    kind: str
    actions_submit_line: tuple[str, ...] = ("save_and_publish",)
    list_before_template = "policies/open_edits.html"

    def name_of(self, row: Any) -> str:
        """Return the name of a row's thing."""
        return str(row.name)

    def edited(self, request: HttpRequest, name: str) -> Value | None:
        """Return a thing's content in the Change that the address names; None where that Change doesn't edit it."""
        change, key = open_change_of(request), (self.kind, name)
        return publishing.found_in(change, key).value if change and publishing.edit_in(change, key) else None

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001,FBT002 - Django's
        """Return the form, for the Change that the address names."""
        form = super().get_form(request, obj, change, **kwargs)
        form.loaded_from = open_change_of(request)  # type: ignore[attr-defined] # a class made for this request
        form.refusal = refusal_of(request)  # type: ignore[attr-defined]
        return form

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Use the list that shows open edits."""
        return EditedChangeList

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Return the list, with a notice of edits in open Changes."""
        return super().changelist_view(request, {**(extra_context or {}), **self._open_edits(request)})

    def _open_edits(self, request: HttpRequest, *names: str) -> dict[str, Any]:
        """Return the notice of edits in open Changes; with names, only of these things."""
        found = publishing.open_edits(self.kind, names)
        shown = list(found[: _MOST_EDITS_SHOWN + 1])
        more = found.count() - _MOST_EDITS_SHOWN if len(shown) > _MOST_EDITS_SHOWN else 0
        shown = shown[:_MOST_EDITS_SHOWN]
        urls = edit_urls_for(request, [(edit.kind, edit.name, edit.change) for edit in shown])
        edits = [
            {
                "name": edit.name,
                "how": "edited" if edit.document else "removed",
                "author": edit.author,
                "change": edit.change,
                "url": change_url(edit.change_id),
                "edit_url": url,
            }
            for edit, url in zip(shown, urls, strict=True)
        ]
        return {"open_edits": edits, "more_open_edits": more, "all_open_edits": len(shown) + more}

    def put(self, request: HttpRequest, form: EditForm, value: Value) -> None:
        """Put a form's content into its Change."""
        chosen = form.chosen()
        saved = publishing.save_edit(
            edit=publishing.Edit.of(value),
            change=chosen,
            by=person(request),
            title=form.cleaned_data["new_title"] or f"{self._kind_in_words()} {value.name}",
            seen=form.cleaned_data["loaded_digest"],
        )
        request.META[_SAVED] = (saved, chosen is None)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Show what the removal of a thing takes away, and put the removal into a Change."""
        row = self.get_object(request, self.key_of(object_id))
        if not self.has_delete_permission(request, row):
            raise PermissionDenied
        if row is None:
            raise Http404
        change, key = open_change_of(request), (self.kind, self.name_of(row))
        return confirm(
            self,
            request,
            lambda: self._removal_page(change, key),
            lambda reason, digest: self._remove(request, change, key, reason, digest),
            answer=lambda: self._after_saving(request, key[1]),
        )

    def _removal_page(self, change: Change | None, key: Key) -> Confirmation:
        held = publishing.found_in(change, key).value
        removal = publishing.Edit(*key, None)
        ended = publishing.ended_with(publishing.current_revision(), [removal])
        back_at = change.expires_at if change else None
        return Confirmation(
            title=f"Remove {self._kind_in_words()} {key[1]}",
            effect=f"Adds the removal to {change or 'a new Change'}. Nothing is removed until that Change is published.",
            changes=[*part_changes(held, None), *(ending_sentence(each, back_at) for each in ended)],
            edits=[removal],
            faults=[] if held else [f"{key[1]} is already removed."],
            button="Remove in the Change" if change else "Remove in a Change",
            back=edit_url(self.kind, key[1], change),
            digest=publishing.seen_of(change, key),
            danger=True,
        )

    def _remove(self, request: HttpRequest, change: Change | None, key: Key, reason: str, seen: str) -> None:
        _, _, number = publishing.parts_of_seen(seen)
        if change is None and number:
            raise PublishingError(
                ["The Change that you looked at can no longer be edited. Confirm again to open a new one."]
            )
        with transaction.atomic():
            saved = publishing.save_edit(
                edit=publishing.Edit(*key, None),
                change=change,
                by=person(request),
                title=f"Remove {self._kind_in_words()} {key[1]}",
                seen=seen,
                reason=reason,
            )
            if change is not None and saved is not None:
                # An existing Change has its own reason.
                publishing.comment_on_change(change=saved, by=person(request), text=reason)
        request.META[_SAVED] = (saved, change is None)

    def _kind_in_words(self) -> str:
        return "rule set" if self.kind == "RuleSet" else self.kind

    # A Change records its own events; Django's log would name rows that nobody has changed.
    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Leave it to the Change's events."""

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Leave it to the Change's events."""

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: Any = None) -> HttpResponse:
        """Go on to the Change."""
        return self._after_saving(request, self.name_of(obj))

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Go on to the Change."""
        return self._after_saving(request, self.name_of(obj))

    def _after_saving(self, request: HttpRequest, name: str) -> HttpResponse:
        saved, is_new = request.META[_SAVED]
        if saved is None:
            messages.info(request, f"{name} equals what is live: there was nothing to save.")
            return HttpResponseRedirect(reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"))
        if f"{self.opts.app_label}_{self.opts.model_name}_save_and_publish" in request.POST and is_new:
            return self._publish(request, saved)
        say_saved(request, (self.kind, name), saved)
        if "_continue" in request.POST:
            return HttpResponseRedirect(edit_url(self.kind, name, saved))
        return HttpResponseRedirect(change_url(saved.pk))

    def _publish(self, request: HttpRequest, saved: Change) -> HttpResponse:
        """Publish the Change that this save made, and nothing else; otherwise its page says why it can't be published."""
        try:
            made = publishing.publish_change(change=saved, by=person(request), expected_digest=saved.digest)
        except PublishingError as error:
            messages.warning(request, f"The edit is saved in {saved}, but not published: {' '.join(error.messages)}")
        else:
            messages.success(request, f"{made} was made.")
        return HttpResponseRedirect(change_url(saved.pk))

    def has_publish_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Return whether this person may publish what they save, and the settings don't require anything between the two."""
        may = may_publish(request) and self.has_change_permission(request)
        # What a rule set asks for besides is found when its edit is published.
        return may and not settings.BERTH.gate_required and not publishing.needs_of(())

    @action(description="Save and publish", permissions=["publish"])
    def save_and_publish(self, request: HttpRequest, obj: Any) -> None:
        """Do nothing here: the response publishes."""

    def change_line(self, row: Any, by: str) -> SafeString:
        """Return the day and author of its last change; below, links to the open Changes that edit it."""
        at, found = row.updated_at, getattr(row, "open_in", [])
        links = format_html_join(", ", "{}", ((link(change_url(change.pk), change),) for change in found))
        line = '<div><span class="berth-nowrap"><time title="{}">{}</time> {}</span>{}</div>'
        open_in = format_html("<br>open in {}", links) if found else ""
        return format_html(line, f"{at:%Y-%m-%d %H:%M} UTC", f"{at:%Y-%m-%d}", named(row, by), open_in)


class RowAdmin(EditingAdmin):
    """Pages of things that are one row when they are live, such as Assignments."""

    list_display_links = ("name_link",)
    change_form_before_template = "policies/open_edits.html"

    def columns_of(self, value: Any) -> dict[str, Any]:
        """Return the columns of a content's row."""
        raise NotImplementedError

    def value_of(self, row: Any) -> Value:
        """Return the checked content of a row."""
        raise NotImplementedError

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the row, with the edit of the Change that the address names, else with the live content.

        In a row's column of PostgreSQL's jsonb 1e16 is a whole number, and saving the form would make it one.
        """
        row = super().get_object(request, object_id, from_field)
        live = publishing.values_of(publishing.current_revision())
        value = (self.edited(request, row.name) or live.get((self.kind, row.name))) if row else None
        for column, content in (self.columns_of(value) if value else {}).items():
            setattr(row, column, content)
        return row

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001,FBT002 - Django's
        """Keep the name of a thing that is in a Change and not live yet."""
        form = super().get_form(request, obj, change, **kwargs)
        name = request.GET.get("name", "")
        if obj is None and "name" in form.base_fields and self.edited(request, name):
            form.base_fields["name"].initial, form.base_fields["name"].disabled = name, True
        return form

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Begin with a new thing's content in the Change that the address names."""
        value = self.edited(request, request.GET.get("name", ""))
        initial: dict[str, Any] = dict(super().get_changeform_initial_data(request))
        return initial | ({"name": value.name, **self.columns_of(value)} if value else {})

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Add the choice of the Change, where the thing can be edited."""
        may = self.has_change_permission(request, obj) if obj else self.has_add_permission(request)
        where = [("Save into", {"fields": (("goes_into", "new_title"), "loaded_digest")})] if may else []
        return [*super().get_fieldsets(request, obj), *where]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        """Put the edit into its Change."""
        self.put(request, form, self.value_of(obj))

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Leave out the button that would do nothing, and say who else is editing the thing."""
        row = context.get("original")
        name = self.name_of(row) if row else request.GET.get("name", "")
        more = {"show_save_and_add_another": False, **(self._open_edits(request, name) if name else {})}
        return super().render_change_form(request, {**context, **more}, *args, **kwargs)

    @display(description="Name", ordering="name")
    def name_link(self, row: Any) -> str:
        """Return the name."""
        return str(row.name)

    @display(description="Last edit", ordering="updated_at")
    def last_edit(self, row: Any) -> SafeString:
        """Return who edited it last, and since when that edit is live; below, the open Changes that edit it."""
        return self.change_line(row, row.author or "unknown")
