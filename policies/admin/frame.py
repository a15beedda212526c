"""The only module that imports Unfold. To a type checker its classes are Django's; they keep no request."""

from collections.abc import Callable
from copy import copy
from datetime import MAXYEAR
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import unfold.decorators
from django import forms
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import unquote
from django.core.exceptions import BadRequest, FieldDoesNotExist, PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import urlencode
from unfold.enums import ActionVariant

from policies.admin.panels import panels_of
from policies.admin.person_links import sees_people
from policies.publishing import OvertakenError, PublishingError

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin as DjangoModelAdmin
    from django.contrib.admin import StackedInline as DjangoStackedInline
    from django.contrib.admin.views.main import ChangeList as UnfoldChangeList

    UnfoldModelAdmin = DjangoModelAdmin[Any]
    StackedInline = DjangoStackedInline[Any, Any]
    InlineFormSet = forms.BaseInlineFormSet[Any, Any, Any]
    ModelForm = forms.ModelForm[Any]
else:
    from django.forms import ModelForm
    from unfold.admin import ModelAdmin as UnfoldModelAdmin
    from unfold.admin import StackedInline
    from unfold.forms import PaginationInlineFormSet as InlineFormSet
    from unfold.views import ChangeList as UnfoldChangeList

__all__ = [
    "ActionVariant",
    "ChangeList",
    "Function",
    "InlineFormSet",
    "ModelAdmin",
    "ModelForm",
    "RefusedForm",
    "StackedInline",
    "action",
    "display",
    "once",
    "refusal_of",
    "refuse_many_words",
]

Function = TypeVar("Function", bound=Callable[..., Any])


# The audit's names of kinds, where they differ from the model's name.
_AUDIT_KINDS = {"User": "Account", "Group": "Role"}
# The most words in a search of a list.
MOST_WORDS = 100
# The request attribute with the error that refused its save.
_REFUSAL = "berth.refusal"


def refusal_of(request: HttpRequest) -> PublishingError | None:
    """Return the error that refused this request's save; None if it wasn't refused."""
    refusal: PublishingError | None = request.META.get(_REFUSAL)
    return refusal


class RefusedForm(ModelForm):
    """A form that shows why its previous save was refused. The next save replaces what the refusal tells of."""

    # The hidden field with what its author saw, when the page was opened or since.
    seen_field: ClassVar[str]
    # What to do about what somebody else saved.
    advice: ClassVar[str]
    # The error that refused the previous save; the page's `get_form` sets it.
    refusal: PublishingError | None = None

    def clean(self) -> dict[str, Any]:
        """Show the refusal, and take what it tells of as seen."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.refusal:
            said = self.refusal.messages
            if isinstance(self.refusal, OvertakenError) and self.refusal.seen:
                typed: Any = copy(self.data)  # a request's own data can't be changed, its copy can
                # What the messages compare with: somebody may have saved again since.
                typed[self.add_prefix(self.seen_field)] = self.refusal.seen
                self.data = typed
                said = [*said, f"Nothing is saved yet, and your input is below. {self.advice}"]
            for line in said:
                self.add_error(None, line)
        return cleaned


def action(**options: Any) -> Callable[[Function], Function]:
    """Declare an Unfold action: description, permissions, url_path, variant, icon.

    A key in its URL that can't be any row's gives 404, without a query.
    """

    def declare(function: Function) -> Function:
        declared = unfold.decorators.action(**options)(function)

        @wraps(declared)
        def checked(model_admin: "ModelAdmin", request: HttpRequest, *arguments: Any, **named: Any) -> Any:
            if "object_id" in named:
                named["object_id"] = model_admin.key_of(str(named["object_id"]))
            return declared(model_admin, request, *arguments, **named)

        return cast("Function", checked)

    return declare


def display(**options: Any) -> Callable[[Function], Function]:
    """Declare a column: description, ordering, label."""
    return cast("Callable[[Function], Function]", unfold.decorators.display(**options))


def once(method: Function) -> Function:
    """Cache a field's value for a row: a page asks five times for each, always with the same row."""

    @wraps(method)
    def shown(model_admin: Any, row: Any) -> Any:
        kept: dict[str, Any] = vars(row).setdefault("shown", {})
        if method.__name__ not in kept:
            kept[method.__name__] = method(model_admin, row)
        return kept[method.__name__]

    return cast("Function", shown)


def refuse_many_words(text: str) -> None:
    """Refuse a search with more words than anybody types.

    Raises:
        BadRequest: it has too many; conditions are nested in each other, which takes seconds for a thousand.
    """
    if len(text.split()) > MOST_WORDS:
        message = f"A search can have at most {MOST_WORDS} words."
        raise BadRequest(message)


