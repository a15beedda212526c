"""Rows that are saved one by one and go live together: what the pages of Assignments and PriorityClasses have alike."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.text import capfirst

from policies import compiler
from policies.admin.frame import ChangeList, ModelAdmin, ModelForm, action, display
from policies.admin.rule_sets import may_publish
from policies.engine.errors import Fault, RuleSetError


class CheckedForm(ModelForm):
    """A form of one row, checked as the engine does. What the engine finds stands at the fields that it is about."""

    # Where a fault is in the document -> the field; the first that it begins with.
    places: Mapping[str, str]
    # The document of a row, which needn't be right.
    document: Callable[[Any], dict[str, Any]]
    # What the row held when the page was made: a save over somebody else's edit is refused.
    loaded_digest = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The page without change permission has none of the fields.
        if "loaded_digest" in self.fields and self.instance.pk:
            self.fields["loaded_digest"].initial = compiler.digest_of_row(self.document(self.instance))
        if "description" in self.fields:
            self.fields["description"].widget.attrs["rows"] = 2

    def check_row(self) -> Sequence[Fault]:
        """Return what stands against the row as the form has filled it.

        Raises:
            RuleSetError: its document is faulty.
        """
        raise NotImplementedError

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # ModelForm's hook: the instance has the typed values after it
        if self.instance.pk:
            self._refuse_overwriting()
        if self.errors:
            return
        try:
            faults = self.check_row()
        except RuleSetError as error:
            faults = error.faults
        for fault in faults:
            place = next((name for path, name in self.places.items() if fault.path.startswith(path)), None)
            self.add_error(place, fault.message)

    def _refuse_overwriting(self) -> None:
        """Hold the row until the transaction ends, and compare it with the one that was loaded."""
        now = self._meta.model.objects.select_for_update().filter(pk=self.instance.pk).first()
        if now is None:
            self.add_error(
                None, f"{self.instance} was deleted after you opened it. Copy what you need and add it anew."
            )
            return
        digest = compiler.digest_of_row(self.document(now))
        same = not self.errors and digest == compiler.digest_of_row(self.document(self.instance))
        if same or digest == self.cleaned_data.get("loaded_digest"):
            return
        typed: Any = copy(self.data)  # a request's own data can't be changed, its copy can
        typed[self.add_prefix("loaded_digest")] = digest
        self.data = typed
        saved = (
            f"{now.author or 'Somebody'} saved {now} at {now.updated_at:%Y-%m-%d %H:%M:%S} UTC, after you opened it."
        )
        advice = "Open it in another tab to see theirs; save again to replace theirs by what is here."
        self.add_error(None, f"{saved} {advice}")


class DifferingChangeList(ChangeList):
    """A list whose rows know how they differ from what is live."""

    model_admin: "TogetherAdmin"

    def get_results(self, request: HttpRequest) -> None:
        """Note it at each row."""
        super().get_results(request)
        differing = self.model_admin.unpublished()
        for row in self.result_list:
            row.differing = differing.get(row.name, "")


class TogetherAdmin(ModelAdmin):
    """The pages of such rows. Publishing them is an action of its own, `publish_all`; saving leads to it where asked for."""

    list_display_links = ("name_link",)
    actions_list: tuple[str, ...] = ("publish_all",)
    actions_submit_line = ("save_and_publish",)

    def unpublished(self) -> Mapping[str, str]:
        """Return the names of rows that differ from what is live, each with how: new, changed or removed."""
        raise NotImplementedError

    def publish_all(self, request: HttpRequest) -> HttpResponse:
        """Show what publishing would do, and do it. An action, see `publish_action`."""
        raise NotImplementedError

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Use the list that knows what is live."""
        return DifferingChangeList

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Return what is not live yet."""
        extra = {"differing": self.unpublished(), "may_publish": may_publish(request)}
        return super().changelist_view(request, {**(extra_context or {}), **extra})

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Leave out buttons that lead to what saving leads to anyway."""
        less = {"show_save_and_continue": False, "show_save_and_add_another": False}
        return super().render_change_form(request, {**context, **less}, *args, **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Carry what was loaded along, where it can be changed."""
        carried = [(None, {"fields": ("loaded_digest",)})] if obj and self.has_change_permission(request, obj) else []
        return [*super().get_fieldsets(request, obj), *carried]

    def has_publish_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Return whether this person may publish."""
        return may_publish(request)

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: Any = None) -> HttpResponse:
        """Go on to publishing, or to the list that says what isn't live."""
        return self._after_saving(request, obj)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Go on to publishing, or to the list that says what isn't live."""
        return self._after_saving(request, obj)

    def _after_saving(self, request: HttpRequest, obj: Any) -> HttpResponse:
        pages = f"{self.opts.app_label}_{self.opts.model_name}"
        if f"{pages}_save_and_publish" in request.POST:
            return HttpResponseRedirect(reverse(f"admin:{pages}_publish_all"))
        rows = capfirst(self.opts.verbose_name_plural)
        messages.success(request, f"{obj} is saved. It is live once the {rows} are published.")
        return HttpResponseRedirect(reverse(f"admin:{pages}_changelist"))

    @action(description="Save and publish…", permissions=["publish"])
    def save_and_publish(self, request: HttpRequest, obj: Any) -> None:
        """Do nothing more than save: the response goes on to the publishing page."""

    @display(description="Name", ordering="name")
    def name_link(self, row: Any) -> str:
        """Name it."""
        return str(row.name)

    @display(description="Last edit", ordering="updated_at")
    def last_edit(self, row: Any) -> str:
        """Return who saved it last, and when."""
        return f"{row.author or 'unknown'} at {row.updated_at:%Y-%m-%d %H:%M} UTC"

    @display(description="Live?", label={"live": "success", "not live: new": "warning", "not live: changed": "warning"})
    def live_label(self, row: Any) -> str:
        """Return whether it is live as it stands here."""
        differing = getattr(row, "differing", "")
        return f"not live: {differing}" if differing else "live"
