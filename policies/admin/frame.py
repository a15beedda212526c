"""The one door to Unfold, with types: its classes are Django's to a type checker, and keep no request."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import unfold.decorators
from django import forms
from django.http import HttpRequest
from unfold.enums import ActionVariant

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin as DjangoModelAdmin
    from django.contrib.admin import StackedInline as DjangoStackedInline
    from django.contrib.admin.views.main import ChangeList

    UnfoldModelAdmin = DjangoModelAdmin[Any]
    StackedInline = DjangoStackedInline[Any, Any]
    InlineFormSet = forms.BaseInlineFormSet[Any, Any, Any]
    ModelForm = forms.ModelForm[Any]
else:
    from django.forms import ModelForm
    from unfold.admin import ModelAdmin as UnfoldModelAdmin
    from unfold.admin import StackedInline
    from unfold.forms import PaginationInlineFormSet as InlineFormSet
    from unfold.views import ChangeList

__all__ = [
    "ActionVariant",
    "ChangeList",
    "Function",
    "InlineFormSet",
    "ModelAdmin",
    "ModelForm",
    "StackedInline",
    "action",
    "display",
]

Function = TypeVar("Function", bound=Callable[..., Any])


def action(**options: Any) -> Callable[[Function], Function]:
    """Declare an Unfold action: description, permissions, url_path, variant, icon."""
    return cast("Callable[[Function], Function]", unfold.decorators.action(**options))


def display(**options: Any) -> Callable[[Function], Function]:
    """Declare a column: description, ordering, label."""
    return cast("Callable[[Function], Function]", unfold.decorators.display(**options))


class ModelAdmin(UnfoldModelAdmin):
    """Unfold's ModelAdmin without what its threads share, and with words for empty lists."""

    empty_title = "Nothing here yet"
    empty_text = ""
    compressed_fields = False
    list_per_page = 50
    actions: Any = None

    @property
    def request(self) -> HttpRequest:
        """Refuse: Unfold keeps the last request on this object, which all threads share."""
        message = "a ModelAdmin is shared between threads and keeps no request"
        raise AttributeError(message)

    @request.setter
    def request(self, value: HttpRequest) -> None:
        """Forget what Unfold would keep."""