class ChangeList(UnfoldChangeList):
    """Unfold's list, whose rows carry whether names of people are links for this user.

    It refuses values that a filter doesn't have. Django ignores an unknown choice, and redirects from other invalid values to the
    list without any filter.
    """

    def get_filters(self, request: HttpRequest) -> Any:
        """Return the filters of the URL.

        Raises:
            DisallowedModelAdminLookup: a filter has no such choice.
        """
        found = super().get_filters(request)
        for each in found[0]:
            # By an unknown value these show everything, except for those whose choices are data: they show nothing.
            if not isinstance(each, SimpleListFilter) or getattr(each, "choices_are_data", False):
                continue
            if each.value() and each.value() not in dict(each.lookup_choices):
                raise _refusal_of(str(each.parameter_name))
        return found

    def get_queryset(self, request: HttpRequest, *more: Any, **named: Any) -> QuerySet[Any]:
        """Return the rows that the filters leave.

        Raises:
            DisallowedModelAdminLookup: a filter's value is invalid.
        """
        try:
            found: QuerySet[Any] = super().get_queryset(request, *more, **named)
        except IncorrectLookupParameters as error:
            raise _refusal_of(*self.get_filters_params()) from error
        return found

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, and attach this to each row. Where there is no such page any more, that is the last one."""
        try:
            super().get_results(request)
        except IncorrectLookupParameters:
            pages = self.model_admin.get_paginator(request, self.queryset, self.list_per_page)
            self.page_num = pages.num_pages
            super().get_results(request)
        for row in self.result_list:
            vars(row)["sees_people"] = sees_people(request)


class ModelAdmin(UnfoldModelAdmin):
    """Unfold's ModelAdmin without state that threads share, and with texts for empty lists."""

    empty_title = "Nothing here yet"
    empty_text = ""
    compressed_fields = False
    list_per_page = 50
    actions: Any = None
    change_form_outer_after_template = "policies/panels.html"
    # Columns by which links of other pages filter the list.
    linked_by: tuple[str, ...] = ()

    def says_when_empty(self) -> str:
        """Return the text of the list without rows."""
        return self.empty_text

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Allow the look-ups of the list's filters and of links on pages, and nothing else.

        Django allows any look-up on the row's own columns, such as `pod_name__regex`, with which any reader could
        keep the database busy for as long as they like.
        """
        if self.date_hierarchy and lookup in {f"{self.date_hierarchy}__{part}" for part in ("year", "month", "day")}:
            # A larger number overflows Python's dates, and so does the end of the last year.
            return str(value).isdecimal() and len(str(value)) <= len("9999") and int(value) < MAXYEAR
        return lookup in self.linked_by or any(lookup in _asked_by(each) for each in self.get_list_filter(request))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find the rows that have each word."""
        refuse_many_words(search_term)
        found: tuple[QuerySet[Any], bool] = super().get_search_results(request, queryset, search_term)
        return found

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the row. An empty `_to_field` counts as absent; Django would use it as a column's name."""
        row = super().get_object(request, object_id, from_field or None)
        if row is not None:
            setattr(row, "sees_people", sees_people(request))  # noqa: B010 - of any model
        return row

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Use the list whose rows carry what this user may see."""
        return ChangeList

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Begin with the address's values. Those that can't be a row's key are left out: Django would query them."""
        found = super().get_changeform_initial_data(request)
        return {name: value for name, value in found.items() if self._may_begin(name, value)}

    def _may_begin(self, name: str, value: Any) -> bool:
        try:
            field: Any = self.opts.get_field(name)
            if field.is_relation:
                for key in value if isinstance(value, list) else [value]:
                    field.target_field.clean(key, None)
        except FieldDoesNotExist:
            return True  # the form's own
        except (ValidationError, ValueError):
            return False
        return True

    def changeform_view(self, request: HttpRequest, object_id: str | None = None, *more: Any, **named: Any) -> Any:
        """Show the form; a key that can't be any row's gives 404, because the buttons above the form query it, too.

        If a save is refused because somebody else was faster, the form is validated again: it shows the reason, and
        keeps what was typed.
        """
        if object_id is not None:
            self.key_of(object_id)
        try:
            return super().changeform_view(request, object_id, *more, **named)
        except PublishingError as error:
            request.META[_REFUSAL] = error
            return super().changeform_view(request, object_id, *more, **named)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *more: Any, **named: Any
    ) -> HttpResponse:
        """Add what other modules show about the row."""
        context["panels"] = [*context.get("panels", ()), *panels_of(context.get("original"), request)]
        shown: HttpResponse = super().render_change_form(request, context, *more, **named)
        return shown

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Redirect to the row's audit events; Django's own page would be empty."""
        row: Any = self.get_object(request, self.key_of(object_id))
        if row is None:
            raise Http404
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        kind = _AUDIT_KINDS.get(self.opts.object_name or "", self.opts.object_name)
        name = getattr(row, "name", "") or getattr(row, "username", "") or row.pk
        return HttpResponseRedirect(f"{reverse('audit')}?{urlencode({'thing': f'{kind}/{name}'})}")

    def check_may_view(self, request: HttpRequest) -> None:
        """Refuse users who may not see these pages.

        Raises:
            PermissionDenied: they may not.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied

    def key_of(self, text: str) -> str:
        """Return a key of a URL unchanged, if it can be a row's.

        Raises:
            Http404: it can't.
        """
        key = unquote(text)
        try:
            self.opts.pk.clean(key, None)
        except (ValidationError, ValueError) as error:
            raise Http404 from error
        return key

    @property
    def request(self) -> HttpRequest:
        """Refuse: Unfold keeps the last request on this object, which all threads share."""
        message = "a ModelAdmin is shared between threads and keeps no request"
        raise AttributeError(message)

    @request.setter
    def request(self, value: HttpRequest) -> None:
        """Discard the request that Unfold would keep."""


def _refusal_of(*names: str) -> DisallowedModelAdminLookup:
    """Return Django's refusal of filters; the page of the error takes their names from it."""
    return DisallowedModelAdminLookup(f"Filtering by {' '.join(names)} not allowed")


def _asked_by(each: Any) -> set[str]:
    """Return the look-ups of a list's filter."""
    if isinstance(each, type):
        return {str(getattr(each, "parameter_name", ""))}
    name = each if isinstance(each, str) else each[0]
    return {name, *(f"{name}__{how}" for how in ("exact", "isnull", "id__exact", "pk__exact"))}
